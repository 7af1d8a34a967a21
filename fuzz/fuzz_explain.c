/* Any bytes as a trace: explain and diff end, their JSON parses, and a trace does not differ from itself. */
#include <epilogue/analyze.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void balanced(const char *json) {
    int depth = 0;
    bool string = false;
    for (const char *p = json; *p; p++) {
        if (string && *p == '\\' && p[1])
            p++;
        else if (*p == '"')
            string = !string;
        else if (!string && (*p == '{' || *p == '['))
            depth++;
        else if (!string && (*p == '}' || *p == ']'))
            depth--;
        if (depth < 0) abort();
    }
    if (depth != 0 || string) abort();
    if (strstr(json, "nan") && strstr(json, ": nan")) abort();
    if (strstr(json, ": inf")) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ep_error err = {0};
    ep_trace *t = NULL;
    ep_report *explained = NULL, *compared = NULL;
    const char *label = "fuzz";
    if (ep_trace_read_memory(data, size, NULL, &err, &t) != EP_OK) return 0;
    const ep_trace *list[] = {t};
    if (ep_explain(list, &label, 1, NULL, &err, &explained) != EP_OK) abort();
    balanced(ep_report_json(explained));
    if (ep_diff(t, t, "a", "b", NULL, &err, &compared) != EP_OK) abort();
    balanced(ep_report_json(compared));
    static const char *const others[] = {"\"relation\": \"renamed\"", "\"relation\": \"gone\"",
                                         "\"relation\": \"new\""};
    for (size_t i = 0; i < 3; i++)
        if (strstr(ep_report_json(compared), others[i])) abort();
    bool failed;
    (void)ep_diff_fail_on(compared, "kernels != +0; device time > 1%", &err, &failed, NULL, 0);
    ep_report_destroy(explained);
    ep_report_destroy(compared);
    ep_trace_destroy(t);
    return 0;
}
