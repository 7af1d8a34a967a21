/* Which way a tuned product takes: our kernel over packed weights, or oneDNN over the plain ones with a pass of ours
 * behind it, where that was measured faster. Measured for each class of row counts of a pack, by the first call of the
 * class that nobody records, and again where later calls do not fit what was measured. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/probe.h"
#include "cpu.h"
#include "tuned_trial.h"

/* Measured at most: more rows repeat the same work. But a small product takes the threads that its own rows repay. */
enum { ROWS = 512, WORK = 1 << 26 };

/* Rows up to 1, 2, 4, 8, ... */
static int class_of(int64_t m) {
    int c = m <= 1 ? 0 : 64 - __builtin_clzll((unsigned long long)(m - 1));
    return c < EP_TUNED_CLASSES ? c : EP_TUNED_CLASSES - 1;
}

void ep_tuned_choices_create(ep_packed *p, const ep_pack_request *q) {
    const char *rule = getenv("EPILOGUE_TUNED");
    if (!q->weights_stay || p->k == 0 || p->n == 0 || (rule && strcmp(rule, "kernels") == 0)) return;
    p->choices = calloc(EP_TUNED_CLASSES, sizeof *p->choices); /* without them our kernel is used */
    p->plain = *q;
    for (int c = 0; p->choices && rule && strcmp(rule, "onednn") == 0 && c < EP_TUNED_CLASSES; c++)
        p->choices[c] = (ep_tuned_choice){.made = true, .way = EP_WAY_ONEDNN};
}

static ep_tensor matrix(const ep_tuned_call *call, void *data, int64_t row) {
    ep_tensor t = {.dtype = call->dtype, .ndim = 2, .data = data, .numel = call->m * call->weights->n};
    t.sizes[0] = call->m;
    t.sizes[1] = call->weights->n;
    t.strides[0] = row;
    t.strides[1] = 1;
    return t;
}

static ep_gemm product(const ep_tuned_call *call, bool second, void *out, int64_t out_row) {
    const ep_pack_request *w = &call->weights->plain;
    return (ep_gemm){.batch = 1,
                     .m = call->m,
                     .n = w->n,
                     .k = w->k,
                     .dtype = call->dtype,
                     .out_dtype = call->dtype,
                     .a = call->x,
                     .a_row = call->x_row,
                     .a_col = call->x_col,
                     .b = second ? w->w1 : w->w0,
                     .b_row = second ? w->w1_col : w->w0_col,
                     .b_col = second ? w->w1_row : w->w0_row,
                     .out = out,
                     .out_row = out_row,
                     .bias = second ? call->bias1 : call->bias0,
                     .bias_stride = second ? call->bias1_stride : call->bias0_stride,
                     .alpha = 1,
                     .rounding = call->rounding};
}

/* Gate into scratch, up into out, and act(gate) * up in place of up. */
static ep_status run_pair(ep_backend *b, const ep_tuned_call *call, ep_error *err) {
    ep_storage *s;
    int64_t n = call->weights->n;
    EP_TRY(ep_cpu_pool_storage(ep_cpu_of(b)->pool, (size_t)(call->m * n) * ep_dtype_size(call->dtype), err, &s));
    ep_gemm gate = product(call, false, s->data, n), up = product(call, true, call->out, call->out_row);
    ep_status status = ep_cpu_gemm(b, &gate, err);
    if (status == EP_OK) status = ep_cpu_gemm(b, &up, err);
    ep_tensor g = matrix(call, s->data, n), u = matrix(call, call->out, call->out_row), out = u;
    if (status == EP_OK) status = ep_tuned_gated(b->threads, call->act, call->rounding, &g, &u, &out, err);
    ep_storage_release(s);
    return status;
}

static ep_status run_onednn(ep_backend *b, const ep_tuned_call *call, ep_error *err) {
    if (call->weights->pair) return run_pair(b, call, err);
    ep_gemm g = product(call, false, call->out, call->out_row);
    g.act = call->act;
    g.residual = call->residual;
    g.residual_row = call->residual_row;
    return ep_cpu_gemm(b, &g, err);
}

static ep_status run_kernel(ep_backend *b, const ep_tuned_call *call, ep_error *err) {
    return ep_tuned_run(ep_cpu_of(b)->tuned, b->threads, call, err);
}

static ep_status run_way(ep_backend *b, const ep_tuned_call *call, ep_tuned_way way, ep_error *err) {
    return way == EP_WAY_ONEDNN ? run_onednn(b, call, err) : run_kernel(b, call, err);
}

/* How often the system took a core from any thread of this process that wanted to go on. */
static int64_t switches(void) {
    struct rusage r;
    return getrusage(RUSAGE_SELF, &r) == 0 ? r.ru_nivcsw : 0;
}

/* Both ways in turn until the trial has its winner. */
static ep_status measure(ep_backend *b, const ep_tuned_call *call, ep_tuned_choice *c, ep_error *err) {
    ep_tuned_call part = *call;
    int64_t row_work = call->weights->n * call->weights->k * (call->weights->pair ? 2 : 1);
    int64_t most = row_work < WORK / ROWS ? WORK / row_work : ROWS;
    if (part.m > most) part.m = most;
    ep_trial trial = {0};
    int64_t ns[EP_WAY_COUNT] = {0}, taken;
    do {
        taken = switches();
        ep_tuned_way first = ep_trial_first(&trial);
        for (int w = 0; w < EP_WAY_COUNT; w++) {
            ep_tuned_way way = w == 0 ? first : (ep_tuned_way)(EP_WAY_ONEDNN - first);
            if (ep_trial_is_short(&trial)) EP_TRY(run_way(b, &part, way, err));
            int64_t t = ep_clock_ns();
            EP_TRY(run_way(b, &part, way, err));
            ns[way] = ep_clock_ns() - t;
        }
        taken = switches() - taken;
    } while (!ep_trial_add(&trial, ns, taken));
    *c = (ep_tuned_choice){.made = true,
                           .way = ep_trial_winner(&trial),
                           .m = part.m,
                           .part = part.m < call->m,
                           .doubtful = trial.doubtful,
                           .trials = c->trials + 1};
    for (int w = 0; w < EP_WAY_COUNT; w++) c->us[w] = (double)trial.best_ns[w] * 1e-3;
    return EP_OK;
}

/* Where there is no choice for this call, our kernel. */
static bool may_choose(const ep_tuned_call *call) {
    const ep_packed *w = call->weights;
    bool stored = w->pair && call->rounding == EP_ROUNDING_FEWEST && call->dtype != EP_DTYPE_F32;
    bool in_place = call->out == call->x || call->out == call->residual;
    return !call->hook && !call->x_packed && !call->out_packed && call->dtype == w->dtype && !stored && !in_place;
}

ep_status ep_cpu_tuned(ep_backend *b, const ep_tuned_call *call, ep_error *err) {
    ep_cpu_state *s = ep_cpu_of(b);
    if (!s->tuned) EP_TRY(ep_tuned_scratch_create(err, &s->tuned));
    const ep_packed *w = call->weights;
    if (!w || !w->choices || call->m < 1) return run_kernel(b, call, err);
    ep_tuned_choice *c = &w->choices[class_of(call->m)];
    bool chooses = may_choose(call), recorded = ep_probe_get() != NULL;
    if (chooses && !recorded && (!c->made || c->again)) EP_TRY(measure(b, call, c, err));
    ep_tuned_way way = chooses ? c->way : EP_WAY_KERNEL;
    if (recorded || call->hook || way != c->way || !ep_watch_due(c)) return run_way(b, call, way, err);
    int64_t t = ep_clock_ns();
    EP_TRY(run_way(b, call, way, err));
    ep_watch_note(c, call->m, ep_clock_ns() - t);
    return EP_OK;
}

/* Our kernel is the way, and the next call measures nothing. */
static bool stays_kernel(const ep_packed *p, int64_t m) {
    if (!p->choices) return true;
    const ep_tuned_choice *c = &p->choices[class_of(m)];
    return c->made && c->way == EP_WAY_KERNEL && (!c->again || ep_probe_get());
}

ep_tuned_pair ep_tuned_pair_way(const ep_packed *p, int64_t m) {
    const ep_tuned_choice *c = p->choices ? &p->choices[class_of(m)] : NULL;
    if (c && !c->made) return EP_TUNED_UNDECIDED;
    return c && c->way == EP_WAY_ONEDNN ? EP_TUNED_APART : EP_TUNED_FUSED;
}

size_t ep_tuned_hand_bytes(const ep_packed *first, const ep_packed *next, int64_t m) {
    return stays_kernel(first, m) && stays_kernel(next, m) ? ep_tuned_packed_x_bytes(first, next, m) : 0;
}

size_t ep_tuned_choice_text(const ep_packed *p, char *out, size_t size) {
    size_t at = 0;
    if (size) *out = 0;
    for (int c = 0; p->choices && c < EP_TUNED_CLASSES; c++) {
        const ep_tuned_choice *k = &p->choices[c];
        if (!k->made || k->m == 0 || at >= size) continue;
        bool last = c + 1 == EP_TUNED_CLASSES;
        bool onednn = k->way == EP_WAY_ONEDNN;
        char rows[32] = "";
        if (k->part) snprintf(rows, sizeof rows, " for %lld rows", (long long)k->m);
        int n = snprintf(out + at, size - at, "M %s %lld: %s, %.1f us%s; %s %.1f us%s\n", last ? "beyond" : "up to",
                         1LL << (c - last), onednn ? "oneDNN, plain weights" : "our kernel", k->us[k->way], rows,
                         onednn ? "our kernel" : "oneDNN", k->us[!onednn], k->doubtful ? " (beside other work)" : "");
        at += n > 0 ? (size_t)n : 0;
    }
    return at < size ? at : size ? size - 1 : 0;
}
