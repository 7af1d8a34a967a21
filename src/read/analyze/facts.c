/* The facts of one trace, made once in the order below. */
#include <stdlib.h>
#include <string.h>

#include "facts_parts.h"

/* The profiler's own rows are no part of what it watched. */
static void find_span(ep_facts *f) {
    const ep_trace *t = f->trace;
    bool any = false;
    for (size_t i = 0; i < t->count; i++) {
        if (!ep_event_is_span(t, i) || t->kind[i] == EP_EVENT_PROFILER || facts_impossible(t, i)) continue;
        int64_t end = t->ts[i] + t->dur[i];
        if (!any || t->ts[i] < f->span_start_ns) f->span_start_ns = t->ts[i];
        if (!any || end > f->span_end_ns) f->span_end_ns = end;
        any = true;
    }
}

bool facts_impossible(const ep_trace *t, size_t row) {
    /* A kernel at the origin of an absolute clock, decades before the rest: its times were never filled in. Less than a
     * day off, and the trace may simply count from zero. */
    static const int64_t day = (int64_t)86400 * 1000000000;
    return ep_event_is_device_work(t->kind[row]) && t->dur[row] == 0 && t->ts[row] < -day;
}

static void add_launch(const ep_facts *f, uint32_t call, launch_sum *s) {
    const ep_trace *t = f->trace;
    s->launches += facts_launches(f, call);
    for (uint32_t w = 0, n = ep_links_work_count(f->links, call); w < n; w++) {
        uint32_t row = f->links->work_list[f->links->first_work[call] + w];
        s->device_ns += t->dur[row];
        if (t->kind[row] == EP_EVENT_KERNEL) s->kernel_ns += t->dur[row];
        s->kernels += t->kind[row] == EP_EVENT_KERNEL;
        s->memcpys += t->kind[row] == EP_EVENT_MEMCPY;
        s->memsets += t->kind[row] == EP_EVENT_MEMSET;
    }
}

void facts_sum_launches(const ep_facts *f, const uint32_t *rows, size_t n, launch_sum *sums) {
    launch_sum s = {0};
    for (size_t k = 0; k <= n; k++) {
        if (k % LAUNCH_BLOCK == 0) sums[k / LAUNCH_BLOCK] = s;
        if (k < n) add_launch(f, rows[k], &s);
    }
}

/* The first launch of a time not before ts, looked for in widening steps from `near`. */
static size_t lower_bound(const ep_trace *t, const uint32_t *rows, size_t n, int64_t ts, size_t near) {
    size_t lo = near < n ? near : n, hi = lo, step = 1;
    if (lo < n && t->ts[rows[lo]] < ts) {
        while (hi < n && t->ts[rows[hi]] < ts) {
            lo = hi + 1;
            hi = n - hi > step ? hi + step : n;
            step *= 2;
        }
    } else {
        while (lo > 0 && t->ts[rows[lo - 1]] >= ts) {
            hi = lo - 1;
            lo = lo > step ? lo - step : 0;
            step *= 2;
        }
    }
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (t->ts[rows[mid]] < ts)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* The sum over the launches before number k. */
static launch_sum sum_before(const ep_facts *f, const uint32_t *rows, const launch_sum *sums, size_t k) {
    launch_sum s = sums[k / LAUNCH_BLOCK];
    for (size_t i = k / LAUNCH_BLOCK * LAUNCH_BLOCK; i < k; i++) add_launch(f, rows[i], &s);
    return s;
}

launch_sum facts_sum_between(const ep_facts *f, const uint32_t *rows, const launch_sum *sums, size_t n, int64_t from,
                             int64_t to, size_t *near) {
    size_t first = lower_bound(f->trace, rows, n, from, *near), behind = lower_bound(f->trace, rows, n, to, first);
    *near = first;
    if (first == behind) return (launch_sum){0};
    launch_sum a = sum_before(f, rows, sums, first), b = sum_before(f, rows, sums, behind);
    return (launch_sum){b.device_ns - a.device_ns, b.kernel_ns - a.kernel_ns, b.kernels - a.kernels,
                        b.memcpys - a.memcpys,     b.memsets - a.memsets,     b.launches - a.launches};
}

bool facts_launches(const ep_facts *f, uint32_t call) {
    uint8_t *known = &f->launch_names[f->trace->name[call]];
    if (!*known) *known = ep_runtime_is_launch(ep_trace_text(f->trace, f->trace->name[call])) ? 2 : 1;
    return *known == 2;
}

bool facts_is_call(const ep_facts *f, uint32_t row) {
    return f->trace->kind[row] == EP_EVENT_RUNTIME && (ep_links_has_work(f->links, row) || facts_launches(f, row));
}

uint32_t ep_facts_op_around(const ep_links *l, const uint32_t *up, uint32_t row) {
    const ep_trace *t = l->trace;
    uint32_t parent = l->parent[row];
    if (parent == EP_NO_INDEX) return EP_NO_INDEX;
    uint32_t op = t->kind[parent] == EP_EVENT_OP ? parent : up[parent];
    int64_t at = t->ts[row] - (t->dur[row] == 0); /* of no length at an op's very end: in it */
    while (op != EP_NO_INDEX && t->ts[op] + t->dur[op] <= at) op = up[op];
    return op;
}

ep_status ep_facts_create(const ep_trace *trace, ep_error *err, ep_facts **out) {
    if (!trace || !out) return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "trace and result must not be NULL");
    ep_facts *f = calloc(1, sizeof *f);
    if (!f) return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory for facts");
    f->trace = trace;
    ep_status status = ep_links_create(trace, err, &f->links);
    if (status == EP_OK) {
        f->launch_names = calloc(trace->strings.count + 1, 1);
        find_span(f);
        if (!f->launch_names || !facts_kernels(f) || !facts_names(f) || !facts_devices(f) || !facts_health(f) ||
            !facts_ops(f) || !facts_regions(f))
            status = ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory for the facts of %zu events", trace->count);
    }
    if (status == EP_OK)
        *out = f;
    else
        ep_facts_destroy(f);
    return status;
}

void ep_facts_destroy(ep_facts *f) {
    if (!f) return;
    ep_links_destroy(f->links);
    free(f->kernels);
    free(f->names);
    free(f->devices);
    free(f->ops);
    free(f->regions);
    free(f->instances);
    free(f->launch_names);
    free(f);
}
