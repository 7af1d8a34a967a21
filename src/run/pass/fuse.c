/* Pointwise ops, and reductions over the last dim, become groups that run as one kernel each. A group has one domain;
 * inside it a value is read at the index at which it is made, or once a row. A node joins if the group stays legal; why
 * it does not is kept for every pair of neighbours. A value that anybody else reads is stored, never dropped. */
#include "pass.h"

#include <stdlib.h>
#include <string.h>

/* What a loop nest has room for (EP_LOOP_* of run/codegen/loop.h): of 60 operands 24 inputs and 32 results; of 8 phases 7
 * walks over a row and the one that stores; of 160 statements one or so for each unit of cost, and the loads and stores. */
enum { MOST_MEMBERS = 32, MOST_INPUTS = 24, MOST_COST = 70, MOST_WALKS = 7 };

typedef struct fuser {
    ep_graph *g;
    int32_t *stack;
    bool *seen;
    bool *row; /* by node: one value a row of its group */
    char why[200];
} fuser;

static bool is_float(ep_dtype t) {
    return t == EP_DTYPE_F32 || t == EP_DTYPE_BF16 || t == EP_DTYPE_F16;
}

/* Eager sums rows that are not adjacent by its reference, in another order: fused they would have other bits. */
static bool rows_are_adjacent(const ep_graph *g, const ep_node *n) {
    for (int k = 0; k < n->input_count; k++) {
        const ep_value *v = &g->values[n->inputs[k]];
        if (v->ndim && v->sizes[v->ndim - 1] > 1 && v->strides[v->ndim - 1] != 1) return false;
    }
    return true;
}

const char *ep_fuse_why_not(const ep_graph *g, const ep_node *n) {
    const ep_op_info *info = ep_op_get(n->op);
    const ep_value *out = &g->values[n->output];
    if (n->kind == EP_NODE_GEMM) return "a product is a kernel of the backend's";
    bool moves = n->op == EP_OP_COPY || n->op == EP_OP_CAST;
    if (info->kind == EP_KIND_REDUCE && n->attr.dims != 1) return "it reduces more than the last dim";
    if (info->kind == EP_KIND_REDUCE && n->op == EP_OP_AMAX && g->values[n->inputs[0]].numel == 0)
        return "the maximum of no elements does not exist";
    if (info->kind != EP_KIND_POINTWISE && info->kind != EP_KIND_REDUCE && info->kind != EP_KIND_NORM && !moves)
        return "no code is generated for this op";
    if (!is_float(out->dtype)) return "code is generated for floating results only";
    if ((info->kind == EP_KIND_REDUCE || info->kind == EP_KIND_NORM) && !rows_are_adjacent(g, n))
        return "its rows are not adjacent in memory";
    for (int k = 0; k < n->input_count; k++) {
        ep_dtype t = g->values[n->inputs[k]].dtype;
        bool condition = n->op == EP_OP_WHERE && k == 0 && t == EP_DTYPE_BOOL;
        if (!is_float(t) && !condition && !(n->op == EP_OP_CAST && t == EP_DTYPE_BOOL))
            return "code is generated for floating operands only";
    }
    return NULL;
}

static bool same_sizes(int ndim, const int64_t *a, const int64_t *b) {
    return !memcmp(a, b, sizeof(int64_t) * (size_t)ndim);
}

/* The domain a node would found a group with. */
static const ep_value *domain_of(const ep_graph *g, const ep_node *n) {
    return &g->values[ep_op_get(n->op)->kind == EP_KIND_REDUCE ? n->inputs[0] : n->output];
}

static bool is_full(const ep_group *p, const ep_value *v) {
    return v->ndim == p->ndim && same_sizes(p->ndim, v->sizes, p->sizes);
}

static bool is_row(const ep_group *p, const ep_value *v) {
    if (p->ndim < 1 || !same_sizes(p->ndim - 1, v->sizes, p->sizes)) return false;
    return v->ndim == p->ndim - 1 || (v->ndim == p->ndim && v->sizes[p->ndim - 1] == 1);
}

static int32_t producer(const ep_graph *g, int32_t value) {
    return g->values[ep_graph_root(g, value)].node;
}

/* Is `u`, seen by a reader over `sizes`, the element that its root makes at the same index? With `row` the root makes
 * one value a row: the last of `ndim` dims must then not move it. */
static bool same_index(const ep_group *p, const ep_value *u, int ndim, bool row) {
    int64_t strides[EP_MAX_DIMS], sizes[EP_MAX_DIMS], plain[EP_MAX_DIMS], seen[EP_MAX_DIMS];
    memcpy(seen, p->sizes, sizeof seen);
    if (ndim == p->ndim && row && p->sizes[ndim - 1] != u->sizes[u->ndim ? u->ndim - 1 : 0] && u->ndim == ndim)
        seen[ndim - 1] = 1;
    if (u->offset != 0 || ep_view_expand(u->ndim, u->sizes, u->strides, ndim, seen, NULL, sizes, strides) != EP_OK)
        return false;
    int outer = row ? p->ndim - 1 : p->ndim;
    ep_stride_contiguous(outer, p->sizes, plain);
    for (int i = 0; i < outer; i++)
        if (p->sizes[i] > 1 && strides[i] != plain[i]) return false;
    return !row || ndim < p->ndim || seen[ndim - 1] == 1 || strides[ndim - 1] == 0;
}

static bool input_is_legal(fuser *f, int32_t group, int32_t node, int32_t value) {
    const ep_graph *g = f->g;
    const ep_group *p = &g->groups[group];
    int32_t made = producer(g, value);
    if (made < 0 || g->nodes[made].group != group) return true;
    const ep_value *u = &g->values[value], *out = &g->values[g->nodes[node].output];
    bool reader_row = f->row[node] && ep_op_get(g->nodes[node].op)->kind != EP_KIND_REDUCE;
    if (!f->row[made] && reader_row) return false;
    int ndim = reader_row ? out->ndim : p->ndim;
    if (!f->row[made] && u->ndim != p->ndim && u->numel != g->values[ep_graph_root(g, value)].numel) return false;
    return same_index(p, u, ndim, f->row[made]);
}

/* Can anything that `node` reads from outside `group` rest on `group` itself? */
static bool reaches(fuser *f, int32_t node, int32_t group) {
    const ep_graph *g = f->g;
    size_t top = 0;
    memset(f->seen, 0, g->node_count);
    f->stack[top++] = node;
    f->seen[node] = true;
    while (top) {
        const ep_node *n = &g->nodes[f->stack[--top]];
        bool outside = n->group != group;
        for (int k = 0; k < n->input_count; k++) {
            int32_t p = producer(g, n->inputs[k]);
            if (p < 0) continue;
            if (g->nodes[p].group == group) {
                if (outside) return true;
                continue;
            }
            if (f->seen[p]) continue;
            f->seen[p] = true;
            f->stack[top++] = p;
            if (g->nodes[p].group < 0) continue;
            for (size_t m = 0; m < g->node_count; m++) /* a group runs as a whole */
                if (g->nodes[m].group == g->nodes[p].group && !f->seen[m] && !g->nodes[m].dead) {
                    f->seen[m] = true;
                    f->stack[top++] = (int32_t)m;
                }
        }
    }
    return false;
}

static const char *within_limits(fuser *f, const int32_t *members, size_t count) {
    const ep_graph *g = f->g;
    int inputs = 0, cost = 0, walks = 0;
    if (count > MOST_MEMBERS) return "one kernel would hold more than 32 ops";
    for (size_t i = 0; i < count; i++) {
        const ep_node *n = &g->nodes[members[i]];
        ep_op_kind kind = ep_op_get(n->op)->kind;
        cost += kind == EP_KIND_NORM ? 12 : kind == EP_KIND_REDUCE ? 4 : 2;
        walks += kind == EP_KIND_NORM ? 2 : kind == EP_KIND_REDUCE;
        for (int k = 0; k < n->input_count; k++) {
            int32_t p = producer(g, n->inputs[k]);
            inputs += p < 0 || g->nodes[p].group != n->group;
        }
    }
    if (inputs > MOST_INPUTS) return "one kernel would read more than 24 operands";
    if (cost > MOST_COST) return "one kernel would be too long";
    return walks > MOST_WALKS ? "one kernel would walk a row more than 7 times" : NULL;
}

/* Whole check of a group as it now stands; NULL or what is wrong. */
static const char *illegal(fuser *f, int32_t group) {
    ep_graph *g = f->g;
    ep_group *p = &g->groups[group];
    int32_t members[MOST_MEMBERS + 1];
    size_t count = ep_graph_members(g, group, members, MOST_MEMBERS + 1);
    const char *why = within_limits(f, members, count);
    if (why) return why;
    p->reduces = false;
    for (size_t i = 0; i < count; i++) {
        ep_op_kind kind = ep_op_get(g->nodes[members[i]].op)->kind;
        p->reduces |= kind == EP_KIND_REDUCE || kind == EP_KIND_NORM;
    }
    for (size_t i = 0; i < count; i++) {
        const ep_node *n = &g->nodes[members[i]];
        const ep_value *out = &g->values[n->output];
        ep_op_kind kind = ep_op_get(n->op)->kind;
        bool reduce = kind == EP_KIND_REDUCE, may_be_row = p->reduces && kind != EP_KIND_NORM && is_row(p, out);
        f->row[members[i]] = reduce || !is_full(p, out);
        if (reduce ? !is_full(p, &g->values[n->inputs[0]]) : !is_full(p, out) && !may_be_row)
            return "their shapes differ";
        if (p->reduces && p->ndim < 1) return "a scalar has no last dim";
        for (int k = 0; k < n->input_count; k++)
            if (!input_is_legal(f, group, members[i], n->inputs[k]))
                return "it reads the value through a view that moves elements, or along another dim";
    }
    return reaches(f, members[0], group) || (count > 1 && reaches(f, members[count - 1], group))
               ? "what lies between them is not in the kernel"
               : NULL;
}

static const char *illegal_whole(fuser *f, int32_t group) {
    const char *why = illegal(f, group);
    int32_t members[MOST_MEMBERS];
    size_t count = why ? 0 : ep_graph_members(f->g, group, members, MOST_MEMBERS);
    for (size_t i = 0; i < count; i++)
        if (reaches(f, members[i], group)) return "what lies between them is not in the kernel";
    return why;
}

static void relabel(ep_graph *g, int32_t to, const int32_t *members, size_t count) {
    for (size_t i = 0; i < count; i++) g->nodes[members[i]].group = to;
}

/* Tries to move all of `from` (a group) into `to`. */
static const char *try_merge(fuser *f, int32_t from, int32_t to) {
    ep_graph *g = f->g;
    int32_t members[MOST_MEMBERS];
    if (g->groups[from].ndim != g->groups[to].ndim ||
        !same_sizes(g->groups[to].ndim, g->groups[from].sizes, g->groups[to].sizes))
        return "their shapes differ";
    size_t count = ep_graph_members(g, from, members, MOST_MEMBERS);
    relabel(g, to, members, count);
    const char *why = illegal_whole(f, to);
    if (!why) return NULL;
    relabel(g, from, members, count);
    illegal(f, to); /* what it says about rows is of the groups as they stay */
    illegal(f, from);
    return why;
}

static const char *try_join(fuser *f, int32_t node, int32_t group) {
    ep_graph *g = f->g;
    g->nodes[node].group = group;
    const char *why = illegal_whole(f, group);
    if (!why) return NULL;
    g->nodes[node].group = -1;
    illegal(f, group);
    return why;
}

static ep_status found(fuser *f, int32_t node, ep_error *err) {
    const ep_value *d = domain_of(f->g, &f->g->nodes[node]);
    int32_t group = ep_graph_group(f->g, d->ndim, d->sizes);
    if (group < 0) return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory in pass fuse");
    memcpy(f->g->groups[group].dims, d->dims, sizeof d->dims);
    f->g->nodes[node].group = group;
    illegal(f, group);
    return EP_OK;
}

/* Groups of its producers first, then groups that read something it reads. */
static ep_status place(fuser *f, int32_t node, ep_error *err) {
    ep_graph *g = f->g;
    for (int k = 0; k < g->nodes[node].input_count; k++) {
        int32_t p = producer(g, g->nodes[node].inputs[k]);
        if (p < 0 || g->nodes[p].group < 0 || g->nodes[p].group == g->nodes[node].group) continue;
        const char *why = g->nodes[node].group < 0 ? try_join(f, node, g->nodes[p].group)
                                                   : try_merge(f, g->nodes[p].group, g->nodes[node].group);
        if (why)
            ep_graph_reason(g, node, p, "%s is not fused into %s's kernel: %s", ep_op_name(g->nodes[node].op),
                            ep_op_name(g->nodes[p].op), why);
    }
    for (size_t i = 0; i < g->node_count && g->nodes[node].group < 0; i++) {
        const ep_node *m = &g->nodes[i];
        if (m->dead || m->group < 0) continue;
        bool shares = false;
        for (int a = 0; a < m->input_count; a++)
            for (int b = 0; b < g->nodes[node].input_count; b++)
                shares |= ep_graph_root(g, m->inputs[a]) == ep_graph_root(g, g->nodes[node].inputs[b]);
        if (shares) try_join(f, node, m->group);
    }
    return g->nodes[node].group < 0 ? found(f, node, err) : EP_OK;
}

/* A group of one op gains nothing over the eager kernel, which is already compiled. */
static void dissolve_singles(ep_graph *g) {
    for (size_t i = 0; i < g->group_count; i++) {
        int32_t m[2];
        if (ep_graph_members(g, (int32_t)i, m, 2) == 1) g->nodes[m[0]].group = -1;
    }
    int32_t next = 0; /* and the numbers close up */
    for (size_t i = 0; i < g->group_count; i++) {
        bool used = false;
        for (size_t k = 0; k < g->node_count; k++) used |= !g->nodes[k].dead && g->nodes[k].group == (int32_t)i;
        if (!used) continue;
        for (size_t k = 0; k < g->node_count; k++)
            if (g->nodes[k].group == (int32_t)i) g->nodes[k].group = next;
        g->groups[next++] = g->groups[i];
    }
    g->group_count = (size_t)next;
}

/* Every pair of neighbours that ended up apart has a reason; place() gave those it tried. */
static void explain_rest(ep_graph *g) {
    for (size_t i = 0; i < g->node_count; i++) {
        const ep_node *n = &g->nodes[i];
        if (n->dead) continue;
        for (int k = 0; k < n->input_count; k++) {
            int32_t p = producer(g, n->inputs[k]);
            if (p < 0 || (n->group >= 0 && n->group == g->nodes[p].group)) continue;
            const char *a = ep_fuse_why_not(g, n), *b = ep_fuse_why_not(g, &g->nodes[p]);
            if (a || b)
                ep_graph_reason(g, (int32_t)i, p, "%s is not fused with %s: %s", ep_op_name(n->op),
                                ep_op_name(g->nodes[p].op), a ? a : b);
        }
    }
}

ep_status ep_pass_fuse(ep_graph *g, ep_error *err) {
    size_t n = g->node_count ? g->node_count : 1;
    fuser f = {.g = g, .stack = malloc(sizeof(int32_t) * n), .seen = calloc(n, 1), .row = calloc(n, 1)};
    ep_status s = f.stack && f.seen && f.row ? EP_OK : ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory in pass fuse");
    for (size_t i = 0; s == EP_OK && i < g->node_count; i++)
        if (!g->nodes[i].dead && !ep_fuse_why_not(g, &g->nodes[i])) s = place(&f, (int32_t)i, err);
    if (s == EP_OK) {
        dissolve_singles(g);
        explain_rest(g);
    }
    free(f.stack);
    free(f.seen);
    free(f.row);
    return s;
}
