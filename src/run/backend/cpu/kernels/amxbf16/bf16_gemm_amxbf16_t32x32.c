/* bf16 GEMM tiles on AMX: bound by tdpbf16ps, one in 16 cycles; two tiles of x and two of weights feed four products,
 * so a load has 16 cycles, which L1 sustains and L2 nearly.
 * Share of the peak: 83 to 89 % in L1, 45 to 64 % with x from L2 and weights streaming, 25 to 36 % for whole blocks of 512
 * rows and more on a guest with 15 GB/s a core; 1 row: the measured read bandwidth. Last change: 1 to 4 rows on vectors,
 * 86 to 94 % of the bandwidth before (bench/ladder/cpu_gemm.md). */
#include <immintrin.h>
#include <string.h>

#include "base/simd/simd_avx512.h"
#include "base/simd/vmath.h"
#include "run/backend/cpu/tuned.h"

#define TILE_DTYPE_BF16
#define TILE_HALF 16
#define TILE_GATED tile_gated
#define TILE_PLAIN tile_plain
#include "run/backend/cpu/kernels/dtype_template.h"
#include "run/backend/cpu/kernels/tile_template.h"

/* Eight tiles of 16 rows by 64 bytes. The compiler's intrinsic declares only 8 bytes of its operand as read. */
static void begin(void) {
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config;
    memset(&config, 0, sizeof config);
    config.palette = 1;
    for (int i = 0; i < 8; i++) {
        config.row_bytes[i] = 64;
        config.rows[i] = 16;
    }
    __asm__ volatile("ldtilecfg %0" ::"m"(config));
}

static void end(void) {
    __asm__ volatile("tilerelease" ::: "memory");
}

/* 17 to 32 rows: sums in tiles 0 to 3, x in 4 and 5, weights in 6 and 7. */
static void acc32(int64_t chunks, const char *a, const char *b, float *c, bool first, const char *ahead, int lines) {
    if (first) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    } else {
        _tile_loadd(0, c, 128);
        _tile_loadd(1, c + 16, 128);
        _tile_loadd(2, c + 512, 128);
        _tile_loadd(3, c + 528, 128);
    }
    for (int64_t i = 0; i < chunks; i++, a += 2048, b += 2048) {
        for (int l = 0; l < lines; l++, ahead += 64) __builtin_prefetch(ahead, 0, 2);
        _tile_loadd(6, b, 128);
        _tile_loadd(4, a, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, b + 64, 128);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, a + 1024, 64);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c, 128);
    _tile_stored(1, c + 16, 128);
    _tile_stored(2, c + 512, 128);
    _tile_stored(3, c + 528, 128);
}

static void acc16(int64_t chunks, const char *a, const char *b, float *c, bool first, const char *ahead, int lines) {
    if (first) {
        _tile_zero(0);
        _tile_zero(1);
    } else {
        _tile_loadd(0, c, 128);
        _tile_loadd(1, c + 16, 128);
    }
    for (int64_t i = 0; i < chunks; i++, a += 2048, b += 2048) {
        for (int l = 0; l < lines; l++, ahead += 64) __builtin_prefetch(ahead, 0, 2);
        _tile_loadd(4, a, 64);
        _tile_loadd(6, b, 128);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, b + 64, 128);
        _tile_dpbf16ps(1, 4, 7);
    }
    _tile_stored(0, c, 128);
    _tile_stored(1, c + 16, 128);
}

/* 1 to 4 rows: weights stream from memory, so that vectors are fast enough, and of x they read the rows that exist and
 * not 16. */
static inline __attribute__((always_inline)) void acc_few(const int rows, int64_t chunks, const char *a, const char *b,
                                                          float *c, bool first, const char *ahead, int lines) {
    __m512 s0[4], s1[4];
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
        s0[r] = first ? _mm512_setzero_ps() : _mm512_loadu_ps(c + r * 32);
        s1[r] = first ? _mm512_setzero_ps() : _mm512_loadu_ps(c + r * 32 + 16);
    }
    for (int64_t i = 0; i < chunks; i++, a += 2048)
        for (int q = 0; q < 16; q++, b += 128) {
            if (2 * q < lines) __builtin_prefetch(ahead, 0, 2);
            if (2 * q + 1 < lines) __builtin_prefetch(ahead + 64, 0, 2);
            ahead += 2 * q + 1 < lines ? 128 : 0;
            __m512bh b0 = (__m512bh)_mm512_load_si512(b), b1 = (__m512bh)_mm512_load_si512(b + 64);
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++) {
                int x;
                memcpy(&x, a + r * 64 + q * 4, 4);
                __m512bh v = (__m512bh)_mm512_set1_epi32(x);
                s0[r] = _mm512_dpbf16_ps(s0[r], v, b0);
                s1[r] = _mm512_dpbf16_ps(s1[r], v, b1);
            }
        }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
        _mm512_storeu_ps(c + r * 32, s0[r]);
        _mm512_storeu_ps(c + r * 32 + 16, s1[r]);
    }
}

/* The tile instructions' memory is not in their intrinsics' constraints; the barriers keep stores on their side. */
static void acc(int rows, int64_t chunks, const void *a, const void *b, float *c, bool first, const char *ahead,
                int lines) {
    __asm__ volatile("" ::: "memory");
    switch (rows) {
    case 1: acc_few(1, chunks, a, b, c, first, ahead, lines); break;
    case 2: acc_few(2, chunks, a, b, c, first, ahead, lines); break;
    case 3: acc_few(3, chunks, a, b, c, first, ahead, lines); break;
    case 4: acc_few(4, chunks, a, b, c, first, ahead, lines); break;
    default: (rows > 16 ? acc32 : acc16)(chunks, a, b, c, first, ahead, lines); break;
    }
    __asm__ volatile("" ::: "memory");
}

const ep_tuned_row ep_bf16_gemm_amxbf16_t32x32 = {
    .isa_name = "amxbf16",
    .isa = EP_ISA_AMX_BF16,
    .dtype = EP_DTYPE_BF16,
    .tile = "t32x32",
    .layout = EP_LAYOUT_BF16_16,
    .half = 16,
    .mr = 32,
    .a_bytes = 64,
    .chunk_k = 32,
    .block_chunks = 8,
    .begin = begin,
    .end = end,
    .acc = acc,
    .gated = tile_gated,
    .plain = tile_plain,
    .fill_table = tile_fill_table,
    .fill_slopes = gated_fill_slopes,
    .vector_name = "avx512bf16",
    .lanes = 16,
    .gated_row = gated_row,
    .gated_pairs = gated_pairs,
    .gated_back = gated_back,
    .usable = ep_isa_request_amx,
    .unusable = "the system refuses AMX tiles to this process",
};
