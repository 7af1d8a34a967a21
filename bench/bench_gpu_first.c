/* Where the first compiled call of a process goes: the driver, the device's context, NVRTC's library, the first kernel of
 * the compiler, the next one. Milliseconds, one JSON line; a process of its own each time. On a machine that has not read
 * the libraries yet, each part has the disk in it: run it twice.
 *     bench_gpu_first          each part in turn, the first call waits for its code
 *     bench_gpu_first never    the first call does not wait: eager answers it; when its code is ready */
#include "bench_gpu.h"

#include <dlfcn.h>
#include <string.h>

static double now_ms(void) {
    return now_us() * 1e-3;
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

/* The same where no call waits: how long the first takes, and when its code is ready. */
static void not_waiting(const ep_tensor *const *in) {
    ep_compile_options o = {.wait = EP_WAIT_NEVER, .no_disk_cache = true};
    ep_compile_stats stats;
    ep_compiled *c;
    ep_tensor *y;
    double from = now_ms();
    check(ep_compile(ctx, gated, NULL, 2, 1, &o, &c), "compile");
    check(ep_compiled_call(c, in, &y), "call");
    double first = now_ms() - from;
    ep_compiled_stats(c, &stats);
    check(ep_compiled_wait(c), "wait");
    printf(
        "{\"what\": \"first compiled call, not waiting\", \"call_ms\": %.2f, \"by_eager\": %lld, \"ready_ms\": %.1f}\n",
        first, (long long)stats.eager_calls, now_ms() - from);
    ep_tensor_destroy(y);
    ep_compiled_destroy(c);
}

static void open_first(const char *const *names) {
    for (; *names; names++)
        if (dlopen(*names, RTLD_NOW | RTLD_LOCAL)) return;
}

int main(int argc, char **argv) {
    static const char *const driver[] = {"libcuda.so.1", NULL};
    static const char *const nvrtc[] = {"libnvrtc.so.13", "libnvrtc.so.12", "/usr/local/cuda/lib64/libnvrtc.so", NULL};
    bool never = argc > 1 && strcmp(argv[1], "never") == 0;
    double t[8] = {now_ms()};
    open_first(driver);
    t[1] = now_ms();
    if (!open_gpu()) return 2;
    t[2] = now_ms();
    ep_tensor *x[2] = {device(128, 3072, 1, 1), device(128, 3072, 2, 1)}, *y;
    check(ep_mul(ctx, x[0], x[1], &y), "mul"); /* our own kernels are loaded by now */
    check(ep_context_sync(ctx), "sync");
    double kernel_ms = now_ms() - t[2];
    if (never) not_waiting((const ep_tensor *const *)x);
    t[3] = now_ms();
    open_first(nvrtc);
    t[4] = now_ms();
    double first = compile((const ep_tensor *const *)x, NULL), second = compile((const ep_tensor *const *)x, ctx);
    printf("{\"what\": \"first compiled call\", \"driver_open_ms\": %.1f, \"context_ms\": %.1f, \"first_kernel_ms\": "
           "%.1f, "
           "\"nvrtc_open_ms\": %.1f, \"first_compile_ms\": %.1f, \"second_compile_ms\": %.1f}\n",
           t[1] - t[0], t[2] - t[1], kernel_ms, t[4] - t[3], first, second);
    ep_tensor *all[] = {x[0], x[1], y};
    for (int i = 0; i < 3; i++) ep_tensor_destroy(all[i]);
    ep_context_destroy(ctx);
    return 0;
}
