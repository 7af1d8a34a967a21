/* Never slower than eager: what is kept for which times, and what is said about it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "run/engine/choice.h"

/* Feeds times until decided; returns the samples it took. */
static int decide(ep_choice *c, const int64_t ns[EP_RUNNERS]) {
    int n = 0;
    for (; !c->decided && n < 200; n++) {
        ep_runner who = ep_choice_next(c);
        ep_choice_sample(c, who, ns[who] + (c->count[who] == 0 ? 1000000 : 0)); /* first calls are long */
    }
    return n;
}

static void the_faster_one_stays(void **state) {
    (void)state;
    ep_choice c = {.size_class = 12};
    assert_int_equal(decide(&c, (int64_t[]){5000, 8000, 0}), 10);
    assert_false(c.keep_eager);
    assert_int_equal(ep_choice_next(&c), EP_RUN_COMPILED);
    assert_non_null(strstr(c.why, "compiled kept for 2^12 to 2^13 elements"));
    c = (ep_choice){.size_class = 3};
    assert_int_equal(decide(&c, (int64_t[]){9000, 8000, 0}), 26); /* looked at longer before it is dropped */
    assert_true(c.keep_eager);
    assert_int_equal(ep_choice_next(&c), EP_RUN_EAGER);
    assert_string_equal(c.why, "eager kept for 2^3 to 2^4 elements: compiled 9.00 us, eager 8.00 us (best of 12)");
}

static void an_epilogue_has_to_be_worth_its_memory(void **state) {
    (void)state;
    ep_choice c = {.size_class = 12};
    decide(&c, (int64_t[]){5000, 8000, 0});
    ep_choice_reopen(&c);
    assert_false(c.decided);
    assert_int_equal(decide(&c, (int64_t[]){5000, 8000, 4000}), 15);
    assert_int_equal(ep_choice_next(&c), EP_RUN_ATTACHED);
    assert_string_equal(c.why,
                        "compiled kept for 2^12 to 2^13 elements: its pointwise kernel is the products' epilogue; "
                        "with epilogue 4.00 us, without 5.00 us, eager 8.00 us (best of 4)");
    ep_choice_reopen(&c);
    decide(&c, (int64_t[]){5000, 8000, 4950}); /* one percent is not */
    assert_int_equal(ep_choice_next(&c), EP_RUN_COMPILED);
    assert_non_null(strstr(c.why, "an epilogue of the products was not faster"));
    ep_choice_reopen(&c);
    decide(&c, (int64_t[]){9000, 5000, 7000}); /* eager beats both */
    assert_int_equal(ep_choice_next(&c), EP_RUN_EAGER);
    assert_true(c.keep_eager && !c.keep_attached);
    ep_choice_reopen(&c);
    decide(&c, (int64_t[]){9000, 5000, 4000}); /* the epilogue saves what would have been dropped */
    assert_int_equal(ep_choice_next(&c), EP_RUN_ATTACHED);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_faster_one_stays),
        cmocka_unit_test(an_epilogue_has_to_be_worth_its_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
