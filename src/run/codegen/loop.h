/* A fused group as one loop nest: what is loaded, computed, reduced and stored, in order, before it becomes text.
 *
 * The nest: `outer` dims, then the inner dim of n elements. Without reductions an item is a piece of `chunk` inner
 * elements; with them an item is a row, walked once a phase: what depends on a reduction stands in a later phase.
 *
 * A generated kernel is void name(const int64_t *a, int64_t begin, int64_t end) and does items [begin, end). Its
 * argument block, all int64_t:
 *     a[0] n   a[1] chunk   a[2] pieces in a row   a[3 .. 3+outer) outer sizes
 *     then for each operand: address, `outer` strides in bytes, and where it is read strided the inner stride in bytes.
 * Sizes and strides are nowhere in the code, unless the nest is `fixed`: then n, the sizes and the strides are. */
#ifndef EP_RUN_CODEGEN_LOOP_H
#define EP_RUN_CODEGEN_LOOP_H

#include "base/text.h"
#include "run/graph/ir.h"

enum {
    EP_LOOP_STMTS = 160,
    EP_LOOP_OPERANDS = 60,
    EP_LOOP_PHASES = 8,
    EP_LOOP_DEVICE_CHUNK = 8, /* 16 bytes of the narrow dtypes, 32 of f32 */
    EP_LOOP_HEAD = 3,         /* words before the outer sizes */
    EP_LOOP_WORDS = EP_LOOP_HEAD + EP_MAX_DIMS + EP_LOOP_OPERANDS * (EP_MAX_DIMS + 2)
};

/* How an operand moves with the inner index. ONCE: not at all, it belongs to the row. */
typedef enum ep_walk_class { EP_WALK_NEXT, EP_WALK_STRIDED, EP_WALK_ONCE } ep_walk_class;

typedef struct ep_loop_operand {
    int32_t value; /* of the graph: the (view) value read, or the value written */
    ep_dtype dtype;
    ep_walk_class walk;
    bool output;
    bool row;                     /* read by something that is one value a row */
    int64_t strides[EP_MAX_DIMS]; /* elements: outer dims, then at [outer] the inner one */
} ep_loop_operand;

typedef enum ep_stmt_kind {
    EP_STMT_LOAD,   /* operand */
    EP_STMT_CONST,  /* number */
    EP_STMT_COUNT,  /* n as a number */
    EP_STMT_OP,     /* a pointwise op of in[] */
    EP_STMT_FMA,    /* in[0] * in[1] + in[2], rounded once */
    EP_STMT_ROUND,  /* in[0] rounded to dtype, where eager would have stored it */
    EP_STMT_REDUCE, /* of in[0] over the row: op is SUM or AMAX */
    EP_STMT_STORE   /* in[0] to operand */
} ep_stmt_kind;

typedef struct ep_stmt {
    ep_stmt_kind kind;
    ep_op op;
    ep_dtype dtype;
    int in[3];
    int operand;
    double number;
    bool row;  /* one value a row */
    int phase; /* the walk over the row in which it can first be computed; of a REDUCE: in which it is summed */
} ep_stmt;

typedef struct ep_loop {
    char name[120];
    int stmt_count, operand_count, outer, phases;
    bool reduces, fixed;
    ep_rounding rounding;
    int64_t sizes[EP_MAX_DIMS]; /* outer dims, then n at [outer] */
    ep_stmt stmts[EP_LOOP_STMTS];
    ep_loop_operand operands[EP_LOOP_OPERANDS];
    ep_work work;
} ep_loop;

/* Builds the nest of `group`. EP_ERROR_UNSUPPORTED if it is too large for one kernel. */
ep_status ep_loop_build(const ep_graph *g, int32_t group, ep_error *err, ep_loop *out);
/* Everything that decides the text: equal hashes, equal code. */
uint64_t ep_loop_hash(const ep_loop *l);
/* Gives the nest at least `outer` outer dims by adding dims of size 1 in front. */
void ep_loop_pad(ep_loop *l, int outer);
/* Makes the inner dim an outer one and the new inner dim one of a single element: every operand then moves NEXT. */
bool ep_loop_unroll_rows(ep_loop *l);

/* Fills the argument block but for the addresses, whose places go to `address_at` (operand_count of them); returns the
 * words used. `chunk`: inner elements of an item. */
int ep_loop_arguments(const ep_loop *l, int64_t chunk, int64_t *words, int *address_at);
/* Inner elements that make an item worth its own overhead (threads 0: a device, eight), and how many items there are. */
int64_t ep_loop_chunk(const ep_loop *l, int threads);
int64_t ep_loop_items(const ep_loop *l, int64_t chunk);

/* norms.c: reductions and norms as statements; the arithmetic is that of the eager kernels, in their order. */
int ep_loop_reduction(ep_loop *l, ep_op op, int x);
int ep_loop_norm(ep_loop *l, ep_op op, double eps, int x, int weight, int bias);
/* Appends a statement and returns its number, or -1 when the nest is full. Row-ness and phase follow from in[]. */
int ep_loop_add(ep_loop *l, ep_stmt s);

/* loop_run.c: the plain reference. Runs items [begin, end) by walking the statements, one element at a time. */
void ep_loop_run(const ep_loop *l, const int64_t *args, int64_t begin, int64_t end);

#endif
