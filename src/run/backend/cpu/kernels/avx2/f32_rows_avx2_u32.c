/* Reductions, norms and casts of rows of f32 on AVX2. */
#include "base/simd/simd_avx2.h"
#include "base/simd/vmath.h"

#define DT f32
#define SIZE 4
#define FAMILY ep_f32_rows_avx2_u32
#define SUFFIX "avx2_u32"
#include "run/backend/cpu/kernels/rows_template.h"
