/* View nodes die; what remains of them is in their values: base, offset and strides, which are index arithmetic for
 * whoever reads them. A view launches nothing from here on. */
#include "pass.h"

ep_status ep_pass_views(ep_graph *g, ep_error *err) {
    (void)err;
    for (size_t i = 0; i < g->node_count; i++)
        if (g->nodes[i].kind == EP_NODE_VIEW) g->nodes[i].dead = true;
    return EP_OK;
}
