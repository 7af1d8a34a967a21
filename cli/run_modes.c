/* One mode of a block: first call, warm-up, steps timed without the profiler, steps with it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "run.h"

enum { MOST_TIMED = 2000 };
static const double timed_us = 300000; /* how long the timed loop goes on once it has enough steps */

double run_now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double run_median(double *v, size_t n) {
    if (!n) return NAN;
    qsort(v, n, sizeof *v, by_value);
    return n % 2 ? v[n / 2] : 0.5 * (v[n / 2 - 1] + v[n / 2]);
}

static bool fail(run_result *r, const char *why) {
    snprintf(r->why_not, sizeof r->why_not, "%s", why);
    return false;
}

static bool step(run_setup *s, ep_mode mode, run_result *r, ep_tensor **keep) {
    ep_tensor *y = NULL;
    if (ep_block_run(s->block, mode, s->x, NULL, &y) != EP_OK || ep_context_sync(s->ctx) != EP_OK) {
        ep_tensor_destroy(y);
        return fail(r, ep_context_error(s->ctx)->message);
    }
    if (keep)
        *keep = y;
    else
        ep_tensor_destroy(y);
    return true;
}

static void print_dump(void *user, const char *pass, const char *text) {
    fprintf(user, "--- after %s\n%s\n", pass, text);
}

static bool prepare(const run_request *q, run_setup *s, ep_mode mode, run_result *r) {
    if (mode == EP_MODE_COMPILED && (q->dump || q->specialize_given)) {
        ep_compile_options o = {.specialize = q->specialize,
                                .dump_pass = q->dump,
                                .dump = q->dump ? print_dump : NULL,
                                .dump_user = q->json ? stderr : stdout};
        if (ep_block_compile_with(s->block, &o) != EP_OK) return fail(r, ep_context_error(s->ctx)->message);
    }
    if (ep_block_supports(s->block, mode) != EP_OK) return fail(r, ep_context_error(s->ctx)->message);
    double from = run_now_us();
    if (ep_block_prepare(s->block, mode, s->x) != EP_OK) return fail(r, ep_context_error(s->ctx)->message);
    r->cold_us = run_now_us() - from;
    return true;
}

static bool time_steps(const run_request *q, run_setup *s, ep_mode mode, run_result *r) {
    double *us = malloc(sizeof *us * MOST_TIMED), begin = run_now_us();
    if (!us) return fail(r, "no memory for the step times");
    size_t n = 0;
    int64_t least = q->active < MOST_TIMED ? q->active : MOST_TIMED;
    bool ok = true;
    while (ok && n < MOST_TIMED && ((int64_t)n < least || run_now_us() - begin < timed_us)) {
        double from = run_now_us();
        ok = step(s, mode, r, NULL);
        us[n++] = run_now_us() - from;
    }
    r->step_median = run_median(us, n);
    r->step_min = us[0];
    r->step_max = us[n - 1];
    r->timed_steps = (int64_t)n;
    free(us);
    return ok;
}

/* The recorded steps: each is a region "step" inside a ProfilerStep. */
static bool profile_steps(const run_request *q, run_setup *s, ep_mode mode, run_result *r) {
    char name[96];
    ep_error err = {0};
    ep_profile *p = NULL;
    snprintf(name, sizeof name, "epi run %s %s", q->block, run_mode_names[mode]);
    ep_profile_options o = {.wait = (int)q->wait,
                            .warmup = (int)q->warmup,
                            .active = (int)q->active,
                            .repeat = 1,
                            .events_per_thread = (size_t)(q->active + q->warmup) * 256 + 4096,
                            .trace_name = name};
    if (ep_profile_start(&o, &err, &p) != EP_OK) return fail(r, err.message);
    bool ok = true;
    for (int64_t i = 0; ok && i < q->wait + q->warmup + q->active; i++) {
        ep_region_begin("step");
        ok = step(s, mode, r, NULL);
        ep_region_end();
        ep_profile_step(p);
    }
    if (ep_profile_stop(p, &err, &r->trace) != EP_OK) return fail(r, err.message);
    return ok;
}

static bool write_trace(const run_request *q, ep_mode mode, run_result *r) {
    ep_error err = {0};
    if (!q->trace_dir) return true;
    mkdir(q->trace_dir, 0777);
    snprintf(r->trace_path, sizeof r->trace_path, "%s/%s-%s.json", q->trace_dir, q->block, run_mode_names[mode]);
    if (ep_trace_write(r->trace, r->trace_path, &err) == EP_OK) return true;
    r->trace_path[0] = 0;
    return fail(r, err.message);
}

/* The report's line of the first kernel that did not build, without its "kernel ". */
static void note_failure(const char *report, run_result *r) {
    const char *found = strstr(report, ": failed: ");
    if (!found) return;
    const char *line = found;
    while (line > report && line[-1] != '\n') line--;
    if (strncmp(line, "kernel ", 7) == 0) line += 7;
    snprintf(r->not_built, sizeof r->not_built, "%.*s", (int)strcspn(line, "\n"), line);
}

bool run_mode(const run_request *q, run_setup *s, ep_mode mode, run_result *r) {
    ep_tensor *y = NULL;
    r->error_abs = r->error_rel = NAN;
    bool tell = isatty(STDERR_FILENO) && !q->json;
    if (!prepare(q, s, mode, r)) return false;
    if (tell && r->cold_us > 2e5) fprintf(stderr, "running %s ...\r", run_mode_names[mode]);
    bool ok = true;
    for (int64_t i = 0; ok && i < q->warmup; i++) ok = step(s, mode, r, NULL);
    ok = ok && time_steps(q, s, mode, r) && profile_steps(q, s, mode, r) && step(s, mode, r, &y);
    if (ok) run_check_error(q, s, y, r);
    ep_tensor_destroy(y);
    if (tell) fprintf(stderr, "\033[K");
    if (!ok || !run_read_trace(s, q, r) || !write_trace(q, mode, r)) return false;
    if (mode == EP_MODE_TUNED) {
        r->packed_bytes = ep_block_packed_bytes(s->block);
        ep_block_tuned_text(s->block, r->choices, sizeof r->choices);
    }
    ep_compiled *c = mode == EP_MODE_COMPILED ? ep_block_compiled(s->block) : NULL;
    r->has_compile = c != NULL;
    if (c) {
        ep_compiled_stats(c, &r->compile);
        if (r->compile.build_failures) note_failure(ep_compiled_report(c), r);
        r->answer = ep_compiled_answer(c);
        r->packed_bytes = r->compile.packed_bytes;
        snprintf(r->choices, sizeof r->choices, "%s", ep_compiled_choice(c));
    }
    r->ran = true;
    return true;
}

void run_result_clear(run_result *r) {
    ep_trace_destroy(r->trace);
    ep_guess_destroy(r->guess);
    ep_verdicts_destroy(r->verdicts);
    memset(r, 0, sizeof *r);
}
