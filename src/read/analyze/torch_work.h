/* Flops, bytes and GEMM sizes of one op of a trace, from its recorded shapes. */
#ifndef EP_READ_TORCH_WORK_H
#define EP_READ_TORCH_WORK_H

#include "model/trace/trace.h"

enum { EP_TORCH_INPUTS = 24, EP_TORCH_DIMS = 8 };

/* One argument as recorded. A list of tensors is one operand whose numel and bytes are sums. */
typedef struct ep_operand {
    int ndim;
    int64_t sizes[EP_TORCH_DIMS];
    int64_t numel, bytes;
    char dtype[8]; /* "bf16", "f32", ...; "" if it is no tensor */
    int element;   /* bytes */
    bool tensor, list;
    bool expanded; /* some stride is 0: fewer bytes than elements, and no kernel wrote it like that */
} ep_operand;

typedef struct ep_op_work {
    bool known; /* flops and bytes are known (or, with at_least, bounded from below) */
    bool at_least;
    const char *reason; /* why not known; a literal */
    int64_t flops, bytes_read, bytes_written;
    bool gemm; /* batch, m, n, k are set */
    bool bias;
    int64_t batch, m, n, k;
    char dtype[8];
    int64_t out_numel, out_bytes; /* the first result; 0 if unknown */
    bool writes_first;            /* in[0] is the result and its old values are not read: copy_, fill_ */
    int input_count;              /* tensors */
    ep_operand in[EP_TORCH_INPUTS];
} ep_op_work;

/* Never fails: what can't be known has a reason. */
void ep_torch_work(const ep_trace *t, uint32_t op, ep_op_work *out);
/* Sizes of argument `index` of "Input Dims" text; exposed for tests. Returns how many arguments were read. */
int ep_torch_operands(const char *dims, const char *types, ep_operand *out, int cap);
/* Marks the operands that "Input Strides" says are expanded; their bytes are those of the elements that differ. */
void ep_torch_strides(const char *strides, ep_operand *operands, int count);

/* Flops of one multiplication and addition: of complex numbers four of each. */
int ep_flops_per_product(const char *dtype);

#endif
