/* Identities that hold bit for bit, NaN and signed zeros included, and so whatever the rounding. */
#include "pass.h"

#include <string.h>

static const ep_node *producer(const ep_graph *g, int32_t v) {
    return g->values[v].node >= 0 ? &g->nodes[g->values[v].node] : NULL;
}

static bool made_by(const ep_graph *g, int32_t v, ep_op op) {
    const ep_node *n = producer(g, v);
    return n && !n->dead && n->kind == EP_NODE_OP && n->op == op;
}

static bool same_type(const ep_graph *g, int32_t a, int32_t b) {
    const ep_value *x = &g->values[a], *y = &g->values[b];
    return x->dtype == y->dtype && x->ndim == y->ndim && !memcmp(x->sizes, y->sizes, sizeof(int64_t) * (size_t)x->ndim);
}

/* A view that shows exactly what its input shows. */
static bool idle_view(const ep_graph *g, const ep_node *n) {
    const ep_value *x = &g->values[n->inputs[0]], *y = &g->values[n->output];
    if (n->kind != EP_NODE_VIEW || !same_type(g, n->inputs[0], n->output)) return false;
    for (int i = 0; i < x->ndim; i++)
        if (x->sizes[i] > 1 && x->strides[i] != y->strides[i]) return false;
    int64_t base = x->base >= 0 ? x->offset : 0;
    return y->offset == base;
}

/* abs(-x) and abs(abs(x)) are abs(x); the inner op is skipped. */
static int32_t through_sign(const ep_graph *g, int32_t v) {
    while (made_by(g, v, EP_OP_NEG) || made_by(g, v, EP_OP_ABS)) v = producer(g, v)->inputs[0];
    return v;
}

/* The value that `n` equals, or -1. */
static int32_t equals(const ep_graph *g, const ep_node *n) {
    int32_t a = n->input_count ? n->inputs[0] : -1;
    if (idle_view(g, n)) return a;
    if (n->kind != EP_NODE_OP) return -1;
    switch ((int)n->op) {
    case EP_OP_CAST:
        /* The copy that a cast to the same dtype makes is seen by nobody unless it is an output. */
        return g->values[a].dtype == g->values[n->output].dtype ? a : -1;
    case EP_OP_NEG: return made_by(g, a, EP_OP_NEG) ? producer(g, a)->inputs[0] : -1;
    case EP_OP_RELU: return made_by(g, a, EP_OP_RELU) ? a : -1;
    case EP_OP_MINIMUM:
    case EP_OP_MAXIMUM: return a == n->inputs[1] && same_type(g, a, n->output) ? a : -1;
    case EP_OP_WHERE: return n->inputs[1] == n->inputs[2] && same_type(g, n->inputs[1], n->output) ? n->inputs[1] : -1;
    default: return -1;
    }
}

static bool is_output(const ep_graph *g, int32_t v) {
    for (size_t i = 0; i < g->output_count; i++)
        if (ep_graph_root(g, g->outputs[i]) == ep_graph_root(g, v)) return true;
    return false;
}

/* Readers may take another way, with other bits, where elements lie otherwise. */
static bool same_layout(const ep_graph *g, int32_t a, int32_t b) {
    const ep_value *x = &g->values[a], *y = &g->values[b];
    for (int i = 0; i < x->ndim; i++)
        if (x->sizes[i] > 1 && x->strides[i] != y->strides[i]) return false;
    return true;
}

/* Views of a replaced value point into the other one's memory only if both are laid out alike. */
static bool has_views(const ep_graph *g, int32_t v) {
    for (size_t i = 0; i < g->value_count; i++)
        if (g->values[i].base == v) return true;
    return false;
}

ep_status ep_pass_fold(ep_graph *g, ep_error *err) {
    (void)err;
    for (size_t i = 0; i < g->node_count; i++) {
        ep_node *n = &g->nodes[i];
        if (n->dead) continue;
        if (n->op == EP_OP_ABS && n->kind == EP_NODE_OP) n->inputs[0] = through_sign(g, n->inputs[0]);
        int32_t same = equals(g, n);
        /* An output has memory of its own, so what it equals must be made by an op as well. */
        if (same < 0) continue;
        if (n->kind == EP_NODE_OP &&
            (is_output(g, n->output) || has_views(g, n->output) || !same_layout(g, n->output, same)))
            continue;
        ep_graph_replace(g, n->output, same);
        n->dead = true;
    }
    return EP_OK;
}
