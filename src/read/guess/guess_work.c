/* Bytes, flops and regime of a scope: from what our recorder noted, else from the shapes of the owner ops. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "measure.h"
#include "model/trace/kernel_name.h"
#include "read/analyze/torch_work.h"

typedef struct kernel_work {
    ep_work work;
    ep_dtype dtype;
    bool flops_known;
    char why[120]; /* "" if it is known */
} kernel_work;

static ep_dtype dtype_of(const char *name) {
    ep_dtype d;
    return ep_dtype_parse(name, &d) == EP_OK ? d : EP_DTYPE_F32;
}

/* What our recorder noted of this kernel. */
static bool noted(const ep_trace *t, uint32_t row, kernel_work *k) {
    const ep_event_info *info = &t->infos[t->info[row]];
    ep_our_name ours;
    if (!t->info[row] || info->bytes_read < 0 || info->bytes_written < 0) return false;
    k->work = (ep_work){info->flops > 0 ? info->flops : 0, info->bytes_read, info->bytes_written};
    k->flops_known = info->flops >= 0;
    if (ep_our_name_parse(ep_trace_text(t, t->name[row]), &ours)) k->dtype = dtype_of(ours.dtype);
    return true;
}

/* The work of the kernel, or of its owner op, of which it is then the only part that counts. */
static void find_work(const ep_subject *u, uint32_t row, kernel_work *k) {
    uint32_t owner = u->facts->links->owner[row];
    *k = (kernel_work){.dtype = EP_DTYPE_F32, .flops_known = true};
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
    k->dtype = dtype_of(w.dtype);
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
    if (!u->facts->health.device_recorded) {
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
        if (!noted(t, row, &k) && seen_lately(&ops, u->facts->links->owner[row])) continue;
        out->value +=
            metric == EP_METRIC_FLOPS ? (double)k.work.flops : (double)k.work.bytes_read + (double)k.work.bytes_written;
    }
}

/* Ceilings of the device that did the work: by its name, or of this machine for our own CPU traces. */
static bool find_machine(const ep_subject *u, const ep_scope *s, ep_machine *m, ep_seen *out) {
    const ep_facts *f = u->facts;
    int64_t id = u->trace->lanes[u->trace->lane[s->work.rows[0]]].device;
    const char *name = NULL;
    for (size_t i = 0; i < f->device_count; i++)
        if (f->devices[i].id == id) name = f->devices[i].name;
    if (name && ep_machine_by_name(name, m) == EP_OK) return true;
    if (u->trace->is_ours && ep_machine_load((ep_device){EP_DEVICE_CPU, 0}, NULL, m) == EP_OK) return true;
    snprintf(out->why, sizeof out->why, "there are no ceilings for the device '%.80s'", name ? name : "without a name");
    return false;
}

/* Device time by what bounds each kernel; what is unknown must not decide. */
static ep_regime by_kernels(const ep_subject *u, const ep_scope *s, const ep_machine *m, ep_seen *out) {
    const ep_trace *t = u->trace;
    double memory = 0, compute = 0, unknown = 0;
    char why[120] = "";
    for (size_t i = 0; i < s->work.count; i++) {
        uint32_t row = s->work.rows[i];
        double ns = (double)t->dur[row];
        if (t->kind[row] != EP_EVENT_KERNEL) {
            memory += ns;
            continue;
        }
        kernel_work k;
        find_work(u, row, &k);
        ep_bound b = ep_machine_bound(m, &k.work, k.dtype, 0);
        if (k.why[0] || b.regime == EP_REGIME_UNKNOWN) {
            unknown += ns;
            if (!why[0]) snprintf(why, sizeof why, "%s", k.why[0] ? k.why : "no ceiling for its type");
        } else if (b.regime == EP_REGIME_MEMORY)
            memory += ns;
        else
            compute += ns;
    }
    if (unknown >= fabs(memory - compute)) {
        snprintf(out->why, sizeof out->why, "what bounds %.0f%% of the device time is not known: %.100s",
                 100 * unknown / (memory + compute + unknown), why);
        return EP_REGIME_UNKNOWN;
    }
    snprintf(out->note, sizeof out->note, "%.0f%% of the device time is in kernels bound by memory",
             100 * memory / (memory + compute + unknown));
    return memory > compute ? EP_REGIME_MEMORY : EP_REGIME_COMPUTE;
}

static double measure_one(const ep_subject *u, const ep_scope *s, ep_term term) {
    ep_seen seen;
    ep_matcher m;
    if (!ep_matcher_create(u, &term, &m)) return NAN;
    ep_measure(u, s, &m, -1, &seen);
    ep_matcher_free(&m);
    return seen.value;
}

/* Overhead: the host takes longer to launch than the device to run. Sync: the host waits while the device has little to
 * do. Communication: most device time is in collectives. Else by the kernels' own bounds. */
ep_regime ep_measure_regime(const ep_subject *u, const ep_scope *s, ep_seen *out) {
    *out = (ep_seen){.value = NAN, .witness = s->event};
    ep_machine m;
    if (!u->facts->health.device_recorded || s->work.count == 0) {
        snprintf(out->why, sizeof out->why, "%s", s->work.count ? "" : "no device work was recorded here");
        return EP_REGIME_UNKNOWN;
    }
    double device = measure_one(u, s, (ep_term){.metric = EP_METRIC_DEVICE_TIME});
    double dispatch = measure_one(u, s, (ep_term){.metric = EP_METRIC_DISPATCH});
    double sync = measure_one(u, s, (ep_term){.metric = EP_METRIC_SYNC_TIME});
    double collective = measure_one(u, s, (ep_term){.metric = EP_METRIC_KERNEL_TIME, .pattern = "collective"});
    if (isnan(device) || isnan(dispatch) || isnan(sync) || isnan(collective)) {
        snprintf(out->why, sizeof out->why, "the device side of the record is partial");
        return EP_REGIME_UNKNOWN;
    }
    if (collective > device / 2) {
        snprintf(out->note, sizeof out->note, "%.0f%% of the device time is in collectives", 100 * collective / device);
        return EP_REGIME_COMMUNICATION;
    }
    bool waits = sync > dispatch && sync > 2 * device;
    if (waits || dispatch > device) {
        snprintf(out->note, sizeof out->note, "dispatch %.1f us, waits %.1f us, device time %.1f us", dispatch / 1e3,
                 sync / 1e3, device / 1e3);
        return waits ? EP_REGIME_SYNC : EP_REGIME_OVERHEAD;
    }
    return find_machine(u, s, &m, out) ? by_kernels(u, s, &m, out) : EP_REGIME_UNKNOWN;
}
