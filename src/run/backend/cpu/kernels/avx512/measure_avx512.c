/* Ceilings with AVX-512. */
#include "run/backend/cpu/measure.h"

#include <immintrin.h>

static double fma_loop(int64_t rounds) {
    enum { CHAINS = 16 };
    __m512 acc[CHAINS], a = _mm512_set1_ps(0.5f);
#pragma GCC unroll 16
    for (int c = 0; c < CHAINS; c++) acc[c] = _mm512_set1_ps((float)c);
    for (int64_t r = 0; r < rounds; r++) {
#pragma GCC unroll 16
        for (int c = 0; c < CHAINS; c++) {
            acc[c] = _mm512_fmadd_ps(acc[c], a, a);
            __asm__ volatile("" : "+v"(acc[c]));
        }
    }
    return (double)rounds * CHAINS * 16 * 2;
}

static uint64_t read_loop(const void *p, size_t bytes) {
    const char *s = p;
    __m512i x[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512()};
    for (size_t i = 0; i < bytes; i += 256) {
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++) {
            _mm_prefetch(s + i + 4096 + 64 * k, _MM_HINT_T0);
            x[k] = _mm512_xor_si512(x[k], _mm512_load_si512(s + i + 64 * k));
        }
    }
    x[0] = _mm512_xor_si512(_mm512_xor_si512(x[0], x[1]), _mm512_xor_si512(x[2], x[3]));
    return (uint64_t)_mm512_reduce_add_epi64(x[0]);
}

static void copy_loop(void *to, const void *from, size_t bytes) {
    char *d = to;
    const char *s = from;
    for (size_t i = 0; i < bytes; i += 128) {
#pragma GCC unroll 2
        for (int k = 0; k < 2; k++) {
            _mm_prefetch(s + i + 4096 + 64 * k, _MM_HINT_T0);
            _mm512_stream_si512((__m512i *)(void *)(d + i + 64 * k), _mm512_load_si512(s + i + 64 * k));
        }
    }
    _mm_sfence();
}

const ep_measure_loops ep_measure_avx512 = {fma_loop, NULL, read_loop, copy_loop};
