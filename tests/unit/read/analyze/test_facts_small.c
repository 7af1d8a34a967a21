/* Facts of small traces, one need each: overlap, lost kernels, unknown call names, annotations, exact times, ids, cuts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "read/analyze/facts.h"

typedef struct pair {
    ep_trace *t;
    ep_facts *f;
} pair;

static pair open_with(const char *name, const ep_read_options *options) {
    char path[1024];
    ep_error err = {0};
    pair p = {0};
    snprintf(path, sizeof path, "%s/trace/%s.json", EP_TEST_DIR, name);
    if (ep_trace_read(path, options, &err, &p.t) != EP_OK) fail_msg("%s: %s", path, err.message);
    if (ep_facts_create(p.t, &err, &p.f) != EP_OK) fail_msg("%s: %s", path, err.message);
    return p;
}

static pair open_one(const char *name) {
    return open_with(name, NULL);
}

static void close_one(pair p) {
    ep_facts_destroy(p.f);
    ep_trace_destroy(p.t);
}

static void test_overlap(void **state) {
    (void)state;
    pair p = open_one("small/overlap");
    assert_int_equal(p.f->kernel_count, 2);
    assert_int_equal(p.f->devices[0].busy_ns, 4000);
    assert_int_equal(p.f->devices[0].span_ns, 4000);
    assert_int_equal(p.f->health.overlaps_on_stream, 1);
    close_one(p);
    p = open_one("small/overrun"); /* runs on past the next one: never busy for longer than the clock on the wall */
    assert_int_equal(p.f->devices[0].busy_ns, 1000000);
    assert_int_equal(p.f->devices[0].span_ns, 1000000);
    close_one(p);
}

static void test_lost_kernels(void **state) {
    (void)state;
    for (int absolute = 0; absolute < 2; absolute++) {
        pair p = open_one(absolute ? "small/lost_kernels_absolute" : "small/lost_kernels");
        assert_int_equal(p.f->health.launches, 5);
        assert_int_equal(p.f->health.kernels, 3);
        assert_int_equal(p.f->health.launches_without_kernel, 2);
        assert_int_equal(p.f->health.kernels_before_launch, 2);
        assert_int_equal(p.f->health.impossible_times, 1);
        /* A kernel at the origin of an absolute clock must not stretch the trace over half a century. */
        assert_int_equal(p.f->span_end_ns - p.f->span_start_ns, absolute ? 42000 : 142000);
        assert_int_equal(p.f->devices[0].busy_ns, 10000);
        if (absolute) assert_int_equal(p.f->health.clock_skew_ns, 2000);
        close_one(p);
    }
}

static void test_any_call(void **state) {
    (void)state;
    pair p = open_one("small/four_calls");
    assert_int_equal(p.f->health.launches, 4);
    assert_int_equal(p.f->health.launches_without_kernel, 0);
    assert_int_equal(p.f->health.kernels_without_launch, 0);
    assert_int_equal(p.f->op_kernels[0], 4);
    for (size_t k = 0; k < 4; k++) assert_int_equal(ep_links_owner(p.f->links, p.f->kernels[k].event), 0);
    close_one(p);
}

static void test_annotations(void **state) {
    (void)state;
    pair p = open_one("small/annotations");
    assert_int_equal(p.f->devices[0].busy_ns, 10000);
    assert_int_equal(p.f->kernel_count, 1);
    assert_int_equal(p.f->region_count, 1);
    assert_int_equal(p.f->instances[0].kernels, 1);
    assert_int_equal(p.f->instances[0].device_ns, 10000);
    int64_t self_kernels = 0;
    for (size_t i = 0; i < p.f->op_count; i++) {
        self_kernels += p.f->ops[i].self_kernels;
        assert_int_equal(p.f->ops[i].kernels, 1); /* of the wrapper and of its child: but each kernel has one owner */
        if (strcmp(p.f->ops[i].name, "aten::linear") == 0) assert_int_equal(p.f->ops[i].self_ns, 10000);
    }
    assert_int_equal(self_kernels, 1);
    close_one(p);
}

static void test_text_ids(void **state) {
    (void)state;
    pair p = open_one("small/string_pids");
    assert_int_equal(p.f->devices[0].id, 0);
    assert_int_equal(p.t->lanes[p.t->lane[p.f->kernels[0].event]].stream, 7);
    assert_int_equal(ep_links_owner(p.f->links, p.f->kernels[0].event), 0);
    assert_int_equal(p.f->span_end_ns - p.f->span_start_ns, 50000); /* the profiler's own row is none of it */
    close_one(p);
    p = open_one("small/ids");
    assert_int_equal(p.f->health.kernels_without_launch, 1);
    ep_event e;
    assert_int_equal(ep_trace_event(p.t, 3, &e), EP_OK);
    assert_true(e.flow_id == 1152921504606846977u);
    close_one(p);
}

static void test_times(void **state) {
    (void)state;
    pair p = open_one("small/times");
    assert_int_equal(p.t->base_ns, 1669329643132548125);
    assert_int_equal(p.t->ts[1], 125);
    assert_int_equal(p.t->dur[0], 125);
    assert_int_equal(p.t->dur[1], 500);
    assert_int_equal(p.t->ts[2], 1375);
    assert_int_equal(p.f->health.span_events, 3);
    assert_int_equal(p.t->dur[3], -1); /* "soon" is no time */
    close_one(p);
    p = open_one("small/begin_end");
    assert_int_equal(p.f->op_count, 3);
    assert_int_equal(p.t->dur[0], 40500);
    assert_int_equal(p.t->dur[1], 10000);
    assert_int_equal(p.t->dur[2], 39000);
    assert_int_equal(p.f->links->parent[1], 0);
    assert_int_equal(p.f->health.events, 6);
    close_one(p);
    p = open_one("small/begin_end_device"); /* an E may say neither device nor stream, and no category */
    assert_int_equal(p.f->health.kernels, 1);
    assert_int_equal(p.f->device_count, 1);
    assert_int_equal(p.f->devices[0].memsets, 1);
    assert_int_equal(p.f->devices[0].busy_ns, 7000);
    assert_int_equal(p.t->skipped, 0);
    close_one(p);
}

static void test_top(void **state) {
    (void)state;
    pair p = open_one("small/order");
    assert_int_equal(p.t->rank, 3);
    assert_int_equal(p.t->world_size, 8);
    assert_int_equal(p.t->file_base_ns, 1790857026000000000);
    assert_string_equal(p.f->devices[0].name, "NVIDIA X");
    assert_int_equal(p.t->devices[0].sm_count, 10);
    assert_false(p.f->health.launches_without_kernel);
    close_one(p);
    static const char *const names[] = {"small/list", "small/no_events", "small/bom"};
    for (size_t i = 0; i < 3; i++) {
        p = open_one(names[i]);
        assert_int_equal(p.t->rank, -1);
        assert_false(p.f->health.device_recorded);
        close_one(p);
    }
}

static int64_t count(const pair *p, const char *name) {
    int64_t n = 0;
    for (size_t i = 0; i < p->t->count; i++) n += strcmp(ep_trace_text(p->t, p->t->name[i]), name) == 0;
    return n;
}

static void test_cuts(void **state) {
    (void)state;
    pair p = open_with("small/steps", &(ep_read_options){.use_step = true, .step = 1});
    assert_int_equal(p.t->count, 7); /* the step, two ops, two calls, two kernels: one by the other thread */
    assert_int_equal(p.f->kernel_count, 2);
    assert_int_equal(p.f->health.launches_without_kernel, 0);
    assert_int_equal(p.f->instances[0].kernels, 1);
    assert_int_equal(p.f->instances[0].kernels_any_thread, 2);
    assert_int_equal(count(&p, "stray"), 0);
    close_one(p);
}

static void test_cut_by_glob_and_window(void **state) {
    (void)state;
    pair p = open_with("small/steps", &(ep_read_options){.region = "Profiler*"});
    assert_int_equal(p.t->count, 21);
    close_one(p);
    /* From 950 us to 1150 us after the first span: the first kernel, and what the second step begins with. */
    p = open_with("small/steps", &(ep_read_options){.window_start_ns = 950000, .window_end_ns = 1150000});
    assert_int_equal(count(&p, "gemm"), 1);
    assert_int_equal(count(&p, "gemm_bwd"), 0);
    assert_int_equal(count(&p, "ProfilerStep#1"), 1);
    assert_int_equal(count(&p, "ProfilerStep#0"), 0);
    assert_int_equal(count(&p, "aten::mm"), 1);
    close_one(p);
    ep_error err;
    ep_trace *t = NULL;
    const char *path = EP_TEST_DIR "/trace/small/steps.json";
    assert_int_equal(ep_trace_read(path, &(ep_read_options){.region = "nothing"}, &err, &t), EP_ERROR_NOT_FOUND);
    assert_non_null(strstr(err.message, "ProfilerStep#0, ProfilerStep#1"));
    assert_int_equal(ep_trace_read(path, &(ep_read_options){.window_start_ns = 5, .window_end_ns = 5}, &err, &t),
                     EP_ERROR_INVALID_ARGUMENT);
    assert_int_equal(ep_trace_read(path, &(ep_read_options){.region = "x", .window_end_ns = 5}, &err, &t),
                     EP_ERROR_INVALID_ARGUMENT);
}

static void shared_numbers(const ep_read_options *cut, int64_t kernels, int64_t lonely, int64_t of_step) {
    pair p = open_with("small/shared_numbers", cut);
    assert_int_equal(p.f->kernel_count, kernels);
    assert_int_equal(p.f->health.launches_without_kernel, cut ? 1 : 3);
    assert_int_equal(p.f->health.kernels_without_launch, lonely);
    assert_int_equal(p.f->health.kernels_before_launch, 0);
    assert_int_equal(p.f->instances[0].kernels, of_step);
    close_one(p);
}

/* Every step has a launch of number 5 and one of its own: 5 links nothing, also where only one of its calls is kept. */
static void test_cut_shared_numbers(void **state) {
    (void)state;
    shared_numbers(NULL, 6, 3, 1);
    shared_numbers(&(ep_read_options){.use_step = true, .step = 1}, 1, 0, 1);
    shared_numbers(&(ep_read_options){.region = "ProfilerStep#2"}, 1, 0, 1);
    shared_numbers(&(ep_read_options){.window_start_ns = 1000000, .window_end_ns = 1900000}, 2, 1, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_overlap),
                                       cmocka_unit_test(test_lost_kernels),
                                       cmocka_unit_test(test_cut_shared_numbers),
                                       cmocka_unit_test(test_any_call),
                                       cmocka_unit_test(test_annotations),
                                       cmocka_unit_test(test_text_ids),
                                       cmocka_unit_test(test_times),
                                       cmocka_unit_test(test_top),
                                       cmocka_unit_test(test_cuts),
                                       cmocka_unit_test(test_cut_by_glob_and_window)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
