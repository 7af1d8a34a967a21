/* Reading a trace, ours or one that torch.profiler wrote, and asking what it
 * shows. */
#include <epilogue/epilogue.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ep_error err;

static void stop_on(ep_status status) {
    if (status == EP_OK) return;
    fprintf(stderr, "%s\n", err.message);
    _Exit(1);
}

/* Records one step of a linear, for want of a file. */
static void record(const char *path) {
    ep_context *ctx;
    ep_tensor *x, *weight, *y;
    ep_profile *profile;
    ep_trace *trace;
    stop_on(ep_context_create(NULL, &err, &ctx));
    stop_on(ep_tensor_zeros(EP_DTYPE_F32, 2, (int64_t[]){64, 32}, &err, &x));
    stop_on(ep_tensor_zeros(EP_DTYPE_F32, 2, (int64_t[]){48, 32}, &err, &weight));
    stop_on(ep_profile_start(NULL, &err, &profile));
    ep_region_begin("forward");
    stop_on(ep_linear(ctx, x, weight, NULL, &y));
    ep_region_end();
    stop_on(ep_profile_stop(profile, &err, &trace));
    stop_on(ep_trace_write(trace, path, &err));
    ep_trace_destroy(trace);
    ep_tensor_destroy(x);
    ep_tensor_destroy(weight);
    ep_tensor_destroy(y);
    ep_context_destroy(ctx);
}

int main(int argc, char **argv) {
    const char *path = argc > 1 ? argv[1] : "04_explain.json";
    if (argc < 2) record(path);

    ep_trace *trace;
    stop_on(ep_trace_read(path, NULL, &err, &trace));
    const ep_trace *traces[] = {trace};
    ep_report *report;
    stop_on(ep_explain(traces, &path, 1, NULL, &err, &report));
    fputs(ep_report_text(report), stdout);

    /* Kernel names are taken apart, vendors' and ours. */
    ep_kernel_name name;
    ep_kernel_name_decode("ep_bf16_gemm_bias_onednn_avx512bf16_tn", &name);
    printf("class %s, dtype %s, layout %s\n", name.class_name, name.dtype, name.layout);

    ep_report_destroy(report);
    ep_trace_destroy(trace);
    return strcmp(name.class_name, "gemm") == 0 ? 0 : 1;
}
