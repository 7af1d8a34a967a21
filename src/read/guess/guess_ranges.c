/* Many ranges of host rows at once, where what the rows launched does not simply add up: the work of ops that launched
 * several kernels, and how long a device was busy. Each row is gone over once, each range costs a search. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/sort.h"
#include "measure.h"
#include "read/analyze/facts_parts.h"

/* Sums over the first n of some places, any of which may change (a Fenwick tree). Whole numbers below 2^53: exact. */
typedef struct tally {
    double *sums;
    size_t count;
} tally;

static bool tally_create(tally *t, size_t count) {
    t->count = count;
    t->sums = calloc(count + 1, sizeof *t->sums);
    return t->sums != NULL;
}

static void tally_add(tally *t, size_t place, double v) {
    for (size_t i = place + 1; i <= t->count; i += i & (~i + 1)) t->sums[i] += v;
}

static double tally_before(const tally *t, size_t place) {
    double sum = 0;
    for (size_t i = place; i > 0; i -= i & (~i + 1)) sum += t->sums[i];
    return sum;
}

static int by_low_down(const void *a, const void *b) {
    const ep_range *x = a, *y = b;
    return x->low > y->low ? -1 : x->low < y->low;
}

static int by_high(const void *a, const void *b) {
    const ep_range *x = a, *y = b;
    return x->high < y->high ? -1 : x->high > y->high;
}

/* The places are taken in from the last to the first. An op's work stands at the first of its kernels so far, so that a
 * range which begins there counts it once. */
typedef struct work_sweep {
    const ep_subject *u;
    ep_metric metric;
    tally work;
    uint32_t *at; /* by row of an op: place of its work + 1 */
} work_sweep;

/* How many kernels of the place have unknown work. */
static uint32_t add_place(work_sweep *w, uint32_t row, size_t place) {
    const ep_links *l = w->u->facts->links;
    uint32_t unknown = 0;
    for (uint32_t i = 0, n = ep_links_work_count(l, row); i < n; i++) {
        uint32_t kernel = l->work_list[l->first_work[row] + i], op;
        if (w->u->trace->kind[kernel] != EP_EVENT_KERNEL) continue;
        double v = ep_measure_kernel(w->u, kernel, w->metric, &op, NULL, 0);
        if (isnan(v)) {
            unknown++;
            continue;
        }
        if (op != EP_NO_INDEX) {
            if (w->at[op]) tally_add(&w->work, w->at[op] - 1, -v);
            w->at[op] = (uint32_t)place + 1;
        }
        tally_add(&w->work, place, v);
    }
    return unknown;
}

bool ep_ranges_work(const ep_subject *u, const uint32_t *rows, size_t count, ep_range *ranges, size_t n,
                    ep_metric metric, double *v) {
    work_sweep w = {.u = u, .metric = metric, .at = calloc(u->trace->count + 1, sizeof *w.at)};
    uint32_t *unknown = calloc(count + 1, sizeof *unknown); /* behind each place */
    bool ok = w.at && unknown && tally_create(&w.work, count);
    size_t place = count;
    if (ok) qsort(ranges, n, sizeof *ranges, by_low_down);
    for (size_t i = 0; ok && i < n; i++) {
        const ep_range *r = &ranges[i];
        for (; place > r->low; place--) unknown[place - 1] = unknown[place] + add_place(&w, rows[place - 1], place - 1);
        v[r->instance] = unknown[r->low] != unknown[r->high] ? NAN : tally_before(&w.work, r->high);
    }
    free(w.at);
    free(w.work.sums);
    free(unknown);
    return ok;
}

typedef struct span {
    int64_t device, start, end;
    size_t place; /* of its launch */
} span;

static int by_device(const void *a, const void *b) {
    const span *x = a, *y = b;
    if (x->device != y->device) return x->device < y->device ? -1 : 1;
    return x->place < y->place ? -1 : x->place > y->place;
}

/* Device work of all places, by device, then by place. */
static bool gather_spans(const ep_subject *u, const uint32_t *rows, size_t count, span **out, size_t *n) {
    const ep_trace *t = u->trace;
    const ep_links *l = u->facts->links;
    size_t cap = 0;
    for (size_t place = 0; place < count; place++)
        for (uint32_t i = 0, k = ep_links_work_count(l, rows[place]); i < k; i++) {
            uint32_t row = l->work_list[l->first_work[rows[place]] + i];
            if (facts_impossible(t, row)) continue;
            if (!ep_grow(out, &cap, *n + 1, sizeof **out)) return false;
            (*out)[(*n)++] = (span){t->lanes[t->lane[row]].device, t->ts[row], t->ts[row] + t->dur[row], place};
        }
    if (*n) qsort(*out, *n, sizeof **out, by_device);
    return true;
}

enum { NO_COLOUR = -1, MIXED = -2 };

/* The time axis of one device, each piece in the colour of the newest span over it: the pieces in the colours of some
 * spans that follow each other up to the newest are their union. A tree over the pieces; a node of one colour speaks for
 * all under it, so a span costs as many steps as it paints over. */
typedef struct axis {
    int64_t *edges; /* of the pieces, in order */
    size_t pieces;
    int32_t *colour;       /* by node */
    tally busy;            /* by span */
    int64_t *first, *last; /* trees over the spans: earliest start, latest end */
    size_t spans;
} axis;

static void paint_node(axis *x, size_t node, size_t low, size_t high, int32_t colour) {
    double length = (double)(x->edges[high] - x->edges[low]);
    if (x->colour[node] != NO_COLOUR) tally_add(&x->busy, (size_t)x->colour[node], -length);
    tally_add(&x->busy, (size_t)colour, length);
    x->colour[node] = colour;
}

/* Pieces from .. to under the node, which has the pieces low .. high. */
static void paint(axis *x, size_t node, size_t low, size_t high, size_t from, size_t to, int32_t colour) {
    bool all = from <= low && high <= to;
    if (from >= to || to <= low || high <= from) return;
    if (all && x->colour[node] != MIXED) {
        paint_node(x, node, low, high, colour);
        return;
    }
    if (x->colour[node] != MIXED) {
        x->colour[2 * node] = x->colour[2 * node + 1] = x->colour[node];
        x->colour[node] = MIXED;
    }
    size_t middle = low + (high - low) / 2;
    paint(x, 2 * node, low, middle, from, to, colour);
    paint(x, 2 * node + 1, middle, high, from, to, colour);
    if (all) x->colour[node] = colour;
}

static size_t piece_of(const axis *x, int64_t edge) {
    const int64_t *found = bsearch(&edge, x->edges, x->pieces + 1, sizeof edge, ep_by_int64);
    return (size_t)(found - x->edges);
}

static void grow_ends(axis *x, const span *spans) {
    for (size_t i = 0; i < x->spans; i++) {
        x->first[x->spans + i] = spans[i].start;
        x->last[x->spans + i] = spans[i].end;
    }
    for (size_t i = x->spans; i-- > 1;) {
        x->first[i] = x->first[2 * i] < x->first[2 * i + 1] ? x->first[2 * i] : x->first[2 * i + 1];
        x->last[i] = x->last[2 * i] > x->last[2 * i + 1] ? x->last[2 * i] : x->last[2 * i + 1];
    }
}

static bool axis_create(axis *x, const span *spans, size_t n) {
    size_t edges = 0;
    x->spans = n;
    x->edges = ep_malloc_array(2 * n, sizeof *x->edges);
    x->first = ep_malloc_array(2 * n, sizeof *x->first);
    x->last = ep_malloc_array(2 * n, sizeof *x->last);
    x->colour = ep_malloc_array(8 * n, sizeof *x->colour);
    if (!x->edges || !x->first || !x->last || !x->colour || !tally_create(&x->busy, n)) return false;
    for (size_t i = 0; i < n; i++) {
        x->edges[2 * i] = spans[i].start;
        x->edges[2 * i + 1] = spans[i].end;
    }
    qsort(x->edges, 2 * n, sizeof *x->edges, ep_by_int64);
    for (size_t i = 0; i < 2 * n; i++)
        if (!edges || x->edges[i] != x->edges[edges - 1]) x->edges[edges++] = x->edges[i];
    x->pieces = edges - 1;
    for (size_t i = 0; i < 8 * n; i++) x->colour[i] = NO_COLOUR;
    grow_ends(x, spans);
    return true;
}

static void axis_free(axis *x) {
    free(x->edges);
    free(x->first);
    free(x->last);
    free(x->colour);
    free(x->busy.sums);
}

/* From the first start to the last end of some spans. */
static int64_t reach(const axis *x, size_t low, size_t high) {
    int64_t first = INT64_MAX, last = INT64_MIN;
    for (low += x->spans, high += x->spans; low < high; low /= 2, high /= 2) {
        size_t nodes[2] = {low & 1 ? low++ : SIZE_MAX, high & 1 ? --high : SIZE_MAX};
        for (int i = 0; i < 2; i++) {
            if (nodes[i] == SIZE_MAX) continue;
            if (x->first[nodes[i]] < first) first = x->first[nodes[i]];
            if (x->last[nodes[i]] > last) last = x->last[nodes[i]];
        }
    }
    return last - first;
}

/* The first of the device's spans that was launched at the place or later. */
static size_t span_at(const span *spans, size_t n, size_t place) {
    size_t low = 0;
    while (low < n) {
        size_t middle = low + (n - low) / 2;
        if (spans[middle].place < place)
            low = middle + 1;
        else
            n = middle;
    }
    return low;
}

/* One device's part of the answers: the idlest device speaks. */
static bool idle_of_device(const span *spans, size_t n, const ep_range *ranges, size_t range_count, double *v) {
    axis x = {0};
    bool ok = axis_create(&x, spans, n);
    for (size_t i = 0, painted = 0; ok && i < range_count; i++) {
        const ep_range *r = &ranges[i];
        size_t low = span_at(spans, n, r->low), high = span_at(spans, n, r->high);
        for (; painted < high; painted++)
            paint(&x, 1, 0, x.pieces, piece_of(&x, spans[painted].start), piece_of(&x, spans[painted].end),
                  (int32_t)painted);
        if (low >= high) continue;
        int64_t whole = reach(&x, low, high);
        double busy = tally_before(&x.busy, high) - tally_before(&x.busy, low);
        double idle = whole > 0 ? 1 - busy / (double)whole : 0;
        if (isnan(v[r->instance]) || idle > v[r->instance]) v[r->instance] = idle;
    }
    axis_free(&x);
    return ok;
}

bool ep_ranges_idle(const ep_subject *u, const uint32_t *rows, size_t count, ep_range *ranges, size_t n, double *v) {
    span *spans = NULL;
    size_t spans_count = 0;
    bool ok = gather_spans(u, rows, count, &spans, &spans_count);
    qsort(ranges, n, sizeof *ranges, by_high);
    for (size_t i = 0; i < n; i++) v[ranges[i].instance] = NAN;
    for (size_t from = 0, to; ok && from < spans_count; from = to) {
        for (to = from; to < spans_count && spans[to].device == spans[from].device;) to++;
        ok = idle_of_device(spans + from, to - from, ranges, n, v);
    }
    free(spans);
    return ok;
}
