/* Device work as a graph: kernels that one op launches in a row are one node, and a node reads what an earlier one on
 * its stream wrote. A trace holds no addresses, so reading is inferred: same number of elements, same element size, the
 * newest result not read yet. That is right for the chains fusion asks about and stated as an inference. */
#include <stdlib.h>
#include <string.h>

#include "analyze.h"
#include "base/alloc.h"
#include "base/sort.h"

enum { LOOK_BACK = 48, SMALLEST = 256 /* elements: biases and scalars tell nothing */ };

static bool stream_before(const void *user, uint32_t a, uint32_t b) {
    const ep_study *s = user;
    uint32_t x = s->work[a].event, y = s->work[b].event;
    const ep_trace *t = s->trace;
    return t->lane[x] != t->lane[y] ? t->lane[x] < t->lane[y] : t->ts[x] < t->ts[y];
}

/* Kernels of one op and of known work belong together; a graph replay runs many ops under one call. */
static bool continues(const ep_study *s, const ep_node *n, const ep_device_work *d) {
    if (n->stream != s->trace->lane[d->event] || n->owner != d->owner || d->owner == EP_NO_INDEX) return false;
    if (d->launch != EP_NO_INDEX && s->facts->links->work_count[d->launch] > 1) return false;
    return s->rows[d->row].known;
}

static void start_node(const ep_study *s, ep_node *n, uint32_t at, uint32_t work) {
    const ep_device_work *d = &s->work[work];
    memset(n, 0, sizeof *n);
    n->first = at;
    n->owner = d->owner;
    n->row = d->row;
    if (d->launch != EP_NO_INDEX && s->facts->links->work_count[d->launch] > 1) n->row = 0;
    n->main = work;
    n->stream = s->trace->lane[d->event];
    n->cls = d->cls;
    n->consumer = EP_NO_INDEX;
    for (int i = 0; i < EP_WORK_INPUTS; i++) n->producer[i] = EP_NO_INDEX;
}

static int64_t dur(const ep_study *s, uint32_t work) {
    return s->trace->dur[s->work[work].event];
}

static void make_nodes(ep_study *s) {
    for (size_t i = 0; i < s->work_count; i++) {
        uint32_t w = s->by_stream[i];
        ep_node *n = s->node_count ? &s->nodes[s->node_count - 1] : NULL;
        if (!n || !continues(s, n, &s->work[w])) {
            n = &s->nodes[s->node_count++];
            start_node(s, n, (uint32_t)i, w);
        }
        n->count++;
        n->ns += dur(s, w);
        bool side = n->cls == EP_CLASS_MEMSET || n->cls == EP_CLASS_COPY; /* beside a kernel, never its main part */
        bool more = dur(s, w) > dur(s, n->main) && s->work[w].cls != EP_CLASS_MEMSET;
        if (side ? s->work[w].cls != n->cls : more) {
            n->main = w;
            n->cls = s->work[w].cls;
        }
        s->node_of[w] = (uint32_t)(s->node_count - 1);
    }
}

static bool fits(const ep_study *s, const ep_node *producer, int64_t numel, int element) {
    const ep_work_row *r = &s->rows[producer->row];
    return r->known && r->out_numel == numel && r->out_bytes == numel * element;
}

static bool taken(const ep_node *n, int inputs, uint32_t producer) {
    for (int i = 0; i < inputs; i++)
        if (n->producer[i] == producer) return true;
    return false;
}

/* Two products of one input stand side by side (gate and up; q, k, v): the second does not read the first. */
static bool is_sibling(const ep_study *s, const ep_node *a, const ep_node *b) {
    const ep_work_row *x = &s->rows[a->row], *y = &s->rows[b->row];
    return x->gemm && y->gemm && x->k == y->k && x->m == y->m &&
           x->in[x->bias ? 1 : 0].numel == y->in[y->bias ? 1 : 0].numel;
}

static uint32_t find_producer(const ep_study *s, uint32_t at, int input) {
    const ep_node *n = &s->nodes[at];
    const ep_work_row *r = &s->rows[n->row];
    uint32_t read_before = EP_NO_INDEX;
    for (uint32_t back = 1; back <= LOOK_BACK && back <= at; back++) {
        uint32_t p = at - back;
        if (s->nodes[p].stream != n->stream) break;
        if (!fits(s, &s->nodes[p], r->in[input].numel, r->in[input].element) || taken(n, input, p)) continue;
        if (n->cls == EP_CLASS_COPY && s->nodes[p].cls == EP_CLASS_COPY) continue; /* nobody copies a copy */
        if (is_sibling(s, &s->nodes[p], n)) return s->nodes[p].producer[s->rows[s->nodes[p].row].bias ? 1 : 0];
        if (s->nodes[p].readers == 0) return p;
        if (read_before == EP_NO_INDEX) read_before = p;
    }
    return read_before;
}

static void link_node(ep_study *s, uint32_t at) {
    ep_node *n = &s->nodes[at];
    const ep_work_row *r = &s->rows[n->row];
    if (!r->known) return;
    /* copy_(to, from): only the second operand is read */
    int first = n->cls == EP_CLASS_COPY && r->input_count == 2 && n->owner != EP_NO_INDEX &&
                strcmp(ep_study_name(s, n->owner), "aten::copy_") == 0;
    for (int i = first; i < r->input_count; i++) {
        if (r->in[i].numel < SMALLEST) continue;
        uint32_t p = find_producer(s, at, i);
        n->producer[i] = p;
        if (p == EP_NO_INDEX) continue;
        if (s->nodes[p].readers++ == 0) s->nodes[p].consumer = at;
    }
}

ep_status ep_analyze_nodes(ep_study *s, ep_error *err) {
    (void)err;
    s->by_stream = ep_malloc_array(s->work_count, sizeof *s->by_stream);
    s->nodes = ep_malloc_array(s->work_count, sizeof *s->nodes);
    s->node_of = ep_malloc_array(s->work_count, sizeof *s->node_of);
    if (!s->by_stream || !s->nodes || !s->node_of) return EP_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < s->work_count; i++) s->by_stream[i] = (uint32_t)i;
    if (!ep_sort_rows(s->by_stream, s->work_count, stream_before, s)) return EP_ERROR_OUT_OF_MEMORY;
    make_nodes(s);
    for (uint32_t i = 0; i < s->node_count; i++) link_node(s, i);
    return EP_OK;
}
