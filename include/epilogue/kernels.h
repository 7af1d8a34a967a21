/* kernels.h: the kernels of this build, in the order they are preferred, and why each is or is not used on this machine: of
 * the CPU in general, of a GPU for one block. Generated kernels are not here: they are made when a function is compiled. */
#ifndef EPILOGUE_KERNELS_H
#define EPILOGUE_KERNELS_H

#include <stdbool.h>
#include <stddef.h>

#include "context.h"
#include "ops.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ep_kernel_row {
    const char *mode;   /* "eager" or "tuned" */
    const char *family; /* "pointwise", "rows" (reductions, norms, casts), "gemm"; of a GPU also "block", "gated" */
    const char *dtype;  /* "f32", ... */
    const char *isa;    /* as in kernel names: "avx512bf16", "onednn_avx512"; "sm_90a" */
    const char *tile;   /* "u64", "t14x32", or ""; of a GPU the part of the name that tells kernels of a family apart */
    const char *limits; /* what it takes, in words; or "" */
    bool used;          /* the first of its mode, family and dtype that can run here */
    const char *why;    /* why it is passed over; "" where it is used */
} ep_kernel_row;

/* Fills up to `max` rows and returns how many there are. Strings are constants. Thread-safe. */
EP_API size_t ep_kernel_rows(ep_kernel_row *out, size_t max);

/* A gated block on a GPU: `rows` rows of x, dim -> hidden -> dim. */
typedef struct ep_kernel_question {
    int device; /* which GPU */
    ep_dtype dtype;
    ep_act act;
    ep_rounding rounding;
    int64_t rows, dim, hidden;
} ep_kernel_question;

/* The ahead-of-time kernels for such a block, as above: which ones the GPU gets, and why not the others. device_name: of 96
 * bytes, or NULL. Where there is no such GPU the status and *err tell why; the rows are filled all the same, none of them
 * used, each `why` then empty and `limits` saying what it is for. *count: how many there are. Opens the driver, no context. */
EP_API ep_status ep_gpu_kernel_rows(const ep_kernel_question *question, ep_error *err, ep_kernel_row *out, size_t max,
                                    size_t *count, char *device_name);

#ifdef __cplusplus
}
#endif
#endif
