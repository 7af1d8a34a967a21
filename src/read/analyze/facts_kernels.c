/* Kernels in the order of their streams, their distinct names, and how busy each device was. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/sort.h"
#include "facts_parts.h"

static const ep_lane *lane_of(const ep_trace *t, uint32_t row) {
    return &t->lanes[t->lane[row]];
}

static bool stream_order(const void *user, uint32_t a, uint32_t b) {
    const ep_trace *t = user;
    const ep_lane *x = lane_of(t, a), *y = lane_of(t, b);
    if (x->device != y->device) return x->device < y->device;
    if (x->stream != y->stream) return x->stream < y->stream;
    return t->ts[a] < t->ts[b];
}

static bool device_order(const void *user, uint32_t a, uint32_t b) {
    const ep_trace *t = user;
    const ep_lane *x = lane_of(t, a), *y = lane_of(t, b);
    if (x->device != y->device) return x->device < y->device;
    return t->ts[a] < t->ts[b];
}

/* Rows of device work, sorted; the caller's. NULL: memory is out. */
static uint32_t *device_rows(const ep_trace *t, bool kernels_only, ep_row_before before, size_t *count) {
    size_t n = 0;
    for (int pass = 0;; pass++) {
        uint32_t *rows = pass ? ep_malloc_array(n, sizeof *rows) : NULL;
        if (pass && !rows) return NULL;
        n = 0;
        for (size_t i = 0; i < t->count; i++) {
            bool wanted = kernels_only ? t->kind[i] == EP_EVENT_KERNEL : ep_event_is_device_work(t->kind[i]);
            if (!wanted || !ep_event_is_span(t, i)) continue;
            if (pass) rows[n] = (uint32_t)i;
            n++;
        }
        if (!pass) continue;
        *count = n;
        if (ep_sort_rows(rows, n, before, t)) return rows;
        free(rows);
        return NULL;
    }
}

bool facts_kernels(ep_facts *f) {
    uint32_t *rows = device_rows(f->trace, true, stream_order, &f->kernel_count);
    if (!rows) return false;
    f->kernels = ep_malloc_array(f->kernel_count, sizeof *f->kernels);
    for (size_t k = 0; f->kernels && k < f->kernel_count; k++) f->kernels[k] = (ep_kernel_fact){rows[k], 0};
    free(rows);
    return f->kernels != NULL;
}

static int by_total(const void *a, const void *b) {
    const ep_kernel_kind *x = a, *y = b;
    if (x->total_ns != y->total_ns) return x->total_ns > y->total_ns ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* The names in order of their totals; `of` maps a string's number to its place in names[] and back to the kernels. */
bool facts_names(ep_facts *f) {
    const ep_trace *t = f->trace;
    uint32_t *of = calloc(t->strings.count + 1, sizeof *of);
    size_t cap = 0;
    if (!of) return false;
    for (size_t k = 0; k < f->kernel_count; k++) {
        uint32_t row = f->kernels[k].event, id = t->name[row];
        if (!of[id]) {
            if (!ep_grow(&f->names, &cap, f->name_count + 1, sizeof *f->names)) {
                free(of);
                return false;
            }
            f->names[f->name_count] = (ep_kernel_kind){.name = ep_trace_text(t, id)};
            of[id] = (uint32_t)++f->name_count;
        }
        f->names[of[id] - 1].count++;
        f->names[of[id] - 1].total_ns += t->dur[row];
    }
    if (f->name_count) qsort(f->names, f->name_count, sizeof *f->names, by_total);
    for (size_t n = 0; n < f->name_count; n++) {
        ep_kernel_kind *name = &f->names[n];
        ep_kernel_name_decode(name->name, &name->decoded);
        name->cls = (uint8_t)ep_kernel_class_of(&name->decoded);
        of[ep_intern_find(&t->strings, name->name, strlen(name->name))] = (uint32_t)n + 1;
    }
    for (size_t k = 0; k < f->kernel_count; k++) f->kernels[k].name_id = of[t->name[f->kernels[k].event]] - 1;
    free(of);
    return true;
}

static const char *device_name(const ep_trace *t, int64_t id) {
    for (size_t i = 0; i < t->device_count; i++)
        if (t->devices[i].id == id && t->devices[i].name) return ep_trace_text(t, t->devices[i].name);
    return NULL;
}

/* Adds one event of a device, in the order of starts: `covered` is where its busy time has come to. */
static void add_work(ep_device_fact *d, const ep_trace *t, uint32_t row, int64_t *covered) {
    int64_t start = t->ts[row], end = start + t->dur[row];
    d->kernels += t->kind[row] == EP_EVENT_KERNEL;
    d->memcpys += t->kind[row] == EP_EVENT_MEMCPY;
    d->memsets += t->kind[row] == EP_EVENT_MEMSET;
    if (facts_impossible(t, row)) return;
    if (d->end_ns < d->start_ns) { /* the first one */
        d->start_ns = d->end_ns = *covered = start;
    }
    if (end > d->end_ns) d->end_ns = end;
    if (end > *covered) {
        d->busy_ns += end - (start > *covered ? start : *covered);
        *covered = end;
    }
}

bool facts_devices(ep_facts *f) {
    const ep_trace *t = f->trace;
    size_t n, cap = 0;
    int64_t covered = 0;
    uint32_t *rows = device_rows(t, false, device_order, &n);
    if (!rows) return false;
    for (size_t k = 0; k < n; k++) {
        int64_t id = lane_of(t, rows[k])->device;
        if (!f->device_count || f->devices[f->device_count - 1].id != id) {
            if (!ep_grow(&f->devices, &cap, f->device_count + 1, sizeof *f->devices)) {
                free(rows);
                return false;
            }
            f->devices[f->device_count++] = (ep_device_fact){.id = id, .name = device_name(t, id), .end_ns = -1};
        }
        add_work(&f->devices[f->device_count - 1], t, rows[k], &covered);
    }
    free(rows);
    for (size_t d = 0; d < f->device_count; d++) {
        ep_device_fact *fact = &f->devices[d];
        if (fact->end_ns < fact->start_ns) fact->end_ns = fact->start_ns;
        fact->span_ns = fact->end_ns - fact->start_ns;
    }
    return true;
}
