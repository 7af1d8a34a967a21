/* The ways that a binding's products leave open: a group as the epilogue of packed products, a product of packed weights
 * alone, steps behind a product done by the library, or the plan as it is. Products and groups that share such a question
 * are a unit; units are told from the graph, so that all bindings of an entry number them alike. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compile.h"
#include "run/graph/extent.h"

static ep_status no_memory(ep_compiled *c) {
    return ep_fail(&c->ctx->err, EP_ERROR_OUT_OF_MEMORY, "the ways of a binding could not be allocated");
}

bool ep_ways_may_pack(const ep_compiled *c) {
    return c->options.weights_stay && c->ctx->ops.tuned_hooks && c->ctx->ops.module_call &&
           c->options.specialize != EP_SPECIALIZE_STATIC;
}

/* ---- units ---- */

static bool is_packable(const ep_graph *g, const ep_node *n) {
    return !n->dead && n->kind == EP_NODE_GEMM && n->op == EP_OP_LINEAR &&
           g->values[ep_graph_root(g, n->inputs[1])].kind == EP_VALUE_CONST;
}

/* Does product `n` ask what is to be done with group `group`? */
static bool asks_for(const ep_compiled *c, const ep_node *n, int32_t group) {
    if (n->dead || n->kind != EP_NODE_GEMM) return false;
    return (ep_ways_may_pack(c) && n->gemm.epilogue == group) || (c->ctx->ops.gemm_then && n->gemm.then == group);
}

/* Beside epilogues the other linears are units, too. */
static ep_status number_units(ep_compiled *c, ep_binding *b) {
    const ep_graph *g = b->from->captured.graph;
    bool epilogues = false;
    b->unit_count = 0;
    free(b->unit_of);
    b->unit_of = malloc(sizeof *b->unit_of * (g->node_count + 1));
    if (!b->unit_of) return no_memory(c);
    for (size_t i = 0; i < g->node_count; i++) b->unit_of[i] = -1;
    for (int32_t group = 0; group < (int32_t)g->group_count; group++) {
        bool asked = false;
        for (size_t i = 0; i < g->node_count; i++) {
            const ep_node *n = &g->nodes[i];
            if (!asks_for(c, n, group)) continue;
            asked = true;
            epilogues |= ep_ways_may_pack(c) && n->gemm.epilogue == group;
            b->unit_of[i] = b->unit_count;
        }
        for (size_t i = 0; asked && i < g->node_count; i++)
            if (g->nodes[i].group == group) b->unit_of[i] = b->unit_count;
        b->unit_count += asked;
    }
    for (size_t i = 0; epilogues && i < g->node_count; i++)
        if (b->unit_of[i] < 0 && is_packable(g, &g->nodes[i])) b->unit_of[i] = b->unit_count++;
    return EP_OK;
}

static void name_units(const ep_binding *b, ep_choice *choice) {
    const ep_graph *g = b->from->captured.graph;
    for (int u = 0; u < choice->unit_count; u++) {
        char *name = choice->units[u].name;
        size_t size = sizeof choice->units[u].name, len = 0;
        for (size_t i = 0; i < g->node_count && len + 1 < size; i++)
            if (b->unit_of[i] == u && !g->nodes[i].dead)
                len += (size_t)snprintf(name + len, size - len, "%s%s", len ? ", " : "", ep_op_name(g->nodes[i].op));
    }
}

/* ---- what can be made of packed weights ---- */

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
static bool find_group(const ep_binding *b, int32_t group, ep_attach *a) {
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
    if (a->count) a->unit = b->unit_of[a->parts[0].node];
    return a->count > 0;
}

/* A product beside the epilogues. */
static bool find_single(const ep_binding *b, int32_t node, ep_attach *a) {
    const ep_graph *g = b->from->captured.graph;
    const ep_node *n = &g->nodes[node];
    if (!is_packable(g, n) || !rows_are_even(g, n)) return false;
    for (int i = 0; i < b->attach_count; i++)
        for (int k = 0; k < b->attaches[i].count; k++)
            if (b->attaches[i].parts[k].node == node) return false;
    *a = (ep_attach){.group = -1, .unit = b->unit_of[node], .count = 1, .parts = {{.node = node, .columns = {0, 1}}}};
    return true;
}

static ep_status find_attaches(ep_compiled *c, ep_binding *b) {
    b->attach = EP_ATTACH_NONE;
    b->attach_count = 0;
    free(b->attaches);
    free(b->packs);
    b->attaches = NULL;
    b->packs = NULL;
    if (!ep_ways_may_pack(c) || !b->kernel_count) return EP_OK;
    const ep_graph *g = b->from->captured.graph;
    size_t most = b->kernel_count + g->node_count;
    b->attaches = calloc(most, sizeof *b->attaches);
    b->packs = calloc(most * EP_TUNED_PRODUCTS, sizeof *b->packs);
    if (!b->attaches || !b->packs) return no_memory(c);
    for (size_t i = 0; i < b->kernel_count; i++)
        b->attach_count += find_group(b, (int32_t)i, &b->attaches[b->attach_count]);
    if (!b->attach_count) return EP_OK;
    for (size_t i = 0; i < g->node_count; i++)
        b->attach_count += find_single(b, (int32_t)i, &b->attaches[b->attach_count]);
    b->attach = EP_ATTACH_NEW;
    return EP_OK;
}

/* ---- packed weights ---- */

/* Is attach `i` part of a way that may still be taken? */
static bool is_wanted(const ep_binding *b, int i) {
    const ep_choice *choice = b->choice;
    if (!choice->decided || !choice->offered[EP_RUN_ATTACHED]) return true;
    return ep_choice_uses(choice, b->attaches[i].unit, EP_RUN_ATTACHED);
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

static ep_status ask_for_packs(ep_compiled *c, ep_binding *b) {
    EP_TRY(ep_binding_set_sizes(c, b));
    for (int i = 0; i < b->attach_count; i++)
        for (int k = 0; is_wanted(b, i) && k < b->attaches[i].count; k++) {
            ep_tensor *w;
            if (b->packs[i * EP_TUNED_PRODUCTS + k]) continue;
            EP_TRY(weight_of(c, b, &b->attaches[i], k, &w));
            ep_pack *p = ep_pack_find(&c->packs, c->ctx, &c->kernels, w, c->attach_always);
            ep_tensor_destroy(w);
            if (!p) return no_memory(c);
            b->packs[i * EP_TUNED_PRODUCTS + k] = p;
        }
    return EP_OK;
}

/* READY once code and packed weights of all that was asked for are there; NONE if one of them failed. */
static ep_attach_state look_at_parts(ep_compiled *c, ep_binding *b) {
    for (int i = 0; i < b->attach_count; i++) {
        int32_t group = b->attaches[i].group;
        if (group < 0 || !b->packs[i * EP_TUNED_PRODUCTS]) continue;
        if (c->attach_always) ep_kernels_wait(&c->kernels);
        int state = atomic_load_explicit(&b->kernels[group]->state, memory_order_acquire);
        if (state != EP_KERNEL_READY) return state == EP_KERNEL_FAILED ? EP_ATTACH_NONE : EP_ATTACH_PENDING;
        b->loops[group].function = b->kernels[group]->function;
        b->loops[group].name = b->kernels[group]->loop.name;
    }
    for (int i = 0; i < b->attach_count; i++)
        for (int k = 0; k < b->attaches[i].count; k++) {
            ep_pack *p = b->packs[i * EP_TUNED_PRODUCTS + k];
            int state = p ? atomic_load_explicit(&p->state, memory_order_acquire) : EP_ATTACH_READY;
            if (state != EP_ATTACH_READY) return (ep_attach_state)state;
            if (p) b->attaches[i].parts[k].pack = p->packed;
        }
    return EP_ATTACH_READY;
}

/* ---- plans ---- */

/* Who makes unit `u` where the whole is answered by `who`. */
static bool makes(const ep_choice *choice, ep_runner who, int u, ep_runner way) {
    if (who != EP_RUN_MIXED) return who == way;
    return u >= 0 && u < choice->unit_count && choice->units[u].kept == way;
}

static ep_status build(ep_compiled *c, ep_binding *b, ep_runner who) {
    const ep_graph *g = b->from->captured.graph;
    ep_attach *attached = calloc((size_t)b->attach_count + 1, sizeof *attached);
    bool *steps = calloc(g->group_count + 1, sizeof *steps);
    ep_plan_ways ways = {.interpret = c->kernels.interpret,
                         .steps = steps,
                         .attached = attached,
                         .unit_of = b->unit_count > 1 ? b->unit_of : NULL};
    ep_status s = attached && steps ? ep_binding_set_sizes(c, b) : no_memory(c);
    for (int i = 0; s == EP_OK && i < b->attach_count; i++)
        if (makes(b->choice, who, b->attaches[i].unit, EP_RUN_ATTACHED))
            attached[ways.attached_count++] = b->attaches[i];
    for (size_t i = 0; s == EP_OK && i < g->node_count; i++)
        if (!g->nodes[i].dead && g->nodes[i].group >= 0 && b->unit_of[i] >= 0)
            steps[g->nodes[i].group] = makes(b->choice, who, b->unit_of[i], EP_RUN_STEPPED);
    ep_plan_destroy(b->plans[who]);
    b->plans[who] = NULL;
    if (s == EP_OK) s = ep_plan_build(c->ctx, &b->from->captured, b->loops, b->kernel_count, &ways, &b->plans[who]);
    free(attached);
    free(steps);
    if (who == EP_RUN_MIXED) b->mix = b->choice->mix;
    return s;
}

static bool has_steps(const ep_compiled *c, const ep_binding *b) {
    const ep_graph *g = b->from->captured.graph;
    for (int32_t i = 0; c->ctx->ops.gemm_then && i < (int32_t)g->group_count; i++)
        if (ep_plan_has_steps(g, i)) return true;
    return false;
}

static ep_status offer_steps(ep_compiled *c, ep_binding *b) {
    if ((c->no_choice && !c->steps_always) || !has_steps(c, b)) return EP_OK;
    if (!b->plans[EP_RUN_STEPPED]) EP_TRY(build(c, b, EP_RUN_STEPPED));
    if (!c->no_choice) ep_choice_offer(b->choice, EP_RUN_STEPPED);
    return EP_OK;
}

ep_status ep_ways_begin(ep_compiled *c, ep_binding *b) {
    EP_TRY(ep_binding_set_sizes(c, b));
    EP_TRY(number_units(c, b));
    EP_TRY(find_attaches(c, b));
    if (!c->no_choice && !b->choice->units && b->unit_count > 1) {
        if (!ep_choice_set_units(b->choice, b->unit_count)) return no_memory(c);
        name_units(b, b->choice);
    }
    EP_TRY(build(c, b, EP_RUN_COMPILED));
    return offer_steps(c, b);
}

/* A mix needs the packed weights of its attached units only; a new mix of the choice is a new plan. */
static ep_status keep_mix(ep_compiled *c, ep_binding *b) {
    const ep_choice *choice = b->choice;
    bool meant = choice->offered[EP_RUN_MIXED] && (!choice->decided || choice->kept == EP_RUN_MIXED) &&
                 choice->unit_count == b->unit_count;
    if (b->plans[EP_RUN_MIXED] && (!meant || b->mix != choice->mix)) {
        b->fast = NULL;
        ep_plan_destroy(b->plans[EP_RUN_MIXED]);
        b->plans[EP_RUN_MIXED] = NULL;
    }
    if (!meant || b->plans[EP_RUN_MIXED]) return EP_OK;
    for (int i = 0; i < b->attach_count; i++)
        if (makes(choice, EP_RUN_MIXED, b->attaches[i].unit, EP_RUN_ATTACHED) &&
            (b->attach != EP_ATTACH_READY || !b->attaches[i].parts[0].pack))
            return EP_OK; /* not there, perhaps not yet */
    return build(c, b, EP_RUN_MIXED);
}

ep_status ep_ways_advance(ep_compiled *c, ep_binding *b) {
    const ep_choice *choice = b->choice;
    if (b->attach == EP_ATTACH_NEW) {
        EP_TRY(ask_for_packs(c, b));
        b->attach = EP_ATTACH_PENDING;
    }
    if (b->attach == EP_ATTACH_PENDING) {
        b->attach = look_at_parts(c, b);
        bool meant = !choice->decided || !choice->offered[EP_RUN_ATTACHED] || choice->kept == EP_RUN_ATTACHED;
        if (b->attach == EP_ATTACH_READY && (meant || c->attach_always)) {
            EP_TRY(build(c, b, EP_RUN_ATTACHED));
            if (!c->no_choice) ep_choice_offer(b->choice, EP_RUN_ATTACHED);
        }
    }
    return choice->unit_count ? keep_mix(c, b) : EP_OK;
}

unsigned ep_ways_there(const ep_binding *b) {
    unsigned has = 1u << EP_RUN_EAGER;
    for (int i = 0; i < EP_RUNNERS; i++) has |= (unsigned)(b->plans[i] != NULL) << i;
    return has;
}

void ep_ways_decided(ep_compiled *c, const ep_choice *choice) {
    for (int n = 0; n < c->memo.count; n++) {
        ep_binding *b = c->memo.bindings[n];
        if (b->choice != choice) continue;
        b->fast = NULL;
        b->by_eager = false;
        for (int i = 0; i < EP_RUNNERS; i++) {
            if (i == (int)choice->kept || i == EP_RUN_COMPILED) continue;
            ep_plan_destroy(b->plans[i]);
            b->plans[i] = NULL;
        }
        for (int i = 0; i < b->attach_count; i++) {
            if (is_wanted(b, i)) continue;
            ep_binding_release_packs(b, i);
            for (int k = 0; k < b->attaches[i].count; k++) b->attaches[i].parts[k].pack = NULL;
        }
    }
    ep_pack_list_trim(&c->packs);
}

ep_status ep_ways_reopen(ep_compiled *c, ep_choice *choice) {
    ep_choice_reopen(choice);
    for (int n = 0; n < c->memo.count; n++) {
        ep_binding *b = c->memo.bindings[n];
        if (b->choice != choice || b->state != EP_BINDING_READY) continue;
        b->fast = NULL;
        b->by_eager = false;
        if (b->attach_count && b->attach != EP_ATTACH_PENDING) b->attach = EP_ATTACH_NEW;
        EP_TRY(offer_steps(c, b));
    }
    return EP_OK;
}
