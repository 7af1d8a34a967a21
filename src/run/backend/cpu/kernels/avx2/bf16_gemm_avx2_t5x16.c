/* bf16 GEMM tiles, AVX2: bound by the two FMA ports; pairs are widened in registers.
 * Share of the FMA peak: 64 to 67 % for whole blocks of 256 rows. */
#include <immintrin.h>

#include "base/simd/simd_avx2.h"
#include "base/simd/vmath.h"

#define ACC_MR 5
#define ACC_PAIR
#include "run/backend/cpu/kernels/acc_template.h"

#define TILE_DTYPE_BF16
#include "run/backend/cpu/kernels/dtype_template.h"
#include "run/backend/cpu/kernels/tile_template.h"

const ep_tuned_row ep_bf16_gemm_avx2_t5x16 = {
    .isa_name = "avx2",
    .isa = EP_ISA_AVX2,
    .tile = "t5x16",
    .widen = tile_widen,
    .vector_name = "avx2",
    TILE_MEMBERS,
    ACC_MEMBERS,
};
