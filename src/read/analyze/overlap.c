/* How much of the collectives' time is hidden: other kernels run on the same device meanwhile. */
#include <stdlib.h>

#include "analyze.h"
#include "base/alloc.h"
#include "facts_parts.h"
#include "spans.h"

/* Time that lies in a span of both; each list is a union. */
static int64_t common(const int64_t (*a)[2], size_t n, const int64_t (*b)[2], size_t m) {
    int64_t sum = 0;
    for (size_t i = 0, k = 0; i < n && k < m;) {
        int64_t from = a[i][0] > b[k][0] ? a[i][0] : b[k][0], to = a[i][1] < b[k][1] ? a[i][1] : b[k][1];
        if (to > from) sum += to - from;
        if (a[i][1] < b[k][1])
            i++;
        else
            k++;
    }
    return sum;
}

/* The kernels of a device, collectives from the front of spans[], others from its back. */
static void add_device(ep_study *s, int64_t device, int64_t (*spans)[2]) {
    const ep_trace *t = s->trace;
    size_t front = 0, back = s->facts->kernel_count;
    for (size_t i = 0; i < s->facts->kernel_count; i++) {
        const ep_kernel_fact *k = &s->facts->kernels[i];
        if (t->lanes[t->lane[k->event]].device != device || facts_impossible(t, k->event)) continue;
        size_t at = s->facts->names[k->name_id].cls == EP_CLASS_COLLECTIVE ? front++ : --back;
        spans[at][0] = t->ts[k->event];
        spans[at][1] = t->ts[k->event] + t->dur[k->event];
    }
    size_t comm = ep_spans_merge(spans, front), other = ep_spans_merge(spans + back, s->facts->kernel_count - back);
    s->comm_ns += ep_spans_ns(spans, comm);
    s->comm_hidden_ns += common((const int64_t(*)[2])spans, comm, (const int64_t(*)[2])(spans + back), other);
}

ep_status ep_analyze_overlap(ep_study *s, ep_error *err) {
    (void)err;
    const ep_facts *f = s->facts;
    bool any = false;
    for (size_t i = 0; i < f->name_count; i++) any = any || f->names[i].cls == EP_CLASS_COLLECTIVE;
    if (!any) return EP_OK;
    int64_t(*spans)[2] = ep_malloc_array(f->kernel_count, sizeof *spans);
    if (!spans) return EP_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < f->device_count; i++) add_device(s, f->devices[i].id, spans);
    free(spans);
    return EP_OK;
}
