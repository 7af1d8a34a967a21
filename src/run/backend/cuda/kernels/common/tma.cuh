/* The bulk tensor copy engine (TMA): 2-d loads, multicast loads, stores. */
#pragma once
#include <cuda.h>
#include <stdint.h>

namespace ep {

/* L2 policies as createpolicy.fractional makes them for a fraction of 1. */
enum : unsigned long long {
    L2_NORMAL = 0x1000000000000000ull,
    L2_EVICT_FIRST = 0x12f0000000000000ull,
    L2_EVICT_LAST = 0x14f0000000000000ull,
};

__device__ __forceinline__ void tma_prefetch(const CUtensorMap *map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map));
}

/* Box at (column, row) of the map into shared memory; completes on the barrier. Outside elements are zero. */
__device__ __forceinline__ void tma_load(uint32_t dst, const CUtensorMap *map, int column, int row, uint32_t bar,
                                         unsigned long long policy) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
                 "[%1, {%2, %3}], [%4], %5;" ::"r"(dst),
                 "l"(map), "r"(column), "r"(row), "r"(bar), "l"(policy)
                 : "memory");
}

/* The same into every CTA whose bit is set, at the same offsets of data and barrier. */
__device__ __forceinline__ void tma_load_multicast(uint32_t dst, const CUtensorMap *map, int column, int row,
                                                   uint32_t bar, uint16_t mask, unsigned long long policy) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
                 ".L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5, %6;" ::"r"(dst),
                 "l"(map), "r"(column), "r"(row), "r"(bar), "h"(mask), "l"(policy)
                 : "memory");
}

__device__ __forceinline__ void tma_store(const CUtensorMap *map, int column, int row, uint32_t src,
                                          unsigned long long policy) {
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group.L2::cache_hint [%0, {%1, %2}], [%3], %4;" ::"l"(map),
        "r"(column), "r"(row), "r"(src), "l"(policy)
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
