/* Contexts: picks and opens the backend, and moves tensors between host and device. */
#include "context.h"

#include <stdlib.h>
#include <string.h>

#include "base/isa.h"
#include "run/jit/toolchain.h"

/* OpenMP ends the process where it gets no threads; nobody means so many. */
enum { MOST_THREADS = 4096 };

static const ep_backend_ops *choose(const ep_context_options *o, ep_error *err, ep_status *status) {
    *status = EP_OK;
    const ep_backend_ops *ops = NULL;
    if (o->device.kind != EP_DEVICE_CPU && o->device.kind != EP_DEVICE_CUDA) {
        *status = ep_fail(err, EP_ERROR_DEVICE, "%d is not a kind of device", (int)o->device.kind);
        return NULL;
    }
    if (o->device.kind == EP_DEVICE_CUDA) {
        ops = ep_backend_find("cuda");
        if (!ops) *status = ep_fail(err, EP_ERROR_NOT_BUILT, "this build has no CUDA backend");
        return ops;
    }
    if (!o->reference) ops = ep_backend_find("cpu");
    return ops ? ops : ep_backend_find("ref");
}

#define FILL(field)                                                                                                    \
    if (!ctx->ops.field) ctx->ops.field = ref->field

/* The reference's functions need nothing of the backend they run under but its threads. */
static void fill_from_reference(ep_context *ctx) {
    const ep_backend_ops *ref = ep_backend_find("ref");
    if (ctx->ops.kind != EP_DEVICE_CPU) return;
    FILL(pointwise);
    FILL(copy);
    FILL(gemm);
    FILL(reduce);
    FILL(norm);
    FILL(gated);
    FILL(gated_backward);
    FILL(sync);
}

ep_status ep_context_create(const ep_context_options *options, ep_error *err, ep_context **out) {
    static const ep_context_options defaults;
    const ep_context_options *o = options ? options : &defaults;
    if (!out) return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "out is NULL");
    if (o->threads < 0 || o->threads > MOST_THREADS)
        return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "%d threads; allowed are 0, which means all, to %d", o->threads,
                       MOST_THREADS);
    if (o->rounding != EP_ROUNDING_EAGER && o->rounding != EP_ROUNDING_FEWEST)
        return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "%d is not a rounding", (int)o->rounding);
    ep_status status;
    const ep_backend_ops *ops = choose(o, err, &status);
    EP_TRY(status);
    ep_context *ctx = calloc(1, sizeof *ctx);
    if (!ctx) return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "a context could not be allocated");
    ctx->threads = o->threads ? o->threads : ep_cpu_get()->cores;
    ctx->device = o->device;
    ctx->rounding = o->rounding;
    ctx->err.position = -1;
    ctx->ops = *ops;
    ctx->backend = (ep_backend){.name = ops->name, .kind = ops->kind, .ops = ops, .threads = ctx->threads};
    ctx->backend.index = o->device.index;
    ctx->backend.autotune = o->autotune;
    ctx->backend.tf32 = o->tf32;
    if (ops->kind == EP_DEVICE_CUDA) ep_toolchain_nvrtc.expect();
    status = ops->open(o->device.index, ctx->threads, err, &ctx->backend);
    if (status != EP_OK) {
        free(ctx);
        return status;
    }
    fill_from_reference(ctx);
    *out = ctx;
    return EP_OK;
}

ep_status ep_context_enter(ep_context *ctx, bool *outer) {
    static _Thread_local char mark; /* its address is the thread */
    const void *me = &mark, *none = NULL;
    *outer = false;
    if (atomic_load_explicit(&ctx->user, memory_order_relaxed) == me) return EP_OK;
    *outer = atomic_compare_exchange_strong_explicit(&ctx->user, &none, me, memory_order_acquire, memory_order_relaxed);
    return *outer ? EP_OK : EP_ERROR_BUSY;
}

void ep_context_destroy(ep_context *ctx) {
    if (!ctx) return;
    ctx->ops.close(&ctx->backend);
    free(ctx);
}

const ep_error *ep_context_error(const ep_context *ctx) {
    return &ctx->err;
}

ep_device ep_context_device(const ep_context *ctx) {
    return ctx->device;
}

int ep_context_threads(const ep_context *ctx) {
    return ctx->threads;
}

ep_rounding ep_context_rounding(const ep_context *ctx) {
    return ctx->rounding;
}

const char *ep_context_autotuned(ep_context *ctx) {
    return ctx->ops.autotuned ? ctx->ops.autotuned(&ctx->backend) : "";
}

ep_status ep_context_sync(ep_context *ctx) {
    if (!ctx) return EP_ERROR_INVALID_ARGUMENT;
    if (ctx->recorder) return ep_fail(&ctx->err, EP_ERROR_CAPTURE, "sync cannot be recorded");
    return ctx->ops.sync(&ctx->backend, &ctx->err);
}

void ep_context_memory(const ep_context *ctx, ep_memory_stats *out) {
    memset(out, 0, sizeof *out);
    if (ctx->ops.memory) ctx->ops.memory(&ctx->backend, out);
}

static ep_status check_move(ep_context *ctx, const ep_tensor *x, const void *out) {
    if (!x || !out) return ep_fail(&ctx->err, EP_ERROR_INVALID_ARGUMENT, "%s is NULL", x ? "out" : "x");
    if (ctx->recorder) return ep_fail(&ctx->err, EP_ERROR_CAPTURE, "copies to and from a device cannot be recorded");
    return EP_OK;
}

static bool here(const ep_context *ctx, const ep_tensor *x) {
    return x->device.kind == ctx->device.kind && x->device.index == ctx->device.index;
}

ep_status ep_to_device(ep_context *ctx, const ep_tensor *x, ep_tensor **out) {
    EP_TRY(check_move(ctx, x, out));
    if (here(ctx, x)) return ep_tensor_alias(x, &ctx->err, out);
    if (x->device.kind != EP_DEVICE_CPU || !ctx->ops.from_host)
        return ep_fail(&ctx->err, EP_ERROR_DEVICE, "the tensor is on another device; copy it to the host first");
    ep_storage *s;
    ep_tensor *t;
    EP_TRY(ctx->ops.storage(&ctx->backend, (size_t)x->numel * ep_dtype_size(x->dtype), &ctx->err, &s));
    EP_TRY(ep_tensor_over(s, x->dtype, x->ndim, x->sizes, &ctx->err, &t));
    ep_status status = x->numel ? ctx->ops.from_host(&ctx->backend, x, t, &ctx->err) : EP_OK;
    if (status != EP_OK) {
        ep_tensor_destroy(t);
        return status;
    }
    *out = t;
    return EP_OK;
}

ep_status ep_to_host(ep_context *ctx, const ep_tensor *x, ep_tensor **out) {
    EP_TRY(check_move(ctx, x, out));
    if (x->device.kind == EP_DEVICE_CPU) return ep_tensor_alias(x, &ctx->err, out);
    if (!here(ctx, x) || !ctx->ops.to_host)
        return ep_fail(&ctx->err, EP_ERROR_DEVICE, "the tensor is on a device that this context is not for");
    ep_tensor *t;
    EP_TRY(ep_tensor_create(x->dtype, x->ndim, x->sizes, &ctx->err, &t));
    ep_status status = x->numel ? ctx->ops.to_host(&ctx->backend, x, t, &ctx->err) : EP_OK;
    if (status != EP_OK) {
        ep_tensor_destroy(t);
        return status;
    }
    *out = t;
    return EP_OK;
}
