/* The ceiling of vdpbf16ps: pairs of bf16 products summed in f32. */
#include "run/backend/cpu/measure.h"

#include <immintrin.h>

static double bf16_loop(int64_t rounds) {
    enum { CHAINS = 16 };
    __m512 acc[CHAINS];
    __m512bh a = (__m512bh)_mm512_set1_epi16(0x3f00);
#pragma GCC unroll 16
    for (int c = 0; c < CHAINS; c++) acc[c] = _mm512_setzero_ps();
    for (int64_t r = 0; r < rounds; r++) {
#pragma GCC unroll 16
        for (int c = 0; c < CHAINS; c++) {
            acc[c] = _mm512_dpbf16_ps(acc[c], a, a);
            __asm__ volatile("" : "+v"(acc[c]));
        }
    }
    return (double)rounds * CHAINS * 32 * 2;
}

const ep_measure_loops ep_measure_avx512bf16 = {NULL, bf16_loop, NULL, NULL};
