/* Between storage types and f32. Packed conversions run at full rate; a single one would take the unit that also makes
 * exponentials and reciprocals, at a quarter of it. */
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

namespace ep {

/* lo in the low half. */
__device__ __forceinline__ uint32_t pack_bf16(float lo, float hi) {
    uint32_t r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}

__device__ __forceinline__ uint32_t pack_f16(float lo, float hi) {
    uint32_t r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}

template <typename S> __device__ __forceinline__ float widen(S v);
template <> __device__ __forceinline__ float widen(__nv_bfloat16 v) {
    return __bfloat162float(v);
}
template <> __device__ __forceinline__ float widen(__half v) {
    return __half2float(v);
}
template <> __device__ __forceinline__ float widen(float v) {
    return v;
}

template <typename S> __device__ __forceinline__ S narrow(float v);
template <> __device__ __forceinline__ __nv_bfloat16 narrow(float v) {
    return __ushort_as_bfloat16((unsigned short)pack_bf16(v, 0.0f));
}
template <> __device__ __forceinline__ __half narrow(float v) {
    return __ushort_as_half((unsigned short)pack_f16(v, 0.0f));
}
template <> __device__ __forceinline__ float narrow(float v) {
    return v;
}

} // namespace ep
