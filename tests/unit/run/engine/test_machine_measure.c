// ctest: slow
/* The measurement: every ceiling found, in a sane relation to the others, stored and loaded again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <epilogue/machine.h>

static void test_measure(void **state) {
    (void)state;
    char folder[] = "/tmp/test_measureXXXXXX";
    assert_non_null(mkdtemp(folder));
    setenv("XDG_CACHE_HOME", folder, 1);
    ep_device cpu = {EP_DEVICE_CPU, 0};
    ep_machine m = {0}, back = {0};
    ep_error err = {0};
    assert_int_equal(ep_machine_measure(cpu, 0, &err, &m), EP_OK);
    assert_true(m.measured && m.cores > 0);
    for (int i = 0; i < 2; i++) {
        assert_true(m.gflops[EP_DTYPE_F32][i] > 1);
        assert_true(m.gflops[EP_DTYPE_BF16][i] > 1);
        assert_true(m.read_gbs[i] > 0.1 && m.read_gbs[i] < 5000);
        assert_true(m.copy_gbs[i] > 0.1 && m.copy_gbs[i] < 5000);
        assert_true(m.cache_gbs[0][i] > 0 && m.cache_gbs[1][i] > 0);
    }
    assert_true(m.dispatch_ns > 1 && m.dispatch_ns < 1e6);
    assert_int_equal(ep_machine_load(cpu, &err, &back), EP_OK);
    assert_true(back.measured);
    assert_string_equal(back.name, m.name);
    setenv("XDG_CACHE_HOME", "/dev/null/none", 1); /* nowhere to keep it: the figures are there all the same */
    assert_int_equal(ep_machine_measure(cpu, 1, &err, &back), EP_OK);
    assert_true(back.measured && back.gflops[EP_DTYPE_F32][0] > 1);
    assert_non_null(strstr(back.source, "not kept"));
    ep_device none = {EP_DEVICE_CUDA, 77};
    assert_int_not_equal(ep_machine_measure(none, 0, &err, &m), EP_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_measure)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
