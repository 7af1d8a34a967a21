/* What the device tests share: a GPU and the plain reference, random tensors of any layout on both, and the comparison of
 * what each of them made. */
#ifndef EP_TEST_CUDA_CASE_H
#define EP_TEST_CUDA_CASE_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <epilogue/epilogue.h>

#include "tensors.h"

static ep_context *gpu, *ref;
static uint64_t seed = 0x5eed;

static inline uint64_t rnd(uint64_t n) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (seed >> 33) % n;
}

/* Fewer rounds under tools that slow every launch down a hundred times. */
static inline int rounds(int n) {
    return getenv("EPILOGUE_TEST_SMALL") ? n / 20 + 4 : n;
}

static inline double tolerance(ep_dtype d) {
    return d == EP_DTYPE_F32 ? 4e-6 : d == EP_DTYPE_F16 ? 2e-3 : 1.6e-2;
}

static inline int64_t pick(void) {
    static const int64_t sizes[] = {0, 1, 2, 3, 7, 8, 9, 16, 17, 31, 33, 64, 65, 100, 129};
    return sizes[rnd(sizeof sizes / sizeof *sizes)];
}

/* A random view: contiguous, transposed, sliced by 2, or expanded; on the host. */
static inline ep_tensor *host_tensor(ep_dtype dtype, int ndim, const int64_t *sizes, int kind) {
    ep_error e;
    ep_tensor *t, *v;
    int64_t big[EP_MAX_DIMS];
    for (int d = 0; d < ndim; d++) big[d] = sizes[d];
    if (kind == 1 && ndim >= 2) {
        int64_t s = big[ndim - 1];
        big[ndim - 1] = big[0];
        big[0] = s;
    } else if (kind == 2 && ndim >= 1) {
        big[ndim - 1] = 2 * sizes[ndim - 1];
    }
    assert_int_equal(ep_tensor_create(dtype, ndim, big, &e, &t), EP_OK);
    assert_int_equal(ep_tensor_fill_random(t, seed++, 1.5, &e), EP_OK);
    if (kind == 1 && ndim >= 2) {
        assert_int_equal(ep_tensor_transpose(t, 0, ndim - 1, &e, &v), EP_OK);
    } else if (kind == 2 && ndim >= 1) {
        assert_int_equal(ep_tensor_slice(t, ndim - 1, 0, big[ndim - 1], 2, &e, &v), EP_OK);
    } else {
        return t;
    }
    ep_tensor_destroy(t);
    return v;
}

/* The same view on the device: the whole host buffer is not copied, so the view is made again there. */
static inline ep_tensor *device_tensor(const ep_tensor *host, int kind) {
    ep_tensor *d, *t;
    ep_error e;
    assert_int_equal(ep_to_device(gpu, host, &d), EP_OK);
    int n = ep_tensor_ndim(host);
    if (kind == 1 && n >= 2) { /* dense copy of the transpose, seen transposed again */
        ep_tensor *back, *dense;
        assert_int_equal(ep_tensor_transpose(d, 0, n - 1, &e, &t), EP_OK);
        assert_int_equal(ep_copy(gpu, t, &dense), EP_OK);
        assert_int_equal(ep_tensor_transpose(dense, 0, n - 1, &e, &back), EP_OK);
        ep_tensor_destroy(t);
        ep_tensor_destroy(dense);
        ep_tensor_destroy(d);
        return back;
    }
    return d;
}

static inline void compare(const char *what, ep_tensor *on_gpu, ep_tensor *expected, double tol) {
    ep_error e;
    ep_tensor *host;
    ep_difference diff;
    assert_int_equal(ep_to_host(gpu, on_gpu, &host), EP_OK);
    assert_int_equal(ep_tensor_compare(host, expected, 1.0, &e, &diff), EP_OK);
    if (!(diff.max_rel <= tol)) {
        print_message("%s: off by %g (relative %g) at %lld\n", what, diff.max_abs, diff.max_rel, (long long)diff.at);
        fail();
    }
    ep_tensor_destroy(host);
    ep_tensor_destroy(on_gpu);
    ep_tensor_destroy(expected);
}

static const ep_dtype float_dtypes[] = {EP_DTYPE_F32, EP_DTYPE_BF16, EP_DTYPE_F16};

/* False, with a line that says why, where there is no GPU. `pattern`, if not NULL, says which tests of the group are run. */
static inline bool open_gpu(const char *pattern) {
    ep_error e;
    ep_context_options on_gpu = {.device = {EP_DEVICE_CUDA, 0}}, plain = {.reference = true};
    if (pattern) cmocka_set_test_filter(pattern);
    if (ep_context_create(&on_gpu, &e, &gpu) != EP_OK) {
        printf("skipped: %s\n", e.message);
        return false;
    }
    if (ep_context_create(&plain, &e, &ref) == EP_OK) return true;
    printf("no reference: %s\n", e.message);
    exit(1);
}

static inline int close_gpu(void **state) {
    (void)state;
    ep_context_destroy(gpu);
    ep_context_destroy(ref);
    return 0;
}

#endif
