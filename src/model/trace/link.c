/* Launch and device work by correlation, ops and their parents by time on one lane; docs/trace.md defines both. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/sort.h"
#include "link_forward.h"

static int64_t end_of(const ep_trace *t, size_t i) {
    return t->ts[i] + t->dur[i];
}

/* A trace without lanes keeps its rows on lane 0. */
static size_t lane_slots(const ep_trace *t) {
    return t->lane_count ? t->lane_count : 1;
}

static bool before(const void *user, uint32_t a, uint32_t b) {
    const ep_trace *t = user;
    if (t->ts[a] != t->ts[b]) return t->ts[a] < t->ts[b];
    return t->dur[a] > t->dur[b];
}

static bool starts_before(const void *user, uint32_t a, uint32_t b) {
    const ep_trace *t = user;
    return t->ts[a] < t->ts[b];
}

static void fill(uint32_t *p, size_t n, uint32_t value) {
    for (size_t i = 0; i < n; i++) p[i] = value;
}

/* Spans bucketed by lane in file order; first[lane] .. first[lane + 1] is a lane's part of `order`. */
static ep_status make_order(const ep_trace *t, ep_links *l, size_t *first) {
    for (size_t i = 0; i < t->count; i++)
        if (ep_event_is_span(t, i)) first[t->lane[i] + 1]++;
    for (size_t k = 0; k < lane_slots(t); k++) first[k + 1] += first[k];
    l->order_count = first[lane_slots(t)];
    l->order = ep_malloc_array(l->order_count, sizeof *l->order);
    size_t *next = ep_malloc_array(lane_slots(t) + 1, sizeof *next);
    if (!l->order || !next) {
        free(next);
        return EP_ERROR_OUT_OF_MEMORY;
    }
    memcpy(next, first, (lane_slots(t) + 1) * sizeof *next);
    for (size_t i = 0; i < t->count; i++)
        if (ep_event_is_span(t, i)) l->order[next[t->lane[i]]++] = (uint32_t)i;
    free(next);
    for (size_t k = 0; k < lane_slots(t); k++)
        if (!ep_sort_rows(l->order + first[k], first[k + 1] - first[k], before, t)) return EP_ERROR_OUT_OF_MEMORY;
    return EP_OK;
}

/* Open spans of a lane. A dead one under a live one stays until it comes to the top: spans that cross are rare. */
typedef struct stack {
    uint32_t *rows;
    size_t count, cap;
} stack;

static uint32_t innermost(const ep_trace *t, stack *s, int64_t at) {
    while (s->count && end_of(t, s->rows[s->count - 1]) <= at) s->count--;
    return s->count ? s->rows[s->count - 1] : EP_NO_INDEX;
}

static bool push(stack *s, uint32_t row) {
    if (!ep_grow(&s->rows, &s->cap, s->count + 1, sizeof *s->rows)) return false;
    s->rows[s->count++] = row;
    return true;
}

static bool encloses(uint8_t kind) {
    return kind == EP_EVENT_OP || kind == EP_EVENT_REGION;
}

static bool find_parents(const ep_trace *t, ep_links *l, const uint32_t *rows, size_t n, stack *s) {
    s->count = 0;
    for (size_t k = 0; k < n; k++) {
        /* An op of no length at the very end of another one is in it: clocks of whole microseconds make many. */
        uint32_t i = rows[k];
        bool empty = t->dur[i] == 0 && encloses(t->kind[i]) && t->ts[i] > INT64_MIN;
        uint32_t up = innermost(t, s, t->ts[i] - empty);
        l->parent[i] = up;
        if (!encloses(t->kind[i])) continue;
        if (up != EP_NO_INDEX && end_of(t, i) > end_of(t, up)) l->mended_nesting++;
        if (!push(s, i)) return false;
    }
    return true;
}

/* The first op up a row's parents; one that stands behind very many regions is kept among `owners`. */
static uint32_t op_above(const ep_links *l, uint32_t row) {
    uint32_t up = l->parent[row];
    for (int k = 0; k < 32 && up != EP_NO_INDEX; k++, up = l->parent[up])
        if (l->trace->kind[up] == EP_EVENT_OP) return up;
    return EP_NO_INDEX;
}

static int pair_order(const void *a, const void *b) {
    const ep_row_pair *x = a, *y = b;
    return x->row < y->row ? -1 : x->row > y->row;
}

static const ep_row_pair *find_pair(const ep_row_pair *pairs, size_t n, uint32_t row) {
    return n ? bsearch(&(ep_row_pair){row, 0}, pairs, n, sizeof *pairs, pair_order) : NULL;
}

uint32_t ep_links_owner(const ep_links *l, uint32_t row) {
    if (ep_event_is_device_work(l->trace->kind[row])) row = l->launch[row];
    if (row == EP_NO_INDEX || l->trace->kind[row] != EP_EVENT_RUNTIME) return EP_NO_INDEX;
    const ep_row_pair *odd = find_pair(l->owners, l->owner_count, row);
    return odd ? odd->other : op_above(l, row);
}

uint32_t ep_links_forward(const ep_links *l, uint32_t row) {
    const ep_row_pair *pair = find_pair(l->forwards, l->forward_count, row);
    return pair ? pair->other : EP_NO_INDEX;
}

/* The owner op of each runtime call of a lane. Ops that start with the call or before it are open candidates, even one
 * that is shorter than the call and so stands behind it in `rows`. */
static bool find_owners(const ep_trace *t, ep_links *l, const uint32_t *rows, size_t n, stack *s) {
    s->count = 0;
    size_t ahead = 0;
    for (size_t k = 0; k < n; k++) {
        uint32_t call = rows[k];
        if (t->kind[call] != EP_EVENT_RUNTIME) continue;
        for (; ahead < n && t->ts[rows[ahead]] <= t->ts[call]; ahead++) {
            if (t->kind[rows[ahead]] != EP_EVENT_OP) continue;
            innermost(t, s, t->ts[rows[ahead]]); /* keeps the stack short */
            if (!push(s, rows[ahead])) return false;
        }
        uint32_t owner = innermost(t, s, t->ts[call]);
        if (owner == op_above(l, call)) continue;
        if (!ep_grow(&l->owners, &l->owner_cap, l->owner_count + 1, sizeof *l->owners)) return false;
        l->owners[l->owner_count++] = (ep_row_pair){call, owner};
    }
    return true;
}

/* Runtime calls by correlation: open addressing over row + 1. A number that several calls carry is shared: no link. */
#define SHARED UINT32_C(0x80000000) /* no trace has as many rows */
typedef struct call_table {
    uint32_t *slots;
    size_t mask;
} call_table;

static size_t call_slot(const ep_trace *t, const call_table *c, uint64_t correlation) {
    size_t i = (size_t)(correlation * 0x9e3779b97f4a7c15u >> 20) & c->mask;
    while (c->slots[i] && ep_trace_correlation(t, (c->slots[i] & ~SHARED) - 1) != correlation) i = (i + 1) & c->mask;
    return i;
}

static bool call_table_fill(const ep_trace *t, call_table *c, size_t calls) {
    size_t size = 64;
    while (size < calls * 2) size *= 2;
    c->slots = calloc(size, sizeof *c->slots);
    c->mask = size - 1;
    if (!c->slots) return false;
    for (size_t i = 0; i < t->count; i++) {
        if (t->kind[i] != EP_EVENT_RUNTIME || ep_trace_correlation(t, i) == 0 || !ep_event_is_span(t, i)) continue;
        size_t slot = call_slot(t, c, ep_trace_correlation(t, i));
        c->slots[slot] = c->slots[slot] ? c->slots[slot] | SHARED : (uint32_t)i + 1;
    }
    return true;
}

static bool by_call(const void *user, uint32_t a, uint32_t b) {
    const ep_links *l = user;
    if (l->launch[a] != l->launch[b]) return l->launch[a] < l->launch[b];
    return starts_before(l->trace, a, b);
}

/* Gives every device event its call, and every call its part of `work_list`. */
static bool find_launches(const ep_trace *t, ep_links *l, const call_table *c, size_t device_events) {
    l->work_list = ep_malloc_array(device_events, sizeof *l->work_list);
    if (!l->work_list) return false;
    for (size_t i = 0; i < t->count; i++) {
        if (!ep_event_is_device_work(t->kind[i]) || ep_trace_correlation(t, i) == 0 || !ep_event_is_span(t, i))
            continue;
        uint32_t row = c->slots[call_slot(t, c, ep_trace_correlation(t, i))];
        if (!row || row & SHARED) continue;
        l->launch[i] = row - 1;
        l->work_list[l->work_total++] = (uint32_t)i;
    }
    if (!ep_sort_rows(l->work_list, l->work_total, by_call, l)) return false;
    for (size_t k = l->work_total; k-- > 0;) l->first_work[l->launch[l->work_list[k]]] = (uint32_t)k;
    return true;
}

uint32_t ep_links_work_count(const ep_links *l, uint32_t row) {
    uint32_t n = 0;
    if (!ep_links_has_work(l, row)) return 0;
    for (size_t k = l->first_work[row]; k < l->work_total && l->launch[l->work_list[k]] == row; k++) n++;
    return n;
}

static bool allocate(const ep_trace *t, ep_links *l) {
    uint32_t **const arrays[] = {&l->parent, &l->launch};
    for (size_t k = 0; k < sizeof arrays / sizeof *arrays; k++) {
        *arrays[k] = ep_malloc_array(t->count, sizeof **arrays[k]);
        if (!*arrays[k]) return false;
        fill(*arrays[k], t->count, EP_NO_INDEX);
    }
    l->first_work = l->launch;
    return true;
}

static ep_status link_all(const ep_trace *t, ep_links *l, size_t *first, call_table *calls, stack *s) {
    EP_TRY(make_order(t, l, first)); /* first, while its scratch has the room that the links will take */
    if (!allocate(t, l)) return EP_ERROR_OUT_OF_MEMORY;
    for (size_t k = 0; k < lane_slots(t); k++) {
        const uint32_t *rows = l->order + first[k];
        size_t n = first[k + 1] - first[k];
        if (!find_parents(t, l, rows, n, s) || !find_owners(t, l, rows, n, s)) return EP_ERROR_OUT_OF_MEMORY;
    }
    if (l->owner_count) qsort(l->owners, l->owner_count, sizeof *l->owners, pair_order);
    if (!link_forward(t, l, first)) return EP_ERROR_OUT_OF_MEMORY;
    size_t call_count = 0, device_count = 0;
    for (size_t i = 0; i < t->count; i++) {
        call_count += t->kind[i] == EP_EVENT_RUNTIME;
        device_count += ep_event_is_device_work(t->kind[i]);
    }
    if (!call_table_fill(t, calls, call_count)) return EP_ERROR_OUT_OF_MEMORY;
    return find_launches(t, l, calls, device_count) ? EP_OK : EP_ERROR_OUT_OF_MEMORY;
}

ep_status ep_links_create(const ep_trace *t, ep_error *err, ep_links **out) {
    ep_links *l = calloc(1, sizeof *l);
    size_t *first = calloc(lane_slots(t) + 1, sizeof *first);
    call_table calls = {0};
    stack s = {0};
    ep_status status = EP_ERROR_OUT_OF_MEMORY;
    if (l && first) {
        l->trace = t;
        l->count = t->count;
        status = link_all(t, l, first, &calls, &s);
    }
    free(first);
    free(calls.slots);
    free(s.rows);
    if (status != EP_OK) {
        ep_links_destroy(l);
        return ep_fail(err, status, "no memory for the links of %zu events", t->count);
    }
    *out = l;
    return EP_OK;
}

void ep_links_destroy(ep_links *l) {
    if (!l) return;
    free(l->parent);
    free(l->launch);
    free(l->owners);
    free(l->forwards);
    free(l->work_list);
    free(l->order);
    free(l);
}
