/* f16 GEMM tiles, AVX2 with F16C: bound by the FMA ports, which the widening of the weights shares.
 * Share of the FMA peak: 73 % for whole blocks of 256 rows. */
#include <immintrin.h>

#include "base/simd/simd_avx2.h"
#include "base/simd/vmath.h"

#define ACC_MR 6
#define ACC_HALF
#include "run/backend/cpu/kernels/acc_template.h"

#define TILE_DTYPE_F16
#include "run/backend/cpu/kernels/dtype_template.h"
#include "run/backend/cpu/kernels/tile_template.h"

const ep_tuned_row ep_f16_gemm_avx2_t6x16 = {
    .isa_name = "avx2",
    .isa = EP_ISA_AVX2,
    .tile = "t6x16",
    .widen = tile_widen,
    .vector_name = "avx2",
    TILE_MEMBERS,
    ACC_MEMBERS,
};
