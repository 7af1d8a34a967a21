/* A window, a step or a region of a trace, cut while reading. A first pass finds out where it lies; the second keeps what
 * lies in it, so that memory is spent on the part alone. Device work belongs to a region if its launch does. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "kineto.h"

ep_status kineto_cut_begin(kineto_reader *r) {
    const ep_read_options *o = r->options;
    kineto_cut *c = &r->cut;
    bool window = o && (o->window_start_ns || o->window_end_ns), region = o && (o->region || o->use_step);
    if (!window && !region) return EP_OK;
    if (window && region)
        return ep_fail(r->err, EP_ERROR_INVALID_ARGUMENT, "a cut is by window, or by step and region, not by both");
    if (window && o->window_end_ns <= o->window_start_ns)
        return ep_fail(r->err, EP_ERROR_INVALID_ARGUMENT,
                       "the window ends (%" PRId64 " ns) before it starts (%" PRId64 ")", o->window_end_ns,
                       o->window_start_ns);
    c->mode = window ? CUT_WINDOW : CUT_REGION;
    c->looking = true;
    c->region = o->region;
    if (o->use_step) snprintf(c->step, sizeof c->step, "ProfilerStep#%" PRId64, o->step);
    r->passes = 2;
    return EP_OK;
}

static bool is_the_step(const kineto_cut *c, slice name) {
    return name.n && strlen(c->step) == name.n && memcmp(c->step, name.s, name.n) == 0;
}

static bool name_matches(const kineto_cut *c, slice name) {
    if (!c->region) return is_the_step(c, name);
    char text[1024];
    if (name.n >= sizeof text) return false;
    if (name.n) memcpy(text, name.s, name.n); /* a region without a name has no text either */
    text[name.n] = 0;
    return ep_glob(c->region, text);
}

static bool is_step(slice name) {
    return name.n > 13 && memcmp(name.s, "ProfilerStep#", 13) == 0;
}

static void note_name(kineto_cut *c, slice name) {
    if (c->names_count >= 8 || !name.n || name.n > 60) return;
    char text[64];
    memcpy(text, name.s, name.n);
    text[name.n] = 0;
    if (c->names.data && strstr(c->names.data, text)) return;
    ep_text_add(&c->names, c->names_count++ ? ", " : "");
    ep_text_add(&c->names, text);
}

static void add_span(kineto_reader *r, kineto_spans *to) {
    const raw_event *e = &r->raw;
    uint32_t pid = ep_trace_string(r->trace, e->pid.s, e->pid.n);
    if (pid == UINT32_MAX || !ep_grow(&to->list, &to->cap, to->count + 1, sizeof *to->list)) {
        r->cut.no_memory = true;
        return;
    }
    to->list[to->count++] = (kineto_span){pid, e->ts, e->ts + e->dur};
}

void kineto_cut_look(kineto_reader *r, ep_event_kind kind) {
    kineto_cut *c = &r->cut;
    const raw_event *e = &r->raw;
    bool span = e->phase == 'X' && e->has_ts && e->has_dur, begin = e->phase == 'B' && e->has_ts;
    if (!span && !begin) return;
    if (ep_event_is_device_work((uint8_t)kind) && e->ts == 0 && e->dur == 0) {
        c->origin = true;
    } else if (kind != EP_EVENT_PROFILER) {
        int64_t end = e->ts + (span ? e->dur : 0);
        if (!c->any || e->ts < c->first) c->first = e->ts;
        if (!c->any || end > c->last) c->last = end;
        c->any = true;
    }
    if (!span) return;
    /* In files of 2021 annotations are operators: there the name alone decides. */
    if (c->mode != CUT_REGION || (kind != EP_EVENT_REGION && kind != EP_EVENT_OP)) return;
    bool both = c->region && *c->step;
    if (both && is_the_step(c, e->name)) add_span(r, &c->steps);
    if (name_matches(c, e->name))
        add_span(r, &c->instances);
    else if (kind == EP_EVENT_REGION || is_step(e->name))
        note_name(c, e->name);
}

static int span_order(const void *a, const void *b) {
    const kineto_span *x = a, *y = b;
    if (x->pid != y->pid) return x->pid < y->pid ? -1 : 1;
    return x->start < y->start ? -1 : x->start > y->start;
}

/* Sorts the instances and joins those that overlap, so that one search answers. */
static void join_spans(kineto_spans *s) {
    if (s->count) qsort(s->list, s->count, sizeof *s->list, span_order);
    size_t n = 0;
    for (size_t i = 0; i < s->count; i++) {
        kineto_span *last = n ? &s->list[n - 1] : NULL;
        if (last && last->pid == s->list[i].pid && s->list[i].start <= last->end) {
            if (s->list[i].end > last->end) last->end = s->list[i].end;
        } else {
            s->list[n++] = s->list[i];
        }
    }
    s->count = n;
}

static bool in_spans(const kineto_spans *s, uint32_t pid, int64_t at) {
    size_t lo = 0, hi = s->count;
    while (lo < hi) { /* the first span behind (pid, at) */
        size_t mid = lo + (hi - lo) / 2;
        const kineto_span *span = &s->list[mid];
        if (span->pid < pid || (span->pid == pid && span->start <= at))
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo && s->list[lo - 1].pid == pid && at < s->list[lo - 1].end;
}

/* A step and a region: the instances that start in the step. */
static ep_status keep_in_step(kineto_reader *r) {
    kineto_cut *c = &r->cut;
    size_t n = 0;
    if (!c->steps.count)
        return ep_fail(r->err, EP_ERROR_NOT_FOUND, "no region is named '%s'%s%s", c->step,
                       c->names_count ? "; there are " : "", c->names_count ? ep_text_str(&c->names) : "");
    join_spans(&c->steps);
    for (size_t i = 0; i < c->instances.count; i++)
        if (in_spans(&c->steps, c->instances.list[i].pid, c->instances.list[i].start))
            c->instances.list[n++] = c->instances.list[i];
    if (c->instances.count && !n)
        return ep_fail(r->err, EP_ERROR_NOT_FOUND, "none of the %zu regions named '%s' starts in %s",
                       c->instances.count, c->region, c->step);
    c->instances.count = n;
    return EP_OK;
}

static ep_status found_window(kineto_reader *r) {
    kineto_cut *c = &r->cut;
    c->first = kineto_first_start(c->any, c->first, c->origin);
    c->start = c->first + r->options->window_start_ns;
    c->end = c->first + r->options->window_end_ns;
    if (c->any && c->start > c->last)
        return ep_fail(r->err, EP_ERROR_NOT_FOUND,
                       "the window begins %.3f us after the trace's start, the trace ends after %.3f us",
                       (double)r->options->window_start_ns * 1e-3, (double)(c->last - c->first) * 1e-3);
    return EP_OK;
}

ep_status kineto_cut_found(kineto_reader *r) {
    kineto_cut *c = &r->cut;
    c->looking = false;
    if (c->no_memory) return ep_fail(r->err, EP_ERROR_OUT_OF_MEMORY, "no memory for a region's instances");
    if (!c->any && !c->origin)
        return ep_fail(r->err, EP_ERROR_NOT_FOUND, "the trace has no span events to cut a %s from",
                       c->mode == CUT_WINDOW ? "window" : "region");
    if (c->mode == CUT_WINDOW) return found_window(r);
    if (c->region && *c->step) EP_TRY(keep_in_step(r));
    if (!c->instances.count)
        return ep_fail(r->err, EP_ERROR_NOT_FOUND, "no region is named '%s'%s%s", c->region ? c->region : c->step,
                       c->names_count ? "; there are " : " and the trace has no regions at all",
                       c->names_count ? ep_text_str(&c->names) : "");
    join_spans(&c->instances);
    return EP_OK;
}

bool kineto_cut_wants(const kineto_reader *r, ep_event_kind kind, uint32_t pid) {
    const kineto_cut *c = &r->cut;
    const raw_event *e = &r->raw;
    if (kind == EP_EVENT_META) return true;
    if (!e->has_ts) return false;
    if (c->mode == CUT_WINDOW) {
        int64_t dur = e->phase == 'X' && e->has_dur ? e->dur : 0;
        return e->ts < c->end && (e->ts >= c->start || e->ts + dur > c->start);
    }
    /* By launch, which may stand anywhere in the file: kept for now. */
    if (ep_event_is_device_work((uint8_t)kind) || kind == EP_EVENT_SYNC) return e->correlation != 0;
    /* A region's copy on the device does not tell which step it is of. */
    if (kind == EP_EVENT_DEVICE_REGION) return !(c->region && *c->step) && name_matches(c, e->name);
    return in_spans(&c->instances, pid, e->ts);
}

static int u64_order(const void *a, const void *b) {
    uint64_t x, y;
    memcpy(&x, a, 8);
    memcpy(&y, b, 8);
    return x < y ? -1 : x > y;
}

bool kineto_cut_leave(kineto_reader *r, ep_event_kind kind) {
    kineto_cut *c = &r->cut;
    const raw_event *e = &r->raw;
    bool span = e->phase == 'B' || (e->phase == 'X' && e->has_dur);
    if (kind != EP_EVENT_RUNTIME || !span || !e->correlation) return true;
    if (!ep_grow(&c->outside, &c->outside_cap, c->outside_count + 1, sizeof *c->outside)) return false;
    c->outside[c->outside_count++] = e->correlation;
    return true;
}

static bool has_number(const uint64_t *numbers, size_t n, uint64_t number) {
    return n && bsearch(&number, numbers, n, sizeof number, u64_order) != NULL;
}

/* A number that a call outside carries, too, links nothing, as in the whole file: the call in the cut loses it. */
static void unlink_shared(ep_trace *t, kineto_cut *c) {
    if (!c->outside_count) return;
    qsort(c->outside, c->outside_count, sizeof *c->outside, u64_order);
    for (size_t i = 0; i < t->count; i++)
        if (t->kind[i] == EP_EVENT_RUNTIME && has_number(c->outside, c->outside_count, ep_trace_correlation(t, i)))
            ep_trace_set_correlation(t, i, 0);
}

/* Drops the device work that no kept call launched. */
ep_status kineto_cut_finish(kineto_reader *r) {
    ep_trace *t = r->trace;
    if (r->cut.mode == CUT_NONE || t->count == 0) return EP_OK;
    unlink_shared(t, &r->cut);
    if (r->cut.mode != CUT_REGION) return EP_OK;
    uint64_t *calls = ep_malloc_array(t->count, sizeof *calls);
    uint8_t *keep = ep_malloc_array(t->count, 1);
    size_t n = 0;
    if (!calls || !keep) {
        free(calls);
        free(keep);
        return ep_fail(r->err, EP_ERROR_OUT_OF_MEMORY, "no memory to cut %zu events", t->count);
    }
    for (size_t i = 0; i < t->count; i++)
        if (t->kind[i] == EP_EVENT_RUNTIME && ep_trace_correlation(t, i)) calls[n++] = ep_trace_correlation(t, i);
    qsort(calls, n, sizeof *calls, u64_order);
    for (size_t i = 0; i < t->count; i++)
        keep[i] = (!ep_event_is_device_work(t->kind[i]) && t->kind[i] != EP_EVENT_SYNC) ||
                  has_number(calls, n, ep_trace_correlation(t, i));
    ep_trace_compact(t, keep);
    free(calls);
    free(keep);
    return EP_OK;
}

void kineto_cut_free(kineto_cut *c) {
    free(c->instances.list);
    free(c->steps.list);
    free(c->outside);
    ep_text_free(&c->names);
}
