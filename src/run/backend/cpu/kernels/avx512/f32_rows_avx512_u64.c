/* Reductions, norms and casts of rows of f32 on AVX-512. */
#include "base/simd/simd_avx512.h"
#include "base/simd/vmath.h"

#define DT f32
#define SIZE 4
#define FAMILY ep_f32_rows_avx512_u64
#define SUFFIX "avx512_u64"
#include "run/backend/cpu/kernels/rows_template.h"
