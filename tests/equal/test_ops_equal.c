/* Every op of the default backend against the plain reference on the same inputs: random shapes (0, 1, odd), layouts,
 * dtypes and broadcasts, with NaN and infinities among the values. The seed is fixed; a failure names its case. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <epilogue/epilogue.h>

#include "model/op/op.h"
#include "model/tensor/tensor.h"
#include "tensors.h"

static ep_context *fast, *plain;
static uint64_t seed;

static int set_up(void **state) {
    (void)state;
    return ep_context_create(NULL, NULL, &fast) ||
           ep_context_create(&(ep_context_options){.reference = true}, NULL, &plain);
}
static int tear_down(void **state) {
    (void)state;
    ep_context_destroy(fast);
    ep_context_destroy(plain);
    return 0;
}

static uint64_t roll(uint64_t n) {
    seed += 0x9e3779b97f4a7c15u;
    uint64_t x = seed;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (x ^ x >> 31) % n;
}

static int64_t size(void) {
    static const int64_t sizes[] = {1, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 64, 65, 100, 0};
    return sizes[roll(roll(6) ? 16 : 17)];
}

static const double odd[] = {NAN, INFINITY, -INFINITY, 0, -0.0, 1e-42, -1e-42, 3e38, -3e38, 65504, 88.8, -104, 1e-8};

/* A tensor of the sizes, in one of five layouts; every `rate`-th value or so is an odd one (0: none). */
static ep_tensor *tensor(ep_dtype dtype, int ndim, const int64_t *sizes, uint64_t rate) {
    int64_t wide[EP_MAX_DIMS];
    ep_tensor *t, *v;
    int d = ndim ? (int)roll((uint64_t)ndim) : 0, e = ndim ? (int)roll((uint64_t)ndim) : 0,
        layout = ndim ? (int)roll(5) : 0;
    for (int i = 0; i < ndim; i++) wide[i] = sizes[i];
    if (layout == 1) wide[d] = sizes[e], wide[e] = sizes[d];
    if (layout == 2) wide[d] = sizes[d] * 2 + 1;
    if (layout == 3) wide[d] = sizes[d] + 3;
    if (layout == 4) wide[d] = sizes[d] ? 1 : 0;
    OK(ep_tensor_create(dtype, ndim, wide, NULL, &t));
    OK(ep_tensor_fill_random(t, roll(1 << 20), roll(3) ? 1 : 8, NULL));
    for (int64_t i = 0; rate && i < t->numel; i++)
        if (roll(rate) == 0)
            ep_element_store(dtype, t->data + i * (int64_t)ep_dtype_size(dtype), odd[roll(sizeof odd / sizeof *odd)]);
    switch (layout) {
    case 1: OK(ep_tensor_transpose(t, d, e, NULL, &v)); break;
    case 2: OK(ep_tensor_slice(t, d, 1, sizes[d] * 2 + 1, 2, NULL, &v)); break;
    case 3: OK(ep_tensor_slice(t, d, 2, 2 + sizes[d], 1, NULL, &v)); break;
    case 4: OK(ep_tensor_expand(t, ndim, sizes, NULL, &v)); break;
    default: OK(ep_tensor_alias(t, NULL, &v));
    }
    ep_tensor_destroy(t);
    return v;
}

/* In f32 exp(-x) overflows below -88.7, where silu is at most 2.6e-37: it is then -0, as PyTorch's is. */
#define LOST 3e-37

/* How far two values of a dtype lie apart, in units in the last place of the second. */
static double ulps(ep_dtype dtype, double got, double want) {
    static const int bits[] = {[EP_DTYPE_F32] = 24, [EP_DTYPE_BF16] = 8, [EP_DTYPE_F16] = 11};
    static const int least[] = {[EP_DTYPE_F32] = -149, [EP_DTYPE_BF16] = -133, [EP_DTYPE_F16] = -24};
    if ((isnan(got) && isnan(want)) || got == want) return 0;
    if (!isfinite(got) || !isfinite(want)) {
        /* One rounds to the largest value, the other past it. */
        double big = fmax(fabs(got), fabs(want)), small = fmin(fabs(got), fabs(want));
        double top = dtype == EP_DTYPE_F16   ? 65504
                     : dtype == EP_DTYPE_F32 ? 3.4028234663852886e38
                                             : 3.3895313892515355e38;
        return isinf(big) && small >= top * (1 - 1e-6) && got * want > 0 ? 1 : INFINITY;
    }
    int e;
    frexp(want, &e);
    return fabs(got - want) / ldexp(1, e - bits[dtype] > least[dtype] ? e - bits[dtype] : least[dtype]);
}

static void close_by(ep_tensor *a, ep_tensor *b, double most, double absolute, const char *what) {
    assert_int_equal(a->dtype, b->dtype);
    assert_int_equal(a->ndim, b->ndim);
    assert_memory_equal(a->sizes, b->sizes, sizeof(int64_t) * (size_t)a->ndim);
    size_t n = (size_t)a->numel;
    double *got = malloc(sizeof(double) * (n + 1)), *want = malloc(sizeof(double) * (n + 1));
    OK(ep_tensor_read_f64(a, got, n, NULL));
    OK(ep_tensor_read_f64(b, want, n, NULL));
    for (size_t i = 0; i < n; i++) {
        if (fabs(got[i] - want[i]) <= absolute) continue;
        double off = a->dtype <= EP_DTYPE_F16 ? ulps(a->dtype, got[i], want[i]) : fabs(got[i] - want[i]);
        if (!(off <= most)) {
            char shape[96];
            fail_msg("%s %s %s at %zu: %.9g, reference %.9g, %.1f ulp", what, ep_dtype_name(a->dtype),
                     ep_shape_text(a->ndim, a->sizes, shape, sizeof shape), i, got[i], want[i], off);
        }
    }
    free(got);
    free(want);
    ep_tensor_destroy(a);
    ep_tensor_destroy(b);
}

/* One row of figures an op: how many ulp of f32 its result may be off, where the values are ordinary. */
static double allowed(ep_op op, ep_dtype dtype) {
    if (dtype != EP_DTYPE_F32) return 1;
    if (op == EP_OP_GELU_TANH || op == EP_OP_GELU_ERF) return 3;
    return op <= EP_OP_ABS || op == EP_OP_SQRT || op == EP_OP_RELU || op >= EP_OP_MINIMUM ? 0 : 4;
}

static void pointwise(void **state) {
    (void)state;
    for (int round = 0; round < 40; round++) {
        for (int i = 0; i <= EP_OP_WHERE; i++) {
            seed = (uint64_t)(round * 1000 + i);
            ep_op op = (ep_op)i;
            int arity = ep_op_get(op)->max_arity, ndim = (int)roll(5);
            ep_dtype dtype = (ep_dtype)roll(3);
            int64_t sizes[4];
            for (int d = 0; d < ndim; d++) sizes[d] = roll(4) ? size() : 2;
            ep_tensor *in[3], *a, *b;
            for (int k = 0; k < arity; k++) {
                int64_t mine[4];
                int drop = ndim ? (int)roll((uint64_t)ndim + 1) : 0;
                if (roll(3)) drop = 0;
                for (int d = drop; d < ndim; d++) mine[d - drop] = roll(4) ? sizes[d] : 1;
                in[k] = tensor(op == EP_OP_WHERE && k == 0 ? EP_DTYPE_BOOL : dtype, ndim - drop, mine, 9);
            }
            if (op == EP_OP_WHERE) {
                OK(ep_where(fast, in[0], in[1], in[2], &a));
                OK(ep_where(plain, in[0], in[1], in[2], &b));
            } else if (arity == 2) {
                OK(ep_binary(fast, op, in[0], in[1], &a));
                OK(ep_binary(plain, op, in[0], in[1], &b));
            } else {
                OK(ep_unary(fast, op, in[0], &a));
                OK(ep_unary(plain, op, in[0], &b));
            }
            char what[64];
            snprintf(what, sizeof what, "%s (round %d)", ep_op_name(op), round);
            close_by(a, b, allowed(op, dtype), LOST, what);
            for (int k = 0; k < arity; k++) ep_tensor_destroy(in[k]);
        }
    }
}

/* Sums differ by their order: half an ulp of the dtype, and an f32 rounding for each of k terms of size 1 or so. */
static double sum_error(ep_dtype dtype, int64_t k) {
    (void)dtype;
    return 3e-7 * (double)(k + 4) * 8;
}

static void products(void **state) {
    (void)state;
    for (int round = 0; round < 300; round++) {
        seed = (uint64_t)round + 50000;
        ep_dtype dtype = (ep_dtype)roll(3);
        int64_t m = size(), n = size(), k = size(), batch = roll(2) ? size() % 5 : 1;
        int which = (int)roll(5);
        ep_tensor *x, *w, *c = NULL, *a, *b;
        char what[64];
        snprintf(what, sizeof what, "product %d (round %d) k %d", which, round, (int)k);
        uint64_t rate = 0;
        if (which == 0) {
            x = tensor(dtype, 2, (int64_t[]){m, k}, rate), w = tensor(dtype, 2, (int64_t[]){k, n}, rate);
            OK(ep_mm(fast, x, w, &a));
            OK(ep_mm(plain, x, w, &b));
        } else if (which == 1) {
            x = tensor(dtype, 3, (int64_t[]){batch, m, k}, rate), w = tensor(dtype, 3, (int64_t[]){batch, k, n}, rate);
            OK(ep_bmm(fast, x, w, &a));
            OK(ep_bmm(plain, x, w, &b));
        } else if (which == 2) {
            double beta = roll(3) ? 1 : roll(2) ? 0 : 0.5, alpha = roll(2) ? 1 : 2;
            x = tensor(dtype, 2, (int64_t[]){m, k}, rate), w = tensor(dtype, 2, (int64_t[]){k, n}, rate);
            c = roll(2) ? tensor(dtype, 1, (int64_t[]){n}, beta == 0 ? 2 : rate)
                        : tensor(dtype, 2, (int64_t[]){roll(2) ? m : 1, roll(2) ? n : 1}, beta == 0 ? 2 : rate);
            OK(ep_addmm(fast, c, x, w, beta, alpha, &a));
            OK(ep_addmm(plain, c, x, w, beta, alpha, &b));
        } else {
            x = tensor(dtype, 3, (int64_t[]){batch, m, k}, rate), w = tensor(dtype, 2, (int64_t[]){n, k}, rate);
            if (which == 3) c = tensor(dtype, 1, (int64_t[]){n}, rate);
            OK(ep_linear(fast, x, w, c, &a));
            OK(ep_linear(plain, x, w, c, &b));
        }
        close_by(a, b, 1, sum_error(dtype, k) * 64, what);
        ep_tensor_destroy(x);
        ep_tensor_destroy(w);
        ep_tensor_destroy(c);
    }
}

static void reductions_and_norms(void **state) {
    (void)state;
    for (int round = 0; round < 200; round++) {
        seed = (uint64_t)round + 90000;
        ep_dtype dtype = (ep_dtype)roll(3);
        int ndim = 1 + (int)roll(4), which = (int)roll(6), dims = 1 + (int)roll((uint64_t)ndim);
        int64_t sizes[4];
        for (int d = 0; d < ndim; d++) sizes[d] = d + 1 < ndim && ndim > 2 ? 1 + (int64_t)roll(5) : size();
        ep_tensor *x = tensor(dtype, ndim, sizes, which == 2 && roll(2) ? 50 : 0), *a, *b;
        ep_tensor *w = roll(2) ? tensor(dtype, 1, &sizes[ndim - 1], 0) : NULL;
        ep_tensor *bias = w && roll(2) ? tensor(dtype, 1, &sizes[ndim - 1], 0) : NULL;
        ep_status s = EP_OK, r = EP_OK;
        bool keep = roll(2);
        switch (which) {
        case 0: s = ep_sum(fast, x, dims, keep, &a), r = ep_sum(plain, x, dims, keep, &b); break;
        case 1: s = ep_mean(fast, x, dims, keep, &a), r = ep_mean(plain, x, dims, keep, &b); break;
        case 2: s = ep_amax(fast, x, dims, keep, &a), r = ep_amax(plain, x, dims, keep, &b); break;
        case 3: s = ep_softmax(fast, x, &a), r = ep_softmax(plain, x, &b); break;
        case 4: s = ep_layer_norm(fast, x, w, bias, 1e-5, &a), r = ep_layer_norm(plain, x, w, bias, 1e-5, &b); break;
        default: s = ep_rms_norm(fast, x, w, 1e-6, &a), r = ep_rms_norm(plain, x, w, 1e-6, &b);
        }
        assert_int_equal(s, r);
        char what[64];
        snprintf(what, sizeof what, "reduction %d (round %d)", which, round);
        /* Sums of values up to 50 or so; a norm divides by a spread that may be small. */
        if (s == EP_OK)
            close_by(a, b, which == 2 ? 0 : 4, which == 2 ? 0 : which == 0 ? 1e-6 * (double)x->numel : 2e-5, what);
        ep_tensor_destroy(x);
        ep_tensor_destroy(w);
        ep_tensor_destroy(bias);
    }
}

static void moves_and_gates(void **state) {
    (void)state;
    for (int round = 0; round < 200; round++) {
        seed = (uint64_t)round + 130000;
        int ndim = 1 + (int)roll(4);
        int64_t sizes[4];
        for (int d = 0; d < ndim; d++) sizes[d] = ndim > 2 ? 1 + (int64_t)roll(9) : size();
        ep_dtype dtype = (ep_dtype)roll(EP_DTYPE_COUNT), to = (ep_dtype)roll(EP_DTYPE_COUNT);
        ep_tensor *x = tensor(dtype, ndim, sizes, dtype <= EP_DTYPE_F16 && to <= EP_DTYPE_F16 ? 9 : 0), *a, *b;
        OK(ep_copy(fast, x, &a));
        OK(ep_copy(plain, x, &b));
        close_by(a, b, 0, 0, "copy");
        OK(ep_cast(fast, x, to, &a));
        OK(ep_cast(plain, x, to, &b));
        close_by(a, b, 0, 0, "cast");
        ep_tensor *y = tensor(dtype, ndim, sizes, 0);
        int dim = (int)roll((uint64_t)ndim);
        OK(ep_cat(fast, (const ep_tensor *[]){x, y, x}, 3, dim, &a));
        OK(ep_cat(plain, (const ep_tensor *[]){x, y, x}, 3, dim, &b));
        close_by(a, b, 0, 0, "cat");
        ep_tensor_destroy(x);
        ep_tensor_destroy(y);
        ep_act act = (ep_act)roll(EP_ACT_COUNT);
        dtype = (ep_dtype)roll(3);
        ep_tensor *g = tensor(dtype, ndim, sizes, 20), *u = tensor(dtype, ndim, sizes, 20),
                  *dy = tensor(dtype, ndim, sizes, 0);
        ep_tensor *dg, *du, *dg2, *du2;
        char what[64];
        snprintf(what, sizeof what, "gated %s (round %d)", ep_act_name(act), round);
        OK(ep_gated(fast, act, g, u, &a));
        OK(ep_gated(plain, act, g, u, &b));
        /* Half dtypes: act may round the other way at a tie, and the product turns that into two units. */
        close_by(a, b, dtype == EP_DTYPE_F32 ? 5 : 2, LOST, what);
        ep_tensor_destroy(g);
        ep_tensor_destroy(u);
        g = tensor(dtype, ndim, sizes, 0), u = tensor(dtype, ndim, sizes, 0);
        OK(ep_gated_backward(fast, act, dy, g, u, &dg, &du));
        OK(ep_gated_backward(plain, act, dy, g, u, &dg2, &du2));
        close_by(du, du2, 4, 1e-6, what);
        close_by(dg, dg2, 4, dtype == EP_DTYPE_F32 ? 5e-5 : 2e-3, what);
        ep_tensor_destroy(g);
        ep_tensor_destroy(u);
        ep_tensor_destroy(dy);
    }
}

/* The reference itself against the C library, where nothing is shared but the inputs. */
static double libm(ep_op op, double a, double b) {
    switch (op) {
    case EP_OP_ADD: return a + b;
    case EP_OP_SUB: return a - b;
    case EP_OP_MUL: return a * b;
    case EP_OP_DIV: return a / b;
    case EP_OP_NEG: return -a;
    case EP_OP_ABS: return fabs(a);
    case EP_OP_EXP: return exp(a);
    case EP_OP_LOG: return log(a);
    case EP_OP_SQRT: return sqrt(a);
    case EP_OP_RSQRT: return 1 / sqrt(a);
    case EP_OP_TANH: return tanh(a);
    case EP_OP_ERF: return erf(a);
    case EP_OP_SIGMOID: return 1 / (1 + exp(-a));
    case EP_OP_RELU: return isnan(a) ? a : fmax(a, 0);
    case EP_OP_SILU: return a / (1 + exp(-a));
    case EP_OP_GELU_TANH: return 0.5 * a * (1 + tanh(sqrt(2 / acos(-1)) * (a + 0.044715 * a * a * a)));
    case EP_OP_GELU_ERF: return 0.5 * a * (1 + erf(a / sqrt(2)));
    case EP_OP_MINIMUM: return isnan(a) || isnan(b) ? NAN : fmin(a, b);
    case EP_OP_MAXIMUM: return isnan(a) || isnan(b) ? NAN : fmax(a, b);
    default: return NAN;
    }
}

static void the_reference_is_right(void **state) {
    (void)state;
    double va[256], vb[256], got[256];
    ep_tensor *a, *b, *y;
    OK(ep_tensor_create(EP_DTYPE_F32, 1, (int64_t[]){256}, NULL, &a));
    OK(ep_tensor_create(EP_DTYPE_F32, 1, (int64_t[]){256}, NULL, &b));
    seed = 7;
    for (int i = 0; i < 256; i++) {
        va[i] = i < 12 ? odd[i] : (double)roll(1000) / 100 - 5;
        vb[i] = i % 7 == 0 ? odd[roll(13)] : (double)roll(1000) / 100 - 5;
    }
    OK(ep_tensor_write_f64(a, va, 256, NULL));
    OK(ep_tensor_write_f64(b, vb, 256, NULL));
    OK(ep_tensor_read_f64(a, va, 256, NULL));
    OK(ep_tensor_read_f64(b, vb, 256, NULL));
    for (int i = 0; i < EP_OP_WHERE; i++) {
        ep_op op = (ep_op)i;
        if (ep_op_get(op)->max_arity == 2)
            OK(ep_binary(plain, op, a, b, &y));
        else
            OK(ep_unary(plain, op, a, &y));
        OK(ep_tensor_read_f64(y, got, 256, NULL));
        for (int j = 0; j < 256; j++) {
            double want = libm(op, va[j], vb[j]);
            if (isfinite(want)) want = (double)(float)want;
            /* The plain formula of gelu loses small results; absolute there. */
            if (ulps(EP_DTYPE_F32, got[j], want) > 1 && !(fabs(got[j] - want) < 1e-12))
                fail_msg("%s(%.9g, %.9g) is %.9g, not %.9g", ep_op_name(op), va[j], vb[j], got[j], want);
        }
        ep_tensor_destroy(y);
    }
    ep_tensor_destroy(a);
    ep_tensor_destroy(b);
}

/* A second forward takes nothing from the system: its tensors come from the context's cache. */
static void the_second_forward_allocates_nothing(void **state) {
    (void)state;
    ep_context *ctx;
    OK(ep_context_create(NULL, NULL, &ctx));
    ep_tensor *x, *g, *u, *d, *y;
    OK(ep_tensor_create(EP_DTYPE_BF16, 2, (int64_t[]){33, 48}, NULL, &x));
    OK(ep_tensor_create(EP_DTYPE_BF16, 2, (int64_t[]){96, 48}, NULL, &g));
    OK(ep_tensor_create(EP_DTYPE_BF16, 2, (int64_t[]){96, 48}, NULL, &u));
    OK(ep_tensor_create(EP_DTYPE_BF16, 2, (int64_t[]){48, 96}, NULL, &d));
    ep_tensor *all[] = {x, g, u, d};
    for (int i = 0; i < 4; i++) OK(ep_tensor_fill_random(all[i], (uint64_t)i, 0.2, NULL));
    ep_block *b;
    OK(ep_block_create(ctx, EP_BLOCK_GATED, EP_ACT_SILU, &(ep_block_weights){.gate = g, .up = u, .down = d}, &b));
    ep_memory_stats first, later;
    for (int mode = 0; mode < EP_MODE_COUNT; mode++) {
        if (ep_block_supports(b, (ep_mode)mode) != EP_OK) continue;
        OK(ep_block_prepare(b, (ep_mode)mode, x));
        OK(ep_block_run(b, (ep_mode)mode, x, NULL, &y));
        ep_tensor_destroy(y);
        ep_context_memory(ctx, &first);
        for (int i = 0; i < 5; i++) {
            OK(ep_block_run(b, (ep_mode)mode, x, NULL, &y));
            ep_tensor_destroy(y);
        }
        ep_context_memory(ctx, &later);
        assert_int_equal(later.system_allocations, first.system_allocations);
        assert_int_equal(later.bytes_in_use, first.bytes_in_use);
    }
    ep_block_destroy(b);
    for (int i = 0; i < 4; i++) ep_tensor_destroy(all[i]);
    ep_context_destroy(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pointwise),
        cmocka_unit_test(products),
        cmocka_unit_test(reductions_and_norms),
        cmocka_unit_test(moves_and_gates),
        cmocka_unit_test(the_reference_is_right),
        cmocka_unit_test(the_second_forward_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
