/* bf16 GEMM tiles on AMX: bound by tdpbf16ps, one in 16 cycles; two tiles of x and two of weights feed four products.
 * Share of the peak of one core with operands that aren't zeros (2.33 TFLOP/s; zeros give 2.9): 81 to 85 % in a loop of
 * sweeps, 75 % for gate + up without their epilogue, 61 to 64 % with it; 1 row: the measured read bandwidth. Last changes:
 * a ring of sums in L1 and x where it lies for small k, 0.28 to 0.95 of the time; tests of gelus once a sweep, 0.98 of gate +
 * up; all blocks of k in one sweep, 0.97 at 64 rows (bench/ladder/cpu_gemm.md). */
#include <immintrin.h>
#include <string.h>

#include "base/simd/simd_avx512.h"
#include "base/simd/vmath.h"
#include "run/backend/cpu/tuned.h"

#define TILE_DTYPE_BF16
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

/* The rows of finished sums that a sweep makes results of, on the vector ports while the tile unit works. */
enum { TILE_ROWS = 32, FINISH_ROWS = 1024 }; /* of a sweep, at most */
enum { FINISH_NONE, FINISH_GATED, FINISH_TANH, FINISH_ERF, FINISH_PLAIN };
typedef struct finish {
    const ep_tile *tile;
    const float *sums;            /* the next row */
    const float *ring, *ring_end; /* where sums go on from the end of a ring; or NULL */
    char *out;
    const char *residual;
    int64_t out_jump;          /* from a tile's last row to the next one's first */
    int64_t out_tile, tiles;   /* tiles: behind this one */
    int64_t due;               /* grows by `rows` a step; one is due at as many as k has chunks */
    int rows, rows_last, left; /* of a tile, of the last one; left: in this one */
    bool biased, eager;
    v_f32 bias0, bias1;
    /* Gelus take three stages, a row in each at any time: results that come late would hold up the tile unit. */
    v_f32 cubic[8];       /* v_lookup32's tables for v_gelu_*_near_bf16 */
    v_f32 gate, up0;      /* behind the first stage: g and u, rounded */
    v_f32 act, up1;       /* behind the second: act(g), not yet rounded */
    __mmask16 odd0, odd1; /* lanes that this way is not right for */
    v_f32 spoiled;        /* NaN: some result so far was infinite or NaN */
    unsigned flags;       /* MXCSR as it was before the sweep */
    uint16_t *odd;        /* of every row that is behind the third: the lanes that are to be made again */
    const float *sums0, *sums1;
    char *out0, *out1;
} finish;

static inline __attribute__((always_inline)) void finish_next(finish *f) {
    if (--f->left > 0) {
        f->sums += 32, f->out += f->tile->out_row;
        if (f->residual) f->residual += f->tile->residual_row;
    } else if (f->tiles > 0) {
        f->sums += 32, f->out += f->out_jump;
        if (f->sums == f->ring_end) f->sums = f->ring;
        if (f->residual) f->residual += f->tile->residual_row;
        f->left = --f->tiles > 0 ? f->rows : f->rows_last;
    }
}

static inline __attribute__((always_inline)) void finish_table_row(const float *table, v_f32 y0, v_f32 y1, char *out) {
    TILE_STORE(out, tile_act_rounded(EP_ACT_COUNT, table, y0) * TILE_ROUND(y1));
}

static inline __attribute__((always_inline)) void finish_plain_row(const finish *f) {
    v_f32 y0 = v_load(f->sums) + f->bias0, y1 = v_load(f->sums + 16) + f->bias1;
    if (f->residual) {
        if (f->eager) y0 = TILE_ROUND(y0), y1 = TILE_ROUND(y1);
        y0 += TILE_LOAD(f->residual), y1 += TILE_LOAD(f->residual + 32);
    } else if (!f->biased) { /* tile products leave no denormals, which this conversion would flush */
        __m512bh h = _mm512_cvtne2ps_pbh((__m512)y1, (__m512)y0);
        memcpy(f->out, &h, 64);
        return;
    }
    v_store_two_bf16(f->out, y0, y1);
}

static __attribute__((noinline)) void finish_odd_row(const ep_tile *t, const float *s, char *out) {
    const v_f32 none = v_set1(0);
    finish_table_row(t->table, v_load(s) + (t->bias0 ? v_load(t->bias0) : none),
                     v_load(s + 16) + (t->bias1 ? v_load(t->bias1) : none), out);
}

/* v_round_bf16 where the lanes that it is wrong for are looked for elsewhere: denormals, what isn't finite, beyond 2^111, -0. */
V_FN v_f32 finish_round(v_f32 x) {
    return v_fma(x, v_set1(65536.0f), x * v_set1(-65535.0f));
}

V_FN v_f32 finish_lookup(const finish *f, int table, v_i32 at) {
    return (v_f32)_mm512_permutex2var_ps((__m512)f->cubic[2 * table], (__m512i)at, (__m512)f->cubic[2 * table + 1]);
}

/* Tile products leave no denormals; their -0 plus a bias of 0, which is not added here, is the 0 that rounding makes of it. */
static inline __attribute__((always_inline)) void finish_first(finish *f) {
    v_f32 y0 = v_load(f->sums), y1 = v_load(f->sums + 16);
    f->odd0 = 0;
    if (f->biased) {
        y0 += f->bias0, y1 += f->bias1;
        f->odd0 = _kor_mask16(_mm512_fpclass_ps_mask((__m512)y0, 0x24), _mm512_fpclass_ps_mask((__m512)y1, 0x24));
    }
    f->gate = finish_round(y0), f->up0 = finish_round(y1);
    f->sums0 = f->sums, f->out0 = f->out;
}

static inline __attribute__((always_inline)) void finish_second(finish *f) {
    v_f32 g = f->gate;
    v_i32 at = v_bits(g + v_set1(3145728.0f));
    v_f32 p = v_fma(finish_lookup(f, 3, at), g, finish_lookup(f, 2, at));
    p = v_fma(p, g, finish_lookup(f, 1, at));
    f->act = v_fma(p, g, finish_lookup(f, 0, at)) * g;
    f->odd1 = _kor_mask16(f->odd0, _mm512_cmp_ps_mask((__m512)v_abs(g), (__m512)v_set1(V_NEAR_BF16), _CMP_NLT_UQ));
    f->up1 = f->up0, f->sums1 = f->sums0, f->out1 = f->out0;
}

/* A u that rounding spoiled makes the product a NaN or infinite. A denormal act(g) or product, which rounding would spoil,
 * is an operand here and leaves its mark in MXCSR. Both are asked for once a sweep, by finish_end. */
static inline __attribute__((always_inline)) void finish_third(finish *f) {
    v_f32 y = finish_round(f->act) * f->up1;
    f->spoiled = v_fma(y, v_set1(0), f->spoiled);
    __m256bh h = _mm512_cvtneps_pbh((__m512)y);
    memcpy(f->out1, &h, 32);
    *f->odd++ = (uint16_t)f->odd1;
}

static inline __attribute__((always_inline)) void finish_row(finish *f, const int kind) {
    if (kind == FINISH_GATED || kind == FINISH_PLAIN) {
        if (f->left <= 0) return;
        __builtin_prefetch(f->sums + 64, 0, 3);
        __builtin_prefetch(f->sums + 80, 0, 3);
        __asm__ volatile("prefetchw %0" ::"m"(*(f->out + f->out_tile)));
        if (kind == FINISH_PLAIN)
            finish_plain_row(f);
        else
            finish_table_row(f->tile->table, v_load(f->sums) + f->bias0, v_load(f->sums + 16) + f->bias1, f->out);
        finish_next(f);
        return;
    }
    finish_third(f);
    finish_second(f);
    finish_next(f);                         /* behind the last row: that row once more */
    __builtin_prefetch(f->sums + 64, 0, 3); /* sums wait in L2 */
    __builtin_prefetch(f->sums + 80, 0, 3);
    __asm__ volatile("prefetchw %0" ::"m"(*(f->out + f->out_tile))); /* the next tile's line, which nobody has yet */
    finish_first(f);
}

/* MXCSR without its flags, but with these; what it was. */
static unsigned swap_flags(unsigned with) {
    unsigned was, now;
    __asm__ volatile("stmxcsr %0" : "=m"(was)::"memory");
    now = (was & ~0x3fu) | with;
    __asm__ volatile("ldmxcsr %0" ::"m"(now) : "memory");
    return was;
}

/* All rows of every tile; false: there are none. */
static inline __attribute__((always_inline)) bool finish_begin(finish *f, const ep_sweep *s, const int kind) {
    const ep_tile *t = s->done;
    const float *bias1 = kind != FINISH_PLAIN ? t->bias1 : t->bias0 ? t->bias0 + 16 : NULL;
    f->tile = t, f->tiles = s->tiles - 1, f->rows = TILE_ROWS, f->rows_last = s->end;
    if (f->tiles < 0) return false;
    f->left = f->tiles > 0 ? TILE_ROWS : f->rows_last;
    f->bias0 = t->bias0 ? v_load(t->bias0) : v_set1(0), f->bias1 = bias1 ? v_load(bias1) : v_set1(0);
    f->biased = t->bias0 || bias1, f->eager = t->rounding == EP_ROUNDING_EAGER;
    f->sums = t->sums;
    f->ring = s->ring, f->ring_end = s->ring ? s->ring + EP_RING * 1024 : NULL;
    f->out = t->out, f->out_jump = s->done_tile - (TILE_ROWS - 1) * t->out_row;
    f->residual = t->residual, f->out_tile = s->done_tile;
    if (kind != FINISH_TANH && kind != FINISH_ERF) return true;
    const float *const tanh_[4] = {v_bf16_tanh_0, v_bf16_tanh_1, v_bf16_tanh_2, v_bf16_tanh_3};
    const float *const erf_[4] = {v_bf16_erf_0, v_bf16_erf_1, v_bf16_erf_2, v_bf16_erf_3};
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) f->cubic[i] = v_load((kind == FINISH_TANH ? tanh_ : erf_)[i / 2] + i % 2 * 16);
    f->flags = swap_flags(0);
    f->spoiled = v_set1(0);
    finish_first(f);
    finish_second(f);
    finish_next(f);
    finish_first(f);
    return true;
}

/* Rows of a tile that the short form was not right for, by the table: those with odd lanes, or all. */
static __attribute__((noinline)) void finish_odd(const ep_sweep *s, int64_t t, const float *sums, const uint16_t *odd) {
    const ep_tile *done = s->done;
    int end = t + 1 < s->tiles ? TILE_ROWS : s->end;
    char *out = (char *)done->out + t * s->done_tile;
    for (int r = 0; r < end; r++)
        if (!odd || odd[r]) finish_odd_row(done, sums + r * 32, out + r * done->out_row);
}

/* The tiles from t0 to t1 of what a sweep has finished; `odd`: of the first of all rows. */
static inline __attribute__((always_inline)) void finish_check(const ep_sweep *s, int64_t t0, int64_t t1,
                                                               const uint16_t *odd) {
    for (int64_t t = t0; t < t1; t++) {
        __m512i any = _mm512_loadu_si512(odd + t * TILE_ROWS);
        if (__builtin_expect(_mm512_test_epi32_mask(any, any) != 0, 0))
            finish_odd(s, t, s->ring ? s->ring + t % EP_RING * 1024 : s->done->sums + t * 1024, odd + t * TILE_ROWS);
    }
}

/* All results of a ring's sweep again: its sums are made once more, one tile after the other. */
static __attribute__((noinline)) void ring_again(const ep_sweep *s) {
    for (int64_t t = 0; t < s->tiles; t++) {
        const char *a = s->a + t * s->a_tile, *b = s->b;
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        for (int64_t i = 0; i < s->chunks; i++, a += s->a_chunk, b += 2048) {
            _tile_loadd(4, a, s->a_row);
            _tile_loadd(5, a + 16 * s->a_row, s->a_row);
            _tile_loadd(6, b, 128);
            _tile_loadd(7, b + 64, 128);
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(1, 4, 7);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
        _tile_stored(0, s->ring, 128);
        _tile_stored(1, s->ring + 16, 128);
        _tile_stored(2, s->ring + 512, 128);
        _tile_stored(3, s->ring + 528, 128);
        __asm__ volatile("" ::: "memory");
        finish_odd(s, t, s->ring, NULL);
        __asm__ volatile("" ::: "memory");
    }
}

/* All rows again, if one of them was spoiled. */
static inline __attribute__((always_inline)) void finish_end(const ep_sweep *s, v_f32 spoiled, unsigned flags) {
    enum { DENORMAL_OPERAND = 2 };
    __asm__ volatile("" ::"v"(spoiled));
    bool all = swap_flags(flags & 0x3f) & DENORMAL_OPERAND;
    all |= _mm512_cmp_ps_mask((__m512)spoiled, (__m512)spoiled, _CMP_UNORD_Q) != 0;
    if (__builtin_expect(!all, 1)) return;
    if (s->ring)
        ring_again(s);
    else
        for (int64_t t = 0; t < s->tiles; t++) finish_odd(s, t, s->done->sums + t * 1024, NULL);
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

/* A block of k of a row tile. */
typedef struct step {
    const char *a, *next, *b; /* x, that of the step behind this tile, weights */
    int64_t chunks;
    float *c, *before;           /* sums of this tile, and where those in the registers go to; or NULL */
    const char *sums, *sums_end; /* in L2: what the next tile loads */
    const char *ahead;           /* as of ep_sweep, */
    int lines;                   /* for this tile */
    const char *more, *more_end; /* x of the next part of k */
} step;

/* Where x lies as it is (not packed) there is one block, and less to keep in registers.
 * Weights of the block stay in L1; x passes by with a hint not to displace them, always one step ahead of its use. */
static inline __attribute__((always_inline)) void sweep_tile(const ep_sweep *s, const step *t, const bool first,
                                                             const bool packed, const int kind, finish *f) {
    const int64_t chunks = t->chunks, all = packed ? s->chunks : chunks;
    int64_t due = packed ? f->due : 0;
    const int lines = packed ? t->lines : s->lines;
    const int64_t a_row = packed ? 64 : s->a_row, a_chunk = packed ? 2048 : 64;
    const char *b = t->b, *x = chunks > 1 ? t->a + a_chunk : t->next, *next = t->next;
    const char *sums = t->sums, *sums_end = first ? sums : t->sums_end, *more = t->more;
    const char *more_end = packed ? t->more_end : more + s->more_lines * 64;
    float *c = t->c, *before = t->before;
    const char *ahead = ep_fetch(t->ahead, lines, chunks);
    _tile_loadd(6, b, 128);
    SUMS(0, 0);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + 64, 128);
    SUMS(1, 16);
    _tile_dpbf16ps(1, 4, 7);
    _tile_stream_loadd(4, x, a_row);
    SUMS(2, 512);
    _tile_dpbf16ps(2, 5, 6);
    SUMS(3, 528);
    _tile_dpbf16ps(3, 5, 7);
    _tile_stream_loadd(5, x + 16 * a_row, a_row);
    if (kind != FINISH_NONE)
        for (due += f->rows; due >= all; due -= all) finish_row(f, kind);
    for (int64_t i = 1; i < chunks; i++) {
        b += 2048;
        x = i + 1 < chunks ? x + a_chunk : next;
        ahead = ep_fetch(ahead, lines, chunks);
        for (int l = 0; l < 6 && sums < sums_end; l++, sums += 64) __builtin_prefetch(sums, 0, 3);
        for (int l = 0; l < 2 && more < more_end; l++, more += 64) __builtin_prefetch(more, 0, 2);
        _tile_loadd(6, b, 128);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, b + 64, 128);
        _tile_dpbf16ps(1, 4, 7);
        _tile_stream_loadd(4, x, a_row);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
        _tile_stream_loadd(5, x + 16 * a_row, a_row);
        if (kind != FINISH_NONE)
            for (due += f->rows; due >= all; due -= all) finish_row(f, kind);
    }
    if (packed) f->due = due;
}

/* One block of k of all tiles. `before`: as of step; returns where the last tile's sums go to. */
static inline __attribute__((always_inline)) float *sweep_block(const ep_sweep *s, int64_t block, float *before,
                                                                const bool first, const bool packed, const int kind,
                                                                uint16_t *odd, finish *f) {
    const bool ring = kind != FINISH_NONE && s->ring, gelu = kind == FINISH_TANH || kind == FINISH_ERF;
    const bool last = block + 1 == s->blocks;
    const bool one = !packed || s->blocks == 1; /* no divisions then */
    const int64_t from = one ? 0 : s->chunks * block / s->blocks;
    const int64_t chunks = (one ? s->chunks : s->chunks * (block + 1) / s->blocks) - from;
    const int64_t a_chunk = packed ? 2048 : 64;
    const char *a0 = s->a + from * a_chunk, *ahead = last ? s->ahead : s->b + (from + chunks) * 2048;
    const int64_t more = one ? 0 : s->more_lines * block / s->blocks * 64;
    const int64_t more_end = one ? s->more_lines * 64 : s->more_lines * (block + 1) / s->blocks * 64;
    step t = {.b = s->b + from * 2048, .chunks = chunks, .lines = ahead ? s->lines : 0};
    for (int64_t i = 0; i < s->tiles; i++) {
        const bool end = i + 1 == s->tiles;
        t.a = a0 + i * s->a_tile;
        t.next = !end ? t.a + s->a_tile : last ? t.a : a0 + chunks * a_chunk;
        t.c = s->c + i * 1024, t.before = before;
        t.sums = (const char *)(end ? s->c : t.c + 1024);
        t.sums_end = t.sums + (last && end ? 0 : 4096);
        t.ahead = ahead ? ahead + i * chunks * s->lines * 64 : s->b;
        t.more = s->more + i * s->more_tile + more, t.more_end = s->more + i * s->more_tile + more_end;
        if (ring && i == 2) finish_begin(f, s, kind);
        sweep_tile(s, &t, first, packed, kind, f);
        before = ring ? s->ring + i % EP_RING * 1024 : t.c;
        if (ring && gelu && i > 2) finish_check(s, i - 3, i - 2, odd);
    }
    return before;
}

static inline __attribute__((always_inline)) void sweep_tiles(const ep_sweep *s, const bool packed, const int kind) {
    uint16_t odd[FINISH_ROWS + 32];
    const bool ring = kind != FINISH_NONE && s->ring, gelu = kind == FINISH_TANH || kind == FINISH_ERF;
    finish f = {.rows = 0, .odd = odd};
    if (kind != FINISH_NONE && !ring && !finish_begin(&f, s, kind)) f.rows = 0;
    float *before = NULL;
    _tile_stream_loadd(4, s->a, s->a_row);
    _tile_stream_loadd(5, s->a + 16 * s->a_row, s->a_row);
    if (s->first) before = sweep_block(s, 0, before, true, packed, kind, odd, &f);
    for (int64_t i = s->first; packed && i < s->blocks; i++)
        before = sweep_block(s, i, before, false, packed, kind, odd, &f);
    _tile_stored(0, before, 128);
    _tile_stored(1, before + 16, 128);
    _tile_stored(2, before + 512, 128);
    _tile_stored(3, before + 528, 128);
    for (int i = 0; ring && i < 2 * f.rows; i++) finish_row(&f, kind);
    if (!gelu || !f.rows) return;
    finish_check(s, ring && s->tiles > 3 ? s->tiles - 3 : 0, s->tiles, odd);
    finish_end(s, f.spoiled, f.flags);
}

static int kind_of(const ep_sweep *s) {
    if (!s->done) return FINISH_NONE;
    if (!s->pair) return FINISH_PLAIN;
    if (s->tiles * TILE_ROWS > FINISH_ROWS) return FINISH_GATED;
    return s->done->act == EP_ACT_GELU_TANH ? FINISH_TANH : s->done->act == EP_ACT_GELU_ERF ? FINISH_ERF : FINISH_GATED;
}

/* x as it lies: all of k is one block. */
#define SWEEP(kind)                                                                                                    \
    do {                                                                                                               \
        if (s->a_chunk != 2048)                                                                                        \
            sweep_tiles(s, false, kind);                                                                               \
        else                                                                                                           \
            sweep_tiles(s, true, kind);                                                                                \
    } while (0)

static void sweep(const ep_sweep *s) {
    __asm__ volatile("" ::: "memory");
    switch (kind_of(s)) {
    case FINISH_NONE: SWEEP(FINISH_NONE); break;
    case FINISH_GATED: SWEEP(FINISH_GATED); break;
    case FINISH_TANH: SWEEP(FINISH_TANH); break;
    case FINISH_ERF: SWEEP(FINISH_ERF); break;
    default: SWEEP(FINISH_PLAIN); break;
    }
    __asm__ volatile("" ::: "memory");
}

const ep_tuned_row ep_bf16_gemm_amxbf16_t32x32 = {
    .isa_name = "amxbf16",
    .isa = EP_ISA_AMX_BF16,
    .tile = "t32x32",
    .mr = 32,
    .a_bytes = 64,
    .begin = begin,
    .end = end,
    .acc = acc,
    .across = across,
    .across_rows = ACROSS_ROWS,
    .sweep = sweep,
    .vector_name = "avx512bf16",
    .gated_mixes = true,
    .usable = ep_isa_request_amx,
    .unusable = "the system refuses AMX tiles to this process",
    TILE_MEMBERS,
};
