/* The kernels of gemm_sm90a.cuh as the ladders instantiate and launch them: bf16, `eager` rounding. */
#pragma once
#include "../../src/run/backend/cuda/kernels/sm90a/gemm_sm90a.cuh"
#include "ladder.cuh"

#define KERNEL(name, WGS, ...)                                                                                         \
    extern "C" __global__ void __launch_bounds__(128 * (WGS + 1), 1)                                                   \
        name(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap w0,                            \
             const __grid_constant__ CUtensorMap w1, const __grid_constant__ CUtensorMap y, const ep::gemm_args a) {   \
        __VA_ARGS__(&x, &w0, &w1, &y, a);                                                                              \
    }
/* name, warpgroups of 64 rows, weight rows, stages, cluster rows, cluster columns, gated, activation (handed: buffers) */
#define OWN(name, WGS, BN, STAGES, CM, CN, GATED, ACT)                                                                 \
    KERNEL(name, WGS, ep::gemm_body<ep::bf16_type, WGS, BN, STAGES, CM, CN, GATED, ep::ACT, true>)
#define OWN_FEWEST(name, WGS, BN, STAGES, CM, CN, GATED, ACT)                                                          \
    KERNEL(name, WGS, ep::gemm_body<ep::bf16_type, WGS, BN, STAGES, CM, CN, GATED, ep::ACT, false>)
#define HANDED(name, WGS, BN, STAGES, CM, CN, GATED, HANDS)                                                            \
    KERNEL(name, WGS, ep::handed_body<ep::bf16_type, BN, STAGES, HANDS, CM, ep::ACT_GELU_TANH>)
#define HANDED_RELU(name, WGS, BN, STAGES, CM, CN, GATED, HANDS)                                                       \
    KERNEL(name, WGS, ep::handed_body<ep::bf16_type, BN, STAGES, HANDS, CM, ep::ACT_RELU>)

struct Tile {
    const void *fn;
    const char *name;
    int wgs, bn, stages, cm, cn, smem;
    bool gated;
    int box; /* columns in a box of y */
};
#define OWN_ROW(name, WGS, BN, STAGES, CM, CN, GATED, ACT)                                                             \
    {(const void *)name, #name, WGS, BN, STAGES, CM, CN, ep::gemm_shape<WGS, BN, STAGES, GATED>::total, GATED, 64},
#define HANDED_ROW(name, WGS, BN, STAGES, CM, CN, GATED, HANDS)                                                        \
    {(const void *)name, #name, WGS, BN, STAGES, CM, CN, ep::handed_shape<BN, STAGES, HANDS>::total, GATED, 64},

static ep::gemm_args arguments(int m, int n, int k, int tiles_m, int tiles_n, int group_m) {
    ep::gemm_args a = {};
    a.m = m;
    a.n = n;
    a.k = k;
    a.tiles_m = tiles_m;
    a.tiles_n = tiles_n;
    a.group_m = group_m;
    a.policy_x = a.policy_w = ep::L2_NORMAL;
    a.policy_y = (size_t)m * n * 2 > (50u << 20) ? ep::L2_EVICT_FIRST : ep::L2_NORMAL;
    return a;
}

static int seats = 132; /* CTAs of a grid at most */

/* row: columns between rows of y, n where not given. */
static void launch(const Tile &t, const bf *x, const bf *w0, const bf *w1, bf *y, int m, int n, int k, int group_m,
                   cudaStream_t s, int row = 0) {
    int out = t.gated ? t.bn / 2 : t.bn, part = t.bn / std::max(2, t.cm), rows = 64 * t.wgs, down = rows * t.cm,
        across = out * t.cn;
    CUtensorMap mx = map2d(x, m, k, rows / t.cn), m0 = map2d(w0, n, k, part), m1 = map2d(t.gated ? w1 : w0, n, k, part),
                my = map2d(y, m, n, 64, t.box, row);
    ep::gemm_args a = arguments(m, n, k, (m + down - 1) / down, (n + across - 1) / across, group_m);
    void *args[] = {&mx, &m0, &m1, &my, &a};
    int c = t.cm * t.cn, grid = std::min(seats / c, a.tiles_m * a.tiles_n) * c;
    launch_ex(t.fn, grid, 128 * (t.wgs + 1), t.smem, c, s, args);
}
