/* The summary table: sums by op and kernel, host time without kernels, order, width, the word PARTIAL. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <epilogue/profile.h>

#include "model/trace/trace.h"

static uint32_t text(ep_trace *t, const char *s) {
    return ep_trace_string(t, s, strlen(s));
}

static void add(ep_trace *t, ep_event_kind kind, const char *name, uint32_t lane, int64_t us, int64_t dur_us,
                uint64_t correlation) {
    uint32_t i = ep_trace_append(t);
    t->kind[i] = (uint8_t)kind;
    t->phase[i] = 'X';
    t->name[i] = text(t, name);
    t->category[i] = text(t, "x");
    t->lane[i] = lane;
    t->ts[i] = us * 1000;
    t->dur[i] = dur_us * 1000;
    assert_true(ep_trace_set_correlation(t, i, correlation));
}

/* linear (100 us) > addmm (90) > launch (80) with a kernel of 70; then gelu (30) > launch (20) with a kernel of 20;
 * then a view inside no op. */
static ep_trace *sample(void) {
    ep_trace *t = ep_trace_create();
    uint32_t host = ep_trace_lane(t, text(t, "1"), text(t, "2"), -1, -1);
    uint32_t device = ep_trace_lane(t, text(t, "0"), text(t, "0"), 0, 0);
    t->is_ours = true;
    add(t, EP_EVENT_OP, "linear", host, 0, 100, 0);
    add(t, EP_EVENT_OP, "addmm", host, 5, 90, 0);
    add(t, EP_EVENT_RUNTIME, "epLaunchKernel", host, 10, 80, 7);
    add(t, EP_EVENT_OP, "gelu", host, 200, 30, 0);
    add(t, EP_EVENT_RUNTIME, "epLaunchKernel", host, 205, 20, 8);
    add(t, EP_EVENT_OP, "t", host, 300, 1, 0);
    add(t, EP_EVENT_KERNEL, "ep_f32_gemm_portable", device, 15, 70, 7);
    ep_event_info info = t->infos[0];
    info.flops = 7000000;
    info.bytes_read = 1000;
    info.bytes_written = 500;
    t->info[t->count - 1] = ep_trace_info(t, &info);
    add(t, EP_EVENT_KERNEL, "ep_f32_gelu_tanh_a_name_that_is_longer_than_its_column_is_wide", device, 205, 20, 8);
    return t;
}

static char *table(const ep_trace *t, ep_table_sort sort, int width) {
    char *s = NULL;
    ep_error err = {0};
    assert_int_equal(ep_profile_table(t, sort, width, &err, &s), EP_OK);
    return s;
}

static const char *line(const char *all, const char *start, char out[256]) {
    for (const char *p = all; p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL) {
        if (strncmp(p, start, strlen(start)) != 0) continue;
        snprintf(out, 256, "%.*s", (int)strcspn(p, "\n"), p);
        return out;
    }
    fail_msg("no line '%s' in\n%s", start, all);
    return "";
}

static void test_sums(void **state) {
    (void)state;
    ep_trace *t = sample();
    char *s = table(t, EP_SORT_DEVICE, 80), row[256];
    assert_string_equal(line(s, "linear ", row),
                        "linear                      1       10.0       30.0       70.0       1    1.5 K");
    assert_string_equal(line(s, "addmm ", row),
                        "addmm                       1       20.0       20.0       70.0       1    1.5 K");
    assert_string_equal(line(s, "gelu ", row),
                        "gelu                        1       10.0       10.0       20.0       1        0");
    assert_string_equal(line(s, "t ", row),
                        "t                           1        1.0        1.0        0.0       0        0");
    assert_string_equal(line(s, "ep_f32_gemm", row),
                        "ep_f32_gemm_portable                         1      70.0     70.0  77.8% 100.0 G");
    assert_non_null(strstr(s, "Host 41.0, device 90.0."));
    assert_null(strstr(s, "PARTIAL"));
    for (const char *p = s; *p; p += strcspn(p, "\n") + 1) assert_true(strcspn(p, "\n") <= 80);
    free(s);
    s = table(t, EP_SORT_DEVICE, 120);
    assert_non_null(strstr(s, "ep_f32_gelu_tanh_a_name_that_is_longer_than_its_column_is_wide"));
    free(s);
    ep_trace_destroy(t);
}

static void first_is(const ep_trace *t, ep_table_sort sort, const char *first) {
    char *s = table(t, sort, 80);
    const char *second_line = strchr(s, '\n') + 1;
    if (strncmp(second_line, first, strlen(first)) != 0) fail_msg("sort %d: not %s first:\n%s", (int)sort, first, s);
    free(s);
}

static void test_order(void **state) {
    (void)state;
    ep_trace *t = sample();
    first_is(t, EP_SORT_NAME, "addmm ");
    first_is(t, EP_SORT_SELF_HOST, "addmm ");
    first_is(t, EP_SORT_TOTAL_HOST, "linear ");
    first_is(t, EP_SORT_BYTES, "addmm ");
    ep_trace_destroy(t);
}

static void test_partial(void **state) {
    (void)state;
    ep_trace *t = sample();
    t->dropped = 12;
    char *s = table(t, EP_SORT_CALLS, 0);
    assert_non_null(strstr(s, "PARTIAL: 12 events"));
    assert_null(strstr(s, "Device times are"));
    free(s);
    t->device_times = EP_TIMES_EVENTS;
    t->device_error_ns = 7300;
    s = table(t, EP_SORT_CALLS, 0);
    assert_non_null(strstr(s, "Device times are of events, within 7.3 of the host's clock.\n"));
    free(s);
    ep_trace_destroy(t);
    t = ep_trace_create();
    s = table(t, EP_SORT_CALLS, 0);
    assert_non_null(strstr(s, "Host 0.0, device 0.0"));
    free(s);
    ep_trace_destroy(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_partial),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
