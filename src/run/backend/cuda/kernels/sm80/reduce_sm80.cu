/* Sums, means, maxima and norms over the last dims, one block a row; sums in f32, by a fixed tree. */
#include "../common/activation.cuh"
#include "../common/strided.cuh"

namespace ep {

enum { THREADS = 256 };

struct adding {
    static __device__ __forceinline__ float start() { return 0.0f; }
    static __device__ __forceinline__ float join(float a, float b) { return a + b; }
};
struct maximum {
    static __device__ __forceinline__ float start() { return -INFINITY; }
    static __device__ __forceinline__ float join(float a, float b) { return a != a || a > b ? a : b; }
};

template <typename J> __device__ __forceinline__ float block_join(float v) {
    __shared__ float part[THREADS / 32];
    __syncthreads();
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) v = J::join(v, __shfl_xor_sync(0xffffffffu, v, d));
    if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = v;
    __syncthreads();
    v = part[0];
#pragma unroll
    for (int i = 1; i < THREADS / 32; i++) v = J::join(v, part[i]);
    return v;
}

template <typename J, typename S, typename F> __device__ __forceinline__ float row_join(const S *x, long long n, F f) {
    float v = J::start();
    for (long long i = threadIdx.x; i < n; i += THREADS) v = J::join(v, f(widen<S>(x[i])));
    return block_join<J>(v);
}

struct same {
    __device__ float operator()(float v) const { return v; }
};

template <typename S> __device__ __forceinline__ void sum_row(const ep_row_args &a, long long row, float scale) {
    float v = row_join<adding, S>((const S *)a.x + row * a.x_row, a.cols, same());
    if (threadIdx.x == 0) ((S *)a.out)[row * a.out_row] = narrow<S>(v * scale);
}

template <typename S> __device__ __forceinline__ void softmax_row(const ep_row_args &a, long long row) {
    const S *x = (const S *)a.x + row * a.x_row;
    S *y = (S *)a.out + row * a.out_row;
    float top = row_join<maximum, S>(x, a.cols, same());
    float sum = row_join<adding, S>(x, a.cols, [=](float v) { return expf(v - top); });
    for (long long i = threadIdx.x; i < a.cols; i += THREADS) y[i] = narrow<S>(expf(widen<S>(x[i]) - top) / sum);
}

template <typename S, bool CENTER> __device__ __forceinline__ void norm_row(const ep_row_args &a, long long row) {
    const S *x = (const S *)a.x + row * a.x_row, *w = (const S *)a.weight, *b = (const S *)a.bias;
    S *y = (S *)a.out + row * a.out_row;
    float mean = CENTER ? row_join<adding, S>(x, a.cols, same()) / (float)a.cols : 0.0f;
    float var = row_join<adding, S>(x, a.cols, [=](float v) { return (v - mean) * (v - mean); }) / (float)a.cols;
    float scale = 1.0f / sqrtf(var + a.eps);
    for (long long i = threadIdx.x; i < a.cols; i += THREADS) {
        float v = (widen<S>(x[i]) - mean) * scale;
        if (w) v *= widen<S>(w[i]);
        if (b) v += widen<S>(b[i]);
        y[i] = narrow<S>(v);
    }
}

} // namespace ep

#define EP_ROWS(name, dtype, ...)                                                                                      \
    extern "C" __global__ void __launch_bounds__(ep::THREADS)                                                          \
        ep_##dtype##_##name##_sm80_row(const __grid_constant__ ep_row_args a) {                                        \
        for (long long row = blockIdx.x; row < a.rows; row += gridDim.x) {                                             \
            __VA_ARGS__;                                                                                               \
        }                                                                                                              \
    }
#define EP_ALL(dtype, S)                                                                                               \
    EP_ROWS(sum, dtype, ep::sum_row<S>(a, row, 1.0f))                                                                  \
    EP_ROWS(mean, dtype, ep::sum_row<S>(a, row, 1.0f / (float)a.cols))                                                 \
    EP_ROWS(amax, dtype, float v = ep::row_join<ep::maximum, S>((const S *)a.x + row * a.x_row, a.cols, ep::same());   \
            if (threadIdx.x == 0)((S *)a.out)[row * a.out_row] = ep::narrow<S>(v))                                     \
    EP_ROWS(softmax, dtype, ep::softmax_row<S>(a, row))                                                                \
    EP_ROWS(layer_norm, dtype, (ep::norm_row<S, true>(a, row)))                                                        \
    EP_ROWS(rms_norm, dtype, (ep::norm_row<S, false>(a, row)))
EP_ALL(f32, float)
EP_ALL(bf16, __nv_bfloat16)
EP_ALL(f16, __half)
