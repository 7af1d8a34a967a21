/* Reductions, norms and casts over rows of adjacent elements, for one dtype and ISA. Before it: a simd header, vmath.h,
 * DT, SIZE, FAMILY, SUFFIX, PAIRS as in pointwise_template.h.
 * What bounds them: memory, for rows beyond the caches; a row is read two or three times while it lies in L1 or L2.
 * Sums are pairwise: blocks of 1024 in four vectors, then a tree over the blocks, so that the error grows with the
 * logarithm of the length. */
#include <math.h>
#include <stdint.h>

#include "run/backend/cpu/cpu_kernels.h"
#include "run/backend/cpu/kernels/vector_io.h"

enum { SUM_BLOCK = 1024, VECTORS = 4 };

/* What is summed, of one vector of x; `at` is a value that the row shares. Lanes beyond the end count as 0. */
typedef v_f32 (*term_fn)(v_f32 x, v_f32 at);
V_FN v_f32 term_self(v_f32 x, v_f32 at) {
    (void)at;
    return x;
}
V_FN v_f32 term_square(v_f32 x, v_f32 at) {
    (void)at;
    return x * x;
}
V_FN v_f32 term_distance(v_f32 x, v_f32 at) {
    v_f32 d = x - at;
    return d * d;
}
V_FN v_f32 term_exp(v_f32 x, v_f32 at) {
    return v_exp(x - at);
}

V_FN v_f32 first_lanes(v_f32 x, int n) {
    float lanes[V_LANES];
    v_store(lanes, x);
    return v_load_n(lanes, n);
}

/* The terms themselves go to `keep` if it is not NULL. */
V_FN float sum_block(int64_t n, const void *x, float at, term_fn term, float *keep) {
    v_f32 sums[VECTORS] = {K(0), K(0), K(0), K(0)}, center = v_set1(at);
    int64_t i = 0;
    for (; i + VECTORS * V_LANES <= n; i += VECTORS * V_LANES) {
        _Pragma("GCC unroll 4") for (int u = 0; u < VECTORS; u++) {
            v_f32 t = term(LOAD(AT(x, i + u * V_LANES)), center);
            if (keep) v_store(keep + i + u * V_LANES, t);
            sums[u] = sums[u] + t;
        }
    }
    for (; i < n; i += V_LANES) {
        int rest = n - i < V_LANES ? (int)(n - i) : V_LANES;
        v_f32 t = first_lanes(term(LOAD_N(AT(x, i), rest), center), rest);
        if (keep) v_store_n(keep + i, t, rest);
        sums[0] = sums[0] + t;
    }
    return v_sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

/* levels[i] holds the sum of 2^i blocks while bit i of `blocks` is set. */
V_FN float sum_terms(int64_t n, const void *x, float at, term_fn term, float *keep) {
    float levels[56], total = 0;
    uint64_t blocks = 0;
    for (int64_t i = 0; i < n; i += SUM_BLOCK, blocks++) {
        int64_t part = n - i < SUM_BLOCK ? n - i : SUM_BLOCK;
        float s = sum_block(part, AT(x, i), at, term, keep ? keep + i : keep);
        int level = 0;
        for (; blocks >> level & 1; level++) s += levels[level];
        levels[level] = s;
    }
    for (int level = 0; blocks >> level; level++)
        if (blocks >> level & 1) total += levels[level];
    return total;
}

static float sum_row(int64_t n, const void *x) {
    return sum_terms(n, x, 0, term_self, NULL);
}

static float amax_row(int64_t n, const void *x) {
    v_f32 top[VECTORS];
    float lanes[V_LANES], best = -INFINITY;
    int64_t i = 0;
    for (int u = 0; u < VECTORS; u++) top[u] = v_set1(-INFINITY);
    for (; i + VECTORS * V_LANES <= n; i += VECTORS * V_LANES)
        _Pragma("GCC unroll 4") for (int u = 0; u < VECTORS; u++) top[u] = v_max(top[u], LOAD(AT(x, i + u * V_LANES)));
    for (; i + V_LANES <= n; i += V_LANES) top[0] = v_max(top[0], LOAD(AT(x, i)));
    if (i < n) {
        v_store(lanes, LOAD_N(AT(x, i), (int)(n - i)));
        for (int64_t j = n - i; j < V_LANES; j++) lanes[j] = -INFINITY;
        top[1] = v_max(top[1], v_load(lanes));
    }
    v_store(lanes, v_max(v_max(top[0], top[1]), v_max(top[2], top[3])));
    for (int j = 0; j < V_LANES; j++)
        if (lanes[j] > best || lanes[j] != lanes[j]) best = lanes[j];
    return best;
}

#ifdef PAIRS
#define STORE_TWO(p, a, b) v_store_two_bf16(p, a, b)
#else
#define STORE_TWO(p, a, b) (STORE(p, a), STORE((char *)(p) + V_LANES * SIZE, b))
#endif

/* X(p): p's vector at element i, in whichever half of a pair. */
#define X(p) load_part(AT(p, i), half)
#define X_N(p) LOAD_N(AT(p, i), rest)
#ifdef PAIRS
#define PAIRED(VALUE)                                                                                                  \
    for (; i + 2 * V_LANES <= n; i += 2 * V_LANES) {                                                                   \
        v_f32 r[2];                                                                                                    \
        _Pragma("GCC unroll 2") for (int half = 0; half < 2; half++) r[half] = VALUE;                                  \
        v_store_pairs(OUT_AT(out, i), v_pairs_bf16(r[0], r[1]));                                                       \
    }
#else
#define PAIRED(VALUE)
#endif
#define EACH(VALUE, VALUE_N)                                                                                           \
    int64_t i = 0;                                                                                                     \
    PAIRED(VALUE)                                                                                                      \
    for (; i + V_LANES <= n; i += V_LANES) {                                                                           \
        enum { half = -1 };                                                                                            \
        STORE(OUT_AT(out, i), VALUE);                                                                                  \
    }                                                                                                                  \
    if (i < n) {                                                                                                       \
        int rest = (int)(n - i);                                                                                       \
        STORE_N(OUT_AT(out, i), VALUE_N, rest);                                                                        \
    }

/* The exponentials are kept: f32 in out, a narrower type, which would round them, beside it. Long rows compute them
 * twice. */
enum { KEPT = 4096 };
static void narrow_softmax(int64_t n, const void *x, float top, void *out) {
    float kept[KEPT];
    v_f32 sum = v_set1(sum_terms(n, x, top, term_exp, kept)), over = v_over(sum);
    int64_t i = 0;
    for (; i + 2 * V_LANES <= n; i += 2 * V_LANES) {
        v_f32 a = v_quotient(v_load(kept + i), sum, over), b = v_quotient(v_load(kept + i + V_LANES), sum, over);
        STORE_TWO(OUT_AT(out, i), a, b);
    }
    for (; i < n; i += V_LANES) {
        int rest = n - i < V_LANES ? (int)(n - i) : V_LANES;
        STORE_N(OUT_AT(out, i), v_load_n(kept + i, rest) / sum, rest);
    }
}

static void softmax_row(int64_t n, const void *x, const void *weight, const void *bias, float eps, void *out) {
    (void)weight;
    (void)bias;
    (void)eps;
    float top = amax_row(n, x);
    if (SIZE == 4) {
        v_f32 sum = v_set1(sum_terms(n, x, top, term_exp, out)), over = v_over(sum);
        EACH(v_quotient(X(out), sum, over), X_N(out) / sum)
    } else if (n <= KEPT) {
        narrow_softmax(n, x, top, out);
    } else {
        v_f32 sum = v_set1(sum_terms(n, x, top, term_exp, NULL)), at = v_set1(top), over = v_over(sum);
        EACH(v_quotient(v_exp(X(x) - at), sum, over), v_exp(X_N(x) - at) / sum)
    }
}

static void layer_norm_row(int64_t n, const void *x, const void *weight, const void *bias, float eps, void *out) {
    float mean = sum_terms(n, x, 0, term_self, NULL) / (float)n;
    float var = sum_terms(n, x, mean, term_distance, NULL) / (float)n;
    v_f32 at = v_set1(mean), scale = v_set1(1.0f / sqrtf(var + eps));
    if (weight && bias) {
        EACH(v_fma((X(x) - at) * scale, X(weight), X(bias)), v_fma((X_N(x) - at) * scale, X_N(weight), X_N(bias)))
    } else if (weight) {
        EACH((X(x) - at) * scale * X(weight), (X_N(x) - at) * scale * X_N(weight))
    } else {
        EACH((X(x) - at) * scale, (X_N(x) - at) * scale)
    }
}

static void rms_norm_row(int64_t n, const void *x, const void *weight, const void *bias, float eps, void *out) {
    (void)bias;
    v_f32 scale = v_set1(1.0f / sqrtf(sum_terms(n, x, 0, term_square, NULL) / (float)n + eps));
    if (weight) {
        EACH(X(x) * scale * X(weight), X_N(x) * scale * X_N(weight))
    } else {
        EACH(X(x) * scale, X_N(x) * scale)
    }
}

static void to_f32_row(int64_t n, const void *in, void *out) {
    float *to = out;
    int64_t i = 0;
    for (; i + V_LANES <= n; i += V_LANES) v_store(to + i, LOAD(AT(in, i)));
    if (i < n) v_store_n(to + i, LOAD_N(AT(in, i), (int)(n - i)), (int)(n - i));
}

static void from_f32_row(int64_t n, const void *in, void *out) {
    const float *from = in;
    int64_t i = 0;
    for (; i + V_LANES <= n; i += V_LANES) STORE(OUT_AT(out, i), v_load(from + i));
    if (i < n) STORE_N(OUT_AT(out, i), v_load_n(from + i, (int)(n - i)), (int)(n - i));
}

#define NAME(op) "ep_" TEXT(DT) "_" op "_" SUFFIX
extern const ep_row_table FAMILY;
const ep_row_table FAMILY = {
    .sum = sum_row,
    .amax = amax_row,
    .softmax = softmax_row,
    .layer_norm = layer_norm_row,
    .rms_norm = rms_norm_row,
    .to_f32 = to_f32_row,
    .from_f32 = from_f32_row,
    .sum_name = NAME("sum"),
    .mean_name = NAME("mean"),
    .amax_name = NAME("amax"),
    .softmax_name = NAME("softmax"),
    .layer_norm_name = NAME("layer_norm"),
    .rms_norm_name = NAME("rms_norm"),
    .cast_name = NAME("cast"),
};
