/* bf16 GEMM tiles, vdpbf16ps: bound by the rate of that instruction, 1 a cycle on some processors and 2 on others. */
#include <immintrin.h>

#include <immintrin.h>

#include "base/simd/simd_avx512.h"
#include "base/simd/vmath.h"

#define ACC_NAME acc
#define ACC_MR 14
#define ACC_QUAD
#define ACC_B __m512bh
#define ACC_LOAD_B(p) ((__m512bh)_mm512_loadu_si512(p))
#define ACC_BROADCAST(p) ((__m512bh)_mm512_castps_si512(_mm512_set1_ps(*(p))))
#define ACC_MAC(a, b, s) ((v_f32)_mm512_dpbf16_ps((__m512)(s), a, b))
#include "run/backend/cpu/kernels/acc_template.h"

#define TILE_DTYPE_BF16
#define TILE_HALF 16
#define TILE_GATED tile_gated
#define TILE_PLAIN tile_plain
#include "run/backend/cpu/kernels/dtype_template.h"
#include "run/backend/cpu/kernels/tile_template.h"

const ep_tuned_row ep_bf16_gemm_avx512bf16_t14x32 = {
    .isa_name = "avx512bf16",
    .isa = EP_ISA_AVX512_BF16,
    .dtype = EP_DTYPE_BF16,
    .layout = EP_LAYOUT_BF16_16,
    .half = 16,
    .mr = 14,
    .a_bytes = 64,
    .chunk_k = 32,
    .block_chunks = 16,
    .acc = acc,
    .gated = tile_gated,
    .plain = tile_plain,
    .fill_table = tile_fill_table,
    .fill_slopes = gated_fill_slopes,
    .vector_name = "avx512bf16",
    .lanes = 16,
    .gated_row = gated_row,
    .gated_pairs = gated_pairs,
    .gated_back = gated_back,
};
