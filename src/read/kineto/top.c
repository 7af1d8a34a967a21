/* The keys beside the events: devices, ranks, the origin of time; all of them are kept as text for a writer. */
#include <string.h>

#include "base/alloc.h"
#include "base/json_write.h"
#include "kineto.h"

enum { VALUE_LIMIT = 1 << 20 };

/* Calls `member` for every key of an object's text. */
typedef ep_status (*member_function)(kineto_reader *r, void *to, slice key, slice value);

static ep_status each_member(kineto_reader *r, slice object, member_function member, void *to) {
    ep_error ignored;
    ep_json_in j;
    ep_json_token t;
    ep_text value = {0};
    char key[64];
    ep_json_open_memory(&j, object.s, object.n, &ignored);
    ep_status status = ep_json_next(&j, &t);
    while (status == EP_OK && t.type == EP_JSON_OBJECT) {
        ep_json_token k;
        if (ep_json_next(&j, &k) != EP_OK || k.type != EP_JSON_KEY) break;
        size_t n = k.len < sizeof key ? k.len : sizeof key;
        memcpy(key, k.text, n);
        ep_text_clear(&value);
        if (ep_json_copy(&j, &value, VALUE_LIMIT, NULL) != EP_OK) break;
        status = member(r, to, (slice){key, n}, (slice){ep_text_str(&value), value.len});
    }
    ep_text_free(&value);
    ep_json_close(&j);
    return status;
}

static bool is(slice s, const char *text) {
    return strlen(text) == s.n && memcmp(s.s, text, s.n) == 0;
}

static int64_t number(slice v, int64_t fallback) {
    int64_t n;
    if (v.n >= 2 && v.s[0] == '"') v = (slice){v.s + 1, v.n - 2};
    return ep_json_decimal(v.s, v.n, 0, &n) ? n : fallback;
}

static int32_t small(slice v) {
    int64_t n = number(v, 0);
    return n < 0 || n > INT32_MAX ? 0 : (int32_t)n;
}

static ep_status device_member(kineto_reader *r, void *to, slice key, slice value) {
    ep_trace_device *d = to;
    if (is(key, "id"))
        d->id = number(value, -1);
    else if (is(key, "name") && value.n >= 2)
        d->name = ep_trace_string(r->trace, value.s + 1, value.n - 2);
    else if (is(key, "totalGlobalMem"))
        d->memory_bytes = number(value, 0);
    else if (is(key, "numSms"))
        d->sm_count = small(value);
    else if (is(key, "computeMajor"))
        d->major = small(value);
    else if (is(key, "computeMinor"))
        d->minor = small(value);
    return EP_OK;
}

static ep_status read_devices(kineto_reader *r, slice list) {
    ep_trace *t = r->trace;
    ep_error ignored;
    ep_json_in j;
    ep_json_token first;
    ep_text one = {0};
    ep_json_open_memory(&j, list.s, list.n, &ignored);
    ep_status status = ep_json_next(&j, &first);
    if (status == EP_OK && first.type == EP_JSON_ARRAY) {
        for (;;) {
            if (ep_json_next(&j, &first) != EP_OK || first.type != EP_JSON_OBJECT) break;
            ep_text_clear(&one);
            if (ep_json_copy_rest(&j, &first, &one, VALUE_LIMIT, NULL) != EP_OK) break;
            if (!ep_grow(&t->devices, &t->device_cap, t->device_count + 1, sizeof *t->devices)) break;
            ep_trace_device *d = &t->devices[t->device_count++];
            *d = (ep_trace_device){.id = -1, .props = ep_trace_string(t, ep_text_str(&one), one.len)};
            each_member(r, (slice){ep_text_str(&one), one.len}, device_member, d);
        }
    }
    ep_text_free(&one);
    ep_json_close(&j);
    return EP_OK;
}

static ep_status rank_member(kineto_reader *r, void *to, slice key, slice value) {
    (void)to;
    if (is(key, "rank")) r->trace->rank = number(value, -1);
    if (is(key, "world_size")) r->trace->world_size = number(value, -1);
    return EP_OK;
}

static ep_status own_member(kineto_reader *r, void *to, slice key, slice value) {
    (void)to;
    int64_t thousandths;
    if (is(key, "dropped")) r->trace->dropped = number(value, 0);
    if (is(key, "own_ns_per_event") && ep_json_decimal(value.s, value.n, 3, &thousandths))
        r->trace->own_ns_per_event = (double)thousandths / 1000;
    if (is(key, "device_error_ns")) r->trace->device_error_ns = number(value, 0);
    if (is(key, "device_times") && value.n > 2) {
        slice inside = {value.s + 1, value.n - 2};
        for (int t = EP_TIMES_CUPTI; t <= EP_TIMES_EVENTS; t++)
            if (is(inside, ep_device_times_name((ep_device_times)t))) r->trace->device_times = (ep_device_times)t;
    }
    return EP_OK;
}

static void take(kineto_reader *r, slice key, slice value) {
    ep_trace *t = r->trace;
    if (is(key, "deviceProperties")) {
        r->saw_schema = true;
        read_devices(r, value);
    } else if (is(key, "distributedInfo")) {
        r->saw_schema = true;
        each_member(r, value, rank_member, NULL);
    } else if (is(key, "schemaVersion")) {
        r->saw_schema = true;
    } else if (is(key, "baseTimeNanoseconds")) {
        t->file_base_ns = number(value, 0);
    } else if (is(key, "record_shapes")) {
        if (number(value, 0) != 0 || is(value, "true")) t->has_shapes = true;
    } else if (is(key, "epilogue")) {
        t->is_ours = true;
        each_member(r, value, own_member, NULL);
    }
}

ep_status kineto_top_key(kineto_reader *r, slice key) {
    ep_text value = {0};
    bool whole;
    ep_status status = ep_json_copy(&r->json, &value, VALUE_LIMIT, &whole);
    if (status == EP_OK && whole && !r->cut.looking) {
        slice v = {ep_text_str(&value), value.len};
        take(r, key, v);
        ep_text_add(&r->schema, r->schema.len ? ", " : "{");
        ep_json_quote(&r->schema, key.s, key.n);
        ep_text_add(&r->schema, ": ");
        ep_text_addn(&r->schema, v.s, v.n);
    }
    ep_text_free(&value);
    return status;
}

ep_status kineto_top_finish(kineto_reader *r) {
    if (!r->schema.len) return EP_OK;
    ep_text_char(&r->schema, '}');
    r->trace->schema = ep_trace_string(r->trace, ep_text_str(&r->schema), r->schema.len);
    if (r->trace->schema == UINT32_MAX || r->schema.failed)
        return ep_fail(r->err, EP_ERROR_OUT_OF_MEMORY, "no memory for the keys beside the events");
    return EP_OK;
}
