/* CUPTI activity records -> the probe. Process-wide, as CUPTI is; started when a recording first launches. */
#ifndef EP_CUDA_CUPTI_H
#define EP_CUDA_CUPTI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Begins recording device activity; false (with the reason in err) where CUPTI is missing or may not run. Any thread. */
bool cupti_start(ep_error *err);
/* Calls between push and pop on this thread belong to our correlation number. */
void cupti_push(uint64_t correlation);
void cupti_pop(void);
/* The work of a launch, which CUPTI cannot know: its kernel carries it. */
void cupti_work(uint64_t correlation, int64_t flops, int64_t bytes_read, int64_t bytes_written);
/* One launch that a replay repeats: the op that asked for it when it was captured, and its work. */
typedef struct cupti_node {
    char op[48];
    int64_t flops, bytes_read, bytes_written;
    size_t first; /* the launch's first kernel, counted over the replay: a library may run several for one call */
} cupti_node;
/* The kernels under `correlation` come from these launches, in this order (copied). */
void cupti_replayed(uint64_t correlation, const cupti_node *nodes, size_t count);
/* Delivers what is complete to the active probe. */
void cupti_flush(void);
/* The same, where so much is pending that the oldest would be forgotten. */
void cupti_flush_if_full(void);
void cupti_stop(void);
/* Device times are mapped to the monotonic clock with at most this error; -1 before the first start. */
int64_t cupti_clock_error_ns(void);

#endif
