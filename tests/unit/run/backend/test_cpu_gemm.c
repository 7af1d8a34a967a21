// ctest: isa
/* Matrix products of the CPU backend against the reference's, over dtypes, layouts, sizes and epilogues; what must not
 * be read is NaN. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "run/backend/backend.h"

static ep_backend cpu, ref;
static uint32_t lcg = 7;

static double random_value(void) {
    lcg = lcg * 1664525u + 1013904223u;
    return (double)(lcg >> 8) / 16777216.0 * 2 - 1;
}

static int64_t random_below(int64_t n) {
    lcg = lcg * 1664525u + 1013904223u;
    return (int64_t)(lcg >> 8) % n;
}

/* `count` elements that hold random values. */
static void *elements(ep_dtype dtype, int64_t count) {
    size_t size = ep_dtype_size(dtype);
    char *p = malloc((size_t)(count + 1) * size);
    assert_non_null(p);
    for (int64_t i = 0; i < count; i++) ep_element_store(dtype, p + i * (int64_t)size, random_value());
    return p;
}

/* An operand [batch, rows, cols] in one of the layouts: plain, transposed, padded rows, every second element, one row
 * for all, all batches the same. */
static void *operand(ep_dtype dtype, int layout, int64_t batch, int64_t rows, int64_t cols, int64_t *bs, int64_t *rs,
                     int64_t *cs) {
    *rs = cols;
    *cs = 1;
    if (layout == 1) *rs = 1, *cs = rows;
    if (layout == 2) *rs = cols + 5;
    if (layout == 3) *cs = 2, *rs = 2 * cols;
    if (layout == 4) *rs = 0;
    *bs = layout == 5 ? 0 : layout == 1 ? rows * cols : rows * *rs + 8;
    return elements(dtype, batch * *bs + rows * *rs + cols * *cs + 8);
}

static double least_step(ep_dtype dtype) {
    return dtype == EP_DTYPE_F32 ? 0x1p-23 : dtype == EP_DTYPE_BF16 ? 0x1p-7 : 0x1p-10;
}

typedef struct made {
    ep_gemm g;
    void *a, *b, *bias, *c, *residual, *out[2];
    int64_t out_count;
} made;

static void make(made *t, ep_dtype dtype, ep_dtype out_dtype, int64_t batch, int64_t m, int64_t n, int64_t k) {
    ep_gemm *g = &t->g;
    memset(t, 0, sizeof *t);
    *g = (ep_gemm){.batch = batch, .m = m, .n = n, .k = k, .dtype = dtype, .out_dtype = out_dtype, .alpha = 1};
    t->a = operand(dtype, (int)random_below(batch > 1 ? 6 : 5), batch, m, k, &g->a_batch, &g->a_row, &g->a_col);
    t->b = operand(dtype, (int)random_below(batch > 1 ? 6 : 5), batch, k, n, &g->b_batch, &g->b_row, &g->b_col);
    g->a = t->a;
    g->b = t->b;
    g->out_row = n + random_below(2) * 3;
    g->out_batch = m * g->out_row;
    t->out_count = batch * m * g->out_row;
    for (int i = 0; i < 2; i++) t->out[i] = elements(out_dtype, t->out_count);
    memcpy(t->out[1], t->out[0], (size_t)t->out_count * ep_dtype_size(out_dtype));
    if (random_below(2)) {
        g->bias_stride = 1 + random_below(2);
        g->bias = t->bias = elements(dtype, n * 2);
    }
}

static void add_epilogue(made *t) {
    ep_gemm *g = &t->g;
    g->act = (ep_act)random_below(EP_ACT_COUNT);
    g->rounding = (ep_rounding)random_below(2);
    if (random_below(2)) g->alpha = 0.5;
    if (random_below(2)) {
        g->c = t->c = elements(g->dtype, g->batch * g->m * g->n);
        g->c_batch = g->m * g->n;
        g->c_row = random_below(2) * g->n;
        g->c_col = 1;
        g->beta = random_below(2) ? -0.75 : 0;
        if (g->beta == 0) /* may not be read */
            for (int64_t i = 0; i < g->batch * g->m * g->n; i++)
                ep_element_store(g->dtype, (char *)t->c + i * (int64_t)ep_dtype_size(g->dtype), NAN);
    }
    if (random_below(2)) {
        g->residual = t->residual = elements(g->out_dtype, g->batch * g->m * g->n);
        g->residual_row = g->n;
    }
}

static void free_made(made *t) {
    void *p[] = {t->a, t->b, t->bias, t->c, t->residual, t->out[0], t->out[1]};
    for (size_t i = 0; i < sizeof p / sizeof *p; i++) free(p[i]);
}

static void compare(const made *t, const char *what) {
    const ep_gemm *g = &t->g;
    int64_t size = (int64_t)ep_dtype_size(g->out_dtype);
    /* A step of the result for each place where it is rounded, and f32 sums of k products. */
    double step = least_step(g->out_dtype) * (g->act || g->residual ? 2.5 : 1), sum = 3e-7 * (double)(g->k + 8);
    for (int64_t i = 0; i < t->out_count; i++) {
        double got = ep_element_load(g->out_dtype, (char *)t->out[0] + i * size);
        double want = ep_element_load(g->out_dtype, (char *)t->out[1] + i * size);
        if (isnan(want) && isnan(got)) continue;
        double scale = fabs(want) + (g->act || g->residual ? 2 : 0);
        if (!(fabs(got - want) <= step * scale + sum) && got != want)
            fail_msg(
                "%s: %s -> %s %lldx[%lld,%lld,%lld] a %lld/%lld b %lld/%lld bias %d act %d residual %d alpha %g beta %g"
                " rounding %d: [%lld] is %.9g, wanted %.9g",
                what, ep_dtype_name(g->dtype), ep_dtype_name(g->out_dtype), (long long)g->batch, (long long)g->m,
                (long long)g->n, (long long)g->k, (long long)g->a_row, (long long)g->a_col, (long long)g->b_row,
                (long long)g->b_col, g->bias != NULL, (int)g->act, g->residual != NULL, g->alpha, g->beta,
                (int)g->rounding, (long long)i, got, want);
    }
}

static void run_both(made *t, const char *what) {
    ep_error err;
    t->g.out = t->out[0];
    if (cpu.ops->gemm(&cpu, &t->g, &err) != EP_OK) fail_msg("%s: %s", what, err.message);
    t->g.out = t->out[1];
    assert_int_equal(ref.ops->gemm(&ref, &t->g, &err), EP_OK);
    compare(t, what);
}

static void plain(void **state) {
    (void)state;
    static const int64_t sizes[] = {1, 2, 3, 5, 8, 15, 16, 17, 32, 33, 64, 100};
    for (int i = 0; i < 600; i++) {
        made t;
        ep_dtype d = (ep_dtype)random_below(3), o = random_below(4) ? d : EP_DTYPE_F32;
        int64_t batch = random_below(3) ? 1 : 1 + random_below(3);
        make(&t, d, o, batch, sizes[random_below(12)], sizes[random_below(12)], sizes[random_below(12)]);
        run_both(&t, "plain");
        free_made(&t);
    }
}

static void epilogues(void **state) {
    (void)state;
    for (int i = 0; i < 600; i++) {
        made t;
        ep_dtype d = (ep_dtype)random_below(3), o = random_below(4) ? d : EP_DTYPE_F32;
        make(&t, d, o, 1 + random_below(2), 1 + random_below(40), 1 + random_below(600), 1 + random_below(40));
        add_epilogue(&t);
        run_both(&t, "epilogue");
        free_made(&t);
    }
}

static void large(void **state) {
    (void)state;
    for (int d = EP_DTYPE_F32; d <= EP_DTYPE_F16; d++) {
        made t;
        make(&t, (ep_dtype)d, (ep_dtype)d, 1, 257, 311, 1031);
        run_both(&t, "large");
        free_made(&t);
    }
}

/* No rows, no columns, no k. */
/* Sizes at which oneDNN 2.6's AMX kernel died of an illegal instruction: 63 along k. */
static void sixty_three(void **state) {
    (void)state;
    static const int64_t sizes[][3] = {{1, 70, 10}, {1, 65, 1}, {1, 41, 69}, {1, 4, 80}, {3, 34, 123}, {2, 129, 33}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        made t;
        make(&t, EP_DTYPE_BF16, EP_DTYPE_BF16, sizes[i][0], sizes[i][1], sizes[i][2], 63);
        run_both(&t, "63 along k");
        free_made(&t);
    }
}

/* Steps after the product, by the library or by our pass, against the same operations one by one, bit for bit. */
static void steps_are_passes(void **state) {
    (void)state;
    static const int64_t sizes[] = {0, 1, 2, 7, 16, 33, 64, 100, 257};
    static const ep_op ops[] = {EP_OP_ADD, EP_OP_SUB, EP_OP_MUL, EP_OP_DIV};
    for (int i = 0; i < 600; i++) {
        made t;
        int64_t m = sizes[1 + random_below(8)], n = sizes[1 + random_below(8)], k = sizes[random_below(9)];
        make(&t, EP_DTYPE_F32, EP_DTYPE_F32, 1, m, n, k);
        ep_gemm *g = &t.g;
        if (k) ((float *)t.a)[0] = i % 5 == 0 ? NAN : i % 5 == 1 ? INFINITY : 0.25f;
        g->out = t.out[1];
        assert_int_equal(cpu.ops->gemm(&cpu, g, NULL), EP_OK);
        g->out = t.out[0];
        g->then_count = 1 + (int)random_below(EP_GEMM_THEN);
        float *others[EP_GEMM_THEN];
        for (int s = 0; s < g->then_count; s++) {
            ep_gemm_then *h = &g->then[s];
            int64_t layout = random_below(6); /* as out, row, one value, column, padded rows, every second value */
            h->op = ops[random_below(4)];
            h->row = layout == 0 ? g->out_row : layout == 3 ? 1 : layout == 4 ? n + 9 : layout == 5 ? 2 * n : 0;
            h->col = layout == 2 || layout == 3 ? 0 : layout == 5 ? 2 : 1;
            h->other = others[s] = elements(EP_DTYPE_F32, m * (2 * n + 9 + g->out_row));
        }
        assert_int_equal(cpu.ops->gemm(&cpu, g, NULL), EP_OK);
        for (int64_t e = 0; e < m * n; e++) {
            int64_t row = e / n, col = e % n;
            float want = ((float *)t.out[1])[row * g->out_row + col], got = ((float *)t.out[0])[row * g->out_row + col];
            for (int s = 0; s < g->then_count; s++) {
                float o = others[s][row * g->then[s].row + col * g->then[s].col];
                want = g->then[s].op == EP_OP_ADD   ? want + o
                       : g->then[s].op == EP_OP_SUB ? want - o
                       : g->then[s].op == EP_OP_MUL ? want * o
                                                    : want / o;
            }
            if (memcmp(&want, &got, 4) && !(isnan(want) && isnan(got)))
                fail_msg("%d: [%lld,%lld,%lld], %d steps: [%lld,%lld] is %.9g, not %.9g", i, (long long)m, (long long)n,
                         (long long)k, g->then_count, (long long)row, (long long)col, (double)got, (double)want);
        }
        for (int s = 0; s < g->then_count; s++) free(others[s]);
        free_made(&t);
    }
}

static void empty(void **state) {
    (void)state;
    for (int d = EP_DTYPE_F32; d <= EP_DTYPE_F16; d++) {
        for (int zero = 0; zero < 4; zero++) {
            made t;
            make(&t, (ep_dtype)d, (ep_dtype)d, zero != 3, zero != 0 ? 3 : 0, zero != 1 ? 5 : 0, zero != 2 ? 4 : 0);
            if (zero == 2) add_epilogue(&t);
            run_both(&t, "empty");
            free_made(&t);
        }
    }
}

static void nan_stays(void **state) {
    (void)state;
    float a[4] = {NAN, 1, 2, 3}, b[4] = {0, 0, 1, 1}, out[4];
    ep_gemm g = {.batch = 1, .m = 2, .n = 2, .k = 2, .a = a, .b = b, .out = out, .alpha = 1};
    g.a_row = g.out_row = g.b_row = 2;
    g.a_col = g.b_col = 1;
    assert_int_equal(cpu.ops->gemm(&cpu, &g, NULL), EP_OK);
    assert_true(isnan(out[0]) && isnan(out[1]) && out[2] == 3 && out[3] == 3);
}

/* The residual may be the result itself. */
static void residual_in_place(void **state) {
    (void)state;
    float a[2] = {2, 3}, b[2] = {5, 7}, out[4] = {100, 200, 300, 400};
    ep_gemm g = {.batch = 1, .m = 2, .n = 2, .k = 1, .a = a, .b = b, .out = out, .alpha = 1, .residual = out};
    g.a_row = g.a_col = g.b_col = 1;
    g.b_row = g.out_row = g.residual_row = 2;
    assert_int_equal(cpu.ops->gemm(&cpu, &g, NULL), EP_OK);
    assert_true(out[0] == 110 && out[1] == 214 && out[2] == 315 && out[3] == 421);
}

/* Under eager rounding activation and residual leave the bits of eager's own kernels, rows with gaps between them or not. */
static void passes_are_eagers(void **state) {
    (void)state;
    for (int i = 0; i < 200; i++) {
        made t;
        ep_dtype dtype = (ep_dtype)(i % 3);
        make(&t, dtype, dtype, 1, 1 + random_below(40), 1 + random_below(i % 20 == 0 ? 1500 : 130),
             1 + random_below(40));
        add_epilogue(&t);
        ep_gemm *g = &t.g, plain;
        g->rounding = EP_ROUNDING_EAGER;
        g->alpha = 1;
        g->c = NULL;
        plain = *g;
        plain.act = EP_ACT_NONE;
        plain.residual = NULL;
        g->out = t.out[0];
        plain.out = t.out[1];
        assert_int_equal(cpu.ops->gemm(&cpu, g, NULL), EP_OK);
        assert_int_equal(cpu.ops->gemm(&cpu, &plain, NULL), EP_OK);
        ep_tensor y = {.dtype = dtype, .ndim = 2, .sizes = {g->m, g->n}, .strides = {g->out_row, 1}, .data = t.out[1]};
        ep_tensor r = y;
        y.numel = r.numel = g->m * g->n;
        r.strides[0] = g->residual_row;
        r.data = t.residual;
        const ep_tensor *in[2] = {&y, &r};
        if (g->act) assert_int_equal(cpu.ops->pointwise(&cpu, ep_act_op(g->act), 1, in, &y, NULL), EP_OK);
        if (g->residual) assert_int_equal(cpu.ops->pointwise(&cpu, EP_OP_ADD, 2, in, &y, NULL), EP_OK);
        size_t row = (size_t)g->n * ep_dtype_size(dtype), step = (size_t)g->out_row * ep_dtype_size(dtype);
        for (int64_t m = 0; m < g->m; m++)
            assert_memory_equal((char *)t.out[0] + (size_t)m * step, (char *)t.out[1] + (size_t)m * step, row);
        free_made(&t);
    }
}

static int start(void **state) {
    (void)state;
    cpu = (ep_backend){.ops = ep_backend_find("cpu"), .threads = 2};
    ref = (ep_backend){.ops = ep_backend_find("ref"), .threads = 1};
    return cpu.ops->open(0, 2, NULL, &cpu) || ref.ops->open(0, 1, NULL, &ref);
}

static int stop(void **state) {
    (void)state;
    cpu.ops->close(&cpu);
    ref.ops->close(&ref);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain),       cmocka_unit_test(epilogues),        cmocka_unit_test(large),
        cmocka_unit_test(empty),       cmocka_unit_test(nan_stays),        cmocka_unit_test(residual_in_place),
        cmocka_unit_test(sixty_three), cmocka_unit_test(steps_are_passes), cmocka_unit_test(passes_are_eagers)};
    return cmocka_run_group_tests(tests, start, stop);
}
