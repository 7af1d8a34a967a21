/* What CPU kernels look like to the driver around them, and the list of all of them (cpu_kernels.def). */
#ifndef EP_RUN_BACKEND_CPU_KERNELS_H
#define EP_RUN_BACKEND_CPU_KERNELS_H

#include <epilogue/ops.h>

#include "base/isa.h"

/* out[i] = f(in[0][i * step[0]], ...) for i < n; a step is 0 or 1. The condition of `where` is bool, all else the row's
 * dtype. out may be an input. */
typedef void (*ep_pointwise_fn)(int64_t n, const void *const *in, const int *step, void *out);

enum { EP_POINTWISE_OPS = EP_OP_WHERE + 1 };

struct ep_pointwise_table {
    struct {
        ep_pointwise_fn run;
        const char *name; /* "ep_f32_add_avx512_u64" */
    } op[EP_POINTWISE_OPS];
};
typedef struct ep_pointwise_table ep_pointwise_table;

/* One row of n adjacent elements. weight and bias are n adjacent elements or NULL. */
typedef float (*ep_reduce_row_fn)(int64_t n, const void *x); /* sum or maximum, in f32 */
typedef void (*ep_norm_row_fn)(int64_t n, const void *x, const void *weight, const void *bias, float eps, void *out);
typedef void (*ep_cast_fn)(int64_t n, const void *in, void *out);

struct ep_row_table {
    ep_reduce_row_fn sum, amax;
    ep_norm_row_fn softmax, layer_norm, rms_norm;
    ep_cast_fn to_f32, from_f32;
    const char *sum_name, *mean_name, *amax_name, *softmax_name, *layer_norm_name, *rms_norm_name;
    const char *cast_name; /* with the result's dtype */
};
typedef struct ep_row_table ep_row_table;

typedef enum ep_cpu_class { EP_CPU_POINTWISE, EP_CPU_ROWS, EP_CPU_GEMM } ep_cpu_class;

typedef struct ep_cpu_row {
    ep_cpu_class class;
    const char *op; /* "pointwise", "rows", "gemm" */
    ep_dtype dtype;
    ep_isa isa;
    const char *tile, *limits;
    const void *table; /* ep_pointwise_table or ep_row_table; NULL: the driver's own (oneDNN) */
    const char *symbol;
} ep_cpu_row;

/* Rows of cpu_kernels.def in order; ended by a row whose op is NULL. */
extern const ep_cpu_row ep_cpu_rows[];
/* The first row of class and dtype that `isa` allows; NULL if none. */
const ep_cpu_row *ep_cpu_select(ep_cpu_class class, ep_dtype dtype, ep_isa isa);
/* Why a row was passed over at this level, or "" if it is the one in use. */
const char *ep_cpu_why_not(const ep_cpu_row *row, ep_isa isa);

#endif
