/* Reductions, norms and casts of rows of bf16 on any processor. */
#include "base/simd/simd_scalar.h"
#include "base/simd/vmath.h"

#define DT bf16
#define SIZE 2
#define PAIRS
#define FAMILY ep_bf16_rows_portable_u4
#define SUFFIX "portable_u4"
#include "run/backend/cpu/kernels/rows_template.h"
