/* Guess first, then look: claims about a block, written down before it runs and judged after. */
#include <epilogue/epilogue.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    /* The last claim is the usual first guess about gelu(x Wg^T) * (x Wu^T), and it is wrong in eager mode. */
    static const char claims[] = "region step\n"
                                 "  kernels = 5\n"
                                 "  kernels matching \"gemm\" = 3\n"
                                 "  op t launches = 0\n"
                                 "  fused gelu mul\n";
    ep_guess *guess;
    stop_on(ep_guess_parse(claims, strlen(claims), &err, &guess));

    stop_on(ep_context_create(NULL, &err, &ctx));
    ep_tensor *x = random_tensor(16, 64, 1), *gate = random_tensor(96, 64, 2), *up = random_tensor(96, 64, 3);
    ep_tensor *down = random_tensor(64, 96, 4), *y;
    ep_block *block;
    ep_block_weights weights = {.gate = gate, .up = up, .down = down};
    stop_on(ep_block_create(ctx, EP_BLOCK_GATED, EP_ACT_GELU_TANH, &weights, &block));

    ep_profile *profile;
    ep_trace *trace;
    stop_on(ep_profile_start(NULL, &err, &profile));
    ep_region_begin("step");
    stop_on(ep_block_run(block, EP_MODE_EAGER, x, NULL, &y));
    ep_region_end();
    stop_on(ep_profile_stop(profile, &err, &trace));

    ep_verdicts *verdicts;
    size_t confirmed, broken, unknown;
    stop_on(ep_guess_check(guess, trace, NULL, &err, &verdicts));
    fputs(ep_verdicts_text(verdicts), stdout);
    ep_verdicts_totals(verdicts, &confirmed, &broken, &unknown);

    ep_verdicts_destroy(verdicts);
    ep_guess_destroy(guess);
    ep_trace_destroy(trace);
    ep_block_destroy(block);
    ep_tensor *all[] = {x, gate, up, down, y};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) ep_tensor_destroy(all[i]);
    ep_context_destroy(ctx);
    return confirmed == 3 && broken == 1 ? 0 : 1;
}
