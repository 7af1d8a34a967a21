/* One problem of `epi bench` and what was measured. */
#ifndef EPI_RUN_BENCH_H
#define EPI_RUN_BENCH_H

#include "run.h"

typedef struct bench_row {
    char line[200]; /* the problem as the file has it */
    bool ran[EP_MODE_COUNT];
    char why_not[EP_MODE_COUNT][464];
    double median[EP_MODE_COUNT], best[EP_MODE_COUNT]; /* us a call */
    double ratio[EP_MODE_COUNT];                       /* to eager, the median of the rounds' ratios */
    double bound_us, flops;                            /* of the fused block */
} bench_row;

/* Fills the row; false with the reason in the context's error. */
bool bench_problem(const run_request *q, run_setup *s, int rounds, bench_row *row);

#endif
