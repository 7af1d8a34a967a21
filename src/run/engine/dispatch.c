/* Eager dispatch: op -> checks -> shape -> result -> kernel, or a record if a function is being captured. Here are the
 * shared steps, the pointwise ops and the views; dispatch_gemm.c and dispatch_more.c have the rest. */
#include "dispatch.h"

#include <string.h>

enum { OPERANDS_SHOWN = 8 };

const ep_probe *ep_span_record(const ep_probe *p, ep_op op, int count, const ep_tensor *const *in, const char *detail) {
    ep_probe_operand operands[OPERANDS_SHOWN];
    int shown = 0;
    for (int i = 0; i < count && shown < OPERANDS_SHOWN; i++) {
        const ep_tensor *t = in[i];
        if (!t) continue;
        operands[shown++] = ep_span_operand(t);
    }
    ep_probe_span span = {
        .kind = EP_PROBE_OP, .name = ep_op_name(op), .operand_count = shown, .operands = operands, .detail = detail};
    p->begin(p->self, &span);
    return p;
}

ep_status ep_dispatch_check(ep_context *ctx, ep_op op, int count, const ep_tensor *const *in, const void *out) {
    if (!out) return ep_fail(&ctx->err, EP_ERROR_INVALID_ARGUMENT, "%s: out is NULL", ep_op_name(op));
    for (int i = 0; i < count; i++) {
        if (!in[i]) return ep_fail(&ctx->err, EP_ERROR_INVALID_ARGUMENT, "%s: operand %d is NULL", ep_op_name(op), i);
        if (in[i]->device.kind != ctx->device.kind || in[i]->device.index != ctx->device.index)
            return ep_fail(&ctx->err, EP_ERROR_DEVICE, "%s: operand %d is not on the context's device", ep_op_name(op),
                           i);
        if (!in[i]->storage && !ctx->recorder)
            return ep_fail(&ctx->err, EP_ERROR_CAPTURE, "%s: operand %d belongs to a capture that has ended",
                           ep_op_name(op), i);
    }
    return EP_OK;
}

ep_status ep_dispatch_shape(ep_context *ctx, ep_op op, const ep_attr *attr, int count, const ep_tensor *const *in,
                            ep_shape *out) {
    enum { MOST = 64 };
    ep_shape shapes[MOST];
    if (count > MOST)
        return ep_fail(&ctx->err, EP_ERROR_INVALID_ARGUMENT, "%s: %d operands; at most %d", ep_op_name(op), count,
                       MOST);
    for (int i = 0; i < count; i++) {
        shapes[i].dtype = in[i]->dtype;
        shapes[i].ndim = in[i]->ndim;
        memcpy(shapes[i].sizes, in[i]->sizes, sizeof shapes[i].sizes);
    }
    return ep_op_shape(op, attr, count, shapes, &ctx->err, out);
}

ep_status ep_dispatch_result(ep_context *ctx, ep_dtype dtype, int ndim, const int64_t *sizes, ep_tensor **out) {
    ep_storage *s;
    size_t bytes = ep_dtype_size(dtype);
    for (int i = 0; i < ndim; i++)
        if (__builtin_mul_overflow(bytes, (size_t)sizes[i], &bytes))
            return ep_fail(&ctx->err, EP_ERROR_OVERFLOW, "the result is larger than 2^64 - 1 bytes");
    EP_TRY(ctx->ops.storage(&ctx->backend, bytes, &ctx->err, &s));
    return ep_tensor_over(s, dtype, ndim, sizes, &ctx->err, out);
}

ep_tensor ep_dispatch_look(const ep_tensor *t, int ndim, const int64_t *sizes, const int64_t *strides) {
    ep_tensor v = *t;
    v.ndim = ndim;
    memcpy(v.sizes, sizes, sizeof(int64_t) * (size_t)ndim);
    memcpy(v.strides, strides, sizeof(int64_t) * (size_t)ndim);
    ep_tensor_finish_view(&v);
    return v;
}

/* Runs the kernel into `t`, or ends `t` if that fails. */
static ep_status finish(ep_tensor *t, ep_status status, ep_tensor **out) {
    if (status != EP_OK) {
        ep_tensor_destroy(t);
        return status;
    }
    *out = t;
    return EP_OK;
}

static bool same_shape(const ep_tensor *a, int ndim, const int64_t *sizes) {
    if (a->ndim != ndim) return false;
    for (int i = 0; i < ndim; i++)
        if (a->sizes[i] != sizes[i]) return false;
    return true;
}

/* Inputs made to look like out's shape, stride 0 where they broadcast. */
static ep_status run_broadcast(ep_context *ctx, ep_op op, int count, const ep_tensor *const *in, ep_tensor *out) {
    if (out->numel == 0) return EP_OK;
    ep_tensor look[3];
    const ep_tensor *seen[3];
    int64_t sizes[EP_MAX_DIMS], strides[EP_MAX_DIMS];
    for (int i = 0; i < count; i++) {
        seen[i] = in[i];
        if (same_shape(in[i], out->ndim, out->sizes)) continue;
        EP_TRY(ep_view_expand(in[i]->ndim, in[i]->sizes, in[i]->strides, out->ndim, out->sizes, &ctx->err, sizes,
                              strides));
        look[i] = ep_dispatch_look(in[i], out->ndim, sizes, strides);
        seen[i] = &look[i];
    }
    return ctx->ops.pointwise(&ctx->backend, op, count, seen, out, &ctx->err);
}

static ep_status pointwise_general(ep_context *ctx, ep_op op, int count, const ep_tensor *const *in, ep_tensor **out) {
    ep_shape s;
    ep_tensor *t;
    EP_TRY(ep_dispatch_shape(ctx, op, NULL, count, in, &s));
    EP_TRY(ep_dispatch_result(ctx, s.dtype, s.ndim, s.sizes, &t));
    return finish(t, run_broadcast(ctx, op, count, in, t), out);
}

/* Operands of one float dtype and shape without gaps: the rules can only say "the same again". */
static bool plain(int count, const ep_tensor *const *in) {
    const ep_tensor *a = in[0];
    if (!a->contiguous || a->numel == 0 || a->dtype > EP_DTYPE_F16) return false;
    for (int i = 1; i < count; i++)
        if (!in[i]->contiguous || in[i]->dtype != a->dtype || !same_shape(in[i], a->ndim, a->sizes)) return false;
    return true;
}

static ep_status pointwise_run(ep_context *ctx, ep_op op, int count, const ep_tensor *const *in, ep_tensor **out) {
    if (!plain(count, in)) return pointwise_general(ctx, op, count, in, out);
    const ep_tensor *a = in[0];
    ep_storage *s;
    ep_tensor *t;
    EP_TRY(ctx->ops.storage(&ctx->backend, (size_t)a->numel * ep_dtype_size(a->dtype), &ctx->err, &s));
    EP_TRY(ep_tensor_over(s, a->dtype, a->ndim, a->sizes, &ctx->err, &t));
    ep_status status = ctx->ops.pointwise(&ctx->backend, op, count, in, t, &ctx->err);
    if (__builtin_expect(status == EP_OK, 1)) {
        *out = t;
        return EP_OK;
    }
    ep_tensor_destroy(t);
    return status;
}

static ep_status pointwise(ep_context *ctx, ep_op op, int count, const ep_tensor *const *in, ep_tensor **out) {
    if (!ctx) return EP_ERROR_INVALID_ARGUMENT;
    EP_TRY(ep_dispatch_check(ctx, op, count, in, out));
    if (__builtin_expect(ctx->recorder != NULL, 0))
        return ctx->recorder->record(ctx->recorder, ctx, op, NULL, count, in, out);
    const ep_probe *p = ep_span_begin(op, count, in);
    ep_status status = pointwise_run(ctx, op, count, in, out);
    ep_span_end(p);
    return status;
}

static ep_status check_pointwise(ep_context *ctx, ep_op op, int count) {
    if (!ctx) return EP_ERROR_INVALID_ARGUMENT;
    if ((unsigned)op >= EP_OP_COUNT) return ep_fail(&ctx->err, EP_ERROR_INVALID_ARGUMENT, "%d is not an op", (int)op);
    const ep_op_info *info = ep_op_get(op);
    if (info->kind != EP_KIND_POINTWISE || info->max_arity != count)
        return ep_fail(&ctx->err, EP_ERROR_INVALID_ARGUMENT, "%s is not a pointwise op of %d operand%s", ep_op_name(op),
                       count, count == 1 ? "" : "s");
    return EP_OK;
}

ep_status ep_unary(ep_context *ctx, ep_op op, const ep_tensor *a, ep_tensor **out) {
    EP_TRY(check_pointwise(ctx, op, 1));
    return pointwise(ctx, op, 1, &a, out);
}

ep_status ep_binary(ep_context *ctx, ep_op op, const ep_tensor *a, const ep_tensor *b, ep_tensor **out) {
    EP_TRY(check_pointwise(ctx, op, 2));
    const ep_tensor *in[2] = {a, b};
    return pointwise(ctx, op, 2, in, out);
}

ep_status ep_where(ep_context *ctx, const ep_tensor *cond, const ep_tensor *a, const ep_tensor *b, ep_tensor **out) {
    const ep_tensor *in[3] = {cond, a, b};
    return pointwise(ctx, EP_OP_WHERE, 3, in, out);
}

#define UNARY(ID, name)                                                                                                \
    ep_status ep_##name(ep_context *ctx, const ep_tensor *a, ep_tensor **out) {                                        \
        return pointwise(ctx, EP_OP_##ID, 1, &a, out);                                                                 \
    }
#define BINARY(ID, name)                                                                                               \
    ep_status ep_##name(ep_context *ctx, const ep_tensor *a, const ep_tensor *b, ep_tensor **out) {                    \
        const ep_tensor *in[2] = {a, b};                                                                               \
        return pointwise(ctx, EP_OP_##ID, 2, in, out);                                                                 \
    }
#define TERNARY(ID, name) /* ep_where, above */
/* The rows' arity picks the form. */
#define FORM_1 UNARY
#define FORM_2 BINARY
#define FORM_3 TERNARY
#define EP_POINTWISE(ID, name, aten, arity, flops, formula) FORM_##arity(ID, name)
#include <epilogue/pointwise.def>
#undef EP_POINTWISE

/* Only what is sure to go wrong is refused: an element of out that stands for two, and a shifted input of out's. */
static ep_status check_into(ep_context *ctx, int count, const ep_tensor *const *in, const ep_tensor *out) {
    for (int i = 0; i < out->ndim; i++)
        if (out->sizes[i] > 1 && out->strides[i] == 0)
            return ep_fail(&ctx->err, EP_ERROR_STRIDE, "out has stride 0 in dim %d, so its elements share memory", i);
    size_t bytes = (size_t)out->numel * ep_dtype_size(out->dtype);
    for (int i = 0; i < count; i++) {
        const ep_tensor *a = in[i];
        if (a->storage != out->storage || a->data == out->data || !a->contiguous || !out->contiguous) continue;
        size_t length = (size_t)a->numel * ep_dtype_size(a->dtype);
        if (a->data < out->data + bytes && out->data < a->data + length)
            return ep_fail(&ctx->err, EP_ERROR_INVALID_ARGUMENT, "out overlaps operand %d without being it", i);
    }
    return EP_OK;
}

static ep_status into_run(ep_context *ctx, ep_op op, int count, const ep_tensor *const *in, ep_tensor *out) {
    ep_shape s;
    EP_TRY(ep_dispatch_shape(ctx, op, NULL, count, in, &s));
    char want[96], got[96];
    if (!same_shape(out, s.ndim, s.sizes))
        return ep_fail(&ctx->err, EP_ERROR_SHAPE, "%s: the result is %s, out is %s", ep_op_name(op),
                       ep_shape_text(s.ndim, s.sizes, want, sizeof want),
                       ep_shape_text(out->ndim, out->sizes, got, sizeof got));
    if (out->dtype != s.dtype)
        return ep_fail(&ctx->err, EP_ERROR_DTYPE, "%s: the result is %s, out is %s", ep_op_name(op),
                       ep_dtype_name(s.dtype), ep_dtype_name(out->dtype));
    EP_TRY(check_into(ctx, count, in, out));
    return run_broadcast(ctx, op, count, in, out);
}

ep_status ep_pointwise_into(ep_context *ctx, ep_op op, const ep_tensor *const *inputs, int count, ep_tensor *out) {
    EP_TRY(check_pointwise(ctx, op, count));
    if (!inputs) return ep_fail(&ctx->err, EP_ERROR_INVALID_ARGUMENT, "%s: inputs is NULL", ep_op_name(op));
    EP_TRY(ep_dispatch_check(ctx, op, count, inputs, out));
    EP_TRY(ep_dispatch_check(ctx, op, 1, &(const ep_tensor *){out}, out));
    if (ctx->recorder) return ep_fail(&ctx->err, EP_ERROR_CAPTURE, "an op with a given result cannot be recorded");
    const ep_probe *p = ep_span_begin(op, count, inputs);
    ep_status status = into_run(ctx, op, count, inputs, out);
    ep_span_end(p);
    return status;
}

/* Views: a span, and a handle; no kernel. */
static ep_status view(ep_context *ctx, ep_op op, const ep_attr *attr, const ep_tensor *x, ep_tensor **out) {
    if (!ctx) return EP_ERROR_INVALID_ARGUMENT;
    EP_TRY(ep_dispatch_check(ctx, op, 1, &x, out));
    if (ctx->recorder) return ctx->recorder->record(ctx->recorder, ctx, op, attr, 1, &x, out);
    const ep_probe *p = ep_span_begin(op, 1, &x);
    ep_status status;
    ep_error *err = &ctx->err;
    switch (op) {
    case EP_OP_SLICE: status = ep_tensor_slice(x, attr->dim, attr->start, attr->stop, attr->step, err, out); break;
    case EP_OP_CHUNK: status = ep_tensor_chunk(x, attr->dim, attr->stop, attr->start, err, out); break;
    case EP_OP_EXPAND: status = ep_tensor_expand(x, attr->ndim, attr->sizes, err, out); break;
    case EP_OP_VIEW:
    case EP_OP_RESHAPE: status = ep_tensor_reshape(x, attr->ndim, attr->sizes, err, out); break;
    default: status = ep_tensor_transpose(x, attr->dim, attr->dim1, err, out); break;
    }
    ep_span_end(p);
    return status;
}

static ep_status sized(ep_context *ctx, int ndim, const int64_t *sizes, ep_attr *attr) {
    if (!ctx) return EP_ERROR_INVALID_ARGUMENT;
    if (ndim < 0 || ndim > EP_MAX_DIMS || (ndim > 0 && !sizes))
        return ep_fail(&ctx->err, EP_ERROR_SHAPE, "%d dims; a tensor has 0 to %d, with sizes", ndim, EP_MAX_DIMS);
    *attr = (ep_attr){.ndim = ndim};
    memcpy(attr->sizes, sizes, sizeof(int64_t) * (size_t)ndim);
    return EP_OK;
}

ep_status ep_t(ep_context *ctx, const ep_tensor *x, ep_tensor **out) {
    if (ctx && x && x->ndim != 2)
        return ep_fail(&ctx->err, EP_ERROR_SHAPE, "t is the transpose of a matrix, not of %d dims", x->ndim);
    return view(ctx, EP_OP_T, &(ep_attr){.dim = 0, .dim1 = 1}, x, out);
}

ep_status ep_transpose(ep_context *ctx, const ep_tensor *x, int dim0, int dim1, ep_tensor **out) {
    return view(ctx, EP_OP_TRANSPOSE, &(ep_attr){.dim = dim0, .dim1 = dim1}, x, out);
}

ep_status ep_view(ep_context *ctx, const ep_tensor *x, int ndim, const int64_t *sizes, ep_tensor **out) {
    ep_attr attr;
    EP_TRY(sized(ctx, ndim, sizes, &attr));
    return view(ctx, EP_OP_VIEW, &attr, x, out);
}

ep_status ep_expand(ep_context *ctx, const ep_tensor *x, int ndim, const int64_t *sizes, ep_tensor **out) {
    ep_attr attr;
    EP_TRY(sized(ctx, ndim, sizes, &attr));
    return view(ctx, EP_OP_EXPAND, &attr, x, out);
}

ep_status ep_slice(ep_context *ctx, const ep_tensor *x, int dim, int64_t start, int64_t stop, int64_t step,
                   ep_tensor **out) {
    return view(ctx, EP_OP_SLICE, &(ep_attr){.dim = dim, .start = start, .stop = stop, .step = step}, x, out);
}

ep_status ep_chunk(ep_context *ctx, const ep_tensor *x, int dim, int64_t chunks, int64_t index, ep_tensor **out) {
    return view(ctx, EP_OP_CHUNK, &(ep_attr){.dim = dim, .start = index, .stop = chunks}, x, out);
}

static ep_status reshape_copied(ep_context *ctx, const ep_tensor *x, const ep_attr *attr, const char *why,
                                ep_tensor **out) {
    ep_tensor *copy;
    const ep_probe *p = ep_span_begin(EP_OP_RESHAPE, 1, &x);
    ep_status status = ep_dispatch_copy(ctx, x, why, &copy);
    if (status == EP_OK) {
        status = ep_tensor_reshape(copy, attr->ndim, attr->sizes, &ctx->err, out);
        ep_tensor_destroy(copy);
    }
    ep_span_end(p);
    return status;
}

ep_status ep_reshape(ep_context *ctx, const ep_tensor *x, int ndim, const int64_t *sizes, ep_tensor **out) {
    ep_attr attr;
    ep_error why;
    int64_t wanted[EP_MAX_DIMS], strides[EP_MAX_DIMS];
    EP_TRY(sized(ctx, ndim, sizes, &attr));
    EP_TRY(ep_dispatch_check(ctx, EP_OP_RESHAPE, 1, &x, out));
    EP_TRY(ep_view_infer(x->numel, ndim, sizes, &ctx->err, wanted));
    if (ctx->recorder ||
        ep_stride_reshape(x->ndim, x->sizes, x->strides, ndim, wanted, &why, strides) != EP_ERROR_STRIDE)
        return view(ctx, EP_OP_RESHAPE, &attr, x, out);
    return reshape_copied(ctx, x, &attr, why.message, out);
}
