/* Damage that the parser does not mend inside a value: it goes on at the next place that looks like an event. */
#include <string.h>

#include "base/json_scan.h"
#include "kineto.h"

static void count(kineto_reader *r, const char *kind, int64_t offset) {
    if (!r->cut.looking) ep_trace_repair(r->trace, kind, offset); /* out of memory shows at the next string */
}

void kineto_mend(void *reader, const char *kind, int64_t offset) {
    kineto_reader *r = reader;
    if (!r->in_event || r->pending_count == PENDING_MAX) {
        count(r, kind, offset);
        return;
    }
    r->pending[r->pending_count].kind = kind;
    r->pending[r->pending_count++].offset = offset;
}

void kineto_mends_begin(kineto_reader *r) {
    r->in_event = true;
    r->pending_count = 0;
}

void kineto_mends_end(kineto_reader *r, bool whole) {
    r->in_event = false;
    for (int i = 0; whole && i < r->pending_count; i++) count(r, r->pending[i].kind, r->pending[i].offset);
}

/* The next byte that is `c`, at or behind `at`, which moves there; false at the end of the input. */
static bool seek(ep_json_in *j, char c) {
    do {
        const char *p = j->at < j->end ? memchr(j->at, c, (size_t)(j->end - j->at)) : NULL;
        if (p) {
            j->at = p;
            return true;
        }
        j->at = j->end;
    } while (ep_json_more(j));
    return false;
}

/* Bytes ahead of `at` that a decision needs; fewer only at the end of the input. */
static size_t ahead(ep_json_in *j, size_t want) {
    while ((size_t)(j->end - j->at) < want && ep_json_more(j)) {
    }
    size_t have = (size_t)(j->end - j->at);
    return have < want ? have : want;
}

/* Does an event begin at `at` (a '{')? Its first key is one that events have, and no ':' stands before it. */
static bool begins_event(ep_json_in *j, char before) {
    if (before != ',' && before != '[' && before != '}') return false;
    size_t n = ahead(j, 64);
    const char *end = j->at + n, *p = ep_json_skip_space(j->at + 1, end);
    if (p == end || *p != '"') return false;
    for (int k = 0; k < FIELD_UNKNOWN; k++) {
        size_t length = kineto_field_rows[k].length;
        if ((size_t)(end - p) < length + 3 || memcmp(p + 1, kineto_field_rows[k].text, length) != 0) continue;
        const char *q = p + 1 + length;
        if (*q != '"') continue;
        q = ep_json_skip_space(q + 1, end);
        if (q < end && *q == ':') return true;
    }
    return false;
}

/* Does the array of events end at `at` (a ']')? It stands behind an event, and a key or the end of all follows. */
static bool ends_events(ep_json_in *j, char before) {
    if (before != '}') return false;
    size_t n = ahead(j, 64);
    const char *end = j->at + n, *p = ep_json_skip_space(j->at + 1, end);
    if (p == end) return true;
    if (*p == '}') return ep_json_skip_space(p + 1, end) == end;
    if (*p != ',') return false;
    p = ep_json_skip_space(p + 1, end);
    return p < end && *p == '"';
}

/* The last byte before `at` that is no blank, as far back as `from`; 0 if there is none. */
static char last_before(const ep_json_in *j, const char *from) {
    const char *p = j->at;
    while (p > from && ep_json_is_space(p[-1])) p--;
    return p > from ? p[-1] : 0;
}

/* The next '{' or ']', whichever comes first. */
static bool seek_bracket(ep_json_in *j) {
    for (;;) {
        while (j->at < j->end && *j->at != '{' && *j->at != ']') j->at++;
        if (j->at < j->end) return true;
        if (!ep_json_more(j)) return false;
    }
}

bool kineto_resync(kineto_reader *r, int depth) {
    ep_json_in *j = &r->json;
    if (j->mark) j->at = j->mark;
    if (j->at < j->end) j->at++; /* not the same place again */
    for (;;) {
        /* A little of what was passed stays in the window, so that the byte before a bracket can be looked at. */
        const char *from = j->at - j->window > 256 ? j->at - 256 : j->window;
        j->mark = from;
        if (!seek_bracket(j)) break;
        char before = last_before(j, j->mark);
        if (*j->at == '{' ? begins_event(j, before) : ends_events(j, before)) {
            ep_json_unmark(j);
            ep_json_resume_at_value(j, depth);
            return true;
        }
        j->at++;
    }
    ep_json_unmark(j);
    return false;
}

bool kineto_find_events(kineto_reader *r) {
    static const char key[] = "\"traceEvents\"";
    ep_json_in *j = &r->json;
    ep_json_unmark(j);
    while (seek(j, '"')) {
        if (ahead(j, 256) >= sizeof key - 1 && memcmp(j->at, key, sizeof key - 1) == 0) {
            const char *p = ep_json_skip_space(j->at + sizeof key - 1, j->end);
            if (p < j->end && *p == ':') {
                j->at = p + 1;
                j->depth = 1;
                j->in_object[0] = 1;
                j->expect = EP_JSON_EXPECT_VALUE;
                return true;
            }
        }
        j->at++;
    }
    return false;
}
