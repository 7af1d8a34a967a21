/* The vector vocabulary on AVX2 with FMA and F16C: 8 lanes of f32. See simd_avx512.h for the words. */
#ifndef EP_SIMD_H
#define EP_SIMD_H

#define V_LANES 8
#define V_FN static inline __attribute__((always_inline, unused))

typedef float v_f32 __attribute__((vector_size(32)));
typedef int v_i32 __attribute__((vector_size(32)));
typedef unsigned v_u32 __attribute__((vector_size(32)));
typedef v_i32 v_mask; /* all bits of a lane */
typedef float v_f32_any __attribute__((vector_size(32), aligned(2), may_alias));
typedef int v_i32_any __attribute__((vector_size(32), aligned(2), may_alias));
typedef short v_h16 __attribute__((vector_size(16)));
typedef unsigned short v_u16 __attribute__((vector_size(16)));
typedef short v_h16_any __attribute__((vector_size(16), aligned(2), may_alias));
typedef unsigned char v_u8 __attribute__((vector_size(8)));
typedef long long v_q64 __attribute__((vector_size(32)));

V_FN v_f32 v_set1(float x) {
    return (v_f32){x, x, x, x, x, x, x, x};
}
V_FN v_i32 v_iset1(int x) {
    return (v_i32){x, x, x, x, x, x, x, x};
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
V_FN v_i32 v_shr(v_i32 x, int n) {
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

V_FN v_f32 v_fma(v_f32 a, v_f32 b, v_f32 c) {
    return __builtin_ia32_vfmaddps256(a, b, c);
}
V_FN v_f32 v_fnma(v_f32 a, v_f32 b, v_f32 c) {
    return __builtin_ia32_vfmaddps256(-a, b, c);
}

V_FN v_mask v_lt(v_f32 a, v_f32 b) {
    return a < b;
}
V_FN v_mask v_le(v_f32 a, v_f32 b) {
    return a <= b;
}
V_FN v_mask v_eq(v_f32 a, v_f32 b) {
    return a == b;
}
V_FN v_mask v_ne(v_f32 a, v_f32 b) {
    return a != b;
}
V_FN v_mask v_mask_or(v_mask a, v_mask b) {
    return a | b;
}
V_FN v_mask v_mask_and(v_mask a, v_mask b) {
    return a & b;
}
V_FN int v_any(v_mask m) {
    return __builtin_ia32_movmskps256((v_f32)m) != 0;
}
V_FN int v_all(v_mask m) {
    return __builtin_ia32_movmskps256((v_f32)m) == 255;
}
V_FN v_f32 v_blend(v_mask m, v_f32 x, v_f32 y) {
    return __builtin_ia32_blendvps256(y, x, (v_f32)m);
}

V_FN v_f32 v_scale(v_f32 x, v_f32 n, v_i32 i) { /* x * 2^n for 2^-1 <= |x| < 2^2, -252 <= n <= 252; i is n */
    (void)n;
    v_i32 half = v_sar(i, 1);
    return x * v_float(v_shl(half + 127, 23)) * v_float(v_shl(i - half + 127, 23));
}

V_FN v_f32 v_sqrt(v_f32 x) {
    return __builtin_ia32_sqrtps256(x);
}
V_FN v_f32 v_abs(v_f32 x) {
    return v_float(v_bits(x) & v_iset1(0x7fffffff));
}
V_FN v_f32 v_min_any(v_f32 a, v_f32 b) {
    return __builtin_ia32_minps256(a, b);
}
V_FN v_f32 v_max_any(v_f32 a, v_f32 b) {
    return __builtin_ia32_maxps256(a, b);
}
V_FN v_f32 v_lookup16(const float *table, v_i32 index) {
    v_f32 low = __builtin_ia32_permvarsf256(*(const v_f32_any *)table, index);
    v_f32 high = __builtin_ia32_permvarsf256(*(const v_f32_any *)(table + 8), index);
    return v_blend(v_shl(index, 28), high, low);
}

V_FN v_f32 v_lookup32(const float *table, v_i32 index) {
    return v_blend(v_shl(index, 27), v_lookup16(table + 16, index), v_lookup16(table, index));
}

V_FN v_i32 v_first(int n) {
    return (v_i32){0, 1, 2, 3, 4, 5, 6, 7} < n;
}
V_FN v_f32 v_load(const void *p) {
    return *(const v_f32_any *)p;
}
V_FN v_f32 v_load_n(const void *p, int n) {
    return __builtin_ia32_maskloadps256((const v_f32 *)p, v_first(n));
}
V_FN void v_store(void *p, v_f32 x) {
    *(v_f32_any *)p = x;
}
V_FN void v_store_n(void *p, v_f32 x, int n) {
    __builtin_ia32_maskstoreps256((v_f32 *)p, v_first(n), x);
}
V_FN void v_stream(void *p, v_f32 x) { /* p is a multiple of 32 */
#ifdef __clang__
    __builtin_nontemporal_store(x, (v_f32 *)p);
#else
    __builtin_ia32_movntps256((float *)p, x);
#endif
}
V_FN void v_stream_end(void) { /* before another thread reads what was streamed */
    __builtin_ia32_sfence();
}
V_FN void v_stream_h16(void *p, v_h16 h) { /* p is a multiple of 16 */
#ifdef __clang__
    __builtin_nontemporal_store(h, (v_h16 *)p);
#else
    typedef long long quads __attribute__((vector_size(16)));
    __builtin_ia32_movntdq((quads *)p, (quads)h);
#endif
}
V_FN v_h16 v_load_h16_n(const void *p, int n) {
    union {
        v_h16 v;
        short s[8];
    } u = {{0}};
    if (n >= 8) return *(const v_h16_any *)p;
    for (int i = 0; i < n; i++) __builtin_memcpy(&u.s[i], (const char *)p + 2 * i, 2);
    return u.v;
}
V_FN void v_store_h16_n(void *p, v_h16 h, int n) {
    union {
        v_h16 v;
        short s[8];
    } u = {h};
    for (int i = 0; i < n && i < 8; i++) __builtin_memcpy((char *)p + 2 * i, &u.s[i], 2);
}

V_FN v_f32 v_widen_bf16(v_h16 h) {
#ifdef __clang__
    return v_float((v_i32)(__builtin_convertvector((v_u16)h, v_u32) << 16));
#else
    return v_float(v_shl((v_i32)__builtin_ia32_pmovzxwd256(h), 16));
#endif
}
V_FN v_h16 v_narrow_i32(v_i32 x) { /* lanes hold 0 to 65535 */
    v_q64 packed = (v_q64)__builtin_ia32_packusdw256(x, x);
    packed = (v_q64)__builtin_ia32_permdi256(packed, 0x08);
    return (v_h16)__builtin_shufflevector(packed, packed, 0, 1);
}
V_FN v_h16 v_bf16(v_f32 x) {
    v_i32 b = v_bits(x);
    v_i32 r = v_shr(v_iadd(b, 0x7fff + (v_shr(b, 16) & 1)), 16);
    v_i32 q = v_shr(b, 16) | 0x40;
    return v_narrow_i32(v_bits(v_blend(v_ne(x, x), v_float(q), v_float(r))));
}
V_FN v_f32 v_load_bf16(const void *p) {
    return v_widen_bf16(*(const v_h16_any *)p);
}
V_FN v_f32 v_load_bf16_n(const void *p, int n) {
    return v_widen_bf16(v_load_h16_n(p, n));
}
V_FN void v_store_bf16(void *p, v_f32 x) {
    *(v_h16_any *)p = v_bf16(x);
}
V_FN void v_store_two_bf16(void *p, v_f32 x, v_f32 y) { /* one behind the other */
    v_store_bf16(p, x);
    v_store_bf16((char *)p + 16, y);
}
V_FN void v_store_bf16_n(void *p, v_f32 x, int n) {
    v_store_h16_n(p, v_bf16(x), n);
}
V_FN void v_stream_bf16(void *p, v_f32 x) {
    v_stream_h16(p, v_bf16(x));
}
V_FN v_f32 v_round_bf16(v_f32 x) {
    v_i32 b = v_bits(x);
    v_i32 r = v_iadd(b, 0x7fff + (v_shr(b, 16) & 1)) & (int)0xffff0000;
    v_i32 q = (b | 0x400000) & (int)0xffff0000;
    return v_blend(v_ne(x, x), v_float(q), v_float(r));
}

/* 16 bf16 numbers: the first, third, ... in the low halves. */
V_FN v_i32 v_load_pairs(const void *p) {
    return *(const v_i32_any *)p;
}
V_FN v_i32 v_pairs_bf16(v_f32 first, v_f32 second) {
    return v_shr(v_bits(v_round_bf16(first)), 16) | v_bits(v_round_bf16(second));
}
V_FN void v_store_pairs(void *p, v_i32 pairs) {
    *(v_i32_any *)p = pairs;
}
V_FN void v_stream_pairs(void *p, v_i32 pairs) { /* p is a multiple of 32 */
    v_stream(p, v_float(pairs));
}

V_FN v_f32 v_widen_f16(v_h16 h) {
    return (v_f32)__builtin_ia32_vcvtph2ps256(h);
}
V_FN v_h16 v_f16(v_f32 x) {
    return (v_h16)__builtin_ia32_vcvtps2ph256(x, 0);
}
V_FN v_f32 v_load_f16(const void *p) {
    return v_widen_f16(*(const v_h16_any *)p);
}
V_FN v_f32 v_load_f16_n(const void *p, int n) {
    return v_widen_f16(v_load_h16_n(p, n));
}
V_FN void v_store_f16(void *p, v_f32 x) {
    *(v_h16_any *)p = v_f16(x);
}
V_FN void v_store_f16_n(void *p, v_f32 x, int n) {
    v_store_h16_n(p, v_f16(x), n);
}
V_FN void v_stream_f16(void *p, v_f32 x) {
    v_stream_h16(p, v_f16(x));
}
V_FN v_f32 v_round_f16(v_f32 x) {
    return v_widen_f16(v_f16(x));
}

V_FN v_f32 v_load_bool_n(const void *p, int n) {
    union {
        v_u8 v;
        unsigned char s[8];
    } u = {{0}};
    for (int i = 0; i < n && i < 8; i++) u.s[i] = ((const unsigned char *)p)[i];
    return __builtin_convertvector(__builtin_convertvector(u.v, v_i32), v_f32);
}
V_FN v_f32 v_load_bool(const void *p) {
    return v_load_bool_n(p, 8);
}
V_FN v_f32 v_load_i32(const void *p) {
    return v_from_i32(*(const v_i32_any *)p);
}
V_FN v_f32 v_load_i32_n(const void *p, int n) {
    return v_from_i32(v_bits(v_load_n(p, n)));
}

V_FN float v_sum(v_f32 x) {
    float t[8];
    *(v_f32_any *)t = x;
    for (int w = 4; w > 0; w >>= 1)
        for (int i = 0; i < w; i++) t[i] += t[i + w];
    return t[0];
}

#endif
