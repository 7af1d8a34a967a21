/* Claims against traces: a verdict each, the biggest surprise first, and the event that broke it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "verdict.h"

static const char *keep(ep_arena *a, const char *text) {
    return ep_arena_copy(a, text, strlen(text));
}

/* "device 0, stream 7" or "thread 412 of process 412". */
static void print_lane(const ep_subject *u, uint32_t row, ep_text *out) {
    const ep_trace *t = u->trace;
    const ep_lane *lane = &t->lanes[t->lane[row]];
    if (ep_event_is_device_work(t->kind[row])) {
        ep_text_printf(out, "device %lld, stream %lld", (long long)lane->device, (long long)lane->stream);
        return;
    }
    ep_text_printf(out, "thread %s of process %s", ep_trace_text(t, lane->tid), ep_trace_text(t, lane->pid));
}

static bool fill_event(const ep_subject *u, uint32_t row, ep_arena *arena, ep_verdict_row *r) {
    const ep_trace *t = u->trace;
    ep_text lane = {0}, text = {0};
    print_lane(u, row, &lane);
    r->event_name = ep_trace_text(t, t->name[row]);
    r->event_us = (double)(t->ts[row] - u->facts->span_start_ns) / 1e3;
    r->event_lane = keep(arena, ep_text_str(&lane));
    ep_text_printf(&text, "%.160s at %.3f us on %s", r->event_name, r->event_us, ep_text_str(&lane));
    r->v.event = keep(arena, ep_text_str(&text));
    r->v.event_index = row;
    /* The name must outlive the trace. */
    r->event_name = keep(arena, r->event_name);
    bool ok = !lane.failed && !text.failed && r->v.event && r->event_lane && r->event_name;
    ep_text_free(&lane);
    ep_text_free(&text);
    return ok;
}

static bool fill_row(const ep_guess *g, const ep_claim *c, ep_outcome *f, const ep_subject *u, ep_arena *arena,
                     ep_verdict_row *r) {
    ep_text claim = {0}, expected = {0};
    const ep_guess_block *b = &g->blocks[c->block];
    if (b->form == EP_GUESS_COMPARE) ep_text_add(&claim, "compare");
    if (b->form == EP_GUESS_COMPARE && b->region) ep_text_char(&claim, ' ');
    if (b->region) ep_text_add(&claim, b->region);
    if (claim.len) ep_text_add(&claim, ": ");
    ep_text_add(&claim, c->text);
    ep_claim_expected(&expected, c);
    *r = (ep_verdict_row){.v = {.kind = f->kind, .line = c->line, .surprise = f->surprise, .event_index = -1}};
    r->v.claim = keep(arena, ep_text_str(&claim));
    r->v.expected = keep(arena, ep_text_str(&expected));
    r->v.seen = keep(arena, ep_text_str(&f->seen));
    r->block = keep(arena, b->head);
    r->text = keep(arena, c->text);
    bool ok = !claim.failed && !expected.failed && !f->seen.failed && r->v.claim && r->v.expected && r->v.seen &&
              r->block && r->text;
    ep_text_free(&claim);
    ep_text_free(&expected);
    if (ok && f->kind == EP_VERDICT_BROKEN && f->witness != EP_NO_INDEX) ok = fill_event(u, f->witness, arena, r);
    return ok;
}

static int by_surprise(const void *a, const void *b) {
    const ep_verdict_row *x = a, *y = b;
    static const int rank[] = {[EP_VERDICT_BROKEN] = 0, [EP_VERDICT_UNKNOWN] = 1, [EP_VERDICT_CONFIRMED] = 2};
    if (rank[x->v.kind] != rank[y->v.kind]) return rank[x->v.kind] - rank[y->v.kind];
    if (x->v.surprise != y->v.surprise) return x->v.surprise < y->v.surprise ? 1 : -1;
    return x->v.line - y->v.line;
}

static ep_status find_all(const ep_guess *g, const ep_subject *a, const ep_subject *b, ep_error *err,
                          ep_outcome *findings) {
    for (size_t i = 0; i < g->claim_count; i++) findings[i].witness = EP_NO_INDEX;
    for (uint32_t block = 0; block < g->block_count; block++)
        EP_TRY(g->blocks[block].form == EP_GUESS_COMPARE ? ep_check_compare(g, block, a, b, err, findings)
                                                         : ep_check_block(g, block, a, err, findings));
    return EP_OK;
}

static ep_status make_rows(const ep_guess *g, ep_outcome *findings, const ep_subject *a, ep_error *err,
                           ep_verdicts *v) {
    for (size_t i = 0; i < g->claim_count; i++) {
        if (!fill_row(g, &g->claims[i], &findings[i], a, &v->arena, &v->rows[i]))
            return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory for the verdicts");
        v->totals[findings[i].kind]++;
        v->count++;
    }
    if (v->count) qsort(v->rows, v->count, sizeof *v->rows, by_surprise);
    return ep_verdicts_write(v, err);
}

static bool needs_study(const ep_guess *g) {
    for (size_t i = 0; i < g->claim_count; i++)
        if (g->claims[i].form == EP_CLAIM_BOUND || g->claims[i].term.metric == EP_METRIC_RECOMPILES) return true;
    return false;
}

ep_status ep_guess_check(const ep_guess *guess, const ep_trace *a, const ep_trace *b, ep_error *err,
                         ep_verdicts **out) {
    if (!guess || !a || !out)
        return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "guess, trace and result must not be NULL");
    ep_subject first = {0}, second = {0};
    ep_outcome *findings = calloc(guess->claim_count + 1, sizeof *findings);
    ep_verdicts *v = calloc(1, sizeof *v);
    ep_status status = EP_OK;
    if (v) v->rows = calloc(guess->claim_count + 1, sizeof *v->rows);
    if (!findings || !v || !v->rows) status = ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory for the verdicts");
    if (status == EP_OK) status = ep_subject_create(a, needs_study(guess), err, &first);
    if (status == EP_OK && b) status = ep_subject_create(b, needs_study(guess), err, &second);
    if (status == EP_OK) status = find_all(guess, &first, b ? &second : NULL, err, findings);
    if (status == EP_OK) status = make_rows(guess, findings, &first, err, v);
    for (size_t i = 0; findings && i < guess->claim_count; i++) ep_text_free(&findings[i].seen);
    free(findings);
    if (first.facts) ep_subject_free(&first);
    if (second.facts) ep_subject_free(&second);
    if (status != EP_OK) {
        ep_verdicts_destroy(v);
        return status;
    }
    *out = v;
    return EP_OK;
}

void ep_verdicts_destroy(ep_verdicts *verdicts) {
    if (!verdicts) return;
    ep_arena_free(&verdicts->arena);
    free(verdicts->rows);
    free(verdicts->text);
    free(verdicts->json);
    free(verdicts->junit);
    free(verdicts->github);
    free(verdicts);
}

size_t ep_verdicts_count(const ep_verdicts *v) {
    return v->count;
}

ep_status ep_verdicts_get(const ep_verdicts *v, size_t index, ep_verdict *out) {
    if (!v || !out) return EP_ERROR_INVALID_ARGUMENT;
    if (index >= v->count) return EP_ERROR_NOT_FOUND;
    *out = v->rows[index].v;
    return EP_OK;
}

void ep_verdicts_totals(const ep_verdicts *v, size_t *confirmed, size_t *broken, size_t *unknown) {
    if (confirmed) *confirmed = v->totals[EP_VERDICT_CONFIRMED];
    if (broken) *broken = v->totals[EP_VERDICT_BROKEN];
    if (unknown) *unknown = v->totals[EP_VERDICT_UNKNOWN];
}
