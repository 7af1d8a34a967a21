/* Can the trace be trusted: launches against kernels, times that cannot be, what is missing. */
#include <string.h>

#include "facts_parts.h"

static int64_t repairs_of(const ep_trace *t, const char *kind) {
    for (size_t i = 0; i < t->repair_count; i++)
        if (strcmp(ep_trace_text(t, t->repairs[i].kind), kind) == 0) return t->repairs[i].count;
    return 0;
}

static void look_at_call(ep_facts *f, size_t i) {
    const ep_trace *t = f->trace;
    const char *name = ep_trace_text(t, t->name[i]);
    bool none = !ep_links_has_work(f->links, (uint32_t)i);
    ep_health *h = &f->health;
    if (facts_launches(f, (uint32_t)i)) {
        h->launches++;
        h->launches_without_kernel += none;
        h->graph_launches += ep_runtime_is_graph_launch(name);
    } else if (strstr(name, "Memcpy") || strstr(name, "Memset")) {
        h->memory_launches++;
        h->memory_launches_without_event += none;
    }
}

static void look_at_kernel(ep_facts *f, size_t i) {
    const ep_trace *t = f->trace;
    ep_health *h = &f->health;
    uint32_t launch = f->links->launch[i];
    h->kernels++;
    if (launch == EP_NO_INDEX) {
        h->kernels_without_launch++;
        return;
    }
    int64_t early = t->ts[launch] - t->ts[i];
    if (early <= 0) return;
    h->kernels_before_launch++;
    if (early > h->clock_skew_ns && !facts_impossible(t, i)) h->clock_skew_ns = early;
}

/* Kernels of a stream in the order of their starts: how many began before the ones before them had ended. */
static int64_t count_overlaps(const ep_facts *f) {
    const ep_trace *t = f->trace;
    int64_t overlaps = 0, end = 0;
    for (size_t k = 0; k < f->kernel_count; k++) {
        uint32_t row = f->kernels[k].event;
        const ep_lane *lane = &t->lanes[t->lane[row]];
        const ep_lane *last = k ? &t->lanes[t->lane[f->kernels[k - 1].event]] : NULL;
        bool same = last && last->device == lane->device && last->stream == lane->stream;
        int64_t its_end = t->ts[row] + t->dur[row];
        if (same && t->ts[row] < end) overlaps++;
        end = same && end > its_end ? end : its_end;
    }
    return overlaps;
}

bool facts_health(ep_facts *f) {
    const ep_trace *t = f->trace;
    ep_health *h = &f->health;
    h->complete = t->complete;
    h->skipped = t->skipped;
    h->events = (int64_t)t->count + t->folded;
    for (size_t i = 0; i < t->count; i++) {
        if (!ep_event_is_span(t, i)) continue;
        h->span_events++;
        if (t->kind[i] == EP_EVENT_RUNTIME) look_at_call(f, i);
        if (!ep_event_is_device_work(t->kind[i])) continue;
        h->device_recorded = true;
        if (t->kind[i] == EP_EVENT_KERNEL) look_at_kernel(f, i);
        /* Nothing happens in no time at the very origin of the clock, and nothing before it. */
        int64_t at = t->base_ns + t->ts[i];
        if (at < 0 || (at == 0 && t->dur[i] == 0)) h->impossible_times++;
    }
    h->impossible_times += repairs_of(t, "negative_dur") + repairs_of(t, "impossible_time");
    h->overlaps_on_stream = count_overlaps(f);
    h->mended_nesting = f->links->mended_nesting;
    return true;
}
