/* What the host and the strided kernels share: collapsed dims, outermost first; strides in elements, 0 broadcasts. */
#pragma once

typedef struct ep_strided_args {
    const void *in[3];
    void *out;
    long long numel;
    long long sizes[8], in_strides[3][8], out_strides[8];
    int ndim, count, op;
    int in_dtype[3], out_dtype; /* ep_dtype; of the any-dtype kernel */
} ep_strided_args;

typedef struct ep_flat_args {
    const void *in[3];
    void *out;
    long long numel;
    unsigned scalar; /* bit i: input i is one element */
} ep_flat_args;

typedef struct ep_row_args { /* one row a block */
    const void *x, *weight, *bias;
    void *out;
    long long rows, cols, x_row, out_row; /* elements; columns adjacent */
    float eps;
} ep_row_args;
