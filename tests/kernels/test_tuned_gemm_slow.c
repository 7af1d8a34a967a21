/* Tuned GEMMs over thousands of random shapes, Liger's odd one among them, on every ISA this machine has. */
// ctest: slow
#include "tuned_case.h"

static void thousands_of_shapes(void **state) {
    (void)state;
    ep_tuned_scratch *scratch = NULL;
    assert_int_equal(ep_tuned_scratch_create(NULL, &scratch), EP_OK);
    for (const ep_tuned_row *const *r = ep_tuned_rows; *r; r++)
        for (int i = 0; i < 400 && row_runs(*r); i++)
            check_random(*r, (*r)->isa == EP_ISA_PORTABLE ? 1 << 22 : 1 << 25, 100, scratch);
    ep_tuned_scratch_destroy(scratch);
}

static void the_largest_shapes(void **state) {
    (void)state;
    ep_tuned_scratch *scratch = NULL;
    assert_int_equal(ep_tuned_scratch_create(NULL, &scratch), EP_OK);
    for (const ep_tuned_row *const *r = ep_tuned_rows; *r; r++)
        for (int i = 0; i < 3 && row_runs(*r) && (*r)->isa > EP_ISA_PORTABLE; i++)
            check_random(*r, INT64_C(1) << 33, 60, scratch);
    ep_tuned_scratch_destroy(scratch);
}

/* x (9, 41, 341) times two weights of 4231: LK#959's shape. */
static void liger_s_odd_shape(void **state) {
    (void)state;
    ep_tuned_scratch *scratch = NULL;
    assert_int_equal(ep_tuned_scratch_create(NULL, &scratch), EP_OK);
    for (const ep_tuned_row *const *r = ep_tuned_rows; *r; r++)
        for (int eager = 0; eager < 2 && row_runs(*r); eager++) {
            tuned_case c = {.m = 9 * 41,
                            .n = 4231,
                            .k = 341,
                            .pair = true,
                            .bias = true,
                            .act = EP_ACT_GELU_TANH,
                            .rounding = eager ? EP_ROUNDING_EAGER : EP_ROUNDING_FEWEST,
                            .x_col = 1,
                            .w_col = 1,
                            .bias_step = 1};
            tuned_data d;
            make_data(&c, (*r)->dtype, &d);
            run_case(&c, *r, &d, 2, scratch);
            for (int64_t e = 0; e < c.m * c.n; e += 211) check_element(&c, *r, &d, e / c.n, e % c.n);
            free_data(&c, &d);
        }
    ep_tuned_scratch_destroy(scratch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thousands_of_shapes),
        cmocka_unit_test(the_largest_shapes),
        cmocka_unit_test(liger_s_odd_shape),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
