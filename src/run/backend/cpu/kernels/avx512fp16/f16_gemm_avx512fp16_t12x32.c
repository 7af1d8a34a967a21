/* f16 GEMM tiles as in the AVX-512 row, and the gated kernels with products of the processor's f16 unit: 32 numbers an
 * operation where f32 needs two products and six conversions. */
#include <cpuid.h>
#include <immintrin.h>
#include <pthread.h>

#include "base/simd/simd_avx512.h"
#include "base/simd/vmath.h"

#define ACC_MR 12
#define ACC_HALF
#include "run/backend/cpu/kernels/acc_template.h"

#define TILE_DTYPE_F16
#include "run/backend/cpu/kernels/dtype_template.h"
#include "run/backend/cpu/kernels/tile_template.h"

/* Not a level of its own: processors have it with and without AMX. Asked once: a virtual machine takes microseconds for
 * the answer. */
static bool has_unit;
static pthread_once_t asked_unit = PTHREAD_ONCE_INIT;
static void ask_unit(void) {
    unsigned a, b, c, d;
    has_unit = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 23 & 1);
}
static bool usable(void) {
    pthread_once(&asked_unit, ask_unit);
    return has_unit;
}

const ep_tuned_row ep_f16_gemm_avx512fp16_t12x32 = {
    .isa_name = "avx512fp16",
    .isa = EP_ISA_AVX512_BF16,
    .tile = "t12x32",
    .widen = tile_widen,
    .vector_name = "avx512fp16",
    .gated_mixes = true,
    .gated_words = true,
    .gated_slopes = true,
    .usable = usable,
    .unusable = "the processor lacks AVX512_FP16",
    TILE_MEMBERS,
    ACC_MEMBERS,
};
