/* What the analyses share: one study of one trace, filled step by step by the rows of analyses.def, then written as text
 * and JSON. Everything a study points to lives in its arena, its facts or its trace. */
#ifndef EP_READ_ANALYZE_H
#define EP_READ_ANALYZE_H

#include "base/arena.h"
#include "base/json_write.h"
#include "base/text.h"
#include "facts.h"
#include "result.h"
#include "torch_work.h"

enum { EP_WORK_INPUTS = 8, EP_CHAIN_MAX = 12 };

/* Work of one distinct (op, shapes) pair; what an ep_op_work keeps. */
typedef struct ep_work_row {
    bool known, at_least, gemm, bias, writes_first;
    const char *reason;
    int64_t flops, bytes_read, bytes_written;
    int64_t batch, m, n, k;
    char dtype[8];
    int64_t out_numel, out_bytes;
    int input_count;
    struct {
        int64_t numel;
        int element;
        bool expanded;
    } in[EP_WORK_INPUTS];
} ep_work_row;

/* Device work in host order: by (lane of the launch, time of the launch, start). Work without a launch stands at the end
 * with lane EP_NO_INDEX, by start. Its launch and owner are the links': a trace has as many of these as it has kernels. */
typedef struct ep_device_work {
    uint32_t event;
    uint32_t kind; /* facts->names[], or EP_NO_INDEX for copies and memsets */
    uint32_t row;  /* study->rows[] */
} ep_device_work;

/* One op's device work that follows itself: the unit in which fusion and diff think. */
typedef struct ep_node {
    uint32_t first; /* by_stream[first .. the next one's first) */
    uint32_t row;
    uint32_t main;     /* study->work[] index of its longest kernel */
    uint32_t inputs;   /* producers[inputs .. the next one's inputs), by operand */
    uint32_t consumer; /* first reader of its output, or EP_NO_INDEX */
    uint32_t readers : 28;
    uint32_t cls : 4;
} ep_node;

typedef struct ep_gemm_row {
    const char *op, *dtype, *epilogue, *kernel, *reason;
    int64_t batch, m, n, k, count, kernels, ns;
    double tflops, gbs, bound_us; /* NaN: unknown */
    ep_regime regime;
} ep_gemm_row;

typedef struct ep_bound_row { /* of one kernel name, over the instances whose work is known */
    int64_t count, ns, flops, bytes, by_compute;
    double bound_us, to_win_us; /* in all; NaN: no machine */
    bool at_least;              /* some of the work is not known: the bound is a lower one */
} ep_bound_row;

typedef struct ep_fusion_row {
    const char *kind; /* pointwise, epilogue, prologue, copy, run */
    const char *ops[EP_CHAIN_MAX], *kernels[EP_CHAIN_MAX];
    int length;
    int64_t instances, ns;                   /* ns: of all instances */
    int64_t intermediate_bytes, bytes_saved; /* of one instance; -1: unknown */
    double us_saved;                         /* of one instance, upper bound; NaN: unknown */
    double us_by_bytes;                      /* bytes saved over the bandwidth; NaN: unknown */
    const char *blocked_by;                  /* NULL: nothing seen that blocks it */
} ep_fusion_row;

typedef struct ep_gated_row {
    const char *form; /* eager, compiled, tuned, packed */
    const char *act, *kernel;
    int64_t m, n, k, out, count;
    const char *dtype;
    double now_us, gemm_us, pointwise_us, pointwise_bound_us, fused_bound_us; /* of one instance; NaN: unknown */
    int64_t intermediate_bytes;
} ep_gated_row;

/* Whose attention: written out in the model, PyTorch's own taken apart, or that of its layers' fast path for inference. */
#define EP_ATTENTION_BY_HAND "by hand"
#define EP_ATTENTION_MATH "math"
#define EP_ATTENTION_FAST_PATH "fast path"
typedef struct ep_attention_row { /* the scores go through memory */
    const char *form;             /* one of these */
    const char *ops[EP_CHAIN_MAX];
    int length;
    const char *dtype, *blocked_by;
    int64_t batch, queries, keys, head_dim, instances;
    int64_t scores_bytes, bytes_saved; /* of one instance: the scores once, and all their trips */
    int64_t ns, between_ns;            /* of all instances; between the two products */
} ep_attention_row;

typedef struct ep_regime_row {
    const char *name;
    int64_t instances, kernels; /* kernels: of the median instance */
    double host_us, busy_us, window_us, gap_us, delay_us, longest_delay_us, sync_us, comm_us, profiler_low_us,
        profiler_high_us; /* of the median instance */
    double all_host_us;   /* time in which any instance runs */
    double busy_share, largest_gap_us;
    ep_regime regime, without_profiler; /* as recorded; and with the profiler's largest cost taken off */
    const char *why;
} ep_regime_row;

typedef struct ep_idle_row { /* a region without launches, in which a device idles */
    const char *name;
    int64_t count, host_ns, idle_ns; /* over its instances */
    uint32_t first;                  /* its first instance */
} ep_idle_row;

typedef struct ep_compile_row { /* one compiled region or graph, over the trace */
    const char *name;
    int64_t calls, entries;
    double lookup_us, guard_us, prologue_us, call_us; /* of one call, median; NaN: none seen */
} ep_compile_row;

typedef struct ep_recompile_row {
    const char *kind, *name, *region, *detail;
    int64_t ts_ns, dur_ns, step;
} ep_recompile_row;

typedef struct ep_memory_row { /* by device: when most was allocated, see ep_memory_use */
    const char *device;
    const char *op, *outer_op, *region; /* around that moment on its thread: innermost, outermost, innermost; or NULL */
    const ep_memory_use *use;
} ep_memory_row;

typedef struct ep_finding {
    const char *id, *sentence;
    const char *evidence[6];
    int evidence_count;
    double weight; /* us at stake; orders the findings */
} ep_finding;

typedef struct ep_study {
    const ep_trace *trace;
    ep_facts *facts;
    const char *label;
    const ep_analysis_options *options;
    ep_arena arena;
    bool failed; /* memory ran out somewhere */

    const char *device_name; /* of the busiest device, or NULL */
    ep_machine machine;
    bool has_machine;
    const char *no_machine; /* why not */

    ep_device_work *work;
    size_t work_count;
    uint32_t *lane_first; /* work[] of a lane: lane_first[lane] .. lane_first[lane + 1] */
    uint32_t *work_lanes; /* the lanes that have any */
    size_t work_lane_count;
    ep_work_row *rows;
    size_t row_count, row_cap;

    uint32_t *by_stream; /* work[] indices by (lane of the device event, start) */
    ep_node *nodes;      /* in stream order; one more stands behind the last */
    size_t node_count;
    uint32_t *producers; /* nodes[] that wrote an operand, or EP_NO_INDEX */
    size_t producer_cap;
    uint32_t *node_of; /* by work[] index; NULL before it is asked for (ep_study_node_of) */

    ep_bound_row *bounds; /* by facts->names[] */
    ep_gemm_row *gemms;
    size_t gemm_count, gemm_cap;
    uint32_t *node_graph, *node_step; /* by node: the compiled graph and the step around it, or EP_NO_INDEX */
    ep_fusion_row *fusions;
    size_t fusion_count, fusion_cap;
    ep_gated_row *gated;
    size_t gated_count, gated_cap;
    ep_attention_row *attentions; /* most time between the products first */
    size_t attention_count, attention_cap;
    ep_regime_row *regimes;
    size_t regime_count, regime_cap;
    int64_t comm_ns, comm_hidden_ns; /* in collectives, over the devices; of that beside other kernels */
    ep_idle_row *idles;              /* most idle time first; none inside another */
    size_t idle_count, idle_cap;
    ep_memory_row *memory;
    size_t memory_count, memory_cap;
    ep_compile_row *compiles;
    size_t compile_count, compile_cap;
    int64_t lookups, lookups_without_code, first_without_code_ns; /* of compiled code; the first one that found none */
    int64_t compilations, compilation_ns; /* torch.compile's, the first ones too; a span inside another counts once */
    bool recompiles_unknown;              /* several compilations, and nothing tells of which frames */
    ep_recompile_row *recompiles;
    size_t recompile_count, recompile_cap;
    ep_finding *findings;
    size_t finding_count, finding_cap;
    int64_t allocator_calls, allocator_ns; /* cudaMalloc and its likes in steady state */
    int64_t sync_calls, sync_ns, longest_sync_ns;
    const char *longest_sync;
    int64_t pageable_copies, pageable_ns, pageable_bytes;
    double median_delay_us, setup_us;
    const char *setup_op;
} ep_study;

/* Nothing was launched, nothing ran on a device and none is named: a run on the processor, or a record of it alone. */
static inline bool ep_study_host_only(const ep_study *s) {
    const ep_health *h = &s->facts->health;
    return !h->device_recorded && !h->launches && !h->memory_launches && !s->trace->device_count;
}
/* Are the times of the ops' work known: a device's, or the host's own where it ran alone? */
static inline bool ep_study_timed(const ep_study *s) {
    return s->facts->health.device_recorded || ep_study_host_only(s);
}
/* Do the totals lack something? */
static inline bool ep_study_partial(const ep_study *s) {
    const ep_health *h = &s->facts->health;
    return !h->complete || h->skipped || h->launches_without_kernel || h->kernels_without_launch || !ep_study_timed(s);
}
static inline uint32_t ep_work_launch(const ep_study *s, const ep_device_work *w) {
    return s->facts->links->launch[w->event];
}
static inline uint32_t ep_work_owner(const ep_study *s, const ep_device_work *w) {
    return ep_links_owner(s->facts->links, w->event);
}
/* The lane and the time of its launch; EP_NO_INDEX and its own start where there is none. */
static inline uint32_t ep_work_lane(const ep_study *s, const ep_device_work *w) {
    uint32_t launch = ep_work_launch(s, w);
    return launch == EP_NO_INDEX ? EP_NO_INDEX : s->trace->lane[launch];
}
static inline int64_t ep_work_launch_ts(const ep_study *s, const ep_device_work *w) {
    uint32_t launch = ep_work_launch(s, w);
    return s->trace->ts[launch == EP_NO_INDEX ? w->event : launch];
}
static inline ep_kernel_class ep_work_class(const ep_study *s, const ep_device_work *w) {
    if (w->kind != EP_NO_INDEX) return (ep_kernel_class)s->facts->names[w->kind].cls;
    return s->trace->kind[w->event] == EP_EVENT_MEMCPY ? EP_CLASS_COPY : EP_CLASS_MEMSET;
}
/* Is it one of several in a graph's replay? */
static inline bool ep_work_in_replay(const ep_study *s, const ep_device_work *w) {
    uint32_t launch = ep_work_launch(s, w);
    return launch != EP_NO_INDEX && ep_links_is_replay(s->facts->links, launch);
}

static inline uint32_t ep_node_count(const ep_node *n) {
    return n[1].first - n->first;
}
static inline uint32_t ep_node_owner(const ep_study *s, const ep_node *n) {
    return ep_work_owner(s, &s->work[n->main]);
}
static inline uint32_t ep_node_stream(const ep_study *s, const ep_node *n) {
    return s->trace->lane[s->work[n->main].event];
}
static inline int ep_node_inputs(const ep_node *n) {
    return (int)(n[1].inputs - n->inputs);
}
static inline uint32_t ep_node_producer(const ep_study *s, const ep_node *n, int input) {
    return input < ep_node_inputs(n) ? s->producers[n->inputs + (uint32_t)input] : EP_NO_INDEX;
}
int64_t ep_node_ns(const ep_study *s, const ep_node *n); /* nodes.c */
/* Fills node_of; false when memory is out. */
bool ep_study_node_of(ep_study *s);

ep_status ep_study_create(const ep_trace *trace, const char *label, const ep_analysis_options *options, ep_error *err,
                          ep_study **out);
void ep_study_destroy(ep_study *s);

/* The analyses, in the order of analyses.def; each fills its part of the study. */
#define EP_ANALYSIS(name, run, sentence) ep_status run(ep_study *s, ep_error *err);
#include "analyses.def"
#undef EP_ANALYSIS
ep_status ep_study_run(ep_study *s, ep_error *err);

/* study.c: what several analyses ask. */
const char *ep_study_name(const ep_study *s, uint32_t event);
const char *ep_study_printf(ep_study *s, const char *fmt, ...)
    EP_PRINTF(2, 3); /* in the arena; "" when memory is out */
bool ep_study_finding(ep_study *s, const char *id, double weight, const char *sentence);
void ep_study_evidence(ep_study *s, const char *text); /* of the newest finding */
/* Least time of `work` with the peak of `dtype` (as kernel names spell it; "" or unknown: only memory counts). NaN without
 * a machine. */
double ep_study_bound_us(const ep_study *s, int64_t flops, int64_t bytes, const char *dtype, ep_regime *regime);
double ep_study_bandwidth(const ep_study *s); /* GB/s, or 0 */
/* work[] launched on `lane` in [start, end): first index and count. */
void ep_study_range(const ep_study *s, uint32_t lane, int64_t start, int64_t end, size_t *first, size_t *count);
/* The work of a region's instance, in the order of its launches: from its own thread, and from the others of its process
 * where they work for it (a backward pass). The indices are written to *out (malloc'ed, the caller's). */
bool ep_study_region_work(const ep_study *s, uint32_t region_event, uint32_t **out, size_t *count);
/* Is the event inside [start, end) of an instance of the region the options ask for (or do they ask for none)? */
bool ep_study_wants(const ep_study *s, const char *region);
/* A kernel's name for a table: the function without its arguments, or what it computes. */
const char *ep_short_name(const ep_kernel_name *decoded, const char *name, char *buffer, size_t size);

/* explain_text.c, explain_json.c */
void ep_explain_text(const ep_study *s, ep_text *out, int width);
void ep_explain_json(const ep_study *s, ep_json_out *out);
/* ranks.c: several ranks of one run. */
ep_status ep_ranks_text(ep_study *const *studies, size_t count, int width, ep_text *out, ep_error *err);
void ep_ranks_json(ep_study *const *studies, size_t count, ep_json_out *out);

#endif
