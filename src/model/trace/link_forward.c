/* Backward ops and the forward ops they belong to: by the arrows of category fwdbwd, and where a trace has none, by the
 * sequence numbers that autograd gives out. */
#include "link_forward.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/sort.h"

static const char evaluate[] = "autograd::engine::evaluate_function: ";

typedef struct finder {
    const ep_trace *t;
    ep_links *l;
    uint32_t *of;        /* by row: the forward op, while they are looked for */
    const size_t *first; /* of a lane in l->order */
} finder;

static uint32_t pid_of(const ep_trace *t, uint32_t row) {
    return t->lane_count ? t->lanes[t->lane[row]].pid : 0;
}

/* The engine's span around a backward op, or the op in such a span, is that op too. */
static bool evaluates(const ep_trace *t, uint32_t outer, uint32_t inner) {
    const char *name = ep_trace_text(t, t->name[outer]);
    return strncmp(name, evaluate, sizeof evaluate - 1) == 0 &&
           strcmp(name + sizeof evaluate - 1, ep_trace_text(t, t->name[inner])) == 0;
}

/* The first place in a lane's order with a start not before ts. */
static size_t lane_place(const finder *f, uint32_t lane, int64_t ts) {
    size_t lo = f->first[lane], hi = f->first[lane + 1];
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (f->t->ts[f->l->order[mid]] < ts)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static void set_forward(const finder *f, uint32_t backward, uint32_t forward) {
    uint32_t up = f->l->parent[backward], *of = f->of;
    of[backward] = forward;
    if (up != EP_NO_INDEX && of[up] == EP_NO_INDEX && evaluates(f->t, up, backward)) of[up] = forward;
    size_t at = lane_place(f, f->t->lane[backward], f->t->ts[backward]);
    for (size_t k = at; k < f->first[f->t->lane[backward] + 1] && k < at + 8; k++) {
        uint32_t row = f->l->order[k];
        if (f->l->parent[row] == backward && of[row] == EP_NO_INDEX && evaluates(f->t, backward, row))
            of[row] = forward;
    }
}

/* The op that an end of an arrow points at: one that starts there (`inner`: the innermost, else the outermost of them), or
 * the innermost around it. */
static uint32_t op_at(const finder *f, uint32_t lane, int64_t ts, bool inner) {
    const ep_trace *t = f->t;
    size_t from = lane_place(f, lane, ts), k = from;
    uint32_t found = EP_NO_INDEX;
    for (; k < f->first[lane + 1] && t->ts[f->l->order[k]] == ts; k++)
        if (t->kind[f->l->order[k]] == EP_EVENT_OP && (inner || found == EP_NO_INDEX)) found = f->l->order[k];
    if (found != EP_NO_INDEX || from == f->first[lane]) return found;
    for (uint32_t row = f->l->order[from - 1]; row != EP_NO_INDEX; row = f->l->parent[row])
        if (t->kind[row] == EP_EVENT_OP && t->ts[row] + t->dur[row] > ts) return row;
    return EP_NO_INDEX;
}

static bool flow_before(const void *user, uint32_t a, uint32_t b) {
    const ep_trace *t = user;
    uint32_t x = pid_of(t, a), y = pid_of(t, b);
    if (x != y) return x < y;
    if (ep_trace_correlation(t, a) != ep_trace_correlation(t, b))
        return ep_trace_correlation(t, a) < ep_trace_correlation(t, b);
    return t->phase[a] != t->phase[b] ? t->phase[a] == 's' : t->ts[a] < t->ts[b];
}

/* Arrows sorted by (process, id): each end behind its start. */
static bool by_flows(const finder *f) {
    const ep_trace *t = f->t;
    size_t n = 0, cap = 0;
    uint32_t *rows = NULL, category = ep_intern_find(&t->strings, "fwdbwd", 6);
    for (size_t i = 0; category != EP_NO_INDEX && i < t->count; i++) {
        if (t->kind[i] != EP_EVENT_FLOW || t->category[i] != category) continue;
        if (!ep_grow(&rows, &cap, n + 1, sizeof *rows)) {
            free(rows);
            return false;
        }
        rows[n++] = (uint32_t)i;
    }
    bool ok = n == 0 || ep_sort_rows(rows, n, flow_before, t);
    uint32_t start = EP_NO_INDEX;
    for (size_t k = 0; ok && k < n; k++) {
        uint32_t i = rows[k];
        if (t->phase[i] == 's') start = i;
        bool same = start != EP_NO_INDEX && pid_of(t, start) == pid_of(t, i) &&
                    ep_trace_correlation(t, start) == ep_trace_correlation(t, i);
        if (t->phase[i] != 'f' || !same) continue;
        uint32_t forward = op_at(f, t->lane[start], t->ts[start], true), back = op_at(f, t->lane[i], t->ts[i], false);
        if (forward != EP_NO_INDEX && back != EP_NO_INDEX && forward != back) set_forward(f, back, forward);
    }
    free(rows);
    return ok;
}

static bool sequence_before(const void *user, uint32_t a, uint32_t b) {
    const ep_trace *t = user;
    const ep_sequence *x = &t->sequences[a], *y = &t->sequences[b];
    uint32_t p = pid_of(t, x->row), q = pid_of(t, y->row);
    if (p != q) return p < q;
    if (x->number != y->number) return x->number < y->number;
    if (t->lane[x->row] != t->lane[y->row]) return t->lane[x->row] < t->lane[y->row];
    return t->ts[x->row] < t->ts[y->row];
}

/* Numbers count per thread, and "Fwd thread id" is no tid: the lane that holds the numbers of most of a thread's backward
 * ops is that thread's. */
enum { VOTES_MAX = 64, LANES_MAX = 16 };
typedef struct vote {
    uint32_t pid, thread, lane;
    size_t count;
} vote;
typedef struct forwards {
    uint32_t *rows; /* sequences[] of forward ops, sorted */
    size_t count;
    vote *votes;
    size_t vote_count, vote_cap;
} forwards;

/* The first forward op not before (pid and number of `s`, lane, ts). */
static size_t place_of(const ep_trace *t, const forwards *w, const ep_sequence *s, uint32_t lane, int64_t ts) {
    size_t lo = 0, hi = w->count;
    uint32_t pid = pid_of(t, s->row);
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        const ep_sequence *m = &t->sequences[w->rows[mid]];
        uint32_t p = pid_of(t, m->row), l = t->lane[m->row];
        bool less = p != pid                 ? p < pid
                    : m->number != s->number ? m->number < s->number
                    : l != lane              ? l < lane
                                             : t->ts[m->row] < ts;
        if (less)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* The forward ops of a number, one a lane: the last to start, which is the one that made the backward op. *lane: where to
 * look next. */
static uint32_t next_lane(const ep_trace *t, const forwards *w, const ep_sequence *s, uint32_t *lane) {
    for (int lanes = 0; lanes < LANES_MAX; lanes++) {
        size_t at = place_of(t, w, s, *lane, INT64_MIN);
        if (at == w->count) return EP_NO_INDEX;
        const ep_sequence *m = &t->sequences[w->rows[at]];
        if (pid_of(t, m->row) != pid_of(t, s->row) || m->number != s->number) return EP_NO_INDEX;
        uint32_t its = t->lane[m->row];
        size_t behind = place_of(t, w, s, its, t->ts[s->row]);
        *lane = its + 1;
        if (behind > at) return t->sequences[w->rows[behind - 1]].row;
    }
    return EP_NO_INDEX;
}

static bool add_vote(forwards *w, uint32_t pid, uint32_t thread, uint32_t lane) {
    for (size_t i = 0; i < w->vote_count; i++) {
        vote *v = &w->votes[i];
        if (v->pid != pid || v->thread != thread || v->lane != lane) continue;
        v->count++;
        return true;
    }
    if (w->vote_count == VOTES_MAX) return true;
    if (!ep_grow(&w->votes, &w->vote_cap, w->vote_count + 1, sizeof *w->votes)) return false;
    w->votes[w->vote_count++] = (vote){pid, thread, lane, 1};
    return true;
}

static uint32_t lane_voted(const forwards *w, uint32_t pid, uint32_t thread) {
    const vote *best = NULL;
    bool tie = false;
    for (size_t i = 0; i < w->vote_count; i++) {
        const vote *v = &w->votes[i];
        if (v->pid != pid || v->thread != thread) continue;
        if (best && v->count < best->count) continue; /* a weaker vote breaks no tie */
        tie = best && v->count == best->count;
        best = v;
    }
    return best && !tie ? best->lane : EP_NO_INDEX;
}

static bool backward_one(const finder *f, forwards *w, const ep_sequence *s, bool voting) {
    const ep_trace *t = f->t;
    uint32_t row, from = 0;
    if (!voting) {
        from = lane_voted(w, pid_of(t, s->row), s->forward_thread);
        row = from == EP_NO_INDEX ? EP_NO_INDEX : next_lane(t, w, s, &from);
        if (row != EP_NO_INDEX && t->lane[row] + 1 == from && f->of[s->row] == EP_NO_INDEX) set_forward(f, s->row, row);
        return true;
    }
    while ((row = next_lane(t, w, s, &from)) != EP_NO_INDEX)
        if (!add_vote(w, pid_of(t, s->row), s->forward_thread, t->lane[row])) return false;
    return true;
}

static bool by_sequence(const finder *f) {
    const ep_trace *t = f->t;
    forwards w = {.rows = ep_malloc_array(t->sequence_count, sizeof *w.rows)};
    bool ok = w.rows != NULL;
    for (size_t i = 0; ok && i < t->sequence_count; i++)
        if (!t->sequences[i].forward_thread && ep_event_is_span(t, t->sequences[i].row))
            w.rows[w.count++] = (uint32_t)i;
    ok = ok && ep_sort_rows(w.rows, w.count, sequence_before, t);
    for (int pass = 0; ok && pass < 2; pass++)
        for (size_t i = 0; ok && i < t->sequence_count; i++)
            if (t->sequences[i].forward_thread && ep_event_is_span(t, t->sequences[i].row))
                ok = backward_one(f, &w, &t->sequences[i], pass == 0);
    free(w.rows);
    free(w.votes);
    return ok;
}

bool link_forward(const ep_trace *t, ep_links *l, const size_t *first) {
    bool any = t->sequence_count > 0 || ep_intern_find(&t->strings, "fwdbwd", 6) != EP_NO_INDEX;
    if (!any || t->count == 0) return true;
    finder f = {t, l, ep_malloc_array(t->count, sizeof(uint32_t)), first};
    if (!f.of) return false;
    memset(f.of, 0xff, t->count * sizeof *f.of);
    bool ok = by_flows(&f) && (t->sequence_count == 0 || by_sequence(&f));
    for (uint32_t i = 0; ok && i < t->count; i++) {
        if (f.of[i] == EP_NO_INDEX) continue;
        ok = ep_grow(&l->forwards, &l->forward_cap, l->forward_count + 1, sizeof *l->forwards);
        if (ok) l->forwards[l->forward_count++] = (ep_row_pair){i, f.of[i]};
    }
    free(f.of);
    return ok;
}
