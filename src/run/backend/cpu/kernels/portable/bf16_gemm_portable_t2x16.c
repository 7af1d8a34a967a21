/* bf16 GEMM tiles in plain C: no instruction assumed; two rows of sums are what 16 registers of 128 bits hold.
 * Share of the AVX2 FMA peak: 10 % for whole blocks of 64 rows. */
#include "base/simd/simd_scalar.h"
#include "base/simd/vmath.h"

#define ACC_BF16
#include "run/backend/cpu/kernels/acc_portable.h"

#define TILE_DTYPE_BF16
#define TILE_HALF 8
#define TILE_GATED tile_gated
#define TILE_PLAIN tile_plain
#include "run/backend/cpu/kernels/dtype_template.h"
#include "run/backend/cpu/kernels/tile_template.h"

const ep_tuned_row ep_bf16_gemm_portable_t2x16 = {
    .isa_name = "portable",
    .isa = EP_ISA_PORTABLE,
    .dtype = EP_DTYPE_BF16,
    .tile = "t2x16",
    .layout = EP_LAYOUT_BF16_8,
    .half = 8,
    .mr = 2,
    .a_bytes = 128,
    .chunk_k = 32,
    .block_chunks = 16,
    .acc = acc,
    .widen = tile_widen,
    .gated = tile_gated,
    .plain = tile_plain,
    .fill_table = tile_fill_table,
    .fill_pairs = gated_fill_pairs,
    .vector_name = "portable",
    .lanes = 1,
    .gated_row = gated_row,
    .gated_pairs = gated_pairs,
    .gated_back = gated_back,
};
