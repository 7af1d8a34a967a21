/* What the op table and a machine say of one step of a block before it runs: a prediction, and the same as claims. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "guess.h"
#include "model/op/op.h"

/* One kernel of the step. `wide` is a GEMM; else pointwise. */
typedef struct unit {
    bool gemm;
    ep_work work;
} unit;

typedef struct sketch {
    const ep_block_request *q;
    int64_t rows, out;
    unit units[8];
    int count;
    int64_t ops, views;
} sketch;

/* How much longer than the bound a kernel may take before the guess counts as wrong: by mode, GEMMs and the rest.
 * Eager GEMMs read plain weights; tuned ones read packed ones. */
static const struct { double gemm, pointwise; } slack[EP_MODE_COUNT] = {{3.0, 3.5}, {3.0, 3.0}, {2.2, 2.5}};

static const double BUSY_ENOUGH = 0.85;

static ep_shape shape2(ep_dtype dtype, int64_t a, int64_t b) {
    return (ep_shape){.dtype = dtype, .ndim = 2, .sizes = {a, b}};
}

static ep_work linear_work(const sketch *s, int64_t k, int64_t n) {
    ep_dtype d = s->q->dtype;
    ep_shape in[3] = {shape2(d, s->rows, k), shape2(d, n, k), {.dtype = d, .ndim = 1, .sizes = {n}}};
    ep_shape out = shape2(d, s->rows, n);
    ep_work w = {0};
    ep_op_work(EP_OP_LINEAR, NULL, s->q->bias ? 3 : 2, in, &out, &w);
    return w;
}

static ep_work pointwise_work(const sketch *s, ep_op op, int count) {
    ep_shape x = shape2(s->q->dtype, s->rows, s->q->hidden), in[2] = {x, x};
    ep_work w = {0};
    ep_op_work(op, NULL, count, in, &x, &w);
    return w;
}

static ep_work gated_work(const sketch *s) {
    ep_attr attr = {.act = s->q->act};
    ep_shape x = shape2(s->q->dtype, s->rows, s->q->hidden), in[2] = {x, x};
    ep_work w = {0};
    ep_op_work(EP_OP_GATED, &attr, 2, in, &x, &w);
    return w;
}

static void add_unit(sketch *s, bool gemm, ep_work work) {
    s->units[s->count++] = (unit){gemm, work};
}

/* linear calls t and addmm or mm: three ops, of which one is a view, and one kernel. With no rows there is no product. */
static void add_linear(sketch *s, int64_t k, int64_t n) {
    add_unit(s, true, linear_work(s, k, n));
    s->ops += s->rows > 0 ? 3 : 2;
    s->views += 1;
}

/* A GEMM whose epilogue does what follows: the bytes between the two are neither written nor read. */
static void fold(ep_work *gemm, ep_work next, int64_t between) {
    gemm->flops += next.flops;
    gemm->bytes_written += next.bytes_written - between;
    gemm->bytes_read += next.bytes_read - between;
}

static void sketch_ops(sketch *s) {
    const ep_block_request *q = s->q;
    if (q->kind == EP_BLOCK_LINEAR) {
        add_linear(s, q->dim, s->out);
        return;
    }
    add_linear(s, q->dim, q->hidden);
    if (q->act != EP_ACT_NONE) {
        add_unit(s, false, pointwise_work(s, ep_act_op(q->act), 1));
        s->ops++;
    }
    if (q->kind == EP_BLOCK_GATED) {
        add_linear(s, q->dim, q->hidden);
        add_unit(s, false, pointwise_work(s, EP_OP_MUL, 2));
        s->ops++;
    }
    add_linear(s, q->hidden, s->out);
}

static void sketch_eager(sketch *s) {
    sketch_ops(s);
    if (s->rows == 0) s->views = s->ops; /* nothing runs a kernel */
}

/* Gate and up by a library, and one kernel for what stands between them and down. */
static void sketch_apart(sketch *s) {
    const ep_block_request *q = s->q;
    add_unit(s, true, linear_work(s, q->dim, q->hidden));
    add_unit(s, true, linear_work(s, q->dim, q->hidden));
    add_unit(s, false, gated_work(s));
    add_unit(s, true, linear_work(s, q->hidden, s->out));
}

/* GEMMs, and one generated kernel for what stands between them. Gate and up in one buffer are one GEMM. */
static void sketch_plan(sketch *s) {
    const ep_block_request *q = s->q;
    if (q->kind == EP_BLOCK_LINEAR) {
        add_unit(s, true, linear_work(s, q->dim, s->out));
        return;
    }
    bool gated = q->kind == EP_BLOCK_GATED;
    if (gated && !q->packed) {
        sketch_apart(s);
        return;
    }
    add_unit(s, true, linear_work(s, q->dim, gated ? 2 * q->hidden : q->hidden));
    if (gated)
        add_unit(s, false, gated_work(s));
    else if (q->act != EP_ACT_NONE)
        add_unit(s, false, pointwise_work(s, ep_act_op(q->act), 1));
    add_unit(s, true, linear_work(s, q->hidden, s->out));
}

/* Without an activation the gate's product is multiplied before its only store. */
static void sketch_post_ops(sketch *s) {
    sketch_plan(s);
    if (s->count != 4 || s->q->act != EP_ACT_NONE) return;
    int64_t middle = s->rows * s->q->hidden * (int64_t)ep_dtype_size(s->q->dtype);
    fold(&s->units[1].work, s->units[2].work, middle);
    s->units[2] = s->units[3];
    s->count = 3;
}

/* Two kernels: what follows the first GEMM is done on its tiles. */
static void sketch_tuned(sketch *s) {
    const ep_block_request *q = s->q;
    if (q->kind == EP_BLOCK_LINEAR) {
        add_unit(s, true, linear_work(s, q->dim, s->out));
        return;
    }
    ep_work up = linear_work(s, q->dim, q->hidden);
    int64_t element = (int64_t)ep_dtype_size(q->dtype), middle = s->rows * q->hidden * element;
    if (q->kind == EP_BLOCK_GATED) {
        ep_work gate = up;
        up.flops += gate.flops;
        up.bytes_read += gate.bytes_read - s->rows * q->dim * element;
        up.bytes_written += gate.bytes_written;
        fold(&up, gated_work(s), 2 * middle);
    } else if (q->act != EP_ACT_NONE)
        fold(&up, pointwise_work(s, ep_act_op(q->act), 1), middle);
    add_unit(s, true, up);
    add_unit(s, true, linear_work(s, q->hidden, s->out));
}

/* Few rows on a GPU: down follows in the same kernel; h is written and read once more. */
static void sketch_whole(sketch *s) {
    sketch_tuned(s);
    if (s->count != 2) return;
    s->units[0].work.flops += s->units[1].work.flops;
    s->units[0].work.bytes_read += s->units[1].work.bytes_read;
    s->units[0].work.bytes_written += s->units[1].work.bytes_written;
    s->count = 1;
}

static ep_status check_request(const ep_block_request *q, ep_error *err) {
    const struct {
        const char *name;
        int64_t value;
    } sizes[] = {{"batch", q->batch}, {"seq", q->seq}, {"dim", q->dim}, {"hidden", q->hidden}, {"out", q->out}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].value < 0 || sizes[i].value > INT32_MAX)
            return ep_fail(err, EP_ERROR_SHAPE, "%s is %lld; it must be 0 to %d", sizes[i].name,
                           (long long)sizes[i].value, INT32_MAX);
    if ((unsigned)q->mode >= EP_MODE_COUNT)
        return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "there is no mode %d", (int)q->mode);
    /* Keeps every product of three sizes and an element's width in 63 bits. */
    double most = (double)q->batch * (double)q->seq * (double)(q->hidden + q->dim + q->out) *
                  (double)(q->dim + q->hidden + q->out + 64);
    if (most > 1e17)
        return ep_fail(err, EP_ERROR_OVERFLOW, "a block of %.3g multiplications is too large to predict", most);
    return EP_OK;
}

/* On the CPU a launch is the op's own call; a plan is one call for all its launches. */
static double dispatch_us(const sketch *s, const ep_machine *m) {
    if (s->q->mode == EP_MODE_EAGER) return (double)s->ops * m->dispatch_ns * 1e-3 + s->count * m->launch_us;
    double launches = m->graph_launch_us > 0 ? m->graph_launch_us : s->count * m->launch_us;
    return m->dispatch_ns * 1e-3 * (1 + 0.3 * s->count) + launches;
}

/* Tile units outrun the caches that feed them: on an AMX processor GEMMs of a whole block reached 15 to 25 % of what the
 * units do by themselves. */
static double tile_slack(const sketch *s, const ep_machine *m) {
    ep_dtype d = s->q->dtype;
    bool tiles = s->q->device.kind == EP_DEVICE_CPU && m->gflops[d][1] > 6 * m->vector_gflops[1];
    return tiles && m->vector_gflops[1] > 0 ? 2.5 : 1;
}

static void add_times(const sketch *s, const ep_machine *m, ep_prediction *p) {
    int threads = s->q->threads;
    double memory_bound = 0;
    p->bound.us = p->bound.compute_us = p->bound.memory_us = 0;
    for (int i = 0; i < s->count; i++) {
        const unit *u = &s->units[i];
        ep_bound b = ep_machine_bound(m, &u->work, s->q->dtype, threads);
        p->bound.us += b.us;
        p->bound.compute_us += b.compute_us;
        p->bound.memory_us += b.memory_us;
        if (b.regime == EP_REGIME_MEMORY) memory_bound += b.us;
        p->low_us += b.us;
        double factor = u->gemm ? slack[s->q->mode].gemm : slack[s->q->mode].pointwise;
        if (u->gemm && b.regime == EP_REGIME_COMPUTE) factor *= tile_slack(s, m);
        p->high_us += b.us * factor + 1 + (threads != 1 ? m->fork_join_us : 0);
    }
    p->bound.regime = memory_bound > p->bound.us / 2 ? EP_REGIME_MEMORY : EP_REGIME_COMPUTE;
    p->dispatch_us = dispatch_us(s, m);
    bool cpu = s->q->device.kind == EP_DEVICE_CPU;
    /* As the analyses judge it: a device that is busy less than 85 % of the time waits for its host. On the CPU the two
     * take turns, elsewhere they run side by side. A kernel usually takes between its bound and the guess's upper end. */
    double usual = sqrt(p->low_us * p->high_us), pace = cpu ? usual + p->dispatch_us : fmax(usual, p->dispatch_us);
    bool overhead = usual < BUSY_ENOUGH * pace;
    p->low_us += cpu ? 0.5 * p->dispatch_us : 0;
    p->high_us += (cpu ? 3 : 2) * p->dispatch_us;
    /* An estimate by instruction set may be off either way. */
    if (!m->measured) p->low_us *= 0.5, p->high_us *= 2;
    p->regime = overhead ? EP_REGIME_OVERHEAD : p->bound.regime;
    if (isnan(p->bound.us)) p->regime = p->bound.regime = EP_REGIME_UNKNOWN;
}

typedef void (*sketch_fn)(sketch *);

/* Compiled on the CPU, the pointwise kernel becomes the first GEMM's epilogue where that is measured to be faster: then x
 * is read once, and no product makes a round trip. */
static bool may_attach(const ep_block_request *q) {
    return q->kind != EP_BLOCK_LINEAR && (q->kind == EP_BLOCK_GATED || q->act != EP_ACT_NONE) && q->hidden > 1 &&
           q->device.kind == EP_DEVICE_CPU && q->specialize == EP_SPECIALIZE_GENERIC;
}

/* A plan that generated nothing, and has no epilogue to be measured, has eager's kernels and is kept unmeasured. */
static bool may_stay_eager(const ep_block_request *q) {
    bool generates = q->kind == EP_BLOCK_GATED && q->act != EP_ACT_NONE;
    return q->rounding == EP_ROUNDING_EAGER && (generates || may_attach(q));
}

/* On the CPU a tuned block's gate and up are a library's where that is measured to be faster. Where 16-bit values keep
 * their f32 bits until the store, a library that stores them is no choice. */
static bool may_go_apart(const ep_block_request *q) {
    return q->kind == EP_BLOCK_GATED && q->device.kind == EP_DEVICE_CPU &&
           (q->rounding == EP_ROUNDING_EAGER || q->dtype == EP_DTYPE_F32);
}

/* The way to be expected, which is the plan's where it is open, and what else measuring may choose (NULL: nothing). */
typedef struct ways {
    sketch_fn usual, epilogue, eager, apart;
} ways;

static ways find_ways(const ep_block_request *q) {
    static const sketch_fn by_mode[EP_MODE_COUNT] = {sketch_eager, sketch_plan, sketch_tuned};
    static const sketch_fn by_answer[] = {[EP_ANSWER_UNDECIDED] = sketch_plan,
                                          [EP_ANSWER_PLAN] = sketch_plan,
                                          [EP_ANSWER_POST_OPS] = sketch_post_ops,
                                          [EP_ANSWER_EPILOGUE] = sketch_tuned,
                                          [EP_ANSWER_EAGER] = sketch_eager};
    ways w = {.usual = by_mode[q->mode]};
    if (q->mode == EP_MODE_TUNED && q->tuned_pair == EP_TUNED_WHOLE) w.usual = sketch_whole;
    if (q->mode == EP_MODE_TUNED && q->tuned_pair == EP_TUNED_APART)
        w.usual = q->kind == EP_BLOCK_GATED ? sketch_apart : sketch_plan;
    if (q->mode == EP_MODE_TUNED && q->tuned_pair == EP_TUNED_UNDECIDED && may_go_apart(q)) w.apart = sketch_apart;
    if (q->mode != EP_MODE_COMPILED) return w;
    bool open = q->answer == EP_ANSWER_UNDECIDED;
    w.usual = by_answer[q->answer];
    if (open && may_attach(q)) w.epilogue = sketch_tuned;
    if (open && may_stay_eager(q)) w.eager = sketch_eager;
    return w;
}

static ep_prediction sum_up(sketch *s, const ep_machine *machine) {
    ep_prediction p = {
        .ops = s->ops, .views = s->views, .epilogue_kernels = -1, .eager_kernels = -1, .apart_kernels = -1};
    for (int i = 0; i < s->count; i++) {
        const unit *u = &s->units[i];
        /* What has no element launches nothing. */
        if (u->work.bytes_written == 0) {
            s->units[i] = s->units[--s->count];
            i--;
            continue;
        }
        p.kernels++;
        p.gemms += u->gemm;
        p.pointwise += !u->gemm;
        p.work.flops += u->work.flops;
        p.work.bytes_read += u->work.bytes_read;
        p.work.bytes_written += u->work.bytes_written;
    }
    int64_t bytes = p.work.bytes_read + p.work.bytes_written;
    p.launches = p.kernels;
    p.kernel_range = (ep_count_range){p.kernels, p.kernels};
    p.gemm_range = (ep_count_range){p.gemms, p.gemms};
    p.pointwise_range = (ep_count_range){p.pointwise, p.pointwise};
    p.byte_range = (ep_count_range){bytes, bytes};
    add_times(s, machine, &p);
    return p;
}

static void widen(ep_count_range *r, ep_count_range by) {
    if (by.low < r->low) r->low = by.low;
    if (by.high > r->high) r->high = by.high;
}

/* The other way's figures into the ranges; returns its kernels. */
static int64_t also(ep_prediction *p, const ep_prediction *other) {
    widen(&p->kernel_range, other->kernel_range);
    widen(&p->gemm_range, other->gemm_range);
    widen(&p->pointwise_range, other->pointwise_range);
    widen(&p->byte_range, other->byte_range);
    p->low_us = fmin(p->low_us, other->low_us);
    p->high_us = fmax(p->high_us, other->high_us);
    if (other->bound.us < p->bound.us) p->bound = other->bound; /* else a guess could end below what is possible */
    return other->kernels;
}

ep_status ep_predict_block(const ep_block_request *request, const ep_machine *machine, ep_error *err,
                           ep_prediction *out) {
    if (!request || !machine || !out)
        return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "request, machine and result must not be NULL");
    EP_TRY(check_request(request, err));
    const ways w = find_ways(request);
    const sketch empty = {
        .q = request, .rows = request->batch * request->seq, .out = request->out ? request->out : request->dim};
    sketch s = empty;
    w.usual(&s);
    if (request->mode == EP_MODE_COMPILED) s.ops = s.views = 0; /* one call, whoever answers it */
    ep_prediction p = sum_up(&s, machine), other;
    const struct {
        sketch_fn way;
        int64_t *kernels;
    } others[] = {{w.epilogue, &p.epilogue_kernels}, {w.eager, &p.eager_kernels}, {w.apart, &p.apart_kernels}};
    for (size_t i = 0; i < sizeof others / sizeof *others && p.kernels; i++) {
        if (!others[i].way) continue;
        s = empty;
        others[i].way(&s);
        other = sum_up(&s, machine);
        *others[i].kernels = also(&p, &other);
    }
    *out = p;
    return EP_OK;
}

static void print_time(ep_text *t, const char *words, const ep_prediction *p) {
    double scale = p->high_us < 1000 ? 1 : 1e-3;
    ep_text_printf(t, "  median %s in %.3g%s..%.3g%s\n", words, p->low_us * scale, scale == 1 ? "us" : "ms",
                   p->high_us * scale, scale == 1 ? "us" : "ms");
}

static void print_count(ep_text *t, const char *what, ep_count_range r) {
    if (r.low < r.high)
        ep_text_printf(t, "  %s in %lld..%lld\n", what, (long long)r.low, (long long)r.high);
    else
        ep_text_printf(t, "  %s = %lld\n", what, (long long)r.high);
}

static const char *act_word(ep_act act) {
    static const char *const words[EP_ACT_COUNT] = {"", "gelu", "gelu", "silu", "relu"};
    return (unsigned)act < EP_ACT_COUNT ? words[act] : "";
}

ep_status ep_guess_predict(const ep_block_request *request, const ep_machine *machine, ep_error *err, ep_guess **out) {
    ep_prediction p;
    if (!out) return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "the result must not be NULL");
    EP_TRY(ep_predict_block(request, machine, err, &p));
    bool cpu = request->device.kind == EP_DEVICE_CPU, eager = request->mode == EP_MODE_EAGER;
    bool gated = request->kind == EP_BLOCK_GATED && *act_word(request->act);
    bool fused = gated && !eager && p.eager_kernels < 0 && request->answer != EP_ANSWER_EAGER;
    ep_text t = {0};
    ep_text_add(&t, "region step\n");
    print_count(&t, "kernels", p.kernel_range);
    print_count(&t, "kernels matching \"gemm\"", p.gemm_range);
    print_count(&t, "kernels matching \"pointwise\"", p.pointwise_range);
    if (eager) {
        ep_text_printf(&t, "  launches = %lld\n", (long long)p.launches);
        ep_text_printf(&t, "  ops = %lld\n  views = %lld\n", (long long)p.ops, (long long)p.views);
        ep_text_add(&t, "  op t launches = 0\n");
    } else if (fused && p.kernels)
        ep_text_printf(&t, "  fused %s mul\n", act_word(request->act));
    ep_text_add(&t, "  copies = 0\n  memsets = 0\n");
    if (!eager) ep_text_add(&t, "  recompiles = 0\n");
    double fewest = (double)p.byte_range.low, most = (double)p.byte_range.high;
    if (fewest < most)
        ep_text_printf(&t, "  bytes in %.4gMB..%.4gMB\n", fewest * 0.98e-6, most * 1.02e-6);
    else if (most > 0)
        ep_text_printf(&t, "  bytes ~ %.4gMB +- 2%%\n", most * 1e-6);
    if (isfinite(p.low_us) && isfinite(p.high_us) && p.kernels) print_time(&t, cpu ? "time" : "device time", &p);
    if (p.regime != EP_REGIME_UNKNOWN && p.kernels) ep_text_printf(&t, "  bound = %s\n", ep_regime_name(p.regime));
    ep_status status = t.failed ? ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory for a guess")
                                : ep_guess_parse(ep_text_str(&t), t.len, err, out);
    ep_text_free(&t);
    return status;
}
