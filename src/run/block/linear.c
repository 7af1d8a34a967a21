/* Linear, op by op: one product with the bias in its epilogue. */
#include "parts.h"

ep_status ep_eager_linear(ep_context *ctx, const ep_block *b, const ep_tensor *x, ep_tensor **out) {
    return ep_linear(ctx, x, b->up, b->up_bias, out);
}
