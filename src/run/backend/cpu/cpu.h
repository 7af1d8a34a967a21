/* What an open CPU backend holds, and the functions of its struct that are spread over files. */
#ifndef EP_RUN_BACKEND_CPU_H
#define EP_RUN_BACKEND_CPU_H

#include "base/isa.h"
#include "base/parallel.h"
#include "cpu_alloc.h"
#include "run/backend/backend.h"

typedef struct ep_pointwise_table ep_pointwise_table;
typedef struct ep_row_table ep_row_table;
typedef struct ep_gemm_cache ep_gemm_cache;

typedef struct ep_cpu_state {
    ep_cpu_pool *pool;
    ep_isa isa;
    const ep_pointwise_table *pointwise[EP_DTYPE_COUNT]; /* NULL: the reference */
    const ep_row_table *rows[EP_DTYPE_COUNT];
    const ep_backend_ops *ref; /* what no fast kernel takes */
    ep_gemm_cache *gemms;
    struct ep_tuned_scratch *tuned; /* NULL until the first tuned call */
} ep_cpu_state;

static inline ep_cpu_state *ep_cpu_of(const ep_backend *b) {
    return b->state;
}

/* A fork-join costs 2 to 3 us: work below about four of them stays on the caller's thread. */
static inline int ep_cpu_threads(const ep_backend *b, int64_t bytes, int64_t flops) {
    return bytes + flops / 3 < (int64_t)200000 ? 1 : ep_parallel_most(b->threads);
}

/* Distinct bytes read or written of a tensor: dims of stride 0 count once. */
int64_t ep_cpu_bytes(const ep_tensor *t);

ep_status ep_cpu_pointwise(ep_backend *b, ep_op op, int count, const ep_tensor *const *in, ep_tensor *out,
                           ep_error *err);
ep_status ep_cpu_copy(ep_backend *b, const ep_tensor *in, ep_tensor *out, ep_error *err);
ep_status ep_cpu_reduce(ep_backend *b, ep_op op, const ep_attr *attr, const ep_tensor *x, ep_tensor *out,
                        ep_error *err);
ep_status ep_cpu_norm(ep_backend *b, ep_op op, const ep_attr *attr, int count, const ep_tensor *const *in,
                      ep_tensor *out, ep_error *err);
ep_status ep_cpu_gemm(ep_backend *b, const ep_gemm *g, ep_error *err);
ep_status ep_gemm_cache_create(ep_error *err, ep_gemm_cache **out);
void ep_gemm_cache_destroy(ep_gemm_cache *c);

/* tuned_backend.c */
ep_status ep_cpu_pack(ep_backend *b, const ep_pack_request *request, ep_error *err, ep_packed **out);
void ep_cpu_pack_free(ep_backend *b, ep_packed *p);
ep_status ep_cpu_tuned(ep_backend *b, const ep_tuned_call *call, ep_error *err);
ep_status ep_cpu_gated(ep_backend *b, ep_act act, ep_rounding rounding, const ep_tensor *gate, const ep_tensor *up,
                       ep_tensor *out, ep_error *err);
ep_status ep_cpu_gated_backward(ep_backend *b, ep_act act, ep_rounding rounding, const ep_tensor *dy,
                                const ep_tensor *gate, const ep_tensor *up, ep_tensor *dgate, ep_tensor *dup,
                                ep_error *err);

#endif
