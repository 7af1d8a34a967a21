// ctest: slow
/* Random pointwise groups and single ops as the epilogue of one to four packed products, or of columns of one product
 * (halves, interleaved): bit for bit what eager makes. Operands of the
 * products are small whole numbers, whose sums are exact in any order, so that nothing but the pointwise part can differ.
 * EP_GRAPHS, EP_SEED and EP_THREADS change how many, which, and on how many threads. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <epilogue/epilogue.h>

#include "model/tensor/tensor.h"
#include "run/engine/compile.h"
#include "tensors.h"

enum { PRODUCTS = 5, STEPS = 9, POOL = PRODUCTS + STEPS + 6 };

typedef struct rng {
    uint64_t s;
} rng;
static int below(rng *r, int n) {
    r->s ^= r->s << 13;
    r->s ^= r->s >> 7;
    r->s ^= r->s << 17;
    return (int)((r->s * UINT64_C(0x2545f4914f6cdd1d) >> 33) % (uint64_t)n);
}

typedef struct graph {
    ep_tensor *weight[PRODUCTS], *bias[PRODUCTS], *row, *scalar;
    int products, steps, outs;
    enum { APART, RUNS, INTERLEAVED } layout; /* products of their own weights, or columns of one */
    struct {
        ep_op op;
        int a, b;
    } step[STEPS];
} graph;

/* in: x, a full operand (perhaps with gaps between rows), a column */
static ep_status run(ep_context *c, void *user, const ep_tensor *const *in, int n, ep_tensor **out, int outs) {
    const graph *g = user;
    ep_tensor *made[POOL] = {NULL};
    const ep_tensor *pool[POOL];
    int count = 0;
    (void)n;
    ep_status s = EP_OK;
    if (g->layout != APART) s = ep_linear(c, in[0], g->weight[0], g->bias[0], &made[POOL - 1]);
    for (int i = 0; s == EP_OK && i < g->products; i++) {
        int64_t wide = ep_tensor_size(g->weight[0], 0), each = wide / g->products;
        int last = ep_tensor_ndim(in[0]) - 1;
        s = g->layout == APART  ? ep_linear(c, in[0], g->weight[i], g->bias[i], &made[count])
            : g->layout == RUNS ? ep_slice(c, made[POOL - 1], last, i * each, (i + 1) * each, 1, &made[count])
                                : ep_slice(c, made[POOL - 1], last, i, wide, g->products, &made[count]);
        pool[count] = made[count];
        count++;
    }
    pool[count++] = in[1];
    pool[count++] = in[2];
    pool[count++] = g->row;
    pool[count++] = g->scalar;
    for (int i = 0; s == EP_OK && i < g->steps; i++) {
        const ep_tensor *a = pool[g->step[i].a], *b = pool[g->step[i].b];
        s = ep_op_get(g->step[i].op)->max_arity == 1 ? ep_unary(c, g->step[i].op, a, &made[count])
                                                     : ep_binary(c, g->step[i].op, a, b, &made[count]);
        pool[count] = made[count];
        count++;
    }
    for (int i = 0; s == EP_OK && i < outs; i++) {
        out[i] = made[count - 1 - i];
        made[count - 1 - i] = NULL;
    }
    for (int i = 0; i < POOL; i++) ep_tensor_destroy(made[i]);
    return s;
}

static ep_tensor *whole(rng *r, ep_dtype dtype, int ndim, const int64_t *sizes) {
    ep_tensor *t;
    OK(ep_tensor_create(dtype, ndim, sizes, NULL, &t));
    size_t n = (size_t)ep_tensor_numel(t);
    double *v = malloc(sizeof *v * (n + 1));
    for (size_t i = 0; i < n; i++) v[i] = below(r, 5) - 2;
    OK(ep_tensor_write_f64(t, v, n, NULL));
    free(v);
    return t;
}

/* Every step reads the one before, so that all of it is one group; what else it reads is anything. */
static void make_graph(rng *r, graph *g, ep_dtype dtype, int64_t k, int64_t n) {
    static const ep_op ops[] = {EP_OP_GELU_TANH, EP_OP_GELU_ERF, EP_OP_SILU, EP_OP_RELU,    EP_OP_EXP,
                                EP_OP_TANH,      EP_OP_NEG,      EP_OP_ABS,  EP_OP_SIGMOID, EP_OP_ADD,
                                EP_OP_SUB,       EP_OP_MUL,      EP_OP_DIV,  EP_OP_MAXIMUM, EP_OP_MINIMUM};
    memset(g, 0, sizeof *g);
    g->products = 1 + below(r, PRODUCTS);
    g->layout = below(r, 2) ? APART : below(r, 2) ? RUNS : INTERLEAVED;
    for (int i = 0; i < (g->layout == APART ? g->products : 1); i++) {
        int64_t rows = g->layout == APART ? n : n * g->products;
        g->weight[i] = whole(r, dtype, 2, (int64_t[]){rows, k});
        if (below(r, 2)) g->bias[i] = whole(r, dtype, 1, (int64_t[]){rows});
    }
    g->row = whole(r, dtype, 1, (int64_t[]){n});
    g->scalar = whole(r, dtype, 0, NULL);
    g->steps = below(r, 4) ? 2 + below(r, STEPS - 1) : 1;
    g->outs = 1 + below(r, g->steps < 2 ? g->steps : 2);
    int first = g->products + 4;
    for (int i = 0; i < g->steps; i++) {
        g->step[i].op = ops[below(r, (int)(sizeof ops / sizeof *ops))];
        if (i < g->products) g->step[i].op = i ? EP_OP_ADD : EP_OP_SILU; /* every product is read */
        g->step[i].a = i ? first + i - 1 : 0;
        g->step[i].b = i && i < g->products ? i : below(r, first + i);
        if (g->steps == 1) g->step[i].op = ops[below(r, (int)(sizeof ops / sizeof *ops))];
    }
}

static void drop_graph(graph *g) {
    for (int i = 0; i < PRODUCTS; i++) {
        ep_tensor_destroy(g->weight[i]);
        ep_tensor_destroy(g->bias[i]);
    }
    ep_tensor_destroy(g->row);
    ep_tensor_destroy(g->scalar);
}

static void make_inputs(rng *r, ep_dtype dtype, int64_t m, int64_t k, int64_t n, ep_tensor *in[4]) {
    bool deep = m % 2 == 0 && below(r, 2);
    int nd = deep ? 3 : 2;
    int64_t x[3] = {2, m / 2, k}, f[3] = {2, m / 2, n}, c[3] = {2, m / 2, 1};
    int64_t *at = deep ? NULL : x;
    if (at) {
        x[0] = f[0] = c[0] = m;
        x[1] = k;
        f[1] = n;
        c[1] = 1;
    }
    in[0] = whole(r, dtype, nd, x);
    in[2] = whole(r, dtype, nd, c);
    in[3] = NULL;
    if (below(r, 2)) {
        in[1] = whole(r, dtype, nd, f);
        return;
    }
    f[nd - 1] += 3;
    in[3] = whole(r, dtype, nd, f);
    OK(ep_tensor_slice(in[3], nd - 1, 1, n + 1, 1, NULL, &in[1]));
}

static void same_bits(const ep_tensor *a, const ep_tensor *b, uint64_t graph_number) {
    ep_difference d;
    OK(ep_tensor_compare(a, b, 1, NULL, &d));
    if (d.max_abs > 0) fail_msg("graph %llu: %g at %lld", (unsigned long long)graph_number, d.max_abs, (long long)d.at);
}

static bool one_graph(ep_context *ctx, rng *r, uint64_t number, bool interpret) {
    static const int64_t ms[] = {1, 2, 3, 7, 16, 33, 64, 65, 130}, ns[] = {2, 3, 8, 16, 31, 64, 65, 100, 160},
                         ks[] = {1, 2, 7, 16, 33, 64, 130};
    static const ep_dtype dtypes[] = {EP_DTYPE_F32, EP_DTYPE_BF16, EP_DTYPE_F16};
    ep_dtype dtype = dtypes[below(r, 3)];
    int64_t k = ks[below(r, 7)], n = ns[below(r, 9)];
    bool attached = false;
    graph g;
    make_graph(r, &g, dtype, k, n);
    ep_compiled *c;
    ep_compile_options o = {.wait = EP_WAIT_ALWAYS, .no_disk_cache = true, .weights_stay = true};
    OK(ep_compile_with(ctx, run, &g, 3, g.outs, &o, interpret, &c));
    c->no_choice = c->attach_always = true;
    for (int i = 0; i < 3; i++) {
        ep_tensor *in[4], *a[2], *b[2];
        make_inputs(r, dtype, ms[below(r, 9)], k, n, in);
        const ep_tensor *const *inputs = (const ep_tensor *const *)in;
        OK(run(ctx, &g, inputs, 3, a, g.outs));
        if (ep_compiled_call(c, inputs, b) != EP_OK) fail_msg("%s", ep_context_error(ctx)->message);
        attached |= c->last->plans[EP_RUN_ATTACHED] != NULL;
        for (int t = 0; t < g.outs; t++) {
            same_bits(b[t], a[t], number);
            ep_tensor_destroy(a[t]);
            ep_tensor_destroy(b[t]);
        }
        for (int t = 0; t < 4; t++) ep_tensor_destroy(in[t]);
    }
    ep_compiled_destroy(c);
    drop_graph(&g);
    return attached;
}

static uint64_t number(const char *name, uint64_t standard) {
    const char *s = getenv(name);
    return s && *s ? strtoull(s, NULL, 0) : standard;
}

static void many(bool interpret, uint64_t graphs) {
    uint64_t seed = number("EP_SEED", 20261130), attached = 0;
    print_message("seed %llu, %llu graphs\n", (unsigned long long)seed, (unsigned long long)graphs);
    ep_context *ctx;
    OK(ep_context_create(&(ep_context_options){.threads = (int)number("EP_THREADS", 2)}, NULL, &ctx));
    for (uint64_t i = 0; i < graphs; i++) {
        rng r = {seed * 0x9e3779b97f4a7c15u + i * 0xda942042e4dd58b5u + 1};
        for (int w = 0; w < 8; w++) below(&r, 2);
        attached += one_graph(ctx, &r, i, interpret);
    }
    print_message("%llu of them ran as epilogues\n", (unsigned long long)attached);
    assert_true(attached > graphs / 2); /* else nothing was tested */
    ep_context_destroy(ctx);
}

static void walked_nests_on_tiles_are_eager_bit_for_bit(void **state) {
    (void)state;
    many(true, number("EP_GRAPHS", 10000));
}

static void generated_code_on_tiles_is_eager_bit_for_bit(void **state) {
    (void)state;
    many(false, number("EP_GRAPHS", 10000) / 80 + 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(walked_nests_on_tiles_are_eager_bit_for_bit),
        cmocka_unit_test(generated_code_on_tiles_is_eager_bit_for_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
