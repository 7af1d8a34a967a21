/* Loads and stores of the dtype DT, and what templates over it share. Needs a simd header and vmath.h in front. */
#ifndef EP_KERNELS_VECTOR_IO_H
#define EP_KERNELS_VECTOR_IO_H

#include <stdint.h>

#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)
#define LOAD PASTE(v_load_, DT)
#define LOAD_N(p, n) PASTE(PASTE(v_load_, DT), _n)(p, n)
#define STORE PASTE(v_store_, DT)
#define STORE_N(p, v, n) PASTE(PASTE(v_store_, DT), _n)(p, v, n)
#define v_load_f32 v_load
#define v_load_f32_n v_load_n
#define v_store_f32 v_store
#define v_store_f32_n v_store_n
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

#define AT(p, i) ((const char *)(p) + (i)*SIZE)
#define OUT_AT(p, i) ((char *)(p) + (i)*SIZE)

/* A vector of elements, or (half 0 or 1) those of even or odd place of two vectors side by side: bf16, for which PAIRS is
 * defined, widens and is stored in pairs for half the work. */
#ifdef PAIRS
V_FN v_f32 load_part(const void *p, int half) {
    if (half < 0) return LOAD(p);
    return half ? v_second_bf16(v_load_pairs(p)) : v_first_bf16(v_load_pairs(p));
}
#else
#define load_part(p, half) LOAD(p)
#endif

#endif
