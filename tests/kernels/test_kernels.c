/* Every row of cpu_kernels.def that this processor can run, element by element against the reference's formulas: lengths
 * around the vector and tile sizes, every mix of steps 0 and 1, special values, unaligned pointers, in place. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/isa.h"
#include "model/op/op.h"
#include "model/tensor/tensor.h"
#include "model/trace/kernel_name.h"
#include "run/backend/cpu/cpu_kernels.h"
#include "run/backend/ref/ref.h"

enum { MOST = 1100, PAD = 64 };

static const float specials[] = {0.0f,  -0.0f, INFINITY, -INFINITY, NAN,      1e-45f,  -1e-39f, 3e38f,  -3e38f, 1.0f,
                                 -1.0f, 88.9f, -88.0f,   -104.0f,   65504.0f, 3.9375f, -3.95f,  0.125f, 1e-30f, 20.0f};

static uint32_t lcg = 1;
static float random_value(void) {
    lcg = lcg * 1664525u + 1013904223u;
    float u = (float)(lcg >> 8) / 16777216.0f - 0.5f;
    if (lcg >> 5 & 7) return u * 8.0f;
    if (lcg >> 4 & 1) return specials[(lcg >> 9) % (sizeof specials / sizeof *specials)];
    return u * 60.0f;
}

/* The distance of `got` from `want` in units of the dtype's last place; 0 where both are NaN or equal. */
static double ulps(ep_dtype dtype, double got, double want) {
    if (isnan(want)) return isnan(got) ? 0 : INFINITY;
    static const int bits[] = {24, 8, 11}, least[] = {-125, -125, -13};
    static const double top[] = {0x1.fffffep127, 0x1.fep127, 65504};
    if (fabs(want) > top[dtype]) { /* half a step beyond the largest number rounds to infinity */
        bool far = fabs(want) >= top[dtype] * (1 + ldexp(1, -bits[dtype] - 1));
        if (isinf(got)) return (got > 0) == (want > 0) && (far || dtype == EP_DTYPE_F32) ? 0 : INFINITY;
        return fabs(got) == top[dtype] && (!far || dtype == EP_DTYPE_F32) ? 0 : INFINITY;
    }
    if (isnan(got)) return INFINITY;
    if (isinf(got)) return fabs(want) > top[dtype] * (1 - ldexp(1, -bits[dtype])) ? 1 : INFINITY;
    int e;
    frexp(want, &e);
    if (want == 0 || e < least[dtype]) e = least[dtype];
    return fabs(got - want) / ldexp(1, e - bits[dtype]);
}

/* Formulas of several f32 roundings; the functions alone are within 2. */
static double allowed(ep_op op, ep_dtype dtype) {
    if (dtype != EP_DTYPE_F32) return 0.51;
    if (op == EP_OP_SILU || op == EP_OP_SIGMOID) return 4;
    return op == EP_OP_RSQRT ? 2 : 1.9;
}

/* exp overflows in f32 where the quotient is still representable: below -88 these give 0 for up to 1e-36. */
static bool underflows(ep_op op, double want) {
    return (op == EP_OP_SILU || op == EP_OP_SIGMOID) && fabs(want) < 1e-36;
}

typedef struct operands {
    char *memory[4];
    char *at[4];
    double value[3][MOST];
} operands;

static void fill(operands *o, ep_op op, ep_dtype dtype, int arity, const int *step, int64_t n, int shift) {
    for (int k = 0; k < arity; k++) {
        ep_dtype d = op == EP_OP_WHERE && k == 0 ? EP_DTYPE_BOOL : dtype;
        int64_t size = (int64_t)ep_dtype_size(d);
        o->at[k] = o->memory[k] + (d == EP_DTYPE_BOOL ? 1 : size) * shift;
        for (int64_t i = 0; i < n; i++) {
            double v = d == EP_DTYPE_BOOL ? (lcg >> 7 & 1) : (double)random_value();
            if (i == 0 || step[k]) ep_element_store(d, o->at[k] + i * size, v);
            random_value();
            o->value[k][i] = ep_element_load(d, o->at[k] + (step[k] ? i * size : 0));
        }
    }
    o->at[3] = o->memory[3] + (int64_t)ep_dtype_size(dtype) * (shift % 3);
}

static void check_run(const ep_cpu_row *row, ep_op op, operands *o, const int *step, int64_t n, bool in_place) {
    const ep_pointwise_table *t = row->table;
    int64_t size = (int64_t)ep_dtype_size(row->dtype);
    const void *in[3] = {o->at[0], o->at[1], o->at[2]};
    char *out = in_place ? o->at[0] : o->at[3];
    double want[MOST];
    ep_ref_apply(op, n, o->value[0], o->value[1], o->value[2], want);
    if (!in_place) memset(o->memory[3], 0x5a, MOST * 4 + PAD);
    t->op[op].run(n, in, step, out);
    for (int64_t i = 0; i < n; i++) {
        double got = ep_element_load(row->dtype, out + i * size);
        if (underflows(op, want[i]) && fabs(got) < 1e-36) continue;
        double e = ulps(row->dtype, got, want[i]);
        if (e > allowed(op, row->dtype))
            fail_msg("%s at %lld of %lld: %.9g for (%.9g, %.9g), wanted %.9g: %.2f ulp", t->op[op].name, (long long)i,
                     (long long)n, got, o->value[0][i], o->value[1][i], want[i], e);
    }
    if (!in_place)
        for (int64_t i = 0; i < 16; i++) assert_int_equal(out[n * size + i], 0x5a);
}

static void check_row(const ep_cpu_row *row) {
    static const int64_t lengths[] = {1, 2, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 127, 130, 1000};
    operands o;
    for (int k = 0; k < 4; k++) assert_non_null(o.memory[k] = aligned_alloc(64, (MOST * 4 + 3 * PAD) / 64 * 64));
    memset(o.value, 0, sizeof o.value);
    for (int op = 0; op < EP_POINTWISE_OPS; op++) {
        int arity = ep_op_get((ep_op)op)->max_arity;
        for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
            for (int mix = 0; mix < 1 << arity; mix++) {
                int step[3] = {!(mix & 1), !(mix & 2), !(mix & 4)};
                fill(&o, (ep_op)op, row->dtype, arity, step, lengths[l], mix + (int)l);
                check_run(row, (ep_op)op, &o, step, lengths[l], false);
                if (step[0] && op != EP_OP_WHERE) check_run(row, (ep_op)op, &o, step, lengths[l], true);
            }
        }
    }
    for (int k = 0; k < 4; k++) free(o.memory[k]);
}

static void pointwise_rows(void **state) {
    (void)state;
    for (const ep_cpu_row *r = ep_cpu_rows; r->op; r++) {
        if (r->class != EP_CPU_POINTWISE) continue;
        print_message("%s: %s\n", r->symbol, r->isa <= ep_cpu_get()->detected ? "checked" : "not on this processor");
        if (r->isa <= ep_cpu_get()->detected) check_row(r);
    }
}

/* The f32 rows give the same bits on every level; the narrow ones too. */
static void same_bits(void **state) {
    (void)state;
    static float x[2][MOST];
    static char y[2][MOST * 4];
    for (const ep_cpu_row *r = ep_cpu_rows; r->op; r++) {
        if (r->class != EP_CPU_POINTWISE || r->isa > ep_cpu_get()->detected) continue;
        const ep_cpu_row *base = ep_cpu_select(EP_CPU_POINTWISE, r->dtype, EP_ISA_PORTABLE);
        for (int k = 0; k < 2; k++)
            for (int i = 0; i < 1000; i++)
                ep_element_store(r->dtype, (char *)x[k] + i * (int)ep_dtype_size(r->dtype), random_value());
        for (int op = 0; op < EP_OP_WHERE; op++) {
            static const int step[2] = {1, 1};
            const void *in[2] = {x[0], x[1]};
            const ep_pointwise_table *a = r->table, *b = base->table;
            a->op[op].run(1000, in, step, y[0]);
            b->op[op].run(1000, in, step, y[1]);
            for (int i = 0; i < 1000; i++) {
                int size = (int)ep_dtype_size(r->dtype);
                double u = ep_element_load(r->dtype, y[0] + i * size), v = ep_element_load(r->dtype, y[1] + i * size);
                if (isnan(u) && isnan(v)) continue;
                if (memcmp(y[0] + i * size, y[1] + i * size, (size_t)size) != 0)
                    fail_msg("%s: %.9g, portable %.9g at %d", a->op[op].name, u, v, i);
            }
        }
    }
}

/* Fastest first and portable last, so that every dtype has a row at every level; names follow their row. */
static void list(void **state) {
    (void)state;
    for (int level = 0; level < EP_ISA_COUNT; level++)
        for (int d = EP_DTYPE_F32; d <= EP_DTYPE_F16; d++) {
            const ep_cpu_row *r = ep_cpu_select(EP_CPU_POINTWISE, (ep_dtype)d, (ep_isa)level);
            assert_non_null(r);
            assert_true(r->isa <= (ep_isa)level);
            assert_string_equal(ep_cpu_why_not(r, (ep_isa)level), "");
        }
    for (const ep_cpu_row *r = ep_cpu_rows; r->op; r++) {
        if (r->class != EP_CPU_POINTWISE) continue;
        char name[64];
        snprintf(name, sizeof name, "ep_%s_add_%s_%s", ep_dtype_name(r->dtype), ep_isa_name(r->isa), r->tile);
        assert_string_equal(((const ep_pointwise_table *)r->table)->op[EP_OP_ADD].name, name);
        if (r->isa > EP_ISA_PORTABLE) assert_true(ep_cpu_why_not(r, EP_ISA_PORTABLE)[0] != 0);
    }
}

static void check_name(const char *name, const char *dtype, const char *op) {
    ep_our_name n;
    char back[128];
    if (!ep_our_name_parse(name, &n)) fail_msg("%s does not parse", name);
    assert_string_equal(n.dtype, dtype);
    assert_string_equal(n.op, op);
    assert_true(ep_our_name_make(&n, back, sizeof back));
    assert_string_equal(back, name);
}

/* Every name that a trace may show is one that our parser reads. */
static void names(void **state) {
    (void)state;
    for (const ep_cpu_row *r = ep_cpu_rows; r->op; r++) {
        const char *dtype = ep_dtype_name(r->dtype);
        if (r->class == EP_CPU_POINTWISE) {
            const ep_pointwise_table *t = r->table;
            for (int op = 0; op < EP_POINTWISE_OPS; op++) check_name(t->op[op].name, dtype, ep_op_name((ep_op)op));
            continue;
        }
        const ep_row_table *t = r->table;
        check_name(t->sum_name, dtype, "sum");
        check_name(t->mean_name, dtype, "mean");
        check_name(t->amax_name, dtype, "amax");
        check_name(t->softmax_name, dtype, "softmax");
        check_name(t->layer_norm_name, dtype, "layer_norm");
        check_name(t->rms_norm_name, dtype, "rms_norm");
        check_name(t->cast_name, dtype, "cast");
    }
    check_name("ep_bf16_gemm_bias_onednn_amxbf16_tn", "bf16", "gemm_bias");
    check_name("ep_f32_gemm_onednn_avx512_nn", "f32", "gemm");
    check_name("ep_f16_gemm_bias_gelu_tanh_residual_onednn_avx512_tn", "f16", "gemm_bias_gelu_tanh_residual");
    check_name("ep_i64_copy_portable", "i64", "copy");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(pointwise_rows), cmocka_unit_test(same_bits),
                                       cmocka_unit_test(list), cmocka_unit_test(names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
