// ctest: threads
/* What a pointwise op or group behind a product becomes: its epilogue, under a name that says so, with eager's bits.
 * Operands are small whole numbers, whose sums are exact in any order, so that only the pointwise part can differ. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <epilogue/epilogue.h>

#include "model/tensor/tensor.h"
#include "run/engine/compile.h"
#include "seen.h"

#define OK(expr) assert_int_equal((expr), EP_OK)

enum { DIM = 64, HIDDEN = 96, ROWS = 33 };

static ep_context *ctx;
static ep_tensor *up, *down, *wide, *bias, *wide_bias; /* weights of all functions */

static ep_tensor *whole(ep_dtype dtype, int ndim, const int64_t *sizes, unsigned seed) {
    ep_tensor *t;
    OK(ep_tensor_create(dtype, ndim, sizes, NULL, &t));
    size_t n = (size_t)ep_tensor_numel(t);
    double *v = malloc(sizeof *v * (n + 1));
    for (size_t i = 0; i < n; i++) v[i] = (double)((seed = seed * 1664525u + 1013904223u) >> 29) - 3;
    OK(ep_tensor_write_f64(t, v, n, NULL));
    free(v);
    return t;
}

static void make_weights(ep_dtype dtype) {
    up = whole(dtype, 2, (int64_t[]){HIDDEN, DIM}, 1);
    down = whole(dtype, 2, (int64_t[]){DIM, HIDDEN}, 2);
    wide = whole(dtype, 2, (int64_t[]){2 * HIDDEN, DIM}, 3);
    bias = whole(dtype, 1, (int64_t[]){HIDDEN}, 4);
    wide_bias = whole(dtype, 1, (int64_t[]){2 * HIDDEN}, 5);
}

static void drop(ep_tensor **t, int n) {
    for (int i = 0; i < n; i++) ep_tensor_destroy(t[i]);
}

/* in: x [rows, dim], r [rows, dim], h [rows, hidden] */
static ep_status linear_gelu_linear(ep_context *c, void *user, const ep_tensor *const *in, int n, ep_tensor **out,
                                    int m) {
    ep_tensor *t[2] = {NULL};
    (void)user, (void)n, (void)m;
    ep_status s = ep_linear(c, in[0], up, NULL, &t[0]);
    if (s == EP_OK) s = ep_gelu_tanh(c, t[0], &t[1]);
    if (s == EP_OK) s = ep_linear(c, t[1], down, NULL, out);
    drop(t, 2);
    return s;
}

static ep_status linear_relu(ep_context *c, void *user, const ep_tensor *const *in, int n, ep_tensor **out, int m) {
    ep_tensor *t[1] = {NULL};
    (void)user, (void)n, (void)m;
    ep_status s = ep_linear(c, in[0], up, bias, &t[0]);
    if (s == EP_OK) s = ep_relu(c, t[0], out);
    drop(t, 1);
    return s;
}

static ep_status linear_residual(ep_context *c, void *user, const ep_tensor *const *in, int n, ep_tensor **out, int m) {
    ep_tensor *t[1] = {NULL};
    (void)user, (void)n, (void)m;
    ep_status s = ep_linear(c, in[2], down, NULL, &t[0]);
    if (s == EP_OK) s = ep_add(c, in[1], t[0], out);
    drop(t, 1);
    return s;
}

static ep_status linear_mul_sub(ep_context *c, void *user, const ep_tensor *const *in, int n, ep_tensor **out, int m) {
    ep_tensor *t[2] = {NULL};
    (void)user, (void)n, (void)m;
    ep_status s = ep_linear(c, in[0], up, bias, &t[0]);
    if (s == EP_OK) s = ep_mul(c, bias, t[0], &t[1]); /* a row */
    if (s == EP_OK) s = ep_sub(c, t[1], in[2], out);
    drop(t, 2);
    return s;
}

static ep_status linear_gelu_mul(ep_context *c, void *user, const ep_tensor *const *in, int n, ep_tensor **out, int m) {
    ep_tensor *t[2] = {NULL};
    (void)user, (void)n, (void)m;
    ep_status s = ep_linear(c, in[0], up, bias, &t[0]);
    if (s == EP_OK) s = ep_gelu_erf(c, t[0], &t[1]);
    if (s == EP_OK) s = ep_mul(c, t[1], in[2], out);
    drop(t, 2);
    return s;
}

/* `user`: halves, or interleaved if it is not NULL */
static ep_status packed_swiglu(ep_context *c, void *user, const ep_tensor *const *in, int n, ep_tensor **out, int m) {
    ep_tensor *t[5] = {NULL};
    (void)n, (void)m;
    ep_status s = ep_linear(c, in[0], wide, wide_bias, &t[0]);
    for (int i = 0; s == EP_OK && i < 2; i++)
        s = user ? ep_slice(c, t[0], 1, i, 2 * HIDDEN, 2, &t[1 + i]) : ep_chunk(c, t[0], 1, 2, i, &t[1 + i]);
    if (s == EP_OK) s = ep_silu(c, t[1], &t[3]);
    if (s == EP_OK) s = ep_mul(c, t[3], t[2], &t[4]);
    if (s == EP_OK) s = ep_linear(c, t[4], down, NULL, out);
    drop(t, 5);
    return s;
}

/* The first half alone: what nobody reads of the product is not computed. */
static ep_status half_residual(ep_context *c, void *user, const ep_tensor *const *in, int n, ep_tensor **out, int m) {
    ep_tensor *t[2] = {NULL};
    (void)user, (void)n, (void)m;
    ep_status s = ep_linear(c, in[0], wide, wide_bias, &t[0]);
    if (s == EP_OK) s = ep_chunk(c, t[0], 1, 2, 1, &t[1]);
    if (s == EP_OK) s = ep_add(c, t[1], in[2], out);
    drop(t, 2);
    return s;
}

static const struct {
    const char *kernels[2]; /* without the dtype; those of a library by what they begin with */
    ep_fn fn;
    bool user;
    const char *step; /* the one kernel where gemm does the steps; NULL: it can't */
} table[] = {
    {{"epi_gem_linear_gelu_tanh_%s", "ep_%s_gemm_"}, linear_gelu_linear, false, NULL},
    {{"epi_gem_linear_relu_%s"}, linear_relu, false, NULL},
    {{"epi_gem_linear_add_%s"}, linear_residual, false, "ep_%s_gemm_add_onednn"},
    {{"epi_gem_linear_mul_sub_%s"}, linear_mul_sub, false, "ep_%s_gemm_bias_mul_sub_onednn"},
    {{"epi_gem_linear_gelu_erf_mul_%s"}, linear_gelu_mul, false, NULL},
    {{"epi_gem_linear_silu_mul_%s", "ep_%s_gemm_"}, packed_swiglu, false, NULL},
    {{"epi_gem_linear_silu_mul_%s", "ep_%s_gemm_"}, packed_swiglu, true, NULL},
    {{"epi_gem_linear_add_%s"}, half_residual, false, NULL},
};

static void make_inputs(ep_dtype dtype, int64_t rows, ep_tensor *in[3]) {
    in[0] = whole(dtype, 2, (int64_t[]){rows, DIM}, 7);
    in[1] = whole(dtype, 2, (int64_t[]){rows, DIM}, 8);
    in[2] = whole(dtype, 2, (int64_t[]){rows, HIDDEN}, 9);
}

/* `exact`: no product reads what is no whole number. Else the products' sums may be made in another order. */
static void same(ep_tensor *a, ep_tensor *b, bool exact) {
    ep_difference d;
    OK(ep_tensor_compare(a, b, 1, NULL, &d));
    if (d.max_abs > 0 && (exact || d.max_rel > 0.05)) fail_msg("%g at %lld", d.max_abs, (long long)d.at);
    ep_tensor_destroy(a);
    ep_tensor_destroy(b);
}

/* `steps`: what gemm itself can do behind a product, instead of packed weights. */
static void one_row(size_t i, ep_dtype dtype, bool steps) {
    ep_compiled *c;
    ep_tensor *in[3], *a, *b;
    void *user = table[i].user ? ctx : NULL;
    ep_compile_options o = {.wait = EP_WAIT_ALWAYS, .no_disk_cache = true, .weights_stay = !steps};
    OK(ep_compile(ctx, table[i].fn, user, 3, 1, &o, &c));
    c->no_choice = true;
    c->steps_always = steps;
    c->attach_always = !steps;
    make_inputs(dtype, ROWS, in);
    const ep_tensor *const *inputs = (const ep_tensor *const *)in;
    OK(ep_compiled_call(c, inputs, &b));
    ep_tensor_destroy(b);
    seen s, eager;
    ep_probe p;
    watch(&s, &p);
    OK(ep_compiled_call(c, inputs, &b));
    unwatch();
    watch(&eager, &p);
    OK(table[i].fn(ctx, user, inputs, 3, &a, 1));
    unwatch();
    if (table[i].fn != half_residual) assert_int_equal(s.flops, eager.flops); /* biases, too */
    same(b, a, table[i].kernels[1] == NULL);
    assert_int_equal(s.count, table[i].kernels[1] ? 2 : 1);
    for (int k = 0; k < s.count; k++) {
        char want[128];
        snprintf(want, sizeof want, steps ? table[i].step : table[i].kernels[k], ep_dtype_name(dtype));
        if (strncmp(s.kernels[k], want, strlen(want))) fail_msg("row %zu: %s, not %s", i, s.kernels[k], want);
    }
    drop(in, 3);
    ep_compiled_destroy(c);
}

static void what_follows_a_product_is_its_epilogue(void **state) {
    (void)state;
    static const ep_dtype dtypes[] = {EP_DTYPE_BF16, EP_DTYPE_F32, EP_DTYPE_F16};
    for (int d = 0; d < 3; d++) {
        make_weights(dtypes[d]);
        for (size_t i = 0; i < sizeof table / sizeof *table; i++) one_row(i, dtypes[d], false);
        drop((ep_tensor *[]){up, down, wide, bias, wide_bias}, 5);
    }
}

static void steps_of_f32_are_done_by_gemm(void **state) {
    (void)state;
    make_weights(EP_DTYPE_F32);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].step) one_row(i, EP_DTYPE_F32, true);
    drop((ep_tensor *[]){up, down, wide, bias, wide_bias}, 5);
}

/* Without packed weights there are two ways besides eager; which is taken is said. */
static void steps_are_measured_too(void **state) {
    (void)state;
    make_weights(EP_DTYPE_F32);
    ep_compiled *c;
    ep_tensor *in[3], *a, *b;
    OK(ep_compile(ctx, linear_residual, NULL, 3, 1, &(ep_compile_options){.no_disk_cache = true}, &c));
    make_inputs(EP_DTYPE_F32, ROWS, in);
    const ep_tensor *const *inputs = (const ep_tensor *const *)in;
    for (int call = 0; call < 300 && (call == 0 || !ep_compiled_settled(c)); call++) {
        OK(linear_residual(ctx, NULL, inputs, 3, &a, 1));
        OK(ep_compiled_call(c, inputs, &b));
        same(b, a, true);
    }
    assert_true(ep_compiled_settled(c));
    assert_non_null(strstr(ep_compiled_choice(c), "post-ops"));
    assert_null(strstr(ep_compiled_choice(c), "are out")); /* the bits were the same */
    drop(in, 3);
    ep_compiled_destroy(c);
    drop((ep_tensor *[]){up, down, wide, bias, wide_bias}, 5);
}

/* Whatever was measured, the bits are eager's, and both what was chosen and why are said. */
static void the_choice_is_made_by_measuring_and_said(void **state) {
    (void)state;
    make_weights(EP_DTYPE_BF16);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        ep_compiled *c;
        ep_tensor *in[3], *a, *b;
        void *user = table[i].user ? ctx : NULL;
        OK(ep_compile(ctx, table[i].fn, user, 3, 1, &(ep_compile_options){.no_disk_cache = true, .weights_stay = true},
                      &c));
        make_inputs(EP_DTYPE_BF16, ROWS, in);
        const ep_tensor *const *inputs = (const ep_tensor *const *)in;
        for (int call = 0; call < 300 && (call == 0 || !ep_compiled_settled(c)); call++) {
            OK(table[i].fn(ctx, user, inputs, 3, &a, 1));
            OK(ep_compiled_call(c, inputs, &b));
            same(b, a, table[i].kernels[1] == NULL);
            OK(ep_compiled_wait(c));
        }
        assert_true(ep_compiled_settled(c));
        assert_non_null(strstr(ep_compiled_choice(c), "epilogue"));
        assert_non_null(strstr(ep_compiled_choice(c), "eager "));
        drop(in, 3);
        ep_compiled_destroy(c);
    }
    drop((ep_tensor *[]){up, down, wide, bias, wide_bias}, 5);
}

/* Tells the choice times that were not measured, by way and for both units, until it is made. */
static void tell(ep_compiled *c, const int64_t ns[2][EP_RUNNERS], int64_t eager) {
    ep_choice *choice = c->last->choice;
    assert_false(choice->decided);
    assert_int_equal(choice->unit_count, 2);
    for (int n = 0; !choice->decided && n < 100; n++) {
        ep_runner who = ep_choice_next(choice, ~0u);
        int64_t each[2] = {ns[0][who], ns[1][who]};
        ep_choice_sample(choice, who, who == EP_RUN_EAGER ? eager : each[0] + each[1], 0, each);
    }
    assert_true(choice->decided);
    ep_ways_decided(c, choice);
}

static ep_compiled *compiled_with_packs(ep_tensor *in[3]) {
    ep_compiled *c;
    ep_tensor *y;
    OK(ep_compile(ctx, linear_gelu_linear, NULL, 3, 1,
                  &(ep_compile_options){.wait = EP_WAIT_ALWAYS, .no_disk_cache = true, .weights_stay = true}, &c));
    for (int i = 0; i < 3; i++) { /* asked for, packed, there */
        OK(ep_compiled_call(c, (const ep_tensor *const *)in, &y));
        ep_tensor_destroy(y);
        OK(ep_compiled_wait(c));
    }
    assert_true(c->last->attach == EP_ATTACH_READY);
    return c;
}

static void names_of_a_call(ep_compiled *c, ep_tensor *in[3], seen *s) {
    ep_tensor *y;
    ep_probe p;
    watch(s, &p);
    OK(ep_compiled_call(c, (const ep_tensor *const *)in, &y));
    unwatch();
    ep_tensor_destroy(y);
}

static void packed_weights_go_when_another_way_wins(void **state) {
    (void)state;
    static const int64_t attached_loses[2][EP_RUNNERS] = {{5000000, 0, 6000000, 0, 0}, {5000000, 0, 6000000, 0, 0}};
    ep_tensor *in[3], *few[3], *more[3];
    ep_compile_stats had, has;
    seen s;
    make_weights(EP_DTYPE_BF16);
    make_inputs(EP_DTYPE_BF16, ROWS, in);
    make_inputs(EP_DTYPE_BF16, ROWS + 1, few);
    make_inputs(EP_DTYPE_BF16, 4 * ROWS, more);
    ep_compiled *c = compiled_with_packs(in);
    ep_compiled_stats(c, &had);
    assert_true(had.packed_bytes > 0);
    assert_int_equal(had.packed_freed_bytes, 0);
    tell(c, attached_loses, 20000000);
    ep_compiled_stats(c, &has);
    assert_int_equal(has.packed_bytes, 0);
    assert_int_equal(has.packed_freed_bytes, had.packed_bytes);
    names_of_a_call(c, in, &s); /* still answers, and eager's single op stays eager's kernel */
    assert_int_equal(s.count, 3);
    names_of_a_call(c, few, &s); /* another size of the class packs nothing again */
    OK(ep_compiled_wait(c));
    ep_compiled_stats(c, &has);
    assert_int_equal(has.packed_bytes, 0);
    names_of_a_call(c, more, &s); /* of another class: not known yet */
    OK(ep_compiled_wait(c));
    ep_compiled_stats(c, &has);
    assert_int_equal(has.packed_bytes, had.packed_bytes);
    drop(in, 3), drop(few, 3), drop(more, 3);
    ep_compiled_destroy(c);
    drop((ep_tensor *[]){up, down, wide, bias, wide_bias}, 5);
}

static void products_of_one_function_go_their_own_ways(void **state) {
    (void)state;
    static const int64_t first_gains[2][EP_RUNNERS] = {{5000000, 0, 3000000, 0, 3000000},
                                                       {5000000, 0, 6000000, 0, 5000000}};
    ep_tensor *in[3], *few[3], *a, *b;
    ep_compile_stats had, has;
    seen s;
    make_weights(EP_DTYPE_BF16);
    make_inputs(EP_DTYPE_BF16, ROWS, in);
    make_inputs(EP_DTYPE_BF16, ROWS + 1, few);
    ep_compiled *c = compiled_with_packs(in);
    ep_compiled_stats(c, &had);
    tell(c, first_gains, 20000000);
    assert_int_equal(c->last->choice->kept, EP_RUN_MIXED);
    for (int size = 0; size < 2; size++) { /* the size that was measured, and another one of the class */
        ep_tensor **x = size ? few : in;
        names_of_a_call(c, x, &s);
        OK(ep_compiled_wait(c));
        names_of_a_call(c, x, &s);
        assert_int_equal(s.count, 2);
        assert_string_equal(s.kernels[0], "epi_gem_linear_gelu_tanh_bf16");
        assert_non_null(strstr(s.kernels[1], "gemm"));
        assert_non_null(strstr(s.kernels[1], "onednn"));
        OK(linear_gelu_linear(ctx, NULL, (const ep_tensor *const *)x, 3, &a, 1));
        OK(ep_compiled_call(c, (const ep_tensor *const *)x, &b));
        same(b, a, true);
    }
    assert_int_equal(ep_compiled_answer(c), EP_ANSWER_EPILOGUE);
    ep_compiled_stats(c, &has);
    assert_true(has.packed_bytes > 0 && has.packed_freed_bytes > 0); /* up stays packed, down does not */
    assert_int_equal(has.packed_bytes + has.packed_freed_bytes, had.packed_bytes);
    assert_non_null(
        strstr(ep_compiled_report(c), "  linear: as in the plan (kept) 5000.00 us; of packed weights 6000"));
    drop(in, 3), drop(few, 3);
    ep_compiled_destroy(c);
    drop((ep_tensor *[]){up, down, wide, bias, wide_bias}, 5);
}

/* A choice made beside other work dropped the epilogue: made again, its weights are packed anew, it wins, and another size
 * of the class takes it, too. */
static void a_way_that_was_dropped_comes_back(void **state) {
    (void)state;
    static const int64_t attached_loses[2][EP_RUNNERS] = {{5000000, 0, 6000000, 0, 0}, {5000000, 0, 6000000, 0, 0}};
    static const int64_t attached_wins[2][EP_RUNNERS] = {{5000000, 0, 3000000, 0, 0}, {5000000, 0, 3000000, 0, 0}};
    ep_tensor *in[3], *few[3], *a, *b;
    ep_compile_stats had, has;
    make_weights(EP_DTYPE_BF16);
    make_inputs(EP_DTYPE_BF16, ROWS, in);
    make_inputs(EP_DTYPE_BF16, ROWS + 1, few);
    ep_compiled *c = compiled_with_packs(in);
    ep_compiled_stats(c, &had);
    tell(c, attached_loses, 20000000);
    ep_choice *choice = c->last->choice;
    choice->doubtful = true;
    for (int call = 0; choice->decided; call++) { /* until one that is watched finds that */
        assert_true(call < 200);
        OK(ep_compiled_call(c, (const ep_tensor *const *)in, &b));
        ep_tensor_destroy(b);
    }
    assert_int_equal(ep_compiled_answer(c), EP_ANSWER_UNDECIDED);
    for (int i = 0; i < 3; i++) { /* one of them may be a sample */
        OK(linear_gelu_linear(ctx, NULL, (const ep_tensor *const *)in, 3, &a, 1));
        OK(ep_compiled_call(c, (const ep_tensor *const *)in, &b));
        same(b, a, false);
        OK(ep_compiled_wait(c));
    }
    assert_true(c->last->attach == EP_ATTACH_READY && choice->offered[EP_RUN_ATTACHED]);
    tell(c, attached_wins, 20000000);
    assert_int_equal(choice->kept, EP_RUN_ATTACHED);
    for (int i = 0; i < 4; i++) {
        ep_tensor **x = i % 2 ? few : in;
        OK(linear_gelu_linear(ctx, NULL, (const ep_tensor *const *)x, 3, &a, 1));
        OK(ep_compiled_call(c, (const ep_tensor *const *)x, &b));
        same(b, a, false);
        OK(ep_compiled_wait(c));
    }
    assert_int_equal(ep_compiled_answer(c), EP_ANSWER_EPILOGUE);
    ep_compiled_stats(c, &has);
    assert_int_equal(has.packed_bytes, had.packed_bytes);
    drop(in, 3), drop(few, 3);
    ep_compiled_destroy(c);
    drop((ep_tensor *[]){up, down, wide, bias, wide_bias}, 5);
}

/* Weights that may change cannot be packed: the single op is eager's kernel then, and no code is generated for it. */
static void weights_that_may_change_are_not_packed(void **state) {
    (void)state;
    make_weights(EP_DTYPE_F32);
    ep_compiled *c;
    ep_tensor *in[3], *y;
    ep_compile_stats stats;
    OK(ep_compile(ctx, linear_gelu_linear, NULL, 3, 1,
                  &(ep_compile_options){.wait = EP_WAIT_ALWAYS, .no_disk_cache = true}, &c));
    make_inputs(EP_DTYPE_F32, ROWS, in);
    OK(ep_compiled_call(c, (const ep_tensor *const *)in, &y));
    ep_compiled_stats(c, &stats);
    assert_int_equal(stats.kernels_generated, 0);
    assert_int_equal(stats.packed_bytes, 0);
    assert_int_equal(stats.eager_calls, 0);
    ep_tensor_destroy(y);
    drop(in, 3);
    ep_compiled_destroy(c);
    drop((ep_tensor *[]){up, down, wide, bias, wide_bias}, 5);
}

static int setup(void **state) {
    (void)state;
    return ep_context_create(&(ep_context_options){.threads = 2}, NULL, &ctx) == EP_OK ? 0 : 1;
}

static int teardown(void **state) {
    (void)state;
    ep_context_destroy(ctx);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_follows_a_product_is_its_epilogue),
        cmocka_unit_test(steps_of_f32_are_done_by_gemm),
        cmocka_unit_test(steps_are_measured_too),
        cmocka_unit_test(the_choice_is_made_by_measuring_and_said),
        cmocka_unit_test(packed_weights_go_when_another_way_wins),
        cmocka_unit_test(products_of_one_function_go_their_own_ways),
        cmocka_unit_test(a_way_that_was_dropped_comes_back),
        cmocka_unit_test(weights_that_may_change_are_not_packed),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
