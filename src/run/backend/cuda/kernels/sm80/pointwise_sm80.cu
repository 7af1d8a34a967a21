/* Every row of pointwise.def for f32, bf16 and f16: flat with 16-byte accesses, and for any strides; one kernel for any
 * mix of dtypes (computing in f64); copies and casts.
 *
 * Bound: each distinct input byte read once and each output byte written once, over memory bandwidth. */
#include "../common/activation.cuh"
#include "../common/strided.cuh"

namespace ep {

#define K(x) ((real)(x))
template <typename real> struct vocabulary;
template <> struct vocabulary<float> {
    typedef float real;
    static __device__ __forceinline__ float v_abs(float x) { return fabsf(x); }
    static __device__ __forceinline__ float v_sqrt(float x) { return sqrtf(x); }
    static __device__ __forceinline__ float v_exp(float x) { return expf(x); }
    static __device__ __forceinline__ float v_log(float x) { return logf(x); }
    static __device__ __forceinline__ float v_tanh(float x) { return tanhf(x); }
    static __device__ __forceinline__ float v_erf(float x) { return erff(x); }
    static __device__ __forceinline__ float v_min(float x, float y) { return x != x || x < y ? x : y; }
    static __device__ __forceinline__ float v_max(float x, float y) { return x != x || x > y ? x : y; }
    static __device__ __forceinline__ float v_select(float c, float x, float y) { return c != 0.0f ? x : y; }
    static __device__ __forceinline__ float v_gelu_tanh(float x) { return gelu_tanh(x); }
    static __device__ __forceinline__ float v_gelu_erf(float x) { return gelu_erf(x); }
};
template <> struct vocabulary<double> {
    typedef double real;
    static __device__ __forceinline__ double v_abs(double x) { return fabs(x); }
    static __device__ __forceinline__ double v_sqrt(double x) { return sqrt(x); }
    static __device__ __forceinline__ double v_exp(double x) { return exp(x); }
    static __device__ __forceinline__ double v_log(double x) { return log(x); }
    static __device__ __forceinline__ double v_tanh(double x) { return tanh(x); }
    static __device__ __forceinline__ double v_erf(double x) { return erf(x); }
    static __device__ __forceinline__ double v_min(double x, double y) { return x != x || x < y ? x : y; }
    static __device__ __forceinline__ double v_max(double x, double y) { return x != x || x > y ? x : y; }
    static __device__ __forceinline__ double v_select(double c, double x, double y) { return c != 0.0 ? x : y; }
    static __device__ __forceinline__ double v_gelu_tanh(double x) {
        return 0.5 * x * (1.0 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    }
    static __device__ __forceinline__ double v_gelu_erf(double x) {
        return 0.5 * x * (1.0 + erf(x * 0.7071067811865476));
    }
};

/* silu and sigmoid by the formula would use expf; the fused kernels use the same f32 forms as activation.cuh. */
#define EP_POINTWISE(ID, name, aten, arity, flops, FORMULA)                                                            \
    template <typename real> struct op_##name : vocabulary<real> {                                                     \
        enum { ARITY = arity };                                                                                        \
        typedef vocabulary<real> v;                                                                                    \
        using v::v_abs;                                                                                                \
        using v::v_sqrt;                                                                                               \
        using v::v_exp;                                                                                                \
        using v::v_log;                                                                                                \
        using v::v_tanh;                                                                                               \
        using v::v_erf;                                                                                                \
        using v::v_min;                                                                                                \
        using v::v_max;                                                                                                \
        using v::v_select;                                                                                             \
        using v::v_gelu_tanh;                                                                                          \
        using v::v_gelu_erf;                                                                                           \
        static __device__ __forceinline__ real run(real a, real b, real c) { return FORMULA; }                         \
    };
#include <epilogue/pointwise.def>
#undef EP_POINTWISE
template <> __device__ __forceinline__ float op_silu<float>::run(float a, float, float) {
    return silu(a);
}

template <typename S> union pack16 {
    uint4 raw;
    S v[16 / sizeof(S)];
    __device__ __forceinline__ pack16() {}
};

template <template <typename> class OP, typename S> __device__ __forceinline__ void flat_body(const ep_flat_args &a) {
    constexpr int V = 16 / sizeof(S), UNROLL = 4, N = OP<float>::ARITY;
    long long vectors = a.numel / V, first = (long long)blockIdx.x * blockDim.x * UNROLL + threadIdx.x;
    pack16<S> in[UNROLL][N];
    float scalars[N];
#pragma unroll
    for (int k = 0; k < N; k++) scalars[k] = a.scalar >> k & 1 ? widen<S>(*(const S *)a.in[k]) : 0.0f;
#pragma unroll
    for (int i = 0; i < UNROLL; i++) {
        long long v = first + (long long)i * blockDim.x;
        if (v >= vectors) continue;
#pragma unroll
        for (int k = 0; k < N; k++)
            if (!(a.scalar >> k & 1)) in[i][k].raw = __ldcs((const uint4 *)a.in[k] + v);
    }
#pragma unroll
    for (int i = 0; i < UNROLL; i++) {
        long long v = first + (long long)i * blockDim.x;
        if (v >= vectors) break;
        pack16<S> out;
#pragma unroll
        for (int e = 0; e < V; e++) {
            float x[3] = {0.0f, 0.0f, 0.0f};
#pragma unroll
            for (int k = 0; k < N; k++) x[k] = a.scalar >> k & 1 ? scalars[k] : widen<S>(in[i][k].v[e]);
            out.v[e] = narrow<S>(OP<float>::run(x[0], x[1], x[2]));
        }
        __stcs((uint4 *)a.out + v, out.raw);
    }
    if (blockIdx.x == 0 && threadIdx.x < a.numel - vectors * V) {
        long long e = vectors * V + threadIdx.x;
        float x[3] = {0.0f, 0.0f, 0.0f};
#pragma unroll
        for (int k = 0; k < N; k++) x[k] = a.scalar >> k & 1 ? scalars[k] : widen<S>(((const S *)a.in[k])[e]);
        ((S *)a.out)[e] = narrow<S>(OP<float>::run(x[0], x[1], x[2]));
    }
}

/* Element i of the collapsed index space: its offset in each operand. */
template <int N> struct offsets { long long in[N], out; };
template <int N> __device__ __forceinline__ offsets<N> locate(const ep_strided_args &a, long long i) {
    offsets<N> o = {};
    bool small = a.numel <= 0x7fffffffll;
    for (int d = a.ndim - 1; d >= 0; d--) {
        long long q = small ? (long long)((unsigned)i / (unsigned)a.sizes[d]) : i / a.sizes[d];
        long long r = i - q * a.sizes[d];
#pragma unroll
        for (int k = 0; k < N; k++) o.in[k] += r * a.in_strides[k][d];
        o.out += r * a.out_strides[d];
        i = q;
    }
    return o;
}

template <template <typename> class OP, typename S>
__device__ __forceinline__ void strided_body(const ep_strided_args &a) {
    constexpr int N = OP<float>::ARITY;
    long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < a.numel; i += step) {
        offsets<N> o = locate<N>(a, i);
        float x[3] = {0.0f, 0.0f, 0.0f};
#pragma unroll
        for (int k = 0; k < N; k++) x[k] = widen<S>(((const S *)a.in[k])[o.in[k]]);
        ((S *)a.out)[o.out] = narrow<S>(OP<float>::run(x[0], x[1], x[2]));
    }
}

__device__ __forceinline__ double load_any(const void *p, int dtype, long long i) {
    switch (dtype) { /* ep_dtype */
    case 0: return ((const float *)p)[i];
    case 1: return __bfloat162float(((const __nv_bfloat16 *)p)[i]);
    case 2: return __half2float(((const __half *)p)[i]);
    case 3: return ((const int *)p)[i];
    case 4: return (double)((const long long *)p)[i];
    default: return ((const unsigned char *)p)[i] != 0;
    }
}

__device__ __forceinline__ void store_any(void *p, int dtype, long long i, double v) {
    switch (dtype) {
    case 0: ((float *)p)[i] = (float)v; break;
    case 1: ((__nv_bfloat16 *)p)[i] = __double2bfloat16(v); break;
    case 2: ((__half *)p)[i] = __double2half(v); break;
    case 3: ((int *)p)[i] = (int)v; break;
    case 4: ((long long *)p)[i] = (long long)v; break;
    default: ((unsigned char *)p)[i] = v != 0; break;
    }
}

} // namespace ep

#define EP_KERNELS(name, dtype, S)                                                                                     \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        ep_##dtype##_##name##_sm80_v16(const __grid_constant__ ep_flat_args a) {                                       \
        ep::flat_body<ep::op_##name, S>(a);                                                                            \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        ep_##dtype##_##name##_sm80_strided(const __grid_constant__ ep_strided_args a) {                                \
        ep::strided_body<ep::op_##name, S>(a);                                                                         \
    }
#define EP_POINTWISE(ID, name, aten, arity, flops, FORMULA)                                                            \
    EP_KERNELS(name, f32, float)                                                                                       \
    EP_KERNELS(name, bf16, __nv_bfloat16)                                                                              \
    EP_KERNELS(name, f16, __half)
#include <epilogue/pointwise.def>
#undef EP_POINTWISE

extern "C" __global__ void __launch_bounds__(256)
    ep_any_pointwise_sm80_strided(const __grid_constant__ ep_strided_args a) {
    long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < a.numel; i += step) {
        ep::offsets<3> o = ep::locate<3>(a, i);
        double x[3] = {0, 0, 0}, y = 0;
        for (int k = 0; k < a.count; k++) x[k] = ep::load_any(a.in[k], a.in_dtype[k], o.in[k]);
        int at = 0;
#define EP_POINTWISE(ID, name, aten, arity, flops, FORMULA)                                                            \
    if (a.op == at++) y = ep::op_##name<double>::run(x[0], x[1], x[2]);
#include <epilogue/pointwise.def>
#undef EP_POINTWISE
        ep::store_any(a.out, a.out_dtype, o.out, y);
    }
}

/* Copies and casts: i64 stays whole, everything else passes through f64, which holds it exactly. */
extern "C" __global__ void __launch_bounds__(256) ep_any_copy_sm80_strided(const __grid_constant__ ep_strided_args a) {
    long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < a.numel; i += step) {
        ep::offsets<1> o = ep::locate<1>(a, i);
        if (a.in_dtype[0] == 4 && a.out_dtype == 4)
            ((long long *)a.out)[o.out] = ((const long long *)a.in[0])[o.in[0]];
        else
            ep::store_any(a.out, a.out_dtype, o.out, ep::load_any(a.in[0], a.in_dtype[0], o.in[0]));
    }
}

/* Same-dtype strided copies by element size. */
#define EP_COPY(bits, type)                                                                                            \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        ep_b##bits##_copy_sm80_strided(const __grid_constant__ ep_strided_args a) {                                    \
        long long step = (long long)gridDim.x * blockDim.x;                                                            \
        for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < a.numel; i += step) {                 \
            ep::offsets<1> o = ep::locate<1>(a, i);                                                                    \
            ((type *)a.out)[o.out] = ((const type *)a.in[0])[o.in[0]];                                                 \
        }                                                                                                              \
    }
EP_COPY(8, unsigned char)
EP_COPY(16, unsigned short)
EP_COPY(32, unsigned)
EP_COPY(64, unsigned long long)
EP_COPY(128, uint4)
