/* What a context is to the engine: an open backend whose missing functions are the reference's, the error of the last
 * call, and, while a function is captured, the recorder that takes its ops instead of a kernel. */
#ifndef EP_RUN_CONTEXT_H
#define EP_RUN_CONTEXT_H

#include <stdatomic.h>

#include <epilogue/block.h>
#include <epilogue/ops.h>

#include "base/status.h"
#include "run/backend/backend.h"

/* Takes the place of dispatch while ctx->recorder is set. Every public op calls `record` once, composites too (linear
 * as EP_OP_LINEAR, not as its parts): dtypes, shapes and arity are for the recorder to check (ep_op_shape does it).
 * Inputs are tensors that an earlier record made (value >= 0), or real ones (value -1), which are inputs or constants.
 * `outs` receives handles made by ep_tensor_shell with `value` set. Calls that cannot be recorded (ep_pointwise_into,
 * ep_gated_backward, host copies) fail with EP_ERROR_CAPTURE and never reach the recorder. */
typedef struct ep_recorder {
    ep_status (*record)(struct ep_recorder *self, ep_context *ctx, ep_op op, const ep_attr *attr, int count,
                        const ep_tensor *const *in, ep_tensor **out);
    void *user;
} ep_recorder;

struct ep_context {
    ep_error err; /* first: every call may write it */
    ep_recorder *recorder;
    ep_backend backend;
    ep_backend_ops ops; /* the backend's; NULLs of a host backend filled from the reference */
    ep_device device;
    ep_rounding rounding;
    int threads;
    _Atomic(const void *) user; /* which thread is in a call that holds the context; NULL: none */
};

/* Blocks, compiled functions and products use memory and tables of their context: a second thread is turned away. Its
 * sentence is the status's own, since context->err is the first thread's. A thread may enter again; `outer` goes to leave. */
ep_status ep_context_enter(ep_context *context, bool *outer);
static inline void ep_context_leave(ep_context *context, bool outer) {
    if (outer) atomic_store_explicit(&context->user, NULL, memory_order_release);
}

#endif
