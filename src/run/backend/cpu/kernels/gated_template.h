/* act(gate) * up over a row, its form for interleaved inputs, and its gradients, written once over the vector vocabulary.
 * Bound by memory in f32, at the bound both ways; in a 16-bit dtype forward by memory and the vector ports alike,
 * backward by those ports (docs/performance.md). Uses the TILE_* words and tile_act_rounded of tile_template.h. */
#if defined(__AVX512FP16__) && V_LANES == 16 && !defined(TILE_DTYPE_BF16) && TILE_SIZE == 2
#define GATED_F16_UNIT
#endif
#define GATED_FN static inline __attribute__((always_inline)) void

/* The slopes of the gelus far from 0, without rounding. Beyond 20 every slope here is 0 or 1 to the last bit of f32. */
ACT_FN v_f32 gated_slope(const ep_act act, v_f32 x) {
    v_f32 one = v_set1(1.0f), t = v_max_any(v_set1(-20.0f), v_min_any(v_set1(20.0f), x));
    if (act == EP_ACT_GELU_TANH) {
        v_f32 c = v_set1(0.797884561f), tt = t * t, z = c * t * (one + v_set1(0.044715f) * tt);
        v_f32 s = one / (one + v_exp(z * v_set1(-2.0f)));
        return s + v_set1(2.0f) * t * s * (one - s) * c * (one + v_set1(0.134145f) * tt);
    }
    v_f32 phi = v_set1(0.398942280f) * v_exp(v_set1(-0.5f) * t * t);
    return v_set1(0.5f) * (one + v_erf(t * v_set1(0.707106781f))) + t * phi;
}

typedef struct gated_both {
    v_f32 value, slope;
} gated_both;

/* The near form of the gelus is h(t) = t P(t) for t = |x|, P by polynomials: their derivatives, Q, come along with a
 * product a step, and h' = P + t Q. The value has act_apply's bits. */
#define GATED_STEP(tables, k)                                                                                          \
    q = v_fma(q, d, p);                                                                                                \
    p = v_fma(p, d, v_lookup32(tables##_##k, at))
#define GATED_NEAR(tables, far_value, far_slope)                                                                       \
    do {                                                                                                               \
        v_f32 t = v_abs(x);                                                                                            \
        v_i32 at = v_bits(t + v_set1(1048576.0f));                                                                     \
        v_f32 d = t - v_lookup32(tables##_c, at), q = v_lookup32(tables##_5, at);                                      \
        v_f32 p = v_fma(q, d, v_lookup32(tables##_4, at));                                                             \
        GATED_STEP(tables, 3);                                                                                         \
        GATED_STEP(tables, 2);                                                                                         \
        GATED_STEP(tables, 1);                                                                                         \
        GATED_STEP(tables, 0);                                                                                         \
        y.value = v_gelu_sign(v_fnma(t, p, v_max_any(v_set1(0.0f), x)), x);                                            \
        v_f32 slope = v_fma(t, q, p);                                                                                  \
        y.slope = v_blend(v_lt(x, v_set1(0.0f)), slope, v_set1(1.0f) - slope);                                         \
        v_mask inside = v_lt(t, v_set1(V_NEAR));                                                                       \
        if (__builtin_expect(v_all(inside), 1)) return y;                                                              \
        y.value = v_blend(inside, y.value, far_value(x));                                                              \
        y.slope = v_blend(inside, y.slope, far_slope(x));                                                              \
        return y;                                                                                                      \
    } while (0)

static __attribute__((noinline, unused)) v_f32 gated_far_tanh(v_f32 x) {
    return gated_slope(EP_ACT_GELU_TANH, x);
}
static __attribute__((noinline, unused)) v_f32 gated_far_erf(v_f32 x) {
    return gated_slope(EP_ACT_GELU_ERF, x);
}

/* act(x) and its slope from one exponential or one polynomial. */
ACT_FN gated_both gated_value_and_slope(const ep_act act, v_f32 x) {
    gated_both y;
    if (act == EP_ACT_GELU_TANH) GATED_NEAR(v_near_tanh, v_gelu_tanh_far, gated_far_tanh);
    if (act == EP_ACT_GELU_ERF) GATED_NEAR(v_near_erf, v_gelu_erf_far, gated_far_erf);
    if (act == EP_ACT_SILU) {
        v_f32 one = v_set1(1.0f), t = v_max_any(v_set1(-90.0f), v_min_any(v_set1(90.0f), x)), down = one + v_exp(-x),
              s = one / down;
        y.value = x / down;
        y.slope = s * v_fma(t, one - s, one);
        return y;
    }
    y.value = act_apply(act, x);
    y.slope = act == EP_ACT_RELU ? v_blend(v_le(x, v_set1(0.0f)), v_set1(0.0f), v_set1(1.0f)) : v_set1(1.0f);
    return y;
}

/* act(g) for g of the dtype before it is rounded to it; 16 bits have shorter forms, which round to the same numbers. */
V_FN v_f32 gated_act(const ep_act act, v_f32 g) {
#if defined(TILE_DTYPE_BF16)
    if (act == EP_ACT_GELU_TANH) return v_gelu_tanh_of_bf16(g);
    if (act == EP_ACT_GELU_ERF) return v_gelu_erf_of_bf16(g);
    if (act == EP_ACT_SILU) return v_silu_of_bf16(g);
#elif TILE_SIZE == 2
    if (act == EP_ACT_GELU_TANH) return v_gelu_tanh_of_f16(g);
    if (act == EP_ACT_GELU_ERF) return v_gelu_erf_of_f16(g);
    if (act == EP_ACT_SILU) return v_silu_of_f16(g);
#endif
    return act_apply(act, g);
}

V_FN v_f32 gated_one(const ep_act act, const bool eager, const float *table, v_f32 g, v_f32 u) {
    (void)table;
    if (!eager) return act_apply(act, g) * u;
#if TILE_SIZE == 2
    if (act == EP_ACT_COUNT) return v_gather(table, TILE_INDEX(g)) * u;
#endif
    return TILE_ROUND(gated_act(act, g)) * u;
}

/* A piece is what a vector's bytes hold: V_LANES elements of 4 bytes, or twice as many of 2 bytes, which go through the
 * formulas as two vectors, A and B. The table is asked with the bits as they were stored. */
enum {
    PIECE = 4 * V_LANES / TILE_SIZE,
    PIECES = 16 / V_LANES, /* in the 64 bytes that a turn of the loops takes */
    TURN = PIECE * PIECES,
    PATIENCE = 12, /* vectors or turns of a row that are done twice before a slower way does all, of up to 256 */
    AHEAD = 2048 /* bytes: the processor's own prefetch stops at the end of a page, and gathers fill its window early */
};

#if TILE_SIZE == 2 && V_LANES == 16
/* All 32 words near 0 in value, where the short forms need no test, and (bf16) no denormals: asked once for two vectors
 * of f32. Twice the word drops the sign. In bf16 act then rounds in two operations: only of denormals do halves go to
 * even otherwise. */
#define GATED_NEAR_WORDS
V_FN bool gated_near_words(const ep_act act, v_i32 q) {
    __m512i w = _mm512_add_epi16((__m512i)q, (__m512i)q);
#if defined(TILE_DTYPE_BF16)
    const short least = 0x400, bound = (short)(act == EP_ACT_SILU ? 0x81f0 : 0x80f0);
    __mmask32 off =
        _mm512_mask_cmpge_epu16_mask(_mm512_test_epi16_mask(w, w), _mm512_sub_epi16(w, _mm512_set1_epi16(least)),
                                     _mm512_set1_epi16((short)(bound - least)));
#else
    const short bound = (short)(act == EP_ACT_SILU ? 0x8f80 : 0x8780);
    __mmask32 off = _mm512_cmpge_epu16_mask(w, _mm512_set1_epi16(bound));
#endif
    return _kortestz_mask32_u8(off, off);
}
V_FN v_f32 gated_near(const ep_act act, v_f32 g) {
#if defined(TILE_DTYPE_BF16)
    if (act == EP_ACT_GELU_TANH) return v_gelu_tanh_near_bf16(g);
    if (act == EP_ACT_GELU_ERF) return v_gelu_erf_near_bf16(g);
    return v_gelu_sign(v_silu_of_bf16_near(g), g);
#else
    if (act == EP_ACT_GELU_TANH) return v_gelu_tanh_of_f16_near(g);
    if (act == EP_ACT_GELU_ERF) return v_gelu_erf_of_f16_near(g);
    return v_silu_of_f16_near(g);
#endif
}
#endif

#if TILE_SIZE == 2
#if !defined(GATED_F16_UNIT)
/* act rounded to the dtype. `near`: all lanes are near 0 (and the dtype has a form for those). */
V_FN v_f32 gated_rounded(const ep_act act, bool near, const float *table, v_i32 index, v_f32 g) {
    (void)index, (void)table, (void)near;
    if (act == EP_ACT_COUNT) return v_gather(table, index);
#ifdef GATED_NEAR_WORDS
#if defined(TILE_DTYPE_BF16)
    if (near) return v_float(v_iadd(v_bits(gated_near(act, g)), v_iset1(0x8000)) & (int)0xffff0000);
#else
    if (near) return TILE_ROUND(v_gelu_sign(gated_near(act, g), g));
#endif
#endif
    return TILE_ROUND(gated_act(act, g));
}
#endif

#if defined(GATED_F16_UNIT)
V_FN v_f32 gated_half(const ep_act act, bool near, const float *table, v_i32 index, v_f32 g) {
    if (act == EP_ACT_COUNT) return v_gather(table, index);
    return near ? gated_near(act, g) : gated_act(act, g);
}
/* A conversion rounds act, and a product in f16 is rounded as one in f32 and its conversion are. */
V_FN v_i32 gated_words(const ep_act act_a, const ep_act act_b, bool near, const float *table, const char *gate,
                       const char *up) {
    v_i32 g = v_bits(v_load(gate)), u = v_bits(v_load(up));
    v_f32 a = gated_half(act_a, near, table, TILE_INDEX_A(g), v_load_f16(gate));
    v_f32 b = gated_half(act_b, near, table, TILE_INDEX_B(g), v_load_f16(gate + 32));
    __m512i act = (__m512i)TILE_JOIN(a, b), sign = _mm512_set1_epi16((short)0x8000);
    if (near) act = _mm512_ternarylogic_epi32(act, (__m512i)g, sign, 0xf8); /* that of -0 */
    return (v_i32)_mm512_castph_si512(_mm512_mul_ph(_mm512_castsi512_ph(act), _mm512_castsi512_ph((__m512i)u)));
}
#else
V_FN v_i32 gated_words(const ep_act act_a, const ep_act act_b, bool near, const float *table, const char *gate,
                       const char *up) {
    v_i32 g = v_bits(v_load(gate)), u = v_bits(v_load(up));
    return TILE_JOIN(gated_rounded(act_a, near, table, TILE_INDEX_A(g), TILE_A(g)) * TILE_A(u),
                     gated_rounded(act_b, near, table, TILE_INDEX_B(g), TILE_B(g)) * TILE_B(u));
}
#endif
/* The product of a vector of gates and ups. */
V_FN v_i32 gated_piece(const ep_act act_a, const ep_act act_b, const bool eager, const float *table, const char *gate,
                       const char *up) {
    v_i32 g = v_bits(v_load(gate)), u = v_bits(v_load(up));
    if (!eager)
        return TILE_JOIN(gated_one(act_a, false, table, TILE_A(g), TILE_A(u)),
                         gated_one(act_b, false, table, TILE_B(g), TILE_B(u)));
#ifdef GATED_NEAR_WORDS
    const bool curve = act_b == EP_ACT_GELU_TANH || act_b == EP_ACT_GELU_ERF || act_b == EP_ACT_SILU;
    if (curve && __builtin_expect(gated_near_words(act_b, g), 1))
        return gated_words(act_a, act_b, true, table, gate, up);
    if (act_a == EP_ACT_COUNT) return gated_words(act_a, act_a, false, table, gate, up);
#endif
    return gated_words(act_a, act_b, false, table, gate, up);
}
#else
V_FN v_i32 gated_piece(const ep_act act_a, const ep_act act_b, const bool eager, const float *table, const char *gate,
                       const char *up) {
    (void)act_b;
    return v_bits(gated_one(act_a, eager, table, v_load(gate), v_load(up)));
}
#endif

/* Elements [i, end) a vector at a time: what stands before and behind whole turns. */
GATED_FN gated_row_part(const ep_gated_row *r, const ep_act act, const bool eager, int64_t i, int64_t end) {
    const char *g = r->gate, *u = r->up;
    char *out = r->out;
    for (; i < end; i += V_LANES) {
        int n = end - i < V_LANES ? (int)(end - i) : V_LANES;
        v_f32 y = gated_one(act, eager, r->table, TILE_LOAD_N(g + i * TILE_SIZE, n), TILE_LOAD_N(u + i * TILE_SIZE, n));
        TILE_STORE_N(out + i * TILE_SIZE, y, n);
    }
}

/* Elements up to the first 64-byte line of p, where results are stored past the caches. */
static inline int64_t gated_head(const void *p, bool stream, int64_t n) {
    int64_t head = stream ? (int64_t)(-(uintptr_t)p % 64) / TILE_SIZE : 0;
    return head < n ? head : n;
}

#define GATED_PUT(stream, p, q) ((stream) ? v_stream(p, v_float(q)) : v_store(p, v_float(q)))

/* 64 bytes of the result. */
GATED_FN gated_turn(const ep_gated_row *r, const ep_act act_a, const ep_act act_b, const bool eager, int64_t at) {
    const char *g = (const char *)r->gate + at, *u = (const char *)r->up + at;
    char *out = (char *)r->out + at;
    __builtin_prefetch(g + AHEAD, 0, 3);
    __builtin_prefetch(u + AHEAD, 0, 3);
    _Pragma("GCC unroll 2") for (int k = 0; k < 64; k += PIECE * TILE_SIZE) {
        v_i32 y = gated_piece(act_a, act_b, eager, r->table, g + k, u + k);
        GATED_PUT(r->stream, out + k, y);
    }
}

#ifdef GATED_NEAR_WORDS
#include "run/backend/cpu/kernels/act_quadratics.h"
#include "run/backend/cpu/kernels/gated_lockstep.h"
#define GATED_TURNS_OF_TWO(i) gated_turns_of_two(r, act_a, act_b, eager, i)
#else
#define GATED_TURNS_OF_TWO(i) (i)
#endif

/* Lookups keep the load ports busy and formulas the others: where act_b is not act_a, which asks the table, half of the
 * vectors come by formula. */
GATED_FN gated_turns(const ep_gated_row *r, const ep_act act_a, const ep_act act_b, const bool eager) {
    int64_t i = 0, end = gated_head(r->out, r->stream, r->n);
    _Pragma("GCC unroll 1") for (int pass = 0; pass < 2; pass++) { /* head and turns, then the rest: one copy of both */
        gated_row_part(r, act_a, eager, i, end);
        if (pass) break;
        i = GATED_TURNS_OF_TWO(end);
        for (; i + TURN <= r->n; i += TURN) gated_turn(r, act_a, act_b, eager, i * TILE_SIZE);
        end = r->n;
    }
}

#if TILE_SIZE == 2 && V_LANES == 16
#define GATED_MIXES(act, table_act)                                                                                    \
    if ((act) == EP_ACT_COUNT && r->mix && r->act == (table_act)) {                                                    \
        gated_turns(r, act, table_act, eager);                                                                         \
        return;                                                                                                        \
    }
#else
#define GATED_MIXES(act, table_act)
#endif

GATED_FN gated_row_body(const ep_gated_row *r, const ep_act act, const bool eager) {
    GATED_MIXES(act, EP_ACT_GELU_TANH)
    GATED_MIXES(act, EP_ACT_GELU_ERF)
    GATED_MIXES(act, EP_ACT_SILU)
    gated_turns(r, act, act, eager);
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

typedef struct gated_slopes { /* dg and du */
    v_f32 gate, up;
} gated_slopes;

V_FN gated_slopes gated_back_one(const bool eager, v_f32 d, v_f32 u, v_f32 a, v_f32 s) {
    v_f32 h = d * u;
    if (eager) h = TILE_ROUND(h);
    return (gated_slopes){h * s, d * a};
}

V_FN gated_slopes gated_back_formula(const ep_act act, const bool eager, v_f32 d, v_f32 g, v_f32 u) {
    gated_both y = gated_value_and_slope(act, g);
    return gated_back_one(eager, d, u, eager ? TILE_ROUND(y.value) : y.value, y.slope);
}

#if TILE_SIZE == 2
V_FN gated_slopes gated_back_lookup(const ep_gated_row *r, v_f32 d, v_i32 index, v_f32 u) {
    v_f32 a, s;
    v_gather_pair(r->pairs, index, &a, &s);
    return gated_back_one(true, d, u, a, s);
}
#endif

GATED_FN gated_back_part(const ep_gated_row *r, const ep_act act, const bool eager, int64_t i, int64_t end) {
    const char *pd = r->dy, *pg = r->gate, *pu = r->up;
    char *dg = r->out, *du = r->dup;
    for (; i < end; i += V_LANES) {
        int n = end - i < V_LANES ? (int)(end - i) : V_LANES;
        v_f32 d = TILE_LOAD_N(pd + i * TILE_SIZE, n), g = TILE_LOAD_N(pg + i * TILE_SIZE, n);
        v_f32 u = TILE_LOAD_N(pu + i * TILE_SIZE, n);
        gated_slopes y;
#if TILE_SIZE == 2
        if (act == EP_ACT_COUNT)
            y = gated_back_lookup(r, d, TILE_INDEX(g), u);
        else
#endif
            y = gated_back_formula(act, eager, d, g, u);
        TILE_STORE_N(dg + i * TILE_SIZE, y.gate, n);
        TILE_STORE_N(du + i * TILE_SIZE, y.up, n);
    }
}

#if defined(GATED_F16_UNIT)
/* dy u and dy act(g) in f16, which rounds them as eager's conversions do. */
GATED_FN gated_back_unit(const ep_gated_row *r, v_i32 d, v_i32 g, v_i32 u, char *dg, char *du, bool stream) {
    v_f32 a, b, slope_a, slope_b;
    v_gather_pair(r->pairs, TILE_INDEX_A(g), &a, &slope_a);
    v_gather_pair(r->pairs, TILE_INDEX_B(g), &b, &slope_b);
    __m512h dy = _mm512_castsi512_ph((__m512i)d), act = _mm512_castsi512_ph((__m512i)TILE_JOIN(a, b));
    v_i32 h = (v_i32)_mm512_castph_si512(_mm512_mul_ph(dy, _mm512_castsi512_ph((__m512i)u)));
    GATED_PUT(stream, dg, TILE_JOIN(TILE_A(h) * slope_a, TILE_B(h) * slope_b));
    GATED_PUT(stream, du, (v_i32)_mm512_castph_si512(_mm512_mul_ph(dy, act)));
}
#endif

#if defined(TILE_DTYPE_BF16) && defined(__AVX512BF16__) && V_LANES == 16
#define GATED_BACK_QUICK
/* What v_round_bf16 does, where neither x nor the result needs a second look. */
V_FN v_f32 gated_round_quick(v_f32 x) {
    return v_fma(x, v_set1(65536.0f), x * v_set1(-65535.0f));
}
/* From the table, for ordinary numbers: checked by the results. A zero or denormal in them may be another's place; an
 * infinity or a NaN, or (as a slope is at most 1.13) one of the two least exponents, may come of a product that
 * gated_round_quick cannot round. Those vectors take the long way, which a row keeps to where many do. */
GATED_FN gated_back_quick(const ep_gated_row *r, v_i32 d, v_i32 g, v_i32 u, char *dg, char *du, bool stream,
                          int *patience) {
    v_f32 a, b, slope_a, slope_b, d_a = TILE_A(d), d_b = TILE_B(d), u_a = TILE_A(u), u_b = TILE_B(u);
    v_gather_pair(r->pairs, TILE_INDEX_A(g), &a, &slope_a);
    v_gather_pair(r->pairs, TILE_INDEX_B(g), &b, &slope_b);
    if (__builtin_expect(*patience > 0, 1)) {
        v_f32 h_a = gated_round_quick(d_a * u_a), h_b = gated_round_quick(d_b * u_b);
        v_i32 y = bf16_join_flushed(h_a * slope_a, h_b * slope_b), z = bf16_join_flushed(d_a * a, d_b * b);
        __mmask32 good = _mm512_test_epi16_mask((__m512i)z, _mm512_set1_epi16(0x7f80));
        __m512i next = _mm512_add_epi16((__m512i)y, _mm512_set1_epi16(0x80));
        good = _mm512_mask_test_epi16_mask(good, next, _mm512_set1_epi16(0x7e00));
        if (__builtin_expect(_kortestc_mask32_u8(good, good), 1)) {
            GATED_PUT(stream, dg, y);
            GATED_PUT(stream, du, z);
            return;
        }
        --*patience;
    }
    gated_slopes even = gated_back_one(true, d_a, u_a, a, slope_a), odd = gated_back_one(true, d_b, u_b, b, slope_b);
    GATED_PUT(stream, dg, TILE_JOIN(even.gate, odd.gate));
    GATED_PUT(stream, du, TILE_JOIN(even.up, odd.up));
}
#endif

GATED_FN gated_back_piece(const ep_gated_row *r, const ep_act act, const bool eager, int64_t at, bool stream,
                          int *patience) {
    (void)patience;
    v_i32 d = v_bits(v_load((const char *)r->dy + at)), g = v_bits(v_load((const char *)r->gate + at));
    v_i32 u = v_bits(v_load((const char *)r->up + at));
    char *dg = (char *)r->out + at, *du = (char *)r->dup + at;
#if TILE_SIZE == 2
    gated_slopes a, b;
#if defined(GATED_BACK_QUICK)
    if (act == EP_ACT_COUNT) {
        gated_back_quick(r, d, g, u, dg, du, stream, patience);
        return;
    }
#elif defined(GATED_F16_UNIT)
    if (act == EP_ACT_COUNT) {
        gated_back_unit(r, d, g, u, dg, du, stream);
        return;
    }
#endif
    if (act == EP_ACT_COUNT) {
        a = gated_back_lookup(r, TILE_A(d), TILE_INDEX_A(g), TILE_A(u));
        b = gated_back_lookup(r, TILE_B(d), TILE_INDEX_B(g), TILE_B(u));
    } else {
        a = gated_back_formula(act, eager, TILE_A(d), TILE_A(g), TILE_A(u));
        b = gated_back_formula(act, eager, TILE_B(d), TILE_B(g), TILE_B(u));
    }
    GATED_PUT(stream, dg, TILE_JOIN(a.gate, b.gate));
    GATED_PUT(stream, du, TILE_JOIN(a.up, b.up));
#else
    gated_slopes y = gated_back_formula(act, eager, v_float(d), v_float(g), v_float(u));
    GATED_PUT(stream, dg, v_bits(y.gate));
    GATED_PUT(stream, du, v_bits(y.up));
#endif
}

#if defined(GATED_F16_UNIT)
/* From element i on, act by the formula and slopes from a table of their own, half as large as that of pairs, of which L1
 * holds too little; the element after the last. Rows whose gates lie far from 0 end early. */
static inline __attribute__((always_inline)) int64_t gated_back_turns(const ep_gated_row *r, const ep_act act,
                                                                      int64_t i, bool stream) {
    int64_t turns = (r->n - i) / TURN, end = i + turns * TURN;
    int patience = PATIENCE;
    if (turns <= 0) return i;
    const char *g = (const char *)r->gate + i * 2, *u = (const char *)r->up + i * 2, *dy = (const char *)r->dy + i * 2;
    char *dg = (char *)r->out + i * 2, *du = (char *)r->dup + i * 2;
    v_f32 low = v_gather(r->slopes, GATED_INDEX(g)), high = v_gather(r->slopes, GATED_INDEX(g + 32));
    for (; turns > 0; turns--, g += 64, u += 64, dy += 64, dg += 64, du += 64) {
        const char *next = turns > 1 ? g + 64 : g;
        __builtin_prefetch(dy + AHEAD, 0, 3);
        __builtin_prefetch(g + AHEAD, 0, 3);
        __builtin_prefetch(u + AHEAD, 0, 3);
        v_f32 y[4], s_a = low, s_b = high, x[4] = {v_load_f16(g), v_load_f16(g + 32)};
        low = v_gather(r->slopes, GATED_INDEX(next));
        gated_near_all(act, 2, x, y);
        high = v_gather(r->slopes, GATED_INDEX(next + 32));
        v_i32 gate = v_bits(v_load(g)), d = v_bits(v_load(dy)), up = v_bits(v_load(u));
        __mmask32 inside = gated_inside(act, false, gate, 0xffffffff);
        if (__builtin_expect(_kortestc_mask32_u8(inside, inside), 1)) {
            __m512h d_h = _mm512_castsi512_ph((__m512i)d), act_h = _mm512_castsi512_ph((__m512i)TILE_JOIN(y[0], y[1]));
            v_i32 h = (v_i32)_mm512_castph_si512(_mm512_mul_ph(d_h, _mm512_castsi512_ph((__m512i)up)));
            GATED_PUT(stream, dg, TILE_JOIN(TILE_A(h) * s_a, TILE_B(h) * s_b));
            GATED_PUT(stream, du, (v_i32)_mm512_castph_si512(_mm512_mul_ph(d_h, act_h)));
            continue;
        }
        gated_back_unit(r, d, gate, up, dg, du, stream);
        if (--patience < 0) return end - (turns - 1) * TURN;
    }
    return end;
}
#endif

/* Both results are stored past the caches where they lie alike to their lines. */
GATED_FN gated_back_body(const ep_gated_row *r, const ep_act act, const bool eager) {
    bool stream = r->stream && ((uintptr_t)r->out - (uintptr_t)r->dup) % 64 == 0;
    int64_t i = 0, end = gated_head(r->out, stream, r->n);
    int patience = PATIENCE;
    _Pragma("GCC unroll 1") for (int pass = 0; pass < 2; pass++) {
        gated_back_part(r, act, eager, i, end);
        if (pass) break;
        i = end;
#if defined(GATED_F16_UNIT)
        if (act == EP_ACT_COUNT && r->slopes) {
            switch (r->act) {
            case EP_ACT_GELU_TANH: i = gated_back_turns(r, EP_ACT_GELU_TANH, i, stream); break;
            case EP_ACT_GELU_ERF: i = gated_back_turns(r, EP_ACT_GELU_ERF, i, stream); break;
            default: i = gated_back_turns(r, EP_ACT_SILU, i, stream); break;
            }
        }
#endif
        for (; i + TURN <= r->n; i += TURN) {
            __builtin_prefetch((const char *)r->dy + i * TILE_SIZE + AHEAD, 0, 3);
            __builtin_prefetch((const char *)r->gate + i * TILE_SIZE + AHEAD, 0, 3);
            __builtin_prefetch((const char *)r->up + i * TILE_SIZE + AHEAD, 0, 3);
            _Pragma("GCC unroll 2") for (int k = 0; k < PIECES; k++)
                gated_back_piece(r, act, eager, (i + k * PIECE) * TILE_SIZE, stream, &patience);
        }
        end = r->n;
    }
}

#define GATED_DEFINE(NAME, BODY)                                                                                       \
    static void NAME(const ep_gated_row *r) {                                                                          \
        bool eager = r->eager && TILE_SIZE < 4;                                                                        \
        if (eager && (r->table || r->pairs)) {                                                                         \
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
/* act rounded to the dtype and its slope, side by side, for the 65536 values. */
static void gated_fill_pairs(ep_act act, float *out) {
    float *values = out + 65536; /* the upper half is written last */
    tile_fill_table(act, values);
    for (int i = 0; i < 65536; i += V_LANES) {
        unsigned short h[V_LANES];
        float s[V_LANES];
        for (int l = 0; l < V_LANES; l++) h[l] = (unsigned short)(i + l);
        v_f32 g = TILE_LOAD(h);
        switch (act) {
        case EP_ACT_GELU_TANH: g = gated_value_and_slope(EP_ACT_GELU_TANH, g).slope; break;
        case EP_ACT_GELU_ERF: g = gated_value_and_slope(EP_ACT_GELU_ERF, g).slope; break;
        default: g = gated_value_and_slope(EP_ACT_SILU, g).slope; break;
        }
        v_store(s, g);
        for (int l = 0; l < V_LANES; l++) {
            out[2 * (i + l)] = values[i + l];
            out[2 * (i + l) + 1] = s[l];
        }
    }
}
#else
#define gated_fill_pairs NULL
#endif
