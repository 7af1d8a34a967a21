/* A term over many instances at once: running sums over the host's rows in time order, so that instances that lie in each
 * other by the thousand cost a search each. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "verdict.h"

/* How the figures of many instances come about: a sum of what each row adds; or what the rows of each launched, taken
 * together. And whether the metric needs the device's record. */
typedef bool (*ranges_of)(const ep_subject *u, const uint32_t *rows, size_t count, ep_range *ranges, size_t n,
                          ep_metric metric, double *v);
static bool idle_of(const ep_subject *u, const uint32_t *rows, size_t count, ep_range *ranges, size_t n,
                    ep_metric metric, double *v) {
    (void)metric;
    return ep_ranges_idle(u, rows, count, ranges, n, v);
}

static const struct {
    bool sum, device;
    ranges_of ranges;
} traits[EP_METRIC_COUNT] = {
    [EP_METRIC_KERNELS] = {true, true, NULL},
    [EP_METRIC_LAUNCHES] = {true, false, NULL},
    [EP_METRIC_OPS] = {true, false, NULL},
    [EP_METRIC_VIEWS] = {true, true, NULL},
    [EP_METRIC_COPIES] = {true, true, NULL},
    [EP_METRIC_MEMCPYS] = {true, true, NULL},
    [EP_METRIC_MEMSETS] = {true, true, NULL},
    [EP_METRIC_DEVICE_TIME] = {true, true, NULL},
    [EP_METRIC_KERNEL_TIME] = {true, true, NULL},
    [EP_METRIC_DISPATCH] = {true, false, NULL},
    [EP_METRIC_SYNC_TIME] = {true, false, NULL},
    [EP_METRIC_OP_COUNT] = {true, false, NULL},
    [EP_METRIC_OP_LAUNCHES] = {true, true, NULL},
    [EP_METRIC_OP_TIME] = {true, false, NULL},
    [EP_METRIC_OP_DEVICE_TIME] = {true, true, NULL},
    [EP_METRIC_IDLE] = {false, true, idle_of},
    [EP_METRIC_BYTES] = {false, true, ep_ranges_work},
    [EP_METRIC_FLOPS] = {false, true, ep_ranges_work},
};

/* All waits, by thread and in time order. Where an instance begins outside of any, its waits are a run of the outermost
 * ones, which no wait before them holds. */
typedef struct waits {
    uint32_t *rows;
    size_t *first;     /* of lane l: rows[first[l] .. first[l + 1]) */
    size_t *rank;      /* how many outermost ones stand before each */
    int64_t *ns;       /* and how long they are */
    int64_t *last_end; /* of the outermost one that is, or holds, each */
    uint32_t *lanes;   /* that have any */
    size_t lane_count;
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

static bool is_wait(const ep_trace *t, uint32_t row) {
    return t->kind[row] == EP_EVENT_RUNTIME && ep_is_wait(ep_trace_text(t, t->name[row]));
}

static bool find_waits(series *s) {
    const ep_trace *t = s->u->trace;
    const ep_links *l = s->u->facts->links;
    waits *w = &s->w;
    size_t n = 0, cap = 0, k = 0;
    for (size_t i = 0; i < l->order_count; i++) n += is_wait(t, l->order[i]);
    w->rows = ep_malloc_array(n + 1, sizeof *w->rows);
    w->rank = ep_malloc_array(n + 1, sizeof *w->rank);
    w->ns = ep_malloc_array(n + 1, sizeof *w->ns);
    w->last_end = ep_malloc_array(n + 1, sizeof *w->last_end);
    w->first = calloc(t->lane_count + 1, sizeof *w->first);
    if (!w->rows || !w->rank || !w->ns || !w->last_end || !w->first) return false;
    w->ns[0] = 0;
    w->rank[0] = 0;
    for (uint32_t lane = 0; lane < t->lane_count; lane++) {
        int64_t end = INT64_MIN;
        w->first[lane] = k;
        for (size_t i = s->u->lane_first[lane]; i < s->u->lane_first[lane + 1]; i++) {
            uint32_t row = l->order[i];
            if (!is_wait(t, row)) continue;
            bool outer = t->ts[row] >= end;
            if (outer) end = end_of(t, row);
            w->rows[k] = row;
            w->last_end[k] = end;
            w->rank[k + 1] = w->rank[k] + outer;
            w->ns[k + 1] = w->ns[k] + (outer ? end - t->ts[row] : 0);
            k++;
        }
        if (k == w->first[lane]) continue;
        if (!ep_grow(&w->lanes, &cap, w->lane_count + 1, sizeof *w->lanes)) return false;
        w->lanes[w->lane_count++] = lane;
    }
    w->first[t->lane_count] = k;
    return true;
}

/* The first wait of a thread that starts at `at` or later. */
static size_t wait_at(const series *s, uint32_t lane, int64_t at) {
    return ep_first_at(s->u->trace, s->w.rows, s->w.first[lane], s->w.first[lane + 1], at);
}

/* Waits of one thread that start in [start, end), cut where that ends. */
static int64_t wait_of(const series *s, uint32_t lane, int64_t start, int64_t end) {
    const ep_trace *t = s->u->trace;
    const waits *w = &s->w;
    size_t k = wait_at(s, lane, start), behind = wait_at(s, lane, end);
    int64_t sum = 0;
    /* From inside a wait that holds the start, until a wait comes that nothing before it holds. */
    for (int64_t until = INT64_MIN; k < behind; k++) {
        uint32_t row = w->rows[k];
        if (t->ts[row] < until) continue;
        if (w->rank[k + 1] > w->rank[k]) break;
        until = end_of(t, row);
        sum += (until < end ? until : end) - t->ts[row];
    }
    if (k >= behind) return sum;
    int64_t over = w->last_end[behind - 1] - end;
    return sum + w->ns[behind] - w->ns[k] - (over > 0 ? over : 0);
}

static int64_t wait_between(const series *s, uint32_t event) {
    const ep_trace *t = s->u->trace;
    uint32_t own = t->lane[event];
    int64_t sum = 0;
    if (!s->m->term->any_thread) return wait_of(s, own, t->ts[event], end_of(t, event));
    for (size_t i = 0; i < s->w.lane_count; i++) {
        uint32_t lane = s->w.lanes[i];
        if (t->lanes[lane].pid == t->lanes[own].pid) sum += wait_of(s, lane, t->ts[event], end_of(t, event));
    }
    return sum;
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
    case EP_METRIC_SYNC_TIME: return (double)wait_between(s, event);
    case EP_METRIC_DISPATCH: return fmax((double)(host - wait_between(s, event) - sum), 0);
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
    free(s->w.rows);
    free(s->w.first);
    free(s->w.rank);
    free(s->w.ns);
    free(s->w.last_end);
    free(s->w.lanes);
}

/* What the rows of each instance launched, taken together; a launch without its kernel makes it unknown. */
static bool measure_ranges(const series *s, const ep_rows *instances, double *v) {
    ep_range *ranges = ep_malloc_array(instances->count, sizeof *ranges);
    ep_metric metric = s->m->term->metric;
    bool ok = ranges != NULL;
    for (size_t i = 0; ok && i < instances->count; i++) {
        ranges[i].instance = i;
        find_part(s, instances->rows[i], s->m->term->any_thread, &ranges[i].low, &ranges[i].high);
    }
    ok = ok && traits[metric].ranges(s->u, s->rows, s->count, ranges, instances->count, metric, v);
    for (size_t i = 0; ok && i < instances->count; i++)
        if (s->lost[ranges[i].high] > s->lost[ranges[i].low]) v[ranges[i].instance] = NAN;
    free(ranges);
    return ok;
}

static bool measure_series(series *s, const ep_rows *instances, double allowed, double *v) {
    ep_metric metric = s->m->term->metric;
    bool waiting = metric == EP_METRIC_SYNC_TIME || metric == EP_METRIC_DISPATCH;
    if (s->m->term->any_thread) {
        const ep_timeline *p = ep_subject_processes(s->u);
        if (!p) return false;
        s->rows = p->rows;
        s->count = p->first[s->u->trace->strings.count];
    }
    if (!add_rows(s) || (waiting && !find_waits(s))) return false;
    if (metric == EP_METRIC_OP_LAUNCHES && !grow_tree(s)) return false;
    if (traits[metric].ranges) return measure_ranges(s, instances, v);
    for (size_t i = 0; i < instances->count; i++) v[i] = value_of(s, instances->rows[i], allowed);
    return true;
}

bool ep_series_sums(const ep_subject *u, const ep_rows *instances, ep_matcher *m, double allowed, double *v,
                    bool *done) {
    ep_metric metric = m->term->metric;
    *done = false;
    if (instances->count < 2) return true;
    if (traits[metric].device && !ep_subject_device_known(u)) {
        for (size_t i = 0; i < instances->count; i++) v[i] = NAN;
        *done = true;
        return true;
    }
    if (ep_metric_is_of_span(metric)) {
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
    if (!traits[metric].sum && !traits[metric].ranges) return true;
    /* An op that is itself the region could be its own worst call. */
    if (metric == EP_METRIC_OP_LAUNCHES && u->trace->kind[instances->rows[0]] == EP_EVENT_OP) return true;
    series s = {.u = u, .m = m, .rows = u->facts->links->order, .count = u->facts->links->order_count};
    *done = measure_series(&s, instances, allowed, v);
    series_free(&s);
    return *done;
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
