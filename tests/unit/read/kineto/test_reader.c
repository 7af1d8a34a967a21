/* The reader over whole files: the fast parser equals the tolerant one, row by row; cuts; what is no trace. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "read/kineto/reader.h"

static ep_trace *read_path(const char *path, const ep_read_options *options, bool no_fast) {
    ep_error err = {0};
    ep_stream_in *stream;
    ep_trace *t = NULL;
    assert_int_equal(ep_stream_open(path, &err, &stream), EP_OK);
    if (kineto_read_stream(stream, path, options, no_fast, &err, &t) != EP_OK) fail_msg("%s: %s", path, err.message);
    ep_stream_close(stream);
    return t;
}

static void same_text(const ep_trace *a, uint32_t x, const ep_trace *b, uint32_t y) {
    assert_string_equal(ep_trace_text(a, x), ep_trace_text(b, y));
}

static void same_info(const ep_trace *a, const ep_event_info *x, const ep_trace *b, const ep_event_info *y) {
    same_text(a, x->input_dims, b, y->input_dims);
    same_text(a, x->input_types, b, y->input_types);
    same_text(a, x->input_strides, b, y->input_strides);
    same_text(a, x->concrete_inputs, b, y->concrete_inputs);
    same_text(a, x->detail, b, y->detail);
    same_text(a, x->extra, b, y->extra);
    assert_memory_equal(x->grid, y->grid, sizeof x->grid);
    assert_memory_equal(x->block, y->block, sizeof x->block);
    assert_int_equal(x->registers, y->registers);
    assert_int_equal(x->shared_bytes, y->shared_bytes);
    assert_int_equal(x->bytes, y->bytes);
    assert_int_equal(x->graph_id, y->graph_id);
}

static void same_trace(const ep_trace *a, const ep_trace *b) {
    assert_int_equal(a->count, b->count);
    assert_int_equal(a->folded, b->folded);
    assert_int_equal(a->skipped, b->skipped);
    assert_int_equal(a->base_ns, b->base_ns);
    assert_int_equal(a->lane_count, b->lane_count);
    assert_int_equal(a->device_count, b->device_count);
    same_text(a, a->schema, b, b->schema);
    for (size_t i = 0; i < a->lane_count; i++) {
        assert_int_equal(a->lanes[i].device, b->lanes[i].device);
        assert_int_equal(a->lanes[i].stream, b->lanes[i].stream);
        same_text(a, a->lanes[i].name, b, b->lanes[i].name);
        same_text(a, a->lanes[i].process_name, b, b->lanes[i].process_name);
    }
    for (size_t i = 0; i < a->count; i++) {
        ep_event x, y;
        assert_int_equal(ep_trace_event(a, i, &x), EP_OK);
        assert_int_equal(ep_trace_event(b, i, &y), EP_OK);
        assert_int_equal(x.kind, y.kind);
        assert_int_equal(x.phase, y.phase);
        assert_int_equal(x.ts_ns, y.ts_ns);
        assert_int_equal(x.dur_ns, y.dur_ns);
        assert_int_equal(x.correlation, y.correlation);
        assert_int_equal(x.external_id, y.external_id);
        assert_int_equal(x.flow_id, y.flow_id);
        assert_string_equal(x.name, y.name);
        assert_string_equal(x.category, y.category);
        assert_string_equal(x.pid, y.pid);
        assert_string_equal(x.tid, y.tid);
        assert_int_equal(x.args == NULL, y.args == NULL);
        same_info(a, &a->infos[a->info[i]], b, &b->infos[b->info[i]]);
    }
}

static void each_file(const char *folder, void (*check)(const char *path)) {
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    int files = 0;
    for (struct dirent *e; (e = readdir(dir));) {
        if (!strstr(e->d_name, ".json")) continue;
        char path[1024];
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        check(path);
        files++;
    }
    closedir(dir);
    assert_true(files >= 5);
}

static void check_same(const char *path) {
    for (int args = 0; args < 2; args++) {
        const ep_read_options options = {.keep_args = args};
        ep_trace *fast = read_path(path, &options, false), *slow = read_path(path, &options, true);
        same_trace(fast, slow);
        assert_true(fast->complete);
        assert_int_equal(fast->repair_count, 0);
        ep_trace_destroy(fast);
        ep_trace_destroy(slow);
    }
}

static void test_fast_equals_slow(void **state) {
    (void)state;
    each_file(EP_TEST_DIR "/trace/shared", check_same);
    each_file(EP_TEST_DIR "/trace/shared/article", check_same);
}

typedef struct told {
    int calls;
    int64_t last;
} told;

static void count_progress(void *user, int64_t done, int64_t total) {
    told *p = user;
    assert_true(done >= p->last && done <= total);
    p->last = done;
    p->calls++;
}

/* Told now and then, and never backward: also where a step is wanted, which reads the file twice. */
static void test_progress(void **state) {
    (void)state;
    enum { EVENTS = 40000, LINE = 96 };
    char *json = malloc(EVENTS * LINE + 256), *p = json;
    assert_non_null(json);
    p += sprintf(p, "[{\"ph\":\"X\",\"cat\":\"user_annotation\",\"name\":\"ProfilerStep#3\",\"pid\":1,\"tid\":1,");
    p += sprintf(p, "\"ts\":0,\"dur\":9}");
    for (int i = 0; i < EVENTS; i++)
        p += sprintf(p, ",{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"a\",\"pid\":1,\"tid\":1,\"ts\":%d,\"dur\":1}", i);
    *p++ = ']';
    for (int cut = 0; cut < 2; cut++) {
        ep_error err;
        ep_trace *t = NULL;
        told seen = {0};
        ep_read_options o = {.use_step = cut, .step = 3, .progress = count_progress, .progress_user = &seen};
        assert_int_equal(ep_trace_read_memory(json, (size_t)(p - json), &o, &err, &t), EP_OK);
        assert_true(seen.calls >= 2 * (cut + 1) && seen.calls < 20 && seen.last > 0);
        ep_trace_destroy(t);
    }
    free(json);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_fast_equals_slow), cmocka_unit_test(test_progress)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
