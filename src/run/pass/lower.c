/* Composite ops into the ops they are made of, so that later passes see one vocabulary: gated(act, g, u) is act(g) * u,
 * rounded between where eager rounds. linear stays: match_gemm takes it whole. */
#include "pass.h"

#include <string.h>

#include "run/graph/extent.h"

static ep_status rewrite_gated(ep_graph *g, int32_t at, ep_error *err) {
    const ep_value out = g->values[g->nodes[at].output];
    ep_attr attr = g->nodes[at].attr;
    int32_t gate = g->nodes[at].inputs[0], up = g->nodes[at].inputs[1], result = g->nodes[at].output;
    ep_shape shape = {out.dtype, out.ndim, {0}};
    memcpy(shape.sizes, out.sizes, sizeof shape.sizes);
    if (attr.act != EP_ACT_NONE) {
        gate = ep_graph_op(g, EP_NODE_OP, ep_act_op(attr.act), NULL, 1, &gate, &shape);
        if (gate >= 0) ep_extent_like(g, gate, result);
        if (gate < 0) return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory in pass lower");
    }
    ep_node *n = &g->nodes[at];
    n->op = EP_OP_MUL;
    n->attr = (ep_attr){0};
    n->inputs[0] = gate;
    n->inputs[1] = up;
    return EP_OK;
}

ep_status ep_pass_lower(ep_graph *g, ep_error *err) {
    bool changed = false;
    for (size_t i = 0, n = g->node_count; i < n; i++) {
        ep_op op = g->nodes[i].op;
        if (g->nodes[i].dead || op == EP_OP_LINEAR || ep_op_get(op)->kind != EP_KIND_COMPOSITE) continue;
        if (op != EP_OP_GATED)
            return ep_fail(err, EP_ERROR_UNSUPPORTED, "composite op %s cannot be compiled", ep_op_name(op));
        EP_TRY(rewrite_gated(g, (int32_t)i, err));
        changed = true;
    }
    return changed ? ep_graph_sort(g, err) : EP_OK;
}
