/* Graphs as text, one value a line; printing what was parsed gives the same text. docs/ir.md has the grammar. */
#ifndef EP_RUN_GRAPH_IR_TEXT_H
#define EP_RUN_GRAPH_IR_TEXT_H

#include "ir.h"

/* Appends the text of g; dead nodes are left out (their values too), groups and reasons are printed. */
void ep_graph_print(const ep_graph *g, ep_text *out);
/* Parses text that ep_graph_print made or a person wrote. Errors carry line and column. The graph is verified. */
ep_status ep_graph_parse(const char *text, size_t len, ep_error *err, ep_graph **out);

#endif
