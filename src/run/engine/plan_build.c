/* Builds the list of launches from a scheduled graph: a step for each product, group and op, in the order of the schedule,
 * by the way that was asked for. */
#include "plan_parts.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "dispatch.h"
#include "run/graph/chain.h"

typedef struct planner {
    ep_plan *p;
    ep_context *ctx;
    const ep_captured *c;
    const ep_graph *g;
    const ep_plan_ways *ways;
    int32_t unit;     /* of the steps that are made now */
    int32_t *slot_of; /* by value: output slot of a root that is an output, or -1 */
} planner;

static ep_status no_memory(ep_context *ctx) {
    return ep_fail(&ctx->err, EP_ERROR_OUT_OF_MEMORY, "a plan could not be allocated");
}

/* Notes that *at takes the address of value v (plus `more` bytes); constants are written at once. */
static ep_status address(planner *b, int32_t v, int64_t more, void *at) {
    const ep_value *x = &b->g->values[v];
    int32_t root = ep_graph_root(b->g, v);
    const ep_value *r = &b->g->values[root];
    int64_t offset = (x->base >= 0 ? x->offset : 0) * (int64_t)ep_dtype_size(x->dtype) + more;
    int32_t slot = SLOT_WORKSPACE;
    if (r->kind == EP_VALUE_CONST) {
        char *data = b->c->consts[r->index]->data;
        data = data ? data + offset : NULL;
        memcpy(at, &data, sizeof data);
        return EP_OK;
    }
    if (r->kind == EP_VALUE_INPUT)
        slot = SLOT_INPUTS + r->index;
    else if (b->slot_of[root] >= 0)
        slot = b->slot_of[root];
    else if (b->g->slots[root].offset >= 0)
        offset += b->g->slots[root].offset;
    else
        return ep_fail(&b->ctx->err, EP_ERROR_INTERNAL, "value %d has no memory", root);
    if (!ep_grow(&b->p->patches, &b->p->patch_cap, b->p->patch_count + 1, sizeof *b->p->patches))
        return no_memory(b->ctx);
    b->p->patches[b->p->patch_count++] = (ep_patch){at, slot, offset};
    return EP_OK;
}

static ep_step *new_step(planner *b, ep_step_kind kind) {
    ep_plan *p = b->p;
    if (!ep_grow(&p->steps, &p->step_cap, p->step_count + 1, sizeof *p->steps)) return NULL;
    ep_step *s = &p->steps[p->step_count++];
    memset(s, 0, sizeof *s);
    s->kind = kind;
    s->unit = b->unit;
    return s;
}

static void look(const planner *b, int32_t v, ep_tensor *out) {
    const ep_value *x = &b->g->values[v];
    memset(out, 0, sizeof *out);
    out->dtype = x->dtype;
    out->ndim = x->ndim;
    memcpy(out->sizes, x->sizes, sizeof x->sizes);
    memcpy(out->strides, x->strides, sizeof x->strides);
    out->device = b->ctx->device;
    out->value = -1;
    ep_tensor_finish_view(out);
}

/* Views of a node's inputs and output, in the plan's arena, patched. */
static ep_status set_views(planner *b, ep_step *s, const ep_node *n, bool broadcast) {
    const ep_value *y = &b->g->values[n->output];
    s->count = n->input_count;
    s->views = EP_ARENA_ARRAY(&b->p->arena, ep_tensor, n->input_count + 1);
    s->in = EP_ARENA_ARRAY(&b->p->arena, const ep_tensor *, n->input_count + 1);
    ep_attr *attr = EP_ARENA_NEW(&b->p->arena, ep_attr);
    if (!s->views || !s->in || !attr) return no_memory(b->ctx);
    *attr = n->attr;
    s->attr = attr;
    for (int k = 0; k <= n->input_count; k++) {
        int32_t v = k < n->input_count ? n->inputs[k] : n->output;
        ep_tensor *t = &s->views[k];
        look(b, v, t);
        if (broadcast && k < n->input_count) {
            int64_t sizes[EP_MAX_DIMS], strides[EP_MAX_DIMS];
            EP_TRY(ep_view_expand(t->ndim, t->sizes, t->strides, y->ndim, y->sizes, &b->ctx->err, sizes, strides));
            *t = ep_dispatch_look(t, y->ndim, sizes, strides);
        }
        s->in[k] = t;
        EP_TRY(address(b, v, 0, &t->data));
    }
    return EP_OK;
}

static ep_status plan_cat(planner *b, const ep_node *n) {
    const ep_value *y = &b->g->values[n->output];
    int d;
    int64_t start = 0;
    EP_TRY(ep_shape_dim(y->ndim, n->attr.dim, &b->ctx->err, &d));
    for (int k = 0; k < n->input_count; k++) {
        const ep_value *x = &b->g->values[n->inputs[k]];
        int64_t at = start * y->strides[d] * (int64_t)ep_dtype_size(y->dtype);
        start += x->sizes[d];
        if (x->numel == 0) continue;
        ep_step *s = new_step(b, STEP_COPY);
        ep_tensor *t = EP_ARENA_ARRAY(&b->p->arena, ep_tensor, 2);
        if (!s || !t) return no_memory(b->ctx);
        s->op = n->op;
        s->count = 1;
        s->views = t;
        look(b, n->inputs[k], &t[0]);
        look(b, n->output, &t[1]);
        t[1] = ep_dispatch_look(&t[1], y->ndim, x->sizes, y->strides);
        EP_TRY(address(b, n->inputs[k], 0, &t[0].data));
        EP_TRY(address(b, n->output, at, &t[1].data));
    }
    return EP_OK;
}

static ep_status plan_op(planner *b, const ep_node *n) {
    ep_op_kind kind = ep_op_get(n->op)->kind;
    if (b->g->values[n->output].numel == 0) return EP_OK;
    if (n->op == EP_OP_CAT) return plan_cat(b, n);
    ep_step_kind as = kind == EP_KIND_POINTWISE ? STEP_POINTWISE
                      : kind == EP_KIND_REDUCE  ? STEP_REDUCE
                      : kind == EP_KIND_NORM    ? STEP_NORM
                                                : STEP_COPY;
    if (kind == EP_KIND_COMPOSITE || kind == EP_KIND_GEMM)
        return ep_fail(&b->ctx->err, EP_ERROR_INTERNAL, "%s was not lowered", ep_op_name(n->op));
    ep_step *s = new_step(b, as);
    if (!s) return no_memory(b->ctx);
    s->op = n->op;
    return set_views(b, s, n, kind == EP_KIND_POINTWISE);
}

/* The product of `n`, without its addresses. */
static ep_status product_form(planner *b, const ep_node *n, ep_gemm *g) {
    ep_tensor a, w, extra, out;
    look(b, n->inputs[0], &a);
    look(b, n->inputs[1], &w);
    look(b, n->output, &out);
    int bias = n->gemm.bias >= 0 ? n->gemm.bias : n->gemm.c;
    if (bias >= 0) {
        look(b, n->inputs[bias], &extra);
        extra.data = (char *)&extra; /* a mark: where it turns up in the form, the operand is read */
    }
    if (n->op != EP_OP_LINEAR)
        ep_dispatch_product_form(&a, &w, &out, bias >= 0 ? &extra : NULL, n->attr.beta, n->attr.alpha, g);
    else if (!ep_dispatch_linear_form(&a, &w, bias >= 0 ? &extra : NULL, g))
        return ep_fail(&b->ctx->err, EP_ERROR_INTERNAL, "linear over rows that are not regular");
    g->rounding = b->g->rounding;
    if (n->op == EP_OP_ADDMM) g->alpha = n->attr.alpha;
    return EP_OK;
}

/* The chain behind the product that group `group` is, if its operands lie as gemm takes them. */
static bool find_steps(const ep_graph *g, int32_t group, ep_chain *c) {
    int64_t row, col;
    if (group < 0 || ep_graph_chain(g, group, c) || g->nodes[c->product].gemm.then != group ||
        g->values[c->output].numel == 0)
        return false;
    if (!ep_graph_even_rows(g, g->nodes[c->product].inputs[0])) return false; /* a batch of products */
    for (int i = 0; i < c->count; i++)
        if (!ep_chain_strides(g, c, i, &row, &col)) return false;
    return true;
}

bool ep_plan_has_steps(const ep_graph *g, int32_t group) {
    ep_chain c;
    return find_steps(g, group, &c);
}

static bool takes_steps(const planner *b, int32_t group, ep_chain *c) {
    return b->ways->steps && group >= 0 && b->ways->steps[group] && find_steps(b->g, group, c);
}

/* The product of `n`, with the steps of chain `c` before its store (NULL: none). */
static ep_status plan_gemm(planner *b, const ep_node *n, const ep_chain *c) {
    if (b->g->values[n->output].numel == 0) return EP_OK;
    ep_gemm *g = EP_ARENA_NEW(&b->p->arena, ep_gemm);
    ep_step *s = new_step(b, STEP_GEMM);
    if (!g || !s) return no_memory(b->ctx);
    EP_TRY(product_form(b, n, g));
    for (int i = 0; c && i < c->count; i++) {
        ep_gemm_then *t = &g->then[g->then_count++];
        t->op = c->op[i];
        ep_chain_strides(b->g, c, i, &t->row, &t->col);
        EP_TRY(address(b, c->other[i], 0, &t->other));
    }
    s->op = n->op == EP_OP_LINEAR ? (n->gemm.bias >= 0 ? EP_OP_ADDMM : EP_OP_MM) : n->op;
    s->gemm = g;
    int bias = n->gemm.bias >= 0 ? n->gemm.bias : n->gemm.c;
    EP_TRY(address(b, n->inputs[0], 0, &g->a));
    EP_TRY(address(b, n->inputs[1], 0, &g->b));
    EP_TRY(address(b, c ? c->output : n->output, 0, &g->out));
    if (g->bias) return address(b, n->inputs[bias], 0, &g->bias);
    return g->c ? address(b, n->inputs[bias], 0, &g->c) : EP_OK;
}

static ep_status plan_kernel(planner *b, const ep_plan_kernel *k) {
    int address_at[EP_LOOP_OPERANDS];
    int64_t words[EP_LOOP_WORDS];
    int64_t chunk = ep_loop_chunk(&k->loop, b->ctx->device.kind == EP_DEVICE_CUDA ? 0 : b->ctx->threads),
            items = ep_loop_items(&k->loop, chunk);
    if (items == 0) return EP_OK;
    ep_step *s = new_step(b, STEP_KERNEL);
    if (!s) return no_memory(b->ctx);
    s->kernel = k;
    s->items = items;
    s->word_count = (size_t)ep_loop_arguments(&k->loop, chunk, words, address_at);
    s->words = EP_ARENA_ARRAY(&b->p->arena, int64_t, s->word_count);
    if (!s->words) return no_memory(b->ctx);
    memcpy(s->words, words, sizeof(int64_t) * s->word_count);
    for (int i = 0; i < k->loop.operand_count; i++)
        EP_TRY(address(b, k->loop.operands[i].value, 0, &s->words[address_at[i]]));
    return EP_OK;
}

static const ep_attach *attached_to(const planner *b, int32_t group) {
    for (int i = 0; group >= 0 && i < b->ways->attached_count; i++)
        if (b->ways->attached[i].group == group) return &b->ways->attached[i];
    return NULL;
}

static const ep_packed *pack_of(const planner *b, const ep_node *n) {
    for (int i = 0; i < b->ways->attached_count; i++) {
        const ep_attach *a = &b->ways->attached[i];
        if (a->group < 0 && &b->g->nodes[a->parts[0].node] == n) return a->parts[0].pack;
    }
    return NULL;
}

/* One product of its packed weight. */
static ep_status plan_packed(planner *b, const ep_node *n, const ep_packed *pack) {
    ep_step *s = new_step(b, STEP_PACKED);
    ep_tuned_call *c = EP_ARENA_NEW(&b->p->arena, ep_tuned_call);
    ep_gemm *g = EP_ARENA_NEW(&b->p->arena, ep_gemm);
    if (!s || !c || !g) return no_memory(b->ctx);
    EP_TRY(product_form(b, n, g));
    *c = (ep_tuned_call){.weights = pack, .m = g->m, .dtype = g->dtype, .rounding = g->rounding};
    c->x_row = g->a_row;
    c->x_col = g->a_col;
    c->out_row = g->n;
    s->op = n->gemm.bias >= 0 ? EP_OP_ADDMM : EP_OP_MM;
    s->gemm = g;
    s->call = c;
    EP_TRY(address(b, n->inputs[0], 0, &c->x));
    EP_TRY(address(b, n->output, 0, &c->out));
    if (n->gemm.bias < 0) return EP_OK;
    c->bias0_stride = b->g->values[n->inputs[n->gemm.bias]].strides[0];
    return address(b, n->inputs[n->gemm.bias], 0, &c->bias0);
}

/* Packed products with the group's kernel on their tiles: one launch. */
static ep_status plan_hooked(planner *b, const ep_attach *a, const ep_plan_kernel *k) {
    ep_step *s = new_step(b, STEP_HOOKED);
    ep_hooked *h = EP_ARENA_NEW(&b->p->arena, ep_hooked);
    ep_gemm *g = EP_ARENA_NEW(&b->p->arena, ep_gemm);
    if (!s || !h || !g) return no_memory(b->ctx);
    const ep_node *n = &b->g->nodes[a->parts[0].node];
    const ep_group *group = &b->g->groups[a->group];
    EP_TRY(product_form(b, n, g));
    ep_hooked_set(b->g, a, &k->loop, g->m, group->sizes[group->ndim - 1], h);
    h->function = k->function;
    h->run = b->p->interpret ? NULL : b->ctx->ops.module_call;
    h->call.hook_user = h;
    h->call.hook_name = h->name;
    h->call.hook_work = &h->work;
    h->call.x_row = g->a_row;
    h->call.x_col = g->a_col;
    s->op = n->gemm.bias >= 0 ? EP_OP_ADDMM : EP_OP_MM;
    s->gemm = g;
    s->hooked = h;
    EP_TRY(address(b, n->inputs[0], 0, &h->call.x));
    for (int i = 0; i < a->count; i++) {
        const ep_node *p = &b->g->nodes[a->parts[i].node];
        const ep_columns *c = &a->parts[i].columns;
        if (p->gemm.bias < 0) continue;
        int32_t bias = p->inputs[p->gemm.bias];
        int64_t stride = b->g->values[bias].strides[0];
        int64_t start = c->start * stride * (int64_t)ep_dtype_size(b->g->values[bias].dtype);
        EP_TRY(address(b, bias, start, i ? &h->call.more[i - 1].bias : &h->call.bias0));
        *(i ? &h->call.more[i - 1].bias_stride : &h->call.bias0_stride) = stride * c->step;
    }
    for (int i = 0; i < h->operand_count; i++)
        if (h->operands[i].product < 0)
            EP_TRY(address(b, k->loop.operands[i].value, 0, &h->words[h->operands[i].word]));
    return EP_OK;
}

static ep_status plan_group(planner *b, const ep_node *n) {
    int32_t group = n->group;
    const ep_attach *a = attached_to(b, group);
    ep_chain c;
    if (!a && takes_steps(b, group, &c)) return plan_gemm(b, &b->g->nodes[c.product], &c);
    if (!a && b->g->groups[group].lone) return plan_op(b, n);
    for (size_t k = 0; k < b->p->kernel_count; k++)
        if (b->p->kernels[k].group == group)
            EP_TRY(a ? plan_hooked(b, a, &b->p->kernels[k]) : plan_kernel(b, &b->p->kernels[k]));
    return EP_OK;
}

static ep_status plan_steps(planner *b) {
    const ep_graph *g = b->g;
    int32_t last = -1;
    ep_chain c;
    for (size_t i = 0; i < g->node_count; i++)
        if (!g->nodes[i].dead && g->nodes[i].kind != EP_NODE_VIEW && g->nodes[i].order > last) last = g->nodes[i].order;
    for (int32_t order = 0; order <= last; order++)
        for (size_t i = 0; i < g->node_count; i++) {
            const ep_node *n = &g->nodes[i];
            if (n->dead || n->kind == EP_NODE_VIEW || n->order != order) continue;
            if (n->kind == EP_NODE_GEMM && attached_to(b, n->gemm.epilogue)) continue;
            if (n->kind == EP_NODE_GEMM && takes_steps(b, n->gemm.then, &c)) continue;
            b->unit = b->ways->unit_of ? b->ways->unit_of[i] : -1;
            if (n->group < 0) {
                const ep_packed *pack = pack_of(b, n);
                EP_TRY(pack                      ? plan_packed(b, n, pack)
                       : n->kind == EP_NODE_GEMM ? plan_gemm(b, n, NULL)
                                                 : plan_op(b, n));
                continue;
            }
            EP_TRY(plan_group(b, n));
            break; /* the whole group is one ep_step */
        }
    return EP_OK;
}

static ep_status plan_outputs(planner *b) {
    const ep_graph *g = b->g;
    ep_plan *p = b->p;
    p->output_count = (int)g->output_count;
    p->outputs = EP_ARENA_ARRAY(&p->arena, ep_plan_output, g->output_count + 1);
    if (!p->outputs) return no_memory(b->ctx);
    for (size_t i = 0; i < g->value_count; i++) b->slot_of[i] = -1;
    for (int i = 0; i < p->output_count; i++) {
        ep_plan_output *o = &p->outputs[i];
        int32_t root = ep_graph_root(g, g->outputs[i]);
        const ep_value *r = &g->values[root];
        o->value = g->values[g->outputs[i]];
        o->owner = o->input = -1;
        o->plain = g->outputs[i] == root;
        if (r->kind == EP_VALUE_INPUT) o->input = r->index;
        if (r->kind == EP_VALUE_CONST) o->constant = b->c->consts[r->index];
        if (r->kind != EP_VALUE_NODE) continue;
        if (b->slot_of[root] < 0) b->slot_of[root] = SLOT_INPUTS + p->input_count + i;
        o->slot = b->slot_of[root];
        o->owner = o->slot - SLOT_INPUTS - p->input_count;
        o->root = (ep_shape){r->dtype, r->ndim, {0}};
        memcpy(o->root.sizes, r->sizes, sizeof r->sizes);
    }
    return EP_OK;
}

static void set_simple(ep_plan *p) {
    const ep_plan_output *o = &p->outputs[0];
    int64_t n;
    if (p->replay || p->output_count != 1 || o->owner != 0 || !o->plain) return;
    if (ep_shape_numel(o->root.ndim, o->root.sizes, NULL, &n) != EP_OK || n > INT64_MAX / 16) return;
    p->simple_bytes = (size_t)n * ep_dtype_size(o->root.dtype);
    p->simple = true;
}

ep_status ep_plan_build(ep_context *ctx, const ep_captured *c, const ep_plan_kernel *kernels, size_t kernel_count,
                        const ep_plan_ways *ways, ep_plan **out) {
    ep_plan *p = calloc(1, sizeof *p);
    if (!p) return no_memory(ctx);
    planner b = {.p = p, .ctx = ctx, .c = c, .g = c->graph, .ways = ways};
    p->input_count = c->graph->input_count;
    p->workspace = c->graph->workspace_bytes;
    p->interpret = ways->interpret;
    p->kernel_count = kernel_count;
    p->kernels = malloc(sizeof *kernels * (kernel_count ? kernel_count : 1));
    b.slot_of = malloc(sizeof *b.slot_of * (c->graph->value_count ? c->graph->value_count : 1));
    ep_status s = p->kernels && b.slot_of ? EP_OK : no_memory(ctx);
    if (s == EP_OK) {
        memcpy(p->kernels, kernels, sizeof *kernels * kernel_count);
        s = plan_outputs(&b);
    }
    p->slot_count = SLOT_INPUTS + p->input_count + p->output_count;
    if (s == EP_OK) s = plan_steps(&b);
    free(b.slot_of);
    if (s == EP_OK && ctx->ops.replay && !ways->interpret && p->step_count) p->replay = calloc(1, sizeof *p->replay);
    if (s == EP_OK) set_simple(p);
    if (s == EP_OK)
        *out = p;
    else
        ep_plan_destroy(p);
    return s;
}
