/* Nodes that no output rests on die. */
#include "pass.h"

#include <stdlib.h>

ep_status ep_pass_dce(ep_graph *g, ep_error *err) {
    bool *live = calloc(g->value_count ? g->value_count : 1, 1);
    if (!live) return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory in pass dce");
    for (size_t i = 0; i < g->output_count; i++) live[g->outputs[i]] = live[ep_graph_root(g, g->outputs[i])] = true;
    for (size_t i = g->node_count; i-- > 0;) {
        ep_node *n = &g->nodes[i];
        if (!live[n->output]) n->dead = true;
        if (n->dead) continue;
        for (int k = 0; k < n->input_count; k++) live[n->inputs[k]] = live[ep_graph_root(g, n->inputs[k])] = true;
    }
    free(live);
    return EP_OK;
}
