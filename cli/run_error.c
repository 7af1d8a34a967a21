/* The error of a result against the same block in f64, over rows spread through the batch. */
#include <math.h>
#include <stdlib.h>

#include "run.h"

enum { MOST_ROWS = 16 };
static const double most_products = 2.5e8; /* about a quarter of a second */

static double act_of(ep_act act, double v) {
    switch (act) {
    case EP_ACT_GELU_TANH: return 0.5 * v * (1 + tanh(0.79788456080286535588 * (v + 0.044715 * v * v * v)));
    case EP_ACT_GELU_ERF: return 0.5 * v * (1 + erf(v * 0.70710678118654752440));
    case EP_ACT_SILU: return v / (1 + exp(-v));
    case EP_ACT_RELU: return v > 0 || isnan(v) ? v : 0;
    default: return v;
    }
}

/* One row of a matrix, or a whole vector, in f64. */
static bool read_row(const ep_tensor *t, int64_t row, double *out) {
    ep_tensor *view = NULL;
    int64_t n = ep_tensor_size(t, -1);
    if (ep_tensor_ndim(t) == 1) return ep_tensor_read_f64(t, out, (size_t)n, NULL) == EP_OK;
    if (ep_tensor_slice(t, 0, row, row + 1, 1, NULL, &view) != EP_OK) return false;
    bool ok = ep_tensor_read_f64(view, out, (size_t)n, NULL) == EP_OK;
    ep_tensor_destroy(view);
    return ok;
}

static double dot(const double *a, const double *b, int64_t n) {
    double s[4] = {0};
    int64_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (int k = 0; k < 4; k++) s[k] += a[i + k] * b[i + k];
    for (; i < n; i++) s[0] += a[i] * b[i];
    return s[0] + s[1] + s[2] + s[3];
}

/* y[rows][n] = x[rows][k] W^T + b, a row of W at a time, so that a weight of any size is read once. */
static bool linear(const double *x, int rows, const ep_tensor *w, const ep_tensor *bias, double *y) {
    int64_t n = ep_tensor_size(w, 0), k = ep_tensor_size(w, 1);
    double *row = malloc(sizeof *row * (size_t)(k > 0 ? k : 1)), *b = calloc((size_t)(n > 0 ? n : 1), sizeof *b);
    bool ok = row && b && (!bias || read_row(bias, 0, b));
    for (int64_t j = 0; ok && j < n; j++) {
        ok = read_row(w, j, row);
        for (int r = 0; ok && r < rows; r++) y[r * n + j] = dot(x + r * k, row, k) + b[j];
    }
    free(row);
    free(b);
    return ok;
}

static bool reference(const run_request *q, const run_setup *s, const double *x, int rows, double *y) {
    ep_tensor *const *w = s->host_weight;
    if (q->kind == EP_BLOCK_LINEAR) return linear(x, rows, w[2], w[3], y);
    size_t n = (size_t)rows * (size_t)q->hidden;
    double *up = malloc(sizeof *up * (n ? n : 1)), *gate = malloc(sizeof *gate * (n ? n : 1));
    bool gated = q->kind == EP_BLOCK_GATED;
    bool ok = up && gate && linear(x, rows, w[2], w[3], up) && (!gated || linear(x, rows, w[0], w[1], gate));
    for (size_t i = 0; ok && i < n; i++) up[i] = gated ? act_of(q->act, gate[i]) * up[i] : act_of(q->act, up[i]);
    ok = ok && linear(up, rows, w[4], w[5], y);
    free(up);
    free(gate);
    return ok;
}

static int sample(int64_t rows, const run_request *q, int64_t at[MOST_ROWS]) {
    double products = (double)q->dim * (double)(q->hidden ? q->hidden : q->out) *
                      (q->kind == EP_BLOCK_GATED ? 3
                       : q->kind == EP_BLOCK_MLP ? 2
                                                 : 1);
    int64_t n = products > 0 ? (int64_t)(most_products / products) : MOST_ROWS;
    if (n < 1) n = 1;
    if (n > MOST_ROWS) n = MOST_ROWS;
    if (n > rows) n = rows;
    for (int64_t i = 0; i < n; i++) at[i] = n > 1 ? i * (rows - 1) / (n - 1) : 0;
    return (int)n;
}

static bool read_rows(const ep_tensor *t, const int64_t *at, int n, double *out) {
    int64_t columns = ep_tensor_size(t, -1), flat[2] = {-1, columns};
    ep_tensor *view = NULL;
    if (ep_tensor_reshape(t, 2, flat, NULL, &view) != EP_OK) return false;
    bool ok = true;
    for (int i = 0; ok && i < n; i++) ok = read_row(view, at[i], out + i * columns);
    ep_tensor_destroy(view);
    return ok;
}

/* Relative to the value or, where that is small, to the root mean square of all: a value near zero is no small one. */
static void compare(const double *got, const double *want, size_t n, run_result *r) {
    double squares = 0, worst = 0, relative = 0;
    for (size_t i = 0; i < n; i++) squares += want[i] * want[i];
    double usual = sqrt(squares / (double)n);
    for (size_t i = 0; i < n; i++) {
        double d = fabs(got[i] - want[i]), size = fabs(want[i]) > usual ? fabs(want[i]) : usual;
        if (isnan(got[i]) != isnan(want[i])) d = INFINITY;
        if (isnan(d)) continue;
        if (d > worst) worst = d;
        if (size > 0 && d / size > relative) relative = d / size;
    }
    r->error_abs = worst;
    r->error_rel = relative;
}

void run_check_error(const run_request *q, const run_setup *s, const ep_tensor *y, run_result *r) {
    int64_t rows = q->batch * q->seq, at[MOST_ROWS];
    int n = sample(rows, q, at);
    size_t inputs = (size_t)n * (size_t)q->dim, outputs = (size_t)n * (size_t)q->out;
    if (!inputs || !outputs) return;
    double *x = malloc(sizeof *x * inputs), *want = malloc(sizeof *want * outputs),
           *got = malloc(sizeof *got * outputs);
    ep_tensor *host = NULL;
    if (x && want && got && ep_to_host(s->ctx, y, &host) == EP_OK && read_rows(s->host_x, at, n, x) &&
        read_rows(host, at, n, got) && reference(q, s, x, n, want)) {
        compare(got, want, outputs, r);
        r->error_rows = n;
    }
    ep_tensor_destroy(host);
    free(x);
    free(want);
    free(got);
}
