/* Few rows of x (up to 64, up to 128): y = epilogue(x w^T), and gated: y = act(x g^T + bg) * (x u^T + bu); weights
 * streamed once.
 *
 * Bound: weight bytes over memory bandwidth. A ring of STAGES buffers of 64 k, filled by one thread through the copy
 * engine, keeps 100 to 200 KB a multiprocessor on the way. WGS consumer warpgroups of 64 rows each; rows that x does not
 * have are not loaded, and what lies in their place reaches no stored result. ACCS sums go side by side. Where there are
 * too few tiles, SPLIT CTAs of a cluster divide k and add up through each other's shared memory, in a fixed order. The
 * first weights are on their way before the previous grid's result is waited for.
 *
 * On an H200, bf16 (bench/ladder): 16 x 2048 -> 16384 gated 36 us, 3.7 TB/s (mma.sync kernel: 41), the way back 22 (28);
 * 128 x 4096 -> 14336 gated 64 us, 3.7 TB/s. A buffer takes 240 ns however small it is, so narrow tiles cannot keep
 * up. Tried: CTAs that start at different k (36 to 50 us: worse), pairs that share x by multicast (no change), 96 KB
 * rings so that the next grid fits beside (no change). */
#pragma once
#include "gemm_sm90a.cuh"

namespace ep {

struct stream_args {
    int m, n, k, tiles;
    int x_bytes; /* of one buffer: the rows loaded, times 128 */
    const void *bias0, *bias1, *residual;
    void *y;
    long long residual_row, y_row; /* elements */
    unsigned long long policy_w;   /* L2 policy */
};

template <int WGS, int BN, int STAGES, int SPLIT, int XROWS> struct stream_shape {
    static const int w_bytes = BN * ROW_BYTES, stage = w_bytes + XROWS * ROW_BYTES;
    static const int slack = (64 * WGS - XROWS) * ROW_BYTES;
    static const int part_row = BN + 8; /* floats; the 8 keep the rows of a warp on different banks */
    static const int part = SPLIT > 1 ? XROWS *part_row * 4 : 0;
    static const int ring = STAGES * stage + slack, data = ring > part ? ring : part;
    static const int total = data + 2 * STAGES * 8 + 16 + 1024, threads = 128 * WGS + 32;
};

__device__ __forceinline__ float2 load_cluster(uint32_t at, uint32_t rank) {
    float2 v;
    asm volatile("{\n .reg .b32 remote;\n mapa.shared::cluster.u32 remote, %2, %3;\n"
                 " ld.shared::cluster.v2.f32 {%0, %1}, [remote];\n}"
                 : "=f"(v.x), "=f"(v.y)
                 : "r"(at), "r"(rank)
                 : "memory");
    return v;
}

template <typename T>
__device__ __forceinline__ void store_pair(const stream_args &a, int row, int column, uint32_t v) {
    if (row >= a.m || column >= a.n) return;
    unsigned short *p = (unsigned short *)a.y + row * a.y_row + column;
    if (column + 1 < a.n && ((unsigned long long)p & 3) == 0) {
        *(uint32_t *)p = v;
    } else {
        p[0] = (unsigned short)v;
        if (column + 1 < a.n) p[1] = (unsigned short)(v >> 16);
    }
}

/* Four steps of 16 k over one buffer into sums taken in turn. */
template <typename T, int BN, int ACCS>
__device__ __forceinline__ void stream_product(float (&d)[ACCS][BN / 2], uint32_t x, uint32_t w) {
    uint64_t dx = wgmma_descriptor(x), dw = wgmma_descriptor(w);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < BK / 16; i++) wgmma_n<T, BN>::run(d[i % ACCS], dx + 2 * i, dw + 2 * i, 1);
    wgmma_commit();
}

template <typename T, int WGS, int BN, int STAGES, int SPLIT, int XROWS, int ACCS, bool GATED, int ACT, bool EAGER>
__device__ __forceinline__ void stream_body(const CUtensorMap *map_x, const CUtensorMap *map_w0,
                                            const CUtensorMap *map_w1, const stream_args &args) {
    static_assert(!GATED || SPLIT == 1, "gated tiles are not split");
    typedef stream_shape<WGS, BN, STAGES, SPLIT, XROWS> S;
    static_assert(S::total <= SHARED_LIMIT, "the ring must fit a multiprocessor's shared memory");
    constexpr int OUT = GATED ? BN / 2 : BN;
    extern __shared__ uint8_t raw[];
    uint32_t base = (smem_u32(raw) + 1023) & ~1023u;
    uint32_t full = base + S::data, empty = full + 8 * STAGES;
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; s++) {
            mbar_init(full + 8 * s, 1);
            mbar_init(empty + 8 * s, WGS);
        }
        fence_barrier_init();
    }
    if (SPLIT > 1)
        cluster_sync();
    else
        __syncthreads();
    launch_next_grid();

    int rank = SPLIT > 1 ? (int)cluster_rank() : 0;
    int first = blockIdx.x / SPLIT, step = gridDim.x / SPLIT;
    int all = (args.k + BK - 1) / BK, from = all * rank / SPLIT, blocks = all * (rank + 1) / SPLIT - from;

    if (threadIdx.x >= 128 * WGS) {
        if (threadIdx.x == 128 * WGS) {
            tma_prefetch(map_x);
            tma_prefetch(map_w0);
            if (GATED) tma_prefetch(map_w1);
            int s = 0, waiting = 0; /* buffers whose x is not asked for yet */
            uint32_t phase = 1;
            bool ready = false;
            auto at_k = [&](int b) { return (from + b) * BK; };
            auto load_x = [&](int i, int k) {
                tma_load(base + i * S::stage + S::w_bytes, map_x, k, 0, full + 8 * i, L2_NORMAL);
            };
            auto catch_up = [&]() {
                wait_previous_grid();
                for (int i = 0; i < waiting; i++) load_x(i, at_k(i % blocks));
                ready = true;
            };
            for (int tile = first; tile < args.tiles; tile += step) {
                int col = tile * OUT;
                for (int b = 0; b < blocks; b++) {
                    if (!ready && waiting == STAGES) catch_up();
                    mbar_wait(empty + 8 * s, phase);
                    uint32_t w_at = base + s * S::stage, bar = full + 8 * s;
                    int k = at_k(b);
                    mbar_expect(bar, S::w_bytes + args.x_bytes);
                    tma_load(w_at, map_w0, k, col, bar, args.policy_w);
                    if (GATED) tma_load(w_at + S::w_bytes / 2, map_w1, k, col, bar, args.policy_w);
                    if (ready)
                        load_x(s, k);
                    else
                        waiting++;
                    if (++s == STAGES) {
                        s = 0;
                        phase ^= 1;
                    }
                }
            }
            if (!ready) catch_up();
        }
    } else {
        int wg = threadIdx.x >> 7, lane = threadIdx.x & 31, warp = (threadIdx.x >> 5) & 3, in_group = threadIdx.x & 127;
        int row = wg * 64 + warp * 16 + (lane >> 2), s = 0;
        bool used = wg * 64 + warp * 16 < args.m;
        uint32_t phase = 0;
        auto release = [&](int stage) {
            if (in_group == 0) mbar_arrive(empty + 8 * stage);
        };
        wait_previous_grid();
        for (int tile = first; tile < args.tiles; tile += step) {
            float d[ACCS][BN / 2];
#pragma unroll
            for (int q = 0; q < ACCS; q++)
#pragma unroll
                for (int i = 0; i < BN / 2; i++) d[q][i] = 0.0f;
            int previous = -1;
            for (int b = 0; b < blocks; b++) {
                mbar_wait(full + 8 * s, phase);
                uint32_t w_at = base + s * S::stage, x_at = w_at + S::w_bytes + wg * (64 * ROW_BYTES);
                stream_product<T, BN, ACCS>(d, x_at, w_at);
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
            wgmma_wait<0>();
#pragma unroll
            for (int q = 0; q < ACCS; q++) wgmma_hold(d[q]);
            if (previous >= 0) release(previous);
#pragma unroll
            for (int q = 1; q < ACCS; q++)
#pragma unroll
                for (int i = 0; i < BN / 2; i++) d[0][i] += d[q][i];

            int column = tile * OUT + 2 * (lane & 3);
            gemm_args e = {args.m, args.n, args.k, 0, 0, 0, args.bias0, args.bias1, args.residual, args.residual_row};
            if constexpr (GATED) {
#pragma unroll
                for (int j = 0; j < OUT / 8 && used; j++) {
                    uint32_t lo, hi;
                    result_words<T, BN, true, ACT, EAGER>(d[0], e, j, row, column, &lo, &hi);
                    store_pair<T>(args, row, column + 8 * j, lo);
                    store_pair<T>(args, row + 8, column + 8 * j, hi);
                }
            } else if constexpr (SPLIT == 1) {
#pragma unroll
                for (int j = 0; j < OUT / 8 && used; j++)
#pragma unroll
                    for (int h = 0; h < 2; h++) {
                        int r = row + 8 * h, c = column + 8 * j;
                        float v0 = plain_value<T, ACT, EAGER>(d[0][4 * j + 2 * h], e, r, c);
                        float v1 = plain_value<T, ACT, EAGER>(d[0][4 * j + 2 * h + 1], e, r, c + 1);
                        store_pair<T>(args, r, c, T::pack(v0, v1));
                    }
            } else {
                /* One tile a cluster: the ring is done with once both warpgroups are here, and takes the sums. */
                named_barrier(1, 128 * WGS);
#pragma unroll
                for (int j = 0; j < OUT / 8 && used; j++)
#pragma unroll
                    for (int h = 0; h < 2; h++) {
                        if (row + 8 * h >= args.m) continue;
                        uint32_t at = base + 4 * ((row + 8 * h) * S::part_row + 8 * j + 2 * (lane & 3));
                        asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(at), "f"(d[0][4 * j + 2 * h]),
                                     "f"(d[0][4 * j + 2 * h + 1])
                                     : "memory");
                    }
                /* Warps that have left count as arrived: the one that loads does not take part. An mbarrier of
                 * cluster scope does the same, but racecheck does not follow it (tests/device/sanitize/cluster_sum.cu). */
                cluster_meet();
                for (int i = rank * (128 * WGS) + threadIdx.x; i < args.m * (OUT / 2); i += SPLIT * (128 * WGS)) {
                    int r = i / (OUT / 2), c = 2 * (i % (OUT / 2));
                    uint32_t at = base + 4 * (r * S::part_row + c);
                    float2 p[SPLIT], v = {0.0f, 0.0f};
#pragma unroll
                    for (int q = 0; q < SPLIT; q++) p[q] = load_cluster(at, q);
#pragma unroll
                    for (int q = 0; q < SPLIT; q++) {
                        v.x += p[q].x;
                        v.y += p[q].y;
                    }
                    c += tile * OUT;
                    v.x = plain_value<T, ACT, EAGER>(v.x, e, r, c);
                    v.y = plain_value<T, ACT, EAGER>(v.y, e, r, c + 1);
                    store_pair<T>(args, r, c, T::pack(v.x, v.y));
                }
                cluster_meet(); /* before this CTA leaves */
            }
        }
    }
}

} // namespace ep
