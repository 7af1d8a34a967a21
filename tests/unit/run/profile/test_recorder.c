// ctest: threads
/* Recording through the probes: nesting, links, shapes, schedules, full rings, threads. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <epilogue/profile.h>

#include "base/clock.h"
#include "base/probe.h"
#include "model/trace/trace.h"

static void begin(ep_probe_kind kind, const char *name, uint64_t correlation) {
    const ep_probe *p = ep_probe_get();
    if (p) p->begin(p->self, &(ep_probe_span){.kind = kind, .name = name, .correlation = correlation});
}

static void end(void) {
    const ep_probe *p = ep_probe_get();
    if (p) p->end(p->self);
}

static void launch(const char *name) {
    uint64_t correlation = ep_probe_correlation();
    const ep_probe *p = ep_probe_get();
    begin(EP_PROBE_LAUNCH, "launch", correlation);
    ep_probe_kernel k = {.name = name, .what = "kernel", .correlation = correlation, .flops = 7, .bytes_read = 8};
    k.start = ep_clock_ticks();
    k.end = ep_clock_ticks();
    if (p) p->kernel(p->self, &k);
    end();
}

static void op(const char *name) {
    begin(EP_PROBE_OP, name, 0);
    launch("ep_f32_add_portable");
    end();
}

static ep_profile *start(ep_profile_options o) {
    ep_profile *p = NULL;
    ep_error err = {0};
    if (ep_profile_start(&o, &err, &p) != EP_OK) fail_msg("%s", err.message);
    return p;
}

static ep_trace *stop(ep_profile *p) {
    ep_trace *t = NULL;
    ep_error err = {0};
    if (ep_profile_stop(p, &err, &t) != EP_OK) fail_msg("%s", err.message);
    return t;
}

static int count(const ep_trace *t, const char *name) {
    int n = 0;
    for (size_t i = 0; i < t->count; i++) n += strcmp(ep_trace_text(t, t->name[i]), name) == 0;
    return n;
}

static size_t find(const ep_trace *t, const char *name) {
    for (size_t i = 0; i < t->count; i++)
        if (strcmp(ep_trace_text(t, t->name[i]), name) == 0) return i;
    fail_msg("no event '%s'", name);
    return 0;
}

static bool inside(const ep_trace *t, size_t inner, size_t outer) {
    return t->ts[outer] <= t->ts[inner] && t->ts[inner] + t->dur[inner] <= t->ts[outer] + t->dur[outer] &&
           t->lane[inner] == t->lane[outer];
}

static void test_nesting(void **state) {
    (void)state;
    static const int64_t sizes[3] = {2, 3, 8}, strides[3] = {24, 8, 1};
    ep_probe_operand operands[2] = {{"bf16", 3, sizes, strides}, {NULL, 0, NULL, NULL}};
    ep_clock_init();
    int64_t before = ep_clock_ns(), wall = before + ep_clock_wall_offset_ns();
    ep_profile *p = start((ep_profile_options){0});
    ep_region_begin("outer");
    const ep_probe *probe = ep_probe_get();
    assert_non_null(probe);
    probe->begin(
        probe->self,
        &(ep_probe_span){
            .kind = EP_PROBE_OP, .name = "aten::linear", .operand_count = 2, .operands = operands, .detail = "why"});
    begin(EP_PROBE_OP, "aten::t", 0);
    end();
    op("aten::addmm");
    end();
    ep_region_end();
    ep_trace *t = stop(p);
    int64_t length = ep_clock_ns() - before;
    assert_null(ep_probe_get());
    assert_true(t->is_ours);
    for (size_t i = 0; i < t->count;
         i++) /* from the recording's start on, which is told in wall time; 1 ms for the clocks */
        assert_true(t->ts[i] >= 0 && t->ts[i] + t->dur[i] <= length + 1000000);
    assert_true(t->file_base_ns >= wall - 1000000000 && t->file_base_ns <= wall + length + 1000000000);
    assert_int_equal(t->dropped, 0);
    assert_true(t->own_ns_per_event > 0);
    assert_int_equal(t->count, 6);
    size_t outer = find(t, "outer"), linear = find(t, "aten::linear"), addmm = find(t, "aten::addmm");
    size_t call = find(t, "epLaunchKernel"), kernel = find(t, "ep_f32_add_portable");
    assert_true(inside(t, linear, outer) && inside(t, addmm, linear) && inside(t, call, addmm));
    assert_int_equal(t->kind[outer], EP_EVENT_REGION);
    assert_int_equal(t->kind[call], EP_EVENT_RUNTIME);
    assert_int_equal(t->kind[kernel], EP_EVENT_KERNEL);
    assert_true(ep_trace_correlation(t, call) != 0);
    assert_true(ep_trace_correlation(t, kernel) == ep_trace_correlation(t, call));
    assert_true(t->external_id[kernel] == t->external_id[addmm] && t->external_id[call] == t->external_id[addmm]);
    assert_true(t->external_id[linear] != t->external_id[addmm]);
    assert_true(t->lane[kernel] != t->lane[call]);
    assert_int_equal(t->lanes[t->lane[kernel]].device, 0);
    assert_int_equal(t->infos[t->info[kernel]].flops, 7);
    const ep_event_info *info = &t->infos[t->info[linear]];
    assert_string_equal(ep_trace_text(t, info->input_dims), "[[2, 3, 8], []]");
    assert_string_equal(ep_trace_text(t, info->input_types), "[\"c10::BFloat16\", \"\"]");
    assert_string_equal(ep_trace_text(t, info->input_strides), "[[24, 8, 1], []]");
    assert_string_equal(ep_trace_text(t, info->detail), "why");
    assert_int_equal(t->device_count, 1);
    ep_trace_destroy(t);
}

/* Ends without a begin, begins without an end, spans over the edge of the recording. */
static void test_edges(void **state) {
    (void)state;
    ep_profile *p = start((ep_profile_options){.no_shapes = true});
    end();
    op("a");
    begin(EP_PROBE_OP, "never closed", 0);
    op("b");
    ep_profile *second = NULL;
    ep_error err = {0};
    assert_int_equal(ep_profile_start(NULL, &err, &second), EP_ERROR_BUSY);
    ep_trace *t = stop(p);
    end();
    assert_int_equal(count(t, "never closed"), 0);
    assert_int_equal(count(t, "a"), 1);
    assert_int_equal(count(t, "b"), 1);
    assert_false(t->has_shapes);
    ep_trace_destroy(t);
    p = start((ep_profile_options){0});
    t = stop(p);
    assert_int_equal(t->count, 0);
    ep_trace_destroy(t);
}

static void test_schedule(void **state) {
    (void)state;
    ep_profile *p = start((ep_profile_options){.wait = 1, .warmup = 2, .active = 2, .repeat = 2});
    char seen[32] = "";
    for (int i = 0; i < 14; i++) {
        strcat(seen, ep_probe_get() ? "1" : "0");
        op("op");
        if (i == 3) op("kept");
        if (i == 2) op("warm");
        ep_profile_step(p);
    }
    ep_trace *t = stop(p);
    assert_string_equal(seen, "01111011110000");
    assert_int_equal(count(t, "op"), 4);
    assert_int_equal(count(t, "kept"), 1);
    assert_int_equal(count(t, "warm"), 0);
    for (int i = 0; i < 14; i++) {
        char name[32];
        snprintf(name, sizeof name, "ProfilerStep#%d", i);
        assert_int_equal(count(t, name), i == 3 || i == 4 || i == 8 || i == 9);
    }
    size_t step = find(t, "ProfilerStep#3"), kept = find(t, "kept");
    assert_true(inside(t, kept, step));
    ep_trace_destroy(t);
    ep_error err = {0};
    assert_int_equal(ep_profile_start(&(ep_profile_options){.warmup = 1}, &err, &p), EP_ERROR_INVALID_ARGUMENT);
    assert_int_equal(ep_profile_start(&(ep_profile_options){.active = -1}, &err, &p), EP_ERROR_INVALID_ARGUMENT);
}

/* The last step counts even if nobody called step after it. */
static void test_last_step(void **state) {
    (void)state;
    ep_profile *p = start((ep_profile_options){.warmup = 1, .active = 1});
    for (int i = 0; i < 100; i++) op("warm");
    ep_profile_step(p);
    op("op");
    ep_trace *t = stop(p);
    assert_int_equal(count(t, "ProfilerStep#1"), 1);
    assert_int_equal(count(t, "warm"), 0);
    ep_trace_destroy(t);
}

static void test_full(void **state) {
    (void)state;
    ep_profile *p = start((ep_profile_options){.events_per_thread = 1});
    ep_region_begin("outer");
    enum { MANY = 100000 };
    for (int i = 0; i < MANY; i++) op("op");
    ep_region_end();
    ep_trace *t = stop(p);
    int ops = count(t, "op"), launches = count(t, "epLaunchKernel"), kernels = count(t, "ep_f32_add_portable");
    assert_true(ops > 100 && ops < MANY);
    assert_true(t->dropped > 0);
    assert_int_equal(ops + launches + kernels + (int)t->dropped, 3 * MANY);
    assert_int_equal(count(t, "outer"), 1);
    assert_true(inside(t, find(t, "op"), find(t, "outer")));
    ep_trace_destroy(t);
}

enum { THREADS = 4, OPS = 2000 };

static void *worker(void *arg) {
    const char *name = arg;
    for (int i = 0; i < OPS; i++) op(name);
    return NULL;
}

static void test_threads(void **state) {
    (void)state;
    static const char *const names[THREADS] = {"t0", "t1", "t2", "t3"};
    ep_profile *p = start((ep_profile_options){.events_per_thread = 1 << 14});
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, worker, (void *)(uintptr_t)names[i]);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    ep_trace *t = stop(p);
    for (int i = 0; i < THREADS; i++) assert_int_equal(count(t, names[i]), OPS);
    assert_int_equal(count(t, "epLaunchKernel"), THREADS * OPS);
    assert_int_equal(count(t, "ep_f32_add_portable"), THREADS * OPS);
    for (size_t i = 0; i < t->count; i++) {
        if (strcmp(ep_trace_text(t, t->name[i]), "t1") != 0) continue;
        assert_int_equal(t->lane[i], t->lane[find(t, "t1")]);
    }
    /* No two kernels of one lane overlap. */
    size_t last[256];
    for (size_t i = 0; i < 256; i++) last[i] = SIZE_MAX;
    for (size_t i = 0; i < t->count; i++) {
        if (t->kind[i] != EP_EVENT_KERNEL) continue;
        size_t before = last[t->lane[i]];
        if (before != SIZE_MAX) assert_true(t->ts[before] + t->dur[before] <= t->ts[i]);
        last[t->lane[i]] = i;
    }
    ep_trace_destroy(t);
}

/* Threads that go on while recordings start and stop under them. */
static atomic_bool finished;
static void *restless(void *arg) {
    (void)arg;
    while (!atomic_load(&finished)) op("busy");
    return NULL;
}

static void test_stop_under_load(void **state) {
    (void)state;
    pthread_t threads[THREADS];
    atomic_store(&finished, false);
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, restless, NULL);
    for (int round = 0; round < 20; round++) {
        ep_profile *p = start((ep_profile_options){.events_per_thread = 1 << 10, .warmup = 1, .active = 1});
        for (int i = 0; i < 50; i++) op("mine");
        ep_profile_step(p);
        for (int i = 0; i < 50; i++) op("mine");
        ep_trace *t = stop(p);
        assert_int_equal(count(t, "mine"), 50);
        for (size_t i = 0; i < t->count; i++) assert_true(t->dur[i] >= 0);
        ep_trace_destroy(t);
    }
    atomic_store(&finished, true);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

static void test_cost(void **state) {
    (void)state;
    ep_profile_cost cost = {0};
    ep_error err = {0};
    assert_int_equal(ep_profile_measure_cost(&err, &cost), EP_OK);
    assert_true(cost.ns_per_span > 0 && cost.ns_per_kernel > 0 && cost.ns_off >= 0);
    assert_true(cost.ns_off < cost.ns_per_span);
    print_message("span %.1f ns, kernel %.1f ns, off %.2f ns, tsc %d\n", cost.ns_per_span, cost.ns_per_kernel,
                  cost.ns_off, cost.tsc);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nesting),         cmocka_unit_test(test_edges), cmocka_unit_test(test_schedule),
        cmocka_unit_test(test_last_step),       cmocka_unit_test(test_full),  cmocka_unit_test(test_threads),
        cmocka_unit_test(test_stop_under_load), cmocka_unit_test(test_cost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
