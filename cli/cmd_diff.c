/* `epi diff`: two traces aligned by structure. */
#include <stdlib.h>

#include "cli.h"
#include "read_options.h"

static const char usage[] =
    "usage: epi diff A B [OPTIONS]\n\n"
    "Compares two traces by structure: regions paired by name, kernels aligned, several that became\n"
    "one found, what is gone and new on device and host, and what each change costs or saves.\n\n"
    "--fail-on makes the exit code 1 when an expression holds, for CI: 'kernels > +0',\n"
    "'device time > 5%', 'region mlp_fwd: gemms != +0; new > 0'. A signed value or one in percent is\n"
    "a change, one with x a ratio, a bare one what B has.";

static int judge(const ep_report *report, const char *expression) {
    ep_error err = {.position = -1};
    bool failed = false;
    char sentence[512];
    if (!expression) return EPI_DONE;
    if (ep_diff_fail_on(report, expression, &err, &failed, sentence, sizeof sentence) != EP_OK)
        return epi_fail("--fail-on", &err);
    if (!failed) return EPI_DONE;
    fprintf(stderr, "epi: %s\n", sentence);
    return EPI_FOUND;
}

int cmd_diff(int argc, char **argv) {
    const char *paths[2], *fail_on = NULL;
    int count = 0;
    bool json = false;
    read_choice choice = {.step = NO_STEP};
    const epi_option options[] = {
        {"--fail-on", OPT_TEXT, &fail_on, "EXPR", "exit with 1 if the expression holds"},
        {"--region", OPT_TEXT, &choice.region, "NAME", "only regions of this name (with * and ?)"},
        {"--step", OPT_INT, &choice.step, "N", "only ProfilerStep#N of both"},
        {"--window", OPT_TEXT, &choice.window, "A:B", "only this time of both: us from the start, or with a unit"},
        {"--machine", OPT_TEXT, &choice.machine, "F", "ceilings for the bounds; else by the device's name"},
        {"--json", OPT_FLAG, &json, NULL, "one JSON object instead of text"},
        {NULL, OPT_FLAG, NULL, NULL, NULL},
    };
    int code = epi_parse(argc, argv, usage, options, paths, 2, &count);
    if (code >= 0) return code;
    if (count != 2) return epi_bad("diff wants two traces; 'epi diff --help' says more");
    code = check_choice(&choice);
    if (code >= 0) return code;
    ep_trace *traces[2] = {NULL, NULL};
    ep_report *report = NULL;
    ep_error err = {.position = -1};
    code = EPI_DONE;
    for (int i = 0; i < 2 && code == EPI_DONE; i++)
        if (read_trace(paths[i], &choice, &err, &traces[i]) != EP_OK) code = epi_fail(paths[i], &err);
    ep_analysis_options o = {.machine = choice.machine, .region = choice.region, .width = epi_width()};
    if (code == EPI_DONE && ep_diff(traces[0], traces[1], paths[0], paths[1], &o, &err, &report) != EP_OK)
        code = epi_fail("diff", &err);
    /* An expression that can't be read is told before a page of output hides it. */
    bool holds;
    if (code == EPI_DONE && fail_on && ep_diff_fail_on(report, fail_on, &err, &holds, NULL, 0) != EP_OK)
        code = epi_fail("--fail-on", &err);
    if (code == EPI_DONE) {
        fputs(json ? ep_report_json(report) : ep_report_text(report), stdout);
        if (json) fputc('\n', stdout);
        if (fflush(stdout)) code = epi_bad("the output could not be written");
    }
    if (code == EPI_DONE) code = judge(report, fail_on);
    ep_report_destroy(report);
    ep_trace_destroy(traces[0]);
    ep_trace_destroy(traces[1]);
    return code;
}
