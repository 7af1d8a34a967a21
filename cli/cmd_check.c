/* epi check: a guess file against one trace or two. */
#include "cli.h"
#include "read_options.h"

#include <errno.h>
#include <string.h>

static const char usage[] = "usage: epi check GUESS TRACE [TRACE2] [OPTIONS]\n"
                            "\n"
                            "Gives every claim of the guess file a verdict: confirmed, broken or unknown (the trace\n"
                            "can't tell, with the reason). Broken claims come first, the biggest surprise on top,\n"
                            "each with the event that broke it. Claims under 'compare' need the second trace.\n"
                            "\n"
                            "Exit code: 0 no claim is broken, 1 a claim is broken (with --strict: or unknown),\n"
                            "2 the guess or a trace can't be read.";

static int write_text(const char *path, const char *text) {
    FILE *f = fopen(path, "wb");
    if (!f) return epi_bad("%s: %s", path, strerror(errno));
    bool ok = fwrite(text, 1, strlen(text), f) == strlen(text);
    ok = fclose(f) == 0 && ok;
    return ok ? EPI_DONE : epi_bad("%s could not be written", path);
}

typedef struct options {
    bool strict, json, github;
    const char *junit, *report;
} options;

static int show(const ep_verdicts *v, const char *guess_path, const options *o) {
    size_t broken, unknown;
    ep_verdicts_totals(v, NULL, &broken, &unknown);
    if (o->json)
        printf("%s\n", ep_verdicts_json(v));
    else {
        if (o->github) fputs(ep_verdicts_github(v, guess_path), stdout);
        fputs(ep_verdicts_text(v), stdout);
    }
    if (o->junit && write_text(o->junit, ep_verdicts_junit(v)) != EPI_DONE) return EPI_BAD;
    return broken || (o->strict && unknown) ? EPI_FOUND : EPI_DONE;
}

static int report(ep_trace *const *traces, const char *const *labels, int count, const ep_verdicts *v,
                  const char *path) {
    ep_error err = {.position = -1};
    const ep_trace *list[2] = {traces[0], traces[1]};
    ep_status status = ep_report_html(list, labels, (size_t)count, ep_verdicts_json(v), NULL, path, &err);
    return status == EP_OK ? -1 : epi_fail("report", &err);
}

/* The two files in the wrong order: a trace begins with a bracket or as gzip does, no guess does. */
static int check_order(const char *path) {
    FILE *f = fopen(path, "rb");
    int c = f ? fgetc(f) : EOF;
    while (c == ' ' || c == '\t' || c == '\r' || c == '\n') c = fgetc(f);
    if (f) fclose(f);
    if (c != '{' && c != '[' && c != 0x1f) return -1;
    return epi_bad("%s looks like a trace; the guess file stands first: epi check GUESS TRACE", path);
}

int cmd_check(int argc, char **argv) {
    options o = {0};
    const epi_option rows[] = {
        {"--strict", OPT_FLAG, &o.strict, NULL, "a claim that the trace can't answer fails too"},
        {"--json", OPT_FLAG, &o.json, NULL, "one JSON object instead of text"},
        {"--junit", OPT_TEXT, &o.junit, "F", "write the verdicts as JUnit XML to F"},
        {"--report", OPT_TEXT, &o.report, "F", "write timeline, tables and verdicts as one HTML page to F"},
        {"--github", OPT_FLAG, &o.github, NULL, "annotations for a GitHub workflow, before the text"},
        {NULL, OPT_FLAG, NULL, NULL, NULL}};
    const char *paths[3];
    int count;
    int code = epi_parse(argc, argv, usage, rows, paths, 3, &count);
    if (code >= 0) return code;
    if (count < 2) return epi_bad("check wants a guess file and a trace; epi check --help says more");
    if (o.json && o.github) return epi_bad("--json and --github both write to the standard output; take one");
    code = epi_keep("--report", o.report, paths, count);
    if (code < 0) code = epi_keep("--junit", o.junit, paths, count);
    if (code < 0) code = check_order(paths[0]);
    if (code >= 0) return code;
    ep_error err = {.position = -1};
    const read_choice whole = {.step = NO_STEP};
    ep_guess *guess = NULL;
    ep_trace *traces[2] = {NULL, NULL};
    ep_verdicts *verdicts = NULL;
    if (ep_guess_read(paths[0], &err, &guess) != EP_OK) return epi_fail(paths[0], &err);
    for (int i = 0; i + 1 < count && code < 0; i++)
        if (read_trace(paths[i + 1], &whole, &err, &traces[i]) != EP_OK) code = epi_fail(paths[i + 1], &err);
    if (code < 0 && ep_guess_check(guess, traces[0], traces[1], &err, &verdicts) != EP_OK)
        code = epi_fail(paths[0], &err);
    if (code < 0 && o.report) code = report(traces, paths + 1, count - 1, verdicts, o.report);
    if (code < 0) code = show(verdicts, paths[0], &o);
    ep_verdicts_destroy(verdicts);
    ep_trace_destroy(traces[0]);
    ep_trace_destroy(traces[1]);
    ep_guess_destroy(guess);
    return code;
}
