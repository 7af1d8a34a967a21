/* What a block is made of, and the three ways to run it. */
#ifndef EP_RUN_BLOCK_PARTS_H
#define EP_RUN_BLOCK_PARTS_H

#include <epilogue/block.h>
#include <epilogue/compile.h>

#include "run/engine/dispatch.h"
#include "run/engine/replay.h"

struct ep_block {
    ep_context *ctx;
    ep_block_kind kind;
    ep_act act;
    ep_dtype dtype;
    const char *name;                                              /* of blocks.def, or the kind's own */
    ep_tensor *gate, *gate_bias, *up, *up_bias, *down, *down_bias; /* handles of ours; NULL where the block has none */
    int64_t dim, hidden, out;
    ep_packed *packed_first, *packed_down; /* tuned mode; NULL until packed */
    ep_replay replay;                      /* of tuned mode */
    ep_compiled *compiled[2];              /* without and with a residual; NULL until compiled */
    ep_compile_options compile_options;
};

/* The blocks op by op, in nothing but the public eager API; so they can be captured. residual may be NULL. */
ep_status ep_eager_linear(ep_context *ctx, const ep_block *b, const ep_tensor *x, ep_tensor **out);
ep_status ep_eager_mlp(ep_context *ctx, const ep_block *b, const ep_tensor *x, ep_tensor **out);
ep_status ep_eager_glu(ep_context *ctx, const ep_block *b, const ep_tensor *x, ep_tensor **out);
ep_status ep_block_eager_run(ep_context *ctx, const ep_block *b, const ep_tensor *x, const ep_tensor *residual,
                             ep_tensor **out);

/* tuned.c: packs if that was not done yet; runs over packed weights in one (linear) or two kernels. */
ep_status ep_block_tuned_supports(ep_block *b);
ep_status ep_block_tuned_pack(ep_block *b);
/* into: a result [rows, out] of the caller's, its columns adjacent, that shares no memory with x; NULL: a new one in *out. */
ep_status ep_block_tuned_run(ep_block *b, const ep_tensor *x, const ep_tensor *residual, const ep_tensor *into,
                             ep_tensor **out);
void ep_block_tuned_free(ep_block *b);

/* block.c: by mode, what was checked. */
ep_status ep_block_run_by(ep_block *b, ep_mode mode, const ep_tensor *x, const ep_tensor *residual, ep_tensor **out);
/* into.c: the same into the caller's memory. */
ep_status ep_block_run_to(ep_block *b, ep_mode mode, const ep_tensor *x, const ep_tensor *residual, ep_tensor *out);

/* compiled.c: the eager function through ep_compile. */
ep_status ep_block_compiled_supports(ep_block *b);
ep_status ep_block_compiled_run(ep_block *b, const ep_tensor *x, const ep_tensor *residual, ep_tensor **out);
ep_status ep_block_compiled_wait(ep_block *b, bool residual);
ep_status ep_block_compiled_settle(ep_block *b, const ep_tensor *x);
void ep_block_compiled_free(ep_block *b);

#endif
