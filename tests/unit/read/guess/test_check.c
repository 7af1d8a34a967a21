/* Verdicts on small traces whose every figure is known. */
#include <epilogue/guess.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* One region with linear > (t, addmm > launch), mul > launch, on thread 7 of process 1; times in us. */
#define OP(name, ts, dur)                                                                                              \
    "{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"" name "\",\"pid\":1,\"tid\":7,\"ts\":" #ts ",\"dur\":" #dur "},"
#define REGION(name, ts, dur)                                                                                          \
    "{\"ph\":\"X\",\"cat\":\"user_annotation\",\"name\":\"" name "\",\"pid\":1,\"tid\":7,\"ts\":" #ts ",\"dur\":" #dur \
    "},"
#define CALL(name, ts, dur, c)                                                                                         \
    "{\"ph\":\"X\",\"cat\":\"cuda_runtime\",\"name\":\"" name "\",\"pid\":1,\"tid\":7,\"ts\":" #ts ",\"dur\":" #dur    \
    ",\"args\":{\"correlation\":" #c "}},"
#define WORK(cat, name, ts, dur, c)                                                                                    \
    "{\"ph\":\"X\",\"cat\":\"" cat "\",\"name\":\"" name "\",\"pid\":0,\"tid\":3,\"ts\":" #ts ",\"dur\":" #dur         \
    ",\"args\":{\"correlation\":" #c ",\"device\":0,\"stream\":3}},"
#define TRACE(events)                                                                                                  \
    "{\"traceEvents\":[" events                                                                                        \
    "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":1,\"tid\":0,\"args\":{\"name\":\"t\"}}]}"

#define GEMM "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
/* clang-format 14 moves these lines at every run. */
// clang-format off
#define BODY                                                                                                           \
    REGION("fwd", 100, 100)                                                                                            \
    OP("aten::linear", 110, 40)                                                                                        \
    OP("aten::t", 112, 5)                                                                                              \
    OP("aten::addmm", 120, 25)                                                                                         \
    CALL("cudaLaunchKernel", 130, 5, 1)                                                                                \
    OP("aten::mul", 160, 20) CALL("cudaLaunchKernel", 165, 5, 2) CALL("cudaMemsetAsync", 172, 2, 3)                    \
        WORK("kernel", GEMM, 140, 30, 1)                                                                               \
            WORK("kernel", "void at::native::vectorized_elementwise_kernel<4, at::native::MulFunctor<float> >(int)",   \
                 175, 10, 2) WORK("gpu_memset", "Memset (Device)", 190, 1, 3)
// clang-format on

static const char one[] = TRACE(BODY);
/* The second instance has a kernel more and is slower. */
static const char two[] = TRACE(
    BODY REGION("fwd", 300, 200) OP("aten::mul", 310, 20) CALL("cudaLaunchKernel", 312, 5, 4) OP("aten::mul", 340, 20)
        CALL("cudaLaunchKernel", 342, 5, 5) CALL("cudaLaunchKernel", 352, 5, 6)
            WORK("kernel", "void at::native::vectorized_elementwise_kernel<4, at::native::MulFunctor<float> >(int)",
                 320, 10, 4)
                WORK("kernel", "void at::native::vectorized_elementwise_kernel<4, at::native::MulFunctor<float> >(int)",
                     350, 10, 5) WORK("kernel", "extra", 370, 50, 6));
static const char no_device[] =
    TRACE(REGION("fwd", 100, 100) OP("aten::mul", 110, 20) CALL("cudaLaunchKernel", 112, 5, 1));
static const char lost[] = TRACE(
    REGION("fwd", 100, 100) OP("aten::mul", 110, 20) CALL("cudaLaunchKernel", 112, 5, 1) OP("aten::mul", 140, 20)
        CALL("cudaLaunchKernel", 142, 5, 2)
            WORK("kernel", "void at::native::vectorized_elementwise_kernel<4, at::native::MulFunctor<float> >(int)",
                 150, 10, 2));
static const char fused[] = TRACE(REGION("fwd", 100, 100) CALL("cuLaunchKernel", 112, 5, 1)
                                      WORK("kernel", "triton_poi_fused_gelu_mul_0", 150, 10, 1));

static ep_trace *read_trace(const char *json) {
    ep_trace *t = NULL;
    ep_error err = {0};
    if (ep_trace_read_memory(json, strlen(json), NULL, &err, &t) != EP_OK) fail_msg("%s", err.message);
    return t;
}

static ep_verdicts *check(const char *guess, const char *a, const char *b) {
    ep_error err = {0};
    ep_guess *g = NULL;
    ep_verdicts *v = NULL;
    ep_trace *ta = read_trace(a), *tb = b ? read_trace(b) : NULL;
    if (ep_guess_parse(guess, strlen(guess), &err, &g) != EP_OK)
        fail_msg("%s: %d:%d %s", guess, err.line, err.column, err.message);
    if (ep_guess_check(g, ta, tb, &err, &v) != EP_OK) fail_msg("%s", err.message);
    /* Verdicts outlive what they are about. */
    ep_guess_destroy(g);
    ep_trace_destroy(ta);
    ep_trace_destroy(tb);
    return v;
}

static void verdict(const char *guess, const char *a, const char *b, ep_verdict_kind kind, const char *seen,
                    const char *event) {
    ep_verdicts *v = check(guess, a, b);
    ep_verdict r;
    assert_int_equal(ep_verdicts_count(v), 1);
    assert_int_equal(ep_verdicts_get(v, 0, &r), EP_OK);
    if (r.kind != kind) fail_msg("%s: verdict %d, seen %s", guess, (int)r.kind, r.seen);
    if (!strstr(r.seen, seen)) fail_msg("%s: '%s' has no '%s'", guess, r.seen, seen);
    if (event && (!r.event || !strstr(r.event, event)))
        fail_msg("%s: event '%s' is not '%s'", guess, r.event ? r.event : "none", event);
    if (kind == EP_VERDICT_CONFIRMED && r.surprise != 0) fail_msg("%s: confirmed with surprise", guess);
    if (kind == EP_VERDICT_BROKEN && r.surprise <= 0) fail_msg("%s: broken without surprise", guess);
    ep_verdicts_destroy(v);
}

#define CONFIRMED EP_VERDICT_CONFIRMED
#define BROKEN EP_VERDICT_BROKEN
#define UNKNOWN EP_VERDICT_UNKNOWN

static void test_counts(void **state) {
    (void)state;
    verdict("region fwd\nkernels = 2", one, NULL, CONFIRMED, "2", NULL);
    verdict("region fwd\nkernels = 1", one, NULL, BROKEN, "2", "MulFunctor");
    verdict("region fwd\nkernels < 2", one, NULL, BROKEN, "2", "MulFunctor");
    verdict("region fwd\nkernels = 3", one, NULL, BROKEN, "2", NULL);
    verdict("region fwd\nkernels matching gemm = 1", one, NULL, CONFIRMED, "1", NULL);
    verdict("region fwd\nkernels matching pointwise = 1", one, NULL, CONFIRMED, "1", NULL);
    verdict("region fwd\nkernels matching \"*Mul*\" = 1", one, NULL, CONFIRMED, "1", NULL);
    verdict("region fwd\nkernels matching \"" GEMM "\" = 1", one, NULL, CONFIRMED, "1", NULL);
    verdict("region fwd\nkernels matching \"Mul\" = 1", one, NULL, BROKEN, "\"*Mul*\" would look inside", NULL);
    verdict("region fwd\nlaunches = 2", one, NULL, CONFIRMED, "2", NULL);
    verdict("region fwd\nops = 4", one, NULL, CONFIRMED, "4", NULL);
    verdict("region fwd\nviews = 1", one, NULL, CONFIRMED, "1", NULL);
    verdict("region fwd\nmemsets = 0", one, NULL, BROKEN, "1", "Memset (Device) at 90.000 us on device 0, stream 3");
    verdict("region fwd\ncopies = 0", one, NULL, CONFIRMED, "0", NULL);
    verdict("region fwd\ninstances = 1", one, NULL, CONFIRMED, "1", NULL);
    verdict("kernels = 2", one, NULL, CONFIRMED, "2", NULL);
    verdict("region f?d\nkernels in 1..2", one, NULL, CONFIRMED, "2", NULL);
    verdict("region fwd\nops matching \"aten::*\" = 4", one, NULL, CONFIRMED, "4", NULL);
}

static void test_times(void **state) {
    (void)state;
    verdict("region fwd\ndevice time = 41us", one, NULL, CONFIRMED, "41", NULL);
    verdict("region fwd\nkernel time = 40us", one, NULL, CONFIRMED, "40", NULL);
    verdict("region fwd\nkernel time matching gemm = 30us", one, NULL, CONFIRMED, "30", NULL);
    verdict("region fwd\ndevice time < 20us", one, NULL, BROKEN, "41", NULL);
    verdict("region fwd\ntime = 100us", one, NULL, CONFIRMED, "100", NULL);
    verdict("region fwd\ndispatch = 100us", one, NULL, CONFIRMED, "100", NULL);
    verdict("region fwd\ndispatch < device time", one, NULL, BROKEN, "100.0us against 41.00us", NULL);
    verdict("region fwd\ndispatch < 3 * device time", one, NULL, CONFIRMED, "", NULL);
    /* Work from 140 to 191: 41 of 51 busy. */
    verdict("region fwd\nidle ~ 19.6% +- 0.1%", one, NULL, CONFIRMED, "19.6", NULL);
    verdict("region fwd\nop linear time = 40us", one, NULL, CONFIRMED, "40", NULL);
    verdict("region fwd\nop linear device time = 30us", one, NULL, CONFIRMED, "30", NULL);
    verdict("region fwd\ntime ~ 95us", one, NULL, CONFIRMED, "100", NULL);
    verdict("region fwd\ntime ~ 80us", one, NULL, BROKEN, "100", NULL);
}

static void test_ops(void **state) {
    (void)state;
    verdict("region fwd\nop t launches 0", one, NULL, CONFIRMED, "0", NULL);
    verdict("region fwd\nop aten::t launches = 0", one, NULL, CONFIRMED, "0", NULL);
    verdict("region fwd\nop linear launches 0", one, NULL, BROKEN, "1", "aten::linear");
    verdict("region fwd\nop nothere launches 0", one, NULL, UNKNOWN, "no op 'nothere'", NULL);
    /* mul launches 1, 1 and 2: every call must agree, whichever side the one that doesn't is on. */
    verdict("op mul launches <= 1", two, NULL, BROKEN, "2", "aten::mul at 240.000 us");
    verdict("op mul launches < 2", two, NULL, BROKEN, "2", "aten::mul at 240.000 us");
    verdict("op mul launches > 1", two, NULL, BROKEN, "1", "aten::mul at 60.000 us");
    verdict("op mul launches >= 2", two, NULL, BROKEN, "1", "aten::mul at 60.000 us");
    verdict("op mul launches != 2", two, NULL, BROKEN, "2", "aten::mul at 240.000 us");
    verdict("op mul launches in 0..1", two, NULL, BROKEN, "2", "aten::mul at 240.000 us");
    verdict("op mul launches in 1..2", two, NULL, CONFIRMED, "", NULL);
    verdict("op linear launches < op mul launches", two, NULL, CONFIRMED, "1 against 2", NULL);
    verdict("region fwd\nop mul launches <= 1", two, NULL, BROKEN, "1 to 2 in 2 instances, 1 of which breaks it", NULL);
    verdict("region fwd\nop nothere launches in 0..3", one, NULL, UNKNOWN, "no op 'nothere'", NULL);
    verdict("region fwd\nop nothere launches 1", one, NULL, BROKEN, "no op 'nothere'", NULL);
    verdict("region fwd\nop mul count = 1", one, NULL, CONFIRMED, "1", NULL);
    verdict("region fwd\nop nothere count = 0", one, NULL, CONFIRMED, "0", NULL);
    verdict("region fwd\nfused gelu mul", fused, NULL, CONFIRMED, "names them all", NULL);
    verdict("region fwd\nfused addmm mul", one, NULL, BROKEN, "no such kernel", "");
    verdict("region fwd\nfused gelu silu", one, NULL, UNKNOWN, "names any of these", NULL);
    verdict("region fwd\nfused mm add", one, NULL, CONFIRMED, "", NULL);
}

static void test_instances(void **state) {
    (void)state;
    verdict("region fwd\nkernels = 2", two, NULL, BROKEN, "2 to 3 in 2 instances, 1 of which breaks it", "extra");
    verdict("region fwd\nmedian kernels = 2.5", two, NULL, CONFIRMED, "median", NULL);
    verdict("region fwd skip 1\nkernels = 3", two, NULL, CONFIRMED, "3", NULL);
    verdict("region fwd\nmedian time = 150us", two, NULL, CONFIRMED, "150", NULL);
    verdict("region fwd\ninstances = 1", two, NULL, BROKEN, "2", "fwd");
    verdict("region fwd skip 5\nkernels = 3", two, NULL, UNKNOWN, "after 5 are skipped", NULL);
}

static void test_unknown(void **state) {
    (void)state;
    verdict("region bwd\nkernels = 2", one, NULL, UNKNOWN, "no region 'bwd'; it has 'fwd'", NULL);
    verdict("region fwd\nkernels = 2", no_device, NULL, UNKNOWN, "no device events were recorded", NULL);
    verdict("kernels > 0", no_device, NULL, BROKEN, "0: no device events", NULL);
    verdict("region fwd\nviews = 1", no_device, NULL, UNKNOWN, "no device events", NULL);
    verdict("region fwd\nlaunches = 1", no_device, NULL, CONFIRMED, "1", NULL);
    verdict("region fwd\nkernels = 2", lost, NULL, UNKNOWN, "1 of 2 launches here have no kernel", NULL);
    verdict("region fwd\nkernels = 0", lost, NULL, BROKEN, "1", NULL);
    verdict("region fwd\nbytes > 0", one, NULL, UNKNOWN, "is not known", NULL);
    verdict("compare\nkernels ratio = 1", one, NULL, UNKNOWN, "second trace", NULL);
}

static void test_compare(void **state) {
    (void)state;
    verdict("compare region fwd\nkernels delta = 0", one, one, CONFIRMED, "2 -> 2", NULL);
    verdict("compare\nkernels delta = 3", one, two, CONFIRMED, "+3", NULL);
    verdict("compare region fwd\ntime ratio < 1", one, two, BROKEN, "1.5", NULL);
    verdict("compare\nkernels matching gemm same names", one, two, CONFIRMED, "byte for byte", NULL);
    verdict("compare\nkernels same names", one, two, BROKEN, "'extra' in the second", NULL);
    verdict("compare\nop t gone", one, fused, CONFIRMED, "1 -> 0", NULL);
    verdict("compare\nop t new", one, fused, BROKEN, "1 -> 0", "aten::t");
    verdict("compare\nop zz gone", one, fused, UNKNOWN, "neither", NULL);
    verdict("compare\nmemsets ratio < 1", fused, one, UNKNOWN, "no ratio to 0", NULL);
    verdict("compare\nkernels ratio < 1", one, no_device, UNKNOWN, "second trace: no device", NULL);
}

static void test_order_and_texts(void **state) {
    (void)state;
    static const char guess[] =
        "region fwd\n kernels = 2\n memsets = 0\n kernels matching \"<&\\\"*\" = 9\n time < 1us\n"
        "compare\n kernels delta = 0\n";
    ep_verdicts *v = check(guess, one, NULL);
    size_t confirmed, broken, unknown;
    double last = 1e9;
    ep_verdicts_totals(v, &confirmed, &broken, &unknown);
    assert_int_equal(confirmed, 1);
    assert_int_equal(broken, 3);
    assert_int_equal(unknown, 1);
    for (size_t i = 0; i < broken; i++) {
        ep_verdict r;
        assert_int_equal(ep_verdicts_get(v, i, &r), EP_OK);
        assert_int_equal(r.kind, EP_VERDICT_BROKEN);
        assert_true(r.surprise <= last);
        last = r.surprise;
    }
    for (const char *line = ep_verdicts_text(v); *line;) {
        size_t n = strcspn(line, "\n");
        assert_true(n <= 80);
        line += n + (line[n] == '\n');
    }
    assert_non_null(strstr(ep_verdicts_json(v), "\"broken\": 3"));
    assert_non_null(strstr(ep_verdicts_junit(v), "tests=\"5\" failures=\"3\" errors=\"0\" skipped=\"1\""));
    assert_non_null(strstr(ep_verdicts_junit(v), "&lt;&amp;"));
    assert_non_null(strstr(ep_verdicts_github(v, "a,b.guess"),
                           "::error file=a%2Cb.guess,line=3,title=fwd%3A memsets = 0::expected 0, seen 1"));
    assert_non_null(strstr(ep_verdicts_github(v, NULL), "::warning file=guess,line=7,"));
    ep_verdict r;
    assert_int_equal(ep_verdicts_get(v, 5, &r), EP_ERROR_NOT_FOUND);
    ep_verdicts_destroy(v);
    ep_verdicts_destroy(NULL);
}

static void test_from_trace(void **state) {
    (void)state;
    static const char *const traces[] = {one, two, no_device, lost, fused};
    for (size_t i = 0; i < sizeof traces / sizeof *traces; i++) {
        ep_trace *t = read_trace(traces[i]);
        ep_guess *g = NULL;
        ep_error err = {0};
        assert_int_equal(ep_guess_from_trace(t, &err, &g), EP_OK);
        assert_true(ep_guess_count(g) > 3);
        ep_verdicts *v = NULL;
        assert_int_equal(ep_guess_check(g, t, NULL, &err, &v), EP_OK);
        size_t confirmed;
        ep_verdicts_totals(v, &confirmed, NULL, NULL);
        assert_int_equal(confirmed, ep_guess_count(g));
        ep_verdicts_destroy(v);
        ep_guess_destroy(g);
        ep_trace_destroy(t);
    }
}

/* What needs an object refuses NULL. */
static void test_null(void **state) {
    (void)state;
    ep_error err;
    ep_guess *g = NULL;
    ep_verdicts *v = NULL;
    ep_block_request q = {.batch = 1, .seq = 1, .dim = 8};
    assert_int_equal(ep_guess_check(NULL, NULL, NULL, &err, &v), EP_ERROR_INVALID_ARGUMENT);
    assert_int_equal(ep_guess_predict(NULL, NULL, &err, &g), EP_ERROR_INVALID_ARGUMENT);
    assert_int_equal(ep_guess_predict(&q, NULL, &err, &g), EP_ERROR_INVALID_ARGUMENT);
    assert_int_equal(ep_guess_from_trace(NULL, &err, &g), EP_ERROR_INVALID_ARGUMENT);
    assert_int_equal(ep_trace_write(NULL, "x", &err), EP_ERROR_INVALID_ARGUMENT);
    assert_null(g);
    assert_null(v);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_null),    cmocka_unit_test(test_counts),          cmocka_unit_test(test_times),
        cmocka_unit_test(test_ops),     cmocka_unit_test(test_instances),       cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_compare), cmocka_unit_test(test_order_and_texts), cmocka_unit_test(test_from_trace)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
