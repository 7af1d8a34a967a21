/* Gated MLP, op by op: linear, linear, activation, mul, linear. Five kernels; act(gate) makes a round trip. */
#include "parts.h"

ep_status ep_eager_glu(ep_context *ctx, const ep_block *b, const ep_tensor *x, ep_tensor **out) {
    ep_tensor *g = NULL, *u = NULL, *a = NULL, *h = NULL;
    ep_status status = ep_linear(ctx, x, b->gate, b->gate_bias, &g);
    if (status == EP_OK) status = ep_linear(ctx, x, b->up, b->up_bias, &u);
    if (status == EP_OK && b->act != EP_ACT_NONE) status = ep_unary(ctx, ep_act_op(b->act), g, &a);
    if (status == EP_OK) status = ep_mul(ctx, a ? a : g, u, &h);
    if (status == EP_OK) status = ep_linear(ctx, h, b->down, b->down_bias, out);
    ep_tensor_destroy(h);
    ep_tensor_destroy(a);
    ep_tensor_destroy(u);
    ep_tensor_destroy(g);
    return status;
}
