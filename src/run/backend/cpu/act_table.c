/* Tables filled once by the fastest row of the dtype; every ISA gives the same bits. */
#include "act_table.h"

#include <pthread.h>
#include <stdlib.h>

#include "tuned.h"

enum { ENTRIES = 65536 };

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

const float *ep_pair_table(ep_dtype dtype, ep_act act) {
#define FIND_PAIR(DTYPE, ACT)                                                                                          \
    if (dtype == EP_DTYPE_##DTYPE && act == EP_ACT_##ACT) {                                                            \
        pthread_once(&pair_##DTYPE##_##ACT.once, fill_pair_##DTYPE##_##ACT);                                           \
        return pair_##DTYPE##_##ACT.values;                                                                            \
    }
    EACH_TABLE(FIND_PAIR)
    return NULL;
}
