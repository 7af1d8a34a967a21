/* Regions, instance by instance: what the region's own thread launched in it, and any thread of its process. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/sort.h"
#include "facts_parts.h"

static bool starts_with(const char *s, const char *start) {
    return strncmp(s, start, strlen(start)) == 0;
}

/* 2021 wrote annotations as operators. */
static bool named_like_region(const char *name) {
    static const char *const starts[] = {"ProfilerStep#", "Optimizer.", "enumerate(DataLoader)#", "## "};
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
        if (starts_with(name, starts[i])) return true;
    return false;
}

static bool time_order(const void *user, uint32_t a, uint32_t b) {
    const ep_trace *t = user;
    if (t->ts[a] != t->ts[b]) return t->ts[a] < t->ts[b];
    return t->dur[a] > t->dur[b];
}

static bool process_order(const void *user, uint32_t a, uint32_t b) {
    const ep_trace *t = user;
    uint32_t x = t->lanes[t->lane[a]].pid, y = t->lanes[t->lane[b]].pid;
    if (x != y) return x < y;
    return t->ts[a] < t->ts[b];
}

static bool thread_order(const void *user, uint32_t a, uint32_t b) {
    const ep_trace *t = user;
    if (t->lane[a] != t->lane[b]) return t->lane[a] < t->lane[b];
    return t->ts[a] < t->ts[b];
}

/* Rows of the regions in time order; the caller's. */
static uint32_t *region_rows(const ep_trace *t, size_t *count) {
    size_t n = 0, cap = 0;
    uint32_t *rows = NULL;
    for (int old = 0; old < 2 && !n; old++)
        for (size_t i = 0; i < t->count; i++) {
            bool is = old ? t->kind[i] == EP_EVENT_OP && named_like_region(ep_trace_text(t, t->name[i]))
                          : t->kind[i] == EP_EVENT_REGION;
            if (!is || !ep_event_is_span(t, i)) continue;
            if (!ep_grow(&rows, &cap, n + 1, sizeof *rows)) {
                free(rows);
                return NULL;
            }
            rows[n++] = (uint32_t)i;
        }
    *count = n;
    if (!rows) return ep_malloc_array(1, sizeof *rows);
    if (ep_sort_rows(rows, n, time_order, t)) return rows;
    free(rows);
    return NULL;
}

/* Instances grouped by name, names in order of first appearance. */
static bool group(ep_facts *f, const uint32_t *rows, size_t n) {
    const ep_trace *t = f->trace;
    uint32_t *of = calloc(t->strings.count + 1, sizeof *of);
    size_t cap = 0;
    f->instances = ep_malloc_array(n, sizeof *f->instances);
    if (!of || !f->instances) {
        free(of);
        return false;
    }
    for (size_t k = 0; k < n; k++) {
        uint32_t name = t->name[rows[k]];
        if (!of[name]) {
            if (!ep_grow(&f->regions, &cap, f->region_count + 1, sizeof *f->regions)) {
                free(of);
                return false;
            }
            f->regions[f->region_count] = (ep_region_fact){ep_trace_text(t, name), 0, 0};
            of[name] = (uint32_t)++f->region_count;
        }
        f->regions[of[name] - 1].count++;
    }
    uint32_t first = 0;
    for (size_t r = 0; r < f->region_count; r++) {
        f->regions[r].first = first;
        first += f->regions[r].count;
        f->regions[r].count = 0;
    }
    for (size_t k = 0; k < n; k++) {
        ep_region_fact *r = &f->regions[of[t->name[rows[k]]] - 1];
        f->instances[r->first + r->count++] = (ep_region_instance){.event = rows[k], .cpu_ns = t->dur[rows[k]]};
    }
    f->instance_count = n;
    free(of);
    return true;
}

/* The launching calls, sorted so that the ones of a thread (or process) stand together in time order. */
typedef struct calls {
    uint32_t *rows;
    launch_sum *sums; /* each group's own, one group behind the other */
    size_t *sum_at;   /* of group g in sums */
    size_t near;
    uint32_t *key; /* of group g */
    size_t *first; /* of group g in rows; [count] is the end */
    size_t count;
} calls;

static uint32_t key_of(const ep_trace *t, uint32_t row, bool process) {
    return process ? t->lanes[t->lane[row]].pid : t->lane[row];
}

static bool gather(const ep_facts *f, bool process, calls *c) {
    const ep_trace *t = f->trace;
    size_t n = 0, cap = 0, keys = 0, firsts = 0;
    for (size_t i = 0; i < t->count; i++) {
        if (!ep_event_is_span(t, i) || !facts_is_call(f, (uint32_t)i)) continue;
        if (!ep_grow(&c->rows, &cap, n + 1, sizeof *c->rows)) return false;
        c->rows[n++] = (uint32_t)i;
    }
    if (!ep_sort_rows(c->rows, n, process ? process_order : thread_order, t)) return false;
    for (size_t k = 0; k < n; k++) {
        uint32_t key = key_of(t, c->rows[k], process);
        if (c->count && c->key[c->count - 1] == key) continue;
        if (!ep_grow(&c->key, &keys, c->count + 1, sizeof *c->key) ||
            !ep_grow(&c->first, &firsts, c->count + 2, sizeof *c->first))
            return false;
        c->key[c->count] = key;
        c->first[c->count++] = k;
    }
    if (!c->count) return true;
    c->first[c->count] = n;
    c->sums = ep_malloc_array(n / LAUNCH_BLOCK + c->count, sizeof *c->sums);
    c->sum_at = ep_malloc_array(c->count, sizeof *c->sum_at);
    if (!c->sums || !c->sum_at) return false;
    for (size_t g = 0, at = 0; g < c->count; g++) {
        size_t launches = c->first[g + 1] - c->first[g];
        c->sum_at[g] = at;
        facts_sum_launches(f, c->rows + c->first[g], launches, c->sums + at);
        at += facts_sum_count(launches);
    }
    return true;
}

static launch_sum sum_of(const ep_facts *f, calls *c, uint32_t row, bool process) {
    const ep_trace *t = f->trace;
    uint32_t key = key_of(t, row, process);
    size_t lo = 0, hi = c->count;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (c->key[mid] < key)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == c->count || c->key[lo] != key) return (launch_sum){0};
    return facts_sum_between(f, c->rows + c->first[lo], c->sums + c->sum_at[lo], c->first[lo + 1] - c->first[lo],
                             t->ts[row], t->ts[row] + t->dur[row], &c->near);
}

static bool count_launches(ep_facts *f, bool process) {
    calls c = {0};
    bool ok = gather(f, process, &c);
    for (size_t i = 0; ok && i < f->instance_count; i++) {
        ep_region_instance *r = &f->instances[i];
        launch_sum s = sum_of(f, &c, r->event, process);
        if (process) {
            r->kernels_any_thread = s.kernels;
            r->device_ns_any_thread = s.device_ns;
            r->kernel_ns_any_thread = s.kernel_ns;
            continue;
        }
        r->kernels = s.kernels;
        r->memcpys = s.memcpys;
        r->memsets = s.memsets;
        r->launches = s.launches;
        r->device_ns = s.device_ns;
        r->kernel_ns = s.kernel_ns;
    }
    free(c.rows);
    free(c.sums);
    free(c.sum_at);
    free(c.key);
    free(c.first);
    return ok;
}

bool facts_regions(ep_facts *f) {
    size_t n;
    uint32_t *rows = region_rows(f->trace, &n);
    if (!rows) return false;
    bool ok = group(f, rows, n);
    free(rows);
    return ok && (!n || (count_launches(f, false) && count_launches(f, true)));
}
