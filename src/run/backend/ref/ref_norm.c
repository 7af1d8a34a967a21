/* Softmax, layer norm and RMS norm over the last dim, in double, rounded once. */
#include "ref.h"

#include <math.h>
#include <stdlib.h>

static void softmax_row(int64_t n, double *v) {
    double top = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++)
        if (v[i] > top || isnan(v[i])) top = v[i];
    for (int64_t i = 0; i < n; i++) sum += v[i] = exp(v[i] - top);
    for (int64_t i = 0; i < n; i++) v[i] /= sum;
}

static void layer_norm_row(int64_t n, double *v, double eps) {
    double mean = 0, var = 0;
    for (int64_t i = 0; i < n; i++) mean += v[i];
    mean /= (double)n;
    for (int64_t i = 0; i < n; i++) var += (v[i] - mean) * (v[i] - mean);
    double scale = 1.0 / sqrt(var / (double)n + eps);
    for (int64_t i = 0; i < n; i++) v[i] = (v[i] - mean) * scale;
}

static void rms_norm_row(int64_t n, double *v, double eps) {
    double square = 0;
    for (int64_t i = 0; i < n; i++) square += v[i] * v[i];
    double scale = 1.0 / sqrt(square / (double)n + eps);
    for (int64_t i = 0; i < n; i++) v[i] *= scale;
}

typedef struct norm_call {
    ep_op op;
    double eps;
    int64_t n;
    const double *weight, *bias; /* or NULL */
} norm_call;

static void norm_row(const norm_call *c, double *v) {
    if (c->op == EP_OP_SOFTMAX) softmax_row(c->n, v);
    if (c->op == EP_OP_LAYER_NORM) layer_norm_row(c->n, v, c->eps);
    if (c->op == EP_OP_RMS_NORM) rms_norm_row(c->n, v, c->eps);
    for (int64_t i = 0; c->weight && i < c->n; i++) v[i] *= c->weight[i];
    for (int64_t i = 0; c->bias && i < c->n; i++) v[i] += c->bias[i];
}

ep_status ep_ref_norm(ep_backend *b, ep_op op, const ep_attr *attr, int count, const ep_tensor *const *in,
                      ep_tensor *out, ep_error *err) {
    (void)b;
    const ep_tensor *x = in[0];
    int last = x->ndim - 1;
    int64_t n = x->sizes[last];
    double *v = malloc(sizeof(double) * 3 * (size_t)(n > 0 ? n : 1));
    if (!v) return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "a row of %lld values could not be allocated", (long long)n);
    ep_launch l = ep_launch_begin(ep_ref_name_op(x->dtype, op));
    norm_call c = {op, attr->eps, n, count > 1 ? v + n : NULL, count > 2 ? v + 2 * n : NULL};
    for (int k = 1; k < count; k++) ep_run_load(in[k]->dtype, in[k]->data, in[k]->strides[0], n, v + k * n);
    const int64_t *strides[2] = {x->strides, out->strides};
    ep_walk w;
    for (bool more = n > 0 && ep_walk_begin(&w, last, x->sizes, 2, strides); more; more = ep_walk_next(&w)) {
        for (int64_t i = 0; i < w.run; i++) {
            ep_run_load(x->dtype, ep_ref_at(x, w.offset[0] + i * w.step[0]), x->strides[last], n, v);
            norm_row(&c, v);
            ep_run_store(out->dtype, ep_ref_at(out, w.offset[1] + i * w.step[1]), out->strides[last], n, v);
        }
    }
    int64_t read = 0;
    for (int k = 0; k < count; k++) read += ep_ref_bytes(in[k]);
    ep_launch_end(&l, (op == EP_OP_SOFTMAX ? 14 : 5 + count) * out->numel, read, ep_ref_bytes(out));
    free(v);
    return EP_OK;
}
