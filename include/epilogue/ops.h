/* ops.h: the eager ops. Each call runs at once (or, while a function is captured by ep_compile, is recorded), gives a
 * new tensor owned by the caller, and returns a status whose sentence is in ep_context_error.
 *
 * Broadcasting is NumPy's. Floating inputs of one call must share a dtype unless said otherwise; arithmetic is f32 (f64
 * in a context with `reference`), the result is rounded once to the dtype. Empty tensors, NaN and infinities behave as PyTorch documents.
 * Views launch no kernel. Any stride is read in place. */
#ifndef EPILOGUE_OPS_H
#define EPILOGUE_OPS_H

#include "context.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Every op by number: first the rows of pointwise.def, then those of ops.def. */
typedef enum ep_op {
#define EP_POINTWISE(ID, name, aten, arity, flops, formula) EP_OP_##ID,
#include "pointwise.def"
#undef EP_POINTWISE
#define EP_OP(ID, name, aten, kind, min_arity, max_arity, shape_rule, work_rule) EP_OP_##ID,
#include "ops.def"
#undef EP_OP
    EP_OP_COUNT
} ep_op;

/* Activations by their exact kind; no backend may swap one for another. */
typedef enum ep_act {
    EP_ACT_NONE,
    EP_ACT_GELU_TANH, /* 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
    EP_ACT_GELU_ERF,  /* 0.5 x (1 + erf(x / sqrt 2)) */
    EP_ACT_SILU,      /* x / (1 + exp(-x)) */
    EP_ACT_RELU,      /* max(x, 0) */
    EP_ACT_COUNT
} ep_act;
EP_API const char *ep_act_name(ep_act act);
EP_API ep_status ep_act_parse(const char *name, ep_act *out);

EP_API const char *ep_op_name(ep_op op);
EP_API ep_status ep_op_parse(const char *name, ep_op *out); /* our name or aten's */

/* Pointwise ops of one, two and three operands, by number; the named calls below are these. */
EP_API ep_status ep_unary(ep_context *ctx, ep_op op, const ep_tensor *a, ep_tensor **out);
EP_API ep_status ep_binary(ep_context *ctx, ep_op op, const ep_tensor *a, const ep_tensor *b, ep_tensor **out);
EP_API ep_status ep_where(ep_context *ctx, const ep_tensor *cond, const ep_tensor *a, const ep_tensor *b,
                          ep_tensor **out);

#define EP_DECLARE_UNARY(name) EP_API ep_status ep_##name(ep_context *ctx, const ep_tensor *a, ep_tensor **out)
#define EP_DECLARE_BINARY(name)                                                                                        \
    EP_API ep_status ep_##name(ep_context *ctx, const ep_tensor *a, const ep_tensor *b, ep_tensor **out)
EP_DECLARE_BINARY(add);
EP_DECLARE_BINARY(sub);
EP_DECLARE_BINARY(mul);
EP_DECLARE_BINARY(div);
EP_DECLARE_BINARY(minimum);
EP_DECLARE_BINARY(maximum);
EP_DECLARE_UNARY(neg);
EP_DECLARE_UNARY(abs);
EP_DECLARE_UNARY(exp);
EP_DECLARE_UNARY(log);
EP_DECLARE_UNARY(sqrt);
EP_DECLARE_UNARY(rsqrt);
EP_DECLARE_UNARY(tanh);
EP_DECLARE_UNARY(erf);
EP_DECLARE_UNARY(sigmoid);
EP_DECLARE_UNARY(relu);
EP_DECLARE_UNARY(silu);
EP_DECLARE_UNARY(gelu_tanh);
EP_DECLARE_UNARY(gelu_erf);
#undef EP_DECLARE_UNARY
#undef EP_DECLARE_BINARY

/* The same with a result tensor of the caller's (its shape must be the broadcast shape; it may be an input itself). */
EP_API ep_status ep_pointwise_into(ep_context *ctx, ep_op op, const ep_tensor *const *inputs, int count,
                                   ep_tensor *out);

/* Recorded views. `t` is the transpose of a matrix. */
EP_API ep_status ep_t(ep_context *ctx, const ep_tensor *x, ep_tensor **out);
EP_API ep_status ep_transpose(ep_context *ctx, const ep_tensor *x, int dim0, int dim1, ep_tensor **out);
EP_API ep_status ep_view(ep_context *ctx, const ep_tensor *x, int ndim, const int64_t *sizes, ep_tensor **out);
/* As view where no copy is needed, else copy. */
EP_API ep_status ep_reshape(ep_context *ctx, const ep_tensor *x, int ndim, const int64_t *sizes, ep_tensor **out);
EP_API ep_status ep_expand(ep_context *ctx, const ep_tensor *x, int ndim, const int64_t *sizes, ep_tensor **out);
EP_API ep_status ep_slice(ep_context *ctx, const ep_tensor *x, int dim, int64_t start, int64_t stop, int64_t step,
                          ep_tensor **out);
EP_API ep_status ep_chunk(ep_context *ctx, const ep_tensor *x, int dim, int64_t chunks, int64_t index, ep_tensor **out);

/* Data movement. */
EP_API ep_status ep_copy(ep_context *ctx, const ep_tensor *x, ep_tensor **out); /* contiguous */
EP_API ep_status ep_cast(ep_context *ctx, const ep_tensor *x, ep_dtype dtype, ep_tensor **out);
EP_API ep_status ep_cat(ep_context *ctx, const ep_tensor *const *inputs, int count, int dim, ep_tensor **out);

/* Matrix products; sums in f32. mm: [M,K] x [K,N]; bmm: [B,M,K] x [B,K,N]; addmm: beta * input + alpha * (a x b),
 * input broadcast to [M,N] and, when beta is 0, not read at all. */
EP_API ep_status ep_mm(ep_context *ctx, const ep_tensor *a, const ep_tensor *b, ep_tensor **out);
EP_API ep_status ep_bmm(ep_context *ctx, const ep_tensor *a, const ep_tensor *b, ep_tensor **out);
EP_API ep_status ep_addmm(ep_context *ctx, const ep_tensor *input, const ep_tensor *a, const ep_tensor *b, double beta,
                          double alpha, ep_tensor **out);
/* y = x W^T + bias over the last dim of x; weight [out, in], bias [out] or NULL. Records linear -> t -> addmm (or mm)
 * and launches one kernel for any layout of x that flattens to a matrix without a copy. */
EP_API ep_status ep_linear(ep_context *ctx, const ep_tensor *x, const ep_tensor *weight, const ep_tensor *bias,
                           ep_tensor **out);

/* Over the last `dims` dims (1 to ndim); keepdim keeps them as size 1. Sums in f32, pairwise by blocks. */
EP_API ep_status ep_sum(ep_context *ctx, const ep_tensor *x, int dims, bool keepdim, ep_tensor **out);
EP_API ep_status ep_mean(ep_context *ctx, const ep_tensor *x, int dims, bool keepdim, ep_tensor **out);
EP_API ep_status ep_amax(ep_context *ctx, const ep_tensor *x, int dims, bool keepdim, ep_tensor **out);
/* Over the last dim. weight and bias are [last dim] or NULL. */
EP_API ep_status ep_softmax(ep_context *ctx, const ep_tensor *x, ep_tensor **out);
EP_API ep_status ep_layer_norm(ep_context *ctx, const ep_tensor *x, const ep_tensor *weight, const ep_tensor *bias,
                               double eps, ep_tensor **out);
EP_API ep_status ep_rms_norm(ep_context *ctx, const ep_tensor *x, const ep_tensor *weight, double eps, ep_tensor **out);

/* act(gate) * up in one kernel: the tuned pointwise gated kernel. Halves of a wider buffer are read in place. */
EP_API ep_status ep_gated(ep_context *ctx, ep_act act, const ep_tensor *gate, const ep_tensor *up, ep_tensor **out);
/* The same into memory that is there: out has the result's shape and dtype, any strides but 0, and may be gate or up
 * itself (then that one's values are lost). An out that overlaps an input in another way is for the caller to avoid. */
EP_API ep_status ep_gated_into(ep_context *ctx, ep_act act, const ep_tensor *gate, const ep_tensor *up, ep_tensor *out);
/* Its gradients from dy, recomputing act(gate). */
EP_API ep_status ep_gated_backward(ep_context *ctx, ep_act act, const ep_tensor *dy, const ep_tensor *gate,
                                   const ep_tensor *up, ep_tensor **dgate, ep_tensor **dup);

#ifdef __cplusplus
}
#endif
#endif
