/* A whole block for 17 to 128 rows in one kernel: h = act(x g^T + bg) * (x u^T + bu), or not gated: h = act(x g^T + bg), then
 * y = h d^T + bd + residual; every weight is streamed once.
 *
 * Bound: weight bytes over memory bandwidth. The work is a list: tiles of h, of as many columns as divide the chip best;
 * parts of y, OUT columns by a share of k each; pieces of y, where the parts of a tile are added in a fixed order. One CTA a multiprocessor takes one
 * after the other (decode_sm90a.cuh tells why none waits for ever: what an item waits for is before it in the list, taken
 * by a CTA that runs). Two threads fill a ring through the copy engine, one with weights, one with x or h, and are ahead of
 * the products: while the last sums of h become h, the first weights of y are on their way. Stages of h and of y differ in
 * size, so a CTA that goes on to y divides its ring anew; a stage of the new one waits only for those of the old one in its
 * place. Parts lie in memory as threads hold them, and stay in the L2.
 *
 * On an H200 (bench/ladder), one after the other: 128 x 4096 -> 14336 in 97 us, of which its bytes take 81; two kernels and
 * a sum 99. 64 x 4096 -> 14336 in 92, two kernels 103. Last change: one lane of a warp reads the queue. */
#pragma once
#include "decode_sm90a.cuh"

namespace ep {

enum { ROWS_GROUPS = 8, ROWS_COUNTS = 1 + ROWS_GROUPS, ROWS_QUEUE = 4, ROWS_STAGES = 9 }; /* see rows_args.state */

struct rows_args {
    int m, n, k, out;   /* n: columns of h, a multiple of 8; out: columns of y */
    int tiles, columns; /* of h; of y: how many times OUT columns */
    int tile_h, stages; /* columns of a tile of h, a multiple of 8, up to H, and not gated half of them; stages of h */
    int split, pieces;  /* parts of a tile of y, no more than 8 or than stages of k; pieces it is added in */
    int act, eager, x_rows;    /* activation's kind; rounding as op by op; rows that the copy engine brings */
    const void *bias0, *bias1; /* of h */
    const void *bias2, *residual;
    void *h, *y;
    float4 *parts;                        /* [split][columns][OUT / 8][threads]: as threads hold them */
    long long h_row, residual_row, y_row; /* elements */
    /* [0] CTAs begun; then, for even launches and again for odd ones, ROWS_COUNTS + columns: [0] items taken, [1...] tiles
     * of h made, in ROWS_GROUPS groups, [ROWS_COUNTS...] parts made of each tile of y. All only grow, with each launch by
     * the same amount. */
    unsigned long long *state;
    unsigned long long policy_w;
};

template <int XR, int H, int OUT, int Y_STAGES> struct rows_shape {
    static const int wgs = XR / 64, threads = wgs == 2 ? 384 : 192; /* a whole warpgroup can give registers away */
    static const int x_bytes = XR * ROW_BYTES, y_bytes = OUT * ROW_BYTES, y_stage = y_bytes + x_bytes;
    static const int ring = Y_STAGES * y_stage;
    static const int total = ring + 16 * (ROWS_STAGES + Y_STAGES + ROWS_QUEUE) + 4 * ROWS_QUEUE + 16 + 1024;
    static const int part = OUT * XR; /* floats */
    static_assert(H % 8 == 0 && H <= 128 && XR % 64 == 0, "what a wgmma can take");
    static_assert(total <= SHARED_LIMIT, "the ring must fit a multiprocessor's shared memory");
};

/* Shared memory behind the ring: barriers of either division of it and of the queue of items, the items, and this CTA's
 * number among all that ever began. */
template <int Y_STAGES> struct rows_memory {
    uint32_t full, empty, y_full, y_empty, put, got, items, begun;
    __device__ __forceinline__ rows_memory(uint32_t at)
        : full(at), empty(full + 8 * ROWS_STAGES), y_full(empty + 8 * ROWS_STAGES), y_empty(y_full + 8 * Y_STAGES),
          put(y_empty + 8 * Y_STAGES), got(put + 8 * ROWS_QUEUE), items(got + 8 * ROWS_QUEUE),
          begun(items + 4 * ROWS_QUEUE) {}
};

/* Which launch this is, where it counts, and what its counts start from. */
struct rows_launch {
    unsigned long long *counts, turn;
    int first, base, parts,
        all; /* this CTA's first item; of the low half of what is taken; items before the last, all */
    __device__ __forceinline__ rows_launch(const rows_args &a, uint32_t begun) {
        unsigned long long number;
        asm volatile("ld.shared.u64 %0, [%1];" : "=l"(number) : "r"(begun) : "memory");
        unsigned long long launch = number / gridDim.x;
        turn = launch >> 1;
        counts = a.state + 1 + (launch & 1 ? ROWS_COUNTS + a.columns : 0);
        first = (int)(number - launch * gridDim.x);
        parts = a.tiles + a.columns * a.split;
        all = parts + (a.split > 1 ? a.columns * a.pieces : 0);
        base = (int)(turn * all) - (int)gridDim.x;
    }
    __device__ __forceinline__ int next() const { return (int)take(counts) - base; }
    __device__ __forceinline__ unsigned long long *tile_made(const rows_args &a, int tile) const {
        return counts + 1 + tile * ROWS_GROUPS / a.tiles;
    }
    __device__ __forceinline__ bool group_made(const rows_args &a, int group, int wgs) const {
        int from = (group * a.tiles + ROWS_GROUPS - 1) / ROWS_GROUPS;
        int to = ((group + 1) * a.tiles + ROWS_GROUPS - 1) / ROWS_GROUPS;
        return load_acquire(counts + 1 + group) >= (turn + 1) * (unsigned long long)((to - from) * wgs);
    }
};

/* The queue of items: one thread puts, the thread that loads rows and all consumer warps get. */
struct rows_queue {
    uint32_t put_at, got_at, items;
    int i;
    uint32_t phase;
    __device__ __forceinline__ void next() {
        if (++i == ROWS_QUEUE) {
            i = 0;
            phase ^= 1;
        }
    }
    __device__ __forceinline__ void put(int item) {
        mbar_wait(got_at + 8 * i, phase ^ 1);
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(items + 4 * i), "r"(item) : "memory");
        mbar_arrive(put_at + 8 * i);
    }
    __device__ __forceinline__ int get() const {
        int v;
        mbar_wait(put_at + 8 * i, phase);
        asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(items + 4 * i) : "memory");
        return v;
    }
    /* For a whole warp: the lane that says so when the item's place is free is the only one that reads it. */
    __device__ __forceinline__ int get_warp() const {
        int v = 0;
        if ((threadIdx.x & 31) == 0) v = get();
        return __shfl_sync(~0u, v, 0);
    }
    __device__ __forceinline__ void got() const { mbar_arrive(got_at + 8 * i); }
};

/* A place in the ring, first divided for h, then for y. Those who load begin each stage, those who multiply wait for it.
 * The first stage of y lies where the oldest of h does, and is begun when what it covers is free. */
template <typename S, int Y_STAGES> struct rows_ring {
    uint32_t base, full, empty, y_full, y_empty;
    int stages, w_bytes, stage; /* of h */
    int s, y, shift, lap;       /* lap: stages of y begun, up to Y_STAGES */
    uint32_t phase, y_phase;    /* of what a consumer waits for */
    __device__ __forceinline__ rows_ring(const rows_args &a, uint32_t base, const rows_memory<Y_STAGES> &mem)
        : base(base), full(mem.full), empty(mem.empty), y_full(mem.y_full), y_empty(mem.y_empty), stages(a.stages),
          w_bytes(2 * a.tile_h * ROW_BYTES), stage(w_bytes + S::x_bytes), s(0), y(0), shift(-1), lap(0), phase(0),
          y_phase(0) {}
    __device__ __forceinline__ uint32_t at() const { return base + s * stage; }
    __device__ __forceinline__ uint32_t y_at() const {
        int i = y + shift;
        return base + (i >= Y_STAGES ? i - Y_STAGES : i) * S::y_stage;
    }
    __device__ __forceinline__ void begin() const { mbar_wait(empty + 8 * s, phase ^ 1); }
    __device__ __forceinline__ void next() {
        if (++s == stages) {
            s = 0;
            phase ^= 1;
        }
    }
    __device__ __forceinline__ void turn_to_y() {
        if (shift < 0) shift = (s * stage + S::y_stage - 1) / S::y_stage % Y_STAGES;
    }
    __device__ __forceinline__ void y_begin() {
        if (lap == Y_STAGES) {
            mbar_wait(y_empty + 8 * y, y_phase ^ 1);
            return;
        }
        lap++;
        int at = (int)(y_at() - base), to = min((at + S::y_stage - 1) / stage, stages - 1);
        for (int i = at / stage; i <= to; i++) mbar_wait(empty + 8 * i, i >= s ? phase ^ 1 : phase);
    }
    __device__ __forceinline__ void y_next() {
        if (++y == Y_STAGES) {
            y = 0;
            y_phase ^= 1;
        }
    }
};

/* Columns of h that a tile makes: without a gate what would be u's weights are its next columns. */
template <bool GATED> __device__ __forceinline__ int rows_width(const rows_args &a) {
    return GATED ? a.tile_h : 2 * a.tile_h;
}

/* The k of part `at` of y, in stages; its tile of columns. */
struct rows_part {
    int column, from, to;
    __device__ __forceinline__ rows_part(const rows_args &a, int at) {
        int blocks = (a.n + BK - 1) / BK, q = at / a.columns;
        column = at - q * a.columns;
        from = (int)((long long)blocks * q / a.split);
        to = (int)((long long)blocks * (q + 1) / a.split);
    }
};

/* The thread that takes items and loads weights; it waits for nothing but room. */
template <typename S, int OUT, int Y_STAGES, bool GATED>
__device__ __forceinline__ void
rows_load_weights(const CUtensorMap *map_g, const CUtensorMap *map_u, const CUtensorMap *map_d, const rows_args &args,
                  rows_ring<S, Y_STAGES> r, rows_queue queue, const rows_launch &launch) {
    const int blocks = (args.k + BK - 1) / BK;
    int item = launch.first;
    while (item < args.tiles) {
        int following = 0;
        queue.put(item);
        queue.next();
        for (int b = 0; b < blocks; b++, r.next()) {
            r.begin();
            uint32_t at = r.at(), bar = r.full + 8 * r.s;
            mbar_expect(bar, r.w_bytes);
            int column = item * rows_width<GATED>(args);
            tma_load(at, map_g, b * BK, column, bar, args.policy_w);
            if (GATED)
                tma_load(at + r.w_bytes / 2, map_u, b * BK, column, bar, args.policy_w);
            else
                tma_load(at + r.w_bytes / 2, map_g, b * BK, column + args.tile_h, bar, args.policy_w);
            if (b == max(blocks - 2, 0)) following = launch.next();
        }
        item = following;
    }
    tma_prefetch(map_d);
    r.turn_to_y();
    while (item < launch.parts) {
        int following = 0;
        rows_part part(args, item - args.tiles);
        queue.put(item);
        queue.next();
        for (int b = part.from; b < part.to; b++, r.y_next()) {
            r.y_begin();
            uint32_t bar = r.y_full + 8 * r.y;
            mbar_expect(bar, S::y_bytes);
            tma_load(r.y_at(), map_d, b * BK, part.column * OUT, bar, args.policy_w);
            if (b == max(part.to - 2, part.from)) following = launch.next();
        }
        item = following;
    }
    while (item < launch.all) {
        queue.put(item);
        mbar_wait(queue.got_at + 8 * queue.i, queue.phase); /* others may be idle: no piece is taken ahead */
        queue.next();
        item = launch.next();
    }
    queue.put(-1);
}

/* The thread that loads x and h, when they are there. */
template <typename S, int Y_STAGES, bool GATED>
__device__ __forceinline__ void rows_load_rows(const CUtensorMap *map_x, const CUtensorMap *map_h,
                                               const rows_args &args, rows_ring<S, Y_STAGES> r, rows_queue queue,
                                               const rows_launch &launch) {
    const int blocks = (args.k + BK - 1) / BK, y_blocks = (args.n + BK - 1) / BK, bytes = args.x_rows * ROW_BYTES;
    const int width = rows_width<GATED>(args);
    unsigned made = 0; /* groups of h known to be there */
    wait_previous_grid();
    launch_next_grid(); /* so two launches run at once at most: they count apart */
    for (;;) {
        int item = queue.get();
        if (item < 0) break;
        queue.got();
        queue.next();
        if (item < args.tiles) {
            for (int b = 0; b < blocks; b++, r.next()) {
                r.begin();
                mbar_expect(r.full + 8 * r.s, bytes);
                tma_load(r.at() + r.w_bytes, map_x, b * BK, 0, r.full + 8 * r.s, L2_NORMAL);
            }
        } else if (item < launch.parts) {
            r.turn_to_y();
            rows_part part(args, item - args.tiles);
            int group = args.tiles ? part.from * BK / width * ROWS_GROUPS / args.tiles : 0;
            int there = args.tiles ? part.from : part.to; /* the first stage that the next group is needed for */
            for (int b = part.from; b < part.to; b++, r.y_next()) {
                for (; b >= there; group++) {
                    if (!(made >> group & 1)) {
                        while (!launch.group_made(args, group, S::wgs)) {
                        }
                        made |= 1u << group;
                        asm volatile("fence.proxy.async.global;" ::: "memory");
                    }
                    int tile = ((group + 1) * args.tiles + ROWS_GROUPS - 1) / ROWS_GROUPS;
                    there = tile == args.tiles ? y_blocks : tile * width / BK;
                }
                r.y_begin();
                mbar_expect(r.y_full + 8 * r.y, bytes);
                tma_load(r.y_at() + S::y_bytes, map_h, b * BK, 0, r.y_full + 8 * r.y, L2_NORMAL);
            }
        }
    }
}

/* One stage's product, waited for: another warpgroup, or none, keeps the tensor cores busy, and memory is what counts. */
template <typename T, int BN>
__device__ __forceinline__ void rows_product(float (&d)[BN / 2], uint32_t w, uint32_t x, uint32_t empty) {
    stage_product<T, BN>(d, x, w, 1);
    wgmma_wait<0>();
    if ((threadIdx.x & 127) == 0) mbar_arrive(empty);
}

/* The same for both halves of a tile of h. Rows of weights that the tile does not have (it may be narrower than H) are
 * what lies behind it in the ring; their sums are not looked at. */
template <typename T, int H>
__device__ __forceinline__ void rows_products(float (&g)[H / 2], float (&u)[H / 2], uint32_t w, uint32_t half,
                                              uint32_t x, uint32_t empty) {
    uint64_t dx = wgmma_descriptor(x), dg = wgmma_descriptor(w), du = wgmma_descriptor(w + half);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < BK / 16; i++) {
        wgmma_n<T, H>::run(g, dx + 2 * i, dg + 2 * i, 1);
        wgmma_n<T, H>::run(u, dx + 2 * i, du + 2 * i, 1);
    }
    wgmma_commit();
    wgmma_wait<0>();
    if ((threadIdx.x & 127) == 0) mbar_arrive(empty);
}

__device__ __forceinline__ void quad_swap(uint32_t &a, uint32_t &b, int lane_bit) {
    bool odd = threadIdx.x & lane_bit;
    uint32_t t = __shfl_xor_sync(~0u, odd ? a : b, lane_bit);
    if (odd)
        a = t;
    else
        b = t;
}

/* One row's columns 8 (j + 0..3) of a quad's lanes: each lane stores 8 columns. */
__device__ __forceinline__ void store_quad(unsigned short *row, uint32_t (&v)[4], bool inside) {
    quad_swap(v[0], v[1], 1);
    quad_swap(v[2], v[3], 1);
    quad_swap(v[0], v[2], 2);
    quad_swap(v[1], v[3], 2);
    if (inside) *(uint4 *)(row + 8 * (threadIdx.x & 3)) = make_uint4(v[0], v[1], v[2], v[3]);
}

/* act(g) * u of two neighbours. Which rounding is asked for is told at run time: fewer kernels, and the arithmetic is hidden. */
template <typename T, int ACT>
__device__ __forceinline__ uint32_t rows_pair(float g0, float g1, float u0, float u1, bool eager) {
    uint32_t g = T::pack(g0, g1), u = T::pack(u0, u1);
    float a0 = activate<ACT>(eager ? T::low(g) : g0), a1 = activate<ACT>(eager ? T::high(g) : g1);
    uint32_t rounded = T::multiply(T::pack(a0, a1), u), once = T::pack(a0 * u0, a1 * u1);
    return eager ? rounded : once;
}

/* Columns 8 j.. of a thread's two rows. */
template <typename T, int N, int ACT>
__device__ __forceinline__ void rows_words(const float (&g)[N], const float (&u)[N], const rows_args &args, int j,
                                           int column, uint32_t *lo, uint32_t *hi) {
    float gv[4], uv[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        gv[i] = g[4 * j + i];
        uv[i] = u[4 * j + i];
    }
    if (args.bias0 || args.bias1) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int c = column + 8 * j + (i & 1);
            if (c < args.n && args.bias0) gv[i] += T::load(args.bias0, c);
            if (c < args.n && args.bias1) uv[i] += T::load(args.bias1, c);
        }
    }
    *lo = rows_pair<T, ACT>(gv[0], gv[1], uv[0], uv[1], args.eager);
    *hi = rows_pair<T, ACT>(gv[2], gv[3], uv[2], uv[3], args.eager);
}

/* The same without a gate. */
template <typename T, int N, int ACT>
__device__ __forceinline__ void rows_plain_words(const float (&v)[N], const rows_args &args, int j, int column,
                                                 uint32_t *lo, uint32_t *hi) {
    float p[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int c = column + 8 * j + (i & 1);
        p[i] = v[4 * j + i];
        if (args.bias0 && c < args.n) p[i] += T::load(args.bias0, c);
    }
    uint32_t first = T::pack(p[0], p[1]), second = T::pack(p[2], p[3]);
    *lo = T::pack(activate<ACT>(args.eager ? T::low(first) : p[0]), activate<ACT>(args.eager ? T::high(first) : p[1]));
    *hi =
        T::pack(activate<ACT>(args.eager ? T::low(second) : p[2]), activate<ACT>(args.eager ? T::high(second) : p[3]));
}

/* Columns from `from` on. */
template <typename T, int N, int ACT, bool GATED>
__device__ __forceinline__ void rows_store_h(const float (&g)[N], const float (&u)[N], const rows_args &args,
                                             int from) {
    int lane = threadIdx.x & 31, row = (threadIdx.x >> 5) * 16 + (lane >> 2);
    int width = min(args.tile_h, args.n - from), column = from + 2 * (lane & 3);
    unsigned short *at = (unsigned short *)args.h + row * args.h_row + from;
    bool first = row < args.m, second = row + 8 < args.m;
#pragma unroll
    for (int j = 0; j < N / 4; j += 4) {
        if (8 * j >= width) break;
        uint32_t lo[4] = {}, hi[4] = {};
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (8 * (j + i) < width) {
                if (GATED)
                    rows_words<T, N, ACT>(g, u, args, j + i, column, &lo[i], &hi[i]);
                else
                    rows_plain_words<T, N, ACT>(g, args, j + i, column, &lo[i], &hi[i]);
            }
        bool inside = 8 * (j + (lane & 3)) < width;
        store_quad(at + 8 * j, lo, first && inside);
        store_quad(at + 8 * j + 8 * args.h_row, hi, second && inside);
    }
}

template <typename T, int N, int ACT, bool GATED>
__device__ __forceinline__ void rows_store_tile(const float (&g)[N], const float (&u)[N], const rows_args &args,
                                                int tile) {
    int from = tile * rows_width<GATED>(args);
    rows_store_h<T, N, ACT, GATED>(g, u, args, from);
    if (!GATED) rows_store_h<T, N, ACT, GATED>(u, u, args, from + args.tile_h);
}

template <typename T, int N, bool GATED>
__device__ __forceinline__ void rows_make_h(const float (&g)[N], const float (&u)[N], const rows_args &args, int tile) {
    if (args.act == ACT_GELU_TANH)
        rows_store_tile<T, N, ACT_GELU_TANH, GATED>(g, u, args, tile);
    else if (args.act == ACT_GELU_ERF)
        rows_store_tile<T, N, ACT_GELU_ERF, GATED>(g, u, args, tile);
    else if (args.act == ACT_SILU)
        rows_store_tile<T, N, ACT_SILU, GATED>(g, u, args, tile);
    else
        rows_store_tile<T, N, ACT_RELU, GATED>(g, u, args, tile);
}

/* v: of rows `row` and row + 8, columns c + 8 i and the next each. Few instructions, in a line: they are run once, and come from
 * memory. */
template <typename T, int GROUPS>
__device__ __forceinline__ void rows_store_y(const rows_args &args, int m, float4 (&v)[GROUPS], int row, int c) {
    if (args.bias2) {
#pragma unroll
        for (int i = 0; i < GROUPS; i++) {
            int at = c + 8 * i;
            float b0 = at < args.out ? T::load(args.bias2, at) : 0.0f;
            float b1 = at + 1 < args.out ? T::load(args.bias2, at + 1) : 0.0f;
            v[i].x += b0, v[i].y += b1, v[i].z += b0, v[i].w += b1;
        }
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int r = row + 8 * half;
        bool inside = r < m;
        if (args.residual) {
            const typename T::scalar *from = (const typename T::scalar *)args.residual + r * args.residual_row + c;
#pragma unroll
            for (int i = 0; i < GROUPS; i++) {
                float &a = half ? v[i].z : v[i].x, &b = half ? v[i].w : v[i].y;
                if (args.eager) {
                    uint32_t w = T::pack(a, b);
                    a = T::low(w), b = T::high(w);
                }
                if (inside && c + 8 * i < args.out) a += T::load(from, 8 * i);
                if (inside && c + 8 * i + 1 < args.out) b += T::load(from, 8 * i + 1);
            }
        }
        unsigned short *to = (unsigned short *)args.y + r * args.y_row + c;
        bool pairs = ((unsigned long long)to & 3) == 0;
#pragma unroll
        for (int i = 0; i < GROUPS; i++) {
            uint32_t w = half ? T::pack(v[i].z, v[i].w) : T::pack(v[i].x, v[i].y);
            bool first = inside && c + 8 * i < args.out, second = inside && c + 8 * i + 1 < args.out;
            if (second && pairs) *(uint32_t *)(to + 8 * i) = w;
            if (first && !(second && pairs)) to[8 * i] = (unsigned short)w;
            if (second && !pairs) to[8 * i + 1] = (unsigned short)(w >> 16);
        }
    }
}

/* For the sake of the address: the first access to a page takes long. */
__device__ __forceinline__ void prefetch_l2(const void *p) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(p) : "memory");
}

/* GROUPS times 8 columns of a tile of y from up to SPLIT parts, added in their order. */
template <typename T, int XR, int OUT, int GROUPS, int SPLIT>
__device__ __forceinline__ void rows_add(const rows_args &args, int m, int split, int column, int piece) {
    constexpr int THREADS = 2 * XR;
    int lane = threadIdx.x & 31, row = (threadIdx.x >> 5) * 16 + (lane >> 2);
    const float4 *from = args.parts + ((long long)column * (OUT / 8) + piece * GROUPS) * THREADS + threadIdx.x;
    const long long step = (long long)args.columns * (OUT / 8) * THREADS;
    float4 p[GROUPS][SPLIT];
#pragma unroll
    for (int q = 0; q < SPLIT; q++)
#pragma unroll
        for (int i = 0; i < GROUPS; i++) {
            p[i][q] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (q < split) p[i][q] = __ldcg(from + q * step + i * THREADS);
        }
    float4 v[GROUPS];
#pragma unroll
    for (int i = 0; i < GROUPS; i++) {
        v[i] = p[i][0];
#pragma unroll
        for (int q = 1; q < SPLIT; q++)
            if (q < split) v[i].x += p[i][q].x, v[i].y += p[i][q].y, v[i].z += p[i][q].z, v[i].w += p[i][q].w;
    }
    rows_store_y<T, GROUPS>(args, m, v, row, column * OUT + 8 * (piece * GROUPS) + 2 * (lane & 3));
}

template <typename T, typename S, int XR, int H, int OUT, int Y_STAGES, bool GATED>
__device__ __forceinline__ void rows_consume(const rows_args &args, rows_ring<S, Y_STAGES> r, rows_queue queue,
                                             const rows_launch &launch) {
    const int blocks = (args.k + BK - 1) / BK;
    int wg = warpgroup(), lane = threadIdx.x & 31, in_group = threadIdx.x & 127, x_at = wg * (64 * ROW_BYTES);
    int row = (threadIdx.x >> 5) * 16 + (lane >> 2);
    bool used = (threadIdx.x >> 5) * 16 < args.m, fresh = true;
    if (lane == 0) prefetch_l2((const unsigned short *)args.h + min(row, args.m - 1) * args.h_row);
    wait_previous_grid();
    for (;;) {
        int item = queue.get_warp();
        if (item < 0) break;
        auto got = [&]() {
            if (lane == 0) queue.got();
            queue.next();
        };
        if (item < args.tiles) {
            got();
            float g[H / 2], u[H / 2];
#pragma unroll
            for (int i = 0; i < H / 2; i++) g[i] = u[i] = 0.0f;
            for (int b = 0; b < blocks; b++, r.next()) {
                mbar_wait(r.full + 8 * r.s, r.phase);
                if (b == 0 && threadIdx.x == 0) EP_STAMP(1);
                rows_products<T, H>(g, u, r.at(), r.w_bytes / 2, r.at() + r.w_bytes + x_at, r.empty + 8 * r.s);
            }
            wgmma_hold(g);
            wgmma_hold(u);
            if (threadIdx.x == 0) EP_STAMP(2);
            rows_make_h<T, H / 2, GATED>(g, u, args, item);
            /* What this warpgroup stored, the copy engine of every CTA will read. */
            asm volatile("fence.proxy.async.global;" ::: "memory");
            named_barrier(2 + wg, 128);
            if (in_group == 0) count_made(launch.tile_made(args, item));
            if (threadIdx.x == 0) EP_STAMP(3);
            continue;
        }
        r.turn_to_y();
        /* The first time round nothing is done: the code that ends the block is brought while h is waited for. */
#pragma unroll 1
        for (;; fresh = false) {
            int m = fresh ? 0 : args.m;
            if (fresh && lane < args.split)
                prefetch_l2(args.parts + (long long)lane * args.columns * (OUT / 8 * 2 * XR));
            if (fresh && lane == 31) prefetch_l2(args.y);
            if (fresh || item < launch.parts) {
                rows_part part(args, item < launch.parts ? item - args.tiles : 0);
                float d[OUT / 2];
#pragma unroll
                for (int i = 0; i < OUT / 2; i++) d[i] = 0.0f;
                for (int b = part.from; b < part.to && !fresh; b++, r.y_next()) {
                    mbar_wait(r.y_full + 8 * r.y, r.y_phase);
                    if (b == part.from && threadIdx.x == 0) EP_STAMP(4);
                    rows_product<T, OUT>(d, r.y_at(), r.y_at() + S::y_bytes + x_at, r.y_empty + 8 * r.y);
                }
                wgmma_hold(d);
                if (threadIdx.x == 0) EP_STAMP(5);
                if (args.split == 1) {
#pragma unroll
                    for (int j = 0; j < OUT / 8; j += 4) {
                        float4 v[4];
#pragma unroll
                        for (int i = 0; i < 4; i++) {
                            const float *from = d + 4 * (j + i);
                            v[i] = make_float4(from[0], from[1], from[2], from[3]);
                        }
                        rows_store_y<T, 4>(args, m, v, row, part.column * OUT + 8 * j + 2 * (lane & 3));
                    }
                } else {
                    float4 *to = args.parts + (long long)(item - args.tiles) * (OUT / 8 * 2 * XR) + threadIdx.x;
#pragma unroll
                    for (int j = 0; j < OUT / 8; j++)
                        if (used && !fresh)
                            __stcg(to + j * (2 * XR), make_float4(d[4 * j], d[4 * j + 1], d[4 * j + 2], d[4 * j + 3]));
                    named_barrier(2 + wg, 128);
                    if (in_group == 0 && !fresh) count_made(launch.counts + ROWS_COUNTS + part.column);
                }
            }
            if (fresh || item >= launch.parts) {
                int at = fresh ? 0 : item - launch.parts, column = at / args.pieces, piece = at - column * args.pieces;
                if (threadIdx.x == 0) EP_STAMP(6);
                if (lane == 0 && !fresh)
                    while (load_acquire(launch.counts + ROWS_COUNTS + column) <
                           (launch.turn + 1) * (unsigned long long)(args.split * S::wgs)) {
                    }
                __syncwarp();
                if (args.split > 6)
                    rows_add<T, XR, OUT, 2, 8>(args, m, used && !fresh ? args.split : 0, column, piece);
                else
                    rows_add<T, XR, OUT, 4, 6>(args, m, used && !fresh ? args.split : 0, column, piece);
            }
            if (!fresh) break;
        }
        got();
    }
    if (threadIdx.x == 0) EP_STAMP(7);
}

template <typename T, int XR, int H, int OUT, int Y_STAGES, bool GATED>
__device__ __forceinline__ void rows_body(const CUtensorMap *map_x, const CUtensorMap *map_g, const CUtensorMap *map_u,
                                          const CUtensorMap *map_h, const CUtensorMap *map_d, const rows_args &args) {
    typedef rows_shape<XR, H, OUT, Y_STAGES> S;
    extern __shared__ uint8_t raw[];
    uint32_t base = (smem_u32(raw) + 1023) & ~1023u;
    rows_memory<Y_STAGES> mem(base + S::ring);
    if (threadIdx.x == 0) {
        EP_STAMP(0);
        for (int i = 0; i < ROWS_STAGES; i++) {
            mbar_init(mem.full + 8 * i, 2);
            mbar_init(mem.empty + 8 * i, S::wgs);
        }
        for (int i = 0; i < Y_STAGES; i++) {
            mbar_init(mem.y_full + 8 * i, 2);
            mbar_init(mem.y_empty + 8 * i, S::wgs);
        }
        for (int i = 0; i < ROWS_QUEUE; i++) {
            mbar_init(mem.put + 8 * i, 1);
            mbar_init(mem.got + 8 * i, 4 * S::wgs + 1);
        }
        fence_barrier_init();
    } else if (threadIdx.x == 128 * S::wgs) { /* before the next launch may start: it takes the numbers after */
        tma_prefetch(map_g);
        if (GATED) tma_prefetch(map_u);
        tma_prefetch(map_x);
        asm volatile("st.shared.u64 [%0], %1;" ::"r"(mem.begun), "l"(take(args.state)) : "memory");
    }
    __syncthreads();
    rows_launch launch(args, mem.begun);
    rows_ring<S, Y_STAGES> ring(args, base, mem);
    rows_queue queue = {mem.put, mem.got, mem.items, 0, 0};
    if (warpgroup() == S::wgs) {
        if (S::wgs == 2) registers_down<56>();
        if (threadIdx.x == 128 * S::wgs)
            rows_load_weights<S, OUT, Y_STAGES, GATED>(map_g, map_u, map_d, args, ring, queue, launch);
        else if (threadIdx.x == 128 * S::wgs + 32)
            rows_load_rows<S, Y_STAGES, GATED>(map_x, map_h, args, ring, queue, launch);
    } else {
        if (S::wgs == 2) registers_up<224>();
        rows_consume<T, S, XR, H, OUT, Y_STAGES, GATED>(args, ring, queue, launch);
    }
}

} // namespace ep

/* The kernels of one dtype and kind of block. Names say rows of x, columns of h (at most) and of y a tile. */
#define EP_ROWS_ENTRY(name, TYPE, XR, H, Y_STAGES, GATED)                                                              \
    extern "C" __global__ void __launch_bounds__(ep::rows_shape<XR, H, 128, Y_STAGES>::threads, 1)                     \
        name(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap g,                             \
             const __grid_constant__ CUtensorMap u, const __grid_constant__ CUtensorMap h,                             \
             const __grid_constant__ CUtensorMap d, const ep::rows_args args) {                                        \
        ep::rows_body<ep::TYPE, XR, H, 128, Y_STAGES, GATED>(&x, &g, &u, &h, &d, args);                                \
    }
#define EP_ROWS_ENTRIES(dtype, TYPE, kind, GATED)                                                                      \
    EP_ROWS_ENTRY(ep_##dtype##_##kind##_rows_sm90a_m64h128y128, TYPE, 64, 128, 9, GATED)                               \
    EP_ROWS_ENTRY(ep_##dtype##_##kind##_rows_sm90a_m128h96y128, TYPE, 128, 96, 7, GATED)                               \
    EP_ROWS_ENTRY(ep_##dtype##_##kind##_rows_sm90a_m128h128y128, TYPE, 128, 128, 7, GATED)
