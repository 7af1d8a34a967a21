/* What a term of a claim measures: over one instance of a region, or over a whole trace. */
#ifndef EP_READ_GUESS_MEASURE_H
#define EP_READ_GUESS_MEASURE_H

#include "guess.h"
#include "read/analyze/analyze.h"

/* Host rows (ops and runtime calls) by process, in time order across its threads. */
typedef struct ep_timeline {
    uint32_t *rows;
    size_t *first; /* rows[first[p] .. first[p + 1]) is the process whose pid is the string p */
    uint8_t built;
} ep_timeline;

/* One trace with what measuring it needs. */
typedef struct ep_subject {
    const ep_trace *trace;
    ep_study *study;        /* NULL where no claim needs one */
    ep_facts *facts;        /* the study's, if there is one */
    uint32_t *lane_first;   /* links->order[lane_first[l] .. lane_first[l + 1]) is lane l */
    uint32_t *kernel_at;    /* event row -> facts->kernels[], or EP_NO_INDEX */
    uint32_t *regime_of;    /* string -> 1 + study->regimes[] of the region of that name, or 0 */
    ep_timeline *processes; /* made when first asked for */
} ep_subject;
/* `study`: run the analyses, for claims about regimes and recompiles. */
ep_status ep_subject_create(const ep_trace *t, bool study, ep_error *err, ep_subject *out);
void ep_subject_free(ep_subject *s);
/* NULL when memory is out. */
const ep_timeline *ep_subject_processes(const ep_subject *s);
/* The first of rows[low .. high), which are in time order, that starts at `ts` or later. */
size_t ep_first_at(const ep_trace *t, const uint32_t *rows, size_t low, size_t high, int64_t ts);

/* Is the device's side known? Our recorder misses no launch: where it saw none, no kernel ran. */
static inline bool ep_subject_device_known(const ep_subject *u) {
    const ep_health *h = &u->facts->health;
    return h->device_recorded || (u->trace->is_ours && h->launches == 0 && u->trace->dropped == 0);
}

typedef struct ep_rows {
    uint32_t *rows;
    size_t count, cap;
} ep_rows;

/* What ran in a scope: rows of the trace, each list in time order on its lane. */
typedef struct ep_scope {
    uint32_t event; /* the region's row, or EP_NO_INDEX for the whole trace */
    bool any_thread;
    int64_t start, end;
    ep_rows ops, calls, work;
    size_t looked_at; /* rows in all that gathering went over: what it cost */
} ep_scope;
/* Refills `s` (zeroed before its first use). False when memory is out. */
bool ep_scope_gather(const ep_subject *u, uint32_t event, bool any_thread, ep_scope *s);
/* Its times alone, no rows: enough for the metrics of which this is true. */
void ep_scope_open(const ep_subject *u, uint32_t event, ep_scope *s);
static inline bool ep_metric_is_of_span(ep_metric m) {
    return m == EP_METRIC_TIME || m == EP_METRIC_RECOMPILES || m == EP_METRIC_INSTANCES;
}
void ep_scope_free(ep_scope *s);

/* A term with its pattern matched against every name once. */
typedef struct ep_matcher {
    const ep_term *term;
    uint8_t *names;  /* by facts->names[]: 1 if the kernel's name or class matches; NULL: all do */
    uint8_t *texts;  /* by string: 0 not asked yet, 1 matches, 2 does not; NULL: all do */
    uint8_t *within; /* by row: 0 not asked yet, 1 in an op that matches, 2 not; where device time is asked of an op */
    const ep_claim *claim; /* of several calls the one that breaks it most speaks; NULL: the one with most launches */
    double other;          /* what the claim compares with, if it does */
} ep_matcher;
/* `claim`: that of the term, or NULL. */
bool ep_matcher_create(const ep_subject *u, const ep_term *t, const ep_claim *claim, ep_matcher *m);
void ep_matcher_free(ep_matcher *m);
bool ep_matcher_kernel(const ep_subject *u, const ep_matcher *m, uint32_t row);
bool ep_matcher_op(const ep_subject *u, ep_matcher *m, uint32_t row);
/* Was the device work launched in an op that matches, or in an op inside one? */
bool ep_matcher_within(const ep_subject *u, ep_matcher *m, uint32_t work);
/* Does an op of this name answer to `pattern`? "t" is aten::t, "gelu" is also gelu_tanh. */
bool ep_op_name_matches(const char *pattern, const char *name);
/* The class of that name, or EP_CLASS_COUNT. */
ep_kernel_class ep_class_by_name(const char *name);

typedef struct ep_seen {
    double value;     /* in ns, bytes, flops, counts or a share; NaN: unknown */
    char why[200];    /* of unknown */
    uint32_t witness; /* a row that shows it, or EP_NO_INDEX */
    char note[120];   /* more to say beside the figure, or "" */
} ep_seen;
/* `allowed`: the largest count that would not be too many, so that the witness is the first one beyond it; else -1. */
void ep_measure(const ep_subject *u, const ep_scope *s, ep_matcher *m, double allowed, ep_seen *out);
/* What one host row adds to a metric that is a sum over rows; ns or a count. */
int64_t ep_measure_row(const ep_subject *u, ep_matcher *m, uint32_t row);
bool ep_is_wait(const char *name);
/* How far an op's launches are from what is claimed of them. */
double ep_measure_worse(const ep_matcher *m, double launches);
/* One term over all instances, v[i] each; the same as gathering and measuring one by one, but where the metric is a sum
 * over rows those are gone over once and not once an instance. `scope` is used for the rest. False: memory is out. */
bool ep_series(const ep_subject *u, const ep_rows *instances, ep_matcher *m, double allowed, ep_scope *scope,
               double *v);
/* Likewise by running sums alone; *done says whether there are any for this metric. */
bool ep_series_sums(const ep_subject *u, const ep_rows *instances, ep_matcher *m, double allowed, double *v,
                    bool *done);
/* Likewise of a FUSED claim. */
bool ep_series_fused(const ep_subject *u, const ep_rows *instances, const ep_claim *c, double *v, bool *done);
/* Places of host rows from an instance's first to behind its last. */
typedef struct ep_range {
    size_t low, high, instance;
} ep_range;
/* BYTES or FLOPS of what each range of rows[] launched, to v[instance]; reorders the ranges. False: memory is out. */
bool ep_ranges_work(const ep_subject *u, const uint32_t *rows, size_t count, ep_range *ranges, size_t n,
                    ep_metric metric, double *v);
/* IDLE, likewise. */
bool ep_ranges_idle(const ep_subject *u, const uint32_t *rows, size_t count, ep_range *ranges, size_t n, double *v);
/* BYTES or FLOPS of one kernel; NaN if unknown, with a reason in why[size] unless it is NULL. *op: the op whose work it is
 * and that counts once however many kernels it launched, or EP_NO_INDEX where the work is the kernel's own. */
double ep_measure_kernel(const ep_subject *u, uint32_t kernel, ep_metric metric, uint32_t *op, char *why, size_t size);
/* BYTES or FLOPS. */
void ep_measure_work(const ep_subject *u, const ep_scope *s, ep_metric metric, ep_seen *out);
/* What bounds the scope's region, as recorded and without the profiler's own cost; NaN with a reason if unknown. Where the
 * two differ, `why` says so. */
void ep_measure_regime(const ep_subject *u, const ep_scope *s, ep_regime *regime, ep_regime *bare, ep_seen *out);
void ep_measure_recompiles(const ep_subject *u, const ep_scope *s, ep_seen *out);
/* How many of `names` the device work does: 0 if it is no kernel. */
int ep_kernel_does(const ep_subject *u, uint32_t row, const char *const *names, int count);
/* Does one kernel of the scope do all `names`? value 1 or 0. */
void ep_measure_fused(const ep_subject *u, const ep_scope *s, const char *const *names, int count, ep_seen *out);

#endif
