/* A group that is a chain of binary f32 ops behind one product: v = product; v = op(v, other); ... Each step rounds to
 * f32 once, whether it runs as a kernel or before the product's store, so a library's own steps give the same bits. */
#ifndef EP_RUN_GRAPH_CHAIN_H
#define EP_RUN_GRAPH_CHAIN_H

#include "ir.h"

enum { EP_CHAIN_STEPS = 4 };

typedef struct ep_chain {
    int32_t product; /* node */
    int count;
    ep_op op[EP_CHAIN_STEPS];      /* ADD, SUB, MUL, DIV */
    int32_t other[EP_CHAIN_STEPS]; /* values */
    int32_t output;                /* value of the last step */
} ep_chain;

/* NULL and the chain, or why the group is none; "" where it does not even begin behind a product. */
const char *ep_graph_chain(const ep_graph *g, int32_t group, ep_chain *out);
/* How step `i` reads its operand over rows of `n` columns, in elements: as the result lies (n, 1), one row for all (0, 1)
 * or one value (0, 0). false: in another way. */
bool ep_chain_strides(const ep_graph *g, const ep_chain *c, int i, int64_t *row, int64_t *col);

#endif
