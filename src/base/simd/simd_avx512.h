/* The vector vocabulary on AVX-512 (F, BW, DQ, VL): 16 lanes of f32. Includes nothing, because the same text stands in
 * front of generated kernels; docs/simd.md lists the words. Every header defines the same words with the same bits as
 * result, whatever the number of lanes. */
#ifndef EP_SIMD_H
#define EP_SIMD_H

#define V_LANES 16
#define V_FN static inline __attribute__((always_inline, unused))

#ifdef __clang__
#define V_ALL512 ((unsigned short)-1)
#else
#define V_ALL512 (-1) /* gcc's builtins of the first version take short */
#endif

typedef float v_f32 __attribute__((vector_size(64)));
typedef int v_i32 __attribute__((vector_size(64)));
typedef unsigned v_u32 __attribute__((vector_size(64)));
typedef unsigned short v_mask; /* a bit a lane */
typedef float v_f32_any __attribute__((vector_size(64), aligned(2), may_alias));
typedef int v_i32_any __attribute__((vector_size(64), aligned(2), may_alias));
typedef short v_h16 __attribute__((vector_size(32))); /* the builtins' type of 16-bit lanes */
typedef unsigned short v_u16 __attribute__((vector_size(32)));
typedef short v_h32 __attribute__((vector_size(64)));
typedef short v_h16_any __attribute__((vector_size(32), aligned(2), may_alias));
typedef char v_b8 __attribute__((vector_size(16)));
typedef unsigned char v_u8 __attribute__((vector_size(16)));
typedef char v_b8_any __attribute__((vector_size(16), aligned(1), may_alias));

V_FN v_f32 v_set1(float x) {
    return (v_f32){x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x};
}
V_FN v_i32 v_iset1(int x) {
    return (v_i32){x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x};
}
V_FN v_i32 v_bits(v_f32 x) {
    return (v_i32)x;
}
V_FN v_f32 v_float(v_i32 x) {
    return (v_f32)x;
}
V_FN v_i32 v_shl(v_i32 x, int n) {
    return (v_i32)((v_u32)x << n);
}
V_FN v_i32 v_shr(v_i32 x, int n) { /* zeros come in */
    return (v_i32)((v_u32)x >> n);
}
/* Sums and differences that wrap. */
V_FN v_i32 v_iadd(v_i32 x, v_i32 y) {
    return (v_i32)((v_u32)x + (v_u32)y);
}
V_FN v_i32 v_isub(v_i32 x, v_i32 y) {
    return (v_i32)((v_u32)x - (v_u32)y);
}
V_FN v_i32 v_sar(v_i32 x, int n) {
    return x >> n;
}
V_FN v_f32 v_from_i32(v_i32 x) {
    return __builtin_convertvector(x, v_f32);
}

/* a * b + c and c - a * b, rounded once. */
V_FN v_f32 v_fma(v_f32 a, v_f32 b, v_f32 c) {
    return __builtin_ia32_vfmaddps512_mask(a, b, c, V_ALL512, 4);
}
V_FN v_f32 v_fnma(v_f32 a, v_f32 b, v_f32 c) {
    return __builtin_ia32_vfmaddps512_mask(-a, b, c, V_ALL512, 4);
}

#define V_CMP512(a, b, how) ((v_mask)__builtin_ia32_cmpps512_mask(a, b, how, (v_mask)-1, 4))
V_FN v_mask v_lt(v_f32 a, v_f32 b) {
    return V_CMP512(a, b, 17);
}
V_FN v_mask v_le(v_f32 a, v_f32 b) {
    return V_CMP512(a, b, 18);
}
V_FN v_mask v_eq(v_f32 a, v_f32 b) {
    return V_CMP512(a, b, 0);
}
V_FN v_mask v_ne(v_f32 a, v_f32 b) { /* true for NaN */
    return V_CMP512(a, b, 4);
}
V_FN v_mask v_mask_or(v_mask a, v_mask b) {
    return (v_mask)(a | b);
}
V_FN v_mask v_mask_and(v_mask a, v_mask b) {
    return (v_mask)(a & b);
}
V_FN int v_any(v_mask m) {
    return m != 0;
}
V_FN int v_all(v_mask m) { /* without a way through a register of integers */
    return __builtin_ia32_kortestchi(m, m) != 0;
}
V_FN v_f32 v_blend(v_mask m, v_f32 x, v_f32 y) { /* m ? x : y */
#ifdef __clang__
    return __builtin_ia32_selectps_512(m, x, y);
#else
    return __builtin_ia32_blendmps_512_mask(y, x, m);
#endif
}

V_FN v_f32 v_scale(v_f32 x, v_f32 n, v_i32 i) { /* x * 2^n for 2^-1 <= |x| < 2^2, -252 <= n <= 252; i is n */
    (void)i;
#ifdef __clang__
    return (v_f32)__builtin_ia32_scalefps512_mask(x, n, x, (v_mask)-1, 4);
#else
    return __builtin_ia32_scalefps512_mask(x, n, x, V_ALL512, 4);
#endif
}

V_FN v_f32 v_sqrt(v_f32 x) {
#ifdef __clang__
    return (v_f32)__builtin_ia32_sqrtps512(x, 4);
#else
    return __builtin_ia32_sqrtps512_mask(x, x, V_ALL512, 4);
#endif
}
V_FN v_f32 v_abs(v_f32 x) {
    return v_float(v_bits(x) & v_iset1(0x7fffffff));
}
/* The second operand where either is NaN or both are zeros, as minps has it; v_min and v_max of vmath.h give NaN. */
V_FN v_f32 v_min_any(v_f32 a, v_f32 b) {
#ifdef __clang__
    return __builtin_ia32_minps512(a, b, 4);
#else
    return __builtin_ia32_minps512_mask(a, b, a, V_ALL512, 4);
#endif
}
V_FN v_f32 v_max_any(v_f32 a, v_f32 b) {
#ifdef __clang__
    return __builtin_ia32_maxps512(a, b, 4);
#else
    return __builtin_ia32_maxps512_mask(a, b, a, V_ALL512, 4);
#endif
}
V_FN v_f32 v_lookup16(const float *table, v_i32 index) { /* by the low four bits of index */
    v_f32 t = *(const v_f32_any *)table;
#ifdef __clang__
    return (v_f32)__builtin_ia32_permvarsf512(t, index);
#else
    return __builtin_ia32_permvarsf512_mask(t, index, t, (v_mask)-1);
#endif
}
V_FN v_f32 v_lookup32(const float *table, v_i32 index) { /* by the low five bits */
    v_f32 low = *(const v_f32_any *)table, high = *(const v_f32_any *)(table + 16);
#ifdef __clang__
    return (v_f32)__builtin_ia32_vpermi2varps512(low, index, high);
#else
    return __builtin_ia32_vpermt2varps512_mask(index, low, high, (v_mask)-1);
#endif
}

/* Memory. The _n forms touch the first n lanes only, 0 <= n <= V_LANES; lanes beyond are 0. No alignment is needed. */
#define V_FIRST512(n) ((v_mask)((1u << (n)) - 1u))
#ifdef __clang__
#define V_H16_PTR(p) ((v_h16 *)(p))
#define V_H16_CPTR(p) ((const v_h16 *)(p))
#define V_B8_CPTR(p) ((const v_b8 *)(p))
#else
#define V_H16_PTR(p) ((short *)(p))
#define V_H16_CPTR(p) ((const short *)(p))
#define V_B8_CPTR(p) ((const char *)(p))
#endif
V_FN v_f32 v_load(const void *p) {
    return *(const v_f32_any *)p;
}
V_FN v_f32 v_load_n(const void *p, int n) {
    return __builtin_ia32_loadups512_mask((const float *)p, v_set1(0), V_FIRST512(n));
}
V_FN void v_store(void *p, v_f32 x) {
    *(v_f32_any *)p = x;
}
V_FN void v_store_n(void *p, v_f32 x, int n) {
    __builtin_ia32_storeups512_mask((float *)p, x, V_FIRST512(n));
}
V_FN void v_stream(void *p, v_f32 x) { /* past the caches; p is a multiple of 64 */
#ifdef __clang__
    __builtin_nontemporal_store(x, (v_f32 *)p);
#else
    __builtin_ia32_movntps512((float *)p, x);
#endif
}

V_FN void v_stream_end(void) { /* before another thread reads what was streamed */
    __builtin_ia32_sfence();
}

V_FN v_f32 v_widen_bf16(v_h16 h) {
#ifdef __clang__
    return v_float((v_i32)(__builtin_convertvector((v_u16)h, v_u32) << 16));
#else
    v_i32 zero = {0};
    return v_float(v_shl((v_i32)__builtin_ia32_pmovzxwd512_mask(h, zero, (v_mask)-1), 16));
#endif
}
V_FN v_h16 v_narrow_i32(v_i32 x) {
    v_h16 zero = {0};
    return (v_h16)__builtin_ia32_pmovdw512_mask(x, zero, (v_mask)-1);
}
/* Nearest even, as f32 bits; a NaN keeps its upper bits and becomes quiet. */
V_FN v_i32 v_bf16_bits(v_f32 x) {
    v_i32 b = v_bits(x);
    v_i32 r = v_iadd(b, 0x7fff + (v_shr(b, 16) & 1)), q = b | 0x400000;
    return v_bits(v_blend(v_ne(x, x), v_float(q), v_float(r))) & (int)0xffff0000;
}
#ifdef __AVX512BF16__
/* vcvtneps2bf16 takes denormals for zeros, which no other ISA does: those rare vectors go the exact way. */
V_FN v_mask v_denormal(v_f32 x) {
    return (v_mask)__builtin_ia32_fpclassps512_mask(x, 0x20, (v_mask)-1);
}
V_FN int v_none_denormal(v_f32 x, v_f32 y) {
    return __builtin_ia32_kortestzhi(v_denormal(x), v_denormal(y)) != 0;
}
#endif
V_FN v_h16 v_bf16(v_f32 x) {
#ifdef __AVX512BF16__
    if (__builtin_expect(v_denormal(x) != 0, 0)) return v_narrow_i32(v_shr(v_bf16_bits(x), 16));
#ifdef __clang__
    v_h16 zero = {0};
    return (v_h16)__builtin_ia32_cvtneps2bf16_512_mask(x, zero, (v_mask)-1);
#else
    return (v_h16)__builtin_ia32_cvtneps2bf16_v16sf(x);
#endif
#else
    return v_narrow_i32(v_shr(v_bf16_bits(x), 16));
#endif
}
/* 32 bf16 numbers: the first, third, ... in the low halves. */
V_FN v_i32 v_load_pairs(const void *p) {
    return *(const v_i32_any *)p;
}
V_FN v_i32 v_pairs_bf16(v_f32 first, v_f32 second) {
#ifdef __AVX512BF16__
    static const short __attribute__((aligned(64)))
    zip[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
               8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    if (__builtin_expect(v_none_denormal(first, second), 1)) {
#ifdef __clang__
        v_h32 both = (v_h32)__builtin_ia32_cvtne2ps2bf16_512(second, first);
        return (v_i32)__builtin_ia32_permvarhi512(both, *(const v_h32 *)zip);
#else
        v_h32 both = (v_h32)__builtin_ia32_cvtne2ps2bf16_v32hi(second, first);
        return (v_i32)__builtin_ia32_permvarhi512_mask(both, *(const v_h32 *)zip, both, ~0u);
#endif
    }
#endif
    return v_shr(v_bf16_bits(first), 16) | v_bf16_bits(second);
}
V_FN void v_store_pairs(void *p, v_i32 pairs) {
    *(v_i32_any *)p = pairs;
}
V_FN void v_stream_pairs(void *p, v_i32 pairs) { /* p is a multiple of 64 */
    v_stream(p, v_float(pairs));
}
V_FN v_f32 v_load_bf16(const void *p) {
    return v_widen_bf16(*(const v_h16_any *)p);
}
V_FN v_f32 v_load_bf16_n(const void *p, int n) {
    v_h16 zero = {0};
    return v_widen_bf16((v_h16)__builtin_ia32_loaddquhi256_mask(V_H16_CPTR(p), zero, V_FIRST512(n)));
}
V_FN void v_store_bf16(void *p, v_f32 x) {
    *(v_h16_any *)p = v_bf16(x);
}
V_FN void v_store_two_bf16(void *p, v_f32 x, v_f32 y) { /* one behind the other */
#ifdef __AVX512BF16__
    if (__builtin_expect(v_none_denormal(x, y), 1)) {
#ifdef __clang__
        *(v_i32_any *)p = (v_i32)__builtin_ia32_cvtne2ps2bf16_512(y, x);
#else
        *(v_i32_any *)p = (v_i32)__builtin_ia32_cvtne2ps2bf16_v32hi(y, x);
#endif
        return;
    }
#endif
    v_store_bf16(p, x);
    v_store_bf16((char *)p + 32, y);
}
V_FN void v_store_bf16_n(void *p, v_f32 x, int n) {
    __builtin_ia32_storedquhi256_mask(V_H16_PTR(p), v_bf16(x), V_FIRST512(n));
}
V_FN void v_stream_h16(void *p, v_h16 h) { /* p is a multiple of 32 */
#ifdef __clang__
    __builtin_nontemporal_store(h, (v_h16 *)p);
#else
    typedef long long quads __attribute__((vector_size(32)));
    __builtin_ia32_movntdq256((quads *)p, (quads)h);
#endif
}
V_FN void v_stream_bf16(void *p, v_f32 x) {
    v_stream_h16(p, v_bf16(x));
}
/* x rounded to bf16 and back: where eager would have stored and loaded. x (1 - 2^16), rounded, has lost
 * the lower 16 bits of x, so what it lacks to x 2^16 is x with 8 bits, to nearest even: half of the operations of the
 * conversion and back. NaN, infinities, numbers beyond 2^111 and denormals show in the result and go the long way. */
V_FN v_f32 v_round_bf16(v_f32 x) {
    v_f32 r = v_fma(x, v_set1(65536.0f), x * v_set1(-65535.0f));
    v_mask odd = (v_mask)__builtin_ia32_fpclassps512_mask(r, 0xb9, (v_mask)-1);
    if (__builtin_expect(odd != 0, 0)) return v_float(v_bf16_bits(x));
    v_i32 sign = v_iset1((int)0x80000000); /* of a zero; r | (x & sign) */
    return (v_f32)__builtin_ia32_pternlogd512_mask(v_bits(r), v_bits(x), sign, 0xf8, (v_mask)-1);
}

V_FN v_f32 v_widen_f16(v_h16 h) {
    return (v_f32)__builtin_ia32_vcvtph2ps512_mask(h, v_set1(0), V_ALL512, 4);
}
V_FN v_h16 v_f16(v_f32 x) {
    v_h16 zero = {0};
    return (v_h16)__builtin_ia32_vcvtps2ph512_mask(x, 0, zero, (v_mask)-1);
}
V_FN v_f32 v_load_f16(const void *p) {
    return v_widen_f16(*(const v_h16_any *)p);
}
V_FN v_f32 v_load_f16_n(const void *p, int n) {
    v_h16 zero = {0};
    return v_widen_f16((v_h16)__builtin_ia32_loaddquhi256_mask(V_H16_CPTR(p), zero, V_FIRST512(n)));
}
V_FN void v_store_f16(void *p, v_f32 x) {
    *(v_h16_any *)p = v_f16(x);
}
V_FN void v_store_f16_n(void *p, v_f32 x, int n) {
    __builtin_ia32_storedquhi256_mask(V_H16_PTR(p), v_f16(x), V_FIRST512(n));
}
V_FN void v_stream_f16(void *p, v_f32 x) {
    v_stream_h16(p, v_f16(x));
}
V_FN v_f32 v_round_f16(v_f32 x) {
    return v_widen_f16(v_f16(x));
}

V_FN v_f32 v_load_bool(const void *p) { /* bytes, 0 or 1 */
    return __builtin_convertvector(__builtin_convertvector((v_u8) * (const v_b8_any *)p, v_i32), v_f32);
}
V_FN v_f32 v_load_bool_n(const void *p, int n) {
    v_b8 zero = {0};
    v_b8 b = (v_b8)__builtin_ia32_loaddquqi128_mask(V_B8_CPTR(p), zero, V_FIRST512(n));
    return __builtin_convertvector(__builtin_convertvector((v_u8)b, v_i32), v_f32);
}
V_FN v_f32 v_load_i32(const void *p) { /* nearest f32 */
    return v_from_i32(*(const v_i32_any *)p);
}
V_FN v_f32 v_load_i32_n(const void *p, int n) {
    return v_from_i32(v_bits(v_load_n(p, n)));
}

/* Across lanes, as a tree of halves. */
V_FN float v_sum(v_f32 x) {
    typedef float eight __attribute__((vector_size(32)));
    typedef float four __attribute__((vector_size(16)));
    eight a = __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7) +
              __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15);
    four b = __builtin_shufflevector(a, a, 0, 1, 2, 3) + __builtin_shufflevector(a, a, 4, 5, 6, 7);
    return (b[0] + b[2]) + (b[1] + b[3]);
}

#endif
