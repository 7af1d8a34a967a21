/* Random blocks through the public API, in every mode, against f64 element by element: kinds, activations, dtypes, layouts
 * of weights, strides, biases, residuals, rounding, rows of NaN and of denormal numbers; tuned kernels give the same bits
 * from one thread to four. EP_BLOCKS and EP_SEED change how many and which. Runs once for each ISA through EPILOGUE_ISA. */
// ctest: isa
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <epilogue/epilogue.h>

#include "tensors.h"

static uint64_t state;
static int64_t below(int64_t n) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (int64_t)((state * 0x2545f4914f6cdd1du) >> 33) % n;
}

static int64_t number(const char *name, int64_t usual) {
    const char *text = getenv(name);
    return text ? strtoll(text, NULL, 0) : usual;
}

/* A tensor of one or two dims that lies somehow in a larger buffer, and its values. */
typedef struct matrix {
    ep_tensor *t;
    double *v;
    int64_t cols;
} matrix;

static void read_again(matrix *m) {
    OK(ep_tensor_read_f64(m->t, m->v, (size_t)ep_tensor_numel(m->t), NULL));
}

static matrix make(ep_dtype dtype, int ndim, int64_t rows, int64_t cols, double scale) {
    bool turned = ndim == 2 && below(5) == 0;
    int64_t r = turned ? cols : rows, c = turned ? rows : cols, offset = below(2) * below(5);
    int64_t step = below(3) ? 1 : 1 + below(3), more = below(2) * below(9);
    ep_tensor *whole, *some, *t;
    OK(ep_tensor_create(dtype, 2, (int64_t[]){r + 1, offset + c * step + more + 1}, NULL, &whole));
    OK(ep_tensor_fill_random(whole, (uint64_t)below(INT32_MAX), scale, NULL));
    OK(ep_tensor_slice(whole, 0, 0, r, 1, NULL, &some));
    OK(ep_tensor_slice(some, 1, offset, offset + c * step, step, NULL, &t));
    ep_tensor_destroy(whole);
    ep_tensor_destroy(some);
    if (turned || ndim == 1) {
        some = t;
        if (turned)
            OK(ep_tensor_transpose(some, 0, 1, NULL, &t));
        else
            OK(ep_tensor_reshape(some, 1, &cols, NULL, &t));
        ep_tensor_destroy(some);
    }
    matrix m = {t, malloc(sizeof(double) * (size_t)(rows * cols + 1)), cols};
    assert_non_null(m.v);
    read_again(&m);
    return m;
}

static void end(matrix *m) {
    ep_tensor_destroy(m->t);
    free(m->v);
}

typedef struct problem {
    ep_block_kind kind;
    ep_act act;
    ep_dtype dtype;
    ep_rounding rounding;
    int layout; /* of gate and up: 0 two weights, 1 halves of one, 2 alternating rows of one */
    bool bias, residual, is_gated;
    int64_t rows, dim, hidden, out;
    int special; /* of one row of x: 0 NaN, 1 denormal, else nothing */
    matrix x, gate, up, both, down, gate_bias, up_bias, down_bias, added;
    const double *gate_rows, *up_rows; /* [hidden, dim] */
    double *split;
    ep_block_weights weights;
} problem;

static void set_sizes(problem *p) {
    static const int64_t sizes[] = {1, 2, 3, 7, 8, 15, 16, 17, 63, 64, 65, 127, 352, 1000, 3001, 3420};
    do {
        p->rows = sizes[below(16)];
        p->dim = sizes[below(16)];
        p->hidden = sizes[below(16)];
        p->out = sizes[below(16)];
        if (p->kind == EP_BLOCK_LINEAR) p->hidden = p->out;
    } while (p->hidden * (p->dim * 2 + p->out) > 1 << 20 || p->rows * p->hidden * (p->dim * 2 + p->out) > 1 << 21);
    if (below(30) == 0) p->rows = 0;
}

static void set_special(problem *p) {
    static const double tiny[] = {1e-40, 1e-39, 3e-6};
    p->special = p->rows ? (int)below(6) : 9;
    if (p->special > 1) return;
    int64_t row = below(p->rows);
    ep_tensor *t;
    OK(ep_tensor_slice(p->x.t, 0, row, row + 1, 1, NULL, &t));
    OK(ep_tensor_fill(t, p->special ? tiny[p->dtype] : NAN, NULL));
    ep_tensor_destroy(t);
    read_again(&p->x);
}

static void make_gate_and_up(problem *p, double scale) {
    int64_t h = p->hidden, d = p->dim;
    if (!p->layout) {
        p->up = make(p->dtype, 2, h, d, scale);
        p->weights.up = p->up.t;
        p->up_rows = p->up.v;
        if (!p->is_gated) return;
        p->gate = make(p->dtype, 2, h, d, scale);
        p->weights.gate = p->gate.t;
        p->gate_rows = p->gate.v;
        return;
    }
    p->both = make(p->dtype, 2, 2 * h, d, scale);
    p->weights.gate_up = p->both.t;
    p->weights.interleaved = p->layout == 2;
    p->split = malloc(sizeof(double) * (size_t)(2 * h * d));
    assert_non_null(p->split);
    for (int64_t i = 0; i < 2 * h; i++)
        memcpy(p->split + (p->layout == 1 ? i : i % 2 * h + i / 2) * d, p->both.v + i * d, sizeof(double) * (size_t)d);
    p->gate_rows = p->split;
    p->up_rows = p->split + h * d;
}

static void make_problem(problem *p) {
    *p = (problem){.kind = below(4) ? EP_BLOCK_GATED : below(2) ? EP_BLOCK_MLP : EP_BLOCK_LINEAR};
    p->is_gated = p->kind == EP_BLOCK_GATED;
    p->act = p->kind == EP_BLOCK_LINEAR ? EP_ACT_NONE : (ep_act)below(EP_ACT_COUNT);
    p->dtype = (ep_dtype)below(3);
    p->rounding = (ep_rounding)below(2);
    p->layout = p->is_gated ? (int)below(3) : 0;
    p->bias = below(2);
    p->residual = below(2);
    set_sizes(p);
    p->x = make(p->dtype, 2, p->rows, p->dim, 1);
    set_special(p);
    make_gate_and_up(p, 1 / sqrt((double)p->dim));
    bool two = p->kind != EP_BLOCK_LINEAR;
    if (two) p->down = make(p->dtype, 2, p->out, p->hidden, 1 / sqrt((double)p->hidden));
    if (p->bias) p->up_bias = make(p->dtype, 1, 1, p->hidden, 1);
    if (p->bias && p->is_gated) p->gate_bias = make(p->dtype, 1, 1, p->hidden, 1);
    if (p->bias && two) p->down_bias = make(p->dtype, 1, 1, p->out, 1);
    if (p->residual) p->added = make(p->dtype, 2, p->rows, p->out, 1);
    p->weights.down = p->down.t;
    p->weights.up_bias = p->up_bias.t;
    p->weights.gate_bias = p->gate_bias.t;
    p->weights.down_bias = p->down_bias.t;
}

static void end_problem(problem *p) {
    matrix *all[] = {&p->x, &p->gate, &p->up, &p->both, &p->down, &p->gate_bias, &p->up_bias, &p->down_bias, &p->added};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) end(all[i]);
    free(p->split);
}

/* ---- f64, with how far the library's answer may be from it ---- */

typedef struct number64 {
    double v, error;
} number64;

typedef struct limits {
    double half;  /* half a unit in the last place of the dtype, of the value */
    double step;  /* the same where the way rounds between the products, else 0 */
    double least; /* what denormal numbers may lose */
} limits;

static double act_of(ep_act act, double x) {
    switch (act) {
    case EP_ACT_GELU_TANH: return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    case EP_ACT_GELU_ERF: return 0.5 * x * (1 + erf(x * 0.7071067811865476));
    case EP_ACT_SILU: return x / (1 + exp(-x));
    case EP_ACT_RELU: return x > 0 || isnan(x) ? x : 0;
    default: return x;
    }
}

static number64 dot(const double *x, const double *w, int64_t k, const matrix *bias, int64_t j, const limits *l) {
    double s[4] = {0}, m[4] = {0};
    for (int64_t i = 0; i < k; i++) {
        s[i & 3] += x[i] * w[i];
        m[i & 3] += fabs(x[i] * w[i]);
    }
    double b = bias->v ? bias->v[j] : 0;
    return (number64){s[0] + s[1] + s[2] + s[3] + b, 2e-6 * (m[0] + m[1] + m[2] + m[3] + fabs(b)) + l->least};
}

static number64 rounded(number64 a, double step) {
    a.error += step * (fabs(a.v) + a.error);
    return a;
}

/* What goes into down, for element j of the hidden row. No activation's slope is above 1.13. */
static number64 hidden_of(const problem *p, const double *x, int64_t j, const limits *l) {
    number64 u = dot(x, p->up_rows + j * p->dim, p->dim, &p->up_bias, j, l);
    if (p->kind == EP_BLOCK_LINEAR) return u;
    u = rounded(u, l->step);
    number64 g = u;
    if (p->is_gated) g = rounded(dot(x, p->gate_rows + j * p->dim, p->dim, &p->gate_bias, j, l), l->step);
    number64 a = {act_of(p->act, g.v), 1.13 * g.error + (p->act ? 1e-6 * fabs(g.v) : 0) + l->least};
    if (!p->is_gated) return rounded(a, l->half);
    a = rounded(a, l->step);
    number64 h = {a.v * u.v, a.error * (fabs(u.v) + u.error) + u.error * fabs(a.v) + l->least};
    return rounded(h, l->half);
}

static number64 result_of(const problem *p, const number64 *h, int64_t i, int64_t j, const limits *l) {
    number64 y = {0, 0};
    if (p->kind == EP_BLOCK_LINEAR) {
        y = h[j];
    } else {
        double s = p->bias ? p->down_bias.v[j] : 0, m = fabs(s), e = l->least;
        for (int64_t k = 0; k < p->hidden; k++) {
            double w = p->down.v[j * p->hidden + k];
            s += h[k].v * w;
            m += fabs(h[k].v * w);
            e += h[k].error * fabs(w);
        }
        y = (number64){s, e + 2e-6 * m};
    }
    if (p->residual) {
        y = rounded(y, l->step);
        double r = p->added.v[i * p->out + j];
        y = (number64){y.v + r, y.error + 1.2e-7 * (fabs(y.v) + fabs(r))};
    }
    return rounded(y, l->half + 1.2e-7);
}

/* Products are stored in eager and compiled mode, whatever the rounding; only tuned mode can leave that out. */
static void check(const problem *p, ep_mode mode, const ep_tensor *y, const char *how) {
    static const double half[] = {0x1p-24, 0x1p-8, 0x1p-11}, least[] = {1e-37, 1e-34, 0x1p-23};
    limits l = {.half = half[p->dtype], .least = least[p->dtype]};
    if (p->dtype && (p->rounding == EP_ROUNDING_EAGER || mode != EP_MODE_TUNED)) l.step = l.half;
    size_t count = (size_t)(p->rows * p->out);
    double *got = malloc(sizeof *got * (count + 1));
    number64 *h = malloc(sizeof *h * (size_t)p->hidden);
    assert_true(got && h);
    OK(ep_tensor_read_f64(y, got, count, NULL));
    for (int64_t i = 0; i < p->rows; i++) {
        for (int64_t j = 0; j < p->hidden; j++) h[j] = hidden_of(p, p->x.v + i * p->dim, j, &l);
        for (int64_t j = 0; j < p->out; j++) {
            number64 want = result_of(p, h, i, j, &l);
            double v = got[i * p->out + j];
            if (isnan(want.v) ? !isnan(v) : !(fabs(v - want.v) <= want.error))
                fail_msg(
                    "%s %s: %s kind %d act %s layout %d bias %d residual %d rounding %d special %d: [%lld, %lld] -> "
                    "%lld -> %lld at %lld, %lld: %.9g, not %.9g +- %.3g",
                    how, (const char *[]){"eager", "compiled", "tuned"}[mode], ep_dtype_name(p->dtype), p->kind,
                    ep_act_name(p->act), p->layout, p->bias, p->residual, p->rounding, p->special, (long long)p->rows,
                    (long long)p->dim, (long long)p->hidden, (long long)p->out, (long long)i, (long long)j, v, want.v,
                    want.error);
        }
    }
    free(h);
    free(got);
}

/* ---- runs ---- */

static ep_block *open_block(const problem *p, int threads, ep_context **ctx) {
    ep_context_options o = {.threads = threads, .rounding = p->rounding};
    ep_block *b = NULL;
    OK(ep_context_create(&o, NULL, ctx));
    if (ep_block_create(*ctx, p->kind, p->act, &p->weights, &b) != EP_OK)
        fail_msg("%s", ep_context_error(*ctx)->message);
    return b;
}

static ep_tensor *run(const problem *p, ep_context *ctx, ep_block *b, ep_mode mode) {
    ep_tensor *y = NULL;
    if (ep_block_run(b, mode, p->x.t, p->added.t, &y) != EP_OK) fail_msg("%s", ep_context_error(ctx)->message);
    assert_int_equal(ep_tensor_size(y, 0), p->rows);
    assert_int_equal(ep_tensor_size(y, 1), p->out);
    return y;
}

/* One thread to four: eager once, compiled a few calls (answered by eager first, by its code later), tuned always. */
static void run_problem(const problem *p, const char *folder, const char *how, bool compile) {
    ep_tensor *first = NULL;
    for (int threads = 1; threads <= 4; threads++) {
        ep_context *ctx;
        ep_block *b = open_block(p, threads, &ctx);
        ep_compile_options o = {.wait = (ep_wait)below(2), .specialize = (ep_specialize)below(2), .cache_dir = folder};
        OK(ep_block_compile_with(b, &o));
        bool compiles = compile && threads == 2 && ep_block_supports(b, EP_MODE_COMPILED) == EP_OK;
        for (int call = 0; call < (threads == 1) + 4 * compiles; call++) {
            ep_mode mode = threads == 1 ? EP_MODE_EAGER : EP_MODE_COMPILED;
            ep_tensor *y = run(p, ctx, b, mode);
            check(p, mode, y, how);
            ep_tensor_destroy(y);
        }
        ep_tensor *y = run(p, ctx, b, EP_MODE_TUNED);
        if (!first)
            check(p, EP_MODE_TUNED, y, how);
        else if (p->rows && memcmp(ep_tensor_data(first), ep_tensor_data(y),
                                   (size_t)(p->rows * p->out) * ep_dtype_size(p->dtype)) != 0)
            fail_msg("%s: other bits with %d threads", how, threads);
        if (!first)
            first = y;
        else
            ep_tensor_destroy(y);
        ep_block_destroy(b);
        ep_context_destroy(ctx);
    }
    ep_tensor_destroy(first);
}

static void random_blocks(void **unused) {
    (void)unused;
    int64_t blocks = number("EP_BLOCKS", 100), seed = number("EP_SEED", 20261130);
    char folder[] = "/tmp/ep_blocks_XXXXXX", how[64], command[64];
    assert_non_null(mkdtemp(folder));
    setenv("EPILOGUE_TUNED", "kernels", 1); /* whose bits do not hang on a measurement */
    for (int64_t n = 0; n < blocks; n++) {
        state = ((uint64_t)(seed + n) * 0x9e3779b97f4a7c15u) | 1;
        for (int i = 0; i < 4; i++) below(2);
        problem p;
        snprintf(how, sizeof how, "EP_SEED=%lld EP_BLOCKS=1,", (long long)(seed + n));
        make_problem(&p);
        run_problem(&p, folder, how, n % 8 == 0);
        end_problem(&p);
    }
    snprintf(command, sizeof command, "rm -rf %s", folder);
    assert_int_equal(system(command), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_blocks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
