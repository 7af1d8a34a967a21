/* A random tuned GEMM call with its f64 reference, shared by the quick and the slow test. */
#ifndef EP_TEST_TUNED_CASE_H
#define EP_TEST_TUNED_CASE_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "model/tensor/tensor.h"
#include "run/backend/cpu/tuned.h"

static uint64_t random_state = 0x9e3779b97f4a7c14u;
static inline uint64_t random_u64(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state * 0x2545f4914f6cdd1du;
}
static inline int64_t random_below(int64_t n) {
    return (int64_t)(random_u64() >> 33) % n;
}
static inline double random_value(void) {
    return ((double)(random_u64() >> 40) / (1 << 23) - 1.0) * 1.5;
}

typedef struct tuned_case {
    int64_t m, n, k;
    bool pair, bias, residual, exact; /* exact: multiples of 1/8, so that every sum is the same in any order */
    ep_act act;
    ep_rounding rounding;
    int threads;
    int64_t x_col, w_col, bias_step; /* steps along k and of the bias, in elements */
    int64_t x_more, w_more, out_more, residual_more;
    int layout;  /* of a pair: 0 separate, 1 halves of one weight, 2 interleaved */
    double lost; /* what a sum of denormal numbers may lose besides */
} tuned_case;

typedef struct tuned_data {
    char *x, *w[2], *bias[2], *residual, *out;
    size_t out_bytes;
    int64_t x_row, w_row, out_row, residual_row;
    double *x_wide, *w_wide[2]; /* dense copies for whole checks; or NULL */
} tuned_data;

static inline double act_f64(ep_act act, double x) {
    switch (act) {
    case EP_ACT_GELU_TANH: return x / (1 + exp(-1.5957691216057308 * (x + 0.044715 * x * x * x)));
    case EP_ACT_GELU_ERF: return 0.5 * x * erfc(-x * 0.7071067811865476);
    case EP_ACT_SILU: return x / (1 + exp(-x));
    case EP_ACT_RELU: return x > 0 || x != x ? x : 0;
    default: return x;
    }
}

static inline char *fill(ep_dtype dtype, int64_t count, bool exact, double scale) {
    size_t size = ep_dtype_size(dtype);
    void *memory = NULL;
    assert_int_equal(posix_memalign(&memory, 64, (size_t)(count > 0 ? count : 1) * size), 0);
    char *p = memory;
    for (int64_t i = 0; i < count; i++) {
        double v = exact ? (double)(random_below(9) - 4) / 8 : random_value() * scale;
        ep_element_store(dtype, p + (size_t)i * size, v);
    }
    return p;
}

static inline double at(ep_dtype dtype, const char *p, int64_t i) {
    return ep_element_load(dtype, p + (size_t)i * ep_dtype_size(dtype));
}

static inline void make_data(const tuned_case *c, ep_dtype dtype, tuned_data *d) {
    memset(d, 0, sizeof *d);
    d->x_row = c->k * c->x_col + c->x_more;
    d->w_row = c->k * c->w_col + c->w_more;
    d->out_row = c->n + c->out_more;
    d->residual_row = c->n + c->residual_more;
    double scale = c->k ? 1.5 / sqrt((double)c->k) : 1;
    d->x = fill(dtype, c->m * d->x_row, c->exact, 1);
    size_t size = ep_dtype_size(dtype);
    if (c->pair && c->layout) {
        d->w[0] = fill(dtype, 2 * c->n * d->w_row, c->exact, scale);
        d->w[1] = d->w[0] + (size_t)(c->layout == 1 ? c->n * d->w_row : d->w_row) * size;
        if (c->layout == 2) d->w_row *= 2;
    } else {
        d->w[0] = fill(dtype, c->n * d->w_row, c->exact, scale);
        if (c->pair) d->w[1] = fill(dtype, c->n * d->w_row, c->exact, scale);
    }
    if (c->bias) d->bias[0] = fill(dtype, c->n * c->bias_step, c->exact, 1);
    if (c->bias && c->pair) d->bias[1] = fill(dtype, c->n * c->bias_step, c->exact, 1);
    if (c->residual) d->residual = fill(dtype, c->m * d->residual_row, c->exact, 1);
    d->out_bytes = (size_t)(c->m * d->out_row) * size + 64;
    d->out = malloc(d->out_bytes);
    assert_non_null(d->out);
    memset(d->out, 0xff, d->out_bytes); /* NaN in every dtype */
}

static inline void free_data(const tuned_case *c, tuned_data *d) {
    free(d->x);
    free(d->w[0]);
    if (!c->layout) free(d->w[1]);
    free(d->bias[0]);
    free(d->bias[1]);
    free(d->residual);
    free(d->out);
    free(d->x_wide);
    free(d->w_wide[0]);
    free(d->w_wide[1]);
}

static inline void run_case(const tuned_case *c, const ep_tuned_row *row, const tuned_data *d, int threads,
                            ep_tuned_scratch *scratch) {
    ep_error err = {0};
    ep_pack_request q = {.dtype = row->dtype,
                         .k = c->k,
                         .n = c->n,
                         .w0 = d->w[0],
                         .w1 = d->w[1],
                         .w0_row = d->w_row,
                         .w0_col = c->w_col,
                         .w1_row = d->w_row,
                         .w1_col = c->w_col};
    ep_packed *packed = NULL;
    assert_int_equal(ep_tuned_pack_with(row, threads, &q, &err, &packed), EP_OK);
    ep_tuned_call call = {.weights = packed,
                          .m = c->m,
                          .x = d->x,
                          .x_row = d->x_row,
                          .x_col = c->x_col,
                          .dtype = row->dtype,
                          .bias0 = d->bias[0],
                          .bias1 = d->bias[1],
                          .bias0_stride = c->bias_step,
                          .bias1_stride = c->bias_step,
                          .residual = d->residual,
                          .residual_row = d->residual_row,
                          .out = d->out,
                          .out_row = d->out_row,
                          .act = c->act,
                          .rounding = c->rounding};
    ep_status s = ep_tuned_run(scratch, threads, &call, &err);
    if (s != EP_OK) fail_msg("%s", err.message);
    ep_tuned_pack_free(packed);
}

static inline double *widen(ep_dtype dtype, const char *p, int64_t rows, int64_t cols, int64_t row, int64_t col) {
    double *wide = malloc(sizeof *wide * (size_t)(rows * cols + 1));
    assert_non_null(wide);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) wide[i * cols + j] = at(dtype, p, i * row + j * col);
    return wide;
}

/* Four sums beside each other, or every addition would wait for the one before. */
static inline double dot_wide(const double *x, const double *w, int64_t k, double *magnitude) {
    double s[4] = {0}, a[4] = {0};
    for (int64_t i = 0; i < k; i++) {
        double p = x[i] * w[i];
        s[i & 3] += p;
        a[i & 3] += fabs(p);
    }
    *magnitude = a[0] + a[1] + a[2] + a[3];
    return s[0] + s[1] + s[2] + s[3];
}

/* sum and sum of magnitudes of row i against column j of weight `which`, bias included. */
static inline double dot(const tuned_case *c, ep_dtype dtype, const tuned_data *d, int which, int64_t i, int64_t j,
                         double *magnitude) {
    double s = 0, a = 0;
    if (d->x_wide) s = dot_wide(d->x_wide + i * c->k, d->w_wide[which] + j * c->k, c->k, &a);
    for (int64_t k = 0; !d->x_wide && k < c->k; k++) {
        double p = at(dtype, d->x, i * d->x_row + k * c->x_col) * at(dtype, d->w[which], j * d->w_row + k * c->w_col);
        s += p;
        a += fabs(p);
    }
    if (d->bias[which]) {
        double b = at(dtype, d->bias[which], j * c->bias_step);
        s += b;
        a += fabs(b);
    }
    *magnitude = a;
    return s;
}

/* How far a value may lie from f64: 2e-6 of the sum of magnitudes for f32 sums, one rounding of the dtype where the
 * contract rounds, and the activations' own error. All slopes are at most 1.13. */
static inline void check_element(const tuned_case *c, const ep_tuned_row *row, const tuned_data *d, int64_t i,
                                 int64_t j) {
    ep_dtype dtype = row->dtype;
    double half_ulp = dtype == EP_DTYPE_F32 ? 0 : dtype == EP_DTYPE_BF16 ? 0x1p-8 : 0x1p-11;
    double tiny = (dtype == EP_DTYPE_F16 ? 0x1p-25 : 1e-37) + c->lost,
           step = c->rounding == EP_ROUNDING_EAGER ? half_ulp : 0;
    double mg, mu = 0, g = dot(c, dtype, d, 0, i, j, &mg), u = c->pair ? dot(c, dtype, d, 1, i, j, &mu) : 0;
    double eg = 2e-6 * mg + step * fabs(g) + c->lost, eu = 2e-6 * mu + step * fabs(u) + c->lost;
    double a = act_f64(c->act, g), ea = 1.13 * eg + (c->act ? 1e-6 * fabs(g) : 0) + step * (fabs(a) + 1.13 * eg);
    double want = a, limit = ea;
    if (c->pair) {
        want = a * u;
        limit = ea * (fabs(u) + eu) + eu * fabs(a);
    } else if (c->residual) {
        double r = at(dtype, d->residual, i * d->residual_row + j);
        want = a + r;
        limit = ea + 1e-7 * (fabs(a) + fabs(r));
    }
    limit += (half_ulp + 1.2e-7) * (fabs(want) + limit) + tiny;
    double got = at(dtype, d->out, i * d->out_row + j);
    if (got == want || (isnan(got) && isnan(want))) return;
    if (!(fabs(got - want) <= limit))
        fail_msg("%s_t%dx%d m %lld n %lld k %lld pair %d act %s rounding %d bias %d threads %d at %lld,%lld: got %.9g "
                 "want %.9g limit %.3g",
                 row->isa_name, row->mr, 2 * row->half, (long long)c->m, (long long)c->n, (long long)c->k, c->pair,
                 ep_act_name(c->act), (int)c->rounding, c->bias, c->threads, (long long)i, (long long)j, got, want,
                 limit);
}

/* Nothing between rows or beyond the end was written. */
static inline void check_margins(const tuned_case *c, const ep_tuned_row *row, const tuned_data *d) {
    size_t size = ep_dtype_size(row->dtype);
    for (int64_t i = 0; i < c->m; i++)
        for (size_t b = (size_t)(i * d->out_row + c->n) * size; b < (size_t)((i + 1) * d->out_row) * size; b++)
            if ((unsigned char)d->out[b] != 0xff) fail_msg("a byte between rows %lld was written", (long long)i);
    for (size_t b = d->out_bytes - 64; b < d->out_bytes; b++) assert_int_equal((unsigned char)d->out[b], 0xff);
}

static inline void random_case(tuned_case *c, int64_t most) {
    static const int64_t sizes[] = {1, 2, 3, 7, 8, 15, 16, 17, 63, 64, 65, 127, 352, 1000, 3001, 3420};
    memset(c, 0, sizeof *c);
    do {
        c->m = sizes[random_below(16)];
        c->n = sizes[random_below(16)];
        c->k = sizes[random_below(16)];
    } while ((double)c->m * (double)c->n * (double)c->k > (double)most);
    c->pair = random_below(2);
    c->bias = random_below(2);
    c->residual = !c->pair && random_below(2);
    c->act = (ep_act)random_below(EP_ACT_COUNT);
    c->rounding = random_below(2) ? EP_ROUNDING_EAGER : EP_ROUNDING_FEWEST;
    c->threads = 1 + (int)random_below(4);
    c->x_col = random_below(4) ? 1 : 2 + random_below(3);
    c->w_col = random_below(4) ? 1 : 2 + random_below(3);
    c->bias_step = random_below(4) ? 1 : 3;
    c->x_more = random_below(2) * random_below(9);
    c->w_more = random_below(2) * random_below(9);
    c->out_more = random_below(2) * random_below(9);
    c->residual_more = random_below(2) * random_below(9);
    c->layout = c->pair ? (int)random_below(3) : 0;
}

/* One random call on one row, `samples` elements compared (all if fewer exist). */
static inline void check_random(const ep_tuned_row *row, int64_t most, int64_t samples, ep_tuned_scratch *scratch) {
    tuned_case c;
    tuned_data d;
    random_case(&c, most);
    make_data(&c, row->dtype, &d);
    run_case(&c, row, &d, c.threads, scratch);
    if (c.m * c.n <= samples) {
        for (int64_t e = 0; e < c.m * c.n; e++) check_element(&c, row, &d, e / c.n, e % c.n);
    } else {
        for (int64_t e = 0; e < samples; e++) check_element(&c, row, &d, random_below(c.m), random_below(c.n));
        check_element(&c, row, &d, c.m - 1, c.n - 1);
        check_element(&c, row, &d, 0, c.n - 1);
        check_element(&c, row, &d, c.m - 1, 0);
        for (int64_t e = 0; e < c.m * c.n; e++)
            if (isnan(at(row->dtype, d.out, e / c.n * d.out_row + e % c.n)))
                fail_msg("element %lld was not written", (long long)e);
    }
    check_margins(&c, row, &d);
    free_data(&c, &d);
}

static inline bool row_runs(const ep_tuned_row *row) {
    return row->isa <= ep_cpu_get()->isa && (row->isa != EP_ISA_AMX_BF16 || row->usable());
}

#endif
