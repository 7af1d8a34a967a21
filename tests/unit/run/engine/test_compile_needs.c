// ctest: threads
/* Inputs that other compilers went wrong on: what must hold for them here. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <epilogue/epilogue.h>

#include "model/tensor/tensor.h"
#include "run/engine/compile.h"
#include "seen.h"
#include "tensors.h"

static ep_context *ctx;
static ep_tensor *gate, *up, *bias; /* weights of the functions */

static ep_tensor *tensor(ep_dtype dtype, int ndim, const int64_t *sizes, uint64_t seed) {
    return random_tensor(dtype, ndim, sizes, seed, 1);
}

/* How many elements differ. */
static int64_t differing(const ep_tensor *a, const ep_tensor *b) {
    int64_t n = ep_tensor_numel(a), count = 0;
    size_t size = ep_dtype_size(ep_tensor_dtype(a));
    assert_int_equal(n, ep_tensor_numel(b));
    for (int64_t i = 0; i < n; i++)
        count += memcmp((const char *)a->data + (size_t)i * size, (const char *)b->data + (size_t)i * size, size) != 0;
    return count;
}

static ep_compile_options waiting(void) {
    return (ep_compile_options){.wait = EP_WAIT_ALWAYS, .no_disk_cache = true};
}

/* ---- what a call launches and which ops it names ---- */

static bool names_op(const seen *s, const char *op) {
    for (int i = 0; i < s->op_count; i++)
        if (strcmp(s->ops[i], op) == 0) return true;
    return false;
}

/* ---- the functions ---- */

static ep_status gelu_mul(ep_context *c, void *user, const ep_tensor *const *in, int n, ep_tensor **out, int m) {
    ep_tensor *h;
    (void)user, (void)n, (void)m;
    EP_TRY(ep_gelu_tanh(c, in[0], &h));
    ep_status s = ep_mul(c, h, in[1], out);
    ep_tensor_destroy(h);
    return s;
}

static ep_status one_linear(ep_context *c, void *user, const ep_tensor *const *in, int n, ep_tensor **out, int m) {
    (void)user, (void)n, (void)m;
    return ep_linear(c, in[0], gate, bias, out);
}

/* h = gelu(g); m = h * u; returns m and the sum of h: h has a second reader, g and u are products. */
static ep_status gate_read_twice(ep_context *c, void *user, const ep_tensor *const *in, int n, ep_tensor **out, int m) {
    ep_tensor *g = NULL, *u = NULL, *h = NULL;
    (void)user, (void)n, (void)m;
    ep_status s = ep_linear(c, in[0], gate, bias, &g);
    if (s == EP_OK) s = ep_linear(c, in[0], up, NULL, &u);
    if (s == EP_OK) s = ep_gelu_tanh(c, g, &h);
    if (s == EP_OK) s = ep_mul(c, h, u, &out[0]);
    if (s == EP_OK) s = ep_sum(c, h, 2, false, &out[1]);
    ep_tensor_destroy(h);
    ep_tensor_destroy(u);
    ep_tensor_destroy(g);
    return s;
}

/* ---- the tests ---- */

/* A gated product that is multiplied in f32 drifts from the model's own bf16: the activation is rounded first. */
static void the_activation_is_rounded_before_the_product(void **state) {
    (void)state;
    ep_tensor *in[2] = {tensor(EP_DTYPE_BF16, 2, (int64_t[]){64, 352}, 1),
                        tensor(EP_DTYPE_BF16, 2, (int64_t[]){64, 352}, 2)};
    const ep_tensor *const *inputs = (const ep_tensor *const *)in;
    ep_tensor *eager, *out[2];
    OK(gelu_mul(ctx, NULL, inputs, 2, &eager, 1));
    for (int fewest = 0; fewest < 2; fewest++) {
        ep_context *c;
        ep_compiled *f;
        ep_compile_options o = waiting();
        OK(ep_context_create(
            &(ep_context_options){.threads = 1, .rounding = fewest ? EP_ROUNDING_FEWEST : EP_ROUNDING_EAGER}, NULL,
            &c));
        OK(ep_compile(c, gelu_mul, NULL, 2, 1, &o, &f));
        f->no_choice = true;
        OK(ep_compiled_call(f, inputs, &out[fewest]));
        assert_int_equal(ep_compiled_answer(f), EP_ANSWER_PLAN);
        ep_compiled_destroy(f);
        ep_context_destroy(c);
    }
    assert_int_equal(differing(out[0], eager), 0);
    assert_true(differing(out[1], eager) > 100); /* these inputs do tell the two apart */
    ep_tensor *all[] = {in[0], in[1], eager, out[0], out[1]};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) ep_tensor_destroy(all[i]);
}

/* One Linear with its bias: compiled is the same one kernel, the view of the weight is gone, and nothing else is. */
static void one_linear_is_the_same_kernel(void **state) {
    (void)state;
    static const ep_dtype dtypes[] = {EP_DTYPE_F32, EP_DTYPE_BF16, EP_DTYPE_F16};
    for (int d = 0; d < 3; d++) {
        gate = tensor(dtypes[d], 2, (int64_t[]){96, 64}, 1);
        bias = tensor(dtypes[d], 1, (int64_t[]){96}, 2);
        ep_tensor *x = tensor(dtypes[d], 3, (int64_t[]){2, 5, 64}, 3), *y, *z;
        const ep_tensor *in[1] = {x};
        ep_compiled *c;
        ep_compile_options o = waiting();
        seen eager, compiled;
        ep_probe p;
        OK(ep_compile(ctx, one_linear, NULL, 1, 1, &o, &c));
        OK(ep_compiled_call(c, in, &y));
        ep_tensor_destroy(y);
        watch(&eager, &p);
        OK(one_linear(ctx, NULL, in, 1, &z, 1));
        watch(&compiled, &p);
        OK(ep_compiled_call(c, in, &y));
        unwatch();
        assert_int_equal(differing(y, z), 0);
        assert_true(eager.count == 1 && compiled.count == 1);
        assert_string_equal(eager.kernels[0], compiled.kernels[0]);
        assert_true(names_op(&eager, "t") && !names_op(&compiled, "t"));
        assert_true(compiled.op_count < eager.op_count);
        assert_string_equal(ep_compiled_choice(c),
                            "compiled kept: its kernels are eager's own, launched with less work between them");
        ep_tensor *all[] = {x, y, z, gate, bias};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) ep_tensor_destroy(all[i]);
        ep_compiled_destroy(c);
    }
}

/* No number of sizes after which a function runs eager for ever, and none that is silent about it. */
static void the_ninth_size_is_as_good_as_the_first(void **state) {
    (void)state;
    gate = tensor(EP_DTYPE_F32, 2, (int64_t[]){48, 32}, 1);
    bias = tensor(EP_DTYPE_F32, 1, (int64_t[]){48}, 2);
    ep_compiled *c;
    OK(ep_compile(ctx, one_linear, NULL, 1, 1, &(ep_compile_options){.no_disk_cache = true}, &c));
    for (int64_t batch = 1; batch <= 12; batch++) {
        ep_tensor *x = tensor(EP_DTYPE_F32, 2, (int64_t[]){batch, 32}, 3), *y, *z;
        OK(ep_compiled_call(c, (const ep_tensor *[]){x}, &y));
        OK(one_linear(ctx, NULL, (const ep_tensor *[]){x}, 1, &z, 1));
        assert_int_equal(differing(y, z), 0);
        assert_int_equal(ep_compiled_answer(c), EP_ANSWER_PLAN);
        ep_tensor *all[] = {x, y, z};
        for (size_t i = 0; i < 3; i++) ep_tensor_destroy(all[i]);
    }
    ep_compile_stats s;
    ep_compiled_stats(c, &s);
    assert_int_equal(s.entries, 1);
    assert_int_equal(s.recompiles, 0);
    assert_int_equal(s.eager_calls, 0);
    ep_compiled_destroy(c);
    ep_tensor_destroy(gate);
    ep_tensor_destroy(bias);
}

/* A planner that gives the gate's place away too early, or drops what a second reader needs, gives wrong sums. Products
 * of small whole numbers are exact in any order, so packed ones must agree as well. */
static void a_gate_that_is_read_twice_lives_long_enough(void **state) {
    (void)state;
    gate = tensor(EP_DTYPE_BF16, 2, (int64_t[]){96, 64}, 1);
    up = tensor(EP_DTYPE_BF16, 2, (int64_t[]){96, 64}, 2);
    bias = tensor(EP_DTYPE_BF16, 1, (int64_t[]){96}, 3);
    ep_tensor *whole[] = {gate, up, bias};
    for (int t = 0; t < 3; t++) {
        size_t n = (size_t)ep_tensor_numel(whole[t]);
        double *v = malloc(sizeof *v * n);
        for (size_t i = 0; i < n; i++) v[i] = (double)((i * 7 + (size_t)t) % 5) - 2;
        OK(ep_tensor_write_f64(whole[t], v, n, NULL));
        free(v);
    }
    for (int attach = 0; attach < 2; attach++) {
        ep_compile_options o = waiting();
        o.weights_stay = attach;
        ep_compiled *c;
        OK(ep_compile(ctx, gate_read_twice, NULL, 1, 2, &o, &c));
        c->no_choice = true;
        c->attach_always = attach;
        for (int64_t rows = 1; rows < 70; rows += 17) {
            ep_tensor *x = tensor(EP_DTYPE_BF16, 2, (int64_t[]){rows, 64}, 4), *a[2], *b[2];
            double v[70 * 64];
            for (int64_t i = 0; i < rows * 64; i++) v[i] = (double)(i % 7) - 3;
            OK(ep_tensor_write_f64(x, v, (size_t)(rows * 64), NULL));
            OK(ep_compiled_call(c, (const ep_tensor *[]){x}, a));
            OK(gate_read_twice(ctx, NULL, (const ep_tensor *[]){x}, 1, b, 2));
            for (int k = 0; k < 2; k++) {
                assert_int_equal(differing(a[k], b[k]), 0);
                ep_tensor_destroy(a[k]);
                ep_tensor_destroy(b[k]);
            }
            ep_tensor_destroy(x);
        }
        ep_compiled_destroy(c);
    }
    for (int t = 0; t < 3; t++) ep_tensor_destroy(whole[t]);
}

/* Three shapes under the static policy: the recording alone tells of two recompiles and why. */
static void explain_finds_the_recompiles_in_our_trace(void **state) {
    (void)state;
    ep_compile_options o = waiting();
    o.specialize = EP_SPECIALIZE_STATIC;
    ep_compiled *c;
    ep_profile *p;
    ep_trace *t;
    ep_error err;
    ep_report *r;
    OK(ep_compile(ctx, gelu_mul, NULL, 2, 1, &o, &c));
    OK(ep_profile_start(&(ep_profile_options){.active = 1, .repeat = 1}, &err, &p));
    for (int64_t n = 3; n < 6; n++) {
        ep_tensor *x = tensor(EP_DTYPE_F32, 2, (int64_t[]){n, 40}, 1), *y;
        OK(ep_compiled_call(c, (const ep_tensor *[]){x, x}, &y));
        ep_tensor_destroy(x);
        ep_tensor_destroy(y);
    }
    ep_profile_step(p);
    OK(ep_profile_stop(p, &err, &t));
    const ep_trace *list[] = {t};
    const char *label = "compiled";
    OK(ep_explain(list, &label, 1, NULL, &err, &r));
    const char *json = strstr(ep_report_json(r), "\"recompiles\"");
    assert_non_null(json);
    assert_non_null(strstr(json, "dim 0 was 3, now 4"));
    assert_non_null(strstr(json, "dim 0 was 4, now 5"));
    ep_report_destroy(r);
    ep_trace_destroy(t);
    ep_compiled_destroy(c);
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
        cmocka_unit_test(the_activation_is_rounded_before_the_product),
        cmocka_unit_test(one_linear_is_the_same_kernel),
        cmocka_unit_test(the_ninth_size_is_as_good_as_the_first),
        cmocka_unit_test(a_gate_that_is_read_twice_lives_long_enough),
        cmocka_unit_test(explain_finds_the_recompiles_in_our_trace),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
