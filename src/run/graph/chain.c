/* Finds the chain, and how its operands lie. */
#include "chain.h"

#include <string.h>

static bool is_step(ep_op op) {
    return op == EP_OP_ADD || op == EP_OP_SUB || op == EP_OP_MUL || op == EP_OP_DIV;
}

static bool is_output(const ep_graph *g, int32_t v) {
    for (size_t i = 0; i < g->output_count; i++)
        if (ep_graph_root(g, g->outputs[i]) == v) return true;
    return false;
}

/* How often v's memory is read. */
static int readers(const ep_graph *g, int32_t v) {
    int count = 0;
    for (size_t i = 0; i < g->node_count; i++) {
        const ep_node *n = &g->nodes[i];
        if (n->dead || n->kind == EP_NODE_VIEW) continue;
        for (int k = 0; k < n->input_count; k++) count += ep_graph_root(g, n->inputs[k]) == v;
    }
    return count;
}

static bool same_sizes(const ep_value *a, const ep_value *b) {
    return a->ndim == b->ndim && memcmp(a->sizes, b->sizes, sizeof(int64_t) * (size_t)a->ndim) == 0;
}

/* The input of `n` that is product `made`'s value, whole. */
static bool may_begin(const ep_graph *g, const ep_node *n, int slot) {
    int32_t v = n->inputs[slot], made = g->values[v].node;
    if (made < 0 || g->values[v].base >= 0 || g->nodes[made].kind != EP_NODE_GEMM) return false;
    const ep_node *p = &g->nodes[made];
    return (p->op == EP_OP_LINEAR || p->op == EP_OP_MM) && p->gemm.c < 0 && !is_output(g, v) && readers(g, v) == 1;
}

static bool is_left(const ep_node *n, int slot) {
    return slot == 0 || n->op == EP_OP_ADD || n->op == EP_OP_MUL;
}

/* Appends node `n`, which reads the chain's value in `slot`. */
static const char *append(const ep_graph *g, ep_chain *c, const ep_node *n, int slot) {
    const ep_value *y = &g->values[g->nodes[c->product].output], *v = &g->values[n->output];
    if (!is_step(n->op)) return n->op == EP_OP_RELU ? "its relu makes NaN 0" : "";
    if (!is_left(n, slot)) return "the product is the right operand";
    int32_t other = n->inputs[1 - slot];
    if (y->dtype != EP_DTYPE_F32 || v->dtype != EP_DTYPE_F32 || g->values[other].dtype != EP_DTYPE_F32)
        return "eager rounds to the narrow dtype between";
    if (!same_sizes(y, v)) return "its shape is another";
    c->op[c->count] = n->op;
    c->other[c->count++] = other;
    c->output = n->output;
    int64_t row, col;
    return ep_chain_strides(g, c, c->count - 1, &row, &col) ? NULL : "it reads an operand along another dim";
}

const char *ep_graph_chain(const ep_graph *g, int32_t group, ep_chain *out) {
    int32_t members[EP_CHAIN_STEPS + 1], chain = -1;
    size_t count = ep_graph_members(g, group, members, EP_CHAIN_STEPS + 1);
    if (count == 0 || count > EP_CHAIN_STEPS || g->groups[group].reduces) return "";
    *out = (ep_chain){.product = -1};
    for (size_t i = 0; i < count; i++) {
        const ep_node *n = &g->nodes[members[i]];
        int slot = 0;
        while (slot < n->input_count && (i ? n->inputs[slot] != chain : !may_begin(g, n, slot) || !is_left(n, slot)))
            slot++;
        if (slot == n->input_count) return "";
        if (i == 0) out->product = g->values[n->inputs[slot]].node;
        if (i && (is_output(g, chain) || readers(g, chain) != 1)) return "a value between has another reader";
        const char *why = append(g, out, n, slot);
        if (why) return why;
        chain = n->output;
    }
    return NULL;
}

bool ep_chain_strides(const ep_graph *g, const ep_chain *c, int i, int64_t *row, int64_t *col) {
    const ep_value *y = &g->values[c->output], *x = &g->values[c->other[i]];
    int64_t sizes[EP_MAX_DIMS], strides[1][EP_MAX_DIMS], n = y->ndim ? y->sizes[y->ndim - 1] : 1;
    if (y->ndim < 2 ||
        ep_view_expand(x->ndim, x->sizes, x->strides, y->ndim, y->sizes, NULL, sizes, strides[0]) != EP_OK)
        return false;
    *col = n > 1 ? strides[0][y->ndim - 1] : 0;
    int left = ep_stride_collapse(y->ndim - 1, sizes, 1, strides);
    if (left > 1) return false;
    *row = left == 1 && sizes[0] > 1 ? strides[0][0] : 0;
    if (*row) return *row == n && (n == 1 || *col == 1);
    return *col == 0 || *col == 1;
}
