/* The list of a GPU's kernels: all there with or without a GPU; with one, a block gets one kernel or one for each product. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>
#include <epilogue/epilogue.h>

enum { MOST = 128 };

static void check(const ep_kernel_question *q) {
    static ep_kernel_row rows[MOST];
    size_t count = 0, less = 0;
    char device[96] = "?";
    ep_error err = {0};
    ep_status status = ep_gpu_kernel_rows(q, &err, rows, MOST, &count, device);
    assert_in_range(count, 20, MOST);
    assert_int_equal(ep_gpu_kernel_rows(q, &err, NULL, 0, &less, NULL), status);
    assert_int_equal(less, count);
    int blocks = 0, gated = 0, plain = 0;
    for (size_t i = 0; i < count; i++) {
        const ep_kernel_row *r = &rows[i];
        assert_true(strlen(r->limits) > 4 && *r->mode && *r->family && *r->tile && *r->isa);
        assert_string_equal(r->dtype, ep_dtype_name(q->dtype));
        if (status != EP_OK || r->used) assert_string_equal(r->why, "");
        if (status != EP_OK) assert_false(r->used);
        if (status == EP_OK && !r->used) assert_true(strlen(r->why) > 4);
        if (!r->used) continue;
        blocks += strcmp(r->family, "block") == 0;
        gated += strcmp(r->family, "gated") == 0;
        plain += strcmp(r->family, "gemm") == 0;
    }
    if (status == EP_OK) {
        assert_true(*device);
        assert_int_equal(gated, 1 - blocks);
        assert_int_equal(plain, 1 - blocks);
    } else {
        assert_true(strlen(err.message) > 8);
        assert_string_equal(device, "");
    }
}

static void every_block_gets_kernels(void **state) {
    (void)state;
    static const int64_t rows[] = {1, 8, 9, 16, 17, 128, 129, 8192};
    for (int d = EP_DTYPE_F32; d <= EP_DTYPE_F16; d++)
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
            for (int r = EP_ROUNDING_EAGER; r <= EP_ROUNDING_FEWEST; r++)
                check(&(ep_kernel_question){0, (ep_dtype)d, EP_ACT_GELU_TANH, (ep_rounding)r, rows[i], 512 << i % 4,
                                            2048 << i % 4});
}

static void no_such_device(void **state) {
    (void)state;
    ep_error err = {0};
    size_t count = 0;
    ep_kernel_question q = {1000, EP_DTYPE_BF16, EP_ACT_SILU, EP_ROUNDING_EAGER, 1, 64, 64};
    assert_int_not_equal(ep_gpu_kernel_rows(&q, &err, NULL, 0, &count, NULL), EP_OK);
    assert_true(count > 20);
    assert_int_equal(ep_gpu_kernel_rows(NULL, &err, NULL, 0, &count, NULL), EP_ERROR_INVALID_ARGUMENT);
    assert_int_equal(ep_gpu_kernel_rows(&q, &err, NULL, 0, NULL, NULL), EP_ERROR_INVALID_ARGUMENT);
    assert_int_equal(ep_gpu_kernel_rows(&q, &err, NULL, 4, &count, NULL), EP_ERROR_INVALID_ARGUMENT);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_block_gets_kernels), cmocka_unit_test(no_such_device)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
