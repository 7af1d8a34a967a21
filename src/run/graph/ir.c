/* The graph's storage: growing arrays of values and nodes, small lists in an arena. */
#include "extent.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"

ep_graph *ep_graph_create(void) {
    return calloc(1, sizeof(ep_graph));
}

void ep_graph_destroy(ep_graph *g) {
    if (!g) return;
    free(g->values);
    free(g->nodes);
    free(g->outputs);
    free(g->groups);
    free(g->reasons);
    free(g->slots);
    free(g->symbols);
    free(g->extents);
    ep_arena_free(&g->arena);
    free(g);
}

static int32_t new_value(ep_graph *g, ep_value_kind kind, ep_dtype dtype, int ndim, const int64_t *sizes,
                         const int64_t *strides) {
    if (g->value_count >= EP_GRAPH_MAX || ndim < 0 || ndim > EP_MAX_DIMS ||
        !ep_grow(&g->values, &g->value_cap, g->value_count + 1, sizeof *g->values))
        return -1;
    ep_value *v = &g->values[g->value_count];
    memset(v, 0, sizeof *v);
    v->kind = kind;
    v->dtype = dtype;
    v->ndim = ndim;
    v->base = v->node = v->start = -1;
    memset(v->dims, 0xff, sizeof v->dims);
    memset(v->steps, 0xff, sizeof v->steps);
    if (ep_shape_numel(ndim, sizes, NULL, &v->numel) != EP_OK) return -1;
    for (int i = 0; i < ndim; i++) v->sizes[i] = sizes[i];
    if (strides)
        for (int i = 0; i < ndim; i++) v->strides[i] = strides[i];
    else
        ep_stride_contiguous(ndim, sizes, v->strides);
    return (int32_t)g->value_count++;
}

int32_t ep_graph_input(ep_graph *g, ep_dtype dtype, int ndim, const int64_t *sizes, const int64_t *strides) {
    int32_t v = new_value(g, EP_VALUE_INPUT, dtype, ndim, sizes, strides);
    if (v >= 0) g->values[v].index = g->input_count++;
    return v;
}

int32_t ep_graph_const(ep_graph *g, ep_dtype dtype, int ndim, const int64_t *sizes, const int64_t *strides) {
    int32_t v = new_value(g, EP_VALUE_CONST, dtype, ndim, sizes, strides);
    if (v >= 0) g->values[v].index = g->const_count++;
    return v;
}

int32_t ep_graph_op(ep_graph *g, ep_node_kind kind, ep_op op, const ep_attr *attr, int count, const int32_t *inputs,
                    const ep_shape *shape) {
    if (g->node_count >= EP_GRAPH_MAX || !ep_grow(&g->nodes, &g->node_cap, g->node_count + 1, sizeof *g->nodes))
        return -1;
    int32_t *list = ep_arena_alloc(&g->arena, sizeof(int32_t) * (size_t)(count ? count : 1), _Alignof(int32_t));
    if (!list) return -1;
    for (int i = 0; i < count; i++) list[i] = inputs[i];
    int32_t v = new_value(g, EP_VALUE_NODE, shape->dtype, shape->ndim, shape->sizes, NULL);
    if (v < 0) return -1;
    ep_node *n = &g->nodes[g->node_count];
    memset(n, 0, sizeof *n);
    n->kind = kind;
    n->op = op;
    if (attr) n->attr = *attr;
    n->input_count = count;
    n->inputs = list;
    n->output = v;
    n->gemm = (ep_gemm_form){-1, -1, -1, -1};
    n->group = n->order = -1;
    g->values[v].node = (int32_t)g->node_count++;
    return v;
}

int ep_graph_output(ep_graph *g, int32_t value) {
    if (!ep_grow(&g->outputs, &g->output_cap, g->output_count + 1, sizeof *g->outputs)) return -1;
    g->outputs[g->output_count] = value;
    return (int)g->output_count++;
}

int32_t ep_graph_group(ep_graph *g, int ndim, const int64_t *sizes) {
    if (!ep_grow(&g->groups, &g->group_cap, g->group_count + 1, sizeof *g->groups)) return -1;
    ep_group *p = &g->groups[g->group_count];
    memset(p, 0, sizeof *p);
    p->ndim = ndim;
    memset(p->dims, 0xff, sizeof p->dims);
    for (int i = 0; i < ndim; i++) p->sizes[i] = sizes[i];
    return (int32_t)g->group_count++;
}

void ep_graph_reason(ep_graph *g, int32_t node, int32_t other, const char *fmt, ...) {
    char text[400];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (n < 0 || !ep_grow(&g->reasons, &g->reason_cap, g->reason_count + 1, sizeof *g->reasons)) return;
    char *copy = ep_arena_copy(&g->arena, text, strlen(text));
    if (copy) g->reasons[g->reason_count++] = (ep_reason){node, other, copy};
}

void ep_graph_replace(ep_graph *g, int32_t from, int32_t to) {
    for (size_t i = 0; i < g->node_count; i++)
        for (int k = 0; k < g->nodes[i].input_count; k++)
            if (g->nodes[i].inputs[k] == from) g->nodes[i].inputs[k] = to;
    for (size_t i = 0; i < g->output_count; i++)
        if (g->outputs[i] == from) g->outputs[i] = to;
    /* Views of `from` become views of `to`: both are whole and contiguous where this is asked for. */
    for (size_t i = 0; i < g->value_count; i++)
        if (g->values[i].base == from) {
            ep_dim a = {g->values[i].offset, g->values[i].start}, b = {g->values[to].offset, g->values[to].start};
            a = ep_dim_add(g, a, b);
            g->values[i].offset = a.n;
            g->values[i].start = a.e;
            g->values[i].base = ep_graph_root(g, to);
        }
}

size_t ep_graph_members(const ep_graph *g, int32_t group, int32_t *out, size_t max) {
    size_t n = 0;
    for (size_t i = 0; i < g->node_count; i++)
        if (!g->nodes[i].dead && g->nodes[i].group == group) {
            if (n < max) out[n] = (int32_t)i;
            n++;
        }
    return n;
}

static ep_status view_part(ep_op op, const ep_attr *a, ep_error *err, ep_value *out) {
    int64_t start = a->start, stop = a->stop, step = a->step, offset;
    if (op == EP_OP_CHUNK) {
        EP_TRY(ep_view_chunk(out->ndim, out->sizes, a->dim, a->stop, a->start, err, &start, &stop));
        step = 1;
    }
    EP_TRY(ep_view_slice(out->ndim, out->sizes, out->strides, a->dim, start, stop, step, err, &offset));
    out->offset += offset;
    return EP_OK;
}

static ep_status view_transpose(const ep_value *in, const ep_attr *attr, ep_error *err, ep_value *out) {
    int a, b;
    EP_TRY(ep_shape_dim(in->ndim, attr->dim, err, &a));
    EP_TRY(ep_shape_dim(in->ndim, attr->dim1, err, &b));
    out->sizes[a] = in->sizes[b];
    out->sizes[b] = in->sizes[a];
    out->strides[a] = in->strides[b];
    out->strides[b] = in->strides[a];
    return EP_OK;
}

static ep_status view_reshape(const ep_value *in, const ep_attr *a, ep_error *err, ep_value *out) {
    int64_t sizes[EP_MAX_DIMS];
    EP_TRY(ep_view_infer(in->numel, a->ndim, a->sizes, err, sizes));
    EP_TRY(ep_stride_reshape(in->ndim, in->sizes, in->strides, a->ndim, sizes, err, out->strides));
    out->ndim = a->ndim;
    memcpy(out->sizes, sizes, sizeof sizes);
    return EP_OK;
}

ep_status ep_graph_view_shape(const ep_value *in, ep_op op, const ep_attr *attr, ep_error *err, ep_value *out) {
    *out = *in;
    switch ((int)op) {
    case EP_OP_T:
    case EP_OP_TRANSPOSE: EP_TRY(view_transpose(in, attr, err, out)); break;
    case EP_OP_VIEW:
    case EP_OP_RESHAPE: EP_TRY(view_reshape(in, attr, err, out)); break;
    case EP_OP_SLICE:
    case EP_OP_CHUNK: EP_TRY(view_part(op, attr, err, out)); break;
    case EP_OP_EXPAND:
        EP_TRY(
            ep_view_expand(in->ndim, in->sizes, in->strides, attr->ndim, attr->sizes, err, out->sizes, out->strides));
        out->ndim = attr->ndim;
        break;
    default: return ep_fail(err, EP_ERROR_INTERNAL, "%s is no view", ep_op_name(op));
    }
    return ep_shape_numel(out->ndim, out->sizes, err, &out->numel);
}

ep_status ep_graph_sort(ep_graph *g, ep_error *err) {
    size_t n = g->node_count, done = 0, top = 0;
    ep_node *sorted = malloc(sizeof *sorted * (n ? n : 1));
    int32_t *stack = malloc(sizeof *stack * (n ? n : 1));
    char *state = calloc(n ? n : 1, 1); /* 1: on the stack, 2: placed */
    bool ok = sorted && stack && state, circle = false;
    for (size_t i = 0; ok && i < n; i++) {
        if (state[i] == 0) stack[top++] = (int32_t)i;
        while (top && !circle) {
            int32_t at = stack[top - 1], next = -1;
            const ep_node *node = &g->nodes[at];
            for (int k = 0; k < node->input_count && next < 0; k++) {
                int32_t v = node->inputs[k], p = g->values[v].node;
                if (p >= 0 && state[p] != 2) next = p;
                p = g->values[ep_graph_root(g, v)].node;
                if (next < 0 && p >= 0 && state[p] != 2) next = p;
            }
            state[at] = 1;
            if (next >= 0) {
                circle = state[next] == 1;
                if (!circle) stack[top++] = next;
                continue;
            }
            state[at] = 2;
            top--;
            sorted[done++] = *node;
        }
    }
    if (ok && !circle) {
        memcpy(g->nodes, sorted, sizeof *sorted * n);
        for (size_t i = 0; i < n; i++) g->values[g->nodes[i].output].node = (int32_t)i;
    }
    free(sorted);
    free(stack);
    free(state);
    if (!ok) return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory to sort a graph");
    return circle ? ep_fail(err, EP_ERROR_INTERNAL, "a value rests on itself") : EP_OK;
}

uint64_t ep_graph_hash(const ep_graph *g) {
    uint64_t h = ep_hash64(&g->rounding, sizeof g->rounding, 7);
    for (size_t i = 0; i < g->value_count; i++) {
        const ep_value *v = &g->values[i];
        int32_t word[6] = {(int32_t)v->kind, (int32_t)v->dtype, v->ndim, v->base, v->node, v->index};
        h = ep_hash64(word, sizeof word, h);
    }
    for (size_t i = 0; i < g->node_count; i++) {
        const ep_node *n = &g->nodes[i];
        int32_t word[12] = {(int32_t)n->kind, (int32_t)n->op,  n->attr.dim,          n->attr.dim1,
                            n->attr.dims,     n->attr.keepdim, (int32_t)n->attr.act, (int32_t)n->attr.dtype,
                            n->group,         n->dead,         n->input_count,       n->output};
        h = ep_hash64(word, sizeof word, h);
        h = ep_hash64(n->inputs, sizeof(int32_t) * (size_t)n->input_count, h);
    }
    return ep_hash64(g->outputs, sizeof(int32_t) * g->output_count, h);
}

bool ep_graph_even_rows(const ep_graph *g, int32_t v) {
    const ep_value *x = &g->values[v];
    int64_t sizes[EP_MAX_DIMS], strides[1][EP_MAX_DIMS];
    memcpy(sizes, x->sizes, sizeof sizes);
    memcpy(strides[0], x->strides, sizeof strides[0]);
    return ep_stride_collapse(x->ndim - 1, sizes, 1, strides) <= 1;
}

bool ep_graph_columns(const ep_graph *g, int32_t v, const ep_group *p, ep_columns *out) {
    const ep_value *u = &g->values[v], *y = &g->values[ep_graph_root(g, v)];
    int last = p->ndim - 1;
    if (p->ndim < 2 || u->ndim != p->ndim || y->ndim != p->ndim) return false;
    for (int i = 0; i <= last; i++) {
        if (u->sizes[i] != p->sizes[i] || (i < last && y->sizes[i] != u->sizes[i])) return false;
        if (i < last && u->sizes[i] > 1 && u->strides[i] != y->strides[i]) return false;
    }
    if (u->start >= 0 || u->dims[last] >= 0 || u->steps[last] >= 0) return false;
    out->start = u->base >= 0 ? u->offset : 0;
    out->step = u->sizes[last] > 1 ? u->strides[last] : 1;
    return out->step > 0 && out->start + (u->sizes[last] - 1) * out->step < y->sizes[last];
}
