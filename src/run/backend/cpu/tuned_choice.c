/* Which way a tuned product takes: our kernel over packed weights, or oneDNN, over the plain ones or over a second pack in
 * its own order, with a pass of ours behind it, where that was measured faster. Measured for each class of row counts of a pack, by the first call of the
 * class that nobody records, and again where later calls do not fit what was measured. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/probe.h"
#include "base/text.h"
#include "gemm.h"
#include "tuned_trial.h"

/* Measured at most: more rows repeat the same work. But a small product takes the threads that its own rows repay. */
enum { ROWS = 512, WORK = 1 << 26 };

/* Larger weights are not packed twice: our kernel was ahead of oneDNN's there wherever it was measured. */
enum { PACK_BYTES = 2 << 20 };

/* Rows up to 1, 2, 4, 8, ... */
static int class_of(int64_t m) {
    int c = m <= 1 ? 0 : 64 - __builtin_clzll((unsigned long long)(m - 1));
    return c < EP_TUNED_CLASSES ? c : EP_TUNED_CLASSES - 1;
}

/* What a class of row counts has besides what the kernels' header tells. */
typedef struct own_weights {
    ep_gemm_weights *order[2]; /* in oneDNN's own order; of a choice that takes them, or while it is measured */
    bool made;                 /* they were asked for; what is NULL is not to be had */
    bool taken;
    double plain_us, packed_us; /* the fastest runs of oneDNN's both; 0: not to be had */
} own_weights;
typedef struct choices {
    own_weights own[EP_TUNED_CLASSES];
    ep_tuned_choice all[EP_TUNED_CLASSES]; /* where a pack points */
} choices;

static choices *choices_of(const ep_packed *p) {
    return (choices *)(void *)((char *)p->choices - offsetof(choices, all));
}

void ep_tuned_choices_create(ep_packed *p, const ep_pack_request *q) {
    const char *rule = getenv("EPILOGUE_TUNED");
    if (!q->weights_stay || p->k == 0 || p->n == 0 || (rule && strcmp(rule, "kernels") == 0)) return;
    bool packed = rule && strcmp(rule, "packed") == 0, onednn = packed || (rule && strcmp(rule, "onednn") == 0);
    choices *c = calloc(1, sizeof *c);
    p->plain = *q;
    if (!c) return; /* without them our kernel is used */
    p->choices = c->all;
    for (int i = 0; onednn && i < EP_TUNED_CLASSES; i++) {
        c->all[i] = (ep_tuned_choice){.made = true, .way = EP_WAY_ONEDNN};
        c->own[i].taken = packed;
    }
}

static void drop_own(own_weights *own) {
    for (int i = 0; i < 2; i++) ep_gemm_weights_free(own->order[i]);
    *own = (own_weights){0};
}

void ep_tuned_choices_free(ep_packed *p) {
    if (!p->choices) return;
    for (int c = 0; c < EP_TUNED_CLASSES; c++) drop_own(&choices_of(p)->own[c]);
    free(choices_of(p));
}

size_t ep_tuned_choices_bytes(const ep_packed *p) {
    size_t bytes = 0;
    for (int c = 0; p->choices && c < EP_TUNED_CLASSES; c++)
        for (int i = 0; i < 2; i++) bytes += ep_gemm_weights_bytes(choices_of(p)->own[c].order[i]);
    return bytes;
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
static ep_status run_pair(ep_backend *b, const ep_tuned_call *call, ep_gemm_weights *const order[2], ep_error *err) {
    ep_storage *s;
    int64_t n = call->weights->n;
    EP_TRY(ep_cpu_pool_storage(ep_cpu_of(b)->pool, (size_t)(call->m * n) * ep_dtype_size(call->dtype), err, &s));
    ep_gemm gate = product(call, false, s->data, n), up = product(call, true, call->out, call->out_row);
    ep_status status = ep_cpu_gemm_packed(b, &gate, order[0], err);
    if (status == EP_OK) status = ep_cpu_gemm_packed(b, &up, order[1], err);
    ep_tensor g = matrix(call, s->data, n), u = matrix(call, call->out, call->out_row), out = u;
    if (status == EP_OK) status = ep_tuned_gated(b->threads, call->act, call->rounding, &g, &u, &out, err);
    ep_storage_release(s);
    return status;
}

static ep_status run_onednn(ep_backend *b, const ep_tuned_call *call, ep_gemm_weights *const order[2], ep_error *err) {
    if (call->weights->pair) return run_pair(b, call, order, err);
    ep_gemm g = product(call, false, call->out, call->out_row);
    g.act = call->act;
    g.residual = call->residual;
    g.residual_row = call->residual_row;
    return ep_cpu_gemm_packed(b, &g, order[0], err);
}

/* Weights in oneDNN's own order, for products like this call's. */
static ep_status make_own(ep_backend *b, const ep_tuned_call *call, own_weights *own, ep_error *err) {
    own->made = true;
    for (int i = 0; i < (call->weights->pair ? 2 : 1); i++) {
        ep_gemm g = product(call, i, call->out, call->out_row);
        EP_TRY(ep_cpu_gemm_reorder(b, &g, err, &own->order[i]));
    }
    return EP_OK;
}

/* own: of the class; a trial runs a part of the call's rows, which may be of another one. */
static ep_status run_way(ep_backend *b, const ep_tuned_call *call, ep_trial_way way, own_weights *own, ep_error *err) {
    static ep_gemm_weights *const none[2];
    if (way == EP_TRIAL_KERNEL) return ep_tuned_run(ep_cpu_of(b)->tuned, b->threads, call, err);
    if (way == EP_TRIAL_PLAIN) return run_onednn(b, call, none, err);
    if (!own->made) EP_TRY(make_own(b, call, own, err));
    return run_onednn(b, call, own->order, err);
}

/* One round: each way that there is, once; in ns what it took. */
static ep_status run_round(ep_backend *b, const ep_tuned_call *call, const ep_trial *trial, own_weights *own,
                           int64_t ns[EP_TRIAL_WAYS], ep_error *err) {
    for (int i = 0; i < EP_TRIAL_WAYS; i++) {
        ep_trial_way way = (ep_trial_way)(((int)ep_trial_first(trial) + i) % EP_TRIAL_WAYS);
        ns[way] = 0;
        if (way == EP_TRIAL_PACKED && !own->order[0]) continue;
        if (ep_trial_is_short(trial)) EP_TRY(run_way(b, call, way, own, err));
        int64_t t = ep_clock_ns();
        EP_TRY(run_way(b, call, way, own, err));
        ns[way] = ep_clock_ns() - t;
    }
    return EP_OK;
}

static void choose(const ep_trial *t, ep_tuned_choice *c, own_weights *own) {
    ep_trial_way way = ep_trial_winner(t);
    if (way != EP_TRIAL_PACKED) drop_own(own);
    own->taken = way == EP_TRIAL_PACKED;
    own->plain_us = (double)t->best_ns[EP_TRIAL_PLAIN] * 1e-3;
    own->packed_us = (double)t->best_ns[EP_TRIAL_PACKED] * 1e-3;
    c->made = true;
    c->way = way == EP_TRIAL_KERNEL ? EP_WAY_KERNEL : EP_WAY_ONEDNN;
    c->us[EP_WAY_KERNEL] = (double)t->best_ns[EP_TRIAL_KERNEL] * 1e-3;
    c->us[EP_WAY_ONEDNN] = own->taken ? own->packed_us : own->plain_us;
    c->doubtful = t->doubtful;
}

/* All ways in turn until the trial has its winner. */
static ep_status measure(ep_backend *b, const ep_tuned_call *call, ep_tuned_choice *c, ep_error *err) {
    ep_tuned_call part = *call;
    own_weights *own = &choices_of(call->weights)->own[class_of(call->m)];
    int64_t row_work = call->weights->n * call->weights->k * (call->weights->pair ? 2 : 1);
    int64_t most = row_work < WORK / ROWS ? WORK / row_work : ROWS;
    if (part.m > most) part.m = most;
    bool small = row_work * (int64_t)ep_dtype_size(call->dtype) <= PACK_BYTES;
    if (small && !own->made) EP_TRY(make_own(b, &part, own, err));
    ep_trial trial = {0};
    int64_t ns[EP_TRIAL_WAYS], taken;
    do {
        taken = ep_clock_switches();
        EP_TRY(run_round(b, &part, &trial, own, ns, err));
        taken = ep_clock_switches() - taken;
    } while (!ep_trial_add(&trial, ns, taken));
    *c = (ep_tuned_choice){.m = part.m, .part = part.m < call->m, .trials = c->trials + 1};
    choose(&trial, c, own);
    return EP_OK;
}

/* Where there is no choice for this call, our kernel. */
static bool may_choose(const ep_tuned_call *call) {
    const ep_packed *w = call->weights;
    bool stored = w->pair && call->rounding == EP_ROUNDING_FEWEST && call->dtype != EP_DTYPE_F32;
    bool in_place = call->out == call->x || call->out == call->residual;
    return !call->hook && !call->x_packed && !call->out_packed && call->dtype == w->dtype && !stored && !in_place;
}

static ep_trial_way way_of(const ep_packed *w, int class) {
    if (w->choices[class].way == EP_WAY_KERNEL) return EP_TRIAL_KERNEL;
    return choices_of(w)->own[class].taken ? EP_TRIAL_PACKED : EP_TRIAL_PLAIN;
}

ep_status ep_cpu_tuned(ep_backend *b, const ep_tuned_call *call, ep_error *err) {
    ep_cpu_state *s = ep_cpu_of(b);
    if (!s->tuned) EP_TRY(ep_tuned_scratch_create(err, &s->tuned));
    const ep_packed *w = call->weights;
    if (!w || !w->choices || call->m < 1) return run_way(b, call, EP_TRIAL_KERNEL, NULL, err);
    int class = class_of(call->m);
    ep_tuned_choice *c = &w->choices[class];
    own_weights *own = &choices_of(w)->own[class];
    bool chooses = may_choose(call), recorded = ep_probe_get() != NULL;
    if (chooses && !recorded && (!c->made || c->again)) EP_TRY(measure(b, call, c, err));
    ep_trial_way way = chooses ? way_of(w, class) : EP_TRIAL_KERNEL;
    if (recorded || call->hook || way != way_of(w, class) || !ep_watch_due(c)) return run_way(b, call, way, own, err);
    int64_t t = ep_clock_ns();
    EP_TRY(run_way(b, call, way, own, err));
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
    static const char *const names[EP_TRIAL_WAYS] = {"our kernel", "oneDNN, plain weights", "oneDNN, packed weights"};
    ep_text t = {0};
    for (int c = 0; p->choices && c < EP_TUNED_CLASSES; c++) {
        const ep_tuned_choice *k = &p->choices[c];
        const own_weights *own = &choices_of(p)->own[c];
        if (!k->made || k->m == 0) continue;
        bool last = c + 1 == EP_TUNED_CLASSES;
        const double us[EP_TRIAL_WAYS] = {k->us[EP_WAY_KERNEL], own->plain_us, own->packed_us};
        ep_trial_way way = way_of(p, c);
        ep_text_printf(&t, "M %s %lld: %s, %.1f us", last ? "beyond" : "up to", 1LL << (c - last), names[way], us[way]);
        if (k->part) ep_text_printf(&t, " for %lld rows", (long long)k->m);
        for (int w = 0; w < EP_TRIAL_WAYS; w++)
            if (w != (int)way && us[w] > 0) ep_text_printf(&t, "; %s %.1f us", names[w], us[w]);
        ep_text_printf(&t, "%s\n", k->doubtful ? " (beside other work)" : "");
    }
    size_t len = size == 0 ? 0 : t.len < size ? t.len : size - 1;
    if (size) memcpy(out, ep_text_str(&t), len), out[len] = 0;
    ep_text_free(&t);
    return len;
}
