/* Regions of both traces by name: the median instance's device work as items, and its host work by name. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/sort.h"
#include "diff.h"

typedef struct pick {
    uint32_t event;
    int64_t ns;
} pick;

static int by_ns(const void *a, const void *b) {
    const pick *x = a, *y = b;
    return x->ns < y->ns ? -1 : x->ns > y->ns;
}

static bool is_graph(const char *name) {
    return strncmp(name, "## Call CompiledFxGraph", 23) == 0;
}

/* Instances of a region by its common name ("ProfilerStep" for all steps); malloc'ed. */
static pick *instances(const ep_study *s, const char *name, size_t *count) {
    const ep_facts *f = s->facts;
    pick *list = ep_malloc_array(f->instance_count, sizeof *list);
    *count = 0;
    for (size_t i = 0; list && i < f->region_count; i++) {
        const ep_region_fact *r = &f->regions[i];
        if (strcmp(name, "ProfilerStep") == 0 ? !ep_region_is_step(r->name) : strcmp(r->name, name) != 0) continue;
        for (uint32_t k = r->first; k < r->first + r->count; k++) {
            uint32_t e = f->instances[k].event;
            list[(*count)++] = (pick){e, s->trace->dur[e]};
        }
    }
    return list;
}

static bool all_work(const ep_study *s, uint32_t **out, size_t *count) {
    *out = ep_malloc_array(s->work_count, sizeof **out);
    for (size_t i = 0; *out && i < s->work_count; i++) (*out)[i] = (uint32_t)i;
    *count = s->work_count;
    return *out != NULL;
}

static bool fill_item(ep_diff_result *d, const ep_study *s, uint32_t work, ep_diff_item *item) {
    const ep_device_work *w = &s->work[work];
    memset(item, 0, sizeof *item);
    item->kernel = ep_study_name(s, w->event);
    /* under a graph's replay the owner is the call that replays, the same for all */
    bool replay = ep_work_in_replay(s, w);
    item->op = replay ? "" : ep_study_name(s, ep_work_owner(s, w));
    item->decoded = w->kind == EP_NO_INDEX ? NULL : &s->facts->names[w->kind].decoded;
    item->row = &s->rows[w->row];
    item->event = w->event;
    uint32_t node = s->node_of[work];
    /* only a node's main kernel speaks for its shapes; a memset beside it does not */
    item->node = s->work[s->nodes[node].main].event == w->event ? node : EP_NO_INDEX;
    item->key = ep_intern_add(&d->names, item->kernel, strlen(item->kernel));
    item->cls = (uint8_t)ep_work_class(s, w);
    item->ns = s->trace->dur[w->event];
    item->pair = -1;
    return item->key != UINT32_MAX;
}

static void count_item(ep_diff_side *side, const ep_diff_item *i) {
    side->device_ns += i->ns;
    side->kernels += i->decoded != NULL;
    side->memsets += !i->decoded && i->cls == EP_CLASS_MEMSET;
    side->copies += !i->decoded && i->cls == EP_CLASS_COPY;
}

/* Medians over the instances that run the very sequence of the chosen one; at most 64 are asked, and not for longer than a
 * thousand such sequences are: instances in each other by the thousand are all of another length. */
static bool medians(ep_diff_side *side, const pick *list, size_t n) {
    size_t most = n < 64 ? n : 64, used = 0, looked_at = 0;
    int64_t *values = ep_malloc_array(side->count * most, sizeof *values);
    bool ok = values != NULL;
    for (size_t i = 0; ok && i < n && used < most && looked_at <= 1000 * (side->count + 1); i++) {
        uint32_t *work = NULL;
        size_t count = 0;
        const ep_study *s = side->study;
        ok = ep_study_region_work(s, list[i].event, &work, &count);
        looked_at += count;
        bool equal = ok && count == side->count;
        for (size_t k = 0; equal && k < count; k++)
            equal = strcmp(ep_study_name(s, s->work[work[k]].event), side->items[k].kernel) == 0;
        for (size_t k = 0; equal && k < count; k++) values[k * most + used] = s->trace->dur[s->work[work[k]].event];
        used += equal;
        free(work);
    }
    for (size_t k = 0; ok && used && k < side->count; k++) {
        qsort(values + k * most, used, sizeof *values, ep_by_int64);
        side->items[k].ns = values[k * most + (used - 1) / 2];
    }
    free(values);
    return ok;
}

static bool fill_side(ep_diff_result *d, ep_study *s, const char *name, ep_diff_side *side) {
    uint32_t *work = NULL;
    size_t n = 0, count = 0;
    side->study = s;
    side->event = EP_NO_INDEX;
    pick *list = name ? instances(s, name, &n) : NULL;
    if (name && !list) return false;
    size_t skip = n >= 3;
    if (n) {
        qsort(list + skip, n - skip, sizeof *list, by_ns);
        side->event = list[skip + (n - skip - 1) / 2].event;
        side->host_ns = s->trace->dur[side->event];
    } else {
        side->host_ns = s->facts->span_end_ns - s->facts->span_start_ns;
    }
    side->instances = n ? (int64_t)n : 1;
    bool ok = n ? ep_study_region_work(s, side->event, &work, &count) : all_work(s, &work, &count);
    side->items = ok ? ep_malloc_array(count, sizeof *side->items) : NULL;
    ok = ok && side->items;
    for (size_t i = 0; ok && i < count; i++) ok = fill_item(d, s, work[i], &side->items[i]);
    side->count = ok ? count : 0;
    if (ok && n) ok = medians(side, list, n);
    for (size_t i = 0; i < side->count; i++) count_item(side, &side->items[i]);
    free(work);
    free(list);
    return ok;
}

typedef struct host_part {
    const char *name;
    int64_t self_ns;
    int side;
} host_part;

static int by_name(const void *a, const void *b) {
    const host_part *x = a, *y = b;
    int c = strcmp(x->name, y->name);
    return c ? c : x->side - y->side;
}

/* A graph's region carries a hash in its name; both sides call it the same. */
static const char *host_name(const char *name) {
    return is_graph(name)                                    ? "## Call CompiledFxGraph ##"
           : strncmp(name, "Torch-Compiled Region", 21) == 0 ? "Torch-Compiled Region"
                                                             : name;
}

static bool is_host_work(uint8_t kind) {
    return kind == EP_EVENT_OP || kind == EP_EVENT_REGION || kind == EP_EVENT_COMPILE;
}

/* Every op and span of the instance with its self time (children taken off). */
static bool host_parts(const ep_diff_side *side, int which, host_part **list, size_t *count, size_t *cap) {
    const ep_study *s = side->study;
    const ep_trace *t = s->trace;
    const ep_links *l = s->facts->links;
    int64_t from = side->event == EP_NO_INDEX ? INT64_MIN : t->ts[side->event];
    int64_t to = side->event == EP_NO_INDEX ? INT64_MAX : from + t->dur[side->event];
    uint32_t *slot = ep_malloc_array(t->count, sizeof *slot);
    if (!slot) return false;
    for (size_t k = 0; k < l->order_count; k++) {
        uint32_t e = l->order[k];
        slot[e] = EP_NO_INDEX;
        bool lane = side->event == EP_NO_INDEX || t->lane[e] == t->lane[side->event];
        if (!lane || t->ts[e] < from || t->ts[e] >= to || !is_host_work(t->kind[e]) || e == side->event) continue;
        const char *name = ep_study_name(s, e);
        if (side->event != EP_NO_INDEX && t->kind[e] == EP_EVENT_REGION && t->dur[e] >= t->dur[side->event]) continue;
        if (ep_region_is_step(name)) continue;
        if (!ep_grow(list, cap, *count + 1, sizeof **list)) {
            free(slot);
            return false;
        }
        slot[e] = (uint32_t)*count;
        (*list)[(*count)++] = (host_part){host_name(name), t->dur[e], which};
        uint32_t up = l->parent[e]; /* stands before its children in `order` */
        if (up != EP_NO_INDEX && t->ts[up] >= from && slot[up] != EP_NO_INDEX && is_host_work(t->kind[up]))
            (*list)[slot[up]].self_ns -= t->dur[e];
    }
    free(slot);
    return true;
}

static bool fill_host(ep_diff_region *r) {
    host_part *list = NULL;
    size_t count = 0, cap = 0;
    bool ok = host_parts(&r->a, 0, &list, &count, &cap) && host_parts(&r->b, 1, &list, &count, &cap);
    if (ok && count) qsort(list, count, sizeof *list, by_name);
    for (size_t i = 0; ok && i < count; i++) {
        if (!r->host_count || strcmp(r->host[r->host_count - 1].name, list[i].name) != 0) {
            ok = ep_grow(&r->host, &r->host_cap, r->host_count + 1, sizeof *r->host);
            if (!ok) break;
            r->host[r->host_count++] = (ep_diff_host){list[i].name, {0, 0}, {0, 0}};
        }
        ep_diff_host *h = &r->host[r->host_count - 1];
        h->count[list[i].side]++;
        h->self_ns[list[i].side] += list[i].self_ns;
    }
    free(list);
    return ok;
}

static bool add_region(ep_diff_result *d, const char *name, const char *shown) {
    if (!ep_grow(&d->regions, &d->region_cap, d->region_count + 1, sizeof *d->regions)) return false;
    ep_diff_region *r = &d->regions[d->region_count++];
    memset(r, 0, sizeof *r);
    r->name = ep_arena_copy(&d->arena, shown, strlen(shown)); /* --fail-on may ask after the traces are gone */
    if (!r->name) return false;
    return fill_side(d, d->a, name, &r->a) && fill_side(d, d->b, name, &r->b) && fill_host(r) && ep_diff_pair_up(d, r);
}

static const char *common_name(const char *name) {
    return ep_region_is_step(name) ? "ProfilerStep" : name;
}

/* The common names of a trace's regions, for looking up. */
static bool region_names(const ep_study *s, ep_intern *names) {
    for (size_t i = 0; i < s->facts->region_count; i++) {
        const char *name = common_name(s->facts->regions[i].name);
        if (ep_intern_add(names, name, strlen(name)) == UINT32_MAX) return false;
    }
    return true;
}

static bool done(const ep_diff_result *d, const char *name) {
    for (size_t i = 0; i < d->region_count; i++)
        if (strcmp(d->regions[i].name, name) == 0) return true;
    return false;
}

static int by_change(const void *x, const void *y) {
    const ep_diff_host *const *a = x, *const *b = y;
    int64_t p = llabs((*a)->self_ns[1] - (*a)->self_ns[0]), q = llabs((*b)->self_ns[1] - (*b)->self_ns[0]);
    if (p != q) return p < q ? 1 : -1;
    return *a < *b ? -1 : *a > *b; /* by name */
}

const ep_diff_host **ep_diff_host_by_change(const ep_diff_region *r) {
    const ep_diff_host **list = malloc((r->host_count + 1) * sizeof *list);
    for (size_t i = 0; list && i < r->host_count; i++) list[i] = &r->host[i];
    if (list && r->host_count) qsort(list, r->host_count, sizeof *list, by_change);
    return list;
}

/* A backend's span around one collective: a part, never what a person asks about. */
static bool is_collective(const char *name) {
    return strncmp(name, "gloo:", 5) == 0 || strncmp(name, "nccl:", 5) == 0;
}

/* The region that a person means: the most device time of an instance, a step only if there is nothing else; among
 * regions of the same work the inner one, which stands later. Without a device the most host time, and the step unless
 * one region is nearly all of it. */
static void choose_main(ep_diff_result *d) {
    bool host = ep_diff_host_only(d);
    int64_t most = -1;
    for (size_t i = 0; i < d->region_count; i++) {
        const ep_diff_region *r = &d->regions[i];
        int64_t ns = host ? r->a.host_ns + r->b.host_ns : r->a.device_ns + r->b.device_ns;
        if (host && is_collective(r->name)) continue;
        if (strcmp(r->name, "ProfilerStep") == 0 && d->region_count > 1) ns = host ? ns / 10 * 7 : ns / 2;
        if (ns >= most - most / 64) most = ns > most ? ns : most, d->main = i;
    }
}

bool ep_diff_regions(ep_diff_result *d) {
    enum { MOST = 64 }; /* more names than that are made per call and no one reads them */
    ep_intern names = {0};
    bool ok = region_names(d->b, &names);
    for (size_t i = 0; ok && i < d->a->facts->region_count && d->region_count < MOST; i++) {
        const char *name = common_name(d->a->facts->regions[i].name);
        if (is_graph(name) || ep_intern_find(&names, name, strlen(name)) == UINT32_MAX) continue;
        if (done(d, name) || !ep_study_wants(d->a, name)) continue;
        ok = add_region(d, name, name);
    }
    ep_intern_free(&names);
    if (!ok || (d->region_count == 0 && !add_region(d, NULL, "(whole trace)"))) return false;
    choose_main(d);
    return true;
}
