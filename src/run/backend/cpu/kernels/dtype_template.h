/* TILE_* words of a dtype for tile_template.h and the gated kernels. The includer defines TILE_DTYPE_F32, _BF16 or _F16. */
/* Two words beyond the vocabulary: lanes of 16 bits as indices, and a gather of floats. */
#if V_LANES == 1
V_FN v_i32 v_index16(v_h16 h) {
    return (v_i32)h;
}
V_FN v_f32 v_gather(const float *table, v_i32 index) {
    return table[index];
}
#else
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
#else
#define TILE_SIZE 2
#define TILE_LOAD(p) v_load_f16(p)
#define TILE_LOAD_N(p, n) v_load_f16_n(p, n)
#define TILE_STORE(p, x) v_store_f16(p, x)
#define TILE_STORE_N(p, x, n) v_store_f16_n(p, x, n)
#define TILE_ROUND(x) v_round_f16(x)
#define TILE_INDEX(x) v_index16(v_f16(x))
#endif
