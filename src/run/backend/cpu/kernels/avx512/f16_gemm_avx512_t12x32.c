/* f16 GEMM tiles, AVX-512: bound by the FMA ports, which the widening of the weights shares.
 * Share of the FMA peak: 56 % for whole blocks of 512 rows; 1 row: the measured read bandwidth. */
#include <immintrin.h>

#include "base/simd/simd_avx512.h"
#include "base/simd/vmath.h"

#define ACC_MR 12
#define ACC_HALF
#include "run/backend/cpu/kernels/acc_template.h"

#define TILE_DTYPE_F16
#include "run/backend/cpu/kernels/dtype_template.h"
#include "run/backend/cpu/kernels/tile_template.h"

const ep_tuned_row ep_f16_gemm_avx512_t12x32 = {
    .isa_name = "avx512",
    .isa = EP_ISA_AVX512,
    .tile = "t12x32",
    .widen = tile_widen,
    .vector_name = "avx512",
    .gated_mixes = true,
    TILE_MEMBERS,
    ACC_MEMBERS,
};
