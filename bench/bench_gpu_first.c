/* Where the first compiled call of a process goes: the driver, the device's context, NVRTC's library, the first kernel of
 * the compiler, the next one. Milliseconds, one JSON line; a process of its own each time. On a machine that has not read
 * the libraries yet, each part has the disk in it: run it twice.
 *     bench_gpu_first */
#include <dlfcn.h>
#include <epilogue/epilogue.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static ep_context *ctx;

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void check(ep_status s, const char *what) {
    if (s == EP_OK) return;
    fprintf(stderr, "bench_gpu_first: %s: %s\n", what, ep_context_error(ctx)->message);
    exit(1);
}

/* `user` picks one of two functions, so that the second is new to the compiler. */
static ep_status gated(ep_context *c, void *user, const ep_tensor *const *in, int in_count, ep_tensor **out,
                       int out_count) {
    (void)in_count, (void)out_count;
    ep_tensor *a;
    ep_status s = user ? ep_silu(c, in[0], &a) : ep_gelu_tanh(c, in[0], &a);
    if (s != EP_OK) return s;
    s = ep_mul(c, a, in[1], &out[0]);
    ep_tensor_destroy(a);
    return s;
}

static double compile(const ep_tensor *const *in, void *user) {
    ep_compile_options o = {.wait = EP_WAIT_ALWAYS, .no_disk_cache = true};
    ep_compiled *c;
    ep_tensor *y;
    double from = now_ms();
    check(ep_compile(ctx, gated, user, 2, 1, &o, &c), "compile");
    check(ep_compiled_call(c, in, &y), "call");
    check(ep_context_sync(ctx), "sync");
    double ms = now_ms() - from;
    ep_tensor_destroy(y);
    ep_compiled_destroy(c);
    return ms;
}

static void open_first(const char *const *names) {
    for (; *names; names++)
        if (dlopen(*names, RTLD_NOW | RTLD_LOCAL)) return;
}

int main(void) {
    static const char *const driver[] = {"libcuda.so.1", NULL};
    static const char *const nvrtc[] = {"libnvrtc.so.13", "libnvrtc.so.12", "/usr/local/cuda/lib64/libnvrtc.so", NULL};
    ep_error err = {0};
    ep_context_options on_gpu = {.device = {EP_DEVICE_CUDA, 0}};
    double t[8] = {now_ms()};
    open_first(driver);
    t[1] = now_ms();
    if (ep_context_create(&on_gpu, &err, &ctx) != EP_OK) {
        fprintf(stderr, "bench_gpu_first: %s\n", err.message);
        return 2;
    }
    t[2] = now_ms();
    ep_tensor *host, *x[2], *y;
    check(ep_tensor_create(EP_DTYPE_BF16, 2, (int64_t[]){128, 3072}, &err, &host), err.message);
    check(ep_tensor_fill_random(host, 1, 1, &err), err.message);
    for (int i = 0; i < 2; i++) check(ep_to_device(ctx, host, &x[i]), "copy");
    check(ep_mul(ctx, x[0], x[1], &y), "mul"); /* our own kernels are loaded by now */
    check(ep_context_sync(ctx), "sync");
    t[3] = now_ms();
    open_first(nvrtc);
    t[4] = now_ms();
    double first = compile((const ep_tensor *const *)x, NULL), second = compile((const ep_tensor *const *)x, ctx);
    printf("{\"what\": \"first compiled call\", \"driver_open_ms\": %.1f, \"context_ms\": %.1f, \"first_kernel_ms\": "
           "%.1f, "
           "\"nvrtc_open_ms\": %.1f, \"first_compile_ms\": %.1f, \"second_compile_ms\": %.1f}\n",
           t[1] - t[0], t[2] - t[1], t[3] - t[2], t[4] - t[3], first, second);
    ep_tensor *all[] = {host, x[0], x[1], y};
    for (int i = 0; i < 4; i++) ep_tensor_destroy(all[i]);
    ep_context_destroy(ctx);
    return 0;
}
