// flags: -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512bf16
/* The vector vocabulary and vmath.h, AVX-512 with AVX512_BF16. */
#define VMATH_ISA EP_ISA_AVX512_BF16
#include "base/simd/simd_avx512.h"
#include "base/simd/vmath.h"

#include "unit/base/simd/vmath_cases.h"
