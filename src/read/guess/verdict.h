/* Verdicts as they are gathered, and what the writers of them share. */
#ifndef EP_READ_GUESS_VERDICT_H
#define EP_READ_GUESS_VERDICT_H

#include "guess.h"
#include "measure.h"

typedef struct ep_verdict_row {
    ep_verdict v; /* its texts live in the arena */
    const char *block, *text;
    const char *event_name, *event_lane;
    double event_us;
} ep_verdict_row;

struct ep_verdicts {
    ep_arena arena;
    ep_verdict_row *rows;
    size_t count;
    size_t totals[3]; /* by ep_verdict_kind */
    char *text, *json, *junit;
    char *github; /* for the path it was asked for */
};

/* What one claim came to before it is put in words. */
typedef struct ep_outcome {
    ep_verdict_kind kind;
    double surprise;
    ep_text seen;
    uint32_t witness; /* row of the first trace, or EP_NO_INDEX */
} ep_outcome;

void ep_claim_expected(ep_text *out, const ep_claim *c);
/* How far `v` is from what the claim allows: 0 if it holds. docs/guess.md, "Surprise". */
double ep_claim_surprise(const ep_claim *c, double v, double other);
/* A claim of a trace or region block over one subject; compare.c: one over two. */
ep_status ep_check_block(const ep_guess *g, uint32_t block, const ep_subject *u, ep_error *err, ep_outcome *findings);
ep_status ep_check_compare(const ep_guess *g, uint32_t block, const ep_subject *a, const ep_subject *b, ep_error *err,
                           ep_outcome *findings);
/* The region's instances in time order without the skipped ones, one EP_NO_INDEX for the whole trace. */
bool ep_block_instances(const ep_guess_block *b, const ep_subject *u, ep_rows *out);
/* "the trace has no region 'x'; it has ..." */
void ep_no_instances(const ep_guess_block *b, const ep_subject *u, ep_text *out);
/* guess_verdict.c: makes all texts but that of GitHub. */
ep_status ep_verdicts_write(ep_verdicts *v, ep_error *err);
int ep_compare_double(const void *a, const void *b);

#endif
