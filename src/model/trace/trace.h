/* Columns of events: the meeting point of run and read. One row an event; strings and lanes are numbers into tables.
 * Times are nanoseconds relative to `base_ns` (so that base_ns + ts is what the file said). */
#ifndef EP_MODEL_TRACE_H
#define EP_MODEL_TRACE_H

#include <epilogue/trace.h>

#include "base/arena.h"
#include "base/status.h"
#include "base/text.h"

#define EP_NO_INDEX UINT32_MAX

/* One (pid, tid) pair as written; for device events also device and stream. */
typedef struct ep_lane {
    uint32_t pid, tid;      /* strings */
    int64_t device, stream; /* -1: host lane or not given */
    uint32_t name;          /* thread_name from ph M, or 0 */
    uint32_t process_name;  /* or 0 */
    int64_t sort_index;
} ep_lane;

typedef struct ep_trace_device {
    int64_t id;
    uint32_t name; /* "NVIDIA H200" */
    int64_t memory_bytes;
    int32_t sm_count, major, minor;
    uint32_t props; /* the deviceProperties object as JSON text, or 0 */
} ep_trace_device;

typedef struct ep_repair {
    uint32_t kind; /* string: "control_byte", "invalid_utf8", "bare_number", "backslash", "missing_comma",
                      "empty_object", "cut_off", "gzip_cut_off", "negative_dur", "bad_nesting", ... */
    int64_t count, first_offset;
} ep_repair;

/* Operand shapes of an op and grid of a kernel, interned: equal records share one number. */
typedef struct ep_event_info {
    uint32_t input_dims, input_types, input_strides, concrete_inputs; /* strings: JSON text as Kineto writes it, or 0 */
    uint32_t grid[3], block[3];
    int32_t registers, shared_bytes;
    int64_t bytes;                            /* of a copy, or -1 */
    int64_t flops, bytes_read, bytes_written; /* ours, or -1 */
    uint32_t detail;                          /* string: guard text, memcpy kind, collective name; or 0 */
    int64_t graph_id;                         /* or -1 */
    uint32_t extra;                           /* string: other args worth keeping, JSON object text; or 0 */
} ep_event_info;

/* An op that autograd knows: its sequence number, and the thread of the forward op where it is a backward one. */
typedef struct ep_sequence {
    uint32_t row, number;    /* number: the low half, which no run exhausts */
    uint32_t forward_thread; /* 0: a forward op */
} ep_sequence;

/* Where a device's times come from, in traces of ours: CUPTI's records, or events around each launch. */
typedef enum ep_device_times { EP_TIMES_UNKNOWN, EP_TIMES_CUPTI, EP_TIMES_EVENTS } ep_device_times;

/* What "[memory]" events say of one device. `type` is PyTorch's DeviceType: 0 the host, 1 CUDA... */
typedef struct ep_memory_use {
    int64_t type, device, events;
    int64_t start_ns, end_ns, peak_ns;          /* of the first, the last and the highest event */
    int64_t start_bytes, end_bytes, peak_bytes; /* allocated before the first event, after the last, at most */
    int64_t reserved_bytes;                     /* from the device, at most */
    uint32_t peak_lane;
} ep_memory_use;

struct ep_trace {
    size_t count, cap;
    uint8_t *kind; /* ep_event_kind */
    char *phase;
    uint32_t *name;             /* string */
    uint32_t *category;         /* string, as written */
    uint32_t *lane;             /* lanes[] */
    int64_t *ts, *dur;          /* ns; dur -1: none */
    uint32_t *correlation;      /* the low half (ep_trace_correlation); 0: none; flows keep their id here */
    uint32_t *correlation_high; /* NULL while every one fits into the low half */
    uint32_t *info;             /* infos[]; 0: none */
    /* Wide and seldom asked for: both NULL in a trace that was read without keep_args; read them with
     * ep_trace_external_id and ep_trace_args. A trace made by ep_trace_create has them. */
    uint64_t *external_id; /* 0: none */
    uint32_t *args;        /* string: the whole args object; 0: none */
    bool lean;             /* without these two */

    ep_intern strings;
    ep_lane *lanes;
    size_t lane_count, lane_cap;
    ep_event_info *infos; /* [0] is "nothing known" */
    size_t info_count, info_cap;
    uint32_t *lane_slots, *info_slots; /* hash tables, row + 1 */
    size_t lane_slot_count, info_slot_count;
    ep_trace_device *devices;
    size_t device_count, device_cap;
    ep_repair *repairs;
    size_t repair_count, repair_cap;
    ep_memory_use *memory; /* one a device whose allocator was recorded (profile_memory) */
    size_t memory_count, memory_cap;
    ep_sequence *sequences; /* by row */
    size_t sequence_count, sequence_cap;

    int64_t base_ns;          /* added to ts gives the file's own time */
    int64_t file_base_ns;     /* baseTimeNanoseconds as written, or 0 */
    uint32_t file_name;       /* string */
    uint32_t schema;          /* string: top-level keys other than the events, as a JSON object, or 0 */
    int64_t rank, world_size; /* distributedInfo, or -1 */
    bool has_shapes;          /* record_shapes */
    bool complete;            /* the file ended as it should */
    bool is_ours;             /* written by Epilogue: kernel times on a CPU lane are device work */
    int64_t skipped;          /* events that could not be kept */
    int64_t folded;           /* events of the file that have no row of their own and lost nothing: the E of a B/E pair,
                                 and flows from a call to its kernel, which repeat args.correlation (kept with args) */
    int64_t *folded_by;       /* likewise, by their category's string: folded_by_cap of them */
    size_t folded_by_cap;
    int64_t dropped;         /* ours: events lost to full rings */
    double own_ns_per_event; /* ours: the recorder's measured cost, or 0 */
    ep_device_times device_times;
    int64_t
        device_error_ns; /* by how much device times may be off the host's clock; counts where device_times is known */
};

/* "CUPTI", "events"; NULL for EP_TIMES_UNKNOWN. */
const char *ep_device_times_name(ep_device_times times);

ep_trace *ep_trace_create(void); /* NULL when memory is out */
/* Leaves the columns external_id and args out; before the first append. */
void ep_trace_make_lean(ep_trace *t);
static inline uint64_t ep_trace_correlation(const ep_trace *t, size_t i) {
    return t->correlation_high ? (uint64_t)t->correlation_high[i] << 32 | t->correlation[i] : t->correlation[i];
}
/* False when memory is out. */
bool ep_trace_set_correlation(ep_trace *t, size_t i, uint64_t correlation);
static inline uint64_t ep_trace_external_id(const ep_trace *t, size_t i) {
    return t->external_id ? t->external_id[i] : 0;
}
static inline uint32_t ep_trace_args(const ep_trace *t, size_t i) {
    return t->args ? t->args[i] : 0;
}
/* Counts one repair of a kind ("control_byte"); `offset` is kept if it is the first. False when memory is out. */
bool ep_trace_repair(ep_trace *t, const char *kind, int64_t offset);
/* Keeps the autograd number of the newest row. False when memory is out. */
bool ep_trace_sequence(ep_trace *t, uint64_t number, uint64_t forward_thread);
/* Counts an event of `category` that gets no row. False when memory is out. */
bool ep_trace_fold(ep_trace *t, uint32_t category);
/* Drops the rows whose keep[] is 0, in place and in order. */
void ep_trace_compact(ep_trace *t, const uint8_t *keep);
/* Appends an empty event (all columns zero, dur -1) and gives its row, or EP_NO_INDEX when memory is out. */
uint32_t ep_trace_append(ep_trace *t);
uint32_t ep_trace_string(ep_trace *t, const char *s, size_t n);
uint32_t ep_trace_lane(ep_trace *t, uint32_t pid, uint32_t tid, int64_t device, int64_t stream);
uint32_t ep_trace_find_lane(const ep_trace *t, uint32_t pid, uint32_t tid, int64_t device, int64_t stream);
uint32_t ep_trace_info(ep_trace *t, const ep_event_info *info);
static inline const char *ep_trace_text(const ep_trace *t, uint32_t id) {
    return ep_intern_text(&t->strings, id);
}
/* The kind of an event by its category (case ignored) and name; kind rules are in trace.c's table. */
ep_event_kind ep_event_kind_of(const char *category, const char *name, char phase);
static inline bool ep_event_is_device_work(uint8_t kind) {
    return kind == EP_EVENT_KERNEL || kind == EP_EVENT_MEMCPY || kind == EP_EVENT_MEMSET;
}
static inline bool ep_event_is_span(const ep_trace *t, size_t i) {
    return t->phase[i] == 'X' && t->dur[i] >= 0;
}
/* Is this runtime call one that launches kernels? (LaunchKernel, GraphLaunch, LaunchCooperativeKernel,
 * EnqueueKernelLaunch in the name; LaunchHostFunc is none.) */
bool ep_runtime_is_launch(const char *name);
/* Of those, one that launches a graph? Any other brings one kernel, at most with a memset that its library makes. */
bool ep_runtime_is_graph_launch(const char *name);

/* link.c: launch <-> device events, parent <-> child, owner ops. Computed once over a finished trace. A row of another
 * kind than the one named has nothing to say: `launch` and `first_work` are one array, of which device events use the one
 * meaning and runtime calls the other. */
typedef struct ep_row_pair {
    uint32_t row, other;
} ep_row_pair;
typedef struct ep_links {
    const ep_trace *trace;
    size_t count;         /* events */
    uint32_t *parent;     /* innermost op or region that encloses the event on its lane, or EP_NO_INDEX */
    uint32_t *launch;     /* device event -> its runtime call, or EP_NO_INDEX */
    uint32_t *first_work; /* runtime call -> first device event in work_list, or EP_NO_INDEX */
    uint32_t *work_list;  /* device events by runtime call, those of one call in start order */
    size_t work_total;
    uint32_t *order; /* all span events by (lane, ts, longer first, file order) */
    size_t order_count;
    ep_row_pair *owners; /* by row: calls whose owner op is not the first op up their parents */
    size_t owner_count, owner_cap;
    ep_row_pair *forwards; /* by row: backward op -> the forward op it belongs to */
    size_t forward_count, forward_cap;
    int64_t mended_nesting; /* spans that overlapped a sibling without nesting */
} ep_links;
ep_status ep_links_create(const ep_trace *t, ep_error *err, ep_links **out);
void ep_links_destroy(ep_links *l);
/* Has a row device work that it launched? And is it a replay, a graph's launch with several pieces of work? */
static inline bool ep_links_has_work(const ep_links *l, uint32_t row) {
    return l->trace->kind[row] == EP_EVENT_RUNTIME && l->first_work[row] != EP_NO_INDEX;
}
static inline bool ep_links_is_replay(const ep_links *l, uint32_t row) {
    if (!ep_links_has_work(l, row)) return false;
    size_t next = (size_t)l->first_work[row] + 1;
    return next < l->work_total && l->launch[l->work_list[next]] == row &&
           ep_runtime_is_graph_launch(ep_trace_text(l->trace, l->trace->name[row]));
}
/* Runtime call -> op it runs in; device event -> its owner op; or EP_NO_INDEX. */
uint32_t ep_links_owner(const ep_links *l, uint32_t row);
/* Backward op -> forward op, or EP_NO_INDEX. */
uint32_t ep_links_forward(const ep_links *l, uint32_t row);
/* How many; counted when asked. */
uint32_t ep_links_work_count(const ep_links *l, uint32_t row);

#endif
