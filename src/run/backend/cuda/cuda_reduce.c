/* Reductions and norms: one block a row; rows with gaps inside are copied dense first. */
#include <string.h>

#include "cuda_state.h"
#include "kernels/common/strided.cuh"

#define DTYPES(op)                                                                                                     \
    { "ep_f32_" op "_sm80_row", "ep_bf16_" op "_sm80_row", "ep_f16_" op "_sm80_row" }

typedef struct row_kernel {
    ep_op op;
    const char *names[3];
    int flops;
} row_kernel;

static const row_kernel kernels[] = {
    {EP_OP_SUM, DTYPES("sum"), 1},
    {EP_OP_MEAN, DTYPES("mean"), 1},
    {EP_OP_AMAX, DTYPES("amax"), 1},
    {EP_OP_SOFTMAX, DTYPES("softmax"), 23},
    {EP_OP_LAYER_NORM, DTYPES("layer_norm"), 8},
    {EP_OP_RMS_NORM, DTYPES("rms_norm"), 5},
};

static const row_kernel *find(ep_op op) {
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (kernels[i].op == op) return &kernels[i];
    return NULL;
}

/* x as rows of `cols` adjacent elements: in place if it is contiguous, else a dense copy that *keep holds. */
static ep_status as_rows(ep_backend *b, const ep_tensor *x, const void **data, ep_storage **keep, ep_error *err) {
    *keep = NULL;
    *data = x->data;
    if (ep_tensor_is_contiguous(x)) return EP_OK;
    EP_TRY(cuda_storage_create(cuda_of(b), (size_t)x->numel * ep_dtype_size(x->dtype), err, keep));
    ep_tensor dense = *x;
    dense.data = (*keep)->data;
    ep_stride_contiguous(dense.ndim, dense.sizes, dense.strides);
    *data = dense.data;
    return cuda_copy(b, x, &dense, err);
}

static ep_status run_rows(ep_backend *b, ep_op op, ep_dtype dtype, ep_row_args *a, int64_t written, ep_error *err) {
    cuda_state *s = cuda_of(b);
    const row_kernel *k = find(op);
    if (!k || !ep_dtype_is_float(dtype))
        return ep_fail(err, EP_ERROR_DTYPE, "%s of %s does not run on the GPU", ep_op_name(op), ep_dtype_name(dtype));
    int64_t most = (int64_t)s->sm_count * 16;
    cuda_launch l = {
        .name = k->names[dtype], .block = 256, .grid = {(unsigned)(a->rows < most ? a->rows : most), 1, 1}};
    l.flops = a->rows * a->cols * k->flops;
    l.bytes_read = a->rows * a->cols * (int64_t)ep_dtype_size(dtype);
    l.bytes_written = written * (int64_t)ep_dtype_size(dtype);
    void *params[] = {a};
    return cuda_run(s, &l, params, err);
}

ep_status cuda_reduce(ep_backend *b, ep_op op, const ep_attr *attr, const ep_tensor *x, ep_tensor *out, ep_error *err) {
    if (out->numel == 0) return EP_OK;
    ep_row_args a = {.cols = 1, .rows = 1};
    for (int d = 0; d < x->ndim; d++)
        if (d >= x->ndim - attr->dims)
            a.cols *= x->sizes[d];
        else
            a.rows *= x->sizes[d];
    ep_storage *keep;
    EP_TRY(as_rows(b, x, &a.x, &keep, err));
    a.x_row = a.cols;
    a.out = out->data;
    a.out_row = 1;
    ep_status status = run_rows(b, op, x->dtype, &a, out->numel, err);
    ep_storage_release(keep);
    return status;
}

ep_status cuda_norm(ep_backend *b, ep_op op, const ep_attr *attr, int count, const ep_tensor *const *in, ep_tensor *out,
                    ep_error *err) {
    if (out->numel == 0) return EP_OK;
    const ep_tensor *x = in[0];
    ep_row_args a = {.cols = x->ndim ? x->sizes[x->ndim - 1] : 1, .eps = (float)attr->eps};
    a.rows = x->numel / a.cols;
    ep_storage *keep[3] = {NULL, NULL, NULL};
    const void *data[3] = {NULL, NULL, NULL};
    ep_status status = EP_OK;
    for (int i = 0; i < count && i < 3 && status == EP_OK; i++)
        if (in[i]) status = as_rows(b, in[i], &data[i], &keep[i], err);
    a.x = data[0], a.weight = data[1], a.bias = data[2];
    a.x_row = a.out_row = a.cols;
    a.out = out->data;
    if (status == EP_OK) status = run_rows(b, op, x->dtype, &a, out->numel, err);
    for (int i = 0; i < 3; i++) ep_storage_release(keep[i]);
    return status;
}
