/* Keys to numbers, and what the value of each key means. */
#include <string.h>

#include "base/hash.h"
#include "kineto.h"

const kineto_key kineto_field_rows[] = {
#define EP_EVENT_KEY(id, text) {text, sizeof text - 1, KEEP_COLUMN},
#include "model/trace/keys.def"
};
const kineto_key kineto_arg_rows[] = {
#define EP_ARG_KEY(id, text, keep) {text, sizeof text - 1, KEEP_##keep},
#include "model/trace/keys.def"
};

void kineto_keys_init(kineto_keys *k, const kineto_key *rows, int count) {
    memset(k, 0, sizeof *k);
    k->rows = rows;
    k->count = k->last = (uint8_t)count;
    for (int i = 0; i < count; i++) {
        kineto_pattern *p = &k->patterns[i];
        if (rows[i].length + 3u > sizeof p->text) continue;
        p->text[0] = '"';
        memcpy(p->text + 1, rows[i].text, rows[i].length);
        memcpy(p->text + 1 + rows[i].length, "\":", 2);
        p->length = (uint8_t)(rows[i].length + 3);
    }
}

_Static_assert((int)ARG_UNKNOWN < (int)KEYS_MAX, "KEYS_MAX is too small");

int kineto_keys_find(kineto_keys *k, const char *s, size_t n) {
    int guess = k->follows[k->set][k->last];
    if (k->rows[guess].length != n || memcmp(k->rows[guess].text, s, n) != 0)
        for (guess = 0; guess < k->count; guess++)
            if (k->rows[guess].length == n && memcmp(k->rows[guess].text, s, n) == 0) break;
    if (guess == k->count) return guess;
    k->follows[k->set][k->last] = (uint8_t)guess;
    k->last = (uint8_t)guess;
    return guess;
}

void kineto_raw_begin(kineto_reader *r, int64_t offset) {
    memset(&r->raw, 0, sizeof r->raw);
    r->raw.offset = offset;
    ep_event_info *i = &r->raw.info;
    i->bytes = i->flops = i->bytes_read = i->bytes_written = i->graph_id = -1;
    r->fields.last = r->fields.count;
    r->fields.set = r->args.set = 0;
    r->args.last = r->args.count;
    r->extra.len = 0;
    if (r->slow.head) ep_arena_free(&r->slow);
}

/* Microseconds as Kineto writes them: digits, a point, up to three decimals. Anything else takes the long way. */
static bool time_ns(slice v, int64_t *out) {
    uint64_t n = 0;
    size_t i = 0;
    for (; i < v.n && i < 16 && (unsigned)(v.s[i] - '0') < 10; i++) n = n * 10 + (uint64_t)(v.s[i] - '0');
    if (i > 0 && i < 16) {
        if (i == v.n) {
            *out = (int64_t)n * 1000;
            return true;
        }
        if (v.s[i] == '.' && v.n == i + 4) {
            const char *f = v.s + i + 1;
            unsigned a = (unsigned)(f[0] - '0'), b = (unsigned)(f[1] - '0'), c = (unsigned)(f[2] - '0');
            if (a < 10 && b < 10 && c < 10) {
                *out = (int64_t)n * 1000 + (int64_t)(a * 100 + b * 10 + c);
                return true;
            }
        }
    }
    return ep_json_decimal(v.s, v.n, 3, out);
}

static slice unquote(slice v) {
    if (v.n >= 2 && v.s[0] == '"' && v.s[v.n - 1] == '"') return (slice){v.s + 1, v.n - 2};
    return v;
}

/* Ids of flows are numbers, numbers in quotes, hexadecimal or any text. */
static uint64_t id_of(slice v) {
    uint64_t id = 0;
    if (ep_json_u64(v.s, v.n, &id)) return id;
    int64_t negative;
    if (v.n && v.s[0] == '-' && ep_json_decimal(v.s, v.n, 0, &negative)) return (uint64_t)negative;
    return v.n ? ep_hash64(v.s, v.n, 0) | 1 : 0;
}

static bool looks_like_number(slice v) {
    bool digit = false;
    for (size_t i = 0; i < v.n; i++) {
        if (v.s[i] >= '0' && v.s[i] <= '9')
            digit = true;
        else if (!strchr("+-.eE", v.s[i]))
            return false;
    }
    return digit;
}

static void set_time(raw_event *e, slice v, int64_t *value, bool *has) {
    *has = time_ns(v, value);
    if (*has || !looks_like_number(v)) return;
    /* A span that was open when the recording stopped: Kineto 1.13 writes 0 - its start, which no nanoseconds hold. */
    *has = value == &e->dur && v.s[0] == '-';
    if (*has)
        *value = -1;
    else
        e->wild_time = true;
}

void kineto_set_field(raw_event *e, kineto_field field, slice v, bool string) {
    (void)string;
    e->any = true;
    switch (field) {
    case FIELD_PH: e->phase = v.n ? v.s[0] : 0; break;
    case FIELD_CAT: e->category = v; break;
    case FIELD_NAME: e->name = v; break;
    case FIELD_PID: e->pid = v; break;
    case FIELD_TID: e->tid = v; break;
    case FIELD_TS: set_time(e, v, &e->ts, &e->has_ts); break;
    case FIELD_DUR: set_time(e, v, &e->dur, &e->has_dur); break;
    case FIELD_ID: e->id = id_of(v); break;
    default: break;
    }
}

static int64_t int_of(slice v, int64_t fallback) {
    int64_t n;
    slice inside = unquote(v);
    return ep_json_decimal(inside.s, inside.n, 0, &n) ? n : fallback;
}

static uint64_t u64_of(slice v) {
    uint64_t n = 0;
    slice inside = unquote(v);
    return ep_json_u64(inside.s, inside.n, &n) ? n : 0;
}

static void set_triple(slice v, uint32_t out[3]) {
    const char *p = v.s, *end = v.s + v.n;
    for (int i = 0; i < 3; i++) {
        while (p < end && (*p < '0' || *p > '9')) p++;
        uint64_t n = 0;
        for (; p < end && *p >= '0' && *p <= '9'; p++)
            if (n <= UINT32_MAX) n = n * 10 + (uint64_t)(*p - '0');
        out[i] = n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
    }
}

static int32_t int32_of(slice v) {
    int64_t n = int_of(v, 0);
    return n < 0 || n > INT32_MAX ? 0 : (int32_t)n;
}

static void add_extra(kineto_reader *r, slice key, slice value) {
    ep_text *x = &r->extra;
    ep_text_add(x, x->len ? ", \"" : "{\"");
    ep_text_addn(x, key.s, key.n);
    ep_text_add(x, "\": ");
    ep_text_addn(x, value.s, value.n);
}

void kineto_set_arg(kineto_reader *r, raw_event *e, kineto_arg arg, slice key, slice v) {
    ep_event_info *info = &e->info;
    if (arg == ARG_UNKNOWN || kineto_arg_rows[arg].keep == KEEP_DROP) return;
    if (kineto_arg_rows[arg].keep == KEEP_EXTRA) {
        add_extra(r, key, v);
        e->has_info = true;
        return;
    }
    switch (arg) {
    case ARG_EXTERNAL_ID:
    case ARG_EXTERNAL_ID_OLD: e->external_id = u64_of(v); return;
    case ARG_CORRELATION: e->correlation = u64_of(v); return;
    case ARG_DEVICE:
        e->device = int_of(v, INT64_MIN);
        e->has_device = e->device != INT64_MIN;
        return;
    case ARG_STREAM:
        e->stream = int_of(v, INT64_MIN);
        e->has_stream = e->stream != INT64_MIN;
        return;
    case ARG_SEQUENCE: /* -1: autograd is off */
        e->sequence = u64_of(v);
        e->has_sequence = int_of(v, -1) >= 0;
        return;
    case ARG_FORWARD_THREAD: e->forward_thread = u64_of(v); return;
    case ARG_TOTAL_ALLOCATED:
        e->allocated = int_of(v, INT64_MIN);
        e->has_allocated = e->allocated != INT64_MIN;
        return;
    case ARG_TOTAL_RESERVED: e->reserved = int_of(v, 0); return;
    case ARG_MEMORY_BYTES: e->memory_bytes = int_of(v, 0); return;
    case ARG_MEMORY_TYPE: e->memory_type = int_of(v, 0); return;
    case ARG_MEMORY_DEVICE: e->memory_device = int_of(v, -1); return;
    case ARG_META_NAME:
    case ARG_META_LABELS: e->meta_name = v; return;
    case ARG_META_SORT: e->meta_sort = v; return;
    case ARG_INPUT_DIMS: e->dims = v; break;
    case ARG_INPUT_TYPE: e->types = v; break;
    case ARG_INPUT_STRIDES: e->strides = v; break;
    case ARG_CONCRETE_INPUTS: e->concrete = v; break;
    case ARG_GRID: set_triple(v, info->grid); break;
    case ARG_BLOCK: set_triple(v, info->block); break;
    case ARG_REGISTERS: info->registers = int32_of(v); break;
    case ARG_SHARED_MEMORY: info->shared_bytes = int32_of(v); break;
    case ARG_BYTES: info->bytes = int_of(v, -1); break;
    case ARG_GRAPH_ID: info->graph_id = int_of(v, -1); break;
    case ARG_FLOPS: info->flops = int_of(v, -1); break;
    case ARG_BYTES_READ: info->bytes_read = int_of(v, -1); break;
    case ARG_BYTES_WRITTEN: info->bytes_written = int_of(v, -1); break;
    default: e->detail = v; break;
    }
    e->has_info = true;
}
