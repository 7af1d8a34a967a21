/* Reductions, norms and casts of rows of bf16 on AVX-512. */
#include "base/simd/simd_avx512.h"
#include "base/simd/vmath.h"

#define DT bf16
#define SIZE 2
#define PAIRS
#define FAMILY ep_bf16_rows_avx512_u64
#define SUFFIX "avx512_u64"
#include "run/backend/cpu/kernels/rows_template.h"
