// ctest: isa
/* Results in the caller's memory: the values of a result of its own, whatever out's layout, and nothing beside it is
 * touched. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <epilogue/epilogue.h>

enum { DIM = 40, HIDDEN = 50, GUARD = 0x5a, GAP = 7 };
#define OK(call) assert_int_equal(call, EP_OK)

static ep_context *ctx;

static ep_tensor *noise(ep_dtype dtype, int64_t rows, int64_t cols, uint64_t seed) {
    ep_tensor *t;
    OK(ep_tensor_create(dtype, 2, (int64_t[2]){rows, cols}, NULL, &t));
    OK(ep_tensor_fill_random(t, seed, 0.5, NULL));
    return t;
}

typedef enum layout { PLAIN, ODD_ADDRESS, WIDE_ROWS, TRANSPOSED, EVERY_SECOND, LAYOUTS } layout;

/* out in guarded memory: `*memory` of `*bytes`, its bytes marked in `*mine`. */
static ep_tensor *target(layout how, ep_dtype dtype, int64_t rows, int64_t cols, char **memory, size_t *bytes,
                         char **mine) {
    int64_t size = (int64_t)ep_dtype_size(dtype), strides[2] = {cols, 1}, start = how == ODD_ADDRESS ? 1 : 0;
    if (how == WIDE_ROWS) strides[0] = cols + GAP, start = 3;
    if (how == TRANSPOSED) strides[0] = 1, strides[1] = rows;
    if (how == EVERY_SECOND) strides[0] = 2 * cols, strides[1] = 2;
    int64_t last = start;
    if (rows && cols) last += (rows - 1) * strides[0] + (cols - 1) * strides[1] + 1;
    *bytes = (size_t)((last + 64) * size);
    *memory = malloc(*bytes);
    *mine = calloc(*bytes, 1);
    assert_true(*memory && *mine);
    memset(*memory, GUARD, *bytes);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < cols; k++)
            memset(*mine + (start + i * strides[0] + k * strides[1]) * size, 1, (size_t)size);
    ep_tensor *t;
    OK(ep_tensor_from_memory((ep_device){EP_DEVICE_CPU, 0}, dtype, 2, (int64_t[2]){rows, cols}, strides,
                             *memory + start * size, *bytes - (size_t)(start * size), NULL, NULL, NULL, &t));
    return t;
}

static void same(const ep_tensor *got, const ep_tensor *want, bool exact) {
    ep_difference d;
    OK(ep_tensor_compare(got, want, 1, NULL, &d));
    if (d.max_abs > 0 && (exact || d.max_rel > 0.05)) fail_msg("%g at %lld", d.max_abs, (long long)d.at);
}

static void one_layout(ep_block *b, ep_mode mode, layout how, const ep_tensor *x, const ep_tensor *residual,
                       const ep_tensor *want, bool exact) {
    char *memory, *mine;
    size_t bytes;
    ep_tensor *out = target(how, ep_tensor_dtype(x), ep_tensor_size(x, 0), ep_block_out(b), &memory, &bytes, &mine);
    OK(ep_block_run_into(b, mode, x, residual, out));
    same(out, want, exact);
    for (size_t i = 0; i < bytes; i++)
        if (!mine[i] && memory[i] != GUARD) fail_msg("layout %d: byte %zu of %zu was written", how, i, bytes);
    if (residual) { /* the running sum of a transformer: out is the residual */
        ep_tensor *sum;
        OK(ep_tensor_from_memory((ep_device){EP_DEVICE_CPU, 0}, ep_tensor_dtype(out), 2, ep_tensor_sizes(out),
                                 ep_tensor_strides(out), ep_tensor_data(out), bytes, NULL, NULL, NULL, &sum));
        double *values = malloc(sizeof *values * (size_t)(ep_tensor_numel(sum) + 1));
        assert_non_null(values);
        OK(ep_tensor_read_f64(residual, values, (size_t)ep_tensor_numel(sum), NULL));
        OK(ep_tensor_write_f64(sum, values, (size_t)ep_tensor_numel(sum), NULL));
        OK(ep_block_run_into(b, mode, x, sum, out));
        same(out, want, exact);
        free(values);
        ep_tensor_destroy(sum);
    }
    ep_tensor_destroy(out);
    free(memory);
    free(mine);
}

static void any_layout_in_any_mode(void **state) {
    (void)state;
    static const int64_t rows[] = {1, 5, 33, 0};
    for (int i = 0; i < 3 * 3 * 2; i++) {
        ep_dtype dtype = (ep_dtype)(i % 3);
        ep_block_kind kind = (ep_block_kind)(i / 3 % 3);
        setenv("EPILOGUE_TUNED", i < 9 ? "kernels" : "onednn", 1);
        ep_tensor *up = noise(dtype, kind == EP_BLOCK_LINEAR ? DIM : HIDDEN, DIM, 1),
                  *down = noise(dtype, DIM, HIDDEN, 2);
        ep_tensor *gate = noise(dtype, HIDDEN, DIM, 3);
        ep_block *b;
        OK(ep_block_create(ctx, kind, EP_ACT_SILU, &(ep_block_weights){.up = up, .gate = gate, .down = down}, &b));
        for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
            ep_tensor *x = noise(dtype, rows[k], DIM, 4), *residual = noise(dtype, rows[k], DIM, 5);
            for (int mode = 0; mode < EP_MODE_COUNT; mode += 2) {
                for (int with = 0; with < 2; with++) {
                    ep_tensor *y;
                    OK(ep_block_run(b, (ep_mode)mode, x, with ? residual : NULL, &y));
                    for (layout how = PLAIN; how < LAYOUTS; how++)
                        one_layout(b, (ep_mode)mode, how, x, with ? residual : NULL, y, i < 9);
                    ep_tensor_destroy(y);
                }
            }
            ep_tensor_destroy(x);
            ep_tensor_destroy(residual);
        }
        ep_block_destroy(b);
        ep_tensor_destroy(up), ep_tensor_destroy(down), ep_tensor_destroy(gate);
    }
    unsetenv("EPILOGUE_TUNED");
}

/* out lies over x, or a row further on. */
static void over_x_itself(void **state) {
    (void)state;
    enum { ROWS = 37 };
    ep_tensor *up = noise(EP_DTYPE_F32, DIM, DIM, 1), *x = noise(EP_DTYPE_F32, ROWS + 1, DIM, 2);
    ep_block *b;
    OK(ep_block_create(ctx, EP_BLOCK_LINEAR, EP_ACT_NONE, &(ep_block_weights){.up = up}, &b));
    for (int mode = 0; mode < EP_MODE_COUNT; mode++)
        for (int further = 0; further < 2; further++) {
            ep_tensor *in, *out, *y, *all;
            OK(ep_copy(ctx, x, &all));
            OK(ep_tensor_slice(x, 0, 0, ROWS, 1, NULL, &in));
            OK(ep_block_run(b, (ep_mode)mode, in, NULL, &y));
            ep_tensor_destroy(in);
            OK(ep_tensor_slice(all, 0, 0, ROWS, 1, NULL, &in));
            OK(ep_tensor_slice(all, 0, further, further + ROWS, 1, NULL, &out));
            OK(ep_block_run_into(b, (ep_mode)mode, in, NULL, out));
            ep_difference d;
            OK(ep_tensor_compare(out, y, 1, NULL, &d));
            assert_true(d.max_rel < 1e-5);
            ep_tensor *ends[] = {in, out, y, all};
            for (int i = 0; i < 4; i++) ep_tensor_destroy(ends[i]);
        }
    ep_block_destroy(b);
    ep_tensor_destroy(up);
    ep_tensor_destroy(x);
}

static void refuses(ep_status got, ep_status want, const char *words) {
    if (got != want || !strstr(ep_context_error(ctx)->message, words))
        fail_msg("%s: %s", ep_status_name(got), ep_context_error(ctx)->message);
}

static void what_does_not_fit_is_refused(void **state) {
    (void)state;
    ep_tensor *up = noise(EP_DTYPE_F32, 8, DIM, 1), *x = noise(EP_DTYPE_F32, 3, DIM, 2), *y;
    ep_tensor *wide = noise(EP_DTYPE_F32, 3, 9, 3), *half = noise(EP_DTYPE_BF16, 3, 8, 3), *row, *flat;
    ep_block *b;
    OK(ep_block_create(ctx, EP_BLOCK_LINEAR, EP_ACT_NONE, &(ep_block_weights){.up = up}, &b));
    ep_tensor *one = noise(EP_DTYPE_F32, 1, 8, 4);
    OK(ep_tensor_expand(one, 2, (int64_t[2]){3, 8}, NULL, &row));
    OK(ep_tensor_create(EP_DTYPE_F32, 1, (int64_t[1]){24}, NULL, &flat));
    for (int mode = 0; mode < EP_MODE_COUNT; mode++) {
        refuses(ep_block_run_into(b, (ep_mode)mode, x, NULL, wide), EP_ERROR_SHAPE,
                "out is f32 [3, 9], the result f32 [3, 8]");
        refuses(ep_block_run_into(b, (ep_mode)mode, x, NULL, half), EP_ERROR_SHAPE, "out is bf16");
        refuses(ep_block_run_into(b, (ep_mode)mode, x, NULL, flat), EP_ERROR_SHAPE, "[24]");
        refuses(ep_block_run_into(b, (ep_mode)mode, x, NULL, row), EP_ERROR_STRIDE, "stride 0 in dim 0");
        refuses(ep_block_run_into(b, (ep_mode)mode, x, NULL, NULL), EP_ERROR_INVALID_ARGUMENT, "out is NULL");
        refuses(ep_block_run_into(b, (ep_mode)mode, NULL, NULL, wide), EP_ERROR_INVALID_ARGUMENT, "x is NULL");
        refuses(ep_block_run_into(b, (ep_mode)mode, wide, NULL, wide), EP_ERROR_SHAPE, "takes x");
    }
    assert_int_equal(ep_block_run_into(NULL, EP_MODE_TUNED, x, NULL, wide), EP_ERROR_INVALID_ARGUMENT);
    OK(ep_block_run(b, EP_MODE_TUNED, x, NULL, &y));
    ep_memory_stats had, has;
    OK(ep_block_run_into(b, EP_MODE_TUNED, x, NULL, y));
    ep_context_memory(ctx, &had);
    for (int i = 0; i < 100; i++) OK(ep_block_run_into(b, EP_MODE_TUNED, x, NULL, y));
    ep_context_memory(ctx, &has);
    assert_int_equal(has.system_allocations, had.system_allocations);
    assert_int_equal(has.bytes_in_use, had.bytes_in_use);
    ep_tensor *all[] = {up, x, y, wide, half, row, flat, one};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) ep_tensor_destroy(all[i]);
    ep_block_destroy(b);
}

static int set_up(void **state) {
    (void)state;
    return ep_context_create(&(ep_context_options){.threads = 2}, NULL, &ctx) != EP_OK;
}

static int tear_down(void **state) {
    (void)state;
    ep_context_destroy(ctx);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(any_layout_in_any_mode), cmocka_unit_test(over_x_itself),
                                       cmocka_unit_test(what_does_not_fit_is_refused)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
