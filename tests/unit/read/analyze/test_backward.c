/* Backward ops find their forward ops: by arrows, by sequence numbers, and both ways alike; ids of arrows stay whole. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "read/analyze/facts.h"

static ep_trace *read(const char *name, bool keep_args) {
    char path[1024];
    ep_error err = {0};
    ep_trace *t = NULL;
    ep_read_options options = {.keep_args = keep_args};
    snprintf(path, sizeof path, "%s/trace/%s", EP_TEST_DIR, name);
    if (ep_trace_read(path, &options, &err, &t) != EP_OK) fail_msg("%s: %s", path, err.message);
    return t;
}

static const char *name_of(const ep_trace *t, uint32_t row) {
    return row == EP_NO_INDEX ? "nothing" : ep_trace_text(t, t->name[row]);
}

/* The forward op of the first op of a name. */
static const char *forward_of(const ep_trace *t, const ep_links *l, const char *name) {
    for (uint32_t i = 0; i < t->count; i++)
        if (t->kind[i] == EP_EVENT_OP && strcmp(name_of(t, i), name) == 0) return name_of(t, ep_links_forward(l, i));
    return "no such op";
}

static const ep_op_fact *fact_of(const ep_facts *f, const char *name) {
    for (size_t i = 0; i < f->op_count; i++)
        if (strcmp(f->ops[i].name, name) == 0) return &f->ops[i];
    fail_msg("no op %s", name);
    return NULL;
}

static void check_small(const char *name) {
    ep_error err;
    ep_facts *f = NULL;
    ep_trace *t = read(name, false);
    assert_int_equal(ep_facts_create(t, &err, &f), EP_OK);
    static const char *const pairs[][2] = {
        {"ReluBackward0", "aten::relu"},
        {"autograd::engine::evaluate_function: ReluBackward0", "aten::relu"},
        {"AddmmBackward0", "aten::addmm"},
        {"autograd::engine::evaluate_function: AddmmBackward0", "aten::addmm"},
        {"aten::mm", "nothing"},
        {"aten::linear", "nothing"},
        {"aten::threshold_backward", "nothing"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        assert_string_equal(forward_of(t, f->links, pairs[i][0]), pairs[i][1]);
    static const struct {
        const char *name;
        int64_t count, ns, device_ns, kernels;
    } expected[] = {{"aten::linear", 1, 100000, 41000, 2}, /* through the addmm in it */
                    {"aten::addmm", 1, 100000, 41000, 2},
                    {"aten::relu", 1, 50000, 5000, 1},
                    {"aten::mm", 0, 0, 0, 0}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        const ep_op_fact *o = fact_of(f, expected[i].name);
        assert_int_equal(o->backward_count, expected[i].count);
        assert_int_equal(o->backward_ns, expected[i].ns);
        assert_int_equal(o->backward_device_ns, expected[i].device_ns);
        assert_int_equal(o->backward_kernels, expected[i].kernels);
    }
    ep_facts_destroy(f);
    ep_trace_destroy(t);
}

static void test_small(void **state) {
    (void)state;
    check_small("small/backward_flows.json");
    check_small("small/backward_sequence.json");
}

/* Ids beyond 2^53 are no doubles: both ends keep them, and so does a trace that is written again. */
static void test_flow_ids(void **state) {
    (void)state;
    char path[] = "/tmp/epilogue-test-flows-XXXXXX.json";
    assert_true(mkstemps(path, 5) >= 0);
    ep_error err;
    ep_trace *t = read("small/backward_flows.json", true), *again = NULL;
    assert_int_equal(ep_trace_write(t, path, &err), EP_OK);
    assert_int_equal(ep_trace_read(path, NULL, &err, &again), EP_OK);
    const ep_trace *both[] = {t, again};
    for (int k = 0; k < 2; k++) {
        int starts = 0, ends = 0;
        for (size_t i = 0; i < both[k]->count; i++) {
            ep_event e;
            assert_int_equal(ep_trace_event(both[k], i, &e), EP_OK);
            if (strcmp(e.category, "fwdbwd") != 0) continue;
            starts += e.phase == 's' && e.flow_id > 9007199254740992u && e.flow_id % 2;
            ends += e.phase == 'f' && e.flow_id > 9007199254740992u && e.flow_id % 2;
        }
        assert_int_equal(starts, 2);
        assert_int_equal(ends, 2);
    }
    remove(path);
    ep_trace_destroy(t);
    ep_trace_destroy(again);
}

/* Where a trace has arrows and numbers, both say the same. */
static void check_agreement(const char *name, size_t least) {
    ep_error err;
    ep_links *arrows = NULL, *numbers = NULL;
    ep_trace *t = read(name, false);
    size_t n = t->sequence_count, linked = 0;
    t->sequence_count = 0;
    assert_int_equal(ep_links_create(t, &err, &arrows), EP_OK);
    t->sequence_count = n;
    for (size_t i = 0; i < t->count; i++)
        if (t->kind[i] == EP_EVENT_FLOW) t->kind[i] = EP_EVENT_OTHER;
    assert_int_equal(ep_links_create(t, &err, &numbers), EP_OK);
    for (uint32_t i = 0; i < t->count; i++) {
        if (t->kind[i] != EP_EVENT_OP || ep_links_forward(arrows, i) == EP_NO_INDEX) continue;
        if (ep_links_forward(arrows, i) != ep_links_forward(numbers, i))
            fail_msg("%s: %s belongs to %s by its arrow and to %s by its number", name, name_of(t, i),
                     name_of(t, ep_links_forward(arrows, i)), name_of(t, ep_links_forward(numbers, i)));
        linked++;
    }
    assert_true(linked >= least);
    ep_links_destroy(arrows);
    ep_links_destroy(numbers);
    ep_trace_destroy(t);
}

static void test_agreement(void **state) {
    (void)state;
    check_agreement("shared/torchrec-v100-4gpu-rank0.json", 228);
    check_agreement("shared/train-v100-ns.json.gz", 1810);
}

/* A file of 2021: numbers, no arrows, no spans of the engine. */
static void test_old(void **state) {
    (void)state;
    ep_error err;
    ep_links *l = NULL;
    ep_trace *t = read("shared/resnet50-v100-2021.json.gz", false);
    assert_int_equal(ep_links_create(t, &err, &l), EP_OK);
    assert_string_equal(forward_of(t, l, "NllLossBackward"), "aten::nll_loss_forward");
    assert_string_equal(forward_of(t, l, "CudnnConvolutionBackward"), "aten::cudnn_convolution");
    ep_links_destroy(l);
    ep_trace_destroy(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_small), cmocka_unit_test(test_flow_ids),
                                       cmocka_unit_test(test_agreement), cmocka_unit_test(test_old)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
