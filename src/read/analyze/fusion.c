/* What could be one kernel: chains of pointwise work, epilogues of GEMMs, copies that feed the next op. What it saves is
 * an upper bound: a kernel that moves only the bytes that stay, at the device's full bandwidth. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analyze.h"
#include "base/alloc.h"
#include "base/hash.h"

typedef struct chain {
    uint32_t nodes[EP_CHAIN_MAX];
    int length;
    bool heavy; /* holds a norm or a reduction: one is enough for a kernel */
} chain;

static const char *op_name(ep_study *s, uint32_t node) {
    const ep_node *n = &s->nodes[node];
    if (ep_node_owner(s, n) != EP_NO_INDEX) return ep_study_name(s, ep_node_owner(s, n));
    return ep_study_name(s, s->work[n->main].event);
}

static bool same_text(const char *a, const char *b) {
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool same_row(const ep_fusion_row *a, const ep_fusion_row *b) {
    if (a->length != b->length || strcmp(a->kind, b->kind) || !same_text(a->blocked_by, b->blocked_by)) return false;
    if (a->intermediate_bytes != b->intermediate_bytes) return false;
    for (int i = 0; i < a->length; i++)
        if (a->ops[i] != b->ops[i] || a->kernels[i] != b->kernels[i]) return false;
    return true;
}

static uint64_t hash_row(const ep_fusion_row *r) {
    uint64_t h = ep_hash64(r->kind, strlen(r->kind), (uint64_t)r->intermediate_bytes);
    h = ep_hash64(r->ops, sizeof r->ops[0] * (size_t)r->length, h);
    return ep_hash64(r->kernels, sizeof r->kernels[0] * (size_t)r->length, h);
}

typedef struct row_index {
    uint32_t *slots;
    size_t mask;
} row_index;

/* Adds a row or counts it to an equal one. Times saved add up, so that the mean over instances can be given. */
static bool add(ep_study *s, row_index *ix, const ep_fusion_row *r) {
    size_t i = (size_t)hash_row(r) & ix->mask;
    while (ix->slots[i] && !same_row(&s->fusions[ix->slots[i] - 1], r)) i = (i + 1) & ix->mask;
    if (ix->slots[i]) {
        ep_fusion_row *old = &s->fusions[ix->slots[i] - 1];
        old->instances++;
        old->ns += r->ns;
        old->us_saved += r->us_saved;
        return true;
    }
    if (!ep_grow(&s->fusions, &s->fusion_cap, s->fusion_count + 1, sizeof *s->fusions)) return false;
    s->fusions[s->fusion_count++] = *r;
    ix->slots[i] = (uint32_t)s->fusion_count;
    return true;
}

static bool is_graph(const char *name) {
    return strncmp(name, "## Call CompiledFxGraph", 23) == 0 || strncmp(name, "Torch-Compiled Region", 21) == 0;
}

static bool is_step(const char *name) {
    return ep_region_is_step(name) || strcmp(name, "step") == 0;
}

/* By node: the nearest span around its owner op (or the op itself) whose name is wanted, or EP_NO_INDEX. NULL: no memory.
 * Parents stand before their children in links->order, so nesting of any depth takes one pass. */
static uint32_t *spans_around(const ep_study *s, bool (*wanted)(const char *name)) {
    const ep_trace *t = s->trace;
    const ep_links *l = s->facts->links;
    uint32_t *around = ep_malloc_array(s->node_count, sizeof *around);
    uint8_t *is = calloc(t->strings.count + 1, 1);
    bool any = false;
    for (uint32_t id = 0; is && id < t->strings.count; id++) {
        is[id] = wanted(ep_trace_text(t, id));
        any = any || is[id];
    }
    uint32_t *nearest = any ? ep_malloc_array(t->count, sizeof *nearest) : NULL;
    if (!around || !is || (any && !nearest)) {
        free(around);
        free(is);
        free(nearest);
        return NULL;
    }
    for (size_t k = 0; any && k < l->order_count; k++) {
        uint32_t row = l->order[k], up = l->parent[row];
        nearest[row] = is[t->name[row]] ? row : up == EP_NO_INDEX ? EP_NO_INDEX : nearest[up];
    }
    for (size_t n = 0; n < s->node_count; n++) {
        uint32_t owner = ep_node_owner(s, &s->nodes[n]);
        around[n] = any && owner != EP_NO_INDEX ? nearest[owner] : EP_NO_INDEX;
    }
    free(is);
    free(nearest);
    return around;
}

/* What one step leaves the next does not read, however well the shapes agree. Ops of another thread, or of a trace without
 * steps, are in none. */
static bool steps_apart(const ep_study *s, uint32_t a, uint32_t b) {
    uint32_t x = s->node_step[a], y = s->node_step[b];
    return x != EP_NO_INDEX && y != EP_NO_INDEX && x != y;
}

static const ep_kernel_name *decoded(const ep_study *s, uint32_t node) {
    uint32_t kind = s->work[s->nodes[node].main].kind;
    return kind == EP_NO_INDEX ? NULL : &s->facts->names[kind].decoded;
}

static bool is_triton(const ep_study *s, uint32_t node) {
    const ep_kernel_name *d = decoded(s, node);
    return d && strcmp(d->vendor, "triton") == 0;
}

static const char *blocked(const ep_study *s, const chain *c) {
    uint32_t graph = s->node_graph[c->nodes[0]];
    bool all_triton = true;
    for (int i = 0; i < c->length; i++) {
        if (s->node_graph[c->nodes[i]] != graph) return "a graph boundary lies between";
        all_triton = all_triton && is_triton(s, c->nodes[i]);
    }
    if (graph != EP_NO_INDEX && all_triton) return "the compiler saw both and kept them apart";
    return NULL;
}

static int64_t bytes_of(const ep_study *s, uint32_t node) {
    const ep_work_row *r = &s->rows[s->nodes[node].row];
    return r->bytes_read + r->bytes_written;
}

static int inside(const chain *c, uint32_t node) {
    for (int i = 0; i < c->length; i++)
        if (c->nodes[i] == node) return i;
    return -1;
}

static void name_row(ep_study *s, ep_fusion_row *r, const char *kind, const chain *c) {
    memset(r, 0, sizeof *r);
    r->kind = kind;
    r->instances = 1;
    r->length = c->length;
    for (int i = 0; i < c->length; i++) {
        r->ops[i] = op_name(s, c->nodes[i]);
        r->kernels[i] = ep_study_name(s, s->work[s->nodes[c->nodes[i]].main].event);
        r->ns += ep_node_ns(s, &s->nodes[c->nodes[i]]);
    }
}

/* A group of pointwise work, at most one norm or reduction in it. */
static bool add_group(ep_study *s, row_index *ix, const chain *c) {
    ep_fusion_row r;
    int64_t all = 0;
    bool second_reader = false;
    uint32_t inner_reads[EP_CHAIN_MAX] = {0};
    name_row(s, &r, "pointwise", c);
    for (int i = 0; i < c->length; i++) {
        const ep_node *n = &s->nodes[c->nodes[i]];
        all += bytes_of(s, c->nodes[i]);
        for (int k = 0; k < ep_node_inputs(n); k++) {
            uint32_t from = ep_node_producer(s, n, k);
            int p = from == EP_NO_INDEX ? -1 : inside(c, from);
            if (p >= 0) inner_reads[p]++;
        }
    }
    for (int i = 0; i < c->length; i++) {
        if (!inner_reads[i]) continue;
        const ep_node *n = &s->nodes[c->nodes[i]];
        int64_t out = s->rows[n->row].out_bytes;
        bool kept = n->readers > inner_reads[i];
        second_reader = second_reader || kept;
        r.intermediate_bytes += out;
        r.bytes_saved += out * (inner_reads[i] + (kept ? 0 : 1));
    }
    double bandwidth = ep_study_bandwidth(s), left = (double)(all - r.bytes_saved);
    r.us_by_bytes = bandwidth > 0 ? (double)r.bytes_saved / bandwidth * 1e-3 : NAN;
    r.us_saved = bandwidth > 0 ? fmax(0, (double)r.ns * 1e-3 - left / bandwidth * 1e-3) : NAN;
    r.blocked_by = blocked(s, c);
    if (!r.blocked_by && second_reader) r.blocked_by = "a second reader: what lies between must still be written";
    return add(s, ix, &r);
}

static bool light(uint8_t cls) {
    return cls == EP_CLASS_POINTWISE;
}

static bool heavy(uint8_t cls) {
    return cls == EP_CLASS_NORM || cls == EP_CLASS_REDUCTION;
}

/* May the chain take this node in as a reader of what it holds? */
static bool joins(const ep_study *s, const chain *c, uint32_t node) {
    if (steps_apart(s, c->nodes[0], node)) return false;
    const ep_node *n = &s->nodes[node];
    if (c->length >= EP_CHAIN_MAX || !s->rows[n->row].known) return false;
    if (!light(n->cls) && !(heavy(n->cls) && !c->heavy)) return false;
    for (int i = 0; i < ep_node_inputs(n); i++) {
        uint32_t from = ep_node_producer(s, n, i);
        int at = from == EP_NO_INDEX ? -1 : inside(c, from);
        if (at >= 0 && (light(s->nodes[c->nodes[at]].cls) || s->nodes[c->nodes[at]].cls == EP_CLASS_NORM)) return true;
    }
    return false;
}

/* Does a node read what a node outside of the chain made from the chain's results? One kernel could not do both. */
static bool comes_back(const ep_study *s, const chain *c, const bool *outside, uint32_t node) {
    const ep_node *n = &s->nodes[node];
    for (int i = 0; i < ep_node_inputs(n); i++) {
        uint32_t from = ep_node_producer(s, n, i);
        if (from != EP_NO_INDEX && from > c->nodes[0] && outside[from - c->nodes[0]]) return true;
    }
    return false;
}

static bool reads_chain(const ep_study *s, const chain *c, uint32_t node) {
    const ep_node *n = &s->nodes[node];
    for (int i = 0; i < ep_node_inputs(n); i++)
        if (ep_node_producer(s, n, i) != EP_NO_INDEX && inside(c, ep_node_producer(s, n, i)) >= 0) return true;
    return false;
}

enum { REACH = 6 }; /* nodes between one member and the next, at most */

/* Grows a chain from `first` over readers that follow within a few nodes. */
static void grow(const ep_study *s, uint32_t first, const bool *used, chain *c) {
    bool outside[EP_CHAIN_MAX * REACH + 1] = {false}; /* by distance from the first: rests on the chain, not in it */
    c->nodes[0] = first;
    c->length = 1;
    c->heavy = heavy(s->nodes[first].cls);
    for (uint32_t n = first + 1; n < s->node_count && n - c->nodes[c->length - 1] <= REACH; n++) {
        if (ep_node_stream(s, &s->nodes[n]) != ep_node_stream(s, &s->nodes[first])) break;
        bool back = comes_back(s, c, outside, n);
        if (used[n] || back || !joins(s, c, n)) {
            outside[n - first] = back || reads_chain(s, c, n);
            continue;
        }
        c->heavy = c->heavy || heavy(s->nodes[n].cls);
        c->nodes[c->length++] = n;
    }
}

static bool add_groups(ep_study *s, row_index *ix) {
    bool *used = calloc(s->node_count + 1, sizeof *used);
    bool ok = used != NULL;
    for (uint32_t n = 0; ok && n < s->node_count; n++) {
        chain c;
        if (used[n] || !s->rows[s->nodes[n].row].known || !(light(s->nodes[n].cls) || s->nodes[n].cls == EP_CLASS_NORM))
            continue;
        grow(s, n, used, &c);
        if (c.length < 2) continue;
        for (int i = 0; i < c.length; i++) used[c.nodes[i]] = true;
        ok = add_group(s, ix, &c);
    }
    free(used);
    return ok;
}

/* A pointwise op right behind the product it reads: it could be the product's epilogue. */
static bool add_epilogue(ep_study *s, row_index *ix, uint32_t gemm, uint32_t node) {
    chain c = {{gemm, node}, 2, false};
    ep_fusion_row r;
    const ep_node *p = &s->nodes[gemm], *n = &s->nodes[node];
    name_row(s, &r, "epilogue", &c);
    r.intermediate_bytes = s->rows[p->row].out_bytes;
    r.bytes_saved = r.intermediate_bytes * (p->readers > 1 ? 1 : 2);
    double bandwidth = ep_study_bandwidth(s);
    r.us_by_bytes = bandwidth > 0 ? (double)r.bytes_saved / bandwidth * 1e-3 : NAN;
    r.us_saved = (double)ep_node_ns(s, n) * 1e-3;
    r.blocked_by = blocked(s, &c);
    for (int i = 0; i < ep_node_inputs(n) && !r.blocked_by; i++)
        if (ep_node_producer(s, n, i) != EP_NO_INDEX && ep_node_producer(s, n, i) > gemm)
            r.blocked_by = "its other operand is computed later";
    if (!r.blocked_by && p->readers > 1) r.blocked_by = "a second reader: what lies between must still be written";
    return add(s, ix, &r);
}

/* A copy whose result is read once: the reader could read the source in place. */
static bool add_copy(ep_study *s, row_index *ix, uint32_t copy, uint32_t node) {
    chain c = {{copy, node}, 2, false};
    ep_fusion_row r;
    const ep_work_row *row = &s->rows[s->nodes[copy].row];
    name_row(s, &r, "copy", &c);
    r.intermediate_bytes = row->out_bytes;
    r.bytes_saved = row->bytes_read + row->bytes_written;
    double bandwidth = ep_study_bandwidth(s);
    r.us_by_bytes = bandwidth > 0 ? (double)r.bytes_saved / bandwidth * 1e-3 : NAN;
    r.us_saved = (double)ep_node_ns(s, &s->nodes[copy]) * 1e-3;
    r.blocked_by = blocked(s, &c);
    if (!r.blocked_by && s->nodes[copy].readers > 1) r.blocked_by = "a second reader of the copy";
    return add(s, ix, &r);
}

/* Brought from the host or another device: no kernel here could read it where it lay. */
static bool from_elsewhere(const ep_study *s, uint32_t node) {
    static const char *const ways[] = {"HtoD", "PtoP", "HostToDevice" /* HIP */};
    uint32_t event = s->work[s->nodes[node].main].event;
    if (s->trace->kind[event] != EP_EVENT_MEMCPY) return false;
    const char *name = ep_study_name(s, event);
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++)
        if (strstr(name, ways[i])) return true;
    return false;
}

static bool add_edges(ep_study *s, row_index *ix) {
    for (uint32_t n = 0; n < s->node_count; n++) {
        const ep_node *node = &s->nodes[n];
        for (int i = 0; i < ep_node_inputs(node); i++) {
            uint32_t p = ep_node_producer(s, node, i);
            if (p == EP_NO_INDEX || s->nodes[p].consumer != n) continue;
            bool product = s->nodes[p].cls == EP_CLASS_GEMM || s->nodes[p].cls == EP_CLASS_CONV;
            if (product && light(node->cls) && !add_epilogue(s, ix, p, n)) return false;
            bool moves = s->nodes[p].cls == EP_CLASS_COPY && node->cls != EP_CLASS_COPY &&
                         ep_node_count(&s->nodes[p]) == 1 && !from_elsewhere(s, p);
            if (moves && s->rows[s->nodes[p].row].in[0].numel && !add_copy(s, ix, p, n)) return false;
        }
    }
    return true;
}

/* Pointwise kernels back to back whose shapes are not known: candidates by name and order only. */
static bool add_runs(ep_study *s, row_index *ix) {
    for (uint32_t n = 0; n < s->node_count;) {
        chain c = {{0}, 0, false};
        bool unknown = false;
        uint32_t k = n;
        for (; k < s->node_count && ep_node_stream(s, &s->nodes[k]) == ep_node_stream(s, &s->nodes[n]) &&
               light(s->nodes[k].cls);
             k++) {
            if (c.length < EP_CHAIN_MAX) c.nodes[c.length++] = k;
            unknown = unknown || !s->rows[s->nodes[k].row].known;
        }
        n = k > n ? k : n + 1;
        if (c.length < 2 || !unknown) continue;
        ep_fusion_row r;
        name_row(s, &r, "run", &c);
        r.intermediate_bytes = r.bytes_saved = -1;
        r.us_saved = r.us_by_bytes = NAN;
        r.blocked_by = blocked(s, &c);
        if (!add(s, ix, &r)) return false;
    }
    return true;
}

static int by_worth(const void *a, const void *b) {
    const ep_fusion_row *x = a, *y = b;
    double p = isnan(x->us_saved) ? -1e9 + (double)x->ns : x->us_saved * (double)x->instances;
    double q = isnan(y->us_saved) ? -1e9 + (double)y->ns : y->us_saved * (double)y->instances;
    return p < q ? 1 : p > q ? -1 : strcmp(x->ops[0], y->ops[0]);
}

ep_status ep_analyze_fusion(ep_study *s, ep_error *err) {
    (void)err;
    row_index ix = {NULL, 63};
    while (ix.mask + 1 < s->node_count * 4) ix.mask = ix.mask * 2 + 1;
    ix.slots = calloc(ix.mask + 1, sizeof *ix.slots);
    s->node_graph = spans_around(s, is_graph);
    s->node_step = spans_around(s, is_step);
    bool ok = ix.slots && s->node_graph && s->node_step && add_groups(s, &ix) && add_edges(s, &ix) && add_runs(s, &ix);
    free(ix.slots);
    if (!ok) return EP_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < s->fusion_count; i++) s->fusions[i].us_saved /= (double)s->fusions[i].instances;
    if (s->fusion_count) qsort(s->fusions, s->fusion_count, sizeof *s->fusions, by_worth);
    return EP_OK;
}
