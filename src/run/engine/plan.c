/* Builds the list of launches from a scheduled graph, and runs it. */
#include "plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "base/clock.h"
#include "base/parallel.h"
#include "base/probe.h"
#include "dispatch.h"
#include "replay.h"
#include "run/backend/launch.h"
#include "run/graph/chain.h"

typedef enum step_kind {
    STEP_GEMM,
    STEP_KERNEL,
    STEP_POINTWISE,
    STEP_COPY,
    STEP_REDUCE,
    STEP_NORM,
    STEP_HOOKED,
    STEP_PACKED
} step_kind;

/* Views of STEP_POINTWISE and the like own nothing; their data is patched. */
typedef struct step {
    step_kind kind;
    int32_t unit; /* whose time it counts to, or -1 */
    ep_op op;
    int count;
    ep_tensor *views;     /* inputs, then the output */
    const ep_tensor **in; /* the inputs' addresses */
    const ep_attr *attr;
    ep_gemm *gemm;
    const ep_plan_kernel *kernel;
    ep_hooked *hooked;
    ep_tuned_call *call;   /* of STEP_PACKED */
    int64_t *words, items; /* argument block */
    size_t word_count;
} step;

/* Where an address goes before a launch: *at = base[slot] + offset. */
typedef struct patch {
    void *at;
    int32_t slot;
    int64_t offset; /* bytes */
} patch;

/* An output: a value with memory of its own, or a way to look at an input, a constant or another output. */
typedef struct output {
    ep_value value; /* shape, strides; offset in elements */
    int32_t slot;   /* whose memory */
    int32_t owner;  /* output that allocates it, or -1: an input or constant */
    const ep_tensor *constant;
    int32_t input;
    bool plain; /* the whole of a fresh result */
    ep_shape root;
} output;

struct ep_plan {
    ep_arena arena;
    step *steps;
    size_t step_count, step_cap;
    patch *patches;
    size_t patch_count, patch_cap;
    output *outputs;
    int output_count, input_count, slot_count;
    ep_plan_kernel *kernels;
    size_t kernel_count;
    int64_t workspace;
    bool interpret, simple; /* simple: one output, all of a fresh result, launches one by one */
    size_t simple_bytes;
    ep_replay *replay; /* NULL where the backend has none */
};

typedef struct planner {
    ep_plan *p;
    ep_context *ctx;
    const ep_captured *c;
    const ep_graph *g;
    const ep_plan_ways *ways;
    int32_t unit;     /* of the steps that are made now */
    int32_t *slot_of; /* by value: output slot of a root that is an output, or -1 */
} planner;

/* Slots: the workspace, the inputs, the outputs. Constants are addresses already. */
enum { SLOT_WORKSPACE = 0, SLOT_INPUTS = 1 };

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
    b->p->patches[b->p->patch_count++] = (patch){at, slot, offset};
    return EP_OK;
}

static step *new_step(planner *b, step_kind kind) {
    ep_plan *p = b->p;
    if (!ep_grow(&p->steps, &p->step_cap, p->step_count + 1, sizeof *p->steps)) return NULL;
    step *s = &p->steps[p->step_count++];
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
static ep_status set_views(planner *b, step *s, const ep_node *n, bool broadcast) {
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
        step *s = new_step(b, STEP_COPY);
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
    step_kind as = kind == EP_KIND_POINTWISE ? STEP_POINTWISE
                   : kind == EP_KIND_REDUCE  ? STEP_REDUCE
                   : kind == EP_KIND_NORM    ? STEP_NORM
                                             : STEP_COPY;
    if (kind == EP_KIND_COMPOSITE || kind == EP_KIND_GEMM)
        return ep_fail(&b->ctx->err, EP_ERROR_INTERNAL, "%s was not lowered", ep_op_name(n->op));
    step *s = new_step(b, as);
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
    step *s = new_step(b, STEP_GEMM);
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
    step *s = new_step(b, STEP_KERNEL);
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
    step *s = new_step(b, STEP_PACKED);
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
    step *s = new_step(b, STEP_HOOKED);
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
            break; /* the whole group is one step */
        }
    return EP_OK;
}

static ep_status plan_outputs(planner *b) {
    const ep_graph *g = b->g;
    ep_plan *p = b->p;
    p->output_count = (int)g->output_count;
    p->outputs = EP_ARENA_ARRAY(&p->arena, output, g->output_count + 1);
    if (!p->outputs) return no_memory(b->ctx);
    for (size_t i = 0; i < g->value_count; i++) b->slot_of[i] = -1;
    for (int i = 0; i < p->output_count; i++) {
        output *o = &p->outputs[i];
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
    const output *o = &p->outputs[0];
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

void ep_plan_destroy(ep_plan *p) {
    if (!p) return;
    if (p->replay) ep_replay_clear(p->replay);
    free(p->replay);
    free(p->steps);
    free(p->patches);
    free(p->kernels);
    ep_arena_free(&p->arena);
    free(p);
}

int64_t ep_plan_workspace(const ep_plan *p) {
    return p->workspace;
}

int ep_plan_launches(const ep_plan *p, int *generated) {
    *generated = 0;
    for (size_t i = 0; i < p->step_count; i++)
        *generated += p->steps[i].kind == STEP_KERNEL || p->steps[i].kind == STEP_HOOKED;
    return (int)p->step_count;
}

/* The product as an op on the trace: bias, a and b as the matrix op has them. */
static const ep_probe *product_span(const ep_probe *p, const step *s) {
    const ep_gemm *g = s->gemm;
    int64_t a[3] = {g->batch, g->m, g->k}, a_strides[3] = {g->a_batch, g->a_row, g->a_col};
    int64_t w[3] = {g->batch, g->k, g->n}, w_strides[3] = {g->b_batch, g->b_row, g->b_col};
    int64_t n[1] = {g->n}, n_stride[1] = {g->bias_stride};
    int skip = g->batch == 1, wide = g->b_batch != 0 && !skip;
    const char *dtype = ep_dtype_name(g->dtype);
    ep_probe_operand all[3];
    int count = 0;
    if (g->bias) all[count++] = (ep_probe_operand){dtype, 1, n, n_stride};
    all[count++] = (ep_probe_operand){dtype, 3 - skip, a + skip, a_strides + skip};
    all[count++] = (ep_probe_operand){dtype, 2 + wide, w + !wide, w_strides + !wide};
    ep_probe_span span = {.kind = EP_PROBE_OP, .name = ep_op_name(s->op), .operand_count = count, .operands = all};
    p->begin(p->self, &span);
    return p;
}

static void walk(void *user, int64_t begin, int64_t end) {
    const step *s = user;
    ep_loop_run(&s->kernel->loop, s->words, begin, end);
}

/* As the kernel's launch, so that a recording shows who did the work. */
static ep_status interpret(ep_context *ctx, const step *s) {
    ep_launch l = ep_launch_begin(s->kernel->name);
    ep_parallel_for(s->items > 1 ? ctx->threads : 1, s->items, 1, walk, (void *)(uintptr_t)s);
    ep_launch_end(&l, s->kernel->loop.work.flops, s->kernel->loop.work.bytes_read, s->kernel->loop.work.bytes_written);
    return EP_OK;
}

static ep_status run_step(const ep_plan *plan, const step *s, ep_context *ctx) {
    ep_backend_ops *ops = &ctx->ops;
    ep_backend *b = &ctx->backend;
    switch (s->kind) {
    case STEP_HOOKED: return ops->tuned(b, &s->hooked->call, &ctx->err);
    case STEP_PACKED: return ops->tuned(b, s->call, &ctx->err);
    case STEP_GEMM: return ops->gemm(b, s->gemm, &ctx->err);
    case STEP_KERNEL:
        if (plan->interpret) return interpret(ctx, s);
        return ops->module_launch(b, s->kernel->function, s->kernel->name, s->words, s->word_count * sizeof(int64_t),
                                  &s->kernel->loop.work, s->items, &ctx->err);
    case STEP_POINTWISE: return ops->pointwise(b, s->op, s->count, s->in, &s->views[s->count], &ctx->err);
    case STEP_COPY: return ops->copy(b, &s->views[0], &s->views[1], &ctx->err);
    case STEP_REDUCE: return ops->reduce(b, s->op, s->attr, s->in[0], &s->views[1], &ctx->err);
    case STEP_NORM: return ops->norm(b, s->op, s->attr, s->count, s->in, &s->views[s->count], &ctx->err);
    }
    return EP_OK;
}

static ep_status run_recorded(const ep_plan *plan, ep_context *ctx, const ep_probe *p) {
    ep_status status = EP_OK;
    for (size_t i = 0; status == EP_OK && i < plan->step_count; i++) {
        const step *s = &plan->steps[i];
        const ep_probe *span = NULL;
        if (s->kind == STEP_GEMM || s->kind == STEP_HOOKED || s->kind == STEP_PACKED)
            span = product_span(p, s);
        else if (s->kind != STEP_KERNEL)
            span = ep_span_record(p, s->op, s->kind == STEP_COPY ? 1 : s->count,
                                  (const ep_tensor *[4]){&s->views[0], s->count > 1 ? &s->views[1] : NULL,
                                                         s->count > 2 ? &s->views[2] : NULL, NULL},
                                  NULL);
        status = run_step(plan, s, ctx);
        ep_span_end(span);
    }
    return status;
}

/* A view keeps the whole memory it looks at alive through its storage. */
static ep_status make_view(ep_context *ctx, const ep_tensor *of, const output *o, ep_tensor **out) {
    const ep_value *v = &o->value;
    ep_tensor *t;
    EP_TRY(ep_tensor_begin_view(of, v->base >= 0 ? v->offset : 0, &ctx->err, &t));
    t->ndim = v->ndim;
    memcpy(t->sizes, v->sizes, sizeof v->sizes);
    memcpy(t->strides, v->strides, sizeof v->strides);
    ep_tensor_finish_view(t);
    *out = t;
    return EP_OK;
}

static ep_status make_outputs(const ep_plan *p, ep_context *ctx, const ep_tensor *const *inputs, ep_tensor **whole,
                              ep_tensor **outputs) {
    ep_tensor *made[EP_PLAN_OUTPUTS];
    for (int i = 0; i < p->output_count; i++) {
        const output *o = &p->outputs[i];
        const ep_tensor *of = o->input >= 0 ? inputs[o->input] : o->constant ? o->constant : whole[o->owner];
        made[i] = NULL;
        if (o->owner == i && o->plain) {
            made[i] = whole[i];
            continue;
        }
        ep_status s = make_view(ctx, of, o, &made[i]);
        if (s == EP_OK) continue;
        for (int k = 0; k < i; k++)
            if (made[k] != whole[k]) ep_tensor_destroy(made[k]);
        return s;
    }
    for (int i = 0; i < p->output_count; i++) {
        outputs[i] = made[i];
        if (whole[i] == made[i]) whole[i] = NULL;
    }
    return EP_OK;
}

static ep_status run_timed(const ep_plan *p, ep_context *ctx, int64_t *unit_ns) {
    for (size_t i = 0; i < p->step_count; i++) {
        const step *s = &p->steps[i];
        int64_t start = s->unit >= 0 ? ep_clock_ns() : 0;
        EP_TRY(run_step(p, s, ctx));
        if (s->unit >= 0) unit_ns[s->unit] += ep_clock_ns() - start;
    }
    return EP_OK;
}

static ep_status run_steps(const ep_plan *p, ep_context *ctx, int64_t *unit_ns) {
    const ep_probe *probe = ep_probe_get();
    if (__builtin_expect(probe != NULL, 0)) return run_recorded(p, ctx, probe);
    if (__builtin_expect(unit_ns != NULL, 0)) return run_timed(p, ctx, unit_ns);
    for (size_t i = 0; i < p->step_count; i++) {
        const step *s = &p->steps[i];
        if (p->replay) ctx->ops.capture_op(&ctx->backend, s->kind == STEP_KERNEL ? s->kernel->name : ep_op_name(s->op));
        EP_TRY(run_step(p, s, ctx));
    }
    return EP_OK;
}

typedef struct patched_run {
    const ep_plan *p;
    ep_context *ctx;
    char *const *base;
    int64_t *unit_ns;
} patched_run;

static ep_status patch_and_run(void *user) {
    const patched_run *r = user;
    for (size_t i = 0; i < r->p->patch_count; i++) {
        const patch *t = &r->p->patches[i];
        uintptr_t to = (uintptr_t)r->base[t->slot] + (uintptr_t)t->offset; /* nothing's address may be null */
        memcpy(t->at, &to, sizeof to);
    }
    return run_steps(r->p, r->ctx, r->unit_ns);
}

/* The addresses are all that a plan's launches depend on. */
static ep_status replay_or_run(patched_run *r) {
    uint64_t key[SLOT_INPUTS + EP_PLAN_INPUTS + EP_PLAN_OUTPUTS];
    for (int i = 0; i < r->p->slot_count; i++) key[i] = (uint64_t)(uintptr_t)r->base[i];
    /* One call asks for every kernel of a replay, so on the trace it is one op. */
    const ep_probe *probe = ep_replay_captured(r->p->replay) ? ep_probe_get() : NULL;
    ep_probe_span span = {.kind = EP_PROBE_OP, .name = "compiled"};
    if (probe) probe->begin(probe->self, &span);
    ep_status s = ep_replay_run(r->p->replay, r->ctx, key, r->p->slot_count, patch_and_run, r);
    if (probe) probe->end(probe->self);
    return s;
}

const struct ep_replay *ep_plan_replay(const ep_plan *p) {
    return p->replay;
}

/* The usual plan, with nothing on the way but its launches. */
static ep_status run_simple(const ep_plan *p, ep_context *ctx, const ep_tensor *const *inputs, char *workspace,
                            int64_t *unit_ns, ep_tensor **outputs) {
    const ep_shape *shape = &p->outputs[0].root;
    char *base[SLOT_INPUTS + EP_PLAN_INPUTS + 1];
    ep_storage *storage;
    ep_tensor *t;
    EP_TRY(ctx->ops.storage(&ctx->backend, p->simple_bytes, &ctx->err, &storage));
    EP_TRY(ep_tensor_over(storage, shape->dtype, shape->ndim, shape->sizes, &ctx->err, &t));
    base[SLOT_WORKSPACE] = workspace;
    for (int i = 0; i < p->input_count; i++) base[SLOT_INPUTS + i] = inputs[i]->data;
    base[SLOT_INPUTS + p->input_count] = t->data;
    ep_status s = patch_and_run(&(patched_run){p, ctx, base, unit_ns});
    if (__builtin_expect(s == EP_OK, 1))
        *outputs = t;
    else
        ep_tensor_destroy(t);
    return s;
}

ep_status ep_plan_run(const ep_plan *p, ep_context *ctx, const ep_tensor *const *inputs, char *workspace,
                      int64_t *unit_ns, ep_tensor **outputs) {
    char *base[SLOT_INPUTS + EP_PLAN_INPUTS + EP_PLAN_OUTPUTS];
    ep_tensor *whole[EP_PLAN_OUTPUTS];
    if (p->simple) return run_simple(p, ctx, inputs, workspace, unit_ns, outputs);
    ep_status s = EP_OK;
    base[SLOT_WORKSPACE] = workspace;
    for (int i = 0; i < p->input_count; i++) base[SLOT_INPUTS + i] = inputs[i]->data;
    for (int i = 0; i < p->output_count; i++) {
        const output *o = &p->outputs[i];
        whole[i] = NULL;
        base[SLOT_INPUTS + p->input_count + i] = NULL;
        if (s != EP_OK || o->owner != i) continue;
        s = ep_dispatch_result(ctx, o->root.dtype, o->root.ndim, o->root.sizes, &whole[i]);
        if (s == EP_OK) base[o->slot] = whole[i]->data;
    }
    patched_run r = {p, ctx, base, unit_ns};
    if (s == EP_OK) s = p->replay ? replay_or_run(&r) : patch_and_run(&r);
    if (s == EP_OK) s = make_outputs(p, ctx, inputs, whole, outputs);
    for (int i = 0; i < p->output_count; i++) ep_tensor_destroy(whole[i]);
    return s;
}
