/* A claim of a region or trace: measured in every instance, judged by the worst of them or by the median. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "verdict.h"

enum { MOST_SURPRISE = 10 };

/* What the claim says of a number: its least and largest value, open ends as infinities. */
typedef struct limits {
    double low, high;
    bool open; /* the ends themselves are not allowed */
} limits;

static limits limits_of(const ep_claim *c, double other) {
    double v = c->form == EP_CLAIM_TERM ? c->factor * other : ep_quantity_value(c->low);
    if (c->form == EP_CLAIM_RANGE) return (limits){v, ep_quantity_value(c->high), false};
    if (c->form == EP_CLAIM_NEAR) {
        double by = ep_quantity_value(c->high);
        bool share = ep_units[c->high.unit].dimension == EP_DIM_SHARE;
        /* Percent of the value; of a share, points. */
        if (share && (c->change == EP_CHANGE_RATIO || ep_metrics[c->term.metric].dimension != EP_DIM_SHARE))
            by *= fabs(v);
        return (limits){v - by, v + by, false};
    }
    switch (c->relation) {
    case EP_REL_LT: return (limits){-INFINITY, v, true};
    case EP_REL_LE: return (limits){-INFINITY, v, false};
    case EP_REL_GT: return (limits){v, INFINITY, true};
    case EP_REL_GE: return (limits){v, INFINITY, false};
    default: return (limits){v, v, false};
    }
}

double ep_claim_surprise(const ep_claim *c, double v, double other) {
    limits l = limits_of(c, other);
    if (c->relation == EP_REL_NE && (c->form == EP_CLAIM_VALUE || c->form == EP_CLAIM_TERM)) return v == l.low ? 1 : 0;
    /* Decimal ends are not exact in binary: a millionth of a millionth is no surprise. */
    double grace = 1e-12 * fabs(v);
    bool below = l.open ? v <= l.low : v < l.low - grace, above = l.open ? v >= l.high : v > l.high + grace;
    if (!below && !above) return 0;
    double end = below ? l.low : l.high, surprise;
    bool count = c->change != EP_CHANGE_RATIO && ep_metrics[c->term.metric].dimension == EP_DIM_COUNT;
    if (count || c->change == EP_CHANGE_DELTA)
        surprise = log2(1 + fabs(v - end));
    else if (end > 0 && v > 0)
        surprise = fabs(log2(v / end));
    else
        surprise = MOST_SURPRISE;
    if (l.open && v == end) surprise = 0.01;
    return surprise > MOST_SURPRISE ? MOST_SURPRISE : surprise < 0.001 ? 0.001 : surprise;
}

/* The largest count the claim allows, so that the first event beyond it can be named. */
static double allowed(const ep_claim *c) {
    if (c->form == EP_CLAIM_TERM) return -1;
    if (c->form == EP_CLAIM_VALUE && c->relation == EP_REL_NE) return 1e300;
    limits l = limits_of(c, 0);
    if (!(l.high < 1e300)) return 1e300;
    return l.open ? ceil(l.high) - 1 : l.high;
}

void ep_claim_expected(ep_text *out, const ep_claim *c) {
    switch (c->form) {
    case EP_CLAIM_FUSED:
        ep_text_add(out, "one kernel that does");
        for (int i = 0; i < c->name_count; i++) ep_text_printf(out, "%s %s", i ? " and" : "", c->names[i]);
        return;
    case EP_CLAIM_BOUND:
        ep_text_printf(out, "%s%s", c->relation == EP_REL_NE ? "not " : "", ep_regime_name(c->regime));
        return;
    case EP_CLAIM_SAME_NAMES: ep_text_add(out, "the same names in both traces"); return;
    case EP_CLAIM_GONE: ep_text_printf(out, "%s in the first trace only", c->names[0]); return;
    case EP_CLAIM_NEW: ep_text_printf(out, "%s in the second trace only", c->names[0]); return;
    default: break;
    }
    /* What stands after the measured thing. */
    ep_text claim = {0}, left = {0};
    ep_claim only = *c;
    only.form = EP_CLAIM_SAME_NAMES;
    only.change = EP_CHANGE_NONE;
    ep_claim_print(&claim, c);
    ep_claim_print(&left, &only);
    size_t skip = left.len - strlen(" same names");
    static const size_t change_words[] = {0, 6, 6};
    skip += change_words[c->change] + 1;
    const char *rest = ep_text_str(&claim) + (skip < claim.len ? skip : claim.len);
    bool equal = strncmp(rest, "= ", 2) == 0;
    ep_text_add(out, equal ? rest + 2 : rest);
    ep_text_free(&claim);
    ep_text_free(&left);
}

int ep_compare_double(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int by_start(const void *a, const void *b) {
    const int64_t *x = a, *y = b;
    return x[0] != y[0] ? (x[0] > y[0]) - (x[0] < y[0]) : (x[1] > y[1]) - (x[1] < y[1]);
}

static bool has_region(const ep_facts *f, const char *glob) {
    for (size_t r = 0; r < f->region_count; r++)
        if (strcmp(glob, f->regions[r].name) == 0 || ep_glob(glob, f->regions[r].name)) return true;
    return false;
}

bool ep_block_instances(const ep_guess_block *b, const ep_subject *u, ep_rows *out) {
    const ep_facts *f = u->facts;
    const char *glob = b->region;
    out->count = 0;
    if (!ep_grow(&out->rows, &out->cap, f->instance_count + 1, sizeof *out->rows)) return false;
    if (!glob) {
        out->rows[out->count++] = EP_NO_INDEX;
        return true;
    }
    /* "step" is the profiler's own step, whatever its number. */
    if (strcmp(glob, "step") == 0 && !has_region(f, glob)) glob = "ProfilerStep#*";
    int64_t(*found)[2] = ep_malloc_array(f->instance_count + 1, sizeof *found);
    if (!found) return false;
    size_t n = 0;
    for (size_t r = 0; r < f->region_count; r++) {
        const ep_region_fact *region = &f->regions[r];
        if (strcmp(glob, region->name) != 0 && !ep_glob(glob, region->name)) continue;
        for (uint32_t i = 0; i < region->count; i++) {
            uint32_t event = f->instances[region->first + i].event;
            found[n][0] = u->trace->ts[event];
            found[n++][1] = event;
        }
    }
    qsort(found, n, sizeof *found, by_start);
    for (size_t i = 0; i < n; i++)
        if ((int64_t)i >= b->skip) out->rows[out->count++] = (uint32_t)found[i][1];
    free(found);
    return true;
}

void ep_no_instances(const ep_guess_block *b, const ep_subject *u, ep_text *out) {
    ep_text_printf(out, "the trace has no region '%s'", b->region);
    if (b->skip) ep_text_printf(out, " after %lld are skipped", (long long)b->skip);
    for (size_t r = 0; r < u->facts->region_count && r < 5; r++)
        ep_text_printf(out, "%s'%s'", r ? ", " : "; it has ", u->facts->regions[r].name);
    if (u->facts->region_count > 5) ep_text_printf(out, " and %zu more", u->facts->region_count - 5);
}

/* What one claim saw in each instance: figures only, since there may be many. */
typedef struct series {
    ep_matcher left, right;
    double *v, *o; /* by instance; o: of the term it is compared with */
    bool summed;   /* both are filled in already, by running sums */
} series;

/* The block at work: its instances, and what runs in the one that is looked at, on its own thread and on any. */
typedef struct work {
    const ep_subject *u;
    ep_rows instances;
    ep_scope own, any;
} work;

/* Where the profiler's own cost decides, the claim is unknown. */
static void measure_bound(const ep_subject *u, const ep_claim *c, const ep_scope *scope, ep_seen *seen) {
    ep_regime regime = EP_REGIME_UNKNOWN, bare = EP_REGIME_UNKNOWN;
    ep_measure_regime(u, scope, &regime, &bare, seen);
    if ((regime == c->regime) != (bare == c->regime)) seen->value = NAN;
}

static void measure_claim(const work *k, const ep_claim *c, series *s, ep_seen *seen, double *other) {
    const ep_scope *scope = c->term.any_thread ? &k->any : &k->own;
    *other = 0;
    ep_seen right = {0};
    if (c->form == EP_CLAIM_TERM) {
        ep_measure(k->u, c->other.any_thread ? &k->any : &k->own, &s->right, -1, &right);
        *other = s->left.other = right.value;
    }
    switch (c->form) {
    case EP_CLAIM_FUSED: ep_measure_fused(k->u, scope, c->names, c->name_count, seen); break;
    case EP_CLAIM_BOUND: measure_bound(k->u, c, scope, seen); break;
    default: ep_measure(k->u, scope, &s->left, allowed(c), seen);
    }
    if (isnan(right.value)) *seen = right;
}

/* The instance that decides, once more, for its reason, note and event. */
static void look_again(work *k, const ep_claim *c, series *s, size_t instance, ep_seen *out) {
    double other;
    uint32_t row = k->instances.rows[instance];
    *out = (ep_seen){.value = NAN, .why = "memory ran out", .witness = EP_NO_INDEX};
    if (ep_scope_gather(k->u, row, false, &k->own) && ep_scope_gather(k->u, row, true, &k->any))
        measure_claim(k, c, s, out, &other);
}

static double surprise_at(const ep_claim *c, const series *s, size_t i) {
    double v = s->v[i];
    if (isnan(v)) return NAN;
    if (c->form == EP_CLAIM_FUSED) return v == 1 ? 0 : 1;
    if (c->form == EP_CLAIM_BOUND) return ((ep_regime)(int)v == c->regime) == (c->relation == EP_REL_EQ) ? 0 : 1;
    return ep_claim_surprise(c, v, s->o[i]);
}

static void say_value(const ep_claim *c, double v, double other, ep_text *out) {
    ep_dimension d = ep_metrics[c->term.metric].dimension;
    if (c->form == EP_CLAIM_BOUND)
        ep_text_add(out, ep_regime_name((ep_regime)(int)v));
    else if (c->form == EP_CLAIM_FUSED)
        ep_text_add(out, v == 1 ? "one kernel" : "no such kernel");
    else
        ep_figure_print(out, d, v);
    if (c->form != EP_CLAIM_TERM) return;
    ep_text_add(out, " against ");
    ep_figure_print(out, d, other);
}

/* "7 in each of 3 instances", "5 to 7 in 3 instances, 1 of them breaks it". */
static void say_all(const ep_claim *c, const series *s, size_t n, size_t worst, size_t broken, ep_text *out) {
    double low = INFINITY, high = -INFINITY;
    for (size_t i = 0; i < n; i++) {
        if (isnan(s->v[i])) continue;
        low = fmin(low, s->v[i]);
        high = fmax(high, s->v[i]);
    }
    bool number = c->form != EP_CLAIM_BOUND && c->form != EP_CLAIM_FUSED && c->form != EP_CLAIM_TERM;
    if (n == 1 || low == high || !number) {
        say_value(c, s->v[worst], s->o[worst], out);
        if (n > 1 && low == high && c->form != EP_CLAIM_TERM)
            ep_text_printf(out, " in each of %zu instances", n);
        else if (n > 1 && broken)
            ep_text_printf(out, " in instance %zu; %zu of %zu break it", worst + 1, broken, n);
        else if (n > 1)
            ep_text_printf(out, " at the closest of %zu instances", n);
    } else {
        ep_figure_print(out, ep_metrics[c->term.metric].dimension, low);
        ep_text_add(out, " to ");
        ep_figure_print(out, ep_metrics[c->term.metric].dimension, high);
        ep_text_printf(out, " in %zu instances", n);
        if (broken && broken < n) ep_text_printf(out, ", %zu of which break%s it", broken, broken == 1 ? "s" : "");
    }
}

static ep_status judge_median(work *k, const ep_claim *c, series *s, ep_error *err, ep_outcome *f) {
    size_t n = k->instances.count;
    double *v = ep_malloc_array(n, sizeof *v), *o = ep_malloc_array(n, sizeof *o);
    if (!v || !o) {
        free(v);
        free(o);
        return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory for %zu instances", n);
    }
    for (size_t i = 0; i < n; i++) {
        v[i] = s->v[i];
        o[i] = s->o[i];
    }
    qsort(v, n, sizeof *v, ep_compare_double);
    qsort(o, n, sizeof *o, ep_compare_double);
    double value = (v[(n - 1) / 2] + v[n / 2]) / 2, other = (o[(n - 1) / 2] + o[n / 2]) / 2;
    ep_dimension d = ep_metrics[c->term.metric].dimension;
    f->surprise = ep_claim_surprise(c, value, other);
    f->kind = f->surprise > 0 ? EP_VERDICT_BROKEN : EP_VERDICT_CONFIRMED;
    ep_text_add(&f->seen, "median ");
    ep_figure_print(&f->seen, d, value);
    if (c->form == EP_CLAIM_TERM) {
        ep_text_add(&f->seen, " against ");
        ep_figure_print(&f->seen, d, other);
    } else if (v[0] != v[n - 1]) {
        ep_text_add(&f->seen, " (");
        ep_figure_print(&f->seen, d, v[0]);
        ep_text_add(&f->seen, " to ");
        ep_figure_print(&f->seen, d, v[n - 1]);
        ep_text_char(&f->seen, ')');
    }
    ep_text_printf(&f->seen, " of %zu instance%s", n, n == 1 ? "" : "s");
    /* The instance nearest the median shows it. */
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (fabs(s->v[i] - value) < fabs(s->v[best] - value)) best = i;
    ep_seen nearest;
    look_again(k, c, s, best, &nearest);
    f->witness = nearest.witness;
    free(v);
    free(o);
    return EP_OK;
}

/* "kernels > 0" is the smallest guess: a trace without any kernel breaks it, whatever the reason. */
static bool asks_for_any(const ep_claim *c) {
    if (c->form != EP_CLAIM_VALUE || c->term.metric != EP_METRIC_KERNELS || c->change != EP_CHANGE_NONE) return false;
    double v = ep_quantity_value(c->low);
    return (c->relation == EP_REL_GT && v == 0) || (c->relation == EP_REL_GE && v == 1) ||
           (c->relation == EP_REL_NE && v == 0);
}

/* A kernel count that is wrong on the region's own thread may be right on all of them: worth saying. */
static void say_other_threads(const work *k, const ep_claim *c, series *s, double own, ep_text *out) {
    if (c->term.metric != EP_METRIC_KERNELS || c->form != EP_CLAIM_VALUE || c->term.any_thread) return;
    ep_seen any;
    if (k->own.event == EP_NO_INDEX) return;
    ep_measure(k->u, &k->any, &s->left, -1, &any);
    if (!isnan(any.value) && any.value != own) ep_text_printf(out, "; %.0f on any thread", any.value);
}

static void say_pattern(const ep_claim *c, const series *s, double v, ep_text *out) {
    const char *p = c->term.pattern;
    if (!s->left.names || v != 0 || strpbrk(p, "*?") || ep_class_by_name(p) != EP_CLASS_COUNT) return;
    ep_text_printf(out, "; no kernel has this whole name, \"*%s*\" would look inside", p);
}

static ep_status judge(work *k, const ep_claim *c, series *s, ep_error *err, ep_outcome *f) {
    size_t n = k->instances.count, worst = 0, broken = 0, unknown = n;
    double most = -1;
    ep_seen seen;
    for (size_t i = 0; i < n; i++) {
        double surprise = surprise_at(c, s, i);
        if (isnan(surprise)) {
            if (unknown == n) unknown = i;
            continue;
        }
        broken += surprise > 0;
        if (surprise > most) most = surprise, worst = i;
    }
    if (unknown < n && (broken == 0 || c->median)) {
        const ep_health *h = &k->u->facts->health;
        bool none = !h->device_recorded && h->kernels == 0 && asks_for_any(c);
        look_again(k, c, s, unknown, &seen);
        f->kind = none ? EP_VERDICT_BROKEN : EP_VERDICT_UNKNOWN;
        f->surprise = none ? 1 : 0;
        ep_text_printf(&f->seen, "%s%s", none ? "0: " : "", seen.why);
        f->witness = none ? k->instances.rows[unknown] : EP_NO_INDEX;
        return EP_OK;
    }
    if (c->median) return judge_median(k, c, s, err, f);
    look_again(k, c, s, worst, &seen);
    f->kind = broken ? EP_VERDICT_BROKEN : EP_VERDICT_CONFIRMED;
    f->surprise = broken ? most : 0;
    f->witness = seen.witness != EP_NO_INDEX ? seen.witness : k->instances.rows[worst];
    say_all(c, s, n, worst, broken, &f->seen);
    if (seen.note[0]) ep_text_printf(&f->seen, " (%s)", seen.note);
    if (!broken) return EP_OK;
    say_pattern(c, s, s->v[worst], &f->seen);
    say_other_threads(k, c, s, s->v[worst], &f->seen);
    return EP_OK;
}

static bool prepare(const ep_claim *claims, size_t count, const work *k, series *all) {
    for (size_t i = 0; i < count; i++) {
        series *s = &all[i];
        const ep_claim *c = &claims[i];
        s->v = calloc(k->instances.count + 1, sizeof *s->v);
        s->o = calloc(k->instances.count + 1, sizeof *s->o);
        if (!s->v || !s->o || !ep_matcher_create(k->u, &c->term, c->form <= EP_CLAIM_TERM ? c : NULL, &s->left) ||
            !ep_matcher_create(k->u, &c->other, NULL, &s->right))
            return false;
    }
    return true;
}

/* The claims that running sums answer. */
static bool sum_claim(const work *k, const ep_claim *c, series *s) {
    bool left = false, right = true;
    if (c->form == EP_CLAIM_FUSED) return ep_series_fused(k->u, &k->instances, c, s->v, &s->summed);
    if (c->form > EP_CLAIM_TERM) return true;
    /* Which call is the worst depends on what the instance compares it with. */
    if (c->form == EP_CLAIM_TERM && c->term.metric == EP_METRIC_OP_LAUNCHES) return true;
    if (!ep_series_sums(k->u, &k->instances, &s->left, allowed(c), s->v, &left)) return false;
    if (left && c->form == EP_CLAIM_TERM && !ep_series_sums(k->u, &k->instances, &s->right, -1, s->o, &right))
        return false;
    s->summed = left && right;
    for (size_t i = 0; s->summed && c->form == EP_CLAIM_TERM && i < k->instances.count; i++)
        if (isnan(s->o[i])) s->v[i] = NAN;
    return true;
}

static bool needs_rows(const ep_claim *c, const series *s, bool any_thread) {
    if (s->summed || c->form == EP_CLAIM_BOUND) return false;
    if (c->form == EP_CLAIM_TERM && c->other.any_thread == any_thread && !ep_metric_is_of_span(c->other.metric))
        return true;
    return c->term.any_thread == any_thread && (c->form > EP_CLAIM_TERM || !ep_metric_is_of_span(c->term.metric));
}

static bool look_at(work *k, uint32_t row, bool own, bool any) {
    ep_scope_open(k->u, row, &k->own);
    ep_scope_open(k->u, row, &k->any);
    return (!own || ep_scope_gather(k->u, row, false, &k->own)) && (!any || ep_scope_gather(k->u, row, true, &k->any));
}

static bool measure_all(const ep_claim *claims, size_t count, work *k, series *all) {
    bool own = false, any = false;
    size_t left = 0;
    for (size_t i = 0; i < count; i++) {
        if (!sum_claim(k, &claims[i], &all[i])) return false;
        own |= needs_rows(&claims[i], &all[i], false);
        any |= needs_rows(&claims[i], &all[i], true);
        left += !all[i].summed;
    }
    for (size_t at = 0; left && at < k->instances.count; at++) {
        if (!look_at(k, k->instances.rows[at], own, any)) return false;
        for (size_t i = 0; i < count; i++) {
            ep_seen seen;
            if (all[i].summed) continue;
            measure_claim(k, &claims[i], &all[i], &seen, &all[i].o[at]);
            all[i].v[at] = seen.value;
        }
    }
    return true;
}

static void judge_instances(const ep_claim *c, const ep_rows *instances, ep_outcome *f) {
    double n = instances->count == 1 && instances->rows[0] == EP_NO_INDEX ? 1 : (double)instances->count;
    f->surprise = c->form == EP_CLAIM_TERM ? NAN : ep_claim_surprise(c, n, 0);
    f->kind = isnan(f->surprise) ? EP_VERDICT_UNKNOWN : f->surprise > 0 ? EP_VERDICT_BROKEN : EP_VERDICT_CONFIRMED;
    if (isnan(f->surprise)) f->surprise = 0;
    f->witness = instances->count ? instances->rows[instances->count - 1] : EP_NO_INDEX;
    ep_text_printf(&f->seen, "%.0f", n);
}

ep_status ep_check_block(const ep_guess *g, uint32_t block, const ep_subject *u, ep_error *err, ep_outcome *findings) {
    const ep_guess_block *b = &g->blocks[block];
    work k = {.u = u};
    size_t first = 0, count = 0;
    while (first < g->claim_count && g->claims[first].block != block) first++;
    while (first + count < g->claim_count && g->claims[first + count].block == block) count++;
    const ep_claim *claims = g->claims + first;
    series *all = calloc(count + 1, sizeof *all);
    ep_status status = EP_OK;
    bool ok = all && ep_block_instances(b, u, &k.instances) && prepare(claims, count, &k, all) &&
              measure_all(claims, count, &k, all);
    if (!ok) status = ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory to check a guess");
    for (size_t i = 0; i < count && status == EP_OK; i++) {
        ep_outcome *f = &findings[first + i];
        if (claims[i].term.metric == EP_METRIC_INSTANCES && claims[i].form <= EP_CLAIM_TERM)
            judge_instances(&claims[i], &k.instances, f);
        else if (k.instances.count == 0) {
            f->kind = EP_VERDICT_UNKNOWN;
            ep_no_instances(b, u, &f->seen);
        } else
            status = judge(&k, &claims[i], &all[i], err, f);
    }
    for (size_t i = 0; all && i < count; i++) {
        free(all[i].v);
        free(all[i].o);
        ep_matcher_free(&all[i].left);
        ep_matcher_free(&all[i].right);
    }
    free(all);
    free(k.instances.rows);
    ep_scope_free(&k.own);
    ep_scope_free(&k.any);
    return status;
}
