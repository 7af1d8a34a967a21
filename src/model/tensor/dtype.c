/* The dtypes of dtype.def, and conversions that round once, to nearest even. */
#include "tensor.h"

#include <math.h>
#include <string.h>

typedef struct dtype_row {
    const char *name;
    uint8_t size;
    bool is_float;
} dtype_row;

static const dtype_row rows[EP_DTYPE_COUNT] = {
#define EP_DTYPE_ROW(ID, name, type, is_float, safetensors, npy, code, bits)                                           \
    [EP_DTYPE_##ID] = {#name, sizeof(type), is_float},
#include "dtype.def"
#undef EP_DTYPE_ROW
};

size_t ep_dtype_size(ep_dtype dtype) {
    return (unsigned)dtype < EP_DTYPE_COUNT ? rows[dtype].size : 0;
}

const char *ep_dtype_name(ep_dtype dtype) {
    return (unsigned)dtype < EP_DTYPE_COUNT ? rows[dtype].name : "?";
}

bool ep_dtype_is_float(ep_dtype dtype) {
    return (unsigned)dtype < EP_DTYPE_COUNT && rows[dtype].is_float;
}

ep_status ep_dtype_parse(const char *name, ep_dtype *out) {
    if (!name || !out) return EP_ERROR_INVALID_ARGUMENT;
    for (int i = 0; i < EP_DTYPE_COUNT; i++) {
        if (strcmp(rows[i].name, name) != 0) continue;
        *out = (ep_dtype)i;
        return EP_OK;
    }
    return EP_ERROR_NOT_FOUND;
}

static uint32_t bits_of(float v) {
    uint32_t u;
    memcpy(&u, &v, sizeof u);
    return u;
}

static float float_of(uint32_t u) {
    float v;
    memcpy(&v, &u, sizeof v);
    return v;
}

float ep_bf16_to_f32(uint16_t v) {
    return float_of((uint32_t)v << 16);
}

uint16_t ep_f32_to_bf16(float v) {
    uint32_t u = bits_of(v);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40u);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

float ep_f16_to_f32(uint16_t v) {
    uint32_t sign = (uint32_t)(v & 0x8000u) << 16, exponent = v >> 10 & 31u, fraction = v & 0x3ffu;
    if (exponent == 31) return float_of(sign | 0x7f800000u | fraction << 13);
    if (exponent) return float_of(sign | (exponent + 112) << 23 | fraction << 13);
    float magnitude = (float)fraction * 0x1p-24f; /* subnormal: exact in f32 */
    return float_of(sign | bits_of(magnitude));
}

/* Drops `shift` low bits, to nearest even. */
static uint32_t round_shift(uint32_t v, unsigned shift) {
    uint32_t kept = v >> shift, rest = v & ((1u << shift) - 1u), half = 1u << (shift - 1);
    return kept + (rest > half || (rest == half && (kept & 1u)));
}

uint16_t ep_f32_to_f16(float v) {
    uint32_t u = bits_of(v), a = u & 0x7fffffffu, sign = u >> 16 & 0x8000u;
    if (a > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (a >> 13 & 0x3ffu));
    if (a >= 0x47800000u) return (uint16_t)(sign | 0x7c00u);
    if (a < 0x33000000u) return (uint16_t)sign; /* below half of the least subnormal */
    if (a < 0x38800000u) return (uint16_t)(sign | round_shift((a & 0x7fffffu) | 0x800000u, 126 - (a >> 23)));
    return (uint16_t)(sign | round_shift(a - (112u << 23), 13)); /* may carry into infinity, as it should */
}

/* f64 to f32 by rounding to odd, so that a second rounding to a narrower format is as good as one. */
static float round_to_odd(double v) {
    float f = (float)v;
    if (isnan(v) || (double)f == v) return f;
    uint32_t u = bits_of(f);
    if (fabs((double)f) > fabs(v)) u--; /* now truncated toward zero, also from infinity to the largest float */
    return float_of(u | 1u);
}

uint16_t ep_f64_to_bf16(double v) {
    return ep_f32_to_bf16(round_to_odd(v));
}

uint16_t ep_f64_to_f16(double v) {
    return ep_f32_to_f16(round_to_odd(v));
}

/* Toward zero, at the ends saturated; NaN is 0. */
static int64_t to_integer(double v, double low, double high, int64_t min, int64_t max) {
    if (isnan(v)) return 0;
    if (v <= low) return min;
    if (v >= high) return max;
    return (int64_t)v;
}

static inline double load(ep_dtype dtype, const char *p) {
    union {
        float f;
        uint16_t h;
        int32_t i;
        int64_t l;
    } u;
    switch (dtype) {
    case EP_DTYPE_F32: memcpy(&u.f, p, 4); return (double)u.f;
    case EP_DTYPE_BF16: memcpy(&u.h, p, 2); return (double)ep_bf16_to_f32(u.h);
    case EP_DTYPE_F16: memcpy(&u.h, p, 2); return (double)ep_f16_to_f32(u.h);
    case EP_DTYPE_I32: memcpy(&u.i, p, 4); return (double)u.i;
    case EP_DTYPE_I64: memcpy(&u.l, p, 8); return (double)u.l;
    default: return *p ? 1.0 : 0.0;
    }
}

static inline void store(ep_dtype dtype, char *p, double v) {
    union {
        float f;
        uint16_t h;
        int32_t i;
        int64_t l;
    } u;
    switch (dtype) {
    case EP_DTYPE_F32:
        u.f = (float)v;
        memcpy(p, &u.f, 4);
        return;
    case EP_DTYPE_BF16:
        u.h = ep_f64_to_bf16(v);
        memcpy(p, &u.h, 2);
        return;
    case EP_DTYPE_F16:
        u.h = ep_f64_to_f16(v);
        memcpy(p, &u.h, 2);
        return;
    case EP_DTYPE_I32:
        u.i = (int32_t)to_integer(v, -0x1p31, 0x1p31 - 1, INT32_MIN, INT32_MAX);
        memcpy(p, &u.i, 4);
        return;
    case EP_DTYPE_I64:
        u.l = to_integer(v, -0x1p63, 0x1p63, INT64_MIN, INT64_MAX);
        memcpy(p, &u.l, 8);
        return;
    default: *p = v != 0; return;
    }
}

double ep_element_load(ep_dtype dtype, const void *p) {
    return load(dtype, p);
}

void ep_element_store(ep_dtype dtype, void *p, double v) {
    store(dtype, p, v);
}

void ep_run_load(ep_dtype dtype, const void *p, int64_t stride, int64_t n, double *out) {
    const char *at = p;
    int64_t step = stride * (int64_t)ep_dtype_size(dtype);
    for (int64_t i = 0; i < n; i++) out[i] = load(dtype, at + i * step);
}

void ep_run_store(ep_dtype dtype, void *p, int64_t stride, int64_t n, const double *in) {
    char *at = p;
    int64_t step = stride * (int64_t)ep_dtype_size(dtype);
    for (int64_t i = 0; i < n; i++) store(dtype, at + i * step, in[i]);
}
