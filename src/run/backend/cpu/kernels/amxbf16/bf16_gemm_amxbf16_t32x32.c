/* bf16 GEMM tiles on AMX: bound by tdpbf16ps, one in 16 cycles; two tiles of x and two of weights feed four products.
 * Share of the peak of one core with operands that aren't zeros (2.33 TFLOP/s; zeros give 2.9): 80 % in a loop of sweeps,
 * 77 % for gate + up without their epilogue, 61 % with it; 1 row: the measured read bandwidth. Last change: few row
 * tiles fetch weights in four streams, 12 % at 64 rows (bench/ladder/cpu_gemm.md). */
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
        ahead = ep_fetch(ahead, lines, chunks);
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
        ahead = ep_fetch(ahead, lines, chunks);
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
            if (q % 2 == 0) ahead = ep_fetch(ahead, lines / 8, chunks * 8);
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

/* The same over four panels at a time: several streams from memory are faster than one. */
enum { ACROSS_ROWS = 3 };
static inline __attribute__((always_inline)) void across_few(const int rows, int64_t chunks, const char *a,
                                                             const char *b, int64_t panel_bytes, float *c,
                                                             int64_t panel_sums, bool first) {
    __m512 s[EP_ACROSS * ACROSS_ROWS][2];
#pragma GCC unroll 12
    for (int i = 0; i < EP_ACROSS * rows; i++)
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++)
            s[i][h] = first ? _mm512_setzero_ps()
                            : _mm512_loadu_ps(c + i / rows * panel_sums + (int64_t)(i % rows) * 32 + h * 16);
    for (int64_t i = 0; i < chunks; i++, a += 2048)
        for (int q = 0; q < 16; q++, b += 128) {
            __m512bh v[ACROSS_ROWS];
#pragma GCC unroll 3
            for (int r = 0; r < rows; r++) {
                int x;
                memcpy(&x, a + r * 64 + q * 4, 4);
                v[r] = (__m512bh)_mm512_set1_epi32(x);
            }
#pragma GCC unroll 4
            for (int p = 0; p < EP_ACROSS; p++) {
                const char *w = b + p * panel_bytes;
                __builtin_prefetch(w + 1024, 0, 2);
                __builtin_prefetch(w + 1088, 0, 2);
                __m512bh b0 = (__m512bh)_mm512_load_si512(w), b1 = (__m512bh)_mm512_load_si512(w + 64);
#pragma GCC unroll 3
                for (int r = 0; r < rows; r++) {
                    s[p * rows + r][0] = _mm512_dpbf16_ps(s[p * rows + r][0], v[r], b0);
                    s[p * rows + r][1] = _mm512_dpbf16_ps(s[p * rows + r][1], v[r], b1);
                }
            }
        }
#pragma GCC unroll 12
    for (int i = 0; i < EP_ACROSS * rows; i++)
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++)
            _mm512_storeu_ps(c + i / rows * panel_sums + (int64_t)(i % rows) * 32 + h * 16, s[i][h]);
}

static void across(int rows, int64_t chunks, const void *a, const void *b, int64_t panel_bytes, float *c,
                   int64_t panel_sums, bool first) {
    switch (rows) {
    case 1: across_few(1, chunks, a, b, panel_bytes, c, panel_sums, first); break;
    case 2: across_few(2, chunks, a, b, panel_bytes, c, panel_sums, first); break;
    default: across_few(3, chunks, a, b, panel_bytes, c, panel_sums, first); break;
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

/* One row of finished sums, on the vector ports while the tile unit works. */
typedef struct finish {
    const float *sums, *table;
    char *out;
    const char *residual;
    int64_t out_row, out_tile, residual_row;
    v_f32 bias0, bias1;
    bool eager, biased;
    int row, end;
} finish;

enum { FINISH_NONE, FINISH_GATED, FINISH_TANH, FINISH_ERF, FINISH_PLAIN };

/* act(gate) of bf16 numbers, rounded to bf16. The gelus' short forms take vector ports, which have nothing else to do here;
 * lookups wait for the ports that tiles are loaded by. Far from 0 the table is shorter than the formula. */
static inline __attribute__((always_inline)) v_f32 finish_act(const finish *f, const int kind, v_h16 gate) {
    if (kind != FINISH_GATED) {
        v_f32 g = v_widen_bf16(gate);
        if (__builtin_expect(v_all(v_lt(v_abs(g), v_set1(V_NEAR_BF16))), 1))
            return TILE_ROUND(kind == FINISH_TANH ? v_gelu_tanh_near_bf16(g) : v_gelu_erf_near_bf16(g));
    }
    return v_gather(f->table, v_index16(gate));
}

static inline __attribute__((always_inline)) void finish_row(finish *f, const int kind) {
    const float *s = f->sums + f->row * 32;
    char *out = f->out + f->row * f->out_row;
    __asm__ volatile("prefetchw %0" ::"m"(*(out + f->out_tile))); /* the next tile's line, which nobody has yet */
    v_f32 y0 = v_load(s) + f->bias0, y1 = v_load(s + 16) + f->bias1;
    if (kind != FINISH_PLAIN && !f->biased) {
        /* Tile products leave no denormals, which this conversion would take for zeros. */
        __m512i both = (__m512i)_mm512_cvtne2ps_pbh((__m512)y1, (__m512)y0);
        v_f32 up = v_widen_bf16((v_h16)_mm512_extracti64x4_epi64(both, 1));
        TILE_STORE(out, finish_act(f, kind, (v_h16)_mm512_castsi512_si256(both)) * up);
    } else if (kind != FINISH_PLAIN) {
        TILE_STORE(out, tile_act_rounded(EP_ACT_COUNT, f->table, y0) * TILE_ROUND(y1));
    } else {
        if (f->residual) {
            const char *r = f->residual + f->row * f->residual_row;
            if (f->eager) y0 = TILE_ROUND(y0), y1 = TILE_ROUND(y1);
            y0 += TILE_LOAD(r), y1 += TILE_LOAD(r + 32);
        }
        TILE_STORE(out, y0);
        TILE_STORE(out + 32, y1);
    }
    f->row++;
}

static inline __attribute__((always_inline)) void finish_rows(finish *f, const int kind, int most) {
    if (kind == FINISH_NONE) return;
    for (int i = 0; i < most && f->row < f->end; i++) finish_row(f, kind);
}

/* The sums of the tile before leave a register just before this tile's come into it. */
#define SUMS(n, at)                                                                                                    \
    do {                                                                                                               \
        if (before) _tile_stored(n, before + (at), 128);                                                               \
        if (first)                                                                                                     \
            _tile_zero(n);                                                                                             \
        else                                                                                                           \
            _tile_loadd(n, c + (at), 128);                                                                             \
    } while (0)

/* Weights of the block stay in L1; x passes by with a hint not to displace them, always one step ahead of its use. */
static inline __attribute__((always_inline)) void sweep_tile(const ep_sweep *s, const bool first, const int kind,
                                                             const char *a, const char *next, float *c, float *before,
                                                             const char *ahead, finish *f, int each) {
    const int64_t chunks = s->chunks;
    const int lines = s->lines;
    const char *b = s->b, *x = chunks > 1 ? a + 2048 : next;
    ahead = ep_fetch(ahead, lines, chunks);
    _tile_loadd(6, b, 128);
    SUMS(0, 0);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + 64, 128);
    SUMS(1, 16);
    _tile_dpbf16ps(1, 4, 7);
    _tile_stream_loadd(4, x, 64);
    SUMS(2, 512);
    _tile_dpbf16ps(2, 5, 6);
    SUMS(3, 528);
    _tile_dpbf16ps(3, 5, 7);
    _tile_stream_loadd(5, x + 1024, 64);
    finish_rows(f, kind, each);
    for (int64_t i = 1; i < chunks; i++) {
        b += 2048;
        x = i + 1 < chunks ? x + 2048 : next;
        ahead = ep_fetch(ahead, lines, chunks);
        _tile_loadd(6, b, 128);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, b + 64, 128);
        _tile_dpbf16ps(1, 4, 7);
        _tile_stream_loadd(4, x, 64);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
        _tile_stream_loadd(5, x + 1024, 64);
        finish_rows(f, kind, each);
    }
}

static inline __attribute__((always_inline)) void sweep_tiles(const ep_sweep *s, const bool first, const int kind) {
    finish f = {.bias0 = v_set1(0), .bias1 = v_set1(0)};
    const ep_tile *done = s->done;
    int each = 0;
    if (kind != FINISH_NONE) {
        const float *bias1 = kind != FINISH_PLAIN ? done->bias1 : done->bias0 ? done->bias0 + 16 : NULL;
        if (done->bias0) f.bias0 = v_load(done->bias0);
        if (bias1) f.bias1 = v_load(bias1);
        f.sums = done->sums, f.table = done->table, f.out = done->out, f.out_row = done->out_row,
        f.out_tile = s->done_tile;
        f.residual = done->residual, f.residual_row = done->residual_row;
        f.biased = done->bias0 || done->bias1;
        f.eager = done->rounding == EP_ROUNDING_EAGER;
        each = (int)((s->row1 - s->row0 + s->chunks - 1) / s->chunks);
    }
    const char *a = s->a;
    float *before = NULL;
    _tile_stream_loadd(4, a, 64);
    _tile_stream_loadd(5, a + 1024, 64);
    for (int64_t t = 0; t < s->tiles; t++, a += s->a_tile) {
        float *c = s->c + t * 1024;
        f.row = s->row0;
        f.end = t + 1 == s->tiles && s->end < s->row1 ? s->end : s->row1;
        sweep_tile(s, first, kind, a, t + 1 < s->tiles ? a + s->a_tile : a, c, before,
                   s->ahead + t * s->chunks * s->lines * 64, &f, each);
        before = c;
        if (kind == FINISH_NONE) continue; /* all null, and null is not to be counted from */
        f.sums += 1024;
        f.out += f.out_tile;
        if (f.residual) f.residual += 32 * f.residual_row;
    }
    _tile_stored(0, before, 128);
    _tile_stored(1, before + 16, 128);
    _tile_stored(2, before + 512, 128);
    _tile_stored(3, before + 528, 128);
}

static int kind_of(const ep_sweep *s) {
    if (!s->done) return FINISH_NONE;
    if (!s->pair) return FINISH_PLAIN;
    return s->done->act == EP_ACT_GELU_TANH ? FINISH_TANH : s->done->act == EP_ACT_GELU_ERF ? FINISH_ERF : FINISH_GATED;
}

static void sweep(const ep_sweep *s) {
    __asm__ volatile("" ::: "memory");
    switch (kind_of(s)) {
    case FINISH_NONE: s->first ? sweep_tiles(s, true, FINISH_NONE) : sweep_tiles(s, false, FINISH_NONE); break;
    case FINISH_GATED: s->first ? sweep_tiles(s, true, FINISH_GATED) : sweep_tiles(s, false, FINISH_GATED); break;
    case FINISH_TANH: s->first ? sweep_tiles(s, true, FINISH_TANH) : sweep_tiles(s, false, FINISH_TANH); break;
    case FINISH_ERF: s->first ? sweep_tiles(s, true, FINISH_ERF) : sweep_tiles(s, false, FINISH_ERF); break;
    default: s->first ? sweep_tiles(s, true, FINISH_PLAIN) : sweep_tiles(s, false, FINISH_PLAIN); break;
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
    .block_chunks = 16,
    .begin = begin,
    .end = end,
    .acc = acc,
    .across = across,
    .across_rows = ACROSS_ROWS,
    .sweep = sweep,
    .gated = tile_gated,
    .plain = tile_plain,
    .fill_table = tile_fill_table,
    .fill_pairs = gated_fill_pairs,
    .vector_name = "avx512bf16",
    .lanes = 16,
    .gated_row = gated_row,
    .gated_pairs = gated_pairs,
    .gated_back = gated_back,
    .gated_mixes = true,
    .usable = ep_isa_request_amx,
    .unusable = "the system refuses AMX tiles to this process",
};
