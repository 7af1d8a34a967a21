/* Reductions, norms and casts of rows of bf16 on AVX2. */
#include "base/simd/simd_avx2.h"
#include "base/simd/vmath.h"

#define DT bf16
#define SIZE 2
#define PAIRS
#define FAMILY ep_bf16_rows_avx2_u32
#define SUFFIX "avx2_u32"
#include "run/backend/cpu/kernels/rows_template.h"
