/* Regions in which nothing is launched while the device runs dry: a loader's next batch, work of the host alone. */
#include <stdlib.h>
#include <string.h>

#include "analyze.h"
#include "base/alloc.h"
#include "facts_parts.h"
#include "spans.h"

typedef struct busy {
    int64_t (*spans)[2]; /* apart from each other, in time order */
    int64_t *before;     /* busy time in the spans before it */
    size_t count;
} busy;

/* When any device works. */
static bool find_busy(const ep_study *s, busy *b) {
    size_t n = 0;
    int64_t sum = 0;
    b->spans = ep_malloc_array(s->work_count, sizeof *b->spans);
    b->before = ep_malloc_array(s->work_count, sizeof *b->before);
    if (!b->spans || !b->before) return false;
    for (size_t i = 0; i < s->work_count; i++) {
        uint32_t e = s->work[i].event;
        if (facts_impossible(s->trace, e)) continue;
        b->spans[n][0] = s->trace->ts[e];
        b->spans[n++][1] = s->trace->ts[e] + s->trace->dur[e];
    }
    b->count = ep_spans_merge(b->spans, n);
    for (size_t i = 0; i < b->count; i++) {
        b->before[i] = sum;
        sum += b->spans[i][1] - b->spans[i][0];
    }
    return true;
}

/* Busy time before a moment. */
static int64_t busy_until(const busy *b, int64_t at) {
    size_t low = 0, high = b->count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (b->spans[mid][0] < at)
            low = mid + 1;
        else
            high = mid;
    }
    if (!low) return 0;
    const int64_t *last = b->spans[low - 1];
    return b->before[low - 1] + (at < last[1] ? at : last[1]) - last[0];
}

static void add_instance(const ep_study *s, const busy *b, const ep_region_instance *i, ep_idle_row *r) {
    int64_t start = s->trace->ts[i->event], end = start + i->cpu_ns;
    if (i->kernels_any_thread || i->memcpys || i->memsets || i->launches) return;
    if (!r->count++) r->first = i->event;
    r->host_ns += i->cpu_ns;
    r->idle_ns += i->cpu_ns - (busy_until(b, end) - busy_until(b, start));
}

/* Of two that hold each other the inner one comes first where it has nearly all of the idle time: it says more. */
static int by_idle(const void *a, const void *b) {
    const ep_idle_row *x = a, *y = b;
    if (x->idle_ns != y->idle_ns) return x->idle_ns > y->idle_ns ? -1 : 1;
    return x->host_ns < y->host_ns ? -1 : x->host_ns > y->host_ns;
}

static bool holds(const ep_trace *t, uint32_t outer, uint32_t inner) {
    return t->lane[outer] == t->lane[inner] && t->ts[outer] <= t->ts[inner] &&
           t->ts[outer] + t->dur[outer] >= t->ts[inner] + t->dur[inner];
}

/* Drops what lies in, or around, a row that stands before it. */
static size_t drop_nested(const ep_trace *t, ep_idle_row *rows, size_t n) {
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        size_t k = 0;
        while (k < kept && !holds(t, rows[k].first, rows[i].first) && !holds(t, rows[i].first, rows[k].first)) k++;
        if (k == kept)
            rows[kept++] = rows[i];
        else if (holds(t, rows[k].first, rows[i].first) && rows[i].idle_ns > rows[k].idle_ns - rows[k].idle_ns / 10)
            rows[k] = rows[i];
    }
    return kept;
}

ep_status ep_analyze_idle(ep_study *s, ep_error *err) {
    (void)err;
    const ep_facts *f = s->facts;
    busy b = {0};
    if (!f->health.device_recorded) return EP_OK;
    int64_t least = (f->span_end_ns - f->span_start_ns) / 100 * 3; /* less is not worth a sentence */
    bool ok = find_busy(s, &b);
    for (size_t i = 0; ok && i < f->region_count; i++) {
        const ep_region_fact *region = &f->regions[i];
        ep_idle_row row = {.name = region->name};
        if (ep_region_is_step(region->name) || !ep_study_wants(s, region->name)) continue;
        for (uint32_t k = 0; k < region->count; k++) add_instance(s, &b, &f->instances[region->first + k], &row);
        if (row.idle_ns <= least) continue;
        ok = ep_grow(&s->idles, &s->idle_cap, s->idle_count + 1, sizeof *s->idles);
        if (ok) s->idles[s->idle_count++] = row;
    }
    free(b.spans);
    free(b.before);
    if (!ok) return EP_ERROR_OUT_OF_MEMORY;
    if (s->idle_count) qsort(s->idles, s->idle_count, sizeof *s->idles, by_idle);
    s->idle_count = drop_nested(s->trace, s->idles, s->idle_count < 64 ? s->idle_count : 64);
    return EP_OK;
}
