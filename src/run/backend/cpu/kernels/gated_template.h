/* act(gate) * up over a row, its form for interleaved inputs, and its gradients, written once over the vector vocabulary.
 * Bound by memory in f32 (forward: all of the bandwidth bound, backward 75 %); a vector of 16-bit
 * results takes 6.5 ns from the table, so that 2 threads reach 65 to 80 % of the bound (docs/performance.md). Uses the
 * TILE_* words and tile_act_rounded of tile_template.h. */
#define GATED_FN static inline __attribute__((always_inline)) void

/* act and its slope without rounding. Beyond 20 every slope here is 0 or 1 to the last bit of f32. */
ACT_FN v_f32 gated_slope(const ep_act act, v_f32 x) {
    v_f32 one = v_set1(1.0f), t = v_max_any(v_set1(-20.0f), v_min_any(v_set1(20.0f), x));
    switch (act) {
    case EP_ACT_GELU_TANH: {
        v_f32 c = v_set1(0.797884561f), tt = t * t;
        v_f32 z = c * t * (one + v_set1(0.044715f) * tt);
        v_f32 s = one / (one + v_exp(z * v_set1(-2.0f)));
        return s + v_set1(2.0f) * t * s * (one - s) * c * (one + v_set1(0.134145f) * tt);
    }
    case EP_ACT_GELU_ERF: {
        v_f32 phi = v_set1(0.398942280f) * v_exp(v_set1(-0.5f) * t * t);
        return v_set1(0.5f) * (one + v_erf(t * v_set1(0.707106781f))) + t * phi;
    }
    case EP_ACT_SILU: {
        v_f32 s = one / (one + v_exp(-t));
        return s * (one + t * (one - s));
    }
    case EP_ACT_RELU: return v_blend(v_le(x, v_set1(0.0f)), v_set1(0.0f), one);
    default: return one;
    }
}

V_FN v_f32 gated_one(const ep_act act, const bool eager, const float *table, v_f32 g, v_f32 u) {
    (void)table;
    return (eager ? tile_act_rounded(act, table, g) : act_apply(act, g)) * u;
}

GATED_FN gated_row_body(const ep_gated_row *r, const ep_act act, const bool eager) {
    const char *g = r->gate, *u = r->up;
    char *out = r->out;
    int64_t i = 0;
    for (; i + V_LANES <= r->n; i += V_LANES)
        TILE_STORE(out + i * TILE_SIZE,
                   gated_one(act, eager, r->table, TILE_LOAD(g + i * TILE_SIZE), TILE_LOAD(u + i * TILE_SIZE)));
    int n = (int)(r->n - i);
    if (n > 0)
        TILE_STORE_N(
            out + i * TILE_SIZE,
            gated_one(act, eager, r->table, TILE_LOAD_N(g + i * TILE_SIZE, n), TILE_LOAD_N(u + i * TILE_SIZE, n)), n);
}

/* gate[i] and up[i] stand side by side from r->gate on. */
GATED_FN gated_pairs_body(const ep_gated_row *r, const ep_act act, const bool eager) {
    const char *p = r->gate;
    char *out = r->out;
    for (int64_t i = 0; i < r->n; i += V_LANES, p += 2 * V_LANES * TILE_SIZE) {
        int n = r->n - i < V_LANES ? (int)(r->n - i) : V_LANES;
#if TILE_SIZE == 2
        v_i32 q = v_bits(n == V_LANES ? v_load(p) : v_load_n(p, n));
        v_f32 g = TILE_LOW(q), u = TILE_HIGH(q);
#else
        v_f32 a = n == V_LANES ? v_load(p) : v_load_n(p, 2 * n < V_LANES ? 2 * n : V_LANES);
        v_f32 b =
            n == V_LANES ? v_load(p + 4 * V_LANES) : v_load_n(p + 4 * V_LANES, 2 * n > V_LANES ? 2 * n - V_LANES : 0);
        v_f32 g = v_even(a, b), u = v_odd(a, b);
#endif
        TILE_STORE_N(out + i * TILE_SIZE, gated_one(act, eager, r->table, g, u), n);
    }
}

GATED_FN gated_back_body(const ep_gated_row *r, const ep_act act, const bool eager) {
    const char *pd = r->dy, *pg = r->gate, *pu = r->up;
    char *dg = r->out, *du = r->dup;
    for (int64_t i = 0; i < r->n; i += V_LANES) {
        int n = r->n - i < V_LANES ? (int)(r->n - i) : V_LANES;
        v_f32 d = TILE_LOAD_N(pd + i * TILE_SIZE, n), g = TILE_LOAD_N(pg + i * TILE_SIZE, n);
        v_f32 u = TILE_LOAD_N(pu + i * TILE_SIZE, n), h = d * u, a, s;
        if (act == EP_ACT_COUNT) {
            a = tile_act_rounded(act, r->table, g);
            s = tile_slope_lookup(r->slopes, g);
        } else {
            a = act_apply(act, g);
            s = gated_slope(act, g);
            if (eager) a = TILE_ROUND(a);
        }
        if (eager) h = TILE_ROUND(h);
        TILE_STORE_N(dg + i * TILE_SIZE, h * s, n);
        TILE_STORE_N(du + i * TILE_SIZE, d * a, n);
    }
}

#define GATED_DEFINE(NAME, BODY)                                                                                       \
    static void NAME(const ep_gated_row *r) {                                                                          \
        bool eager = r->eager && TILE_SIZE < 4;                                                                        \
        if (eager && r->table) {                                                                                       \
            BODY(r, EP_ACT_COUNT, true);                                                                               \
            return;                                                                                                    \
        }                                                                                                              \
        switch (r->act) {                                                                                              \
        case EP_ACT_GELU_TANH: eager ? BODY(r, EP_ACT_GELU_TANH, true) : BODY(r, EP_ACT_GELU_TANH, false); break;      \
        case EP_ACT_GELU_ERF: eager ? BODY(r, EP_ACT_GELU_ERF, true) : BODY(r, EP_ACT_GELU_ERF, false); break;         \
        case EP_ACT_SILU: eager ? BODY(r, EP_ACT_SILU, true) : BODY(r, EP_ACT_SILU, false); break;                     \
        case EP_ACT_RELU: eager ? BODY(r, EP_ACT_RELU, true) : BODY(r, EP_ACT_RELU, false); break;                     \
        default: eager ? BODY(r, EP_ACT_NONE, true) : BODY(r, EP_ACT_NONE, false); break;                              \
        }                                                                                                              \
    }
GATED_DEFINE(gated_row, gated_row_body)
GATED_DEFINE(gated_pairs, gated_pairs_body)
GATED_DEFINE(gated_back, gated_back_body)

#if TILE_SIZE == 2
static void gated_fill_slopes(ep_act act, float *out) {
    for (int i = 0; i < 65536; i += V_LANES) {
        unsigned short h[V_LANES];
        for (int l = 0; l < V_LANES; l++) h[l] = (unsigned short)(i + l);
        v_f32 g = TILE_LOAD(h);
        switch (act) {
        case EP_ACT_GELU_TANH: g = gated_slope(EP_ACT_GELU_TANH, g); break;
        case EP_ACT_GELU_ERF: g = gated_slope(EP_ACT_GELU_ERF, g); break;
        default: g = gated_slope(EP_ACT_SILU, g); break;
        }
        v_store(out + i, g);
    }
}
#else
#define gated_fill_slopes NULL
#endif
