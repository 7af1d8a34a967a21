/* The GPU's part of `epi kernels`. */
#ifndef EPI_KERNELS_GPU_H
#define EPI_KERNELS_GPU_H

#include "cli.h"
#include "json_out.h"

typedef struct gpu_request {
    ep_kernel_question question;
    bool used_only;
    bool asked; /* --device cuda; else the list follows the CPU's, and is one line where there is no GPU */
} gpu_request;

void kernels_gpu_text(const gpu_request *r);
/* An object under the key "gpu". */
void kernels_gpu_json(json_out *j, const gpu_request *r);
/* A row as an object of an array. */
void kernels_row_json(json_out *j, const ep_kernel_row *row);

#endif
