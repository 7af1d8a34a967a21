/* The GPU's gated kernels and the host's cost of a forward, through the public API. Calls are enqueued back to back and
 * waited for once, so device times hold where a kernel takes longer than its launch (4 us or so). The host time is that
 * of enqueueing alone: "host_us" the least of bursts of 20 on an empty queue, which long kernels may fill; "short_us" the
 * median of bursts of 4, which they cannot. Prints one JSON line a measurement.
 *     bench_gpu            all of it, about 40 s
 *     bench_gpu blocks     blocks of little memory only, about 10 s
 *     bench_gpu rested     tuned blocks as PyTorch's script measures its own: two seconds of rest (where it compiles), then
 *                          seven bursts of 10, of 50 where they are short; a card at its power limit starts cool */
#include <epilogue/epilogue.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static ep_context *ctx;
static bool rested;

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void check(ep_status s, const char *what) {
    if (s == EP_OK) return;
    fprintf(stderr, "bench_gpu: %s: %s\n", what, ep_context_error(ctx)->message);
    exit(1);
}

static ep_tensor *device(int64_t rows, int64_t cols, uint64_t seed, double scale) {
    ep_error err = {0};
    ep_tensor *host, *d;
    int64_t sizes[2] = {rows, cols};
    check(ep_tensor_create(EP_DTYPE_BF16, 2, sizes, &err, &host), err.message);
    check(ep_tensor_fill_random(host, seed, scale, &err), err.message);
    check(ep_to_device(ctx, host, &d), "copy");
    ep_tensor_destroy(host);
    return d;
}

/* Runs `call` in bursts; *device_us is the time of a burst over its calls, *host_us that of enqueueing it. */
static void measure(void (*call)(void *user), void *user, int burst, double *device_us, double *host_us) {
    enum { ROUNDS = 15 };
    double all[ROUNDS], host[ROUNDS];
    int rounds = rested ? 7 : ROUNDS;
    if (rested) {
        check(ep_context_sync(ctx), "sync");
        nanosleep(&(struct timespec){.tv_sec = 2}, NULL);
    }
    for (int i = 0; i < 3; i++) call(user);
    for (int r = 0; r < rounds; r++) {
        check(ep_context_sync(ctx), "sync");
        double t0 = now_us();
        for (int i = 0; i < burst; i++) call(user);
        host[r] = (now_us() - t0) / burst;
        check(ep_context_sync(ctx), "sync");
        all[r] = (now_us() - t0) / burst;
    }
    qsort(all, (size_t)rounds, sizeof *all, by_value);
    qsort(host, (size_t)rounds, sizeof *host, by_value);
    *device_us = all[rounds / 2];
    *host_us = host[0];
}

/* Median host time of a call where the queue never fills: few calls, then a wait. */
static double short_bursts(void (*call)(void *user), void *user) {
    enum { ROUNDS = 41, CALLS = 4 };
    double host[ROUNDS];
    for (int r = 0; r < ROUNDS; r++) {
        check(ep_context_sync(ctx), "sync");
        double from = now_us();
        for (int i = 0; i < CALLS; i++) call(user);
        host[r] = (now_us() - from) / CALLS;
    }
    check(ep_context_sync(ctx), "sync");
    qsort(host, ROUNDS, sizeof *host, by_value);
    return host[ROUNDS / 2];
}

typedef struct operands {
    ep_tensor *g, *u, *dy;
    ep_block *block;
    ep_mode mode;
} operands;

static void forward(void *user) {
    operands *o = user;
    ep_tensor *y;
    check(ep_gated(ctx, EP_ACT_GELU_TANH, o->g, o->u, &y), "gated");
    ep_tensor_destroy(y);
}

static void backward(void *user) {
    operands *o = user;
    ep_tensor *a, *b;
    check(ep_gated_backward(ctx, EP_ACT_GELU_TANH, o->dy, o->g, o->u, &a, &b), "gated backward");
    ep_tensor_destroy(a);
    ep_tensor_destroy(b);
}

static void run_block(void *user) {
    operands *o = user;
    ep_tensor *y;
    check(ep_block_run(o->block, o->mode, o->g, NULL, &y), "block");
    ep_tensor_destroy(y);
}

static void gated(int64_t m, int64_t n) {
    operands o = {.g = device(m, n, 1, 1), .u = device(m, n, 2, 1), .dy = device(m, n, 3, 1)};
    double us, host, bytes = 2.0 * (double)m * (double)n;
    measure(forward, &o, 40, &us, &host);
    printf("{\"what\": \"gated\", \"m\": %lld, \"n\": %lld, \"us\": %.2f, \"gbs\": %.0f}\n", (long long)m, (long long)n,
           us, 3 * bytes / us / 1e3);
    measure(backward, &o, 40, &us, &host);
    printf("{\"what\": \"gated_backward\", \"m\": %lld, \"n\": %lld, \"us\": %.2f, \"gbs\": %.0f}\n", (long long)m,
           (long long)n, us, 5 * bytes / us / 1e3);
    ep_tensor_destroy(o.g);
    ep_tensor_destroy(o.u);
    ep_tensor_destroy(o.dy);
}

static void block(ep_block_kind kind, int64_t m, int64_t dim, int64_t hidden) {
    static const char *const modes[] = {"eager", "compiled", "tuned"};
    operands o = {.g = device(m, dim, 1, 1)};
    ep_tensor *gate = device(hidden, dim, 2, 0.03), *up = device(hidden, dim, 3, 0.03),
              *down = device(dim, hidden, 4, 0.02);
    ep_block_weights w = {.gate = gate, .up = up, .down = down};
    if (kind == EP_BLOCK_LINEAR) w = (ep_block_weights){.up = up};
    check(ep_block_create(ctx, kind, kind == EP_BLOCK_LINEAR ? EP_ACT_NONE : EP_ACT_GELU_TANH, &w, &o.block), "block");
    for (int mode = 0; mode < EP_MODE_COUNT; mode++) {
        double us, host;
        if (rested && mode != EP_MODE_TUNED) continue;
        o.mode = (ep_mode)mode;
        if (ep_block_prepare(o.block, o.mode, o.g) != EP_OK) continue;
        for (int i = 0; i < 40; i++) run_block(&o); /* past the calls that decide between plans */
        measure(run_block, &o, !rested ? 20 : m * dim * hidden > (int64_t)1 << 36 ? 10 : 50, &us, &host);
        printf("{\"what\": \"%s\", \"mode\": \"%s\", \"m\": %lld, \"dim\": %lld, \"hidden\": %lld, \"us\": %.2f, "
               "\"host_us\": %.2f, \"short_us\": %.2f}\n",
               kind == EP_BLOCK_LINEAR ? "linear" : "geglu", modes[mode], (long long)m, (long long)dim,
               (long long)hidden, us, host, short_bursts(run_block, &o));
        fflush(stdout);
    }
    ep_block_destroy(o.block);
    ep_tensor *all[] = {o.g, gate, up, down};
    for (size_t i = 0; i < 4; i++) ep_tensor_destroy(all[i]);
}

int main(int argc, char **argv) {
    rested = argc > 1 && strcmp(argv[1], "rested") == 0;
    static const int64_t shapes[][3] = {{8192, 768, 3072},   {8192, 2048, 16384}, {8192, 4096, 14336},
                                        {1024, 2048, 16384}, {128, 4096, 14336},  {16, 4096, 14336},
                                        {16, 2048, 16384},   {1, 2048, 16384},    {1, 768, 3072}};
    ep_error err = {0};
    ep_context_options on_gpu = {.device = {EP_DEVICE_CUDA, 0}};
    if (ep_context_create(&on_gpu, &err, &ctx) != EP_OK) {
        fprintf(stderr, "bench_gpu: %s\n", err.message);
        return 2;
    }
    bool all = argc < 2 || strcmp(argv[1], "blocks") != 0;
    if (all && !rested) {
        gated(8192, 3072);
        gated(8192, 16384);
        gated(16384, 14336);
        gated(8192, 3001);
    }
    if (!rested) block(EP_BLOCK_LINEAR, 1024, 32, 64);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (all || shapes[i][1] == 768 || shapes[i][0] <= 1024)
            block(EP_BLOCK_GATED, shapes[i][0], shapes[i][1], shapes[i][2]);
    ep_context_destroy(ctx);
    return 0;
}
