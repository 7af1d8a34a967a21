/* Activations by their exact kind, in f32; the same text generated kernels use, so that every mode agrees bit for bit. */
#pragma once
#include "convert.cuh"

namespace ep {

enum { ACT_NONE, ACT_GELU_TANH, ACT_GELU_ERF, ACT_SILU, ACT_RELU }; /* ep_act */

__device__ __forceinline__ float exp2_approx(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ float rcp_approx(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* x * sigmoid(2 z) with z = sqrt(2/pi) (x + 0.044715 x^3) equals 0.5 x (1 + tanh z); two special-function operations,
 * relative error near 3e-7, right limits at both ends. */
__device__ __forceinline__ float gelu_tanh(float x) {
    const float c1 = -2.302208198f;  /* -2 log2(e) sqrt(2/pi) */
    const float c3 = -0.1029432397f; /* c1 * 0.044715 */
    float w = x * __fmaf_rn(c3, x * x, c1);
    return x * rcp_approx(1.0f + exp2_approx(w));
}

__device__ __forceinline__ float silu(float x) {
    return x * rcp_approx(1.0f + exp2_approx(-1.4426950409f * x));
}

__device__ __forceinline__ float gelu_erf(float x) {
    return 0.5f * x * (1.0f + erff(x * 0.7071067812f));
}

template <int ACT> __device__ __forceinline__ float activate(float x) {
    if (ACT == ACT_GELU_TANH) return gelu_tanh(x);
    if (ACT == ACT_GELU_ERF) return gelu_erf(x);
    if (ACT == ACT_SILU) return silu(x);
    if (ACT == ACT_RELU) return x > 0.0f || x != x ? x : 0.0f;
    return x;
}

/* Storage types: rounding to it, and pairs. */
struct bf16_type {
    typedef __nv_bfloat16 scalar;
    static __device__ __forceinline__ float round(float x) { return low(pack_bf16(x, 0.0f)); }
    static __device__ __forceinline__ uint32_t pack(float lo, float hi) { return pack_bf16(lo, hi); }
    static __device__ __forceinline__ uint32_t multiply(uint32_t a, uint32_t b) {
        __nv_bfloat162 r = __hmul2_rn(*(__nv_bfloat162 *)&a, *(__nv_bfloat162 *)&b);
        return *(uint32_t *)&r;
    }
    static __device__ __forceinline__ float low(uint32_t v) { return __uint_as_float(v << 16); }
    static __device__ __forceinline__ float high(uint32_t v) { return __uint_as_float(v & 0xffff0000u); }
    static __device__ __forceinline__ float load(const void *p, int64_t i) {
        return __bfloat162float(((const __nv_bfloat16 *)p)[i]);
    }
};

struct f16_type {
    typedef __half scalar;
    static __device__ __forceinline__ float round(float x) { return low(pack_f16(x, 0.0f)); }
    static __device__ __forceinline__ uint32_t pack(float lo, float hi) { return pack_f16(lo, hi); }
    static __device__ __forceinline__ uint32_t multiply(uint32_t a, uint32_t b) {
        __half2 r = __hmul2_rn(*(__half2 *)&a, *(__half2 *)&b);
        return *(uint32_t *)&r;
    }
    static __device__ __forceinline__ float low(uint32_t v) {
        return __half2float(__ushort_as_half((unsigned short)v));
    }
    static __device__ __forceinline__ float high(uint32_t v) {
        return __half2float(__ushort_as_half((unsigned short)(v >> 16)));
    }
    static __device__ __forceinline__ float load(const void *p, int64_t i) {
        return __half2float(((const __half *)p)[i]);
    }
};

/* act(g) * u under the rounding contract: EAGER rounds g, u and act(g) to the storage type first. */
template <typename T, int ACT, bool EAGER> __device__ __forceinline__ float gated(float g, float u) {
    if (EAGER) return T::round(activate<ACT>(T::round(g))) * T::round(u);
    return activate<ACT>(g) * u;
}

/* The same for two neighbours, giving the packed pair. Rounding by pairs halves the conversions; a product of two 16-bit
 * values is exact in f32, so rounding it there or in a packed multiplication gives the same bits. */
template <typename T, int ACT, bool EAGER>
__device__ __forceinline__ uint32_t gated_pair(float g0, float g1, float u0, float u1) {
    if (EAGER) {
        uint32_t g = T::pack(g0, g1), u = T::pack(u0, u1);
        uint32_t a = T::pack(activate<ACT>(T::low(g)), activate<ACT>(T::high(g)));
        return T::multiply(a, u);
    }
    return T::pack(activate<ACT>(g0) * u0, activate<ACT>(g1) * u1);
}

} // namespace ep
