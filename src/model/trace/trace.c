/* Columns of events with their string, lane and info tables, and the public view of one event. */
#include "trace.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"

ep_trace *ep_trace_create(void) {
    ep_trace *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    ep_event_info none = {0};
    none.bytes = none.flops = none.bytes_read = none.bytes_written = none.graph_id = -1;
    t->rank = t->world_size = -1;
    t->complete = true;
    if (ep_intern_add(&t->strings, "", 0) != 0 || ep_trace_info(t, &none) != 0) {
        ep_trace_destroy(t);
        return NULL;
    }
    return t;
}

/* Every column by its place in the struct and the size of an element: growing, cutting and freeing walk this table. */
typedef struct column {
    size_t at, size;
    bool optional;
} column;
#define COLUMN(field, optional)                                                                                        \
    { offsetof(ep_trace, field), sizeof *((ep_trace *)0)->field, optional }
static const column columns[] = {
    COLUMN(kind, false), COLUMN(phase, false),      COLUMN(name, false), COLUMN(category, false),
    COLUMN(lane, false), COLUMN(ts, false),         COLUMN(dur, false),  COLUMN(correlation, false),
    COLUMN(info, false), COLUMN(external_id, true), COLUMN(args, true),  COLUMN(correlation_high, true),
};
enum { COLUMN_COUNT = sizeof columns / sizeof *columns };

static void *column_get(const ep_trace *t, const column *c) {
    void *p;
    memcpy(&p, (const char *)t + c->at, sizeof p);
    return p;
}

static void column_set(ep_trace *t, const column *c, void *p) {
    memcpy((char *)t + c->at, &p, sizeof p);
}

static bool grow(ep_trace *t) {
    size_t cap = t->cap ? t->cap * 2 : 1024;
    if (t->cap >= EP_NO_INDEX / 2) return false;
    for (int i = 0; i < COLUMN_COUNT; i++) {
        bool wide = columns[i].at == offsetof(ep_trace, correlation_high);
        if (columns[i].optional && (wide ? !t->correlation_high : t->lean)) continue;
        void *p = realloc(column_get(t, &columns[i]), cap * columns[i].size);
        if (!p) return false;
        column_set(t, &columns[i], p);
    }
    t->cap = cap;
    return true;
}

void ep_trace_make_lean(ep_trace *t) {
    if (t->count == 0) t->lean = true;
}

uint32_t ep_trace_append(ep_trace *t) {
    if (t->count == t->cap && !grow(t)) return EP_NO_INDEX;
    size_t i = t->count++;
    t->kind[i] = EP_EVENT_OTHER;
    t->phase[i] = 0;
    t->name[i] = t->category[i] = t->lane[i] = t->info[i] = 0;
    t->ts[i] = 0;
    t->dur[i] = -1;
    t->correlation[i] = 0;
    if (t->correlation_high) t->correlation_high[i] = 0;
    if (!t->lean) {
        t->external_id[i] = 0;
        t->args[i] = 0;
    }
    return (uint32_t)i;
}

bool ep_trace_set_correlation(ep_trace *t, size_t i, uint64_t correlation) {
    uint32_t high = (uint32_t)(correlation >> 32);
    t->correlation[i] = (uint32_t)correlation;
    if (high && !t->correlation_high) t->correlation_high = calloc(t->cap, sizeof *t->correlation_high);
    if (t->correlation_high) t->correlation_high[i] = high;
    return !high || t->correlation_high;
}

void ep_trace_compact(ep_trace *t, const uint8_t *keep) {
    size_t kept = 0, numbers = 0, at = 0;
    for (size_t i = 0; i < t->count; i++) {
        bool has = at < t->sequence_count && t->sequences[at].row == i;
        if (has && keep[i]) {
            t->sequences[numbers] = t->sequences[at];
            t->sequences[numbers++].row = (uint32_t)kept;
        }
        at += has;
        kept += keep[i] != 0;
    }
    t->sequence_count = numbers;
    for (int c = 0; c < COLUMN_COUNT; c++) {
        char *p = column_get(t, &columns[c]);
        if (!p) continue;
        size_t size = columns[c].size;
        kept = 0;
        for (size_t i = 0; i < t->count; i++) {
            if (!keep[i]) continue;
            if (kept != i) memcpy(p + kept * size, p + i * size, size);
            kept++;
        }
    }
    t->count = kept;
}

uint32_t ep_trace_string(ep_trace *t, const char *s, size_t n) {
    return ep_intern_add(&t->strings, s, n);
}

/* A table of row + 1 over an array of equal-sized records; returns the slot of the record or of the hole for it. */
typedef struct record_set {
    uint32_t **slots;
    size_t *slot_count;
    const char *rows;
    size_t row_size, key_size, count;
} record_set;

static size_t record_slot(const record_set *s, const void *key) {
    size_t mask = *s->slot_count - 1, i = (size_t)ep_hash64(key, s->key_size, 0) & mask;
    for (; (*s->slots)[i]; i = (i + 1) & mask)
        if (memcmp(s->rows + ((*s->slots)[i] - 1) * s->row_size, key, s->key_size) == 0) break;
    return i;
}

static bool record_reserve(const record_set *s) {
    if (s->count * 2 < *s->slot_count) return true;
    size_t next = *s->slot_count ? *s->slot_count * 2 : 128;
    uint32_t *slots = calloc(next, sizeof *slots);
    if (!slots) return false;
    free(*s->slots);
    *s->slots = slots;
    *s->slot_count = next;
    for (size_t r = 0; r < s->count; r++) slots[record_slot(s, s->rows + r * s->row_size)] = (uint32_t)r + 1;
    return true;
}

uint32_t ep_trace_lane(ep_trace *t, uint32_t pid, uint32_t tid, int64_t device, int64_t stream) {
    /* The identity of a lane is its first four members; they are followed by no padding before `name`. */
    ep_lane lane = {.pid = pid, .tid = tid, .device = device, .stream = stream};
    record_set s = {&t->lane_slots, &t->lane_slot_count,     (const char *)t->lanes,
                    sizeof lane,    offsetof(ep_lane, name), t->lane_count};
    if (!record_reserve(&s)) return EP_NO_INDEX;
    size_t slot = record_slot(&s, &lane);
    if (t->lane_slots[slot]) return t->lane_slots[slot] - 1;
    if (t->lane_count >= EP_NO_INDEX - 1 || !ep_grow(&t->lanes, &t->lane_cap, t->lane_count + 1, sizeof lane))
        return EP_NO_INDEX;
    t->lanes[t->lane_count] = lane;
    t->lane_slots[slot] = (uint32_t)++t->lane_count;
    return (uint32_t)t->lane_count - 1;
}

uint32_t ep_trace_find_lane(const ep_trace *t, uint32_t pid, uint32_t tid, int64_t device, int64_t stream) {
    if (!t->lane_slot_count) return EP_NO_INDEX;
    ep_lane lane = {.pid = pid, .tid = tid, .device = device, .stream = stream};
    size_t slot_count = t->lane_slot_count;
    uint32_t *slots = t->lane_slots;
    record_set s = {&slots, &slot_count, (const char *)t->lanes, sizeof lane, offsetof(ep_lane, name), t->lane_count};
    return slots[record_slot(&s, &lane)] - 1; /* an empty slot gives EP_NO_INDEX */
}

uint32_t ep_trace_info(ep_trace *t, const ep_event_info *info) {
    ep_event_info clean;
    /* Copied member by member into zeroed bytes, so that padding never tells two equal records apart. */
    memset(&clean, 0, sizeof clean);
    clean.input_dims = info->input_dims;
    clean.input_types = info->input_types;
    clean.input_strides = info->input_strides;
    clean.concrete_inputs = info->concrete_inputs;
    memcpy(clean.grid, info->grid, sizeof clean.grid);
    memcpy(clean.block, info->block, sizeof clean.block);
    clean.registers = info->registers;
    clean.shared_bytes = info->shared_bytes;
    clean.bytes = info->bytes;
    clean.flops = info->flops;
    clean.bytes_read = info->bytes_read;
    clean.bytes_written = info->bytes_written;
    clean.detail = info->detail;
    clean.graph_id = info->graph_id;
    clean.extra = info->extra;
    record_set s = {&t->info_slots, &t->info_slot_count, (const char *)t->infos,
                    sizeof clean,   sizeof clean,        t->info_count};
    if (!record_reserve(&s)) return EP_NO_INDEX;
    size_t slot = record_slot(&s, &clean);
    if (t->info_slots[slot]) return t->info_slots[slot] - 1;
    if (t->info_count >= EP_NO_INDEX - 1 || !ep_grow(&t->infos, &t->info_cap, t->info_count + 1, sizeof clean))
        return EP_NO_INDEX;
    memcpy(&t->infos[t->info_count], &clean, sizeof clean);
    t->info_slots[slot] = (uint32_t)++t->info_count;
    return (uint32_t)t->info_count - 1;
}

bool ep_trace_repair(ep_trace *t, const char *kind, int64_t offset) {
    uint32_t id = ep_trace_string(t, kind, strlen(kind));
    if (id == UINT32_MAX) return false;
    for (size_t i = 0; i < t->repair_count; i++) {
        if (t->repairs[i].kind != id) continue;
        t->repairs[i].count++;
        return true;
    }
    if (!ep_grow(&t->repairs, &t->repair_cap, t->repair_count + 1, sizeof *t->repairs)) return false;
    t->repairs[t->repair_count++] = (ep_repair){id, 1, offset};
    return true;
}

bool ep_trace_sequence(ep_trace *t, uint64_t number, uint64_t forward_thread) {
    if (!ep_grow(&t->sequences, &t->sequence_cap, t->sequence_count + 1, sizeof *t->sequences)) return false;
    uint32_t thread = forward_thread > UINT32_MAX ? UINT32_MAX : (uint32_t)forward_thread;
    t->sequences[t->sequence_count++] = (ep_sequence){(uint32_t)(t->count - 1), (uint32_t)number, thread};
    return true;
}

bool ep_trace_fold(ep_trace *t, uint32_t category) {
    size_t old = t->folded_by_cap;
    if (!ep_grow(&t->folded_by, &t->folded_by_cap, (size_t)category + 1, sizeof *t->folded_by)) return false;
    memset(t->folded_by + old, 0, (t->folded_by_cap - old) * sizeof *t->folded_by);
    t->folded_by[category]++;
    t->folded++;
    return true;
}

static const struct {
    const char *text;
    ep_event_kind kind;
} categories[] = {
#define EP_CATEGORY(text, kind) {text, EP_EVENT_##kind},
#include "keys.def"
};

static bool ends_with(const char *s, const char *end) {
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

static ep_event_kind span_kind(const char *category) {
    char lower[64];
    size_t n = 0;
    for (; category[n] && n + 1 < sizeof lower; n++) lower[n] = (char)tolower((unsigned char)category[n]);
    lower[n] = 0;
    for (size_t i = 0; i < sizeof categories / sizeof *categories; i++)
        if (strcmp(categories[i].text, lower) == 0) return categories[i].kind;
    if (ends_with(lower, "_runtime") || ends_with(lower, "_driver")) return EP_EVENT_RUNTIME;
    return EP_EVENT_OTHER_SPAN;
}

ep_event_kind ep_event_kind_of(const char *category, const char *name, char phase) {
    (void)name; /* 2021's annotations are operators by category; what they mean is for the facts to say */
    switch (phase) {
    case 'X':
    case 'B': return span_kind(category);
    case 's':
    case 't':
    case 'f': return EP_EVENT_FLOW;
    case 'i':
    case 'I':
    case 'R': return EP_EVENT_INSTANT;
    case 'M': return EP_EVENT_META;
    default: return EP_EVENT_OTHER;
    }
}

bool ep_runtime_is_launch(const char *name) {
    static const char *const parts[] = {"LaunchKernel", "GraphLaunch", "LaunchCooperativeKernel",
                                        "EnqueueKernelLaunch"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strstr(name, parts[i])) return true;
    return false;
}

bool ep_runtime_is_graph_launch(const char *name) {
    return strstr(name, "GraphLaunch") != NULL;
}

size_t ep_trace_count(const ep_trace *trace) {
    return trace ? trace->count : 0;
}

ep_status ep_trace_event(const ep_trace *trace, size_t index, ep_event *out) {
    if (!trace || !out || index >= trace->count) return EP_ERROR_INVALID_ARGUMENT;
    const ep_trace *t = trace;
    static const ep_lane nowhere = {.device = -1, .stream = -1};
    const ep_lane *lane = t->lane[index] < t->lane_count ? &t->lanes[t->lane[index]] : &nowhere;
    bool flow = t->kind[index] == EP_EVENT_FLOW;
    uint32_t args = ep_trace_args(t, index);
    *out = (ep_event){
        .kind = (ep_event_kind)t->kind[index],
        .phase = t->phase[index],
        .name = ep_trace_text(t, t->name[index]),
        .category = ep_trace_text(t, t->category[index]),
        .ts_ns = t->ts[index],
        .dur_ns = t->dur[index],
        .pid = ep_trace_text(t, lane->pid),
        .tid = ep_trace_text(t, lane->tid),
        .device = lane->device,
        .stream = lane->stream,
        .correlation = flow ? 0 : ep_trace_correlation(t, index),
        .external_id = ep_trace_external_id(t, index),
        .args = args ? ep_trace_text(t, args) : NULL,
        .flow_id = flow ? ep_trace_correlation(t, index) : 0,
        .flops = t->infos[t->info[index]].flops,
        .bytes_read = t->infos[t->info[index]].bytes_read,
        .bytes_written = t->infos[t->info[index]].bytes_written,
    };
    return EP_OK;
}

void ep_trace_destroy(ep_trace *trace) {
    if (!trace) return;
    for (int i = 0; i < COLUMN_COUNT; i++) free(column_get(trace, &columns[i]));
    ep_intern_free(&trace->strings);
    free(trace->lanes);
    free(trace->infos);
    free(trace->lane_slots);
    free(trace->info_slots);
    free(trace->devices);
    free(trace->repairs);
    free(trace->sequences);
    free(trace->memory);
    free(trace->folded_by);
    free(trace);
}

const char *ep_device_times_name(ep_device_times times) {
    return times == EP_TIMES_CUPTI ? "CUPTI" : times == EP_TIMES_EVENTS ? "events" : NULL;
}
