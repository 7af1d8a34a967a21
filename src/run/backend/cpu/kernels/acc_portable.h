/* The accumulation kernel in plain C: 2 rows by 16 columns; the compiler makes vectors of it where it can. The includer
 * has included simd_scalar.h and defines ACC_F32, ACC_BF16 or ACC_F16. */
#include <string.h>

#include "run/backend/cpu/tuned.h"

#if defined(ACC_F32)
#define ACC_ROW 16
#define ACC_STEPS 1
#else
#define ACC_ROW 32
#define ACC_STEPS 2
#endif

static void acc_widen(const char *b, int step, float w[16]) {
#if defined(ACC_F32)
    (void)step;
    memcpy(w, b, 64);
#elif defined(ACC_BF16)
    for (int j = 0; j < 16; j++) w[j] = v_load_bf16(b + 4 * j + 2 * step);
#else
    for (int j = 0; j < 16; j++) w[j] = v_load_f16(b + 32 * step + 2 * j);
#endif
}

static void acc(int rows, int64_t chunks, const void *a, const void *b, float *c, bool first, const char *ahead,
                int lines) {
    const float *x = a;
    const char *panel = b;
    float s[2][16] = {{0}};
    (void)ahead;
    (void)lines;
    if (!first) memcpy(s, c, (size_t)rows * 64);
    for (int64_t i = 0; i < chunks; i++, x += 2 * ACC_ROW)
        for (int k = 0; k < 16; k++, panel += 64)
            for (int step = 0; step < ACC_STEPS; step++) {
                float w[16], x0 = x[k * ACC_STEPS + step], x1 = rows > 1 ? x[ACC_ROW + k * ACC_STEPS + step] : 0;
                acc_widen(panel, step, w);
                for (int j = 0; j < 16; j++) s[0][j] += x0 * w[j];
                for (int j = 0; j < 16; j++) s[1][j] += x1 * w[j];
            }
    memcpy(c, s, (size_t)rows * 64);
}

/* The members of ep_tuned_row that follow; TILE_MEMBERS has the others. */
#define ACC_MEMBERS .mr = 2, .a_bytes = 4 * ACC_ROW, .acc = acc
