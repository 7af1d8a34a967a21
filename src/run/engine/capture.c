/* The recorder: checks shapes by the ops' own rules, gives every result a handle without data, keeps real tensors that
 * turn up on the way as constants. */
#include "capture.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "run/graph/extent.h"
#include "run/graph/guard.h"

typedef struct capture {
    ep_recorder recorder;
    ep_captured *c;
    int32_t *values; /* by const: its value */
    size_t value_cap;
    ep_size_watch watch;
} capture;

static bool same_view(const ep_tensor *a, const ep_tensor *b) {
    return a->storage == b->storage && a->data == b->data && a->dtype == b->dtype && a->ndim == b->ndim &&
           !memcmp(a->sizes, b->sizes, sizeof(int64_t) * (size_t)a->ndim) &&
           !memcmp(a->strides, b->strides, sizeof(int64_t) * (size_t)a->ndim);
}

/* A tensor that is part of a larger storage is a view of all of it, so that neighbours in memory can be told. */
static int32_t part_of_storage(ep_graph *g, int32_t whole, const ep_tensor *t, int64_t offset) {
    ep_shape s = {t->dtype, t->ndim, {0}};
    memcpy(s.sizes, t->sizes, sizeof(int64_t) * (size_t)t->ndim);
    int32_t v = ep_graph_op(g, EP_NODE_VIEW, EP_OP_SLICE, NULL, 1, &whole, &s);
    if (v < 0) return -1;
    memcpy(g->values[v].strides, t->strides, sizeof(int64_t) * (size_t)t->ndim);
    g->values[v].base = whole;
    g->values[v].offset = offset;
    return v;
}

static ep_status add_const(capture *p, ep_context *ctx, const ep_tensor *t, ep_tensor *keep, int32_t *out) {
    ep_captured *c = p->c;
    if (!ep_grow(&c->consts, &c->const_cap, c->const_count + 1, sizeof *c->consts) ||
        !ep_grow(&p->values, &p->value_cap, c->const_count + 1, sizeof *p->values)) {
        ep_tensor_destroy(keep);
        return ep_fail(&ctx->err, EP_ERROR_OUT_OF_MEMORY, "no memory for a capture");
    }
    c->consts[c->const_count] = keep;
    *out = p->values[c->const_count++] = ep_graph_const(c->graph, t->dtype, t->ndim, t->sizes, t->strides);
    return *out < 0 ? ep_fail(&ctx->err, EP_ERROR_OUT_OF_MEMORY, "no memory for a capture") : EP_OK;
}

/* The whole storage as one row of elements, if t is a part of it that elements of t's dtype can address. */
static ep_status storage_const(capture *p, ep_context *ctx, const ep_tensor *t, int32_t *whole, int64_t *offset) {
    int64_t size = (int64_t)ep_dtype_size(t->dtype);
    ep_storage *s = t->storage;
    *whole = -1;
    if (!s || !t->numel || (int64_t)s->bytes / size <= t->numel) return EP_OK;
    ptrdiff_t at = t->data - (char *)s->data;
    if (at < 0 || at % size) return EP_OK;
    *offset = at / size;
    for (size_t i = 0; i < p->c->const_count; i++) {
        const ep_tensor *k = p->c->consts[i];
        if (k->storage == s && k->dtype == t->dtype && k->ndim == 1 && k->data == (char *)s->data &&
            k->sizes[0] == (int64_t)s->bytes / size) {
            *whole = p->values[i];
            return EP_OK;
        }
    }
    ep_tensor *all;
    ep_storage_retain(s);
    EP_TRY(ep_tensor_over(s, t->dtype, 1, (int64_t[1]){(int64_t)s->bytes / size}, &ctx->err, &all));
    return add_const(p, ctx, all, all, whole);
}

static ep_status constant(capture *p, ep_context *ctx, const ep_tensor *t, int32_t *out) {
    for (size_t i = 0; i < p->c->const_count; i++)
        if (same_view(p->c->consts[i], t)) {
            *out = p->values[i];
            return EP_OK;
        }
    int32_t whole;
    int64_t offset = 0;
    EP_TRY(storage_const(p, ctx, t, &whole, &offset));
    if (whole >= 0) {
        *out = part_of_storage(p->c->graph, whole, t, offset);
        return *out < 0 ? ep_fail(&ctx->err, EP_ERROR_OUT_OF_MEMORY, "no memory for a capture") : EP_OK;
    }
    ep_tensor *keep;
    EP_TRY(ep_tensor_alias(t, &ctx->err, &keep));
    return add_const(p, ctx, t, keep, out);
}

static ep_status value_of(capture *p, ep_context *ctx, const ep_tensor *t, int32_t *out) {
    if (t->value < 0 && t->storage) return constant(p, ctx, t, out);
    if (t->value < 0 || (size_t)t->value >= p->c->graph->value_count)
        return ep_fail(&ctx->err, EP_ERROR_CAPTURE, "a tensor of another capture was used");
    *out = t->value;
    return EP_OK;
}

static ep_status shell(ep_context *ctx, const ep_value *v, int32_t number, ep_tensor **out) {
    ep_tensor *t;
    EP_TRY(ep_tensor_shell(v->dtype, v->ndim, v->sizes, &ctx->err, &t));
    memcpy(t->strides, v->strides, sizeof(int64_t) * (size_t)v->ndim);
    ep_tensor_finish_view(t);
    t->device = ctx->device;
    t->value = number;
    *out = t;
    return EP_OK;
}

static ep_status out_of_memory(ep_context *ctx) {
    return ep_fail(&ctx->err, EP_ERROR_OUT_OF_MEMORY, "a captured graph of more than %d values", EP_GRAPH_MAX);
}

static ep_status record_view(ep_context *ctx, ep_graph *g, ep_op op, const ep_attr *attr, int32_t in, int32_t *out) {
    ep_value v;
    ep_status s = ep_graph_view_shape(&g->values[in], op, attr, &ctx->err, &v);
    if (s == EP_ERROR_STRIDE && op == EP_OP_RESHAPE) { /* as eager: a copy, then a view of it */
        ep_shape shape = {g->values[in].dtype, g->values[in].ndim, {0}};
        memcpy(shape.sizes, g->values[in].sizes, sizeof shape.sizes);
        ep_extent_fix_value(g, in); /* whether the copy is needed is decided by these numbers */
        in = ep_graph_op(g, EP_NODE_OP, EP_OP_COPY, NULL, 1, &in, &shape);
        if (in < 0) return out_of_memory(ctx);
        s = ep_graph_view_shape(&g->values[in], op, attr, &ctx->err, &v);
    }
    EP_TRY(s);
    ep_shape shape = {v.dtype, v.ndim, {0}};
    memcpy(shape.sizes, v.sizes, sizeof shape.sizes);
    int32_t number = ep_graph_op(g, EP_NODE_VIEW, op, attr, 1, &in, &shape);
    if (number < 0) return out_of_memory(ctx);
    memcpy(g->values[number].strides, v.strides, sizeof v.strides);
    g->values[number].base = ep_graph_root(g, in);
    g->values[number].offset = v.offset;
    ep_extent_of_node(g, g->values[number].node);
    *out = number;
    return EP_OK;
}

static ep_status record_op(ep_context *ctx, ep_graph *g, ep_op op, const ep_attr *attr, int count, const int32_t *in,
                           int32_t *out) {
    ep_shape shapes[80], result;
    for (int k = 0; k < count; k++) {
        const ep_value *v = &g->values[in[k]];
        shapes[k] = (ep_shape){v->dtype, v->ndim, {0}};
        memcpy(shapes[k].sizes, v->sizes, sizeof v->sizes);
    }
    EP_TRY(ep_op_shape(op, attr, count, shapes, &ctx->err, &result));
    *out = ep_graph_op(g, EP_NODE_OP, op, attr, count, in, &result);
    if (*out >= 0 && op == EP_OP_AMAX && g->values[in[0]].numel == 0 && g->values[*out].numel > 0)
        return ep_fail(&ctx->err, EP_ERROR_SHAPE, "the maximum of no elements does not exist");
    if (*out < 0) return out_of_memory(ctx);
    ep_extent_of_node(g, g->values[*out].node);
    return EP_OK;
}

static ep_status record(ep_recorder *self, ep_context *ctx, ep_op op, const ep_attr *attr, int count,
                        const ep_tensor *const *in, ep_tensor **out) {
    capture *p = self->user;
    ep_graph *g = p->c->graph;
    int32_t values[80], result = -1;
    static const ep_attr none;
    if (!attr) attr = &none;
    if (count > 80) return ep_fail(&ctx->err, EP_ERROR_CAPTURE, "%s of %d operands", ep_op_name(op), count);
    for (int k = 0; k < count; k++) EP_TRY(value_of(p, ctx, in[k], &values[k]));
    if (ep_op_get(op)->kind == EP_KIND_VIEW)
        EP_TRY(record_view(ctx, g, op, attr, values[0], &result));
    else
        EP_TRY(record_op(ctx, g, op, attr, count, values, &result));
    return shell(ctx, &g->values[result], result, out);
}

/* The function may decide by what it saw, so only this size will do. */
static void looked(ep_size_watch *self, const ep_tensor *t, int dim) {
    capture *p = (capture *)(void *)((char *)self - offsetof(capture, watch));
    ep_graph *g = p->c->graph;
    if ((size_t)t->value >= g->value_count) return;
    if (dim < 0)
        ep_extent_fix_value(g, t->value);
    else
        ep_dim_fix(g, ep_value_dim(g, t->value, dim));
}

static ep_status run(capture *p, ep_context *ctx, ep_fn fn, void *user, ep_tensor **shells, int input_count,
                     ep_tensor **outputs, int output_count) {
    ctx->err.status = EP_OK;
    ctx->err.message[0] = 0;
    ctx->recorder = &p->recorder;
    ep_size_watch_set(&p->watch);
    ep_status s = fn(ctx, user, (const ep_tensor *const *)shells, input_count, outputs, output_count);
    if (s != EP_OK && ctx->err.status != s)
        ep_fail(&ctx->err, s, "the function returned %s while it was captured", ep_status_name(s));
    for (int i = 0; s == EP_OK && i < output_count; i++) {
        int32_t v;
        if (!outputs[i])
            s = ep_fail(&ctx->err, EP_ERROR_CAPTURE, "the function left output %d unset", i);
        else
            s = value_of(p, ctx, outputs[i], &v);
        if (s == EP_OK && ep_graph_output(p->c->graph, v) < 0) s = out_of_memory(ctx);
    }
    ctx->recorder = NULL;
    ep_size_watch_set(NULL);
    return s;
}

ep_status ep_capture(ep_context *ctx, ep_fn fn, void *user, const ep_tensor *const *inputs, int input_count,
                     int output_count, bool symbols, ep_captured *out) {
    memset(out, 0, sizeof *out);
    if (ctx->recorder) return ep_fail(&ctx->err, EP_ERROR_CAPTURE, "a function is being captured already");
    capture p = {.recorder = {record, NULL}, .c = out, .watch = {looked}};
    p.recorder.user = &p;
    out->graph = ep_graph_create();
    ep_tensor **handles = calloc((size_t)(input_count + output_count) + 1, sizeof *handles);
    ep_status s = out->graph && handles ? EP_OK : out_of_memory(ctx);
    for (int i = 0; s == EP_OK && i < input_count; i++) {
        const ep_tensor *t = inputs[i];
        int32_t v = ep_graph_input(out->graph, t->dtype, t->ndim, t->sizes, t->strides);
        if (v >= 0 && symbols) ep_guard_symbols(out->graph, v);
        s = v < 0 ? out_of_memory(ctx) : shell(ctx, &out->graph->values[v], v, &handles[i]);
    }
    if (s == EP_OK) {
        out->graph->rounding = ctx->rounding;
        s = run(&p, ctx, fn, user, handles, input_count, handles + input_count, output_count);
        if (s == EP_OK) s = ep_extent_settle(out->graph, &ctx->err);
    }
    for (int i = 0; handles && i < input_count + output_count; i++) {
        bool again = false; /* a function may return its input itself */
        for (int k = 0; k < i; k++) again |= handles[k] == handles[i];
        if (!again) ep_tensor_destroy(handles[i]);
    }
    free(handles);
    free(p.values);
    if (s != EP_OK) ep_captured_clear(out);
    return s;
}

void ep_captured_clear(ep_captured *c) {
    for (size_t i = 0; i < c->const_count; i++) ep_tensor_destroy(c->consts[i]);
    free(c->consts);
    ep_graph_destroy(c->graph);
    memset(c, 0, sizeof *c);
}
