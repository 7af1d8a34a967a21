// needs: run
/* Graph text: whatever parses prints, and what was printed parses to the same text; passes over it break no rule. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "run/graph/ir_text.h"
#include "run/pass/pass.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool small(const ep_graph *g) {
    for (size_t i = 0; i < g->value_count; i++)
        if (g->values[i].numel > 1 << 20) return false;
    return g->value_count < 200;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ep_error err;
    ep_graph *g, *again;
    if (ep_graph_parse((const char *)data, size, &err, &g) != EP_OK) return 0;
    ep_text a = {0}, b = {0};
    ep_graph_print(g, &a);
    if (ep_graph_parse(ep_text_str(&a), a.len, &err, &again) != EP_OK) abort();
    ep_graph_print(again, &b);
    if (strcmp(ep_text_str(&a), ep_text_str(&b)) != 0) abort();
    ep_graph_destroy(again);
    /* Groups, products and orders are what passes make: text that claims them is only printed. */
    bool fresh = true;
    for (size_t i = 0; i < g->node_count; i++)
        fresh &= g->nodes[i].group < 0 && g->nodes[i].order < 0 && g->nodes[i].kind != EP_NODE_GEMM;
    if (fresh && small(g) && ep_passes_run(g, &(ep_pass_options){.verify = true}, &err) == EP_ERROR_INTERNAL) abort();
    ep_text_free(&a);
    ep_text_free(&b);
    ep_graph_destroy(g);
    return 0;
}
