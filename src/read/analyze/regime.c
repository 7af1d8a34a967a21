/* What bounds each step and region: the host (overhead), memory, compute, communication, or waiting for a
 * synchronisation; as recorded, and with the profiler's own cost taken off. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analyze.h"
#include "base/alloc.h"
#include "facts_parts.h"
#include "spans.h"

/* Recording costs the host about 1 to 4 us an event in Kineto; ours is measured and stands in the trace. */
static const double KINETO_LOW_US = 1, KINETO_HIGH_US = 4;
static const double BUSY_ENOUGH = 0.85; /* above this share the device, not the host, sets the pace */

typedef struct lookup {
    size_t *lane_first; /* order[] of a lane */
    uint32_t *events;   /* by every 64th order position: op and runtime spans before it */
    int64_t *sync_ns;   /* the same for time in synchronisations */
    uint8_t *sync_name; /* by string: 0 not looked at, 1 no, 2 a synchronisation */
    uint32_t *seen;     /* by lane: the last region that counted it, + 1 */
} lookup;

enum { EVERY = 64 };

typedef struct tally {
    uint32_t events;
    int64_t sync_ns;
} tally;

static void count_span(const ep_study *s, const lookup *l, uint32_t e, tally *sum) {
    const ep_trace *t = s->trace;
    bool call = t->kind[e] == EP_EVENT_RUNTIME;
    sum->events += call || t->kind[e] == EP_EVENT_OP;
    if (!call) return;
    uint8_t *sync = &l->sync_name[t->name[e]];
    if (*sync == 0) *sync = strstr(ep_study_name(s, e), "Synchronize") ? 2 : 1;
    if (*sync == 2) sum->sync_ns += t->dur[e];
}

/* What stands before an order position: the checkpoint before it and the few spans since. */
static tally before(const ep_study *s, const lookup *l, size_t position) {
    size_t mark = position / EVERY;
    tally sum = {l->events[mark], l->sync_ns[mark]};
    for (size_t i = mark * EVERY; i < position; i++) count_span(s, l, s->facts->links->order[i], &sum);
    return sum;
}

static bool lookup_create(const ep_study *s, lookup *l) {
    const ep_trace *t = s->trace;
    const ep_links *k = s->facts->links;
    size_t lanes = t->lane_count ? t->lane_count : 1;
    l->lane_first = calloc(lanes + 1, sizeof *l->lane_first);
    l->events = ep_malloc_array(k->order_count / EVERY + 1, sizeof *l->events);
    l->sync_ns = ep_malloc_array(k->order_count / EVERY + 1, sizeof *l->sync_ns);
    l->sync_name = calloc(t->strings.count + 1, 1);
    l->seen = calloc(lanes, sizeof *l->seen);
    if (!l->lane_first || !l->events || !l->sync_ns || !l->sync_name || !l->seen) return false;
    tally sum = {0, 0};
    l->events[0] = 0;
    l->sync_ns[0] = 0;
    for (size_t i = 0; i < k->order_count; i++) {
        uint32_t e = k->order[i];
        count_span(s, l, e, &sum);
        if ((i + 1) % EVERY == 0) l->events[(i + 1) / EVERY] = sum.events, l->sync_ns[(i + 1) / EVERY] = sum.sync_ns;
        l->lane_first[t->lane[e] + 1] = i + 1;
    }
    for (size_t i = 0; i < lanes; i++)
        if (l->lane_first[i + 1] < l->lane_first[i]) l->lane_first[i + 1] = l->lane_first[i];
    return true;
}

static void lookup_free(lookup *l) {
    free(l->lane_first);
    free(l->events);
    free(l->sync_ns);
    free(l->sync_name);
    free(l->seen);
}

/* The first position of the lane whose event starts at `at` or later. */
static size_t position(const ep_study *s, const lookup *l, uint32_t lane, int64_t at) {
    const ep_links *k = s->facts->links;
    size_t low = l->lane_first[lane], high = l->lane_first[lane + 1];
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (s->trace->ts[k->order[mid]] < at)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static int by_value(const void *a, const void *b) {
    const double *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

/* Time by what bounds the device: [0] memory, [1] compute, [2] unknown. By what our recorder noted of the kernel, by
 * shapes, else by class. */
static void split_time(const ep_study *s, const ep_device_work *w, double time[3]) {
    const ep_work_row *r = &s->rows[w->row];
    const ep_event_info *info = &s->trace->infos[s->trace->info[w->event]];
    double ns = (double)s->trace->dur[w->event];
    ep_regime regime = EP_REGIME_UNKNOWN;
    if (s->trace->info[w->event] && info->flops > 0 && info->bytes_read >= 0 && info->bytes_written >= 0 &&
        w->kind != EP_NO_INDEX)
        ep_study_bound_us(s, info->flops, info->bytes_read + info->bytes_written,
                          s->facts->names[w->kind].decoded.dtype, &regime);
    else if (r->known && r->flops > 0)
        ep_study_bound_us(s, r->flops, r->bytes_read + r->bytes_written, r->dtype, &regime);
    ep_kernel_class cls = ep_work_class(s, w);
    bool heavy = cls == EP_CLASS_GEMM || cls == EP_CLASS_CONV || cls == EP_CLASS_ATTENTION;
    bool compute = regime == EP_REGIME_UNKNOWN ? heavy : regime == EP_REGIME_COMPUTE;
    bool unknown = regime == EP_REGIME_UNKNOWN && cls == EP_CLASS_OTHER;
    time[unknown ? 2 : compute] += ns;
}

typedef struct sums {
    double memory_compute[3];
    int64_t kernels;
} sums;

/* The longest time between the spans of a union. */
static int64_t largest_gap(int64_t (*spans)[2], size_t n) {
    int64_t most = 0;
    for (size_t i = 1; i < n; i++)
        if (spans[i][0] - spans[i - 1][1] > most) most = spans[i][0] - spans[i - 1][1];
    return most;
}

static bool device_side(const ep_study *s, const uint32_t *list, size_t n, ep_regime_row *r, sums *sum) {
    const ep_trace *t = s->trace;
    int64_t(*spans)[2] = ep_malloc_array(n, sizeof *spans);
    double *delays = ep_malloc_array(n, sizeof *delays);
    size_t delay_count = 0, timed = 0;
    int64_t comm = 0;
    bool ok = spans && delays;
    for (size_t i = 0; ok && i < n; i++) {
        const ep_device_work *w = &s->work[list[i]];
        if (facts_impossible(t, w->event)) { /* its times were never filled in */
            sum->kernels += w->kind != EP_NO_INDEX;
            continue;
        }
        spans[timed][0] = t->ts[w->event];
        spans[timed][1] = t->ts[w->event] + t->dur[w->event];
        timed++;
        if (ep_work_class(s, w) == EP_CLASS_COLLECTIVE)
            comm += t->dur[w->event];
        else
            split_time(s, w, sum->memory_compute);
        if (w->kind == EP_NO_INDEX) continue;
        sum->kernels++;
        if (ep_work_launch(s, w) == EP_NO_INDEX) continue;
        delays[delay_count++] = (double)(t->ts[w->event] - ep_work_launch_ts(s, w)) * 1e-3;
    }
    r->delay_us = r->longest_delay_us = NAN;
    if (ok && timed) {
        size_t apart = ep_spans_merge(spans, timed);
        r->busy_us = (double)ep_spans_ns(spans, apart) * 1e-3;
        r->window_us = (double)(spans[apart - 1][1] - spans[0][0]) * 1e-3;
        r->largest_gap_us = (double)largest_gap(spans, apart) * 1e-3;
    }
    if (ok && delay_count) {
        qsort(delays, delay_count, sizeof *delays, by_value);
        r->delay_us = delays[(delay_count - 1) / 2];
        r->longest_delay_us = delays[delay_count - 1];
    }
    r->comm_us = (double)comm * 1e-3;
    free(spans);
    free(delays);
    return ok;
}

static ep_regime device_regime(const ep_regime_row *r, const sums *sum) {
    if (r->comm_us > 0.5 * r->busy_us) return EP_REGIME_COMMUNICATION;
    if (sum->memory_compute[2] > sum->memory_compute[0] + sum->memory_compute[1]) return EP_REGIME_UNKNOWN;
    return sum->memory_compute[1] > sum->memory_compute[0] ? EP_REGIME_COMPUTE : EP_REGIME_MEMORY;
}

static void judge(ep_study *s, ep_regime_row *r, const sums *sum) {
    r->kernels = sum->kernels;
    if (!s->facts->health.device_recorded) {
        r->why = "the device side was not recorded";
        return;
    }
    if (r->busy_us <= 0) {
        r->why = "no device work ran here";
        return;
    }
    /* One hole that holds most of the idle time (a module loaded, a first allocation) says nothing about the rest. */
    bool hole = sum->kernels >= 20 && r->largest_gap_us > 0.5 * (r->window_us - r->busy_us) &&
                r->largest_gap_us > 0.2 * r->window_us;
    double host = r->host_us > r->sync_us ? r->host_us - r->sync_us : 0,
           pace = host > r->window_us ? host : r->window_us;
    if (hole) pace -= r->largest_gap_us;
    double bare = host - r->profiler_high_us;
    r->busy_share = pace > 0 ? r->busy_us / pace : 0;
    r->gap_us = r->window_us - r->busy_us;
    bool queued = r->delay_us > 100 && sum->kernels && r->delay_us > 3 * r->busy_us / (double)sum->kernels;
    ep_regime device = device_regime(r, sum);
    bool device_bound = r->busy_share >= BUSY_ENOUGH || (queued && r->busy_share > 0.5);
    bool waits = r->sync_us > 0.5 * (pace - r->busy_us) && r->sync_us > r->delay_us;
    r->regime = device_bound ? device : waits ? EP_REGIME_SYNC : EP_REGIME_OVERHEAD;
    r->without_profiler = r->regime;
    if (r->regime == EP_REGIME_OVERHEAD && r->busy_us >= BUSY_ENOUGH * bare) r->without_profiler = device;
    if (queued && device_bound)
        r->why = "the launch queue is full: the host runs ahead";
    else if (device_bound)
        r->why = "the device is busy nearly all the time";
    else if (r->regime == EP_REGIME_SYNC)
        r->why = "the host waits for the device, then the device for the host";
    else
        r->why = "the device waits for launches";
}

static tally between(const ep_study *s, const lookup *l, uint32_t lane, int64_t start, int64_t end) {
    tally low = before(s, l, position(s, l, lane, start)), high = before(s, l, position(s, l, lane, end));
    return (tally){high.events - low.events, high.sync_ns - low.sync_ns};
}

/* What was recorded on the other threads that launched for the region: its own thread waits for them. */
static uint32_t other_events(const ep_study *s, const lookup *l, uint32_t region, const uint32_t *list, size_t n) {
    const ep_trace *t = s->trace;
    uint32_t events = 0;
    l->seen[t->lane[region]] = region + 1;
    for (size_t i = 0; i < n; i++) {
        uint32_t lane = ep_work_lane(s, &s->work[list[i]]);
        if (lane == EP_NO_INDEX || l->seen[lane] == region + 1) continue;
        l->seen[lane] = region + 1;
        events += between(s, l, lane, t->ts[region], t->ts[region] + t->dur[region]).events;
    }
    return events;
}

static bool instance(ep_study *s, const lookup *l, uint32_t event, ep_regime_row *r, sums *sum) {
    const ep_trace *t = s->trace;
    uint32_t *list = NULL;
    size_t n = 0;
    if (!ep_study_region_work(s, event, &list, &n)) return false;
    tally own = between(s, l, t->lane[event], t->ts[event], t->ts[event] + t->dur[event]);
    double events = (double)own.events + other_events(s, l, event, list, n);
    r->host_us = (double)t->dur[event] * 1e-3;
    r->sync_us = (double)own.sync_ns * 1e-3;
    if (r->sync_us > r->host_us) r->sync_us = r->host_us;
    bool ours = t->is_ours && t->own_ns_per_event > 0;
    r->profiler_low_us = events * (ours ? t->own_ns_per_event * 1e-3 : KINETO_LOW_US);
    r->profiler_high_us = events * (ours ? t->own_ns_per_event * 1e-3 : KINETO_HIGH_US);
    bool ok = device_side(s, list, n, r, sum);
    free(list);
    return ok;
}

/* The whole trace as one region, for traces that mark none. */
static bool whole(ep_study *s, const lookup *l) {
    ep_regime_row r;
    sums sum = {{0}, 0};
    memset(&r, 0, sizeof r);
    r.name = "(whole trace)";
    r.instances = 1;
    uint32_t *list = ep_malloc_array(s->work_count, sizeof *list);
    if (!list) return false;
    for (size_t i = 0; i < s->work_count; i++) list[i] = (uint32_t)i;
    bool ok = device_side(s, list, s->work_count, &r, &sum);
    free(list);
    tally all = before(s, l, s->facts->links->order_count);
    double events = (double)all.events;
    r.host_us = (double)(s->facts->span_end_ns - s->facts->span_start_ns) * 1e-3;
    r.sync_us = (double)all.sync_ns * 1e-3;
    if (r.sync_us > r.host_us) r.sync_us = r.host_us;
    r.profiler_low_us = events * KINETO_LOW_US;
    r.profiler_high_us = events * KINETO_HIGH_US;
    /* the host's span says nothing about its work here: the device's own window counts */
    r.host_us = r.window_us > 0 ? r.window_us : r.host_us;
    r.all_host_us = r.host_us;
    judge(s, &r, &sum);
    if (!ok || !ep_grow(&s->regimes, &s->regime_cap, s->regime_count + 1, sizeof *s->regimes)) return false;
    s->regimes[s->regime_count++] = r;
    return true;
}

typedef struct pick {
    uint32_t event;
    int64_t dur;
} pick;

static int by_dur(const void *a, const void *b) {
    const pick *x = a, *y = b;
    return x->dur < y->dur ? -1 : x->dur > y->dur;
}

/* The instance of median host time; the first of three or more is left out, for it may hold set-up. */
static uint32_t median_instance(pick *list, size_t n) {
    size_t skip = n >= 3;
    qsort(list + skip, n - skip, sizeof *list, by_dur);
    return list[skip + (n - skip - 1) / 2].event;
}

/* Time in which at least one of them runs: instances may be nested or on several threads. */
static bool all_instances(const ep_study *s, const pick *list, size_t n, double *us) {
    int64_t(*spans)[2] = ep_malloc_array(n, sizeof *spans);
    if (!spans) return false;
    for (size_t i = 0; i < n; i++) {
        spans[i][0] = s->trace->ts[list[i].event];
        spans[i][1] = spans[i][0] + list[i].dur;
    }
    *us = (double)ep_spans_ns(spans, ep_spans_merge(spans, n)) * 1e-3;
    free(spans);
    return true;
}

static bool add_region(ep_study *s, const lookup *l, const char *name, pick *list, size_t n) {
    ep_regime_row r;
    sums sum = {{0}, 0};
    memset(&r, 0, sizeof r);
    r.name = name;
    r.instances = (int64_t)n;
    if (!all_instances(s, list, n, &r.all_host_us)) return false;
    if (!instance(s, l, median_instance(list, n), &r, &sum)) return false;
    judge(s, &r, &sum);
    if (!ep_grow(&s->regimes, &s->regime_cap, s->regime_count + 1, sizeof *s->regimes)) return false;
    s->regimes[s->regime_count++] = r;
    return true;
}

static bool regions(ep_study *s, const lookup *l) {
    const ep_facts *f = s->facts;
    pick *list = ep_malloc_array(f->instance_count, sizeof *list);
    bool ok = list != NULL;
    size_t steps = 0;
    for (size_t i = 0; ok && i < f->region_count; i++)
        for (uint32_t k = 0; ep_region_is_step(f->regions[i].name) && k < f->regions[i].count; k++) {
            uint32_t e = f->instances[f->regions[i].first + k].event;
            list[steps++] = (pick){e, s->trace->dur[e]};
        }
    if (ok && steps && ep_study_wants(s, "ProfilerStep")) ok = add_region(s, l, "ProfilerStep", list, steps);
    for (size_t i = 0; ok && i < f->region_count; i++) {
        const ep_region_fact *r = &f->regions[i];
        if (ep_region_is_step(r->name) || r->count == 0 || !ep_study_wants(s, r->name)) continue;
        for (uint32_t k = 0; k < r->count; k++) {
            uint32_t e = f->instances[r->first + k].event;
            list[k] = (pick){e, s->trace->dur[e]};
        }
        ok = add_region(s, l, r->name, list, r->count);
    }
    free(list);
    return ok;
}

ep_status ep_analyze_regime(ep_study *s, ep_error *err) {
    (void)err;
    lookup l = {0};
    bool ok = lookup_create(s, &l) && regions(s, &l);
    bool marked = false; /* a region of the program, not one around a collective or a compiled graph */
    for (size_t i = 0; i < s->regime_count; i++)
        marked =
            marked || (strncmp(s->regimes[i].name, "nccl:", 5) != 0 && strncmp(s->regimes[i].name, "## Call", 7) != 0);
    if (ok && !marked && !(s->options && s->options->region)) ok = whole(s, &l);
    lookup_free(&l);
    return ok ? EP_OK : EP_ERROR_OUT_OF_MEMORY;
}
