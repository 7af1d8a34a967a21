/* f32 GEMM tiles in plain C: no instruction assumed; two rows of sums are what 16 registers of 128 bits hold.
 * Share of the AVX2 FMA peak: 12 to 20 % for whole blocks of 64 rows. */
#include "base/simd/simd_scalar.h"
#include "base/simd/vmath.h"

#define ACC_F32
#include "run/backend/cpu/kernels/acc_portable.h"

#define TILE_DTYPE_F32
#include "run/backend/cpu/kernels/dtype_template.h"
#include "run/backend/cpu/kernels/tile_template.h"

const ep_tuned_row ep_f32_gemm_portable_t2x16 = {
    .isa_name = "portable",
    .isa = EP_ISA_PORTABLE,
    .tile = "t2x16",
    .vector_name = "portable",
    TILE_MEMBERS,
    ACC_MEMBERS,
};
