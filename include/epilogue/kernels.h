/* kernels.h: the kernels of this build for the CPU, in the order they are preferred, and why each is or is not used on
 * this machine. Generated kernels are not here: they are made when a function is compiled. */
#ifndef EPILOGUE_KERNELS_H
#define EPILOGUE_KERNELS_H

#include <stdbool.h>
#include <stddef.h>

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ep_kernel_row {
    const char *mode;   /* "eager" or "tuned" */
    const char *family; /* "pointwise", "rows" (reductions, norms, casts), "gemm" */
    const char *dtype;  /* "f32", ... */
    const char *isa;    /* as in kernel names: "avx512bf16", "onednn_avx512" */
    const char *tile;   /* "u64", "t14x32", or "" */
    const char *limits; /* what it takes, in words; or "" */
    bool used;          /* the first of its mode, family and dtype that can run here */
    const char *why;    /* why it is passed over; "" where it is used */
} ep_kernel_row;

/* Fills up to `max` rows and returns how many there are. Strings are constants. Thread-safe. */
EP_API size_t ep_kernel_rows(ep_kernel_row *out, size_t max);

#ifdef __cplusplus
}
#endif
#endif
