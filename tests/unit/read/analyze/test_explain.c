/* explain on small traces, each with the lines that must stand in its report, and on the article's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <epilogue/analyze.h>

/* Runs of blanks and line breaks as one blank, so that an expectation does not depend on where lines break. */
static char *collapse(const char *text) {
    char *out = malloc(strlen(text) + 1), *p = out;
    assert_non_null(out);
    for (; *text; text++) {
        bool blank = *text == ' ' || *text == '\n';
        if (!blank)
            *p++ = *text;
        else if (p > out && p[-1] != ' ')
            *p++ = ' ';
    }
    *p = 0;
    return out;
}

static ep_trace *read(const char *path) {
    ep_error err;
    ep_trace *t = NULL;
    if (ep_trace_read(path, NULL, &err, &t) != EP_OK) fail_msg("%s: %s", path, err.message);
    return t;
}

static ep_report *explain(const char *path) {
    ep_error err;
    ep_report *report = NULL;
    ep_trace *t = read(path);
    const ep_trace *list[] = {t};
    if (ep_explain(list, &path, 1, NULL, &err, &report) != EP_OK) fail_msg("%s: %s", path, err.message);
    ep_trace_destroy(t);
    return report;
}

static void check(const char *name) {
    char path[512], line[1024];
    snprintf(path, sizeof path, EP_TEST_DIR "/trace/%s.json", name);
    ep_report *report = explain(path);
    char *text = collapse(ep_report_text(report));
    snprintf(path, sizeof path, EP_TEST_DIR "/trace/%s.expect", name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        if (!line[0] || line[0] == '#') continue;
        bool never = line[0] == '!'; /* a line that must not be there */
        if ((strstr(text, line + never) == NULL) != never)
            fail_msg("%s: %s the report: %s\n%s", name, never ? "in" : "not in", line + never, text);
    }
    fclose(f);
    free(text);
    ep_report_destroy(report);
}

static void test_pictures(void **state) {
    (void)state;
    static const char *const names[] = {
        "explain/overhead",     "explain/copies_feed_gated", "explain/epilogue_own_kernel",
        "explain/recompiles",   "explain/compile_spans",     "explain/compile_spans_old",
        "explain/graph_break",  "explain/bias_not_fused",    "explain/chain",
        "explain/residual",     "explain/written_only",      "explain/training_step",
        "explain/data_loading", "explain/collectives",       "explain/attention",
        "small/overlap",        "small/host_products",       "small/overrun",
        "small/lost_kernels",   "small/lost_kernels_ops",    "small/lost_kernels_absolute",
        "small/four_calls",     "small/annotations",         "small/backward_flows"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) check(names[i]);
}

static void must_hold(const char *text, const char *const *lines, size_t n) {
    char *flat = collapse(text);
    for (size_t i = 0; i < n; i++)
        if (!strstr(flat, lines[i])) fail_msg("not in the report: %s\n%s", lines[i], flat);
    free(flat);
}

static void test_article_eager(void **state) {
    (void)state;
    ep_report *r = explain(EP_TEST_DIR "/trace/shared/article/mlp_eager.json");
    static const char *const lines[] = {
        "complete: 243 events, 140 spans; 15 launches, 15 kernels",
        "A gated MLP (gelu, eager): 8192 rows, 768 -> 2 x 3072 -> 768 in bf16.",
        "at least 117.2 us on NVIDIA H200 SXM",
        "aten::gelu + aten::mul run as 2 kernels: 50.3 MB between them is written and read again.",
        "One kernel would move 100.7 MB less",
        "aten::t launches nothing in 9 calls: it rewrites sizes and strides, no byte moves.",
        "6 memsets of 4 B run on the device",
        "gemm 9 487.9 69.8",
        "elementwise gelu bf16 3 32.2 - 3125 21.0 33.7",
    };
    must_hold(ep_report_text(r), lines, sizeof lines / sizeof lines[0]);
    static const char *const json[] = {
        "\"kernels_per_instance\"",   "\"launches\": 15",    "\"busy_us\": 698.561", "\"intermediate_bytes\": 50331648",
        "\"bytes_saved\": 100663296", "\"form\": \"eager\"", "\"m\": 8192",          "\"to_win_us\": 105.291"};
    for (size_t i = 0; i < sizeof json / sizeof json[0]; i++)
        if (!strstr(ep_report_json(r), json[i])) fail_msg("not in the JSON: %s", json[i]);
    ep_report_destroy(r);
}

static void test_article_compiled_and_liger(void **state) {
    (void)state;
    static const char *const compiled[] = {"A gated MLP (gelu, compiled): 8192 rows",
                                           "31.5 us at full bandwidth, so it runs at 57",
                                           "A call of compiled code costs the host 293.5 us (median)"};
    static const char *const liger[] = {"A gated MLP (gelu, tuned): 8192 rows",
                                        "31.5 us at full bandwidth, so it runs at 70"};
    ep_report *r = explain(EP_TEST_DIR "/trace/shared/article/mlp_compiled.json");
    must_hold(ep_report_text(r), compiled, 3);
    ep_report_destroy(r);
    r = explain(EP_TEST_DIR "/trace/shared/article/mlp_liger.json");
    must_hold(ep_report_text(r), liger, 2);
    ep_report_destroy(r);
}

/* On a device the time is the kernels'; PyTorch's fused attention in the same trace is none. */
static void test_attention_on_a_device(void **state) {
    (void)state;
    ep_report *r = explain(EP_TEST_DIR "/trace/h200/attention.json.gz");
    static const char *const lines[] = {
        "Attention with its scores in memory, 2 times: batch x heads 32, 1024 queries x 1024 keys, head size 64, bf16 "
        "(aten::bmm + aten::mul + aten::_softmax + aten::bmm). The scores are 67.1 MB; these ops write and read 402.7 "
        "MB of them, a fused kernel none. It takes 133.6 us, 91.4 us of it between the two products.",
        "torch.nn.functional.scaled_dot_product_attention keeps the scores on the chip"};
    static const char *const json[] = {"\"scores_bytes\": 67108864", "\"bytes_saved\": 402653184",
                                       "\"between_us\": 182.720"};
    must_hold(ep_report_text(r), lines, sizeof lines / sizeof lines[0]);
    must_hold(ep_report_json(r), json, sizeof json / sizeof json[0]);
    ep_report_destroy(r);
}

/* The report's text names the three that matter most; the others are in the JSON alone. */
static void test_attention_forms(void **state) {
    (void)state;
    ep_report *r = explain(EP_TEST_DIR "/trace/explain/attention.json");
    static const char *const json[] = {"\"form\": \"by hand\"", "\"form\": \"math\"", "\"form\": \"fast path\"",
                                       "\"blocked_by\": \"A tanh caps",
                                       "\"blocked_by\": \"aten::mean reads the weights"};
    must_hold(ep_report_json(r), json, sizeof json / sizeof json[0]);
    assert_null(strstr(ep_report_json(r), "\"keys\": 8,"));
    ep_report_destroy(r);
}

/* A run on the processor lacks nothing: its host times are told, and that they are the host's. */
static void test_host_alone(void **state) {
    (void)state;
    ep_report *r = explain(EP_TEST_DIR "/trace/shared/resnet18-cpu-windows.json");
    static const char *const lines[] = {
        "complete: 970 events, 467 spans; 0 launches, 0 kernels; the host alone",
        "1. No device events and no launches: this ran on the host",
        "aten::mkldnn_convolution takes 77.3 % of the ops' time on the host: 109.7 ms in 20 calls."};
    must_hold(ep_report_text(r), lines, 3);
    assert_null(strstr(ep_report_text(r), "LAUNCH NOTHING"));
    assert_non_null(strstr(ep_report_json(r), "\"partial\": false"));
    assert_non_null(strstr(ep_report_json(r), "\"views\": []"));
    ep_report_destroy(r);
    r = explain(EP_TEST_DIR "/trace/explain/first_call.json"); /* what one call does is not what each does */
    static const char *const first[] = {"aten::mm takes 91.0 % of the ops' time on the host: 910.0 us in 2 calls; one "
                                        "call alone takes 900.0 us."};
    must_hold(ep_report_text(r), first, 1);
    ep_report_destroy(r);
}

/* Launches without any device event: no op is said to launch nothing, no fusion is told. */
static void test_no_device_events(void **state) {
    (void)state;
    ep_report *r = explain(EP_TEST_DIR "/trace/shared/zoology-a100-no-device-events.json");
    const char *text = ep_report_text(r), *json = ep_report_json(r);
    assert_non_null(strstr(text, "PARTIAL"));
    assert_non_null(strstr(text, "260 launches and not one kernel"));
    assert_null(strstr(text, "LAUNCH NOTHING"));
    assert_null(strstr(text, "COULD BE ONE KERNEL"));
    assert_non_null(strstr(json, "\"views\": []"));
    assert_non_null(strstr(json, "\"device_recorded\": false"));
    ep_report_destroy(r);
}

/* Without shapes nothing is said of flops, with the reason. */
static void test_no_shapes(void **state) {
    (void)state;
    ep_report *r = explain(EP_TEST_DIR "/trace/shared/torchrec-v100-4gpu-rank0.json");
    assert_non_null(strstr(ep_report_text(r), "record_shapes was off"));
    assert_non_null(strstr(ep_report_json(r), "\"tflops\": null"));
    assert_non_null(strstr(ep_report_json(r), "\"reason\": \"no shapes: record_shapes was off\""));
    assert_non_null(strstr(ep_report_text(r), "83 kernels without a launch"));
    ep_report_destroy(r);
}

static void test_lines_fit(void **state) {
    (void)state;
    static const char *const names[] = {"article/mlp_eager.json",         "bert-small-h100.json.gz",
                                        "vit-a100-inductor-int8.json.gz", "llama-4layers-4090x2.json",
                                        "resnet18-cpu-windows.json",      "train-v100-ns.json.gz",
                                        "torchrec-v100-4gpu-rank0.json",  "resnet50-v100-2021.json.gz"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[512];
        snprintf(path, sizeof path, EP_TEST_DIR "/trace/shared/%s", names[i]);
        ep_report *r = explain(path);
        const char *p = strchr(ep_report_text(r), '\n') + 1; /* the first line is the path as given */
        while (*p) {
            size_t n = strcspn(p, "\n");
            if (n > 80) fail_msg("%s: %zu columns: %.*s", names[i], n, (int)n, p);
            p += n + (p[n] == '\n');
        }
        ep_report_destroy(r);
    }
}

static void test_ranks(void **state) {
    (void)state;
    const char *paths[] = {EP_TEST_DIR "/trace/explain/rank0.json", EP_TEST_DIR "/trace/explain/rank1.json"};
    ep_trace *t[] = {read(paths[0]), read(paths[1])};
    ep_error err;
    ep_report *r = NULL;
    assert_int_equal(ep_explain((const ep_trace *const *)t, paths, 2, NULL, &err, &r), EP_OK);
    static const char *const lines[] = {
        "Rank 1 is the slowest: it works 200.0 us longer in gemm kernels than the others do.",
        "The others wait 200.0 us more in collectives than it does."};
    must_hold(ep_report_text(r), lines, 2);
    assert_non_null(strstr(ep_report_json(r), "\"slowest_rank\": 1"));
    ep_report_destroy(r);
    ep_trace_destroy(t[0]);
    ep_trace_destroy(t[1]);
}

/* Two streams and two devices of one rank: time is counted once a device, idle is what its own window leaves. */
static void test_rank_sums(void **state) {
    (void)state;
#define K(name, device, stream, ts, dur)                                                                               \
    "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"" name "\",\"pid\":" #device ",\"tid\":" #stream ",\"ts\":" #ts       \
    ",\"dur\":" #dur ",\"args\":{\"device\":" #device ",\"stream\":" #stream "}}"
    static const char json[] = "{\"traceEvents\":[" K("gemm", 0, 7, 0, 100) "," K("gemm", 0, 8, 50, 100) "," K(
        "ncclDevKernel_AllReduce_Sum", 0, 9, 140, 30) "," K("gemm", 1, 7, 0, 10) "," K("gemm", 1, 7, 100, 10) "]}";
    ep_error err;
    ep_trace *t = NULL;
    ep_report *r = NULL;
    assert_int_equal(ep_trace_read_memory(json, sizeof json - 1, NULL, &err, &t), EP_OK);
    const ep_trace *list[] = {t, t};
    const char *labels[] = {"a", "b"};
    assert_int_equal(ep_explain(list, labels, 2, NULL, &err, &r), EP_OK);
    char *text = collapse(ep_report_json(r));
    const char *want = "\"busy_us\": 190.000, \"own_us\": 170.000, \"collective_us\": 30.000, \"exposed_us\": 20.000, "
                       "\"idle_us\": 90.000";
    if (!strstr(text, want)) fail_msg("%.300s", strstr(text, "\"ranks\""));
    free(text);
    ep_report_destroy(r);
    ep_trace_destroy(t);
}

/* A kernel that many ops launch: the JSON names them all, once each. */
static void test_all_owners(void **state) {
    (void)state;
    enum { OPS = 40 };
    static char json[1 << 15];
    int n = snprintf(json, sizeof json, "{\"traceEvents\":[");
    for (int i = 0; i < 2 * OPS; i++)
        n += snprintf(
            json + n, sizeof json - (size_t)n,
            "{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"my::op%d\",\"pid\":1,\"tid\":1,\"ts\":%d,\"dur\":9},"
            "{\"ph\":\"X\",\"cat\":\"cuda_runtime\",\"name\":\"cudaLaunchKernel\",\"pid\":1,\"tid\":1,\"ts\":%d,"
            "\"dur\":2,\"args\":{\"correlation\":%d}},"
            "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"k\",\"pid\":0,\"tid\":7,\"ts\":%d,\"dur\":3,"
            "\"args\":{\"correlation\":%d,\"device\":0,\"stream\":7}}%s",
            i % OPS, 10 * i, 10 * i + 2, i + 1, 10 * i + 5, i + 1, i + 1 < 2 * OPS ? "," : "]}");
    ep_error err;
    ep_trace *t = NULL;
    ep_report *r = NULL;
    const char *label = "many";
    assert_int_equal(ep_trace_read_memory(json, (size_t)n, NULL, &err, &t), EP_OK);
    const ep_trace *list[] = {t};
    assert_int_equal(ep_explain(list, &label, 1, NULL, &err, &r), EP_OK);
    const char *kernels = strstr(ep_report_json(r), "\"kernels\": [");
    assert_non_null(kernels);
    const char *ops = strstr(kernels, "\"ops\": ["), *end = ops ? strchr(ops, ']') : NULL;
    assert_non_null(end);
    int seen = 0;
    for (const char *at = ops; (at = strstr(at, "my::op")) != NULL && at < end; at++) seen++;
    assert_int_equal(seen, OPS);
    ep_report_destroy(r);
    ep_trace_destroy(t);
}

/* An empty trace and a null one. */
static void test_edges(void **state) {
    (void)state;
    ep_error err;
    ep_trace *t = NULL;
    ep_report *r = NULL;
    static const char empty[] = "{\"traceEvents\": []}";
    const char *label = "empty";
    if (ep_trace_read_memory(empty, sizeof empty - 1, NULL, &err, &t) == EP_OK) {
        const ep_trace *list[] = {t};
        assert_int_equal(ep_explain(list, &label, 1, NULL, &err, &r), EP_OK);
        assert_true(strlen(ep_report_text(r)) > 0);
        ep_report_destroy(r);
        ep_trace_destroy(t);
    }
    assert_int_equal(ep_explain(NULL, NULL, 0, NULL, &err, &r), EP_ERROR_INVALID_ARGUMENT);
    ep_report_destroy(NULL);
    assert_string_equal(ep_report_text(NULL), "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pictures),
        cmocka_unit_test(test_article_eager),
        cmocka_unit_test(test_article_compiled_and_liger),
        cmocka_unit_test(test_attention_on_a_device),
        cmocka_unit_test(test_attention_forms),
        cmocka_unit_test(test_host_alone),
        cmocka_unit_test(test_no_device_events),
        cmocka_unit_test(test_no_shapes),
        cmocka_unit_test(test_lines_fit),
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_all_owners),
        cmocka_unit_test(test_rank_sums),
        cmocka_unit_test(test_edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
