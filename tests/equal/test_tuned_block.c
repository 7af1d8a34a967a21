/* Blocks in tuned mode against the same blocks op by op: layouts of weights, biases, residual, dtypes, odd shapes. Runs
 * once for each ISA through EPILOGUE_ISA. */
// ctest: isa
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <epilogue/block.h>

#include "tensors.h"

static ep_context *make_context(bool reference) {
    ep_context *ctx = NULL;
    ep_context_options o = {.threads = 2, .reference = reference};
    assert_int_equal(ep_context_create(&o, NULL, &ctx), EP_OK);
    return ctx;
}

typedef struct shape {
    int64_t batch, seq, dim, hidden;
} shape;

static void compare_modes(ep_context *ctx, ep_context *ref, ep_dtype dtype, ep_block_kind kind, ep_act act, shape s,
                          bool bias, bool residual, int packed) {
    double g_scale = 1 / sqrt((double)s.dim + 1), d_scale = 1 / sqrt((double)s.hidden + 1);
    ep_block_weights w = {0};
    ep_tensor *x = random_tensor(dtype, 3, (int64_t[]){s.batch, s.seq, s.dim}, 1, 1);
    ep_tensor *up = random_tensor(dtype, 2, (int64_t[]){s.hidden, s.dim}, 2, g_scale);
    ep_tensor *gate = random_tensor(dtype, 2, (int64_t[]){s.hidden, s.dim}, 3, g_scale);
    ep_tensor *both = random_tensor(dtype, 2, (int64_t[]){2 * s.hidden, s.dim}, 4, g_scale);
    ep_tensor *down = random_tensor(dtype, 2, (int64_t[]){s.dim, s.hidden}, 5, d_scale);
    ep_tensor *up_b = random_tensor(dtype, 1, (int64_t[]){s.hidden}, 6, 0.3);
    ep_tensor *gate_b = random_tensor(dtype, 1, (int64_t[]){s.hidden}, 7, 0.3);
    ep_tensor *down_b = random_tensor(dtype, 1, (int64_t[]){s.dim}, 8, 0.3);
    ep_tensor *r =
        residual
            ? random_tensor(dtype, 3, (int64_t[]){s.batch, s.seq, kind == EP_BLOCK_LINEAR ? s.hidden : s.dim}, 9, 1)
            : NULL;
    w.up = up;
    if (kind != EP_BLOCK_LINEAR) w.down = down;
    if (kind == EP_BLOCK_GATED && packed) {
        w.up = NULL;
        w.gate_up = both;
        w.interleaved = packed == 2;
    } else if (kind == EP_BLOCK_GATED) {
        w.gate = gate;
    }
    if (bias) {
        w.up_bias = up_b;
        if (kind == EP_BLOCK_GATED) w.gate_bias = gate_b;
        if (kind != EP_BLOCK_LINEAR) w.down_bias = down_b;
    }
    ep_block *tuned = NULL, *eager = NULL;
    if (ep_block_create(ctx, kind, act, &w, &tuned) != EP_OK) fail_msg("%s", ep_context_error(ctx)->message);
    assert_int_equal(ep_block_create(ref, kind, act, &w, &eager), EP_OK);
    ep_tensor *a = NULL, *b = NULL;
    if (ep_block_run(tuned, EP_MODE_TUNED, x, r, &a) != EP_OK) fail_msg("%s", ep_context_error(ctx)->message);
    assert_int_equal(ep_block_run(eager, EP_MODE_EAGER, x, r, &b), EP_OK);
    ep_difference d;
    assert_int_equal(ep_tensor_compare(a, b, 1.0, NULL, &d), EP_OK);
    /* A sum that lands beside a rounding boundary moves g, u or act(g) by one step of the dtype. */
    double limit = dtype == EP_DTYPE_F32 ? 4e-6 : dtype == EP_DTYPE_BF16 ? 0.02 : 0.0025;
    if (!(d.max_rel <= limit))
        fail_msg("%s kind %d act %s shape %lld,%lld,%lld->%lld bias %d packed %d: differs by %g at %lld",
                 ep_dtype_name(dtype), (int)kind, ep_act_name(act), (long long)s.batch, (long long)s.seq,
                 (long long)s.dim, (long long)s.hidden, bias, packed, d.max_rel, (long long)d.at);
    if (s.hidden && s.dim) assert_true(ep_block_packed_bytes(tuned) > 0);
    ep_tensor *all[] = {x, up, gate, both, down, up_b, gate_b, down_b, r, a, b};
    ep_block_destroy(tuned);
    ep_block_destroy(eager);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) ep_tensor_destroy(all[i]);
}

static void blocks_agree(void **state) {
    (void)state;
    ep_context *ctx = make_context(false), *ref = make_context(true);
    static const shape shapes[] = {{1, 1, 64, 96},   {2, 5, 33, 40}, {1, 33, 24, 40},
                                   {1, 17, 130, 12}, {3, 1, 1, 1},   {1, 70, 96, 160}};
    int n = 0;
    for (ep_dtype d = EP_DTYPE_F32; d <= EP_DTYPE_F16; d++)
        for (int kind = EP_BLOCK_LINEAR; kind <= EP_BLOCK_GATED; kind++)
            for (int s = 0; s < 6; s++, n++) {
                ep_act act = kind == EP_BLOCK_LINEAR ? EP_ACT_NONE : (ep_act)(1 + n % 4);
                compare_modes(ctx, ref, d, (ep_block_kind)kind, act, shapes[s], n % 2, n % 3 == 0, n % 3);
            }
    ep_context_destroy(ctx);
    ep_context_destroy(ref);
}

static void liger_s_odd_shape(void **state) {
    (void)state;
    ep_context *ctx = make_context(false), *ref = make_context(true);
    for (ep_dtype d = EP_DTYPE_F32; d <= EP_DTYPE_F16; d++)
        compare_modes(ctx, ref, d, EP_BLOCK_GATED, EP_ACT_GELU_TANH, (shape){3, 4, 341, 423}, true, false, 0);
    ep_context_destroy(ctx);
    ep_context_destroy(ref);
}

static void empty_batches(void **state) {
    (void)state;
    ep_context *ctx = make_context(false), *ref = make_context(true);
    compare_modes(ctx, ref, EP_DTYPE_F32, EP_BLOCK_GATED, EP_ACT_SILU, (shape){0, 5, 8, 12}, true, false, 0);
    compare_modes(ctx, ref, EP_DTYPE_BF16, EP_BLOCK_LINEAR, EP_ACT_NONE, (shape){1, 0, 100, 1}, true, false, 0);
    ep_context_destroy(ctx);
    ep_context_destroy(ref);
}

/* Saved, loaded by another block and run: the same bits. Damage, other shapes and cut files are refused. */
static void packed_files(void **state) {
    (void)state;
    ep_context *ctx = make_context(false);
    char path[64], choices[1024];
    setenv("EPILOGUE_TUNED", "kernels", 1); /* whose bits do not hang on a measurement */
    snprintf(path, sizeof path, "tuned_block_%ld.packed", (long)getpid());
    ep_tensor *x = random_tensor(EP_DTYPE_BF16, 2, (int64_t[]){5, 70}, 1, 1), *a = NULL, *c = NULL;
    ep_tensor *both = random_tensor(EP_DTYPE_BF16, 2, (int64_t[]){96, 70}, 2, 0.1);
    ep_tensor *down = random_tensor(EP_DTYPE_BF16, 2, (int64_t[]){70, 48}, 3, 0.1);
    ep_tensor *wide = random_tensor(EP_DTYPE_BF16, 2, (int64_t[]){60, 48}, 3, 0.1);
    ep_block_weights w = {.gate_up = both, .down = down}, other = {.gate_up = both, .down = wide};
    ep_block *first = NULL, *second = NULL, *third = NULL;
    assert_int_equal(ep_block_create(ctx, EP_BLOCK_GATED, EP_ACT_SILU, &w, &first), EP_OK);
    assert_int_equal(ep_block_create(ctx, EP_BLOCK_GATED, EP_ACT_SILU, &w, &second), EP_OK);
    assert_int_equal(ep_block_create(ctx, EP_BLOCK_GATED, EP_ACT_SILU, &other, &third), EP_OK);
    assert_int_equal(ep_block_save_packed(first, path), EP_OK);
    if (ep_block_load_packed(second, path, true) != EP_OK) fail_msg("%s", ep_context_error(ctx)->message);
    assert_true(ep_block_packed_bytes(first) == ep_block_packed_bytes(second));
    assert_int_equal(ep_block_run(first, EP_MODE_TUNED, x, NULL, &a), EP_OK);
    assert_int_equal(ep_block_run(second, EP_MODE_TUNED, x, NULL, &c), EP_OK);
    assert_memory_equal(ep_tensor_data(a), ep_tensor_data(c), 5 * 70 * 2);
    /* What was loaded is weighed against the plain weights as what was packed here. */
    unsetenv("EPILOGUE_TUNED");
    assert_int_equal(ep_block_load_packed(second, path, true), EP_OK);
    ep_tensor_destroy(c);
    assert_int_equal(ep_block_run(second, EP_MODE_TUNED, x, NULL, &c), EP_OK);
    assert_true(ep_block_tuned_text(second, choices, sizeof choices) > 0);
    assert_int_equal(ep_block_load_packed(third, path, false), EP_ERROR_SHAPE);
    assert_int_equal(ep_block_load_packed(second, "no/such/file", false), EP_ERROR_NOT_FOUND);
    ep_block_destroy(second);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    fseek(f, -1, SEEK_END);
    long size = ftell(f) + 1;
    int byte = fgetc(f);
    fseek(f, -1, SEEK_END);
    fputc(byte ^ 0x5a, f);
    fclose(f);
    assert_int_equal(ep_block_load_packed(first, path, true), EP_ERROR_FORMAT);
    f = fopen(path, "r+b");
    fseek(f, 70, SEEK_SET);
    fputc(0xee, f);
    fclose(f);
    assert_int_equal(ep_block_load_packed(first, path, false), EP_ERROR_FORMAT);
    assert_int_equal(ep_block_save_packed(first, path), EP_OK);
    assert_int_equal(truncate(path, size - 1), 0);
    assert_int_equal(ep_block_load_packed(first, path, false), EP_ERROR_TRUNCATED);
    assert_int_equal(truncate(path, 100), 0);
    assert_int_equal(ep_block_load_packed(first, path, false), EP_ERROR_TRUNCATED);
    assert_int_equal(truncate(path, 10), 0);
    assert_int_equal(ep_block_load_packed(first, path, false), EP_ERROR_FORMAT);
    unlink(path);
    ep_block_destroy(first);
    ep_block_destroy(third);
    ep_tensor *all[] = {x, a, c, both, down, wide};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) ep_tensor_destroy(all[i]);
    ep_context_destroy(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_agree),
        cmocka_unit_test(liger_s_odd_shape),
        cmocka_unit_test(empty_batches),
        cmocka_unit_test(packed_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
