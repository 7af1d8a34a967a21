/* `epi run` with several modes: their steps taken in turn, since a machine's clock moves while a mode runs alone. */
#include <math.h>

#include "run_bench.h"

static const double race_us = 1e6; /* about how long all rounds together take */

void run_race(const run_request *q, run_setup *s, run_result r[EP_MODE_COUNT]) {
    run_request ran = *q;
    bench_row row = {0};
    double round = 0;
    int modes = 0;
    for (int m = 0; m < EP_MODE_COUNT; m++) {
        r[m].race_us = r[m].race_ratio = NAN;
        ran.modes[m] = r[m].ran;
        if (!r[m].ran) continue;
        modes++;
        round += r[m].step_median > 2000 ? r[m].step_median : 2000;
    }
    if (modes < 2) return;
    int rounds = round * 15 < race_us ? 15 : (int)(race_us / round);
    if (rounds < 3) rounds = 3;
    if (!bench_problem(&ran, s, rounds, &row)) return;
    for (int m = 0; m < EP_MODE_COUNT; m++) {
        if (!row.ran[m]) continue;
        r[m].race_us = row.median[m];
        r[m].race_ratio = row.ratio[m];
        r[m].race_rounds = rounds;
    }
}
