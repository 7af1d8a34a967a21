/* Tensors by pictures: dtypes, overflow, views, reach of strides past 2^32, comparing, DLPack. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "model/tensor/tensor.h"
#include "tensors.h"

static const ep_device cpu = {EP_DEVICE_CPU, 0};

static ep_tensor *iota(ep_dtype dtype, int ndim, const int64_t *sizes) {
    ep_tensor *t;
    OK(ep_tensor_create(dtype, ndim, sizes, NULL, &t));
    double v[256];
    for (int i = 0; i < 256; i++) v[i] = i;
    OK(ep_tensor_write_f64(t, v, (size_t)ep_tensor_numel(t), NULL));
    return t;
}

static void holds(ep_tensor *t, size_t n, const double *want) {
    double got[256];
    assert_int_equal(ep_tensor_numel(t), n);
    OK(ep_tensor_read_f64(t, got, n, NULL));
    assert_memory_equal(got, want, n * sizeof(double));
    ep_tensor_destroy(t);
}
#define HOLDS(t, ...) holds(t, sizeof((double[]){__VA_ARGS__}) / sizeof(double), (double[]){__VA_ARGS__})

/* All 65536 values go to f32 and back; halfway cases go to even; doubles are rounded once. */
static void half_dtypes_round_once(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 65536; i++) {
        uint16_t v = (uint16_t)i;
        float b = ep_bf16_to_f32(v), h = ep_f16_to_f32(v);
        assert_true(isnan(b) ? isnan(ep_bf16_to_f32(ep_f32_to_bf16(b))) : ep_f32_to_bf16(b) == v);
        assert_true(isnan(h) ? isnan(ep_f16_to_f32(ep_f32_to_f16(h))) : ep_f32_to_f16(h) == v);
        if (!isnan(h)) assert_int_equal(ep_f64_to_f16((double)h), v);
        /* Between neighbours: exactly halfway goes to even, a hair above goes up. */
        if (isfinite(h) && isfinite(ep_f16_to_f32((uint16_t)(v + 1))) && (v & 0x7fff) != 0x7bff) {
            double mid = ((double)h + (double)ep_f16_to_f32((uint16_t)(v + 1))) / 2;
            assert_int_equal(ep_f64_to_f16(mid), v & 1 ? v + 1 : v);
            assert_int_equal(ep_f64_to_f16(mid * (1 + 1e-15)), v + 1);
            assert_int_equal(ep_f32_to_f16((float)mid), v & 1 ? v + 1 : v);
        }
    }
    assert_int_equal(ep_f32_to_f16(65519.0f), 0x7bff);
    assert_int_equal(ep_f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(ep_f64_to_bf16(1e300), 0x7f80);
    /* 1 + 2^-8 + 2^-40 is above halfway; through f32 it would be halfway and go down. */
    assert_int_equal(ep_f64_to_bf16(1 + 0x1p-8 + 0x1p-40), 0x3f81);
    assert_int_equal(ep_f64_to_bf16(1 + 0x1p-8), 0x3f80);
    int32_t i;
    ep_element_store(EP_DTYPE_I32, &i, 1e20);
    assert_int_equal(i, INT32_MAX);
    ep_element_store(EP_DTYPE_I32, &i, NAN);
    assert_int_equal(i, 0);
}

static void sizes_that_overflow_are_refused(void **state) {
    (void)state;
    ep_tensor *t = NULL;
    ep_error err;
    assert_int_equal(ep_tensor_create(EP_DTYPE_F32, SIZES(1LL << 40, 1LL << 40), &err, &t), EP_ERROR_OVERFLOW);
    assert_int_equal(ep_tensor_create(EP_DTYPE_I64, SIZES(1LL << 61), &err, &t), EP_ERROR_OVERFLOW);
    assert_int_equal(ep_tensor_create(EP_DTYPE_F32, SIZES(2, -1), &err, &t), EP_ERROR_SHAPE);
    assert_int_equal(ep_tensor_create(EP_DTYPE_F32, SIZES(1, 1, 1, 1, 1, 1, 1, 1, 1), &err, &t), EP_ERROR_SHAPE);
    assert_int_equal(ep_tensor_create((ep_dtype)77, SIZES(1), &err, &t), EP_ERROR_DTYPE);
    float block[6];
    int64_t strides[2] = {1LL << 62, 1};
    assert_int_equal(ep_tensor_from_memory(cpu, EP_DTYPE_F32, SIZES(3, 2), strides, block, 24, NULL, NULL, &err, &t),
                     EP_ERROR_OVERFLOW);
    assert_int_equal(
        ep_tensor_from_memory(cpu, EP_DTYPE_F32, SIZES(3, 2), (int64_t[]){3, 1}, block, 24, NULL, NULL, &err, &t),
        EP_ERROR_OVERFLOW);
    assert_int_equal(
        ep_tensor_from_memory(cpu, EP_DTYPE_F32, SIZES(3, 2), (int64_t[]){-2, 1}, block, 24, NULL, NULL, &err, &t),
        EP_ERROR_STRIDE);
    char *odd = (char *)block + 2;
    assert_int_equal(ep_tensor_from_memory(cpu, EP_DTYPE_F32, SIZES(2), NULL, odd, 8, NULL, NULL, &err, &t),
                     EP_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "aligned to the 4 bytes"));
    ep_device second = {EP_DEVICE_CPU, 1};
    assert_int_equal(ep_tensor_from_memory(second, EP_DTYPE_F32, SIZES(2), NULL, block, 24, NULL, NULL, &err, &t),
                     EP_ERROR_DEVICE);
    assert_null(t);
    OK(ep_tensor_zeros(EP_DTYPE_F32, SIZES(2), NULL, &t));
    assert_int_equal(ep_tensor_read_f64(t, NULL, 2, &err), EP_ERROR_INVALID_ARGUMENT);
    assert_int_equal(ep_tensor_write_f64(t, NULL, 2, &err), EP_ERROR_INVALID_ARGUMENT);
    ep_tensor_destroy(t);
    /* Sizes of 1 and 0 have no stride. */
    OK(ep_tensor_from_memory(cpu, EP_DTYPE_F32, SIZES(1, 6), (int64_t[]){1LL << 62, 1}, block, 24, NULL, NULL, &err,
                             &t));
    assert_true(ep_tensor_is_contiguous(t));
    ep_tensor_destroy(t);
    OK(ep_tensor_zeros(EP_DTYPE_F32, SIZES(0, 5), NULL, &t));
    assert_null(ep_tensor_data(t));
    assert_int_equal(ep_tensor_size(t, -1), 5);
    assert_int_equal(ep_tensor_size(t, 2), -1);
    ep_tensor_destroy(t);
}

/* Three rows 2^30 elements apart over a mapping that holds three pages: rows land where 64-bit offsets say. */
static void rows_a_gigabyte_apart(void **state) {
    (void)state;
    size_t bytes = ((size_t)2 << 30) * 4 + 64;
    char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) skip();
    ep_tensor *t, *column;
    OK(ep_tensor_from_memory(cpu, EP_DTYPE_F32, SIZES(3, 8), (int64_t[]){1LL << 30, 1}, p, bytes, NULL, NULL, NULL,
                             &t));
    double v[24];
    for (int i = 0; i < 24; i++) v[i] = i;
    OK(ep_tensor_write_f64(t, v, 24, NULL));
    float at;
    memcpy(&at, p + ((size_t)2 << 30) * 4 + 7 * 4, 4);
    assert_true(at == 23.0f);
    OK(ep_tensor_slice(t, 1, 7, 8, 1, NULL, &column));
    HOLDS(column, 7, 15, 23);
    ep_tensor_destroy(t);
    munmap(p, bytes);
}

static void views(void **state) {
    (void)state;
    ep_tensor *x = iota(EP_DTYPE_F32, SIZES(2, 3, 4)), *v, *w, *bad = NULL;
    ep_error err;
    OK(ep_tensor_slice(x, -1, 1, -1, 1, NULL, &v));
    HOLDS(v, 1, 2, 5, 6, 9, 10, 13, 14, 17, 18, 21, 22);
    OK(ep_tensor_slice(x, 2, 0, 100, 3, NULL, &v));
    HOLDS(v, 0, 3, 4, 7, 8, 11, 12, 15, 16, 19, 20, 23);
    OK(ep_tensor_slice(x, 0, 5, 9, 1, NULL, &v));
    assert_int_equal(ep_tensor_numel(v), 0);
    ep_tensor_destroy(v);
    OK(ep_tensor_transpose(x, 0, -1, NULL, &v));
    assert_int_equal(ep_tensor_size(v, 0), 4);
    OK(ep_tensor_slice(v, 0, 1, 2, 1, NULL, &w));
    HOLDS(w, 1, 13, 5, 17, 9, 21);
    assert_int_equal(ep_tensor_reshape(v, 1, (int64_t[]){24}, &err, &bad), EP_ERROR_STRIDE);
    assert_non_null(strstr(err.message, "[4, 3, 2]"));
    ep_tensor_destroy(v);
    OK(ep_tensor_chunk(x, 1, 2, 1, NULL, &v));
    HOLDS(v, 8, 9, 10, 11, 20, 21, 22, 23);
    assert_int_equal(ep_tensor_chunk(x, 1, 2, 2, &err, &bad), EP_ERROR_INVALID_ARGUMENT);
    OK(ep_tensor_slice(x, 1, 0, 1, 1, NULL, &v));
    OK(ep_tensor_expand(v, 4, (int64_t[]){2, -1, 2, -1}, &err, &w));
    HOLDS(w, 0, 1, 2, 3, 0, 1, 2, 3, 12, 13, 14, 15, 12, 13, 14, 15, 0, 1, 2, 3, 0, 1, 2, 3, 12, 13, 14, 15, 12, 13, 14,
          15);
    assert_int_equal(ep_tensor_expand(v, 2, (int64_t[]){1, 4}, &err, &bad), EP_ERROR_SHAPE);
    ep_tensor_destroy(v);
    OK(ep_tensor_reshape(x, 2, (int64_t[]){4, -1}, NULL, &v));
    assert_int_equal(ep_tensor_size(v, 1), 6);
    ep_tensor_destroy(v);
    assert_int_equal(ep_tensor_reshape(x, 2, (int64_t[]){-1, -1}, &err, &bad), EP_ERROR_SHAPE);
    assert_int_equal(ep_tensor_reshape(x, 2, (int64_t[]){5, 5}, &err, &bad), EP_ERROR_SHAPE);
    assert_int_equal(ep_tensor_slice(x, 3, 0, 1, 1, &err, &bad), EP_ERROR_INVALID_ARGUMENT);
    assert_int_equal(ep_tensor_slice(x, 0, 0, 1, 0, &err, &bad), EP_ERROR_INVALID_ARGUMENT);
    assert_null(bad);
    ep_tensor_destroy(x);
}

/* Every reshape that works gives the elements in the same order, whatever the strides it started from. */
static void reshape_keeps_the_order(void **state) {
    (void)state;
    static const int64_t shapes[][4] = {{24, 1, 1, 1}, {6, 4, 1, 1},  {2, 3, 4, 1}, {4, 6, 1, 1}, {2, 3, 2, 2},
                                        {1, 24, 1, 1}, {12, 2, 1, 1}, {3, 8, 1, 1}, {2, 2, 2, 3}, {1, 2, 12, 1}};
    int worked = 0;
    for (int from = 0; from < 10; from++) {
        for (int a = 0; a < 4; a++) {
            for (int to = 0; to < 10; to++) {
                ep_tensor *x = iota(EP_DTYPE_F32, 4, shapes[from]), *s, *v, *r;
                OK(ep_tensor_transpose(x, a, 3 - a, NULL, &v));
                OK(ep_tensor_slice(v, 0, 0, 1000, 1 + to % 2, NULL, &s));
                double want[24], got[24];
                size_t n = (size_t)ep_tensor_numel(s);
                OK(ep_tensor_read_f64(s, want, n, NULL));
                if (ep_tensor_reshape(s, 4, shapes[to], NULL, &r) == EP_OK) {
                    OK(ep_tensor_read_f64(r, got, n, NULL));
                    assert_memory_equal(want, got, n * sizeof(double));
                    ep_tensor_destroy(r);
                    worked++;
                }
                ep_tensor_destroy(x);
                ep_tensor_destroy(v);
                ep_tensor_destroy(s);
            }
        }
    }
    assert_true(worked > 100);
}

static void comparing(void **state) {
    (void)state;
    ep_tensor *a = iota(EP_DTYPE_F32, SIZES(2, 2)), *b = iota(EP_DTYPE_BF16, SIZES(2, 2)),
              *c = iota(EP_DTYPE_F32, SIZES(4));
    ep_difference d;
    OK(ep_tensor_compare(a, b, 1, NULL, &d));
    assert_true(d.max_abs == 0 && d.max_rel == 0);
    OK(ep_tensor_write_f64(b, (double[]){0, 1, 2.5, NAN}, 4, NULL));
    OK(ep_tensor_write_f64(a, (double[]){0, 1, 2, NAN}, 4, NULL));
    OK(ep_tensor_compare(a, b, 1, NULL, &d));
    assert_true(d.max_abs == 0.5 && fabs(d.max_rel - 0.2) < 1e-12 && d.at == 2);
    OK(ep_tensor_write_f64(a, (double[]){0, INFINITY, 2, 3}, 4, NULL));
    OK(ep_tensor_compare(a, b, 1, NULL, &d));
    assert_true(isinf(d.max_abs) && d.at == 1);
    assert_int_equal(ep_tensor_compare(a, c, 1, NULL, &d), EP_ERROR_SHAPE);
    ep_tensor_destroy(a);
    ep_tensor_destroy(b);
    ep_tensor_destroy(c);
}

static void random_is_the_same_everywhere(void **state) {
    (void)state;
    ep_tensor *a, *b, *t;
    OK(ep_tensor_create(EP_DTYPE_F32, SIZES(100, 100), NULL, &a));
    OK(ep_tensor_create(EP_DTYPE_F32, SIZES(100, 100), NULL, &b));
    OK(ep_tensor_fill_random(a, 42, 2, NULL));
    OK(ep_tensor_transpose(b, 0, 1, NULL, &t));
    OK(ep_tensor_fill_random(t, 42, 2, NULL));
    ep_difference d;
    OK(ep_tensor_compare(a, t, 1, NULL, &d));
    assert_true(d.max_abs == 0);
    double v[10000], sum = 0, square = 0;
    OK(ep_tensor_read_f64(a, v, 10000, NULL));
    for (int i = 0; i < 10000; i++) sum += v[i], square += v[i] * v[i];
    assert_true(fabs(sum / 10000) < 0.06 && fabs(square / 10000 - 4) < 0.2);
    assert_true(fabs(v[0] - v[1]) > 1e-6);
    OK(ep_tensor_fill_random(b, 43, 2, NULL));
    OK(ep_tensor_compare(a, b, 1, NULL, &d));
    assert_true(d.max_abs > 1);
    ep_tensor_destroy(a);
    ep_tensor_destroy(b);
    ep_tensor_destroy(t);
}

static int deleted;
static void count_deleted(void *user) {
    (void)user;
    deleted++;
}

static void storage_ends_with_its_last_view(void **state) {
    (void)state;
    float block[8] = {0};
    ep_tensor *t, *v, *w;
    deleted = 0;
    OK(ep_tensor_from_memory(cpu, EP_DTYPE_F32, SIZES(8), NULL, block, sizeof block, count_deleted, NULL, NULL, &t));
    OK(ep_tensor_slice(t, 0, 2, 4, 1, NULL, &v));
    OK(ep_tensor_alias(v, NULL, &w));
    assert_ptr_equal(ep_tensor_data(w), block + 2);
    ep_tensor_destroy(t);
    ep_tensor_destroy(v);
    assert_int_equal(deleted, 0);
    ep_tensor_destroy(w);
    assert_int_equal(deleted, 1);
    ep_tensor_destroy(NULL);
}

/* Out through DLPack and in again: the same bytes, and every reference ended. */
static void dlpack_round_trip(void **state) {
    (void)state;
    float block[6] = {0, 1, 2, 3, 4, 5};
    ep_tensor *t, *v, *back;
    void *managed;
    deleted = 0;
    OK(ep_tensor_from_memory(cpu, EP_DTYPE_F32, SIZES(2, 3), NULL, block, sizeof block, count_deleted, NULL, NULL, &t));
    OK(ep_tensor_transpose(t, 0, 1, NULL, &v));
    OK(ep_tensor_to_dlpack(v, NULL, &managed));
    ep_tensor_destroy(t);
    ep_tensor_destroy(v);
    uint32_t version;
    memcpy(&version, managed, 4);
    assert_int_equal(version, 1);
    memcpy(managed, &(uint32_t){9}, 4);
    ep_error err;
    assert_int_equal(ep_tensor_from_dlpack(managed, &err, &back), EP_ERROR_UNSUPPORTED);
    memcpy(managed, &version, 4);
    OK(ep_tensor_from_dlpack(managed, &err, &back));
    assert_ptr_equal(ep_tensor_data(back), block);
    assert_int_equal(ep_tensor_stride(back, 0), 1);
    assert_int_equal(deleted, 0);
    HOLDS(back, 0, 3, 1, 4, 2, 5);
    assert_int_equal(deleted, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(half_dtypes_round_once),
        cmocka_unit_test(sizes_that_overflow_are_refused),
        cmocka_unit_test(rows_a_gigabyte_apart),
        cmocka_unit_test(views),
        cmocka_unit_test(reshape_keeps_the_order),
        cmocka_unit_test(comparing),
        cmocka_unit_test(random_is_the_same_everywhere),
        cmocka_unit_test(storage_ends_with_its_last_view),
        cmocka_unit_test(dlpack_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
