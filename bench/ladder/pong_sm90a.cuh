/* Rungs of the ladder that the library does not have: the sm_90a products with warpgroups in turns ("ping-pong"), and a
 * whole gated block of many rows in one kernel made of them. gemm_sm90a.md has their figures.
 *
 * A CTA's two consumer warpgroups work at different tiles of 128 rows, and while one has the tensor cores the other
 * finishes and stores its tile: no product waits for an epilogue, under either rounding. A tile is 128 rows by BN weight
 * rows (gated: BN/2 gate and BN/2 up rows); a warpgroup's sums take BN registers, so BN is 192 at most. */
#pragma once
#include "../../src/run/backend/cuda/kernels/sm90a/gemm_sm90a.cuh"

namespace ep {

template <int BN, int STAGES, bool GATED> struct pong_shape {
    static const int rows = 128, out = GATED ? BN / 2 : BN;
    static const int staged = BN / 2; /* columns stored at a time, in boxes of 32 */
    static const int a_bytes = rows * ROW_BYTES, b_bytes = BN * ROW_BYTES, stage = a_bytes + b_bytes;
    static const int part = 64 * staged * 2, total = STAGES * stage + 2 * part + 2 * STAGES * 8 + 1024;
};

/* Counts as having come to a named barrier, without waiting for the others. */
__device__ __forceinline__ void named_arrive(int id, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* store_tile with boxes of 32 columns, whose rows of 64 bytes are swizzled by pairs. */
template <typename T, int COLUMNS, typename F> __device__ __forceinline__ void store_narrow(uint32_t out, F make) {
    int lane = threadIdx.x & 31, warp = (threadIdx.x >> 5) & 3;
    int row = warp * 16 + ((lane >> 3) & 1) * 8 + (lane & 7);
#pragma unroll
    for (int j = 0; j < COLUMNS / 8; j += 2) {
        uint32_t r[4];
        make(j, &r[0], &r[1]);
        make(j + 1, &r[2], &r[3]);
        int chunk = j + (lane >> 4);
        uint32_t at = out + (chunk >> 2) * (64 * 64) + row * 64 + (((chunk & 3) ^ (row >> 1 & 3)) << 4);
        stmatrix4<T>(at, r);
    }
}

/* All of k for one tile; gives the buffer that is not released yet. q counts the buffers filled before, all tiles' of this
 * CTA: between two tiles of a warpgroup the other one's lie. */
template <typename T, typename S, int BN, int STAGES, int CM, typename R>
__device__ __forceinline__ int pong_consume(float (&d)[2][BN / 2], const gemm_place<S, STAGES, CM, 1> &p, int blocks,
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

template <int CM> __device__ __forceinline__ void pong_release(uint32_t empty) {
    int in_group = threadIdx.x & 127;
    if (CM > 1) {
        if (in_group < CM) mbar_arrive_cluster(empty, in_group);
    } else if (in_group == 0) {
        mbar_arrive(empty);
    }
}

template <int STAGES> __device__ __forceinline__ void ring_init(uint32_t full, uint32_t empty, int users) {
    for (int s = 0; s < STAGES; s++) {
        mbar_init(full + 8 * s, 1);
        mbar_init(empty + 8 * s, users);
    }
}

/* Rounds, activates and stores one warpgroup's tile, 64 rows by `staged` columns at a time through its own buffer. No bias,
 * no residual. */
template <typename T, typename S, int BN, bool GATED, int ACT, bool EAGER>
__device__ __forceinline__ void pong_store(const float (&d)[2][BN / 2], const CUtensorMap *map_y, const gemm_args &args,
                                           int row0, int col0, uint32_t out, int wg) {
    bool elected = (threadIdx.x & 127) == 0;
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int part = 0; part < S::out / S::staged; part++) {
            int top = row0 + 64 * half, left = col0 + part * S::staged;
            if (elected) tma_wait_read<0>();
            named_barrier(3 + wg, 128);
            store_narrow<T, S::staged>(out, [&](int j, uint32_t *lo, uint32_t *hi) {
                const float *v = d[half] + 4 * (part * (S::staged / 8) + j);
                if constexpr (GATED) {
                    const float *u = v + BN / 4;
                    *lo = gated_pair<T, ACT, EAGER>(v[0], v[1], u[0], u[1]);
                    *hi = gated_pair<T, ACT, EAGER>(v[2], v[3], u[2], u[3]);
                } else {
                    *lo = T::pack(v[0], v[1]);
                    *hi = T::pack(v[2], v[3]);
                }
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
__device__ __forceinline__ void pong_body(const CUtensorMap *map_x, const CUtensorMap *map_w0,
                                          const CUtensorMap *map_w1, const CUtensorMap *map_y, const gemm_args &args) {
    typedef pong_shape<BN, STAGES, GATED> S;
    static_assert(S::total <= SHARED_LIMIT, "the stages must fit a multiprocessor's shared memory");
    extern __shared__ uint8_t raw[];
    uint32_t base = (smem_u32(raw) + 1023) & ~1023u, out_base = base + STAGES * S::stage;
    gemm_place<S, STAGES, CM, 1> p(args, base, out_base + 2 * S::part);
    int group = warpgroup();
    if (threadIdx.x == 0) {
        ring_init<STAGES>(p.full, p.empty, CM);
        fence_barrier_init();
    }
    if (CM > 1)
        cluster_sync();
    else
        __syncthreads();
    launch_next_grid();

    if (group == 0) {
        registers_down<40>();
        if (threadIdx.x == 0) produce<S, BN, STAGES, CM, 1, GATED>(map_x, map_w0, map_w1, args, p);
    } else {
        registers_up<232>();
        int wg = group - 1;
        float d[2][BN / 2];
        auto release = [&](int stage) { pong_release<CM>(p.empty + 8 * stage); };
        wait_previous_grid();
        unsigned q = wg * p.blocks;
        for (int tile = p.first + wg * p.step; tile < p.tiles; tile += 2 * p.step, q += 2 * p.blocks) {
            int tm, tn;
            tile_at(args, tile, &tm, &tn);
            /* The tensor cores are taken and handed on; the other one's products begin while these still run. */
            if (q) named_barrier(1 + wg, 256);
            int last = pong_consume<T, S, BN, STAGES, CM>(d, p, p.blocks, q, release);
            if (tile + p.step < p.tiles) named_arrive(2 - wg, 256);
            wgmma_wait<0>();
            wgmma_hold(d[0]);
            wgmma_hold(d[1]);
            release(last);
            pong_store<T, S, BN, GATED, ACT, EAGER>(d, map_y, args, (tm * CM + p.at_m) * S::rows, tn * S::out,
                                                    out_base + wg * S::part, wg);
        }
        if ((threadIdx.x & 127) == 0) tma_wait<0>();
    }
    /* A CTA must not leave while its neighbour may still write to or arrive at its shared memory. */
    if (CM > 1) cluster_sync();
}

/* A whole gated block in one kernel. Rows are taken in chunks: the tiles of h of chunk c + 1, then those of y of chunk c, so
 * h is read while it is in the L2 and few tiles of y wait; each row of tiles counts its finished tiles in memory. CTAs
 * take tiles from a common list, a counter, in its order: who waits, waits for tiles that a running CTA has. */
struct whole_args {
    gemm_args first, last;
    int tiles_m, chunk; /* rows of tiles, and how many make a chunk */
    unsigned *list;     /* next tile, CTAs that are done, finished tiles of each row; zero before and after */
};

enum { WHOLE_SLOTS = 4 };
static const unsigned WHOLE_END = 0x7fffffff; /* after the last tile */

template <int BN, int STAGES> struct whole_shape {
    typedef pong_shape<BN, STAGES, true> gated;
    typedef pong_shape<BN, STAGES, false> plain;
    static const int rows = 128, a_bytes = gated::a_bytes, b_bytes = gated::b_bytes, stage = gated::stage;
    static const int part = gated::part, bars = 2 * STAGES * 8 + 2 * WHOLE_SLOTS * 8 + 2 * 8 + WHOLE_SLOTS * 16;
    static const int total = STAGES * stage + 2 * part + bars + 1024;
};

struct whole_tile {
    int row, column; /* of tiles */
    bool down;
};

__device__ __forceinline__ bool whole_tile_at(const whole_args &a, unsigned at, whole_tile *t) {
    int across = a.first.tiles_n, back = a.last.tiles_n, chunks = (a.tiles_m + a.chunk - 1) / a.chunk;
    int last_rows = a.tiles_m - (chunks - 1) * a.chunk, i = (int)at, c = 0, in = i;
    if (at >= (unsigned)(a.tiles_m * (across + back))) return false;
    int head = (chunks > 1 ? a.chunk : last_rows) * across, step = a.chunk * (across + back);
    t->down = false;
    if (i >= head) {
        i -= head;
        c = min(i / step, max(chunks - 2, 0));
        in = i - c * step;
        int h = chunks < 2 ? 0 : (c == chunks - 2 ? last_rows : a.chunk) * across; /* h of the next chunk goes first */
        t->down = in >= h;
        if (t->down) {
            in -= h;
            if (in >= a.chunk * back && c + 1 < chunks) in -= a.chunk * back, c++;
        } else {
            c++;
        }
    }
    int rows = min(a.chunk, a.tiles_m - c * a.chunk);
    t->row = c * a.chunk + in % rows;
    t->column = in / rows;
    return true;
}

__device__ __forceinline__ void wait_count(const unsigned *count, unsigned least) {
    unsigned v;
    do {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(count) : "memory");
    } while (v < least);
    asm volatile("fence.proxy.async;" ::: "memory"); /* what the copy engine stored, it loads */
}

__device__ __forceinline__ void add_count(unsigned *count) {
    asm volatile("fence.proxy.async;\n fence.acq_rel.gpu;\n red.relaxed.gpu.global.add.u32 [%0], 1;" ::"l"(count)
                 : "memory");
}

template <typename T, int BN, int STAGES, int ACT, bool EAGER>
__device__ __forceinline__ void whole_body(const CUtensorMap *map_x, const CUtensorMap *map_g, const CUtensorMap *map_u,
                                           const CUtensorMap *map_h, const CUtensorMap *map_h_in,
                                           const CUtensorMap *map_d, const CUtensorMap *map_y, const whole_args &args) {
    typedef whole_shape<BN, STAGES> S;
    static_assert(S::total <= SHARED_LIMIT, "the stages must fit a multiprocessor's shared memory");
    extern __shared__ uint8_t raw[];
    uint32_t base = (smem_u32(raw) + 1023) & ~1023u, out_base = base + STAGES * S::stage;
    gemm_place<S, STAGES, 1, 1> p(args.first, base, out_base + 2 * S::part);
    uint32_t told = p.empty + 8 * STAGES, heard = told + 8 * WHOLE_SLOTS, turn = heard + 8 * WHOLE_SLOTS,
             slots = turn + 16;
    int group = warpgroup(), blocks_h = (args.first.k + BK - 1) / BK, blocks_y = (args.last.k + BK - 1) / BK;
    unsigned *made = args.list + 2;
    if (threadIdx.x == 0) {
        ring_init<STAGES>(p.full, p.empty, 1);
        for (int i = 0; i < WHOLE_SLOTS; i++) {
            mbar_init(told + 8 * i, 1);
            mbar_init(heard + 8 * i, 1);
        }
        for (int i = 0; i < 2; i++) mbar_init(turn + 8 * i, 4);
        fence_barrier_init();
    }
    __syncthreads();
    launch_next_grid();
    wait_previous_grid();

    if (group == 0) {
        registers_down<40>();
        if (threadIdx.x == 0) {
            unsigned q = 0, next = atomicAdd(args.list, 1);
            int s = 0;
            uint32_t phase = 1;
            bool more = true;
            for (unsigned n = 0; more; n++) {
                unsigned at = next;
                whole_tile t;
                more = whole_tile_at(args, at, &t);
                if (more) next = atomicAdd(args.list, 1);
                for (unsigned i = n; i < n + (more ? 1 : 2); i++) { /* both warpgroups are told of the end */
                    int slot = i % WHOLE_SLOTS;
                    mbar_wait(heard + 8 * slot, (i / WHOLE_SLOTS & 1) ^ 1);
                    asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(slots + 16 * slot),
                                 "r"(more ? at : WHOLE_END), "r"(q)
                                 : "memory");
                    mbar_arrive(told + 8 * slot);
                }
                if (!more) break;
                const CUtensorMap *x = t.down ? map_h_in : map_x, *w0 = t.down ? map_d : map_g,
                                  *w1 = t.down ? map_d : map_u;
                int blocks = t.down ? blocks_y : blocks_h, col = t.column * (t.down ? BN : BN / 2);
                int col1 = t.down ? col + BN / 2 : col;
                if (t.down) wait_count(made + t.row, args.first.tiles_n);
                for (int b = 0; b < blocks; b++) {
                    mbar_wait(p.empty + 8 * s, phase);
                    uint32_t a_at = base + s * S::stage, b_at = a_at + S::a_bytes, bar = p.full + 8 * s;
                    mbar_expect(bar, S::stage);
                    tma_load(a_at, x, b * BK, t.row * S::rows, bar, t.down ? args.last.policy_x : args.first.policy_x);
                    tma_load(b_at, w0, b * BK, col, bar, args.first.policy_w);
                    tma_load(b_at + S::b_bytes / 2, w1, b * BK, col1, bar, args.first.policy_w);
                    if (++s == STAGES) {
                        s = 0;
                        phase ^= 1;
                    }
                }
                q += blocks;
            }
            /* The last one leaves the list as it was found: every row was waited for, so no count is still to come. */
            __threadfence();
            if (atomicAdd(args.list + 1, 1) == gridDim.x - 1) {
                for (int i = 0; i < args.tiles_m; i++) made[i] = 0;
                args.list[0] = args.list[1] = 0;
            }
        }
    } else {
        registers_up<232>();
        int wg = group - 1, lane = threadIdx.x & 31;
        bool elected = (threadIdx.x & 127) == 0;
        float d[2][BN / 2];
        auto release = [&](int stage) { pong_release<1>(p.empty + 8 * stage); };
        for (unsigned n = wg;; n += 2) {
            int slot = n % WHOLE_SLOTS;
            unsigned at, q;
            mbar_wait(told + 8 * slot, n / WHOLE_SLOTS & 1);
            asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(at), "=r"(q) : "r"(slots + 16 * slot) : "memory");
            named_barrier(3 + wg, 128);
            if (elected) mbar_arrive(heard + 8 * slot);
            at = __shfl_sync(0xffffffff, at, 0);
            q = __shfl_sync(0xffffffff, q, 0);
            whole_tile t;
            if (!whole_tile_at(args, at, &t)) break;
            mbar_wait(turn + 8 * wg, (n / 2 & 1) ^ (wg ? 0 : 1));
            int last = pong_consume<T, S, BN, STAGES, 1>(d, p, t.down ? blocks_y : blocks_h, q, release);
            if (lane == 0) mbar_arrive(turn + 8 * (1 - wg));
            wgmma_wait<0>();
            wgmma_hold(d[0]);
            wgmma_hold(d[1]);
            release(last);
            uint32_t out = out_base + wg * S::part;
            if (t.down) {
                pong_store<T, typename S::plain, BN, false, ACT_NONE, EAGER>(d, map_y, args.last, t.row * S::rows,
                                                                             t.column * BN, out, wg);
            } else {
                pong_store<T, typename S::gated, BN, true, ACT, EAGER>(d, map_h, args.first, t.row * S::rows,
                                                                       t.column * (BN / 2), out, wg);
                if (elected) {
                    tma_wait<0>();
                    add_count(made + t.row);
                }
            }
        }
        if (elected) tma_wait<0>();
    }
}

} // namespace ep
