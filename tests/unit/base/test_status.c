/* The headers' version is the library's; any status has words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include <epilogue/epilogue.h>

static void the_versions_agree(void **state) {
    (void)state;
    int v[3];
    assert_int_equal(sscanf(ep_version(), "%d.%d.%d", &v[0], &v[1], &v[2]), 3);
    assert_int_equal(EP_VERSION_NUMBER, 10000 * v[0] + 100 * v[1] + v[2]);
}

static void any_status_has_words(void **state) {
    (void)state;
    for (int s = -3; s < EP_STATUS_COUNT + 3; s++) {
        assert_non_null(ep_status_name((ep_status)s));
        assert_non_null(ep_status_sentence((ep_status)s));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_versions_agree), cmocka_unit_test(any_status_has_words)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
