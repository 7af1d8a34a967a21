// ctest: slow
// ctest: isa
/* Generated code where other tests are thin: up to 120 pointwise ops over 24 inputs, values of all kinds (NaN, infinities,
 * denormals, the ends of a dtype), one tensor given as several inputs, dtypes mixed by casts, results that are read many
 * times or returned, rows 2^31 elements apart. Everything is bit for bit what eager gives. EP_CHAINS, EP_SEED. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <cmocka.h>

#include "programs.h"

enum { GIVEN = 24, STEPS = 120, OUTS = 4 };
#define OK(call) assert_int_equal(call, EP_OK)

typedef struct step {
    ep_op op; /* EP_OP_COUNT: a cast */
    ep_dtype dtype;
    int a, b, c;
} step;

typedef struct chain {
    int steps, outs, out[OUTS];
    step step[STEPS];
} chain;

static ep_status run_chain(ep_context *ctx, void *user, const ep_tensor *const *in, int count, ep_tensor **out,
                           int outs) {
    const chain *p = user;
    const ep_tensor *v[GIVEN + STEPS] = {NULL};
    ep_tensor *made[STEPS] = {NULL};
    ep_status e = EP_OK;
    for (int i = 0; i < count; i++) v[i] = in[i];
    for (int i = 0; e == EP_OK && i < p->steps; i++) {
        const step *s = &p->step[i];
        if (s->op == EP_OP_COUNT)
            e = ep_cast(ctx, v[s->a], s->dtype, &made[i]);
        else if (s->op == EP_OP_WHERE)
            e = ep_where(ctx, v[s->c], v[s->a], v[s->b], &made[i]);
        else
            e = s->b < 0 ? ep_unary(ctx, s->op, v[s->a], &made[i]) : ep_binary(ctx, s->op, v[s->a], v[s->b], &made[i]);
        v[GIVEN + i] = made[i];
    }
    for (int i = 0; e == EP_OK && i < outs; i++) {
        out[i] = made[p->out[i]];
        made[p->out[i]] = NULL;
    }
    for (int i = 0; i < STEPS; i++) ep_tensor_destroy(made[i]);
    return e;
}

/* Every kind of f32, more of the odd ones. */
static double odd_value(rng *r) {
    static const double odd[] = {0.0,   -0.0,    INFINITY, -INFINITY, NAN,     1e-40,   -1e-42, 1.4e-45, 3.4e38,
                                 -3e38, 65504.0, 65520.0,  6e-8,      5.9e-39, 88.7228, -88.73, 1.0,     -2.7};
    if (below(r, 5) == 0) return odd[below(r, (int)(sizeof odd / sizeof *odd))];
    double x = ((double)next(r) / 4294967296.0 - 0.5) * 8;
    return below(r, 8) ? x : ldexp(x, below(r, 200) - 100);
}

static ep_tensor *odd_tensor(rng *r, ep_dtype dtype, int ndim, const int64_t *sizes) {
    int64_t few[3];
    for (int i = 0; i < ndim; i++) few[i] = below(r, 5) ? sizes[i] : 1;
    ep_tensor *t = random_tensor(r, dtype, below(r, 6) ? ndim : 0, few);
    assert_non_null(t);
    if (dtype == EP_DTYPE_BOOL) return t;
    size_t n = (size_t)t->numel;
    double *x = malloc(sizeof *x * (n + 1));
    assert_non_null(x);
    for (size_t i = 0; i < n; i++) x[i] = odd_value(r);
    (void)ep_tensor_write_f64(t, x, n, NULL); /* an expanded one keeps what it has */
    free(x);
    return t;
}

/* dtype by value; ops read values of one dtype, a cast makes another. Conditions are the last inputs. */
static void grow(rng *r, chain *p, ep_dtype *dtype) {
    p->steps = 20 + below(r, STEPS - 20);
    for (int i = 0; i < p->steps; i++) {
        step *s = &p->step[i];
        int values = GIVEN + i;
        *s = (step){.b = -1, .c = GIVEN - 1 - below(r, 2)};
        do s->a = below(r, 3) && i ? values - 1 - below(r, i < 4 ? i : 4) : below(r, values);
        while (dtype[s->a] == EP_DTYPE_BOOL);
        int b = -1;
        for (int tries = 0; b < 0 && tries < 20; tries++) {
            int k = below(r, values);
            if (dtype[k] == dtype[s->a]) b = k;
        }
        int what = below(r, 12);
        s->dtype = dtype[s->a];
        if (what == 0)
            s->op = EP_OP_COUNT, s->dtype = (ep_dtype)below(r, 3);
        else if (what < 7 && b >= 0)
            s->op = binary_ops[below(r, (int)(sizeof binary_ops / sizeof *binary_ops))], s->b = b;
        else if (what < 8 && b >= 0)
            s->op = EP_OP_WHERE, s->b = b;
        else
            s->op = unary_ops[below(r, (int)(sizeof unary_ops / sizeof *unary_ops))];
        dtype[values] = s->dtype;
    }
    p->outs = 1 + below(r, OUTS);
    for (int i = 0; i < p->outs; i++) p->out[i] = p->steps - 1 - 4 * i - (i ? below(r, 4) : 0);
}

static void make_inputs(rng *r, const ep_dtype *dtype, ep_tensor **in) {
    static const int64_t lasts[] = {1, 3, 16, 31, 33, 64, 257};
    int ndim = 1 + below(r, 3);
    int64_t sizes[3];
    for (int i = 0; i < ndim; i++) sizes[i] = below(r, 40) ? 1 + below(r, 5) : 0;
    if (sizes[ndim - 1]) sizes[ndim - 1] = lasts[below(r, (int)(sizeof lasts / sizeof *lasts))];
    for (int i = 0; i < GIVEN; i++) in[i] = odd_tensor(r, dtype[i], ndim, sizes);
    for (int i = 0; i < GIVEN - 2; i++) { /* one tensor as several inputs */
        int k = below(r, GIVEN - 2);
        if (below(r, 4) || dtype[k] != dtype[i] || k == i) continue;
        ep_tensor_destroy(in[i]);
        OK(ep_tensor_alias(in[k], NULL, &in[i]));
    }
}

static void long_chains_are_eager_bit_for_bit(void **state) {
    (void)state;
    const char *text = getenv("EP_CHAINS"), *from = getenv("EP_SEED");
    int chains = text ? atoi(text) : 24;
    uint64_t seed = from ? strtoull(from, NULL, 0) : 20261201;
    ep_context *ctx;
    int64_t kernels = 0, calls = 0;
    OK(ep_context_create(&(ep_context_options){.threads = 2}, NULL, &ctx));
    for (int n = 0; n < chains; n++) {
        rng r = {seed * 0x9e3779b97f4a7c15u + (uint64_t)n * 0xda942042e4dd58b5u + 1};
        for (int i = 0; i < 8; i++) next(&r);
        ep_dtype dtype[GIVEN + STEPS], own = (ep_dtype)below(&r, 3);
        for (int i = 0; i < GIVEN; i++) dtype[i] = below(&r, 4) ? own : (ep_dtype)below(&r, 3);
        dtype[GIVEN - 1] = dtype[GIVEN - 2] = EP_DTYPE_BOOL;
        chain p;
        grow(&r, &p, dtype);
        ep_compiled *c;
        OK(ep_compile(ctx, run_chain, &p, GIVEN, p.outs,
                      &(ep_compile_options){.wait = EP_WAIT_ALWAYS, .no_disk_cache = true}, &c));
        ep_compile_stats stats;
        for (int call = 0; call < 3; call++, calls++) {
            ep_tensor *in[GIVEN], *x[OUTS], *y[OUTS];
            make_inputs(&r, dtype, in);
            OK(run_chain(ctx, &p, (const ep_tensor *const *)in, GIVEN, x, p.outs));
            for (int again = 0; again < 2; again++) { /* the second may be timed against eager */
                OK(ep_compiled_call(c, (const ep_tensor *const *)in, y));
                for (int i = 0; i < p.outs; i++) {
                    char why[200];
                    if (!same_bits(y[i], x[i], why, sizeof why))
                        fail_msg("chain %d, call %d, output %d: %s (EP_SEED=%llu)", n, call, i, why,
                                 (unsigned long long)seed);
                    ep_tensor_destroy(y[i]);
                }
            }
            for (int i = 0; i < p.outs; i++) ep_tensor_destroy(x[i]);
            for (int i = 0; i < GIVEN; i++) ep_tensor_destroy(in[i]);
        }
        ep_compiled_stats(c, &stats);
        if (stats.build_failures) fail_msg("%s", ep_compiled_report(c));
        kernels += stats.kernels_generated;
        ep_compiled_destroy(c);
    }
    print_message("%d chains, %lld calls, %lld kernels\n", chains, (long long)calls, (long long)kernels);
    assert_true(kernels >= chains);
    ep_context_destroy(ctx);
}

static ep_status far_apart(ep_context *ctx, void *user, const ep_tensor *const *in, int count, ep_tensor **out, int n) {
    ep_tensor *t;
    (void)user, (void)count, (void)n;
    ep_status e = ep_mul(ctx, in[0], in[1], &t);
    if (e != EP_OK) return e;
    e = ep_add(ctx, t, in[0], out);
    ep_tensor_destroy(t);
    return e;
}

/* Offsets past 2^31 elements and 2^33 bytes. */
static void rows_far_apart(void **state) {
    (void)state;
    const int64_t apart = (INT64_C(1) << 31) + 5, sizes[2] = {2, 67}, strides[2] = {apart, 1};
    size_t bytes = (size_t)(apart + 67) * sizeof(float);
    float *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) skip();
    ep_context *ctx;
    ep_compiled *c;
    ep_tensor *far, *near, *x, *y;
    OK(ep_context_create(NULL, NULL, &ctx));
    OK(ep_tensor_from_memory((ep_device){EP_DEVICE_CPU, 0}, EP_DTYPE_F32, 2, sizes, strides, map, bytes, NULL, NULL,
                             NULL, &far));
    OK(ep_tensor_fill_random(far, 3, 1, NULL));
    OK(ep_tensor_create(EP_DTYPE_F32, 2, sizes, NULL, &near));
    OK(ep_tensor_fill_random(near, 4, 1, NULL));
    OK(ep_compile(ctx, far_apart, NULL, 2, 1, &(ep_compile_options){.wait = EP_WAIT_ALWAYS, .no_disk_cache = true},
                  &c));
    const ep_tensor *in[2] = {far, near};
    char why[200] = "";
    for (int i = 0; i < 4; i++) {
        OK(far_apart(ctx, NULL, in, 2, &x, 1));
        OK(ep_compiled_call(c, in, &y));
        if (!same_bits(y, x, why, sizeof why)) fail_msg("%s", why);
        assert_true(map[apart + 66] != 0 && map[66] != 0);
        ep_tensor_destroy(x);
        ep_tensor_destroy(y);
    }
    ep_tensor_destroy(far);
    ep_tensor_destroy(near);
    ep_compiled_destroy(c);
    ep_context_destroy(ctx);
    munmap(map, bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(long_chains_are_eager_bit_for_bit),
                                       cmocka_unit_test(rows_far_apart)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
