/* The bound by hand: flops over the peak, bytes over the bandwidth, the larger of the two; unknown stays unknown. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <epilogue/machine.h>

static ep_machine sample(void) {
    ep_machine m = {.cores = 4, .cache_bytes = {32 << 10, 1 << 20, 8 << 20}};
    m.gflops[EP_DTYPE_F32][0] = 100;
    m.gflops[EP_DTYPE_F32][1] = 350;
    m.read_gbs[0] = 10;
    m.read_gbs[1] = 20;
    m.copy_gbs[0] = 8;
    m.copy_gbs[1] = 16;
    return m;
}

static void near(double a, double b) {
    if (!(fabs(a - b) <= 1e-9 * fabs(b))) fail_msg("%.12g is not %.12g", a, b);
}

static void test_bound(void **state) {
    (void)state;
    ep_machine m = sample();
    ep_work w = {.flops = 1000000000, .bytes_read = 40000000, .bytes_written = 16000000};
    ep_bound b = ep_machine_bound(&m, &w, EP_DTYPE_F32, 1);
    near(b.compute_us, 10000);
    near(b.memory_us, 4000 + 2000);
    near(b.us, 10000);
    assert_int_equal(b.regime, EP_REGIME_COMPUTE);
    b = ep_machine_bound(&m, &w, EP_DTYPE_F32, 4);
    near(b.compute_us, 1e9 / 350e3);
    near(b.memory_us, 3000);
    assert_int_equal(b.regime, EP_REGIME_MEMORY);
    near(ep_machine_bound(&m, &w, EP_DTYPE_F32, 0).us, 3000);
    near(ep_machine_bound(&m, &w, EP_DTYPE_F32, 2).compute_us, 5000);
    near(ep_machine_bound(&m, &w, EP_DTYPE_F32, 2).memory_us, 3000);
    near(ep_machine_bound(&m, &w, EP_DTYPE_F32, 64).compute_us, 1e9 / 350e3);
}

/* What fits in a cache is bounded by the cache's rate, not by the memory's. */
static void test_cache(void **state) {
    (void)state;
    ep_machine m = sample();
    m.cache_gbs[0][0] = 100;
    m.cache_gbs[0][1] = 400;
    m.cache_gbs[1][0] = 40;
    ep_work w = {.bytes_read = 500000, .bytes_written = 500000};
    near(ep_machine_bound(&m, &w, EP_DTYPE_F32, 1).us, 10);
    w.bytes_read = 1500000;
    near(ep_machine_bound(&m, &w, EP_DTYPE_F32, 1).us, 50);
    w.bytes_read = 19500000;
    near(ep_machine_bound(&m, &w, EP_DTYPE_F32, 1).us, 1950 + 62.5);
}

static void test_unknown(void **state) {
    (void)state;
    ep_machine none = {.cores = 2};
    ep_work w = {.flops = 10, .bytes_read = 10};
    ep_bound b = ep_machine_bound(&none, &w, EP_DTYPE_BF16, 2);
    assert_true(isnan(b.us) && isnan(b.compute_us) && isnan(b.memory_us));
    assert_int_equal(b.regime, EP_REGIME_UNKNOWN);
    none.read_gbs[1] = 1;
    b = ep_machine_bound(&none, &w, EP_DTYPE_BF16, 2);
    assert_true(isnan(b.compute_us));
    near(b.us, 0.01);
    ep_work nothing = {0};
    near(ep_machine_bound(&none, &nothing, EP_DTYPE_F32, 1).us + 1, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bound),
        cmocka_unit_test(test_cache),
        cmocka_unit_test(test_unknown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
