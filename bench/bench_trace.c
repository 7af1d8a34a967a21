/* How fast traces are read: parse only, parse and facts, and what `epi explain` takes in all. Each figure is the best of
 * three, each run in a process of its own so that its peak memory is its own.
 *   bench_trace [--mb N] [--file F] [--epi PATH] [--shared FOLDER] [--pipe MB]
 * Without --file a trace of N MB (1000) is generated (tests/gen_trace.h) and removed afterwards. --pipe: as many MB go from
 * the generator through a FIFO into `epi explain`, whose memory is told; no disk is needed for any size. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include "../tests/gen_trace.h"
#include "read/analyze/facts.h"

typedef enum job { READ, READ_FACTS, EXPLAIN } job;
static const char *const job_names[] = {"read", "read + facts", "epi explain"};

typedef struct figure {
    double seconds, peak_mb;
    bool ok;
} figure;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int work(job what, const char *path, const char *epi) {
    ep_error err;
    ep_trace *t = NULL;
    ep_facts *f = NULL;
    if (what == EXPLAIN) {
        int null = open("/dev/null", O_WRONLY);
        dup2(null, STDOUT_FILENO);
        execl(epi, "epi", "explain", path, "--json", (char *)NULL);
        return 127;
    }
    if (ep_trace_read(path, NULL, &err, &t) != EP_OK) {
        fprintf(stderr, "%s: %s\n", path, err.message);
        return 1;
    }
    if (what == READ) return 0;
    return ep_facts_create(t, &err, &f) == EP_OK ? 0 : 1;
}

static figure run_once(job what, const char *path, const char *epi) {
    double start = now();
    pid_t pid = fork();
    if (pid == 0) _exit(work(what, path, epi));
    int status = 1;
    struct rusage usage = {0};
    wait4(pid, &status, 0, &usage);
    return (figure){now() - start, (double)usage.ru_maxrss / 1024, WIFEXITED(status) && WEXITSTATUS(status) == 0};
}

static figure best(job what, const char *path, const char *epi, int runs) {
    figure least = {0};
    for (int i = 0; i < runs; i++) {
        figure one = run_once(what, path, epi);
        if (!one.ok) return one;
        if (i == 0 || one.seconds < least.seconds) least = one;
    }
    return least;
}

static double file_mb(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 ? (double)st.st_size / 1e6 : 0;
}

static void measure(const char *path, const char *epi) {
    double mb = file_mb(path);
    printf("%s: %.1f MB\n", path, mb);
    for (int j = READ; j <= EXPLAIN; j++) {
        if (j == EXPLAIN && !epi) continue;
        figure f = best((job)j, path, epi, 3);
        if (f.ok)
            printf("  %-14s %8.3f s  %7.0f MB/s  peak %7.1f MB = %4.1f %% of the file\n", job_names[j], f.seconds,
                   mb / f.seconds, f.peak_mb, 100 * f.peak_mb * 1.048576 / mb);
        else
            printf("  %-14s failed\n", job_names[j]);
    }
}

/* The generator sets the pace here: only the memory says something. */
static void measure_pipe(int64_t mb, const char *epi) {
    char fifo[] = "/tmp/epilogue-bench-trace.fifo";
    unlink(fifo);
    if (!epi || mkfifo(fifo, 0600) != 0) {
        fprintf(stderr, "--pipe wants --epi and a FIFO at %s\n", fifo);
        return;
    }
    pid_t pid = fork();
    gen_trace g;
    if (pid == 0) _exit(gen_file(fifo, mb * 1000000, &g) ? 0 : 1);
    figure f = run_once(EXPLAIN, fifo, epi);
    waitpid(pid, NULL, 0);
    unlink(fifo);
    printf("%lld MB through a FIFO: %s, %.1f s, peak %.1f MB = %.1f %%\n", (long long)mb, f.ok ? "done" : "failed",
           f.seconds, f.peak_mb, 100 * f.peak_mb * 1.048576 / (double)mb);
}

static void measure_shared(const char *folder, const char *epi) {
    DIR *dir = opendir(folder);
    if (!dir) return;
    printf("%-44s %10s %10s\n", "trace", "facts ms", "explain ms");
    for (struct dirent *e; (e = readdir(dir));) {
        if (!strstr(e->d_name, ".json")) continue;
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        figure facts = best(READ_FACTS, path, NULL, 5), all = {0};
        if (epi) all = best(EXPLAIN, path, epi, 5);
        printf("%-44s %10.1f %10.1f\n", e->d_name, facts.seconds * 1e3, all.seconds * 1e3);
    }
    closedir(dir);
}

int main(int argc, char **argv) {
    const char *path = NULL, *epi = NULL, *shared = NULL;
    int64_t mb = 1000, pipe_mb = 0;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--mb") == 0) mb = atoll(argv[i + 1]);
        if (strcmp(argv[i], "--pipe") == 0) pipe_mb = atoll(argv[i + 1]);
        if (strcmp(argv[i], "--file") == 0) path = argv[i + 1];
        if (strcmp(argv[i], "--epi") == 0) epi = argv[i + 1];
        if (strcmp(argv[i], "--shared") == 0) shared = argv[i + 1];
    }
    char made[] = "/tmp/epilogue-bench-trace.json";
    gen_trace g;
    if (!path && mb > 0 && !gen_file(made, mb * 1000000, &g)) {
        fprintf(stderr, "%s could not be written\n", made);
        return 1;
    }
    if (path || mb > 0) measure(path ? path : made, epi);
    if (!path && mb > 0) unlink(made);
    if (shared) measure_shared(shared, epi);
    if (pipe_mb > 0) measure_pipe(pipe_mb, epi);
    return 0;
}
