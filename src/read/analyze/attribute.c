/* Whose time: what each op launched, how long it took with and without the ops in it, which ops launched nothing. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "facts_parts.h"

/* An op that is open while a lane is walked: the time its inner ops took so far. */
typedef struct open_op {
    uint32_t row;
    bool memory;               /* copies or memsets run for it */
    int64_t inner_ns, covered; /* covered: no time before it is counted again */
} open_op;

typedef struct attribution {
    ep_facts *f;
    uint32_t *of; /* by string: place in f->ops + 1 */
    size_t cap;
    uint32_t *calls; /* of the lane in hand */
    size_t calls_cap;
    launch_sum *sums;
    size_t sums_cap;
    open_op *open;
    size_t open_count, open_cap;
    size_t near;
} attribution;

static int64_t end_of(const ep_trace *t, uint32_t row) {
    return t->ts[row] + t->dur[row];
}

static ep_op_fact *fact_of(attribution *a, uint32_t name) {
    ep_facts *f = a->f;
    if (!a->of[name]) {
        if (!ep_grow(&f->ops, &a->cap, f->op_count + 1, sizeof *f->ops)) return NULL;
        f->ops[f->op_count] = (ep_op_fact){.name = ep_trace_text(f->trace, name)};
        a->of[name] = (uint32_t)++f->op_count;
    }
    return &f->ops[a->of[name] - 1];
}

/* An op is over: its own time is what its inner ops left. */
static void close_op(attribution *a) {
    const ep_trace *t = a->f->trace;
    open_op *o = &a->open[--a->open_count];
    ep_op_fact *fact = &a->f->ops[a->of[t->name[o->row]] - 1];
    int64_t self = t->dur[o->row] - o->inner_ns;
    fact->self_ns += self;
    if (self > fact->longest_self_ns) fact->longest_self_ns = self;
    if (a->f->health.device_recorded && a->f->op_kernels[o->row] == 0) {
        fact->views++;
        fact->view_self_ns += self;
        fact->idle += !o->memory;
        fact->idle_self_ns += o->memory ? 0 : self;
    }
}

/* A backward op counts for its forward op and every op around that, once a name. Of the engine's span and the op in it
 * the outer one counts. */
static bool add_backward(attribution *a, uint32_t row, const launch_sum *s) {
    const ep_links *l = a->f->links;
    const ep_trace *t = a->f->trace;
    uint32_t up = l->parent[row], seen[32];
    int count = 0;
    if (up != EP_NO_INDEX && t->kind[up] == EP_EVENT_OP && ep_links_forward(l, up) == ep_links_forward(l, row))
        return true;
    for (uint32_t op = ep_links_forward(l, row); op != EP_NO_INDEX && count < 32; op = l->parent[op]) {
        int at = 0;
        while (at < count && seen[at] != t->name[op]) at++;
        if (at < count || t->kind[op] != EP_EVENT_OP) continue;
        seen[count++] = t->name[op];
        ep_op_fact *fact = fact_of(a, t->name[op]);
        if (!fact) return false;
        fact->backward_count++;
        fact->backward_ns += t->dur[row];
        fact->backward_device_ns += s->device_ns;
        fact->backward_kernels += s->kernels;
    }
    return true;
}

static bool open_one(attribution *a, uint32_t row, size_t calls) {
    const ep_trace *t = a->f->trace;
    while (a->open_count && end_of(t, a->open[a->open_count - 1].row) <= t->ts[row]) close_op(a);
    if (a->open_count) {
        open_op *up = &a->open[a->open_count - 1];
        int64_t from = t->ts[row] > up->covered ? t->ts[row] : up->covered;
        int64_t up_end = end_of(t, up->row), to = end_of(t, row) < up_end ? end_of(t, row) : up_end;
        if (to > from) {
            up->inner_ns += to - from;
            up->covered = to;
        }
    }
    ep_op_fact *fact = fact_of(a, t->name[row]);
    if (!fact || !ep_grow(&a->open, &a->open_cap, a->open_count + 1, sizeof *a->open)) return false;
    launch_sum s = facts_sum_between(a->f, a->calls, a->sums, calls, t->ts[row], end_of(t, row), &a->near);
    a->f->op_kernels[row] = s.kernels;
    fact->count++;
    fact->total_ns += t->dur[row];
    fact->kernels += s.kernels;
    fact->device_ns += s.device_ns;
    a->open[a->open_count++] = (open_op){row, s.memcpys + s.memsets > 0, 0, t->ts[row]};
    return ep_links_forward(a->f->links, row) == EP_NO_INDEX || add_backward(a, row, &s);
}

static bool walk_lane(attribution *a, const uint32_t *rows, size_t n) {
    const ep_trace *t = a->f->trace;
    size_t calls = 0;
    a->near = 0;
    for (size_t k = 0; k < n; k++) {
        if (!facts_is_call(a->f, rows[k])) continue;
        if (!ep_grow(&a->calls, &a->calls_cap, calls + 1, sizeof *a->calls)) return false;
        a->calls[calls++] = rows[k];
    }
    if (!ep_grow(&a->sums, &a->sums_cap, facts_sum_count(calls), sizeof *a->sums)) return false;
    facts_sum_launches(a->f, a->calls, calls, a->sums);
    for (size_t k = 0; k < n; k++)
        if (t->kind[rows[k]] == EP_EVENT_OP && !open_one(a, rows[k], calls)) return false;
    while (a->open_count) close_op(a);
    return true;
}

static bool walk_lanes(attribution *a) {
    const ep_links *l = a->f->links;
    for (size_t from = 0, to; from < l->order_count; from = to) {
        uint32_t lane = a->f->trace->lane[l->order[from]];
        for (to = from; to < l->order_count && a->f->trace->lane[l->order[to]] == lane;) to++;
        if (!walk_lane(a, l->order + from, to - from)) return false;
    }
    return true;
}

static int by_self(const void *a, const void *b) {
    const ep_op_fact *x = a, *y = b;
    if (x->self_ns != y->self_ns) return x->self_ns > y->self_ns ? -1 : 1;
    return strcmp(x->name, y->name);
}

bool facts_ops(ep_facts *f) {
    const ep_trace *t = f->trace;
    attribution a = {.f = f, .of = calloc(t->strings.count + 1, sizeof(uint32_t))};
    f->op_kernels = f->links->launch; /* of which ops make no other use */
    bool ok = a.of && walk_lanes(&a);
    for (size_t k = 0; ok && k < f->kernel_count; k++) {
        uint32_t owner = ep_links_owner(f->links, f->kernels[k].event);
        if (owner != EP_NO_INDEX) f->ops[a.of[t->name[owner]] - 1].self_kernels++;
    }
    if (ok && f->op_count) qsort(f->ops, f->op_count, sizeof *f->ops, by_self);
    free(a.of);
    free(a.calls);
    free(a.sums);
    free(a.open);
    return ok;
}
