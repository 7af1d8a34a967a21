/* The rules, one function each; the first broken one is reported. */
#include "verify.h"

#include "chain.h"

#include <stdlib.h>
#include <string.h>

static bool extent_is(const ep_graph *g, int32_t e, int64_t n) {
    return e < 0 || ((size_t)e < g->extent_count && g->extents[e].now == n);
}

/* Every number beside an extent is what the extent gives for the symbols as they stand. */
static ep_status sizes_are_sound(const ep_graph *g, ep_error *err) {
    for (size_t i = 0; i < g->extent_count; i++)
        for (int64_t t = 0; t < g->extents[i].count; t++)
            for (int k = 0; k < EP_EXTENT_FACTORS; k++)
                if (g->extents[i].terms[t].symbols[k] >= (int)g->symbol_count)
                    return ep_fail(err, EP_ERROR_INTERNAL, "extent %zu names symbol s%d of %zu", i,
                                   g->extents[i].terms[t].symbols[k], g->symbol_count);
    for (size_t i = 0; i < g->value_count; i++) {
        const ep_value *v = &g->values[i];
        bool ok = extent_is(g, v->start, v->offset);
        for (int d = 0; d < v->ndim; d++)
            ok &= extent_is(g, v->dims[d], v->sizes[d]) && extent_is(g, v->steps[d], v->strides[d]);
        if (!ok) return ep_fail(err, EP_ERROR_INTERNAL, "value %zu: its sizes are not what its symbols give", i);
    }
    for (size_t i = 0; i < g->group_count; i++)
        for (int d = 0; d < g->groups[i].ndim; d++)
            if (!extent_is(g, g->groups[i].dims[d], g->groups[i].sizes[d]))
                return ep_fail(err, EP_ERROR_INTERNAL, "group %zu: its sizes are not what its symbols give", i);
    return EP_OK;
}

static ep_status values_are_sound(const ep_graph *g, ep_error *err) {
    for (size_t i = 0; i < g->value_count; i++) {
        const ep_value *v = &g->values[i];
        int64_t numel, last;
        if ((unsigned)v->dtype >= EP_DTYPE_COUNT) return ep_fail(err, EP_ERROR_INTERNAL, "value %zu has no dtype", i);
        EP_TRY(ep_shape_numel(v->ndim, v->sizes, err, &numel));
        if (numel != v->numel) return ep_fail(err, EP_ERROR_INTERNAL, "value %zu: numel is wrong", i);
        EP_TRY(ep_stride_max_offset(v->ndim, v->sizes, v->strides, err, &last));
        if (v->kind == EP_VALUE_NODE ? v->node < 0 || (size_t)v->node >= g->node_count : v->node >= 0)
            return ep_fail(err, EP_ERROR_INTERNAL, "value %zu: its producer does not exist", i);
        if (v->base < 0) continue;
        if ((size_t)v->base >= g->value_count || g->values[v->base].base >= 0)
            return ep_fail(err, EP_ERROR_INTERNAL, "value %zu is a view of no memory of its own", i);
        const ep_value *b = &g->values[v->base];
        int64_t base_last;
        EP_TRY(ep_stride_max_offset(b->ndim, b->sizes, b->strides, err, &base_last));
        if (v->offset < 0 || (v->numel && (!b->numel || v->offset > base_last || last > base_last - v->offset)))
            return ep_fail(err, EP_ERROR_INTERNAL, "value %zu reaches past the memory it views", i);
        if (v->dtype != b->dtype) return ep_fail(err, EP_ERROR_INTERNAL, "value %zu views another dtype", i);
    }
    return EP_OK;
}

/* A product, whose value nobody but the group reads: whole, or columns of all its rows. */
static bool epilogue_fits(const ep_graph *g, const ep_node *n) {
    if (n->kind != EP_NODE_GEMM || n->gemm.epilogue >= (int32_t)g->group_count) return false;
    const ep_group *p = &g->groups[n->gemm.epilogue];
    bool read = false;
    ep_columns c;
    if (p->reduces) return false;
    for (size_t i = 0; i < g->output_count; i++)
        if (ep_graph_root(g, g->outputs[i]) == n->output) return false;
    for (size_t i = 0; i < g->node_count; i++) {
        const ep_node *m = &g->nodes[i];
        for (int k = 0; !m->dead && m->kind != EP_NODE_VIEW && k < m->input_count; k++) {
            if (ep_graph_root(g, m->inputs[k]) != n->output) continue;
            if (m->group != n->gemm.epilogue || !ep_graph_columns(g, m->inputs[k], p, &c)) return false;
            read = true;
        }
    }
    return read;
}

/* The group is a chain behind this very product. */
static bool then_fits(const ep_graph *g, size_t i) {
    ep_chain c;
    return g->nodes[i].gemm.then < (int32_t)g->group_count && !ep_graph_chain(g, g->nodes[i].gemm.then, &c) &&
           c.product == (int32_t)i;
}

static ep_status node_is_sound(const ep_graph *g, size_t i, const bool *defined, ep_error *err) {
    const ep_node *n = &g->nodes[i];
    const ep_op_info *info = (unsigned)n->op < EP_OP_COUNT ? ep_op_get(n->op) : NULL;
    if (!info) return ep_fail(err, EP_ERROR_INTERNAL, "node %zu has no op", i);
    if (n->output < 0 || (size_t)n->output >= g->value_count || g->values[n->output].node != (int32_t)i)
        return ep_fail(err, EP_ERROR_INTERNAL, "node %zu (%s) does not own its value", i, info->name);
    if (n->kind != EP_NODE_GEMM && (n->input_count < info->min_arity || n->input_count > info->max_arity))
        return ep_fail(err, EP_ERROR_INTERNAL, "node %zu: %s of %d inputs", i, info->name, n->input_count);
    if (n->kind == EP_NODE_GEMM && n->input_count < 2)
        return ep_fail(err, EP_ERROR_INTERNAL, "node %zu: a product of %d inputs", i, n->input_count);
    if (n->gemm.epilogue >= 0 && !n->dead && !epilogue_fits(g, n))
        return ep_fail(err, EP_ERROR_INTERNAL, "node %zu: group %d cannot be its epilogue", i, n->gemm.epilogue);
    if (n->gemm.then >= 0 && !n->dead && !then_fits(g, i))
        return ep_fail(err, EP_ERROR_INTERNAL, "node %zu: group %d is no chain behind it", i, n->gemm.then);
    for (int k = 0; k < n->input_count; k++)
        if (n->inputs[k] < 0 || (size_t)n->inputs[k] >= g->value_count || !defined[n->inputs[k]])
            return ep_fail(err, EP_ERROR_INTERNAL, "node %zu (%s) reads a value that is not defined above it", i,
                           info->name);
    if (n->kind == EP_NODE_VIEW ? g->values[n->output].base < 0 : g->values[n->output].base >= 0)
        return ep_fail(err, EP_ERROR_INTERNAL, "node %zu (%s): %s", i, info->name,
                       n->kind == EP_NODE_VIEW ? "a view needs a base" : "an op makes memory of its own");
    if (n->group >= (int32_t)g->group_count) return ep_fail(err, EP_ERROR_INTERNAL, "node %zu: no such group", i);
    int32_t members[2];
    if (n->group >= 0 && g->groups[n->group].lone && ep_graph_members(g, n->group, members, 2) > 1)
        return ep_fail(err, EP_ERROR_INTERNAL, "node %zu: group %d holds one op alone", i, n->group);
    if (g->marks & EP_MARK_LOWERED && !n->dead && info->kind == EP_KIND_COMPOSITE && n->op != EP_OP_LINEAR)
        return ep_fail(err, EP_ERROR_INTERNAL, "node %zu: composite %s after lowering", i, info->name);
    return EP_OK;
}

/* The op's own shape rule must agree where the node is as captured. */
static ep_status shape_fits(const ep_graph *g, size_t i, ep_error *err) {
    const ep_node *n = &g->nodes[i];
    ep_shape in[80], out;
    if (n->kind != EP_NODE_OP || n->dead || n->input_count > 80) return EP_OK;
    for (int k = 0; k < n->input_count; k++) {
        const ep_value *v = &g->values[n->inputs[k]];
        in[k] = (ep_shape){v->dtype, v->ndim, {0}};
        memcpy(in[k].sizes, v->sizes, sizeof v->sizes);
    }
    EP_TRY(ep_op_shape(n->op, &n->attr, n->input_count, in, err, &out));
    const ep_value *v = &g->values[n->output];
    if (out.dtype != v->dtype || out.ndim != v->ndim || memcmp(out.sizes, v->sizes, sizeof(int64_t) * (size_t)v->ndim))
        return ep_fail(err, EP_ERROR_INTERNAL, "node %zu: the shape of %s is not what its rule gives", i,
                       ep_op_name(n->op));
    return EP_OK;
}

ep_status ep_graph_verify(const ep_graph *g, ep_error *err) {
    bool *defined = calloc(g->value_count ? g->value_count : 1, 1);
    if (!defined) return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory to verify a graph");
    ep_status s = values_are_sound(g, err);
    if (s == EP_OK) s = sizes_are_sound(g, err);
    for (size_t i = 0; s == EP_OK && i < g->value_count; i++) defined[i] = g->values[i].kind != EP_VALUE_NODE;
    for (size_t i = 0; s == EP_OK && i < g->node_count; i++) {
        s = node_is_sound(g, i, defined, err);
        if (s == EP_OK) s = shape_fits(g, i, err);
        if (s == EP_OK) defined[g->nodes[i].output] = true;
    }
    for (size_t i = 0; s == EP_OK && i < g->output_count; i++)
        if (g->outputs[i] < 0 || (size_t)g->outputs[i] >= g->value_count || !defined[g->outputs[i]])
            s = ep_fail(err, EP_ERROR_INTERNAL, "output %zu is not defined", i);
    for (size_t i = 0; s == EP_OK && i < g->value_count; i++)
        if (g->values[i].base >= 0 && !defined[g->values[i].base])
            s = ep_fail(err, EP_ERROR_INTERNAL, "value %zu views a value that is not defined", i);
    free(defined);
    return s;
}
