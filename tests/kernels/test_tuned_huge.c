/* More than 2^31 results in one call, GEMM and gated, really written: 4.6 GB each. Only where EPILOGUE_TEST_HUGE is set;
 * else skipped. */
// ctest: slow
#include "tuned_case.h"

#include <sys/mman.h>

enum { ROWS = 70000, COLS = 32768 };

static char *make_out(void) {
    char *p = mmap(NULL, (size_t)ROWS * COLS * 2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    return p;
}

static void gemm(void **state) {
    (void)state;
    ep_tuned_scratch *scratch = NULL;
    assert_int_equal(ep_tuned_scratch_create(NULL, &scratch), EP_OK);
    tuned_case c = {.m = ROWS, .n = COLS, .k = 8, .x_col = 1, .w_col = 1, .bias_step = 1};
    tuned_data d = {.x_row = 8, .w_row = 8, .out_row = COLS};
    d.x = fill(EP_DTYPE_BF16, ROWS * 8, false, 1);
    d.w[0] = fill(EP_DTYPE_BF16, COLS * 8, false, 1);
    d.out = make_out();
    const ep_tuned_row *row = ep_tuned_select(EP_DTYPE_BF16, ep_cpu_get()->isa);
    run_case(&c, row, &d, ep_cpu_get()->cores, scratch);
    for (int i = 0; i < 20000; i++) check_element(&c, row, &d, random_below(ROWS), random_below(COLS));
    check_element(&c, row, &d, ROWS - 1, COLS - 1);
    check_element(&c, row, &d, 65536, 0); /* the first row beyond 2^31 */
    munmap(d.out, (size_t)ROWS * COLS * 2);
    free(d.x);
    free(d.w[0]);
    ep_tuned_scratch_destroy(scratch);
}

static void gated(void **state) {
    (void)state;
    uint16_t *gate = malloc(COLS * 2), *up = malloc((size_t)ROWS * 2);
    char *out = make_out();
    assert_true(gate && up);
    for (int64_t j = 0; j < COLS; j++) gate[j] = ep_f32_to_bf16((float)(j % 200));
    for (int64_t i = 0; i < ROWS; i++) up[i] = ep_f32_to_bf16((float)(i % 100));
    ep_tensor g = {.data = (char *)gate, .dtype = EP_DTYPE_BF16, .ndim = 2, .sizes = {ROWS, COLS}, .strides = {0, 1}};
    ep_tensor u = {.data = (char *)up, .dtype = EP_DTYPE_BF16, .ndim = 2, .sizes = {ROWS, COLS}, .strides = {1, 0}};
    ep_tensor o = {.data = out, .dtype = EP_DTYPE_BF16, .ndim = 2, .sizes = {ROWS, COLS}, .strides = {COLS, 1}};
    g.numel = u.numel = o.numel = (int64_t)ROWS * COLS;
    assert_int_equal(ep_tuned_gated(ep_cpu_get()->cores, EP_ACT_RELU, EP_ROUNDING_EAGER, &g, &u, &o, NULL), EP_OK);
    for (int k = 0; k < 200000; k++) {
        int64_t i = k == 0 ? ROWS - 1 : k == 1 ? 65536 : random_below(ROWS), j = k == 0 ? COLS - 1 : random_below(COLS);
        uint16_t want = ep_f32_to_bf16((float)(j % 200) * (float)(i % 100)), got;
        memcpy(&got, out + (size_t)(i * COLS + j) * 2, 2);
        assert_int_equal(got, want);
    }
    munmap(out, (size_t)ROWS * COLS * 2);
    free(gate);
    free(up);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(gemm), cmocka_unit_test(gated)};
    if (!getenv("EPILOGUE_TEST_HUGE")) return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
