/* The accumulation kernel of a vector ISA: ACC_MR rows by two vectors of columns in registers, written once over the
 * vector vocabulary. The includer has included its simd header and defines ACC_MR and one of
 *   ACC_QUAD   ACC_B (a vector of quads), ACC_LOAD_B(p), ACC_BROADCAST(p), ACC_MAC(a, b, sum): one step a quad;
 *   ACC_PAIR   bf16 pairs widened to f32 by a shift and a mask, two steps a quad, x already f32;
 *   ACC_HALF   f16 widened by conversion, two k a quad, x already f32.
 * Row counts are compile-time constants inside, so that the sums stay in registers. */
#include <stdbool.h>
#include <stdint.h>

#include "run/backend/cpu/tuned.h"

#define ACC_WIDTH (2 * V_LANES)
#ifdef ACC_QUAD
#ifndef ACC_ROW
#define ACC_ROW 16 /* 4-byte items from a row to the next in a packed chunk of x */
#endif
#else
#define ACC_ROW 32
#define ACC_B v_f32
#define ACC_BROADCAST(p) v_set1(*(p))
#define ACC_MAC(a, b, s) v_fma(a, b, s)
#endif

#define ACC_EACH_ROW(R) _Pragma("GCC unroll 16") for (int r = 0; r < (R); r++)

#define ACC_STEP(R, B0, B1, K)                                                                                         \
    do {                                                                                                               \
        ACC_B b0 = B0, b1 = B1;                                                                                        \
        ACC_EACH_ROW(R) {                                                                                              \
            ACC_B x = ACC_BROADCAST(a + r * ACC_ROW + (K));                                                            \
            s0[r] = ACC_MAC(x, b0, s0[r]);                                                                             \
            s1[r] = ACC_MAC(x, b1, s1[r]);                                                                             \
        }                                                                                                              \
    } while (0)

static inline __attribute__((always_inline)) void acc_rows(const int R, int64_t chunks, const float *a, const char *b,
                                                           float *c, bool first, const char *ahead, int lines) {
    v_f32 s0[ACC_MR], s1[ACC_MR];
    ACC_EACH_ROW(R) s0[r] = s1[r] = v_set1(0);
    for (int64_t i = 0; i < chunks; i++) {
        ahead = ep_fetch(ahead, lines, chunks);
#ifdef ACC_QUAD
        if (R == ACC_MR) /* a chunk without a jump: 3 % (gcc 12, family 6 model 207) */
            _Pragma("GCC unroll 16") for (int k = 0; k < 16; k++, b += 8 * V_LANES)
                ACC_STEP(R, ACC_LOAD_B(b), ACC_LOAD_B(b + 4 * V_LANES), k);
        else
            for (int k = 0; k < 16; k++, b += 8 * V_LANES) ACC_STEP(R, ACC_LOAD_B(b), ACC_LOAD_B(b + 4 * V_LANES), k);
#else
        for (int k = 0; k < 16; k++, b += 8 * V_LANES) {
#if defined(ACC_PAIR)
            v_i32 q0 = v_bits(v_load(b)), q1 = v_bits(v_load(b + 4 * V_LANES));
            ACC_STEP(R, v_float(v_shl(q0, 16)), v_float(v_shl(q1, 16)), 2 * k);
            ACC_STEP(R, v_float(q0 & (int)0xffff0000), v_float(q1 & (int)0xffff0000), 2 * k + 1);
#else
            ACC_STEP(R, v_load_f16(b), v_load_f16(b + 2 * V_LANES), 2 * k);
            ACC_STEP(R, v_load_f16(b + 4 * V_LANES), v_load_f16(b + 6 * V_LANES), 2 * k + 1);
#endif
        }
#endif
        a += ACC_MR * ACC_ROW;
    }
    if (!first) { /* sums of blocks, added: the error grows with the number of blocks and not with k */
        ACC_EACH_ROW(R) {
            s0[r] = v_load(c + r * ACC_WIDTH) + s0[r];
            s1[r] = v_load(c + r * ACC_WIDTH + V_LANES) + s1[r];
        }
    }
    ACC_EACH_ROW(R) {
        v_store(c + r * ACC_WIDTH, s0[r]);
        v_store(c + r * ACC_WIDTH + V_LANES, s1[r]);
    }
}

#define ACC_CASE(R)                                                                                                    \
    case R: acc_rows(R, chunks, a, b, c, first, ahead, lines); return;

static void acc(int rows, int64_t chunks, const void *a, const void *b, float *c, bool first, const char *ahead,
                int lines) {
    switch (rows) {
        ACC_CASE(1)
        ACC_CASE(2)
        ACC_CASE(3)
        ACC_CASE(4)
        ACC_CASE(5)
#if ACC_MR > 6
        ACC_CASE(6)
        ACC_CASE(7)
        ACC_CASE(8)
        ACC_CASE(9)
        ACC_CASE(10)
        ACC_CASE(11)
#endif
#if ACC_MR > 12
        ACC_CASE(12)
        ACC_CASE(13)
#endif
    default: acc_rows(ACC_MR, chunks, a, b, c, first, ahead, lines); return;
    }
}

/* Few rows: weights come from memory, four panels at a time. The order of additions is that of acc_rows. */
#if V_LANES == 16
#define ACC_FEW 3
#else
#define ACC_FEW 1
#endif
#define ACC_STREAM_AHEAD 1024 /* within a panel: across the page's end, where the processor's own prefetch stops */

#define ACC_ACROSS_STEP(R, P, B0, B1, K)                                                                               \
    do {                                                                                                               \
        ACC_B b0 = B0, b1 = B1;                                                                                        \
        _Pragma("GCC unroll 4") for (int r = 0; r < (R); r++) {                                                        \
            ACC_B x = ACC_BROADCAST(a + r * ACC_ROW + (K));                                                            \
            s0[(P)*ACC_FEW + r] = ACC_MAC(x, b0, s0[(P)*ACC_FEW + r]);                                                 \
            s1[(P)*ACC_FEW + r] = ACC_MAC(x, b1, s1[(P)*ACC_FEW + r]);                                                 \
        }                                                                                                              \
    } while (0)

static inline __attribute__((always_inline)) void acc_across_rows(const int R, int64_t chunks, const float *a,
                                                                  const char *b, int64_t panel_bytes, float *c,
                                                                  int64_t panel_sums, bool first) {
    v_f32 s0[EP_ACROSS * ACC_FEW], s1[EP_ACROSS * ACC_FEW];
    _Pragma("GCC unroll 12") for (int i = 0; i < EP_ACROSS * ACC_FEW; i++) s0[i] = s1[i] = v_set1(0);
    for (int64_t i = 0; i < chunks; i++, a += ACC_MR * ACC_ROW)
        for (int k = 0; k < 16; k++, b += 8 * V_LANES) {
            _Pragma("GCC unroll 4") for (int p = 0; p < EP_ACROSS; p++) {
                const char *q = b + p * panel_bytes;
                __builtin_prefetch(q + ACC_STREAM_AHEAD, 0, 2);
                if (V_LANES == 16) __builtin_prefetch(q + ACC_STREAM_AHEAD + 64, 0, 2);
#if defined(ACC_QUAD)
                ACC_ACROSS_STEP(R, p, ACC_LOAD_B(q), ACC_LOAD_B(q + 4 * V_LANES), k);
#elif defined(ACC_PAIR)
                v_i32 q0 = v_bits(v_load(q)), q1 = v_bits(v_load(q + 4 * V_LANES));
                ACC_ACROSS_STEP(R, p, v_float(v_shl(q0, 16)), v_float(v_shl(q1, 16)), 2 * k);
                ACC_ACROSS_STEP(R, p, v_float(q0 & (int)0xffff0000), v_float(q1 & (int)0xffff0000), 2 * k + 1);
#else
                ACC_ACROSS_STEP(R, p, v_load_f16(q), v_load_f16(q + 2 * V_LANES), 2 * k);
                ACC_ACROSS_STEP(R, p, v_load_f16(q + 4 * V_LANES), v_load_f16(q + 6 * V_LANES), 2 * k + 1);
#endif
            }
        }
    _Pragma("GCC unroll 4") for (int p = 0; p < EP_ACROSS; p++) _Pragma("GCC unroll 4") for (int r = 0; r < R; r++) {
        float *to = c + p * panel_sums + r * ACC_WIDTH;
        v_f32 t0 = s0[p * ACC_FEW + r], t1 = s1[p * ACC_FEW + r];
        v_store(to, first ? t0 : v_load(to) + t0);
        v_store(to + V_LANES, first ? t1 : v_load(to + V_LANES) + t1);
    }
}

static void acc_across(int rows, int64_t chunks, const void *a, const void *b, int64_t panel_bytes, float *c,
                       int64_t panel_sums, bool first) {
    switch (rows) {
#if ACC_FEW > 1
    case 3: acc_across_rows(3, chunks, a, b, panel_bytes, c, panel_sums, first); return;
    case 2: acc_across_rows(2, chunks, a, b, panel_bytes, c, panel_sums, first); return;
#endif
    default: acc_across_rows(1, chunks, a, b, panel_bytes, c, panel_sums, first); return;
    }
}

/* The members of ep_tuned_row that follow; TILE_MEMBERS has the others. */
#define ACC_MEMBERS .mr = ACC_MR, .a_bytes = 4 * ACC_ROW, .acc = acc, .across = acc_across, .across_rows = ACC_FEW
