/* Interleaved sampling; see bench.h. */
#define _GNU_SOURCE
#include "bench.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

double bench_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void bench_start(int argc, char **argv) {
    (void)argc;
    if (getenv("OMP_PROC_BIND") || getenv("EPILOGUE_BENCH_BOUND")) return;
    setenv("OMP_PROC_BIND", "close", 1);
    setenv("OMP_PLACES", "cores", 1);
    setenv("EPILOGUE_BENCH_BOUND", "1", 1);
    execv("/proc/self/exe", argv);
}

/* Switches that were not asked for: somebody else had the core. */
static long disturbances(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_nivcsw;
}

static double sample(const bench_variant *v, int64_t times, bool *disturbed) {
    long before = disturbances();
    double start = bench_seconds();
    v->run(v->user, times);
    double t = bench_seconds() - start;
    *disturbed = disturbances() != before;
    return t / (double)times;
}

static int64_t calibrate(const bench_variant *v, double seconds) {
    bool disturbed;
    int64_t times = 1;
    v->run(v->user, 1);
    for (;;) {
        double t = sample(v, times, &disturbed) * (double)times;
        if (t >= seconds / 2 || times > INT64_C(1) << 40) {
            double want = (double)times * seconds / t;
            return want < 1 ? 1 : (int64_t)want;
        }
        times *= t < seconds / 100 ? 10 : 2;
    }
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *v, int n) {
    qsort(v, (size_t)n, sizeof *v, by_value);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

void bench_run(const bench_variant *v, int count, const bench_options *o, bench_result *out) {
    static double times[BENCH_MOST][BENCH_ROUNDS];
    double ratio[BENCH_ROUNDS];
    int64_t repeat[BENCH_MOST];
    int rounds = o && o->rounds ? o->rounds : 11;
    double seconds = o && o->seconds > 0 ? o->seconds : 0.02;
    if (rounds > BENCH_ROUNDS) rounds = BENCH_ROUNDS;
    memset(out, 0, sizeof *out * (size_t)count);
    for (int i = 0; i < count; i++) repeat[i] = calibrate(&v[i], seconds);
    for (int r = 0; r < rounds; r++) {
        for (int k = 0; k < count; k++) {
            int i = r % 2 ? count - 1 - k : k; /* who comes after whom must not favour anybody */
            bool disturbed = true;
            for (int tries = 0; disturbed && tries < 6; tries++) {
                times[i][r] = sample(&v[i], repeat[i], &disturbed);
                out[i].disturbed += disturbed;
            }
        }
    }
    for (int i = count - 1; i >= 0; i--) {
        for (int r = 0; r < rounds; r++) ratio[r] = times[i][r] / times[0][r];
        out[i].ratio = median(ratio, rounds);
    }
    for (int i = 0; i < count; i++) {
        out[i].name = v[i].name;
        out[i].ns = median(times[i], rounds) * 1e9;
        out[i].best_ns = times[i][0] * 1e9; /* sorted by now */
        out[i].gbs = v[i].bytes / out[i].ns;
        out[i].gflops = v[i].flops / out[i].ns;
    }
}

bench_form bench_form_of(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) return BENCH_JSON;
        if (strcmp(argv[i], "--csv") == 0) return BENCH_CSV;
    }
    return BENCH_TABLE;
}

void bench_print(FILE *to, bench_form form, const char *what, const bench_result *r, int count) {
    static bool headed;
    if (form == BENCH_CSV && !headed) fprintf(to, "problem,variant,ns,best_ns,ratio,gb_s,gflop_s,disturbed\n");
    if (form == BENCH_TABLE) fprintf(to, "%s\n", what);
    headed = true;
    for (int i = 0; i < count; i++) {
        if (form == BENCH_JSON)
            fprintf(to,
                    "{\"problem\":\"%s\",\"variant\":\"%s\",\"ns\":%.3f,\"best_ns\":%.3f,\"ratio\":%.4f,\"gb_s\":%.3f,"
                    "\"gflop_s\":%.3f,\"disturbed\":%d}\n",
                    what, r[i].name, r[i].ns, r[i].best_ns, r[i].ratio, r[i].gbs, r[i].gflops, r[i].disturbed);
        else if (form == BENCH_CSV)
            fprintf(to, "%s,%s,%.3f,%.3f,%.4f,%.3f,%.3f,%d\n", what, r[i].name, r[i].ns, r[i].best_ns, r[i].ratio,
                    r[i].gbs, r[i].gflops, r[i].disturbed);
        else
            fprintf(to, "  %-36s %12.1f ns %12.1f best  x%-7.3f %7.1f GB/s %8.1f GFLOP/s\n", r[i].name, r[i].ns,
                    r[i].best_ns, r[i].ratio, r[i].gbs, r[i].gflops);
    }
    fflush(to);
}
