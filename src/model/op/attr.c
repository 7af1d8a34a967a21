/* What a call carries besides tensors, by name: the activations. */
#include "op.h"

#include <string.h>

typedef struct act_row {
    const char *name;
    ep_op op;
} act_row;

static const act_row acts[EP_ACT_COUNT] = {
    [EP_ACT_NONE] = {"none", EP_OP_COUNT},
    [EP_ACT_GELU_TANH] = {"gelu_tanh", EP_OP_GELU_TANH},
    [EP_ACT_GELU_ERF] = {"gelu_erf", EP_OP_GELU_ERF},
    [EP_ACT_SILU] = {"silu", EP_OP_SILU},
    [EP_ACT_RELU] = {"relu", EP_OP_RELU},
};

const char *ep_act_name(ep_act act) {
    return (unsigned)act < EP_ACT_COUNT ? acts[act].name : "?";
}

ep_status ep_act_parse(const char *name, ep_act *out) {
    if (!name || !out) return EP_ERROR_INVALID_ARGUMENT;
    for (int i = 0; i < EP_ACT_COUNT; i++) {
        if (strcmp(acts[i].name, name) != 0) continue;
        *out = (ep_act)i;
        return EP_OK;
    }
    return EP_ERROR_NOT_FOUND;
}

ep_op ep_act_op(ep_act act) {
    return (unsigned)act < EP_ACT_COUNT ? acts[act].op : EP_OP_COUNT;
}
