/* bf16 GEMM tiles, vdpbf16ps: bound by the rate of that instruction, 1 a cycle on some processors and 2 on others.
 * Share of the instruction's peak: 97 to 99 % for whole blocks of 64 and 512 rows on an Intel processor (family 6, model 207) that starts
 * one every other cycle; there FMAs are twice as fast and the avx512 row is used. Where two start a cycle the loop is that of
 * the f32 row. Tile, blocks of k and no division of k up to 768 are those of a trial on Zen 5. */
#include <immintrin.h>
#include <pthread.h>

#include "base/clock.h"
#include "base/simd/simd_avx512.h"
#include "base/simd/vmath.h"

#define ACC_MR 14
#define ACC_QUAD
#define ACC_ROW 17 /* 14 rows 64 bytes apart would share a bank of L1 where addresses choose it */
#define ACC_B __m512bh
#define ACC_LOAD_B(p) ((__m512bh)_mm512_loadu_si512(p))
#define ACC_BROADCAST(p) ((__m512bh)_mm512_castps_si512(_mm512_set1_ps(*(p))))
#define ACC_MAC(a, b, s) ((v_f32)_mm512_dpbf16_ps((__m512)(s), a, b))
#include "run/backend/cpu/kernels/acc_template.h"

#define TILE_DTYPE_BF16
#include "run/backend/cpu/kernels/dtype_template.h"
#include "run/backend/cpu/kernels/tile_template.h"

/* Ticks of 64 times 14 independent steps of one instruction, the least of a few tries. */
#define EACH_14(X, i)                                                                                                  \
    X(i, 0) X(i, 1) X(i, 2) X(i, 3) X(i, 4) X(i, 5) X(i, 6) X(i, 7) X(i, 8) X(i, 9) X(i, 10) X(i, 11) X(i, 12) X(i, 13)
#define STEP(i, n) i " %%zmm15, %%zmm15, %%zmm" #n "\n"
#define RATE(NAME, INSTRUCTION)                                                                                        \
    static int64_t NAME(void) {                                                                                        \
        int64_t best = INT64_MAX;                                                                                      \
        for (int i = 0; i < 9; i++) {                                                                                  \
            int64_t t = ep_clock_ticks();                                                                              \
            __asm__ volatile("vxorps %%xmm15, %%xmm15, %%xmm15" ::: "xmm15");                                          \
            for (int k = 0; k < 64; k++)                                                                               \
                __asm__ volatile(EACH_14(STEP, INSTRUCTION)::                                                          \
                                     : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", \
                                       "xmm10", "xmm11", "xmm12", "xmm13");                                            \
            t = ep_clock_ticks() - t;                                                                                  \
            if (t < best) best = t;                                                                                    \
        }                                                                                                              \
        return best;                                                                                                   \
    }
RATE(rate_dot, "vdpbf16ps")
RATE(rate_fma, "vfmadd231ps")

static bool dot_pays;
static void measure_dot(void) {
    int64_t dot = INT64_MAX, fma = INT64_MAX; /* in turn: the wide units may take a while to wake */
    for (int i = 0; i < 3; i++) {
        int64_t d = rate_dot(), f = rate_fma();
        if (d < dot) dot = d;
        if (f < fma) fma = f;
    }
    dot_pays = dot < 2 * fma;
}

/* A dot product does the work of two FMAs and of the widening before them; some processors start one every other cycle
 * and two FMAs a cycle, so that the plain AVX-512 row is twice as fast. Measured once, a few microseconds. */
static bool usable(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, measure_dot);
    return dot_pays;
}

const ep_tuned_row ep_bf16_gemm_avx512bf16_t14x32 = {
    .isa_name = "avx512bf16",
    .isa = EP_ISA_AVX512_BF16,
    .tile = "t14x32",
    .whole_chunks = 24,
    .usable = usable,
    .unusable = "two FMAs beat its dot products (measured)",
    .vector_name = "avx512bf16",
    .gated_mixes = true,
    TILE_MEMBERS,
    ACC_MEMBERS,
};
