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
ep_status ep_binding_set_sizes(ep_compiled *c, ep_binding *b) {
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
    return ep_binding_set_sizes(c, b);
}

/* Kernels that the plan without epilogues cannot do without. */
static bool plan_needs(const ep_binding *b, size_t group) {
    return !b->from->captured.graph->groups[group].lone;
}

/* Lone ops are kernels of eager's, so they need code as epilogues only. */
static bool needs_code(const ep_compiled *c, const ep_binding *b, size_t group) {
    const ep_graph *g = b->from->captured.graph;
    if (plan_needs(b, group)) return true;
    for (size_t i = 0; ep_ways_may_pack(c) && i < g->node_count; i++)
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
    b->elements = 1;
    for (int i = 0; i < c->input_count; i++) b->elements += inputs[i]->numel;
    b->choice = ep_memo_choice(&c->memo, b->entry, b->elements);
    if (!b->choice) return no_memory(c);
    bool generates = false;
    for (size_t i = 0; i < b->kernel_count; i++) generates |= plan_needs(b, i);
    b->choice->no_eager = c->ctx->rounding != EP_ROUNDING_EAGER;
    if (b->choice->decided) return EP_OK;
    if (c->no_choice)
        ep_choice_settle(b->choice, "compiled kept: not measured");
    else if (!generates)
        ep_choice_settle(b->choice, "compiled kept: its kernels are eager's own, launched with less work between them");
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
    EP_TRY(ep_ways_begin(c, b));
    ep_plan_destroy(b->meanwhile);
    b->meanwhile = NULL;
    b->state = EP_BINDING_READY;
    if (c->attach_always) EP_TRY(ep_ways_advance(c, b));
    return EP_OK;
}

ep_status ep_binding_interpret(ep_compiled *c, ep_binding *b) {
    if (b->meanwhile) return EP_OK;
    for (size_t i = 0; i < b->kernel_count; i++)
        if (b->kernels[i]) b->loops[i].name = b->kernels[i]->loop.name;
    EP_TRY(ep_binding_set_sizes(c, b));
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
