/* One HTML page that needs nothing else: the page's parts with the data put in. */
#include "report.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"

extern const char ep_embedded_report_report_html[], ep_embedded_report_report_css[];
extern const char ep_embedded_report_timeline_js[], ep_embedded_report_tables_js[];
extern const char ep_embedded_report_selftest_js[], ep_embedded_report_page_js[];

/* More would make a page that no browser opens well. */
enum { MOST_EVENTS = 1000000 };

/* JSON inside a script element: '<' would let a name end the element, and is as good as its escape. */
static void add_json(ep_text *out, const char *json) {
    while (*json) {
        size_t n = strcspn(json, "<");
        ep_text_addn(out, json, n);
        json += n;
        if (*json) {
            ep_text_add(out, "\\u003c");
            json++;
        }
    }
}

static void add_escaped(ep_text *out, const char *s) {
    for (; *s; s++) {
        if (*s == '<')
            ep_text_add(out, "&lt;");
        else if (*s == '>')
            ep_text_add(out, "&gt;");
        else if (*s == '&')
            ep_text_add(out, "&amp;");
        else
            ep_text_char(out, *s);
    }
}

static ep_status add_timelines(ep_text *out, const ep_trace *const *traces, const char *const *labels, size_t count,
                               ep_error *err) {
    ep_text_add(out, "{\"traces\":[");
    for (size_t i = 0; i < count; i++) {
        ep_json_out o = {0};
        ep_facts *f = NULL;
        EP_TRY(ep_facts_create(traces[i], err, &f));
        ep_status status = ep_report_timeline(&o, f, labels[i], MOST_EVENTS / count, err);
        ep_facts_destroy(f);
        char *json = status == EP_OK ? ep_json_take(&o) : NULL;
        ep_json_free(&o);
        if (status == EP_OK && !json) status = ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory for a timeline");
        if (status != EP_OK) return status;
        if (i) ep_text_char(out, ',');
        add_json(out, json);
        free(json);
    }
    ep_text_add(out, "]");
    return EP_OK;
}

static ep_status add_analyses(ep_text *out, const ep_trace *const *traces, const char *const *labels, size_t count,
                              const ep_analysis_options *options, ep_error *err) {
    ep_report *report;
    ep_text_add(out, ",\"explain\":[");
    for (size_t i = 0; i < count; i++) {
        EP_TRY(ep_explain(&traces[i], &labels[i], 1, options, err, &report));
        if (i) ep_text_char(out, ',');
        add_json(out, ep_report_json(report));
        ep_report_destroy(report);
    }
    ep_text_add(out, "]");
    if (count == 2) {
        EP_TRY(ep_diff(traces[0], traces[1], labels[0], labels[1], options, err, &report));
        ep_text_add(out, ",\"diff\":");
        add_json(out, ep_report_json(report));
        ep_report_destroy(report);
    }
    return EP_OK;
}

static ep_status make_data(const ep_trace *const *traces, const char *const *labels, size_t count,
                           const char *verdicts_json, const ep_analysis_options *options, ep_error *err, ep_text *out) {
    EP_TRY(add_timelines(out, traces, labels, count, err));
    EP_TRY(add_analyses(out, traces, labels, count, options, err));
    ep_text_add(out, ",\"verdicts\":");
    add_json(out, verdicts_json ? verdicts_json : "null");
    ep_text_char(out, '}');
    return out->failed ? ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory for the report") : EP_OK;
}

static void add_scripts(ep_text *out) {
    static const char *const parts[] = {ep_embedded_report_timeline_js, ep_embedded_report_tables_js,
                                        ep_embedded_report_selftest_js, ep_embedded_report_page_js};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) ep_text_add(out, parts[i]);
}

/* The page with its comments of the form <!--NAME--> replaced, once each but for TITLE. */
static void assemble(ep_text *out, const char *title, const char *data) {
    const char *p = ep_embedded_report_report_html;
    while (*p) {
        const char *mark = strstr(p, "<!--"), *end = mark ? strstr(mark, "-->") : NULL;
        if (!end) {
            ep_text_add(out, p);
            return;
        }
        ep_text_addn(out, p, (size_t)(mark - p));
        if (strncmp(mark, "<!--TITLE", 9) == 0)
            add_escaped(out, title);
        else if (strncmp(mark, "<!--STYLE", 9) == 0)
            ep_text_add(out, ep_embedded_report_report_css);
        else if (strncmp(mark, "<!--SCRIPT", 10) == 0)
            add_scripts(out);
        else if (strncmp(mark, "<!--DATA", 8) == 0)
            ep_text_add(out, data);
        p = end + 3;
    }
}

ep_status ep_report_html(const ep_trace *const *traces, const char *const *labels, size_t count,
                         const char *verdicts_json, const ep_analysis_options *options, const char *path,
                         ep_error *err) {
    ep_text data = {0}, page = {0}, title = {0};
    if (count < 1) return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "a report wants a trace");
    ep_status status = make_data(traces, labels, count, verdicts_json, options, err, &data);
    if (status == EP_OK) {
        for (size_t i = 0; i < count; i++) {
            const char *slash = strrchr(labels[i], '/');
            ep_text_printf(&title, "%s%s", i ? ", " : "", slash ? slash + 1 : labels[i]);
        }
        assemble(&page, ep_text_str(&title), ep_text_str(&data));
        status = page.failed || title.failed ? ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory for the report")
                                             : ep_file_write(path, page.data, page.len, err);
    }
    ep_text_free(&data);
    ep_text_free(&page);
    ep_text_free(&title);
    return status;
}
