/* TILE_* words of a dtype for tile_template.h and the gated kernels. The includer defines TILE_DTYPE_F32, _BF16 or _F16. */
#define TILE_HALF (V_LANES == 16 ? 16 : 8) /* columns of half a panel */

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
#if V_LANES == 16 /* gcc makes four instructions of the general form */
    return (v_i32)_mm512_cvtepu16_epi32((__m256i)h);
#else
    return (v_i32) __builtin_convertvector((v_u16)h, v_u32);
#endif
}
V_FN v_f32 v_gather(const float *table, v_i32 index) {
#if V_LANES == 16
    /* Into zeros: into whatever a register holds, it would wait for what makes that. */
    return (v_f32)_mm512_mask_i32gather_ps(_mm512_setzero_ps(), 0xffff, (__m512i)index, table, 4);
#else
    return (v_f32)_mm256_i32gather_ps(table, (__m256i)index, 4);
#endif
}
#endif

/* Entries of two floats each. */
V_FN void v_gather_pair(const float *table, v_i32 index, v_f32 *first, v_f32 *second) {
#if V_LANES == 1
    *first = table[2 * index];
    *second = table[2 * index + 1];
#elif V_LANES == 16
    /* Eight lanes of 64 bits cost half of sixteen of 32. */
    __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    __m512i odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    const __m512i zero = _mm512_setzero_si512();
    __m256i low = _mm512_castsi512_si256((__m512i)index), high = _mm512_extracti64x4_epi64((__m512i)index, 1);
    __m512 a = _mm512_castsi512_ps(_mm512_mask_i32gather_epi64(zero, 0xff, low, table, 8));
    __m512 b = _mm512_castsi512_ps(_mm512_mask_i32gather_epi64(zero, 0xff, high, table, 8));
    *first = (v_f32)_mm512_permutex2var_ps(a, even, b);
    *second = (v_f32)_mm512_permutex2var_ps(a, odd, b);
#else
    *first = (v_f32)_mm256_i32gather_ps(table, (__m256i)index, 8);
    *second = (v_f32)_mm256_i32gather_ps(table + 1, (__m256i)index, 8);
#endif
}

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
#define TILE_DTYPE EP_DTYPE_F32
#define TILE_LAYOUT (TILE_HALF == 16 ? EP_LAYOUT_F32_16 : EP_LAYOUT_F32_8)
#define TILE_SIZE 4
#define TILE_LOAD(p) v_load(p)
#define TILE_LOAD_N(p, n) v_load_n(p, n)
#define TILE_STORE(p, x) v_store(p, x)
#define TILE_STORE_N(p, x, n) v_store_n(p, x, n)
#define TILE_ROUND(x) (x)
#elif defined(TILE_DTYPE_BF16)
#define TILE_DTYPE EP_DTYPE_BF16
#define TILE_LAYOUT (TILE_HALF == 16 ? EP_LAYOUT_BF16_16 : EP_LAYOUT_BF16_8)
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
#define TILE_DTYPE EP_DTYPE_F16
#define TILE_LAYOUT (TILE_HALF == 16 ? EP_LAYOUT_F16_16 : EP_LAYOUT_F16_8)
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

/* A vector of 16-bit elements as two of f32, A and B: each one's bits as an index, and both rounded and joined again.
 * Even and odd elements, or the halves of the vector. */
#if TILE_SIZE == 2
#if defined(TILE_DTYPE_BF16) || V_LANES == 1
#define TILE_INDEX_A(q) ((q)&0xffff)
#define TILE_INDEX_B(q) v_shr(q, 16)
#define TILE_A(q) TILE_LOW(q)
#define TILE_B(q) TILE_HIGH(q)
#if defined(TILE_DTYPE_BF16)
V_FN v_i32 bf16_bits(v_f32 x) { /* in the upper half of a lane; nearest even, a NaN becomes quiet */
    v_i32 b = v_bits(x);
    v_i32 r = v_iadd(b, 0x7fff + (v_shr(b, 16) & 1)), q = b | 0x400000;
    return v_bits(v_blend(v_ne(x, x), v_float(q), v_float(r)));
}
#ifdef __AVX512BF16__
V_FN v_i32 bf16_join_flushed(v_f32 a, v_f32 b) { /* denormals become zeros */
    const __m512i order =
        _mm512_set_epi32(0x1f000f, 0x1e000e, 0x1d000d, 0x1c000c, 0x1b000b, 0x1a000a, 0x190009, 0x180008, 0x170007,
                         0x160006, 0x150005, 0x140004, 0x130003, 0x120002, 0x110001, 0x100000);
    return (v_i32)_mm512_permutexvar_epi16(order, (__m512i)_mm512_cvtne2ps_pbh((__m512)b, (__m512)a));
}
#endif
V_FN v_i32 TILE_JOIN(v_f32 a, v_f32 b) {
#ifdef __AVX512BF16__
    __mmask16 small_a = _mm512_fpclass_ps_mask((__m512)a, 0x20), small_b = _mm512_fpclass_ps_mask((__m512)b, 0x20);
    if (__builtin_expect(_kortestz_mask16_u8(small_a, small_b), 1)) return bf16_join_flushed(a, b);
#endif
    return v_shr(bf16_bits(a), 16) | (bf16_bits(b) & (int)0xffff0000);
}
#else
#define TILE_JOIN(a, b) ((v_i32)v_f16(a) | v_shl((v_i32)v_f16(b), 16))
#endif
#else /* f16 on vectors: the halves */
#if V_LANES == 16
#define F16_A(q) ((v_h16)_mm512_castsi512_si256((__m512i)(q)))
#define F16_B(q) ((v_h16)_mm512_extracti64x4_epi64((__m512i)(q), 1))
#define TILE_JOIN(a, b) ((v_i32)_mm512_inserti64x4(_mm512_castsi256_si512((__m256i)v_f16(a)), (__m256i)v_f16(b), 1))
#else
#define F16_A(q) ((v_h16)_mm256_castsi256_si128((__m256i)(q)))
#define F16_B(q) ((v_h16)_mm256_extracti128_si256((__m256i)(q), 1))
#define TILE_JOIN(a, b)                                                                                                \
    ((v_i32)_mm256_inserti128_si256(_mm256_castsi128_si256((__m128i)v_f16(a)), (__m128i)v_f16(b), 1))
#endif
#define TILE_INDEX_A(q) v_index16(F16_A(q))
#define TILE_INDEX_B(q) v_index16(F16_B(q))
#define TILE_A(q) v_widen_f16(F16_A(q))
#define TILE_B(q) v_widen_f16(F16_B(q))
#endif
#endif
