/* Linears of one x whose weights lie one behind the other in one buffer are one wider product; its result is read in two
 * halves by index arithmetic. Weights in buffers of their own would have to be copied together at every call, so those
 * stay apart and the reason says so. */
#include "pass.h"

#include <string.h>

#include "run/graph/extent.h"

static bool is_linear(const ep_node *n) {
    return !n->dead && n->kind == EP_NODE_GEMM && n->op == EP_OP_LINEAR;
}

/* Is `b` the rows that follow `a` in the same memory? */
static bool follows(const ep_graph *g, int32_t a, int32_t b) {
    const ep_value *x = &g->values[a], *y = &g->values[b];
    if (x->base < 0 || x->base != y->base || x->ndim != y->ndim || x->start >= 0 || y->start >= 0) return false;
    for (int i = 0; i < x->ndim; i++)
        if (x->dims[i] >= 0 || x->steps[i] >= 0 || y->dims[i] >= 0 || y->steps[i] >= 0) return false;
    int64_t step = x->ndim ? x->sizes[0] * x->strides[0] : 0;
    for (int i = 0; i < x->ndim; i++)
        if (x->strides[i] != y->strides[i] || (i > 0 && x->sizes[i] != y->sizes[i])) return false;
    return y->offset == x->offset + step;
}

static bool is_output(const ep_graph *g, int32_t v) {
    for (size_t i = 0; i < g->output_count; i++)
        if (ep_graph_root(g, g->outputs[i]) == v) return true;
    return false;
}

/* Whoever reads a half reads it by strides: groups and products do, but ops that run as eager kernels do as well. */
static int32_t joined_view(ep_graph *g, int32_t a, int32_t b) {
    ep_value v = g->values[a];
    int32_t base = v.base;
    int32_t in[1] = {base};
    ep_shape s = {v.dtype, v.ndim, {0}};
    memcpy(s.sizes, v.sizes, sizeof s.sizes);
    s.sizes[0] += g->values[b].sizes[0];
    int32_t out = ep_graph_op(g, EP_NODE_VIEW, EP_OP_SLICE, NULL, 1, in, &s);
    if (out < 0) return -1;
    ep_value *o = &g->values[out];
    memcpy(o->strides, v.strides, sizeof o->strides);
    o->base = base;
    o->offset = v.offset;
    g->nodes[o->node].dead = true;
    return out;
}

/* The node's value becomes columns [from, from + its own) of `wide`. */
static void become_half(ep_graph *g, int32_t node, int32_t wide, int64_t from) {
    ep_node *n = &g->nodes[node];
    ep_value *v = &g->values[n->output];
    n->kind = EP_NODE_VIEW;
    n->op = EP_OP_SLICE;
    n->attr = (ep_attr){.dim = v->ndim - 1, .start = from, .stop = from + v->sizes[v->ndim - 1], .step = 1};
    n->inputs[0] = wide;
    n->input_count = 1;
    n->gemm = (ep_gemm_form){-1, -1, -1, -1};
    n->dead = true;
    memcpy(v->strides, g->values[wide].strides, sizeof v->strides);
    memcpy(v->steps, g->values[wide].steps, sizeof v->steps);
    v->start = -1;
    v->base = wide;
    v->offset = from;
}

static bool has_views(const ep_graph *g, int32_t v) {
    for (size_t i = 0; i < g->value_count; i++)
        if (g->values[i].base == v) return true;
    return false;
}

static const char *why_apart(const ep_graph *g, const ep_node *a, const ep_node *b) {
    if (!follows(g, a->inputs[1], b->inputs[1])) return "their weights are not one buffer";
    if (a->input_count != b->input_count) return "only one of them has a bias";
    if (a->input_count > 2 && !follows(g, a->inputs[2], b->inputs[2])) return "their biases are not one buffer";
    if (is_output(g, a->output) || is_output(g, b->output)) return "a result is an output and must be contiguous";
    if (has_views(g, a->output) || has_views(g, b->output)) return "a result is read through a view";
    return NULL;
}

static ep_status join(ep_graph *g, int32_t a, int32_t b, ep_error *err) {
    int32_t in[3] = {g->nodes[a].inputs[0], joined_view(g, g->nodes[a].inputs[1], g->nodes[b].inputs[1]), -1};
    int count = g->nodes[a].input_count;
    if (count > 2) in[2] = joined_view(g, g->nodes[a].inputs[2], g->nodes[b].inputs[2]);
    const ep_value y = g->values[g->nodes[a].output];
    ep_shape s = {y.dtype, y.ndim, {0}};
    memcpy(s.sizes, y.sizes, sizeof s.sizes);
    int64_t first = s.sizes[s.ndim - 1];
    s.sizes[s.ndim - 1] += g->values[g->nodes[b].output].sizes[s.ndim - 1];
    int32_t wide =
        in[1] < 0 || (count > 2 && in[2] < 0) ? -1 : ep_graph_op(g, EP_NODE_GEMM, EP_OP_LINEAR, NULL, count, in, &s);
    if (wide < 0) return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory in pass share_gemm");
    ep_extent_like(g, wide, g->nodes[a].output);
    if (count > 2) g->nodes[g->values[wide].node].gemm.bias = 2;
    become_half(g, a, wide, 0);
    become_half(g, b, wide, first);
    ep_graph_reason(g, g->values[wide].node, -1,
                    "two linears of one x are one product: their weights lie in one buffer");
    return EP_OK;
}

ep_status ep_pass_share_gemm(ep_graph *g, ep_error *err) {
    size_t count = g->node_count;
    for (size_t i = 0; i < count; i++) {
        for (size_t j = i + 1; j < count && is_linear(&g->nodes[i]); j++) {
            const ep_node *a = &g->nodes[i], *b = &g->nodes[j];
            if (!is_linear(b) || a->inputs[0] != b->inputs[0] || g->values[a->output].numel == 0) continue;
            bool swap = follows(g, b->inputs[1], a->inputs[1]);
            const char *why = swap ? why_apart(g, b, a) : why_apart(g, a, b);
            if (why) {
                ep_graph_reason(g, (int32_t)i, (int32_t)j, "two linears of one x stay two products: %s", why);
                continue;
            }
            EP_TRY(join(g, (int32_t)(swap ? j : i), (int32_t)(swap ? i : j), err));
        }
    }
    return g->node_count > count ? ep_graph_sort(g, err) : EP_OK;
}
