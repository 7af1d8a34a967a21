/* The machine's ceilings for bench_tuned: products from registers only, and reads with prefetch. Inline assembly, so
 * that the file needs no ISA flags. */
#ifndef EP_BENCH_TUNED_PEAK_H
#define EP_BENCH_TUNED_PEAK_H

#include <omp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/isa.h"
#include "run/backend/cpu/tuned.h"

// clang-format off
#define PEAK_28(X)                                                                                                     \
    X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15) X(16) X(17) X(18) X(19)      \
    X(20) X(21) X(22) X(23) X(24) X(25) X(26) X(27)
// clang-format on
#define PEAK_12(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#define PEAK_FMA512(n) "vfmadd231ps %%zmm31, %%zmm31, %%zmm" #n "\n"
#define PEAK_DP512(n) "vdpbf16ps %%zmm31, %%zmm31, %%zmm" #n "\n"
#define PEAK_FMA256(n) "vfmadd231ps %%ymm15, %%ymm15, %%ymm" #n "\n"
#define PEAK_XMM                                                                                                       \
    "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12",         \
        "xmm13", "xmm14", "xmm15"

static inline void peak_fma512(long n) {
    __asm__ volatile("vpxord %%zmm31, %%zmm31, %%zmm31" ::: "memory");
    for (long i = 0; i < n; i++) __asm__ volatile(PEAK_28(PEAK_FMA512)::: PEAK_XMM);
    __asm__ volatile("vzeroupper" ::: "memory");
}
static inline void peak_dp512(long n) {
    __asm__ volatile("vpxord %%zmm31, %%zmm31, %%zmm31" ::: "memory");
    for (long i = 0; i < n; i++) __asm__ volatile(PEAK_28(PEAK_DP512)::: PEAK_XMM);
    __asm__ volatile("vzeroupper" ::: "memory");
}
static inline void peak_fma256(long n) {
    __asm__ volatile("vxorps %%ymm15, %%ymm15, %%ymm15" ::: PEAK_XMM);
    for (long i = 0; i < n; i++) __asm__ volatile(PEAK_12(PEAK_FMA256)::: PEAK_XMM);
    __asm__ volatile("vzeroupper" ::: "memory");
}
static inline void peak_amx(long n) {
    struct {
        uint8_t palette, start, pad[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } c;
    memset(&c, 0, sizeof c);
    c.palette = 1;
    for (int i = 0; i < 8; i++) c.bytes[i] = 64, c.rows[i] = 16;
    /* Ones: with zeros the unit draws less power and runs a fifth faster than with any data. */
    uint16_t ones[512];
    for (int i = 0; i < 512; i++) ones[i] = 0x3f80;
    __asm__ volatile("ldtilecfg %0\n tileloadd (%1,%2,1), %%tmm4\n tileloadd (%1,%2,1), %%tmm5\n"
                     "tileloadd (%1,%2,1), %%tmm6\n tileloadd (%1,%2,1), %%tmm7" ::"m"(c),
                     "r"(ones), "r"((long)64)
                     : "memory");
    for (long i = 0; i < n; i++)
        __asm__ volatile("tdpbf16ps %%tmm6, %%tmm4, %%tmm0\n tdpbf16ps %%tmm7, %%tmm4, %%tmm1\n"
                         "tdpbf16ps %%tmm6, %%tmm5, %%tmm2\n tdpbf16ps %%tmm7, %%tmm5, %%tmm3" ::
                             : "memory");
    __asm__ volatile("tilerelease" ::: "memory");
}

/* GFLOP/s of the multiply-adds that a row is made of, in a burst of about a millisecond. */
static inline double bench_peak_gflops(int threads, const ep_tuned_row *row) {
    bool amx = row->isa == EP_ISA_AMX_BF16, dp = row->isa == EP_ISA_AVX512_BF16, wide = row->isa >= EP_ISA_AVX512;
    long n = amx ? 40000 : dp ? 50000 : wide ? 200000 : 400000;
    int64_t t = ep_clock_ns();
#pragma omp parallel num_threads(threads)
    (amx ? peak_amx : dp ? peak_dp512 : wide ? peak_fma512 : peak_fma256)(n);
    t = ep_clock_ns() - t;
    double flops = amx ? 4 * 16384.0 : dp ? 28 * 64.0 : wide ? 28 * 32.0 : 12 * 16.0;
    return flops * (double)n * threads / (double)t;
}

/* GB/s of reading the next 64 MiB of 512, every thread four streams, which is faster than one. */
static inline double bench_read_gbs(int threads) {
    static char *buffer;
    static size_t next;
    const size_t size = 512u << 20, part = 64u << 20, share = part / (size_t)threads / 4 / 128 * 128;
    if (!buffer) {
        buffer = ep_tuned_alloc(size);
        if (!buffer) exit(1);
        memset(buffer, 1, size);
    }
    const char *from = buffer + next;
    next = (next + part) % size;
    int64_t t = ep_clock_ns();
#pragma omp parallel num_threads(threads)
    {
        const char *p = from + share * 4 * (size_t)omp_get_thread_num();
        typedef long long v2 __attribute__((vector_size(16)));
        v2 s = {0, 0};
        for (const char *end = p + share; p < end; p += 128)
            for (size_t i = 0; i < 4; i++)
                for (const char *q = p + i * share, *line = q; line < q + 128; line += 64) {
                    __builtin_prefetch(line + 1024, 0, 2); /* into L2: more of them in flight than into L1 */
                    s ^= *(const v2 *)line ^ *(const v2 *)(line + 16) ^ *(const v2 *)(line + 32) ^
                         *(const v2 *)(line + 48);
                }
        __asm__ volatile("" ::"x"(s));
    }
    return (double)(share * 4) * threads / (double)(ep_clock_ns() - t);
}

#endif
