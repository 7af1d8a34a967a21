/* What recording costs on this machine, measured now. */
#include "recorder.h"

#include "base/clock.h"
#include "model/trace/trace.h"

enum { ROUNDS = 20, EVENTS = 500 };

static double least(double a, double b) {
    return b < a ? b : a;
}

static double elapsed_ns(int64_t from) {
    return (double)(ep_clock_to_ns(ep_clock_ticks()) - ep_clock_to_ns(from)) / EVENTS;
}

static double spans(void) {
    static const int64_t sizes[2] = {64, 768}, strides[2] = {768, 1};
    const ep_probe_operand operands[2] = {{"bf16", 2, sizes, strides}, {"bf16", 2, sizes, strides}};
    int64_t from = ep_clock_ticks();
    for (int i = 0; i < EVENTS; i++) {
        const ep_probe *p = ep_probe_get();
        if (!p) continue;
        p->begin(p->self, &(ep_probe_span){.kind = EP_PROBE_OP, .name = "x", .operand_count = 2, .operands = operands});
        p->end(p->self);
    }
    return elapsed_ns(from);
}

/* As a backend does it: two readings of the clock around the work, then the record. */
static double kernels(void) {
    int64_t from = ep_clock_ticks();
    for (int i = 0; i < EVENTS; i++) {
        const ep_probe *p = ep_probe_get();
        if (!p) continue;
        ep_probe_kernel k = {.name = "x", .what = "kernel", .correlation = 1, .flops = 1};
        k.start = ep_clock_ticks();
        k.end = ep_clock_ticks();
        p->kernel(p->self, &k);
    }
    return elapsed_ns(from);
}

ep_status ep_profile_measure_cost(ep_error *err, ep_profile_cost *out) {
    ep_profile_cost cost = {.ns_per_span = 1e9, .ns_per_kernel = 1e9, .ns_off = 1e9};
    ep_profile_options options = {.events_per_thread = (size_t)ROUNDS * EVENTS * 8};
    ep_profile *p;
    if (!out) return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "the result must not be NULL");
    EP_TRY(ep_profile_start(&options, err, &p));
    for (int i = 0; i < ROUNDS; i++) {
        cost.ns_per_span = least(cost.ns_per_span, spans());
        cost.ns_per_kernel = least(cost.ns_per_kernel, kernels());
    }
    EP_TRY(ep_profile_stop(p, err, NULL));
    for (int i = 0; i < ROUNDS; i++) cost.ns_off = least(cost.ns_off, spans());
    cost.tsc = ep_clock_tsc;
    *out = cost;
    return EP_OK;
}

void ep_profile_recorded(const ep_trace *trace, int64_t *dropped, double *ns_per_event) {
    if (dropped) *dropped = trace->dropped;
    if (ns_per_event) *ns_per_event = trace->own_ns_per_event;
}
