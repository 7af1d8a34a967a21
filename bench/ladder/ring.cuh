/* What the ladders that only load share: a ring of buffers in shared memory, one thread that fills it and one that empties it. */
#pragma once
#include "../../src/run/backend/cuda/kernels/common/barrier.cuh"
#include "../../src/run/backend/cuda/kernels/common/tma.cuh"

struct Ring {
    uint32_t base, full, empty;
};

/* At most 32 buffers in `raw`, from its first multiple of 1024 bytes on. */
__device__ __forceinline__ Ring open_ring(uint8_t *raw, int stages) {
    __shared__ alignas(8) uint64_t bars[64];
    Ring r = {(ep::smem_u32(raw) + 1023) & ~1023u, ep::smem_u32(bars), ep::smem_u32(bars) + 256};
    if (threadIdx.x == 0) {
        for (int s = 0; s < stages; s++) {
            ep::mbar_init(r.full + 8 * s, 1);
            ep::mbar_init(r.empty + 8 * s, 1);
        }
        ep::fence_barrier_init();
    }
    __syncthreads();
    return r;
}
