/* Verdicts as text, JSON, JUnit XML and GitHub annotations. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_write.h"
#include "read/analyze/format.h"
#include "verdict.h"

static const char *const kind_names[] = {"confirmed", "broken", "unknown"};
enum { WIDTH = 80, INDENT = 11 };

static void paragraph(ep_text *out, const char *text) {
    ep_paragraph(out, "           ", INDENT, WIDTH, text);
}

static void head_line(ep_text *out, const ep_verdict *v) {
    char line[32];
    int right = snprintf(line, sizeof line, "line %d", v->line);
    size_t room = WIDTH - INDENT - (size_t)right - 1;
    ep_text_printf(out, "%-*s%s", INDENT, kind_names[v->kind], ep_column_of(v->claim, room).text);
    ep_text_printf(out, " %s\n", line);
}

static char *make_text(const ep_verdicts *v) {
    ep_text t = {0};
    for (size_t i = 0; i < v->count; i++) {
        const ep_verdict *r = &v->rows[i].v;
        ep_text more = {0};
        head_line(&t, r);
        if (r->kind == EP_VERDICT_BROKEN) ep_text_printf(&more, "expected %s, seen %s", r->expected, r->seen);
        if (r->kind == EP_VERDICT_UNKNOWN) ep_text_add(&more, r->seen);
        if (r->kind == EP_VERDICT_CONFIRMED && strcmp(r->seen, r->expected) != 0)
            ep_text_printf(&more, "seen %s", r->seen);
        if (more.len) paragraph(&t, ep_text_str(&more));
        if (r->event) paragraph(&t, r->event);
        t.failed |= more.failed;
        ep_text_free(&more);
    }
    ep_text_printf(&t, "%s%zu broken, %zu confirmed, %zu unknown\n", v->count ? "\n" : "", v->totals[EP_VERDICT_BROKEN],
                   v->totals[EP_VERDICT_CONFIRMED], v->totals[EP_VERDICT_UNKNOWN]);
    return ep_text_take(&t);
}

static void json_event(ep_json_out *o, const ep_verdict_row *r) {
    ep_json_key(o, "event");
    if (!r->v.event) {
        ep_json_null(o);
        return;
    }
    ep_json_object(o);
    ep_json_put_str(o, "name", r->event_name);
    ep_json_put_fixed(o, "start_us", r->event_us, 3);
    ep_json_put_str(o, "lane", r->event_lane);
    ep_json_put_int(o, "index", r->v.event_index);
    ep_json_end(o);
}

static char *make_json(const ep_verdicts *v) {
    ep_json_out o = {.indent = 1};
    ep_json_object(&o);
    ep_json_put_array(&o, "verdicts");
    for (size_t i = 0; i < v->count; i++) {
        const ep_verdict_row *r = &v->rows[i];
        ep_json_object(&o);
        const char *const pairs[][2] = {{"claim", r->v.claim},       {"block", r->block},
                                        {"text", r->text},           {"verdict", kind_names[r->v.kind]},
                                        {"expected", r->v.expected}, {"seen", r->v.seen}};
        for (size_t k = 0; k < sizeof pairs / sizeof *pairs; k++) ep_json_put_str(&o, pairs[k][0], pairs[k][1]);
        ep_json_put_int(&o, "line", r->v.line);
        ep_json_put_fixed(&o, "surprise", r->v.surprise, 3);
        json_event(&o, r);
        ep_json_end(&o);
    }
    ep_json_end(&o);
    for (int k = 0; k < 3; k++) ep_json_put_int(&o, kind_names[k], (int64_t)v->totals[k]);
    ep_json_end(&o);
    return ep_json_take(&o);
}

/* XML 1.0 has no place for most control bytes, nor for broken UTF-8. */
static void xml(ep_text *out, const char *s) {
    for (size_t n = strlen(s); n;) {
        size_t len = ep_utf8_length(s, n);
        unsigned char c = (unsigned char)*s;
        if (len == 0 || (c < 0x20 && c != '\n' && c != '\t'))
            ep_text_add(out, "\xef\xbf\xbd");
        else if (c == '&')
            ep_text_add(out, "&amp;");
        else if (c == '<')
            ep_text_add(out, "&lt;");
        else if (c == '>')
            ep_text_add(out, "&gt;");
        else if (c == '"')
            ep_text_add(out, "&quot;");
        else if (c == '\n')
            ep_text_add(out, "&#10;");
        else
            ep_text_addn(out, s, len);
        if (len == 0) len = 1;
        s += len;
        n -= len;
    }
}

static char *make_junit(const ep_verdicts *v) {
    ep_text t = {0};
    ep_text_add(&t, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    ep_text_printf(
        &t, "<testsuites>\n <testsuite name=\"guess\" tests=\"%zu\" failures=\"%zu\" errors=\"0\" skipped=\"%zu\">\n",
        v->count, v->totals[EP_VERDICT_BROKEN], v->totals[EP_VERDICT_UNKNOWN]);
    for (size_t i = 0; i < v->count; i++) {
        const ep_verdict_row *r = &v->rows[i];
        ep_text_add(&t, "  <testcase classname=\"");
        xml(&t, r->block);
        ep_text_printf(&t, "\" line=\"%d\" name=\"", r->v.line);
        xml(&t, r->text);
        if (r->v.kind == EP_VERDICT_CONFIRMED) {
            ep_text_add(&t, "\"/>\n");
            continue;
        }
        bool broken = r->v.kind == EP_VERDICT_BROKEN;
        ep_text_add(&t, broken ? "\">\n   <failure message=\"expected " : "\">\n   <skipped message=\"unknown: ");
        if (broken) {
            xml(&t, r->v.expected);
            ep_text_add(&t, ", seen ");
        }
        xml(&t, r->v.seen);
        ep_text_add(&t, broken ? "\">" : "\"/>");
        if (broken) {
            if (r->v.event) xml(&t, r->v.event);
            ep_text_add(&t, "</failure>");
        }
        ep_text_add(&t, "\n  </testcase>\n");
    }
    ep_text_add(&t, " </testsuite>\n</testsuites>\n");
    return ep_text_take(&t);
}

/* A workflow command escapes percent and line ends; its properties colon and comma too. */
static void annotate(ep_text *out, const char *s, bool property) {
    for (; *s; s++) {
        if (*s == '%' || *s == '\r' || *s == '\n' || (property && (*s == ':' || *s == ',')))
            ep_text_printf(out, "%%%02X", (unsigned)(unsigned char)*s);
        else
            ep_text_char(out, *s);
    }
}

const char *ep_verdicts_github(const ep_verdicts *v, const char *guess_path) {
    ep_text t = {0};
    for (size_t i = 0; i < v->count; i++) {
        const ep_verdict *r = &v->rows[i].v;
        if (r->kind == EP_VERDICT_CONFIRMED) continue;
        ep_text_add(&t, r->kind == EP_VERDICT_BROKEN ? "::error file=" : "::warning file=");
        annotate(&t, guess_path ? guess_path : "guess", true);
        ep_text_printf(&t, ",line=%d,title=", r->line);
        annotate(&t, r->claim, true);
        ep_text_add(&t, "::");
        if (r->kind == EP_VERDICT_BROKEN) {
            ep_text_add(&t, "expected ");
            annotate(&t, r->expected, false);
            ep_text_add(&t, ", seen ");
        } else
            ep_text_add(&t, "unknown: ");
        annotate(&t, r->seen, false);
        if (r->event) {
            ep_text_add(&t, "%0A");
            annotate(&t, r->event, false);
        }
        ep_text_char(&t, '\n');
    }
    /* Kept with the verdicts, as the other texts are; it depends on the path, so it is made when it is asked for. */
    ep_verdicts *own = (ep_verdicts *)(uintptr_t)v;
    free(own->github);
    own->github = ep_text_take(&t);
    return own->github ? own->github : "";
}

ep_status ep_verdicts_write(ep_verdicts *v, ep_error *err) {
    v->text = make_text(v);
    v->json = make_json(v);
    v->junit = make_junit(v);
    return v->text && v->json && v->junit ? EP_OK
                                          : ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory for the verdicts' text");
}

const char *ep_verdicts_text(const ep_verdicts *v) {
    return v->text;
}

const char *ep_verdicts_json(const ep_verdicts *v) {
    return v->json;
}

const char *ep_verdicts_junit(const ep_verdicts *v) {
    return v->junit;
}
