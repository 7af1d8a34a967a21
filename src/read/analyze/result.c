/* A report's text and JSON, and its end. */
#include "result.h"

#include <stdlib.h>

void ep_report_destroy(ep_report *report) {
    if (!report) return;
    if (report->destroy_diff) report->destroy_diff(report->diff);
    free(report->text);
    free(report->json);
    free(report);
}

const char *ep_report_text(const ep_report *report) {
    return report && report->text ? report->text : "";
}

const char *ep_report_json(const ep_report *report) {
    return report && report->json ? report->json : "{}";
}
