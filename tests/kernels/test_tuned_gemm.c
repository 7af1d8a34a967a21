/* Tuned GEMMs of every ISA this machine has, against f64 element by element: random shapes, strides, biases, layouts. */
#include "tuned_case.h"

static void random_shapes(void **state) {
    (void)state;
    ep_tuned_scratch *scratch = NULL;
    assert_int_equal(ep_tuned_scratch_create(NULL, &scratch), EP_OK);
    for (const ep_tuned_row *const *r = ep_tuned_rows; *r; r++)
        for (int i = 0; i < 60 && row_runs(*r); i++) check_random(*r, 1 << 20, 400, scratch);
    ep_tuned_scratch_destroy(scratch);
}

static void same_bits_at_any_thread_count(void **state) {
    (void)state;
    ep_tuned_scratch *scratch = NULL;
    assert_int_equal(ep_tuned_scratch_create(NULL, &scratch), EP_OK);
    static const int64_t shapes[][3] = {{1, 352, 1000}, {17, 127, 3001}, {300, 65, 352}, {64, 64, 65}};
    for (const ep_tuned_row *const *r = ep_tuned_rows; *r; r++)
        for (int s = 0; s < 4 && row_runs(*r); s++) {
            tuned_case c = {.m = shapes[s][0],
                            .n = shapes[s][1],
                            .k = shapes[s][2],
                            .pair = s % 2,
                            .bias = true,
                            .act = EP_ACT_SILU,
                            .x_col = 1,
                            .w_col = 1,
                            .bias_step = 1};
            tuned_data d;
            make_data(&c, (*r)->dtype, &d);
            run_case(&c, *r, &d, 1, scratch);
            char *one = malloc(d.out_bytes);
            assert_non_null(one);
            memcpy(one, d.out, d.out_bytes);
            for (int threads = 2; threads <= 7; threads += 2 + threads % 2) {
                memset(d.out, 0xff, d.out_bytes);
                run_case(&c, *r, &d, threads, scratch);
                assert_memory_equal(one, d.out, d.out_bytes);
            }
            free(one);
            free_data(&c, &d);
        }
    ep_tuned_scratch_destroy(scratch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_shapes),
        cmocka_unit_test(same_bits_at_any_thread_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
