/* The reference kernels' names: made once, constant after. */
#include "ref.h"

#include <pthread.h>
#include <stdio.h>

enum { FLOATS = EP_DTYPE_F16 + 1, NAME = 64 };

static char op_names[EP_DTYPE_COUNT][EP_OP_COUNT][NAME];
static char gemm_names[FLOATS][EP_ACT_COUNT][2][2][NAME]; /* bias, residual */
static char gated_names[FLOATS][EP_ACT_COUNT][2][NAME];   /* backward */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_gemm(ep_dtype d, ep_act act, int bias, int residual) {
    snprintf(gemm_names[d][act][bias][residual], NAME, "ep_%s_gemm%s%s%s%s_ref", ep_dtype_name(d), bias ? "_bias" : "",
             act ? "_" : "", act ? ep_act_name(act) : "", residual ? "_residual" : "");
}

static void make(void) {
    static const char *const gated[EP_ACT_COUNT] = {"gated", "gated_gelu_tanh", "gated_gelu_erf", "gated_silu",
                                                    "gated_relu"};
    for (int d = 0; d < EP_DTYPE_COUNT; d++)
        for (int op = 0; op < EP_OP_COUNT; op++)
            snprintf(op_names[d][op], NAME, "ep_%s_%s_ref", ep_dtype_name((ep_dtype)d), ep_op_name((ep_op)op));
    for (int d = 0; d < FLOATS; d++) {
        for (int act = 0; act < EP_ACT_COUNT; act++) {
            for (int i = 0; i < 4; i++) make_gemm((ep_dtype)d, (ep_act)act, i & 1, i >> 1);
            for (int i = 0; i < 2; i++)
                snprintf(gated_names[d][act][i], NAME, "ep_%s_%s%s_ref", ep_dtype_name((ep_dtype)d), gated[act],
                         i ? "_backward" : "");
        }
    }
}

const char *ep_ref_name_op(ep_dtype dtype, ep_op op) {
    pthread_once(&once, make);
    return op_names[dtype][op];
}

const char *ep_ref_name_gemm(const ep_gemm *g) {
    pthread_once(&once, make);
    return gemm_names[g->dtype][g->act][g->bias != NULL][g->residual != NULL];
}

const char *ep_ref_name_gated(ep_dtype dtype, ep_act act, bool backward) {
    pthread_once(&once, make);
    return gated_names[dtype][act][backward];
}
