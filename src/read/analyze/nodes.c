/* Device work as a graph: kernels that one op launches in a row are one node, and a node reads what an earlier one on
 * its stream wrote. A trace holds no addresses, so reading is inferred: same number of elements, same element size, the
 * newest result not read yet. That is right for the chains fusion asks about and stated as an inference. */
#include <stdlib.h>

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

static bool has_own_work(const ep_study *s, const ep_device_work *d) {
    uint32_t info = s->trace->info[d->event];
    return info && s->trace->infos[info].bytes_read >= 0 && ep_work_class(s, d) != EP_CLASS_MEMSET;
}

/* Kernels of one op and of known work belong together; a graph replay runs many ops under one call. Ours say themselves
 * what each does, and a block has several. */
static bool continues(const ep_study *s, const ep_node *n, const ep_device_work *d) {
    uint32_t owner = ep_work_owner(s, d);
    if (owner == EP_NO_INDEX || owner != ep_node_owner(s, n)) return false;
    if (ep_node_stream(s, n) != s->trace->lane[d->event] || ep_work_in_replay(s, d)) return false;
    if (has_own_work(s, d) && has_own_work(s, &s->work[n->main])) return false;
    return s->rows[d->row].known;
}

static void start_node(const ep_study *s, ep_node *n, uint32_t at, uint32_t work) {
    const ep_device_work *d = &s->work[work];
    *n = (ep_node){.first = at, .row = d->row, .main = work, .consumer = EP_NO_INDEX, .cls = ep_work_class(s, d)};
    if (ep_work_in_replay(s, d)) n->row = 0;
}

static int64_t dur(const ep_study *s, uint32_t work) {
    return s->trace->dur[s->work[work].event];
}

int64_t ep_node_ns(const ep_study *s, const ep_node *n) {
    int64_t ns = 0;
    for (uint32_t i = n->first; i < n[1].first; i++) ns += dur(s, s->by_stream[i]);
    return ns;
}

static bool make_nodes(ep_study *s) {
    size_t cap = 0;
    for (size_t i = 0; i < s->work_count; i++) {
        uint32_t w = s->by_stream[i];
        ep_node *n = s->node_count ? &s->nodes[s->node_count - 1] : NULL;
        if (!n || !continues(s, n, &s->work[w])) {
            if (!ep_grow(&s->nodes, &cap, s->node_count + 2, sizeof *s->nodes)) return false;
            n = &s->nodes[s->node_count++];
            start_node(s, n, (uint32_t)i, w);
        }
        bool side = n->cls == EP_CLASS_MEMSET || n->cls == EP_CLASS_COPY; /* beside a kernel, never its main part */
        ep_kernel_class cls = ep_work_class(s, &s->work[w]);
        bool more = dur(s, w) > dur(s, n->main) && cls != EP_CLASS_MEMSET;
        if (side ? cls != n->cls : more) {
            n->main = w;
            n->row = s->work[w].row; /* ours: each kernel of an op has its own */
            n->cls = cls & 15;
        }
    }
    if (!ep_grow(&s->nodes, &cap, s->node_count + 1, sizeof *s->nodes)) return false;
    s->nodes[s->node_count] = (ep_node){.first = (uint32_t)s->work_count};
    return true;
}

bool ep_study_node_of(ep_study *s) {
    if (s->node_of) return true;
    s->node_of = ep_malloc_array(s->work_count, sizeof *s->node_of);
    if (!s->node_of) return false;
    for (uint32_t n = 0; n < s->node_count; n++)
        for (uint32_t i = s->nodes[n].first; i < s->nodes[n + 1].first; i++) s->node_of[s->by_stream[i]] = n;
    return true;
}

static bool fits(const ep_study *s, const ep_node *producer, int64_t numel, int element) {
    const ep_work_row *r = &s->rows[producer->row];
    return r->known && r->out_numel == numel && r->out_bytes == numel * element;
}

static bool taken(const ep_study *s, const ep_node *n, int inputs, uint32_t producer) {
    for (int i = 0; i < inputs; i++)
        if (s->producers[n->inputs + (uint32_t)i] == producer) return true;
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
    uint32_t read_before = EP_NO_INDEX, stream = ep_node_stream(s, n);
    for (uint32_t back = 1; back <= LOOK_BACK && back <= at; back++) {
        uint32_t p = at - back;
        if (ep_node_stream(s, &s->nodes[p]) != stream) break;
        if (!fits(s, &s->nodes[p], r->in[input].numel, r->in[input].element) || taken(s, n, input, p)) continue;
        if (n->cls == EP_CLASS_COPY && s->nodes[p].cls == EP_CLASS_COPY) continue; /* nobody copies a copy */
        if (is_sibling(s, &s->nodes[p], n))
            return ep_node_producer(s, &s->nodes[p], s->rows[s->nodes[p].row].bias ? 1 : 0);
        if (s->nodes[p].readers == 0) return p;
        if (read_before == EP_NO_INDEX) read_before = p;
    }
    return read_before;
}

/* The operands of a node, which the ones before it have already. */
static bool link_node(ep_study *s, uint32_t at) {
    ep_node *n = &s->nodes[at];
    const ep_work_row *r = &s->rows[n->row];
    n[1].inputs = n->inputs;
    if (!r->known || r->input_count == 0) return true;
    if (!ep_grow(&s->producers, &s->producer_cap, n->inputs + (size_t)r->input_count, sizeof *s->producers))
        return false;
    n[1].inputs += (uint32_t)r->input_count;
    for (uint32_t i = n->inputs; i < n[1].inputs; i++) s->producers[i] = EP_NO_INDEX;
    for (int i = r->writes_first; i < r->input_count; i++) {
        if (r->in[i].numel < SMALLEST || (r->in[i].expanded && !r->gemm)) continue;
        uint32_t p = find_producer(s, at, i);
        s->producers[n->inputs + (uint32_t)i] = p;
        if (p == EP_NO_INDEX) continue;
        if (s->nodes[p].readers++ == 0) s->nodes[p].consumer = at;
    }
    return true;
}

ep_status ep_analyze_nodes(ep_study *s, ep_error *err) {
    (void)err;
    s->by_stream = ep_malloc_array(s->work_count, sizeof *s->by_stream);
    if (!s->by_stream) return EP_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < s->work_count; i++) s->by_stream[i] = (uint32_t)i;
    if (!ep_sort_rows(s->by_stream, s->work_count, stream_before, s) || !make_nodes(s)) return EP_ERROR_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < s->node_count; i++)
        if (!link_node(s, i)) return EP_ERROR_OUT_OF_MEMORY;
    return EP_OK;
}
