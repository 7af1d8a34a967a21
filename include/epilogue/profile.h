/* profile.h: record what runs: ops and launches on the host, kernels on the device; regions and steps.
 *
 * One recording at a time per process. Threads record into rings of their own without locks or allocation; a full ring
 * counts what it dropped and the trace says "partial". Off, a probe costs one predictable branch. */
#ifndef EPILOGUE_PROFILE_H
#define EPILOGUE_PROFILE_H

#include "trace.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ep_profile_options {
    int wait, warmup, active, repeat; /* as torch.profiler.schedule; all 0: record from start to stop */
    bool no_shapes;                   /* do not record shapes and strides */
    size_t events_per_thread;         /* ring size; 0: 1 << 16 */
    const char *trace_name;
} ep_profile_options;

typedef struct ep_profile ep_profile;
EP_API ep_status ep_profile_start(const ep_profile_options *options, ep_error *err, ep_profile **out);
/* Ends the current step ("ProfilerStep#N") and begins the next. NULL is fine. */
EP_API void ep_profile_step(ep_profile *p);
/* Stops recording and gives the trace, owned by the caller; `out` NULL drops it. `p` ends. */
EP_API ep_status ep_profile_stop(ep_profile *p, ep_error *err, ep_trace **out);

/* A named span on the calling thread; nests. `name` must outlive the recording (a literal, say). */
EP_API void ep_region_begin(const char *name);
EP_API void ep_region_end(void);

typedef enum ep_table_sort {
    EP_SORT_SELF_HOST,
    EP_SORT_TOTAL_HOST,
    EP_SORT_DEVICE,
    EP_SORT_CALLS,
    EP_SORT_KERNELS,
    EP_SORT_BYTES,
    EP_SORT_NAME
} ep_table_sort;
/* The summary by op and kernel, as text `width` columns wide (0: 80), appended to a malloc'ed string the caller frees. */
EP_API ep_status ep_profile_table(const ep_trace *trace, ep_table_sort sort, int width, ep_error *err, char **out);

/* Of a trace of ours: events that found a full ring, and what one event cost where it was recorded (0: not known). */
EP_API void ep_profile_recorded(const ep_trace *trace, int64_t *dropped, double *ns_per_event);

/* What recording costs here, measured now: ns a span event, ns a kernel event, ns a probe when off. */
typedef struct ep_profile_cost {
    double ns_per_span, ns_per_kernel, ns_off;
    bool tsc; /* the calibrated time-stamp counter is the clock, else clock_gettime */
} ep_profile_cost;
EP_API ep_status ep_profile_measure_cost(ep_error *err, ep_profile_cost *out);

#ifdef __cplusplus
}
#endif
#endif
