/* f32 GEMM tiles, AVX-512: bound by the two FMA ports; one broadcast feeds two FMAs, 28 sums stay in registers.
 * Share of the FMA peak: 98 % in L1, 93 % for whole blocks of 64 and 512 rows with one thread, 80 to 90 % with two; 1 row: the
 * read bandwidth. Last change: a chunk of a full tile is one run of instructions, 3 %. */
#include <immintrin.h>

#include "base/simd/simd_avx512.h"
#include "base/simd/vmath.h"

#define ACC_MR 14
#define ACC_QUAD
#define ACC_ROW 17 /* 14 rows 64 bytes apart would share a bank of L1 where addresses choose it */
#define ACC_B v_f32
#define ACC_LOAD_B(p) v_load(p)
#define ACC_BROADCAST(p) v_set1(*(p))
#define ACC_MAC(a, b, s) v_fma(a, b, s)
#include "run/backend/cpu/kernels/acc_template.h"

#define TILE_DTYPE_F32
#include "run/backend/cpu/kernels/dtype_template.h"
#include "run/backend/cpu/kernels/tile_template.h"

const ep_tuned_row ep_f32_gemm_avx512_t14x32 = {
    .isa_name = "avx512",
    .isa = EP_ISA_AVX512,
    .tile = "t14x32",
    .vector_name = "avx512",
    TILE_MEMBERS,
    ACC_MEMBERS,
};
