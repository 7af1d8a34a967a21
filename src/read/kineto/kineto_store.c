/* The event in hand becomes a row; the E of a pair and a flow that only repeats a correlation become none. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/json_string.h"
#include "kineto.h"

static ep_status no_memory(const kineto_reader *r) {
    return ep_fail(r->err, EP_ERROR_OUT_OF_MEMORY, "no memory for %lld events", (long long)r->events);
}

static uint64_t mix(uint64_t h, uint64_t v) {
    return (h ^ v) * 0x9e3779b97f4a7c15u;
}

/* A few bytes of a text stand for it: the ends and the middle. */
static size_t text_place(slice v) {
    uint64_t first, last, middle = 0;
    if (v.n >= 8) {
        memcpy(&first, v.s, 8);
        memcpy(&last, v.s + v.n - 8, 8);
        memcpy(&middle, v.s + (v.n - 8) / 2, 8);
    } else if (v.n >= 4) {
        uint32_t a, b;
        memcpy(&a, v.s, 4);
        memcpy(&b, v.s + v.n - 4, 4);
        first = a;
        last = b;
    } else {
        first = (unsigned char)v.s[0];
        last = (uint64_t)(unsigned char)v.s[v.n / 2] << 8 | (unsigned char)v.s[v.n - 1];
    }
    return mix(mix(mix(v.n, first), middle), last) >> 52;
}

/* The number of a text, or of nothing. */
static uint32_t text_id(kineto_reader *r, slice v) {
    if (!v.n) return 0;
    ep_intern *strings = &r->trace->strings;
    uint32_t *place = &r->cache.text[text_place(v) % CACHE_TEXTS], id = *place;
    if (id && id < strings->count && strings->len[id] == v.n && memcmp(strings->text[id], v.s, v.n) == 0) return id;
    return *place = ep_trace_string(r->trace, v.s, v.n);
}

/* The number of a JSON value as text: a string's inside, decoded; anything else as it stands. */
static uint32_t value_id(kineto_reader *r, slice v) {
    if (v.n < 2 || v.s[0] != '"') return text_id(r, v);
    ep_string_decode d = {.tolerant = true, .bad_offset = -1};
    ep_text_clear(&r->decoded);
    ep_string_decode_into(&d, v.s + 1, v.n - 2, &r->decoded);
    return text_id(r, (slice){ep_text_str(&r->decoded), r->decoded.len});
}

/* The kind of a span, remembered by its category's number. */
static ep_event_kind kind_of(kineto_reader *r, uint32_t category, char phase) {
    if (phase != 'X' && phase != 'B') return ep_event_kind_of("", "", phase);
    if (category >= r->kinds_cap) {
        size_t old = r->kinds_cap;
        if (!ep_grow(&r->kinds, &r->kinds_cap, category + 1, 1))
            return ep_event_kind_of(ep_trace_text(r->trace, category), "", phase);
        memset(r->kinds + old, 0, r->kinds_cap - old);
    }
    if (!r->kinds[category])
        r->kinds[category] = (uint8_t)(ep_event_kind_of(ep_trace_text(r->trace, category), "", phase) + 1);
    return (ep_event_kind)(r->kinds[category] - 1);
}

static bool on_device(ep_event_kind kind) {
    return ep_event_is_device_work((uint8_t)kind) || kind == EP_EVENT_DEVICE_REGION || kind == EP_EVENT_SYNC ||
           kind == EP_EVENT_OTHER_DEVICE;
}

/* Where args do not say it, the pid is the device and the tid the stream, also as "stream 7". */
static int64_t trailing_number(slice v) {
    size_t from = v.n;
    while (from && v.s[from - 1] >= '0' && v.s[from - 1] <= '9') from--;
    int64_t n;
    return from < v.n && ep_json_decimal(v.s + from, v.n - from, 0, &n) ? n : -1;
}

static uint32_t lane_of(kineto_reader *r, ep_event_kind kind, uint32_t pid) {
    const raw_event *e = &r->raw;
    uint32_t tid = text_id(r, e->tid);
    if (tid == UINT32_MAX) return EP_NO_INDEX;
    int64_t device = -1, stream = -1;
    if (on_device(kind)) {
        device = e->has_device ? e->device : trailing_number(e->pid);
        stream = e->has_stream ? e->stream : trailing_number(e->tid);
    }
    ep_trace *t = r->trace;
    uint32_t *place = &r->cache.lane[(tid + (uint64_t)stream * 7) % CACHE_LANES];
    const ep_lane *l = *place < t->lane_count ? &t->lanes[*place] : NULL;
    if (l && l->pid == pid && l->tid == tid && l->device == device && l->stream == stream) return *place;
    return *place = ep_trace_lane(t, pid, tid, device, stream);
}

static uint32_t info_id(kineto_reader *r, const ep_event_info *i) {
    ep_trace *t = r->trace;
    uint64_t h = mix(mix(i->input_dims, i->concrete_inputs), (uint64_t)i->bytes);
    h = mix(mix(h, (uint64_t)i->grid[0] << 32 | i->extra), (uint64_t)i->graph_id);
    uint32_t *place = &r->cache.info[(h >> 40) % CACHE_INFOS];
    if (*place && *place < t->info_count && memcmp(&t->infos[*place], i, sizeof *i) == 0) return *place;
    return *place = ep_trace_info(t, i);
}

static bool store_info(kineto_reader *r, uint32_t row) {
    raw_event *e = &r->raw;
    ep_event_info *i = &e->info;
    i->input_dims = text_id(r, e->dims);
    i->input_types = text_id(r, e->types);
    i->input_strides = text_id(r, e->strides);
    i->concrete_inputs = text_id(r, e->concrete);
    i->detail = value_id(r, e->detail);
    if (r->extra.len) {
        ep_text_char(&r->extra, '}');
        i->extra = text_id(r, (slice){ep_text_str(&r->extra), r->extra.len});
    }
    if (e->dims.n) r->trace->has_shapes = true;
    uint32_t id = info_id(r, i);
    r->trace->info[row] = id;
    return id != EP_NO_INDEX && !r->extra.failed;
}

/* Names of processes and threads come as events of their own and belong to lanes. */
static void store_meta(kineto_reader *r, uint32_t lane) {
    const raw_event *e = &r->raw;
    ep_lane *l = &r->trace->lanes[lane];
    int64_t sort;
    if (e->name.n == 12 && memcmp(e->name.s, "process_name", 12) == 0) l->process_name = value_id(r, e->meta_name);
    if (e->name.n == 11 && memcmp(e->name.s, "thread_name", 11) == 0) l->name = value_id(r, e->meta_name);
    if (e->name.n == 17 && memcmp(e->name.s, "thread_sort_index", 17) == 0 &&
        ep_json_decimal(e->meta_sort.s, e->meta_sort.n, 0, &sort))
        l->sort_index = sort;
}

/* Open B events: a list a lane, the innermost first. */
static bool open_begin(kineto_reader *r, uint32_t row, uint32_t lane) {
    size_t old = r->open_head_cap;
    if (!ep_grow(&r->open_head, &r->open_head_cap, lane + 1, sizeof *r->open_head)) return false;
    if (r->open_head_cap > old) memset(r->open_head + old, 0, (r->open_head_cap - old) * sizeof *r->open_head);
    if (!ep_grow(&r->open_row, &r->open_row_cap, r->open_count + 1, sizeof *r->open_row) ||
        !ep_grow(&r->open_next, &r->open_next_cap, r->open_count + 1, sizeof *r->open_next) ||
        !ep_grow(&r->open_offset, &r->open_offset_cap, r->open_count + 1, sizeof *r->open_offset))
        return false;
    r->open_offset[r->open_count] = r->raw.offset;
    r->open_row[r->open_count] = row;
    r->open_next[r->open_count] = r->open_head[lane];
    r->open_head[lane] = (uint32_t)++r->open_count;
    return true;
}

/* Times that no trace has: in nanoseconds the year 2116, and 104 days. Within them no difference of two times, and no
 * sum of a thousand durations, leaves 64 bits. */
static const int64_t LATEST = INT64_C(1) << 62, LONGEST = INT64_C(1) << 53;

static bool close_begin(kineto_reader *r, uint32_t category, uint32_t lane) {
    if (lane >= r->open_head_cap || !r->open_head[lane]) {
        r->trace->skipped++;
        return ep_trace_repair(r->trace, "unpaired_end", r->raw.offset);
    }
    uint32_t entry = r->open_head[lane] - 1, row = r->open_row[entry];
    r->open_head[lane] = r->open_next[entry];
    ep_trace *t = r->trace;
    if (!ep_trace_fold(t, category)) return false;
    t->phase[row] = 'X';
    t->dur[row] = 0;
    if (r->raw.ts < t->ts[row]) return ep_trace_repair(t, "negative_dur", r->raw.offset);
    int64_t dur = r->raw.ts - t->ts[row]; /* of two times within LATEST */
    if (dur <= LONGEST) {
        t->dur[row] = dur;
        return true;
    }
    return ep_trace_repair(t, "impossible_time", r->raw.offset);
}

static bool is_call_flow(slice category) {
    static const char *const names[] = {"ac2g", "async_cpu_to_gpu", "async", "async_gpu"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == category.n && memcmp(names[i], category.s, category.n) == 0) return true;
    return false;
}

static bool impossible(const raw_event *e) {
    if (e->wild_time) return true;
    if (e->has_ts && (e->ts > LATEST || e->ts < -LATEST)) return true;
    return e->has_dur && e->dur > LONGEST;
}

static ep_status store_row(kineto_reader *r, ep_event_kind kind, uint32_t category, uint32_t lane) {
    raw_event *e = &r->raw;
    ep_trace *t = r->trace;
    uint32_t name = text_id(r, e->name), row = ep_trace_append(t);
    if (row == EP_NO_INDEX || name == UINT32_MAX) return no_memory(r);
    t->kind[row] = (uint8_t)kind;
    t->phase[row] = e->phase;
    t->name[row] = name;
    t->category[row] = category;
    t->lane[row] = lane;
    t->ts[row] = e->ts;
    if (e->phase == 'X' && e->has_ts && e->has_dur) t->dur[row] = e->dur;
    if (!ep_trace_set_correlation(t, row, kind == EP_EVENT_FLOW ? e->id : e->correlation)) return no_memory(r);
    if (!t->lean) {
        t->external_id[row] = e->external_id;
        t->args[row] = text_id(r, e->args);
        if (t->args[row] == UINT32_MAX) return no_memory(r);
    }
    if (e->has_info && !store_info(r, row)) return no_memory(r);
    if (e->has_sequence && kind == EP_EVENT_OP && !ep_trace_sequence(t, e->sequence, e->forward_thread))
        return no_memory(r);
    if (kind == EP_EVENT_META) store_meta(r, lane);
    if (e->phase == 'B' && e->has_ts) {
        /* An E may name no category, device or stream: the two are of one (pid, tid). */
        uint32_t thread = on_device(kind) ? ep_trace_lane(t, t->lanes[lane].pid, t->lanes[lane].tid, -1, -1) : lane;
        if (thread == EP_NO_INDEX || !open_begin(r, row, thread)) return no_memory(r);
    }
    return EP_OK;
}

enum { MOST_DEVICES = 64 }; /* of one process; more are made up, and each is looked for in all others */

/* A [memory] event says what its device has allocated after it. Events may stand in any order. */
static bool store_memory(kineto_reader *r, uint32_t lane) {
    const raw_event *e = &r->raw;
    ep_trace *t = r->trace;
    int64_t before;
    if (__builtin_sub_overflow(e->allocated, e->memory_bytes, &before)) return true;
    size_t i = 0;
    while (i < t->memory_count && (t->memory[i].type != e->memory_type || t->memory[i].device != e->memory_device)) i++;
    if (i == MOST_DEVICES) return true;
    if (i == t->memory_count) {
        if (!ep_grow(&t->memory, &t->memory_cap, i + 1, sizeof *t->memory)) return false;
        t->memory[t->memory_count++] = (ep_memory_use){.type = e->memory_type,
                                                       .device = e->memory_device,
                                                       .start_ns = INT64_MAX,
                                                       .end_ns = INT64_MIN,
                                                       .peak_bytes = INT64_MIN};
    }
    ep_memory_use *m = &t->memory[i];
    m->events++;
    if (e->ts < m->start_ns) m->start_ns = e->ts, m->start_bytes = before;
    if (e->ts >= m->end_ns) m->end_ns = e->ts, m->end_bytes = e->allocated;
    if (e->allocated > m->peak_bytes) m->peak_bytes = e->allocated, m->peak_ns = e->ts, m->peak_lane = lane;
    if (e->reserved > m->reserved_bytes) m->reserved_bytes = e->reserved;
    return true;
}

ep_status kineto_store(kineto_reader *r) {
    raw_event *e = &r->raw;
    ep_trace *t = r->trace;
    r->events++;
    bool looking = r->cut.looking;
    uint32_t category = text_id(r, e->category);
    if (category == UINT32_MAX) return no_memory(r);
    ep_event_kind kind = kind_of(r, category, e->phase);
    if (kind < EP_EVENT_OTHER_SPAN) r->saw_kineto = true;
    if (e->has_dur && e->dur < 0) {
        if (!looking && !ep_trace_repair(t, "negative_dur", e->offset)) return no_memory(r);
        e->dur = 0;
    }
    if (impossible(e)) {
        if (looking) return EP_OK;
        t->skipped++;
        return ep_trace_repair(t, "impossible_time", e->offset) ? EP_OK : no_memory(r);
    }
    if (!looking && e->phase == 'X' && !(e->has_ts && e->has_dur) && !ep_trace_repair(t, "untimed_span", e->offset))
        return no_memory(r);
    if (looking) {
        kineto_cut_look(r, kind);
        return EP_OK;
    }
    uint32_t pid = text_id(r, e->pid);
    if (pid == UINT32_MAX) return no_memory(r);
    if (r->cut.mode != CUT_NONE && !kineto_cut_wants(r, kind, pid))
        return kineto_cut_leave(r, kind) ? EP_OK : no_memory(r);
    if (kind == EP_EVENT_FLOW && t->lean && is_call_flow(e->category))
        return ep_trace_fold(t, category) ? EP_OK : no_memory(r);
    uint32_t lane = lane_of(r, kind, pid);
    if (lane == EP_NO_INDEX) return no_memory(r);
    if (e->phase == 'E') return close_begin(r, category, lane) ? EP_OK : no_memory(r);
    if (kind == EP_EVENT_INSTANT && e->has_allocated && e->has_ts && !store_memory(r, lane)) return no_memory(r);
    return store_row(r, kind, category, lane);
}

/* Process names from the lane that was named to all lanes of the pid; thread names likewise to all of (pid, tid). */
static ep_status spread_names(ep_trace *t) {
    uint32_t *process = calloc(t->strings.count + 1, sizeof *process);
    if (!process) return EP_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < t->lane_count; i++)
        if (t->lanes[i].process_name) process[t->lanes[i].pid] = t->lanes[i].process_name;
    for (size_t i = 0; i < t->lane_count; i++) {
        ep_lane *l = &t->lanes[i];
        l->process_name = process[l->pid];
        if (l->device == -1 && l->stream == -1) continue;
        uint32_t host = ep_trace_find_lane(t, l->pid, l->tid, -1, -1);
        if (host == EP_NO_INDEX) continue;
        if (!l->name) l->name = t->lanes[host].name;
        if (!l->sort_index) l->sort_index = t->lanes[host].sort_index;
    }
    free(process);
    return EP_OK;
}

int64_t kineto_first_start(bool any, int64_t first, bool any_origin) {
    static const int64_t day = (int64_t)86400 * 1000000000;
    return any_origin && (!any || (first > 0 && first < day)) ? 0 : first;
}

static int64_t first_start(const ep_trace *t) {
    int64_t first = 0;
    bool any = false, any_origin = false;
    for (size_t i = 0; i < t->count; i++) {
        if (!ep_event_is_span(t, i) || t->kind[i] == EP_EVENT_PROFILER) continue;
        if (ep_event_is_device_work(t->kind[i]) && t->ts[i] == 0 && t->dur[i] == 0) {
            any_origin = true;
            continue;
        }
        if (!any || t->ts[i] < first) first = t->ts[i];
        any = true;
    }
    return kineto_first_start(any, first, any_origin);
}

ep_status kineto_store_finish(kineto_reader *r) {
    ep_trace *t = r->trace;
    for (size_t lane = 0; lane < r->open_head_cap; lane++)
        for (uint32_t e = r->open_head[lane]; e; e = r->open_next[e - 1])
            if (!ep_trace_repair(t, "unpaired_begin", r->open_offset[e - 1])) return no_memory(r);
    if (spread_names(t) != EP_OK) return no_memory(r);
    int64_t first = first_start(t);
    for (size_t i = 0; i < t->memory_count; i++) {
        ep_memory_use *m = &t->memory[i];
        int64_t *times[] = {&m->start_ns, &m->end_ns, &m->peak_ns};
        for (size_t k = 0; k < 3; k++)
            if (__builtin_sub_overflow(*times[k], first, times[k])) *times[k] = INT64_MIN;
    }
    for (size_t i = 0; i < t->count; i++)
        if (__builtin_sub_overflow(t->ts[i], first, &t->ts[i])) t->ts[i] = INT64_MIN;
    t->base_ns = first;
    return EP_OK;
}
