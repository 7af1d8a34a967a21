/* The steps every op takes from call to kernel; shared by the dispatch_*.c files and the plans. */
#ifndef EP_RUN_DISPATCH_H
#define EP_RUN_DISPATCH_H

#include "base/probe.h"
#include "context.h"
#include "model/op/op.h"
#include "model/tensor/tensor.h"

/* A span on the recording in progress; what ep_span_begin gave goes to ep_span_end. Operands may be NULL (skipped). */
/* A tensor as a span names it; points into the tensor. */
static inline ep_probe_operand ep_span_operand(const ep_tensor *t) {
    return (ep_probe_operand){ep_dtype_name(t->dtype), t->ndim, t->sizes, t->strides};
}
const ep_probe *ep_span_record(const ep_probe *p, ep_op op, int count, const ep_tensor *const *in, const char *detail);
static inline const ep_probe *ep_span_begin(ep_op op, int count, const ep_tensor *const *in) {
    const ep_probe *p = ep_probe_get();
    if (__builtin_expect(p != NULL, 0)) return ep_span_record(p, op, count, in, NULL);
    return NULL;
}
static inline void ep_span_end(const ep_probe *p) {
    if (__builtin_expect(p != NULL, 0)) p->end(p->self);
}

/* NULLs and devices. */
ep_status ep_dispatch_check(ep_context *ctx, ep_op op, int count, const ep_tensor *const *in, const void *out);
/* The result shape by the op's rule. */
ep_status ep_dispatch_shape(ep_context *ctx, ep_op op, const ep_attr *attr, int count, const ep_tensor *const *in,
                            ep_shape *out);
/* A contiguous result tensor from the backend's cache. */
ep_status ep_dispatch_result(ep_context *ctx, ep_dtype dtype, int ndim, const int64_t *sizes, ep_tensor **out);

/* `t` seen with other sizes and strides, for the length of a call: owns nothing, never destroyed. */
ep_tensor ep_dispatch_look(const ep_tensor *t, int ndim, const int64_t *sizes, const int64_t *strides);

/* A contiguous copy as a recorded `copy` op with a detail that says why (NULL: none). */
ep_status ep_dispatch_copy(ep_context *ctx, const ep_tensor *x, const char *why, ep_tensor **out);

/* The product of x's flattened rows with weight [out, in]: fills the a, b and out parts of `g` so that one kernel reads
 * any x whose rows are at most a batch of evenly spaced runs. False if they are not; x then needs a copy. */
bool ep_dispatch_linear_form(const ep_tensor *x, const ep_tensor *weight, const ep_tensor *bias, ep_gemm *g);

/* The same of mm, bmm and, with `input`, addmm: a [.., M, K], b [.., K, N]. `input` becomes a bias where it is a row added
 * once, the beta operand else, and is left out if beta is 0. */
void ep_dispatch_product_form(const ep_tensor *a, const ep_tensor *b, const ep_tensor *out, const ep_tensor *input,
                              double beta, double alpha, ep_gemm *g);

#endif
