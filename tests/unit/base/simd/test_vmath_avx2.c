// flags: -mavx2 -mfma -mf16c
/* The vector vocabulary and vmath.h, AVX2. */
#define VMATH_ISA EP_ISA_AVX2
#include "base/simd/simd_avx2.h"
#include "base/simd/vmath.h"

#include "unit/base/simd/vmath_cases.h"
