/* The writer: what viewers need of a trace of ours, and read -> write -> read of real traces, event by event. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <epilogue/profile.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/probe.h"
#include "model/trace/trace.h"

static char folder[] = "/tmp/test_chrome_writeXXXXXX";

static const char *in_folder(const char *name) {
    static char path[300];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void kernel(uint64_t correlation, int64_t start, int64_t end) {
    const ep_probe *p = ep_probe_get();
    p->kernel(p->self, &(ep_probe_kernel){.name = "ep_f32_add_portable",
                                          .what = "kernel",
                                          .correlation = correlation,
                                          .start = start,
                                          .end = end,
                                          .flops = 64,
                                          .bytes_read = 512,
                                          .bytes_written = 256});
}

/* A recording with everything the writer has to say: shapes, odd names, overlapping kernels, a guard, steps. */
static ep_trace *record(void) {
    static const int64_t sizes[2] = {4, 8}, strides[2] = {8, 1};
    const ep_probe_operand operands[3] = {
        {"bf16", 2, sizes, strides}, {"f16", 2, sizes, strides}, {NULL, 0, NULL, NULL}};
    ep_profile *p;
    ep_trace *t;
    ep_error err;
    assert_int_equal(ep_profile_start(&(ep_profile_options){.active = 2, .repeat = 1}, &err, &p), EP_OK);
    for (int i = 0; i < 2; i++) {
        const ep_probe *probe = ep_probe_get();
        ep_region_begin("bad \xff name \"\\\n\x01 \xe2\x82\xac");
        probe->begin(probe->self,
                     &(ep_probe_span){.kind = EP_PROBE_GUARD, .name = "guard", .detail = "x.size(0) 4 -> 5"});
        probe->end(probe->self);
        probe->begin(
            probe->self,
            &(ep_probe_span){.kind = EP_PROBE_OP, .name = "aten::addmm", .operand_count = 3, .operands = operands});
        uint64_t a = ep_probe_correlation(), b = ep_probe_correlation();
        probe->begin(probe->self, &(ep_probe_span){.kind = EP_PROBE_LAUNCH, .name = "x", .correlation = a});
        int64_t now = ep_clock_ticks();
        while (ep_clock_to_ns(ep_clock_ticks()) - ep_clock_to_ns(now) < 20000) {
        }
        int64_t later = ep_clock_ticks();
        kernel(a, now, later);
        kernel(b, now + (later - now) / 2, later); /* of another thread, say */
        probe->end(probe->self);
        probe->begin(probe->self, &(ep_probe_span){.kind = EP_PROBE_LAUNCH, .name = "x", .correlation = b});
        probe->end(probe->self);
        probe->end(probe->self);
        ep_region_end();
        ep_profile_step(p);
    }
    assert_int_equal(ep_profile_stop(p, &err, &t), EP_OK);
    return t;
}

static ep_trace *read_back(const char *path) {
    ep_trace *t = NULL;
    ep_error err = {0};
    if (ep_trace_read(path, &(ep_read_options){.keep_args = true}, &err, &t) != EP_OK)
        fail_msg("%s: %s", path, err.message);
    return t;
}

static void write_to(const ep_trace *t, const char *path) {
    ep_error err = {0};
    if (ep_trace_write(t, path, &err) != EP_OK) fail_msg("%s: %s", path, err.message);
}

static const char *string(const ep_trace *t, uint32_t id) {
    return ep_trace_text(t, id);
}

static void same_event(const ep_trace *a, size_t i, const ep_trace *b, size_t k) {
    ep_event x, y;
    assert_int_equal(ep_trace_event(a, i, &x), EP_OK);
    assert_int_equal(ep_trace_event(b, k, &y), EP_OK);
    assert_int_equal(x.kind, y.kind);
    assert_int_equal(x.phase, y.phase);
    assert_string_equal(x.name, y.name);
    assert_string_equal(x.category, y.category);
    assert_true(a->base_ns + x.ts_ns == b->base_ns + y.ts_ns);
    assert_true(x.dur_ns == y.dur_ns);
    assert_string_equal(x.pid, y.pid);
    assert_string_equal(x.tid, y.tid);
    assert_true(x.device == y.device && x.stream == y.stream);
    assert_true(x.correlation == y.correlation && x.external_id == y.external_id && x.flow_id == y.flow_id);
    assert_int_equal(x.args != NULL, y.args != NULL);
    if (x.args) assert_string_equal(x.args, y.args);
}

static void round_trip(const char *from, const char *to) {
    ep_trace *a = read_back(from);
    write_to(a, to);
    ep_trace *b = read_back(to);
    assert_int_equal(b->repair_count, 0);
    if (a->count != b->count) fail_msg("%s: %zu events became %zu", from, a->count, b->count);
    for (size_t i = 0; i < a->count; i++) same_event(a, i, b, i);
    assert_string_equal(string(a, a->schema), string(b, b->schema));
    assert_int_equal(a->device_count, b->device_count);
    assert_true(a->rank == b->rank && a->world_size == b->world_size && a->file_base_ns == b->file_base_ns);
    ep_trace_destroy(a);
    ep_trace_destroy(b);
}

static void test_real(void **state) {
    (void)state;
    static const char *const names[] = {"article/linear_eager.json", "article/mlp_compiled.json",
                                        "article/mlp_liger.json",    "alexnet-a100-external-id.json.gz",
                                        "streams-a100-tiny.json.gz", "zoology-a100-no-device-events.json",
                                        "resnet18-cpu-windows.json", "train-v100-ns.json.gz"};
    char path[512];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/trace/shared/%s", EP_TEST_DIR, names[i]);
        round_trip(path, in_folder(i % 2 ? "out.json" : "out.json.gz"));
    }
}

/* Plain and gzip, and a second generation of ours, are the same. */
static void test_ours_again(void **state) {
    (void)state;
    ep_trace *t = record();
    assert_int_equal(t->device_times, EP_TIMES_UNKNOWN); /* a CPU's times are the host's */
    t->device_times = EP_TIMES_CUPTI;
    t->device_error_ns = 417;
    write_to(t, in_folder("a.json"));
    write_to(t, in_folder("a.json.gz"));
    ep_trace *plain = read_back(in_folder("a.json")), *packed = read_back(in_folder("a.json.gz"));
    assert_int_equal(plain->count, packed->count);
    for (size_t i = 0; i < plain->count; i++) same_event(plain, i, packed, i);
    size_t at = 0;
    for (size_t i = 0; i < plain->count; i++) {
        if (plain->phase[i] != 'X') continue;
        ep_event x, y;
        ep_trace_event(t, at, &x);
        ep_trace_event(plain, i, &y);
        assert_true(t->base_ns + x.ts_ns == plain->base_ns + y.ts_ns && x.dur_ns == y.dur_ns && x.kind == y.kind);
        assert_true(x.correlation == y.correlation && x.external_id == y.external_id && x.flops == y.flops);
        at++;
    }
    assert_int_equal(at, t->count);
    assert_true(plain->is_ours && plain->has_shapes);
    assert_true(plain->device_times == EP_TIMES_CUPTI && plain->device_error_ns == 417);
    assert_true(plain->file_base_ns == t->file_base_ns);
    ep_trace_destroy(t);
    ep_trace_destroy(plain);
    ep_trace_destroy(packed);
    char path_a[300], path_b[300];
    snprintf(path_a, sizeof path_a, "%s/a.json", folder);
    snprintf(path_b, sizeof path_b, "%s/b.json", folder);
    round_trip(path_a, path_b);
}

/* What the text must hold for the viewers: HolisticTraceAnalysis asks for deviceProperties, a rank, stream and
 * correlation as numbers; Perfetto for numeric times and ids, and flows that bind to the enclosing slice. */
static void test_text(void **state) {
    (void)state;
    ep_trace *t = record();
    char *text = NULL;
    write_to(t, in_folder("t.json"));
    assert_int_equal(ep_file_read(in_folder("t.json"), 1 << 20, NULL, &text, NULL), EP_OK);
    static const char *const parts[] = {"\"schemaVersion\": 1",
                                        "\"deviceProperties\": [{\"id\": 0,\"name\": \"",
                                        "\"distributedInfo\": {\"backend\": \"none\",\"rank\": 0,\"world_size\": 1}",
                                        "\"displayTimeUnit\": \"ms\"",
                                        "\"baseTimeNanoseconds\": 1",
                                        "\"ph\": \"X\",\"cat\": \"cpu_op\",\"name\": \"aten::addmm\"",
                                        "\"Input Dims\": [[4, 8], [4, 8], []]",
                                        "\"Input type\": [\"c10::BFloat16\", \"c10::Half\", \"\"]",
                                        "\"Input Strides\": [[8, 1], [8, 1], []]",
                                        "\"cat\": \"kernel\",\"name\": \"ep_f32_add_portable\",\"pid\": 0,\"tid\": 0,",
                                        "\"device\": 0,\"stream\": 0,\"correlation\": ",
                                        "\"flops\": 64,\"bytes read\": 512,\"bytes written\": 256",
                                        "\"name\": \"epLaunchKernel\"",
                                        "\"guard\": \"x.size(0) 4 -> 5\"",
                                        "\"ph\": \"s\",\"cat\": \"ac2g\"",
                                        "\"bp\": \"e\"",
                                        "\"name\": \"ProfilerStep#1\"",
                                        "bad \xef\xbf\xbd name \\\"\\\\\\n\\u0001 \xe2\x82\xac",
                                        "\"name\": \"thread_name\"",
                                        "\"name\": \"process_name\"",
                                        "\"own_ns_per_event\": "};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strstr(text, parts[i])) fail_msg("no %s in\n%s", parts[i], text);
    /* Every time has three decimals. */
    for (const char *p = text; (p = strstr(p, "\"ts\": ")); p++) {
        const char *dot = p + 6 + strspn(p + 6, "-0123456789");
        assert_true(*dot == '.' && strspn(dot + 1, "0123456789") == 3);
    }
    free(text);
    ep_trace_destroy(t);
}

/* Spans of one lane nest or follow one another; each flow begins and ends within a span. Viewers draw nothing else. */
static void test_lanes(void **state) {
    (void)state;
    ep_trace *made = record();
    write_to(made, in_folder("n.json"));
    ep_trace *t = read_back(in_folder("n.json"));
    for (size_t i = 0; i < t->count; i++) {
        if (t->phase[i] != 'X') continue;
        int64_t a0 = t->ts[i], a1 = a0 + t->dur[i];
        for (size_t k = 0; k < t->count; k++) {
            int64_t b0 = t->ts[k], b1 = b0 + t->dur[k];
            bool lane = t->phase[k] == 'X' &&
                        strcmp(string(t, t->lanes[t->lane[i]].pid), string(t, t->lanes[t->lane[k]].pid)) == 0 &&
                        strcmp(string(t, t->lanes[t->lane[i]].tid), string(t, t->lanes[t->lane[k]].tid)) == 0;
            if (lane && a0 < b0 && b0 < a1 && b1 > a1)
                fail_msg("%s overlaps %s", string(t, t->name[i]), string(t, t->name[k]));
        }
    }
    int flows = 0;
    for (size_t i = 0; i < t->count; i++) {
        if (t->kind[i] != EP_EVENT_FLOW) continue;
        flows++;
        bool bound = false;
        for (size_t k = 0; k < t->count && !bound; k++)
            bound = t->phase[k] == 'X' && t->ts[k] <= t->ts[i] && t->ts[i] <= t->ts[k] + t->dur[k] &&
                    ep_trace_correlation(t, k) == ep_trace_correlation(t, i);
        assert_true(bound);
    }
    assert_int_equal(flows, 8);
    ep_trace_destroy(made);
    ep_trace_destroy(t);
}

static void test_errors(void **state) {
    (void)state;
    ep_trace *t = record();
    ep_error err = {0};
    assert_int_not_equal(ep_trace_write(t, "/nonexistent/folder/a.json", &err), EP_OK);
    assert_non_null(strstr(err.message, "/nonexistent/folder"));
    ep_trace_destroy(t);
}

int main(void) {
    if (!mkdtemp(folder)) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text), cmocka_unit_test(test_lanes),  cmocka_unit_test(test_ours_again),
        cmocka_unit_test(test_real), cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
