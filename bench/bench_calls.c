/* What single compiled calls cost while sizes shift and the compiler works, each beside eager calls of the same inputs.
 *   bench_calls [--runs N] [--threads N] [--calls N] [--dtype bf16|f32] [--most BATCH] [--again] [--list]
 * A guest's clock wanders and its neighbours take whole milliseconds, so a longest call by itself says little. Here every
 * draw of a size is five calls back to back: eager, compiled, eager, eager, eager. The compiled call is divided by the
 * mean of the eager calls on both sides of it, and, as a control, the fourth call by those on both sides of it. Beside
 * the wall clock each call has its own thread's time, the switches of its thread (voluntary: it waited; involuntary: it
 * was put aside) and the time that the host of this guest stole. The compiler's own share is what eager calls cost while
 * it works, by what they cost later. What a neighbour takes hits another call in every run, what compiling takes hits the
 * same one: with --runs each call counts by the median of its runs, and the longest of these is told.
 * --again: every size has run by eager before. --list: every compiled call. Each run is a new process with an empty
 * cache. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "article.h"
#include "run/engine/compile.h"

enum { MOST_CALLS = 1000, MOST_RUNS = 9, SIDES = 5 };
static int most_batch = MOST_BATCH;

typedef struct cost {
    double wall_us, cpu_us, steal_us;
    long waits, put_aside; /* voluntary and involuntary switches of the calling thread */
} cost;

/* How a compiled call was answered. */
typedef enum answered { BY_EAGER, TRIAL, CHOSEN, ANSWERS } answered;
static const char *const answers[ANSWERS] = {"while the code is built", "while ways are timed", "by the way chosen"};

typedef struct draw {
    int batch;
    answered by;
    ep_runner way; /* of a trial */
    cost calls[SIDES];
    double ratio, cpu_ratio, control, cpu_control; /* by the eager calls on both sides */
} draw;

static double seconds_of(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double stolen_us(void) {
    FILE *f = fopen("/proc/stat", "r");
    unsigned long long v[8] = {0};
    if (f && fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6],
                    &v[7]) != 8)
        v[7] = 0;
    if (f) fclose(f);
    return (double)v[7] * 1e6 / (double)sysconf(_SC_CLK_TCK);
}

static cost measure(ep_block *b, ep_mode mode, const ep_tensor *x) {
    struct rusage before, after;
    ep_tensor *y;
    double steal = stolen_us();
    getrusage(RUSAGE_THREAD, &before);
    double cpu = seconds_of(CLOCK_THREAD_CPUTIME_ID), wall = seconds_of(CLOCK_MONOTONIC);
    CHECK(ep_block_run(b, mode, x, NULL, &y));
    cost c = {.wall_us = (seconds_of(CLOCK_MONOTONIC) - wall) * 1e6,
              .cpu_us = (seconds_of(CLOCK_THREAD_CPUTIME_ID) - cpu) * 1e6};
    getrusage(RUSAGE_THREAD, &after);
    c.steal_us = stolen_us() - steal;
    c.waits = after.ru_nvcsw - before.ru_nvcsw;
    c.put_aside = after.ru_nivcsw - before.ru_nivcsw;
    ep_tensor_destroy(y);
    return c;
}

/* Samples of each way over all size classes; what grew is what the last call was. */
static void count_samples(const ep_compiled *c, int counts[EP_RUNNERS]) {
    memset(counts, 0, sizeof *counts * EP_RUNNERS);
    for (size_t i = 0; c && i < c->memo.choice_count; i++)
        for (int w = 0; w < EP_RUNNERS; w++) counts[w] += c->memo.choices[i]->count[w];
}

static void one_draw(ep_block *b, const ep_tensor *x, draw *d) {
    ep_compile_stats before = {0}, after;
    int had[EP_RUNNERS], has[EP_RUNNERS];
    if (ep_block_compiled(b)) ep_compiled_stats(ep_block_compiled(b), &before);
    count_samples(ep_block_compiled(b), had);
    for (int k = 0; k < SIDES; k++) d->calls[k] = measure(b, k == 1 ? EP_MODE_COMPILED : EP_MODE_EAGER, x);
    ep_compiled_stats(ep_block_compiled(b), &after);
    count_samples(ep_block_compiled(b), has);
    d->by = after.eager_calls > before.eager_calls ? BY_EAGER : CHOSEN;
    for (int w = 0; d->by == CHOSEN && w < EP_RUNNERS; w++)
        if (has[w] > had[w]) {
            d->by = TRIAL;
            d->way = (ep_runner)w;
        }
}

static void set_ratios(draw *d) {
    const cost *c = d->calls;
    d->ratio = 2 * c[1].wall_us / (c[0].wall_us + c[2].wall_us);
    d->cpu_ratio = 2 * c[1].cpu_us / (c[0].cpu_us + c[2].cpu_us);
    d->control = 2 * c[3].wall_us / (c[2].wall_us + c[4].wall_us);
    d->cpu_control = 2 * c[3].cpu_us / (c[2].cpu_us + c[4].cpu_us);
}

static bool quiet_call(const draw *d, int at) {
    for (int k = at - 1; k <= at + 1; k++)
        if (d->calls[k].steal_us > 0 || d->calls[k].put_aside) return false;
    return true;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double rank(double *v, int n, double share) {
    if (!n) return NAN;
    qsort(v, (size_t)n, sizeof *v, by_value);
    int at = (int)(share * n);
    return v[at < n ? at : n - 1];
}

/* `control`: the fourth call, an eager one, in place of the compiled one. */
static void row(const char *what, const draw *all, int count, int by, bool control, bool quiet) {
    static double wall[MOST_CALLS], cpu[MOST_CALLS];
    int n = 0, waits = 0;
    for (int i = 0; i < count; i++) {
        const draw *d = &all[i];
        if ((by >= 0 && d->by != (answered)by) || (quiet && !quiet_call(d, control ? 3 : 1))) continue;
        wall[n] = control ? d->control : d->ratio;
        cpu[n++] = control ? d->cpu_control : d->cpu_ratio;
        waits += d->calls[control ? 3 : 1].waits > 0;
    }
    if (!n) return;
    printf("  %-36s %5d  %6.2f %6.2f %6.2f   %6.2f %6.2f  %5d\n", what, n, rank(wall, n, 0.5), rank(wall, n, 0.99),
           rank(wall, n, 1), rank(cpu, n, 0.5), rank(cpu, n, 1), waits);
}

/* Eager calls beside the compiler by the usual eager call of their size. */
static void beside_the_compiler(const draw *all, int count) {
    static double ratio[MOST_CALLS], same[MOST_CALLS];
    int n = 0;
    for (int i = 0; i < count; i++) {
        if (all[i].by != BY_EAGER) continue;
        int m = 0;
        for (int k = 0; k < count; k++)
            if (all[k].batch == all[i].batch && all[k].by != BY_EAGER) same[m++] = all[k].calls[2].wall_us;
        if (m) ratio[n++] = all[i].calls[2].wall_us / rank(same, m, 0.5);
    }
    if (n)
        printf(
            "eager calls while the compiler worked, by the usual one of their size: median %.2f, longest %.2f of %d\n",
            rank(ratio, n, 0.5), rank(ratio, n, 1), n);
}

static void list(const draw *all, int count) {
    static const char *const ways[EP_RUNNERS] = {"plan", "eager", "epilogue", "post-ops", "mix"};
    for (int i = 0; i < count; i++) {
        const draw *d = &all[i];
        printf(
            "%4d batch %2d %-24s %-8s %9.0f us (eager %9.0f, %9.0f)  x%.2f cpu x%.2f steal %.0f waits %ld aside %ld\n",
            i, d->batch, answers[d->by], d->by == TRIAL ? ways[d->way] : "", d->calls[1].wall_us, d->calls[0].wall_us,
            d->calls[2].wall_us, d->ratio, d->cpu_ratio, d->calls[1].steal_us, d->calls[1].waits,
            d->calls[1].put_aside);
    }
}

static int batches(uint64_t *state) {
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return 1 + (int)((*state >> 33) % (uint64_t)most_batch);
}

/* One process: prints a line for each draw. */
static int child(ep_dtype dtype, int threads, int count, bool again) {
    char dir[] = "/tmp/bench-calls-XXXXXX";
    if (!mkdtemp(dir) || ep_context_create(&(ep_context_options){.threads = threads}, NULL, &ctx) != EP_OK) return 1;
    ep_block *b = geglu(dtype);
    CHECK(ep_block_compile_with(b, &(ep_compile_options){.cache_dir = dir}));
    ep_tensor *x = random_tensor(dtype, 3, (int64_t[]){MOST_BATCH, SEQ, DIM}, 4, 1), *part;
    for (int n = 1; again && n <= MOST_BATCH; n++) {
        CHECK(ep_tensor_slice(x, 0, 0, n, 1, NULL, &part));
        measure(b, EP_MODE_EAGER, part);
        ep_tensor_destroy(part);
    }
    uint64_t state = 88172645463325252u;
    for (int i = 0; i < count; i++) {
        draw d = {.batch = batches(&state)};
        CHECK(ep_tensor_slice(x, 0, 0, d.batch, 1, NULL, &part));
        one_draw(b, part, &d);
        ep_tensor_destroy(part);
        printf("%d %d %d", d.batch, (int)d.by, (int)d.way);
        for (int k = 0; k < SIDES; k++)
            printf(" %f %f %f %ld %ld", d.calls[k].wall_us, d.calls[k].cpu_us, d.calls[k].steal_us, d.calls[k].waits,
                   d.calls[k].put_aside);
        printf("\n");
    }
    size_t removed;
    CHECK(ep_kernel_cache_clear(dir, NULL, &removed));
    rmdir(dir);
    return 0;
}

static bool read_draw(FILE *p, draw *d) {
    int by, way;
    if (fscanf(p, "%d %d %d", &d->batch, &by, &way) != 3) return false;
    d->by = (answered)by;
    d->way = (ep_runner)way;
    for (int k = 0; k < SIDES; k++)
        if (fscanf(p, "%lf %lf %lf %ld %ld", &d->calls[k].wall_us, &d->calls[k].cpu_us, &d->calls[k].steal_us,
                   &d->calls[k].waits, &d->calls[k].put_aside) != 5)
            return false;
    set_ratios(d);
    return true;
}

static int run_child(const char *args, draw *out) {
    char command[512], self[256];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n < 0) exit(1);
    self[n] = 0;
    snprintf(command, sizeof command, "'%s' --child %s", self, args);
    FILE *p = popen(command, "r");
    int count = 0;
    while (p && count < MOST_CALLS && read_draw(p, &out[count])) count++;
    if (!p || pclose(p) != 0) {
        fprintf(stderr, "bench_calls: %s failed\n", command);
        exit(1);
    }
    return count;
}

/* Each call by the median of its runs; how it was answered is the first run's. */
static void join_runs(draw all[][MOST_CALLS], int runs, int count, draw *out) {
    for (int i = 0; i < count; i++) {
        double v[4][MOST_RUNS];
        for (int r = 0; r < runs; r++) {
            const draw *d = &all[r][i];
            v[0][r] = d->ratio, v[1][r] = d->cpu_ratio, v[2][r] = d->control, v[3][r] = d->cpu_control;
        }
        out[i] = all[0][i];
        out[i].ratio = rank(v[0], runs, 0.5), out[i].cpu_ratio = rank(v[1], runs, 0.5);
        out[i].control = rank(v[2], runs, 0.5), out[i].cpu_control = rank(v[3], runs, 0.5);
    }
}

static void table(const draw *all, int count, bool joined) {
    printf("  %-36s %5s  %6s %6s %6s   %6s %6s  %5s\n", joined ? "medians of the runs" : "", "calls", "median", "p99",
           "most", "cpu", "most", "waits");
    row("compiled", all, count, -1, false, false);
    for (int by = 0; by < ANSWERS; by++) row(answers[by], all, count, by, false, false);
    if (!joined) row("compiled, undisturbed", all, count, -1, false, true);
    row("eager (control)", all, count, -1, true, false);
    if (!joined) row("eager (control), undisturbed", all, count, -1, true, true);
    if (!joined) beside_the_compiler(all, count);
}

int main(int argc, char **argv) {
    static draw all[MOST_RUNS + 1][MOST_CALLS];
    bench_start(argc, argv);
    int threads = ep_cpu_get()->cores, count = 200, runs = 1;
    bool again = false, listed = false, is_child = false;
    ep_dtype dtype = EP_DTYPE_BF16;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--runs") && i + 1 < argc) runs = atoi(argv[++i]);
        if (!strcmp(argv[i], "--threads") && i + 1 < argc) threads = atoi(argv[++i]);
        if (!strcmp(argv[i], "--calls") && i + 1 < argc) count = atoi(argv[++i]);
        if (!strcmp(argv[i], "--dtype") && i + 1 < argc) dtype = strcmp(argv[++i], "f32") ? dtype : EP_DTYPE_F32;
        if (!strcmp(argv[i], "--most") && i + 1 < argc) most_batch = atoi(argv[++i]);
        again |= !strcmp(argv[i], "--again");
        listed |= !strcmp(argv[i], "--list");
        is_child |= !strcmp(argv[i], "--child");
    }
    if (most_batch < 1 || most_batch > MOST_BATCH) most_batch = MOST_BATCH;
    if (count < 1 || count > MOST_CALLS) count = 200;
    if (runs < 1 || runs > MOST_RUNS) runs = 1;
    if (is_child) return child(dtype, threads, count, again);
    char args[128];
    snprintf(args, sizeof args, "--threads %d --calls %d --dtype %s --most %d%s", threads, count, ep_dtype_name(dtype),
             most_batch, again ? " --again" : "");
    printf(
        "geglu %s [batch, %d, %d] -> %d, batch drawn from 1..%d, empty cache, %d threads; calls by the eager calls on "
        "both sides\n",
        ep_dtype_name(dtype), SEQ, DIM, HIDDEN, most_batch, threads);
    for (int r = 0; r < runs; r++) {
        if (run_child(args, all[r]) != count) return 1;
        if (listed) list(all[r], count);
        table(all[r], count, false);
    }
    if (runs < 2) return 0;
    join_runs(all, runs, count, all[MOST_RUNS]);
    if (listed) list(all[MOST_RUNS], count);
    table(all[MOST_RUNS], count, true);
    return 0;
}
