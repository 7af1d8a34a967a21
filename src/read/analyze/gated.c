/* Gated MLPs found by shape: two equal products of one input, an activation and a product of both, then the product
 * down. What form it runs in, and what the fully fused block would take on this device. */
#include <math.h>
#include <string.h>

#include "analyze.h"
#include "base/alloc.h"

typedef struct block {
    uint32_t gate, up, act, mul, down; /* nodes; EP_NO_INDEX where there is none */
    bool packed;                       /* gate and up are one product */
} block;

static const ep_work_row *row(const ep_study *s, uint32_t node) {
    return &s->rows[s->nodes[node].row];
}

static bool is_gemm(const ep_study *s, uint32_t node) {
    return node != EP_NO_INDEX && s->nodes[node].cls == EP_CLASS_GEMM && row(s, node)->gemm;
}

/* The product behind an operand, directly or through one pointwise op (the activation). */
static uint32_t product_behind(const ep_study *s, uint32_t node, uint32_t *act) {
    if (is_gemm(s, node)) return node;
    if (node == EP_NO_INDEX || s->nodes[node].cls != EP_CLASS_POINTWISE) return EP_NO_INDEX;
    for (int i = 0; i < EP_WORK_INPUTS; i++)
        if (is_gemm(s, ep_node_producer(s, &s->nodes[node], i))) {
            *act = node;
            return ep_node_producer(s, &s->nodes[node], i);
        }
    return EP_NO_INDEX;
}

static bool equal_sizes(const ep_work_row *a, const ep_work_row *b) {
    return a->m == b->m && a->n == b->n && a->k == b->k && a->batch == b->batch;
}

static bool find_block(const ep_study *s, uint32_t mul, block *b) {
    const ep_node *n = &s->nodes[mul];
    *b = (block){EP_NO_INDEX, EP_NO_INDEX, EP_NO_INDEX, mul, n->consumer, false};
    uint32_t found[2] = {EP_NO_INDEX, EP_NO_INDEX};
    int count = 0;
    for (int i = 0; i < EP_WORK_INPUTS && count < 2; i++) {
        uint32_t act = b->act, g = product_behind(s, ep_node_producer(s, n, i), &act);
        if (g == EP_NO_INDEX || g == found[0]) continue;
        found[count++] = g;
        b->act = act;
    }
    if (!is_gemm(s, b->down) || count == 0) return false;
    b->gate = found[0], b->up = found[1];
    if (count == 2)
        return equal_sizes(row(s, b->gate), row(s, b->up)) && row(s, b->down)->k == row(s, b->gate)->n &&
               row(s, b->down)->m == row(s, b->gate)->m;
    b->packed = row(s, b->gate)->n == 2 * row(s, b->down)->k && row(s, b->gate)->m == row(s, b->down)->m;
    return b->packed;
}

static const char *act_of(const ep_study *s, const block *b) {
    static const char *const acts[][2] = {{"gelu", "gelu"},   {"GELU", "gelu"}, {"geglu", "gelu"},
                                          {"Gelu", "gelu"},   {"silu", "silu"}, {"SiLU", "silu"},
                                          {"swiglu", "silu"}, {"relu", "relu"}, {"sigmoid", "sigmoid"}};
    const uint32_t nodes[] = {b->act, b->mul};
    for (size_t k = 0; k < 2; k++) {
        if (nodes[k] == EP_NO_INDEX) continue;
        const char *names[] = {ep_study_name(s, ep_node_owner(s, &s->nodes[nodes[k]])),
                               ep_study_name(s, s->work[s->nodes[nodes[k]].main].event)};
        for (size_t i = 0; i < sizeof acts / sizeof acts[0]; i++)
            if (strstr(names[0], acts[i][0]) || strstr(names[1], acts[i][0])) return acts[i][1];
    }
    return "unknown";
}

static const char *form_of(const ep_study *s, const block *b) {
    if (b->act != EP_NO_INDEX) return "eager";
    uint32_t kind = s->work[s->nodes[b->mul].main].kind;
    const ep_kernel_name *d = kind == EP_NO_INDEX ? NULL : &s->facts->names[kind].decoded;
    if (d && (strcmp(d->vendor, "triton") == 0 || strcmp(d->family, "generated") == 0)) return "compiled";
    return strncmp(ep_study_name(s, ep_node_owner(s, &s->nodes[b->mul])), "aten::", 6) == 0 ? "eager" : "tuned";
}

static double us(const ep_study *s, uint32_t node) {
    return node == EP_NO_INDEX ? 0 : (double)ep_node_ns(s, &s->nodes[node]) * 1e-3;
}

static void measure(const ep_study *s, const block *b, ep_gated_row *r) {
    const ep_work_row *g = row(s, b->gate), *d = row(s, b->down);
    int64_t element = g->out_numel > 0 ? g->out_bytes / g->out_numel : 0, h = g->m * r->n * element;
    ep_regime regime;
    r->gemm_us = us(s, b->gate) + us(s, b->up) + us(s, b->down);
    r->pointwise_us = us(s, b->act) + us(s, b->mul);
    r->now_us = r->gemm_us + r->pointwise_us;
    r->intermediate_bytes = h * (b->act == EP_NO_INDEX ? 2 : 3);
    r->pointwise_bound_us = ep_study_bound_us(s, 0, 3 * h, "", &regime);
    int64_t up_bytes = (g->m * g->k + 2 * r->n * g->k) * element + h,
            down_bytes = h + (d->n * d->k + d->m * d->n) * element;
    double first = ep_study_bound_us(s, 4 * g->m * r->n * g->k, up_bytes, g->dtype, &regime);
    double second = ep_study_bound_us(s, 2 * d->m * d->n * d->k, down_bytes, d->dtype, &regime);
    r->fused_bound_us = first + second;
}

static bool same(const ep_gated_row *a, const ep_gated_row *b) {
    return a->m == b->m && a->n == b->n && a->k == b->k && a->out == b->out && a->kernel == b->kernel &&
           strcmp(a->form, b->form) == 0;
}

static bool add(ep_study *s, const block *b) {
    ep_gated_row r;
    memset(&r, 0, sizeof r);
    r.form = b->packed ? "packed" : form_of(s, b);
    r.act = act_of(s, b);
    r.kernel = ep_study_name(s, s->work[s->nodes[b->mul].main].event);
    r.m = row(s, b->gate)->m, r.n = row(s, b->down)->k, r.k = row(s, b->gate)->k, r.out = row(s, b->down)->n;
    r.dtype = row(s, b->gate)->dtype;
    measure(s, b, &r);
    for (size_t i = 0; i < s->gated_count; i++)
        if (same(&s->gated[i], &r)) {
            ep_gated_row *old = &s->gated[i];
            old->now_us += r.now_us, old->gemm_us += r.gemm_us, old->pointwise_us += r.pointwise_us;
            old->count++;
            return true;
        }
    if (s->gated_count >= 256) return true; /* more different blocks than a page can show */
    if (!ep_grow(&s->gated, &s->gated_cap, s->gated_count + 1, sizeof *s->gated)) return false;
    r.count = 1;
    s->gated[s->gated_count++] = r;
    return true;
}

/* Gradients have the same shapes: of a plain MLP act'(h) * (dy W), of a gated one dh * u, and one that is scaled into a bucket lies
 * beside another product's. */
static bool in_backward(const ep_study *s, uint32_t node) {
    const ep_links *l = s->facts->links;
    for (uint32_t up = ep_node_owner(s, &s->nodes[node]); up != EP_NO_INDEX; up = l->parent[up]) {
        const char *name = ep_study_name(s, up);
        if (ep_links_forward(l, up) != EP_NO_INDEX || strstr(name, "ackward") || strstr(name, "AccumulateGrad"))
            return true;
    }
    return false;
}

ep_status ep_analyze_gated(ep_study *s, ep_error *err) {
    (void)err;
    for (uint32_t n = 0; n < s->node_count; n++) {
        block b;
        if (s->nodes[n].cls != EP_CLASS_POINTWISE || !row(s, n)->known || !find_block(s, n, &b) || in_backward(s, n))
            continue;
        if (!add(s, &b)) return EP_ERROR_OUT_OF_MEMORY;
    }
    for (size_t i = 0; i < s->gated_count; i++) {
        ep_gated_row *r = &s->gated[i];
        double n = (double)r->count;
        r->now_us /= n, r->gemm_us /= n, r->pointwise_us /= n;
    }
    return EP_OK;
}
