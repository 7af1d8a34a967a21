/* Asks a person for a guess before anything runs, and scores it after. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "run.h"

static bool ask_line(const char *question, char *line, size_t size) {
    printf("  %s ", question);
    fflush(stdout);
    if (!fgets(line, (int)size, stdin)) {
        putchar('\n');
        return false;
    }
    line[strcspn(line, "\r\n")] = 0;
    if (!isatty(STDIN_FILENO)) printf("%s\n", line); /* a terminal has shown it already */
    return line[0] != 0;
}

static double ask_count(const char *question) {
    char line[128], *end;
    if (!ask_line(question, line, sizeof line)) return NAN;
    double v = strtod(line, &end);
    if (end != line && v >= 0) return v;
    printf("    (that is no number; it does not count)\n");
    return NAN;
}

/* "35 ms", "200us", "0.03 s"; a bare number is milliseconds. */
static double parse_time(const char *line) {
    static const struct {
        const char *unit;
        double us;
    } units[] = {{"us", 1}, {"ms", 1000}, {"s", 1e6}, {"", 1000}};
    char *end;
    double v = strtod(line, &end);
    if (end == line || !(v >= 0)) return NAN;
    while (isspace((unsigned char)*end)) end++;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(end, units[i].unit) == 0) return v * units[i].us;
    return NAN;
}

void run_ask(const run_request *q, ep_mode mode, run_answers *a) {
    char line[128];
    *a = (run_answers){true, mode, NAN, NAN, NAN, EP_REGIME_UNKNOWN};
    printf("\nYOUR GUESS for one %s step of %s (Enter leaves one out)\n", run_mode_names[mode], q->block);
    a->kernels = ask_count("How many kernels will run?");
    a->views = ask_count("How many ops will run no kernel at all (views)?");
    if (ask_line("What takes longest: compute, memory or overhead?", line, sizeof line))
        for (int r = EP_REGIME_OVERHEAD; r <= EP_REGIME_COMPUTE; r++)
            if (tolower((unsigned char)line[0]) == ep_regime_name((ep_regime)r)[0]) a->bound = (ep_regime)r;
    if (ask_line("How long does the step take (35 ms, 200 us)?", line, sizeof line)) a->time_us = parse_time(line);
}

static int line_of_score(const char *what, const char *yours, const char *seen, bool right, bool answered) {
    if (answered)
        printf("  %-10s %-16s %-16s %s\n", what, yours, seen, right ? "right" : "no");
    else
        printf("  %-10s %-16s %s\n", what, "-", seen);
    return answered && right;
}

void run_score(const run_answers *a, ep_mode mode, const run_result *r, ep_regime seen) {
    char yours[24], was[24];
    if (!a->asked || mode != a->mode || !r->ran) return;
    int points = 0,
        asked = !isnan(a->kernels) + !isnan(a->views) + !isnan(a->time_us) + (a->bound != EP_REGIME_UNKNOWN);
    if (!asked) return;
    printf("\nYOUR GUESS scored\n  %-10s %-16s seen\n", "", "you");
    snprintf(yours, sizeof yours, "%.0f", a->kernels);
    snprintf(was, sizeof was, "%.0f", r->kernels);
    points += line_of_score("kernels", yours, was, a->kernels == r->kernels, !isnan(a->kernels));
    snprintf(yours, sizeof yours, "%.0f", a->views);
    snprintf(was, sizeof was, "%.0f", r->views);
    points += line_of_score("views", yours, was, a->views == r->views, !isnan(a->views));
    points += line_of_score("bound by", ep_regime_name(a->bound), ep_regime_name(seen), a->bound == seen,
                            a->bound != EP_REGIME_UNKNOWN);
    double off = a->time_us > r->step_median ? a->time_us / r->step_median : r->step_median / a->time_us;
    points += line_of_score("time", run_time_text(a->time_us, yours), run_time_text(r->step_median, was), off <= 1.5,
                            !isnan(a->time_us));
    printf("  %d of %d right (a time counts as right within a factor of 1.5)\n", points, asked);
}
