/* A flat list of launches for one set of input sizes. Everything that can be known before the call is in the steps;
 * a call fills in addresses and launches. */
#ifndef EP_RUN_PLAN_H
#define EP_RUN_PLAN_H

#include "capture.h"
#include "context.h"
#include "hooked.h"
#include "run/codegen/loop.h"

enum { EP_PLAN_INPUTS = 64, EP_PLAN_OUTPUTS = 64 };

/* A generated kernel as a plan needs it. Exactly one of function and loop is used: loop is run step by step by the plain
 * reference (tests). */
typedef struct ep_plan_kernel {
    void *function;
    const char *name; /* outlives the plan */
    ep_loop loop;     /* with the sizes and strides of this plan */
    int32_t group;
} ep_plan_kernel;

typedef struct ep_plan ep_plan;

/* Which of the ways that the graph leaves open a plan takes. */
typedef struct ep_plan_ways {
    bool interpret;    /* run the loops, not the functions */
    const bool *steps; /* by group: a chain behind a product that the backend's gemm does; NULL: none */
    const ep_attach
        *attached; /* groups that run as epilogues of packed products, and products that are only packed; the
                                * packs outlive the plan */
    int attached_count;
    const int32_t *unit_of; /* by node: whose time its launches count to, or -1; NULL: nobody's */
} ep_plan_ways;

/* `c`: the graph after all passes, its constants retained by the caller for the plan's life. `kernels`: one for each
 * group. */
ep_status ep_plan_build(ep_context *ctx, const ep_captured *c, const ep_plan_kernel *kernels, size_t kernel_count,
                        const ep_plan_ways *ways, ep_plan **out);
/* Is group `group` a chain that `ways->steps` would take, at the graph's sizes of now? */
bool ep_plan_has_steps(const ep_graph *g, int32_t group);
void ep_plan_destroy(ep_plan *p);
int64_t ep_plan_workspace(const ep_plan *p); /* bytes it needs */
/* Allocates the outputs, launches all steps. `workspace` holds at least ep_plan_workspace bytes. With `unit_ns` (not on
 * devices that run behind the host) each unit's launches add their time to its number. */
ep_status ep_plan_run(const ep_plan *p, ep_context *ctx, const ep_tensor *const *inputs, char *workspace,
                      int64_t *unit_ns, ep_tensor **outputs);
/* What is captured of it; NULL where the backend has no replay. */
const struct ep_replay *ep_plan_replay(const ep_plan *p);

#endif
