/* Compiled mode of a block. */
#include "parts.h"

ep_status ep_block_compiled_supports(ep_block *b) {
    return ep_fail(&b->ctx->err, EP_ERROR_NOT_BUILT, "this build has no compiled mode");
}

ep_status ep_block_compiled_run(ep_block *b, const ep_tensor *x, const ep_tensor *residual, ep_tensor **out) {
    (void)x;
    (void)residual;
    (void)out;
    return ep_block_compiled_supports(b);
}

ep_status ep_block_compiled_wait(ep_block *b, bool residual) {
    (void)residual;
    return ep_block_compiled_supports(b);
}

void ep_block_compiled_free(ep_block *b) {
    (void)b;
}

ep_status ep_block_compile_with(ep_block *b, const ep_compile_options *options) {
    (void)options;
    return b ? ep_block_compiled_supports(b) : EP_ERROR_INVALID_ARGUMENT;
}

ep_compiled *ep_block_compiled(const ep_block *b) {
    (void)b;
    return NULL;
}
