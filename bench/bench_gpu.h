/* What the device's benches share: the context, tensors of random numbers, bursts on an empty queue. */
#ifndef EP_BENCH_GPU_H
#define EP_BENCH_GPU_H

#include <epilogue/epilogue.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static ep_context *ctx;

static inline double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/* Ends the program where a call failed. */
static inline void check(ep_status s, const char *what) {
    if (s == EP_OK) return;
    fprintf(stderr, "%s: %s\n", what, ctx ? ep_context_error(ctx)->message : "no context");
    exit(1);
}

static inline bool open_gpu(void) {
    ep_error err = {0};
    ep_context_options on_gpu = {.device = {EP_DEVICE_CUDA, 0}};
    if (ep_context_create(&on_gpu, &err, &ctx) == EP_OK) return true;
    fprintf(stderr, "%s\n", err.message);
    return false;
}

static inline ep_tensor *device(int64_t rows, int64_t cols, uint64_t seed, double scale) {
    ep_error err = {0};
    ep_tensor *host, *d;
    check(ep_tensor_create(EP_DTYPE_BF16, 2, (int64_t[]){rows, cols}, &err, &host), err.message);
    check(ep_tensor_fill_random(host, seed, scale, &err), err.message);
    check(ep_to_device(ctx, host, &d), "copy");
    ep_tensor_destroy(host);
    return d;
}

static inline int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

enum { BURSTS_MOST = 64 };
typedef struct bursts {
    double host_least, host_median; /* us a call, of enqueueing alone */
    double device_median;           /* until the last is done */
} bursts;

/* `rounds` times `calls` calls, each time on an empty queue. */
static inline bursts measure_bursts(void (*call)(void *user), void *user, int rounds, int calls) {
    double host[BURSTS_MOST], all[BURSTS_MOST];
    if (rounds > BURSTS_MOST) rounds = BURSTS_MOST;
    for (int r = 0; r < rounds; r++) {
        check(ep_context_sync(ctx), "sync");
        double from = now_us();
        for (int i = 0; i < calls; i++) call(user);
        host[r] = (now_us() - from) / calls;
        check(ep_context_sync(ctx), "sync");
        all[r] = (now_us() - from) / calls;
    }
    qsort(host, (size_t)rounds, sizeof *host, by_value);
    qsort(all, (size_t)rounds, sizeof *all, by_value);
    return (bursts){host[0], host[rounds / 2], all[rounds / 2]};
}

#endif
