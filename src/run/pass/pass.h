/* Graph -> graph: the list of passes and its runner. */
#ifndef EP_RUN_PASS_H
#define EP_RUN_PASS_H

#include "run/graph/ir.h"

typedef ep_status (*ep_pass_fn)(ep_graph *g, ep_error *err);

typedef struct ep_pass {
    const char *name;
    ep_pass_fn run;
    unsigned needs, gives, breaks;
} ep_pass;

/* The pipeline in order; *count passes. */
const ep_pass *ep_passes(size_t *count);

typedef struct ep_pass_options {
    const char *dump; /* NULL, a pass's name, or "all" */
    void (*print)(void *user, const char *pass, const char *text);
    void *user;
    const char *until; /* stop after this pass; NULL: run all */
    bool verify;       /* after each pass, in release builds too */
} ep_pass_options;

/* Runs the pipeline; debug builds verify after every pass. A dump of an unknown name is EP_ERROR_NOT_FOUND. */
ep_status ep_passes_run(ep_graph *g, const ep_pass_options *options, ep_error *err);

/* fuse.c: NULL if generated code can do the node, else why not. */
const char *ep_fuse_why_not(const ep_graph *g, const ep_node *n);

#define EP_PASS(name, function, needs, gives, breaks) ep_status function(ep_graph *g, ep_error *err);
#include "passes.def"
#undef EP_PASS

#endif
