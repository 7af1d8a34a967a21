/* A captured computation: values and nodes. A graph runs nothing and holds no data.
 *
 * Sizes in a graph are symbols where calls may differ in them (extent.h), and beside each stands its number of now.
 * What code is generated from is everything else (ops, readers, classes of strides); sizes and strides become arguments,
 * so graphs that differ in sizes only share their code. */
#ifndef EP_RUN_GRAPH_IR_H
#define EP_RUN_GRAPH_IR_H

#include "base/arena.h"
#include "base/text.h"
#include "model/op/op.h"
#include "model/tensor/tensor.h"

/* Sums of products of symbols: what a number of the graph is in every call. */
enum { EP_EXTENT_TERMS = 4, EP_EXTENT_FACTORS = 8 };
typedef struct ep_extent_product {
    int64_t factor;
    int16_t symbols[EP_EXTENT_FACTORS]; /* ascending, then -1 */
} ep_extent_product;
typedef struct ep_extent {
    int64_t now;
    int64_t count;
    ep_extent_product terms[EP_EXTENT_TERMS];
} ep_extent;

/* A size or stride of the inputs. While captured: `root` is the symbol it is equal to, `fixed` that only `value` will do. */
typedef struct ep_symbol {
    int64_t value; /* in the call that was captured, or that the plan is made for */
    int32_t root;
    bool fixed;
} ep_symbol;

typedef enum ep_value_kind { EP_VALUE_INPUT, EP_VALUE_CONST, EP_VALUE_NODE } ep_value_kind;

/* A value with base >= 0 is a way to look at another value's memory: no byte moves. Its base has no base itself. */
typedef struct ep_value {
    ep_value_kind kind;
    ep_dtype dtype;
    int ndim;
    int64_t sizes[EP_MAX_DIMS], strides[EP_MAX_DIMS]; /* elements, as eager's result would have them */
    int64_t numel;
    int32_t dims[EP_MAX_DIMS], steps[EP_MAX_DIMS], start; /* extents of sizes, strides, offset; -1: the same always */
    int32_t base;                                         /* -1: memory of its own */
    int64_t offset;                                       /* from the base's element 0 */
    int32_t node;                                         /* its producer; -1 for inputs and constants */
    int32_t index;                                        /* which input or constant */
} ep_value;

typedef enum ep_node_kind {
    EP_NODE_OP,   /* one op */
    EP_NODE_VIEW, /* an op that moves no byte */
    EP_NODE_GEMM  /* a product with what it does before its only store */
} ep_node_kind;

/* GEMM inputs: a [.., M, K], b [K, N] (or both with a batch), then the ones named here by input position, -1: none. */
typedef struct ep_gemm_form {
    int bias, c;
    int32_t epilogue; /* the group that may run on tiles of the product before they leave the cache, or -1 */
    int32_t then;     /* the group whose steps the library may do before the product's only store, or -1 (chain.h) */
} ep_gemm_form;

typedef struct ep_node {
    ep_node_kind kind;
    ep_op op;
    ep_attr attr;
    int input_count;
    int32_t *inputs; /* values, in the graph's arena */
    int32_t output;  /* value */
    ep_gemm_form gemm;
    int32_t group; /* groups[], or -1 */
    bool dead;
    int32_t order; /* place in the schedule; -1 before the schedule pass */
} ep_node;

/* Ops that run as one generated kernel over one domain: row dims, then the last dim. */
typedef struct ep_group {
    int ndim;
    int64_t sizes[EP_MAX_DIMS];
    int32_t dims[EP_MAX_DIMS]; /* extents, -1: none */
    bool reduces;              /* contains a last-dim reduction or norm */
    bool lone;                 /* one op: eager's kernel, unless it runs as the epilogue of a product */
} ep_group;

/* Columns start, start + step, ... of every row of a product. */
typedef struct ep_columns {
    int64_t start, step;
} ep_columns;

/* Why two neighbours are not one kernel, or another decision a person may ask about. */
typedef struct ep_reason {
    int32_t node, other; /* nodes; other may be -1 */
    const char *text;    /* in the graph's arena */
} ep_reason;

/* Where a value lives while the plan runs, by the memplan pass. */
typedef struct ep_slot {
    int64_t offset, bytes; /* in the workspace; offset -1: not there (input, constant, output or never stored) */
} ep_slot;

typedef struct ep_graph {
    ep_arena arena;
    ep_value *values;
    size_t value_count, value_cap;
    ep_node *nodes;
    size_t node_count, node_cap;
    int32_t *outputs; /* values */
    size_t output_count, output_cap;
    ep_group *groups;
    size_t group_count, group_cap;
    ep_reason *reasons;
    size_t reason_count, reason_cap;
    ep_symbol *symbols;
    size_t symbol_count, symbol_cap;
    ep_extent *extents;
    size_t extent_count, extent_cap;
    int input_count, const_count;
    ep_rounding rounding;
    unsigned marks; /* EP_MARK_*: what passes established */
    ep_slot *slots; /* by value, after memplan; else NULL */
    int64_t workspace_bytes;
} ep_graph;

/* Facts a pass may need, keep or break (columns of passes.def). */
enum {
    EP_MARK_LOWERED = 1, /* no composite op */
    EP_MARK_VIEWS = 2,   /* view nodes are dead; every view value has base, offset and strides */
    EP_MARK_GEMMS = 4,   /* products are GEMM nodes */
    EP_MARK_GROUPS = 8,  /* groups are formed */
    EP_MARK_SCHEDULED = 16,
    EP_MARK_MEMORY = 32
};

#define EP_GRAPH_MAX 100000 /* values or nodes */

ep_graph *ep_graph_create(void); /* NULL when memory is out */
void ep_graph_destroy(ep_graph *g);

/* Each gives the new index or -1 when memory is out or EP_GRAPH_MAX is reached. */
int32_t ep_graph_input(ep_graph *g, ep_dtype dtype, int ndim, const int64_t *sizes, const int64_t *strides);
int32_t ep_graph_const(ep_graph *g, ep_dtype dtype, int ndim, const int64_t *sizes, const int64_t *strides);
/* A node and its value with contiguous strides; returns the value. */
int32_t ep_graph_op(ep_graph *g, ep_node_kind kind, ep_op op, const ep_attr *attr, int count, const int32_t *inputs,
                    const ep_shape *shape);
int ep_graph_output(ep_graph *g, int32_t value);
int32_t ep_graph_group(ep_graph *g, int ndim, const int64_t *sizes);
void ep_graph_reason(ep_graph *g, int32_t node, int32_t other, const char *fmt, ...) EP_PRINTF(4, 5);

/* The value whose memory `v` shows: itself or its base. */
static inline int32_t ep_graph_root(const ep_graph *g, int32_t v) {
    return g->values[v].base >= 0 ? g->values[v].base : v;
}
/* Makes every reader of `from` (and the outputs) read `to`. */
void ep_graph_replace(ep_graph *g, int32_t from, int32_t to);
/* Live nodes of group `group` in node order; returns how many, at most `max` written. */
size_t ep_graph_members(const ep_graph *g, int32_t group, int32_t *out, size_t max);
/* Do the rows of `v` (along its last dim) lie at one distance from each other? */
bool ep_graph_even_rows(const ep_graph *g, int32_t v);
/* Is `v`, of the sizes of group `p`, the product that is its root, or the same columns of each of its rows? */
bool ep_graph_columns(const ep_graph *g, int32_t v, const ep_group *p, ep_columns *out);
/* Sets dims and strides of view op `op` over value `in`, as eager computes them. */
ep_status ep_graph_view_shape(const ep_value *in, ep_op op, const ep_attr *attr, ep_error *err, ep_value *out);

/* Puts the nodes in an order in which every value is made before it is read, changing as little as may be. */
ep_status ep_graph_sort(ep_graph *g, ep_error *err);

/* Of the structure: everything but sizes, strides and offsets. */
uint64_t ep_graph_hash(const ep_graph *g);

#endif
