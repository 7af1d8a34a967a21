/* The same op of the same values with the same attributes is computed once. Two outputs never become one tensor: the
 * caller may write to them. */
#include "pass.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

static uint64_t key(const ep_node *n) {
    int32_t head[3] = {(int32_t)n->kind, (int32_t)n->op, n->input_count};
    uint64_t h = ep_hash64(head, sizeof head, 3);
    return ep_hash64(n->inputs, sizeof(int32_t) * (size_t)n->input_count, h);
}

static bool same(const ep_graph *g, const ep_node *a, const ep_node *b) {
    const ep_attr *x = &a->attr, *y = &b->attr;
    if (a->kind != b->kind || a->op != b->op || a->input_count != b->input_count) return false;
    if (memcmp(a->inputs, b->inputs, sizeof(int32_t) * (size_t)a->input_count)) return false;
    const ep_value *v = &g->values[a->output], *w = &g->values[b->output];
    if (a->kind == EP_NODE_VIEW && (v->base != w->base || v->offset != w->offset ||
                                    memcmp(v->strides, w->strides, sizeof(int64_t) * (size_t)v->ndim)))
        return false;
    return v->dtype == w->dtype && v->ndim == w->ndim &&
           !memcmp(v->sizes, w->sizes, sizeof(int64_t) * (size_t)v->ndim) && x->dim == y->dim && x->dim1 == y->dim1 &&
           x->start == y->start && x->stop == y->stop && x->step == y->step && x->dims == y->dims &&
           x->keepdim == y->keepdim && x->eps == y->eps && x->alpha == y->alpha && x->beta == y->beta &&
           x->act == y->act && x->dtype == y->dtype;
}

static bool is_output(const ep_graph *g, int32_t v) {
    for (size_t i = 0; i < g->output_count; i++)
        if (ep_graph_root(g, g->outputs[i]) == ep_graph_root(g, v)) return true;
    return false;
}

ep_status ep_pass_cse(ep_graph *g, ep_error *err) {
    size_t slots = 16;
    while (slots < 2 * g->node_count) slots *= 2;
    int32_t *table = malloc(sizeof *table * slots);
    if (!table) return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory in pass cse");
    memset(table, 0xff, sizeof *table * slots);
    for (size_t i = 0; i < g->node_count; i++) {
        ep_node *n = &g->nodes[i];
        if (n->dead) continue;
        size_t at = key(n) & (slots - 1);
        for (; table[at] >= 0; at = (at + 1) & (slots - 1)) {
            const ep_node *m = &g->nodes[table[at]];
            if (!same(g, m, n)) continue;
            if (n->kind == EP_NODE_OP && is_output(g, m->output) && is_output(g, n->output)) break;
            ep_graph_replace(g, n->output, m->output);
            n->dead = true;
            break;
        }
        if (table[at] < 0) table[at] = (int32_t)i;
    }
    free(table);
    return EP_OK;
}
