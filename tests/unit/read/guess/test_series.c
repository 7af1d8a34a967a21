/* Running sums over all instances say what gathering and measuring one by one says, and go over no row for it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/text.h"
#include "read/guess/verdict.h"

/* Launches without their kernel. */
enum { NONE, SOME, ALL };

static uint64_t state;

static unsigned below(unsigned n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 33) % n;
}

static void event(ep_text *t, const char *cat, const char *name, int pid, int tid, int ts, int dur, int correlation) {
    ep_text_printf(t, "{\"ph\":\"X\",\"cat\":\"%s\",\"name\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":%d,\"dur\":%d", cat,
                   name, pid, tid, ts, dur);
    if (correlation)
        ep_text_printf(t, ",\"args\":{\"correlation\":%d,\"device\":%d,\"stream\":7}", correlation, correlation % 3);
    ep_text_add(t, "},\n");
}

/* An op with shapes; a kernel that carries its own work. */
static void event_with(ep_text *t, const char *cat, const char *name, int pid, int tid, int ts, int dur,
                       const char *args) {
    ep_text_printf(t,
                   "{\"ph\":\"X\",\"cat\":\"%s\",\"name\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":%d,\"dur\":%d,"
                   "\"args\":{%s}},\n",
                   cat, name, pid, tid, ts, dur, args);
}

static void op(ep_text *t, const char *name, int pid, int tid, int ts, int dur) {
    char args[200];
    unsigned m = 1 + below(64);
    snprintf(args, sizeof args,
             "\"Input Dims\":[[%u,32],[32,%u]],\"Input type\":[\"float\",\"float\"],"
             "\"Concrete Inputs\":[\"\",\"\"]",
             m, strcmp(name, "aten::mm") == 0 ? 16 : 32);
    event_with(t, "cpu_op", name, pid, tid, ts, dur, args);
}

static void noted(ep_text *t, int ts, int dur, int correlation) {
    char args[200];
    snprintf(args, sizeof args,
             "\"correlation\":%d,\"device\":%d,\"stream\":7,\"flops\":%d,\"bytes read\":%d,\"bytes written\":%d",
             correlation, correlation % 3, (int)below(1000), (int)below(500), (int)below(500));
    event_with(t, "kernel", "own", 0, 7, ts, dur, args);
}

/* Regions in each other and across, ops, launches (some without their kernel), copies, waits, on threads of two processes. */
static ep_trace *make(unsigned seed, int lost, bool ops_as_regions, bool shapes) {
    static const char *const ops[] = {"aten::mm", "aten::t", "aten::gelu", "my::op"};
    static const char *const calls[] = {"cudaLaunchKernel",     "cuLaunchKernelEx", "cudaMemcpyAsync",
                                        "cudaMemsetAsync",      "cudaFree",         "cudaStreamSynchronize",
                                        "cudaDeviceSynchronize"};
    static const char *const kernels[] = {"ampere_sgemm_128x64_tn", "triton_poi_fused_gelu_mul_0", "direct_copy_kernel",
                                          "k"};
    state = seed;
    ep_text t = {0};
    ep_text_add(&t, "{\"traceEvents\":[\n");
    for (int i = 0; i < 400; i++) {
        int pid = 1 + (int)below(2), tid = (int)below(3), ts = (int)below(2000), c = i + 1;
        if (below(4) == 0) {
            event(&t, ops_as_regions ? "cpu_op" : "user_annotation", ops_as_regions ? "ProfilerStep#1" : "fwd", pid,
                  tid, ts, (int)below(800), 0);
        } else if (below(2))
            op(&t, ops[below(shapes ? 3 : 4)], pid, tid, ts, (int)below(60));
        else {
            const char *call = calls[below(7)];
            event(&t, "cuda_runtime", call, pid, tid, ts, (int)below(50), c);
            if (lost == ALL || (lost == SOME && below(12) == 0)) continue;
            if (shapes && strstr(call, "Launch")) {
                op(&t, ops[2 * below(2)], pid, tid, ts - (int)below(4), 60);
                for (unsigned n = 1 + below(3), k = 0; k < n; k++)
                    below(3) ? event(&t, "kernel", "k", 0, 7, ts + (int)below(40), (int)below(30), c)
                             : noted(&t, ts + (int)below(40), (int)below(30), c);
            } else if (strstr(call, "Launch"))
                event(&t, "kernel", kernels[below(4)], 0, 7, ts + (int)below(40), (int)below(30), c);
            else if (strstr(call, "Mem"))
                event(&t, strstr(call, "Memset") ? "gpu_memset" : "gpu_memcpy", call, 0, 7, ts + 9, (int)below(9), c);
        }
    }
    ep_text_add(&t, "{}]}");
    ep_trace *trace = NULL;
    ep_error err = {0};
    if (ep_trace_read_memory(ep_text_str(&t), t.len, NULL, &err, &trace) != EP_OK) fail_msg("%s", err.message);
    ep_text_free(&t);
    return trace;
}

static size_t known[EP_METRIC_COUNT]; /* figures that were known and not 0 */

static void same(double a, double b, const char *what, size_t instance, unsigned seed) {
    if (a == b || (isnan(a) && isnan(b))) return;
    fail_msg("%s, instance %zu, seed %u: %.3f by sums, %.3f one by one", what, instance, seed, a, b);
}

static void compare(const ep_subject *u, const ep_rows *instances, const ep_term *term, const ep_claim *claim,
                    double allowed, unsigned seed) {
    ep_matcher m;
    ep_scope scope = {0};
    ep_seen seen;
    bool done = false;
    double *v = calloc(instances->count + 1, sizeof *v);
    assert_true(ep_matcher_create(u, term, claim, &m));
    assert_true(ep_series(u, instances, &m, allowed, &scope, v));
    assert_true(ep_series_sums(u, instances, &m, allowed, v, &done));
    if (done) assert_int_equal(scope.looked_at, 0);
    /* An op that is itself the region could be its own worst call: the one thing that is looked at one by one. */
    assert_true(done || (term->metric == EP_METRIC_OP_LAUNCHES && u->trace->kind[instances->rows[0]] == EP_EVENT_OP));
    for (size_t i = 0; i < instances->count; i++) {
        known[term->metric] += !isnan(v[i]) && v[i] != 0;
        assert_true(ep_scope_gather(u, instances->rows[i], term->any_thread, &scope));
        ep_measure(u, &scope, &m, allowed, &seen);
        same(v[i], seen.value, ep_metrics[term->metric].words, i, seed);
    }
    ep_scope_free(&scope);
    ep_matcher_free(&m);
    free(v);
}

static void compare_fused(const ep_subject *u, const ep_rows *instances, bool any_thread, unsigned seed) {
    const char *names[] = {"gelu", "mul"};
    ep_claim c = {.form = EP_CLAIM_FUSED, .names = names, .name_count = 2, .term.any_thread = any_thread};
    double *v = calloc(instances->count + 1, sizeof *v);
    bool done = false;
    ep_scope scope = {0};
    ep_seen seen;
    assert_true(ep_series_fused(u, instances, &c, v, &done));
    assert_true(done);
    for (size_t i = 0; i < instances->count; i++) {
        assert_true(ep_scope_gather(u, instances->rows[i], any_thread, &scope));
        ep_measure_fused(u, &scope, names, 2, &seen);
        same(v[i], seen.value, "fused", i, seed);
    }
    ep_scope_free(&scope);
    free(v);
}

static void compare_all(unsigned seed, int lost, bool ops_as_regions, bool shapes) {
    ep_trace *t = make(seed, lost, ops_as_regions, shapes);
    ep_subject u;
    ep_error err = {0};
    ep_rows instances = {0};
    assert_int_equal(ep_subject_create(t, true, &err, &u), EP_OK);
    ep_guess_block b = {.form = EP_GUESS_REGION, .region = ops_as_regions ? "ProfilerStep#1" : "fwd"};
    assert_true(ep_block_instances(&b, &u, &instances));
    assert_true(instances.count > 20);
    for (int metric = 0; metric < EP_METRIC_COUNT; metric++)
        for (int any = 0; any < 2; any++)
            for (int p = 0; p < 3; p++) {
                ep_term term = {.metric = (ep_metric)metric, .any_thread = any};
                ep_filter f = ep_metrics[metric].filter;
                if (p == 0 && f == EP_FILTER_OP) continue; /* always of an op */
                if (p && f == EP_FILTER_NONE) continue;
                if (p) term.pattern = f == EP_FILTER_KERNELS ? p == 1 ? "gemm" : "*gelu*" : p == 1 ? "mm" : "aten::*";
                ep_claim claim = {.form = EP_CLAIM_VALUE, .term = term, .relation = p == 1 ? EP_REL_LE : EP_REL_NE};
                compare(&u, &instances, &term, NULL, -1, seed);
                compare(&u, &instances, &term, &claim, p, seed);
            }
    compare_fused(&u, &instances, false, seed);
    compare_fused(&u, &instances, true, seed);
    free(instances.rows);
    ep_subject_free(&u);
    ep_trace_destroy(t);
}

static void test_as_one_by_one(void **unused) {
    (void)unused;
    for (unsigned seed = 1; seed <= 12; seed++) {
        compare_all(seed, NONE, false, false);
        compare_all(seed, NONE, false, true);
        compare_all(seed, NONE, true, true);
        compare_all(seed, SOME, false, true);
        compare_all(seed, SOME, false, false);
        compare_all(seed, SOME, true, false);
        compare_all(seed, ALL, false, false);
    }
    static const ep_metric hard[] = {EP_METRIC_IDLE, EP_METRIC_BYTES, EP_METRIC_FLOPS, EP_METRIC_SYNC_TIME};
    for (size_t i = 0; i < sizeof hard / sizeof *hard; i++) assert_true(known[hard[i]] > 500);
}

/* The metric of the two instances of fwd, the same as one by one. */
static void measure(const char *text, size_t length, ep_metric metric, double v[2]) {
    ep_trace *trace = NULL;
    ep_error err = {0};
    ep_rows instances = {0};
    ep_subject u;
    ep_scope scope = {0};
    assert_int_equal(ep_trace_read_memory(text, length, NULL, &err, &trace), EP_OK);
    assert_int_equal(ep_subject_create(trace, true, &err, &u), EP_OK);
    ep_guess_block b = {.form = EP_GUESS_REGION, .region = "fwd"};
    assert_true(ep_block_instances(&b, &u, &instances));
    assert_int_equal(instances.count, 2);
    ep_term term = {.metric = metric};
    ep_matcher m;
    assert_true(ep_matcher_create(&u, &term, NULL, &m));
    assert_true(ep_series(&u, &instances, &m, -1, &scope, v));
    compare(&u, &instances, &term, NULL, -1, 0);
    ep_matcher_free(&m);
    free(instances.rows);
    ep_scope_free(&scope);
    ep_subject_free(&u);
    ep_trace_destroy(trace);
}

/* Seventeen ops take turns inside one that launches before, between and behind them: its work counts once all the same.
 * Kernels whose times were never filled in, and those without length at the end, are neither busy nor lost. */
static void test_once(void **unused) {
    (void)unused;
    ep_text t = {0};
    ep_text_add(&t, "{\"traceEvents\":[\n");
    for (int r = 0; r < 2; r++) {
        int at = 100000 * r + 1000, c = 100 * r + 1;
        event(&t, "user_annotation", "fwd", 1, 1, at, 900, 0);
        event_with(&t, "cpu_op", "aten::gelu", 1, 1, at + 1, 800, "\"Input Dims\":[[1000]],\"Input type\":[\"float\"]");
        for (int i = 0; i < 17; i++) {
            event(&t, "cuda_runtime", "cudaLaunchKernel", 1, 1, at + 2 + 40 * i, 2, c);
            event(&t, "kernel", "k", 0, 7, at + 2 + 40 * i, 10, c++);
            event_with(&t, "cpu_op", "aten::relu", 1, 1, at + 10 + 40 * i, 9,
                       "\"Input Dims\":[[10]],\"Input type\":[\"float\"]");
            event(&t, "cuda_runtime", "cudaLaunchKernel", 1, 1, at + 12 + 40 * i, 2, c);
            event(&t, "kernel", "k", 0, 7, at + 12 + 40 * i, 10, c++);
        }
    }
    ep_text_add(&t, "{}]}");
    double v[2];
    measure(ep_text_str(&t), t.len, EP_METRIC_BYTES, v);
    for (int i = 0; i < 2; i++) assert_true(v[i] == 2 * 4000 + 17 * 2 * 40);
    ep_text_free(&t);
}

/* Idle is between the first and the last of the device's work, that without length too; a kernel whose times were never
 * filled in is no work at all. */
static void test_idle_ends(void **unused) {
    (void)unused;
    static const char text[] =
        "{\"traceEvents\":["
        "{\"ph\":\"X\",\"cat\":\"user_annotation\",\"name\":\"fwd\",\"pid\":1,\"tid\":1,\"ts\":1700000000000000,"
        "\"dur\":50},"
        "{\"ph\":\"X\",\"cat\":\"user_annotation\",\"name\":\"fwd\",\"pid\":1,\"tid\":1,\"ts\":1700000000000100,"
        "\"dur\":50},"
        "{\"ph\":\"X\",\"cat\":\"cuda_runtime\",\"name\":\"cudaLaunchKernel\",\"pid\":1,\"tid\":1,\"ts\":"
        "1700000000000001,"
        "\"dur\":2,\"args\":{\"correlation\":1}},"
        "{\"ph\":\"X\",\"cat\":\"cuda_runtime\",\"name\":\"cudaLaunchKernel\",\"pid\":1,\"tid\":1,\"ts\":"
        "1700000000000004,"
        "\"dur\":2,\"args\":{\"correlation\":2}},"
        "{\"ph\":\"X\",\"cat\":\"cuda_runtime\",\"name\":\"cudaLaunchKernel\",\"pid\":1,\"tid\":1,\"ts\":"
        "1700000000000007,"
        "\"dur\":2,\"args\":{\"correlation\":3}},"
        "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"k\",\"pid\":0,\"tid\":7,\"ts\":1700000000000010,\"dur\":10,"
        "\"args\":{\"correlation\":1,\"device\":0,\"stream\":7}},"
        "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"k\",\"pid\":0,\"tid\":7,\"ts\":1700000000000030,\"dur\":0,"
        "\"args\":{\"correlation\":2,\"device\":0,\"stream\":7}},"
        "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"k\",\"pid\":0,\"tid\":7,\"ts\":0,\"dur\":0,"
        "\"args\":{\"correlation\":3,\"device\":0,\"stream\":7}}]}";
    double v[2];
    measure(text, sizeof text - 1, EP_METRIC_IDLE, v);
    assert_true(v[0] == 0.5);
    assert_true(isnan(v[1]));
}

/* n regions in each other: what a guess file usually claims is found without going over the rows of each. */
static void test_nested(void **unused) {
    (void)unused;
    enum { DEPTH = 2000 };
    ep_text text = {0};
    ep_text_add(&text, "{\"traceEvents\":[\n");
    for (int i = 0; i < DEPTH; i++) {
        event(&text, "user_annotation", "fwd", 1, 1, 10 * i, 40 * DEPTH - 20 * i, 0);
        event(&text, "cpu_op", "aten::mm", 1, 1, 10 * i + 2, 5, 0);
        event(&text, "cuda_runtime", "cudaLaunchKernel", 1, 1, 10 * i + 3, 2, i + 1);
        event(&text, "kernel", "k", 0, 7, 10 * i + 9, 3, i + 1);
    }
    ep_text_add(&text, "{}]}");
    static const ep_metric cheap[] = {
        EP_METRIC_KERNELS, EP_METRIC_LAUNCHES,   EP_METRIC_OPS,         EP_METRIC_VIEWS,    EP_METRIC_COPIES,
        EP_METRIC_MEMSETS, EP_METRIC_RECOMPILES, EP_METRIC_DEVICE_TIME, EP_METRIC_DISPATCH, EP_METRIC_SYNC_TIME,
        EP_METRIC_TIME,    EP_METRIC_IDLE,       EP_METRIC_BYTES,       EP_METRIC_FLOPS};
    ep_trace *t = NULL;
    ep_error err = {0};
    assert_int_equal(ep_trace_read_memory(ep_text_str(&text), text.len, NULL, &err, &t), EP_OK);
    ep_subject u;
    ep_rows instances = {0};
    ep_scope scope = {0};
    double *v = calloc(DEPTH, sizeof *v);
    ep_guess_block b = {.form = EP_GUESS_REGION, .region = "fwd"};
    assert_int_equal(ep_subject_create(t, true, &err, &u), EP_OK);
    assert_true(ep_block_instances(&b, &u, &instances));
    assert_int_equal(instances.count, DEPTH);
    for (size_t i = 0; i < 2 * sizeof cheap / sizeof *cheap; i++) {
        ep_term term = {.metric = cheap[i / 2], .any_thread = i % 2};
        ep_matcher m;
        assert_true(ep_matcher_create(&u, &term, NULL, &m));
        assert_true(ep_series(&u, &instances, &m, -1, &scope, v));
        if (term.metric == EP_METRIC_KERNELS)
            for (size_t k = 0; k < DEPTH; k++) assert_true(v[k] == (double)(DEPTH - k));
        ep_matcher_free(&m);
    }
    assert_int_equal(scope.looked_at, 0);
    free(v);
    free(instances.rows);
    ep_scope_free(&scope);
    ep_subject_free(&u);
    ep_trace_destroy(t);
    ep_text_free(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_as_one_by_one), cmocka_unit_test(test_nested),
                                       cmocka_unit_test(test_once), cmocka_unit_test(test_idle_ends)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
