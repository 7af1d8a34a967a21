/* A whole block for up to 16 rows in one kernel: h = act(x g^T + bg) * (x u^T + bu), or not gated: h = act(x g^T + bg), then
 * y = h d^T + bd + residual; every weight is streamed once.
 *
 * Bound: weight bytes over memory bandwidth. The work is a list of tiles: H columns of h each, then OUT columns of y. One
 * CTA a multiprocessor takes tile after tile from the list. One thread fills a ring through the copy engine. Tiles of h go
 * to two warpgroups in turn, by wgmma with the weights as the left side: 64 rows of them by 8 or 16 of x. Tiles of y are
 * made from all of h: the eight warps divide the k of a stage and multiply by mma.sync, since OUT columns would waste
 * most of a wgmma; so nothing is added up across CTAs. The first tiles of h are made long before the last: their part of
 * down's k is multiplied while others still make the rest, so memory never waits between the products.
 *
 * CTAs wait for each other's h, and need not all be there at once: tiles are taken in order by CTAs that run, and tiles
 * of h wait for nothing. So it is an ordinary launch, and may start while the one before still ends.
 *
 * On an H200 (bench/ladder), one after the other: 1 x 2048 -> 16384 in 47.7 us, as two kernels 55; 16 x 4096 -> 14336 in
 * 84, as two 97. */
#pragma once
#include "../sm80/decode_sm80.cuh"
#include "stream_sm90a.cuh"

#ifndef EP_STAMP
#define EP_STAMP(i) /* the ladder's clock */
#endif

namespace ep {

struct decode_block_args {
    int m, n, k, out;          /* n: columns of h, a multiple of 64; out: columns of y */
    int tiles, out_tiles;      /* of h, of y */
    int act, eager;            /* activation's kind; rounding to the storage type as op by op */
    const void *bias0, *bias1; /* of h */
    const void *bias2, *residual;
    void *h, *y;
    long long h_row, residual_row, y_row; /* elements */
    /* [0] CTAs begun; [1..3] tiles taken, first and other tiles of h made, by even launches; [4..6] by odd ones. All only
     * grow, with each launch by the same amount. */
    unsigned long long *state;
    unsigned long long policy_w;
};

template <int XR, int H, int OUT, int STAGES> struct decode_shape {
    static const int chunks = 16384 / (OUT * ROW_BYTES); /* of 64 k in a stage of the second half */
    static const int first = 2 * H * ROW_BYTES, second = chunks * OUT * ROW_BYTES;
    static const int w_bytes = first > second ? first : second, stage = w_bytes + chunks * XR * ROW_BYTES;
    static const int sums = DECODE_WARPS * OUT * XR * 4;
    static const int total = STAGES * stage + sums + 20 * STAGES + 16 + 1024, threads = 32 * DECODE_WARPS + 32;
    static_assert(XR == 8 || XR == 16, "rows of x come in groups of 8");
    static_assert(H % 8 == 0 && H <= 64 && 2 * H >= 64, "a wgmma reads 64 rows, within the stage");
    static_assert(total <= SHARED_LIMIT, "the ring must fit a multiprocessor's shared memory");
};

__device__ __forceinline__ void tma_load3(uint32_t dst, const CUtensorMap *map, int row, int chunk, uint32_t bar,
                                          unsigned long long policy) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
                 "[%1, {%2, %3, %4}], [%5], %6;" ::"r"(dst),
                 "l"(map), "r"(0), "r"(row), "r"(chunk), "r"(bar), "l"(policy)
                 : "memory");
}

__device__ __forceinline__ unsigned long long load_acquire(const unsigned long long *p) {
    unsigned long long v;
    asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}

__device__ __forceinline__ void count_made(unsigned long long *made) {
    asm volatile("red.release.gpu.global.add.u64 [%0], %1;" ::"l"(made), "l"(1ull) : "memory");
}

__device__ __forceinline__ unsigned long long take(unsigned long long *counter) {
    unsigned long long v;
    asm volatile("atom.relaxed.gpu.global.add.u64 %0, [%1], %2;" : "=l"(v) : "l"(counter), "l"(1ull) : "memory");
    return v;
}

/* Shared memory behind the ring and the sums. */
template <int STAGES> struct decode_memory {
    uint32_t full, empty, tiles, begun; /* tiles: of each stage; begun: this CTA's number among all that ever began */
    __device__ __forceinline__ decode_memory(uint32_t at)
        : full(at), empty(full + 8 * STAGES), tiles(empty + 8 * STAGES), begun((tiles + 4 * STAGES + 7) & ~7u) {}
};

/* Which launch this is, and what its counts start from. */
struct decode_launch {
    unsigned long long *taken, *made, turn; /* turn: launches before this one that count in the same place */
    int first, base;                        /* this CTA's first tile; of the low half of what is taken */
    __device__ __forceinline__ decode_launch(const decode_block_args &a, uint32_t begun) {
        unsigned long long number;
        asm volatile("ld.shared.u64 %0, [%1];" : "=l"(number) : "r"(begun) : "memory");
        unsigned long long launch = number / gridDim.x;
        turn = launch >> 1;
        taken = a.state + (launch & 1 ? 4 : 1);
        made = taken + 1;
        first = (int)(number - launch * gridDim.x);
        base = (int)(turn * (a.tiles + a.out_tiles)) - (int)gridDim.x;
    }
    /* All tiles are taken once, and each is followed by one more try. */
    __device__ __forceinline__ int next() const { return (int)take(taken) - base; }
};

template <typename S, int XR, int H, int OUT, int STAGES, bool GATED>
__device__ __forceinline__ void
decode_produce(const CUtensorMap *map_x, const CUtensorMap *map_g, const CUtensorMap *map_u, const CUtensorMap *map_h,
               const CUtensorMap *map_d, const decode_block_args &args, uint32_t base, decode_memory<STAGES> mem) {
    const int blocks = (args.k + BK - 1) / BK, stages = (args.n / BK + S::chunks - 1) / S::chunks;
    constexpr int WIDTH = GATED ? H : 2 * H; /* columns of h in a tile: without a gate u's weights are its next */
    const int all = args.tiles + args.out_tiles, early = min(args.tiles, (int)gridDim.x);
    decode_launch launch(args, mem.begun);
    int s = 0, waiting = 0; /* stages whose rows are not asked for yet */
    uint32_t phase = 1;
    bool ready = false;
    auto next = [&]() {
        if (++s == STAGES) {
            s = 0;
            phase ^= 1;
        }
    };
    auto begin = [&](int tile, int bytes) {
        mbar_wait(mem.empty + 8 * s, phase);
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(mem.tiles + 4 * s), "r"(tile) : "memory");
        mbar_expect(mem.full + 8 * s, bytes);
    };
    auto load_x = [&](int i, int b) {
        tma_load(base + i * S::stage + S::w_bytes, map_x, b * BK, 0, mem.full + 8 * i, L2_NORMAL);
    };
    auto x_there = [&]() {
        wait_previous_grid();
        launch_next_grid(); /* so two launches run at once at most: they count apart */
        for (int i = 0; i < waiting; i++) load_x(i, i % blocks);
        ready = true;
    };
    int tile = launch.first;
    while (tile < args.tiles) {
        int following = 0;
        for (int b = 0; b < blocks; b++) {
            if (!ready && waiting == STAGES) x_there();
            begin(tile, S::first + XR * ROW_BYTES);
            if (b == max(blocks - 2, 0)) following = launch.next();
            uint32_t at = base + s * S::stage, bar = mem.full + 8 * s;
            tma_load(at, map_g, b * BK, tile * WIDTH, bar, args.policy_w);
            if (GATED)
                tma_load(at + S::first / 2, map_u, b * BK, tile * WIDTH, bar, args.policy_w);
            else
                tma_load(at + S::first / 2, map_g, b * BK, tile * WIDTH + H, bar, args.policy_w);
            if (ready)
                load_x(s, b);
            else
                waiting++;
            next();
        }
        tile = following;
    }
    if (!ready) x_there();

    tma_prefetch(map_d);
    tma_prefetch(map_h);
    /* Stages of down whose h is not asked for yet: they end before s. 1: the first tiles of h are made, 2: all are. */
    int level = 0, fenced = 0, from = 0;
    waiting = 0;
    auto needs = [&](int b) { return min((b + 1) * S::chunks * BK, args.n) <= early * WIDTH ? 1 : 2; };
    auto look = [&](bool wait) {
        while (level < needs(from)) {
            if (load_acquire(launch.made + level) >= (launch.turn + 1) * (level ? args.tiles - early : early))
                level++;
            else if (!wait)
                return;
        }
        if (fenced < level) { /* only where h is new: a fence waits for the loads that are on their way */
            asm volatile("fence.proxy.async.global;" ::: "memory");
            fenced = level;
        }
        for (; waiting && needs(from) <= level; waiting--, from = from + 1 == stages ? 0 : from + 1) {
            int i = (s - waiting + STAGES) % STAGES;
            tma_load3(base + i * S::stage + S::w_bytes, map_h, 0, from * S::chunks, mem.full + 8 * i, L2_NORMAL);
        }
    };
    while (tile < all) {
        int following = 0;
        for (int b = 0; b < stages; b++) {
            while (waiting == STAGES) look(true);
            begin(tile, S::second + S::chunks * XR * ROW_BYTES);
            if (b == max(stages - 2, 0)) following = launch.next();
            tma_load3(base + s * S::stage, map_d, (tile - args.tiles) * OUT, b * S::chunks, mem.full + 8 * s,
                      args.policy_w);
            if (!waiting) from = b;
            waiting++;
            next();
            look(false);
        }
        tile = following;
    }
    while (waiting) look(true);
    mbar_wait(mem.empty + 8 * s, phase);
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(mem.tiles + 4 * s), "r"(-1) : "memory");
    mbar_arrive(mem.full + 8 * s);
}

/* A consumer warp's walk over the ring. Every warp passes every stage, also those that others take: a barrier tells only
 * one lap from the next. */
template <int STAGES> struct decode_place {
    uint32_t full, empty, phase;
    int s, previous;
    __device__ __forceinline__ void wait() { mbar_wait(full + 8 * s, phase); }
    __device__ __forceinline__ void free(int stage) {
        __syncwarp();
        if ((threadIdx.x & 31) == 0) mbar_arrive(empty + 8 * stage);
    }
    __device__ __forceinline__ void next() {
        if (++s == STAGES) {
            s = 0;
            phase ^= 1;
        }
    }
};

__device__ __forceinline__ void ldmatrix4(uint32_t (&r)[4], uint32_t at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

/* One warp's part of a stage of the second half: d += w x^T, 16 columns of y by 8 rows of x a product. */
template <typename T, typename S, int XR, int OUT>
__device__ __forceinline__ void decode_stage(float (&d)[OUT / 16][XR / 8][4], uint32_t w_at, uint32_t x_at) {
    constexpr int STEPS = S::chunks * (BK / 16) / DECODE_WARPS;
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int x_row = XR == 16 ? (lane & 7) + ((lane >> 4) << 3) : lane & 7, x_half = lane >> 3 & 1;
#pragma unroll
    for (int i = 0; i < STEPS; i++) {
        int step = warp * STEPS + i, chunk = step >> 2, unit = 2 * (step & 3);
        uint32_t x[4];
        ldmatrix4(x, x_at + (chunk * XR + x_row) * ROW_BYTES + (((unit + x_half) ^ (x_row & 7)) << 4));
#pragma unroll
        for (int t = 0; t < OUT / 16; t++) {
            int row = 16 * t + (lane & 15);
            uint32_t w[4];
            ldmatrix4(w, w_at + (chunk * OUT + row) * ROW_BYTES + (((unit + (lane >> 4)) ^ (row & 7)) << 4));
#pragma unroll
            for (int n = 0; n < XR / 8; n++) mma_16x8x16<T>(d[t][n], w[0], w[1], w[2], w[3], x[2 * n], x[2 * n + 1]);
        }
    }
}

template <typename T> __device__ __forceinline__ float decode_act(int act, bool eager, float v) {
    if (eager) v = T::round(v);
    return act == ACT_GELU_TANH  ? activate<ACT_GELU_TANH>(v)
           : act == ACT_GELU_ERF ? activate<ACT_GELU_ERF>(v)
           : act == ACT_SILU     ? activate<ACT_SILU>(v)
                                 : activate<ACT_RELU>(v);
}

template <typename T> __device__ __forceinline__ float decode_gated(int act, bool eager, float g, float u) {
    float a = decode_act<T>(act, eager, g);
    return eager ? T::round(a) * T::round(u) : a * u;
}

template <typename T>
__device__ __forceinline__ void decode_store_h(const decode_block_args &args, int r, int c, float v) {
    ((unsigned short *)args.h)[r * args.h_row + c] = (unsigned short)T::pack(v, 0.0f);
}

/* A warpgroup's tile of h. */
template <typename T, typename S, int XR, int H, int STAGES, bool GATED>
__device__ __forceinline__ void decode_tile(const decode_block_args &args, decode_place<STAGES> &p, uint32_t base,
                                            int blocks, int tile, unsigned long long *made) {
    float g[XR / 2], u[XR / 2];
    for (int b = 0; b < blocks; b++, p.next()) {
        p.wait();
        uint32_t at = base + p.s * S::stage;
        uint64_t dg = wgmma_descriptor(at), du = wgmma_descriptor(at + S::first / 2);
        uint64_t dx = wgmma_descriptor(at + S::w_bytes);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < BK / 16; i++) {
            wgmma_n<T, XR>::run(g, dg + 2 * i, dx + 2 * i, b | i);
            wgmma_n<T, XR>::run(u, du + 2 * i, dx + 2 * i, b | i);
        }
        wgmma_commit();
        if (b > 0) {
            wgmma_wait<1>();
            p.free(p.previous);
        }
        p.previous = p.s;
    }
    wgmma_wait<0>();
    wgmma_hold(g);
    wgmma_hold(u);
    p.free(p.previous);
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5 & 3;
#pragma unroll
    for (int i = 0; i < XR / 2; i++) {
        int at = warp * 16 + (lane >> 2) + 8 * (i >> 1 & 1), c = tile * (GATED ? H : 2 * H) + at;
        int r = 8 * (i >> 2) + 2 * (lane & 3) + (i & 1);
        if (at >= H || c >= args.n || r >= args.m) continue;
        float gv = args.bias0 ? g[i] + T::load(args.bias0, c) : g[i];
        if (GATED) {
            float uv = args.bias1 ? u[i] + T::load(args.bias1, c) : u[i];
            decode_store_h<T>(args, r, c, decode_gated<T>(args.act, args.eager, gv, uv));
        } else {
            decode_store_h<T>(args, r, c, decode_act<T>(args.act, args.eager, gv));
            if (c + H >= args.n) continue;
            float next = args.bias0 ? u[i] + T::load(args.bias0, c + H) : u[i];
            decode_store_h<T>(args, r, c + H, decode_act<T>(args.act, args.eager, next));
        }
    }
    /* What this warpgroup stored, the copy engine of every CTA will read. */
    int wg = threadIdx.x >> 7;
    asm volatile("fence.proxy.async.global;" ::: "memory");
    named_barrier(2 + wg, 128);
    if ((threadIdx.x & 127) == 0) count_made(made + (tile >= (int)gridDim.x));
}

/* The sums of all warps, and what comes after them. */
template <typename T, int XR, int OUT>
__device__ __forceinline__ void decode_store(const decode_block_args &args, uint32_t sums, int tile) {
    stream_args o = {};
    o.m = args.m;
    o.n = args.out;
    o.y = args.y;
    o.y_row = args.y_row;
    gemm_args e = {args.m, args.out, 0, 0, 0, 0, args.bias2, nullptr, args.residual, args.residual_row};
    for (int i = threadIdx.x; i < args.m * OUT / 2; i += 32 * DECODE_WARPS) {
        float2 v = {0.0f, 0.0f};
#pragma unroll
        for (int q = 0; q < DECODE_WARPS; q++) {
            float2 part;
            asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                         : "=f"(part.x), "=f"(part.y)
                         : "r"(sums + 4 * (q * XR * OUT + 2 * i))
                         : "memory");
            v.x += part.x;
            v.y += part.y;
        }
        int r = i / (OUT / 2), c = tile * OUT + 2 * (i % (OUT / 2));
        if (args.eager) {
            v.x = plain_value<T, ACT_NONE, true>(v.x, e, r, c);
            v.y = plain_value<T, ACT_NONE, true>(v.y, e, r, c + 1);
        } else {
            v.x = plain_value<T, ACT_NONE, false>(v.x, e, r, c);
            v.y = plain_value<T, ACT_NONE, false>(v.y, e, r, c + 1);
        }
        store_pair<T>(o, r, c, T::pack(v.x, v.y));
    }
}

template <typename T, int XR, int H, int OUT, int STAGES, bool GATED>
__device__ __forceinline__ void decode_block_body(const CUtensorMap *map_x, const CUtensorMap *map_g,
                                                  const CUtensorMap *map_u, const CUtensorMap *map_h,
                                                  const CUtensorMap *map_d, const decode_block_args &args) {
    typedef decode_shape<XR, H, OUT, STAGES> S;
    extern __shared__ uint8_t raw[];
    uint32_t base = (smem_u32(raw) + 1023) & ~1023u, sums = base + STAGES * S::stage;
    decode_memory<STAGES> mem(sums + S::sums);
    if (threadIdx.x == 0) {
        EP_STAMP(0);
        for (int s = 0; s < STAGES; s++) {
            mbar_init(mem.full + 8 * s, 1);
            mbar_init(mem.empty + 8 * s, DECODE_WARPS);
        }
        fence_barrier_init();
    } else if (threadIdx.x == 32 * DECODE_WARPS) { /* before the next launch may start: it takes the numbers after */
        tma_prefetch(map_g);
        if (GATED) tma_prefetch(map_u);
        tma_prefetch(map_x);
        asm volatile("st.shared.u64 [%0], %1;" ::"r"(mem.begun), "l"(take(args.state)) : "memory");
    }
    __syncthreads();
    if (threadIdx.x >= 32 * DECODE_WARPS) {
        if (threadIdx.x == 32 * DECODE_WARPS)
            decode_produce<S, XR, H, OUT, STAGES, GATED>(map_x, map_g, map_u, map_h, map_d, args, base, mem);
        return;
    }
    int wg = threadIdx.x >> 7, lane = threadIdx.x & 31, warp = threadIdx.x >> 5, turn = 0;
    int blocks = (args.k + BK - 1) / BK, stages = (args.n / BK + S::chunks - 1) / S::chunks;
    decode_place<STAGES> p = {mem.full, mem.empty, 0, 0, -1};
    decode_launch launch(args, mem.begun);
    wait_previous_grid();
    for (;;) {
        int tile = 0;
        p.wait();
        if (lane == 0) asm volatile("ld.shared.u32 %0, [%1];" : "=r"(tile) : "r"(mem.tiles + 4 * p.s) : "memory");
        tile = __shfl_sync(~0u, tile, 0); /* the lane that frees the stage has read it */
        if (tile < 0) break;
        if (tile < args.tiles) {
            if (turn == wg)
                decode_tile<T, S, XR, H, STAGES, GATED>(args, p, base, blocks, tile, launch.made);
            else
                for (int b = 0; b < blocks; b++, p.next()) {
                    p.wait();
                    p.free(p.s);
                }
            turn ^= 1;
            continue;
        }
        tile -= args.tiles;
        if (threadIdx.x == 0) EP_STAMP(2);
        float d[OUT / 16][XR / 8][4] = {};
        for (int b = 0; b < stages; b++, p.next()) {
            p.wait();
            decode_stage<T, S, XR, OUT>(d, base + p.s * S::stage, base + p.s * S::stage + S::w_bytes);
            p.free(p.s);
        }
        if (threadIdx.x == 0) EP_STAMP(6);
            /* d[t][n][i]: column 16 t + lane / 4 + 8 (i / 2) of row 8 n + 2 (lane % 4) + i % 2; kept as [warp][row][column] */
#pragma unroll
        for (int t = 0; t < OUT / 16; t++)
#pragma unroll
            for (int n = 0; n < XR / 8; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    int c = 16 * t + (lane >> 2) + 8 * (i >> 1), r = 8 * n + 2 * (lane & 3) + (i & 1);
                    asm volatile("st.shared.f32 [%0], %1;" ::"r"(sums + 4 * ((warp * XR + r) * OUT + c)),
                                 "f"(d[t][n][i])
                                 : "memory");
                }
        named_barrier(1, 32 * DECODE_WARPS);
        decode_store<T, XR, OUT>(args, sums, tile);
        named_barrier(1, 32 * DECODE_WARPS); /* before the next tile's sums */
    }
    if (threadIdx.x == 0) EP_STAMP(7);
}

} // namespace ep
