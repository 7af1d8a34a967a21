/* A pointwise group, or a single pointwise op, that reads linears of one x, whole or columns of them, each read by nobody
 * else, may become their epilogue: the backend makes the products tile by tile and the group's kernel runs on each tile
 * before it leaves the cache. Steps of f32 behind one product may also be done by the library that makes it. Here the
 * products are marked, and a single op becomes a group for it; whether it pays is measured by the plan's owner, and until
 * then the group is a kernel of its own, the single op eager's. */
#include "pass.h"

#include <string.h>

#include "run/graph/chain.h"

enum { MOST_PRODUCTS = 4, MOST_MEMBERS = 32 };

/* What of products a group reads. */
typedef struct parts {
    int32_t first; /* node of the first product, or -1 */
    int products, count;
} parts;

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
        if (n->dead || n->kind == EP_NODE_VIEW || n->group == group) continue;
        for (int k = 0; k < n->input_count; k++)
            if (ep_graph_root(g, n->inputs[k]) == v) return true;
    }
    return false;
}

/* How many different columns of product `v` the group reads; 0: it also reads it in another way. */
static int columns_read(const ep_graph *g, int32_t v, const int32_t *members, size_t count, const ep_group *p) {
    ep_columns seen[MOST_PRODUCTS + 1], c;
    int found = 0;
    for (size_t i = 0; i < count; i++)
        for (int k = 0; k < g->nodes[members[i]].input_count; k++) {
            int32_t u = g->nodes[members[i]].inputs[k];
            if (ep_graph_root(g, u) != v) continue;
            if (!ep_graph_columns(g, u, p, &c)) return 0;
            bool known = false;
            for (int s = 0; s < found; s++) known |= seen[s].start == c.start && seen[s].step == c.step;
            if (!known && found <= MOST_PRODUCTS) seen[found++] = c;
        }
    return found;
}

/* NULL, or why product `n` can't have `group` as its epilogue. */
static const char *why_not(const ep_graph *g, const ep_node *n, int32_t group) {
    if (g->groups[group].reduces) return "the kernel walks whole rows";
    if (n->op != EP_OP_LINEAR) return "the product is no linear";
    if (!is_const(g, n->inputs[1]) || (n->input_count > 2 && !is_const(g, n->inputs[2])))
        return "the weights come with the call, so they can't be packed before";
    if (is_output(g, n->output)) return "the product is an output";
    return read_elsewhere(g, n->output, group) ? "the product has another reader" : NULL;
}

static const char *try_product(ep_graph *g, int32_t at, int32_t group, const int32_t *members, size_t count,
                               parts *found) {
    ep_node *n = &g->nodes[at];
    const char *why = why_not(g, n, group);
    if (why) return why;
    int columns = columns_read(g, n->output, members, count, &g->groups[group]);
    if (columns == 0) return "the kernel's shape is another, or it reads the product through a view that moves rows";
    if (found->first >= 0 && g->nodes[found->first].inputs[0] != n->inputs[0]) return "its x is another";
    if (found->count + columns > MOST_PRODUCTS) return "four products are one kernel already";
    if (found->first < 0) found->first = at;
    found->products++;
    found->count += columns;
    n->gemm.epilogue = group;
    return NULL;
}

static int mark_group(ep_graph *g, int32_t group) {
    int32_t members[MOST_MEMBERS];
    size_t count = ep_graph_members(g, group, members, MOST_MEMBERS);
    parts found = {.first = -1};
    if (count > MOST_MEMBERS) return 0;
    for (size_t i = 0; i < count; i++)
        for (int k = 0; k < g->nodes[members[i]].input_count; k++) {
            int32_t at = g->values[ep_graph_root(g, g->nodes[members[i]].inputs[k])].node;
            if (at < 0 || g->nodes[at].kind != EP_NODE_GEMM || g->nodes[at].gemm.epilogue == group) continue;
            const char *why = try_product(g, at, group, members, count, &found);
            if (why)
                ep_graph_reason(g, at, members[i], "%s's kernel is no epilogue of %s: %s",
                                ep_op_name(g->nodes[members[i]].op), ep_op_name(g->nodes[at].op), why);
        }
    if (!found.count) return 0;
    const char *op = ep_op_name(g->nodes[members[0]].op);
    if (found.count == 1)
        ep_graph_reason(g, found.first, members[0],
                        "%s's kernel may be the epilogue of its product: where packed weights are faster", op);
    else if (found.count == found.products)
        ep_graph_reason(g, found.first, members[0],
                        "%s's kernel may be the epilogue of %d products of one x: where packed weights are faster", op,
                        found.count);
    else
        ep_graph_reason(g, found.first, members[0],
                        "%s's kernel may be the epilogue of one x's product, read in %d parts: where packed weights "
                        "are faster",
                        op, found.count);
    return found.count;
}

/* Additions and multiplications of f32 behind one product may be done before its store by the library itself. */
static bool mark_chain(ep_graph *g, int32_t group) {
    ep_chain c;
    int32_t first;
    const char *why = ep_graph_chain(g, group, &c);
    ep_graph_members(g, group, &first, 1);
    const char *op = ep_op_name(g->nodes[first].op);
    if (why && *why)
        ep_graph_reason(g, c.product, first, "%s is not done in %s by the library: %s", op,
                        ep_op_name(g->nodes[c.product].op), why);
    if (why) return false;
    g->nodes[c.product].gemm.then = group;
    ep_graph_reason(g, c.product, first, "%s may be done in %s by the library, where that is faster", op,
                    ep_op_name(g->nodes[c.product].op));
    return true;
}

static bool reads_product(const ep_graph *g, const ep_node *n) {
    for (int k = 0; k < n->input_count; k++) {
        int32_t at = g->values[ep_graph_root(g, n->inputs[k])].node;
        if (at >= 0 && g->nodes[at].kind == EP_NODE_GEMM) return true;
    }
    return false;
}

/* A single op behind a product is eager's kernel, unless it is an epilogue: a group for that alone. */
static ep_status mark_lone(ep_graph *g, int32_t node, ep_error *err) {
    ep_node *n = &g->nodes[node];
    ep_op_kind kind = ep_op_get(n->op)->kind;
    if (n->dead || n->kind != EP_NODE_OP || n->group >= 0 || kind == EP_KIND_REDUCE || kind == EP_KIND_NORM ||
        ep_fuse_why_not(g, n) || !reads_product(g, n))
        return EP_OK;
    const ep_value *y = &g->values[n->output];
    int32_t group = ep_graph_group(g, y->ndim, y->sizes);
    if (group < 0) return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory in pass epilogue");
    memcpy(g->groups[group].dims, y->dims, sizeof y->dims);
    g->groups[group].lone = true;
    n->group = group;
    int marked = mark_group(g, group);
    if (mark_chain(g, group) || marked) return EP_OK;
    n->group = -1;
    g->group_count--;
    return EP_OK;
}

ep_status ep_pass_epilogue(ep_graph *g, ep_error *err) {
    for (size_t i = 0; i < g->group_count; i++) {
        mark_group(g, (int32_t)i);
        mark_chain(g, (int32_t)i);
    }
    for (size_t i = 0; i < g->node_count; i++) EP_TRY(mark_lone(g, (int32_t)i, err));
    return EP_OK;
}
