/* Every fact of the shared traces against figures that were worked out independently: tests/trace/expect/, one line a
 * fact, fields parted by tabs, times in nanoseconds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "read/analyze/facts.h"

enum { MAX_FIELDS = 12 };

typedef struct line {
    char *field[MAX_FIELDS];
    int count;
} line;

static ep_trace *trace;
static ep_facts *facts;
static const char *file;

static int64_t num(const line *l, int i) {
    assert_true(i < l->count);
    return strtoll(l->field[i], NULL, 10);
}

static void equal(const line *l, int field, int64_t seen) {
    if (num(l, field) != seen)
        fail_msg("%s: %s: field %d is %s, seen %" PRId64, file, l->field[0], field, l->field[field], seen);
}

/* Names in the expectations may be cut. */
static bool same_name(const char *expected, const char *name) {
    size_t n = strlen(expected);
    return strcmp(expected, name) == 0 || (n >= 100 && strncmp(expected, name, n) == 0);
}

static const char *name_of(uint32_t row) {
    return ep_trace_text(trace, trace->name[row]);
}

static void check_events(const line *l) {
    equal(l, 1, facts->health.events);
}

/* Events that have no row of their own count for their category all the same. */
static void check_category(const line *l) {
    int64_t seen = 0;
    for (size_t i = 0; i < trace->count; i++)
        seen += strcmp(ep_trace_text(trace, trace->category[i]), l->field[2]) == 0;
    for (uint32_t k = 0; k < trace->folded_by_cap && k < trace->strings.count; k++)
        seen += strcmp(ep_trace_text(trace, k), l->field[2]) == 0 ? trace->folded_by[k] : 0;
    equal(l, 1, seen);
}

static void check_spans(const line *l) {
    equal(l, 1, facts->health.span_events);
}

static void check_negative(const line *l) {
    int64_t seen = 0;
    for (size_t i = 0; i < trace->repair_count; i++)
        if (strcmp(ep_trace_text(trace, trace->repairs[i].kind), "negative_dur") == 0) seen = trace->repairs[i].count;
    equal(l, 1, seen);
}

static void check_span(const line *l) {
    equal(l, 1, trace->base_ns + facts->span_start_ns);
    equal(l, 2, trace->base_ns + facts->span_end_ns);
    equal(l, 3, facts->span_end_ns - facts->span_start_ns);
}

static void check_work(const line *l) {
    int64_t seen[6] = {0};
    for (size_t i = 0; i < trace->count; i++) {
        if (!ep_event_is_device_work(trace->kind[i])) continue;
        int at = trace->kind[i] == EP_EVENT_KERNEL ? 0 : trace->kind[i] == EP_EVENT_MEMCPY ? 2 : 4;
        seen[at]++;
        seen[at + 1] += trace->dur[i];
    }
    for (int i = 0; i < 6; i++) equal(l, i + 1, seen[i]);
    equal(l, 1, (int64_t)facts->kernel_count);
    int64_t total = 0;
    for (size_t i = 0; i < facts->name_count; i++) total += facts->names[i].total_ns;
    equal(l, 2, total);
}

static void check_device_count(const line *l) {
    equal(l, 1, (int64_t)facts->device_count);
}

static void check_device(const line *l) {
    for (size_t d = 0; d < facts->device_count; d++) {
        const ep_device_fact *f = &facts->devices[d];
        if (f->id != num(l, 1)) continue;
        equal(l, 2, f->kernels + f->memcpys + f->memsets);
        equal(l, 3, f->kernels);
        equal(l, 4, f->busy_ns);
        equal(l, 6, f->span_ns);
        assert_true(f->busy_ns <= f->span_ns);
        return;
    }
    fail_msg("%s: no device %s", file, l->field[1]);
}

static void check_stream(const line *l) {
    int64_t seen = 0;
    for (size_t i = 0; i < trace->count; i++) {
        const ep_lane *lane = &trace->lanes[trace->lane[i]];
        seen += ep_event_is_device_work(trace->kind[i]) && lane->device == num(l, 1) && lane->stream == num(l, 2);
    }
    equal(l, 3, seen);
}

static void check_names(const line *l) {
    equal(l, 1, (int64_t)facts->name_count);
}

static void check_name(const line *l) {
    for (size_t i = 0; i < facts->name_count; i++)
        if (same_name(l->field[3], facts->names[i].name) && facts->names[i].count == num(l, 1) &&
            facts->names[i].total_ns == num(l, 2))
            return;
    fail_msg("%s: no kernel %s with %s in %s ns", file, l->field[3], l->field[1], l->field[2]);
}

static int by_value(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static void check_three(const line *l, int64_t *values, size_t n) {
    qsort(values, n, sizeof *values, by_value);
    assert_true(n > 0);
    equal(l, 1, values[0]);
    equal(l, 2, values[(n - 1) / 2]);
    equal(l, 3, values[n - 1]);
    free(values);
}

static void check_durations(const line *l) {
    int64_t *values = malloc(facts->kernel_count * sizeof *values);
    for (size_t k = 0; k < facts->kernel_count; k++) values[k] = trace->dur[facts->kernels[k].event];
    check_three(l, values, facts->kernel_count);
}

static void check_delays(const line *l) {
    int64_t *values = malloc(facts->kernel_count * sizeof *values);
    size_t n = 0;
    for (size_t k = 0; k < facts->kernel_count; k++) {
        const ep_kernel_fact *f = &facts->kernels[k];
        if (facts->links->launch[f->event] != EP_NO_INDEX)
            values[n++] = trace->ts[f->event] - trace->ts[facts->links->launch[f->event]];
    }
    check_three(l, values, n);
}

static void check_ops(const line *l) {
    int64_t count = 0, without = 0;
    for (size_t i = 0; i < trace->count; i++) {
        if (trace->kind[i] != EP_EVENT_OP || !ep_event_is_span(trace, i)) continue;
        count++;
        without += facts->op_kernels[i] == 0;
    }
    equal(l, 1, count);
    equal(l, 2, (int64_t)facts->op_count);
    equal(l, 3, without);
    int64_t views = 0, counted = 0;
    for (size_t i = 0; i < facts->op_count; i++) {
        views += facts->ops[i].views;
        counted += facts->ops[i].count;
    }
    assert_int_equal(counted, count);
    /* Without any device event, "launches nothing" is nothing one can know. */
    assert_int_equal(views, facts->health.device_recorded ? without : 0);
}

static void check_runtime(const line *l) {
    int64_t seen = 0;
    for (size_t i = 0; i < trace->count; i++) seen += trace->kind[i] == EP_EVENT_RUNTIME;
    equal(l, 1, seen);
}

static void check_launches(const line *l) {
    equal(l, 1, facts->health.launches);
    equal(l, 2, facts->health.memory_launches);
    equal(l, 3, facts->health.graph_launches);
}

static void check_launch_name(const line *l) {
    int64_t seen = 0;
    for (size_t i = 0; i < trace->count; i++)
        seen += trace->kind[i] == EP_EVENT_RUNTIME && strcmp(name_of((uint32_t)i), l->field[2]) == 0;
    equal(l, 1, seen);
}

static void check_health(const line *l) {
    equal(l, 1, facts->health.launches_without_kernel);
    equal(l, 2, facts->health.memory_launches_without_event);
    equal(l, 3, facts->health.kernels_without_launch);
    equal(l, 4, facts->health.kernels_before_launch);
}

static void check_most(const line *l) {
    int64_t most = 0;
    for (size_t i = 0; i < trace->count; i++) {
        int64_t kernels = 0;
        for (uint32_t w = 0, n = ep_links_work_count(facts->links, (uint32_t)i); w < n; w++)
            kernels += trace->kind[facts->links->work_list[facts->links->first_work[i] + w]] == EP_EVENT_KERNEL;
        if (kernels > most) most = kernels;
    }
    equal(l, 1, most);
}

static void check_owner(const line *l) {
    int64_t kernels = 0, ns = 0;
    const char *op = l->field[3];
    bool none = strcmp(op, "(no launch)") == 0, no_op = !none && op[0] == '(';
    for (size_t k = 0; k < facts->kernel_count; k++) {
        const ep_kernel_fact *f = &facts->kernels[k];
        bool is = none    ? facts->links->launch[f->event] == EP_NO_INDEX
                  : no_op ? facts->links->launch[f->event] != EP_NO_INDEX &&
                                ep_links_owner(facts->links, f->event) == EP_NO_INDEX
                          : ep_links_owner(facts->links, f->event) != EP_NO_INDEX &&
                                strcmp(name_of(ep_links_owner(facts->links, f->event)), op) == 0;
        kernels += is;
        ns += is ? trace->dur[f->event] : 0;
    }
    equal(l, 1, kernels);
    equal(l, 2, ns);
    for (size_t i = 0; i < facts->op_count; i++)
        if (strcmp(facts->ops[i].name, op) == 0) equal(l, 1, facts->ops[i].self_kernels);
}

static void check_sample(const line *l) {
    for (size_t k = 0; k < facts->kernel_count; k++) {
        const ep_kernel_fact *f = &facts->kernels[k];
        if (trace->ts[f->event] - facts->span_start_ns != num(l, 1) || trace->dur[f->event] != num(l, 2) ||
            (int64_t)ep_trace_correlation(trace, f->event) != num(l, 3) || !same_name(l->field[6], name_of(f->event)))
            continue;
        if (facts->links->launch[f->event] == EP_NO_INDEX) return;
        assert_string_equal(name_of(facts->links->launch[f->event]), l->field[4]);
        if (ep_links_owner(facts->links, f->event) != EP_NO_INDEX)
            assert_string_equal(name_of(ep_links_owner(facts->links, f->event)), l->field[5]);
        return;
    }
    fail_msg("%s: no kernel %s at %s", file, l->field[6], l->field[1]);
}

static bool is_top(uint32_t row) {
    for (uint32_t up = facts->links->parent[row]; up != EP_NO_INDEX; up = facts->links->parent[up])
        if (trace->kind[up] == EP_EVENT_OP) return false;
    return true;
}

/* Straight from the definition, without the facts' sums. */
static bool launches_device_work(uint32_t op) {
    for (size_t i = 0; i < trace->count; i++)
        if (ep_links_has_work(facts->links, (uint32_t)i) && trace->lane[i] == trace->lane[op] &&
            trace->ts[i] >= trace->ts[op] && trace->ts[i] < trace->ts[op] + trace->dur[op])
            return true;
    return false;
}

/* Top-level ops: all, without a kernel, without device work; of one name or of all. */
static void check_top(const line *l) {
    int64_t count = 0, ns = 0;
    bool all = strcmp(l->field[0], "top_ops") == 0, kernel = strstr(l->field[0], "_kernel") != NULL;
    const char *name = strstr(l->field[0], "_name") ? l->field[3] : NULL;
    for (uint32_t i = 0; i < trace->count; i++) {
        if (trace->kind[i] != EP_EVENT_OP || (name && strcmp(name_of(i), name) != 0) || !is_top(i)) continue;
        if (!all && (facts->op_kernels[i] || (!kernel && launches_device_work(i)))) continue;
        count++;
        ns += trace->dur[i];
    }
    equal(l, 1, count);
    equal(l, 2, ns);
}

static void check_region(const line *l) {
    int64_t seen[6] = {0};
    for (size_t r = 0; r < facts->region_count; r++) {
        const ep_region_fact *f = &facts->regions[r];
        if (strcmp(f->name, l->field[7]) != 0) continue;
        for (uint32_t i = f->first; i < f->first + f->count; i++) {
            const ep_region_instance *in = &facts->instances[i];
            const int64_t one[6] = {
                1, in->cpu_ns, in->kernels, in->kernel_ns, in->kernels_any_thread, in->kernel_ns_any_thread};
            for (int k = 0; k < 6; k++) seen[k] += one[k];
            if (i > f->first) assert_true(trace->ts[in->event] >= trace->ts[in[-1].event]);
        }
    }
    for (int k = 0; k < 6; k++) equal(l, k + 1, seen[k]);
}

static void check_instance(const line *l) {
    for (size_t i = 0; i < facts->instance_count; i++) {
        const ep_region_instance *in = &facts->instances[i];
        if (trace->ts[in->event] - facts->span_start_ns != num(l, 1) || in->cpu_ns != num(l, 2) ||
            strcmp(name_of(in->event), l->field[7]) != 0)
            continue;
        equal(l, 3, in->kernels);
        equal(l, 4, in->kernel_ns);
        equal(l, 5, in->kernels_any_thread);
        equal(l, 6, in->kernel_ns_any_thread);
        return;
    }
    fail_msg("%s: no instance of %s at %s", file, l->field[7], l->field[1]);
}

static void check_instances(const line *l) {
    equal(l, 1, (int64_t)facts->instance_count);
}

static void check_crossing(const line *l) {
    equal(l, 1, facts->links->mended_nesting);
}

static const struct {
    const char *key;
    void (*check)(const line *l);
} checks[] = {
    {"events", check_events},
    {"category", check_category},
    {"span_events", check_spans},
    {"negative_dur", check_negative},
    {"span", check_span},
    {"work", check_work},
    {"devices", check_device_count},
    {"device", check_device},
    {"stream", check_stream},
    {"kernel_names", check_names},
    {"kernel_name", check_name},
    {"kernel_dur", check_durations},
    {"delay", check_delays},
    {"ops", check_ops},
    {"runtime", check_runtime},
    {"launches", check_launches},
    {"launch_name", check_launch_name},
    {"health", check_health},
    {"most_under_one", check_most},
    {"owner", check_owner},
    {"sample", check_sample},
    {"top_ops", check_top},
    {"top_level_without_kernel", check_top},
    {"top_level_without_kernel_name", check_top},
    {"top_level_without_device_work", check_top},
    {"top_level_without_device_work_name", check_top},
    {"region", check_region},
    {"instance", check_instance},
    {"instances", check_instances},
    {"crossing", check_crossing},
};

static void load(const char *where) {
    char path[1024];
    ep_error err;
    ep_facts_destroy(facts);
    ep_trace_destroy(trace);
    facts = NULL;
    trace = NULL;
    snprintf(path, sizeof path, "%s/trace/%s", EP_TEST_DIR, where);
    if (ep_trace_read(path, NULL, &err, &trace) != EP_OK) fail_msg("%s: %s", path, err.message);
    if (ep_facts_create(trace, &err, &facts) != EP_OK) fail_msg("%s: %s", path, err.message);
}

static void check_line(const line *l) {
    if (strcmp(l->field[0], "trace") == 0) {
        load(l->field[1]);
        return;
    }
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        if (strcmp(checks[i].key, l->field[0]) != 0) continue;
        checks[i].check(l);
        return;
    }
    fail_msg("%s: no check for %s", file, l->field[0]);
}

static void check_file(const char *path) {
    static char text[1 << 14];
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(text, sizeof text, f)) {
        line l = {.count = 0};
        text[strcspn(text, "\n")] = 0;
        for (char *p = text; p && l.count < MAX_FIELDS;) {
            l.field[l.count++] = p;
            p = strchr(p, '\t');
            if (p) *p++ = 0;
        }
        check_line(&l);
    }
    fclose(f);
}

static void test_expected(void **state) {
    (void)state;
    static const char folder[] = EP_TEST_DIR "/trace/expect";
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    int files = 0;
    for (struct dirent *e; (e = readdir(dir));) {
        if (!strstr(e->d_name, ".expect")) continue;
        char path[1024];
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        file = e->d_name;
        check_file(path);
        files++;
    }
    closedir(dir);
    assert_true(files >= 18);
    ep_facts_destroy(facts);
    ep_trace_destroy(trace);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_expected)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
