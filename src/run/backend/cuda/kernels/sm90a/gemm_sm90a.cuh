/* GEMM family for sm_90a: y = epilogue(x w^T), and gated: y = act(x g^T + bg) * (x u^T + bu), one store.
 *
 * Bound: tensor cores (128 cycles for each m64n256k16 step) and the card's power. A CTA computes 64 * WGS rows by BN
 * weight rows (gated: BN/2 gate and BN/2 up rows of the same columns, side by side in shared memory, so one wgmma makes
 * both and a thread holds g and u of the same element). A cluster of CM by CN CTAs shares tiles: x with its CN
 * neighbours along the columns, weights with its CM neighbours along the rows; each loads its part and multicasts it.
 * One producer thread feeds STAGES buffers of 64 k; WGS consumer warpgroups of 64 rows each run free of one another, so
 * that one's epilogue overlaps the others' products. Persistent: CTAs walk the tiles in groups of rows that fit the L2.
 * Tails: TMA fills zeros and clips stores. */
#pragma once
#include "../common/activation.cuh"
#include "../common/barrier.cuh"
#include "../common/tma.cuh"
#include "../common/wgmma.cuh"

namespace ep {

struct gemm_args {
    int m, n, k;          /* n: output columns */
    int tiles_m, tiles_n; /* of a whole cluster */
    int group_m;          /* cluster rows walked together */
    const void *bias0, *bias1;
    const void *residual;
    long long residual_row;                          /* elements */
    unsigned long long policy_x, policy_w, policy_y; /* L2 policies */
};

enum { BK = 64, ROW_BYTES = 128, SHARED_LIMIT = 227 * 1024 };

template <int WGS, int BN, int STAGES, bool GATED> struct gemm_shape {
    static const int rows = 64 * WGS, out = GATED ? BN / 2 : BN, staged = out % 128 == 0 ? 128 : out;
    static const int a_bytes = rows * ROW_BYTES, b_bytes = BN * ROW_BYTES, stage = a_bytes + b_bytes;
    static const int out_bytes = rows * staged * 2, total = STAGES * stage + out_bytes + 2 * STAGES * 8 + 1024;
    static const int threads = 128 * (WGS + 1), registers = WGS == 2 ? 232 : 248;
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

/* One warpgroup's 64 rows by COLUMNS results into swizzled boxes of BOX columns (64; of 32 the swizzle goes by pairs of
 * rows), ready for TMA. make(j) gives the pair words of rows r and r + 8 for columns 8 j + 2 (lane % 4). */
template <typename T, int COLUMNS, int BOX = 64, typename F>
__device__ __forceinline__ void store_tile(uint32_t out, F make) {
    constexpr int SHIFT = BOX == 64 ? 3 : 2, LAST = (1 << SHIFT) - 1,
                  BYTES = BOX * 2; /* chunks of 8 columns in a row */
    static_assert(BOX == 64 || BOX == 32, "boxes of 128 or 64 bytes a row");
    int lane = threadIdx.x & 31, warp = (threadIdx.x >> 5) & 3;
    int row = warp * 16 + ((lane >> 3) & 1) * 8 + (lane & 7), swizzle = (BOX == 64 ? row : row >> 1) & LAST;
#pragma unroll
    for (int j = 0; j < COLUMNS / 8; j += 2) {
        uint32_t r[4];
        make(j, &r[0], &r[1]);
        make(j + 1, &r[2], &r[3]);
        int chunk = j + (lane >> 4);
        uint32_t at = out + (chunk >> SHIFT) * (64 * BYTES) + row * BYTES + (((chunk & LAST) ^ swizzle) << 4);
        stmatrix4<T>(at, r);
    }
}

/* One element's, where few are made: the compiler may branch. */
template <typename T, int ACT, bool EAGER>
__device__ __forceinline__ float plain_value(float v, const gemm_args &args, int row, int column) {
    bool inside = column < args.n;
    if (args.bias0 && inside) v += T::load(args.bias0, column);
    if (ACT != ACT_NONE) v = activate<ACT>(EAGER ? T::round(v) : v);
    if (args.residual && inside && row < args.m)
        v = (EAGER ? T::round(v) : v) + T::load(args.residual, row * args.residual_row + column);
    return v;
}

/* A 16-bit word, 0 where it is not to be read. */
__device__ __forceinline__ uint32_t load_if(const void *p, bool inside) {
    unsigned short v;
    asm volatile(
        "{\n .reg .pred inside;\n setp.ne.b32 inside, %2, 0;\n mov.b16 %0, 0;\n @inside ld.global.b16 %0, [%1];\n}"
        : "=h"(v)
        : "l"(p), "r"((int)inside));
    return v;
}

/* Two neighbours from 16-bit numbers, 0 where there are none. No branch, so that what stands around it may be mixed: a
 * thread's activations must overlap each other (mlp 8192 x 768 -> 3072: 130 us, 185 with two branches a value). */
template <typename T> struct pair_of {
    float first, second;
    __device__ __forceinline__ pair_of(uint32_t w) : first(T::low(w)), second(T::high(w)) {}
    __device__ __forceinline__ pair_of(const void *from, long long at, int left)
        : pair_of(load_if((const unsigned short *)from + at, from && left > 0) |
                  load_if((const unsigned short *)from + at + 1, from && left > 1) << 16) {}
};

/* The two words of a thread's rows r and r + 8 for columns 8 j.. of its tile: rounded, activated, packed. A residual is added
 * where there is no activation. */
template <typename T, int BN, bool GATED, int ACT, bool EAGER>
__device__ __forceinline__ void result_words(const float (&d)[BN / 2], const gemm_args &args, int j, int row,
                                             int column, uint32_t *lo, uint32_t *hi) {
    constexpr int UP = BN / 4;
    int c = column + 8 * j, left = args.n - c;
    pair_of<T> b(args.bias0, c, left);
    const float *v = d + 4 * j;
    float v0 = v[0] + b.first, v1 = v[1] + b.second, v2 = v[2] + b.first, v3 = v[3] + b.second;
    if constexpr (GATED) {
        pair_of<T> bu(args.bias1, c, left);
        const float *u = v + UP;
        *lo = gated_pair<T, ACT, EAGER>(v0, v1, u[0] + bu.first, u[1] + bu.second);
        *hi = gated_pair<T, ACT, EAGER>(v2, v3, u[2] + bu.first, u[3] + bu.second);
        return;
    }
    if (EAGER) {
        pair_of<T> first(T::pack(v0, v1)), second(T::pack(v2, v3));
        v0 = first.first, v1 = first.second, v2 = second.first, v3 = second.second;
    }
    if (ACT == ACT_NONE) {
        pair_of<T> r(args.residual, row * args.residual_row + c, row < args.m ? left : 0);
        pair_of<T> s(args.residual, (row + 8) * args.residual_row + c, row + 8 < args.m ? left : 0);
        v0 += r.first, v1 += r.second, v2 += s.first, v3 += s.second;
    }
    *lo = T::pack(activate<ACT>(v0), activate<ACT>(v1));
    *hi = T::pack(activate<ACT>(v2), activate<ACT>(v3));
}

/* Barriers of a ring: a buffer is full when the copy engine says so, empty when `users` have said so. */
template <int STAGES> __device__ __forceinline__ void ring_init(uint32_t full, uint32_t empty, int users) {
    for (int s = 0; s < STAGES; s++) {
        mbar_init(full + 8 * s, 1);
        mbar_init(empty + 8 * s, users);
    }
}

/* Once one thread has set up the barriers: they are there for all of the CTA, or of the cluster; and the next grid's CTAs may
 * take this one's place as it ends; they wait for its results themselves. */
template <bool CLUSTER> __device__ __forceinline__ void ring_ready() {
    if (CLUSTER)
        cluster_sync();
    else
        __syncthreads();
    launch_next_grid();
}

/* The thread's warpgroup, told in a way that shows all lanes of a warp to have the same one: addresses that depend on it, and
 * with them the products' descriptors, are then computed on the scalar side. Else eight registers are carried there before
 * each product (measured on an H200: 2 to 3 % of the kernel). */
__device__ __forceinline__ int warpgroup() {
    return (int)__shfl_sync(0xffffffff, threadIdx.x >> 7, 0);
}

/* Where a CTA stands: its cluster's tiles, its place in the cluster, its buffers. */
template <typename S, int STAGES, int CM, int CN> struct gemm_place {
    uint32_t base, full, empty;
    int at_m, at_n, tiles, blocks, first, step;
    __device__ __forceinline__ gemm_place(const gemm_args &a, uint32_t base, uint32_t barriers) {
        int rank = CM * CN > 1 ? (int)cluster_rank() : 0;
        this->base = base;
        full = barriers;
        empty = full + 8 * STAGES;
        at_m = rank % CM;
        at_n = rank / CM;
        tiles = a.tiles_m * a.tiles_n;
        blocks = (a.k + BK - 1) / BK;
        first = blockIdx.x / (CM * CN);
        step = gridDim.x / (CM * CN);
    }
};

/* The producer thread: fills the buffers of every tile of this CTA. */
template <typename S, int BN, int STAGES, int CM, int CN, bool GATED>
__device__ __forceinline__ void produce(const CUtensorMap *map_x, const CUtensorMap *map_w0, const CUtensorMap *map_w1,
                                        const gemm_args &args, const gemm_place<S, STAGES, CM, CN> &p) {
    constexpr int EACH = BN / (CM == 1 ? 2 : CM); /* weight rows of one load: CTAs that share them load one part each */
    uint16_t mask_x = 0, mask_w = 0;
    for (int i = 0; i < CN; i++) mask_x |= (uint16_t)(1 << (p.at_m + CM * i));
    for (int i = 0; i < CM; i++) mask_w |= (uint16_t)(1 << (i + CM * p.at_n));
    tma_prefetch(map_x);
    tma_prefetch(map_w0);
    if (GATED) tma_prefetch(map_w1);
    wait_previous_grid();
    int s = 0;
    uint32_t phase = 1; /* a fresh barrier: the first wait for "empty" passes */
    for (int tile = p.first; tile < p.tiles; tile += p.step) {
        int tm, tn;
        tile_at(args, tile, &tm, &tn);
        int row = (tm * CM + p.at_m) * S::rows + p.at_n * (S::rows / CN), col = (tn * CN + p.at_n) * S::out;
        for (int b = 0; b < p.blocks; b++) {
            mbar_wait(p.empty + 8 * s, phase);
            uint32_t a_at = p.base + s * S::stage + p.at_n * (S::a_bytes / CN), bar = p.full + 8 * s;
            uint32_t b_at = p.base + s * S::stage + S::a_bytes, b_up = b_at + S::b_bytes / 2;
            const CUtensorMap *up = GATED ? map_w1 : map_w0;
            int col_up = GATED ? col : col + BN / 2;
            mbar_expect(bar, S::stage);
            if (CN == 1)
                tma_load(a_at, map_x, b * BK, row, bar, args.policy_x);
            else
                tma_load_multicast(a_at, map_x, b * BK, row, bar, mask_x, args.policy_x);
            if (CM == 1) {
                tma_load(b_at, map_w0, b * BK, col, bar, args.policy_w);
                tma_load(b_up, up, b * BK, col_up, bar, args.policy_w);
            } else {
                bool second = 2 * p.at_m >= CM;
                int from = (second ? col_up : col) + (p.at_m - (second ? CM / 2 : 0)) * EACH;
                tma_load_multicast(b_at + p.at_m * (EACH * ROW_BYTES), second ? up : map_w0, b * BK, from, bar, mask_w,
                                   args.policy_w);
            }
            if (++s == STAGES) {
                s = 0;
                phase ^= 1;
            }
        }
    }
}

/* A consumer warpgroup's walk over the buffers of one tile; s and phase go on from tile to tile. */
template <typename T, typename S, int BN, int STAGES, int CM, int CN>
__device__ __forceinline__ void consume(float (&d)[BN / 2], const gemm_place<S, STAGES, CM, CN> &p, int wg, int &s,
                                        uint32_t &phase) {
    int in_group = threadIdx.x & 127;
    /* Whom a freed buffer is reported to: the CTAs that write into it, this one's row and column of the cluster. */
    uint32_t tell = in_group < CM ? in_group + CM * p.at_n : p.at_m + CM * (in_group - CM + (in_group - CM >= p.at_n));
    auto release = [&](int stage) {
        if (CM * CN > 1) {
            if (in_group < CM + CN - 1) mbar_arrive_cluster(p.empty + 8 * stage, tell);
        } else if (in_group == 0) {
            mbar_arrive(p.empty + 8 * stage);
        }
    };
    int previous = -1;
    for (int b = 0; b < p.blocks; b++) {
        mbar_wait(p.full + 8 * s, phase);
        uint32_t a_at = p.base + s * S::stage + wg * (64 * ROW_BYTES), b_at = p.base + s * S::stage + S::a_bytes;
        stage_product<T, BN>(d, a_at, b_at, b > 0);
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
    wgmma_hold(d);
    release(previous);
}

template <typename T, int WGS, int BN, int STAGES, int CM, int CN, bool GATED, int ACT, bool EAGER>
__device__ __forceinline__ void gemm_body(const CUtensorMap *map_x, const CUtensorMap *map_w0,
                                          const CUtensorMap *map_w1, const CUtensorMap *map_y, const gemm_args &args) {
    typedef gemm_shape<WGS, BN, STAGES, GATED> S;
    static_assert(S::total <= SHARED_LIMIT, "the stages must fit a multiprocessor's shared memory");
    constexpr int OUT = S::out;
    extern __shared__ uint8_t raw[];
    uint32_t base = (smem_u32(raw) + 1023) & ~1023u, out_base = base + STAGES * S::stage;
    gemm_place<S, STAGES, CM, CN> p(args, base, out_base + S::out_bytes);
    int group = warpgroup();

    if (threadIdx.x == 0) {
        ring_init<STAGES>(p.full, p.empty, WGS * (CM + CN - 1));
        fence_barrier_init();
    }
    ring_ready<(CM * CN > 1)>();

    if (group == 0) {
        registers_down<40>();
        if (threadIdx.x == 0) produce<S, BN, STAGES, CM, CN, GATED>(map_x, map_w0, map_w1, args, p);
    } else {
        registers_up<S::registers>();
        int wg = group - 1, lane = threadIdx.x & 31, warp = (threadIdx.x >> 5) & 3, s = 0;
        bool elected = (threadIdx.x & 127) == 0;
        uint32_t out = out_base + wg * (64 * S::staged * 2), phase = 0;
        float d[BN / 2];
        wait_previous_grid();
        for (int tile = p.first; tile < p.tiles; tile += p.step) {
            int tm, tn;
            tile_at(args, tile, &tm, &tn);
            consume<T, S, BN, STAGES, CM, CN>(d, p, wg, s, phase);
            int row0 = (tm * CM + p.at_m) * S::rows + wg * 64, col0 = (tn * CN + p.at_n) * OUT;
            int row = row0 + warp * 16 + (lane >> 2), column = col0 + 2 * (lane & 3);
#pragma unroll
            for (int part = 0; part < OUT / S::staged; part++) {
                if (elected) tma_wait_read<0>();
                named_barrier(1 + wg, 128);
                store_tile<T, S::staged>(out, [&](int j, uint32_t *lo, uint32_t *hi) {
                    result_words<T, BN, GATED, ACT, EAGER>(d, args, part * (S::staged / 8) + j, row, column, lo, hi);
                });
                fence_async_shared();
                named_barrier(1 + wg, 128);
                if (elected) {
#pragma unroll
                    for (int box = 0; box < S::staged / 64; box++) {
                        int c = col0 + part * S::staged + 64 * box;
                        if (c < args.n && row0 < args.m)
                            tma_store(map_y, c, row0, out + box * (64 * ROW_BYTES), args.policy_y);
                    }
                    tma_commit();
                }
            }
        }
        if (elected) tma_wait<0>();
    }
    /* A CTA must not leave while its neighbour may still write to or arrive at its shared memory. */
    if (CM * CN > 1) cluster_sync();
}

/* Gated under EAGER rounding, where g and u are rounded to 16 bits anyway: the consumers leave both in shared memory and
 * go on with the next tile; three warps beside the producer make act(g) * u of them, in place, and store it. HANDS: how
 * many tiles of 64 rows may lie there. */
template <int BN, int STAGES, int HANDS> struct handed_shape {
    static const int rows = 128, out = BN / 2, hand = 64 * out * 2; /* bytes of g, and of u behind it */
    static const int a_bytes = rows * ROW_BYTES, b_bytes = BN * ROW_BYTES, stage = a_bytes + b_bytes;
    static const int total = STAGES * stage + HANDS * 2 * hand + 2 * STAGES * 8 + 4 * 8 + 1024, threads = 384;
};

__device__ __forceinline__ uint4 load_shared(uint32_t at) {
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(at));
    return v;
}

__device__ __forceinline__ void store_shared(uint32_t at, uint4 v) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}

/* act(g) * u of packed pairs that are rounded already. */
template <typename T, int ACT> __device__ __forceinline__ uint32_t gated_packed(uint32_t g, uint32_t u) {
    return T::multiply(T::pack(activate<ACT>(T::low(g)), activate<ACT>(T::high(g))), u);
}

template <typename T, int BN, int STAGES, int HANDS, int CM, int ACT>
__device__ __forceinline__ void handed_body(const CUtensorMap *map_x, const CUtensorMap *map_w0,
                                            const CUtensorMap *map_w1, const CUtensorMap *map_y,
                                            const gemm_args &args) {
    typedef handed_shape<BN, STAGES, HANDS> S;
    static_assert(S::total <= SHARED_LIMIT, "the stages must fit a multiprocessor's shared memory");
    extern __shared__ uint8_t raw[];
    uint32_t base = (smem_u32(raw) + 1023) & ~1023u, hands = base + STAGES * S::stage;
    gemm_place<S, STAGES, CM, 1> p(args, base, hands + HANDS * 2 * S::hand);
    uint32_t made = p.empty + 8 * STAGES, stored = made + 16;
    int group = warpgroup();
    if (threadIdx.x == 0) {
        ring_init<STAGES>(p.full, p.empty, 2 * CM);
        for (int i = 0; i < HANDS; i++) {
            mbar_init(made + 8 * i, 128);
            mbar_init(stored + 8 * i, 1);
        }
        fence_barrier_init();
    }
    ring_ready<(CM > 1)>();

    if (group == 0) {
        registers_down<72>();
        if (threadIdx.x == 0) produce<S, BN, STAGES, CM, 1, true>(map_x, map_w0, map_w1, args, p);
        if (threadIdx.x >= 32) {
            int at = threadIdx.x - 32, turn = 0;
            wait_previous_grid();
            for (int tile = p.first; tile < p.tiles; tile += p.step) {
                int tm, tn;
                tile_at(args, tile, &tm, &tn);
                for (int wg = 0; wg < 2; wg++, turn++) {
                    int hand = turn % HANDS, row0 = (tm * CM + p.at_m) * S::rows + wg * 64, col0 = tn * S::out;
                    uint32_t g_at = hands + hand * 2 * S::hand;
                    mbar_wait(made + 8 * hand, turn / HANDS & 1);
#pragma unroll 2
                    for (int i = at; i < S::hand / 16; i += 96) {
                        uint4 g = load_shared(g_at + 16 * i), u = load_shared(g_at + S::hand + 16 * i);
                        g.x = gated_packed<T, ACT>(g.x, u.x);
                        g.y = gated_packed<T, ACT>(g.y, u.y);
                        g.z = gated_packed<T, ACT>(g.z, u.z);
                        g.w = gated_packed<T, ACT>(g.w, u.w);
                        store_shared(g_at + 16 * i, g);
                    }
                    fence_async_shared();
                    named_barrier(1, 96);
                    if (at == 0) {
#pragma unroll
                        for (int box = 0; box < S::out / 64; box++)
                            if (col0 + 64 * box < args.n && row0 < args.m)
                                tma_store(map_y, col0 + 64 * box, row0, g_at + box * (64 * ROW_BYTES), args.policy_y);
                        tma_commit();
                        tma_wait_read<0>();
                        mbar_arrive(stored + 8 * hand);
                    }
                }
            }
            if (at == 0) tma_wait<0>();
        }
    } else {
        registers_up<216>();
        int wg = group - 1, lane = threadIdx.x & 31, s = 0, turn = wg;
        uint32_t phase = 0;
        float d[BN / 2];
        wait_previous_grid();
        for (int tile = p.first; tile < p.tiles; tile += p.step, turn += 2) {
            int tm, tn;
            tile_at(args, tile, &tm, &tn);
            consume<T, S, BN, STAGES, CM, 1>(d, p, wg, s, phase);
            if (args.bias0 || args.bias1) {
#pragma unroll
                for (int i = 0; i < BN / 4; i++) {
                    int c = tn * S::out + 2 * (lane & 3) + 8 * (i / 4) + (i & 1);
                    if (c < args.n && args.bias0) d[i] += T::load(args.bias0, c);
                    if (c < args.n && args.bias1) d[BN / 4 + i] += T::load(args.bias1, c);
                }
            }
            int hand = turn % HANDS;
            uint32_t g_at = hands + hand * 2 * S::hand;
            mbar_wait(stored + 8 * hand, (turn / HANDS & 1) ^ 1);
#pragma unroll
            for (int half = 0; half < 2; half++)
                store_tile<T, S::out>(g_at + half * S::hand, [&](int j, uint32_t *lo, uint32_t *hi) {
                    const float *v = d + half * (BN / 4) + 4 * j;
                    *lo = T::pack(v[0], v[1]);
                    *hi = T::pack(v[2], v[3]);
                });
            mbar_arrive(made + 8 * hand);
        }
    }
    if (CM > 1) cluster_sync();
}

} // namespace ep
