/* How far each kernel is from what this device could do: the work of its op against the time it took. Kernels beside the
 * longest one of an op (a split product's sum, a bias copied in before) count with it, since the work is the op's. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analyze.h"
#include "base/alloc.h"

static void add_node(ep_study *s, const ep_node *n) {
    const ep_work_row *r = &s->rows[n->row];
    uint32_t kind = s->work[n->main].kind;
    if (kind == EP_NO_INDEX || !r->known || (r->flops <= 0 && r->bytes_read + r->bytes_written <= 0)) return;
    const ep_kernel_name *d = &s->facts->names[kind].decoded;
    bool tf32 = strcmp(r->dtype, "f32") == 0 && strcmp(d->dtype, "tf32") == 0;
    int64_t bytes = r->bytes_read + r->bytes_written, ns = ep_node_ns(s, n);
    ep_regime regime;
    double bound = ep_study_bound_us(s, r->flops, bytes, tf32 ? "tf32" : r->dtype, &regime);
    ep_bound_row *b = &s->bounds[kind];
    b->count++;
    b->ns += ns;
    b->flops += r->flops;
    b->bytes += bytes;
    b->at_least = b->at_least || r->at_least;
    b->bound_us += bound; /* NaN stays NaN: without a machine nothing is said */
    b->by_compute += regime == EP_REGIME_COMPUTE;
    b->to_win_us += isfinite(bound) ? fmax(0, (double)ns * 1e-3 - bound) : NAN;
}

ep_status ep_analyze_bounds(ep_study *s, ep_error *err) {
    (void)err;
    s->bounds = calloc(s->facts->name_count + 1, sizeof *s->bounds);
    if (!s->bounds) return EP_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < s->node_count; i++) add_node(s, &s->nodes[i]);
    return EP_OK;
}
