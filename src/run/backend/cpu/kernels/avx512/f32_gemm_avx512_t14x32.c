/* f32 GEMM tiles, AVX-512: bound by the two FMA ports; one broadcast feeds two FMAs, 28 sums stay in registers.
 * Share of the FMA peak: 98 % in L1, 93 % for whole blocks of 64 and 512 rows with one thread, 80 to 90 % with two; 1 row: the
 * read bandwidth. Last change: a chunk of a full tile is one run of instructions, 3 %. */
#include <immintrin.h>

#include "base/simd/simd_avx512.h"
#include "base/simd/vmath.h"

#define ACC_NAME acc
#define ACC_MR 14
#define ACC_QUAD
#define ACC_ROW 17 /* 14 rows 64 bytes apart would share a bank of L1 where addresses choose it */
#define ACC_B v_f32
#define ACC_LOAD_B(p) v_load(p)
#define ACC_BROADCAST(p) v_set1(*(p))
#define ACC_MAC(a, b, s) v_fma(a, b, s)
#include "run/backend/cpu/kernels/acc_template.h"

#define TILE_DTYPE_F32
#define TILE_HALF 16
#define TILE_GATED tile_gated
#define TILE_PLAIN tile_plain
#include "run/backend/cpu/kernels/dtype_template.h"
#include "run/backend/cpu/kernels/tile_template.h"

const ep_tuned_row ep_f32_gemm_avx512_t14x32 = {
    .isa_name = "avx512",
    .isa = EP_ISA_AVX512,
    .dtype = EP_DTYPE_F32,
    .tile = "t14x32",
    .layout = EP_LAYOUT_F32_16,
    .half = 16,
    .mr = 14,
    .a_bytes = 68,
    .chunk_k = 16,
    .block_chunks = 16,
    .acc = acc,
    .across = acc_across,
    .across_rows = ACC_FEW,
    .gated = tile_gated,
    .plain = tile_plain,
    .fill_table = tile_fill_table,
    .fill_pairs = gated_fill_pairs,
    .vector_name = "avx512",
    .lanes = 16,
    .gated_row = gated_row,
    .gated_pairs = gated_pairs,
    .gated_back = gated_back,
};
