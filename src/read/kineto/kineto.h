/* What the reader's files share: one event as the text had it, and the reader's state. */
#ifndef EP_READ_KINETO_H
#define EP_READ_KINETO_H

#include "base/json_read.h"
#include "base/json_scan.h"
#include "model/trace/trace.h"

typedef enum kineto_field {
#define EP_EVENT_KEY(id, text) FIELD_##id,
#include "model/trace/keys.def"
    FIELD_UNKNOWN
} kineto_field;

typedef enum kineto_arg {
#define EP_ARG_KEY(id, text, keep) ARG_##id,
#include "model/trace/keys.def"
    ARG_UNKNOWN
} kineto_arg;

typedef enum kineto_keep { KEEP_COLUMN, KEEP_EXTRA, KEEP_DROP } kineto_keep;

enum { KEYS_MAX = 80 };

/* A key as it stands in the text: quotes and colon too. */
typedef struct kineto_pattern {
    char text[EP_JSON_PATTERN];
    uint8_t length; /* 0: too long for one */
} kineto_pattern;

/* Finds a key's number; remembers which key followed which, since a writer writes them in one order. Events of another
 * kind have another order: `set` tells them apart. */
enum { KEY_SETS = 16 };
typedef struct kineto_keys {
    const struct kineto_key *rows;
    uint8_t count, last, set;
    uint8_t follows[KEY_SETS][KEYS_MAX + 1]; /* by key: the one that came after it last time; [count] for the first */
    kineto_pattern patterns[KEYS_MAX + 1];
} kineto_keys;
typedef struct kineto_key {
    const char *text;
    uint8_t length, keep;
} kineto_key;
extern const kineto_key kineto_field_rows[], kineto_arg_rows[];
void kineto_keys_init(kineto_keys *k, const kineto_key *rows, int count);
int kineto_keys_find(kineto_keys *k, const char *s, size_t n); /* count: unknown */

typedef struct slice {
    const char *s;
    size_t n;
} slice;

/* One event as written. Slices point into the window or the reader's scratch and live until the next event. */
typedef struct raw_event {
    int64_t offset;
    char phase;
    bool has_ts, has_dur, any, wild_time; /* wild_time: a number that does not fit */
    slice name, category, pid, tid;       /* decoded; numbers as written */
    int64_t ts, dur;                      /* ns */
    bool has_allocated;
    int64_t allocated, reserved, memory_bytes, memory_type, memory_device; /* of a [memory] event */
    uint64_t id, correlation, external_id;
    bool has_device, has_stream, has_info, has_sequence;
    uint64_t sequence, forward_thread;
    int64_t device, stream;
    slice dims, types, strides, concrete; /* JSON text */
    slice detail, meta_name, meta_sort;   /* JSON text */
    ep_event_info info;                   /* its strings are filled in when it is stored */
    slice args;                           /* the whole object, if wanted */
} raw_event;

/* Which part of the file is wanted. */
typedef struct kineto_span {
    uint32_t pid;
    int64_t start, end;
} kineto_span;

typedef enum cut_mode { CUT_NONE, CUT_WINDOW, CUT_REGION } cut_mode;

typedef struct kineto_spans {
    kineto_span *list;
    size_t count, cap;
} kineto_spans;

typedef struct kineto_cut {
    cut_mode mode;
    bool looking;           /* the first pass: finding out where the part lies */
    bool no_memory;         /* in that pass */
    char step[40];          /* "ProfilerStep#3", or "" */
    const char *region;     /* glob, or NULL */
    bool any, origin;       /* a span was seen; device work without length at 0 was */
    int64_t first, last;    /* earliest span's start and the last one's end, that work left out */
    int64_t start, end;     /* the window, in the file's time */
    kineto_spans instances; /* of the region, or of the step where no region is asked for */
    kineto_spans steps;     /* where both are */
    uint64_t *outside;      /* the numbers of the calls that are left out */
    size_t outside_count, outside_cap;
    ep_text names; /* of other regions, for the message when nothing matched */
    int names_count;
} kineto_cut;

/* What was seen lately: texts, lanes and infos come again and again, and finding one here is cheaper than in the trace's
 * own tables. An entry is only a guess and is compared in full. */
enum { PENDING_MAX = 64 };
enum { CACHE_TEXTS = 4096, CACHE_LANES = 64, CACHE_INFOS = 1024 };
typedef struct kineto_cache {
    uint32_t text[CACHE_TEXTS], lane[CACHE_LANES], info[CACHE_INFOS];
} kineto_cache;

typedef struct kineto_reader {
    ep_json_in json;
    ep_stream_in *stream;
    ep_trace *trace;
    ep_error *err;
    const ep_read_options *options;
    bool keep_args;
    bool no_fast; /* tests: every event through the tolerant parser */
    kineto_keys fields, args;
    raw_event raw;
    ep_text extra, decoded; /* of the event in hand */
    ep_arena slow;          /* slices of an event that the tolerant parser read */
    uint8_t *kinds;         /* by string number of the category: kind + 1 of a span */
    size_t kinds_cap;
    uint32_t *open_head, *open_next; /* B events waiting for their E: by lane; by entry */
    uint32_t *open_row;
    size_t open_head_cap, open_row_cap, open_next_cap, open_count;
    int64_t *open_offset;
    size_t open_offset_cap;
    /* Mends inside the event in hand: counted when it is whole, forgotten when it turns out to be broken. */
    bool in_event;
    int pending_count;
    struct {
        const char *kind;
        int64_t offset;
    } pending[PENDING_MAX];
    int64_t events;                          /* read so far, kept or not */
    bool saw_events, saw_schema, saw_kineto; /* traceEvents; keys only Kineto writes; an event of a known kind */
    bool saw_no_list;                        /* traceEvents that were something else */
    ep_text schema;
    kineto_cut cut;
    kineto_cache cache;
    int passes, pass;
} kineto_reader;

/* kineto_keys.c: sets one member from its value's JSON text (both parsers end here). */
void kineto_set_field(raw_event *e, kineto_field field, slice value, bool string);
void kineto_set_arg(kineto_reader *r, raw_event *e, kineto_arg arg, slice key, slice value);
void kineto_raw_begin(kineto_reader *r, int64_t offset);

/* kineto_fast.c: a well-formed event that lies whole in the window. */
typedef enum fast_result { FAST_OK, FAST_MORE, FAST_ODD } fast_result;
fast_result kineto_fast_event(kineto_reader *r, const char *p, const char *end, const char **after);
/* kineto_slow.c: any event, mended where it must be; `first` was read. */
ep_status kineto_slow_event(kineto_reader *r);

/* kineto_store.c: the event in hand into the columns, or paired, folded, left out. */
ep_status kineto_store(kineto_reader *r);
ep_status kineto_store_finish(kineto_reader *r);
/* The start of the first span. A kernel at the origin of an absolute clock (its times were never filled in) would move
 * everything by decades: it counts only if the rest starts within a day of it. */
int64_t kineto_first_start(bool any, int64_t first, bool any_origin);

/* repair.c */
void kineto_mend(void *reader, const char *kind, int64_t offset);
void kineto_mends_begin(kineto_reader *r);
void kineto_mends_end(kineto_reader *r, bool whole);
/* After a member of the event array could not be read: goes on at the next one. False: there is none. */
bool kineto_resync(kineto_reader *r, int depth);
/* Likewise for damage before the events: sets the parser behind "traceEvents": */
bool kineto_find_events(kineto_reader *r);

/* top.c: a key beside the events. */
ep_status kineto_top_key(kineto_reader *r, slice key);
ep_status kineto_top_finish(kineto_reader *r);

/* sniff.c: says what a file is that is no trace; EP_OK if it may be one. */
ep_status kineto_sniff(const char *data, size_t size, ep_error *err); /* `data`: behind a byte order mark */
ep_status kineto_no_events(const kineto_reader *r);
/* A trace with events of which none is Kineto's: refused with its writer and its categories. */
ep_status kineto_foreign_viewer(const kineto_reader *r);

/* cut.c */
ep_status kineto_cut_begin(kineto_reader *r);
void kineto_cut_look(kineto_reader *r, ep_event_kind kind);
ep_status kineto_cut_found(kineto_reader *r);
bool kineto_cut_wants(const kineto_reader *r, ep_event_kind kind, uint32_t pid);
/* Notes the number of a call that is not wanted; false when memory is out. */
bool kineto_cut_leave(kineto_reader *r, ep_event_kind kind);
ep_status kineto_cut_finish(kineto_reader *r);
void kineto_cut_free(kineto_cut *c);

#endif
