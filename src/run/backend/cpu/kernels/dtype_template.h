/* TILE_* words of a dtype for tile_template.h and the gated kernels. The includer defines TILE_DTYPE_F32, _BF16 or _F16. */
/* Two words beyond the vocabulary: lanes of 16 bits as indices, and a gather of floats. */
#if V_LANES == 1
V_FN v_i32 v_index16(v_h16 h) {
    return (v_i32)h;
}
V_FN v_f32 v_gather(const float *table, v_i32 index) {
    return table[index];
}
V_FN v_h16 v_low16(v_i32 q) {
    return (v_h16)(q & 0xffff);
}
#else
V_FN v_h16 v_low16(v_i32 q) {
    return (v_h16) __builtin_convertvector((v_u32)(q & 0xffff), v_u16);
}
V_FN v_i32 v_index16(v_h16 h) {
    return (v_i32) __builtin_convertvector((v_u16)h, v_u32);
}
V_FN v_f32 v_gather(const float *table, v_i32 index) {
#if V_LANES == 16
    return (v_f32)_mm512_i32gather_ps((__m512i)index, table, 4);
#else
    return (v_f32)_mm256_i32gather_ps(table, (__m256i)index, 4);
#endif
}
#endif

/* Even and odd lanes of a and b in order. */
#if V_LANES == 1
#define v_even(a, b) ((void)(b), (a))
#define v_odd(a, b) ((void)(a), (b))
#elif V_LANES == 8
#define v_even(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14)
#define v_odd(a, b) __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15)
#else
#define v_even(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30)
#define v_odd(a, b) __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31)
#endif

#if defined(TILE_DTYPE_F32)
#define TILE_SIZE 4
#define TILE_LOAD(p) v_load(p)
#define TILE_LOAD_N(p, n) v_load_n(p, n)
#define TILE_STORE(p, x) v_store(p, x)
#define TILE_STORE_N(p, x, n) v_store_n(p, x, n)
#define TILE_ROUND(x) (x)
#elif defined(TILE_DTYPE_BF16)
#define TILE_SIZE 2
#define TILE_LOAD(p) v_load_bf16(p)
#define TILE_LOAD_N(p, n) v_load_bf16_n(p, n)
#define TILE_STORE(p, x) v_store_bf16(p, x)
#define TILE_STORE_N(p, x, n) v_store_bf16_n(p, x, n)
#define TILE_ROUND(x) v_round_bf16(x)
#define TILE_INDEX(x) v_index16(v_bf16(x))
#define TILE_LOW(q) v_float(v_shl(q, 16)) /* of pairs of 16 bits in 32 */
#define TILE_HIGH(q) v_float((q) & (int)0xffff0000)
#else
#define TILE_SIZE 2
#define TILE_LOAD(p) v_load_f16(p)
#define TILE_LOAD_N(p, n) v_load_f16_n(p, n)
#define TILE_STORE(p, x) v_store_f16(p, x)
#define TILE_STORE_N(p, x, n) v_store_f16_n(p, x, n)
#define TILE_ROUND(x) v_round_f16(x)
#define TILE_INDEX(x) v_index16(v_f16(x))
#define TILE_LOW(q) v_widen_f16(v_low16(q))
#define TILE_HIGH(q) v_widen_f16(v_low16(v_shr(q, 16)))
#endif
