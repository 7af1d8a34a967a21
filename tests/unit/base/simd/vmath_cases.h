/* vmath.h against double: ulps over a sweep of all f32, special values, rounding to bf16 and f16, tails. Included once
 * for each ISA, after its simd header and vmath.h. The hashes are the same for all: results are equal to the bit. */
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <string.h>

#include <cmocka.h>

#include "base/isa.h"

#ifndef SWEEP_STEP
#define SWEEP_STEP 40961u
#endif

static double ref_gelu_tanh(double x) { /* the formula without its cancellation */
    if (x == -INFINITY) return NAN;
    double u = 0.79788456080286535588 * (x + 0.044715 * x * x * x);
    return x == INFINITY ? x : x / (1 + exp(-2 * u));
}
static double ref_gelu_erf(double x) {
    return x == -INFINITY ? NAN : x * 0.5 * erfc(-x * 0.70710678118654752440);
}

#define DEFINE_RUN(name)                                                                                               \
    static void run_##name(const float *x, float *y, int n) {                                                          \
        for (int i = 0; i < n; i += V_LANES) v_store(y + i, v_##name(v_load(x + i)));                                  \
    }
DEFINE_RUN(exp)
DEFINE_RUN(log)
DEFINE_RUN(tanh)
DEFINE_RUN(erf)
DEFINE_RUN(gelu_tanh)
DEFINE_RUN(gelu_erf)

typedef struct vmath_case {
    const char *name;
    void (*run)(const float *x, float *y, int n);
    double (*ref)(double x);
    double ulp; /* allowed */
} vmath_case;

static const vmath_case cases[] = {
    {"exp", run_exp, exp, 1.1},
    {"log", run_log, log, 1.0},
    {"tanh", run_tanh, tanh, 1.5},
    {"erf", run_erf, erf, 1.9},
    {"gelu_tanh", run_gelu_tanh, ref_gelu_tanh, 1.8},
    {"gelu_erf", run_gelu_erf, ref_gelu_erf, 1.95},
};
enum { CASES = sizeof cases / sizeof *cases, BLOCK = 1024 };

/* Distance in units of the last place of the f32 result (of 2^-149 below the normal range). */
static double ulps(float y, double r) {
    if (isnan(r)) return isnan(y) ? 0 : INFINITY;
    if (isinf((float)r)) return isinf(y) && !signbit(y) == !signbit(r) ? 0 : fabsf(y) == 0x1.fffffep127f ? 1 : INFINITY;
    if (isnan(y) || isinf(y)) return INFINITY;
    int e;
    frexp(r, &e);
    if (r == 0 || e < -125) e = -125;
    return fabs((double)y - r) / ldexp(1, e - 24);
}

static void sweep(void **state) {
    (void)state;
    for (int k = 0; k < CASES; k++) {
        float x[BLOCK], y[BLOCK], at = 0;
        double worst = 0;
        uint64_t bits = 0;
        while (bits < UINT64_C(1) << 32) {
            for (int i = 0; i < BLOCK; i++, bits += SWEEP_STEP) {
                uint32_t u = (uint32_t)bits;
                memcpy(&x[i], &u, 4);
            }
            cases[k].run(x, y, BLOCK);
            for (int i = 0; i < BLOCK; i++) {
                double e = ulps(y[i], cases[k].ref(x[i]));
                if (e > worst) worst = e, at = x[i];
            }
        }
        print_message("%s: %.3f ulp at %.9g\n", cases[k].name, worst, (double)at);
        if (worst > cases[k].ulp)
            fail_msg("%s: %.3f ulp at %.9g, %.1f allowed", cases[k].name, worst, (double)at, cases[k].ulp);
    }
}

/* Dense where the near form of gelu meets the far one, and where the far one meets the denormals. */
static void borders(void **state) {
    (void)state;
    static const float around[] = {3.9375f, -3.9375f, -10.2f, -13.2f,   -14.2f,
                                   0.125f,  -0.6f,    88.72f, -103.97f, 0x1p-126f};
    for (int k = 0; k < CASES; k++) {
        for (size_t a = 0; a < sizeof around / sizeof *around; a++) {
            float x[BLOCK], y[BLOCK], v = around[a];
            for (int i = 0; i < BLOCK / 2; i++) v = nextafterf(v, -1000.0f);
            for (int i = 0; i < BLOCK; i++) x[i] = v, v = nextafterf(v, 1000.0f);
            cases[k].run(x, y, BLOCK);
            for (int i = 0; i < BLOCK; i++) {
                double e = ulps(y[i], cases[k].ref(x[i]));
                if (e > cases[k].ulp) fail_msg("%s(%.9g): %.3f ulp", cases[k].name, (double)x[i], e);
            }
        }
    }
}

static void specials(void **state) {
    (void)state;
    static const float special[16] = {0.0f,   -0.0f,  INFINITY, -INFINITY, NAN,     1e-45f, -1e-45f, 3e38f,
                                      -3e38f, 1e-38f, -1e-38f,  1e-39f,    -1e-39f, 88.9f,  -104.5f, 1.0f};
    for (int k = 0; k < CASES; k++) {
        float y[16];
        cases[k].run(special, y, 16);
        for (int i = 0; i < 16; i++) {
            double r = cases[k].ref(special[i]);
            if (ulps(y[i], r) > cases[k].ulp) fail_msg("%s(%g) is %g", cases[k].name, (double)special[i], (double)y[i]);
            if (r == 0 && !isnan(r) && !signbit(y[i]) != !signbit(special[i]) && k >= 2)
                fail_msg("%s(%g) has the wrong sign", cases[k].name, (double)special[i]);
        }
    }
}

/* A lane's result must not depend on its neighbours. */
static void neighbours(void **state) {
    (void)state;
    for (int k = 0; k < CASES; k++) {
        float x[16], y[16], one[16], alone[16];
        for (int i = 0; i < 16; i++) x[i] = (float)i * 0.7f - 5.3f;
        cases[k].run(x, y, 16);
        for (int i = 0; i < 16; i++) {
            for (int j = 0; j < 16; j++) one[j] = x[i];
            cases[k].run(one, alone, 16);
            assert_memory_equal(&alone[3], &y[i], 4);
        }
    }
}

/* FNV over the results of a fixed input: the same constants for every ISA. */
static void same_bits(void **state) {
    (void)state;
    static const uint64_t expected[CASES] = {UINT64_C(0x9ca193e94d10cae3), UINT64_C(0x563cdbc79a205919),
                                             UINT64_C(0xf503f724c95d5d1b), UINT64_C(0x5efd36a0fdbea22d),
                                             UINT64_C(0xafff32a5fb0a325c), UINT64_C(0x0ab5f2247045a2f7)};
    for (int k = 0; k < CASES; k++) {
        uint64_t h = UINT64_C(14695981039346656037);
        uint32_t lcg = 12345;
        for (int b = 0; b < 200; b++) {
            float x[BLOCK], y[BLOCK];
            for (int i = 0; i < BLOCK; i++) {
                lcg = lcg * 1664525u + 1013904223u;
                x[i] = ((float)(lcg >> 8) / 16777216.0f - 0.5f) * (b % 2 ? 40.0f : 6.0f);
            }
            cases[k].run(x, y, BLOCK);
            for (int i = 0; i < BLOCK; i++) {
                uint32_t u = 0;
                if (!isnan(y[i])) memcpy(&u, &y[i], 4);
                h = (h ^ u) * UINT64_C(1099511628211);
            }
        }
        if (h != expected[k]) fail_msg("%s: hash 0x%016llx", cases[k].name, (unsigned long long)h);
    }
}

static uint16_t plain_bf16(float v) {
    uint32_t b;
    memcpy(&b, &v, 4);
    if (isnan(v)) return (uint16_t)(b >> 16 | 0x40);
    return (uint16_t)((b + 0x7fff + (b >> 16 & 1)) >> 16);
}

static void halves(void **state) {
    (void)state;
    uint64_t bits = 0;
    while (bits < UINT64_C(1) << 32) {
        float x[16], wide[16];
        uint16_t b[16], h[16];
        for (int i = 0; i < 16; i++, bits += 65521u / 7) {
            uint32_t u = (uint32_t)bits;
            memcpy(&x[i], &u, 4);
        }
        for (int i = 0; i < 16; i += V_LANES) {
            v_f32 v = v_load(x + i);
            v_store_bf16(b + i, v);
            v_store_f16(h + i, v);
            v_store(wide + i, v_load_f16(h + i));
        }
        for (int i = 0; i < 16; i++) {
            if (b[i] != plain_bf16(x[i])) fail_msg("bf16(%a) is 0x%04x", (double)x[i], b[i]);
            if (isnan(x[i])) {
                assert_true(isnan(wide[i]));
                continue;
            }
            /* The f16 neighbours of x may not be nearer than what was chosen. */
            double a = fabs((double)x[i]), w = fabs((double)wide[i]),
                   step = a < 0x1p-14 ? 0x1p-24 : ldexp(1, ilogb(a) - 10);
            if (a >= 65520)
                assert_true(isinf(wide[i]));
            else if (fabs(a - w) > step / 2)
                fail_msg("f16(%a) is 0x%04x", (double)x[i], h[i]);
            assert_int_equal(h[i] >> 15, signbit(x[i]) != 0);
        }
    }
    for (uint32_t v = 0; v < 65536; v += 16) { /* every f16 and bf16 comes back */
        uint16_t in[16], out[16], out_bf16[16];
        for (uint32_t i = 0; i < 16; i++) in[i] = (uint16_t)(v + i);
        for (int i = 0; i < 16; i += V_LANES) {
            v_store_f16(out + i, v_load_f16(in + i));
            v_store_bf16(out_bf16 + i, v_load_bf16(in + i));
        }
        for (int i = 0; i < 16; i++) {
            bool nan16 = (in[i] & 0x7fff) > 0x7c00, nanb = (in[i] & 0x7fff) > 0x7f80;
            assert_int_equal(out[i], nan16 ? in[i] | 0x200 : in[i]);
            assert_int_equal(out_bf16[i], nanb ? in[i] | 0x40 : in[i]);
        }
    }
}

/* Pairs hold what two vectors side by side hold, and are stored as they are. */
static void pairs(void **state) {
    (void)state;
    uint64_t bits = 0;
    while (bits < UINT64_C(1) << 32) {
        float x[2 * V_LANES], first[V_LANES], second[V_LANES];
        uint16_t h[2 * V_LANES], back[2 * V_LANES];
        for (int i = 0; i < 2 * V_LANES; i++, bits += 65521u / 3) {
            uint32_t u = (uint32_t)bits;
            memcpy(&x[i], &u, 4);
        }
        for (int i = 0; i < V_LANES; i++) memcpy(&first[i], &x[2 * i], 4), memcpy(&second[i], &x[2 * i + 1], 4);
        v_store_pairs(h, v_pairs_bf16(v_load(first), v_load(second)));
        for (int i = 0; i < 2 * V_LANES; i++)
            if (h[i] != plain_bf16(x[i])) fail_msg("bf16(%a) is 0x%04x", (double)x[i], h[i]);
        v_i32 q = v_load_pairs(h);
        v_store(first, v_first_bf16(q));
        v_store(second, v_second_bf16(q));
        for (int i = 0; i < 2 * V_LANES; i++) {
            uint32_t u;
            memcpy(&u, i % 2 ? &second[i / 2] : &first[i / 2], 4);
            assert_int_equal(u, (uint32_t)h[i] << 16);
        }
        v_store_pairs(back, q);
        assert_memory_equal(back, h, sizeof h);
        for (int i = 0; i < V_LANES; i++) {
            float want, got[V_LANES];
            uint32_t u = (uint32_t)plain_bf16(first[i]) << 16;
            v_store(got, v_round_bf16(v_load(first)));
            memcpy(&want, &u, 4);
            assert_memory_equal(&got[i], &want, 4);
        }
    }
}

/* Quotients by one divisor have the division's bits, of zeros, denormals and whatever lies between. */
static void quotients(void **state) {
    (void)state;
    uint64_t r = 88172645463325252u;
    for (int k = 0; k < 20000; k++) {
        float a[V_LANES], q[V_LANES], want[V_LANES];
        r ^= r << 13, r ^= r >> 7, r ^= r << 17;
        float b = k % 16 == 15 ? NAN : ldexpf(1 + (float)(r >> 40) * 0x1p-24f, (int)(r % 33) - 1);
        if (k % 8 == 7) b = nextafterf(ldexpf(1, k % 30 + 1), 0); /* all ones */
        for (int i = 0; i < V_LANES; i++) {
            r ^= r << 13, r ^= r >> 7, r ^= r << 17;
            a[i] = ldexpf((float)(r >> 40), -24 - (int)(r % (k % 2 ? 24 : 149)));
            if (r % 97 == 5) a[i] = 0;
        }
        v_store(q, v_quotient(v_load(a), v_set1(b), v_over(v_set1(b))));
        for (int i = 0; i < V_LANES; i++) {
            want[i] = a[i] / b;
            if (isnan(b) ? !isnan(q[i]) : memcmp(&q[i], &want[i], 4) != 0)
                fail_msg("%a / %a is %a and %a", (double)a[i], (double)b, (double)want[i], (double)q[i]);
        }
    }
}

/* Every f32 of 65536 upper and some lower halves: ties, denormals, infinities, NaN. */
static void rounds_to_bf16(void **state) {
    (void)state;
    static const uint32_t low[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff, 0xff80, 0x0080};
    for (uint32_t v = 0; v < 65536 * 8; v += V_LANES) {
        float x[V_LANES];
        uint32_t got[V_LANES];
        for (uint32_t i = 0; i < V_LANES; i++) {
            uint32_t b = (v + i) / 8 << 16 | low[(v + i) % 8];
            memcpy(&x[i], &b, 4);
        }
        v_store(got, v_round_bf16(v_load(x)));
        for (int i = 0; i < V_LANES; i++)
            if (got[i] != (uint32_t)plain_bf16(x[i]) << 16)
                fail_msg("%a rounds to 0x%04x and 0x%08x", (double)x[i], plain_bf16(x[i]), got[i]);
    }
}

static v_f32 silu(v_f32 x) {
    return x / (K(1) + v_exp(-x));
}
#define SAME_ROUNDED(dt, name, general)                                                                                \
    v_store_##dt(want, general(a));                                                                                    \
    v_store_##dt(got, name##_of_##dt(a));                                                                              \
    for (int i = 0; i < V_LANES; i++)                                                                                  \
        if (got[i] != want[i]) fail_msg(#name "_of_" #dt "(0x%04x) is 0x%04x and 0x%04x", x[i], want[i], got[i])

/* All 65536: what is made for 16-bit numbers rounds to what the general functions round to. */
static void of_16_bits(void **state) {
    (void)state;
    for (uint32_t v = 0; v < 65536; v += V_LANES) {
        uint16_t x[V_LANES], want[V_LANES], got[V_LANES];
        for (uint32_t i = 0; i < V_LANES; i++) x[i] = (uint16_t)(v + i);
        v_f32 a = v_load_bf16(x);
        SAME_ROUNDED(bf16, v_gelu_tanh, v_gelu_tanh);
        SAME_ROUNDED(bf16, v_gelu_erf, v_gelu_erf);
        SAME_ROUNDED(bf16, v_silu, silu);
        a = v_load_f16(x);
        SAME_ROUNDED(f16, v_gelu_tanh, v_gelu_tanh);
        SAME_ROUNDED(f16, v_gelu_erf, v_gelu_erf);
        SAME_ROUNDED(f16, v_silu, silu);
    }
}

static void tails(void **state) {
    (void)state;
    float x[V_LANES], back[V_LANES + 1];
    uint16_t h[V_LANES + 1];
    for (int i = 0; i < V_LANES; i++) x[i] = (float)i + 1;
    for (int n = 0; n <= V_LANES; n++) {
        v_f32 v = v_load_n(x, n);
        for (int i = 0; i <= V_LANES; i++) back[i] = -7;
        v_store(back, v);
        for (int i = 0; i < V_LANES; i++) assert_true(back[i] == (i < n ? x[i] : 0));
        for (int i = 0; i <= V_LANES; i++) back[i] = -7, h[i] = 0x1234;
        v_store_n(back, v_load(x), n);
        for (int i = 0; i <= V_LANES; i++) assert_true(back[i] == (i < n ? x[i] : -7));
        v_store_bf16_n(h, v_load(x), n);
        for (int i = 0; i <= V_LANES; i++) assert_int_equal(h[i], i < n ? plain_bf16(x[i]) : 0x1234);
        v_store(back, v_load_bf16_n(h, n));
        for (int i = 0; i < V_LANES; i++) assert_true(back[i] == (i < n ? x[i] : 0));
        v_store_f16_n(h, v_load(x), n);
        v_store(back, v_load_f16_n(h, n));
        for (int i = 0; i < V_LANES; i++) assert_true(back[i] == (i < n ? x[i] : 0));
    }
}

static void min_max(void **state) {
    (void)state;
    static const float v[4] = {NAN, 1, -2, INFINITY};
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 4; j++) {
            float lo[V_LANES], hi[V_LANES], where[V_LANES];
            v_store(lo, v_min(v_set1(v[i]), v_set1(v[j])));
            v_store(hi, v_max(v_set1(v[i]), v_set1(v[j])));
            v_store(where, v_select(v_set1(v[i]), v_set1(5), v_set1(6)));
            bool nan = i == 0 || j == 0;
            assert_true(nan ? isnan(lo[0]) : lo[0] == fminf(v[i], v[j]));
            assert_true(nan ? isnan(hi[0]) : hi[0] == fmaxf(v[i], v[j]));
            assert_true(where[0] == 5);
        }
    }
}

int main(void) {
    if (ep_cpu_get()->detected < VMATH_ISA) return 77; /* skipped: this processor lacks the instructions */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sweep),      cmocka_unit_test(borders),        cmocka_unit_test(specials),
        cmocka_unit_test(halves),     cmocka_unit_test(neighbours),     cmocka_unit_test(same_bits),
        cmocka_unit_test(tails),      cmocka_unit_test(min_max),        cmocka_unit_test(pairs),
        cmocka_unit_test(of_16_bits), cmocka_unit_test(rounds_to_bf16), cmocka_unit_test(quotients)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
