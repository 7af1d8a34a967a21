/* Warpgroup matrix products: d[64, N] (+)= a[64, 16] b[N, 16]^T, both from 128-byte-swizzled shared memory, f32 sums.
 * PTX ISA 8.0, "Asynchronous Warpgroup Level Matrix Instructions". */
#pragma once
#include <stdint.h>

namespace ep {

/* Descriptor of a K-major tile with rows of 128 bytes, 128-byte swizzle: groups of 8 rows lie 1024 bytes apart. */
__device__ __forceinline__ uint64_t wgmma_descriptor(uint32_t addr) {
    return (uint64_t)((addr & 0x3ffff) >> 4) | (uint64_t)1 << 16 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}

__device__ __forceinline__ void wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int N> __device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

/* Keeps the compiler from moving accumulators across an asynchronous product. */
template <int N> __device__ __forceinline__ void wgmma_hold(float (&d)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
}

/* Names of the sums in the assembler's text, and the sums themselves. */
#define EP_R4 "%0, %1, %2, %3"
#define EP_R8 EP_R4 ", %4, %5, %6, %7"
#define EP_R16 EP_R8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define EP_R32 EP_R16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define EP_R48                                                                                                         \
    EP_R32                                                                                                             \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define EP_R64                                                                                                         \
    EP_R32                                                                                                             \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"                                 \
    ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define EP_R96                                                                                                         \
    EP_R64                                                                                                             \
    ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"                                 \
    ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define EP_R112                                                                                                        \
    EP_R96                                                                                                             \
    ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"
#define EP_R128                                                                                                        \
    EP_R112                                                                                                            \
    ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define EP_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define EP_D8(i) EP_D4(i), EP_D4(i + 4)
#define EP_D16(i) EP_D8(i), EP_D8(i + 8)
#define EP_D32(i) EP_D16(i), EP_D16(i + 16)
#define EP_D48(i) EP_D32(i), EP_D16(i + 32)
#define EP_D64(i) EP_D32(i), EP_D32(i + 32)
#define EP_D96(i) EP_D64(i), EP_D32(i + 64)
#define EP_D112(i) EP_D96(i), EP_D16(i + 96)
#define EP_D128(i) EP_D64(i), EP_D64(i + 64)

/* d[64, 2 SUMS] (+)= a b^T; A, B, P: the numbers behind the sums', of the descriptors and of `accumulate`. */
#define EP_WGMMA(TYPE, N, SUMS, A, B, P)                                                                               \
    __device__ __forceinline__ void wgmma_##TYPE(float(&d)[SUMS], uint64_t a, uint64_t b, int accumulate) {            \
        asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, %" #P ", 0;\n"                                                \
                     " wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." #TYPE "." #TYPE " {" EP_R##SUMS                \
                     " }, %" #A ", %" #B ", p, 1, 1, 0, 0;\n}"                                                         \
                     : EP_D##SUMS(0)                                                                                   \
                     : "l"(a), "l"(b), "r"(accumulate));                                                               \
    }
EP_WGMMA(bf16, 256, 128, 128, 129, 130)
EP_WGMMA(f16, 256, 128, 128, 129, 130)
EP_WGMMA(bf16, 224, 112, 112, 113, 114)
EP_WGMMA(f16, 224, 112, 112, 113, 114)
EP_WGMMA(bf16, 192, 96, 96, 97, 98)
EP_WGMMA(f16, 192, 96, 96, 97, 98)
EP_WGMMA(bf16, 128, 64, 64, 65, 66)
EP_WGMMA(f16, 128, 64, 64, 65, 66)
EP_WGMMA(bf16, 96, 48, 48, 49, 50)
EP_WGMMA(f16, 96, 48, 48, 49, 50)
EP_WGMMA(bf16, 64, 32, 32, 33, 34)
EP_WGMMA(f16, 64, 32, 32, 33, 34)
EP_WGMMA(bf16, 32, 16, 16, 17, 18)
EP_WGMMA(f16, 32, 16, 16, 17, 18)
EP_WGMMA(bf16, 16, 8, 8, 9, 10)
EP_WGMMA(f16, 16, 8, 8, 9, 10)
EP_WGMMA(bf16, 8, 4, 4, 5, 6)
EP_WGMMA(f16, 8, 4, 4, 5, 6)

} // namespace ep
