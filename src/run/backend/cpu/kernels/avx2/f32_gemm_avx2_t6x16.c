/* f32 GEMM tiles, AVX2: bound by the two FMA ports; 12 sums stay in registers.
 * Share of the FMA peak: 70 % for whole blocks of 512 rows. Last change: sums by blocks of k, for their error. */
#include <immintrin.h>

#include "base/simd/simd_avx2.h"
#include "base/simd/vmath.h"

#define ACC_MR 6
#define ACC_QUAD
#define ACC_B v_f32
#define ACC_LOAD_B(p) v_load(p)
#define ACC_BROADCAST(p) v_set1(*(p))
#define ACC_MAC(a, b, s) v_fma(a, b, s)
#include "run/backend/cpu/kernels/acc_template.h"

#define TILE_DTYPE_F32
#include "run/backend/cpu/kernels/dtype_template.h"
#include "run/backend/cpu/kernels/tile_template.h"

const ep_tuned_row ep_f32_gemm_avx2_t6x16 = {
    .isa_name = "avx2",
    .isa = EP_ISA_AVX2,
    .tile = "t6x16",
    .vector_name = "avx2",
    TILE_MEMBERS,
    ACC_MEMBERS,
};
