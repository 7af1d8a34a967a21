/* Arguments of an op as Kineto records them: "Input Dims", "Input type", "Input Strides", "Concrete Inputs". */
#include "torch_args.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "torch_work.h"

static const int64_t MOST_ELEMENTS = (int64_t)1 << 48; /* sums of a few operands' bytes stay in 64 bits */

static const struct {
    const char *torch, *name;
    int bytes;
} types[] = {{"c10::BFloat16", "bf16", 2},
             {"bfloat16", "bf16", 2},
             {"c10::Half", "f16", 2},
             {"float16", "f16", 2},
             {"float32", "f32", 4},
             {"float", "f32", 4},
             {"double", "f64", 8},
             {"long int", "i64", 8},
             {"long", "i64", 8},
             {"int", "i32", 4},
             {"short int", "i16", 2},
             {"short", "i16", 2},
             {"unsigned char", "u8", 1},
             {"signed char", "i8", 1},
             {"bool", "bool", 1},
             {"c10::complex<float>", "c64", 8},
             {"c10::complex<double>", "c128", 16},
             {"c10::Float8_e4m3fn", "fp8", 1},
             {"c10::Float8_e5m2", "fp8", 1},
             {"c10::Float8_e4m3fnuz", "fp8", 1},
             {"bf16", "bf16", 2},
             {"f16", "f16", 2},
             {"f32", "f32", 4},
             {"i64", "i64", 8},
             {"i32", "i32", 4}};

static const char *skip_blanks(const char *p) {
    while (*p == ' ' || *p == '\n' || *p == '\t' || *p == '\r') p++;
    return p;
}

static void set_type(const char *text, size_t n, ep_operand *o) {
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strlen(types[i].torch) == n && memcmp(text, types[i].torch, n) == 0) {
            memcpy(o->dtype, types[i].name, strlen(types[i].name) + 1);
            o->element = types[i].bytes;
            o->tensor = true;
            return;
        }
}

static bool add_size(ep_operand *o, int64_t size) {
    if (o->ndim >= EP_TORCH_DIMS || size < 0) return false;
    o->sizes[o->ndim++] = size;
    return !__builtin_mul_overflow(o->numel, size, &o->numel) && o->numel <= MOST_ELEMENTS;
}

/* One shape, or a list of shapes (its numel is their sum). Returns behind it, or NULL if the text is something else. */
static const char *read_shape(const char *p, ep_operand *o) {
    int64_t sum = 0;
    o->numel = 1;
    for (p = skip_blanks(p + 1); *p && *p != ']'; p = skip_blanks(p)) {
        char *end;
        if (*p == '[') {
            ep_operand item = {0};
            p = read_shape(p, &item);
            o->list = true;
            if (!p || __builtin_add_overflow(sum, item.numel, &sum) || sum > MOST_ELEMENTS) return NULL;
        } else if (isdigit((unsigned char)*p) || *p == '-') {
            if (!add_size(o, strtoll(p, &end, 10))) return NULL;
            p = end;
        } else {
            return NULL;
        }
        p = skip_blanks(p);
        if (*p == ',') p++;
    }
    if (o->list) o->numel = sum;
    return *p == ']' ? p + 1 : NULL;
}

/* A string behind p's quote; its end quote, or NULL. */
static const char *string_end(const char *p) {
    for (; *p && *p != '"'; p++)
        if (*p == '\\' && p[1]) p++;
    return *p ? p : NULL;
}

/* A list's dtype is not in "Input type" (it says TensorList): four bytes an element would be a guess, so the caller
 * gives it the dtype of the first plain tensor, if there is one; else the list is no known tensor. */
static void finish(ep_operand *out, int count) {
    const ep_operand *first = NULL;
    for (int i = 0; i < count && !first; i++)
        if (out[i].tensor && !out[i].list) first = &out[i];
    for (int i = 0; i < count; i++) {
        if (out[i].list && !out[i].element && first) {
            memcpy(out[i].dtype, first->dtype, sizeof out[i].dtype);
            out[i].element = first->element;
        }
        if (out[i].list) out[i].tensor = out[i].element > 0;
        if (__builtin_mul_overflow(out[i].numel, (int64_t)out[i].element, &out[i].bytes)) out[i].bytes = 0;
    }
}

int ep_torch_operands(const char *dims, const char *type_text, ep_operand *out, int cap) {
    int count = 0, typed = 0;
    const char *p = skip_blanks(dims);
    if (*p != '[') return 0;
    for (p = skip_blanks(p + 1); p && *p == '[' && count < cap; count++) {
        memset(&out[count], 0, sizeof out[count]);
        p = read_shape(p, &out[count]);
        if (!p) break;
        p = skip_blanks(p);
        if (*p == ',') p = skip_blanks(p + 1);
    }
    p = skip_blanks(type_text);
    if (*p != '[') return count;
    for (p = skip_blanks(p + 1); *p == '"' && typed < count; typed++) {
        const char *end = string_end(p + 1);
        if (!end) break;
        set_type(p + 1, (size_t)(end - p - 1), &out[typed]);
        p = skip_blanks(end + 1);
        if (*p == ',') p = skip_blanks(p + 1);
    }
    finish(out, count);
    return count;
}

/* One flat list of numbers; -1 in *n: a list of lists. Returns behind it, or NULL. */
static const char *read_numbers(const char *p, int64_t *out, int *n) {
    int depth = 0;
    *n = 0;
    do {
        char *end;
        if (*p == '[')
            *n = ++depth > 1 ? -1 : *n;
        else if (*p == ']')
            depth--;
        else if (isdigit((unsigned char)*p) || *p == '-') {
            int64_t v = strtoll(p, &end, 10);
            if (*n >= EP_TORCH_DIMS) return NULL;
            if (*n >= 0) out[(*n)++] = v;
            p = end - 1;
        } else if (*p != ',') {
            return NULL;
        }
        p = skip_blanks(p + 1);
    } while (depth > 0);
    return p;
}

void ep_torch_strides(const char *strides, ep_operand *operands, int count) {
    const char *p = skip_blanks(strides);
    if (*p != '[') return;
    p = skip_blanks(p + 1);
    for (int i = 0; i < count && *p == '['; i++) {
        int64_t stride[EP_TORCH_DIMS];
        int n;
        ep_operand *o = &operands[i];
        p = read_numbers(p, stride, &n);
        if (!p) return;
        if (*p == ',') p = skip_blanks(p + 1);
        if (o->list || !o->tensor || n != o->ndim || o->numel == 0) continue;
        for (int d = 0; d < n; d++) {
            if (stride[d] != 0 || o->sizes[d] <= 1) continue;
            o->expanded = true;
            o->bytes /= o->sizes[d];
        }
    }
}

/* The text of argument `index`, between its quotes or as a bare value; NULL if there is none. */
static const char *argument(const char *concrete, int index, size_t *n) {
    const char *p = skip_blanks(concrete ? concrete : "");
    if (*p != '[' || index < 0) return NULL;
    for (p = skip_blanks(p + 1); *p == '"'; index--) {
        const char *end = string_end(p + 1);
        if (!end) return NULL;
        if (index == 0) {
            *n = (size_t)(end - p - 1);
            return p + 1;
        }
        p = skip_blanks(end + 1);
        if (*p == ',') p = skip_blanks(p + 1);
    }
    return NULL;
}

bool ep_torch_ints(const char *concrete, int index, int n, int64_t *out) {
    size_t len;
    const char *p = argument(concrete, index, &len);
    if (!p || len == 0) return false;
    const char *stop = p + len;
    int count = 0;
    for (p += *p == '['; p < stop && count < n; count++) {
        char *end;
        out[count] = strtoll(p, &end, 10);
        if (end == p) break;
        p = end;
        while (p < stop && (*p == ',' || *p == ' ')) p++;
    }
    if (count == 0) return false;
    for (int i = count; i < n; i++) out[i] = out[0];
    return true;
}

bool ep_torch_flag(const char *concrete, int index) {
    size_t n;
    const char *p = argument(concrete, index, &n);
    return p && n == 4 && memcmp(p, "True", 4) == 0;
}

bool ep_torch_flags(const char *concrete, int index, int n, bool *out) {
    size_t len;
    const char *p = argument(concrete, index, &len);
    if (!p || len < 2 || *p != '[') return false;
    const char *stop = p + len;
    int count = 0;
    for (p++; p < stop && count < n; count++) {
        out[count] = *p == 'T';
        while (p < stop && *p != ',') p++;
        while (p < stop && (*p == ',' || *p == ' ')) p++;
    }
    return count == n;
}
