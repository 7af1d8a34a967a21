/* The gated pointwise kernels alone, forward and backward, beside loops that move the same number of streams and bytes
 * and compute next to nothing: the share of the bandwidth bound, at widths that are and aren't multiples of a vector.
 *   bench_gated [--dtype bf16|f32|f16] [--threads N] [--rounds N] [--mib N] [--halves 1] [--act geglu] [--range 2]
 * mib: the size of each tensor; the rows follow from the width. halves: gate and up are halves of one tensor's rows, so
 * that a row is a row; without it adjacent rows are one. Medians over the rounds, all in turn. Two bounds: plain stores,
 * which read every line of the result first, and stores past the caches. */
#ifdef __SSE2__
#include <immintrin.h>
#endif
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "model/tensor/tensor.h"
#include "run/backend/cpu/tuned.h"

enum { MAX_ROUNDS = 101, STREAMS = 5 };

static char *data[STREAMS]; /* gate, up, dy; out, dup */
static bool halves;
static ep_act act = EP_ACT_GELU_TANH;
static double range = 2;

static void fail(const char *what) {
    fprintf(stderr, "bench_gated: %s\n", what);
    exit(1);
}

static ep_tensor matrix(ep_dtype dtype, char *p, int64_t rows, int64_t cols) {
    ep_tensor t = {.dtype = dtype, .ndim = 2, .data = p, .numel = rows * cols};
    t.sizes[0] = rows, t.sizes[1] = cols;
    t.strides[0] = cols, t.strides[1] = 1;
    return t;
}

typedef uint64_t wide __attribute__((vector_size(64), aligned(64)));
static inline void put(wide *p, wide x, bool stream) {
#ifdef __SSE2__
    typedef long long two __attribute__((vector_size(16)));
    two part[4];
    memcpy(part, &x, 64);
    for (int k = 0; k < 4 && stream; k++) _mm_stream_si128((__m128i *)(void *)p + k, (__m128i)part[k]);
    if (stream) return;
#else
    (void)stream;
#endif
    *p = x;
}

/* Reads two streams and writes one, or three and two, each `bytes` long. */
static double move_ns(int threads, int64_t bytes, bool backward, bool stream) {
    int64_t t = ep_clock_ns();
#pragma omp parallel num_threads(threads)
    {
        int64_t n = bytes / 64, me = omp_get_thread_num(), all = omp_get_num_threads();
        const wide *a = (const wide *)(void *)data[0], *b = (const wide *)(void *)data[1],
                   *c = (const wide *)(void *)data[2];
        wide *o = (wide *)(void *)data[3], *p = (wide *)(void *)data[4];
        int64_t end = n * (me + 1) / all;
        if (backward)
            for (int64_t i = n * me / all; i < end; i++) {
                wide s = a[i] ^ b[i];
                put(o + i, s ^ c[i], stream);
                put(p + i, s, stream);
            }
        else
            for (int64_t i = n * me / all; i < end; i++) put(o + i, a[i] ^ b[i], stream);
    }
    return (double)(ep_clock_ns() - t);
}

static double gated_ns(int threads, ep_dtype dtype, int64_t rows, int64_t cols, bool backward) {
    ep_tensor g = matrix(dtype, data[0], rows, cols), u = matrix(dtype, data[1], rows, cols);
    if (halves) g.strides[0] = u.strides[0] = 2 * cols, u.data = data[0] + cols * (int64_t)ep_dtype_size(dtype);
    ep_tensor dy = matrix(dtype, data[2], rows, cols), out = matrix(dtype, data[3], rows, cols);
    ep_tensor du = matrix(dtype, data[4], rows, cols);
    int64_t t = ep_clock_ns();
    ep_status s = backward ? ep_tuned_gated_backward(threads, act, EP_ROUNDING_EAGER, &dy, &g, &u, &out, &du, NULL)
                           : ep_tuned_gated(threads, act, EP_ROUNDING_EAGER, &g, &u, &out, NULL);
    if (s != EP_OK) fail("a gated kernel failed");
    return (double)(ep_clock_ns() - t);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, int n) {
    qsort(v, (size_t)n, sizeof *v, by_value);
    return v[n / 2];
}

static void measure(int threads, ep_dtype dtype, int64_t bytes, int64_t cols, bool backward, int rounds) {
    static double share[2][MAX_ROUNDS], us[MAX_ROUNDS], gbs[MAX_ROUNDS];
    int64_t size = (int64_t)ep_dtype_size(dtype), rows = bytes / size / cols, moved = rows * cols * size;
    for (int r = -1; r < rounds; r++) {
        double plain = move_ns(threads, moved, backward, false), past = move_ns(threads, moved, backward, true);
        double t = gated_ns(threads, dtype, rows, cols, backward);
        if (r < 0) continue;
        share[0][r] = 100 * plain / t, share[1][r] = 100 * past / t;
        us[r] = t * 1e-3, gbs[r] = (double)moved * (backward ? 5 : 3) / t;
    }
    printf("  %-8s width %6lld  %9.1f us  %5.1f GB/s  %5.1f %% of plain stores  %5.1f %% of stores past the caches\n",
           backward ? "backward" : "forward", (long long)cols, median(us, rounds), median(gbs, rounds),
           median(share[0], rounds), median(share[1], rounds));
    fflush(stdout);
}

static ep_act act_named(const char *name) {
    for (int a = 0; a < EP_ACT_COUNT; a++)
        if (strcmp(ep_tuned_gated_name((ep_act)a), name) == 0) return (ep_act)a;
    fail("--act is one of glu_linear, geglu, geglu_erf, swiglu, reglu");
    return EP_ACT_NONE;
}

int main(int argc, char **argv) {
    ep_dtype dtype = EP_DTYPE_BF16;
    int threads = ep_cpu_get()->cores, rounds = 15, mib = 64;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--dtype") == 0 && ep_dtype_parse(argv[i + 1], &dtype) != EP_OK) fail("no such dtype");
        if (strcmp(argv[i], "--threads") == 0) threads = atoi(argv[i + 1]);
        if (strcmp(argv[i], "--rounds") == 0) rounds = atoi(argv[i + 1]);
        if (strcmp(argv[i], "--mib") == 0) mib = atoi(argv[i + 1]);
        if (strcmp(argv[i], "--halves") == 0) halves = atoi(argv[i + 1]);
        if (strcmp(argv[i], "--act") == 0) act = act_named(argv[i + 1]);
        if (strcmp(argv[i], "--range") == 0) range = atof(argv[i + 1]);
    }
    if (rounds > MAX_ROUNDS) rounds = MAX_ROUNDS;
    ep_clock_init();
    int64_t bytes = (int64_t)mib << 20, size = (int64_t)ep_dtype_size(dtype);
    if (!(data[0] = ep_tuned_alloc((size_t)bytes * STREAMS))) fail("memory is out");
    for (int k = 0; k < STREAMS; k++) {
        data[k] = data[0] + k * bytes; /* up behind gate: halves lie in both */
        uint64_t s = 88172645463325252u + (uint64_t)k;
        for (int64_t i = 0; i < bytes / size; i++) {
            s ^= s << 13, s ^= s >> 7, s ^= s << 17;
            ep_element_store(dtype, data[k] + i * size, ((double)(s >> 40) / (1 << 23) - 1) * (k ? 2 : range));
        }
    }
    printf("%s, %d threads, %d MiB a tensor, %s, gates to %g%s\n", ep_dtype_name(dtype), threads, mib,
           ep_tuned_gated_name(act), range, halves ? ", halves" : "");
    static const int64_t widths[] = {256, 352, 3001, 11008, 65537};
    for (int back = 0; back < 2; back++)
        for (int w = 0; w < 5; w++) measure(threads, dtype, bytes, widths[w], back, rounds);
    free(data[0]);
    return 0;
}
