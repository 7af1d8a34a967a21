/* How a host backend passes the probe around a kernel: a LAUNCH span, and one kernel record with its times.
 *     ep_launch l = ep_launch_begin(name);
 *     ... the kernel ...
 *     ep_launch_end(&l, flops, bytes_read, bytes_written);
 * Off, it costs one load and one branch at each end. Where the work takes time to tell, ask l.probe first. */
#ifndef EP_RUN_LAUNCH_H
#define EP_RUN_LAUNCH_H

#include "base/clock.h"
#include "base/probe.h"

typedef struct ep_launch {
    const ep_probe *probe; /* NULL: nothing is recorded */
    const char *name;
    uint64_t correlation;
    int64_t start;
} ep_launch;

static inline ep_launch ep_launch_begin(const char *name) {
    ep_launch l = {ep_probe_get(), name, 0, 0};
    if (!__builtin_expect(l.probe != NULL, 0)) return l;
    l.correlation = ep_probe_correlation();
    if (!l.probe->launch) {
        ep_probe_span span = {.kind = EP_PROBE_LAUNCH, .name = "launch", .correlation = l.correlation};
        l.probe->begin(l.probe->self, &span);
    }
    l.start = ep_clock_ticks();
    return l;
}

static inline void ep_launch_end(const ep_launch *l, int64_t flops, int64_t bytes_read, int64_t bytes_written) {
    if (!__builtin_expect(l->probe != NULL, 0)) return;
    ep_probe_kernel kernel = {.name = l->name,
                              .what = "kernel",
                              .correlation = l->correlation,
                              .start = l->start,
                              .end = ep_clock_ticks(),
                              .flops = flops,
                              .bytes_read = bytes_read,
                              .bytes_written = bytes_written,
                              .source = EP_SOURCE_CLOCK};
    if (l->probe->launch) {
        l->probe->launch(l->probe->self, &kernel);
        return;
    }
    l->probe->kernel(l->probe->self, &kernel);
    l->probe->end(l->probe->self);
}

#endif
