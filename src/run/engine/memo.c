/* Bindings by the hash of their inputs' facts, entries by what was generated for them. */
#include "memo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

ep_binding *ep_memo_find(ep_memo *m, int input_count, const ep_tensor *const *inputs, uint64_t hash) {
    for (int i = 0; i < m->count; i++) {
        if (m->hashes[i] != hash) continue;
        ep_binding *b = m->bindings[i];
        bool same = true;
        for (int k = 0; same && k < input_count; k++) same = ep_fact_holds(&b->facts[k], inputs[k]);
        if (!same) continue;
        b->used = ++m->tick;
        return b;
    }
    return NULL;
}

void ep_binding_release_packs(ep_binding *b, int at) {
    for (int k = 0; b->packs && k < EP_TUNED_PRODUCTS; k++) {
        ep_pack **p = &b->packs[at * EP_TUNED_PRODUCTS + k];
        if (*p) (*p)->users--;
        *p = NULL;
    }
}

void ep_binding_destroy(ep_binding *b) {
    if (!b) return;
    for (int i = 0; i < EP_RUNNERS; i++) ep_plan_destroy(b->plans[i]);
    ep_plan_destroy(b->meanwhile);
    for (int i = 0; i < b->attach_count; i++) ep_binding_release_packs(b, i);
    free(b->unit_of);
    free(b->attaches);
    free(b->packs);
    if (b->from) b->from->bindings--;
    free(b->symbols);
    free(b->facts);
    free(b->loops);
    free(b->kernels);
    free(b);
}

ep_template *ep_memo_template(ep_memo *m, int input_count, const ep_fact *facts, int64_t **symbols) {
    for (size_t i = m->template_count; i-- > 0;) { /* the newest is the likeliest */
        ep_template *t = m->templates[i];
        const ep_graph *g = t->captured.graph;
        int64_t *values = malloc(sizeof *values * (g->symbol_count + 1));
        if (!values) return NULL;
        if (ep_guard_match(g, input_count, facts, values)) {
            t->used = ++m->tick;
            *symbols = values;
            return t;
        }
        free(values);
    }
    return NULL;
}

static void end_template(ep_template *t) {
    ep_captured_clear(&t->captured);
    free(t);
}

ep_template *ep_memo_add_template(ep_memo *m, ep_captured *c) {
    ep_template *t = calloc(1, sizeof *t);
    if (!t || !ep_grow(&m->templates, &m->template_cap, m->template_count + 1, sizeof *m->templates)) {
        free(t);
        ep_captured_clear(c);
        return NULL;
    }
    size_t oldest = m->template_count;
    for (size_t i = 0; i < m->template_count; i++)
        if (!m->templates[i]->bindings &&
            (oldest == m->template_count || m->templates[i]->used < m->templates[oldest]->used))
            oldest = i;
    t->captured = *c;
    t->used = ++m->tick;
    memset(c, 0, sizeof *c);
    if (m->template_count >= EP_MEMO_TEMPLATES && oldest < m->template_count) {
        end_template(m->templates[oldest]);
        memmove(&m->templates[oldest], &m->templates[oldest + 1],
                sizeof *m->templates * (m->template_count - oldest - 1));
        m->template_count--;
    }
    return m->templates[m->template_count++] = t;
}

void ep_memo_add(ep_memo *m, ep_binding *b, uint64_t hash) {
    int at = m->count;
    if (at == EP_MEMO_BINDINGS) {
        at = 0;
        for (int i = 1; i < m->count; i++)
            if (m->bindings[i]->used < m->bindings[at]->used) at = i;
        ep_binding_destroy(m->bindings[at]);
    } else {
        m->count++;
    }
    b->used = ++m->tick;
    m->bindings[at] = b;
    m->hashes[at] = hash;
}

static int differences(int count, const ep_fact *a, const ep_fact *b) {
    int n = 0;
    for (int k = 0; k < count; k++) {
        n += 8 * (a[k].dtype != b[k].dtype) + 8 * (a[k].ndim != b[k].ndim);
        for (int i = 0; i < a[k].ndim && i < b[k].ndim; i++)
            n += (a[k].sizes[i] != b[k].sizes[i]) + (a[k].strides[i] != b[k].strides[i]);
    }
    return n;
}

static void name_failure(const ep_memo *m, const ep_binding *b, int input_count, bool fixed, char *out, size_t size) {
    const ep_entry *nearest = NULL;
    int best = 0;
    for (size_t i = 0; i < m->entry_count; i++) {
        int d = differences(input_count, m->entries[i].facts, b->facts);
        if (nearest && d > best) continue; /* of equals the last made */
        nearest = &m->entries[i];
        best = d;
    }
    out[0] = 0;
    if (nearest && !ep_guard_failed(input_count, nearest->facts, b->facts, fixed, out, size))
        snprintf(out, size, "the function recorded other ops for these sizes");
}

int ep_memo_entry(ep_memo *m, uint64_t key, const ep_binding *b, int input_count, bool fixed, bool *fresh) {
    *fresh = false;
    for (size_t i = 0; i < m->entry_count; i++)
        if (m->entries[i].key == key) return (int)i;
    if (!ep_grow(&m->entries, &m->entry_cap, m->entry_count + 1, sizeof *m->entries)) return -1;
    ep_entry *e = &m->entries[m->entry_count];
    memset(e, 0, sizeof *e);
    e->facts = malloc(sizeof *e->facts * (size_t)(input_count ? input_count : 1));
    if (!e->facts) return -1;
    memcpy(e->facts, b->facts, sizeof *e->facts * (size_t)input_count);
    e->key = key;
    name_failure(m, b, input_count, fixed, e->failed, sizeof e->failed);
    *fresh = true;
    return (int)m->entry_count++;
}

ep_choice *ep_memo_choice(ep_memo *m, int entry, int64_t elements) {
    int size_class = 0;
    while (size_class < 62 && elements >> (size_class + 1)) size_class++;
    for (size_t i = 0; i < m->choice_count; i++)
        if (m->choices[i]->entry == entry && m->choices[i]->size_class == size_class) return m->choices[i];
    ep_choice *c = calloc(1, sizeof *c);
    if (!c || !ep_grow(&m->choices, &m->choice_cap, m->choice_count + 1, sizeof *m->choices)) {
        free(c);
        return NULL;
    }
    c->entry = entry;
    c->size_class = size_class;
    return m->choices[m->choice_count++] = c;
}

void ep_memo_clear(ep_memo *m) {
    for (int i = 0; i < m->count; i++) ep_binding_destroy(m->bindings[i]);
    for (size_t i = 0; i < m->entry_count; i++) {
        free(m->entries[i].facts);
        free(m->entries[i].reasons);
        free(m->entries[i].guards);
    }
    for (size_t i = 0; i < m->choice_count; i++) ep_choice_free(m->choices[i]);
    for (size_t i = 0; i < m->template_count; i++) end_template(m->templates[i]);
    free(m->templates);
    free(m->entries);
    free(m->choices);
    memset(m, 0, sizeof *m);
}
