/* What every op says about sizes for all sizes at once: the extents of its result, which sizes must be equal, and where
 * only the number of this capture will do. */
#include <string.h>

#include "extent.h"

static void set_dim(ep_graph *g, int32_t v, int i, ep_dim d) {
    g->values[v].dims[i] = d.e;
}

static void set_step(ep_graph *g, int32_t v, int i, ep_dim d) {
    g->values[v].steps[i] = d.e;
}

static void fix_inputs(ep_graph *g, const ep_node *n) {
    for (int k = 0; k < n->input_count; k++) ep_extent_fix_value(g, n->inputs[k]);
}

/* Dims of size 1 and 0 are what they are in every call: only others are symbols. */
static void broadcast(ep_graph *g, const ep_node *n, int first) {
    int ndim = g->values[n->output].ndim;
    for (int i = 0; i < ndim; i++) {
        ep_dim have = {1, -1};
        bool found = false;
        for (int k = first; k < n->input_count; k++) {
            int at = i - (ndim - g->values[n->inputs[k]].ndim);
            if (at < 0) continue;
            ep_dim d = ep_value_dim(g, n->inputs[k], at);
            if (d.n == 1 && d.e < 0) continue;
            if (found) ep_dim_same(g, have, d);
            have = found && d.e < 0 ? d : found ? have : d;
            found = true;
        }
        set_dim(g, n->output, i, have);
    }
    ep_extent_contiguous(g, n->output);
}

static void like_first(ep_graph *g, const ep_node *n) {
    for (int k = 1; k < n->input_count; k++) { /* weight and bias of a norm */
        int32_t w = n->inputs[k], x = n->inputs[0];
        if (g->values[w].ndim && g->values[x].ndim)
            ep_dim_same(g, ep_value_dim(g, w, g->values[w].ndim - 1), ep_value_dim(g, x, g->values[x].ndim - 1));
    }
    ep_extent_like(g, n->output, n->inputs[0]);
}

static void reduce(ep_graph *g, const ep_node *n) {
    ep_value *y = &g->values[n->output];
    int kept = g->values[n->inputs[0]].ndim - n->attr.dims;
    for (int i = 0; i < y->ndim; i++)
        set_dim(g, n->output, i, i < kept ? ep_value_dim(g, n->inputs[0], i) : (ep_dim){1, -1});
    ep_extent_contiguous(g, n->output);
}

/* a [.., m, k], b [.., k, n] */
static void matrices(ep_graph *g, const ep_node *n, int32_t a, int32_t b) {
    int d = g->values[n->output].ndim;
    ep_dim_same(g, ep_value_dim(g, a, d - 1), ep_value_dim(g, b, d - 2));
    if (d == 3) {
        ep_dim_same(g, ep_value_dim(g, a, 0), ep_value_dim(g, b, 0));
        set_dim(g, n->output, 0, ep_value_dim(g, a, 0));
    }
    set_dim(g, n->output, d - 2, ep_value_dim(g, a, d - 2));
    set_dim(g, n->output, d - 1, ep_value_dim(g, b, d - 1));
    ep_extent_contiguous(g, n->output);
}

static void product(ep_graph *g, const ep_node *n) {
    bool added = n->op == EP_OP_ADDMM;
    matrices(g, n, n->inputs[added], n->inputs[added + 1]);
    if (!added) return;
    int32_t c = n->inputs[0];
    int ndim = g->values[n->output].ndim, skip = ndim - g->values[c].ndim;
    for (int i = 0; i < g->values[c].ndim; i++)
        if (g->values[c].dims[i] >= 0 || g->values[c].sizes[i] != 1)
            ep_dim_same(g, ep_value_dim(g, c, i), ep_value_dim(g, n->output, i + skip));
}

static void linear(ep_graph *g, const ep_node *n) {
    int32_t x = n->inputs[0], w = n->inputs[1];
    int last = g->values[x].ndim - 1;
    ep_dim_same(g, ep_value_dim(g, x, last), ep_value_dim(g, w, 1));
    if (n->input_count > 2) ep_dim_same(g, ep_value_dim(g, n->inputs[2], 0), ep_value_dim(g, w, 0));
    for (int i = 0; i < last; i++) set_dim(g, n->output, i, ep_value_dim(g, x, i));
    set_dim(g, n->output, last, ep_value_dim(g, w, 0));
    ep_extent_contiguous(g, n->output);
}

static void cat(ep_graph *g, const ep_node *n) {
    int ndim = g->values[n->output].ndim, at;
    if (ep_shape_dim(ndim, n->attr.dim, NULL, &at) != EP_OK) {
        fix_inputs(g, n);
        return;
    }
    for (int i = 0; i < ndim; i++) {
        ep_dim d = ep_value_dim(g, n->inputs[0], i);
        for (int k = 1; k < n->input_count; k++) {
            ep_dim other = ep_value_dim(g, n->inputs[k], i);
            if (i == at)
                d = ep_dim_add(g, d, other);
            else
                ep_dim_same(g, d, other);
            if (i != at && other.e < 0) d = other;
        }
        set_dim(g, n->output, i, d);
    }
    ep_extent_contiguous(g, n->output);
}

static void view_swap(ep_graph *g, const ep_node *n) {
    int32_t x = n->inputs[0], y = n->output;
    int a, b;
    memcpy(g->values[y].dims, g->values[x].dims, sizeof g->values[y].dims);
    memcpy(g->values[y].steps, g->values[x].steps, sizeof g->values[y].steps);
    if (ep_shape_dim(g->values[x].ndim, n->attr.dim, NULL, &a) != EP_OK ||
        ep_shape_dim(g->values[x].ndim, n->attr.dim1, NULL, &b) != EP_OK)
        return;
    set_dim(g, y, a, ep_value_dim(g, x, b));
    set_dim(g, y, b, ep_value_dim(g, x, a));
    set_step(g, y, a, ep_value_step(g, x, b));
    set_step(g, y, b, ep_value_step(g, x, a));
}

/* Part of a dim: all of a free one, or any part of one whose size is a number. */
static void view_part(ep_graph *g, const ep_node *n) {
    int32_t x = n->inputs[0], y = n->output;
    ep_value *v = &g->values[y];
    const ep_value *u = &g->values[x];
    int d;
    memcpy(v->dims, u->dims, sizeof v->dims);
    memcpy(v->steps, u->steps, sizeof v->steps);
    v->start = u->base >= 0 ? u->start : -1;
    if (ep_shape_dim(u->ndim, n->attr.dim, NULL, &d) != EP_OK) return;
    const ep_attr *a = &n->attr;
    bool all = n->op == EP_OP_SLICE && a->start == 0 && a->step == 1 && a->stop == INT64_MAX;
    if (all) return;
    ep_dim_fix(g, ep_value_dim(g, x, d));
    v->dims[d] = -1;
    int64_t base = u->base >= 0 ? u->offset : 0, by = v->offset - base, step = n->op == EP_OP_SLICE ? a->step : 1;
    ep_dim stride = ep_value_step(g, x, d), offset = {base, v->start};
    if (v->sizes[d] > 1) set_step(g, y, d, ep_dim_mul(g, stride, (ep_dim){step, -1}));
    if (by) offset = ep_dim_add(g, offset, ep_dim_mul(g, stride, (ep_dim){stride.n ? by / stride.n : 0, -1}));
    g->values[y].start = offset.e;
}

static void view_expand(ep_graph *g, const ep_node *n) {
    int32_t x = n->inputs[0], y = n->output;
    int skip = g->values[y].ndim - g->values[x].ndim;
    for (int i = 0; i < g->values[y].ndim; i++) {
        ep_dim d = i < skip ? (ep_dim){1, -1} : ep_value_dim(g, x, i - skip);
        bool kept = i >= skip && g->values[y].sizes[i] == d.n;
        if (kept && n->attr.sizes[i] >= 0) d = ep_dim_fix(g, d);
        set_dim(g, y, i, kept ? d : (ep_dim){0, -1});
        set_step(g, y, i, kept ? ep_value_step(g, x, i - skip) : (ep_dim){0, -1});
    }
    g->values[y].start = g->values[x].base >= 0 ? g->values[x].start : -1;
}

/* Sizes that the call of view repeats as numbers, from both ends up to the one left open, are those numbers. */
static void fix_kept(ep_graph *g, const ep_node *n) {
    int32_t x = n->inputs[0];
    int from = g->values[x].ndim - 1, to = n->attr.ndim - 1, at = 0;
    for (; at <= to && at <= from && n->attr.sizes[at] == g->values[x].sizes[at]; at++)
        ep_dim_fix(g, ep_value_dim(g, x, at));
    for (; to > at && from > at && n->attr.sizes[to] == g->values[x].sizes[from]; to--, from--)
        ep_dim_fix(g, ep_value_dim(g, x, from));
}

/* Of a value without gaps; one size may be left open, and is then what remains. */
static void view_shape(ep_graph *g, const ep_node *n) {
    int32_t x = n->inputs[0], y = n->output;
    ep_dim rest = {1, -1};
    int open = -1;
    g->values[y].start = g->values[x].base >= 0 ? g->values[x].start : -1;
    fix_kept(g, n);
    for (int i = 0; i < g->values[x].ndim; i++) rest = ep_dim_mul(g, rest, ep_value_dim(g, x, i));
    for (int i = 0; i < n->attr.ndim; i++)
        if (n->attr.sizes[i] < 0) open = i;
    if (rest.e < 0 && ep_extent_is_contiguous(g, &g->values[x])) return;
    if (open < 0 || !ep_extent_is_contiguous(g, &g->values[x])) {
        ep_extent_fix_value(g, x);
        g->values[y].start = -1;
        return;
    }
    for (int i = 0; i < n->attr.ndim; i++)
        if (i != open) rest = ep_dim_div(g, rest, (ep_dim){n->attr.sizes[i], -1});
    set_dim(g, y, open, rest);
    ep_extent_contiguous(g, y);
}

void ep_extent_of_node(ep_graph *g, int32_t node) {
    const ep_node *n = &g->nodes[node];
    ep_op_kind kind = ep_op_get(n->op)->kind;
    switch ((int)n->op) {
    case EP_OP_T:
    case EP_OP_TRANSPOSE:
        view_swap(g, n);
        g->values[n->output].start = g->values[n->inputs[0]].base >= 0 ? g->values[n->inputs[0]].start : -1;
        return;
    case EP_OP_VIEW:
    case EP_OP_RESHAPE: view_shape(g, n); return;
    case EP_OP_EXPAND: view_expand(g, n); return;
    case EP_OP_SLICE:
    case EP_OP_CHUNK: view_part(g, n); return;
    case EP_OP_MM:
    case EP_OP_BMM:
    case EP_OP_ADDMM: product(g, n); return;
    case EP_OP_LINEAR: linear(g, n); return;
    case EP_OP_CAT: cat(g, n); return;
    case EP_OP_GATED: broadcast(g, n, 0); return;
    default: break;
    }
    if (kind == EP_KIND_POINTWISE)
        broadcast(g, n, 0);
    else if (kind == EP_KIND_REDUCE)
        reduce(g, n);
    else if (kind == EP_KIND_NORM || kind == EP_KIND_MOVE)
        like_first(g, n);
    else
        fix_inputs(g, n);
}
