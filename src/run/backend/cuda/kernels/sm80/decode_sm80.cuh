/* Decode, 1 to 16 rows of x: y = epilogue(x w^T) or act(x g^T) * (x u^T), weights streamed once.
 *
 * Bound: weight bytes over memory bandwidth. A CTA makes 16 * UT output columns; its warps split k, each streaming 32 k
 * of 16 weight rows per step with 16-byte loads straight into matrix fragments: a dot product does not care in which
 * order k is walked, so lane q of a row takes k 8q..8q+7 and x is read by the same rule. Sums meet in shared memory in a
 * fixed order. The first weights are on their way before the previous grid's result is waited for. */
#pragma once
#include "../common/activation.cuh"
#include "../common/barrier.cuh"

namespace ep {

struct decode_args {
    const void *x, *w0, *w1, *bias0, *bias1, *residual;
    void *y;
    long long x_row, w0_row, w1_row, residual_row, y_row; /* elements; columns adjacent */
    int m, n, k;                                          /* k: a multiple of 8 */
};

__device__ __forceinline__ uint4 load_stream(const void *p) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}

__device__ __forceinline__ uint4 load_cached(const void *p) {
    return *(const uint4 *)p;
}

template <typename T>
__device__ __forceinline__ void mma_16x8x16(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                            uint32_t b0, uint32_t b1);
template <>
__device__ __forceinline__ void mma_16x8x16<bf16_type>(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                                       uint32_t a3, uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
template <>
__device__ __forceinline__ void mma_16x8x16<f16_type>(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                                      uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

enum { DECODE_WARPS = 8 };

template <typename T, int NT, int UT, bool GATED, int ACT, bool EAGER, int UNROLL>
__device__ __forceinline__ void decode_body(const decode_args &a) {
    constexpr int MATS = GATED ? 2 : 1, TILES = MATS * UT;
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, r = lane >> 2, q = lane & 3;
    int col0 = blockIdx.x * 16 * UT;
    const char *rows[TILES][2];
#pragma unroll
    for (int t = 0; t < TILES; t++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int col = min(col0 + (t % UT) * 16 + r + 8 * h, a.n - 1);
            const void *w = t < UT ? a.w0 : a.w1;
            rows[t][h] = (const char *)w + 2 * ((t < UT ? a.w0_row : a.w1_row) * col + 8 * q);
        }
    }
    const char *x_rows[NT];
#pragma unroll
    for (int n = 0; n < NT; n++) x_rows[n] = (const char *)a.x + 2 * (a.x_row * min(n * 8 + r, a.m - 1) + 8 * q);

    float d[TILES][NT][4] = {};
    uint4 w[UNROLL][TILES][2];
    int steps = (a.k + 31) / 32;
    const uint4 zero = make_uint4(0, 0, 0, 0);
    auto load = [&](int i, int step) {
        bool in = step < steps && step * 32 + 8 * q < a.k;
#pragma unroll
        for (int t = 0; t < TILES; t++)
#pragma unroll
            for (int h = 0; h < 2; h++) w[i][t][h] = in ? load_stream(rows[t][h] + 64ll * step) : zero;
    };
#pragma unroll
    for (int i = 0; i < UNROLL; i++) load(i, warp + i * DECODE_WARPS);
    wait_previous_grid();
    for (int step = warp; step < steps; step += DECODE_WARPS * UNROLL) {
#pragma unroll
        for (int i = 0; i < UNROLL; i++) {
            int s = step + i * DECODE_WARPS;
            bool in = s < steps && s * 32 + 8 * q < a.k;
            uint4 x[NT];
#pragma unroll
            for (int n = 0; n < NT; n++) x[n] = in ? load_cached(x_rows[n] + 64ll * s) : zero;
#pragma unroll
            for (int t = 0; t < TILES; t++)
#pragma unroll
                for (int n = 0; n < NT; n++) {
                    mma_16x8x16<T>(d[t][n], w[i][t][0].x, w[i][t][1].x, w[i][t][0].y, w[i][t][1].y, x[n].x, x[n].y);
                    mma_16x8x16<T>(d[t][n], w[i][t][0].z, w[i][t][1].z, w[i][t][0].w, w[i][t][1].w, x[n].z, x[n].w);
                }
            load(i, s + DECODE_WARPS * UNROLL);
        }
    }
    launch_next_grid();

    /* d[..][0..3]: columns r, r, r + 8, r + 8 of x rows 2q, 2q + 1, 2q, 2q + 1. */
    __shared__ float part[DECODE_WARPS][TILES * NT * 4][32];
#pragma unroll
    for (int t = 0; t < TILES; t++)
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) part[warp][(t * NT + n) * 4 + i][lane] = d[t][n][i];
    __syncthreads();
    for (int e = threadIdx.x; e < UT * NT * 4 * 32; e += DECODE_WARPS * 32) {
        int l = e & 31, slot = e >> 5, i = slot & 3, n = (slot >> 2) % NT, t = (slot >> 2) / NT;
        int row = n * 8 + 2 * (l & 3) + (i & 1), col = col0 + t * 16 + (l >> 2) + 8 * (i >> 1);
        if (row >= a.m || col >= a.n) continue;
        float v[MATS];
#pragma unroll
        for (int k = 0; k < MATS; k++) {
            float sum = 0;
#pragma unroll
            for (int p = 0; p < DECODE_WARPS; p++) sum += part[p][((t + k * UT) * NT + n) * 4 + i][l];
            const void *bias = k ? a.bias1 : a.bias0;
            v[k] = bias ? sum + T::load(bias, col) : sum;
        }
        float out;
        if (GATED)
            out = gated<T, ACT, EAGER>(v[0], v[MATS - 1]);
        else
            out = ACT == ACT_NONE ? v[0] : activate<ACT>(EAGER ? T::round(v[0]) : v[0]);
        if (a.residual) out = (EAGER ? T::round(out) : out) + T::load(a.residual, row * a.residual_row + col);
        uint32_t packed = T::pack(out, 0.0f);
        ((unsigned short *)a.y)[row * a.y_row + col] = (unsigned short)packed;
    }
}

} // namespace ep
