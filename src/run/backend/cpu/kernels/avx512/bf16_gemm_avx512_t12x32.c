/* bf16 GEMM tiles without dot-product instructions, AVX-512: bound by the two FMA ports; pairs are widened in registers.
 * Share of the FMA peak: 84 % for whole blocks of 512 rows with one thread, epilogue included. */
#include <immintrin.h>

#include "base/simd/simd_avx512.h"
#include "base/simd/vmath.h"

#define ACC_NAME acc
#define ACC_MR 12
#define ACC_PAIR

#include "run/backend/cpu/kernels/acc_template.h"

#define TILE_DTYPE_BF16
#define TILE_HALF 16
#define TILE_GATED tile_gated
#define TILE_PLAIN tile_plain
#include "run/backend/cpu/kernels/dtype_template.h"
#include "run/backend/cpu/kernels/tile_template.h"

const ep_tuned_row ep_bf16_gemm_avx512_t12x32 = {
    .isa_name = "avx512",
    .isa = EP_ISA_AVX512,
    .dtype = EP_DTYPE_BF16,
    .tile = "t12x32",
    .layout = EP_LAYOUT_BF16_16,
    .half = 16,
    .mr = 12,
    .a_bytes = 128,
    .chunk_k = 32,
    .block_chunks = 16,
    .acc = acc,
    .across = acc_across,
    .across_rows = ACC_FEW,
    .widen = tile_widen,
    .gated = tile_gated,
    .plain = tile_plain,
    .fill_table = tile_fill_table,
    .fill_pairs = gated_fill_pairs,
    .vector_name = "avx512",
    .lanes = 16,
    .gated_row = gated_row,
    .gated_pairs = gated_pairs,
    .gated_back = gated_back,
    .gated_mixes = true,
};
