/* The vector vocabulary in plain C: one lane, for any processor. See simd_avx512.h for the words. v_fma is libm's fmaf
 * where the target has no instruction for it: slow, but the same bits as everywhere. */
#ifndef EP_SIMD_H
#define EP_SIMD_H

#define V_LANES 1
#define V_FN static inline __attribute__((always_inline, unused))

typedef float v_f32;
typedef int v_i32;
typedef int v_mask;
typedef unsigned short v_h16;

V_FN v_f32 v_set1(float x) {
    return x;
}
V_FN v_i32 v_iset1(int x) {
    return x;
}
V_FN v_i32 v_bits(v_f32 x) {
    v_i32 b;
    __builtin_memcpy(&b, &x, 4);
    return b;
}
V_FN v_f32 v_float(v_i32 x) {
    v_f32 f;
    __builtin_memcpy(&f, &x, 4);
    return f;
}
V_FN v_i32 v_shl(v_i32 x, int n) {
    return (v_i32)((unsigned)x << n);
}
V_FN v_i32 v_shr(v_i32 x, int n) {
    return (v_i32)((unsigned)x >> n);
}
V_FN v_i32 v_iadd(v_i32 x, v_i32 y) {
    return (v_i32)((unsigned)x + (unsigned)y);
}
V_FN v_i32 v_isub(v_i32 x, v_i32 y) {
    return (v_i32)((unsigned)x - (unsigned)y);
}
V_FN v_i32 v_sar(v_i32 x, int n) {
    return x >> n;
}
V_FN v_f32 v_from_i32(v_i32 x) {
    return (v_f32)x;
}

V_FN v_f32 v_fma(v_f32 a, v_f32 b, v_f32 c) {
    return __builtin_fmaf(a, b, c);
}
V_FN v_f32 v_fnma(v_f32 a, v_f32 b, v_f32 c) {
    return __builtin_fmaf(-a, b, c);
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
    return m;
}
V_FN int v_all(v_mask m) {
    return m;
}
V_FN v_f32 v_blend(v_mask m, v_f32 x, v_f32 y) {
    return m ? x : y;
}

V_FN v_f32 v_scale(v_f32 x, v_f32 n, v_i32 i) { /* x * 2^n for 2^-1 <= |x| < 2^2, -252 <= n <= 252; i is n */
    (void)n;
    v_i32 half = i >> 1;
    return x * v_float(v_shl(half + 127, 23)) * v_float(v_shl(i - half + 127, 23));
}

V_FN v_f32 v_sqrt(v_f32 x) {
    return __builtin_sqrtf(x);
}
V_FN v_f32 v_abs(v_f32 x) {
    return v_float(v_bits(x) & 0x7fffffff);
}
V_FN v_f32 v_min_any(v_f32 a, v_f32 b) {
    return a < b ? a : b;
}
V_FN v_f32 v_max_any(v_f32 a, v_f32 b) {
    return a > b ? a : b;
}
V_FN v_f32 v_lookup16(const float *table, v_i32 index) {
    return table[index & 15];
}
V_FN v_f32 v_lookup32(const float *table, v_i32 index) {
    return table[index & 31];
}

V_FN v_f32 v_load(const void *p) {
    v_f32 x;
    __builtin_memcpy(&x, p, 4);
    return x;
}
V_FN v_f32 v_load_n(const void *p, int n) {
    return n > 0 ? v_load(p) : 0;
}
V_FN void v_store(void *p, v_f32 x) {
    __builtin_memcpy(p, &x, 4);
}
V_FN void v_store_n(void *p, v_f32 x, int n) {
    if (n > 0) v_store(p, x);
}
V_FN void v_stream(void *p, v_f32 x) {
    v_store(p, x);
}
V_FN void v_stream_end(void) {}
V_FN v_h16 v_load_h16(const void *p) {
    v_h16 h;
    __builtin_memcpy(&h, p, 2);
    return h;
}
V_FN void v_store_h16(void *p, v_h16 h) {
    __builtin_memcpy(p, &h, 2);
}

V_FN v_f32 v_widen_bf16(v_h16 h) {
    return v_float((v_i32)((unsigned)h << 16));
}
V_FN v_h16 v_bf16(v_f32 x) {
    unsigned b = (unsigned)v_bits(x);
    if (x != x) return (v_h16)(b >> 16 | 0x40);
    return (v_h16)((b + 0x7fff + (b >> 16 & 1)) >> 16);
}
V_FN v_f32 v_load_bf16(const void *p) {
    return v_widen_bf16(v_load_h16(p));
}
V_FN v_f32 v_load_bf16_n(const void *p, int n) {
    return n > 0 ? v_load_bf16(p) : 0;
}
V_FN void v_store_bf16(void *p, v_f32 x) {
    v_store_h16(p, v_bf16(x));
}
V_FN void v_store_two_bf16(void *p, v_f32 x, v_f32 y) { /* one behind the other */
    v_store_bf16(p, x);
    v_store_bf16((char *)p + 2, y);
}
V_FN void v_store_bf16_n(void *p, v_f32 x, int n) {
    if (n > 0) v_store_bf16(p, x);
}
V_FN void v_stream_bf16(void *p, v_f32 x) {
    v_store_bf16(p, x);
}
V_FN v_f32 v_round_bf16(v_f32 x) {
    return v_widen_bf16(v_bf16(x));
}

/* Two bf16 numbers that lie next to each other, the first one in the low half. */
V_FN v_i32 v_load_pairs(const void *p) {
    v_i32 q;
    __builtin_memcpy(&q, p, 4);
    return q;
}
V_FN v_i32 v_pairs_bf16(v_f32 first, v_f32 second) {
    return (v_i32)((unsigned)v_bf16(second) << 16 | v_bf16(first));
}
V_FN void v_store_pairs(void *p, v_i32 pairs) {
    __builtin_memcpy(p, &pairs, 4);
}
V_FN void v_stream_pairs(void *p, v_i32 pairs) {
    v_store_pairs(p, pairs);
}

V_FN v_f32 v_widen_f16(v_h16 h) {
    unsigned sign = (unsigned)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 0x3ffu;
    if (e == 31) return v_float((v_i32)(sign | 0x7f800000 | m << 13 | (m ? 0x400000 : 0)));
    if (e) return v_float((v_i32)(sign | (e + 112) << 23 | m << 13));
    v_f32 f = (v_f32)m * 0x1p-24f;
    return v_float((v_i32)(sign | (unsigned)v_bits(f)));
}
V_FN v_h16 v_f16(v_f32 x) {
    unsigned b = (unsigned)v_bits(x), sign = b >> 16 & 0x8000, a = b & 0x7fffffff;
    if (a > 0x7f800000) return (v_h16)(sign | 0x7e00 | (a >> 13 & 0x3ff));
    if (a >= 0x477ff000) return (v_h16)(sign | 0x7c00); /* 65520 and beyond round to infinity */
    if (a < 0x38800000) {                               /* below 2^-14: steps of 2^-24, which adding 0.5 rounds to */
        v_f32 f = v_float((v_i32)a) + 0.5f;
        return (v_h16)(sign | ((unsigned)v_bits(f) - 0x3f000000));
    }
    return (v_h16)(sign | (a - 0x38000000 + 0xfff + (a >> 13 & 1)) >> 13);
}
V_FN v_f32 v_load_f16(const void *p) {
    return v_widen_f16(v_load_h16(p));
}
V_FN v_f32 v_load_f16_n(const void *p, int n) {
    return n > 0 ? v_load_f16(p) : 0;
}
V_FN void v_store_f16(void *p, v_f32 x) {
    v_store_h16(p, v_f16(x));
}
V_FN void v_store_f16_n(void *p, v_f32 x, int n) {
    if (n > 0) v_store_f16(p, x);
}
V_FN void v_stream_f16(void *p, v_f32 x) {
    v_store_f16(p, x);
}
V_FN v_f32 v_round_f16(v_f32 x) {
    return v_widen_f16(v_f16(x));
}

V_FN v_f32 v_load_bool(const void *p) {
    return *(const unsigned char *)p;
}
V_FN v_f32 v_load_bool_n(const void *p, int n) {
    return n > 0 ? v_load_bool(p) : 0;
}
V_FN v_f32 v_load_i32(const void *p) {
    return (v_f32)v_bits(v_load(p));
}
V_FN v_f32 v_load_i32_n(const void *p, int n) {
    return n > 0 ? v_load_i32(p) : 0;
}

V_FN float v_sum(v_f32 x) {
    return x;
}

#endif
