/* A block's result in the caller's memory: written there by the last product where that can be, else copied. */
#include "base/probe.h"
#include "parts.h"

/* The bytes from a tensor's first element to its last. */
static void range_of(const ep_tensor *t, const char **first, const char **end) {
    int64_t last = 0;
    *first = *end = t->data;
    if (t->numel == 0 || ep_stride_max_offset(t->ndim, t->sizes, t->strides, NULL, &last) != EP_OK) return;
    *end = t->data + (size_t)(last + 1) * ep_dtype_size(t->dtype);
}

static bool may_share(const ep_tensor *a, const ep_tensor *b) {
    const char *first[2], *end[2];
    range_of(a, &first[0], &end[0]);
    range_of(b, &first[1], &end[1]);
    return first[0] < end[1] && first[1] < end[0];
}

static bool is_same(const ep_tensor *a, const ep_tensor *b) {
    bool same = a->data == b->data && a->ndim == b->ndim;
    for (int i = 0; same && i < a->ndim; i++)
        same = a->sizes[i] == b->sizes[i] && (a->sizes[i] == 1 || a->strides[i] == b->strides[i]);
    return same;
}

static ep_status check(ep_block *b, const ep_tensor *x, const ep_tensor *out) {
    ep_error *err = &b->ctx->err;
    char text[96], wanted[96];
    EP_TRY(ep_dispatch_check(b->ctx, EP_OP_LINEAR, 1, &out, out));
    int64_t sizes[EP_MAX_DIMS];
    bool fits = out->ndim == x->ndim && out->dtype == b->dtype;
    for (int i = 0; i < x->ndim; i++) {
        sizes[i] = i + 1 < x->ndim ? x->sizes[i] : b->out;
        fits = fits && out->sizes[i] == sizes[i];
    }
    if (!fits)
        return ep_fail(err, EP_ERROR_SHAPE, "%s: out is %s %s, the result %s %s", b->name, ep_dtype_name(out->dtype),
                       ep_shape_text(out->ndim, out->sizes, text, sizeof text), ep_dtype_name(b->dtype),
                       ep_shape_text(x->ndim, sizes, wanted, sizeof wanted));
    for (int i = 0; i < out->ndim; i++)
        if (out->strides[i] == 0 && out->sizes[i] > 1 && out->numel)
            return ep_fail(err, EP_ERROR_STRIDE, "%s: out has stride 0 in dim %d", b->name, i);
    return EP_OK;
}

/* out as rows of adjacent columns that the last product may write while x and the residual are read. */
static bool as_target(const ep_tensor *x, const ep_tensor *residual, const ep_tensor *out, ep_tensor *rows) {
    int64_t n = out->sizes[out->ndim - 1], sizes[2] = {n ? out->numel / n : 0, n}, strides[2];
    ep_error why;
    if (out->numel == 0 || may_share(x, out) || (residual && !is_same(residual, out) && may_share(residual, out)))
        return false;
    if (ep_stride_reshape(out->ndim, out->sizes, out->strides, 2, sizes, &why, strides) != EP_OK) return false;
    if ((n > 1 && strides[1] != 1) || (sizes[0] > 1 && strides[0] < n)) return false;
    if (sizes[0] == 1) strides[0] = n;
    strides[1] = 1;
    *rows = ep_dispatch_look(out, 2, sizes, strides);
    return true;
}

ep_status ep_block_run_to(ep_block *b, ep_mode mode, const ep_tensor *x, const ep_tensor *residual, ep_tensor *out) {
    ep_context *ctx = b->ctx;
    ep_tensor rows, *y;
    EP_TRY(check(b, x, out));
    /* A device's kernels count on results that lie at whole lines. */
    bool host = ctx->device.kind == EP_DEVICE_CPU;
    if (mode == EP_MODE_TUNED && host && as_target(x, residual, out, &rows))
        return ep_block_tuned_run(b, x, residual, &rows, NULL);
    EP_TRY(ep_block_run_by(b, mode, x, residual, &y));
    const ep_tensor *from = y;
    const ep_probe *p = ep_span_begin(EP_OP_COPY, 1, &from);
    ep_status status = out->numel ? ctx->ops.copy(&ctx->backend, y, out, &ctx->err) : EP_OK;
    ep_span_end(p);
    ep_tensor_destroy(y);
    return status;
}
