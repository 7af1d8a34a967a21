/* What an op is: the table made of pointwise.def and ops.def. Nothing here runs one. */
#ifndef EP_MODEL_OP_H
#define EP_MODEL_OP_H

#include <epilogue/machine.h>
#include <epilogue/ops.h>

#include "base/status.h"

typedef enum ep_op_kind {
    EP_KIND_POINTWISE,
    EP_KIND_VIEW,
    EP_KIND_GEMM,
    EP_KIND_REDUCE,
    EP_KIND_NORM,
    EP_KIND_MOVE,
    EP_KIND_COMPOSITE
} ep_op_kind;

/* What a call carries besides tensors. Unused fields are 0. */
typedef struct ep_attr {
    int dim, dim1;             /* transpose, slice, chunk, cat */
    int64_t start, stop, step; /* slice; chunk: start = index, stop = chunks */
    int ndim;                  /* view, expand */
    int64_t sizes[EP_MAX_DIMS];
    int dims; /* reductions: the last `dims` */
    bool keepdim;
    double eps, alpha, beta;
    ep_act act;
    ep_dtype dtype; /* cast */
    ep_rounding rounding;
} ep_attr;

/* Shapes in, shape out: nothing but sizes, so that capture, plans and predictions use it too. */
typedef struct ep_shape {
    ep_dtype dtype;
    int ndim;
    int64_t sizes[EP_MAX_DIMS];
} ep_shape;

typedef ep_status (*ep_shape_rule)(const ep_attr *attr, int count, const ep_shape *in, ep_error *err, ep_shape *out);
typedef void (*ep_work_rule)(const ep_attr *attr, int count, const ep_shape *in, const ep_shape *out, ep_work *work);

typedef struct ep_op_info {
    ep_op op;
    const char *name, *aten;
    ep_op_kind kind;
    int min_arity, max_arity;
    int flops;           /* pointwise: an element */
    const char *formula; /* pointwise: C text; else NULL */
    ep_shape_rule shape;
    ep_work_rule work;
} ep_op_info;

const ep_op_info *ep_op_get(ep_op op); /* never NULL for op < EP_OP_COUNT */
/* The result shape by the op's rule, with arity and dtypes checked first. */
ep_status ep_op_shape(ep_op op, const ep_attr *attr, int count, const ep_shape *in, ep_error *err, ep_shape *out);
/* Flops and the fewest bytes: each distinct input element read once, each output element written once. Views: 0. */
void ep_op_work(ep_op op, const ep_attr *attr, int count, const ep_shape *in, const ep_shape *out, ep_work *work);

/* The pointwise op of an activation. */
ep_op ep_act_op(ep_act act);

#endif
