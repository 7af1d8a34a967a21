/* The bulk tensor copy engine (TMA): 2-d loads, multicast loads, stores. */
#pragma once
#include <cuda.h>
#include <stdint.h>

namespace ep {

__device__ __forceinline__ void tma_prefetch(const CUtensorMap *map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map));
}

/* Box at (column, row) of the map into shared memory; completes on the barrier. Outside elements are zero. */
__device__ __forceinline__ void tma_load(uint32_t dst, const CUtensorMap *map, int column, int row, uint32_t bar) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
                 "[%4];" ::"r"(dst),
                 "l"(map), "r"(column), "r"(row), "r"(bar)
                 : "memory");
}

/* The same into every CTA whose bit is set, at the same offsets of data and barrier. */
__device__ __forceinline__ void tma_load_multicast(uint32_t dst, const CUtensorMap *map, int column, int row,
                                                   uint32_t bar, uint16_t mask) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
                 "[%1, {%2, %3}], [%4], %5;" ::"r"(dst),
                 "l"(map), "r"(column), "r"(row), "r"(bar), "h"(mask)
                 : "memory");
}

__device__ __forceinline__ void tma_store(const CUtensorMap *map, int column, int row, uint32_t src) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map), "r"(column),
                 "r"(row), "r"(src)
                 : "memory");
}

__device__ __forceinline__ void tma_commit() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* Until at most N groups still read shared memory. */
template <int N> __device__ __forceinline__ void tma_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}

template <int N> __device__ __forceinline__ void tma_wait() {
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory");
}

} // namespace ep
