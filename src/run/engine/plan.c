/* Runs a plan: addresses into the steps, then the launches one after the other. */
#include "plan_parts.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/parallel.h"
#include "base/probe.h"
#include "dispatch.h"
#include "run/backend/launch.h"

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

/* The product as an op on the trace: bias, a and b as the matrix op has them. */
static const ep_probe *product_span(const ep_probe *p, const ep_step *s) {
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
    const ep_step *s = user;
    ep_loop_run(&s->kernel->loop, s->words, begin, end);
}

/* As the kernel's launch, so that a recording shows who did the work. */
static ep_status interpret(ep_context *ctx, const ep_step *s) {
    ep_launch l = ep_launch_begin(s->kernel->name);
    ep_parallel_for(s->items > 1 ? ctx->threads : 1, s->items, 1, walk, (void *)(uintptr_t)s);
    ep_launch_end(&l, s->kernel->loop.work.flops, s->kernel->loop.work.bytes_read, s->kernel->loop.work.bytes_written);
    return EP_OK;
}

static ep_status run_step(const ep_plan *plan, const ep_step *s, ep_context *ctx) {
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
        const ep_step *s = &plan->steps[i];
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
static ep_status make_view(ep_context *ctx, const ep_tensor *of, const ep_plan_output *o, ep_tensor **out) {
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
        const ep_plan_output *o = &p->outputs[i];
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
        const ep_step *s = &p->steps[i];
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
        const ep_step *s = &p->steps[i];
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
    const ep_tensor *const *inputs;
} patched_run;

static ep_status patch_and_run(void *user) {
    const patched_run *r = user;
    for (size_t i = 0; i < r->p->patch_count; i++) {
        const ep_patch *t = &r->p->patches[i];
        uintptr_t to = (uintptr_t)r->base[t->slot] + (uintptr_t)t->offset; /* nothing's address may be null */
        memcpy(t->at, &to, sizeof to);
    }
    return run_steps(r->p, r->ctx, r->unit_ns);
}

static void begin_replay(const ep_probe *probe, const patched_run *r) {
    ep_probe_operand operands[EP_PLAN_INPUTS];
    for (int i = 0; i < r->p->input_count; i++) operands[i] = ep_span_operand(r->inputs[i]);
    ep_probe_span span = {
        .kind = EP_PROBE_OP, .name = "compiled", .operand_count = r->p->input_count, .operands = operands};
    probe->begin(probe->self, &span);
}

/* The addresses are all that a plan's launches depend on. */
static ep_status replay_or_run(patched_run *r) {
    uint64_t key[SLOT_INPUTS + EP_PLAN_INPUTS + EP_PLAN_OUTPUTS];
    for (int i = 0; i < r->p->slot_count; i++) key[i] = (uint64_t)(uintptr_t)r->base[i];
    /* One call asks for every kernel of a replay, so on the trace it is one op. */
    const ep_probe *probe = ep_replay_captured(r->p->replay) ? ep_probe_get() : NULL;
    if (probe) begin_replay(probe, r);
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
    ep_status s = patch_and_run(&(patched_run){p, ctx, base, unit_ns, inputs});
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
        const ep_plan_output *o = &p->outputs[i];
        whole[i] = NULL;
        base[SLOT_INPUTS + p->input_count + i] = NULL;
        if (s != EP_OK || o->owner != i) continue;
        s = ep_dispatch_result(ctx, o->root.dtype, o->root.ndim, o->root.sizes, &whole[i]);
        if (s == EP_OK) base[o->slot] = whole[i]->data;
    }
    patched_run r = {p, ctx, base, unit_ns, inputs};
    if (s == EP_OK) s = p->replay ? replay_or_run(&r) : patch_and_run(&r);
    if (s == EP_OK) s = make_outputs(p, ctx, inputs, whole, outputs);
    for (int i = 0; i < p->output_count; i++) ep_tensor_destroy(whole[i]);
    return s;
}
