/* Device times of launches: CUPTI where it may run; else a pair of events around each launch, read at the next sync. */
#include "cuda_probe.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "cupti.h"

typedef struct timed_launch {
    cuda_launch launch;
    const char *name;
    uint64_t correlation;
    cu_event start, end;
} timed_launch;

struct cuda_timing {
    timed_launch *launches;
    size_t count, cap;
    cu_event *spare;
    size_t spare_count, spare_cap;
    cu_event base; /* recorded when the host clock said base_ns */
    int64_t base_ns;
};

static cu_event take_event(cuda_state *s, struct cuda_timing *t) {
    if (t->spare_count) return t->spare[--t->spare_count];
    cu_event e = NULL;
    return s->cu->event_create(&e, 0) == 0 ? e : NULL;
}

static void give_event(struct cuda_timing *t, cu_event e) {
    if (e && ep_grow(&t->spare, &t->spare_cap, t->spare_count + 1, sizeof *t->spare)) t->spare[t->spare_count++] = e;
}

/* The first launch of a recording ties the device's time line to the host's: an event on an idle stream. */
static bool open_timing(cuda_state *s) {
    if (s->timing) return true;
    struct cuda_timing *t = calloc(1, sizeof *t);
    if (!t) return false;
    t->base = take_event(s, t);
    bool idle = t->base && s->cu->stream_sync(s->stream) == 0;
    int64_t before = ep_clock_ns();
    if (!idle || s->cu->event_record(t->base, s->stream) != 0 || s->cu->event_sync(t->base) != 0) {
        if (t->base) s->cu->event_destroy(t->base);
        free(t);
        return false;
    }
    t->base_ns = ep_clock_ns();
    atomic_store(&ep_probe_device_error_ns, t->base_ns - before);
    s->timing = t;
    return true;
}

void cuda_probe_begin(cuda_state *s, const ep_probe *p, const char *name, cuda_probe_mark *mark) {
    mark->correlation = ep_probe_correlation();
    mark->start = NULL;
    mark->cupti = cupti_start(NULL);
    if (!mark->cupti && !s->capture && open_timing(s)) {
        mark->start = take_event(s, s->timing);
        if (mark->start) s->cu->event_record(mark->start, s->stream);
    }
    ep_probe_span span = {.kind = EP_PROBE_LAUNCH, .name = name, .correlation = mark->correlation};
    p->begin(p->self, &span);
    if (mark->cupti) cupti_push(mark->correlation);
}

void cuda_probe_end(cuda_state *s, const ep_probe *p, const cuda_launch *l, const cuda_probe_mark *mark) {
    if (mark->cupti) {
        cupti_pop();
        cupti_work(mark->correlation, l->flops, l->bytes_read, l->bytes_written);
    }
    p->end(p->self);
    struct cuda_timing *t = s->timing;
    if (!mark->start || !t) return;
    cu_event end = take_event(s, t);
    if (end) s->cu->event_record(end, s->stream);
    if (!end || !ep_grow(&t->launches, &t->cap, t->count + 1, sizeof *t->launches)) {
        give_event(t, mark->start);
        give_event(t, end);
        return;
    }
    t->launches[t->count++] = (timed_launch){*l, p->name(p->self, l->name), mark->correlation, mark->start, end};
}

static void deliver(cuda_state *s, const ep_probe *p, const timed_launch *l) {
    const struct cuda_timing *t = s->timing;
    float start, length;
    if (s->cu->event_elapsed(&start, t->base, l->start) != 0 || s->cu->event_elapsed(&length, l->start, l->end) != 0)
        return;
    ep_probe_kernel k = {.name = l->name,
                         .what = "kernel",
                         .correlation = l->correlation,
                         .device = s->index,
                         .stream = 7, /* as traces show a process's first: the driver tells none */
                         .flops = l->launch.flops,
                         .bytes_read = l->launch.bytes_read,
                         .bytes_written = l->launch.bytes_written,
                         .block = {l->launch.block, 1, 1},
                         .shared_bytes = l->launch.shared_bytes,
                         .source = EP_SOURCE_EVENT};
    for (int i = 0; i < 3; i++) k.grid[i] = l->launch.grid[i];
    k.start = t->base_ns + (int64_t)((double)start * 1e6);
    k.end = k.start + (int64_t)((double)length * 1e6);
    p->kernel(p->self, &k);
}

ep_status cuda_probe_flush(cuda_state *s, ep_error *err) {
    (void)err;
    const ep_probe *p = ep_probe_get();
    if (p) cupti_flush_if_full();
    struct cuda_timing *t = s->timing;
    if (!t) return EP_OK;
    for (size_t i = 0; i < t->count; i++) {
        if (p) deliver(s, p, &t->launches[i]);
        give_event(t, t->launches[i].start);
        give_event(t, t->launches[i].end);
    }
    t->count = 0;
    return EP_OK;
}

void cuda_probe_close(cuda_state *s) {
    struct cuda_timing *t = s->timing;
    if (!t) return;
    cuda_probe_flush(s, NULL);
    for (size_t i = 0; i < t->spare_count; i++) s->cu->event_destroy(t->spare[i]);
    s->cu->event_destroy(t->base);
    free(t->launches);
    free(t->spare);
    free(t);
    s->timing = NULL;
}
