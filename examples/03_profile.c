/* Recording what runs: steps with a warm-up, a table, and a trace that Perfetto opens. */
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

int main(void) {
    ep_tensor *x, *weight, *bias;
    stop_on(ep_context_create(NULL, &err, &ctx));
    stop_on(ep_tensor_create(EP_DTYPE_F32, 3, (int64_t[]){8, 32, 64}, &err, &x));
    stop_on(ep_tensor_create(EP_DTYPE_F32, 2, (int64_t[]){128, 64}, &err, &weight));
    stop_on(ep_tensor_create(EP_DTYPE_F32, 1, (int64_t[]){128}, &err, &bias));
    stop_on(ep_tensor_fill_random(x, 1, 1, &err));
    stop_on(ep_tensor_fill_random(weight, 2, 0.1, &err));
    stop_on(ep_tensor_fill_random(bias, 3, 0.1, &err));

    /* As torch.profiler.schedule(wait=1, warmup=1, active=3, repeat=1). */
    ep_profile *profile;
    ep_profile_options schedule = {.wait = 1, .warmup = 1, .active = 3, .repeat = 1};
    stop_on(ep_profile_start(&schedule, &err, &profile));
    for (int step = 0; step < 5; step++) {
        ep_tensor *y, *z;
        ep_region_begin("forward");
        stop_on(ep_linear(ctx, x, weight, bias, &y)); /* linear -> t (a view) -> addmm: one kernel */
        stop_on(ep_gelu_tanh(ctx, y, &z));
        ep_region_end();
        ep_tensor_destroy(y);
        ep_tensor_destroy(z);
        ep_profile_step(profile);
    }
    ep_trace *trace;
    stop_on(ep_profile_stop(profile, &err, &trace));

    char *table;
    stop_on(ep_profile_table(trace, EP_SORT_DEVICE, 80, &err, &table));
    fputs(table, stdout);
    stop_on(ep_trace_write(trace, "03_profile.json.gz", &err));
    puts("03_profile.json.gz opens in https://ui.perfetto.dev");

    size_t kernels = 0;
    ep_event event;
    for (size_t i = 0; i < ep_trace_count(trace); i++)
        kernels += ep_trace_event(trace, i, &event) == EP_OK && event.kind == EP_EVENT_KERNEL;
    free(table);
    ep_trace_destroy(trace);
    ep_tensor_destroy(x);
    ep_tensor_destroy(weight);
    ep_tensor_destroy(bias);
    ep_context_destroy(ctx);
    return kernels == 6 ? 0 : 1; /* 2 kernels in each of the 3 active steps */
}
