/* A gated MLP, first op by op as one would write it, then as a block: the same numbers. */
#include <epilogue/epilogue.h>
#include <stdio.h>
#include <stdlib.h>

static ep_context *ctx;
static ep_error err;

static void stop_on(ep_status status) {
    if (status == EP_OK) return;
    fprintf(stderr, "%s\n", err.message[0] ? err.message : ep_context_error(ctx)->message);
    _Exit(1);
}

static ep_tensor *random_tensor(int64_t rows, int64_t columns, uint64_t seed) {
    ep_tensor *t;
    stop_on(ep_tensor_create(EP_DTYPE_F32, 2, (int64_t[]){rows, columns}, &err, &t));
    stop_on(ep_tensor_fill_random(t, seed, 0.1, &err));
    return t;
}

int main(void) {
    enum { ROWS = 16, DIM = 64, HIDDEN = 256 };
    stop_on(ep_context_create(NULL, &err, &ctx));
    ep_tensor *x = random_tensor(ROWS, DIM, 1);
    ep_tensor *gate = random_tensor(HIDDEN, DIM, 2), *up = random_tensor(HIDDEN, DIM, 3);
    ep_tensor *down = random_tensor(DIM, HIDDEN, 4);

    /* y = (gelu(x Wg^T) * (x Wu^T)) Wd^T: five kernels, and g, a, u, h are all written to memory. */
    ep_tensor *g, *a, *u, *h, *y;
    stop_on(ep_linear(ctx, x, gate, NULL, &g));
    stop_on(ep_gelu_tanh(ctx, g, &a));
    stop_on(ep_linear(ctx, x, up, NULL, &u));
    stop_on(ep_mul(ctx, a, u, &h));
    stop_on(ep_linear(ctx, h, down, NULL, &y));

    ep_block *block;
    ep_tensor *z;
    ep_block_weights weights = {.gate = gate, .up = up, .down = down};
    stop_on(ep_block_create(ctx, EP_BLOCK_GATED, EP_ACT_GELU_TANH, &weights, &block));
    stop_on(ep_block_run(block, EP_MODE_EAGER, x, NULL, &z));

    ep_difference d;
    stop_on(ep_tensor_compare(z, y, 1e-6, &err, &d));
    printf("op by op and as a block: largest difference %g\n", d.max_abs);

    ep_tensor *all[] = {x, gate, up, down, g, a, u, h, y, z};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) ep_tensor_destroy(all[i]);
    ep_block_destroy(block);
    ep_context_destroy(ctx);
    return d.max_abs == 0 ? 0 : 1;
}
