/* What the recorder leaves behind for the conversion: one ring a thread, records of a header and a tail. */
#ifndef EP_RUN_RECORDER_H
#define EP_RUN_RECORDER_H

#include <epilogue/profile.h>
#include <pthread.h>

#include "base/probe.h"
#include "base/status.h"

typedef enum ep_record_type {
    EP_RECORD_BEGIN,  /* ep_record, ep_record_span, operands, detail */
    EP_RECORD_END,    /* ep_record */
    EP_RECORD_KERNEL, /* ep_record, ep_probe_kernel */
    EP_RECORD_PHASE   /* ep_record: spans still open are lost; `kind` 1: what follows is kept, 0: warm-up */
} ep_record_type;

typedef struct ep_record {
    uint8_t type, kind;
    uint8_t operands;
    uint8_t reserved;
    uint32_t bytes; /* of the whole record, a multiple of 8 */
    int64_t ticks;
} ep_record;

typedef struct ep_record_span {
    const char *name;
    uint64_t correlation;
    uint32_t detail_bytes; /* with the terminator; 0: none. After the operands */
    uint32_t reserved;
} ep_record_span;

typedef struct ep_record_operand { /* followed by ndim sizes and ndim strides */
    const char *dtype;
    int64_t ndim;
} ep_record_operand;

/* A ring belongs to the thread that writes it and to the recording that reads it; the last of the two frees it. */
typedef struct ep_ring {
    uint64_t epoch;       /* of the phase its last record is in */
    uint64_t recording;   /* number of the recording it belongs to */
    size_t pos, cap;      /* written by the owner only */
    size_t phase_start;   /* where the current phase's first record stands */
    bool phase_kept;      /* the current phase is no warm-up */
    uint32_t depth, skip; /* open spans; open spans that found no room */
    int64_t tid;
    char thread_name[16];
    _Atomic size_t used;     /* published: bytes a reader may look at */
    _Atomic int64_t dropped; /* records that found no room */
    atomic_int refs;
    struct ep_ring *next;
    char *data;
} ep_ring;

typedef struct ep_step {
    int64_t number, start, end; /* ticks */
} ep_step;

typedef struct ep_recording {
    ep_ring *rings;
    const ep_step *steps;
    size_t step_count;
    int64_t tid; /* of the thread that starts steps */
    int64_t start_ticks;
    bool no_shapes;
    const char *trace_name;
    double ns_per_span;
} ep_recording;

/* to_trace.c: rings to columns. */
ep_status ep_recording_to_trace(const ep_recording *r, ep_error *err, ep_trace **out);

/* steps.c: what torch.profiler.schedule says of step n. */
typedef enum ep_step_action { EP_STEP_OFF, EP_STEP_WARMUP, EP_STEP_RECORD } ep_step_action;
ep_step_action ep_step_action_of(const ep_profile_options *o, int64_t step);
ep_status ep_step_check(const ep_profile_options *o, ep_error *err);

#endif
