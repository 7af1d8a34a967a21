/* Reductions, norms, copies, casts, cat and the gated pair: one kernel each, cat one an input. */
#include "dispatch.h"

#include <string.h>

/* What an op does once its result exists; `t` has elements to fill. */
typedef ep_status (*run_fn)(ep_context *ctx, ep_op op, const ep_attr *attr, int count, const ep_tensor *const *in,
                            ep_tensor *t);

static ep_status call_run(ep_context *ctx, ep_op op, const ep_attr *attr, int count, const ep_tensor *const *in,
                          run_fn run, ep_tensor **out) {
    ep_shape s;
    ep_tensor *t;
    EP_TRY(ep_dispatch_shape(ctx, op, attr, count, in, &s));
    EP_TRY(ep_dispatch_result(ctx, s.dtype, s.ndim, s.sizes, &t));
    ep_status status = t->numel ? run(ctx, op, attr, count, in, t) : EP_OK;
    if (status == EP_OK)
        *out = t;
    else
        ep_tensor_destroy(t);
    return status;
}

static ep_status call(ep_context *ctx, ep_op op, const ep_attr *attr, int count, const ep_tensor *const *in, run_fn run,
                      ep_tensor **out) {
    if (!ctx) return EP_ERROR_INVALID_ARGUMENT;
    EP_TRY(ep_dispatch_check(ctx, op, count, in, out));
    if (ctx->recorder) return ctx->recorder->record(ctx->recorder, ctx, op, attr, count, in, out);
    const ep_probe *p = ep_span_begin(op, count, in);
    ep_status status = call_run(ctx, op, attr, count, in, run, out);
    ep_span_end(p);
    return status;
}

static ep_status run_copy(ep_context *ctx, ep_op op, const ep_attr *attr, int count, const ep_tensor *const *in,
                          ep_tensor *t) {
    (void)op;
    (void)attr;
    (void)count;
    return ctx->ops.copy(&ctx->backend, in[0], t, &ctx->err);
}

ep_status ep_copy(ep_context *ctx, const ep_tensor *x, ep_tensor **out) {
    return call(ctx, EP_OP_COPY, NULL, 1, &x, run_copy, out);
}

ep_status ep_cast(ep_context *ctx, const ep_tensor *x, ep_dtype dtype, ep_tensor **out) {
    return call(ctx, EP_OP_CAST, &(ep_attr){.dtype = dtype}, 1, &x, run_copy, out);
}

ep_status ep_dispatch_copy(ep_context *ctx, const ep_tensor *x, const char *why, ep_tensor **out) {
    const ep_probe *p = ep_probe_get();
    if (p) ep_span_record(p, EP_OP_COPY, 1, &x, why);
    ep_status status = call_run(ctx, EP_OP_COPY, NULL, 1, &x, run_copy, out);
    ep_span_end(p);
    return status;
}

static ep_status run_cat(ep_context *ctx, ep_op op, const ep_attr *attr, int count, const ep_tensor *const *in,
                         ep_tensor *t) {
    (void)op;
    int d;
    int64_t start = 0;
    EP_TRY(ep_shape_dim(t->ndim, attr->dim, &ctx->err, &d));
    for (int i = 0; i < count; i++) {
        ep_tensor part = ep_dispatch_look(t, t->ndim, in[i]->sizes, t->strides);
        part.data += start * t->strides[d] * (int64_t)ep_dtype_size(t->dtype);
        start += in[i]->sizes[d];
        if (in[i]->numel) EP_TRY(ctx->ops.copy(&ctx->backend, in[i], &part, &ctx->err));
    }
    return EP_OK;
}

ep_status ep_cat(ep_context *ctx, const ep_tensor *const *inputs, int count, int dim, ep_tensor **out) {
    if (!ctx) return EP_ERROR_INVALID_ARGUMENT;
    if (!inputs) return ep_fail(&ctx->err, EP_ERROR_INVALID_ARGUMENT, "cat: inputs is NULL");
    if (count < 1) return ep_fail(&ctx->err, EP_ERROR_INVALID_ARGUMENT, "cat of %d tensors; at least 1", count);
    return call(ctx, EP_OP_CAT, &(ep_attr){.dim = dim}, count, inputs, run_cat, out);
}

static ep_status run_reduce(ep_context *ctx, ep_op op, const ep_attr *attr, int count, const ep_tensor *const *in,
                            ep_tensor *t) {
    (void)count;
    if (op == EP_OP_AMAX && in[0]->numel == 0)
        return ep_fail(&ctx->err, EP_ERROR_SHAPE, "the maximum of no elements does not exist");
    return ctx->ops.reduce(&ctx->backend, op, attr, in[0], t, &ctx->err);
}

static ep_status reduce(ep_context *ctx, ep_op op, const ep_tensor *x, int dims, bool keepdim, ep_tensor **out) {
    return call(ctx, op, &(ep_attr){.dims = dims, .keepdim = keepdim}, 1, &x, run_reduce, out);
}

ep_status ep_sum(ep_context *ctx, const ep_tensor *x, int dims, bool keepdim, ep_tensor **out) {
    return reduce(ctx, EP_OP_SUM, x, dims, keepdim, out);
}

ep_status ep_mean(ep_context *ctx, const ep_tensor *x, int dims, bool keepdim, ep_tensor **out) {
    return reduce(ctx, EP_OP_MEAN, x, dims, keepdim, out);
}

ep_status ep_amax(ep_context *ctx, const ep_tensor *x, int dims, bool keepdim, ep_tensor **out) {
    return reduce(ctx, EP_OP_AMAX, x, dims, keepdim, out);
}

static ep_status run_norm(ep_context *ctx, ep_op op, const ep_attr *attr, int count, const ep_tensor *const *in,
                          ep_tensor *t) {
    return ctx->ops.norm(&ctx->backend, op, attr, count, in, t, &ctx->err);
}

ep_status ep_softmax(ep_context *ctx, const ep_tensor *x, ep_tensor **out) {
    return call(ctx, EP_OP_SOFTMAX, &(ep_attr){.dims = 1}, 1, &x, run_norm, out);
}

ep_status ep_layer_norm(ep_context *ctx, const ep_tensor *x, const ep_tensor *weight, const ep_tensor *bias, double eps,
                        ep_tensor **out) {
    const ep_tensor *in[3] = {x, weight, bias};
    if (ctx && bias && !weight)
        return ep_fail(&ctx->err, EP_ERROR_INVALID_ARGUMENT, "layer_norm has a bias but no weight");
    return call(ctx, EP_OP_LAYER_NORM, &(ep_attr){.eps = eps}, bias ? 3 : weight ? 2 : 1, in, run_norm, out);
}

ep_status ep_rms_norm(ep_context *ctx, const ep_tensor *x, const ep_tensor *weight, double eps, ep_tensor **out) {
    const ep_tensor *in[2] = {x, weight};
    return call(ctx, EP_OP_RMS_NORM, &(ep_attr){.eps = eps}, weight ? 2 : 1, in, run_norm, out);
}

static ep_status run_gated(ep_context *ctx, ep_op op, const ep_attr *attr, int count, const ep_tensor *const *in,
                           ep_tensor *t) {
    (void)op;
    (void)count;
    return ctx->ops.gated(&ctx->backend, attr->act, attr->rounding, in[0], in[1], t, &ctx->err);
}

static ep_status check_act(ep_context *ctx, ep_act act) {
    if (!ctx) return EP_ERROR_INVALID_ARGUMENT;
    if ((unsigned)act >= EP_ACT_COUNT)
        return ep_fail(&ctx->err, EP_ERROR_INVALID_ARGUMENT, "%d is not an activation", (int)act);
    return EP_OK;
}

ep_status ep_gated(ep_context *ctx, ep_act act, const ep_tensor *gate, const ep_tensor *up, ep_tensor **out) {
    EP_TRY(check_act(ctx, act));
    const ep_tensor *in[2] = {gate, up};
    return call(ctx, EP_OP_GATED, &(ep_attr){.act = act, .rounding = ctx->rounding}, 2, in, run_gated, out);
}

/* out is what ep_gated would have made, but for its strides; two of its elements never share memory. */
static ep_status check_into(ep_context *ctx, const ep_tensor *const in[2], const ep_tensor *out) {
    char text[96], wanted[96];
    ep_shape s;
    EP_TRY(ep_dispatch_check(ctx, EP_OP_GATED, 1, &(const ep_tensor *){out}, out));
    EP_TRY(ep_dispatch_shape(ctx, EP_OP_GATED, NULL, 2, in, &s));
    bool fits = out->ndim == s.ndim && out->dtype == s.dtype;
    for (int i = 0; fits && i < s.ndim; i++) fits = out->sizes[i] == s.sizes[i];
    if (!fits)
        return ep_fail(&ctx->err, EP_ERROR_SHAPE, "gated: out is %s %s, the result %s %s", ep_dtype_name(out->dtype),
                       ep_shape_text(out->ndim, out->sizes, text, sizeof text), ep_dtype_name(s.dtype),
                       ep_shape_text(s.ndim, s.sizes, wanted, sizeof wanted));
    for (int i = 0; i < out->ndim; i++)
        if (out->strides[i] == 0 && out->sizes[i] > 1)
            return ep_fail(&ctx->err, EP_ERROR_STRIDE, "gated: out has stride 0 in dim %d", i);
    return EP_OK;
}

ep_status ep_gated_into(ep_context *ctx, ep_act act, const ep_tensor *gate, const ep_tensor *up, ep_tensor *out) {
    EP_TRY(check_act(ctx, act));
    const ep_tensor *in[2] = {gate, up};
    EP_TRY(ep_dispatch_check(ctx, EP_OP_GATED, 2, in, out));
    EP_TRY(check_into(ctx, in, out));
    if (ctx->recorder) return ep_fail(&ctx->err, EP_ERROR_CAPTURE, "gated_into cannot be recorded");
    const ep_probe *p = ep_probe_get();
    ep_probe_span span = {.kind = EP_PROBE_OP, .name = "gated_into"};
    if (p) p->begin(p->self, &span);
    ep_status status = EP_OK;
    if (out->numel) status = ctx->ops.gated(&ctx->backend, act, ctx->rounding, gate, up, out, &ctx->err);
    ep_span_end(p);
    return status;
}

static ep_status backward_run(ep_context *ctx, ep_act act, const ep_tensor *const *in, ep_tensor **dgate,
                              ep_tensor **dup) {
    ep_shape s;
    ep_tensor *g, *u;
    EP_TRY(ep_dispatch_shape(ctx, EP_OP_GATED, NULL, 2, in, &s));
    EP_TRY(ep_dispatch_shape(ctx, EP_OP_GATED, NULL, 2, in + 1, &s));
    EP_TRY(ep_dispatch_result(ctx, s.dtype, s.ndim, s.sizes, &g));
    ep_status status = ep_dispatch_result(ctx, s.dtype, s.ndim, s.sizes, &u);
    if (status != EP_OK) {
        ep_tensor_destroy(g);
        return status;
    }
    if (g->numel)
        status = ctx->ops.gated_backward(&ctx->backend, act, ctx->rounding, in[0], in[1], in[2], g, u, &ctx->err);
    if (status != EP_OK) {
        ep_tensor_destroy(g);
        ep_tensor_destroy(u);
        return status;
    }
    *dgate = g;
    *dup = u;
    return EP_OK;
}

ep_status ep_gated_backward(ep_context *ctx, ep_act act, const ep_tensor *dy, const ep_tensor *gate,
                            const ep_tensor *up, ep_tensor **dgate, ep_tensor **dup) {
    EP_TRY(check_act(ctx, act));
    const ep_tensor *in[3] = {dy, gate, up};
    EP_TRY(ep_dispatch_check(ctx, EP_OP_GATED, 3, in, dgate && dup ? dgate : NULL));
    if (ctx->recorder) return ep_fail(&ctx->err, EP_ERROR_CAPTURE, "gated_backward cannot be recorded");
    const ep_probe *p = ep_probe_get();
    ep_probe_span span = {.kind = EP_PROBE_OP, .name = "gated_backward"};
    if (p) p->begin(p->self, &span);
    ep_status status = backward_run(ctx, act, in, dgate, dup);
    ep_span_end(p);
    return status;
}
