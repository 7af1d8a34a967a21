/* `epi run`: guess first, then run, then look. */
#include <stdlib.h>

#include "run.h"

/* A mode that was asked for by name and is not there is bad usage; among all modes it is only named. */
static int refuse(const run_request *q, const run_setup *s, ep_mode mode, const run_result *r) {
    if (q->all_modes && mode != EP_MODE_EAGER) return -1;
    bool absent = ep_context_error(s->ctx)->status == EP_ERROR_NOT_BUILT;
    return epi_bad("%s: %s%s", run_mode_names[mode], absent ? "not built yet: " : "", r->why_not);
}

static void show_mode(const run_request *q, const run_setup *s, const run_answers *answers, const run_result *r,
                      ep_mode mode, bool brief) {
    run_show_result(q, r, mode, brief);
    run_show_verdicts(r, mode, brief);
    run_score(answers, mode, r, run_seen_regime(q, s, r));
}

static int guess_and_run(const run_request *q, run_setup *s, run_answers *answers, run_result r[EP_MODE_COUNT]) {
    for (int m = 0; m < EP_MODE_COUNT; m++) {
        bool brief = q->all_modes && m != EP_MODE_EAGER;
        if (!q->modes[m]) continue;
        if (!run_predict(q, s, (ep_mode)m, &r[m])) return EPI_BAD;
        if (q->ask && !answers->asked) run_ask(q, (ep_mode)m, answers);
        if (!q->json && brief) run_show_prediction_line(&r[m], (ep_mode)m);
        if (!q->json && !brief) run_show_prediction(&r[m], (ep_mode)m, s);
        fflush(stdout);
        if (!run_mode(q, s, (ep_mode)m, &r[m])) {
            int code = refuse(q, s, (ep_mode)m, &r[m]);
            if (code >= 0) return code;
            if (!q->json) printf("%s is not available: %s\n", run_mode_names[m], r[m].why_not);
            continue;
        }
        if (!run_sharpen(q, s, (ep_mode)m, &r[m])) return EPI_BAD;
        run_judge(&r[m]);
        if (!q->json) show_mode(q, s, answers, &r[m], (ep_mode)m, brief);
    }
    return -1;
}

static int write_report(const run_request *q, const run_result r[EP_MODE_COUNT]) {
    const ep_trace *traces[EP_MODE_COUNT];
    const char *labels[EP_MODE_COUNT], *verdicts = NULL;
    size_t count = 0;
    ep_error err = {0};
    for (int m = 0; m < EP_MODE_COUNT; m++) {
        if (!r[m].ran) continue;
        if (r[m].verdicts && !verdicts) verdicts = ep_verdicts_json(r[m].verdicts);
        traces[count] = r[m].trace;
        labels[count++] = run_mode_names[m];
    }
    /* A page shows one trace or two: the first mode and the last one that ran. */
    if (count > 2) {
        traces[1] = traces[count - 1];
        labels[1] = labels[count - 1];
        count = 2;
    }
    ep_status status = ep_report_html(traces, labels, count, verdicts, NULL, q->report, &err);
    return status == EP_OK ? -1 : epi_fail(q->report, &err);
}

static int exit_code(const run_request *q, const run_result r[EP_MODE_COUNT]) {
    size_t yes, no, unknown;
    for (int m = 0; m < EP_MODE_COUNT && q->guess; m++) {
        if (!r[m].verdicts) continue;
        ep_verdicts_totals(r[m].verdicts, &yes, &no, &unknown);
        if (no) return EPI_FOUND;
    }
    return EPI_DONE;
}

int cmd_run(int argc, char **argv) {
    run_request q;
    run_setup s;
    run_answers answers = {0};
    int code = run_parse(argc, argv, &q);
    if (code >= 0) return code;
    if (q.vary) return run_vary(&q);
    run_result *r = calloc(EP_MODE_COUNT, sizeof *r);
    if (!r) return epi_bad("no memory for the results");
    code = run_setup_create(&q, &s);
    if (code < 0 && !q.json) run_show_request(&q, &s);
    if (code < 0) code = guess_and_run(&q, &s, &answers, r);
    bool several = q.modes[EP_MODE_EAGER] + q.modes[EP_MODE_COMPILED] + q.modes[EP_MODE_TUNED] > 1;
    if (code < 0) run_race(&q, &s, r);
    if (code < 0 && several && !q.json) run_show_side_by_side(r);
    if (code < 0 && q.autotune && !q.json) run_show_autotuned(&s);
    if (code < 0 && q.report) code = write_report(&q, r);
    if (code < 0 && q.json) run_show_json(&q, &s, r);
    if (code < 0 && q.report && !q.json) printf("\nreport: %s\n", q.report);
    if (code < 0) code = exit_code(&q, r);
    for (int m = 0; m < EP_MODE_COUNT; m++) run_result_clear(&r[m]);
    free(r);
    run_setup_destroy(&s);
    return code;
}
