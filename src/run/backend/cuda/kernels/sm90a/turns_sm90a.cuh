/* Products for sm_90a with warpgroups in turns: gated ones whose results are not handed over (rounding `fewest`), plain ones with
 * an activation or a residual.
 *
 * Bound: tensor cores and the card's power, as gemm_sm90a.cuh. There both consumer warpgroups work at one tile and end it at
 * nearly the same time, so the tensor cores wait for the epilogue (70 % busy at k = 768). Here each has a tile of 128 rows of
 * its own, and while one has the tensor cores the other finishes and stores: no product waits for an epilogue. A tile is 128
 * rows by BN weight rows (gated: BN/2 gate and BN/2 up rows); a warpgroup's sums take BN registers, so BN is 192 at most.
 * 8192 x 768 -> 3072: 117 us before, 99 in turns; 8192 x 2048 -> 16384: 1407, 1331 (H200, rested). */
#pragma once
#include "gemm_sm90a.cuh"

namespace ep {

template <int BN, int STAGES, bool GATED> struct turns_shape {
    static const int rows = 128, out = GATED ? BN / 2 : BN;
    static const int staged = BN / 2; /* columns stored at a time, in boxes of 32 */
    static const int a_bytes = rows * ROW_BYTES, b_bytes = BN * ROW_BYTES, stage = a_bytes + b_bytes;
    static const int part = 64 * staged * 2, total = STAGES * stage + 2 * part + 2 * STAGES * 8 + 1024;
};

/* Counts as having come to a named barrier, without waiting for the others. */
__device__ __forceinline__ void named_arrive(int id, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* All of k for one tile; gives the buffer that is not released yet. q counts the buffers filled before, all tiles' of this
 * CTA: between two tiles of a warpgroup the other one's lie. */
template <typename T, typename S, int BN, int STAGES, int CM, typename R>
__device__ __forceinline__ int turns_consume(float (&d)[2][BN / 2], const gemm_place<S, STAGES, CM, 1> &p, int blocks,
                                             unsigned q, R release) {
    int s = (int)(q % STAGES), previous = -1;
    uint32_t phase = q / STAGES & 1;
    for (int b = 0; b < blocks; b++) {
        mbar_wait(p.full + 8 * s, phase);
        uint32_t at = p.base + s * S::stage;
        uint64_t a = wgmma_descriptor(at), w = wgmma_descriptor(at + S::a_bytes);
        constexpr int HALF = 64 * ROW_BYTES / 16; /* 64 rows on, in a descriptor's units */
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < BK / 16; i++) {
            wgmma_n<T, BN>::run(d[0], a + 2 * i, w + 2 * i, b > 0 || i > 0);
            wgmma_n<T, BN>::run(d[1], a + HALF + 2 * i, w + 2 * i, b > 0 || i > 0);
        }
        wgmma_commit();
        if (previous >= 0) {
            wgmma_wait<1>();
            release(previous);
        }
        previous = s;
        if (++s == STAGES) {
            s = 0;
            phase ^= 1;
        }
    }
    return previous;
}

template <int CM> __device__ __forceinline__ void turns_release(uint32_t empty) {
    int in_group = threadIdx.x & 127;
    if (CM > 1) {
        if (in_group < CM) mbar_arrive_cluster(empty, in_group);
    } else if (in_group == 0) {
        mbar_arrive(empty);
    }
}

/* Rounds, activates and stores one warpgroup's tile, 64 rows by `staged` columns at a time through its own buffer. */
template <typename T, typename S, int BN, bool GATED, int ACT, bool EAGER>
__device__ __forceinline__ void turns_store(const float (&d)[2][BN / 2], const CUtensorMap *map_y,
                                            const gemm_args &args, int row0, int col0, uint32_t out, int wg) {
    int lane = threadIdx.x & 31, warp = (threadIdx.x >> 5) & 3;
    bool elected = (threadIdx.x & 127) == 0;
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int part = 0; part < S::out / S::staged; part++) {
            int top = row0 + 64 * half, left = col0 + part * S::staged;
            if (elected) tma_wait_read<0>();
            named_barrier(3 + wg, 128);
            int row = top + warp * 16 + (lane >> 2), column = col0 + 2 * (lane & 3);
            store_tile<T, S::staged, 32>(out, [&](int j, uint32_t *lo, uint32_t *hi) {
                int at = part * (S::staged / 8) + j;
                result_words<T, BN, GATED, ACT, EAGER>(d[half], args, at, row, column, lo, hi);
            });
            fence_async_shared();
            named_barrier(3 + wg, 128);
            if (elected) {
#pragma unroll
                for (int box = 0; box < S::staged / 32; box++)
                    if (left + box * 32 < args.n && top < args.m)
                        tma_store(map_y, left + box * 32, top, out + box * (64 * 64), args.policy_y);
                tma_commit();
            }
        }
}

template <typename T, int BN, int STAGES, int CM, bool GATED, int ACT, bool EAGER>
__device__ __forceinline__ void turns_body(const CUtensorMap *map_x, const CUtensorMap *map_w0,
                                           const CUtensorMap *map_w1, const CUtensorMap *map_y, const gemm_args &args) {
    typedef turns_shape<BN, STAGES, GATED> S;
    static_assert(S::total <= SHARED_LIMIT, "the stages must fit a multiprocessor's shared memory");
    extern __shared__ uint8_t raw[];
    uint32_t base = (smem_u32(raw) + 1023) & ~1023u, out_base = base + STAGES * S::stage;
    gemm_place<S, STAGES, CM, 1> p(args, base, out_base + 2 * S::part);
    int group = warpgroup();
    if (threadIdx.x == 0) {
        ring_init<STAGES>(p.full, p.empty, CM);
        fence_barrier_init();
    }
    ring_ready<(CM > 1)>();

    if (group == 0) {
        registers_down<40>();
        if (threadIdx.x == 0) produce<S, BN, STAGES, CM, 1, GATED>(map_x, map_w0, map_w1, args, p);
    } else {
        registers_up<232>();
        int wg = group - 1;
        float d[2][BN / 2];
        auto release = [&](int stage) { turns_release<CM>(p.empty + 8 * stage); };
        wait_previous_grid();
        unsigned q = wg * p.blocks;
        for (int tile = p.first + wg * p.step; tile < p.tiles; tile += 2 * p.step, q += 2 * p.blocks) {
            int tm, tn;
            tile_at(args, tile, &tm, &tn);
            /* The tensor cores are taken and handed on; the other one's products begin while these still run. */
            if (q) named_barrier(1 + wg, 256);
            int last = turns_consume<T, S, BN, STAGES, CM>(d, p, p.blocks, q, release);
            if (tile + p.step < p.tiles) named_arrive(2 - wg, 256);
            wgmma_wait<0>();
            wgmma_hold(d[0]);
            wgmma_hold(d[1]);
            release(last);
            turns_store<T, S, BN, GATED, ACT, EAGER>(d, map_y, args, (tm * CM + p.at_m) * S::rows, tn * S::out,
                                                     out_base + wg * S::part, wg);
        }
        if ((threadIdx.x & 127) == 0) tma_wait<0>();
    }
    /* A CTA must not leave while its neighbour may still write to or arrive at its shared memory. */
    if (CM > 1) cluster_sync();
}

} // namespace ep
