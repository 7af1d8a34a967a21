/* What a term of a claim measures: over one instance of a region, or over a whole trace. */
#ifndef EP_READ_GUESS_MEASURE_H
#define EP_READ_GUESS_MEASURE_H

#include "guess.h"
#include "read/analyze/analyze.h"

/* One trace with what measuring it needs. */
typedef struct ep_subject {
    const ep_trace *trace;
    ep_study *study;      /* NULL where no claim needs one */
    ep_facts *facts;      /* the study's, if there is one */
    uint32_t *lane_first; /* links->order[lane_first[l] .. lane_first[l + 1]) is lane l */
    uint32_t *kernel_at;  /* event row -> facts->kernels[], or EP_NO_INDEX */
    uint32_t *regime_of;  /* string -> 1 + study->regimes[] of the region of that name, or 0 */
} ep_subject;
/* `study`: run the analyses, for claims about regimes and recompiles. */
ep_status ep_subject_create(const ep_trace *t, bool study, ep_error *err, ep_subject *out);
void ep_subject_free(ep_subject *s);

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
} ep_scope;
/* Refills `s` (zeroed before its first use). False when memory is out. */
bool ep_scope_gather(const ep_subject *u, uint32_t event, bool any_thread, ep_scope *s);
void ep_scope_free(ep_scope *s);

/* A term with its pattern matched against every name once. */
typedef struct ep_matcher {
    const ep_term *term;
    uint8_t *names; /* by facts->names[]: 1 if the kernel's name or class matches; NULL: all do */
    uint8_t *texts; /* by string: 0 not asked yet, 1 matches, 2 does not; NULL: all do */
} ep_matcher;
bool ep_matcher_create(const ep_subject *u, const ep_term *t, ep_matcher *m);
void ep_matcher_free(ep_matcher *m);
bool ep_matcher_kernel(const ep_subject *u, const ep_matcher *m, uint32_t row);
bool ep_matcher_op(const ep_subject *u, ep_matcher *m, uint32_t row);
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
/* BYTES or FLOPS. */
void ep_measure_work(const ep_subject *u, const ep_scope *s, ep_metric metric, ep_seen *out);
/* What bounds the scope's region, as recorded and without the profiler's own cost; NaN with a reason if unknown. Where the
 * two differ, `why` says so. */
void ep_measure_regime(const ep_subject *u, const ep_scope *s, ep_regime *regime, ep_regime *bare, ep_seen *out);
void ep_measure_recompiles(const ep_subject *u, const ep_scope *s, ep_seen *out);
/* Does one kernel of the scope do all `names`? value 1 or 0. */
void ep_measure_fused(const ep_subject *u, const ep_scope *s, const char *const *names, int count, ep_seen *out);

#endif
