/* Which way compiled mode keeps for a block in fresh processes, with busy loops beside them.
 *   bench_choice [--processes N] [--busy N] [--after S] [BLOCK DTYPE ROWS DIM HIDDEN]
 * --busy: that many loops, each bound to a core of its own. --after: calls go on for S seconds once the first choice is
 * made, so that a doubtful one may be made again; the loops end then. A line for each way, and with how many calls and
 * seconds it was found. */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <epilogue/epilogue.h>

#include "bench.h"

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        if ((call) != EP_OK) fprintf(stderr, "%s failed\n", #call), exit(1);                                           \
    } while (0)

enum { MOST_BUSY = 64 };
typedef struct found {
    ep_answer first, last;
    long calls;
    double seconds;
} found;
static const char *const names[] = {"undecided", "plan", "post-ops", "epilogue", "eager"};

static void start_busy(int count, pid_t *pids) {
    for (int i = 0; i < count; i++) {
        if ((pids[i] = fork()) != 0) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET((unsigned)i, &set);
        sched_setaffinity(0, sizeof set, &set);
        for (volatile unsigned k = 0;; k++) {
        }
    }
}

static void end_busy(int count, pid_t *pids) {
    for (int i = 0; i < count; i++) {
        if (pids[i] <= 0) continue;
        kill(pids[i], SIGKILL);
        waitpid(pids[i], NULL, 0);
        pids[i] = 0;
    }
}

static ep_tensor *matrix(ep_dtype dtype, int64_t rows, int64_t cols, uint64_t seed) {
    ep_tensor *t;
    CHECK(ep_tensor_create(dtype, 2, (int64_t[2]){rows, cols}, NULL, &t));
    CHECK(ep_tensor_fill_random(t, seed, 0.1, NULL));
    return t;
}

static found one_process(char **block, double after, int busy, pid_t *pids) {
    ep_block_kind kind;
    ep_act act;
    ep_dtype dtype;
    ep_context *ctx;
    ep_block *b;
    CHECK(ep_block_parse(block[0], &kind, &act));
    CHECK(ep_dtype_parse(block[1], &dtype));
    int64_t rows = atoll(block[2]), dim = atoll(block[3]), hidden = atoll(block[4]);
    CHECK(ep_context_create(NULL, NULL, &ctx));
    ep_block_weights w = {.up = matrix(dtype, hidden, dim, 1)};
    if (kind != EP_BLOCK_LINEAR) w.down = matrix(dtype, dim, hidden, 2);
    if (kind == EP_BLOCK_GATED) w.gate = matrix(dtype, hidden, dim, 3);
    CHECK(ep_block_create(ctx, kind, act, &w, &b));
    ep_tensor *x = matrix(dtype, rows, dim, 4), *y;
    found f = {0};
    double start = bench_seconds();
    for (long calls = 1; !f.calls || bench_seconds() - start < f.seconds + after; calls++) {
        CHECK(ep_block_run(b, EP_MODE_COMPILED, x, NULL, &y));
        ep_tensor_destroy(y);
        f.last = ep_compiled_answer(ep_block_compiled(b));
        if (!f.last || f.calls) continue;
        f = (found){f.last, f.last, calls, bench_seconds() - start};
        if (after > 0) end_busy(busy, pids);
    }
    return f; /* the process ends here */
}

int main(int argc, char **argv) {
    bench_start(argc, argv);
    char *block[5] = {"geglu", "bf16", "256", "768", "3072"};
    int processes = 24, busy = 0, words = 0;
    double after = 0;
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--", 2) != 0 && words < 5)
            block[words++] = argv[i];
        else if (i + 1 < argc && strcmp(argv[i], "--processes") == 0)
            processes = atoi(argv[++i]);
        else if (i + 1 < argc && strcmp(argv[i], "--busy") == 0)
            busy = atoi(argv[++i]);
        else if (i + 1 < argc && strcmp(argv[i], "--after") == 0)
            after = atof(argv[++i]);
    }
    if (busy < 0 || busy > MOST_BUSY) busy = MOST_BUSY;
    int first[5] = {0}, last[5] = {0};
    double calls = 0, seconds = 0;
    for (int i = 0; i < processes; i++) {
        int fd[2];
        found f = {0};
        if (pipe(fd) != 0) return 1;
        pid_t child = fork();
        if (child == 0) {
            pid_t pids[MOST_BUSY];
            start_busy(busy, pids);
            f = one_process(block, after, busy, pids);
            end_busy(busy, pids);
            _exit(write(fd[1], &f, sizeof f) != sizeof f);
        }
        close(fd[1]);
        if (read(fd[0], &f, sizeof f) != sizeof f) return 1;
        close(fd[0]);
        waitpid(child, NULL, 0);
        first[f.first]++, last[f.last]++;
        calls += (double)f.calls, seconds += f.seconds;
    }
    printf("%s %s %s x %s -> %s, %d processes, %d busy loops; the choice took %.0f calls, %.2f s (means)\n", block[0],
           block[1], block[2], block[3], block[4], processes, busy, calls / processes, seconds / processes);
    for (int i = 0; i < 5; i++)
        if (first[i] || last[i]) printf("  %-10s first %d, %.0f s later %d\n", names[i], first[i], after, last[i]);
    return 0;
}
