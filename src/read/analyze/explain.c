/* ep_explain: one study a trace, every analysis run, the report as text and JSON. */
#include <stdlib.h>

#include "analyze.h"

static ep_status write_report(ep_study *const *studies, size_t count, const ep_analysis_options *options, ep_error *err,
                              ep_report *report) {
    ep_text text = {0};
    ep_json_out json = {0};
    ep_status status = EP_OK;
    int width = options && options->width > 0 ? options->width : 80;
    json.indent = 1;
    if (count > 1) {
        status = ep_ranks_text(studies, count, width, &text, err);
        ep_ranks_json(studies, count, &json);
    } else {
        ep_explain_json(studies[0], &json);
    }
    for (size_t i = 0; i < count && status == EP_OK; i++) {
        if (i) ep_text_add(&text, "\n\n");
        ep_explain_text(studies[i], &text, width);
    }
    report->json = ep_json_take(&json);
    report->text = ep_text_take(&text);
    if (status == EP_OK && (!report->json || !report->text))
        status = ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory to write the report");
    ep_json_free(&json);
    ep_text_free(&text);
    return status;
}

ep_status ep_explain(const ep_trace *const *traces, const char *const *labels, size_t count,
                     const ep_analysis_options *options, ep_error *err, ep_report **out) {
    if (!traces || count == 0) return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "explain wants at least one trace");
    ep_study **studies = calloc(count, sizeof *studies);
    ep_report *report = calloc(1, sizeof *report);
    ep_status status = studies && report ? EP_OK : ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory to explain");
    for (size_t i = 0; i < count && status == EP_OK; i++) {
        status = ep_study_create(traces[i], labels ? labels[i] : NULL, options, err, &studies[i]);
        if (status == EP_OK) status = ep_study_run(studies[i], err);
    }
    if (status == EP_OK) status = write_report(studies, count, options, err, report);
    for (size_t i = 0; studies && i < count; i++) ep_study_destroy(studies[i]);
    free(studies);
    if (status != EP_OK) {
        ep_report_destroy(report);
        return status;
    }
    *out = report;
    return EP_OK;
}
