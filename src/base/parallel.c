/* OpenMP where the build has it; the same calls run on the caller's thread where it has not. */
#include "parallel.h"

/* TSan cannot see how OpenMP's threads wait for each other: under it every loop runs on the caller's thread. */
#if defined(__SANITIZE_THREAD__)
#undef EP_HAVE_OPENMP
#endif

#ifdef EP_HAVE_OPENMP
#include <omp.h>
#include <pthread.h>
#include <stdbool.h>

/* In the child of a fork OpenMP still counts on the team of the thread that forked, whose other threads are not there:
 * a region of more than one thread would wait for them for ever. */
static _Thread_local bool has_team, team_is_gone;

static void in_child(void) {
    team_is_gone = has_team;
}

static void watch_forks(void) {
    pthread_atfork(NULL, NULL, in_child);
}

int ep_parallel_most(int threads) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (threads <= 1 || team_is_gone) return 1;
    if (!has_team) {
        pthread_once(&once, watch_forks);
        has_team = true;
    }
    return threads;
}
#else
int ep_parallel_most(int threads) {
    return threads;
}
#endif

void ep_parallel(int threads, void (*body)(void *user, int thread, int threads), void *user) {
#ifdef EP_HAVE_OPENMP
    if (ep_parallel_most(threads) > 1 && !omp_in_parallel()) {
#pragma omp parallel num_threads(threads)
        body(user, omp_get_thread_num(), omp_get_num_threads());
        return;
    }
#endif
    (void)threads;
    body(user, 0, 1);
}

typedef struct for_job {
    int64_t n, grain;
    void (*body)(void *user, int64_t begin, int64_t end);
    void *user;
} for_job;

static void run_share(void *user, int thread, int threads) {
    const for_job *j = user;
    int64_t grains = (j->n + j->grain - 1) / j->grain;
    int64_t begin = grains * thread / threads * j->grain, end = grains * (thread + 1) / threads * j->grain;
    if (end > j->n) end = j->n;
    if (begin < end) j->body(j->user, begin, end);
}

void ep_parallel_for(int threads, int64_t n, int64_t grain, void (*body)(void *user, int64_t begin, int64_t end),
                     void *user) {
    if (n <= 0) return;
    if (grain < 1) grain = 1;
    int64_t grains = (n + grain - 1) / grain;
    if (grains < threads) threads = (int)grains;
    if (threads <= 1) {
        body(user, 0, n);
        return;
    }
    for_job job = {n, grain, body, user};
    ep_parallel(threads, run_share, &job);
}

void ep_parallel_barrier(void) {
#ifdef EP_HAVE_OPENMP
#pragma omp barrier
#endif
}
