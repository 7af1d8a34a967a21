/* Measuring within one run: variants take turns, samples that the system disturbed are thrown away, and what counts is
 * the median of the ratios of each round. A timed figure is never a test. */
#ifndef EP_BENCH_H
#define EP_BENCH_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { BENCH_MOST = 16, BENCH_ROUNDS = 101 };

typedef struct bench_variant {
    const char *name;
    void (*run)(void *user, int64_t times); /* does the work `times` times */
    void *user;
    double bytes, flops; /* of doing it once; 0: not told */
} bench_variant;

typedef struct bench_options {
    int rounds;     /* 0: 11 */
    double seconds; /* of one sample; 0: 0.02 */
} bench_options;

typedef struct bench_result {
    const char *name;
    double ns, best_ns; /* of doing it once: median and least */
    double ratio;       /* median over the rounds of this time by that of variant 0 */
    double gbs, gflops; /* at the median; 0: not told */
    int disturbed;      /* samples thrown away */
} bench_result;

/* Starts the program again with its threads bound to cores, if the environment does not say how: both OpenMP threads on
 * one core would halve every figure. To be called first in main. */
void bench_start(int argc, char **argv);
void bench_run(const bench_variant *v, int count, const bench_options *o, bench_result *out);

typedef enum bench_form { BENCH_TABLE, BENCH_CSV, BENCH_JSON } bench_form;
/* One row a result; `what` names the problem. The JSON form gives one object a line. */
void bench_print(FILE *to, bench_form form, const char *what, const bench_result *r, int count);
/* --csv and --json of argv; the table else. */
bench_form bench_form_of(int argc, char **argv);
double bench_seconds(void);

#endif
