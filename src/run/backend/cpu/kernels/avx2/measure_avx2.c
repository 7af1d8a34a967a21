/* Ceilings with AVX2 and FMA. */
#include "run/backend/cpu/measure.h"

#include <immintrin.h>

/* Twelve chains cover the latency of both FMA units. The empty asm keeps every step a step. */
static double fma_loop(int64_t rounds) {
    enum { CHAINS = 12 };
    __m256 acc[CHAINS], a = _mm256_set1_ps(0.5f);
#pragma GCC unroll 12
    for (int c = 0; c < CHAINS; c++) acc[c] = _mm256_set1_ps((float)c);
    for (int64_t r = 0; r < rounds; r++) {
#pragma GCC unroll 12
        for (int c = 0; c < CHAINS; c++) {
            acc[c] = _mm256_fmadd_ps(acc[c], a, a);
            __asm__ volatile("" : "+x"(acc[c]));
        }
    }
    return (double)rounds * CHAINS * 8 * 2;
}

static uint64_t read_loop(const void *p, size_t bytes) {
    const char *s = p;
    __m256i x[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256()};
    for (size_t i = 0; i < bytes; i += 128) {
        _mm_prefetch(s + i + 4096, _MM_HINT_T0);
        _mm_prefetch(s + i + 4160, _MM_HINT_T0);
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++)
            x[k] = _mm256_xor_si256(x[k], _mm256_load_si256((const __m256i *)(const void *)(s + i + 32 * k)));
    }
    x[0] = _mm256_xor_si256(_mm256_xor_si256(x[0], x[1]), _mm256_xor_si256(x[2], x[3]));
    return (uint64_t)(_mm256_extract_epi64(x[0], 0) ^ _mm256_extract_epi64(x[0], 1) ^ _mm256_extract_epi64(x[0], 2) ^
                      _mm256_extract_epi64(x[0], 3));
}

static void copy_loop(void *to, const void *from, size_t bytes) {
    char *d = to;
    const char *s = from;
    for (size_t i = 0; i < bytes; i += 64) {
        _mm_prefetch(s + i + 4096, _MM_HINT_T0);
#pragma GCC unroll 2
        for (int k = 0; k < 2; k++)
            _mm256_stream_si256((__m256i *)(void *)(d + i + 32 * k),
                                _mm256_load_si256((const __m256i *)(const void *)(s + i + 32 * k)));
    }
    _mm_sfence();
}

const ep_measure_loops ep_measure_avx2 = {fma_loop, NULL, read_loop, copy_loop};
