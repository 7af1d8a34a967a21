/* CUPTI activity records -> the probe. Process-wide, as CUPTI is; started when a recording first launches. */
#ifndef EP_CUDA_CUPTI_H
#define EP_CUDA_CUPTI_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* Begins recording device activity; false (with the reason in err) where CUPTI is missing or may not run. Any thread. */
bool cupti_start(ep_error *err);
/* Calls between push and pop on this thread belong to our correlation number. */
void cupti_push(uint64_t correlation);
void cupti_pop(void);
/* The work of a launch, which CUPTI cannot know: its kernel carries it. */
void cupti_work(uint64_t correlation, int64_t flops, int64_t bytes_read, int64_t bytes_written);
/* Delivers what is complete to the active probe. */
void cupti_flush(void);
void cupti_stop(void);
/* Device times are mapped to the monotonic clock with at most this error; -1 before the first start. */
int64_t cupti_clock_error_ns(void);

#endif
