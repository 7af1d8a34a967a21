/* The reference backend: plain C, any stride and dtype, double inside, one rounding where the contract rounds. Every
 * other kernel is compared with it, so it is written to be read. */
#ifndef EP_RUN_REF_H
#define EP_RUN_REF_H

#include "run/backend/backend.h"
#include "run/backend/launch.h"

/* Elements are widened and computed in blocks of this many. */
enum { EP_REF_BLOCK = 256 };

ep_status ep_ref_pointwise(ep_backend *b, ep_op op, int count, const ep_tensor *const *in, ep_tensor *out,
                           ep_error *err);
ep_status ep_ref_copy(ep_backend *b, const ep_tensor *in, ep_tensor *out, ep_error *err);
ep_status ep_ref_gemm(ep_backend *b, const ep_gemm *g, ep_error *err);
ep_status ep_ref_reduce(ep_backend *b, ep_op op, const ep_attr *attr, const ep_tensor *x, ep_tensor *out,
                        ep_error *err);
ep_status ep_ref_norm(ep_backend *b, ep_op op, const ep_attr *attr, int count, const ep_tensor *const *in,
                      ep_tensor *out, ep_error *err);
ep_status ep_ref_gated(ep_backend *b, ep_act act, ep_rounding rounding, const ep_tensor *gate, const ep_tensor *up,
                       ep_tensor *out, ep_error *err);
ep_status ep_ref_gated_backward(ep_backend *b, ep_act act, ep_rounding rounding, const ep_tensor *dy,
                                const ep_tensor *gate, const ep_tensor *up, ep_tensor *dgate, ep_tensor *dup,
                                ep_error *err);

/* ref_memory.c */
ep_status ep_ref_memory_open(ep_backend *b, ep_error *err);
void ep_ref_memory_close(ep_backend *b);
ep_status ep_ref_storage(ep_backend *b, size_t bytes, ep_error *err, ep_storage **out);
void ep_ref_memory(const ep_backend *b, ep_memory_stats *out);

/* The formula of a pointwise op over n values; out may be an operand. Unused operands are NULL. */
void ep_ref_apply(ep_op op, int64_t n, const double *a, const double *b, const double *c, double *out);
/* An activation in place; NONE leaves the values alone. */
void ep_ref_act(ep_act act, int64_t n, double *v);
/* Rounds values to a dtype and back. */
void ep_ref_round(ep_dtype dtype, int64_t n, double *v);

/* Kernel names "ep_<dtype>_<what>_ref", made once: by op; by what a GEMM's epilogue holds; by activation. */
const char *ep_ref_name_op(ep_dtype dtype, ep_op op);
const char *ep_ref_name_gemm(const ep_gemm *g);
const char *ep_ref_name_gated(ep_dtype dtype, ep_act act, bool backward);

/* Distinct bytes a kernel reads of a tensor: dims of stride 0 count once. */
int64_t ep_ref_bytes(const ep_tensor *t);
static inline char *ep_ref_at(const ep_tensor *t, int64_t offset) {
    /* A number: an empty tensor's address may be null. */
    return (char *)((uintptr_t)t->data + (uintptr_t)(offset * (int64_t)ep_dtype_size(t->dtype)));
}

#endif
