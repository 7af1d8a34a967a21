/* Matrix products with their epilogue, sums in double, by small tiles so that each element is widened few times. */
#include "ref.h"

#include <string.h>

#include "base/parallel.h"

enum { TM = 16, TN = 32, TK = 64 };

typedef struct tile {
    const ep_gemm *g;
    int64_t b, m, n; /* first row and column */
    int64_t rows, cols;
    double sum[TM][TN];
} tile;

static const char *element(ep_dtype dtype, const void *p, int64_t offset) {
    return (const char *)p + offset * (int64_t)ep_dtype_size(dtype);
}

static void add_products(tile *t) {
    const ep_gemm *g = t->g;
    double a[TM][TK], b[TK][TN];
    for (int64_t k = 0; k < g->k; k += TK) {
        int64_t depth = g->k - k < TK ? g->k - k : TK;
        for (int64_t i = 0; i < t->rows; i++)
            ep_run_load(g->dtype, element(g->dtype, g->a, t->b * g->a_batch + (t->m + i) * g->a_row + k * g->a_col),
                        g->a_col, depth, a[i]);
        for (int64_t j = 0; j < depth; j++)
            ep_run_load(g->dtype, element(g->dtype, g->b, t->b * g->b_batch + (k + j) * g->b_row + t->n * g->b_col),
                        g->b_col, t->cols, b[j]);
        for (int64_t i = 0; i < t->rows; i++)
            for (int64_t j = 0; j < depth; j++)
                for (int64_t c = 0; c < t->cols; c++) t->sum[i][c] += a[i][j] * b[j][c];
    }
}

/* Rounds where eager would have stored: before the activation and before the residual. */
static void finish_row(tile *t, int64_t i) {
    const ep_gemm *g = t->g;
    double *v = t->sum[i], w[TN];
    int64_t n = t->cols;
    for (int64_t c = 0; c < n; c++) v[c] *= g->alpha;
    if (g->c && g->beta != 0) {
        ep_run_load(g->dtype, element(g->dtype, g->c, t->b * g->c_batch + (t->m + i) * g->c_row + t->n * g->c_col),
                    g->c_col, n, w);
        for (int64_t c = 0; c < n; c++) v[c] += g->beta * w[c];
    }
    if (g->bias) {
        ep_run_load(g->dtype, element(g->dtype, g->bias, t->n * g->bias_stride), g->bias_stride, n, w);
        for (int64_t c = 0; c < n; c++) v[c] += w[c];
    }
    bool eager = g->rounding == EP_ROUNDING_EAGER;
    if (g->act != EP_ACT_NONE) {
        if (eager) ep_ref_round(g->out_dtype, n, v);
        ep_ref_act(g->act, n, v);
    }
    if (g->residual) {
        if (eager) ep_ref_round(g->out_dtype, n, v);
        ep_run_load(g->out_dtype, element(g->out_dtype, g->residual, (t->b * g->m + t->m + i) * g->residual_row + t->n),
                    1, n, w);
        for (int64_t c = 0; c < n; c++) v[c] += w[c];
    }
    int64_t offset = t->b * g->out_batch + (t->m + i) * g->out_row + t->n;
    ep_run_store(g->out_dtype, (char *)g->out + offset * (int64_t)ep_dtype_size(g->out_dtype), 1, n, v);
}

static void run_tiles(void *user, int64_t begin, int64_t end) {
    const ep_gemm *g = user;
    int64_t down = (g->m + TM - 1) / TM, across = (g->n + TN - 1) / TN;
    for (int64_t at = begin; at < end; at++) {
        tile t = {.g = g, .b = at / (down * across), .m = at / across % down * TM, .n = at % across * TN};
        t.rows = g->m - t.m < TM ? g->m - t.m : TM;
        t.cols = g->n - t.n < TN ? g->n - t.n : TN;
        add_products(&t);
        for (int64_t i = 0; i < t.rows; i++) finish_row(&t, i);
    }
}

ep_status ep_ref_gemm(ep_backend *b, const ep_gemm *g, ep_error *err) {
    if (!ep_dtype_is_float(g->dtype) || !ep_dtype_is_float(g->out_dtype))
        return ep_fail(err, EP_ERROR_DTYPE, "a matrix product of %s", ep_dtype_name(g->dtype));
    ep_launch l = ep_launch_begin(ep_ref_name_gemm(g));
    int64_t tiles = g->batch * ((g->m + TM - 1) / TM) * ((g->n + TN - 1) / TN);
    bool small = g->batch * g->m * g->n * (g->k + 1) < 100000;
    ep_gemm copy = *g;
    ep_parallel_for(small ? 1 : b->threads, tiles, 1, run_tiles, &copy);
    int64_t size = (int64_t)ep_dtype_size(g->dtype), out = g->batch * g->m * g->n, read = 0;
    read += (g->a_batch || g->batch <= 1 ? g->batch : 1) * g->m * g->k * size;
    read += (g->b_batch || g->batch <= 1 ? g->batch : 1) * g->k * g->n * size;
    read += (g->bias ? g->n * size : 0) + (g->c && g->beta != 0 ? out * size : 0) + (g->residual ? out * size : 0);
    ep_launch_end(&l, 2 * out * g->k + (g->bias ? out : 0), read, out * (int64_t)ep_dtype_size(g->out_dtype));
    return EP_OK;
}
