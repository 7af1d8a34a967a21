/* Matrix products become GEMM nodes [a, b, extras]: linear keeps its weight [N, K] as it is and its bias 1-D to the last
 * step, so that the backend's own bias epilogue runs; addmm with beta 0 loses its input, which must not be read. */
#include "pass.h"

#include <string.h>

#include "run/graph/extent.h"

/* Do x's rows form at most a batch of evenly spaced runs? Then one kernel reads them where they are. */
static bool rows_are_regular(const ep_value *x) {
    int64_t sizes[EP_MAX_DIMS], strides[2][EP_MAX_DIMS];
    int last = x->ndim - 1;
    for (int i = 0; i < last; i++) {
        sizes[i] = x->sizes[i];
        strides[0][i] = x->strides[i];
    }
    ep_stride_contiguous(last, sizes, strides[1]);
    return ep_stride_collapse(last, sizes, 2, strides) <= 2;
}

static ep_status plain_rows(ep_graph *g, int32_t at, ep_error *err) {
    const ep_value x = g->values[g->nodes[at].inputs[0]];
    if (x.numel == 0 || rows_are_regular(&x)) return EP_OK;
    ep_shape s = {x.dtype, x.ndim, {0}};
    memcpy(s.sizes, x.sizes, sizeof s.sizes);
    int32_t copy = ep_graph_op(g, EP_NODE_OP, EP_OP_COPY, NULL, 1, &g->nodes[at].inputs[0], &s);
    if (copy < 0) return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory in pass match_gemm");
    ep_extent_like(g, copy, g->nodes[at].inputs[0]);
    g->nodes[at].inputs[0] = copy;
    ep_graph_reason(g, at, g->values[copy].node, "linear reads a copy: its x is not a batch of evenly spaced rows");
    return EP_OK;
}

static void addmm_form(ep_node *n) {
    int32_t input = n->inputs[0];
    n->inputs[0] = n->inputs[1];
    n->inputs[1] = n->inputs[2];
    n->inputs[2] = input;
    if (n->attr.beta == 0)
        n->input_count = 2;
    else
        n->gemm.c = 2;
}

ep_status ep_pass_match_gemm(ep_graph *g, ep_error *err) {
    size_t count = g->node_count;
    for (size_t i = 0; i < count; i++) {
        ep_node *n = &g->nodes[i];
        if (n->dead || n->kind != EP_NODE_OP) continue;
        switch ((int)n->op) {
        case EP_OP_LINEAR:
            n->kind = EP_NODE_GEMM;
            if (n->input_count > 2) n->gemm.bias = 2;
            EP_TRY(plain_rows(g, (int32_t)i, err));
            break;
        case EP_OP_ADDMM: addmm_form(n); /* fall through */
        case EP_OP_MM:
        case EP_OP_BMM: n->kind = EP_NODE_GEMM; break;
        default: break;
        }
    }
    return g->node_count > count ? ep_graph_sort(g, err) : EP_OK;
}
