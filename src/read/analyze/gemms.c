/* Matrix products by op, sizes and kernel, or by op alone in a run on the processor: how fast they ran, how fast the
 * device could run them, and how their epilogue was done. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analyze.h"
#include "base/alloc.h"
#include "base/hash.h"
#include "torch_work.h"

typedef struct gemm_key {
    const char *op, *kernel, *epilogue;
    int64_t m, n, k, batch;
} gemm_key;

/* How the bias of an addmm was done: a copy before the product, a kernel after it, or inside. */
static const char *epilogue_of(ep_study *s, const ep_node *n, const ep_kernel_name *d) {
    const ep_work_row *r = &s->rows[n->row];
    bool before = false, after = false, seen = false;
    for (uint32_t i = n->first; i < n[1].first; i++) {
        const ep_device_work *w = &s->work[s->by_stream[i]];
        if (s->by_stream[i] == n->main)
            seen = true;
        else if (ep_work_class(s, w) == EP_CLASS_COPY && !seen)
            before = true;
        else if (ep_work_class(s, w) == EP_CLASS_POINTWISE && seen)
            after = true;
    }
    if (after) return "own kernel after the product";
    if (r->bias && before) return "bias, pre-filled by a copy";
    const char *name = d ? d->epilogue : "";
    bool silent = !name[0] || strcmp(name, "bias possible") == 0 || strcmp(name, "relu") == 0;
    if (d && strcmp(d->vendor, "triton") == 0) return r->bias ? "bias" : "none";
    if (!silent) return name;
    return r->bias ? "bias" : "none";
}

static void fill(ep_study *s, const ep_node *n, ep_gemm_row *g) {
    const ep_work_row *r = &s->rows[n->row];
    uint32_t kind = s->work[n->main].kind;
    const ep_kernel_name *d = kind == EP_NO_INDEX ? NULL : &s->facts->names[kind].decoded;
    memset(g, 0, sizeof *g);
    g->op = ep_study_name(s, ep_node_owner(s, n));
    g->kernel = ep_study_name(s, s->work[n->main].event);
    g->dtype = d && d->dtype[0] && strcmp(r->dtype, "f32") == 0 && strcmp(d->dtype, "tf32") == 0 ? "tf32" : r->dtype;
    g->epilogue = epilogue_of(s, n, d);
    g->reason = r->gemm ? NULL : r->reason ? r->reason : "the op is no matrix product by its shapes";
    if (!r->gemm && ep_work_in_replay(s, &s->work[n->main])) g->reason = "a replay's kernels have no shapes recorded";
    g->batch = r->batch, g->m = r->m, g->n = r->n, g->k = r->k;
    g->tflops = g->gbs = g->bound_us = NAN;
    if (r->gemm) g->bound_us = ep_study_bound_us(s, r->flops, r->bytes_read + r->bytes_written, g->dtype, &g->regime);
}

static bool same(const ep_gemm_row *a, const ep_gemm_row *b) {
    return a->op == b->op && a->kernel == b->kernel && a->m == b->m && a->n == b->n && a->k == b->k &&
           a->batch == b->batch && strcmp(a->epilogue, b->epilogue) == 0 && strcmp(a->dtype, b->dtype) == 0;
}

static int by_gap(const void *a, const void *b) {
    const ep_gemm_row *x = a, *y = b;
    double p = (double)x->ns * 1e-3 - (isnan(x->bound_us) ? 0 : x->bound_us * (double)x->count);
    double q = (double)y->ns * 1e-3 - (isnan(y->bound_us) ? 0 : y->bound_us * (double)y->count);
    return p < q ? 1 : p > q ? -1 : 0;
}

/* The row that is the same but for its times, a new one if need be; NULL when memory is out. */
static ep_gemm_row *row_of(ep_study *s, uint32_t *slots, size_t mask, const ep_gemm_row *g) {
    gemm_key key = {g->op, g->kernel, NULL, g->m, g->n, g->k, g->batch};
    size_t i = (size_t)ep_hash64(&key, sizeof key, 1) & mask;
    while (slots[i] && !same(&s->gemms[slots[i] - 1], g)) i = (i + 1) & mask;
    if (!slots[i]) {
        if (!ep_grow(&s->gemms, &s->gemm_cap, s->gemm_count + 1, sizeof *s->gemms)) return NULL;
        s->gemms[s->gemm_count++] = *g;
        slots[i] = (uint32_t)s->gemm_count;
    }
    ep_gemm_row *row = &s->gemms[slots[i] - 1];
    row->count++;
    return row;
}

static bool add(ep_study *s, uint32_t *slots, size_t mask, const ep_node *n) {
    ep_gemm_row g;
    fill(s, n, &g);
    ep_gemm_row *row = row_of(s, slots, mask, &g);
    if (!row) return false;
    for (uint32_t w = n->first; w < n[1].first; w++) {
        const ep_device_work *d = &s->work[s->by_stream[w]];
        if (d->kind == EP_NO_INDEX) continue; /* memsets and copies by the driver are told of apart */
        row->kernels++;
        row->ns += s->trace->dur[d->event];
    }
    return true;
}

/* A run on the processor: the innermost op that is a product does it, and its time is the product's. Leaves 1 at those,
 * 2 at what lies around them. */
static size_t find_on_host(const ep_study *s, uint8_t *is) {
    const ep_trace *t = s->trace;
    size_t n = 0;
    for (uint32_t i = 0; i < t->count; i++) {
        ep_op_work w;
        if (t->kind[i] != EP_EVENT_OP || !ep_event_is_span(t, i) || !t->infos[t->info[i]].input_dims) continue;
        ep_torch_work(t, i, &w);
        is[i] = w.gemm;
        n += w.gemm;
    }
    for (uint32_t i = 0; n && i < t->count; i++) {
        if (is[i] != 1) continue;
        const uint32_t *parent = s->facts->links->parent;
        for (uint32_t up = parent[i]; up != EP_NO_INDEX && is[up] != 2; up = parent[up]) is[up] = 2;
    }
    return n;
}

static bool add_on_host(ep_study *s, uint32_t *slots, size_t mask, uint32_t op) {
    ep_op_work w;
    ep_torch_work(s->trace, op, &w);
    ep_gemm_row g = {.op = ep_study_name(s, op), .epilogue = w.bias ? "in the op" : "none"};
    g.batch = w.batch, g.m = w.m, g.n = w.n, g.k = w.k;
    g.dtype = ep_study_printf(s, "%s", w.dtype);
    g.tflops = g.gbs = g.bound_us = NAN;
    if (!g.dtype) return false;
    g.bound_us = ep_study_bound_us(s, w.flops, w.bytes_read + w.bytes_written, g.dtype, &g.regime);
    ep_gemm_row *row = row_of(s, slots, mask, &g);
    if (!row) return false;
    row->ns += s->trace->dur[op];
    return true;
}

static bool gather(ep_study *s) {
    bool host = ep_study_host_only(s);
    uint8_t *is = host ? calloc(s->trace->count + 1, 1) : NULL;
    if (host && !is) return false;
    size_t most = host ? find_on_host(s, is) : s->node_count, mask = 63;
    while (mask + 1 < most * 2) mask = mask * 2 + 1;
    uint32_t *slots = calloc(mask + 1, sizeof *slots);
    bool ok = slots != NULL;
    for (uint32_t i = 0; ok && host && i < s->trace->count; i++)
        if (is[i] == 1) ok = add_on_host(s, slots, mask, i);
    for (size_t i = 0; ok && !host && i < s->node_count; i++)
        if (s->nodes[i].cls == EP_CLASS_GEMM) ok = add(s, slots, mask, &s->nodes[i]);
    free(slots);
    free(is);
    return ok;
}

ep_status ep_analyze_gemms(ep_study *s, ep_error *err) {
    (void)err;
    bool ok = gather(s);
    if (!ok) return EP_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < s->gemm_count; i++) {
        ep_gemm_row *g = &s->gemms[i];
        double us = (double)g->ns * 1e-3 / (double)g->count;
        if (!g->reason && us > 0)
            g->tflops = ep_flops_per_product(g->dtype) * (double)g->batch * (double)g->m * (double)g->n * (double)g->k /
                        us * 1e-6;
    }
    if (s->gemm_count) qsort(s->gemms, s->gemm_count, sizeof *s->gemms, by_gap);
    return EP_OK;
}
