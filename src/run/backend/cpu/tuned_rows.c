/* The list of tuned GEMM rows, fastest first within a dtype, and the choice among them. */
#include "tuned.h"

#include <stddef.h>

#if defined(__x86_64__)
#define EP_TUNED_X86(ROW)                                                                                              \
    ROW(bf16_gemm_amxbf16_t32x32)                                                                                      \
    ROW(bf16_gemm_avx512bf16_t14x32)                                                                                   \
    ROW(bf16_gemm_avx512_t12x32)                                                                                       \
    ROW(bf16_gemm_avx2_t5x16)                                                                                          \
    ROW(f32_gemm_avx512_t14x32)                                                                                        \
    ROW(f32_gemm_avx2_t6x16)                                                                                           \
    ROW(f16_gemm_avx512fp16_t12x32)                                                                                    \
    ROW(f16_gemm_avx512_t12x32)                                                                                        \
    ROW(f16_gemm_avx2_t6x16)
#else
#define EP_TUNED_X86(ROW)
#endif
#define EP_TUNED_ROWS(ROW)                                                                                             \
    EP_TUNED_X86(ROW) ROW(bf16_gemm_portable_t2x16) ROW(f32_gemm_portable_t2x16) ROW(f16_gemm_portable_t2x16)

#define DECLARE(name) extern const ep_tuned_row ep_##name;
EP_TUNED_ROWS(DECLARE)
#define LIST(name) &ep_##name,
const ep_tuned_row *const ep_tuned_rows[] = {EP_TUNED_ROWS(LIST) NULL};

const ep_tuned_row *ep_tuned_select(ep_dtype dtype, ep_isa isa) {
    for (const ep_tuned_row *const *r = ep_tuned_rows; *r; r++)
        if ((*r)->dtype == dtype && (*r)->isa <= isa && (!(*r)->usable || (*r)->usable())) return *r;
    return NULL;
}
