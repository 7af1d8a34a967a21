/* Parallel-for over OpenMP, the pool that oneDNN uses too; no second pool. Serial in builds without OpenMP. A fork-join
 * costs 2 to 3 us, so callers keep small work on their own thread. */
#ifndef EP_BASE_PARALLEL_H
#define EP_BASE_PARALLEL_H

#include <stdint.h>

/* How many of `threads` this thread may start: all, or 1 where it is the child of a fork and its team is not. */
int ep_parallel_most(int threads);
/* Calls body(user, thread, threads) once on each of `threads` threads (the caller is thread 0). Nested calls run
 * serially as body(user, 0, 1). */
void ep_parallel(int threads, void (*body)(void *user, int thread, int threads), void *user);
/* Splits [0, n) into runs of whole grains and calls body(user, begin, end) on up to `threads` threads. */
void ep_parallel_for(int threads, int64_t n, int64_t grain, void (*body)(void *user, int64_t begin, int64_t end),
                     void *user);
/* Waits until all threads of the current ep_parallel region came here. */
void ep_parallel_barrier(void);

#endif
