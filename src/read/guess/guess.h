/* A guess as parsed: blocks of claims. Everything is owned by the guess's arena. */
#ifndef EP_READ_GUESS_H
#define EP_READ_GUESS_H

#include <epilogue/guess.h>

#include "base/arena.h"
#include "base/status.h"
#include "base/text.h"

typedef enum ep_dimension { EP_DIM_COUNT, EP_DIM_TIME, EP_DIM_BYTES, EP_DIM_FLOPS, EP_DIM_SHARE } ep_dimension;
typedef enum ep_filter { EP_FILTER_NONE, EP_FILTER_KERNELS, EP_FILTER_OPS, EP_FILTER_OP } ep_filter;

typedef enum ep_metric {
#define EP_METRIC(ID, words, dimension, filter, meaning) EP_METRIC_##ID,
#include "metrics.def"
#undef EP_METRIC
    EP_METRIC_COUNT
} ep_metric;

typedef struct ep_metric_info {
    const char *words;
    ep_dimension dimension;
    ep_filter filter;
    const char *meaning;
} ep_metric_info;
extern const ep_metric_info ep_metrics[EP_METRIC_COUNT];

/* A unit of a number: what it multiplies by to give ns, bytes, flops or a share. */
typedef struct ep_unit {
    const char *name; /* "" for none */
    ep_dimension dimension;
    double scale;
} ep_unit;
extern const ep_unit ep_units[];
extern const size_t ep_unit_count;

typedef struct ep_quantity {
    double number; /* as written */
    uint8_t unit;  /* ep_units[] */
} ep_quantity;
static inline double ep_quantity_value(ep_quantity q) {
    return q.number * ep_units[q.unit].scale;
}

/* A thing that can be counted or timed: "kernels matching \"gemm\"", "op t launches". */
typedef struct ep_term {
    ep_metric metric;
    const char *pattern; /* of `matching`, or the op's name; NULL: none */
    bool any_thread;     /* on any thread of the region's process */
} ep_term;

typedef enum ep_relation { EP_REL_EQ, EP_REL_NE, EP_REL_LT, EP_REL_LE, EP_REL_GT, EP_REL_GE } ep_relation;
const char *ep_relation_text(ep_relation r);

typedef enum ep_claim_form {
    EP_CLAIM_VALUE,      /* term relation low */
    EP_CLAIM_RANGE,      /* term in low..high */
    EP_CLAIM_NEAR,       /* term ~ low +- high */
    EP_CLAIM_TERM,       /* term relation factor * other */
    EP_CLAIM_FUSED,      /* fused names...: one kernel does them all */
    EP_CLAIM_BOUND,      /* bound = regime */
    EP_CLAIM_SAME_NAMES, /* compare: term same names */
    EP_CLAIM_GONE,       /* compare: op name gone */
    EP_CLAIM_NEW         /* compare: op name new */
} ep_claim_form;

/* In a compare block a VALUE, RANGE or NEAR claim is about two traces: b / a, or b - a. */
typedef enum ep_change { EP_CHANGE_NONE, EP_CHANGE_RATIO, EP_CHANGE_DELTA } ep_change;

typedef struct ep_claim {
    int line, column;
    uint32_t block;
    ep_claim_form form;
    bool median;
    ep_change change;
    ep_term term, other;
    double factor;
    ep_relation relation;
    ep_quantity low, high;
    ep_regime regime;
    const char **names;
    int name_count;
    const char *text; /* canonical, without the block's head */
} ep_claim;

typedef enum ep_block_form { EP_GUESS_TRACE, EP_GUESS_REGION, EP_GUESS_COMPARE } ep_block_form;
typedef struct ep_guess_block {
    ep_block_form form;
    const char *region; /* glob over region names; NULL: the whole trace */
    int64_t skip;       /* the first instances that are left out (warm-up) */
    int line;
    const char *head; /* canonical head: "region mlp_fwd", "compare", "trace" */
} ep_guess_block;

struct ep_guess {
    ep_arena arena;
    ep_guess_block *blocks;
    size_t block_count, block_cap;
    ep_claim *claims;
    size_t claim_count, claim_cap;
    char *text;
};

/* lex.c */
typedef enum ep_token_kind {
    EP_TOKEN_END, /* of the line */
    EP_TOKEN_WORD,
    EP_TOKEN_STRING,
    EP_TOKEN_NUMBER, /* with its unit */
    EP_TOKEN_RELATION,
    EP_TOKEN_NEAR,       /* ~ */
    EP_TOKEN_PLUS_MINUS, /* +- */
    EP_TOKEN_DOTS,       /* .. */
    EP_TOKEN_TIMES       /* * */
} ep_token_kind;

typedef struct ep_token {
    ep_token_kind kind;
    int column;       /* 1-based, bytes */
    const char *text; /* WORD, STRING: arena-owned, terminated. Others: as written */
    ep_relation relation;
    ep_quantity quantity;
} ep_token;

typedef struct ep_lexer {
    const char *at, *end, *line_start;
    int line;
    ep_arena *arena;
    ep_error *err;
} ep_lexer;

/* The next line that is there: false at the end of the text. */
bool ep_lex_line(ep_lexer *l);
/* The next token of the line. `as_name`: a bare word may hold any characters but blanks, quotes and comparison signs. */
ep_status ep_lex_token(ep_lexer *l, bool as_name, ep_token *out);
ep_status ep_lex_fail(const ep_lexer *l, int column, const char *fmt, ...) EP_PRINTF(3, 4);

/* guess_text.c */
void ep_quantity_print(ep_text *out, ep_quantity q);
void ep_name_print(ep_text *out, const char *name); /* quoted where it must be */
void ep_claim_print(ep_text *out, const ep_claim *c);
void ep_block_print(ep_text *out, const ep_guess_block *b);
/* Fills guess->text and every claim's and block's text. */
ep_status ep_guess_print(ep_guess *g, ep_error *err);
/* A measured figure in the dimension's best unit: "251.4us", "5", "61.3%". */
void ep_figure_print(ep_text *out, ep_dimension d, double value);

#endif
