// flags: -mavx512f -mavx512bw -mavx512dq -mavx512vl
/* The vector vocabulary and vmath.h, AVX-512. */
#define VMATH_ISA EP_ISA_AVX512
#include "base/simd/simd_avx512.h"
#include "base/simd/vmath.h"

#include "unit/base/simd/vmath_cases.h"
