/* Sizes as sums of products of symbols. A symbol is a size (or stride) that a call brings; an extent is a size, stride
 * or offset derived from symbols. A number in a graph that has no extent is the same for every call.
 *
 * While a function is captured, ops that need two sizes to be equal make them one symbol, and whatever looks at a size
 * fixes its symbols. Then the graph is settled: what was fixed becomes a number, what is left is free. */
#ifndef EP_RUN_GRAPH_EXTENT_H
#define EP_RUN_GRAPH_EXTENT_H

#include "ir.h"

/* A number of now and the extent it comes from; e < 0: none. */
typedef struct ep_dim {
    int64_t n;
    int32_t e;
} ep_dim;

/* A new symbol as an extent; -1 when memory is out (then the number is fixed, which is right but not general). */
int32_t ep_symbol_create(ep_graph *g, int64_t value);
/* Symbol `number` alone as an extent. */
int32_t ep_extent_symbol(ep_graph *g, int32_t number);
/* If extent `e` is one symbol alone, that symbol; else -1. */
int32_t ep_extent_is_symbol(const ep_graph *g, int32_t e);

ep_dim ep_dim_add(ep_graph *g, ep_dim a, ep_dim b);
ep_dim ep_dim_mul(ep_graph *g, ep_dim a, ep_dim b);
/* a / b without rest; where that cannot be told for every size, the symbols are fixed. */
ep_dim ep_dim_div(ep_graph *g, ep_dim a, ep_dim b);
/* From here on a and b are the same number in every call. */
void ep_dim_same(ep_graph *g, ep_dim a, ep_dim b);
/* From here on `a` is the number it is now. */
ep_dim ep_dim_fix(ep_graph *g, ep_dim a);
void ep_extent_fix_value(ep_graph *g, int32_t value);

static inline ep_dim ep_value_dim(const ep_graph *g, int32_t v, int i) {
    return (ep_dim){g->values[v].sizes[i], g->values[v].dims[i]};
}
static inline ep_dim ep_value_step(const ep_graph *g, int32_t v, int i) {
    return (ep_dim){g->values[v].strides[i], g->values[v].steps[i]};
}
/* Gives value `to` the extents of `from`, which has as many dims. */
void ep_extent_like(ep_graph *g, int32_t to, int32_t from);
/* Extents of the strides of a value without gaps. */
void ep_extent_contiguous(ep_graph *g, int32_t value);
bool ep_extent_is_contiguous(const ep_graph *g, const ep_value *v);

/* size_rules.c: the extents of a node's result from those of its inputs, by the op. What a rule cannot say for every
 * size is fixed. */
void ep_extent_of_node(ep_graph *g, int32_t node);

/* After capture: fixed symbols become numbers, equal ones become one, the others are numbered anew. */
ep_status ep_extent_settle(ep_graph *g, ep_error *err);
/* Writes every number of the graph that has an extent; `values` has symbol_count numbers. EP_ERROR_OVERFLOW past 2^63. */
ep_status ep_extent_evaluate(ep_graph *g, const int64_t *values, ep_error *err);
/* Numbers for the symbols that no other number of the graph is equal to by chance: what passes then decide holds for
 * every size. */
void ep_extent_shadow(const ep_graph *g, int64_t *values);
/* The sizes of the last call, as symbols[] has them. */
ep_status ep_extent_restore(ep_graph *g, ep_error *err);

/* "s0", "768*s0+64"; a number without an extent is printed as it is. */
void ep_extent_print(const ep_graph *g, ep_dim d, ep_text *out);
/* The extent of a sum that was parsed: `factor` times the product of `symbols`. */
ep_dim ep_extent_term(ep_graph *g, int64_t factor, int count, const int32_t *symbols);

#endif
