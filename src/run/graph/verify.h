/* What a legal graph is. */
#ifndef EP_RUN_GRAPH_VERIFY_H
#define EP_RUN_GRAPH_VERIFY_H

#include "ir.h"

/* EP_ERROR_INTERNAL with the first broken rule; the rules are listed in verify.c. */
ep_status ep_graph_verify(const ep_graph *g, ep_error *err);

#endif
