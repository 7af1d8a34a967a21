/* A pointwise group as the epilogue of packed products: the generated kernel runs on every tile of the products while it
 * is in cache. Sizes and strides are arguments of the kernel, so a tile is just another call of it. */
#ifndef EP_RUN_HOOKED_H
#define EP_RUN_HOOKED_H

#include "context.h"
#include "run/codegen/loop.h"

/* A product that the group reads: a linear of the graph, or columns of one. */
typedef struct ep_attach_part {
    int32_t node;
    ep_columns columns;
    const ep_packed *pack;
} ep_attach_part;

/* What a plan needs to attach a group, or (group -1) to make one product of its packed weight, with nothing behind it. */
typedef struct ep_attach {
    int32_t group, unit; /* unit: whose choice it is */
    int count;
    ep_attach_part parts[EP_TUNED_PRODUCTS];
} ep_attach;

typedef struct ep_hooked_operand {
    int word;         /* where its address is in words; the row stride follows */
    int product;      /* which product it is, or -1 */
    int64_t row, col; /* bytes from row to row, from column to column */
} ep_hooked_operand;

typedef struct ep_hooked {
    ep_tuned_call call;
    void (*run)(void *function, const int64_t *args, int64_t begin, int64_t end); /* NULL: the loop is walked */
    void *function;
    const ep_loop *loop;
    ep_hooked_operand operands[EP_LOOP_OPERANDS];
    int operand_count, word_count;
    int64_t words[EP_LOOP_WORDS]; /* addresses of element 0 */
    int64_t element;              /* bytes of a product's element */
    ep_work work;
    char name[160];
} ep_hooked;

/* Can the nest, bound to its sizes, run on tiles of [m, n] products? */
bool ep_hooked_fits(const ep_loop *l, int64_t m, int64_t n);
/* Fills everything but the addresses in words, call.x and call's biases. `l` outlives h. */
void ep_hooked_set(const ep_graph *g, const ep_attach *a, const ep_loop *l, int64_t m, int64_t n, ep_hooked *h);

#endif
