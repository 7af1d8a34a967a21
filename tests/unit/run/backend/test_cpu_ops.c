// ctest: isa
/* Ops on the CPU backend against the same on the reference, over random views: slices, transposes, broadcasts, empty and
 * large tensors; pointwise, reductions, norms, copies, casts. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <epilogue/epilogue.h>

#include "model/op/op.h"
#include "model/tensor/tensor.h"

static ep_context *cpu, *ref;
static uint32_t lcg = 99;

static int below(int n) {
    lcg = lcg * 1664525u + 1013904223u;
    return (int)((lcg >> 8) % (uint32_t)n);
}

static ep_tensor *fresh(ep_dtype dtype, int ndim, const int64_t *sizes) {
    ep_tensor *t;
    assert_int_equal(ep_tensor_create(dtype, ndim, sizes, NULL, &t), EP_OK);
    for (int64_t i = 0; i < t->numel; i++)
        ep_element_store(dtype, t->data + i * (int64_t)ep_dtype_size(dtype),
                         dtype == EP_DTYPE_BOOL ? below(2) : (double)below(10000) / 1000.0 - 5.0);
    return t;
}

/* A view of `ndim` dims with these sizes: sliced with a step, transposed, or expanded from size 1. */
static ep_tensor *view(ep_dtype dtype, int ndim, const int64_t *sizes, bool broadcast) {
    int64_t real[EP_MAX_DIMS] = {0};
    int swap = ndim > 1 && below(3) == 0 ? below(ndim - 1) : -1, sliced = ndim && below(3) == 0 ? below(ndim) : -1;
    int expanded = broadcast && ndim && below(3) == 0 ? below(ndim) : -1;
    memcpy(real, sizes, sizeof(int64_t) * (size_t)ndim);
    if (expanded >= 0) real[expanded] = 1;
    if (sliced >= 0) real[sliced] = real[sliced] * 2 + 1;
    if (swap >= 0) {
        int64_t s = real[swap];
        real[swap] = real[swap + 1];
        real[swap + 1] = s;
    }
    ep_tensor *t = fresh(dtype, ndim, real), *v;
    if (swap >= 0) {
        assert_int_equal(ep_tensor_transpose(t, swap, swap + 1, NULL, &v), EP_OK);
        ep_tensor_destroy(t);
        t = v;
    }
    if (sliced >= 0) {
        int64_t size = t->sizes[sliced] / 2;
        assert_int_equal(ep_tensor_slice(t, sliced, 1, 1 + 2 * size, 2, NULL, &v), EP_OK);
        ep_tensor_destroy(t);
        t = v;
    }
    return t;
}

static double at(const ep_tensor *t, int64_t i) {
    return ep_element_load(t->dtype, t->data + i * (int64_t)ep_dtype_size(t->dtype));
}

static void same(const ep_tensor *got, const ep_tensor *want, double steps, double absolute, const char *what) {
    static const double step[EP_DTYPE_COUNT] = {0x1p-23, 0x1p-7, 0x1p-10};
    assert_int_equal(got->ndim, want->ndim);
    assert_int_equal(got->dtype, want->dtype);
    assert_memory_equal(got->sizes, want->sizes, sizeof(int64_t) * (size_t)want->ndim);
    for (int64_t i = 0; i < want->numel; i++) {
        double g = at(got, i), w = at(want, i);
        if (g == w || (isnan(g) && isnan(w))) continue;
        if (!(fabs(g - w) <= steps * step[want->dtype] * fabs(w) + absolute))
            fail_msg("%s of %s, element %lld: %.9g, wanted %.9g", what, ep_dtype_name(want->dtype), (long long)i, g, w);
    }
}

static void random_sizes(int *ndim, int64_t *sizes) {
    static const int64_t some[] = {1, 2, 3, 5, 16, 17, 40, 64, 130, 0};
    *ndim = below(4);
    for (int i = 0; i < *ndim; i++) sizes[i] = some[below(below(20) ? 9 : 10)];
}

static void pointwise(void **state) {
    (void)state;
    for (int round = 0; round < 600; round++) {
        int64_t sizes[EP_MAX_DIMS];
        int ndim;
        random_sizes(&ndim, sizes);
        ep_op op = (ep_op)below(EP_OP_WHERE);
        ep_dtype dtype = (ep_dtype)below(3);
        int arity = ep_op_get(op)->max_arity;
        ep_tensor *a = view(dtype, ndim, sizes, arity > 1), *b = view(dtype, ndim, sizes, true), *y[2];
        ep_context *ctx[2] = {cpu, ref};
        for (int i = 0; i < 2; i++)
            assert_int_equal(arity == 1 ? ep_unary(ctx[i], op, a, &y[i]) : ep_binary(ctx[i], op, a, b, &y[i]), EP_OK);
        same(y[0], y[1], dtype == EP_DTYPE_F32 ? 4 : 1, 1e-38, ep_op_name(op));
        ep_tensor *t[] = {a, b, y[0], y[1]};
        for (int i = 0; i < 4; i++) ep_tensor_destroy(t[i]);
    }
}

static void where(void **state) {
    (void)state;
    for (int round = 0; round < 100; round++) {
        int64_t sizes[EP_MAX_DIMS];
        int ndim;
        random_sizes(&ndim, sizes);
        ep_dtype dtype = (ep_dtype)below(3);
        ep_tensor *t[5] = {view(EP_DTYPE_BOOL, ndim, sizes, true), view(dtype, ndim, sizes, true),
                           view(dtype, ndim, sizes, true)};
        assert_int_equal(ep_where(cpu, t[0], t[1], t[2], &t[3]), EP_OK);
        assert_int_equal(ep_where(ref, t[0], t[1], t[2], &t[4]), EP_OK);
        same(t[3], t[4], 0, 0, "where");
        for (int i = 0; i < 5; i++) ep_tensor_destroy(t[i]);
    }
}

/* Into a strided result, and into an input. */
static void into(void **state) {
    (void)state;
    for (int round = 0; round < 100; round++) {
        int64_t sizes[2] = {1 + below(70), 1 + below(70)};
        ep_dtype dtype = (ep_dtype)below(3);
        ep_tensor *t[5] = {view(dtype, 2, sizes, false), view(dtype, 2, sizes, false), view(dtype, 2, sizes, false)};
        const ep_tensor *in[2] = {t[0], t[1]};
        assert_int_equal(ep_mul(ref, t[0], t[1], &t[4]), EP_OK);
        assert_int_equal(ep_pointwise_into(cpu, EP_OP_MUL, in, 2, t[2]), EP_OK);
        assert_int_equal(ep_copy(ref, t[2], &t[3]), EP_OK);
        same(t[3], t[4], 0, 0, "mul into a view");
        ep_tensor_destroy(t[3]);
        assert_int_equal(ep_pointwise_into(cpu, EP_OP_MUL, in, 2, t[0]), EP_OK);
        assert_int_equal(ep_copy(ref, t[0], &t[3]), EP_OK);
        same(t[3], t[4], 0, 0, "mul in place");
        for (int i = 0; i < 5; i++) ep_tensor_destroy(t[i]);
    }
}

typedef ep_status (*reduce_fn)(ep_context *, const ep_tensor *, int, bool, ep_tensor **);

static void reductions(void **state) {
    (void)state;
    static const reduce_fn fns[] = {ep_sum, ep_mean, ep_amax};
    static const char *const names[] = {"sum", "mean", "amax"};
    for (int round = 0; round < 400; round++) {
        int64_t sizes[3] = {1 + below(9), 1 + below(70), 1 + below(below(8) ? 300 : 9000)};
        ep_dtype dtype = (ep_dtype)below(3);
        int k = below(3), dims = 1 + below(3);
        ep_tensor *x = view(dtype, 3, sizes, true), *y[2];
        if (below(10) == 0) ep_element_store(dtype, x->data, NAN);
        assert_int_equal(fns[k](cpu, x, dims, round & 1, &y[0]), EP_OK);
        assert_int_equal(fns[k](ref, x, dims, round & 1, &y[1]), EP_OK);
        double length = (double)(x->numel / (y[0]->numel ? y[0]->numel : 1));
        same(y[0], y[1], 1, k == 0 ? 2e-6 * length : k == 1 ? 2e-6 : 0, names[k]);
        ep_tensor_destroy(x);
        ep_tensor_destroy(y[0]);
        ep_tensor_destroy(y[1]);
    }
}

/* Pairwise sums: 2^24 ones and a half are lost to no rounding. */
static void long_sum(void **state) {
    (void)state;
    ep_tensor *x, *y;
    assert_int_equal(ep_tensor_create(EP_DTYPE_F32, 1, (int64_t[]){20000000}, NULL, &x), EP_OK);
    for (int64_t i = 0; i < x->numel; i++) ((float *)(void *)x->data)[i] = 1.0f;
    assert_int_equal(ep_sum(cpu, x, 1, false, &y), EP_OK);
    assert_true(at(y, 0) == 20000000.0);
    ep_tensor_destroy(x);
    ep_tensor_destroy(y);
}

static void norms(void **state) {
    (void)state;
    for (int round = 0; round < 300; round++) {
        int64_t sizes[2] = {1 + below(40), 1 + below(below(8) ? 200 : 5000)};
        ep_dtype dtype = (ep_dtype)below(3);
        int k = below(3), parts = below(3);
        ep_tensor *x = view(dtype, 2, sizes, false), *w = fresh(dtype, 1, sizes + 1), *b = fresh(dtype, 1, sizes + 1),
                  *y[2];
        ep_context *ctx[2] = {cpu, ref};
        for (int i = 0; i < 2; i++) {
            ep_status s = k == 0   ? ep_softmax(ctx[i], x, &y[i])
                          : k == 1 ? ep_layer_norm(ctx[i], x, parts ? w : NULL, parts == 2 ? b : NULL, 1e-5, &y[i])
                                   : ep_rms_norm(ctx[i], x, parts ? w : NULL, 1e-6, &y[i]);
            assert_int_equal(s, EP_OK);
        }
        static const char *const names[] = {"softmax", "layer_norm", "rms_norm"};
        same(y[0], y[1], dtype == EP_DTYPE_F32 ? 16 : 1, k ? 2e-5 : dtype == EP_DTYPE_F16 ? 0x1p-24 : 0, names[k]);
        ep_tensor *t[] = {x, w, b, y[0], y[1]};
        for (int i = 0; i < 5; i++) ep_tensor_destroy(t[i]);
    }
}

static void moves(void **state) {
    (void)state;
    for (int round = 0; round < 400; round++) {
        int64_t sizes[EP_MAX_DIMS];
        int ndim;
        random_sizes(&ndim, sizes);
        ep_dtype from = (ep_dtype)below(EP_DTYPE_COUNT), to = below(2) ? from : (ep_dtype)below(EP_DTYPE_COUNT);
        ep_tensor *x = view(from, ndim, sizes, false), *y[2];
        ep_context *ctx[2] = {cpu, ref};
        for (int i = 0; i < 2; i++)
            assert_int_equal(from == to ? ep_copy(ctx[i], x, &y[i]) : ep_cast(ctx[i], x, to, &y[i]), EP_OK);
        same(y[0], y[1], 0, 0, "copy");
        ep_tensor_destroy(y[0]);
        ep_tensor_destroy(y[1]);
        if (ndim > 0) {
            const ep_tensor *in[2] = {x, x};
            int dim = below(ndim);
            for (int i = 0; i < 2; i++) assert_int_equal(ep_cat(ctx[i], in, 2, dim, &y[i]), EP_OK);
            same(y[0], y[1], 0, 0, "cat");
            ep_tensor_destroy(y[0]);
            ep_tensor_destroy(y[1]);
        }
        ep_tensor_destroy(x);
    }
}

/* Enough work for several threads. */
static void threads(void **state) {
    (void)state;
    int64_t sizes[3] = {3, 700, 301};
    ep_tensor *a = view(EP_DTYPE_F32, 3, sizes, false), *row = fresh(EP_DTYPE_F32, 1, sizes + 2), *y[2], *t;
    ep_context *ctx[2] = {cpu, ref};
    for (int i = 0; i < 2; i++) assert_int_equal(ep_add(ctx[i], a, row, &y[i]), EP_OK);
    same(y[0], y[1], 0, 0, "add of a row");
    assert_int_equal(ep_tensor_transpose(y[0], 0, 2, NULL, &t), EP_OK);
    ep_tensor_destroy(y[0]);
    ep_tensor_destroy(y[1]);
    for (int i = 0; i < 2; i++) assert_int_equal(ep_copy(ctx[i], t, &y[i]), EP_OK);
    same(y[0], y[1], 0, 0, "copy of a transpose");
    ep_tensor *all[] = {a, row, y[0], y[1], t};
    for (int i = 0; i < 5; i++) ep_tensor_destroy(all[i]);
}

static int start(void **state) {
    (void)state;
    return ep_context_create(&(ep_context_options){.threads = 2}, NULL, &cpu) ||
           ep_context_create(&(ep_context_options){.reference = true}, NULL, &ref);
}

static int stop(void **state) {
    (void)state;
    ep_context_destroy(cpu);
    ep_context_destroy(ref);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pointwise), cmocka_unit_test(where), cmocka_unit_test(into),  cmocka_unit_test(reductions),
        cmocka_unit_test(long_sum),  cmocka_unit_test(norms), cmocka_unit_test(moves), cmocka_unit_test(threads)};
    return cmocka_run_group_tests(tests, start, stop);
}
