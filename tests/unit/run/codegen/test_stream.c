/* Outputs that are stored past the caches: the same bits as eager, whether rows begin at whole vectors or not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <epilogue/epilogue.h>

static ep_status gated(ep_context *ctx, void *user, const ep_tensor *const *in, int n, ep_tensor **out, int m) {
    (void)user, (void)n, (void)m;
    ep_tensor *h;
    ep_status s = ep_relu(ctx, in[0], &h);
    if (s != EP_OK) return s;
    s = ep_mul(ctx, h, in[1], out);
    ep_tensor_destroy(h);
    return s;
}

/* [rows, width] as columns 1.. of a wider tensor (rows do not merge) or as a whole one. */
static ep_tensor *input(ep_dtype dtype, int64_t rows, int64_t width, bool part, uint64_t seed) {
    ep_tensor *whole, *t;
    assert_int_equal(ep_tensor_create(dtype, 2, (int64_t[]){rows, width + part}, NULL, &whole), EP_OK);
    assert_int_equal(ep_tensor_fill_random(whole, seed, 1, NULL), EP_OK);
    if (!part) return whole;
    assert_int_equal(ep_tensor_slice(whole, 1, 1, width + 1, 1, NULL, &t), EP_OK);
    ep_tensor_destroy(whole);
    return t;
}

static void check(ep_dtype dtype, int64_t rows, int64_t width, bool part) {
    ep_context *ctx;
    ep_compiled *c;
    ep_tensor *got, *want;
    assert_int_equal(ep_context_create(NULL, NULL, &ctx), EP_OK);
    const ep_tensor *in[2] = {input(dtype, rows, width, part, 1), input(dtype, rows, width, false, 2)};
    ep_compile_options o = {.wait = EP_WAIT_ALWAYS, .no_disk_cache = true};
    assert_int_equal(ep_compile(ctx, gated, NULL, 2, 1, &o, &c), EP_OK);
    assert_int_equal(ep_compiled_call(c, in, &got), EP_OK);
    ep_compile_stats s;
    ep_compiled_stats(c, &s);
    assert_int_equal(s.eager_calls, 0);
    assert_int_equal(gated(ctx, NULL, in, 2, &want, 1), EP_OK);
    assert_memory_equal(ep_tensor_data(got), ep_tensor_data(want),
                        (size_t)ep_tensor_numel(want) * ep_dtype_size(dtype));
    ep_tensor_destroy(got);
    ep_tensor_destroy(want);
    ep_compiled_destroy(c);
    for (int k = 0; k < 2; k++) ep_tensor_destroy((ep_tensor *)(uintptr_t)in[k]);
    ep_context_destroy(ctx);
}

static void large_outputs_are_eagers(void **state) {
    (void)state;
    check(EP_DTYPE_F32, 2051, 4099, false); /* merged into one long row with a tail */
    check(EP_DTYPE_F32, 2051, 4099, true);  /* one row in sixteen begins at a whole vector */
    check(EP_DTYPE_BF16, 4100, 4096, true);
    check(EP_DTYPE_F16, 4100, 4097, true);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(large_outputs_are_eagers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
