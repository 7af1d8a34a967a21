/* Counts and times of a scope; every figure as docs/trace.md defines it, unknown where the trace can't tell. */
#include "verdict.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "read/analyze/facts_parts.h"

static int64_t end_of(const ep_trace *t, uint32_t row) {
    return t->ts[row] + (t->dur[row] > 0 ? t->dur[row] : 0);
}

static const char *name_of(const ep_subject *u, uint32_t row) {
    return ep_trace_text(u->trace, u->trace->name[row]);
}

static void unknown(ep_seen *out, const char *why) {
    out->value = NAN;
    snprintf(out->why, sizeof out->why, "%s", why);
}

/* The device side of a scope is not all there: true, with the reason. */
static bool partial(const ep_subject *u, const ep_scope *s, ep_seen *out) {
    if (!ep_subject_device_known(u)) {
        unknown(out, u->facts->health.launches ? "no device events were recorded, though kernels were launched"
                                               : "no device events were recorded");
        return true;
    }
    int64_t lost = 0, launches = 0;
    for (size_t i = 0; i < s->calls.count; i++) {
        uint32_t row = s->calls.rows[i];
        if (!ep_runtime_is_launch(name_of(u, row))) continue;
        launches++;
        if (!ep_links_has_work(u->facts->links, row)) lost++;
    }
    if (lost == 0) return false;
    unknown(out, "");
    snprintf(out->why, sizeof out->why, "%lld of %lld launches here have no kernel in the trace: the record is partial",
             (long long)lost, (long long)launches);
    return true;
}

/* Counts rows that pass; the witness is the first beyond `allowed`, else the first. */
static void count_rows(ep_seen *out, uint32_t row, double allowed) {
    out->value++;
    if (out->witness == EP_NO_INDEX || (allowed >= 0 && out->value == floor(allowed) + 1)) out->witness = row;
}

static bool is_copy(const ep_subject *u, uint32_t row) {
    if (u->trace->kind[row] == EP_EVENT_MEMCPY) return true;
    uint32_t k = u->kernel_at[row];
    return k != EP_NO_INDEX && u->facts->names[u->facts->kernels[k].name_id].cls == EP_CLASS_COPY;
}

/* The time of a kernel that ran inside its own launch call, on the calling thread: a CPU's. */
static int64_t inside_launch_ns(const ep_subject *u, uint32_t row) {
    const ep_trace *t = u->trace;
    uint32_t launch = u->facts->links->launch[row];
    if (launch == EP_NO_INDEX || t->ts[row] < t->ts[launch] || end_of(t, row) > end_of(t, launch)) return 0;
    return t->dur[row];
}

/* What one piece of device work adds: 1 or nothing, or its time. */
static int64_t work_value(const ep_subject *u, ep_matcher *m, uint32_t row) {
    uint8_t kind = u->trace->kind[row];
    int64_t ns = u->trace->dur[row];
    switch (m->term->metric) {
    case EP_METRIC_KERNELS: return kind == EP_EVENT_KERNEL && ep_matcher_kernel(u, m, row);
    case EP_METRIC_COPIES: return is_copy(u, row);
    case EP_METRIC_MEMCPYS: return kind == EP_EVENT_MEMCPY;
    case EP_METRIC_MEMSETS: return kind == EP_EVENT_MEMSET;
    case EP_METRIC_DEVICE_TIME: return ns;
    case EP_METRIC_KERNEL_TIME: return kind == EP_EVENT_KERNEL && ep_matcher_kernel(u, m, row) ? ns : 0;
    case EP_METRIC_OP_DEVICE_TIME: return ep_matcher_within(u, m, row) ? ns : 0;
    case EP_METRIC_DISPATCH: return inside_launch_ns(u, row);
    default: return 0;
    }
}

static bool op_counts(const ep_subject *u, ep_matcher *m, uint32_t row) {
    if (m->term->metric == EP_METRIC_VIEWS && u->facts->op_kernels[row] != 0) return false;
    return ep_matcher_op(u, m, row);
}

int64_t ep_measure_row(const ep_subject *u, ep_matcher *m, uint32_t row) {
    ep_metric metric = m->term->metric;
    if (u->trace->kind[row] == EP_EVENT_OP) {
        bool of_ops = metric == EP_METRIC_OPS || metric == EP_METRIC_VIEWS || metric == EP_METRIC_OP_COUNT;
        if (!of_ops && metric != EP_METRIC_OP_TIME) return 0;
        if (!op_counts(u, m, row)) return 0;
        return of_ops ? 1 : u->trace->dur[row];
    }
    if (u->trace->kind[row] != EP_EVENT_RUNTIME) return 0;
    if (metric == EP_METRIC_LAUNCHES) return ep_runtime_is_launch(name_of(u, row));
    const ep_links *l = u->facts->links;
    int64_t sum = 0;
    for (uint32_t i = 0, n = ep_links_work_count(l, row); i < n; i++)
        sum += work_value(u, m, l->work_list[l->first_work[row] + i]);
    return sum;
}

static void count_work(const ep_subject *u, const ep_scope *s, ep_matcher *m, double allowed, ep_seen *out) {
    for (size_t i = 0; i < s->work.count; i++)
        if (work_value(u, m, s->work.rows[i])) count_rows(out, s->work.rows[i], allowed);
}

/* A trace without any device event answers "kernels > 0" all the same: that is what the claim is for. */
static void measure_work_count(const ep_subject *u, const ep_scope *s, ep_matcher *m, double allowed, ep_seen *out) {
    ep_seen lost = *out;
    count_work(u, s, m, allowed, out);
    if (!partial(u, s, &lost)) return;
    /* More than allowed is more than allowed, however much is missing. */
    if (allowed >= 0 && out->value > allowed) return;
    *out = lost;
}

static void measure_ops(const ep_subject *u, const ep_scope *s, ep_matcher *m, double allowed, ep_seen *out) {
    bool views = m->term->metric == EP_METRIC_VIEWS;
    if (views && partial(u, s, out)) return;
    for (size_t i = 0; i < s->ops.count; i++)
        if (op_counts(u, m, s->ops.rows[i])) count_rows(out, s->ops.rows[i], allowed);
}

static void measure_launches(const ep_subject *u, const ep_scope *s, double allowed, ep_seen *out) {
    for (size_t i = 0; i < s->calls.count; i++)
        if (ep_runtime_is_launch(name_of(u, s->calls.rows[i]))) count_rows(out, s->calls.rows[i], allowed);
    if (out->value == 0 && s->work.count && s->event == EP_NO_INDEX) unknown(out, "no launch calls were recorded");
}

static void measure_device_time(const ep_subject *u, const ep_scope *s, ep_matcher *m, ep_seen *out) {
    if (partial(u, s, out)) return;
    int64_t longest = -1;
    for (size_t i = 0; i < s->work.count; i++) {
        uint32_t row = s->work.rows[i];
        int64_t ns = work_value(u, m, row);
        out->value += (double)ns;
        bool counts = m->term->metric == EP_METRIC_DEVICE_TIME ||
                      (u->trace->kind[row] == EP_EVENT_KERNEL && ep_matcher_kernel(u, m, row));
        if (counts && ns > longest) longest = ns, out->witness = row;
    }
}

bool ep_is_wait(const char *name) {
    return strstr(name, "Synchronize") != NULL;
}

/* Time in waits, counted once where a runtime call holds a driver call. */
static double wait_ns(const ep_subject *u, const ep_scope *s, uint32_t *witness) {
    const ep_trace *t = u->trace;
    int64_t sum = 0, longest = -1, end = INT64_MIN;
    uint32_t lane = EP_NO_INDEX;
    for (size_t i = 0; i < s->calls.count; i++) {
        uint32_t row = s->calls.rows[i];
        if (!ep_is_wait(name_of(u, row))) continue;
        if (t->lane[row] != lane) lane = t->lane[row], end = INT64_MIN;
        if (t->ts[row] < end) continue;
        end = end_of(t, row);
        int64_t cut = end < s->end ? end : s->end;
        sum += cut - t->ts[row];
        if (t->dur[row] > longest) longest = t->dur[row], *witness = row;
    }
    return (double)sum;
}

/* A region's own span; of a trace, the time under outermost ops of every thread. */
static double host_ns(const ep_subject *u, const ep_scope *s) {
    const ep_trace *t = u->trace;
    if (s->event != EP_NO_INDEX) return (double)(s->end - s->start);
    int64_t sum = 0, end = INT64_MIN;
    uint32_t lane = EP_NO_INDEX;
    for (size_t i = 0; i < s->ops.count; i++) {
        uint32_t row = s->ops.rows[i];
        if (t->lane[row] != lane) lane = t->lane[row], end = INT64_MIN;
        int64_t from = t->ts[row] > end ? t->ts[row] : end, to = end_of(t, row);
        if (to > from) sum += to - from, end = to;
    }
    return (double)sum;
}

static void measure_dispatch(const ep_subject *u, const ep_scope *s, ep_matcher *m, ep_seen *out) {
    uint32_t ignored = EP_NO_INDEX;
    double v = host_ns(u, s) - wait_ns(u, s, &ignored);
    for (size_t i = 0; i < s->work.count; i++) v -= (double)work_value(u, m, s->work.rows[i]);
    out->value = v > 0 ? v : 0;
    out->witness = s->event;
}

static int by_device_start(const void *a, const void *b) {
    const int64_t *x = a, *y = b;
    for (int i = 0; i < 2; i++)
        if (x[i] != y[i]) return x[i] < y[i] ? -1 : 1;
    return 0;
}

/* 1 - busy / span of the device that is idle most; busy is the union of its work. */
static void measure_idle(const ep_subject *u, const ep_scope *s, ep_seen *out) {
    const ep_trace *t = u->trace;
    size_t n = 0;
    if (partial(u, s, out)) return;
    int64_t(*spans)[3] = ep_malloc_array(s->work.count, sizeof *spans);
    if (!spans) {
        unknown(out, "memory ran out");
        return;
    }
    for (size_t i = 0; i < s->work.count; i++) {
        uint32_t row = s->work.rows[i];
        if (facts_impossible(t, row)) continue;
        spans[n][0] = t->lanes[t->lane[row]].device;
        spans[n][1] = t->ts[row];
        spans[n++][2] = end_of(t, row);
    }
    if (n)
        qsort(spans, n, sizeof *spans, by_device_start);
    else
        unknown(out, "no device work ran here");
    for (size_t i = 0; i < n;) {
        int64_t device = spans[i][0], first = spans[i][1], end = first, busy = 0;
        for (; i < n && spans[i][0] == device; i++) {
            int64_t from = spans[i][1] > end ? spans[i][1] : end;
            busy += spans[i][2] > from ? spans[i][2] - from : 0;
            if (spans[i][2] > end) end = spans[i][2];
        }
        double idle = end > first ? 1 - (double)busy / (double)(end - first) : 0;
        if (idle > out->value) out->value = idle;
    }
    free(spans);
    out->witness = s->event;
}

double ep_measure_worse(const ep_matcher *m, double launches) {
    return m->claim ? ep_claim_surprise(m->claim, launches, m->other) : launches;
}

static void measure_op(const ep_subject *u, const ep_scope *s, ep_matcher *m, double allowed, ep_seen *out) {
    const ep_trace *t = u->trace;
    bool device = m->term->metric == EP_METRIC_OP_DEVICE_TIME, launches = m->term->metric == EP_METRIC_OP_LAUNCHES;
    if ((device || launches) && partial(u, s, out)) return;
    size_t seen = 0;
    double worst = -1;
    for (size_t i = 0; i < s->ops.count; i++) {
        uint32_t row = s->ops.rows[i];
        if (!ep_matcher_op(u, m, row)) continue;
        double v = 0;
        seen++;
        if (launches)
            v = u->facts->op_kernels[row];
        else if (m->term->metric == EP_METRIC_OP_TIME)
            v = (double)t->dur[row];
        if (launches) {
            /* The call that is furthest from what is claimed speaks for all; of several the earliest. */
            double by = ep_measure_worse(m, v);
            bool earlier = by == worst && t->ts[row] < t->ts[out->witness];
            if (by > worst || earlier) worst = by, out->value = v, out->witness = row;
        } else if (m->term->metric == EP_METRIC_OP_COUNT)
            count_rows(out, row, allowed);
        else {
            out->value += v;
            if (out->witness == EP_NO_INDEX) out->witness = row;
        }
    }
    /* An op that never ran launched nothing: that breaks a claim of launches, but bears none out. */
    bool breaks = launches && m->claim && ep_measure_worse(m, 0) > 0;
    if (seen == 0 && m->term->metric != EP_METRIC_OP_COUNT && !breaks) {
        unknown(out, "");
        snprintf(out->why, sizeof out->why, "no op '%.100s' runs here", m->term->pattern);
    } else if (seen == 0 && launches)
        snprintf(out->note, sizeof out->note, "no op '%.80s' runs here", m->term->pattern);
    if (!device || isnan(out->value)) return;
    for (size_t i = 0; i < s->work.count; i++) out->value += (double)work_value(u, m, s->work.rows[i]);
}

void ep_measure(const ep_subject *u, const ep_scope *s, ep_matcher *m, double allowed, ep_seen *out) {
    *out = (ep_seen){.witness = EP_NO_INDEX};
    switch (m->term->metric) {
    case EP_METRIC_KERNELS:
    case EP_METRIC_COPIES:
    case EP_METRIC_MEMCPYS:
    case EP_METRIC_MEMSETS: measure_work_count(u, s, m, allowed, out); break;
    case EP_METRIC_LAUNCHES: measure_launches(u, s, allowed, out); break;
    case EP_METRIC_OPS:
    case EP_METRIC_VIEWS: measure_ops(u, s, m, allowed, out); break;
    case EP_METRIC_INSTANCES: out->value = 1; break;
    case EP_METRIC_RECOMPILES: ep_measure_recompiles(u, s, out); break;
    case EP_METRIC_DEVICE_TIME:
    case EP_METRIC_KERNEL_TIME: measure_device_time(u, s, m, out); break;
    case EP_METRIC_DISPATCH: measure_dispatch(u, s, m, out); break;
    case EP_METRIC_SYNC_TIME: out->value = wait_ns(u, s, &out->witness); break;
    case EP_METRIC_TIME:
        out->value = (double)(s->end - s->start);
        out->witness = s->event;
        break;
    case EP_METRIC_IDLE: measure_idle(u, s, out); break;
    case EP_METRIC_BYTES:
    case EP_METRIC_FLOPS:
        if (!partial(u, s, out)) ep_measure_work(u, s, m->term->metric, out);
        break;
    default: measure_op(u, s, m, allowed, out);
    }
}
