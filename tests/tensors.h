/* What tests of tensors share: calls that must succeed, sizes as arguments, random values. */
#ifndef EP_TEST_TENSORS_H
#define EP_TEST_TENSORS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <epilogue/tensor.h>

#define OK(call) assert_int_equal((call), EP_OK)
/* SIZES(2, 3): the arguments ndim and sizes. */
#define SIZES(...)                                                                                                     \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]) {                                           \
        __VA_ARGS__                                                                                                    \
    }

/* Normal values times scale. */
static inline ep_tensor *random_tensor(ep_dtype dtype, int ndim, const int64_t *sizes, uint64_t seed, double scale) {
    ep_tensor *t;
    OK(ep_tensor_create(dtype, ndim, sizes, NULL, &t));
    OK(ep_tensor_fill_random(t, seed, scale, NULL));
    return t;
}

static inline ep_tensor *random_matrix(ep_dtype dtype, int64_t rows, int64_t cols, uint64_t seed, double scale) {
    return random_tensor(dtype, 2, (int64_t[]){rows, cols}, seed, scale);
}

#endif
