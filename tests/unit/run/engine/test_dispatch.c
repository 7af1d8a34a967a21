/* The eager ops by hand-worked pictures: layouts, broadcasting, empty tensors, NaN, what launches and what does not. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/probe.h"
#include "context.h"

static ep_tensor *make(ep_dtype dtype, int ndim, const int64_t *sizes, const double *values) {
    ep_tensor *t;
    OK(ep_tensor_create(dtype, ndim, sizes, NULL, &t));
    if (values) OK(ep_tensor_write_f64(t, values, (size_t)ep_tensor_numel(t), NULL));
    return t;
}
static void expect(const ep_tensor *t, const double *want) {
    size_t n = (size_t)ep_tensor_numel(t);
    double *got = malloc(sizeof(double) * (n ? n : 1));
    OK(ep_tensor_read_f64(t, got, n, NULL));
    for (size_t i = 0; i < n; i++) {
        if (isnan(want[i]))
            assert_true(isnan(got[i]));
        else
            assert_true(fabs(got[i] - want[i]) <= 1e-5 * fmax(1, fabs(want[i])));
    }
    free(got);
}

/* Counts what passes the probe, and keeps the names in order: "op(" opens, ")" closes, "*" is a kernel. */
static char story[2048];
static char detail[256];

static void note(const char *a, const char *b) {
    strncat(story, a, sizeof story - strlen(story) - 1);
    strncat(story, b, sizeof story - strlen(story) - 1);
}
static void on_begin(void *self, const ep_probe_span *span) {
    (void)self;
    if (span->detail) snprintf(detail, sizeof detail, "%s", span->detail);
    note(span->kind == EP_PROBE_LAUNCH ? "!" : span->name, "(");
}
static void on_end(void *self) {
    (void)self;
    note(")", "");
}
static void on_kernel(void *self, const ep_probe_kernel *kernel) {
    (void)self;
    assert_non_null(kernel->name);
    assert_int_equal(strncmp(kernel->name, "ep_", 3), 0);
    assert_true(kernel->end >= kernel->start);
    note("*", "");
}
static const char *on_name(void *self, const char *text) {
    (void)self;
    return text;
}

static const ep_probe probe = {NULL, on_begin, on_end, on_kernel, on_name, NULL};

static void listen(void) {
    story[0] = detail[0] = 0;
    atomic_store(&ep_probe_active, &probe);
}
static void told(const char *want) {
    atomic_store(&ep_probe_active, NULL);
    assert_string_equal(story, want);
}

static void broadcast_add(void **state) {
    (void)state;
    ep_tensor *a = make(EP_DTYPE_F32, SIZES(2, 1), (double[]){1, 2}),
              *b = make(EP_DTYPE_F32, SIZES(3), (double[]){10, 20, 30});
    ep_tensor *c;
    OK(ep_add(ctx, a, b, &c));
    assert_int_equal(ep_tensor_ndim(c), 2);
    expect(c, (double[]){11, 21, 31, 12, 22, 32});
    ep_tensor_destroy(a);
    ep_tensor_destroy(b);
    ep_tensor_destroy(c);
}

static void shapes_that_do_not_fit_say_so(void **state) {
    (void)state;
    ep_tensor *a = make(EP_DTYPE_F32, SIZES(2, 3), NULL), *b = make(EP_DTYPE_F32, SIZES(4), NULL);
    ep_tensor *h = make(EP_DTYPE_BF16, SIZES(2, 3), NULL), *c = (ep_tensor *)&c;
    assert_int_equal(ep_add(ctx, a, b, &c), EP_ERROR_SHAPE);
    assert_non_null(strstr(ep_context_error(ctx)->message, "[2, 3]"));
    assert_int_equal(ep_add(ctx, a, h, &c), EP_ERROR_DTYPE);
    assert_int_equal(ep_mm(ctx, a, a, &c), EP_ERROR_SHAPE);
    assert_int_equal(ep_add(ctx, a, NULL, &c), EP_ERROR_INVALID_ARGUMENT);
    assert_ptr_equal(c, &c);
    ep_tensor_destroy(a);
    ep_tensor_destroy(b);
    ep_tensor_destroy(h);
}

static void linear_is_t_and_one_product(void **state) {
    (void)state;
    double xs[24], ws[40], bs[5] = {1, 2, 3, 4, 5}, want[30];
    for (int i = 0; i < 24; i++) xs[i] = i - 11;
    for (int i = 0; i < 40; i++) ws[i] = (i * 7) % 5 - 2;
    ep_tensor *x = make(EP_DTYPE_F32, SIZES(3, 8), xs), *w = make(EP_DTYPE_F32, SIZES(5, 8), ws);
    ep_tensor *b = make(EP_DTYPE_F32, SIZES(5), bs), *y;
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 5; j++) {
            want[i * 5 + j] = bs[j];
            for (int k = 0; k < 8; k++) want[i * 5 + j] += xs[i * 8 + k] * ws[j * 8 + k];
        }
    listen();
    OK(ep_linear(ctx, x, w, b, &y));
    told("linear(t()addmm(!(*)))");
    expect(y, want);
    ep_tensor_destroy(y);
    listen();
    OK(ep_linear(ctx, x, w, NULL, &y));
    told("linear(t()mm(!(*)))");
    for (int i = 0; i < 15; i++) want[i] -= bs[i % 5];
    expect(y, want);
    ep_tensor_destroy(y);
    ep_tensor_destroy(x);
    ep_tensor_destroy(w);
    ep_tensor_destroy(b);
}

/* Any layout whose rows are a batch of even runs takes one kernel; three uneven dims take a copy that says why. */
static void linear_over_layouts(void **state) {
    (void)state;
    ep_tensor *x = make(EP_DTYPE_F32, SIZES(2, 3, 8), NULL), *w = make(EP_DTYPE_F32, SIZES(5, 8), NULL);
    ep_tensor *b = make(EP_DTYPE_F32, SIZES(5), NULL), *xt, *flat, *y, *z;
    OK(ep_tensor_fill_random(x, 1, 1, NULL));
    OK(ep_tensor_fill_random(w, 2, 1, NULL));
    OK(ep_tensor_fill_random(b, 3, 1, NULL));
    for (int dims = 0; dims < 3; dims++) {
        OK(ep_tensor_transpose(x, 0, dims == 2 ? 0 : dims, NULL, &xt)); /* as is, swapped, as is */
        OK(ep_copy(ctx, xt, &flat));
        listen();
        OK(ep_linear(ctx, xt, w, b, &y));
        told("linear(t()addmm(!(*)))");
        OK(ep_linear(ctx, flat, w, b, &z));
        ep_difference d;
        OK(ep_tensor_compare(y, z, 1, NULL, &d));
        assert_true(d.max_abs < 1e-5);
        ep_tensor_destroy(xt);
        ep_tensor_destroy(flat);
        ep_tensor_destroy(y);
        ep_tensor_destroy(z);
    }
    ep_tensor *wide = make(EP_DTYPE_F32, SIZES(4, 6, 5, 8), NULL), *odd, *odder;
    OK(ep_tensor_fill_random(wide, 4, 1, NULL));
    OK(ep_tensor_slice(wide, 1, 0, 4, 1, NULL, &odd));
    OK(ep_tensor_slice(odd, 2, 0, 3, 1, NULL, &odder));
    OK(ep_copy(ctx, odder, &flat));
    listen();
    OK(ep_linear(ctx, odder, w, b, &y));
    told("linear(t()copy(!(*))addmm(!(*)))");
    assert_non_null(strstr(detail, "stride 240"));
    OK(ep_linear(ctx, flat, w, b, &z));
    ep_difference d;
    OK(ep_tensor_compare(y, z, 1, NULL, &d));
    assert_true(d.max_abs < 1e-5);
    ep_tensor *all[] = {x, w, b, wide, odd, odder, flat, y, z};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) ep_tensor_destroy(all[i]);
}

static void empty_batch_launches_nothing(void **state) {
    (void)state;
    ep_tensor *x = make(EP_DTYPE_F32, SIZES(0, 100), NULL), *w = make(EP_DTYPE_F32, SIZES(1, 100), NULL);
    ep_tensor *b = make(EP_DTYPE_F32, SIZES(1), NULL), *y, *z;
    listen();
    OK(ep_linear(ctx, x, w, b, &y));
    OK(ep_relu(ctx, y, &z));
    told("linear(t())relu()");
    assert_int_equal(ep_tensor_size(y, 0), 0);
    assert_int_equal(ep_tensor_size(y, 1), 1);
    assert_null(ep_tensor_data(y));
    ep_tensor *all[] = {x, w, b, y, z};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) ep_tensor_destroy(all[i]);
}

static void no_terms_give_the_bias(void **state) {
    (void)state;
    ep_tensor *x = make(EP_DTYPE_F32, SIZES(2, 0), NULL), *w = make(EP_DTYPE_F32, SIZES(3, 0), NULL);
    ep_tensor *b = make(EP_DTYPE_F32, SIZES(3), (double[]){1, 2, 3}), *y, *z;
    OK(ep_linear(ctx, x, w, b, &y));
    expect(y, (double[]){1, 2, 3, 1, 2, 3});
    OK(ep_linear(ctx, x, w, NULL, &z));
    expect(z, (double[]){0, 0, 0, 0, 0, 0});
    ep_tensor *all[] = {x, w, b, y, z};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) ep_tensor_destroy(all[i]);
}

static void beta_zero_reads_no_input(void **state) {
    (void)state;
    ep_tensor *a = make(EP_DTYPE_F32, SIZES(4, 8), NULL), *b = make(EP_DTYPE_F32, SIZES(8, 5), NULL), *y, *z;
    ep_tensor *bias = make(EP_DTYPE_F32, SIZES(5), (double[]){NAN, NAN, NAN, NAN, NAN});
    OK(ep_tensor_fill_random(a, 1, 1, NULL));
    OK(ep_tensor_fill_random(b, 2, 1, NULL));
    OK(ep_addmm(ctx, bias, a, b, 0, 1, &y));
    OK(ep_mm(ctx, a, b, &z));
    ep_difference d;
    OK(ep_tensor_compare(y, z, 1, NULL, &d));
    assert_true(d.max_abs < 1e-5);
    ep_tensor_destroy(y);
    OK(ep_addmm(ctx, bias, a, b, 1, 1, &y));
    double v[20];
    OK(ep_tensor_read_f64(y, v, 20, NULL));
    for (int i = 0; i < 20; i++) assert_true(isnan(v[i]));
    ep_tensor *all[] = {a, b, bias, y, z};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) ep_tensor_destroy(all[i]);
}

static void addmm_scales_and_broadcasts(void **state) {
    (void)state;
    ep_tensor *a = make(EP_DTYPE_F32, SIZES(2, 2), (double[]){1, 2, 3, 4}), *y;
    ep_tensor *eye = make(EP_DTYPE_F32, SIZES(2, 2), (double[]){1, 0, 0, 1});
    ep_tensor *column = make(EP_DTYPE_F32, SIZES(2, 1), (double[]){10, 20});
    OK(ep_addmm(ctx, column, a, eye, 0.5, 2, &y));
    expect(y, (double[]){7, 9, 16, 18});
    ep_tensor *all[] = {a, eye, column, y};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) ep_tensor_destroy(all[i]);
}

static void views_launch_nothing(void **state) {
    (void)state;
    double v[6] = {0, 1, 2, 3, 4, 5};
    ep_tensor *x = make(EP_DTYPE_F32, SIZES(2, 3), v), *t, *f, *r, *c, *s, *e;
    listen();
    OK(ep_t(ctx, x, &t));
    OK(ep_view(ctx, x, 1, (int64_t[]){-1}, &f));
    OK(ep_slice(ctx, x, 1, 1, 100, 1, &s));
    OK(ep_chunk(ctx, x, -1, 2, 1, &c));
    told("t()view()slice()chunk()");
    assert_int_equal(ep_tensor_size(c, 1), 1);
    assert_int_equal(ep_view(ctx, t, 1, (int64_t[]){6}, &e), EP_ERROR_STRIDE);
    listen();
    OK(ep_reshape(ctx, t, 1, (int64_t[]){6}, &r));
    told("reshape(copy(!(*)))");
    expect(r, (double[]){0, 3, 1, 4, 2, 5});
    expect(s, (double[]){1, 2, 4, 5});
    ep_tensor *all[] = {x, t, f, r, c, s};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) ep_tensor_destroy(all[i]);
}

static void reductions_norms_and_moves(void **state) {
    (void)state;
    ep_tensor *x = make(EP_DTYPE_F32, SIZES(2, 3), (double[]){1, 2, 3, 4, NAN, 6}), *y;
    ep_tensor *e = make(EP_DTYPE_F32, SIZES(2, 0), NULL);
    OK(ep_sum(ctx, x, 1, false, &y));
    expect(y, (double[]){6, NAN});
    ep_tensor_destroy(y);
    OK(ep_amax(ctx, x, 1, true, &y));
    assert_int_equal(ep_tensor_ndim(y), 2);
    expect(y, (double[]){3, NAN});
    ep_tensor_destroy(y);
    OK(ep_sum(ctx, e, 1, false, &y));
    expect(y, (double[]){0, 0});
    ep_tensor_destroy(y);
    OK(ep_mean(ctx, e, 1, false, &y));
    expect(y, (double[]){NAN, NAN});
    ep_tensor_destroy(y);
    assert_int_equal(ep_amax(ctx, e, 1, false, &y), EP_ERROR_SHAPE);
    ep_tensor *z = make(EP_DTYPE_F32, SIZES(2, 3), (double[]){0, 0, 0, 1, 2, 3});
    OK(ep_softmax(ctx, z, &y));
    expect(y, (double[]){1. / 3, 1. / 3, 1. / 3, 0.0900306, 0.2447285, 0.6652410});
    ep_tensor_destroy(y);
    OK(ep_layer_norm(ctx, z, NULL, NULL, 0, &y));
    expect(y, (double[]){NAN, NAN, NAN, -1.2247449, 0, 1.2247449});
    ep_tensor_destroy(y);
    OK(ep_cat(ctx, (const ep_tensor *[]){z, x}, 2, -1, &y));
    expect(y, (double[]){0, 0, 0, 1, 2, 3, 1, 2, 3, 4, NAN, 6});
    ep_tensor_destroy(y);
    OK(ep_cast(ctx, z, EP_DTYPE_I64, &y));
    assert_int_equal(ep_tensor_dtype(y), EP_DTYPE_I64);
    expect(y, (double[]){0, 0, 0, 1, 2, 3});
    ep_tensor *all[] = {x, e, z, y};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) ep_tensor_destroy(all[i]);
}

static void into_an_input_itself(void **state) {
    (void)state;
    ep_tensor *a = make(EP_DTYPE_F32, SIZES(4), (double[]){1, 2, 3, 4}), *half, *wide;
    OK(ep_pointwise_into(ctx, EP_OP_MUL, (const ep_tensor *[]){a, a}, 2, a));
    expect(a, (double[]){1, 4, 9, 16});
    OK(ep_tensor_slice(a, 0, 0, 3, 1, NULL, &half));
    OK(ep_tensor_slice(a, 0, 1, 4, 1, NULL, &wide));
    assert_int_equal(ep_pointwise_into(ctx, EP_OP_NEG, (const ep_tensor *[]){half}, 1, wide),
                     EP_ERROR_INVALID_ARGUMENT);
    assert_int_equal(ep_pointwise_into(ctx, EP_OP_NEG, (const ep_tensor *[]){half}, 1, a), EP_ERROR_SHAPE);
    ep_tensor_destroy(a);
    ep_tensor_destroy(half);
    ep_tensor_destroy(wide);
}

/* erf and tanh are two functions: near 2.70 they differ by 4.73e-4. */
static void the_two_gelus_differ(void **state) {
    (void)state;
    ep_tensor *x = make(EP_DTYPE_F32, SIZES(801), NULL), *a, *b;
    double v[801];
    for (int i = 0; i < 801; i++) v[i] = (i - 400) / 100.0;
    OK(ep_tensor_write_f64(x, v, 801, NULL));
    OK(ep_gelu_tanh(ctx, x, &a));
    OK(ep_gelu_erf(ctx, x, &b));
    ep_difference d;
    OK(ep_tensor_compare(a, b, 1, NULL, &d));
    assert_true(d.max_abs > 4.70e-4 && d.max_abs < 4.76e-4);
    assert_true(fabs(fabs(v[d.at]) - 2.70) < 0.03);
    ep_tensor_destroy(x);
    ep_tensor_destroy(a);
    ep_tensor_destroy(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(broadcast_add),
        cmocka_unit_test(shapes_that_do_not_fit_say_so),
        cmocka_unit_test(linear_is_t_and_one_product),
        cmocka_unit_test(linear_over_layouts),
        cmocka_unit_test(empty_batch_launches_nothing),
        cmocka_unit_test(no_terms_give_the_bias),
        cmocka_unit_test(beta_zero_reads_no_input),
        cmocka_unit_test(addmm_scales_and_broadcasts),
        cmocka_unit_test(views_launch_nothing),
        cmocka_unit_test(reductions_norms_and_moves),
        cmocka_unit_test(into_an_input_itself),
        cmocka_unit_test(the_two_gelus_differ),
    };
    return cmocka_run_group_tests(tests, open_context, close_context);
}
