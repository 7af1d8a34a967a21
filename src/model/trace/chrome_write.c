/* A trace as the Chrome JSON that Kineto writes; what was read with its args is written again event by event. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <epilogue/trace.h>

#include "base/file.h"
#include "base/json_write.h"
#include "model/trace/trace.h"

typedef struct writer {
    ep_json_out out;
    const ep_trace *t;
    ep_stream_out *stream;
    ep_error *err;
    ep_status status;
} writer;

static bool flush(void *user, const char *data, size_t n) {
    writer *w = user;
    w->status = ep_stream_write(w->stream, data, n, w->err);
    return w->status == EP_OK;
}

static void key_raw(writer *w, const char *key, uint32_t text) {
    if (!text) return;
    const char *s = ep_trace_text(w->t, text);
    ep_json_key(&w->out, key);
    ep_json_raw(&w->out, s, strlen(s));
}

/* Three decimals, from integers: 1234567 ns is 1234.567. */
static void key_time(ep_json_out *o, const char *key, int64_t ns) {
    char text[32];
    uint64_t v = ns < 0 ? 0 - (uint64_t)ns : (uint64_t)ns;
    int n = snprintf(text, sizeof text, "%s%" PRIu64 ".%03d", ns < 0 ? "-" : "", v / 1000, (int)(v % 1000));
    ep_json_key(o, key);
    ep_json_raw(o, text, (size_t)n);
}

/* pid and tid are numbers where they look like one and would come back as the same text. */
static void key_id(ep_json_out *o, const char *key, const char *text) {
    const char *p = text + (*text == '-');
    size_t n = strspn(p, "0123456789");
    bool number = n > 0 && n <= 18 && p[n] == 0 && (p[0] != '0' || (n == 1 && p == text));
    ep_json_key(o, key);
    if (number)
        ep_json_raw(o, text, strlen(text));
    else
        ep_json_str(o, text);
}

static void triple(ep_json_out *o, const char *key, const uint32_t v[3]) {
    if (!v[0]) return;
    ep_json_put_array(o, key);
    for (int i = 0; i < 3; i++) ep_json_uint(o, v[i]);
    ep_json_end(o);
}

static void known(ep_json_out *o, const char *key, int64_t v) {
    if (v >= 0) ep_json_put_int(o, key, v);
}

static void info_args(writer *w, const ep_event_info *f) {
    ep_json_out *o = &w->out;
    key_raw(w, "Input Dims", f->input_dims);
    key_raw(w, "Input type", f->input_types);
    key_raw(w, "Input Strides", f->input_strides);
    key_raw(w, "Concrete Inputs", f->concrete_inputs);
    triple(o, "grid", f->grid);
    triple(o, "block", f->block);
    if (f->grid[0]) {
        ep_json_put_int(o, "registers per thread", f->registers);
        ep_json_put_int(o, "shared memory", f->shared_bytes);
    }
    known(o, "bytes", f->bytes);
    known(o, "flops", f->flops);
    known(o, "bytes read", f->bytes_read);
    known(o, "bytes written", f->bytes_written);
    known(o, "graph id", f->graph_id);
}

/* The members of an object's text, put among ours. */
static void members(writer *w, uint32_t text) {
    const char *s = ep_trace_text(w->t, text);
    size_t n = strlen(s);
    while (n && *s == ' ') s++, n--;
    while (n && s[n - 1] == ' ') n--;
    if (n < 2 || s[0] != '{' || s[n - 1] != '}') return;
    s++, n -= 2;
    while (n && *s == ' ') s++, n--;
    if (n) ep_json_members(&w->out, s, n);
}

/* Args made from the columns, for events whose own text was not kept. */
static void column_args(writer *w, size_t i) {
    const ep_trace *t = w->t;
    ep_json_out *o = &w->out;
    const ep_event_info *f = &t->infos[t->info[i]];
    const ep_lane *lane = &t->lanes[t->lane[i]];
    ep_json_object(o);
    if (ep_trace_external_id(t, i)) ep_json_put_uint(o, "External id", ep_trace_external_id(t, i));
    if (lane->device >= 0) ep_json_put_int(o, "device", lane->device);
    if (lane->stream >= 0) ep_json_put_int(o, "stream", lane->stream);
    if (ep_trace_correlation(t, i)) ep_json_put_uint(o, "correlation", ep_trace_correlation(t, i));
    info_args(w, f);
    if (f->detail) ep_json_put_str(o, t->kind[i] == EP_EVENT_COMPILE ? "guard" : "detail", ep_trace_text(t, f->detail));
    if (f->extra) members(w, f->extra);
    ep_json_end(o);
}

static void meta_args(writer *w, size_t i) {
    const ep_trace *t = w->t;
    const ep_lane *lane = &t->lanes[t->lane[i]];
    const char *name = ep_trace_text(t, t->name[i]);
    ep_json_object(&w->out);
    if (strcmp(name, "process_name") == 0)
        ep_json_put_str(&w->out, "name", ep_trace_text(t, lane->process_name));
    else if (strcmp(name, "thread_name") == 0)
        ep_json_put_str(&w->out, "name", ep_trace_text(t, lane->name));
    else if (strstr(name, "sort_index"))
        ep_json_put_int(&w->out, "sort_index", lane->sort_index);
    ep_json_end(&w->out);
}

static void event_head(writer *w, const char *phase, const char *category, const char *name, uint32_t lane) {
    const ep_trace *t = w->t;
    ep_json_newline(&w->out);
    ep_json_object(&w->out);
    ep_json_put_str(&w->out, "ph", phase);
    if (*category) ep_json_put_str(&w->out, "cat", category);
    ep_json_put_str(&w->out, "name", name);
    key_id(&w->out, "pid", ep_trace_text(t, t->lanes[lane].pid));
    key_id(&w->out, "tid", ep_trace_text(t, t->lanes[lane].tid));
}

static void write_event(writer *w, size_t i) {
    const ep_trace *t = w->t;
    ep_json_out *o = &w->out;
    if (!t->phase[i] || t->lane[i] >= t->lane_count) return;
    char phase[2] = {t->phase[i], 0};
    event_head(w, phase, ep_trace_text(t, t->category[i]), ep_trace_text(t, t->name[i]), t->lane[i]);
    key_time(o, "ts", t->base_ns + t->ts[i]);
    if (t->dur[i] >= 0) key_time(o, "dur", t->dur[i]);
    if (t->kind[i] == EP_EVENT_FLOW) {
        ep_json_put_uint(o, "id", ep_trace_correlation(t, i));
        if (phase[0] == 'f') ep_json_put_str(o, "bp", "e");
    }
    if (t->kind[i] == EP_EVENT_INSTANT) ep_json_put_str(o, "s", "t");
    uint32_t args = ep_trace_args(t, i);
    if (args) {
        key_raw(w, "args", args);
    } else if (t->kind[i] != EP_EVENT_FLOW && t->kind[i] != EP_EVENT_INSTANT) {
        ep_json_key(o, "args");
        if (t->kind[i] == EP_EVENT_META)
            meta_args(w, i);
        else
            column_args(w, i);
    }
    ep_json_end(o);
}

static void meta(writer *w, uint32_t lane, const char *name, const char *key, const char *text, int64_t number) {
    event_head(w, "M", "", name, lane);
    key_time(&w->out, "ts", w->t->base_ns);
    ep_json_put_object(&w->out, "args");
    if (text)
        ep_json_put_str(&w->out, key, text);
    else
        ep_json_put_int(&w->out, key, number);
    ep_json_end(&w->out);
    ep_json_end(&w->out);
}

/* What our own lanes are called; traces that were read bring their own rows for it. */
static void lane_names(writer *w) {
    const ep_trace *t = w->t;
    for (uint32_t i = 0; i < t->lane_count; i++) {
        const ep_lane *lane = &t->lanes[i];
        bool device = lane->device >= 0;
        if (lane->process_name) {
            char label[32] = "CPU";
            if (device) snprintf(label, sizeof label, "device %" PRId64, lane->device);
            meta(w, i, "process_name", "name", ep_trace_text(t, lane->process_name), 0);
            meta(w, i, "process_labels", "labels", label, 0);
            meta(w, i, "process_sort_index", "sort_index", NULL, device ? 5000000 + lane->device : 0);
        }
        if (lane->name) meta(w, i, "thread_name", "name", ep_trace_text(t, lane->name), 0);
        if (lane->name) meta(w, i, "thread_sort_index", "sort_index", NULL, device ? lane->stream : 0);
    }
}

/* One arrow from each call to the work it launched. */
static void flow(writer *w, const char *phase, size_t i) {
    event_head(w, phase, "ac2g", "ac2g", w->t->lane[i]);
    ep_json_put_uint(&w->out, "id", ep_trace_correlation(w->t, i));
    key_time(&w->out, "ts", w->t->base_ns + w->t->ts[i]);
    if (*phase == 'f') ep_json_put_str(&w->out, "bp", "e");
    ep_json_end(&w->out);
}

static void flows(writer *w) {
    const ep_trace *t = w->t;
    for (size_t i = 0; i < t->count; i++) {
        if (!ep_trace_correlation(t, i)) continue;
        if (t->kind[i] == EP_EVENT_RUNTIME && ep_runtime_is_launch(ep_trace_text(t, t->name[i]))) flow(w, "s", i);
        if (ep_event_is_device_work(t->kind[i])) flow(w, "f", i);
    }
}

static void devices(writer *w) {
    const ep_trace *t = w->t;
    ep_json_out *o = &w->out;
    ep_json_put_array(o, "deviceProperties");
    for (size_t i = 0; i < t->device_count; i++) {
        const ep_trace_device *d = &t->devices[i];
        const char *props = ep_trace_text(t, d->props);
        if (*props) {
            ep_json_raw(o, props, strlen(props));
            continue;
        }
        ep_json_object(o);
        ep_json_put_int(o, "id", d->id);
        ep_json_put_str(o, "name", ep_trace_text(t, d->name));
        ep_json_put_int(o, "totalGlobalMem", d->memory_bytes);
        ep_json_put_int(o, "computeMajor", d->major);
        ep_json_put_int(o, "computeMinor", d->minor);
        ep_json_put_int(o, "numSms", d->sm_count);
        ep_json_end(o);
    }
    ep_json_end(o);
}

static void own_head(writer *w) {
    const ep_trace *t = w->t;
    ep_json_out *o = &w->out;
    ep_json_put_int(o, "schemaVersion", 1);
    devices(w);
    ep_json_newline(o);
    ep_json_put_object(o, "distributedInfo");
    ep_json_put_str(o, "backend", "none");
    ep_json_put_int(o, "rank", t->rank < 0 ? 0 : t->rank);
    ep_json_put_int(o, "world_size", t->world_size < 1 ? 1 : t->world_size);
    ep_json_end(o);
    ep_json_put_int(o, "record_shapes", t->has_shapes);
    ep_json_put_str(o, "displayTimeUnit", "ms");
    ep_json_put_int(o, "baseTimeNanoseconds", t->file_base_ns);
    ep_json_put_str(o, "traceName", ep_trace_text(t, t->file_name));
    ep_json_put_object(o, "epilogue");
    ep_json_put_str(o, "version", ep_version());
    ep_json_put_int(o, "dropped", t->dropped);
    ep_json_put_fixed(o, "own_ns_per_event", t->own_ns_per_event, 1);
    if (t->device_times != EP_TIMES_UNKNOWN) {
        ep_json_put_str(o, "device_times", ep_device_times_name(t->device_times));
        ep_json_put_int(o, "device_error_ns", t->device_error_ns);
    }
    ep_json_end(o);
}

static void write_all(writer *w) {
    const ep_trace *t = w->t;
    ep_json_object(&w->out);
    if (t->schema)
        members(w, t->schema);
    else
        own_head(w);
    ep_json_newline(&w->out);
    ep_json_put_array(&w->out, "traceEvents");
    bool own_rows = t->is_ours;
    for (size_t i = 0; i < t->count && own_rows; i++) own_rows = t->kind[i] != EP_EVENT_META;
    if (own_rows) lane_names(w);
    for (size_t i = 0; i < t->count && !w->out.failed; i++) write_event(w, i);
    if (own_rows) flows(w);
    ep_json_end(&w->out);
    ep_json_newline(&w->out);
    ep_json_end(&w->out);
}

ep_status ep_trace_write(const ep_trace *trace, const char *path, ep_error *err) {
    if (!trace || !path) return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "trace and path must not be NULL");
    size_t n = strlen(path);
    bool gzip = n > 3 && strcmp(path + n - 3, ".gz") == 0;
    writer w = {.t = trace, .err = err, .status = EP_OK};
    EP_TRY(ep_stream_create(path, gzip, err, &w.stream));
    w.out.flush = flush;
    w.out.user = &w;
    write_all(&w);
    bool ok = ep_json_finish(&w.out);
    ep_json_free(&w.out);
    if (ok) return ep_stream_commit(w.stream, err);
    ep_stream_abandon(w.stream);
    if (w.status != EP_OK) return w.status;
    return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory to write %s", path);
}
