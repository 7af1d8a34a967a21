/* Links over small traces built by hand: every rule of docs/trace.md on owners, parents and correlations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <string.h>

#include "model/trace/trace.h"

/* One span; tid 0 stands for the device. */
static uint32_t add(ep_trace *t, const char *cat, const char *name, int tid, int64_t ts, int64_t dur, uint64_t corr) {
    uint32_t i = ep_trace_append(t);
    char text[16] = {(char)('0' + tid), 0};
    uint32_t id = ep_trace_string(t, text, 1);
    t->lane[i] = ep_trace_lane(t, id, id, tid ? -1 : 0, tid ? -1 : 7);
    t->kind[i] = (uint8_t)ep_event_kind_of(cat, name, 'X');
    t->phase[i] = 'X';
    t->name[i] = ep_trace_string(t, name, strlen(name));
    t->category[i] = ep_trace_string(t, cat, strlen(cat));
    t->ts[i] = ts;
    t->dur[i] = dur;
    assert_true(ep_trace_set_correlation(t, i, corr));
    return i;
}

static ep_links *link_of(const ep_trace *t) {
    ep_links *l = NULL;
    ep_error err;
    assert_int_equal(ep_links_create(t, &err, &l), EP_OK);
    return l;
}

static void test_owner(void **state) {
    (void)state;
    ep_trace *t = ep_trace_create();
    uint32_t k = add(t, "kernel", "k", 0, 5, 10, 1); /* before its launch: clocks differ */
    uint32_t linear = add(t, "cpu_op", "linear", 1, 0, 100, 0);
    uint32_t addmm = add(t, "cpu_op", "addmm", 1, 10, 50, 0);
    uint32_t call = add(t, "cuda_runtime", "cudaLaunchKernel", 1, 20, 5, 1);
    uint32_t edge = add(t, "cuda_driver", "cuLaunchKernelEx", 1, 60, 5, 2); /* addmm ends at 60: half open */
    uint32_t k2 = add(t, "Kernel", "k2", 0, 70, 10, 2);
    uint32_t lone = add(t, "cuda_runtime", "cudaLaunchKernel", 2, 20, 5, 3);
    ep_links *l = link_of(t);
    assert_int_equal(l->launch[k], call);
    assert_int_equal(ep_links_owner(l, call), addmm);
    assert_int_equal(ep_links_owner(l, k), addmm);
    assert_int_equal(l->launch[k2], edge);
    assert_int_equal(ep_links_owner(l, k2), linear);
    assert_int_equal(ep_links_owner(l, lone), EP_NO_INDEX);
    assert_int_equal(ep_links_work_count(l, lone), 0);
    assert_int_equal(l->parent[addmm], linear);
    assert_int_equal(l->parent[call], addmm);
    assert_int_equal(l->parent[linear], EP_NO_INDEX);
    assert_int_equal(l->mended_nesting, 0);
    ep_links_destroy(l);
    ep_trace_destroy(t);
}

static void test_owner_ties(void **state) {
    (void)state;
    ep_trace *t = ep_trace_create();
    uint32_t call = add(t, "cuda_runtime", "cudaLaunchKernel", 1, 10, 500, 1); /* longer than the op it runs in */
    add(t, "cpu_op", "long", 1, 10, 100, 0);
    add(t, "cpu_op", "short", 1, 10, 50, 0);
    uint32_t later = add(t, "cpu_op", "short again", 1, 10, 50, 0);
    add(t, "cpu_op", "empty", 1, 10, 0, 0); /* [10, 10) holds nothing */
    ep_links *l = link_of(t);
    assert_int_equal(ep_links_owner(l, call), later);
    ep_links_destroy(l);
    ep_trace_destroy(t);
}

static void test_crossing(void **state) {
    (void)state;
    ep_trace *t = ep_trace_create();
    uint32_t a = add(t, "cpu_op", "a", 1, 0, 100, 0);
    uint32_t b = add(t, "cpu_op", "b", 1, 10, 20, 0);
    uint32_t c = add(t, "cpu_op", "c", 1, 20, 40, 0); /* starts in b, ends after it */
    uint32_t in_c = add(t, "cuda_runtime", "cudaLaunchKernel", 1, 40, 1, 1);
    uint32_t in_a = add(t, "cuda_runtime", "cudaLaunchKernel", 1, 70, 1, 2);
    ep_links *l = link_of(t);
    assert_int_equal(l->parent[b], a);
    assert_int_equal(l->parent[c], b);
    assert_int_equal(l->mended_nesting, 1);
    assert_int_equal(ep_links_owner(l, in_c), c);
    assert_int_equal(ep_links_owner(l, in_a), a);
    ep_links_destroy(l);
    ep_trace_destroy(t);
}

static void test_correlation(void **state) {
    (void)state;
    ep_trace *t = ep_trace_create();
    uint32_t zero = add(t, "cuda_runtime", "cudaLaunchKernel", 1, 0, 1, 0);
    uint32_t k0 = add(t, "kernel", "k0", 0, 5, 1, 0);
    add(t, "cuda_runtime", "cudaLaunchKernel", 1, 2, 1, 9); /* the same number twice */
    add(t, "cuda_runtime", "cudaMalloc", 1, 4, 1, 9);
    uint32_t k9 = add(t, "kernel", "k9", 0, 7, 1, 9);
    uint32_t graph = add(t, "cuda_runtime", "cudaGraphLaunch", 1, 6, 1, 0xffffffffffffffffu);
    uint32_t g2 = add(t, "kernel", "g2", 0, 30, 1, 0xffffffffffffffffu);
    uint32_t g1 = add(t, "gpu_memcpy", "g1", 0, 20, 1, 0xffffffffffffffffu);
    ep_links *l = link_of(t);
    assert_int_equal(l->launch[k0], EP_NO_INDEX);
    assert_int_equal(ep_links_work_count(l, zero), 0);
    assert_int_equal(l->launch[k9], EP_NO_INDEX);
    assert_int_equal(ep_links_work_count(l, graph), 2);
    assert_int_equal(l->work_list[l->first_work[graph]], g1);
    assert_int_equal(l->work_list[l->first_work[graph] + 1], g2);
    ep_links_destroy(l);
    ep_trace_destroy(t);
}

static void test_empty(void **state) {
    (void)state;
    ep_trace *t = ep_trace_create();
    ep_links *l = link_of(t);
    assert_int_equal(l->order_count, 0);
    ep_links_destroy(l);
    ep_links_destroy(NULL);
    ep_trace_destroy(t);
    ep_trace_destroy(NULL);
}

static void test_tables(void **state) {
    (void)state;
    ep_trace *t = ep_trace_create();
    for (uint32_t i = 0; i < 5000; i++) {
        ep_event_info info = {.bytes = i, .flops = -1, .bytes_read = -1, .bytes_written = -1, .graph_id = -1};
        uint32_t id = ep_trace_info(t, &info);
        assert_int_equal(id, i + 1);
        assert_int_equal(ep_trace_info(t, &info), id);
        assert_int_equal(ep_trace_lane(t, i, 0, -1, -1), i);
        assert_int_equal(ep_trace_lane(t, i / 2, 0, -1, -1), i / 2);
    }
    ep_event e;
    add(t, "cpu_op", "x", 1, 3, 4, 0);
    assert_int_equal(ep_trace_event(t, 0, &e), EP_OK);
    assert_string_equal(e.name, "x");
    assert_string_equal(e.tid, "1");
    assert_null(e.args);
    assert_int_equal(ep_trace_event(t, 1, &e), EP_ERROR_INVALID_ARGUMENT);
    for (int i = 0; i < 9; i++) add(t, "cpu_op", "y", 1, i, 1, (uint64_t)i);
    const uint8_t keep[10] = {0, 1, 0, 1};
    ep_trace_compact(t, keep);
    assert_int_equal(ep_trace_count(t), 2);
    assert_int_equal(ep_trace_correlation(t, 1), 2);
    assert_int_equal(t->ts[0], 0);
    ep_trace_destroy(t);
}

static void test_kinds(void **state) {
    (void)state;
    static const struct {
        const char *category;
        char phase;
        ep_event_kind kind;
    } rows[] = {{"cpu_op", 'X', EP_EVENT_OP},           {"Operator", 'X', EP_EVENT_OP},
                {"Kernel", 'X', EP_EVENT_KERNEL},       {"gpu_memset", 'X', EP_EVENT_MEMSET},
                {"Runtime", 'X', EP_EVENT_RUNTIME},     {"xpu_runtime", 'X', EP_EVENT_RUNTIME},
                {"cuda_driver", 'X', EP_EVENT_RUNTIME}, {"gpu_user_annotation", 'X', EP_EVENT_DEVICE_REGION},
                {"ac2g", 's', EP_EVENT_FLOW},           {"", 'M', EP_EVENT_META},
                {"FEE", 'X', EP_EVENT_OTHER_SPAN},      {"cpu_instant_event", 'i', EP_EVENT_INSTANT}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(ep_event_kind_of(rows[i].category, "", rows[i].phase), rows[i].kind);
    assert_true(ep_runtime_is_launch("cudaLaunchKernelExC_v11060"));
    assert_true(ep_runtime_is_launch("hipGraphLaunch"));
    assert_false(ep_runtime_is_launch("cudaLaunchHostFunc"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_owner),    cmocka_unit_test(test_owner_ties),
                                       cmocka_unit_test(test_crossing), cmocka_unit_test(test_correlation),
                                       cmocka_unit_test(test_empty),    cmocka_unit_test(test_tables),
                                       cmocka_unit_test(test_kinds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
