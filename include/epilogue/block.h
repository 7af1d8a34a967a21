/* block.h: the blocks transformers spend their time in, created from weights and run in a mode.
 *
 * Weights are [out, in] as PyTorch stores them; they are retained, not copied, and must not be written to while the block
 * lives: tuned mode packs a copy on first use or when ep_block_prepare is called, compiled mode where that is
 * faster. x is [..., in]. A block belongs to one thread at a time, as its context does: several threads have a context
 * and a block each, over the same weights, and share the packed ones by ep_block_load_packed. What went wrong is in
 * ep_context_error of the block's context. examples/06_weights.c goes from a file to a tuned block. */
#ifndef EPILOGUE_BLOCK_H
#define EPILOGUE_BLOCK_H

#include "compile.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ep_block_kind {
    EP_BLOCK_LINEAR, /* y = x W^T + b */
    EP_BLOCK_MLP,    /* y = act(x Wup^T + bup) Wdown^T + bdown */
    EP_BLOCK_GATED   /* y = (act(x Wgate^T + bgate) * (x Wup^T + bup)) Wdown^T + bdown */
} ep_block_kind;

/* A named block as the tool knows it: "linear", "mlp", "geglu", "swiglu", "reglu". */
EP_API ep_status ep_block_parse(const char *name, ep_block_kind *kind, ep_act *act);

/* Fields that are not for the block's kind are not read. */
typedef struct ep_block_weights {
    const ep_tensor *up, *up_bias;     /* LINEAR: the only weight and bias */
    const ep_tensor *gate, *gate_bias; /* GATED */
    const ep_tensor *down, *down_bias; /* MLP and GATED */
    const ep_tensor *gate_up; /* GATED: one [2*hidden, dim] weight instead of gate and up: gate rows, then up */
    bool interleaved;         /* gate_up rows alternate gate, up */
} ep_block_weights;

typedef struct ep_block ep_block;
/* `act` is of MLP and GATED; LINEAR has none, whatever is given. */
EP_API ep_status ep_block_create(ep_context *ctx, ep_block_kind kind, ep_act act, const ep_block_weights *weights,
                                 ep_block **out);
EP_API void ep_block_destroy(ep_block *block);

/* y for x. `residual` (NULL or the shape of y) is added to y, in down's epilogue where the mode can. */
EP_API ep_status ep_block_run(ep_block *block, ep_mode mode, const ep_tensor *x, const ep_tensor *residual,
                              ep_tensor **out);
/* The same into memory of the caller's: out has the shape, dtype and device of y and any strides but 0. Tuned mode on the
 * CPU writes there at once, if out's columns are adjacent; else, and in the other modes, the result is copied. out may be
 * the residual or share memory with x: what was there is read first. Refused: EP_ERROR_SHAPE for another shape or dtype,
 * EP_ERROR_STRIDE for a stride of 0, EP_ERROR_CAPTURE while an ep_compile records. After a failure out may hold a part. */
EP_API ep_status ep_block_run_into(ep_block *block, ep_mode mode, const ep_tensor *x, const ep_tensor *residual,
                                   ep_tensor *out);
/* Does now what the first calls in `mode` would do (pack, compile, measure which way is faster), and waits for it. Beside
 * other work compiled mode may still be undecided after 2 s: then it returns EP_OK, and later calls go on measuring. */
EP_API ep_status ep_block_prepare(ep_block *block, ep_mode mode, const ep_tensor *x);
/* EP_OK if `mode` is available for this block here, else EP_ERROR_NOT_BUILT or EP_ERROR_UNSUPPORTED with the reason. */
EP_API ep_status ep_block_supports(ep_block *block, ep_mode mode);

/* Compiled mode: how it compiles, to be said before its first call (EP_ERROR_STATE after it; strings are copied), and the
 * compiled function behind it, for its counters, report and sources: owned by the block, NULL before the first call. */
EP_API ep_status ep_block_compile_with(ep_block *block, const ep_compile_options *options);
EP_API ep_compiled *ep_block_compiled(const ep_block *block);

EP_API ep_block_kind ep_block_get_kind(const ep_block *block);
EP_API int64_t ep_block_dim(const ep_block *block);
EP_API int64_t ep_block_hidden(const ep_block *block); /* 0 for LINEAR */
EP_API int64_t ep_block_out(const ep_block *block);
/* GATED: do gate and up (and their biases, if any) lie one behind the other in one buffer? Compiled mode makes them one
 * product then. */
EP_API bool ep_block_is_packed(const ep_block *block);
/* Bytes of packed weights that tuned mode holds, 0 before it packed. */
EP_API int64_t ep_block_packed_bytes(const ep_block *block);
/* Tuned mode measures its kernels against oneDNN's once for each part of the block and class of row counts (the first
 * call that is not recorded), and takes the faster: a line for each choice made, with its times. Returns the length.
 * EPILOGUE_TUNED=kernels, =onednn (plain weights) or =packed (oneDNN over weights in its own order) decides without
 * measuring. */
EP_API size_t ep_block_tuned_text(const ep_block *block, char *out, size_t size);
/* How gate and up of so many rows of x (batch * seq) are made: one kernel with their activation, or three; WHOLE: in one
 * kernel with down. */
typedef enum ep_tuned_pair { EP_TUNED_UNDECIDED, EP_TUNED_FUSED, EP_TUNED_APART, EP_TUNED_WHOLE } ep_tuned_pair;
EP_API ep_tuned_pair ep_block_tuned_pair(const ep_block *block, int64_t rows);
/* The packed weights in a file (packing first if that was not done yet), and back: loading maps the file, so that a
 * process starts without packing and processes share the pages. A file fits the block's shapes and dtype or is refused
 * with EP_ERROR_SHAPE; one packed for another processor's kernels with EP_ERROR_UNSUPPORTED; a damaged one with
 * EP_ERROR_FORMAT (`verify` also reads and checks all panels); EP_ERROR_NOT_FOUND where there is none. That the file
 * holds this block's weights and not others of the same shapes is for the caller to know; both are used, whichever is
 * measured to be faster. The file must not be cut short while it is mapped. */
EP_API ep_status ep_block_save_packed(ep_block *block, const char *path);
EP_API ep_status ep_block_load_packed(ep_block *block, const char *path, bool verify);

/* A feed-forward layer found in a safetensors file by the names of the usual model families. `pattern` is a substring
 * or glob over tensor names ("layers.3", "encoder.layer.0"); ambiguity is EP_ERROR_AMBIGUOUS with the candidates in the
 * error's sentence and in `report`. `report` receives the matched names, one a line. */
typedef struct ep_layer_match {
    ep_block_kind kind;
    ep_act act; /* what the family uses; the caller may overrule it */
    char family[32];
    ep_tensor *gate, *gate_bias, *up, *up_bias, *down, *down_bias; /* owned by the caller; ep_layer_match_clear */
} ep_layer_match;
EP_API ep_status ep_weights_match_layer(const ep_weights *w, const char *pattern, char *report, size_t report_size,
                                        ep_error *err, ep_layer_match *out);
EP_API void ep_layer_match_clear(ep_layer_match *match);

#ifdef __cplusplus
}
#endif
#endif
