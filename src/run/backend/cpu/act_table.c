/* Tables filled once by the fastest row of the dtype; every ISA gives the same bits. */
#include "act_table.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "model/tensor/tensor.h"
#include "tuned.h"

enum { ENTRIES = 65536, TRIED = 16384, TRIES = 9 };

typedef struct table {
    pthread_once_t once;
    const float *values;
} table;

/* X(dtype, act): what has tables. */
#define EACH_TABLE(X) X(BF16, GELU_TANH) X(BF16, GELU_ERF) X(BF16, SILU) X(F16, GELU_TANH) X(F16, GELU_ERF) X(F16, SILU)

static const float *filled(void (*fill)(ep_act act, float *out), int columns, ep_act act) {
    float *t = aligned_alloc(64, (size_t)columns * ENTRIES * sizeof *t);
    if (t) fill(act, t);
    return t;
}

#define DEFINE(DTYPE, ACT)                                                                                             \
    static table act_##DTYPE##_##ACT = {PTHREAD_ONCE_INIT, NULL}, pair_##DTYPE##_##ACT = {PTHREAD_ONCE_INIT, NULL};    \
    static void fill_act_##DTYPE##_##ACT(void) {                                                                       \
        const ep_tuned_row *row = ep_tuned_select(EP_DTYPE_##DTYPE, ep_cpu_get()->isa);                                \
        act_##DTYPE##_##ACT.values = filled(row->fill_table, 1, EP_ACT_##ACT);                                         \
    }                                                                                                                  \
    static void fill_pair_##DTYPE##_##ACT(void) {                                                                      \
        const ep_tuned_row *row = ep_tuned_select(EP_DTYPE_##DTYPE, ep_cpu_get()->isa);                                \
        pair_##DTYPE##_##ACT.values = filled(row->fill_pairs, 2, EP_ACT_##ACT);                                        \
    }
EACH_TABLE(DEFINE)

const float *ep_act_table(ep_dtype dtype, ep_act act) {
#define FIND_ACT(DTYPE, ACT)                                                                                           \
    if (dtype == EP_DTYPE_##DTYPE && act == EP_ACT_##ACT) {                                                            \
        pthread_once(&act_##DTYPE##_##ACT.once, fill_act_##DTYPE##_##ACT);                                             \
        return act_##DTYPE##_##ACT.values;                                                                             \
    }
    EACH_TABLE(FIND_ACT)
    return NULL;
}

static const uint16_t *as_words(const float *values) {
    uint16_t *w =
        values ? aligned_alloc(64, (ENTRIES + 32) * sizeof *w) : NULL; /* a lookup reads the word behind too */
    for (int i = 0; w && i < ENTRIES + 32; i++)
        ep_element_store(EP_DTYPE_F16, w + i, (double)values[i & (ENTRIES - 1)]);
    return w;
}

/* X(act): what has tables of f16 words, and of slopes alone, each made once from another table. */
#define EACH_ACT(X) X(GELU_TANH) X(GELU_ERF) X(SILU)
#define DEFINE_ONCE(what, TYPE, ACT, MADE)                                                                             \
    static pthread_once_t what##_once_##ACT = PTHREAD_ONCE_INIT;                                                       \
    static const TYPE *what##_##ACT;                                                                                   \
    static void fill_##what##_##ACT(void) {                                                                            \
        what##_##ACT = MADE;                                                                                           \
    }
#define FIND_ONCE(what, ACT)                                                                                           \
    if (act == EP_ACT_##ACT) {                                                                                         \
        pthread_once(&what##_once_##ACT, fill_##what##_##ACT);                                                         \
        return what##_##ACT;                                                                                           \
    }

#define DEFINE_WORDS(ACT) DEFINE_ONCE(words, uint16_t, ACT, as_words(ep_act_table(EP_DTYPE_F16, EP_ACT_##ACT)))
EACH_ACT(DEFINE_WORDS)

const uint16_t *ep_act_words(ep_dtype dtype, ep_act act) {
    if (dtype != EP_DTYPE_F16 || !ep_tuned_select(dtype, ep_cpu_get()->isa)->gated_words) return NULL;
#define FIND_WORDS(ACT) FIND_ONCE(words, ACT)
    EACH_ACT(FIND_WORDS)
    return NULL;
}

const float *ep_pair_table(ep_dtype dtype, ep_act act) {
#define FIND_PAIR(DTYPE, ACT)                                                                                          \
    if (dtype == EP_DTYPE_##DTYPE && act == EP_ACT_##ACT) {                                                            \
        pthread_once(&pair_##DTYPE##_##ACT.once, fill_pair_##DTYPE##_##ACT);                                           \
        return pair_##DTYPE##_##ACT.values;                                                                            \
    }
    EACH_TABLE(FIND_PAIR)
    return NULL;
}

static const float *slopes_of(const float *pairs) {
    float *s = pairs ? aligned_alloc(64, ENTRIES * sizeof *s) : NULL;
    for (int i = 0; s && i < ENTRIES; i++) s[i] = pairs[2 * i + 1];
    return s;
}

#define DEFINE_SLOPES(ACT) DEFINE_ONCE(slopes, float, ACT, slopes_of(ep_pair_table(EP_DTYPE_F16, EP_ACT_##ACT)))
EACH_ACT(DEFINE_SLOPES)

const float *ep_act_slopes(ep_dtype dtype, ep_act act) {
    if (dtype != EP_DTYPE_F16 || !ep_tuned_select(dtype, ep_cpu_get()->isa)->gated_slopes) return NULL;
#define FIND_SLOPES(ACT) FIND_ONCE(slopes, ACT)
    EACH_ACT(FIND_SLOPES)
    return NULL;
}

/* Gates from -3 to 3, more of them near 0, as those of networks are. In L2: memory has its own time, beside which the
 * lookups run. So many that a table shows what part of L1 it needs: bf16 asks some KiB of it, f16 some 40. */
typedef struct trial_data {
    uint16_t in[3][TRIED], out[2][TRIED];
} trial_data;

static double time_row(ep_gated_fn run, const ep_gated_row *r) {
    int64_t best = INT64_MAX;
    for (int i = 0; i < TRIES; i++) {
        int64_t t = ep_clock_ns(); /* not ticks, which ep_clock_to_ns takes for times, not for durations */
        run(r);
        t = ep_clock_ns() - t;
        if (t < best) best = t;
    }
    return (double)(best > 0 ? best : 1) / (TRIED / 16.0);
}

static void explain(ep_act_trial *t, int back) {
    static const char *const words[EP_ACT_WAYS] = {"formula", "table", "both"};
    size_t n = 0, size = sizeof t->why[back];
    for (int w = 0; w < EP_ACT_WAYS; w++)
        if (t->ns[back][w] > 0)
            n += (size_t)snprintf(t->why[back] + n, size - n, "%s %.1f, ", words[w], t->ns[back][w]);
    if (n > 2) snprintf(t->why[back] + n - 2, size - n + 2, " ns");
}

static void try_ways(ep_act_trial *t, ep_dtype dtype, ep_act act) {
    const ep_tuned_row *row = ep_tuned_select(dtype, ep_cpu_get()->isa);
    const float *values = ep_act_table(dtype, act), *pairs = ep_pair_table(dtype, act);
    trial_data *d = aligned_alloc(64, sizeof *d);
    if (!d) return; /* by formula, then */
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < TRIED; i++)
            ep_element_store(dtype, &d->in[k][i],
                             (double)((i * 1237 + k * 411) % TRIED + i * 7919 % TRIED) * (3.0 / TRIED) - 3);
    ep_gated_row r = {.n = TRIED, .dy = d->in[0], .gate = d->in[1], .up = d->in[2], .out = d->out[0], .dup = d->out[1]};
    r.act = act, r.eager = true;
    t->ns[0][EP_ACT_BY_FORMULA] = time_row(row->gated_row, &r);
    t->ns[1][EP_ACT_BY_FORMULA] = time_row(row->gated_back, &r);
    r.pairs = pairs;
    if (pairs) t->ns[1][EP_ACT_BY_TABLE] = time_row(row->gated_back, &r);
    r.slopes = ep_act_slopes(dtype, act);
    if (pairs && r.slopes) t->ns[1][EP_ACT_BY_BOTH] = time_row(row->gated_back, &r);
    r.pairs = NULL, r.slopes = NULL, r.table = values;
    if (values) t->ns[0][EP_ACT_BY_TABLE] = time_row(row->gated_row, &r);
    r.mix = true, r.words = ep_act_words(dtype, act);
    if (values && row->gated_mixes) t->ns[0][EP_ACT_BY_BOTH] = time_row(row->gated_row, &r);
    for (int back = 0; back < 2; back++) {
        for (int w = 0; w < EP_ACT_WAYS; w++)
            if (t->ns[back][w] > 0 && t->ns[back][w] < t->ns[back][t->way[back]]) t->way[back] = (ep_act_way)w;
        explain(t, back);
    }
    free(d);
}

#define DEFINE_TRIAL(DTYPE, ACT)                                                                                       \
    static ep_act_trial trial_##DTYPE##_##ACT;                                                                         \
    static atomic_bool done_##DTYPE##_##ACT;                                                                           \
    static pthread_once_t tried_##DTYPE##_##ACT = PTHREAD_ONCE_INIT;                                                   \
    static void try_##DTYPE##_##ACT(void) {                                                                            \
        try_ways(&trial_##DTYPE##_##ACT, EP_DTYPE_##DTYPE, EP_ACT_##ACT);                                              \
        atomic_store(&done_##DTYPE##_##ACT, true);                                                                     \
    }
EACH_TABLE(DEFINE_TRIAL)

const ep_act_trial *ep_act_tried(ep_dtype dtype, ep_act act) {
#define FIND_TRIAL(DTYPE, ACT)                                                                                         \
    if (dtype == EP_DTYPE_##DTYPE && act == EP_ACT_##ACT) {                                                            \
        pthread_once(&tried_##DTYPE##_##ACT, try_##DTYPE##_##ACT);                                                     \
        return &trial_##DTYPE##_##ACT;                                                                                 \
    }
    EACH_TABLE(FIND_TRIAL)
    return NULL;
}

bool ep_act_is_tried(ep_dtype dtype, ep_act act) {
#define FIND_DONE(DTYPE, ACT)                                                                                          \
    if (dtype == EP_DTYPE_##DTYPE && act == EP_ACT_##ACT)                                                              \
        return atomic_load_explicit(&done_##DTYPE##_##ACT, memory_order_acquire);
    EACH_TABLE(FIND_DONE)
    return false;
}
