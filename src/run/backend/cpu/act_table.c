/* Tables filled once by the fastest row of the dtype; every ISA gives the same bits. */
#include "act_table.h"

#include <pthread.h>
#include <stdlib.h>

#include "tuned.h"

enum { ACTS = EP_ACT_COUNT, ENTRIES = 65536 };
static const float *tables[2][ACTS];
static pthread_once_t once[2][ACTS] = {
    {PTHREAD_ONCE_INIT, PTHREAD_ONCE_INIT, PTHREAD_ONCE_INIT, PTHREAD_ONCE_INIT, PTHREAD_ONCE_INIT},
    {PTHREAD_ONCE_INIT, PTHREAD_ONCE_INIT, PTHREAD_ONCE_INIT, PTHREAD_ONCE_INIT, PTHREAD_ONCE_INIT},
};

static void fill(ep_dtype dtype, ep_act act) {
    float *t = aligned_alloc(64, ENTRIES * sizeof *t);
    if (!t) return;
    ep_tuned_select(dtype, ep_cpu_get()->isa)->fill_table(act, t);
    tables[dtype == EP_DTYPE_F16][act] = t;
}

static void fill_bf16_gelu_tanh(void) {
    fill(EP_DTYPE_BF16, EP_ACT_GELU_TANH);
}
static void fill_bf16_gelu_erf(void) {
    fill(EP_DTYPE_BF16, EP_ACT_GELU_ERF);
}
static void fill_bf16_silu(void) {
    fill(EP_DTYPE_BF16, EP_ACT_SILU);
}
static void fill_f16_gelu_tanh(void) {
    fill(EP_DTYPE_F16, EP_ACT_GELU_TANH);
}
static void fill_f16_gelu_erf(void) {
    fill(EP_DTYPE_F16, EP_ACT_GELU_ERF);
}
static void fill_f16_silu(void) {
    fill(EP_DTYPE_F16, EP_ACT_SILU);
}

const float *ep_act_table(ep_dtype dtype, ep_act act) {
    static void (*const fills[2][ACTS])(void) = {
        {NULL, fill_bf16_gelu_tanh, fill_bf16_gelu_erf, fill_bf16_silu, NULL},
        {NULL, fill_f16_gelu_tanh, fill_f16_gelu_erf, fill_f16_silu, NULL},
    };
    if (dtype != EP_DTYPE_BF16 && dtype != EP_DTYPE_F16) return NULL;
    int d = dtype == EP_DTYPE_F16;
    if (!fills[d][act]) return NULL;
    pthread_once(&once[d][act], fills[d][act]);
    return tables[d][act];
}
