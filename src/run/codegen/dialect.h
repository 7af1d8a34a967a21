/* What may differ between the C-family languages: types, how a kernel begins and ends, loads and stores. */
#ifndef EP_RUN_CODEGEN_DIALECT_H
#define EP_RUN_CODEGEN_DIALECT_H

#include "base/isa.h"
#include "loop.h"

typedef struct ep_dialect {
    const char *name;
    const char *vec;    /* type of a computed value: a vector, or a scalar inside the lane loop */
    const char *lane;   /* appended to loaded and to-be-stored names: "" or "[k]" */
    const char *round;  /* format of rounding: dtype name, expression */
    const char *number; /* format of a constant */
    bool one_part;      /* a reducing walk has no tail of its own */
    bool short_words;   /* has v_gelu_..._of_bf16 and the like: for bf16 in, the same once rounded; and v_quotient */
    /* Optional: whole steps of a walk over adjacent bf16 operands alone, in pairs of lanes. */
    const struct ep_dialect *pairs;
    /* The text in front of all kernels of a file. */
    void (*preamble)(ep_text *t, ep_isa isa);
    /* From the head to where p0, p1 ... point at the item's row and `first`, `last` bound its inner elements. */
    void (*open)(ep_text *t, const ep_loop *l);
    void (*close)(ep_text *t, const ep_loop *l);
    /* One walk over the row: between these, `i` is the element and `m` how many are left, at most a vector. */
    void (*walk_open)(ep_text *t, const ep_loop *l, ep_isa isa, bool tail);
    void (*walk_close)(ep_text *t, const ep_loop *l);
    void (*lanes_open)(ep_text *t); /* optional: around what is computed between loads and stores */
    void (*lanes_close)(ep_text *t);
    void (*declare_store)(ep_text *t, const ep_stmt *s); /* with the lanes: where they leave what will be stored */
    void (*load)(ep_text *t, const ep_loop *l, const ep_stmt *s, int number, bool tail);
    void (*store)(ep_text *t, const ep_loop *l, const ep_stmt *s, const char *what, bool tail);
    /* A walk that reduces goes by blocks and, inside, by groups of vectors: its parts `group` and tail. */
    void (*blocks_open)(ep_text *t);
    void (*block_open)(ep_text *t, bool tail);
    void (*block_close)(ep_text *t, bool tail);
    void (*blocks_close)(ep_text *t);
    /* A reduction: its running value before the walk, a step, what ends a block, its result after the walk. */
    void (*reduce_begin)(ep_text *t, const ep_stmt *s, int number);
    void (*reduce_step)(ep_text *t, const ep_stmt *s, int number, const char *what, bool tail);
    void (*reduce_block)(ep_text *t, const ep_stmt *s, int number);
    void (*reduce_end)(ep_text *t, const ep_stmt *s, int number);
    /* Does a walk need whole vectors first and a tail after, or are partial vectors free? */
    bool (*needs_tail)(ep_isa isa);
} ep_dialect;

extern const ep_dialect ep_dialect_cpu;
extern const ep_dialect ep_dialect_cuda;

#endif
