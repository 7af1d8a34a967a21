/* epi list: the ops of a trace in time order, at one level. */
#include "cli.h"
#include "read_options.h"

static const char usage[] = "usage: epi list TRACE [OPTIONS]\n\n"
                            "Lists the ops of a trace in the order they started, at one level: 0 are the ones no\n"
                            "other op holds, 1 the ones in those, and so on; an op that holds none stands for\n"
                            "itself. Each with its start, its time on the host, the kernels it launched and their\n"
                            "time on the device. TRACE is a .json or .json.gz that torch.profiler or epi wrote.";

int cmd_list(int argc, char **argv) {
    int64_t level = 0;
    bool kernels = false, json = false;
    const char *region = NULL, *write = NULL;
    read_choice choice = {.step = NO_STEP};
    const epi_option rows[] = {
        {"--level", OPT_INT, &level, "N", "how deep: 0 (outermost, the default), 1, 2..."},
        {"--kernels", OPT_FLAG, &kernels, NULL, "also the device work each op launched"},
        {"--region", OPT_TEXT, &region, "NAME", "only ops that start in regions of this name (* and ?)"},
        {"--step", OPT_INT, &choice.step, "N", "only ProfilerStep#N"},
        {"--window", OPT_TEXT, &choice.window, "A:B", "only this time: us from the start, or with a unit (2ms:5ms)"},
        {"--write", OPT_TEXT, &write, "F", "write that part as a trace for Perfetto to F, and list nothing"},
        {"--json", OPT_FLAG, &json, NULL, "one JSON object instead of text"},
        {NULL, OPT_FLAG, NULL, NULL, NULL},
    };
    const char *path[1];
    int count;
    int code = epi_parse(argc, argv, usage, rows, path, 1, &count);
    if (code >= 0) return code;
    if (count == 0) return epi_bad("list wants a trace; 'epi list --help' says more");
    if (level < 0 || level > 1000) return epi_bad("--level is 0 to 1000, not %lld", (long long)level);
    ep_error err = {.position = -1};
    ep_trace *trace = NULL;
    ep_report *report = NULL;
    choice.keep_args = write != NULL;
    choice.region = region;
    code = check_choice(&choice);
    choice.region = write ? region : NULL; /* a list shows the ops in it, a cut what else belongs to it, too */
    if (code < 0) code = epi_keep("--write", write, path, 1);
    if (code >= 0) return code;
    if (read_trace(path[0], &choice, &err, &trace) != EP_OK) return epi_fail(path[0], &err);
    const ep_list_options list = {.level = (int)level, .kernels = kernels, .region = region, .width = epi_width()};
    code = EPI_DONE;
    if (write) {
        if (ep_trace_write(trace, write, &err) != EP_OK) code = epi_fail(write, &err);
        ep_trace_destroy(trace);
        return code;
    }
    if (ep_list(trace, &list, &err, &report) != EP_OK)
        code = epi_fail(path[0], &err);
    else if (json)
        printf("%s\n", ep_report_json(report));
    else
        fputs(ep_report_text(report), stdout);
    ep_report_destroy(report);
    ep_trace_destroy(trace);
    return code;
}
