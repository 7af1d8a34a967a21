/* Blocks: eager equals the ops written out, biases and residuals included; layouts of gate and up; what is refused. */
#include <string.h>

#include "base/probe.h"
#include "context.h"

static int kernels;

static void on_begin(void *self, const ep_probe_span *span) {
    (void)self;
    (void)span;
}
static void on_end(void *self) {
    (void)self;
}
static void on_kernel(void *self, const ep_probe_kernel *kernel) {
    (void)self;
    (void)kernel;
    kernels++;
}
static const char *on_name(void *self, const char *text) {
    (void)self;
    return text;
}

static const ep_probe probe = {NULL, on_begin, on_end, on_kernel, on_name, NULL};

static ep_tensor *noise(uint64_t seed, ep_dtype dtype, int64_t rows, int64_t cols) {
    return rows ? random_matrix(dtype, rows, cols, seed, 0.3) : random_tensor(dtype, SIZES(cols), seed, 0.3);
}

typedef struct parts {
    ep_tensor *x, *gate, *up, *down, *gate_bias, *up_bias, *down_bias, *residual;
} parts;

static parts make(ep_dtype d, int64_t rows, int64_t dim, int64_t hidden, int64_t out) {
    return (parts){noise(1, d, rows, dim), noise(2, d, hidden, dim), noise(3, d, hidden, dim), noise(4, d, out, hidden),
                   noise(5, d, 0, hidden), noise(6, d, 0, hidden),   noise(7, d, 0, out),      noise(8, d, rows, out)};
}
static void end(parts *p) {
    ep_tensor *all[] = {p->x, p->gate, p->up, p->down, p->gate_bias, p->up_bias, p->down_bias, p->residual};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) ep_tensor_destroy(all[i]);
}

static void same(ep_tensor *a, ep_tensor *b) {
    ep_difference d;
    OK(ep_tensor_compare(a, b, 1e-3, NULL, &d));
    assert_true(d.max_abs == 0);
    ep_tensor_destroy(a);
}

static void geglu_is_five_kernels(void **state) {
    (void)state;
    parts p = make(EP_DTYPE_F32, 5, 12, 20, 12);
    ep_tensor *g, *u, *a, *h, *want, *y, *sum;
    OK(ep_linear(ctx, p.x, p.gate, p.gate_bias, &g));
    OK(ep_linear(ctx, p.x, p.up, p.up_bias, &u));
    OK(ep_gelu_tanh(ctx, g, &a));
    OK(ep_mul(ctx, a, u, &h));
    OK(ep_linear(ctx, h, p.down, p.down_bias, &want));
    OK(ep_add(ctx, want, p.residual, &sum));
    ep_block_kind kind;
    ep_act act;
    OK(ep_block_parse("geglu", &kind, &act));
    ep_block_weights w = {.gate = p.gate, .up = p.up, .down = p.down};
    w.gate_bias = p.gate_bias;
    w.up_bias = p.up_bias;
    w.down_bias = p.down_bias;
    ep_block *b;
    OK(ep_block_create(ctx, kind, act, &w, &b));
    assert_int_equal(ep_block_dim(b), 12);
    assert_int_equal(ep_block_hidden(b), 20);
    kernels = 0;
    atomic_store(&ep_probe_active, &probe);
    OK(ep_block_run(b, EP_MODE_EAGER, p.x, NULL, &y));
    atomic_store(&ep_probe_active, NULL);
    assert_int_equal(kernels, 5);
    same(y, want);
    OK(ep_block_run(b, EP_MODE_EAGER, p.x, p.residual, &y));
    same(y, sum);
    ep_block_destroy(b);
    ep_tensor *all[] = {g, u, a, h, want, sum};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) ep_tensor_destroy(all[i]);
    end(&p);
}

/* One weight that holds gate and up, by halves or alternating, gives the same values as two. */
static void gate_up_in_one(void **state) {
    (void)state;
    parts p = make(EP_DTYPE_BF16, 3, 8, 6, 8);
    ep_tensor *halves, *mixed, *want, *y, *rows[12];
    OK(ep_cat(ctx, (const ep_tensor *[]){p.gate, p.up}, 2, 0, &halves));
    for (int i = 0; i < 12; i++) OK(ep_tensor_slice(i % 2 ? p.up : p.gate, 0, i / 2, i / 2 + 1, 1, NULL, &rows[i]));
    OK(ep_cat(ctx, (const ep_tensor *const *)rows, 12, 0, &mixed));
    ep_block *b;
    OK(ep_block_create(ctx, EP_BLOCK_GATED, EP_ACT_SILU,
                       &(ep_block_weights){.gate = p.gate, .up = p.up, .down = p.down}, &b));
    OK(ep_block_run(b, EP_MODE_EAGER, p.x, NULL, &want));
    ep_block_destroy(b);
    for (int i = 0; i < 2; i++) {
        ep_block_weights w = {.gate_up = i ? mixed : halves, .interleaved = i == 1, .down = p.down};
        OK(ep_block_create(ctx, EP_BLOCK_GATED, EP_ACT_SILU, &w, &b));
        assert_int_equal(ep_block_is_packed(b), i == 0); /* only halves are two runs of rows */
        OK(ep_block_run(b, EP_MODE_EAGER, p.x, NULL, &y));
        same(y, want);
        ep_block_destroy(b);
    }
    for (int i = 0; i < 12; i++) ep_tensor_destroy(rows[i]);
    ep_tensor_destroy(halves);
    ep_tensor_destroy(mixed);
    ep_tensor_destroy(want);
    end(&p);
}

static void mlp_and_linear(void **state) {
    (void)state;
    parts p = make(EP_DTYPE_F32, 4, 7, 9, 5);
    ep_tensor *u, *h, *want, *y;
    OK(ep_linear(ctx, p.x, p.up, p.up_bias, &u));
    OK(ep_relu(ctx, u, &h));
    OK(ep_linear(ctx, h, p.down, NULL, &want));
    ep_block *b;
    ep_block_weights w = {.up = p.up, .up_bias = p.up_bias, .down = p.down};
    OK(ep_block_create(ctx, EP_BLOCK_MLP, EP_ACT_RELU, &w, &b));
    OK(ep_block_run(b, EP_MODE_EAGER, p.x, NULL, &y));
    same(y, want);
    ep_block_destroy(b);
    OK(ep_block_create(ctx, EP_BLOCK_LINEAR, EP_ACT_NONE, &w, &b));
    assert_int_equal(ep_block_hidden(b), 0);
    assert_int_equal(ep_block_out(b), 9);
    OK(ep_block_run(b, EP_MODE_EAGER, p.x, NULL, &y));
    same(y, u);
    ep_block_destroy(b);
    ep_tensor_destroy(u);
    ep_tensor_destroy(h);
    ep_tensor_destroy(want);
    end(&p);
}

static void what_does_not_fit_is_refused(void **state) {
    (void)state;
    parts p = make(EP_DTYPE_F32, 4, 7, 9, 5);
    ep_block *b = NULL;
    ep_tensor *half = noise(1, EP_DTYPE_BF16, 5, 9), *y;
    const struct {
        ep_block_weights w;
        ep_status status;
        const char *says;
    } bad[] = {
        {{.up = p.up}, EP_ERROR_INVALID_ARGUMENT, "gate"},
        {{.gate = p.gate, .up = p.up}, EP_ERROR_INVALID_ARGUMENT, "down"},
        {{.gate = p.gate, .up = p.up, .down = p.up}, EP_ERROR_SHAPE, "[9, 9]"},
        {{.gate = p.down, .up = p.up, .down = p.down}, EP_ERROR_SHAPE, "gate"},
        {{.gate = p.gate, .up = p.up, .down = half}, EP_ERROR_DTYPE, "bf16"},
        {{.gate = p.gate, .up = p.up, .down = p.down, .up_bias = p.down_bias}, EP_ERROR_SHAPE, "5 values for 9"},
        {{.gate_up = p.up, .down = p.down}, EP_ERROR_SHAPE, "even"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(ep_block_create(ctx, EP_BLOCK_GATED, EP_ACT_SILU, &bad[i].w, &b), bad[i].status);
        assert_non_null(strstr(ep_context_error(ctx)->message, bad[i].says));
    }
    assert_null(b);
    ep_block_weights w = {.gate = p.gate, .up = p.up, .down = p.down};
    OK(ep_block_create(ctx, EP_BLOCK_GATED, EP_ACT_SILU, &w, &b));
    assert_int_equal(ep_block_run(b, EP_MODE_EAGER, p.down, NULL, &y), EP_ERROR_SHAPE);
    assert_int_equal(ep_block_run(b, EP_MODE_EAGER, p.x, p.x, &y), EP_ERROR_SHAPE);
    assert_int_equal(ep_block_run(b, EP_MODE_EAGER, NULL, NULL, &y), EP_ERROR_INVALID_ARGUMENT);
    ep_block_destroy(b);
    ep_tensor_destroy(half);
    end(&p);
}

/* Every mode that is there gives eager's values within the rounding of the sums; one that is not says why. */
static void modes_agree(void **state) {
    (void)state;
    const ep_dtype dtypes[] = {EP_DTYPE_F32, EP_DTYPE_BF16};
    for (int i = 0; i < 12; i++) {
        parts p = make(dtypes[i % 2], 1 + i * 5 % 7, 24, 40, 24);
        ep_block_weights w = {.gate = p.gate, .up = p.up, .down = p.down};
        if (i / 2 % 2) w.gate_bias = p.gate_bias, w.up_bias = p.up_bias, w.down_bias = p.down_bias;
        ep_block *b;
        ep_tensor *want, *y;
        OK(ep_block_create(ctx, (ep_block_kind)(i % 3), EP_ACT_GELU_TANH, &w, &b));
        ep_tensor *residual = i % 3 == 0 || i / 6 == 0 ? NULL : p.residual;
        OK(ep_block_run(b, EP_MODE_EAGER, p.x, residual, &want));
        for (int mode = EP_MODE_COMPILED; mode <= EP_MODE_TUNED; mode++) {
            ep_status status = ep_block_supports(b, (ep_mode)mode);
            if (status != EP_OK) {
                assert_true(status == EP_ERROR_NOT_BUILT || status == EP_ERROR_UNSUPPORTED);
                assert_true(strlen(ep_context_error(ctx)->message) > 10);
                continue;
            }
            OK(ep_block_run(b, (ep_mode)mode, p.x, residual, &y));
            ep_difference d;
            OK(ep_tensor_compare(y, want, 1, NULL, &d));
            assert_true(d.max_rel <= (dtypes[i % 2] == EP_DTYPE_F32 ? 1e-5 : 4e-2));
            ep_tensor_destroy(y);
        }
        ep_tensor_destroy(want);
        ep_block_destroy(b);
        end(&p);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(geglu_is_five_kernels), cmocka_unit_test(gate_up_in_one),
                                       cmocka_unit_test(mlp_and_linear), cmocka_unit_test(what_does_not_fit_is_refused),
                                       cmocka_unit_test(modes_agree)};
    return cmocka_run_group_tests(tests, open_context, close_context);
}
