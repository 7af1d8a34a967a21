/* Runs the row kernels: sum, mean, amax, softmax, layer norm, RMS norm over rows of adjacent elements. */
#include <string.h>

#include "base/parallel.h"
#include "cpu.h"
#include "cpu_kernels.h"
#include "run/backend/launch.h"

typedef struct job {
    const ep_row_table *table;
    ep_op op;
    ep_dtype dtype;
    int ndim; /* outer dims */
    int64_t sizes[EP_MAX_DIMS], strides[2][EP_MAX_DIMS];
    int64_t length;
    const char *in;
    char *out;
    const void *weight, *bias;
    float eps;
} job;

static void reduce_row(const job *j, const char *in, char *out) {
    float v = j->op == EP_OP_AMAX ? j->table->amax(j->length, in) : j->table->sum(j->length, in);
    if (j->op == EP_OP_MEAN) v /= (float)j->length;
    j->table->from_f32(1, &v, out);
}

static void run_rows(void *user, int64_t begin, int64_t end) {
    const job *j = user;
    int64_t size = (int64_t)ep_dtype_size(j->dtype);
    for (int64_t row = begin; row < end; row++) {
        const char *in = j->in;
        char *out = j->out;
        int64_t rest = row;
        for (int d = j->ndim - 1; d >= 0; d--) {
            int64_t index = rest % j->sizes[d];
            rest /= j->sizes[d];
            in += index * j->strides[0][d] * size;
            out += index * j->strides[1][d] * size;
        }
        switch (j->op) {
        case EP_OP_SOFTMAX: j->table->softmax(j->length, in, NULL, NULL, 0, out); break;
        case EP_OP_LAYER_NORM: j->table->layer_norm(j->length, in, j->weight, j->bias, j->eps, out); break;
        case EP_OP_RMS_NORM: j->table->rms_norm(j->length, in, j->weight, NULL, j->eps, out); break;
        default: reduce_row(j, in, out);
        }
    }
}

/* The outer dims of x and out, merged where both allow. */
static int64_t set_outer(job *j, int outer, const ep_tensor *x, const ep_tensor *out) {
    memcpy(j->sizes, x->sizes, sizeof(int64_t) * (size_t)outer);
    memcpy(j->strides[0], x->strides, sizeof(int64_t) * (size_t)outer);
    memcpy(j->strides[1], out->strides, sizeof(int64_t) * (size_t)outer);
    j->ndim = ep_stride_collapse(outer, j->sizes, 2, j->strides);
    j->in = x->data;
    j->out = out->data;
    int64_t rows = 1;
    for (int d = 0; d < j->ndim; d++) rows *= j->sizes[d];
    return rows;
}

static void run(ep_backend *b, job *j, int64_t rows, int64_t flops) {
    int64_t bytes = rows * j->length * (int64_t)ep_dtype_size(j->dtype);
    int64_t grain = j->length < 256 ? 256 / (j->length > 0 ? j->length : 1) + 1 : 1;
    ep_parallel_for(ep_cpu_threads(b, 2 * bytes, flops), rows, grain, run_rows, j);
}

/* The last dims of x lie in memory as one run of adjacent elements. */
static bool is_run(const ep_tensor *x, int dims) {
    int64_t next = 1;
    for (int d = x->ndim - 1; d >= x->ndim - dims; d--) {
        if (x->sizes[d] > 1 && x->strides[d] != next) return false;
        next *= x->sizes[d];
    }
    return true;
}

ep_status ep_cpu_reduce(ep_backend *b, ep_op op, const ep_attr *attr, const ep_tensor *x, ep_tensor *out,
                        ep_error *err) {
    const ep_cpu_state *s = ep_cpu_of(b);
    const ep_row_table *t = s->rows[x->dtype];
    if (!t || out->dtype != x->dtype || x->numel == 0 || !is_run(x, attr->dims))
        return s->ref->reduce(b, op, attr, x, out, err);
    job j = {.table = t, .op = op, .dtype = x->dtype, .length = 1};
    int outer = x->ndim - attr->dims;
    for (int d = outer; d < x->ndim; d++) j.length *= x->sizes[d];
    ep_launch l = ep_launch_begin(op == EP_OP_AMAX ? t->amax_name : op == EP_OP_MEAN ? t->mean_name : t->sum_name);
    run(b, &j, set_outer(&j, outer, x, out), x->numel);
    if (l.probe) ep_launch_end(&l, x->numel, ep_cpu_bytes(x), ep_cpu_bytes(out));
    return EP_OK;
}

static bool norm_fits(int count, const ep_tensor *const *in, const ep_tensor *out) {
    const ep_tensor *x = in[0];
    if (x->ndim < 1 || x->numel == 0 || out->dtype != x->dtype || !is_run(x, 1) || !is_run(out, 1)) return false;
    for (int k = 1; k < count; k++)
        if (in[k]->dtype != x->dtype || !is_run(in[k], 1)) return false;
    return true;
}

ep_status ep_cpu_norm(ep_backend *b, ep_op op, const ep_attr *attr, int count, const ep_tensor *const *in,
                      ep_tensor *out, ep_error *err) {
    const ep_cpu_state *s = ep_cpu_of(b);
    const ep_tensor *x = in[0];
    const ep_row_table *t = s->rows[x->dtype];
    if (!t || !norm_fits(count, in, out)) return s->ref->norm(b, op, attr, count, in, out, err);
    job j = {.table = t, .op = op, .dtype = x->dtype, .length = x->sizes[x->ndim - 1], .eps = (float)attr->eps};
    if (count > 1) j.weight = in[1]->data;
    if (count > 2) j.bias = in[2]->data;
    ep_launch l = ep_launch_begin(op == EP_OP_SOFTMAX      ? t->softmax_name
                                  : op == EP_OP_LAYER_NORM ? t->layer_norm_name
                                                           : t->rms_norm_name);
    int64_t flops = (op == EP_OP_SOFTMAX ? 14 : 5 + count) * out->numel;
    run(b, &j, set_outer(&j, x->ndim - 1, x, out), flops);
    if (!l.probe) return EP_OK;
    int64_t read = 0;
    for (int k = 0; k < count; k++) read += ep_cpu_bytes(in[k]);
    ep_launch_end(&l, flops, read, ep_cpu_bytes(out));
    return EP_OK;
}
