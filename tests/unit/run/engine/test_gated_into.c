/* ep_gated_into: the bits of ep_gated in memory of the caller's, in place of an input too; what does not fit is refused. */
#include <string.h>

#include "context.h"

static ep_tensor *noise(ep_dtype dtype, int64_t rows, int64_t cols, uint64_t seed) {
    return random_matrix(dtype, rows, cols, seed, 2);
}

static void same_values(const ep_tensor *a, const ep_tensor *b) {
    static double x[4096], y[4096];
    size_t n = (size_t)ep_tensor_numel(a);
    assert_true(n <= 4096);
    OK(ep_tensor_read_f64(a, x, n, NULL));
    OK(ep_tensor_read_f64(b, y, n, NULL));
    assert_memory_equal(x, y, n * sizeof *x);
}

static void in_place_and_into_halves(void **state) {
    (void)state;
    for (int i = 0; i < 12; i++) {
        ep_dtype t = (ep_dtype)(i % 3);
        ep_act act = (ep_act)(i % EP_ACT_COUNT);
        int64_t width = (int64_t[]){1, 16, 37, 352}[i / 3];
        ep_tensor *both = noise(t, 5, 2 * width, 7), *gate, *up, *want, *out = noise(t, 5, width, 8);
        OK(ep_tensor_slice(both, 1, 0, width, 1, NULL, &gate));
        OK(ep_tensor_slice(both, 1, width, 2 * width, 1, NULL, &up));
        OK(ep_gated(ctx, act, gate, up, &want));
        OK(ep_gated_into(ctx, act, gate, up, out));
        same_values(want, out);
        OK(ep_gated_into(ctx, act, gate, up, i % 2 ? gate : up)); /* rows of 2 * width, in place */
        same_values(want, i % 2 ? gate : up);
        ep_tensor *all[] = {both, gate, up, want, out};
        for (int k = 0; k < 5; k++) ep_tensor_destroy(all[k]);
    }
}

static void what_does_not_fit_is_refused(void **state) {
    (void)state;
    ep_tensor *g = noise(EP_DTYPE_F32, 3, 4, 1), *u = noise(EP_DTYPE_F32, 3, 4, 2), *row, *wide;
    ep_tensor *other = noise(EP_DTYPE_BF16, 3, 4, 3), *small = noise(EP_DTYPE_F32, 3, 3, 4);
    OK(ep_tensor_slice(g, 0, 0, 1, 1, NULL, &row));
    OK(ep_tensor_expand(row, 2, (int64_t[2]){3, 4}, NULL, &wide));
    assert_int_equal(ep_gated_into(ctx, EP_ACT_SILU, g, u, NULL), EP_ERROR_INVALID_ARGUMENT);
    assert_int_equal(ep_gated_into(ctx, EP_ACT_SILU, g, NULL, u), EP_ERROR_INVALID_ARGUMENT);
    assert_int_equal(ep_gated_into(ctx, EP_ACT_COUNT, g, u, u), EP_ERROR_INVALID_ARGUMENT);
    assert_int_equal(ep_gated_into(ctx, EP_ACT_SILU, g, u, other), EP_ERROR_SHAPE);
    assert_int_equal(ep_gated_into(ctx, EP_ACT_SILU, g, u, small), EP_ERROR_SHAPE);
    assert_int_equal(ep_gated_into(ctx, EP_ACT_SILU, g, u, wide), EP_ERROR_STRIDE);
    ep_tensor *all[] = {g, u, row, wide, other, small};
    for (int k = 0; k < 6; k++) ep_tensor_destroy(all[k]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(in_place_and_into_halves),
                                       cmocka_unit_test(what_does_not_fit_is_refused)};
    return cmocka_run_group_tests(tests, open_context, close_context);
}
