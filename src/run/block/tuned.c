/* Tuned mode: weights packed once, then two calls: gated (or up with its activation) and down with the residual. */
#include "parts.h"

#include <stdio.h>
#include <string.h>

static ep_status pack(ep_block *b, const ep_tensor *w0, const ep_tensor *w1, ep_packed **out) {
    ep_context *ctx = b->ctx;
    ep_pack_request r = ep_pack_request_of(w0, w1, true); /* the block holds them */
    return ctx->ops.pack(&ctx->backend, &r, &ctx->err, out);
}

ep_status ep_block_tuned_supports(ep_block *b) {
    ep_context *ctx = b->ctx;
    if (ctx->ops.pack && ctx->ops.tuned) return EP_OK;
    return ep_fail(&ctx->err, EP_ERROR_NOT_BUILT, "the %s backend of this build has no tuned blocks",
                   ctx->backend.name);
}

ep_status ep_block_tuned_pack(ep_block *b) {
    EP_TRY(ep_block_tuned_supports(b));
    if (!b->packed_first) {
        bool gated = b->kind == EP_BLOCK_GATED;
        EP_TRY(pack(b, gated ? b->gate : b->up, gated ? b->up : NULL, &b->packed_first));
    }
    if (b->down && !b->packed_down) EP_TRY(pack(b, b->down, NULL, &b->packed_down));
    return EP_OK;
}

void ep_block_tuned_free(ep_block *b) {
    ep_context *ctx = b->ctx;
    ep_replay_clear(&b->replay);
    if (b->packed_first) ctx->ops.pack_free(&ctx->backend, b->packed_first);
    if (b->packed_down) ctx->ops.pack_free(&ctx->backend, b->packed_down);
}

size_t ep_block_tuned_text(const ep_block *b, char *out, size_t size) {
    if (out && size) *out = 0;
    if (!b || !out || !size || !b->ctx->ops.tuned_text) return 0;
    const ep_packed *const packs[2] = {b->packed_first, b->packed_down};
    const char *const names[2] = {b->kind == EP_BLOCK_GATED ? "gate+up"
                                  : b->kind == EP_BLOCK_MLP ? "up"
                                                            : "weight",
                                  "down"};
    size_t at = 0;
    for (int i = 0; i < 2; i++) {
        char text[2048], *line, *rest = text;
        if (!packs[i] || !b->ctx->ops.tuned_text(packs[i], text, sizeof text)) continue;
        while ((line = strsep(&rest, "\n")) && *line && at + 1 < size) {
            int n = snprintf(out + at, size - at, "%s, %s\n", names[i], line);
            at = n > 0 && (size_t)n < size - at ? at + (size_t)n : size - 1;
        }
    }
    return at;
}

/* The one kernel for all of the block, or -1. */
static int whole(const ep_block *b, int64_t rows) {
    ep_context *ctx = b->ctx;
    if (b->kind == EP_BLOCK_LINEAR || !ctx->ops.tuned_whole) return -1;
    return ctx->ops.tuned_whole(&ctx->backend, b->dtype, b->kind == EP_BLOCK_GATED, rows, b->dim, b->hidden, b->out,
                                b->act);
}

ep_tuned_pair ep_block_tuned_pair(const ep_block *b, int64_t rows) {
    if (b && rows > 0 && whole(b, rows) >= 0) return EP_TUNED_WHOLE;
    if (!b || b->kind == EP_BLOCK_LINEAR) return EP_TUNED_UNDECIDED;
    /* A GPU knows before it runs; its packs, a cache, mostly are the weights themselves. */
    if (!b->packed_first && b->ctx->ops.tuned_whole) ep_block_tuned_pack((ep_block *)(uintptr_t)b);
    if (!b->packed_first) return EP_TUNED_UNDECIDED;
    const ep_backend_ops *ops = &b->ctx->ops;
    bool gated = b->kind == EP_BLOCK_GATED;
    if (!gated && !ops->tuned_whole) return EP_TUNED_UNDECIDED;
    ep_tuned_pair way = ops->tuned_pair_way && rows > 0 ? ops->tuned_pair_way(b->packed_first, rows) : EP_TUNED_FUSED;
    bool exact = b->act == EP_ACT_NONE || b->act == EP_ACT_RELU; /* in the epilogue of a library's product */
    return !gated && exact ? EP_TUNED_FUSED : way;
}

int64_t ep_block_packed_bytes(const ep_block *b) {
    const ep_backend_ops *ops = &b->ctx->ops;
    int64_t sum = 0;
    if (b->packed_first) sum += ops->pack_bytes(b->packed_first);
    if (b->packed_down) sum += ops->pack_bytes(b->packed_down);
    return sum;
}

static ep_status save_packed(ep_block *b, const char *path) {
    ep_context *ctx = b->ctx;
    if (!path) return ep_fail(&ctx->err, EP_ERROR_INVALID_ARGUMENT, "%s: the file's path is NULL", b->name);
    EP_TRY(ep_block_tuned_pack(b));
    if (!ctx->ops.pack_save)
        return ep_fail(&ctx->err, EP_ERROR_UNSUPPORTED, "the %s backend keeps no packed weights in files",
                       ctx->backend.name);
    const ep_packed *packs[2] = {b->packed_first, b->packed_down};
    return ctx->ops.pack_save(packs, b->down ? 2 : 1, path, &ctx->err);
}

ep_status ep_block_save_packed(ep_block *b, const char *path) {
    if (!b) return EP_ERROR_INVALID_ARGUMENT;
    bool outer;
    EP_TRY(ep_context_enter(b->ctx, &outer));
    ep_status status = save_packed(b, path);
    ep_context_leave(b->ctx, outer);
    return status;
}

static ep_status check_pack(ep_block *b, const char *what, const ep_packed *p, int64_t k, int64_t n, bool pair) {
    ep_dtype dtype;
    int64_t got_k, got_n;
    bool got_pair;
    b->ctx->ops.pack_describe(p, &dtype, &got_k, &got_n, &got_pair);
    if (dtype == b->dtype && got_k == k && got_n == n && got_pair == pair) return EP_OK;
    return ep_fail(&b->ctx->err, EP_ERROR_SHAPE, "the file's %s is %s [%lld, %lld]%s; the block's is %s [%lld, %lld]%s",
                   what, ep_dtype_name(dtype), (long long)got_n, (long long)got_k, got_pair ? ", a pair" : "",
                   ep_dtype_name(b->dtype), (long long)n, (long long)k, pair ? ", a pair" : "");
}

static ep_status load_packed(ep_block *b, const char *path, bool verify) {
    ep_context *ctx = b->ctx;
    if (!path) return ep_fail(&ctx->err, EP_ERROR_INVALID_ARGUMENT, "%s: the file's path is NULL", b->name);
    if (!ctx->ops.pack_load)
        return ep_fail(&ctx->err, EP_ERROR_UNSUPPORTED, "the %s backend keeps no packed weights in files",
                       ctx->backend.name);
    ep_packed *packs[2] = {NULL, NULL};
    bool gated = b->kind == EP_BLOCK_GATED;
    EP_TRY(ctx->ops.pack_load(path, verify, b->down ? 2 : 1, &ctx->err, packs));
    ep_status status = check_pack(b, gated ? "gate and up" : "up", packs[0], b->dim, b->up->sizes[0], gated);
    if (status == EP_OK && b->down) status = check_pack(b, "down", packs[1], b->hidden, b->out, false);
    if (status != EP_OK) {
        for (int i = 0; i < 2; i++)
            if (packs[i]) ctx->ops.pack_free(&ctx->backend, packs[i]);
        return status;
    }
    ep_block_tuned_free(b);
    b->packed_first = packs[0];
    b->packed_down = packs[1];
    if (ctx->ops.pack_from) { /* the block holds the plain weights: they may be the faster way here, too */
        ep_pack_request first = ep_pack_request_of(gated ? b->gate : b->up, gated ? b->up : NULL, true);
        ctx->ops.pack_from(packs[0], &first);
        if (b->down) {
            ep_pack_request down = ep_pack_request_of(b->down, NULL, true);
            ctx->ops.pack_from(packs[1], &down);
        }
    }
    return EP_OK;
}

ep_status ep_block_load_packed(ep_block *b, const char *path, bool verify) {
    if (!b) return EP_ERROR_INVALID_ARGUMENT;
    bool outer;
    EP_TRY(ep_context_enter(b->ctx, &outer));
    ep_status status = load_packed(b, path, verify);
    ep_context_leave(b->ctx, outer);
    return status;
}

/* t as [rows, last] by strides if its layout allows; else through a copy, which `copy` then owns. */
static ep_status as_rows(ep_context *ctx, const ep_tensor *t, bool adjacent, ep_tensor *look, ep_tensor **copy) {
    int64_t n = t->sizes[t->ndim - 1], sizes[2] = {n ? t->numel / n : 0, n}, strides[2];
    if (n == 0) { /* no columns: the rows are told by the other sizes */
        sizes[0] = 1;
        for (int i = 0; i + 1 < t->ndim; i++) sizes[0] *= t->sizes[i];
    }
    ep_error why;
    ep_status status = ep_stride_reshape(t->ndim, t->sizes, t->strides, 2, sizes, &why, strides);
    if (status == EP_OK && adjacent && n > 1 && strides[1] != 1)
        status = ep_fail(&why, EP_ERROR_STRIDE, "stride %lld of the last dim: columns must be adjacent",
                         (long long)strides[1]);
    if (status != EP_OK) {
        EP_TRY(ep_dispatch_copy(ctx, t, why.message, copy));
        t = *copy;
        EP_TRY(ep_stride_reshape(t->ndim, t->sizes, t->strides, 2, sizes, &ctx->err, strides));
    }
    *look = ep_dispatch_look(t, 2, sizes, strides);
    return EP_OK;
}

static void set_bias(const ep_tensor *bias, const void **p, int64_t *stride) {
    if (!bias) return;
    *p = bias->data;
    *stride = bias->strides[0];
}

static ep_tuned_call new_call(const ep_block *b, const ep_packed *w, const ep_tensor *x, const ep_tensor *out) {
    return (ep_tuned_call){.weights = w,
                           .m = x->sizes[0],
                           .x = x->data,
                           .x_row = x->strides[0],
                           .x_col = x->sizes[1] > 1 ? x->strides[1] : 1,
                           .dtype = b->dtype,
                           .out = out->data,
                           .out_row = out->ndim == 2 ? out->strides[0] : out->sizes[out->ndim - 1],
                           .rounding = b->ctx->rounding};
}

/* act(x gate) * (x up), or act(x up): the hidden values, as [rows, hidden] or as the next product packs them. */
static ep_status hidden_call(ep_block *b, const ep_tensor *x, ep_tensor **out, ep_tuned_call *c) {
    ep_context *ctx = b->ctx;
    int64_t rows = x->sizes[0], size = (int64_t)ep_dtype_size(b->dtype), bytes = 0;
    if (ctx->ops.tuned_hand && rows > 0) bytes = (int64_t)ctx->ops.tuned_hand(b->packed_first, b->packed_down, rows);
    if (bytes > 0)
        EP_TRY(ep_dispatch_result(ctx, b->dtype, 1, &(int64_t){bytes / size}, out));
    else
        EP_TRY(ep_dispatch_result(ctx, b->dtype, 2, (int64_t[2]){rows, b->hidden}, out));
    *c = new_call(b, b->packed_first, x, *out);
    c->out_packed = bytes > 0;
    bool gated = b->kind == EP_BLOCK_GATED;
    set_bias(gated ? b->gate_bias : b->up_bias, &c->bias0, &c->bias0_stride);
    if (gated) set_bias(b->up_bias, &c->bias1, &c->bias1_stride);
    c->act = b->act;
    return EP_OK;
}

/* h: the hidden values, packed for it or not; NULL in a linear block, whose only product reads x. */
static ep_tuned_call last_call(const ep_block *b, const ep_tensor *x, const ep_tensor *h, bool packed,
                               const ep_tensor *residual, const ep_tensor *y) {
    bool one = b->kind == EP_BLOCK_LINEAR;
    ep_tuned_call c = new_call(b, one ? b->packed_first : b->packed_down, x, y);
    if (h) {
        c.x = h->data;
        c.x_row = b->hidden;
        c.x_col = 1;
        c.x_packed = packed;
    }
    set_bias(one ? b->up_bias : b->down_bias, &c.bias0, &c.bias0_stride);
    if (residual) {
        c.residual = residual->data;
        c.residual_row = residual->strides[0];
    }
    return c;
}

static ep_status run_products(ep_block *b, int one, const ep_tensor *x, const ep_tensor *residual, const ep_tensor *y,
                              ep_tensor **h) {
    ep_context *ctx = b->ctx;
    ep_tuned_call first, last;
    bool ran = false;
    if (b->kind == EP_BLOCK_LINEAR) {
        last = last_call(b, x, NULL, false, residual, y);
        return ctx->ops.tuned(&ctx->backend, &last, &ctx->err);
    }
    EP_TRY(hidden_call(b, x, h, &first));
    last = last_call(b, x, *h, first.out_packed, residual, y);
    bool hidden = (*h)->numel > 0;
    if (hidden && one >= 0) EP_TRY(ctx->ops.tuned_pair(&ctx->backend, one, &first, &last, &ran, &ctx->err));
    if (ran) return EP_OK;
    if (hidden) EP_TRY(ctx->ops.tuned(&ctx->backend, &first, &ctx->err));
    return ctx->ops.tuned(&ctx->backend, &last, &ctx->err);
}

static ep_status run(ep_block *b, int one, const ep_tensor *x, const ep_tensor *residual, const ep_tensor *y) {
    ep_context *ctx = b->ctx;
    ep_tensor rows, residual_rows, *x_copy = NULL, *r_copy = NULL, *h = NULL;
    if (y->numel == 0) return EP_OK;
    ep_status status = as_rows(ctx, x, false, &rows, &x_copy);
    if (status == EP_OK && residual) status = as_rows(ctx, residual, true, &residual_rows, &r_copy);
    if (status == EP_OK) status = run_products(b, one, &rows, residual ? &residual_rows : NULL, y, &h);
    ep_tensor_destroy(h);
    ep_tensor_destroy(x_copy);
    ep_tensor_destroy(r_copy);
    return status;
}

typedef struct tuned_run {
    ep_block *b;
    const ep_tensor *x, *residual, *y;
} tuned_run;

static ep_status run_again(void *user) {
    const tuned_run *r = user;
    ep_context *ctx = r->b->ctx;
    ctx->ops.capture_op(&ctx->backend, r->b->name);
    return run(r->b, -1, r->x, r->residual, r->y);
}

static int add_key(uint64_t *key, int n, const ep_tensor *t) {
    key[n++] = t ? (uint64_t)(uintptr_t)t->data : 0;
    key[n++] = t ? (uint64_t)t->ndim : 0;
    for (int i = 0; t && i < t->ndim; i++) {
        key[n++] = (uint64_t)t->sizes[i];
        key[n++] = (uint64_t)t->strides[i];
    }
    return n;
}

/* Everything the launches depend on, besides the block itself, is in the three tensors. */
static ep_status replay_or_run(ep_block *b, const ep_tensor *x, const ep_tensor *residual, const ep_tensor *y) {
    uint64_t key[3 * (2 + 2 * EP_MAX_DIMS)];
    int one = y->numel ? whole(b, y->numel / b->out) : -1;
    if (!b->ctx->ops.replay || y->numel == 0 || one >= 0) return run(b, one, x, residual, y);
    int n = add_key(key, add_key(key, add_key(key, 0, x), residual), y);
    return ep_replay_run(&b->replay, b->ctx, key, n, run_again, &(tuned_run){b, x, residual, y});
}

static ep_status run_new(ep_block *b, const ep_tensor *x, const ep_tensor *residual, ep_tensor **out) {
    int64_t sizes[EP_MAX_DIMS];
    ep_tensor *y;
    for (int i = 0; i < x->ndim; i++) sizes[i] = x->sizes[i];
    sizes[x->ndim - 1] = b->out;
    EP_TRY(ep_dispatch_result(b->ctx, b->dtype, x->ndim, sizes, &y));
    ep_status status = replay_or_run(b, x, residual, y);
    if (status == EP_OK)
        *out = y;
    else
        ep_tensor_destroy(y);
    return status;
}

ep_status ep_block_tuned_run(ep_block *b, const ep_tensor *x, const ep_tensor *residual, const ep_tensor *into,
                             ep_tensor **out) {
    EP_TRY(ep_block_tuned_pack(b));
    const ep_probe *p = ep_probe_get();
    ep_probe_operand operand = ep_span_operand(x);
    ep_probe_span span = {.kind = EP_PROBE_OP, .name = b->name, .operand_count = 1, .operands = &operand};
    if (p) p->begin(p->self, &span);
    ep_status status = into ? replay_or_run(b, x, residual, into) : run_new(b, x, residual, out);
    ep_span_end(p);
    return status;
}
