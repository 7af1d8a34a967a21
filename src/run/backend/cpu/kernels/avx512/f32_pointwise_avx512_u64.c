/* Pointwise kernels over f32 on AVX-512. */
#include "base/simd/simd_avx512.h"
#include "base/simd/vmath.h"

#define DT f32
#define SIZE 4
#define FAMILY ep_f32_pointwise_avx512_u64
#define SUFFIX "avx512_u64"
#include "run/backend/cpu/kernels/pointwise_template.h"
