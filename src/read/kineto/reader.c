/* A trace file into columns: the top level, the array of events, and what to do where the text breaks off. */
#include <stdlib.h>
#include <string.h>

#include "base/json_scan.h"
#include "kineto.h"
#include "reader.h"

enum { WINDOW_SIZE = 1 << 18, FAST_LIMIT = 1 << 20, PROGRESS_EVERY = 1 << 14 };

static ep_status repair(kineto_reader *r, const char *kind, int64_t offset) {
    if (r->cut.looking || ep_trace_repair(r->trace, kind, offset)) return EP_OK;
    return ep_fail(r->err, EP_ERROR_OUT_OF_MEMORY, "no memory for the list of repairs");
}

/* The text ends too early; what was read stays. */
static ep_status cut_off(kineto_reader *r, int64_t offset) {
    ep_stream_state s = ep_stream_get_state(r->stream);
    r->trace->complete = false;
    if (s.damaged) return repair(r, "gzip_damaged", offset);
    return repair(r, s.cut ? "gzip_cut_off" : "cut_off", offset);
}

static void progress(kineto_reader *r) {
    const ep_read_options *o = r->options;
    if (!o || !o->progress || r->events % PROGRESS_EVERY != 0) return;
    ep_stream_state s = ep_stream_get_state(r->stream);
    if (s.file_size <= 0) return;
    o->progress(o->progress_user, r->pass * s.file_size + s.consumed, r->passes * s.file_size);
}

/* The next event by the fast parser, if it can; FAST_ODD leaves everything as it was. */
static fast_result try_fast(kineto_reader *r) {
    ep_json_in *j = &r->json;
    if (r->no_fast) return FAST_ODD;
    for (;;) {
        const char *p = ep_json_at_object(j), *after;
        fast_result result = FAST_MORE;
        if (p) {
            kineto_raw_begin(r, j->base + (p - j->window));
            result = kineto_fast_event(r, p, j->end, &after);
            if (result == FAST_OK) ep_json_took(j, after);
        } else if (j->end - j->at > 64) {
            return FAST_ODD;
        }
        if (result != FAST_MORE) return result;
        /* Very long events are for the other parser, which never reads a byte twice. */
        if (j->end - j->at > FAST_LIMIT || !ep_json_more(j)) return FAST_ODD;
    }
}

/* Nothing but blanks and commas between the mark and the end of the text. */
static bool only_blanks_left(const ep_json_in *j) {
    const char *p = j->mark;
    while (p < j->end && (ep_json_is_space(*p) || *p == ',')) p++;
    return p == j->end;
}

/* A member of the array could not be read: goes on at the next one, or ends where there is none. */
static ep_status recover(kineto_reader *r, int depth, ep_status status, bool *done) {
    ep_json_in *j = &r->json;
    bool lost = !only_blanks_left(j);
    int64_t at = j->base + ((lost ? j->mark : j->end) - j->window);
    bool more = kineto_resync(r, depth);
    if (lost && !r->cut.looking) r->trace->skipped++;
    *done = !more;
    if (more || status != EP_ERROR_TRUNCATED) EP_TRY(repair(r, "broken_event", at));
    return more ? EP_OK : cut_off(r, at);
}

/* One event by the tolerant parser. *stored: there is one in hand. *done: the array or the text ended. */
static ep_status tolerant_event(kineto_reader *r, int depth, bool *stored, bool *done) {
    ep_json_in *j = &r->json;
    ep_json_token t;
    *stored = false;
    ep_json_set_mark(j);
    ep_status status = ep_json_next(j, &t);
    if (status == EP_OK && t.type != EP_JSON_ARRAY_END) {
        if (t.type == EP_JSON_OBJECT) j->mark = j->at - 1; /* what stands before the event is no part of it */
        r->raw.offset = t.offset;
        kineto_mends_begin(r);
        status = t.type == EP_JSON_OBJECT ? kineto_slow_event(r) : ep_json_skip_rest(j, &t);
        kineto_mends_end(r, status == EP_OK);
    }
    if (status == EP_ERROR_PARSE || status == EP_ERROR_TRUNCATED || status == EP_ERROR_OVERFLOW)
        return recover(r, depth, status, done);
    EP_TRY(status);
    ep_json_unmark(j);
    *done = t.type == EP_JSON_ARRAY_END;
    *stored = t.type == EP_JSON_OBJECT && r->raw.any;
    if (*done || *stored) return EP_OK;
    if (t.type == EP_JSON_OBJECT) return repair(r, "empty_object", t.offset);
    if (!r->cut.looking) r->trace->skipped++;
    return repair(r, "not_an_event", t.offset);
}

static ep_status read_events(kineto_reader *r) {
    int depth = r->json.depth;
    r->saw_events = true;
    for (bool done = false; !done;) {
        bool stored = true;
        if (try_fast(r) != FAST_OK) EP_TRY(tolerant_event(r, depth, &stored, &done));
        if (stored) EP_TRY(kineto_store(r));
        progress(r);
    }
    return EP_OK;
}

/* A member of the top object. */
static ep_status read_member(kineto_reader *r, const ep_json_token *key) {
    if (key->len == 11 && memcmp(key->text, "traceEvents", 11) == 0) {
        ep_json_token t;
        EP_TRY(ep_json_next(&r->json, &t));
        if (t.type == EP_JSON_ARRAY) return read_events(r);
        r->saw_no_list = true;
        return ep_json_skip_rest(&r->json, &t);
    }
    char name[256];
    size_t n = key->len < sizeof name ? key->len : sizeof name;
    memcpy(name, key->text, n);
    return kineto_top_key(r, (slice){name, n});
}

static ep_status read_top_object(kineto_reader *r) {
    for (;;) {
        ep_json_token t;
        ep_status status = ep_json_next(&r->json, &t);
        if (status == EP_OK && t.type != EP_JSON_KEY) return EP_OK;
        if (status == EP_OK) status = read_member(r, &t);
        if (status == EP_OK) continue;
        if (status != EP_ERROR_PARSE && status != EP_ERROR_TRUNCATED) return status;
        int64_t at = r->err->position;
        if (r->saw_events) { /* what stands behind the events is not worth losing them */
            if (!r->trace->complete) return EP_OK;
            r->trace->complete = false;
            return status == EP_ERROR_TRUNCATED ? cut_off(r, at) : repair(r, "broken_tail", at);
        }
        ep_error first = *r->err;
        if (!kineto_find_events(r)) {
            *r->err = first;
            return status;
        }
        EP_TRY(repair(r, "broken_head", at));
        EP_TRY(ep_json_next(&r->json, &t));
        if (t.type == EP_JSON_ARRAY) EP_TRY(read_events(r));
    }
}

/* One pass over the text. */
static ep_status read_text(kineto_reader *r) {
    ep_json_token t;
    EP_TRY(ep_json_next(&r->json, &t));
    if (t.type == EP_JSON_ARRAY)
        EP_TRY(read_events(r));
    else
        EP_TRY(read_top_object(r));
    if (!r->saw_events) return kineto_no_events(r);
    if (!r->trace->complete) return EP_OK;
    ep_error ignored;
    r->json.err = &ignored;
    ep_status status = ep_json_next(&r->json, &t);
    r->json.err = r->err;
    ep_stream_state s = ep_stream_get_state(r->stream); /* now that its last bytes were asked for */
    if (s.damaged || s.cut) return cut_off(r, ep_json_offset(&r->json));
    if (s.trailing || status != EP_OK) return repair(r, "trailing_data", ep_json_offset(&r->json));
    return EP_OK;
}

static ep_status begin_pass(kineto_reader *r) {
    EP_TRY(ep_json_open_stream(&r->json, r->stream, WINDOW_SIZE, r->err));
    r->json.tolerant = true;
    r->json.mend = kineto_mend;
    r->json.mend_user = r;
    r->err->status = EP_OK;
    if (!ep_json_more(&r->json) && r->err->status != EP_OK) return r->err->status;
    ep_stream_state s = ep_stream_get_state(r->stream);
    if (r->json.at == r->json.end && s.gzip)
        return ep_fail_at(r->err, EP_ERROR_TRUNCATED, 0,
                          s.cut || s.damaged ? "the gzip data is damaged from its start"
                                             : "the gzip file holds nothing");
    /* A byte order mark is no part of the text. */
    if (r->json.end - r->json.at >= 3 && memcmp(r->json.at, "\xef\xbb\xbf", 3) == 0) r->json.at += 3;
    return kineto_sniff(r->json.at, (size_t)(r->json.end - r->json.at), r->err);
}

static ep_status finish(kineto_reader *r) {
    EP_TRY(kineto_cut_finish(r));
    EP_TRY(kineto_store_finish(r));
    EP_TRY(kineto_top_finish(r));
    if (r->events == 0 && !r->trace->complete)
        return ep_fail_at(r->err, EP_ERROR_TRUNCATED, ep_json_offset(&r->json), "the text ends before its first event");
    if (r->events == 0 && r->trace->skipped)
        return ep_fail(r->err, EP_ERROR_FORMAT, "none of the %lld members of the list is an event of a trace",
                       (long long)r->trace->skipped);
    if (r->events && !r->saw_kineto && !r->saw_schema && !r->trace->is_ours) return kineto_foreign_viewer(r);
    return EP_OK;
}

static ep_status read_passes(kineto_reader *r) {
    EP_TRY(kineto_cut_begin(r));
    for (r->pass = 0; r->pass < r->passes; r->pass++) {
        if (r->pass) {
            EP_TRY(kineto_cut_found(r));
            EP_TRY(ep_stream_rewind(r->stream, r->err));
            ep_json_close(&r->json);
            r->trace->complete = true;
            r->events = 0;
            r->saw_events = false;
        }
        EP_TRY(begin_pass(r));
        EP_TRY(read_text(r));
    }
    return finish(r);
}

static void free_reader(kineto_reader *r) {
    ep_json_close(&r->json);
    ep_text_free(&r->extra);
    ep_text_free(&r->decoded);
    ep_text_free(&r->schema);
    ep_arena_free(&r->slow);
    free(r->kinds);
    free(r->open_head);
    free(r->open_next);
    free(r->open_row);
    free(r->open_offset);
    kineto_cut_free(&r->cut);
    free(r);
}

ep_status kineto_read_stream(ep_stream_in *stream, const char *name, const ep_read_options *options, bool no_fast,
                             ep_error *err, ep_trace **out) {
    kineto_reader *r = calloc(1, sizeof *r);
    ep_trace *trace = ep_trace_create();
    if (!r || !trace) {
        free(r);
        ep_trace_destroy(trace);
        return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory to read a trace");
    }
    ep_error own = {0}; /* filled by damage that is then mended, so it is the caller's only in the end */
    r->stream = stream;
    r->trace = trace;
    r->err = &own;
    r->options = options;
    r->keep_args = options && options->keep_args;
    r->no_fast = no_fast;
    r->passes = 1;
    if (!r->keep_args) ep_trace_make_lean(trace);
    kineto_keys_init(&r->fields, kineto_field_rows, FIELD_UNKNOWN);
    kineto_keys_init(&r->args, kineto_arg_rows, ARG_UNKNOWN);
    trace->file_name = ep_trace_string(trace, name, strlen(name));
    ep_status status = read_passes(r);
    free_reader(r);
    if (status == EP_OK) {
        *out = trace;
        return EP_OK;
    }
    ep_trace_destroy(trace);
    if (err) *err = own;
    return status;
}

ep_status ep_trace_read(const char *path, const ep_read_options *options, ep_error *err, ep_trace **out) {
    ep_stream_in *stream;
    if (!path || !out) return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "path and result must not be NULL");
    EP_TRY(ep_stream_open(path, err, &stream));
    ep_status status = kineto_read_stream(stream, path, options, false, err, out);
    ep_stream_close(stream);
    return status;
}

ep_status ep_trace_read_memory(const void *bytes, size_t size, const ep_read_options *options, ep_error *err,
                               ep_trace **out) {
    ep_stream_in *stream;
    if ((!bytes && size) || !out) return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "bytes and result must not be NULL");
    EP_TRY(ep_stream_memory(bytes, size, err, &stream));
    ep_status status = kineto_read_stream(stream, "", options, false, err, out);
    ep_stream_close(stream);
    return status;
}
