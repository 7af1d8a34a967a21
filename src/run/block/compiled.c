/* Compiled mode of a block: its eager function through ep_compile, once without and once with a residual. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "parts.h"
#include "run/engine/compile.h"

static ep_status without(ep_context *ctx, void *user, const ep_tensor *const *in, int count, ep_tensor **out, int n) {
    (void)count;
    (void)n;
    return ep_block_eager_run(ctx, user, in[0], NULL, out);
}

static ep_status with_residual(ep_context *ctx, void *user, const ep_tensor *const *in, int count, ep_tensor **out,
                               int n) {
    (void)count;
    (void)n;
    return ep_block_eager_run(ctx, user, in[0], in[1], out);
}

ep_status ep_block_compiled_supports(ep_block *b) {
    ep_context *ctx = b->ctx;
    if (!ctx->ops.module_load)
        return ep_fail(&ctx->err, EP_ERROR_NOT_BUILT, "the %s backend of this build has no compiled mode",
                       ctx->backend.name);
    if (ctx->device.kind != EP_DEVICE_CPU) return EP_OK;
    ep_build build = {.source = "", .isa = ep_cpu_get()->isa};
    ep_hasher h;
    ep_hasher_begin(&h);
    return ep_toolchain_cc.identity(&build, &ctx->err, &h);
}

ep_status ep_block_compiled_run(ep_block *b, const ep_tensor *x, const ep_tensor *residual, ep_tensor **out) {
    ep_compiled **c = &b->compiled[residual != NULL];
    if (!*c) {
        if (!b->ctx->ops.module_load) return ep_block_compiled_supports(b);
        ep_compile_options o = b->compile_options;
        o.weights_stay = true;
        EP_TRY(ep_compile(b->ctx, residual ? with_residual : without, b, residual ? 2 : 1, 1, &o, c));
    }
    return ep_compiled_call(*c, (const ep_tensor *[2]){x, residual}, out);
}

/* Until the code is there and the choice between it and eager is made, so that later calls are all alike. */
ep_status ep_block_compiled_settle(ep_block *b, const ep_tensor *x) {
    /* Beside other work most samples may not count: then it is given up at MOST calls, or after most_ns past FEW. */
    enum { FEW = 64, MOST = 256 };
    static const int64_t most_ns = 2000000000;
    int64_t start = ep_clock_ns();
    EP_TRY(ep_block_compiled_wait(b, false));
    for (int i = 0; i < MOST; i++) {
        ep_tensor *y;
        EP_TRY(ep_block_compiled_run(b, x, NULL, &y));
        ep_tensor_destroy(y);
        if (ep_compiled_settled(b->compiled[0]) || (i >= FEW && ep_clock_ns() - start > most_ns)) break;
        EP_TRY(ep_block_compiled_wait(b, false)); /* weights that are being packed */
    }
    return EP_OK;
}

ep_status ep_block_compiled_wait(ep_block *b, bool residual) {
    return b->compiled[residual] ? ep_compiled_wait(b->compiled[residual]) : EP_OK;
}

void ep_block_compiled_free(ep_block *b) {
    for (int i = 0; i < 2; i++) ep_compiled_destroy(b->compiled[i]);
    free((char *)(uintptr_t)b->compile_options.cache_dir);
    free((char *)(uintptr_t)b->compile_options.dump_pass);
}

ep_status ep_block_compile_with(ep_block *b, const ep_compile_options *options) {
    if (!b) return EP_ERROR_INVALID_ARGUMENT;
    if (!options) return ep_fail(&b->ctx->err, EP_ERROR_INVALID_ARGUMENT, "options is NULL");
    if (b->compiled[0] || b->compiled[1])
        return ep_fail(&b->ctx->err, EP_ERROR_STATE, "the block was compiled already");
    EP_TRY(ep_compile_check(b->ctx, options));
    ep_compile_options o = *options;
    o.cache_dir = o.cache_dir ? strdup(o.cache_dir) : NULL;
    o.dump_pass = o.dump_pass ? strdup(o.dump_pass) : NULL;
    if ((options->cache_dir && !o.cache_dir) || (options->dump_pass && !o.dump_pass)) {
        free((char *)(uintptr_t)o.cache_dir);
        free((char *)(uintptr_t)o.dump_pass);
        return ep_fail(&b->ctx->err, EP_ERROR_OUT_OF_MEMORY, "no memory for the compile options");
    }
    free((char *)(uintptr_t)b->compile_options.cache_dir);
    free((char *)(uintptr_t)b->compile_options.dump_pass);
    b->compile_options = o;
    return EP_OK;
}

ep_compiled *ep_block_compiled(const ep_block *b) {
    return b ? b->compiled[0] ? b->compiled[0] : b->compiled[1] : NULL;
}
