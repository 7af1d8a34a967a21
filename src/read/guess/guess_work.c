/* Bytes and flops of a scope, from what our recorder noted or else from the shapes of the owner ops; regime and recompiles,
 * as the analyses found them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "measure.h"

/* What our recorder noted of this kernel, or NaN. */
static double noted(const ep_trace *t, uint32_t row, ep_metric metric) {
    const ep_event_info *info = &t->infos[t->info[row]];
    if (metric == EP_METRIC_FLOPS) return info->flops >= 0 ? (double)info->flops : NAN;
    return (double)info->bytes_read + (double)info->bytes_written;
}

static bool is_noted(const ep_trace *t, uint32_t row) {
    const ep_event_info *info = &t->infos[t->info[row]];
    return t->info[row] && info->bytes_read >= 0 && info->bytes_written >= 0;
}

double ep_measure_kernel(const ep_subject *u, uint32_t kernel, ep_metric metric, uint32_t *op, char *why, size_t size) {
    const char *reason = "its flops were not recorded";
    double v = NAN;
    *op = EP_NO_INDEX;
    if (is_noted(u->trace, kernel)) {
        v = noted(u->trace, kernel, metric);
    } else if ((*op = ep_links_owner(u->facts->links, kernel)) == EP_NO_INDEX) {
        reason = "no op launched it";
    } else {
        ep_op_work w;
        ep_torch_work(u->trace, *op, &w);
        if (w.known) v = metric == EP_METRIC_FLOPS ? (double)w.flops : (double)w.bytes_read + (double)w.bytes_written;
        reason = w.reason ? w.reason : "its op is not in the table";
    }
    if (isnan(v) && why)
        snprintf(why, size, "the work of '%.60s' is not known: %.100s", ep_trace_text(u->trace, u->trace->name[kernel]),
                 reason);
    return v;
}

static int by_row(const void *a, const void *b) {
    const uint32_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

/* An op that launched several kernels has its work once. */
void ep_measure_work(const ep_subject *u, const ep_scope *s, ep_metric metric, ep_seen *out) {
    uint32_t(*ops)[2] = ep_malloc_array(s->work.count, sizeof *ops), op;
    size_t n = 0;
    *out = (ep_seen){.witness = s->event};
    if (!ops) {
        out->value = NAN;
        snprintf(out->why, sizeof out->why, "memory ran out");
        return;
    }
    for (size_t i = 0; i < s->work.count && !isnan(out->value); i++) {
        uint32_t row = s->work.rows[i];
        if (u->trace->kind[row] != EP_EVENT_KERNEL) continue;
        double v = ep_measure_kernel(u, row, metric, &op, out->why, sizeof out->why);
        if (isnan(v))
            out->value = NAN;
        else if (op == EP_NO_INDEX)
            out->value += v;
        else
            ops[n][0] = op, ops[n++][1] = row;
    }
    if (n) qsort(ops, n, sizeof *ops, by_row);
    for (size_t i = 0; i < n && !isnan(out->value); i++)
        if (!i || ops[i][0] != ops[i - 1][0]) out->value += ep_measure_kernel(u, ops[i][1], metric, &op, NULL, 0);
    free(ops);
}

static const ep_regime_row *regime_row(const ep_study *study, const char *name) {
    for (size_t i = 0; i < study->regime_count; i++)
        if (strcmp(study->regimes[i].name, name) == 0) return &study->regimes[i];
    return NULL;
}

/* Of a region as a whole, by its median instance; a trace without regions is one, else its steps stand for it. */
static const ep_regime_row *find_regime(const ep_subject *u, const ep_scope *s) {
    if (s->event == EP_NO_INDEX) {
        const ep_regime_row *whole = regime_row(u->study, "(whole trace)");
        return whole ? whole : regime_row(u->study, "ProfilerStep");
    }
    uint32_t name = u->trace->name[s->event];
    if (strncmp(ep_trace_text(u->trace, name), "ProfilerStep#", 13) == 0) return regime_row(u->study, "ProfilerStep");
    return u->regime_of[name] ? &u->study->regimes[u->regime_of[name] - 1] : NULL;
}

void ep_measure_regime(const ep_subject *u, const ep_scope *s, ep_regime *regime, ep_regime *bare, ep_seen *out) {
    *out = (ep_seen){.value = NAN, .witness = s->event};
    const ep_regime_row *r = u->study ? find_regime(u, s) : NULL;
    if (!r) {
        snprintf(out->why, sizeof out->why, "this is worked out by region; put the claim under 'region NAME'");
        return;
    }
    if (r->regime == EP_REGIME_UNKNOWN) {
        snprintf(out->why, sizeof out->why, "%s", r->why ? r->why : "nothing here says what bounds it");
        return;
    }
    *regime = r->regime;
    *bare = r->without_profiler;
    out->value = (double)r->regime;
    if (r->regime != r->without_profiler)
        snprintf(out->why, sizeof out->why, "%s as recorded, but %s without what the profiler itself costs at most",
                 ep_regime_name(r->regime), ep_regime_name(r->without_profiler));
    snprintf(out->note, sizeof out->note, "%s; device busy %.1f of %.1f us", r->why ? r->why : "", r->busy_us,
             r->host_us > r->window_us ? r->host_us : r->window_us);
}

/* As `explain` finds them: compile spans and new entries after the first. */
void ep_measure_recompiles(const ep_subject *u, const ep_scope *s, ep_seen *out) {
    if (u->study && u->study->recompiles_unknown) {
        out->value = NAN;
        snprintf(out->why, sizeof out->why,
                 "%lld compilations, but no call of compiled code is marked (PyTorch before 2.3): the first of another "
                 "frame and a recompile look alike",
                 (long long)u->study->compilations);
        return;
    }
    for (size_t i = 0; u->study && i < u->study->recompile_count; i++) {
        int64_t at = u->study->recompiles[i].ts_ns;
        if (at < s->start || at >= s->end) continue;
        if (out->value == 0)
            snprintf(out->note, sizeof out->note, "%.60s%s%.50s", u->study->recompiles[i].name,
                     u->study->recompiles[i].detail ? ": " : "",
                     u->study->recompiles[i].detail ? u->study->recompiles[i].detail : "");
        out->value++;
    }
}
