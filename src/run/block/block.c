/* Blocks: made from weights, checked once, run in a mode. */
#include "parts.h"

#include <stdlib.h>
#include <string.h>

typedef struct block_row {
    const char *name;
    ep_block_kind kind;
    ep_act act;
} block_row;

static const block_row rows[] = {
#define EP_BLOCK(name, kind, act) {#name, EP_BLOCK_##kind, EP_ACT_##act},
#include "blocks.def"
#undef EP_BLOCK
};
enum { ROWS = sizeof rows / sizeof rows[0] };

typedef ep_status (*eager_fn)(ep_context *ctx, const ep_block *b, const ep_tensor *x, ep_tensor **out);
static const eager_fn eager[] = {
    [EP_BLOCK_LINEAR] = ep_eager_linear, [EP_BLOCK_MLP] = ep_eager_mlp, [EP_BLOCK_GATED] = ep_eager_glu};

ep_status ep_block_parse(const char *name, ep_block_kind *kind, ep_act *act) {
    if (!name || !kind || !act) return EP_ERROR_INVALID_ARGUMENT;
    for (int i = 0; i < ROWS; i++) {
        if (strcmp(rows[i].name, name) != 0) continue;
        *kind = rows[i].kind;
        *act = rows[i].act;
        return EP_OK;
    }
    return EP_ERROR_NOT_FOUND;
}

static const char *block_name(ep_block_kind kind, ep_act act) {
    static const char *const kinds[] = {"linear", "mlp", "gated_mlp"};
    for (int i = 0; i < ROWS; i++)
        if (rows[i].kind == kind && rows[i].act == act) return rows[i].name;
    return act == EP_ACT_GELU_ERF && kind == EP_BLOCK_GATED ? "geglu" : kinds[kind];
}

/* A weight of ours for one of the caller's: [out, in], a float dtype, on the context's device. */
static ep_status take(ep_block *b, const char *what, const ep_tensor *t, int ndim, ep_tensor **out) {
    ep_error *err = &b->ctx->err;
    char text[96];
    if (!t) return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "the block's weight `%s` is missing", what);
    if (t->ndim != ndim)
        return ep_fail(err, EP_ERROR_SHAPE, "%s is %s; it must have %d dim%s", what,
                       ep_shape_text(t->ndim, t->sizes, text, sizeof text), ndim, ndim == 1 ? "" : "s");
    if (!ep_dtype_is_float(t->dtype))
        return ep_fail(err, EP_ERROR_DTYPE, "%s is %s; weights are f32, bf16 or f16", what, ep_dtype_name(t->dtype));
    if (t->dtype != b->dtype)
        return ep_fail(err, EP_ERROR_DTYPE, "%s is %s, the other weights %s", what, ep_dtype_name(t->dtype),
                       ep_dtype_name(b->dtype));
    if (t->device.kind != b->ctx->device.kind || t->device.index != b->ctx->device.index)
        return ep_fail(err, EP_ERROR_DEVICE, "%s is not on the context's device; ep_to_device moves it", what);
    return ep_tensor_alias(t, err, out);
}

static ep_status take_bias(ep_block *b, const char *what, const ep_tensor *t, int64_t size, ep_tensor **out) {
    if (!t) return EP_OK;
    EP_TRY(take(b, what, t, 1, out));
    if (t->sizes[0] == size) return EP_OK;
    return ep_fail(&b->ctx->err, EP_ERROR_SHAPE, "%s has %lld values for %lld outputs", what, (long long)t->sizes[0],
                   (long long)size);
}

/* gate_up holds both: gate rows then up rows, or alternating; two views of it either way. */
static ep_status take_gate_up(ep_block *b, const ep_block_weights *w) {
    ep_error *err = &b->ctx->err;
    if (!w->gate_up) {
        EP_TRY(take(b, "gate", w->gate, 2, &b->gate));
        return take(b, "up", w->up, 2, &b->up);
    }
    if (w->gate || w->up)
        return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "gate_up stands for gate and up; give one or the other");
    ep_tensor *both;
    EP_TRY(take(b, "gate_up", w->gate_up, 2, &both));
    int64_t n = both->sizes[0], half = n / 2, step = w->interleaved ? 2 : 1;
    ep_status status =
        n % 2 ? ep_fail(err, EP_ERROR_SHAPE, "gate_up has %lld rows; it needs an even number", (long long)n) : EP_OK;
    if (status == EP_OK) status = ep_tensor_slice(both, 0, 0, w->interleaved ? n : half, step, err, &b->gate);
    if (status == EP_OK) status = ep_tensor_slice(both, 0, w->interleaved ? 1 : half, n, step, err, &b->up);
    ep_tensor_destroy(both);
    return status;
}

static ep_status check_pair(ep_block *b, const char *what, const ep_tensor *got, const char *than, int64_t rows_wanted,
                            int64_t cols_wanted) {
    char text[96];
    if (got->sizes[1] == cols_wanted && (rows_wanted < 0 || got->sizes[0] == rows_wanted)) return EP_OK;
    return ep_fail(&b->ctx->err, EP_ERROR_SHAPE, "%s is %s, which does not fit %s: wanted [%lld, %lld]", what,
                   ep_shape_text(2, got->sizes, text, sizeof text), than,
                   (long long)(rows_wanted < 0 ? got->sizes[0] : rows_wanted), (long long)cols_wanted);
}

static ep_status set_weights(ep_block *b, const ep_block_weights *w) {
    bool gated = b->kind == EP_BLOCK_GATED;
    if (gated)
        EP_TRY(take_gate_up(b, w));
    else
        EP_TRY(take(b, "up", w->up, 2, &b->up));
    int64_t inner = b->up->sizes[0];
    b->dim = b->up->sizes[1];
    EP_TRY(take_bias(b, "up's bias", w->up_bias, inner, &b->up_bias));
    if (gated) {
        EP_TRY(check_pair(b, "gate", b->gate, "up", inner, b->dim));
        EP_TRY(take_bias(b, "gate's bias", w->gate_bias, inner, &b->gate_bias));
    }
    b->out = inner;
    if (b->kind == EP_BLOCK_LINEAR) return EP_OK;
    b->hidden = inner;
    EP_TRY(take(b, "down", w->down, 2, &b->down));
    EP_TRY(check_pair(b, "down", b->down, "up", -1, inner));
    b->out = b->down->sizes[0];
    return take_bias(b, "down's bias", w->down_bias, b->out, &b->down_bias);
}

ep_status ep_block_create(ep_context *ctx, ep_block_kind kind, ep_act act, const ep_block_weights *weights,
                          ep_block **out) {
    if (!ctx) return EP_ERROR_INVALID_ARGUMENT;
    if (!weights || !out)
        return ep_fail(&ctx->err, EP_ERROR_INVALID_ARGUMENT, "a block's %s is NULL", weights ? "out" : "weights");
    if ((unsigned)kind > EP_BLOCK_GATED)
        return ep_fail(&ctx->err, EP_ERROR_INVALID_ARGUMENT, "%d is not a kind of block", (int)kind);
    if ((unsigned)act >= EP_ACT_COUNT)
        return ep_fail(&ctx->err, EP_ERROR_INVALID_ARGUMENT, "%d is not an activation", (int)act);
    ep_block *b = calloc(1, sizeof *b);
    if (!b) return ep_fail(&ctx->err, EP_ERROR_OUT_OF_MEMORY, "a block could not be allocated");
    const ep_tensor *first = weights->gate_up ? weights->gate_up : weights->up;
    b->ctx = ctx;
    b->kind = kind;
    b->act = kind == EP_BLOCK_LINEAR ? EP_ACT_NONE : act;
    b->dtype = first ? first->dtype : EP_DTYPE_F32;
    b->name = block_name(kind, b->act);
    ep_status status = set_weights(b, weights);
    if (status == EP_OK)
        *out = b;
    else
        ep_block_destroy(b);
    return status;
}

void ep_block_destroy(ep_block *b) {
    if (!b) return;
    ep_block_compiled_free(b);
    ep_block_tuned_free(b);
    ep_tensor *const all[] = {b->gate, b->gate_bias, b->up, b->up_bias, b->down, b->down_bias};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) ep_tensor_destroy(all[i]);
    free(b);
}

ep_status ep_block_eager_run(ep_context *ctx, const ep_block *b, const ep_tensor *x, const ep_tensor *residual,
                             ep_tensor **out) {
    if (!residual) return eager[b->kind](ctx, b, x, out);
    ep_tensor *y;
    EP_TRY(eager[b->kind](ctx, b, x, &y));
    ep_status status = ep_add(ctx, y, residual, out);
    ep_tensor_destroy(y);
    return status;
}

/* Said here once for all modes, in the words of the block; the ops check the rest. */
static ep_status check_run(ep_block *b, ep_mode mode, const ep_tensor *x, const ep_tensor *residual, const void *out) {
    ep_error *err = &b->ctx->err;
    char text[96], more[96];
    if (!x || !out) return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "%s: %s is NULL", b->name, x ? "out" : "x");
    if ((unsigned)mode >= EP_MODE_COUNT) return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "%d is not a mode", (int)mode);
    if (b->ctx->recorder && mode != EP_MODE_EAGER)
        return ep_fail(err, EP_ERROR_CAPTURE, "only a block's eager mode can be captured");
    EP_TRY(ep_dispatch_check(b->ctx, EP_OP_LINEAR, 1, &x, out));
    if (x->ndim < 1 || x->sizes[x->ndim - 1] != b->dim)
        return ep_fail(err, EP_ERROR_SHAPE, "%s takes x [..., %lld], not %s", b->name, (long long)b->dim,
                       ep_shape_text(x->ndim, x->sizes, text, sizeof text));
    if (x->dtype != b->dtype)
        return ep_fail(err, EP_ERROR_DTYPE, "x is %s, the block's weights are %s", ep_dtype_name(x->dtype),
                       ep_dtype_name(b->dtype));
    if (!residual) return EP_OK;
    EP_TRY(ep_dispatch_check(b->ctx, EP_OP_ADD, 1, &residual, out));
    bool fits = residual->ndim == x->ndim && residual->sizes[x->ndim - 1] == b->out && residual->dtype == b->dtype;
    for (int i = 0; fits && i + 1 < x->ndim; i++) fits = residual->sizes[i] == x->sizes[i];
    if (fits) return EP_OK;
    return ep_fail(err, EP_ERROR_SHAPE, "the residual %s %s does not have the shape and dtype of y for x %s",
                   ep_dtype_name(residual->dtype), ep_shape_text(residual->ndim, residual->sizes, text, sizeof text),
                   ep_shape_text(x->ndim, x->sizes, more, sizeof more));
}

ep_status ep_block_run_by(ep_block *b, ep_mode mode, const ep_tensor *x, const ep_tensor *residual, ep_tensor **out) {
    if (mode == EP_MODE_TUNED) return ep_block_tuned_run(b, x, residual, NULL, out);
    if (mode == EP_MODE_COMPILED) return ep_block_compiled_run(b, x, residual, out);
    return ep_block_eager_run(b->ctx, b, x, residual, out);
}

static ep_status run(ep_block *b, ep_mode mode, const ep_tensor *x, const ep_tensor *residual, ep_tensor **out) {
    EP_TRY(check_run(b, mode, x, residual, out));
    return ep_block_run_by(b, mode, x, residual, out);
}

ep_status ep_block_run(ep_block *b, ep_mode mode, const ep_tensor *x, const ep_tensor *residual, ep_tensor **out) {
    if (!b) return EP_ERROR_INVALID_ARGUMENT;
    bool outer;
    EP_TRY(ep_context_enter(b->ctx, &outer));
    ep_status status = run(b, mode, x, residual, out);
    ep_context_leave(b->ctx, outer);
    return status;
}

ep_status ep_block_run_into(ep_block *b, ep_mode mode, const ep_tensor *x, const ep_tensor *residual, ep_tensor *out) {
    if (!b) return EP_ERROR_INVALID_ARGUMENT;
    bool outer;
    EP_TRY(ep_context_enter(b->ctx, &outer));
    ep_status status = check_run(b, mode, x, residual, out);
    if (status == EP_OK && b->ctx->recorder)
        status =
            ep_fail(&b->ctx->err, EP_ERROR_CAPTURE, "%s: a result in memory that is there cannot be recorded", b->name);
    if (status == EP_OK) status = ep_block_run_to(b, mode, x, residual, out);
    ep_context_leave(b->ctx, outer);
    return status;
}

static ep_status prepare(ep_block *b, ep_mode mode, const ep_tensor *x) {
    ep_tensor *y;
    EP_TRY(run(b, mode, x, NULL, &y));
    ep_tensor_destroy(y);
    return mode == EP_MODE_COMPILED ? ep_block_compiled_settle(b, x) : EP_OK;
}

ep_status ep_block_prepare(ep_block *b, ep_mode mode, const ep_tensor *x) {
    if (!b) return EP_ERROR_INVALID_ARGUMENT;
    bool outer;
    EP_TRY(ep_context_enter(b->ctx, &outer));
    ep_status status = prepare(b, mode, x);
    ep_context_leave(b->ctx, outer);
    return status;
}

ep_status ep_block_supports(ep_block *b, ep_mode mode) {
    if (!b) return EP_ERROR_INVALID_ARGUMENT;
    if ((unsigned)mode >= EP_MODE_COUNT)
        return ep_fail(&b->ctx->err, EP_ERROR_INVALID_ARGUMENT, "%d is not a mode", (int)mode);
    if (mode == EP_MODE_TUNED) return ep_block_tuned_supports(b);
    if (mode == EP_MODE_COMPILED) return ep_block_compiled_supports(b);
    return EP_OK;
}

ep_block_kind ep_block_get_kind(const ep_block *b) {
    return b->kind;
}

int64_t ep_block_dim(const ep_block *b) {
    return b->dim;
}

int64_t ep_block_hidden(const ep_block *b) {
    return b->hidden;
}

int64_t ep_block_out(const ep_block *b) {
    return b->out;
}

static bool is_behind(const ep_tensor *a, const ep_tensor *b) {
    if (!a || !b) return a == b;
    if (a->storage != b->storage || a->ndim != b->ndim) return false;
    for (int i = 0; i < a->ndim; i++)
        if (a->strides[i] != b->strides[i]) return false;
    int64_t step = a->sizes[0] * a->strides[0] * (int64_t)ep_dtype_size(a->dtype);
    return b->data == a->data + step || a->data == b->data + step;
}

bool ep_block_is_packed(const ep_block *b) {
    return b && b->kind == EP_BLOCK_GATED && is_behind(b->gate, b->up) && is_behind(b->gate_bias, b->up_bias);
}
