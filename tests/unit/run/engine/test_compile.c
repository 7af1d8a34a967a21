// ctest: threads
/* Compiled functions: what is recorded and fused, and that results are those of the function itself. */
#include <stdio.h>

#include "compile_case.h"

static void geglu_is_three_products_and_one_generated_kernel(void **state) {
    (void)state;
    static const ep_dtype dtypes[] = {EP_DTYPE_BF16, EP_DTYPE_F32, EP_DTYPE_F16};
    for (int d = 0; d < 3; d++) {
        mlp w;
        make_mlp(&w, dtypes[d], 64, 96);
        ep_tensor *x = tensor(dtypes[d], 3, (int64_t[]){2, 5, 64}, 9), *y, *z;
        const ep_tensor *in[1] = {x};
        ep_compiled *c;
        ep_compile_options o = always();
        OK(ep_compile(ctx, geglu, &w, 1, 1, &o, &c));
        c->no_choice = true;
        OK(geglu(ctx, &w, in, 1, &z, 1));
        seen eager, compiled;
        ep_probe p;
        ep_tensor *t;
        watch(&eager, &p);
        OK(geglu(ctx, &w, in, 1, &t, 1));
        unwatch();
        ep_tensor_destroy(t);
        OK(ep_compiled_call(c, in, &y));
        same(y, z);
        ep_tensor_destroy(y);
        watch(&compiled, &p);
        OK(ep_compiled_call(c, in, &y));
        unwatch();
        same(y, z);
        assert_int_equal(eager.count, 5);
        assert_int_equal(compiled.count, 4);
        assert_string_equal(compiled.kernels[0], eager.kernels[0]); /* bias stays 1-D: the vendor's bias kernel */
        assert_string_equal(compiled.kernels[1], eager.kernels[1]);
        assert_string_equal(compiled.kernels[3], eager.kernels[4]);
        char want[64];
        snprintf(want, sizeof want, "epi_poi_gelu_tanh_mul_%s", ep_dtype_name(dtypes[d]));
        assert_string_equal(compiled.kernels[2], want);
        ep_tensor_destroy(y);
        ep_tensor_destroy(z);
        ep_tensor_destroy(x);
        ep_compiled_destroy(c);
        drop_mlp(&w);
    }
}

/* bf16: chunk(p * g, 2), a + b. Fusing must not lose the rounding between. */
static ep_status product_halves(ep_context *c, void *user, const ep_tensor *const *in, int n, ep_tensor **out, int m) {
    mlp *w = user;
    ep_tensor *t[5] = {NULL};
    (void)n;
    (void)m;
    ep_status s = ep_linear(c, in[0], w->gate, NULL, &t[0]);
    if (s == EP_OK) s = ep_linear(c, in[0], w->up, NULL, &t[1]);
    if (s == EP_OK) s = ep_mul(c, t[0], t[1], &t[2]);
    if (s == EP_OK) s = ep_chunk(c, t[2], 1, 2, 0, &t[3]);
    if (s == EP_OK) s = ep_chunk(c, t[2], 1, 2, 1, &t[4]);
    if (s == EP_OK) s = ep_add(c, t[3], t[4], out);
    for (int i = 0; i < 5; i++) ep_tensor_destroy(t[i]);
    return s;
}

static void the_rounding_between_is_kept(void **state) {
    (void)state;
    mlp w;
    make_mlp(&w, EP_DTYPE_BF16, 16, 32);
    ep_compile_options o = always();
    ep_compiled *c;
    OK(ep_compile(ctx, product_halves, &w, 1, 1, &o, &c));
    c->no_choice = true;
    ep_tensor *x = tensor(EP_DTYPE_BF16, 2, (int64_t[]){300, 16}, 1), *a, *b;
    OK(ep_compiled_call(c, (const ep_tensor *[]){x}, &a));
    OK(product_halves(ctx, &w, (const ep_tensor *[]){x}, 1, &b, 1));
    same(a, b);
    ep_tensor_destroy(a);
    ep_tensor_destroy(b);
    ep_tensor_destroy(x);
    ep_compiled_destroy(c);
    drop_mlp(&w);
}

static ep_status two_readers(ep_context *c, void *user, const ep_tensor *const *in, int n, ep_tensor **out, int m) {
    ep_tensor *h, *t[3] = {NULL};
    (void)user;
    (void)n;
    (void)m;
    ep_status s = ep_gelu_tanh(c, in[0], &h);
    if (s != EP_OK) return s;
    s = ep_mul(c, h, in[1], &t[0]);
    if (s == EP_OK) s = ep_sum(c, h, 2, false, &t[1]);
    if (s == EP_OK) s = ep_exp(c, h, &t[2]);
    ep_tensor_destroy(h);
    for (int i = 0; i < 3; i++) out[i] = t[i];
    return s;
}

/* The fused value has a second reader and a third: it is stored, and its place is not given away too early. */
static void a_value_with_a_second_reader_is_kept(void **state) {
    (void)state;
    ep_compile_options o = always();
    ep_compiled *c;
    OK(ep_compile(ctx, two_readers, NULL, 2, 3, &o, &c));
    c->no_choice = true;
    ep_tensor *x = tensor(EP_DTYPE_BF16, 2, (int64_t[]){33, 65}, 1),
              *u = tensor(EP_DTYPE_BF16, 2, (int64_t[]){33, 65}, 2);
    const ep_tensor *in[2] = {x, u};
    ep_tensor *a[3], *b[3];
    OK(ep_compiled_call(c, in, a));
    OK(two_readers(ctx, NULL, in, 2, b, 3));
    for (int i = 0; i < 3; i++) {
        same(a[i], b[i]);
        ep_tensor_destroy(a[i]);
        ep_tensor_destroy(b[i]);
    }
    ep_tensor_destroy(x);
    ep_tensor_destroy(u);
    ep_compiled_destroy(c);
}

static ep_status looks_at_data(ep_context *c, void *user, const ep_tensor *const *in, int n, ep_tensor **out, int m) {
    ep_tensor *t;
    double v[4];
    ep_error err = {0};
    (void)user;
    (void)n;
    (void)m;
    ep_status s = ep_relu(c, in[0], &t);
    if (s != EP_OK) return s;
    s = ep_tensor_read_f64(t, v, 4, &err);
    ep_tensor_destroy(t);
    return s != EP_OK ? s : ep_relu(c, in[0], out);
}

static ep_status writes_in_place(ep_context *c, void *user, const ep_tensor *const *in, int n, ep_tensor **out, int m) {
    ep_tensor *t;
    (void)user;
    (void)n;
    (void)m;
    ep_status s = ep_relu(c, in[0], &t);
    if (s == EP_OK) s = ep_pointwise_into(c, EP_OP_EXP, (const ep_tensor *[]){t}, 1, t);
    if (s == EP_OK)
        *out = t;
    else
        ep_tensor_destroy(t);
    return s;
}

static void what_needs_data_is_refused(void **state) {
    (void)state;
    static const ep_fn fns[] = {looks_at_data, writes_in_place};
    ep_tensor *x = tensor(EP_DTYPE_F32, 1, (int64_t[]){4}, 1), *y;
    for (int i = 0; i < 2; i++) {
        ep_compiled *c;
        OK(ep_compile(ctx, fns[i], NULL, 1, 1, NULL, &c));
        assert_int_equal(ep_compiled_call(c, (const ep_tensor *[]){x}, &y), EP_ERROR_CAPTURE);
        assert_string_not_equal(ep_context_error(ctx)->message, "");
        ep_compiled_destroy(c);
        OK(ep_relu(ctx, x, &y)); /* the context works on */
        ep_tensor_destroy(y);
    }
    ep_tensor_destroy(x);
}

static ep_status views_out(ep_context *c, void *user, const ep_tensor *const *in, int n, ep_tensor **out, int m) {
    mlp *w = user;
    ep_tensor *t = NULL;
    (void)n;
    (void)m;
    out[0] = out[1] = out[2] = out[3] = NULL;
    ep_status s = ep_transpose(c, in[0], 0, 1, &out[0]); /* a view of an input */
    if (s == EP_OK) s = ep_t(c, w->gate, &out[1]);       /* a view of a constant */
    if (s == EP_OK) s = ep_gelu_tanh(c, in[0], &t);
    if (s == EP_OK) s = ep_exp(c, t, &out[2]);
    if (s == EP_OK) s = ep_slice(c, out[2], 1, 1, 3, 1, &out[3]); /* a view of another output */
    ep_tensor_destroy(t);
    return s;
}

static void outputs_may_be_views(void **state) {
    (void)state;
    mlp w;
    make_mlp(&w, EP_DTYPE_F32, 6, 4);
    ep_compile_options o = always();
    ep_compiled *c;
    OK(ep_compile(ctx, views_out, &w, 1, 4, &o, &c));
    ep_tensor *x = tensor(EP_DTYPE_F32, 2, (int64_t[]){3, 5}, 1), *a[4], *b[4];
    for (int round = 0; round < 3; round++) {
        OK(ep_compiled_call(c, (const ep_tensor *[]){x}, a));
        OK(views_out(ctx, &w, (const ep_tensor *[]){x}, 1, b, 4));
        assert_ptr_equal(ep_tensor_data(a[0]), ep_tensor_data(x));
        assert_ptr_equal(ep_tensor_data(a[1]), ep_tensor_data(w.gate));
        for (int i = 0; i < 4; i++) {
            same(a[i], b[i]);
            ep_tensor_destroy(a[i]);
            ep_tensor_destroy(b[i]);
        }
    }
    ep_tensor_destroy(x);
    ep_compiled_destroy(c);
    drop_mlp(&w);
}

/* x + sum(x), relu(x's first element): the same address and, as far as strides of size-1 dims say, the same walk. */
static ep_status whole_and_first(ep_context *c, void *user, const ep_tensor *const *in, int n, ep_tensor **out, int m) {
    ep_tensor *sum = NULL, *first = NULL;
    (void)user, (void)n, (void)m;
    int last = ep_tensor_ndim(in[0]) - 1;
    ep_status s = ep_sum(c, in[0], 1, true, &sum);
    if (s == EP_OK) s = ep_add(c, in[0], sum, &out[0]);
    if (s == EP_OK) s = ep_slice(c, in[0], last, 0, 1, 1, &first);
    if (s == EP_OK) s = ep_relu(c, first, &out[1]);
    ep_tensor_destroy(sum);
    ep_tensor_destroy(first);
    return s;
}

static void a_first_element_is_no_whole_row(void **state) {
    (void)state;
    static const int64_t shapes[][2] = {{1, 2}, {1, 9}, {3, 2}};
    for (int i = 0; i < 4; i++) {
        ep_compile_options o = always();
        ep_compiled *c;
        OK(ep_compile(ctx, whole_and_first, NULL, 1, 2, &o, &c));
        c->no_choice = true;
        ep_tensor *x = i < 3 ? tensor(EP_DTYPE_F32, 2, shapes[i], 1) : tensor(EP_DTYPE_F32, 1, (int64_t[]){2}, 1);
        ep_tensor *a[2], *b[2];
        OK(ep_compiled_call(c, (const ep_tensor *[]){x}, a));
        OK(whole_and_first(ctx, NULL, (const ep_tensor *[]){x}, 1, b, 2));
        for (int k = 0; k < 2; k++) {
            same(a[k], b[k]);
            ep_tensor_destroy(a[k]);
            ep_tensor_destroy(b[k]);
        }
        ep_tensor_destroy(x);
        ep_compiled_destroy(c);
    }
}

static void fewest_rounds_once(void **state) {
    (void)state;
    ep_context *few;
    OK(ep_context_create(&(ep_context_options){.threads = 1, .rounding = EP_ROUNDING_FEWEST}, NULL, &few));
    ep_compile_options o = always();
    ep_compiled *c;
    OK(ep_compile(few, gelu_plus, NULL, 2, 1, &o, &c));
    c->no_choice = true;
    ep_tensor *a = tensor(EP_DTYPE_BF16, 2, (int64_t[]){50, 40}, 1),
              *b = tensor(EP_DTYPE_BF16, 2, (int64_t[]){50, 40}, 2), *y;
    OK(ep_compiled_call(c, (const ep_tensor *[]){a, b}, &y));
    ep_tensor *fa, *fb, *fy, *want;
    OK(ep_cast(few, a, EP_DTYPE_F32, &fa));
    OK(ep_cast(few, b, EP_DTYPE_F32, &fb));
    OK(gelu_plus(few, NULL, (const ep_tensor *[]){fa, fb}, 2, &fy, 1));
    OK(ep_cast(few, fy, EP_DTYPE_BF16, &want));
    same(y, want);
    ep_tensor_destroy(y);
    ep_compiled *early; /* its code is never there: the answers are the same from the first call on */
    setenv("EPILOGUE_CC", "/nowhere/cc", 1);
    OK(ep_compile(few, gelu_plus, NULL, 2, 1, &(ep_compile_options){.no_disk_cache = true}, &early));
    for (int i = 0; i < 3; i++) {
        OK(ep_compiled_call(early, (const ep_tensor *[]){a, b}, &y));
        same(y, want);
        if (i < 2) ep_tensor_destroy(y);
        OK(ep_compiled_wait(early));
    }
    unsetenv("EPILOGUE_CC");
    ep_compile_stats s;
    ep_compiled_stats(early, &s);
    assert_int_equal(s.eager_calls, 3);
    assert_int_equal(s.build_failures, 1);
    ep_compiled_destroy(early);
    ep_tensor *all[] = {a, b, y, fa, fb, fy, want};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) ep_tensor_destroy(all[i]);
    ep_compiled_destroy(c);
    ep_context_destroy(few);
}

static void reference_contexts_say_why_not(void **state) {
    (void)state;
    ep_context *plain;
    ep_compiled *c;
    OK(ep_context_create(&(ep_context_options){.threads = 1, .reference = true}, NULL, &plain));
    assert_int_equal(ep_compile(plain, gelu_plus, NULL, 2, 1, NULL, &c), EP_ERROR_UNSUPPORTED);
    assert_non_null(strstr(ep_context_error(plain)->message, "plain kernels only"));
    ep_context_destroy(plain);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(geglu_is_three_products_and_one_generated_kernel),
        cmocka_unit_test(the_rounding_between_is_kept),
        cmocka_unit_test(a_value_with_a_second_reader_is_kept),
        cmocka_unit_test(what_needs_data_is_refused),
        cmocka_unit_test(outputs_may_be_views),
        cmocka_unit_test(a_first_element_is_no_whole_row),
        cmocka_unit_test(fewest_rounds_once),
        cmocka_unit_test(reference_contexts_say_why_not),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
