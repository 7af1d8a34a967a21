/* A rung of the ladder that the library does not have: a whole gated block of many rows in one kernel, warpgroups in turns
 * (turns_sm90a.cuh). gemm_sm90a.md has its figures. */
#pragma once
#include "../../src/run/backend/cuda/kernels/sm90a/turns_sm90a.cuh"

namespace ep {

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
    typedef turns_shape<BN, STAGES, true> gated;
    typedef turns_shape<BN, STAGES, false> plain;
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
        auto release = [&](int stage) { turns_release<1>(p.empty + 8 * stage); };
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
            int last = turns_consume<T, S, BN, STAGES, 1>(d, p, t.down ? blocks_y : blocks_h, q, release);
            if (lane == 0) mbar_arrive(turn + 8 * (1 - wg));
            wgmma_wait<0>();
            wgmma_hold(d[0]);
            wgmma_hold(d[1]);
            release(last);
            uint32_t out = out_base + wg * S::part;
            if (t.down) {
                turns_store<T, typename S::plain, BN, false, ACT_NONE, EAGER>(d, map_y, args.last, t.row * S::rows,
                                                                              t.column * BN, out, wg);
            } else {
                turns_store<T, typename S::gated, BN, true, ACT, EAGER>(d, map_h, args.first, t.row * S::rows,
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
