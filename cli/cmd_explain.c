/* `epi explain`: what one trace, or several ranks of one run, show. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "read_options.h"

enum { MOST_TRACES = 256 };

static const char usage[] =
    "usage: epi explain TRACE... [OPTIONS]\n\n"
    "Shows what a trace holds: can it be trusted, whose time it is, what could be one kernel and\n"
    "what that is worth, what bounds each region, what compiled code costs. TRACE is a .json or\n"
    ".json.gz of torch.profiler or of epi; several traces are ranks of one run.";

static void show(const ep_report *report, bool json) {
    fputs(json ? ep_report_json(report) : ep_report_text(report), stdout);
    if (json) fputc('\n', stdout);
}

static int explain(const char *const *paths, int count, const read_choice *choice, const char *page, bool json) {
    ep_trace *traces[MOST_TRACES] = {NULL};
    ep_report *report = NULL;
    ep_error err = {.position = -1};
    int code = EPI_DONE;
    for (int i = 0; i < count && code == EPI_DONE; i++)
        if (read_trace(paths[i], choice, &err, &traces[i]) != EP_OK) code = epi_fail(paths[i], &err);
    ep_analysis_options options = {.machine = choice->machine, .region = choice->region, .width = epi_width()};
    if (code == EPI_DONE &&
        ep_explain((const ep_trace *const *)traces, paths, (size_t)count, &options, &err, &report) != EP_OK)
        code = epi_fail(choice->machine ? choice->machine : paths[0], &err);
    if (code == EPI_DONE && page &&
        ep_report_html((const ep_trace *const *)traces, paths, (size_t)count, NULL, &options, page, &err) != EP_OK)
        code = epi_fail(page, &err);
    if (code == EPI_DONE) show(report, json);
    ep_report_destroy(report);
    for (int i = 0; i < count; i++) ep_trace_destroy(traces[i]);
    return code;
}

int cmd_explain(int argc, char **argv) {
    const char *paths[MOST_TRACES];
    int count = 0;
    bool json = false;
    const char *page = NULL;
    read_choice choice = {.step = NO_STEP};
    const epi_option options[] = {
        {"--region", OPT_TEXT, &choice.region, "NAME", "only regions of this name (with * and ?)"},
        {"--step", OPT_INT, &choice.step, "N", "only ProfilerStep#N"},
        {"--window", OPT_TEXT, &choice.window, "A:B", "only this time: us from the start, or with a unit (2ms:5ms)"},
        {"--machine", OPT_TEXT, &choice.machine, "F", "ceilings for the bounds; else by the device's name"},
        {"--report", OPT_TEXT, &page, "F", "also write a self-contained HTML page"},
        {"--json", OPT_FLAG, &json, NULL, "one JSON object instead of text"},
        {NULL, OPT_FLAG, NULL, NULL, NULL},
    };
    int code = epi_parse(argc, argv, usage, options, paths, MOST_TRACES, &count);
    if (code >= 0) return code;
    if (count == 0) return epi_bad("explain wants a trace; 'epi explain --help' says more");
    code = check_choice(&choice);
    if (code < 0) code = epi_keep("--report", page, paths, count);
    if (code < 0) code = epi_writable("--report", page, false);
    return code >= 0 ? code : explain(paths, count, &choice, page, json);
}
