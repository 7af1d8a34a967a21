// flags: -ffp-contract=off
/* The vector vocabulary and vmath.h, one lane. */
#define VMATH_ISA EP_ISA_PORTABLE
#include "base/simd/simd_scalar.h"
#include "base/simd/vmath.h"

#include "unit/base/simd/vmath_cases.h"
