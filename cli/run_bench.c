/* One problem of `epi bench`: every mode in turn, round after round, so that ratios stand within one run. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "run_bench.h"

static bool timed(run_setup *s, ep_mode mode, int calls, double *us) {
    double from = run_now_us();
    for (int i = 0; i < calls; i++) {
        ep_tensor *y = NULL;
        if (ep_block_run(s->block, mode, s->x, NULL, &y) != EP_OK) return false;
        ep_tensor_destroy(y);
    }
    if (ep_context_sync(s->ctx) != EP_OK) return false;
    *us = (run_now_us() - from) / calls;
    return true;
}

/* Prepares each mode and finds how many calls make a sample long enough to be told apart from noise. */
static void warm_up(const run_request *q, run_setup *s, bench_row *row, int calls[EP_MODE_COUNT]) {
    for (int m = 0; m < EP_MODE_COUNT; m++) {
        double us = 0;
        row->ran[m] = q->modes[m] && ep_block_supports(s->block, (ep_mode)m) == EP_OK &&
                      ep_block_prepare(s->block, (ep_mode)m, s->x) == EP_OK && timed(s, (ep_mode)m, 1, &us) &&
                      timed(s, (ep_mode)m, 1, &us);
        if (!row->ran[m] && q->modes[m])
            snprintf(row->why_not[m], sizeof row->why_not[m], "%s", ep_context_error(s->ctx)->message);
        calls[m] = us > 0 && us < 2000 ? (int)(2000 / us) + 1 : 1;
    }
}

static double ratio_of(const double *us, const double *base, int rounds) {
    double *r = malloc(sizeof *r * (size_t)rounds), median;
    if (!r) return NAN;
    for (int i = 0; i < rounds; i++) r[i] = us[i] / base[i];
    median = run_median(r, (size_t)rounds);
    free(r);
    return median;
}

bool bench_problem(const run_request *q, run_setup *s, int rounds, bench_row *row) {
    int calls[EP_MODE_COUNT];
    double *us[EP_MODE_COUNT] = {0};
    bool ok = true;
    warm_up(q, s, row, calls);
    for (int m = 0; m < EP_MODE_COUNT && ok; m++) ok = (us[m] = calloc((size_t)rounds, sizeof **us)) != NULL;
    for (int i = 0; ok && i < rounds; i++)
        for (int m = 0; ok && m < EP_MODE_COUNT; m++)
            if (row->ran[m]) ok = timed(s, (ep_mode)m, calls[m], &us[m][i]);
    for (int m = 0; ok && m < EP_MODE_COUNT; m++) {
        if (!row->ran[m]) continue;
        row->ratio[m] = row->ran[EP_MODE_EAGER] ? ratio_of(us[m], us[EP_MODE_EAGER], rounds) : NAN;
        row->best[m] = us[m][0];
        for (int i = 1; i < rounds; i++)
            if (us[m][i] < row->best[m]) row->best[m] = us[m][i];
    }
    for (int m = 0; ok && m < EP_MODE_COUNT; m++)
        if (row->ran[m]) row->median[m] = run_median(us[m], (size_t)rounds);
    for (int m = 0; m < EP_MODE_COUNT; m++) free(us[m]);
    ep_block_request b;
    ep_prediction p;
    run_block_request(q, s, EP_MODE_TUNED, &b);
    row->bound_us = ep_predict_block(&b, &s->machine, NULL, &p) == EP_OK ? p.bound.us : NAN;
    row->flops = isfinite(row->bound_us) ? (double)p.work.flops : NAN;
    return ok;
}
