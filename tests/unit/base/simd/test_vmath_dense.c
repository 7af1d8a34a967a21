// ctest: slow
// flags: -mavx2 -mfma -mf16c
/* As test_vmath_avx2.c, over every 37th f32. */
#define VMATH_ISA EP_ISA_AVX2
#define SWEEP_STEP 37u
#include "base/simd/simd_avx2.h"
#include "base/simd/vmath.h"

#include "unit/base/simd/vmath_cases.h"
