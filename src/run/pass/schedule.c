/* The order of kernels: a group runs as a whole, and of those that could run next the one whose ops were written first
 * does, so that a result is read soon after it was made. */
#include "pass.h"

#include <stdlib.h>

/* Units: groups first, then single nodes. */
static int32_t unit_of(const ep_graph *g, int32_t node) {
    return g->nodes[node].group >= 0 ? g->nodes[node].group : (int32_t)g->group_count + node;
}

static bool runs(const ep_node *n) {
    return !n->dead && n->kind != EP_NODE_VIEW;
}

/* Are all producers of unit `u` outside of it scheduled? */
static bool ready(const ep_graph *g, int32_t u) {
    for (size_t i = 0; i < g->node_count; i++) {
        const ep_node *n = &g->nodes[i];
        if (!runs(n) || unit_of(g, (int32_t)i) != u) continue;
        for (int k = 0; k < n->input_count; k++) {
            int32_t p = g->values[ep_graph_root(g, n->inputs[k])].node;
            if (p >= 0 && runs(&g->nodes[p]) && g->nodes[p].order < 0 && unit_of(g, p) != u) return false;
        }
    }
    return true;
}

ep_status ep_pass_schedule(ep_graph *g, ep_error *err) {
    int32_t order = 0;
    size_t left = 0;
    for (size_t i = 0; i < g->node_count; i++) left += runs(&g->nodes[i]);
    for (bool moved = true; left && moved;) {
        moved = false;
        for (size_t i = 0; i < g->node_count; i++) {
            int32_t u = unit_of(g, (int32_t)i);
            if (!runs(&g->nodes[i]) || g->nodes[i].order >= 0 || !ready(g, u)) continue;
            for (size_t k = 0; k < g->node_count; k++)
                if (runs(&g->nodes[k]) && unit_of(g, (int32_t)k) == u) {
                    g->nodes[k].order = order;
                    left--;
                }
            order++;
            moved = true;
        }
    }
    return left ? ep_fail(err, EP_ERROR_INTERNAL, "groups depend on each other in a circle") : EP_OK;
}
