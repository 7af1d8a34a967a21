/* A guess file that a trace satisfies: every region measured, each figure written as a claim, what does not hold again
 * when checked left out. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "verdict.h"

enum { MOST_REGIONS = 24 };

typedef struct wanted_region {
    const char *glob;
    int64_t device_ns, host_ns;
    size_t order; /* of first appearance */
} wanted_region;

static int by_device_time(const void *a, const void *b) {
    const wanted_region *x = a, *y = b;
    if (x->device_ns != y->device_ns) return x->device_ns < y->device_ns ? 1 : -1;
    if (x->host_ns != y->host_ns) return x->host_ns < y->host_ns ? 1 : -1;
    return (x->order > y->order) - (x->order < y->order);
}

static int by_order(const void *a, const void *b) {
    const wanted_region *x = a, *y = b;
    return (x->order > y->order) - (x->order < y->order);
}

/* The regions with the most device time, without any the most host time, steps as one; in order of appearance. */
static wanted_region *choose_regions(const ep_facts *f, size_t *count) {
    wanted_region *w = calloc(f->region_count + 1, sizeof *w);
    size_t n = 0, steps = SIZE_MAX;
    for (size_t r = 0; w && r < f->region_count; r++) {
        const ep_region_fact *region = &f->regions[r];
        bool step = strncmp(region->name, "ProfilerStep#", 13) == 0;
        if (ep_compile_note(region->name)) continue; /* no run has the same ones again */
        size_t at = step && steps != SIZE_MAX ? steps : n;
        if (at == n) {
            w[n].glob = step ? "ProfilerStep#*" : region->name;
            w[n].order = n;
            if (step) steps = n;
            n++;
        }
        for (uint32_t i = 0; i < region->count; i++) {
            w[at].device_ns += f->instances[region->first + i].device_ns_any_thread;
            w[at].host_ns += f->trace->dur[f->instances[region->first + i].event];
        }
    }
    if (n > MOST_REGIONS) {
        qsort(w, n, sizeof *w, by_device_time);
        n = MOST_REGIONS;
        qsort(w, n, sizeof *w, by_order);
    }
    *count = n;
    return w;
}

typedef struct spread {
    double low, high, median;
    bool known;
} spread;

/* A term over all instances. */
static bool measure_spread(const ep_subject *u, const ep_rows *instances, const ep_term *term, ep_scope *scope,
                           spread *out) {
    ep_matcher m;
    double *v = ep_malloc_array(instances->count + 1, sizeof *v);
    bool ok = ep_matcher_create(u, term, NULL, &m) && v && ep_series(u, instances, &m, -1, scope, v);
    *out = (spread){.known = ok && instances->count > 0};
    for (size_t i = 0; ok && i < instances->count; i++)
        if (isnan(v[i])) out->known = false;
    if (ok && out->known) {
        qsort(v, instances->count, sizeof *v, ep_compare_double);
        size_t n = instances->count;
        out->low = v[0];
        out->high = v[n - 1];
        out->median = (v[(n - 1) / 2] + v[n / 2]) / 2;
    }
    ep_matcher_free(&m);
    free(v);
    return ok;
}

static void say_count(ep_text *t, const char *words, const spread *s) {
    if (s->low == s->high)
        ep_text_printf(t, "  %s = %.0f\n", words, s->low);
    else
        ep_text_printf(t, "  %s in %.0f..%.0f\n", words, s->low, s->high);
}

static bool say_counts(const ep_subject *u, const ep_rows *instances, ep_scope *scope, ep_text *t) {
    static const ep_metric counts[] = {EP_METRIC_KERNELS, EP_METRIC_LAUNCHES, EP_METRIC_OPS,       EP_METRIC_VIEWS,
                                       EP_METRIC_COPIES,  EP_METRIC_MEMSETS,  EP_METRIC_RECOMPILES};
    spread s;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        ep_term term = {.metric = counts[i]};
        if (!measure_spread(u, instances, &term, scope, &s)) return false;
        if (s.known) say_count(t, ep_metrics[counts[i]].words, &s);
        for (int c = 0; c < EP_CLASS_COUNT && counts[i] == EP_METRIC_KERNELS && s.known && s.high > 0; c++) {
            spread of;
            ep_text words = {0};
            term.pattern = ep_kernel_class_name((ep_kernel_class)c);
            if (!measure_spread(u, instances, &term, scope, &of)) return false;
            ep_text_printf(&words, "kernels matching \"%s\"", term.pattern);
            if (of.known && of.high > 0) say_count(t, ep_text_str(&words), &of);
            ep_text_free(&words);
        }
    }
    return true;
}

static void say_near(ep_text *t, const char *words, double ns, int percent, bool median) {
    const char *unit = ns < 1e6 ? "us" : ns < 1e9 ? "ms" : "s";
    double scale = ns < 1e6 ? 1e3 : ns < 1e9 ? 1e6 : 1e9;
    ep_text_printf(t, "  %s%s ~ %.4g%s +- %d%%\n", median ? "median " : "", words, ns / scale, unit, percent);
}

static bool say_times(const ep_subject *u, const ep_rows *instances, bool region, ep_scope *scope, ep_text *t) {
    spread device, dispatch, host;
    ep_term terms[] = {{.metric = EP_METRIC_DEVICE_TIME}, {.metric = EP_METRIC_DISPATCH}, {.metric = EP_METRIC_TIME}};
    if (!measure_spread(u, instances, &terms[0], scope, &device) ||
        !measure_spread(u, instances, &terms[1], scope, &dispatch) ||
        !measure_spread(u, instances, &terms[2], scope, &host))
        return false;
    if (device.known && device.high > 0) say_near(t, "device time", device.median, 10, region);
    if (host.known && host.high > 0) say_near(t, "time", host.median, 25, region);
    if (device.known && dispatch.known && device.low > 0) {
        if (dispatch.high < device.low)
            ep_text_add(t, "  dispatch < device time\n");
        else if (dispatch.low > device.high)
            ep_text_add(t, "  dispatch > device time\n");
    }
    return true;
}

/* One claim each of the regimes; the check keeps the one that holds. */
static void say_bound(ep_text *t) {
    for (int r = EP_REGIME_OVERHEAD; r <= EP_REGIME_SYNC; r++)
        ep_text_printf(t, "  bound = %s\n", ep_regime_name((ep_regime)r));
}

static bool say_block(const ep_subject *u, const char *glob, ep_text *t) {
    ep_guess_block b = {.form = glob ? EP_GUESS_REGION : EP_GUESS_TRACE, .region = glob};
    ep_rows instances = {0};
    ep_scope scope = {0};
    bool ok = ep_block_instances(&b, u, &instances);
    if (ok) {
        ep_block_print(t, &b);
        ep_text_char(t, '\n');
        if (glob) ep_text_printf(t, "  instances = %zu\n", instances.count);
        ok = say_counts(u, &instances, &scope, t) && say_times(u, &instances, glob != NULL, &scope, t);
        say_bound(t);
    }
    free(instances.rows);
    ep_scope_free(&scope);
    return ok;
}

/* Drops every claim whose finding is not confirmed, and heads without a claim. */
static ep_status keep_confirmed(const ep_guess *all, const ep_subject *u, ep_error *err, ep_guess **out) {
    ep_outcome *findings = calloc(all->claim_count + 1, sizeof *findings);
    ep_text t = {0};
    ep_status status = findings ? EP_OK : ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory for a guess");
    for (uint32_t b = 0; b < all->block_count && status == EP_OK; b++) {
        bool head = false;
        status = ep_check_block(all, b, u, err, findings);
        for (size_t i = 0; i < all->claim_count && status == EP_OK; i++) {
            if (all->claims[i].block != b || findings[i].kind != EP_VERDICT_CONFIRMED) continue;
            if (!head) ep_text_printf(&t, "%s\n", all->blocks[b].head);
            head = true;
            ep_text_printf(&t, "  %s\n", all->claims[i].text);
        }
    }
    if (status == EP_OK)
        status = t.failed ? ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory for a guess")
                          : ep_guess_parse(ep_text_str(&t), t.len, err, out);
    for (size_t i = 0; findings && i < all->claim_count; i++) ep_text_free(&findings[i].seen);
    free(findings);
    ep_text_free(&t);
    return status;
}

ep_status ep_guess_from_trace(const ep_trace *trace, ep_error *err, ep_guess **out) {
    ep_subject u;
    EP_TRY(ep_subject_create(trace, true, err, &u));
    ep_text t = {0};
    ep_guess *all = NULL;
    size_t count = 0;
    wanted_region *regions = choose_regions(u.facts, &count);
    bool ok = regions != NULL;
    for (size_t i = 0; ok && i < count; i++) ok = say_block(&u, regions[i].glob, &t);
    if (ok && count == 0) ok = say_block(&u, NULL, &t);
    ep_status status = ok && !t.failed ? ep_guess_parse(ep_text_str(&t), t.len, err, &all)
                                       : ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory for a guess");
    if (status == EP_OK) status = keep_confirmed(all, &u, err, out);
    ep_guess_destroy(all);
    free(regions);
    ep_text_free(&t);
    ep_subject_free(&u);
    return status;
}
