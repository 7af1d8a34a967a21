/* What the ladders of few rows share: when CTAs reach what (-DSTAMPS), and the streaming kernels that one kernel for the
 * block replaced. Before the kernels' own headers. */
#pragma once
#ifdef STAMPS
__device__ unsigned long long stamps[132 * 8];
__device__ __forceinline__ void stamp(int i) {
    unsigned long long t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    stamps[blockIdx.x * 8 + i] = t;
}
#define EP_STAMP(i) stamp(i)
#endif
#include "../../src/run/backend/cuda/kernels/sm90a/decode_sm90a.cuh"
#include "ladder.cuh"

static const int sms = 132; /* an H200's multiprocessors */

#define STREAM(name, WGS, BN, STAGES, SPLIT, GATED, ACT)                                                               \
    extern "C" __global__ void __launch_bounds__(128 * WGS + 32, 1)                                                    \
        name(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap w0,                            \
             const __grid_constant__ CUtensorMap w1, const ep::stream_args a) {                                        \
        ep::stream_body<ep::bf16_type, WGS, BN, STAGES, SPLIT, 64 * WGS, 1, GATED, ep::ACT, true>(&x, &w0, &w1, a);    \
    }
STREAM(sg64_128, 1, 128, 9, 1, true, ACT_GELU_TANH)
STREAM(sp64_128x8, 1, 128, 4, 8, false, ACT_NONE)

static void launch_stream(const void *fn, int wgs, int bn, int smem, int split, bool gated, const bf *x, const bf *w0,
                          const bf *w1, bf *y, int m, int n, int k) {
    int rows = (m + 7) / 8 * 8, out = gated ? bn / 2 : bn;
    CUtensorMap mx = map2d(x, m, k, rows), m0 = map2d(w0, n, k, out), m1 = map2d(w1, n, k, out);
    ep::stream_args a = {};
    a.m = m;
    a.n = n;
    a.k = k;
    a.tiles = (n + out - 1) / out;
    a.x_bytes = rows * 128;
    a.y = y;
    a.y_row = n;
    a.policy_w = ep::L2_NORMAL;
    void *args[] = {&mx, &m0, &m1, &a};
    launch_ex(fn, split > 1 ? a.tiles * split : std::min(sms, a.tiles), 128 * wgs + 32, smem, split, stream, args);
}
