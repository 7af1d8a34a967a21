/* `epi run`: guess first, then run, then look. */
#include <stdlib.h>

#include "run.h"

/* A mode that was asked for by name and is not there is bad usage; among all modes it is only named. */
static int refuse(const run_request *q, const run_setup *s, ep_mode mode, const run_result *r) {
    if (q->all_modes && mode != EP_MODE_EAGER) return -1;
    bool absent = ep_context_error(s->ctx)->status == EP_ERROR_NOT_BUILT;
    return epi_bad("%s: %s%s", run_mode_names[mode], absent ? "not built yet: " : "", r->why_not);
}

static int guess_and_run(const run_request *q, run_setup *s, run_answers *answers, run_result r[EP_MODE_COUNT]) {
    for (int m = 0; m < EP_MODE_COUNT; m++) {
        if (!q->modes[m]) continue;
        if (!run_predict(q, s, (ep_mode)m, &r[m])) return EPI_BAD;
        if (q->ask && !answers->asked) run_ask(q, answers);
        if (!q->json && (m == EP_MODE_EAGER || !q->all_modes)) run_show_prediction(&r[m], (ep_mode)m, s);
        fflush(stdout);
        if (!run_mode(q, s, (ep_mode)m, &r[m])) {
            int code = refuse(q, s, (ep_mode)m, &r[m]);
            if (code >= 0) return code;
            continue;
        }
        run_judge(&r[m]);
        if (q->json) continue;
        run_show_result(q, &r[m], (ep_mode)m);
        run_show_verdicts(&r[m], (ep_mode)m);
        run_score(answers, &r[m], run_seen_regime(q, s, &r[m]));
    }
    return -1;
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
    if (q.report) return epi_bad("--report: not built yet: this build writes no HTML page");
    if (q.vary) return run_vary(&q);
    run_result *r = calloc(EP_MODE_COUNT, sizeof *r);
    if (!r) return epi_bad("no memory for the results");
    code = run_setup_create(&q, &s);
    if (code < 0 && !q.json) run_show_request(&q, &s);
    if (code < 0) code = guess_and_run(&q, &s, &answers, r);
    if (code < 0 && q.all_modes && !q.json) run_show_side_by_side(r);
    if (code < 0 && q.json) run_show_json(&q, &s, r);
    if (code < 0) code = exit_code(&q, r);
    for (int m = 0; m < EP_MODE_COUNT; m++) run_result_clear(&r[m]);
    free(r);
    run_setup_destroy(&s);
    return code;
}
