/* GEMM family for sm_90a: y = epilogue(x w^T), and gated: y = act(x g^T + bg) * (x u^T + bu), one store.
 *
 * Bound: tensor cores (128 cycles for each m64n256k16 step) at M >= 1024, else weights from memory. Each CTA computes
 * 128 rows by BN weight rows (gated: BN/2 gate and BN/2 up rows of the same columns, side by side in shared memory, so
 * one wgmma makes both and a thread holds g and u of the same element). Pairs of CTAs (cluster of 2 along M) share the
 * weight tile: each loads half and multicasts it. One producer warp feeds STAGES buffers of 64 k; two consumer
 * warpgroups of 64 rows each run free of one another, so that one's epilogue overlaps the other's products. Persistent:
 * CTAs walk the tiles in groups of rows that fit the L2. Tails: TMA fills zeros and clips stores. */
#pragma once
#include "../common/activation.cuh"
#include "../common/barrier.cuh"
#include "../common/tma.cuh"
#include "../common/wgmma.cuh"

namespace ep {

struct gemm_args {
    int m, n, k;          /* n: output columns */
    int tiles_m, tiles_n; /* tiles_m counts clusters' rows: 128 * CLUSTER rows each */
    int group_m;          /* cluster rows walked together */
    const void *bias0, *bias1;
    const void *residual;
    long long residual_row;                          /* elements */
    unsigned long long policy_x, policy_w, policy_y; /* L2 policies */
};

enum { BM = 128, BK = 64, ROW_BYTES = 128 };

template <int BN, int STAGES, int OUT_COLUMNS> struct gemm_smem {
    static const int a_bytes = BM * ROW_BYTES, b_bytes = BN * ROW_BYTES, stage = a_bytes + b_bytes;
    static const int out_bytes = BM * OUT_COLUMNS * 2;
    static const int total = STAGES * stage + out_bytes + 2 * STAGES * 8 + 1024;
};

__device__ __forceinline__ void tile_at(const gemm_args &a, int tile, int *tm, int *tn) {
    int per_group = a.group_m * a.tiles_n;
    int group = tile / per_group, first = group * a.group_m;
    int rows = min(a.tiles_m - first, a.group_m), in = tile - group * per_group;
    *tm = first + in % rows;
    *tn = in / rows;
}

template <typename T> __device__ __forceinline__ void stmatrix4(uint32_t addr, const uint32_t (&r)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(addr), "r"(r[0]), "r"(r[1]),
                 "r"(r[2]), "r"(r[3])
                 : "memory");
}

template <typename T, int N> struct wgmma_n;
template <int N> struct wgmma_n<bf16_type, N> {
    static __device__ __forceinline__ void run(float (&d)[N / 2], uint64_t a, uint64_t b, int acc) {
        wgmma_bf16(d, a, b, acc);
    }
};
template <int N> struct wgmma_n<f16_type, N> {
    static __device__ __forceinline__ void run(float (&d)[N / 2], uint64_t a, uint64_t b, int acc) {
        wgmma_f16(d, a, b, acc);
    }
};

/* Four steps of 16 k over one stage. */
template <typename T, int BN>
__device__ __forceinline__ void stage_product(float (&d)[BN / 2], uint32_t a, uint32_t b, int accumulate) {
    uint64_t da = wgmma_descriptor(a), db = wgmma_descriptor(b);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < BK / 16; i++) wgmma_n<T, BN>::run(d, da + 2 * i, db + 2 * i, accumulate | (i > 0));
    wgmma_commit();
}

/* One warpgroup's 64 rows by COLUMNS results into swizzled boxes of 64 columns, ready for TMA. make(j) gives the pair
 * words of rows r and r + 8 for columns 8 j + 2 (lane % 4). */
template <typename T, int COLUMNS, typename F> __device__ __forceinline__ void store_tile(uint32_t out, F make) {
    int lane = threadIdx.x & 31, warp = (threadIdx.x >> 5) & 3;
    int row = warp * 16 + ((lane >> 3) & 1) * 8 + (lane & 7);
#pragma unroll
    for (int j = 0; j < COLUMNS / 8; j += 2) {
        uint32_t r[4];
        make(j, &r[0], &r[1]);
        make(j + 1, &r[2], &r[3]);
        int chunk = j + (lane >> 4);
        uint32_t at = out + (chunk >> 3) * (64 * ROW_BYTES) + row * ROW_BYTES + (((chunk & 7) ^ (row & 7)) << 4);
        stmatrix4<T>(at, r);
    }
}

template <typename T, int BN, int STAGES, int CLUSTER, bool GATED, int ACT, bool EAGER>
__device__ __forceinline__ void gemm_body(const CUtensorMap *map_x, const CUtensorMap *map_w0,
                                          const CUtensorMap *map_w1, const CUtensorMap *map_y, const gemm_args &args) {
    constexpr int OUT = GATED ? BN / 2 : BN;
    typedef gemm_smem<BN, STAGES, OUT> S;
    extern __shared__ uint8_t raw[];
    uint32_t base = (smem_u32(raw) + 1023) & ~1023u;
    uint32_t out_base = base + STAGES * S::stage, full = out_base + S::out_bytes, empty = full + 8 * STAGES;
    int group = threadIdx.x >> 7;
    uint32_t rank = CLUSTER > 1 ? cluster_rank() : 0;

    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; s++) {
            mbar_init(full + 8 * s, 1);
            mbar_init(empty + 8 * s, 2 * CLUSTER);
        }
        fence_barrier_init();
    }
    if (CLUSTER > 1)
        cluster_sync();
    else
        __syncthreads();

    int tiles = args.tiles_m * args.tiles_n, blocks = (args.k + BK - 1) / BK;
    int first = blockIdx.x / CLUSTER, step = gridDim.x / CLUSTER;

    if (group == 0) {
        registers_down<24>();
        if (threadIdx.x == 0) {
            tma_prefetch(map_x);
            tma_prefetch(map_w0);
            if (GATED) tma_prefetch(map_w1);
            wait_previous_grid();
            int s = 0;
            uint32_t phase = 1; /* a fresh barrier: the first wait for "empty" passes */
            for (int tile = first; tile < tiles; tile += step) {
                int tm, tn;
                tile_at(args, tile, &tm, &tn);
                int row = (tm * CLUSTER + (int)rank) * BM, col = tn * OUT;
                for (int b = 0; b < blocks; b++) {
                    mbar_wait(empty + 8 * s, phase);
                    uint32_t a_at = base + s * S::stage, b_at = a_at + S::a_bytes, bar = full + 8 * s;
                    mbar_expect(bar, S::stage);
                    tma_load(a_at, map_x, b * BK, row, bar, args.policy_x);
                    if (CLUSTER == 1) {
                        tma_load(b_at, map_w0, b * BK, col, bar, args.policy_w);
                        tma_load(b_at + S::b_bytes / 2, GATED ? map_w1 : map_w0, b * BK, GATED ? col : col + BN / 2,
                                 bar, args.policy_w);
                    } else if (rank == 0) {
                        tma_load_multicast(b_at, map_w0, b * BK, col, bar, 3, args.policy_w);
                    } else {
                        tma_load_multicast(b_at + S::b_bytes / 2, GATED ? map_w1 : map_w0, b * BK,
                                           GATED ? col : col + BN / 2, bar, 3, args.policy_w);
                    }
                    if (++s == STAGES) {
                        s = 0;
                        phase ^= 1;
                    }
                }
            }
        }
    } else {
        registers_up<240>();
        int wg = group - 1, lane = threadIdx.x & 31, warp = (threadIdx.x >> 5) & 3;
        bool elected = (threadIdx.x & 127) == 0;
        uint32_t out = out_base + wg * (64 * OUT * 2);
        float d[BN / 2];
        int s = 0;
        uint32_t phase = 0;
        wait_previous_grid();
        for (int tile = first; tile < tiles; tile += step) {
            int tm, tn;
            tile_at(args, tile, &tm, &tn);
            int previous = -1;
            for (int b = 0; b < blocks; b++) {
                mbar_wait(full + 8 * s, phase);
                uint32_t a_at = base + s * S::stage + wg * (64 * ROW_BYTES), b_at = base + s * S::stage + S::a_bytes;
                stage_product<T, BN>(d, a_at, b_at, b > 0);
                if (previous >= 0) {
                    wgmma_wait<1>();
                    if (CLUSTER > 1) {
                        if ((threadIdx.x & 127) < CLUSTER) mbar_arrive_cluster(empty + 8 * previous, threadIdx.x & 127);
                    } else if (elected) {
                        mbar_arrive(empty + 8 * previous);
                    }
                }
                previous = s;
                if (++s == STAGES) {
                    s = 0;
                    phase ^= 1;
                }
            }
            wgmma_wait<0>();
            wgmma_hold(d);
            if (CLUSTER > 1) {
                if ((threadIdx.x & 127) < CLUSTER) mbar_arrive_cluster(empty + 8 * previous, threadIdx.x & 127);
            } else if (elected) {
                mbar_arrive(empty + 8 * previous);
            }

            int row0 = (tm * CLUSTER + (int)rank) * BM + wg * 64, col0 = tn * OUT;
            if (elected) tma_wait_read<0>();
            named_barrier(1 + wg, 128);
            int column = col0 + 2 * (lane & 3);
            if (GATED) {
                store_tile<T, OUT>(out, [&](int j, uint32_t *lo, uint32_t *hi) {
                    constexpr int UP = BN / 4;
                    float g[4], u[4];
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        g[i] = d[4 * j + i];
                        u[i] = d[UP + 4 * j + i];
                    }
                    if (args.bias0 || args.bias1) {
#pragma unroll
                        for (int i = 0; i < 4; i++) {
                            int c = column + 8 * j + (i & 1);
                            if (c < args.n && args.bias0) g[i] += T::load(args.bias0, c);
                            if (c < args.n && args.bias1) u[i] += T::load(args.bias1, c);
                        }
                    }
                    *lo = gated_pair<T, ACT, EAGER>(g[0], g[1], u[0], u[1]);
                    *hi = gated_pair<T, ACT, EAGER>(g[2], g[3], u[2], u[3]);
                });
            } else {
                int row = row0 + warp * 16 + (lane >> 2);
                store_tile<T, OUT>(out, [&](int j, uint32_t *lo, uint32_t *hi) {
                    float v[4];
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        v[i] = d[4 * j + i];
                        int c = column + 8 * j + (i & 1), r = row + 8 * (i >> 1);
                        bool inside = c < args.n;
                        if (args.bias0 && inside) v[i] += T::load(args.bias0, c);
                        if (ACT != ACT_NONE) v[i] = activate<ACT>(EAGER ? T::round(v[i]) : v[i]);
                        if (args.residual && inside && r < args.m)
                            v[i] = (EAGER ? T::round(v[i]) : v[i]) +
                                   T::load(args.residual, (long long)r * args.residual_row + c);
                    }
                    *lo = T::pack(v[0], v[1]);
                    *hi = T::pack(v[2], v[3]);
                });
            }
            fence_async_shared();
            named_barrier(1 + wg, 128);
            if (elected) {
#pragma unroll
                for (int box = 0; box < OUT / 64; box++)
                    if (col0 + 64 * box < args.n && row0 < args.m)
                        tma_store(map_y, col0 + 64 * box, row0, out + box * (64 * ROW_BYTES), args.policy_y);
                tma_commit();
            }
        }
        if (elected) tma_wait<0>();
        launch_next_grid();
    }
    /* A CTA must not leave while its neighbour may still write to or arrive at its shared memory. */
    if (CLUSTER > 1) cluster_sync();
}

} // namespace ep
