/* A term over many instances at once: running sums over the host's rows in time order, so that instances that lie in each
 * other by the thousand cost a search each. What is no sum is measured instance by instance. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "verdict.h"

/* What the metric needs of the device's record, and whether it is a sum of what each row adds. */
static const struct {
    bool sum, device;
} traits[EP_METRIC_COUNT] = {
    [EP_METRIC_KERNELS] = {true, true},        [EP_METRIC_LAUNCHES] = {true, false},
    [EP_METRIC_OPS] = {true, false},           [EP_METRIC_VIEWS] = {true, true},
    [EP_METRIC_COPIES] = {true, true},         [EP_METRIC_MEMCPYS] = {true, true},
    [EP_METRIC_MEMSETS] = {true, true},        [EP_METRIC_DEVICE_TIME] = {true, true},
    [EP_METRIC_KERNEL_TIME] = {true, true},    [EP_METRIC_DISPATCH] = {true, false},
    [EP_METRIC_SYNC_TIME] = {true, false},     [EP_METRIC_OP_COUNT] = {true, false},
    [EP_METRIC_OP_LAUNCHES] = {true, true},    [EP_METRIC_OP_TIME] = {true, false},
    [EP_METRIC_OP_DEVICE_TIME] = {true, true}, [EP_METRIC_IDLE] = {false, true},
    [EP_METRIC_BYTES] = {false, true},         [EP_METRIC_FLOPS] = {false, true},
};

/* The waits of one thread that no wait before them holds: where an instance begins outside of any, its waits are a run of
 * these. */
typedef struct waits {
    uint32_t *at; /* places in the rows, of every wait */
    size_t *rank; /* of each of them: how many outermost ones stand before it */
    bool *outer;
    int64_t *ns; /* of the outermost ones before the n-th */
    size_t *outer_at;
    size_t count, outer_count;
} waits;

typedef struct series {
    const ep_subject *u;
    ep_matcher *m;
    const uint32_t *rows; /* host rows by thread or process, each in time order; of a thread with rows of other kinds */
    size_t count;
    int64_t *sums;          /* of the rows before each */
    uint32_t *lost, *calls; /* launches without their kernel, calls of the op that is meant, before each row */
    uint32_t *worst;        /* a tree over the rows: the call of the op whose launches are worst */
    double *by;             /* of that call, by row's place */
    waits w;
} series;

static int64_t end_of(const ep_trace *t, uint32_t row) {
    return t->ts[row] + (t->dur[row] > 0 ? t->dur[row] : 0);
}

static bool is_lost(const ep_subject *u, uint32_t row) {
    return u->trace->kind[row] == EP_EVENT_RUNTIME && !ep_links_has_work(u->facts->links, row) &&
           ep_runtime_is_launch(ep_trace_text(u->trace, u->trace->name[row]));
}

static bool names_op(const series *s, uint32_t row) {
    return s->m->texts && s->u->trace->kind[row] == EP_EVENT_OP && ep_matcher_op(s->u, s->m, row);
}

static bool add_rows(series *s) {
    s->sums = ep_malloc_array(s->count + 1, sizeof *s->sums);
    s->lost = ep_malloc_array(s->count + 1, sizeof *s->lost);
    s->calls = ep_malloc_array(s->count + 1, sizeof *s->calls);
    if (!s->sums || !s->lost || !s->calls) return false;
    s->sums[0] = 0;
    s->lost[0] = s->calls[0] = 0;
    for (size_t i = 0; i < s->count; i++) {
        s->sums[i + 1] = s->sums[i] + ep_measure_row(s->u, s->m, s->rows[i]);
        s->lost[i + 1] = s->lost[i] + is_lost(s->u, s->rows[i]);
        s->calls[i + 1] = s->calls[i] + names_op(s, s->rows[i]);
    }
    return true;
}

/* The place whose call is worse; of equals the first. */
static uint32_t worse(const series *s, uint32_t a, uint32_t b) {
    if (a == EP_NO_INDEX || b == EP_NO_INDEX) return a == EP_NO_INDEX ? b : a;
    if (s->by[a] != s->by[b]) return s->by[a] > s->by[b] ? a : b;
    return a < b ? a : b;
}

static bool grow_tree(series *s) {
    s->worst = ep_malloc_array(2 * s->count + 2, sizeof *s->worst);
    s->by = ep_malloc_array(s->count + 1, sizeof *s->by);
    if (!s->worst || !s->by) return false;
    for (size_t i = 0; i < s->count; i++) {
        bool counts = names_op(s, s->rows[i]);
        s->worst[s->count + i] = counts ? (uint32_t)i : EP_NO_INDEX;
        s->by[i] = counts ? ep_measure_worse(s->m, s->u->facts->op_kernels[s->rows[i]]) : -1;
    }
    for (size_t i = s->count; i-- > 1;) s->worst[i] = worse(s, s->worst[2 * i], s->worst[2 * i + 1]);
    return true;
}

static uint32_t worst_between(const series *s, size_t low, size_t high) {
    uint32_t found = EP_NO_INDEX;
    for (low += s->count, high += s->count; low < high; low /= 2, high /= 2) {
        if (low & 1) found = worse(s, found, s->worst[low++]);
        if (high & 1) found = worse(s, found, s->worst[--high]);
    }
    return found;
}

static bool find_waits(series *s) {
    const ep_trace *t = s->u->trace;
    waits *w = &s->w;
    size_t n = 0, lane = SIZE_MAX;
    int64_t end = INT64_MIN;
    for (size_t i = 0; i < s->count; i++)
        n += t->kind[s->rows[i]] == EP_EVENT_RUNTIME && ep_is_wait(ep_trace_text(t, t->name[s->rows[i]]));
    w->at = ep_malloc_array(n + 1, sizeof *w->at);
    w->rank = ep_malloc_array(n + 1, sizeof *w->rank);
    w->outer = ep_malloc_array(n + 1, sizeof *w->outer);
    w->ns = ep_malloc_array(n + 1, sizeof *w->ns);
    w->outer_at = ep_malloc_array(n + 1, sizeof *w->outer_at);
    if (!w->at || !w->rank || !w->outer || !w->ns || !w->outer_at) return false;
    w->ns[0] = 0;
    for (size_t i = 0; i < s->count && w->count < n; i++) {
        uint32_t row = s->rows[i];
        if (t->kind[row] != EP_EVENT_RUNTIME || !ep_is_wait(ep_trace_text(t, t->name[row]))) continue;
        if (t->lane[row] != lane) lane = t->lane[row], end = INT64_MIN;
        w->at[w->count] = (uint32_t)i;
        w->rank[w->count] = w->outer_count;
        w->outer[w->count] = t->ts[row] >= end;
        if (w->outer[w->count++]) {
            end = end_of(t, row);
            w->outer_at[w->outer_count] = i;
            w->ns[w->outer_count + 1] = w->ns[w->outer_count] + end - t->ts[row];
            w->outer_count++;
        }
    }
    return true;
}

/* Waits between two places of one thread, cut where the instance ends. */
static int64_t wait_between(const series *s, size_t low, size_t high, int64_t end) {
    const ep_trace *t = s->u->trace;
    const waits *w = &s->w;
    size_t k = 0, n = w->count, last = 0, behind = w->outer_count;
    int64_t sum = 0;
    while (k < n) {
        size_t middle = k + (n - k) / 2;
        if (w->at[middle] < low)
            k = middle + 1;
        else
            n = middle;
    }
    /* From inside a wait that holds the start, until a wait comes that nothing before it holds. */
    for (int64_t until = INT64_MIN; k < w->count && w->at[k] < high; k++) {
        uint32_t row = s->rows[w->at[k]];
        if (t->ts[row] < until) continue;
        if (w->outer[k]) break;
        until = end_of(t, row);
        sum += (until < end ? until : end) - t->ts[row];
    }
    if (k == w->count || w->at[k] >= high) return sum;
    size_t first = w->rank[k];
    for (last = first; last < behind;) {
        size_t middle = last + (behind - last) / 2;
        if (w->outer_at[middle] < high)
            last = middle + 1;
        else
            behind = middle;
    }
    int64_t over = end_of(t, s->rows[w->outer_at[last - 1]]) - end;
    return sum + w->ns[last] - w->ns[first] - (over > 0 ? over : 0);
}

static bool is_op_metric(ep_metric metric) {
    return ep_metrics[metric].filter == EP_FILTER_OP;
}

/* The part of the rows that starts in the instance. */
static void find_part(const series *s, uint32_t event, bool any_thread, size_t *low, size_t *high) {
    const ep_trace *t = s->u->trace;
    uint32_t lane = t->lane[event], pid = t->lanes[lane].pid;
    const ep_timeline *p = s->u->processes;
    *low = any_thread ? p->first[pid] : s->u->lane_first[lane];
    *high = any_thread ? p->first[pid + 1] : s->u->lane_first[lane + 1];
    *low = ep_first_at(t, s->rows, *low, *high, t->ts[event]);
    *high = ep_first_at(t, s->rows, *low, *high, end_of(t, event));
}

static double value_of(const series *s, uint32_t event, double allowed) {
    const ep_trace *t = s->u->trace;
    const ep_term *term = s->m->term;
    size_t low, high;
    find_part(s, event, term->any_thread, &low, &high);
    bool within = high > low; /* the region's own row, where it is an op, does not count */
    int64_t sum = s->sums[high] - s->sums[low] - (within ? ep_measure_row(s->u, s->m, event) : 0);
    uint32_t lost = s->lost[high] - s->lost[low];
    uint32_t calls = s->calls[high] - s->calls[low] - (within && names_op(s, event));
    int64_t host = end_of(t, event) - t->ts[event];
    switch (term->metric) {
    case EP_METRIC_SYNC_TIME: return (double)wait_between(s, low, high, end_of(t, event));
    case EP_METRIC_DISPATCH: return fmax((double)(host - wait_between(s, low, high, end_of(t, event)) - sum), 0);
    case EP_METRIC_KERNELS:
    case EP_METRIC_COPIES:
    case EP_METRIC_MEMCPYS:
    case EP_METRIC_MEMSETS:
        if (lost && allowed >= 0 && (double)sum > allowed) return (double)sum;
        break;
    default: break;
    }
    if (traits[term->metric].device && lost) return NAN;
    if (term->metric == EP_METRIC_OP_LAUNCHES && calls)
        return s->u->facts->op_kernels[s->rows[worst_between(s, low, high)]];
    if (is_op_metric(term->metric) && term->metric != EP_METRIC_OP_COUNT && !calls)
        return term->metric == EP_METRIC_OP_LAUNCHES && s->m->claim && ep_measure_worse(s->m, 0) > 0 ? 0 : NAN;
    return (double)sum;
}

static void series_free(series *s) {
    free(s->sums);
    free(s->lost);
    free(s->calls);
    free(s->worst);
    free(s->by);
    free(s->w.at);
    free(s->w.rank);
    free(s->w.outer);
    free(s->w.ns);
    free(s->w.outer_at);
}

bool ep_series_sums(const ep_subject *u, const ep_rows *instances, ep_matcher *m, double allowed, double *v,
                    bool *done) {
    const ep_term *term = m->term;
    bool waiting = term->metric == EP_METRIC_SYNC_TIME || term->metric == EP_METRIC_DISPATCH;
    *done = false;
    if (instances->count < 2) return true;
    if (traits[term->metric].device && !ep_subject_device_known(u)) {
        for (size_t i = 0; i < instances->count; i++) v[i] = NAN;
        *done = true;
        return true;
    }
    if (ep_metric_is_of_span(term->metric)) {
        ep_scope span = {0};
        ep_seen seen;
        for (size_t i = 0; i < instances->count; i++) {
            ep_scope_open(u, instances->rows[i], &span);
            ep_measure(u, &span, m, allowed, &seen);
            v[i] = seen.value;
        }
        *done = true;
        return true;
    }
    if (!traits[term->metric].sum || (waiting && term->any_thread)) return true;
    /* An op that is itself the region could be its own worst call. */
    if (term->metric == EP_METRIC_OP_LAUNCHES && u->trace->kind[instances->rows[0]] == EP_EVENT_OP) return true;
    series s = {.u = u, .m = m, .rows = u->facts->links->order, .count = u->facts->links->order_count};
    bool ok = true;
    if (term->any_thread) {
        const ep_timeline *p = ep_subject_processes(u);
        ok = p != NULL;
        if (ok) s.rows = p->rows, s.count = p->first[u->trace->strings.count];
    }
    ok = ok && add_rows(&s) && (!waiting || find_waits(&s)) && (term->metric != EP_METRIC_OP_LAUNCHES || grow_tree(&s));
    for (size_t i = 0; ok && i < instances->count; i++) v[i] = value_of(&s, instances->rows[i], allowed);
    series_free(&s);
    *done = ok;
    return ok;
}

bool ep_series(const ep_subject *u, const ep_rows *instances, ep_matcher *m, double allowed, ep_scope *scope,
               double *v) {
    bool done;
    if (!ep_series_sums(u, instances, m, allowed, v, &done)) return false;
    for (size_t i = 0; !done && i < instances->count; i++) {
        ep_seen seen;
        if (!ep_scope_gather(u, instances->rows[i], m->term->any_thread, scope)) return false;
        ep_measure(u, scope, m, allowed, &seen);
        v[i] = seen.value;
    }
    return true;
}

bool ep_series_fused(const ep_subject *u, const ep_rows *instances, const ep_claim *c, double *v, bool *done) {
    const ep_links *l = u->facts->links;
    const ep_timeline *p = c->term.any_thread ? ep_subject_processes(u) : NULL;
    *done = false;
    if (c->term.any_thread && !p) return false;
    if (instances->count < 2) return true;
    series s = {.u = u, .rows = p ? p->rows : l->order};
    s.count = p ? p->first[u->trace->strings.count] : l->order_count;
    s.lost = ep_malloc_array(s.count + 1, sizeof *s.lost);   /* kernels that do some of the ops */
    s.calls = ep_malloc_array(s.count + 1, sizeof *s.calls); /* kernels that do all */
    *done = s.lost && s.calls;
    if (*done) s.lost[0] = s.calls[0] = 0;
    for (size_t i = 0; *done && i < s.count; i++) {
        s.lost[i + 1] = s.lost[i];
        s.calls[i + 1] = s.calls[i];
        for (uint32_t k = 0, n = ep_links_work_count(l, s.rows[i]); k < n; k++) {
            int does = ep_kernel_does(u, l->work_list[l->first_work[s.rows[i]] + k], c->names, c->name_count);
            s.lost[i + 1] += does > 0;
            s.calls[i + 1] += does == c->name_count;
        }
    }
    for (size_t i = 0; *done && i < instances->count; i++) {
        size_t low, high;
        find_part(&s, instances->rows[i], c->term.any_thread, &low, &high);
        bool all = s.calls[high] > s.calls[low], some = s.lost[high] > s.lost[low];
        v[i] = all ? 1 : u->facts->health.device_recorded && some ? 0 : NAN;
    }
    series_free(&s);
    return *done;
}
