/* Bytes and flops of a scope, from what our recorder noted or else from the shapes of the owner ops; regime and recompiles,
 * as the analyses found them. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "measure.h"

typedef struct kernel_work {
    ep_work work;
    bool flops_known;
    char why[120]; /* "" if it is known */
} kernel_work;

/* What our recorder noted of this kernel. */
static bool noted(const ep_trace *t, uint32_t row, kernel_work *k) {
    const ep_event_info *info = &t->infos[t->info[row]];
    if (!t->info[row] || info->bytes_read < 0 || info->bytes_written < 0) return false;
    k->work = (ep_work){info->flops > 0 ? info->flops : 0, info->bytes_read, info->bytes_written};
    k->flops_known = info->flops >= 0;
    return true;
}

/* The work of the kernel, or of its owner op, of which it is then the only part that counts. */
static void find_work(const ep_subject *u, uint32_t row, kernel_work *k) {
    uint32_t owner = ep_links_owner(u->facts->links, row);
    *k = (kernel_work){.flops_known = true};
    if (noted(u->trace, row, k)) return;
    if (owner == EP_NO_INDEX) {
        snprintf(k->why, sizeof k->why, "no op launched it");
        return;
    }
    ep_op_work w;
    ep_torch_work(u->trace, owner, &w);
    if (!w.known) {
        snprintf(k->why, sizeof k->why, "%s", w.reason ? w.reason : "its op is not in the table");
        return;
    }
    k->work = (ep_work){w.flops, w.bytes_read, w.bytes_written};
}

/* Owner ops seen lately: an op that launched several kernels has its work once. */
typedef struct recent {
    uint32_t ops[16];
    size_t n;
} recent;

static bool seen_lately(recent *r, uint32_t op) {
    if (op == EP_NO_INDEX) return false;
    for (size_t i = 0; i < 16 && i < r->n; i++)
        if (r->ops[i] == op) return true;
    r->ops[r->n++ % 16] = op;
    return false;
}

void ep_measure_work(const ep_subject *u, const ep_scope *s, ep_metric metric, ep_seen *out) {
    const ep_trace *t = u->trace;
    recent ops = {.n = 0};
    *out = (ep_seen){.witness = s->event};
    if (!ep_subject_device_known(u)) {
        out->value = NAN;
        snprintf(out->why, sizeof out->why, "no device events were recorded");
        return;
    }
    for (size_t i = 0; i < s->work.count; i++) {
        uint32_t row = s->work.rows[i];
        kernel_work k;
        if (t->kind[row] != EP_EVENT_KERNEL) continue;
        find_work(u, row, &k);
        if (k.why[0] || (metric == EP_METRIC_FLOPS && !k.flops_known)) {
            out->value = NAN;
            snprintf(out->why, sizeof out->why, "the work of '%.60s' is not known: %.100s",
                     ep_trace_text(t, t->name[row]), k.why);
            return;
        }
        if (!noted(t, row, &k) && seen_lately(&ops, ep_links_owner(u->facts->links, row))) continue;
        out->value +=
            metric == EP_METRIC_FLOPS ? (double)k.work.flops : (double)k.work.bytes_read + (double)k.work.bytes_written;
    }
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
    for (size_t i = 0; u->study && i < u->study->recompile_count; i++) {
        int64_t at = u->study->recompiles[i].ts_ns;
        if (at < s->start || at >= s->end) continue;
        if (out->value == 0)
            snprintf(out->note, sizeof out->note, "%.60s: %.50s", u->study->recompiles[i].name,
                     u->study->recompiles[i].detail ? u->study->recompiles[i].detail : "");
        out->value++;
    }
}
