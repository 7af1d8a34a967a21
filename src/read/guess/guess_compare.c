/* A claim of a compare block: the same figure of two traces, their names, and which ops only one of them has. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "verdict.h"

typedef struct side {
    const ep_subject *u;
    ep_rows instances;
    size_t steps; /* of a whole trace: profiler steps in it */
} side;

/* The median over the instances; of a whole trace the figure itself, by the step where `by_step`. */
static ep_status figure(const ep_claim *c, const side *s, bool by_step, ep_error *err, ep_seen *out) {
    ep_matcher m;
    ep_scope scope = {0};
    double *v = ep_malloc_array(s->instances.count, sizeof *v);
    ep_status status = EP_OK;
    *out = (ep_seen){.witness = EP_NO_INDEX};
    bool ok = ep_matcher_create(s->u, &c->term, NULL, &m) && v && ep_series(s->u, &s->instances, &m, -1, &scope, v);
    size_t shown = 0;
    while (ok && shown + 1 < s->instances.count && !isnan(v[shown])) shown++;
    /* The first that is not known gives the reason, else the last one the event. */
    ok = ok && ep_scope_gather(s->u, s->instances.rows[shown], c->term.any_thread, &scope);
    if (ok) ep_measure(s->u, &scope, &m, -1, out);
    if (!ok)
        status = ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory to compare two traces");
    else if (!isnan(out->value)) {
        size_t n = s->instances.count;
        qsort(v, n, sizeof *v, ep_compare_double);
        out->value = (v[(n - 1) / 2] + v[n / 2]) / 2;
        if (c->term.metric == EP_METRIC_INSTANCES)
            out->value = (double)n;
        else if (by_step && ep_metrics[c->term.metric].dimension != EP_DIM_SHARE)
            out->value /= (double)s->steps;
    }
    ep_matcher_free(&m);
    ep_scope_free(&scope);
    free(v);
    return status;
}

static void say_two(const ep_claim *c, double a, double b, bool by_step, ep_text *out) {
    ep_dimension d = ep_metrics[c->term.metric].dimension;
    if (c->change == EP_CHANGE_RATIO)
        ep_text_printf(out, "%.3g: ", b / a);
    else {
        if (b > a) ep_text_char(out, '+');
        ep_figure_print(out, d, b - a);
        ep_text_add(out, ": ");
    }
    ep_figure_print(out, d, a);
    ep_text_add(out, " -> ");
    ep_figure_print(out, d, b);
    if (by_step) ep_text_add(out, " a step");
}

static ep_status judge_change(const ep_claim *c, const side *a, const side *b, ep_error *err, ep_outcome *f) {
    ep_seen x, y;
    bool by_step = a->steps && b->steps && a->instances.rows[0] == EP_NO_INDEX;
    EP_TRY(figure(c, a, by_step, err, &x));
    EP_TRY(figure(c, b, by_step, err, &y));
    const ep_seen *bad = isnan(x.value) ? &x : isnan(y.value) ? &y : NULL;
    if (bad) {
        f->kind = EP_VERDICT_UNKNOWN;
        ep_text_printf(&f->seen, "%s trace: %s", bad == &x ? "first" : "second", bad->why);
        return EP_OK;
    }
    if (c->change == EP_CHANGE_RATIO && x.value == 0) {
        f->kind = EP_VERDICT_UNKNOWN;
        ep_text_add(&f->seen, "there is no ratio to 0 in the first trace");
        return EP_OK;
    }
    double v = c->change == EP_CHANGE_RATIO ? y.value / x.value : y.value - x.value;
    f->surprise = ep_claim_surprise(c, v, 0);
    f->kind = f->surprise > 0 ? EP_VERDICT_BROKEN : EP_VERDICT_CONFIRMED;
    say_two(c, x.value, y.value, by_step, &f->seen);
    f->witness = x.witness;
    return EP_OK;
}

typedef struct name_set {
    const char **names;
    uint32_t *rows;
    size_t count, cap, row_cap;
} name_set;

/* Which of the names of `t` the set lacks: by a table of the texts' numbers in the set's trace. */
static bool mark_missing(const name_set *s, const ep_trace *t, const name_set *of, uint8_t *missing) {
    uint8_t *has = calloc(t->strings.count + 1, 1);
    if (!has) return false;
    for (size_t i = 0; i < s->count; i++) has[t->name[s->rows[i]]] = 1;
    for (size_t i = 0; i < of->count; i++) {
        uint32_t id = ep_intern_find(&t->strings, of->names[i], strlen(of->names[i]));
        missing[i] = id == UINT32_MAX || !has[id];
    }
    free(has);
    return true;
}

/* The distinct names of matching kernels in all instances, each with a row that has it. */
static bool gather_names(const ep_claim *c, const side *s, name_set *out) {
    ep_matcher m;
    ep_scope scope = {0};
    const ep_facts *f = s->u->facts;
    uint32_t *row_of = ep_malloc_array(f->name_count + 1, sizeof *row_of);
    int64_t *until = ep_malloc_array(s->u->trace->lane_count + 1, sizeof *until); /* by lane: what was gone over */
    bool ok = ep_matcher_create(s->u, &c->term, NULL, &m) && row_of && until;
    if (ok) memset(row_of, 0xff, (f->name_count + 1) * sizeof *row_of);
    for (size_t i = 0; ok && i < s->u->trace->lane_count; i++) until[i] = INT64_MIN;
    for (size_t i = 0; ok && i < s->instances.count; i++) {
        uint32_t event = s->instances.rows[i];
        if (event != EP_NO_INDEX) {
            int64_t *seen = &until[s->u->trace->lane[event]], end = s->u->trace->ts[event] + s->u->trace->dur[event];
            if (end <= *seen) continue; /* inside an earlier one of its thread */
            *seen = end;
        }
        ok = ep_scope_gather(s->u, s->instances.rows[i], c->term.any_thread, &scope);
        for (size_t k = 0; ok && k < scope.work.count; k++) {
            uint32_t row = scope.work.rows[k], at = s->u->kernel_at[row];
            if (at == EP_NO_INDEX || !ep_matcher_kernel(s->u, &m, row)) continue;
            uint32_t id = f->kernels[at].name_id;
            if (row_of[id] == EP_NO_INDEX) row_of[id] = row;
        }
    }
    for (size_t id = 0; ok && id < f->name_count; id++) {
        if (row_of[id] == EP_NO_INDEX) continue;
        ok = ep_grow(&out->names, &out->cap, out->count + 1, sizeof *out->names) &&
             ep_grow(&out->rows, &out->row_cap, out->count + 1, sizeof *out->rows);
        if (!ok) break;
        out->names[out->count] = f->names[id].name;
        out->rows[out->count++] = row_of[id];
    }
    free(row_of);
    free(until);
    ep_matcher_free(&m);
    ep_scope_free(&scope);
    return ok;
}

static void say_names(const name_set *x, const name_set *y, const uint8_t *off_x, const uint8_t *off_y, ep_outcome *f) {
    size_t off = 0;
    const char *only = NULL, *where = NULL;
    for (size_t i = x->count; i-- > 0;)
        if (off_x[i]) off++, only = x->names[i], where = "first", f->witness = x->rows[i];
    for (size_t i = y->count; i-- > 0;)
        if (off_y[i]) {
            off++;
            if (!only) only = y->names[i], where = "second";
        }
    f->kind = off ? EP_VERDICT_BROKEN : EP_VERDICT_CONFIRMED;
    f->surprise = off ? log2(1 + (double)off) : 0;
    if (off)
        ep_text_printf(&f->seen, "%zu name%s in one trace only; '%.100s' in the %s", off, off == 1 ? " is" : "s are",
                       only, where);
    else
        ep_text_printf(&f->seen, "%zu name%s, byte for byte the same", x->count, x->count == 1 ? "" : "s");
}

static ep_status judge_names(const ep_claim *c, const side *a, const side *b, ep_error *err, ep_outcome *f) {
    name_set x = {0}, y = {0};
    uint8_t *off_x = NULL, *off_y = NULL;
    bool ok = gather_names(c, a, &x) && gather_names(c, b, &y);
    ok = ok && (off_x = calloc(x.count + 1, 1)) != NULL && (off_y = calloc(y.count + 1, 1)) != NULL;
    ok = ok && mark_missing(&y, b->u->trace, &x, off_x) && mark_missing(&x, a->u->trace, &y, off_y);
    ep_status status = EP_OK;
    if (!ok)
        status = ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory to compare names");
    else if (x.count + y.count == 0) {
        f->kind = EP_VERDICT_UNKNOWN;
        ep_text_add(&f->seen, "neither trace has such a kernel");
    } else
        say_names(&x, &y, off_x, off_y, f);
    free(off_x);
    free(off_y);
    free(x.names);
    free(x.rows);
    free(y.names);
    free(y.rows);
    return status;
}

static ep_status judge_presence(const ep_claim *c, const side *a, const side *b, ep_error *err, ep_outcome *f) {
    ep_claim count = *c;
    count.term.metric = EP_METRIC_OP_COUNT;
    ep_seen x, y;
    EP_TRY(figure(&count, a, false, err, &x));
    EP_TRY(figure(&count, b, false, err, &y));
    const ep_seen *there = c->form == EP_CLAIM_GONE ? &x : &y, *not_there = c->form == EP_CLAIM_GONE ? &y : &x;
    ep_text_printf(&f->seen, "%.0f -> %.0f calls", x.value, y.value);
    if (there->value == 0 && not_there->value == 0) {
        f->kind = EP_VERDICT_UNKNOWN;
        ep_text_clear(&f->seen);
        ep_text_printf(&f->seen, "neither trace has an op '%s'", c->names[0]);
        return EP_OK;
    }
    bool holds = there->value > 0 && not_there->value == 0;
    f->kind = holds ? EP_VERDICT_CONFIRMED : EP_VERDICT_BROKEN;
    f->surprise = holds ? 0 : 1;
    f->witness = x.witness;
    return EP_OK;
}

static size_t count_steps(const ep_subject *u) {
    ep_guess_block steps = {.form = EP_GUESS_REGION, .region = "ProfilerStep#*"};
    ep_rows rows = {0};
    size_t n = ep_block_instances(&steps, u, &rows) ? rows.count : 0;
    free(rows.rows);
    return n;
}

ep_status ep_check_compare(const ep_guess *g, uint32_t block, const ep_subject *a, const ep_subject *b, ep_error *err,
                           ep_outcome *findings) {
    const ep_guess_block *head = &g->blocks[block];
    side x = {.u = a, .steps = count_steps(a)}, y = {.u = b, .steps = b ? count_steps(b) : 0};
    ep_status status = EP_OK;
    if (!ep_block_instances(head, a, &x.instances) || (b && !ep_block_instances(head, b, &y.instances)))
        status = ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory to compare two traces");
    for (size_t i = 0; i < g->claim_count && status == EP_OK; i++) {
        const ep_claim *c = &g->claims[i];
        ep_outcome *f = &findings[i];
        if (c->block != block) continue;
        if (!b || !x.instances.count || !y.instances.count) {
            f->kind = EP_VERDICT_UNKNOWN;
            if (!b)
                ep_text_add(&f->seen, "this needs a second trace");
            else {
                ep_text_printf(&f->seen, "%s: ", x.instances.count ? "second" : "first");
                ep_no_instances(head, x.instances.count ? b : a, &f->seen);
            }
        } else if (c->form == EP_CLAIM_SAME_NAMES)
            status = judge_names(c, &x, &y, err, f);
        else if (c->form == EP_CLAIM_GONE || c->form == EP_CLAIM_NEW)
            status = judge_presence(c, &x, &y, err, f);
        else
            status = judge_change(c, &x, &y, err, f);
    }
    free(x.instances.rows);
    free(y.instances.rows);
    return status;
}
