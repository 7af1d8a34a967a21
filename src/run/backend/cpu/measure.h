/* Loops that do nothing but reach a ceiling of this processor; one table an instruction set. */
#ifndef EP_CPU_MEASURE_H
#define EP_CPU_MEASURE_H

#include <epilogue/machine.h>

#include "base/status.h"

typedef struct ep_measure_loops {
    double (*fma)(int64_t rounds);  /* f32 fused multiply-adds in registers; returns the flops done */
    double (*bf16)(int64_t rounds); /* bf16 products with f32 sums in registers; NULL: no such instruction */
    /* Both take multiples of 4096 bytes, 64-byte aligned. The result of `read` depends on every byte. */
    uint64_t (*read)(const void *p, size_t bytes);
    void (*copy)(void *to, const void *from, size_t bytes); /* stores go past the caches */
} ep_measure_loops;

extern const ep_measure_loops ep_measure_portable;
#if defined(__x86_64__)
extern const ep_measure_loops ep_measure_avx2, ep_measure_avx512, ep_measure_avx512bf16, ep_measure_amxbf16;
#endif

/* Everything but dispatch_ns, which takes the engine. About two seconds. */
ep_status ep_cpu_measure(int threads, ep_error *err, ep_machine *out);

#endif
