/* Recorded calls -> graph: runs a function of the public eager API on tensors that have shapes and no data. */
#ifndef EP_RUN_CAPTURE_H
#define EP_RUN_CAPTURE_H

#include <epilogue/compile.h>

#include "context.h"
#include "run/graph/ir.h"

typedef struct ep_captured {
    ep_graph *graph;
    ep_tensor **consts; /* aliases, by the graph's const index */
    size_t const_count, const_cap;
} ep_captured;

/* `symbols`: sizes of the inputs larger than 1 are symbols where the function leaves them free; a size or stride of a
 * captured tensor that the function looks at is fixed. Fails with the function's own status; what cannot be recorded is EP_ERROR_CAPTURE with the op named. */
ep_status ep_capture(ep_context *ctx, ep_fn fn, void *user, const ep_tensor *const *inputs, int input_count,
                     int output_count, bool symbols, ep_captured *out);
void ep_captured_clear(ep_captured *c);

#endif
