/* What the host does that makes a device wait: synchronisations, allocator calls in steady state, copies from memory
 * that is not pinned, and the set-up that the first op of a process pays. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analyze.h"
#include "base/alloc.h"

static bool is_sync(const char *name) {
    return strstr(name, "Synchronize") != NULL || strstr(name, "EventQuery") != NULL;
}

static bool is_allocator(const char *name) {
    static const char *const names[] = {"cudaMalloc", "cudaFree",  "cudaHostAlloc", "cudaMallocHost",
                                        "cuMemAlloc", "cuMemFree", "cuMemCreate",   "cuMemMap",
                                        "hipMalloc",  "hipFree",   "cuMemUnmap",    "hipHostMalloc"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strncmp(name, names[i], strlen(names[i])) == 0) return strstr(name, "Async") == NULL;
    return false;
}

/* What a call's name says; worked out once a name. */
enum { LOOKED_AT = 1, SYNC = 2, ALLOCATOR = 4, COPY = 8, PAGEABLE = 16 };

static uint8_t traits(const ep_study *s, uint8_t *by_name, size_t i) {
    uint8_t *all = &by_name[s->trace->name[i]];
    if (*all) return *all;
    const char *name = ep_study_name(s, (uint32_t)i);
    *all = (uint8_t)(LOOKED_AT | (is_sync(name) ? SYNC : 0) | (is_allocator(name) ? ALLOCATOR : 0) |
                     (strstr(name, "Memcpy") ? COPY : 0) | (strstr(name, "Pageable -> Device") ? PAGEABLE : 0));
    return *all;
}

static int by_value(const void *a, const void *b) {
    const double *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

static bool median_delay(ep_study *s) {
    double *delays = ep_malloc_array(s->work_count, sizeof *delays);
    size_t n = 0;
    s->median_delay_us = NAN;
    if (!delays) return false;
    for (size_t i = 0; i < s->work_count; i++) {
        const ep_device_work *w = &s->work[i];
        if (ep_work_launch(s, w) == EP_NO_INDEX || w->kind == EP_NO_INDEX) continue;
        delays[n++] = (double)(s->trace->ts[w->event] - ep_work_launch_ts(s, w)) * 1e-3;
    }
    if (n) {
        qsort(delays, n, sizeof *delays, by_value);
        s->median_delay_us = delays[(n - 1) / 2];
    }
    free(delays);
    return true;
}

/* Steady state begins with the second step; without steps, with the second half of the trace. */
static int64_t steady_from(const ep_study *s) {
    int64_t first = INT64_MAX, second = INT64_MAX;
    for (size_t r = 0; r < s->facts->region_count; r++) {
        const ep_region_fact *f = &s->facts->regions[r];
        if (strncmp(f->name, "ProfilerStep", 12) != 0) continue;
        for (uint32_t i = f->first; i < f->first + f->count; i++) {
            int64_t ts = s->trace->ts[s->facts->instances[i].event];
            if (ts < first)
                second = first, first = ts;
            else if (ts < second)
                second = ts;
        }
    }
    if (second != INT64_MAX) return second;
    return s->facts->span_start_ns + (s->facts->span_end_ns - s->facts->span_start_ns) / 2;
}

static void runtime_call(ep_study *s, size_t i, int64_t steady, uint8_t *by_name) {
    const ep_trace *t = s->trace;
    uint8_t is = traits(s, by_name, i);
    if (is & SYNC) {
        s->sync_calls++;
        s->sync_ns += t->dur[i];
        if (t->dur[i] > s->longest_sync_ns)
            s->longest_sync_ns = t->dur[i], s->longest_sync = ep_study_name(s, (uint32_t)i);
    }
    if (t->ts[i] >= steady && (is & ALLOCATOR)) {
        s->allocator_calls++;
        s->allocator_ns += t->dur[i];
    }
}

/* The op that holds most of the time before the first kernel: context, module loads, first allocations. */
static void find_setup(ep_study *s, uint8_t *by_name) {
    const ep_trace *t = s->trace;
    int64_t longest = 0;
    uint32_t row = EP_NO_INDEX;
    for (size_t i = 0; i < t->count; i++) {
        if (t->kind[i] != EP_EVENT_RUNTIME || !ep_event_is_span(t, i)) continue;
        bool setup = (traits(s, by_name, i) & (SYNC | COPY)) == 0;
        if (setup && t->dur[i] > longest) longest = t->dur[i], row = (uint32_t)i;
    }
    uint32_t op = row == EP_NO_INDEX ? EP_NO_INDEX : ep_links_owner(s->facts->links, row);
    if (longest < 1000000) return; /* under a millisecond nobody asks */
    s->setup_us = (double)longest * 1e-3;
    s->setup_op = op == EP_NO_INDEX ? ep_study_name(s, row)
                                    : ep_study_printf(s, "%s in %s", ep_study_name(s, row), ep_study_name(s, op));
}

ep_status ep_analyze_host(ep_study *s, ep_error *err) {
    (void)err;
    const ep_trace *t = s->trace;
    int64_t steady = steady_from(s);
    uint8_t *by_name = calloc(t->strings.count + 1, 1);
    if (!by_name) return EP_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < t->count; i++) {
        if (!ep_event_is_span(t, i)) continue;
        if (t->kind[i] == EP_EVENT_RUNTIME) runtime_call(s, i, steady, by_name);
        if (t->kind[i] == EP_EVENT_MEMCPY && (traits(s, by_name, i) & PAGEABLE)) {
            int64_t bytes = t->infos[t->info[i]].bytes;
            s->pageable_copies++;
            s->pageable_ns += t->dur[i];
            s->pageable_bytes += bytes > 0 ? bytes : 0;
        }
    }
    find_setup(s, by_name);
    free(by_name);
    return median_delay(s) ? EP_OK : EP_ERROR_OUT_OF_MEMORY;
}
