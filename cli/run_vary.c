/* `epi run --vary batch=1..64`: what a changing size does to each call, by mode and by how it compiles. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "json_out.h"
#include "run.h"

enum { MOST_VALUES = 512, ROUNDS = 3 };

static const struct {
    const char *name, *what;
    ep_mode mode;
    ep_compile_options options;
} policies[] = {{"eager", "op by op", EP_MODE_EAGER, {0}},
                {"compiled", "eager answers while it compiles", EP_MODE_COMPILED, {.no_disk_cache = true}},
                {"compiled, waiting",
                 "a call waits for its compile",
                 EP_MODE_COMPILED,
                 {.wait = EP_WAIT_ALWAYS, .no_disk_cache = true}},
                {"compiled, static",
                 "one entry a shape, calls wait",
                 EP_MODE_COMPILED,
                 {.wait = EP_WAIT_ALWAYS, .specialize = EP_SPECIALIZE_STATIC, .no_disk_cache = true}},
                {"tuned", "hand-written kernels", EP_MODE_TUNED, {0}}};
enum { POLICIES = sizeof policies / sizeof *policies };

typedef struct variation {
    bool seq; /* else batch */
    int64_t values[MOST_VALUES];
    int count;
    ep_tensor *x[MOST_VALUES];
} variation;

typedef struct latencies {
    char why_not[464];
    size_t calls;
    double p50, p99, max, first; /* us; first: the worst first call of a size */
    ep_compile_stats stats;
    bool compiled;
} latencies;

static int parse_vary(const char *text, variation *v) {
    int64_t from, to, by = 1;
    char what[16];
    int used = 0;
    int n = sscanf(text, "%15[a-z]=%" SCNd64 "..%" SCNd64 "%n", what, &from, &to, &used);
    if (n == 3 && text[used] == ':') {
        int more = 0;
        if (sscanf(text + used, ":%" SCNd64 "%n", &by, &more) == 1) used += more;
    }
    v->seq = n == 3 && strcmp(what, "seq") == 0;
    if (n != 3 || text[used] || by < 1 || from < 0 || to < from || (!v->seq && strcmp(what, "batch") != 0))
        return epi_bad("--vary is batch=1..64 or seq=16..512:16 (first..last:step), not '%s'", text);
    if ((to - from) / by >= MOST_VALUES)
        return epi_bad("--vary '%s' has %" PRId64 " sizes; the limit is %d", text, (to - from) / by + 1, MOST_VALUES);
    for (int64_t i = from; i <= to; i += by) v->values[v->count++] = i;
    return -1;
}

static int make_inputs(const run_request *q, run_setup *s, variation *v) {
    ep_error err = {0};
    for (int i = 0; i < v->count; i++) {
        int64_t sizes[3] = {v->seq ? q->batch : v->values[i], v->seq ? v->values[i] : q->seq, q->dim};
        ep_tensor *host = NULL;
        if (ep_tensor_create(q->dtype, 3, sizes, &err, &host) != EP_OK ||
            ep_tensor_fill_random(host, 1, 1.0, &err) != EP_OK) {
            ep_tensor_destroy(host);
            return epi_fail("x", &err);
        }
        ep_status status = ep_to_device(s->ctx, host, &v->x[i]);
        ep_tensor_destroy(host);
        if (status != EP_OK) return epi_fail("x", ep_context_error(s->ctx));
    }
    return -1;
}

static bool timed_call(run_setup *s, ep_block *b, ep_mode mode, const ep_tensor *x, double *us) {
    ep_tensor *y = NULL;
    double from = run_now_us();
    bool ok = ep_block_run(b, mode, x, NULL, &y) == EP_OK && ep_context_sync(s->ctx) == EP_OK;
    *us = run_now_us() - from;
    ep_tensor_destroy(y);
    return ok;
}

static bool run_policy(const run_request *q, run_setup *s, const variation *v, int p, latencies *l) {
    ep_block *b = NULL;
    double *us = malloc(sizeof *us * (size_t)(v->count * ROUNDS));
    bool ok = us && run_new_block(q, s, &b) < 0;
    if (ok && policies[p].mode == EP_MODE_COMPILED) ok = ep_block_compile_with(b, &policies[p].options) == EP_OK;
    ok = ok && ep_block_supports(b, policies[p].mode) == EP_OK;
    for (int r = 0; ok && r < ROUNDS; r++)
        for (int i = 0; ok && i < v->count; i++) {
            ok = timed_call(s, b, policies[p].mode, v->x[i], &us[l->calls]);
            if (ok && r == 0 && us[l->calls] > l->first) l->first = us[l->calls];
            l->calls += ok;
        }
    if (!ok) snprintf(l->why_not, sizeof l->why_not, "%s", ep_context_error(s->ctx)->message);
    if (ok && l->calls) {
        l->p50 = run_median(us, l->calls);
        l->p99 = us[(l->calls - 1) * 99 / 100];
        l->max = us[l->calls - 1];
    }
    const ep_compiled *c = ok && policies[p].mode == EP_MODE_COMPILED ? ep_block_compiled(b) : NULL;
    if (c) {
        ep_compiled_stats(c, &l->stats);
        l->compiled = true;
    }
    ep_block_destroy(b);
    free(us);
    return ok;
}

static void show_text(const run_request *q, const latencies l[POLICIES]) {
    char a[24], b[24], c[24];
    printf("\nEACH CALL while %s (%zu calls, every size %d times)\n", q->vary, l[0].calls, ROUNDS);
    printf("  %-18s %11s %11s %11s %8s %11s\n", "mode", "median", "99th pct.", "longest", "entries", "by eager");
    for (int p = 0; p < POLICIES; p++) {
        if (l[p].why_not[0]) {
            printf("  %-18s not available: %s\n", policies[p].name, l[p].why_not);
            continue;
        }
        printf("  %-18s %11s %11s %11s", policies[p].name, run_time_text(l[p].p50, a), run_time_text(l[p].p99, b),
               run_time_text(l[p].max, c));
        if (l[p].compiled) printf(" %8" PRId64 " %11" PRId64, l[p].stats.entries, l[p].stats.eager_calls);
        printf("\n");
    }
    printf("  entries: compiled versions of the block; by eager: calls answered by the eager\n  path meanwhile\n");
}

static void show_json(const run_request *q, const run_setup *s, const latencies l[POLICIES]) {
    json_out out = {.to = stdout}, *j = &out;
    json_object(j, NULL);
    json_text(j, "block", q->block);
    json_text(j, "vary", q->vary);
    json_text(j, "dtype", ep_dtype_name(q->dtype));
    json_int(j, "threads", s->threads);
    json_array(j, "policies");
    for (int p = 0; p < POLICIES; p++) {
        bool ran = !l[p].why_not[0];
        json_object(j, NULL);
        json_text(j, "name", policies[p].name);
        json_text(j, "mode", run_mode_names[policies[p].mode]);
        json_text(j, "unavailable", ran ? NULL : l[p].why_not);
        json_int(j, "calls", (int64_t)l[p].calls);
        json_number(j, "p50_us", ran ? l[p].p50 : NAN);
        json_number(j, "p99_us", ran ? l[p].p99 : NAN);
        json_number(j, "max_us", ran ? l[p].max : NAN);
        json_number(j, "max_first_us", ran ? l[p].first : NAN);
        json_number(j, "entries", l[p].compiled ? (double)l[p].stats.entries : NAN);
        json_number(j, "recompiles", l[p].compiled ? (double)l[p].stats.recompiles : NAN);
        json_number(j, "eager_calls", l[p].compiled ? (double)l[p].stats.eager_calls : NAN);
        json_number(j, "waited_us", l[p].compiled ? l[p].stats.waited_us : NAN);
        json_end(j);
    }
    json_finish(j);
}

int run_vary(run_request *q) {
    run_setup s;
    variation *v = calloc(1, sizeof *v);
    latencies l[POLICIES] = {0};
    if (!v) return epi_bad("no memory");
    int code = parse_vary(q->vary, v);
    if (code >= 0) {
        free(v);
        return code;
    }
    int64_t first = v->values[0];
    if (v->seq)
        q->seq = first;
    else
        q->batch = first;
    code = run_setup_create(q, &s);
    if (code < 0 && !q->json) run_show_request(q, &s);
    if (code < 0) code = make_inputs(q, &s, v);
    for (int p = 0; p < POLICIES && code < 0; p++) {
        bool named = q->modes[policies[p].mode] && !q->all_modes && policies[p].mode != EP_MODE_EAGER;
        if (!run_policy(q, &s, v, p, &l[p]) && named)
            code = epi_bad("%s: not built yet: %s", policies[p].name, l[p].why_not);
    }
    if (code < 0 && q->json) show_json(q, &s, l);
    if (code < 0 && !q->json) show_text(q, l);
    for (int i = 0; i < v->count; i++) ep_tensor_destroy(v->x[i]);
    free(v);
    run_setup_destroy(&s);
    return code < 0 ? EPI_DONE : code;
}
