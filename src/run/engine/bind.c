/* The pipeline for one set of input sizes, top to bottom: capture, passes, loop nests, kernels, plan. Binding costs
 * microseconds; only a loop nest that no kernel can run costs a compile. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/probe.h"
#include "compile.h"
#include "run/graph/extent.h"
#include "run/pass/pass.h"

static ep_status no_memory(ep_compiled *c) {
    return ep_fail(&c->ctx->err, EP_ERROR_OUT_OF_MEMORY, "a binding could not be allocated");
}

static ep_status run_passes(ep_compiled *c, ep_graph *g) {
    ep_pass_options o = {.verify = c->verify};
    if (c->memo.entry_count == 0) { /* the first graph is shown; later ones differ in sizes, or say why not */
        o.dump = c->options.dump_pass;
        o.print = c->options.dump;
        o.user = c->options.dump_user;
    }
    return ep_passes_run(g, &o, &c->ctx->err);
}

static int64_t *symbols_of(const ep_graph *g) {
    int64_t *values = malloc(sizeof *values * (g->symbol_count + 1));
    for (size_t i = 0; values && i < g->symbol_count; i++) values[i] = g->symbols[i].value;
    return values;
}

/* `symbols`: may later calls use what is captured now for their own sizes? */
static ep_status capture(ep_compiled *c, const ep_tensor *const *inputs, bool symbols, ep_binding *b) {
    ep_captured captured;
    c->captures++;
    EP_TRY(ep_capture(c->ctx, c->fn, c->user, inputs, c->input_count, c->output_count, symbols, &captured));
    ep_status s = run_passes(c, captured.graph);
    if (s != EP_OK) {
        ep_captured_clear(&captured);
        return s;
    }
    free(b->symbols);
    b->symbols = symbols_of(captured.graph);
    ep_template *t = ep_memo_add_template(&c->memo, &captured);
    if (!t || !b->symbols) return no_memory(c);
    if (b->from) b->from->bindings--;
    b->from = t;
    t->bindings++;
    return EP_OK;
}

/* Writes this binding's sizes into the template's graph, and places values by them. */
static ep_status set_sizes(ep_compiled *c, ep_binding *b) {
    ep_graph *g = b->from->captured.graph;
    if (g->symbol_count == 0) return EP_OK;
    for (size_t i = 0; i < g->symbol_count; i++) g->symbols[i].value = b->symbols[i];
    EP_TRY(ep_extent_evaluate(g, b->symbols, &c->ctx->err));
    return ep_pass_memplan(g, &c->ctx->err);
}

/* The graph for these sizes: from a template, or captured now. */
static ep_status make_graph(ep_compiled *c, const ep_tensor *const *inputs, ep_binding *b) {
    b->from = ep_memo_template(&c->memo, c->input_count, b->facts, &b->symbols);
    if (!b->from) return capture(c, inputs, c->options.specialize != EP_SPECIALIZE_STATIC, b);
    b->from->bindings++;
    return set_sizes(c, b);
}

/* May pointwise kernels run on tiles of packed products here? */
static bool may_attach(const ep_compiled *c) {
    return c->options.weights_stay && c->ctx->ops.tuned_hooks && c->ctx->ops.module_call &&
           c->options.specialize != EP_SPECIALIZE_STATIC;
}

/* Kernels that the plan without epilogues cannot do without. */
static bool plan_needs(const ep_binding *b, size_t group) {
    return !b->from->captured.graph->groups[group].lone;
}

/* Lone ops are kernels of eager's, so they need code as epilogues only. */
static bool needs_code(const ep_compiled *c, const ep_binding *b, size_t group) {
    const ep_graph *g = b->from->captured.graph;
    if (plan_needs(b, group)) return true;
    for (size_t i = 0; may_attach(c) && i < g->node_count; i++)
        if (!g->nodes[i].dead && g->nodes[i].gemm.epilogue == (int32_t)group) return true;
    return false;
}

/* At least one outer dim everywhere: then sizes that happen to merge and sizes that do not share code. */
static ep_status make_loops(ep_compiled *c, ep_binding *b) {
    const ep_graph *g = b->from->captured.graph;
    free(b->loops);
    free(b->kernels);
    b->kernel_count = g->group_count;
    b->loops = calloc(g->group_count + 1, sizeof *b->loops);
    b->kernels = calloc(g->group_count + 1, sizeof *b->kernels);
    if (!b->loops || !b->kernels) return no_memory(c);
    for (size_t i = 0; i < g->group_count; i++) {
        ep_loop *l = &b->loops[i].loop;
        b->loops[i].group = (int32_t)i;
        if (!needs_code(c, b, i)) continue;
        EP_TRY(ep_loop_build(g, (int32_t)i, &c->ctx->err, l));
        l->fixed = c->options.specialize == EP_SPECIALIZE_STATIC;
        ep_loop_pad(l, 1);
    }
    return EP_OK;
}

static char *reasons_text(const ep_graph *g) {
    ep_text t = {0};
    for (size_t i = 0; i < g->reason_count; i++) ep_text_printf(&t, "  %s\n", g->reasons[i].text);
    ep_text_addn(&t, "", 0);
    return ep_text_take(&t);
}

/* Dims larger than 1 that are numbers in the graph: the weights or the function want them so. */
static void mark_fixed(ep_binding *b) {
    const ep_graph *g = b->from->captured.graph;
    for (size_t i = 0; i < g->value_count; i++) {
        const ep_value *v = &g->values[i];
        for (int d = 0; v->kind == EP_VALUE_INPUT && d < v->ndim; d++)
            if (v->dims[d] < 0 && v->sizes[d] > 1) b->facts[v->index].fixed |= (uint8_t)(1u << d);
    }
}

static char *guards_text(const ep_compiled *c, const ep_binding *b) {
    ep_text t = {0};
    ep_guard_list(c->input_count, b->facts, b->from->captured.graph, &t);
    ep_text_addn(&t, "", 0);
    return ep_text_take(&t);
}

static void show_failure(const char *text) {
    const ep_probe *p = ep_probe_get();
    if (!p || !*text) return;
    ep_probe_span span = {.kind = EP_PROBE_GUARD, .name = "guard failed", .detail = text};
    p->begin(p->self, &span);
    p->end(p->self);
}

static uint64_t entry_key(const ep_compiled *c, const ep_binding *b) {
    uint64_t h = ep_graph_hash(b->from->captured.graph);
    for (size_t i = 0; i < b->kernel_count; i++) {
        uint64_t k = b->kernels[i] ? b->kernels[i]->hash : 0;
        h = ep_hash64(&k, sizeof k, h);
    }
    if (c->options.specialize != EP_SPECIALIZE_STATIC) return h;
    return ep_hash64(b->facts, sizeof *b->facts * (size_t)c->input_count, h);
}

/* Finds kernels, adds what is missing, and sends the new ones off together. */
static ep_status make_kernels(ep_compiled *c, ep_binding *b) {
    ep_kernel **fresh = malloc(sizeof *fresh * (b->kernel_count + 1));
    size_t count = 0;
    bool new_entry;
    if (!fresh) return no_memory(c);
    for (size_t i = 0; i < b->kernel_count; i++) {
        if (!needs_code(c, b, i)) continue;
        b->kernels[i] = ep_kernels_find(&c->kernels, &b->loops[i].loop);
        if (b->kernels[i]) continue;
        b->kernels[i] = fresh[count++] = ep_kernels_add(&c->kernels, &b->loops[i].loop);
        if (!b->kernels[i]) {
            free(fresh);
            return no_memory(c);
        }
    }
    b->entry = ep_memo_entry(&c->memo, entry_key(c, b), b, c->input_count,
                             c->options.specialize == EP_SPECIALIZE_STATIC, &new_entry);
    ep_status s = b->entry < 0 ? no_memory(c) : EP_OK;
    if (s == EP_OK && new_entry) {
        ep_entry *e = &c->memo.entries[b->entry];
        e->reasons = reasons_text(b->from->captured.graph);
        e->guards = guards_text(c, b);
        for (size_t i = 0; i < b->kernel_count; i++) e->kernels += b->kernels[i] != NULL;
        show_failure(e->failed);
    }
    if (s == EP_OK && count && !c->kernels.interpret) {
        const char *why = c->memo.entries[b->entry].failed;
        s = ep_kernels_build(&c->kernels, fresh, count, *why ? why : "first entry");
    }
    free(fresh);
    return s;
}

static ep_status set_choice(ep_compiled *c, const ep_tensor *const *inputs, ep_binding *b) {
    int64_t elements = 1;
    for (int i = 0; i < c->input_count; i++) elements += inputs[i]->numel;
    b->choice = ep_memo_choice(&c->memo, b->entry, elements);
    if (!b->choice) return no_memory(c);
    bool generates = false;
    for (size_t i = 0; i < b->kernel_count; i++) generates |= plan_needs(b, i);
    if (b->choice->decided) return EP_OK;
    if (c->no_choice)
        ep_choice_settle(b->choice, "compiled kept: not measured");
    else if (!generates)
        ep_choice_settle(b->choice, "compiled kept: its kernels are eager's own, launched with less work between them");
    return EP_OK;
}

/* A product that a backend's tuned call can make. */
static bool rows_are_even(const ep_graph *g, const ep_node *n) {
    return g->values[n->inputs[0]].numel && g->values[n->output].numel && ep_graph_even_rows(g, n->inputs[0]);
}

/* And as many as the nest's. */
static bool rows_fit(const ep_graph *g, const ep_node *n, const ep_group *p, const ep_loop *l) {
    const ep_value *y = &g->values[n->output];
    return rows_are_even(g, n) && ep_hooked_fits(l, y->numel / y->sizes[y->ndim - 1], p->sizes[p->ndim - 1]);
}

/* The products that pass `epilogue` marked for group `group`, if their numbers of now allow it. */
static bool find_attach(const ep_binding *b, int32_t group, ep_attach *a) {
    const ep_graph *g = b->from->captured.graph;
    const ep_group *p = &g->groups[group];
    *a = (ep_attach){.group = group};
    for (size_t i = 0; i < g->node_count; i++)
        for (int k = 0; g->nodes[i].group == group && !g->nodes[i].dead && k < g->nodes[i].input_count; k++) {
            int32_t v = g->nodes[i].inputs[k], at = g->values[ep_graph_root(g, v)].node;
            ep_attach_part part = {.node = at};
            if (at < 0 || g->nodes[at].gemm.epilogue != group) continue;
            if (!ep_graph_columns(g, v, p, &part.columns) || !rows_fit(g, &g->nodes[at], p, &b->loops[group].loop))
                return false;
            bool known = false;
            for (int s = 0; s < a->count; s++)
                known |= a->parts[s].node == at && !memcmp(&a->parts[s].columns, &part.columns, sizeof part.columns);
            if (known) continue;
            if (a->count == EP_TUNED_PRODUCTS) return false;
            a->parts[a->count++] = part;
        }
    return a->count > 0;
}

/* Beside epilogues the other products are made of packed weights too, where the backend measures that as faster. */
static bool find_packed(const ep_binding *b, int32_t node, ep_attach *a) {
    const ep_graph *g = b->from->captured.graph;
    const ep_node *n = &g->nodes[node];
    if (n->dead || n->kind != EP_NODE_GEMM || n->op != EP_OP_LINEAR || !rows_are_even(g, n) ||
        g->values[ep_graph_root(g, n->inputs[1])].kind != EP_VALUE_CONST)
        return false;
    for (int i = 0; i < b->attach_count; i++)
        for (int k = 0; k < b->attaches[i].count; k++)
            if (b->attaches[i].parts[k].node == node) return false;
    *a = (ep_attach){.group = -1, .count = 1, .parts = {{.node = node, .columns = {0, 1}}}};
    return true;
}

/* The part's rows of the weight as the graph reads it: the constant, or a view of it. */
static ep_status weight_of(ep_compiled *c, const ep_binding *b, const ep_attach *a, int part, ep_tensor **out) {
    const ep_graph *g = b->from->captured.graph;
    int32_t weight = g->nodes[a->parts[part].node].inputs[1];
    const ep_value *w = &g->values[weight], *root = &g->values[ep_graph_root(g, weight)];
    const ep_columns *columns = &a->parts[part].columns;
    int64_t start = (w->base >= 0 ? w->offset : 0) + columns->start * w->strides[0];
    ep_tensor *t;
    EP_TRY(ep_tensor_begin_view(b->from->captured.consts[root->index], start, &c->ctx->err, &t));
    t->ndim = w->ndim;
    memcpy(t->sizes, w->sizes, sizeof t->sizes);
    memcpy(t->strides, w->strides, sizeof t->strides);
    if (a->group >= 0) t->sizes[0] = g->groups[a->group].sizes[g->groups[a->group].ndim - 1];
    t->strides[0] *= columns->step;
    ep_tensor_finish_view(t);
    *out = t;
    return EP_OK;
}

/* For the attach at the list's end, which it becomes part of. */
static ep_status ask_for_packs(ep_compiled *c, ep_binding *b) {
    const ep_attach *a = &b->attaches[b->attach_count];
    for (int k = 0; k < a->count; k++) {
        ep_tensor *w;
        EP_TRY(weight_of(c, b, a, k, &w));
        ep_pack *p = ep_pack_find(&c->packs, c->ctx, &c->kernels, w, c->attach_always);
        ep_tensor_destroy(w);
        if (!p) return no_memory(c);
        b->packs[b->attach_count * EP_TUNED_PRODUCTS + k] = p;
    }
    b->attach_count++;
    return EP_OK;
}

static ep_status begin_attach(ep_compiled *c, ep_binding *b) {
    b->attach = EP_ATTACH_NONE;
    if (!may_attach(c) || !b->kernel_count) return EP_OK;
    const ep_graph *g = b->from->captured.graph;
    size_t most = b->kernel_count + g->node_count;
    b->attaches = calloc(most, sizeof *b->attaches);
    b->packs = calloc(most * EP_TUNED_PRODUCTS, sizeof *b->packs);
    if (!b->attaches || !b->packs) return no_memory(c);
    EP_TRY(set_sizes(c, b));
    for (size_t i = 0; i < b->kernel_count; i++)
        if (find_attach(b, (int32_t)i, &b->attaches[b->attach_count])) EP_TRY(ask_for_packs(c, b));
    if (!b->attach_count) return EP_OK;
    for (size_t i = 0; i < g->node_count; i++)
        if (find_packed(b, (int32_t)i, &b->attaches[b->attach_count])) EP_TRY(ask_for_packs(c, b));
    b->attach = EP_ATTACH_PENDING;
    return EP_OK;
}

ep_status ep_binding_attach(ep_compiled *c, ep_binding *b) {
    if (b->attach == EP_ATTACH_NEW) EP_TRY(begin_attach(c, b));
    if (b->attach != EP_ATTACH_PENDING) return EP_OK;
    for (int i = 0; i < b->attach_count; i++) {
        int32_t group = b->attaches[i].group;
        if (group < 0) continue;
        if (c->attach_always) ep_kernels_wait(&c->kernels);
        int state = atomic_load_explicit(&b->kernels[group]->state, memory_order_acquire);
        if (state == EP_KERNEL_PENDING) return EP_OK;
        if (state == EP_KERNEL_FAILED) b->attach = EP_ATTACH_NONE;
        b->loops[group].function = b->kernels[group]->function;
        b->loops[group].name = b->kernels[group]->loop.name;
    }
    for (int i = 0; b->attach != EP_ATTACH_NONE && i < b->attach_count; i++)
        for (int k = 0; k < b->attaches[i].count; k++) {
            ep_pack *p = b->packs[i * EP_TUNED_PRODUCTS + k];
            int state = atomic_load_explicit(&p->state, memory_order_acquire);
            if (state == EP_ATTACH_PENDING) return EP_OK;
            if (state == EP_ATTACH_NONE) b->attach = EP_ATTACH_NONE;
            b->attaches[i].parts[k].pack = p->packed;
        }
    if (b->attach == EP_ATTACH_NONE) return EP_OK;
    EP_TRY(set_sizes(c, b));
    ep_plan_ways ways = {.interpret = c->kernels.interpret, .attached = b->attaches, .attached_count = b->attach_count};
    EP_TRY(ep_plan_build(c->ctx, &b->from->captured, b->loops, b->kernel_count, &ways, &b->attached));
    b->attach = EP_ATTACH_READY;
    if (!c->no_choice) ep_choice_offer(b->choice, EP_RUN_ATTACHED);
    return EP_OK;
}

ep_status ep_binding_advance(ep_compiled *c, ep_binding *b) {
    for (size_t i = 0; i < b->kernel_count; i++) {
        if (!plan_needs(b, i)) continue;
        int state = atomic_load_explicit(&b->kernels[i]->state, memory_order_acquire);
        if (state == EP_KERNEL_PENDING) return EP_OK;
        if (state == EP_KERNEL_FAILED) {
            b->state = EP_BINDING_EAGER;
            return EP_OK;
        }
    }
    for (size_t i = 0; i < b->kernel_count; i++) {
        if (!plan_needs(b, i)) continue;
        b->loops[i].function = b->kernels[i]->function;
        b->loops[i].name = b->kernels[i]->loop.name;
    }
    EP_TRY(set_sizes(c, b));
    ep_plan_ways ways = {.interpret = c->kernels.interpret};
    EP_TRY(ep_plan_build(c->ctx, &b->from->captured, b->loops, b->kernel_count, &ways, &b->plan));
    if (c->ctx->ops.gemm_then && (!c->no_choice || c->steps_always) && ep_plan_has_steps(b->from->captured.graph)) {
        ways.steps = true;
        EP_TRY(ep_plan_build(c->ctx, &b->from->captured, b->loops, b->kernel_count, &ways, &b->stepped));
        if (!c->no_choice) ep_choice_offer(b->choice, EP_RUN_STEPPED);
    }
    ep_plan_destroy(b->meanwhile);
    b->meanwhile = NULL;
    b->state = EP_BINDING_READY;
    if (c->attach_always) EP_TRY(ep_binding_attach(c, b));
    return EP_OK;
}

ep_status ep_binding_interpret(ep_compiled *c, ep_binding *b) {
    if (b->meanwhile) return EP_OK;
    for (size_t i = 0; i < b->kernel_count; i++)
        if (b->kernels[i]) b->loops[i].name = b->kernels[i]->loop.name;
    EP_TRY(set_sizes(c, b));
    return ep_plan_build(c->ctx, &b->from->captured, b->loops, b->kernel_count, &(ep_plan_ways){.interpret = true},
                         &b->meanwhile);
}

ep_status ep_compiled_bind(ep_compiled *c, const ep_tensor *const *inputs, ep_binding **out) {
    ep_binding *b = calloc(1, sizeof *b);
    if (b) b->facts = malloc(sizeof *b->facts * (size_t)(c->input_count + 1));
    if (!b || !b->facts) {
        free(b);
        return no_memory(c);
    }
    for (int i = 0; i < c->input_count; i++) ep_fact_of(inputs[i], &b->facts[i]);
    ep_status s = make_graph(c, inputs, b);
    if (s == EP_OK) {
        mark_fixed(b);
        s = make_loops(c, b);
        if (s != EP_OK && s != EP_ERROR_OUT_OF_MEMORY && b->from->captured.graph->symbol_count) {
            s = capture(c, inputs, false, b); /* what holds for every size but these is no answer for these */
            if (s == EP_OK) s = make_loops(c, b);
        }
    }
    if (s == EP_OK) s = make_kernels(c, b);
    if (s == EP_OK) s = set_choice(c, inputs, b);
    if (s == EP_OK) s = ep_binding_advance(c, b);
    if (s != EP_OK) {
        ep_binding_destroy(b);
        return s;
    }
    *out = b;
    return EP_OK;
}
