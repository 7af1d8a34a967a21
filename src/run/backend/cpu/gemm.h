/* The parts of a CPU matrix product: oneDNN's primitives cached by problem, our small kernel, and the pass that applies
 * what neither can do to the rounding contract's letter. */
#ifndef EP_RUN_BACKEND_CPU_GEMM_H
#define EP_RUN_BACKEND_CPU_GEMM_H

#include "cpu.h"

/* One product sum_k a[m,k] b[k,n] (+ bias[n]) in f32, rounded once to out_dtype. Operands have a stride of 1 in one of
 * their two dims and no stride of 0; bias is adjacent. All fields are 64-bit so that the struct is its own key. */
typedef struct ep_gemm_problem {
    int64_t batch, m, n, k;
    int64_t a_batch, a_row, a_col, b_batch, b_row, b_col, out_batch, out_row;
    int64_t dtype, out_dtype, has_bias, threads;
    int64_t b_packed; /* b is in the order that oneDNN likes best, and has no strides */
    int64_t then_count, then_op[EP_GEMM_THEN], then_rows[EP_GEMM_THEN],
        then_cols[EP_GEMM_THEN]; /* 1: the same for all */
} ep_gemm_problem;

typedef struct ep_gemm_entry ep_gemm_entry;

/* gemm_onednn.c. NULL in *out (with EP_OK) where oneDNN has no kernel for the problem. */
ep_status ep_gemm_find(ep_gemm_cache *c, const ep_gemm_problem *p, ep_error *err, ep_gemm_entry **out);
/* then: the operands of the problem's steps after the product, in order; NULL where it has none. */
ep_status ep_gemm_execute(ep_gemm_cache *c, ep_gemm_entry *e, const void *a, const void *b, const void *bias, void *out,
                          const ep_gemm_then *then, ep_error *err);
/* b of a problem as a product found with b_packed wants it. NULL in *out where that is how it lies already. */
typedef struct ep_gemm_weights ep_gemm_weights;
ep_status ep_gemm_reorder(ep_gemm_cache *c, const ep_gemm_entry *e, const void *b, int64_t b_row, int64_t b_col,
                          ep_error *err, ep_gemm_weights **out);
bool ep_gemm_fits(const ep_gemm_entry *e, const ep_gemm_weights *w); /* the order is of the shape; few differ by m */
const void *ep_gemm_weights_data(const ep_gemm_weights *w);
size_t ep_gemm_weights_bytes(const ep_gemm_weights *w);
void ep_gemm_weights_free(ep_gemm_weights *w);
/* cpu_gemm.c: g's b reordered for ep_cpu_gemm_packed; NULL in *out where that is not to be had. */
ep_status ep_cpu_gemm_reorder(ep_backend *b, const ep_gemm *g, ep_error *err, ep_gemm_weights **out);
/* ep_cpu_gemm with g's b once more, reordered; from where it lies where this m wants another order. */
ep_status ep_cpu_gemm_packed(ep_backend *b, const ep_gemm *g, const ep_gemm_weights *packed, ep_error *err);
const char *ep_gemm_isa_name(const ep_gemm_entry *e); /* "onednn_avx512bf16", a literal */

#endif
