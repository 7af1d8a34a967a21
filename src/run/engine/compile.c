/* A compiled function: each call finds its plan or binds one, and is answered by the plan, or by the eager path while
 * code is being built. */
#include "compile.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/probe.h"
#include "replay.h"

static char *copy_text(const char *s) {
    return s ? strdup(s) : NULL;
}

ep_status ep_compile_check(ep_context *ctx, const ep_compile_options *o) {
    if (o->wait != EP_WAIT_NEVER && o->wait != EP_WAIT_ALWAYS)
        return ep_fail(&ctx->err, EP_ERROR_INVALID_ARGUMENT, "%d is no way to wait", (int)o->wait);
    if (o->specialize != EP_SPECIALIZE_GENERIC && o->specialize != EP_SPECIALIZE_STATIC)
        return ep_fail(&ctx->err, EP_ERROR_INVALID_ARGUMENT, "%d is no way to specialize", (int)o->specialize);
    if (!(o->compiler_limit_s >= 0))
        return ep_fail(&ctx->err, EP_ERROR_INVALID_ARGUMENT, "a limit of %g s for the compiler; 0 means 30",
                       o->compiler_limit_s);
    return EP_OK;
}

ep_status ep_compile_with(ep_context *ctx, ep_fn fn, void *user, int input_count, int output_count,
                          const ep_compile_options *options, bool interpret, ep_compiled **out) {
    static const ep_compile_options defaults;
    if (!ctx) return EP_ERROR_INVALID_ARGUMENT;
    if (!fn || !out) return ep_fail(&ctx->err, EP_ERROR_INVALID_ARGUMENT, "%s is NULL", fn ? "out" : "the function");
    if (input_count < 0 || input_count > EP_PLAN_INPUTS || output_count < 1 || output_count > EP_PLAN_OUTPUTS)
        return ep_fail(&ctx->err, EP_ERROR_INVALID_ARGUMENT,
                       "a function of %d inputs and %d outputs; 0 to %d inputs and 1 to %d outputs", input_count,
                       output_count, EP_PLAN_INPUTS, EP_PLAN_OUTPUTS);
    if (options) EP_TRY(ep_compile_check(ctx, options));
    if (!interpret && !ctx->ops.module_load)
        return ep_fail(&ctx->err, EP_ERROR_UNSUPPORTED,
                       "the %s backend runs plain kernels only, so it has no compiled mode; a context without "
                       "`reference` has",
                       ctx->backend.name);
    ep_compiled *c = calloc(1, sizeof *c);
    if (!c) return ep_fail(&ctx->err, EP_ERROR_OUT_OF_MEMORY, "a compiled function could not be allocated");
    *c = (ep_compiled){.ctx = ctx, .fn = fn, .user = user, .input_count = input_count, .output_count = output_count};
    c->options = options ? *options : defaults;
    c->options.cache_dir = copy_text(c->options.cache_dir);
    c->options.dump_pass = copy_text(c->options.dump_pass);
    c->verify = c->no_choice = interpret;
    ep_status s = ep_kernels_open(ctx, &c->options, interpret, &c->kernels);
    if (s == EP_OK)
        *out = c;
    else
        ep_compiled_destroy(c);
    return s;
}

ep_status ep_compile(ep_context *ctx, ep_fn fn, void *user, int input_count, int output_count,
                     const ep_compile_options *options, ep_compiled **out) {
    return ep_compile_with(ctx, fn, user, input_count, output_count, options, false, out);
}

void ep_compiled_destroy(ep_compiled *c) {
    if (!c) return;
    ep_memo_clear(&c->memo);
    ep_kernels_close(&c->kernels);
    ep_pack_list_clear(&c->packs);
    ep_storage_release(c->workspace);
    ep_text_free(&c->report);
    free((char *)(uintptr_t)c->options.cache_dir);
    free((char *)(uintptr_t)c->options.dump_pass);
    free(c);
}

static ep_status run_eager(ep_compiled *c, const ep_tensor *const *inputs, ep_tensor **outputs) {
    return c->fn(c->ctx, c->user, inputs, c->input_count, outputs, c->output_count);
}

/* One workspace serves all plans: calls come one after the other. It grows and never shrinks. */
static ep_status grow_workspace(ep_compiled *c, int64_t bytes) {
    if (c->workspace && (int64_t)c->workspace->bytes >= bytes) return EP_OK;
    ep_storage *s;
    EP_TRY(c->ctx->ops.storage(&c->ctx->backend, (size_t)bytes, &c->ctx->err, &s));
    ep_storage_release(c->workspace);
    c->workspace = s;
    return EP_OK;
}

static ep_status run_timed(ep_compiled *c, const ep_plan *plan, const ep_tensor *const *inputs, int64_t *unit_ns,
                           ep_tensor **outputs) {
    int64_t need = ep_plan_workspace(plan);
    if (__builtin_expect(need > 0, 1) && (!c->workspace || (int64_t)c->workspace->bytes < need))
        EP_TRY(grow_workspace(c, need));
    const ep_probe *p = ep_probe_get();
    if (__builtin_expect(p == NULL, 1))
        return ep_plan_run(plan, c->ctx, inputs, c->workspace ? c->workspace->data : NULL, unit_ns, outputs);
    ep_probe_span span = {.kind = EP_PROBE_PLAN, .name = "plan"};
    p->begin(p->self, &span);
    ep_status s = ep_plan_run(plan, c->ctx, inputs, c->workspace ? c->workspace->data : NULL, NULL, outputs);
    p->end(p->self);
    return s;
}

static ep_status run_this(ep_compiled *c, const ep_plan *plan, const ep_tensor *const *inputs, ep_tensor **outputs) {
    return run_timed(c, plan, inputs, NULL, outputs);
}

static ep_status run_plan(ep_compiled *c, const ep_binding *b, const ep_tensor *const *inputs, ep_tensor **outputs) {
    return run_this(c, b->plans[EP_RUN_COMPILED], inputs, outputs);
}

/* Who answers, once that is decided. */
static ep_runner runner_of(const ep_compiled *c, const ep_binding *b) {
    if (c->attach_always) return EP_RUN_ATTACHED;
    return c->steps_always ? EP_RUN_STEPPED : b->choice->kept;
}

static const ep_plan *plan_of(const ep_binding *b, ep_runner who) {
    return b->plans[who] ? b->plans[who] : b->plans[EP_RUN_COMPILED];
}

/* The library's steps must round as the plan's kernels do. Its code is chosen by shape, so it is looked at, once. */
static bool same_bits(const ep_tensor *a, const ep_tensor *b) {
    const char *x = a->data, *y = b->data;
    int64_t size = (int64_t)ep_dtype_size(a->dtype), last;
    if (a->numel == 0) return true;
    if (ep_stride_max_offset(a->ndim, a->sizes, a->strides, NULL, &last) != EP_OK) return false;
    if (last + 1 != a->numel || memcmp(a->strides, b->strides, sizeof *a->strides * (size_t)a->ndim)) return false;
    if (a->dtype != EP_DTYPE_F32) return memcmp(x, y, (size_t)(a->numel * size)) == 0;
    for (int64_t i = 0; i < a->numel; i++) {
        float f[2];
        memcpy(&f[0], x + i * 4, 4);
        memcpy(&f[1], y + i * 4, 4);
        if (memcmp(&f[0], &f[1], 4) != 0 && (!isnan(f[0]) || !isnan(f[1]))) return false;
    }
    return true;
}

static ep_status check_steps(ep_compiled *c, ep_binding *b, const ep_tensor *const *inputs, ep_tensor **outputs) {
    ep_tensor *plain[EP_PLAN_OUTPUTS];
    bool same = true;
    EP_TRY(run_plan(c, b, inputs, plain));
    ep_status s = run_this(c, b->plans[EP_RUN_STEPPED], inputs, outputs);
    for (int i = 0; i < c->output_count; i++) {
        same = same && s == EP_OK && same_bits(plain[i], outputs[i]);
        ep_tensor_destroy(plain[i]);
    }
    if (s == EP_OK && !same) ep_choice_refuse(b->choice, "they gave other bits");
    return s;
}

static void drop(ep_compiled *c, ep_tensor **outputs) {
    for (int i = 0; i < c->output_count; i++) ep_tensor_destroy(outputs[i]);
}

static ep_status run_by(ep_compiled *c, const ep_binding *b, ep_runner who, const ep_tensor *const *inputs,
                        int64_t *unit_ns, ep_tensor **outputs) {
    if (who == EP_RUN_EAGER) return run_eager(c, inputs, outputs);
    return run_timed(c, plan_of(b, who), inputs, unit_ns, outputs);
}

/* One sample of way `who`, which answers the call. */
static ep_status run_sample(ep_compiled *c, ep_binding *b, ep_runner who, const ep_tensor *const *inputs,
                            ep_tensor **outputs) {
    int more = ep_choice_repeats(b->choice, who) - 1;
    int64_t *unit_ns = NULL;
    if (b->choice->unit_count && b->choice->unit_count == b->unit_count && who != EP_RUN_EAGER)
        unit_ns = calloc((size_t)b->unit_count, sizeof *unit_ns); /* without it only the whole is timed */
    int64_t switches = ep_clock_switches(), start = ep_clock_ns();
    ep_status s = EP_OK;
    for (int i = 0; s == EP_OK && i < more; i++) {
        s = run_by(c, b, who, inputs, unit_ns, outputs);
        if (s == EP_OK) drop(c, outputs);
    }
    if (s == EP_OK) s = run_by(c, b, who, inputs, unit_ns, outputs);
    if (s == EP_OK) s = c->ctx->ops.sync(&c->ctx->backend, &c->ctx->err);
    int64_t ns = ep_clock_ns() - start;
    switches = ep_clock_switches() - switches;
    ep_choice_note_size(b->choice, b->elements);
    if (s == EP_OK) ep_choice_sample(b->choice, who, ns, switches, unit_ns);
    free(unit_ns);
    return s;
}

static ep_status run_undecided(ep_compiled *c, ep_binding *b, const ep_tensor *const *inputs, ep_tensor **outputs) {
    if (ep_probe_get()) /* recorded calls say nothing about unrecorded ones; answered as before, if there is a before */
        return run_by(c, b, b->choice->kept, inputs, NULL, outputs);
    ep_runner who = ep_choice_next(b->choice, ep_ways_there(b));
    bool fresh = who == EP_RUN_STEPPED && b->choice->count[who] == 0;
    if (fresh && c->ctx->device.kind == EP_DEVICE_CPU) {
        EP_TRY(check_steps(c, b, inputs, outputs));
        ep_choice_sample(b->choice, who, 0, 0, NULL); /* the warming one */
    } else {
        EP_TRY(run_sample(c, b, who, inputs, outputs));
    }
    if (b->choice->decided) ep_ways_decided(c, b->choice);
    return EP_OK;
}

/* The way that was kept: eager, or `plan`. Now and then it is timed, and may lose the trust in it. */
static ep_status run_kept(ep_compiled *c, ep_binding *b, const ep_plan *plan, const ep_tensor *const *inputs,
                          ep_tensor **outputs) {
    bool due = !ep_probe_get() && ep_choice_watch_due(b->choice), host = c->ctx->device.kind == EP_DEVICE_CPU;
    int64_t start = due && host ? ep_clock_ns() : 0;
    EP_TRY(plan ? run_this(c, plan, inputs, outputs) : run_eager(c, inputs, outputs));
    if (__builtin_expect(!due, 1)) return EP_OK;
    ep_choice_watch_note(b->choice, host ? ep_clock_ns() - start : 0);
    if (!b->choice->again) return EP_OK;
    ep_status s = ep_ways_reopen(c, b->choice);
    if (s != EP_OK) drop(c, outputs);
    return s;
}

static const char *failed_kernel(const ep_binding *b) {
    for (size_t i = 0; i < b->kernel_count; i++)
        if (b->kernels[i] && atomic_load_explicit(&b->kernels[i]->state, memory_order_acquire) == EP_KERNEL_FAILED)
            return b->kernels[i]->err.message;
    return "";
}

static ep_status wait_for_kernels(ep_compiled *c, ep_binding *b) {
    int64_t start = ep_clock_ns();
    ep_kernels_wait(&c->kernels);
    c->waited_ns += ep_clock_ns() - start;
    return ep_binding_advance(c, b);
}

/* By eager, whose pointwise part has the bits that the code will give; under `fewest` it has not, and the loop nests are
 * walked without code: slower, and the same answer as later. A device's memory the host can't walk, so there the call
 * waits. */
static ep_status answer_without_code(ep_compiled *c, ep_binding *b, const ep_tensor *const *inputs,
                                     ep_tensor **outputs) {
    bool exact = c->ctx->rounding == EP_ROUNDING_EAGER, host = c->ctx->device.kind == EP_DEVICE_CPU;
    if (!exact && !host && b->state == EP_BINDING_PENDING) {
        EP_TRY(wait_for_kernels(c, b));
        if (b->state == EP_BINDING_READY) return run_plan(c, b, inputs, outputs);
    }
    if (!exact && !host)
        return ep_fail(&c->ctx->err, EP_ERROR_COMPILER,
                       "a kernel did not build, and eager does not round as `fewest` asks: %s", failed_kernel(b));
    c->eager_calls++;
    if (exact) return run_eager(c, inputs, outputs);
    EP_TRY(ep_binding_interpret(c, b));
    return run_this(c, b->meanwhile, inputs, outputs);
}

static ep_status answer(ep_compiled *c, ep_binding *b, const ep_tensor *const *inputs, ep_tensor **outputs) {
    if (b->state == EP_BINDING_PENDING || b->attach == EP_ATTACH_PENDING) ep_kernels_after_fork(&c->kernels);
    if (b->state == EP_BINDING_PENDING) {
        EP_TRY(ep_binding_advance(c, b));
        if (b->state == EP_BINDING_PENDING && c->options.wait == EP_WAIT_ALWAYS) EP_TRY(wait_for_kernels(c, b));
    }
    if (b->state != EP_BINDING_READY) return answer_without_code(c, b, inputs, outputs);
    bool attaching = b->attach == EP_ATTACH_NEW || b->attach == EP_ATTACH_PENDING;
    if (attaching || b->choice->unit_count) EP_TRY(ep_ways_advance(c, b));
    attaching = b->attach == EP_ATTACH_PENDING;
    if (!b->choice->decided) return run_undecided(c, b, inputs, outputs);
    ep_runner kept = runner_of(c, b);
    if (kept == EP_RUN_EAGER) {
        b->by_eager = !attaching;
        return run_kept(c, b, NULL, inputs, outputs);
    }
    const ep_plan *plan = plan_of(b, kept);
    if (!attaching) b->fast = plan;
    return run_kept(c, b, plan, inputs, outputs);
}

static ep_status find_or_bind(ep_compiled *c, const ep_tensor *const *inputs, ep_binding **out) {
    uint64_t hash = ep_facts_hash(c->input_count, inputs);
    ep_binding *b = ep_memo_find(&c->memo, c->input_count, inputs, hash);
    if (!b) {
        EP_TRY(ep_compiled_bind(c, inputs, &b));
        if (c->last && c->memo.count == EP_MEMO_BINDINGS) c->last = NULL; /* it may be the one that goes */
        ep_memo_add(&c->memo, b, hash);
    }
    *out = b;
    return EP_OK;
}

static ep_status call_checked(ep_compiled *c, const ep_tensor *const *inputs, ep_tensor **outputs) {
    const ep_probe *p = ep_probe_get();
    if (p) {
        ep_probe_span span = {.kind = EP_PROBE_GUARD, .name = "guards"};
        p->begin(p->self, &span);
    }
    ep_binding *b;
    ep_status s = find_or_bind(c, inputs, &b);
    if (p) p->end(p->self);
    EP_TRY(s);
    c->last = b;
    return answer(c, b, inputs, outputs);
}

static ep_status check_inputs(ep_compiled *c, const ep_tensor *const *inputs, ep_tensor **outputs) {
    ep_context *ctx = c->ctx;
    if (!outputs || (!inputs && c->input_count))
        return ep_fail(&ctx->err, EP_ERROR_INVALID_ARGUMENT, "%s is NULL", outputs ? "inputs" : "outputs");
    if (ctx->recorder) return ep_fail(&ctx->err, EP_ERROR_CAPTURE, "a compiled function cannot be captured");
    for (int i = 0; i < c->input_count; i++) {
        const ep_tensor *t = inputs[i];
        if (!t) return ep_fail(&ctx->err, EP_ERROR_INVALID_ARGUMENT, "input %d is NULL", i);
        if (t->device.kind != ctx->device.kind || t->device.index != ctx->device.index)
            return ep_fail(&ctx->err, EP_ERROR_DEVICE, "input %d is not on the context's device", i);
        if (!t->storage) return ep_fail(&ctx->err, EP_ERROR_CAPTURE, "input %d belongs to a capture that has ended", i);
    }
    return EP_OK;
}

static ep_status call(ep_compiled *c, const ep_tensor *const *inputs, ep_tensor **outputs) {
    EP_TRY(check_inputs(c, inputs, outputs));
    if (c->calls++ == 0) c->first_call_ns = ep_clock_ns();
    ep_binding *b = c->last;
    if (b && (b->fast || b->by_eager) && b->choice->decided && !ep_probe_get()) { /* the usual call */
        bool same = true;
        for (int k = 0; same && k < c->input_count; k++) same = ep_fact_holds(&b->facts[k], inputs[k]);
        bool eager = runner_of(c, b) == EP_RUN_EAGER;
        if (same && (eager ? b->by_eager : b->fast != NULL))
            return run_kept(c, b, eager ? NULL : b->fast, inputs, outputs);
    }
    return call_checked(c, inputs, outputs);
}

ep_status ep_compiled_call(ep_compiled *c, const ep_tensor *const *inputs, ep_tensor **outputs) {
    if (!c) return EP_ERROR_INVALID_ARGUMENT;
    bool outer;
    EP_TRY(ep_context_enter(c->ctx, &outer));
    ep_status status = call(c, inputs, outputs);
    ep_context_leave(c->ctx, outer);
    return status;
}

ep_status ep_compiled_wait(ep_compiled *c) {
    if (!c) return EP_ERROR_INVALID_ARGUMENT;
    ep_kernels_wait(&c->kernels);
    return EP_OK;
}

bool ep_compiled_settled(const ep_compiled *c) {
    return !c->last || c->last->state == EP_BINDING_EAGER ||
           (c->last->state == EP_BINDING_READY && c->last->choice->decided && c->last->attach != EP_ATTACH_PENDING &&
            c->last->attach != EP_ATTACH_NEW);
}

void ep_compiled_stats(const ep_compiled *c, ep_compile_stats *out) {
    *out = (ep_compile_stats){.cache_trouble = ""};
    if (!c) return;
    const ep_cache *cache = c->kernels.cache;
    if (cache) out->cache_trouble = ep_cache_unkept(cache, &out->builds_not_kept);
    if (cache && *ep_cache_trouble(cache)) out->cache_trouble = ep_cache_trouble(cache);
    ep_kernel_table *t = (ep_kernel_table *)(uintptr_t)&c->kernels;
    out->calls = c->calls;
    out->captures = c->captures;
    out->entries = (int64_t)c->memo.entry_count;
    out->recompiles = out->entries > 1 ? out->entries - 1 : 0;
    out->eager_calls = c->eager_calls;
    pthread_mutex_lock(&t->lock);
    out->kernels_generated = t->generated;
    out->kernels_from_disk = t->from_disk;
    out->build_failures = t->failures;
    if (t->ready_first_ns && c->first_call_ns) out->cold_us = (double)(t->ready_first_ns - c->first_call_ns) * 1e-3;
    pthread_mutex_unlock(&t->lock);
    out->waited_us = (double)c->waited_ns * 1e-3;
    out->packed_bytes = ep_pack_list_bytes(&c->packs);
    out->packed_freed_bytes = c->packs.freed;
}

static void report_kernel(const ep_kernel *k, ep_text *t) {
    static const char *const words[] = {"being built", "ready", "failed"};
    int state = atomic_load_explicit((atomic_int *)(uintptr_t)&k->state, memory_order_acquire);
    ep_text_printf(t, "kernel %s: %s%s", k->loop.name, words[state],
                   state == EP_KERNEL_READY && k->from_disk ? " (from the disk cache)" : "");
    if (state == EP_KERNEL_FAILED) ep_text_printf(t, ": %s", k->err.message);
    ep_text_char(t, '\n');
}

static void report_choice(const ep_choice *choice, ep_text *t) {
    static const struct {
        ep_runner who;
        const char *words;
    } ways[] = {
        {EP_RUN_COMPILED, "as in the plan"}, {EP_RUN_ATTACHED, "of packed weights"}, {EP_RUN_STEPPED, "by post-ops"}};
    ep_text_printf(t, "entry %d: %s\n", choice->entry, choice->why);
    for (int u = 0; choice->kept == EP_RUN_MIXED && u < choice->unit_count; u++) {
        const ep_choice_unit *x = &choice->units[u];
        ep_text_printf(t, "  %s:", x->name);
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++)
            if (x->best_ns[ways[w].who])
                ep_text_printf(t, " %s%s %.2f us;", ways[w].words, x->kept == ways[w].who ? " (kept)" : "",
                               (double)x->best_ns[ways[w].who] * 1e-3);
        t->data[t->len - 1] = '\n';
    }
}

const char *ep_compiled_report(ep_compiled *c) {
    if (!c) return "";
    ep_text *t = &c->report;
    ep_text_clear(t);
    for (size_t i = 0; i < c->memo.entry_count; i++) {
        const ep_entry *e = &c->memo.entries[i];
        ep_text_printf(t, "entry %zu: %d generated kernel%s%s%s\n", i, e->kernels, e->kernels == 1 ? "" : "s",
                       *e->failed ? "; made because a guard failed: " : "", e->failed);
        if (e->guards) ep_text_add(t, e->guards);
        if (e->reasons) ep_text_add(t, e->reasons);
    }
    for (size_t i = 0; i < c->kernels.count; i++) report_kernel(c->kernels.all[i], t);
    for (size_t i = 0; i < c->memo.choice_count; i++)
        if (c->memo.choices[i]->decided) report_choice(c->memo.choices[i], t);
    const ep_plan *plan = c->last ? c->last->plans[EP_RUN_COMPILED] : NULL;
    const ep_replay *replay = plan ? ep_plan_replay(plan) : NULL;
    int captured = replay ? ep_replay_captured(replay) : 0;
    if (captured)
        ep_text_printf(t, "replayed: %d run%s of the last sizes captured\n", captured, captured == 1 ? "" : "s");
    if (replay && replay->off) ep_text_printf(t, "no replay: %s\n", replay->why);
    if (c->packs.count || c->packs.freed)
        ep_text_printf(t, "packed weights: %lld bytes; freed, as no way that was kept reads them: %lld bytes\n",
                       (long long)ep_pack_list_bytes(&c->packs), (long long)c->packs.freed);
    const ep_cache *cache = c->kernels.cache;
    int64_t unkept;
    const char *why = cache ? ep_cache_unkept(cache, &unkept) : "";
    if (cache && *ep_cache_trouble(cache)) ep_text_printf(t, "no disk cache: %s\n", ep_cache_trouble(cache));
    if (*why) ep_text_printf(t, "cache: %s, %s not kept\n", why, unkept == 1 ? "a build is" : "builds are");
    return ep_text_str(t);
}

const char *ep_compiled_choice(const ep_compiled *c) {
    return c && c->last && c->last->choice && c->last->choice->decided ? c->last->choice->why : "";
}

/* Is a group of the binding's made by `way`? */
static bool uses_way(const ep_binding *b, ep_runner who, ep_runner way) {
    const ep_graph *g = b->from->captured.graph;
    if (who != EP_RUN_MIXED) return who == way;
    for (size_t i = 0; i < g->node_count; i++)
        if (g->nodes[i].group >= 0 && ep_choice_uses(b->choice, b->unit_of[i], way)) return true;
    return false;
}

ep_answer ep_compiled_answer(const ep_compiled *c) {
    const ep_binding *b = c ? c->last : NULL;
    if (!b || !b->choice || !ep_compiled_settled(c)) return EP_ANSWER_UNDECIDED;
    ep_runner who = runner_of(c, b);
    if (b->state == EP_BINDING_EAGER || who == EP_RUN_EAGER) return EP_ANSWER_EAGER;
    if (!b->plans[who]) return EP_ANSWER_PLAN;
    if (uses_way(b, who, EP_RUN_ATTACHED)) return EP_ANSWER_EPILOGUE;
    return uses_way(b, who, EP_RUN_STEPPED) ? EP_ANSWER_POST_OPS : EP_ANSWER_PLAN;
}

const char *ep_compiled_source(ep_compiled *c, size_t index, const char **name) {
    if (!c || index >= c->kernels.count) return NULL;
    ep_kernel *k = c->kernels.all[index];
    if (name) *name = k->loop.name;
    return atomic_load_explicit(&k->state, memory_order_acquire) == EP_KERNEL_PENDING || !k->source ? "" : k->source;
}
