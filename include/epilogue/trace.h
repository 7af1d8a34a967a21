/* trace.h: a recorded or read trace: its events, lanes, devices and health. Times are integer nanoseconds. A finished
 * trace is immutable and may be read from several threads. Strings live as long as their trace. */
#ifndef EPILOGUE_TRACE_H
#define EPILOGUE_TRACE_H

#include <stdbool.h>

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ep_trace ep_trace;

/* What an event is; docs/trace.md says which categories of Kineto's map to which kind. */
typedef enum ep_event_kind {
    EP_EVENT_OP,            /* cpu_op, Operator */
    EP_EVENT_REGION,        /* user_annotation */
    EP_EVENT_RUNTIME,       /* a host call of the device runtime or driver */
    EP_EVENT_KERNEL,        /* device */
    EP_EVENT_MEMCPY,        /* device */
    EP_EVENT_MEMSET,        /* device */
    EP_EVENT_DEVICE_REGION, /* gpu_user_annotation: no work */
    EP_EVENT_SYNC,          /* cuda_sync */
    EP_EVENT_OVERHEAD,      /* the profiler's own */
    EP_EVENT_PYTHON,        /* python_function */
    EP_EVENT_COMPILE,       /* guard or compile spans of ours */
    EP_EVENT_OTHER_DEVICE,  /* other accelerators' rows: no work of ours */
    EP_EVENT_PROFILER,      /* cat Trace and the like: the profiler's window */
    EP_EVENT_OTHER_SPAN,    /* any other ph X (after pairing B/E) */
    EP_EVENT_FLOW,          /* ph s, t, f */
    EP_EVENT_INSTANT,       /* ph i, I, R */
    EP_EVENT_META,          /* ph M */
    EP_EVENT_OTHER,         /* anything else, kept */
    EP_EVENT_KIND_COUNT
} ep_event_kind;

typedef struct ep_event {
    ep_event_kind kind;
    char phase; /* the ph letter as written */
    const char *name, *category;
    int64_t ts_ns, dur_ns;             /* dur_ns -1: the event has none */
    const char *pid, *tid;             /* as text, numbers and strings alike */
    int64_t device, stream;            /* -1: not given */
    uint64_t correlation, external_id; /* 0: none */
    const char *args;                  /* the args object as JSON text if it was kept, else NULL */
    uint64_t flow_id;
    int64_t flops, bytes_read, bytes_written; /* of a kernel that Epilogue recorded; -1: unknown */
} ep_event;

EP_API size_t ep_trace_count(const ep_trace *trace);
EP_API ep_status ep_trace_event(const ep_trace *trace, size_t index, ep_event *out);
EP_API void ep_trace_destroy(ep_trace *trace);

typedef struct ep_read_options {
    int64_t window_start_ns, window_end_ns; /* both 0: all. Relative to the trace's first span event */
    int64_t step;                           /* with use_step: keep ProfilerStep#N */
    bool use_step;
    const char *region; /* keep events inside regions of this name (glob); with use_step, of those that start in it */
    bool keep_args;     /* keep every args object whole (needed to write the trace again) */
    void (*progress)(void *user, int64_t done, int64_t total);
    void *progress_user;
} ep_read_options;

/* Reads .json or .json.gz (found by content, not by name). `options` NULL: everything, args not kept. Damage that can
 * be mended is mended and counted in the health; what can't be is an error with its byte offset. */
EP_API ep_status ep_trace_read(const char *path, const ep_read_options *options, ep_error *err, ep_trace **out);
EP_API ep_status ep_trace_read_memory(const void *bytes, size_t size, const ep_read_options *options, ep_error *err,
                                      ep_trace **out);

/* Kineto-compatible Chrome JSON; gzip if `path` ends in .gz. */
EP_API ep_status ep_trace_write(const ep_trace *trace, const char *path, ep_error *err);

#ifdef __cplusplus
}
#endif
#endif
