/* Ceilings of a processor without vector extensions that we know: plain C, as the compiler makes it. */
#include "run/backend/cpu/measure.h"

#include <string.h>

enum { LANES = 4, CHAINS = 8 };

static double fma_loop(int64_t rounds) {
    float acc[CHAINS][LANES], a[LANES];
    for (int l = 0; l < LANES; l++) a[l] = 0.5f;
    for (int c = 0; c < CHAINS; c++)
        for (int l = 0; l < LANES; l++) acc[c][l] = (float)(c + l);
    for (int64_t r = 0; r < rounds; r++)
        for (int c = 0; c < CHAINS; c++)
            for (int l = 0; l < LANES; l++) acc[c][l] = acc[c][l] * a[l] + a[l];
    volatile float keep = 0;
    for (int c = 0; c < CHAINS; c++)
        for (int l = 0; l < LANES; l++) keep = keep + acc[c][l];
    return (double)rounds * CHAINS * LANES * 2;
}

static uint64_t read_loop(const void *p, size_t bytes) {
    const uint64_t *v = p;
    uint64_t s[4] = {0};
    for (size_t i = 0; i < bytes / 8; i += 4)
        for (int k = 0; k < 4; k++) s[k] ^= v[i + (size_t)k];
    return s[0] ^ s[1] ^ s[2] ^ s[3];
}

static void copy_loop(void *to, const void *from, size_t bytes) {
    memcpy(to, from, bytes);
}

const ep_measure_loops ep_measure_portable = {fma_loop, NULL, read_loop, copy_loop};
