/* MLP, op by op: linear, activation, linear; the hidden values make two round trips through memory. */
#include "parts.h"

ep_status ep_eager_mlp(ep_context *ctx, const ep_block *b, const ep_tensor *x, ep_tensor **out) {
    ep_tensor *u = NULL, *h = NULL;
    ep_status status = ep_linear(ctx, x, b->up, b->up_bias, &u);
    if (status == EP_OK && b->act != EP_ACT_NONE) status = ep_unary(ctx, ep_act_op(b->act), u, &h);
    if (status == EP_OK) status = ep_linear(ctx, h ? h : u, b->down, b->down_bias, out);
    ep_tensor_destroy(h);
    ep_tensor_destroy(u);
    return status;
}
