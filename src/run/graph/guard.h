/* Facts about the inputs of a call: what a plan was bound to, and which of them the code rests on. Strides of dims of
 * size 0 and 1 are no facts. */
#ifndef EP_RUN_GRAPH_GUARD_H
#define EP_RUN_GRAPH_GUARD_H

#include "ir.h"

typedef struct ep_fact {
    ep_dtype dtype;
    int ndim;
    uint8_t fixed; /* bit i: dim i is one number in the code's graph */
    int64_t sizes[EP_MAX_DIMS], strides[EP_MAX_DIMS];
} ep_fact;

void ep_fact_of(const ep_tensor *t, ep_fact *out);
static inline bool ep_fact_holds(const ep_fact *f, const ep_tensor *t) {
    if (f->dtype != t->dtype || f->ndim != t->ndim) return false;
    for (int i = 0; i < f->ndim; i++)
        if (f->sizes[i] != t->sizes[i] || (f->sizes[i] > 1 && f->strides[i] != t->strides[i])) return false;
    return true;
}
/* Makes symbols of what may differ between calls in input `value`: sizes larger than 1, strides that are not those of
 * adjacent elements. Strides of adjacent elements are products of sizes, those of broadcast dims 0. */
void ep_guard_symbols(ep_graph *g, int32_t value);
/* Do these inputs fit graph `g` as captured? Then `values` are the symbols' numbers (symbol_count of them). */
bool ep_guard_match(const ep_graph *g, int count, const ep_fact *facts, int64_t *values);
uint64_t ep_facts_hash(int count, const ep_tensor *const *inputs);

/* The first guard of code made for `was` that fails for `now`, as "input 0: dim 1 was contiguous, now stride 40".
 * `fixed`: the code holds sizes. False if none fails: then the function itself took another way. */
bool ep_guard_failed(int count, const ep_fact *was, const ep_fact *now, bool fixed, char *out, size_t size);
/* What graph `g`, captured for these inputs, rests on, one line an input. */
void ep_guard_list(int count, const ep_fact *facts, const ep_graph *g, ep_text *out);

#endif
