/* A function in the eager API, compiled: captured once, fused, generated, and run again with other sizes. */
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

/* gelu(a) * b + a: three kernels op by op, one when compiled. It must not look at data. */
static ep_status formula(ep_context *c, void *user, const ep_tensor *const *in, int in_count, ep_tensor **out,
                         int out_count) {
    ep_tensor *g = NULL, *m = NULL;
    (void)user, (void)in_count, (void)out_count;
    ep_status status = ep_gelu_tanh(c, in[0], &g);
    if (status == EP_OK) status = ep_mul(c, g, in[1], &m);
    if (status == EP_OK) status = ep_add(c, m, in[0], &out[0]);
    ep_tensor_destroy(g);
    ep_tensor_destroy(m);
    return status;
}

static ep_tensor *random_tensor(int64_t rows, uint64_t seed) {
    ep_tensor *t;
    stop_on(ep_tensor_create(EP_DTYPE_F32, 2, (int64_t[]){rows, 256}, &err, &t));
    stop_on(ep_tensor_fill_random(t, seed, 1, &err));
    return t;
}

int main(void) {
    double worst = 0;
    ep_compiled *compiled;
    /* A call waits for its compile; by default it would be answered by the eager path meanwhile. */
    ep_compile_options options = {.wait = EP_WAIT_ALWAYS};
    stop_on(ep_context_create(NULL, &err, &ctx));
    stop_on(ep_compile(ctx, formula, NULL, 2, 1, &options, &compiled));
    for (int64_t rows = 1; rows <= 64; rows *= 2) {
        ep_tensor *a = random_tensor(rows, 1), *b = random_tensor(rows, 2), *fused, *plain;
        const ep_tensor *in[] = {a, b};
        stop_on(ep_compiled_call(compiled, in, &fused));
        stop_on(formula(ctx, NULL, in, 2, &plain, 1));
        ep_difference d;
        stop_on(ep_tensor_compare(fused, plain, 1e-6, &err, &d));
        if (d.max_abs > worst) worst = d.max_abs;
        ep_tensor *all[] = {a, b, fused, plain};
        for (int i = 0; i < 4; i++) ep_tensor_destroy(all[i]);
    }
    ep_compile_stats stats;
    ep_compiled_stats(compiled, &stats);
    printf("%lld calls of 7 sizes, %lld compiled entries; against eager: largest difference %g\n",
           (long long)stats.calls, (long long)stats.entries, worst);
    fputs(ep_compiled_report(compiled), stdout);
    ep_compiled_destroy(compiled);
    ep_context_destroy(ctx);
    return worst == 0 && stats.entries < 7 ? 0 : 1; /* rounding = eager: the same bits */
}
