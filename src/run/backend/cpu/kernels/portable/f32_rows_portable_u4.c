/* Reductions, norms and casts of rows of f32 on any processor. */
#include "base/simd/simd_scalar.h"
#include "base/simd/vmath.h"

#define DT f32
#define SIZE 4
#define FAMILY ep_f32_rows_portable_u4
#define SUFFIX "portable_u4"
#include "run/backend/cpu/kernels/rows_template.h"
