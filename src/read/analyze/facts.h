/* The facts every analysis and every guess works from, computed once over one trace. Definitions: docs/trace.md. All
 * arrays belong to the facts; names point into the trace. */
#ifndef EP_READ_FACTS_H
#define EP_READ_FACTS_H

#include <string.h>

#include <epilogue/analyze.h>
#include <epilogue/machine.h>

#include "base/status.h"
#include "model/trace/trace.h"

typedef enum ep_kernel_class {
    EP_CLASS_OTHER,
    EP_CLASS_GEMM,
    EP_CLASS_CONV,
    EP_CLASS_ATTENTION,
    EP_CLASS_POINTWISE,
    EP_CLASS_REDUCTION,
    EP_CLASS_NORM,
    EP_CLASS_COPY,
    EP_CLASS_MEMSET,
    EP_CLASS_COLLECTIVE,
    EP_CLASS_COUNT
} ep_kernel_class;
const char *ep_kernel_class_name(ep_kernel_class c);

/* "backend_compile_data: fn_name=..., compile_id=0/1": what torch.compile notes inside its spans, as spans of their own.
 * Where compile_id stands in the name of one, or NULL. recompile.c. */
const char *ep_compile_note(const char *name);

typedef struct ep_kernel_fact { /* its launch and its owner are the links' */
    uint32_t event;             /* row of the trace */
    uint32_t name_id;           /* names[] */
} ep_kernel_fact;

/* One distinct kernel name with its decoded fields. */
typedef struct ep_kernel_kind {
    const char *name;
    uint8_t cls;
    int64_t count, total_ns;
    ep_kernel_name decoded;
} ep_kernel_kind;

/* One instance of a region. Kernel counts: by launches on the region's own thread, and on any thread of its pid. */
typedef struct ep_region_instance {
    uint32_t event;
    int64_t kernels, kernels_any_thread, launches, memcpys, memsets;
    int64_t cpu_ns, device_ns, device_ns_any_thread; /* device: sum of its kernels', copies' and memsets' durations */
    int64_t kernel_ns, kernel_ns_any_thread;         /* of kernels alone */
} ep_region_instance;

typedef struct ep_region_fact {
    const char *name;
    uint32_t first, count; /* instances[first .. first + count), in time order */
} ep_region_fact;

typedef struct ep_op_fact { /* by name */
    const char *name;
    int64_t count, self_ns, total_ns, device_ns, kernels, self_kernels;
    int64_t longest_self_ns;     /* of one instance */
    int64_t views, view_self_ns; /* instances that launched no kernel, and their self time */
    int64_t idle, idle_self_ns;  /* of these the ones without a copy or memset on the device either */
    /* Backward ops of it or of the ops in it; host time of the whole, its device time and kernels. */
    int64_t backward_count, backward_ns, backward_device_ns, backward_kernels;
} ep_op_fact;

typedef struct ep_device_fact {
    int64_t id;
    const char *name; /* or NULL */
    int64_t kernels, memcpys, memsets, busy_ns, span_ns, start_ns, end_ns;
} ep_device_fact;

typedef struct ep_health {
    bool complete, device_recorded;
    int64_t events, span_events, skipped;
    int64_t launches, kernels, launches_without_kernel, kernels_without_launch, kernels_before_launch;
    int64_t memory_launches, memory_launches_without_event, graph_launches;
    int64_t impossible_times, overlaps_on_stream, mended_nesting;
    int64_t clock_skew_ns; /* largest amount by which a kernel starts before its launch */
} ep_health;

typedef struct ep_facts {
    const ep_trace *trace;
    ep_links *links;
    ep_health health;
    int64_t span_start_ns, span_end_ns;
    ep_kernel_fact *kernels; /* in (device, stream, start) order */
    size_t kernel_count;
    ep_kernel_kind *names; /* by total time, largest first */
    size_t name_count;
    ep_device_fact *devices;
    size_t device_count;
    ep_op_fact *ops; /* by self time, largest first */
    size_t op_count;
    ep_region_fact *regions; /* in order of first appearance */
    size_t region_count;
    ep_region_instance *instances;
    size_t instance_count;
    uint32_t *op_kernels;  /* by row of an op: kernels launched within it (children too); shares the links' memory */
    uint8_t *launch_names; /* by string: 0 not looked at, 1 no launch, 2 a launch */
} ep_facts;

/* The op around a row: `up` holds this answer for all rows before it in links->order, its parent among them. A region that
 * outlives the op it began in is in that op only as long as the op runs. */
uint32_t ep_facts_op_around(const ep_links *l, const uint32_t *up, uint32_t row);

ep_status ep_facts_create(const ep_trace *trace, ep_error *err, ep_facts **out);
void ep_facts_destroy(ep_facts *f);

/* Is a region a step of the profiler's schedule? */
static inline bool ep_region_is_step(const char *name) {
    return strncmp(name, "ProfilerStep#", 13) == 0;
}

/* vendor_name.c: the class that a name was decoded to. */
ep_kernel_class ep_kernel_class_of(const ep_kernel_name *decoded);

#endif
