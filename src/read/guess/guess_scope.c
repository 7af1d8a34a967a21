/* What ran in an instance of a region, and which names a pattern means. */
#include "measure.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/sort.h"

ep_status ep_subject_create(const ep_trace *t, bool study, ep_error *err, ep_subject *out) {
    ep_subject s = {.trace = t};
    ep_status status = study ? ep_study_create(t, NULL, NULL, err, &s.study) : ep_facts_create(t, err, &s.facts);
    if (status == EP_OK && study) {
        s.facts = s.study->facts;
        status = ep_study_run(s.study, err);
    }
    if (status != EP_OK) {
        ep_subject_free(&s);
        return status;
    }
    const ep_links *l = s.facts->links;
    s.lane_first = calloc(t->lane_count + 1, sizeof *s.lane_first);
    s.kernel_at = ep_malloc_array(t->count, sizeof *s.kernel_at);
    s.regime_of = calloc(t->strings.count + 1, sizeof *s.regime_of);
    s.processes = calloc(1, sizeof *s.processes);
    if (!s.lane_first || !s.kernel_at || !s.regime_of || !s.processes) {
        ep_subject_free(&s);
        return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory to check a trace of %zu events", t->count);
    }
    for (size_t i = 0; i < l->order_count; i++) s.lane_first[t->lane[l->order[i]] + 1]++;
    for (size_t i = 0; i < t->lane_count; i++) s.lane_first[i + 1] += s.lane_first[i];
    memset(s.kernel_at, 0xff, t->count * sizeof *s.kernel_at);
    for (size_t k = 0; k < s.facts->kernel_count; k++) s.kernel_at[s.facts->kernels[k].event] = (uint32_t)k;
    for (size_t i = 0; s.study && i < s.study->regime_count; i++) {
        const char *name = s.study->regimes[i].name;
        uint32_t id = ep_intern_find(&t->strings, name, strlen(name));
        if (id != UINT32_MAX) s.regime_of[id] = (uint32_t)i + 1;
    }
    *out = s;
    return EP_OK;
}

void ep_subject_free(ep_subject *s) {
    if (s->study)
        ep_study_destroy(s->study);
    else
        ep_facts_destroy(s->facts);
    free(s->lane_first);
    free(s->kernel_at);
    free(s->regime_of);
    if (s->processes) {
        free(s->processes->rows);
        free(s->processes->first);
    }
    free(s->processes);
    memset(s, 0, sizeof *s);
}

static bool add_row(ep_rows *r, uint32_t row) {
    if (!ep_grow(&r->rows, &r->cap, r->count + 1, sizeof *r->rows)) return false;
    r->rows[r->count++] = row;
    return true;
}

static bool add_call(const ep_subject *u, uint32_t row, ep_scope *s) {
    const ep_links *l = u->facts->links;
    if (!add_row(&s->calls, row)) return false;
    for (uint32_t i = 0, n = ep_links_work_count(l, row); i < n; i++)
        if (!add_row(&s->work, l->work_list[l->first_work[row] + i])) return false;
    return true;
}

static bool add_host_row(const ep_subject *u, uint32_t row, ep_scope *s) {
    switch (u->trace->kind[row]) {
    case EP_EVENT_OP: return add_row(&s->ops, row);
    case EP_EVENT_RUNTIME: return add_call(u, row, s);
    default: return true;
    }
}

static bool is_host_row(const ep_trace *t, uint32_t row) {
    return t->kind[row] == EP_EVENT_OP || t->kind[row] == EP_EVENT_RUNTIME;
}

static bool process_order(const void *user, uint32_t a, uint32_t b) {
    const ep_trace *t = user;
    uint32_t x = t->lanes[t->lane[a]].pid, y = t->lanes[t->lane[b]].pid;
    return x != y ? x < y : t->ts[a] < t->ts[b];
}

static bool lane_order(const void *user, uint32_t a, uint32_t b) {
    const ep_trace *t = user;
    return t->lane[a] < t->lane[b];
}

const ep_timeline *ep_subject_processes(const ep_subject *u) {
    const ep_trace *t = u->trace;
    const ep_links *l = u->facts->links;
    ep_timeline *p = u->processes;
    if (p->built) return p;
    size_t n = 0, pids = t->strings.count;
    for (size_t i = 0; i < l->order_count; i++) n += is_host_row(t, l->order[i]);
    if (!p->rows) p->rows = ep_malloc_array(n + 1, sizeof *p->rows);
    if (!p->first) p->first = calloc(pids + 2, sizeof *p->first);
    if (!p->rows || !p->first) return NULL;
    n = 0;
    for (size_t i = 0; i < l->order_count; i++)
        if (is_host_row(t, l->order[i])) p->rows[n++] = l->order[i];
    if (!ep_sort_rows(p->rows, n, process_order, t)) return NULL;
    for (size_t i = 0; i < n; i++) p->first[t->lanes[t->lane[p->rows[i]]].pid + 1]++;
    for (size_t i = 0; i <= pids; i++) p->first[i + 1] += p->first[i];
    p->built = 1;
    return p;
}

size_t ep_first_at(const ep_trace *t, const uint32_t *rows, size_t low, size_t high, int64_t ts) {
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (t->ts[rows[middle]] < ts)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool gather_rows(const ep_subject *u, const uint32_t *rows, size_t n, ep_scope *s) {
    s->looked_at += n;
    for (size_t i = 0; i < n; i++)
        if (rows[i] != s->event && !add_host_row(u, rows[i], s)) return false;
    return true;
}

/* The part of a lane that starts in [s->start, s->end). */
static bool gather_lane(const ep_subject *u, uint32_t lane, ep_scope *s) {
    const uint32_t *order = u->facts->links->order;
    size_t low = u->lane_first[lane], high = u->lane_first[lane + 1];
    low = ep_first_at(u->trace, order, low, high, s->start);
    return gather_rows(u, order + low, ep_first_at(u->trace, order, low, high, s->end) - low, s);
}

/* The part of a process, one thread after the other. */
static bool gather_process(const ep_subject *u, uint32_t pid, ep_scope *s) {
    const ep_timeline *p = ep_subject_processes(u);
    if (!p) return false;
    size_t low = ep_first_at(u->trace, p->rows, p->first[pid], p->first[pid + 1], s->start);
    size_t n = ep_first_at(u->trace, p->rows, low, p->first[pid + 1], s->end) - low;
    uint32_t *rows = ep_malloc_array(n + 1, sizeof *rows);
    bool ok = rows != NULL;
    if (ok && n) memcpy(rows, p->rows + low, n * sizeof *rows);
    ok = ok && ep_sort_rows(rows, n, lane_order, u->trace) && gather_rows(u, rows, n, s);
    free(rows);
    return ok;
}

static bool gather_trace(const ep_subject *u, ep_scope *s) {
    const ep_links *l = u->facts->links;
    s->looked_at += l->order_count;
    for (size_t i = 0; i < l->order_count; i++) {
        uint32_t row = l->order[i];
        uint8_t kind = u->trace->kind[row];
        bool ok = true;
        if (kind == EP_EVENT_RUNTIME)
            ok = add_row(&s->calls, row);
        else if (ep_event_is_device_work(kind))
            ok = add_row(&s->work, row);
        else
            ok = add_host_row(u, row, s);
        if (!ok) return false;
    }
    return true;
}

void ep_scope_open(const ep_subject *u, uint32_t event, ep_scope *s) {
    const ep_trace *t = u->trace;
    s->ops.count = s->calls.count = s->work.count = 0;
    s->event = event;
    s->start = event == EP_NO_INDEX ? u->facts->span_start_ns : t->ts[event];
    s->end = event == EP_NO_INDEX ? u->facts->span_end_ns : s->start + (t->dur[event] > 0 ? t->dur[event] : 0);
}

bool ep_scope_gather(const ep_subject *u, uint32_t event, bool any_thread, ep_scope *s) {
    ep_scope_open(u, event, s);
    s->any_thread = any_thread;
    if (event == EP_NO_INDEX) return gather_trace(u, s);
    uint32_t own = u->trace->lane[event];
    return any_thread ? gather_process(u, u->trace->lanes[own].pid, s) : gather_lane(u, own, s);
}

void ep_scope_free(ep_scope *s) {
    free(s->ops.rows);
    free(s->calls.rows);
    free(s->work.rows);
    memset(s, 0, sizeof *s);
}

ep_kernel_class ep_class_by_name(const char *name) {
    for (int c = 0; c < EP_CLASS_COUNT; c++)
        if (strcmp(ep_kernel_class_name((ep_kernel_class)c), name) == 0) return (ep_kernel_class)c;
    return EP_CLASS_COUNT;
}

bool ep_op_name_matches(const char *pattern, const char *name) {
    if (ep_glob(pattern, name)) return true;
    const char *colons = strstr(name, "::");
    if (!colons) colons = name - 2;
    const char *plain = colons + 2;
    if (!strstr(pattern, "::") && ep_glob(pattern, plain)) return true;
    /* gelu is also gelu_tanh and gelu_erf; mul is also mul_. */
    size_t n = strlen(pattern);
    if (strncmp(plain, pattern, n) != 0) return false;
    return strcmp(plain + n, "_tanh") == 0 || strcmp(plain + n, "_erf") == 0 || strcmp(plain + n, "_") == 0;
}

bool ep_matcher_create(const ep_subject *u, const ep_term *t, const ep_claim *claim, ep_matcher *m) {
    *m = (ep_matcher){.term = t, .claim = claim};
    if (!t->pattern) return true;
    ep_filter filter = ep_metrics[t->metric].filter;
    if (t->metric == EP_METRIC_OP_DEVICE_TIME) {
        m->within = calloc(u->trace->count + 1, 1);
        if (!m->within) return false;
    }
    if (filter == EP_FILTER_OP || filter == EP_FILTER_OPS) {
        m->texts = calloc(u->trace->strings.count + 1, 1);
        return m->texts != NULL;
    }
    const ep_facts *f = u->facts;
    m->names = calloc(f->name_count + 1, 1);
    if (!m->names) return false;
    ep_kernel_class cls = ep_class_by_name(t->pattern);
    for (size_t i = 0; i < f->name_count; i++)
        m->names[i] = cls != EP_CLASS_COUNT
                          ? f->names[i].cls == cls
                          : strcmp(t->pattern, f->names[i].name) == 0 || ep_glob(t->pattern, f->names[i].name);
    return true;
}

void ep_matcher_free(ep_matcher *m) {
    free(m->names);
    free(m->texts);
    free(m->within);
    memset(m, 0, sizeof *m);
}

bool ep_matcher_kernel(const ep_subject *u, const ep_matcher *m, uint32_t row) {
    if (!m->names) return true;
    uint32_t k = u->kernel_at[row];
    return k != EP_NO_INDEX && m->names[u->facts->kernels[k].name_id];
}

bool ep_matcher_op(const ep_subject *u, ep_matcher *m, uint32_t row) {
    if (!m->texts) return true;
    uint32_t id = u->trace->name[row];
    if (m->texts[id] == 0) m->texts[id] = ep_op_name_matches(m->term->pattern, ep_trace_text(u->trace, id)) ? 1 : 2;
    return m->texts[id] == 1;
}

/* Every op on the way up is answered with it, so that deep stacks are climbed once. */
bool ep_matcher_within(const ep_subject *u, ep_matcher *m, uint32_t work) {
    const ep_links *l = u->facts->links;
    uint32_t first = ep_links_owner(l, work), top = first;
    uint8_t answer = 0;
    while (top != EP_NO_INDEX && !answer) {
        answer = m->within[top];
        if (!answer && u->trace->kind[top] == EP_EVENT_OP && ep_matcher_op(u, m, top)) answer = 1;
        if (!answer) top = l->parent[top];
    }
    if (!answer) answer = 2;
    for (uint32_t row = first; row != top; row = l->parent[row]) m->within[row] = answer;
    if (top != EP_NO_INDEX) m->within[top] = answer;
    return answer == 1;
}

static bool lower(char c) {
    return c >= 'a' && c <= 'z';
}

static bool upper(char c) {
    return c >= 'A' && c <= 'Z';
}

/* Does `name` hold `word` (lower case) by itself: between characters that are no letters, or as a hump of a camel's
 * name (GeluCUDAKernel holds gelu, CUDAFunctor_add holds add, matmul does not hold mul)? */
static bool holds_word(const char *name, const char *word) {
    size_t n = strlen(word);
    for (const char *at = name; *at; at++) {
        size_t i = 0;
        while (i < n && at[i] && (upper(at[i]) ? (char)(at[i] + 32) : at[i]) == word[i]) i++;
        if (i < n) continue;
        char before = at == name ? '_' : at[-1];
        bool starts = (!lower(before) && !upper(before)) || (lower(before) && upper(at[0]));
        if (starts && !lower(at[n])) return true;
    }
    return false;
}

/* Words that stand for several ops. */
static const struct {
    const char *word, *parts[3];
} meanings[] = {
    {"geglu", {"gelu", "mul", NULL}}, {"swiglu", {"silu", "mul", NULL}},    {"reglu", {"relu", "mul", NULL}},
    {"addmm", {"mm", "add", "bias"}}, {"gemm", {"mm", "matmul", "linear"}},
};

static bool word_does(const char *name, const char *op) {
    if (holds_word(name, op)) return true;
    for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++)
        for (int k = 0; k < 3 && meanings[i].parts[k]; k++)
            if (strcmp(meanings[i].parts[k], op) == 0 && holds_word(name, meanings[i].word)) return true;
    return false;
}

/* By its name, by its class, or because it is the op's own kernel. */
static bool kernel_does(const ep_subject *u, uint32_t row, const char *op) {
    const ep_kernel_fact *k = &u->facts->kernels[u->kernel_at[row]];
    const char *plain = strstr(op, "::") ? strstr(op, "::") + 2 : op;
    if (word_does(u->facts->names[k->name_id].name, plain)) return true;
    if (u->facts->names[k->name_id].cls == EP_CLASS_GEMM &&
        (strcmp(plain, "mm") == 0 || strcmp(plain, "gemm") == 0 || strcmp(plain, "matmul") == 0 ||
         strcmp(plain, "linear") == 0))
        return true;
    uint32_t op_row = ep_links_owner(u->facts->links, row);
    if (op_row == EP_NO_INDEX) return false;
    const char *owner = ep_trace_text(u->trace, u->trace->name[op_row]);
    if (ep_op_name_matches(op, owner)) return true;
    const char *colons = strstr(owner, "::");
    /* The kernel of an addmm does the add only if no other kernel of the addmm does it. */
    return u->facts->names[k->name_id].cls == EP_CLASS_GEMM && word_does(colons ? colons + 2 : owner, plain);
}

int ep_kernel_does(const ep_subject *u, uint32_t row, const char *const *names, int count) {
    int does = 0;
    if (u->trace->kind[row] != EP_EVENT_KERNEL || u->kernel_at[row] == EP_NO_INDEX) return 0;
    for (int k = 0; k < count; k++) does += kernel_does(u, row, names[k]);
    return does;
}

static void note_name(const ep_subject *u, uint32_t row, char *out, size_t size, const char *before,
                      const char *after) {
    snprintf(out, size, "%s%.60s%s", before, ep_trace_text(u->trace, u->trace->name[row]), after);
}

void ep_measure_fused(const ep_subject *u, const ep_scope *s, const char *const *names, int count, ep_seen *out) {
    *out = (ep_seen){.witness = EP_NO_INDEX};
    uint32_t some = EP_NO_INDEX, all = EP_NO_INDEX;
    for (size_t i = 0; i < s->work.count && all == EP_NO_INDEX; i++) {
        uint32_t row = s->work.rows[i];
        int does = ep_kernel_does(u, row, names, count);
        if (does == count)
            all = row;
        else if (does && some == EP_NO_INDEX)
            some = row;
    }
    if (all != EP_NO_INDEX) {
        out->value = 1;
        out->witness = all;
        note_name(u, all, out->note, sizeof out->note, "", " names them all");
    } else if (!u->facts->health.device_recorded) {
        out->value = NAN;
        snprintf(out->why, sizeof out->why, "no device events were recorded");
    } else if (some != EP_NO_INDEX) {
        out->witness = some;
        note_name(u, some, out->note, sizeof out->note, "", " is a kernel of its own");
    } else {
        out->value = NAN;
        snprintf(out->why, sizeof out->why, "no kernel here names any of these ops");
    }
}
