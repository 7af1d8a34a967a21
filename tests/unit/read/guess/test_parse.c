/* The guess language: what parses prints canonically; what doesn't says line, column and what was expected. */
#include <epilogue/guess.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void same(const char *text, const char *canonical) {
    ep_guess *g = NULL, *again = NULL;
    ep_error err = {0};
    if (ep_guess_parse(text, strlen(text), &err, &g) != EP_OK)
        fail_msg("%s: %d:%d %s", text, err.line, err.column, err.message);
    assert_string_equal(ep_guess_text(g), canonical);
    assert_int_equal(ep_guess_parse(canonical, strlen(canonical), &err, &again), EP_OK);
    assert_string_equal(ep_guess_text(again), canonical);
    assert_int_equal(ep_guess_count(again), ep_guess_count(g));
    ep_guess_destroy(g);
    ep_guess_destroy(again);
}

static void refused(const char *text, int line, int column, const char *part) {
    ep_guess *g = NULL;
    ep_error err = {0};
    assert_int_equal(ep_guess_parse(text, strlen(text), &err, &g), EP_ERROR_PARSE);
    assert_null(g);
    if (!strstr(err.message, part)) fail_msg("%s: '%s' has no '%s'", text, err.message, part);
    assert_int_equal(err.line, line);
    assert_int_equal(err.column, column);
}

static void test_contract(void **state) {
    (void)state;
    same("region mlp_fwd                      # per instance of the region\n"
         "  kernels = 5\n"
         "  kernels matching \"gemm\" = 3       # glob or class\n"
         "  op t launches 0\n"
         "  fused gelu mul\n"
         "  copies = 0\n"
         "  device time < 250us\n"
         "  dispatch < device time            # not overhead-bound\n"
         "  bound = memory\n"
         "  recompiles = 0\n"
         "compare                             # with two traces\n"
         "  kernels matching \"gemm\" same names\n"
         "  device time ratio < 0.95\n",
         "region mlp_fwd\n  kernels = 5\n  kernels matching \"gemm\" = 3\n  op t launches = 0\n  fused gelu mul\n"
         "  copies = 0\n  device time < 250us\n  dispatch < device time\n  bound = memory\n  recompiles = 0\n"
         "compare\n  kernels matching \"gemm\" same names\n  device time ratio < 0.95\n");
}

static void test_forms(void **state) {
    (void)state;
    same("kernels 5", "trace\n  kernels = 5\n");
    same("kernels=5", "trace\n  kernels = 5\n");
    same("trace\nidle < 20%\nidle < 0.2", "trace\n  idle < 20%\n  idle < 0.2\n");
    same("region a\nmedian device time in 100us..250us", "region a\n  median device time in 100us..250us\n");
    same("region a\ndevice time in 100..250us", "region a\n  device time in 100us..250us\n");
    same("region \"\"\nops = 2", "region \"\"\n  ops = 2\n");
    same("time < 1 ms  # or so\nidle < 20 %\ntime in 1 us .. 2 ms\ntime ~ 250 us +- 5 %",
         "trace\n  time < 1ms\n  idle < 20%\n  time in 1us..2ms\n  time ~ 250us +- 5%\n");
    same("kernels ~ 5", "trace\n  kernels ~ 5 +- 10%\n");
    same("kernels ~ 5 ± 1", "trace\n  kernels ~ 5 +- 1\n");
    same("time ≤ 250µs", "trace\n  time <= 250us\n");
    same("dispatch < 0.5 * device time", "trace\n  dispatch < 0.5 * device time\n");
    same("bytes > 1.5GiB\nflops = 58.1GFLOP", "trace\n  bytes > 1.5GiB\n  flops = 58.1GFLOP\n");
    same("kernels matching gemm any thread = 3", "trace\n  kernels matching \"gemm\" any thread = 3\n");
    same("op aten::mm count = 3\nop gelu device time < 1ms",
         "trace\n  op aten::mm count = 3\n  op gelu device time < 1ms\n");
    same("region ProfilerStep#* skip 1\nevery ops = 11", "region ProfilerStep#* skip 1\n  ops = 11\n");
    same("region \"## Call CompiledFxGraph f00 ##\"\nkernels = 4",
         "region \"## Call CompiledFxGraph f00 ##\"\n  kernels = 4\n");
    same("kernels matching \"void k<8, char*>(\\\"x\\\")\" = 1",
         "trace\n  kernels matching \"void k<8, char*>(\\\"x\\\")\" = 1\n");
    same("compare region mlp_fwd\nop t gone\nop guards new\nkernels delta = -1\nmedian time ratio in 50%..90%",
         "compare region mlp_fwd\n  op t gone\n  op guards new\n  kernels delta = -1\n  median time ratio in "
         "50%..90%\n");
    same("", "");
    same("# nothing but a comment\n\r\n\t\n", "");
    same("\xef\xbb\xbfkernels = 1\r\n", "trace\n  kernels = 1\n");
    same("kernels = 1e3\nkernels = 1_000", "trace\n  kernels = 1000\n  kernels = 1000\n");
}

static void test_refused(void **state) {
    (void)state;
    refused("kernel = 5", 1, 8, "expected 'time'");
    refused("region a\n  kernals = 5", 2, 3, "did you mean 'kernels'?");
    refused("device time < 250", 1, 15, "no unit");
    refused("device time < 5KB", 1, 15, "a time such as 250us");
    refused("kernels < 5us", 1, 11, "a count such as 5");
    refused("kernels", 1, 8, "a comparison");
    refused("kernels = five", 1, 11, "no claim about 'five'");
    refused("kernels = 5 6", 1, 13, "end of the line");
    refused("kernels = 5 furlongs", 1, 13, "end of the line");
    refused("time < 5furlongs", 1, 9, "is no unit");
    refused("time in 5us..1us", 1, 9, "ends before it begins");
    refused("dispatch < kernels", 1, 12, "can't be compared");
    refused("device time ratio < 0.95", 1, 1, "under a line that says 'compare'");
    refused("compare\nkernels = 5", 2, 1, "says 'ratio'");
    refused("median kernels = 5", 1, 1, "'median' is over the instances");
    refused("fused gelu", 1, 11, "two ops or more");
    refused("bound = fast", 1, 9, "overhead, memory");
    refused("region", 1, 7, "the region's name");
    refused("region a b", 1, 10, "end of the line");
    refused("kernels matching \"gemm = 3", 1, 18, "no end on its line");
    refused("launches matching x = 3", 1, 10, "can't be narrowed");
    refused("op t flies", 1, 6, "'count', 'launches'");
    refused("= 5", 1, 1, "expected a claim");
    refused("kernels = -5", 1, 11, "negative");
}

static void test_binary(void **state) {
    (void)state;
    ep_guess *g = NULL;
    ep_error err = {0};
    assert_int_equal(ep_guess_parse("kernels = 5\0", 12, &err, &g), EP_ERROR_PARSE);
    assert_int_equal(err.column, 12);
    assert_int_equal(ep_guess_read("/nonexistent/guess", &err, &g), EP_ERROR_IO);
    assert_null(g);
    ep_guess_destroy(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_contract), cmocka_unit_test(test_forms),
                                       cmocka_unit_test(test_refused), cmocka_unit_test(test_binary)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
