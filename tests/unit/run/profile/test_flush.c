/* What a device still holds when a phase of the schedule ends is asked for while that phase is on: kernels of the last
 * recorded step are in the trace, those of the warm-up are not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <epilogue/profile.h>
#include <epilogue/trace.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/probe.h"

static uint64_t held[64]; /* launches whose kernels the device has finished and not told of */
static int pending;

static void flush(void) {
    const ep_probe *p = ep_probe_get();
    while (pending > 0) {
        uint64_t correlation = held[--pending];
        if (!p) continue;
        int64_t now = ep_clock_ns();
        ep_probe_kernel k = {.name = p->name(p->self, "late_kernel"),
                             .what = "kernel",
                             .correlation = correlation,
                             .start = now - 10,
                             .end = now,
                             .flops = -1,
                             .bytes_read = -1,
                             .bytes_written = -1,
                             .source = EP_SOURCE_CUPTI};
        p->kernel(p->self, &k);
    }
}

static void launch(void) {
    const ep_probe *p = ep_probe_get();
    if (!p) return;
    ep_probe_span span = {.kind = EP_PROBE_LAUNCH, .name = "launch", .correlation = ep_probe_correlation()};
    p->begin(p->self, &span);
    p->end(p->self);
    held[pending++] = span.correlation;
}

static int late_kernels(int wait, int warmup, int active, int repeat, int steps) {
    ep_error e;
    ep_profile *p;
    ep_trace *t;
    ep_profile_options o = {.wait = wait, .warmup = warmup, .active = active, .repeat = repeat};
    int found = 0;
    pending = 0;
    assert_int_equal(ep_profile_start(&o, &e, &p), EP_OK);
    for (int i = 0; i < steps; i++) {
        ep_region_begin("step");
        for (int k = 0; k < 2; k++) launch();
        ep_region_end();
        ep_profile_step(p);
    }
    assert_int_equal(ep_profile_stop(p, &e, &t), EP_OK);
    for (size_t i = 0; i < ep_trace_count(t); i++) {
        ep_event ev;
        ep_trace_event(t, i, &ev);
        found += ev.kind == EP_EVENT_KERNEL;
    }
    ep_trace_destroy(t);
    return found;
}

static void each_phase_gets_its_own(void **state) {
    (void)state;
    atomic_store(&ep_probe_flush, flush);
    assert_int_equal(late_kernels(0, 2, 5, 1, 7), 10);
    assert_int_equal(late_kernels(1, 2, 3, 2, 12), 12);
    assert_int_equal(late_kernels(0, 0, 4, 1, 4), 8);
    assert_int_equal(late_kernels(0, 3, 1, 1, 9), 2);
    atomic_store(&ep_probe_flush, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_phase_gets_its_own)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
