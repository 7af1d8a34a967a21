/* Where values live: outputs get memory of their own at each call; what stays inside a kernel needs none; everything
 * else shares one workspace, two values the same place only if no step between the first write and the last read of one
 * touches the other. Liveness is that of the schedule, after fusion. */
#include "pass.h"

#include <stdlib.h>

enum { ALIGN = 64 };

typedef struct span {
    int32_t value, first, last;
    int64_t bytes, offset;
} span;

static int by_size(const void *a, const void *b) {
    const span *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    return x->value < y->value ? -1 : 1;
}

static bool is_output(const ep_graph *g, int32_t v) {
    for (size_t i = 0; i < g->output_count; i++)
        if (ep_graph_root(g, g->outputs[i]) == v) return true;
    return false;
}

/* When the node reads: a product that may wait for its epilogue, or for steps behind it, reads as late as those. */
static int32_t read_at(const ep_graph *g, const ep_node *n) {
    int32_t at = n->order;
    for (size_t i = 0; (n->gemm.epilogue >= 0 || n->gemm.then >= 0) && i < g->node_count; i++) {
        const ep_node *m = &g->nodes[i];
        bool waits = m->group >= 0 && (m->group == n->gemm.epilogue || m->group == n->gemm.then);
        if (!m->dead && waits && m->order > at) at = m->order;
    }
    return at;
}

/* The last step that reads v from memory; -1 if nobody does. */
static int32_t last_read(const ep_graph *g, int32_t v) {
    int32_t last = -1, group = g->nodes[g->values[v].node].group;
    for (size_t i = 0; i < g->node_count; i++) {
        const ep_node *n = &g->nodes[i];
        if (n->dead || n->kind == EP_NODE_VIEW || (group >= 0 && n->group == group)) continue;
        for (int k = 0; k < n->input_count; k++)
            if (ep_graph_root(g, n->inputs[k]) == v && read_at(g, n) > last) last = read_at(g, n);
    }
    return last;
}

/* The lowest place that no span alive at the same time holds. */
static int64_t place(const span *placed, size_t count, const span *s) {
    int64_t at = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (size_t i = 0; i < count; i++) {
            const span *p = &placed[i];
            bool alive = p->first <= s->last && s->first <= p->last;
            if (!alive || p->offset >= at + s->bytes || at >= p->offset + p->bytes) continue;
            at = p->offset + p->bytes;
            moved = true;
        }
    }
    return at;
}

ep_status ep_pass_memplan(ep_graph *g, ep_error *err) {
    size_t n = g->value_count ? g->value_count : 1, count = 0;
    span *spans = malloc(sizeof *spans * n);
    free(g->slots);
    g->slots = malloc(sizeof *g->slots * n);
    if (!spans || !g->slots) {
        free(spans);
        return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory in pass memplan");
    }
    for (size_t i = 0; i < g->value_count; i++) {
        const ep_value *v = &g->values[i];
        g->slots[i] = (ep_slot){-1, 0};
        if (v->kind != EP_VALUE_NODE || v->base >= 0 || g->nodes[v->node].dead || is_output(g, (int32_t)i)) continue;
        int32_t first = g->nodes[v->node].order, last = last_read(g, (int32_t)i);
        if (last < 0) continue;
        int64_t bytes = v->numel * (int64_t)ep_dtype_size(v->dtype);
        spans[count++] = (span){(int32_t)i, first, last, (bytes + ALIGN - 1) / ALIGN * ALIGN, 0};
    }
    if (count) qsort(spans, count, sizeof *spans, by_size);
    g->workspace_bytes = 0;
    for (size_t i = 0; i < count; i++) {
        spans[i].offset = place(spans, i, &spans[i]);
        g->slots[spans[i].value] = (ep_slot){spans[i].offset, spans[i].bytes};
        if (spans[i].offset + spans[i].bytes > g->workspace_bytes)
            g->workspace_bytes = spans[i].offset + spans[i].bytes;
    }
    free(spans);
    return EP_OK;
}
