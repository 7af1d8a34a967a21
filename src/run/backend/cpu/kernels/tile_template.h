/* What becomes of a tile of finished sums, written once over the vector vocabulary: bias, activation, product or
 * residual, and the one store; and what a row of ep_tuned_row has from the templates. The includer has included its simd
 * header, vmath.h and dtype_template.h. The activations are the formulas of pointwise.def, so that the result is bit-equal
 * to eager's. */
#include "run/backend/cpu/kernels/act_template.h"
#include "run/backend/cpu/tuned.h"

#define TILE_FN static inline __attribute__((always_inline)) void

#if TILE_SIZE == 2
/* act(g) for g of the dtype, rounded to it: EP_ACT_COUNT stands for the table. */
V_FN v_f32 tile_act_rounded(const ep_act act, const float *table, v_f32 g) {
    if (act == EP_ACT_COUNT) return v_gather(table, TILE_INDEX(g));
    return TILE_ROUND(act_apply(act, TILE_ROUND(g)));
}

static void tile_fill_table(ep_act act, float *out) {
    for (int i = 0; i < 65536; i += V_LANES) {
        unsigned short h[V_LANES];
        for (int l = 0; l < V_LANES; l++) h[l] = (unsigned short)(i + l);
        v_f32 g = TILE_LOAD(h);
        switch (act) {
        case EP_ACT_GELU_TANH: g = act_gelu_tanh(g); break;
        case EP_ACT_GELU_ERF: g = act_gelu_erf(g); break;
        default: g = act_silu(g); break;
        }
        v_store(out + i, TILE_ROUND(g));
    }
}
__attribute__((unused)) static void tile_widen(int64_t chunks, const void *x, float *out, int64_t step) {
    const char *p = x;
    for (int64_t c = 0; c < chunks; c++, out += step)
        for (int i = 0; i < 32; i += V_LANES, p += 2 * V_LANES) v_store(out + i, TILE_LOAD(p));
}
#else
#define tile_act_rounded(act, table, g) act_apply(act, g)
#define tile_fill_table NULL
#endif

TILE_FN tile_gated_body(const ep_tile *t, const ep_act act, const bool eager) {
    for (int j = 0; j < t->cols; j += V_LANES) {
        int n = t->cols - j < V_LANES ? t->cols - j : V_LANES;
        v_f32 b0 = t->bias0 ? v_load(t->bias0 + j) : v_set1(0), b1 = t->bias1 ? v_load(t->bias1 + j) : v_set1(0);
        const float *s = t->sums + j;
        char *out = (char *)t->out + (size_t)j * TILE_SIZE;
        for (int i = 0; i < t->rows; i++, s += t->sums_row, out += t->out_row) {
            v_f32 g = v_load(s) + b0, u = v_load(s + TILE_HALF) + b1;
            if (eager) {
                u = TILE_ROUND(u);
                g = tile_act_rounded(act, t->table, g);
            } else {
                g = act_apply(act, g);
            }
            TILE_STORE_N(out, g * u, n);
        }
    }
}

TILE_FN tile_plain_body(const ep_tile *t, const ep_act act, const bool eager) {
    for (int j = 0; j < t->cols; j += V_LANES) {
        int n = t->cols - j < V_LANES ? t->cols - j : V_LANES;
        v_f32 b0 = t->bias0 ? v_load(t->bias0 + j) : v_set1(0);
        const float *s = t->sums + j;
        char *out = (char *)t->out + (size_t)j * TILE_SIZE;
        const char *residual = t->residual ? (const char *)t->residual + (size_t)j * TILE_SIZE : NULL;
        for (int i = 0; i < t->rows; i++, s += t->sums_row, out += t->out_row) {
            v_f32 y = v_load(s) + b0;
            if (act != EP_ACT_NONE) y = eager ? tile_act_rounded(act, t->table, y) : act_apply(act, y);
            if (residual) {
                if (eager && act == EP_ACT_NONE) y = TILE_ROUND(y);
                y = y + TILE_LOAD_N(residual, n);
                residual += t->residual_row;
            }
            TILE_STORE_N(out, y, n);
        }
    }
}

#define TILE_DEFINE(NAME, BODY)                                                                                        \
    static void NAME(const ep_tile *t) {                                                                               \
        bool eager = t->rounding == EP_ROUNDING_EAGER && TILE_SIZE < 4;                                                \
        if (eager && t->table) {                                                                                       \
            BODY(t, EP_ACT_COUNT, true);                                                                               \
            return;                                                                                                    \
        }                                                                                                              \
        switch (t->act) {                                                                                              \
        case EP_ACT_GELU_TANH: eager ? BODY(t, EP_ACT_GELU_TANH, true) : BODY(t, EP_ACT_GELU_TANH, false); break;      \
        case EP_ACT_GELU_ERF: eager ? BODY(t, EP_ACT_GELU_ERF, true) : BODY(t, EP_ACT_GELU_ERF, false); break;         \
        case EP_ACT_SILU: eager ? BODY(t, EP_ACT_SILU, true) : BODY(t, EP_ACT_SILU, false); break;                     \
        case EP_ACT_RELU: eager ? BODY(t, EP_ACT_RELU, true) : BODY(t, EP_ACT_RELU, false); break;                     \
        default: eager ? BODY(t, EP_ACT_NONE, true) : BODY(t, EP_ACT_NONE, false); break;                              \
        }                                                                                                              \
    }
TILE_DEFINE(tile_gated, tile_gated_body)
TILE_DEFINE(tile_plain, tile_plain_body)

#include "run/backend/cpu/kernels/gated_template.h"

/* The members that follow from the dtype and the vectors. */
#define TILE_MEMBERS                                                                                                   \
    .dtype = TILE_DTYPE, .layout = TILE_LAYOUT, .half = TILE_HALF, .chunk_k = 64 / TILE_SIZE, .block_chunks = 16,      \
    .gated = tile_gated, .plain = tile_plain, .fill_table = tile_fill_table, .fill_pairs = gated_fill_pairs,           \
    .lanes = V_LANES, .gated_row = gated_row, .gated_pairs = gated_pairs, .gated_back = gated_back
