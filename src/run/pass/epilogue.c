/* A pointwise group that reads linears of one x, each read by nobody else, may become their epilogue: the backend makes
 * the products tile by tile and the group's kernel runs on each tile before it leaves the cache. Here the products are
 * marked; whether it pays is measured by the plan's owner, and the group stays a kernel of its own until then. */
#include "pass.h"

#include <string.h>

enum { MOST_PRODUCTS = 4, MOST_MEMBERS = 32 };

static bool is_const(const ep_graph *g, int32_t v) {
    return g->values[ep_graph_root(g, v)].kind == EP_VALUE_CONST;
}

static bool is_output(const ep_graph *g, int32_t v) {
    for (size_t i = 0; i < g->output_count; i++)
        if (ep_graph_root(g, g->outputs[i]) == v) return true;
    return false;
}

static bool read_elsewhere(const ep_graph *g, int32_t v, int32_t group) {
    for (size_t i = 0; i < g->node_count; i++) {
        const ep_node *n = &g->nodes[i];
        if (n->dead || n->kind == EP_NODE_VIEW) continue;
        for (int k = 0; k < n->input_count; k++)
            if (ep_graph_root(g, n->inputs[k]) == v && (n->group != group || n->inputs[k] != v)) return true;
    }
    return false;
}

/* NULL, or why product `n` can't have `group` as its epilogue. */
static const char *why_not(const ep_graph *g, const ep_node *n, int32_t group) {
    const ep_group *p = &g->groups[group];
    const ep_value *y = &g->values[n->output];
    if (p->reduces) return "the kernel walks whole rows";
    if (n->op != EP_OP_LINEAR) return "the product is no linear";
    if (!is_const(g, n->inputs[1]) || (n->input_count > 2 && !is_const(g, n->inputs[2])))
        return "the weights come with the call, so they can't be packed before";
    if (is_output(g, n->output)) return "the product is an output";
    if (p->ndim != y->ndim || p->ndim < 2 || memcmp(p->sizes, y->sizes, sizeof(int64_t) * (size_t)p->ndim))
        return "the kernel's shape is another";
    return read_elsewhere(g, n->output, group) ? "the product has another reader, or is read through a view" : NULL;
}

static bool same_form(const ep_graph *g, const ep_node *a, const ep_node *b) {
    const ep_value *x = &g->values[a->inputs[1]], *y = &g->values[b->inputs[1]];
    return a->inputs[0] == b->inputs[0] && x->sizes[0] == y->sizes[0] && x->sizes[1] == y->sizes[1];
}

static void mark_group(ep_graph *g, int32_t group) {
    int32_t members[MOST_MEMBERS], chosen[MOST_PRODUCTS];
    size_t count = ep_graph_members(g, group, members, MOST_MEMBERS);
    int found = 0;
    if (count > MOST_MEMBERS) return;
    for (size_t i = 0; i < count; i++)
        for (int k = 0; k < g->nodes[members[i]].input_count; k++) {
            int32_t v = g->nodes[members[i]].inputs[k], at = g->values[ep_graph_root(g, v)].node;
            if (at < 0 || g->nodes[at].kind != EP_NODE_GEMM || g->nodes[at].gemm.epilogue == group) continue;
            ep_node *n = &g->nodes[at];
            const char *why = why_not(g, n, group);
            if (!why && found == MOST_PRODUCTS) why = "four products are one kernel already";
            if (!why && found && !same_form(g, &g->nodes[chosen[0]], n)) why = "its x or its shape is another";
            if (why) {
                ep_graph_reason(g, at, members[i], "%s's kernel is no epilogue of %s: %s",
                                ep_op_name(g->nodes[members[i]].op), ep_op_name(n->op), why);
                continue;
            }
            n->gemm.epilogue = group;
            chosen[found++] = at;
        }
    if (found)
        ep_graph_reason(g, chosen[0], members[0],
                        "%s's kernel may be the epilogue of %d product%s of one x: where packed weights are faster",
                        ep_op_name(g->nodes[members[0]].op), found, found == 1 ? "" : "s");
}

ep_status ep_pass_epilogue(ep_graph *g, ep_error *err) {
    (void)err;
    for (size_t i = 0; i < g->group_count; i++) mark_group(g, (int32_t)i);
    return EP_OK;
}
