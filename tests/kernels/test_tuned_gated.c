/* act(gate) * up and its gradients on tensors: every layout, width and act, against f64; under eager rounding the same
 * bits as act stored and then multiplied. Runs once for each ISA through EPILOGUE_ISA. */
// ctest: isa
#include "tuned_case.h"

#include <sys/mman.h>

#include "base/clock.h"
#include "base/simd/simd_scalar.h"
#include "base/simd/vmath.h"
#include "run/backend/cpu/act_table.h"
#include "run/backend/cpu/kernels/act_template.h"

typedef struct layout {
    const char *name;
    int64_t gate_step, up_step, out_step, gap; /* gap: elements between rows */
    bool halves, pairs, in_place;
} layout;
static const layout layouts[] = {
    {"separate", 1, 1, 1, 0, false, false, false}, {"rows apart", 1, 1, 1, 5, false, false, false},
    {"halves", 1, 1, 1, 0, true, false, false},    {"interleaved", 2, 2, 1, 0, false, true, false},
    {"in place", 1, 1, 1, 0, false, false, true},  {"steps", 3, 2, 2, 1, false, false, false},
};

static ep_tensor tensor2(ep_dtype dtype, void *data, int64_t rows, int64_t cols, int64_t row, int64_t col) {
    ep_tensor t = {.data = data,
                   .dtype = dtype,
                   .ndim = 2,
                   .sizes = {rows, cols},
                   .strides = {row, col},
                   .numel = rows * cols,
                   .value = -1};
    return t;
}

static double rounded(ep_dtype dtype, double v) {
    char b[8];
    ep_element_store(dtype, b, v);
    return ep_element_load(dtype, b);
}

static double slope_f64(ep_act act, double x) {
    double c = 0.7978845608028654, s;
    switch (act) {
    case EP_ACT_GELU_TANH:
        s = 1 / (1 + exp(-2 * c * (x + 0.044715 * x * x * x)));
        return s + 2 * x * s * (1 - s) * c * (1 + 3 * 0.044715 * x * x);
    case EP_ACT_GELU_ERF: return 0.5 * erfc(-x * 0.7071067811865476) + x * 0.3989422804014327 * exp(-0.5 * x * x);
    case EP_ACT_SILU: s = 1 / (1 + exp(-x)); return s * (1 + x * (1 - s));
    case EP_ACT_RELU: return x > 0;
    default: return 1;
    }
}

static void check_forward(ep_dtype dtype, ep_act act, ep_rounding rounding, double g, double u, double got) {
    double want;
    if (rounding == EP_ROUNDING_EAGER) {
        float a = (float)rounded(dtype, act_apply(act, (float)g));
        want = rounded(dtype, a * (float)u);
        if (got != want)
            fail_msg("%s %s g %.9g u %.9g: got %.9g want %.9g", ep_dtype_name(dtype), ep_act_name(act), g, u, got,
                     want);
        return;
    }
    want = act_f64(act, g) * u;
    double ulp = dtype == EP_DTYPE_F32 ? 0x1p-24 : dtype == EP_DTYPE_BF16 ? 0x1p-8 : 0x1p-11;
    if (!(fabs(got - want) <= fabs(want) * (ulp + 1e-6) + (dtype == EP_DTYPE_F16 ? 0x1p-25 : 1e-37)))
        fail_msg("%s %s g %.9g u %.9g: got %.9g want %.9g", ep_dtype_name(dtype), ep_act_name(act), g, u, got, want);
}

static void check_backward(ep_dtype dtype, ep_act act, ep_rounding rounding, double dy, double g, double u, double dg,
                           double du) {
    double ulp = dtype == EP_DTYPE_F32 ? 0x1p-23 : dtype == EP_DTYPE_BF16 ? 0x1p-8 : 0x1p-11;
    double tiny = dtype == EP_DTYPE_F16 ? 0x1p-24 : 1e-37, a = act_f64(act, g), h = dy * u;
    if (rounding == EP_ROUNDING_EAGER) a = rounded(dtype, act_apply(act, (float)g)), h = rounded(dtype, h);
    double want_g = h * slope_f64(act, g), want_u = dy * a;
    if (!(fabs(dg - want_g) <= fabs(want_g) * (ulp + 1e-5) + fabs(h) * 1e-6 + tiny) ||
        !(fabs(du - want_u) <= fabs(want_u) * (ulp + 2e-6) + tiny))
        fail_msg("%s %s dy %.9g g %.9g u %.9g: dg %.9g want %.9g, du %.9g want %.9g", ep_dtype_name(dtype),
                 ep_act_name(act), dy, g, u, dg, want_g, du, want_u);
}

static void one_layout(const layout *l, ep_dtype dtype, ep_act act, ep_rounding rounding, int64_t rows, int64_t width,
                       int threads) {
    size_t size = ep_dtype_size(dtype);
    int64_t gate_row = width * l->gate_step * (l->halves ? 2 : 1) + l->gap, up_row = width * l->up_step + l->gap;
    int64_t out_row = width * l->out_step + l->gap;
    char *gate = fill(dtype, rows * gate_row + 8, false, 4), *up = fill(dtype, rows * up_row + 8, false, 2);
    char *dy = fill(dtype, rows * width + 8, false, 2), *out = malloc((size_t)(rows * out_row + 8) * size);
    char *dup = malloc((size_t)(rows * out_row + 8) * size);
    assert_true(out && dup);
    memset(out, 0xff, (size_t)(rows * out_row + 8) * size);
    memset(dup, 0xff, (size_t)(rows * out_row + 8) * size);
    char *u = l->halves ? gate + (size_t)width * size : l->pairs ? gate + size : up;
    int64_t u_row = l->halves || l->pairs ? gate_row : up_row;
    char *saved = malloc((size_t)(rows * gate_row + 8) * size);
    assert_non_null(saved);
    memcpy(saved, gate, (size_t)(rows * gate_row + 8) * size);
    char *saved_u = l->halves ? saved + (size_t)width * size : l->pairs ? saved + size : up;
    ep_tensor tg = tensor2(dtype, gate, rows, width, gate_row, l->gate_step);
    ep_tensor tu = tensor2(dtype, u, rows, width, u_row, l->up_step);
    ep_tensor to = l->in_place ? tg : tensor2(dtype, out, rows, width, out_row, l->out_step);
    ep_tensor td = tensor2(dtype, dy, rows, width, width, 1),
              tdu = tensor2(dtype, dup, rows, width, out_row, l->out_step);
    ep_error err;
    assert_int_equal(ep_tuned_gated(threads, act, rounding, &tg, &tu, &to, &err), EP_OK);
    int64_t step = rows * width > 3000 ? 37 : 1;
    for (int64_t e = 0; e < rows * width; e += step) {
        int64_t i = e / width, j = e % width;
        check_forward(dtype, act, rounding, at(dtype, saved, i * gate_row + j * l->gate_step),
                      at(dtype, saved_u, i * u_row + j * l->up_step),
                      at(dtype, to.data, i * to.strides[0] + j * to.strides[1]));
    }
    for (size_t b = (size_t)(rows * out_row) * size; b < (size_t)(rows * out_row + 8) * size; b++)
        assert_int_equal((unsigned char)out[b], 0xff);
    memcpy(gate, saved, (size_t)(rows * gate_row + 8) * size);
    assert_int_equal(ep_tuned_gated_backward(threads, act, rounding, &td, &tg, &tu, &to, &tdu, &err), EP_OK);
    for (int64_t e = 0; e < rows * width; e += step) {
        int64_t i = e / width, j = e % width;
        check_backward(
            dtype, act, rounding, at(dtype, dy, i * width + j), at(dtype, saved, i * gate_row + j * l->gate_step),
            at(dtype, saved_u, i * u_row + j * l->up_step), at(dtype, to.data, i * to.strides[0] + j * to.strides[1]),
            at(dtype, dup, i * out_row + j * l->out_step));
    }
    free(gate), free(up), free(dy), free(out), free(dup), free(saved);
}

static void every_layout_width_and_act(void **state) {
    (void)state;
    static const int64_t widths[] = {1, 4, 7, 12, 31, 352, 1234, 3420};
    for (ep_dtype d = EP_DTYPE_F32; d <= EP_DTYPE_F16; d++)
        for (int a = 0; a < EP_ACT_COUNT; a++)
            for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++)
                for (int w = 0; w < 8; w++)
                    one_layout(&layouts[l], d, (ep_act)a, w % 2 ? EP_ROUNDING_EAGER : EP_ROUNDING_FEWEST, 2, widths[w],
                               2);
}

static void wide_rows(void **state) {
    (void)state;
    static const int64_t widths[] = {65536, 65537, 300001};
    for (ep_dtype d = EP_DTYPE_F32; d <= EP_DTYPE_F16; d++)
        for (int w = 0; w < 3; w++)
            for (size_t l = 0; l < 4; l++)
                one_layout(&layouts[l], d, EP_ACT_GELU_TANH, EP_ROUNDING_EAGER, 2, widths[w], 3);
}

/* The table must hold what the formula gives, for every value there is. */
static void tables_equal_the_formula(void **state) {
    (void)state;
    for (ep_dtype d = EP_DTYPE_BF16; d <= EP_DTYPE_F16; d++)
        for (int a = EP_ACT_GELU_TANH; a <= EP_ACT_SILU; a++) {
            const float *t = ep_act_table(d, (ep_act)a);
            assert_non_null(t);
            for (int i = 0; i < 65536; i++) {
                uint16_t h = (uint16_t)i;
                float x = (float)ep_element_load(d, &h);
                double want = rounded(d, act_apply((ep_act)a, x));
                if (t[i] != want && !(isnan(t[i]) && isnan(want)))
                    fail_msg("%s of %g: table %g, formula %g", ep_act_name((ep_act)a), (double)x, (double)t[i], want);
            }
        }
    assert_null(ep_act_table(EP_DTYPE_F32, EP_ACT_SILU));
}

static void same_bytes(const void *a, const void *b, size_t n, const char *what, int at) {
    if (memcmp(a, b, n) != 0) fail_msg("%s differs at offset %d", what, at);
}

/* Results stored past the caches, from the table and by the formula: the same bytes wherever the row begins. */
static void one_row_every_way(ep_dtype d, ep_act act, int64_t n, int offset) {
    enum { ROOM = 1024 };
    size_t size = ep_dtype_size(d), bytes = ROOM * size;
    char *in[3], *out[2][5]; /* plain or streamed: forward, dg, du, forward by the formula, and by both */
    for (int k = 0; k < 3; k++) in[k] = fill(d, ROOM, false, 4);
    for (int w = 0; w < 10; w++) {
        out[w / 5][w % 5] = ep_tuned_alloc(bytes);
        assert_non_null(out[w / 5][w % 5]);
        memset(out[w / 5][w % 5], 0xff, bytes);
    }
    const ep_tuned_row *row = ep_tuned_select(d, ep_cpu_get()->isa);
    for (int w = 0; w < 2; w++) {
        size_t at = (size_t)offset * size;
        ep_gated_row r = {.n = n, .dy = in[0], .gate = in[1], .up = in[2], .act = act, .eager = true, .stream = w};
        r.out = out[w][3] + at;
        row->gated_row(&r);
        r.out = out[w][0] + at, r.table = ep_act_table(d, act);
        row->gated_row(&r);
        r.out = out[w][4] + at, r.mix = true, r.words = ep_act_words(d, act);
        row->gated_row(&r);
        r.out = out[w][1] + at, r.dup = out[w][2] + at, r.pairs = ep_pair_table(d, act);
        if (offset % 2) r.slopes = ep_act_slopes(d, act);
        row->gated_back(&r);
    }
    for (int k = 0; k < 5; k++) {
        same_bytes(out[0][k], out[1][k], bytes, ep_dtype_name(d), offset);
        for (size_t b = 0; b < bytes; b++)
            if (b < (size_t)offset * size || b >= ((size_t)offset + (size_t)n) * size)
                assert_int_equal((unsigned char)out[0][k][b], 0xff);
    }
    same_bytes(out[0][0], out[0][3], bytes, "table against formula", offset);
    same_bytes(out[0][0], out[0][4], bytes, "table against both", offset);
    for (int k = 0; k < 3; k++) free(in[k]);
    for (int w = 0; w < 10; w++) free(out[w / 5][w % 5]);
}

static void rows_past_the_caches(void **state) {
    (void)state;
    static const int64_t widths[] = {1, 17, 32, 63, 200, 352, 777};
    for (ep_dtype d = EP_DTYPE_F32; d <= EP_DTYPE_F16; d++)
        for (int a = EP_ACT_GELU_TANH; a <= EP_ACT_SILU; a++)
            for (int w = 0; w < 7; w++)
                for (int offset = 0; offset < 40; offset++) one_row_every_way(d, (ep_act)a, widths[w], offset);
}

/* Values and slopes of 16-bit types come from tables in one piece. */
static void pairs_hold_value_and_slope(void **state) {
    (void)state;
    for (ep_dtype d = EP_DTYPE_BF16; d <= EP_DTYPE_F16; d++)
        for (int a = EP_ACT_GELU_TANH; a <= EP_ACT_SILU; a++) {
            const float *p = ep_pair_table(d, (ep_act)a), *t = ep_act_table(d, (ep_act)a);
            for (int i = 0; i < 65536; i++) {
                uint16_t h = (uint16_t)i;
                double x = ep_element_load(d, &h), slope = slope_f64((ep_act)a, x), got = (double)p[2 * i + 1];
                assert_memory_equal(&p[2 * i], &t[i], 4);
                if (fabs(x) < 1e30 && !(fabs(got - slope) <= 1e-6 + 1e-5 * fabs(slope)))
                    fail_msg("slope of %s at %g: %g, want %g", ep_act_name((ep_act)a), x, got, slope);
            }
        }
}

static const float ups[] = {1.0f, -1.5f, 0.3f, 0.0f, -0.0f, 1e-40f, 6e-8f, 3e-39f, 6e4f, -3e38f, INFINITY, NAN, 7.7f};

/* Every gate there is, in two orders (vectors all near 0, and mixed ones), with products that are ordinary, zeros,
 * denormals, infinite and NaN: each way of each row gives act rounded, times up, rounded. */
static void every_gate_every_way(void **state) {
    (void)state;
    enum { ALL = 65536 };
    uint16_t *gate = malloc(ALL * 2), *up = malloc(ALL * 2), *want = malloc(ALL * 2), *got = malloc(ALL * 2);
    assert_true(gate && up && want && got);
    for (int c = 0; c < 2 * 3 * 4; c++) {
        ep_dtype d = c % 2 ? EP_DTYPE_BF16 : EP_DTYPE_F16;
        ep_act act = (ep_act)(EP_ACT_GELU_TANH + c / 2 % 3);
        int step = c / 6 % 2 ? 0x9e37 : 1, rest = c / 12;
        for (int i = 0; i < ALL; i++) {
            gate[i] = (uint16_t)(i * step);
            ep_element_store(d, &up[i], (double)(rest ? ups[(i / 32 + i) % 13] : 1.25f));
            float a = (float)rounded(d, act_apply(act, (float)ep_element_load(d, &gate[i])));
            ep_element_store(d, &want[i], (double)(a * (float)ep_element_load(d, &up[i])));
        }
        ep_gated_row r = {.act = act, .eager = true};
        for (int way = 0; way < 3; way++) {
            r.table = way ? ep_act_table(d, act) : NULL, r.mix = way == 2,
            r.words = r.mix ? ep_act_words(d, act) : NULL;
            memset(got, 0xff, ALL * 2);
            for (int i = 0; i < ALL; i += 512) { /* short rows: a long one gives up its fast way at gates far from 0 */
                r.n = 512, r.gate = gate + i, r.up = up + i, r.out = got + i;
                ep_tuned_select(d, ep_cpu_get()->isa)->gated_row(&r);
            }
            for (int i = 0; i < ALL; i++) {
                double y = ep_element_load(d, &got[i]), w = ep_element_load(d, &want[i]);
                if (isnan(w) ? !isnan(y) : got[i] != want[i])
                    fail_msg("%s %s way %d: gate %g up %g: %g, want %g", ep_dtype_name(d), ep_act_name(act), way,
                             ep_element_load(d, &gate[i]), ep_element_load(d, &up[i]), y, w);
            }
        }
    }
    free(gate), free(up), free(want), free(got);
}

/* Gradients of every gate from the table of values and slopes, each product rounded where eager stores it: ordinary
 * numbers, then any in the places of dy and up. Short rows: a long one gives up its fast way. */
static void every_gate_backward(void **state) {
    (void)state;
    enum { ALL = 65536 };
    uint16_t *data = malloc(5 * ALL * 2), *gate = data, *up = data + ALL, *dy = data + 2 * ALL;
    assert_non_null(data);
    for (int c = 0; c < 2 * 3 * 4; c++) {
        ep_dtype d = c % 2 ? EP_DTYPE_BF16 : EP_DTYPE_F16;
        ep_act act = (ep_act)(EP_ACT_GELU_TANH + c / 2 % 3);
        for (int i = 0; i < ALL; i++) {
            gate[i] = (uint16_t)(c >= 12 ? i : i * 0x9e37); /* in order: vectors all near 0 */
            ep_element_store(d, &up[i], random_value() * (i % 5 ? 1 : 1e-4));
            ep_element_store(d, &dy[i], random_value() * (i % 7 ? 1 : 1e-3));
            if (c / 6 % 2 && i / 32 % 3 == 0) ep_element_store(d, &up[i], (double)ups[i % 13]);
            if (c / 6 % 2 && i / 32 % 3 != 2) ep_element_store(d, &dy[i], (double)ups[i / 5 % 13] * (i % 2 ? 1e-2 : 1));
        }
        uint16_t *dg = data + 3 * ALL, *du = data + 4 * ALL;
        const float *pairs = ep_pair_table(d, act);
        for (int i = 0; i < ALL; i += 512) {
            ep_gated_row r = {.n = 512, .act = act, .eager = true, .pairs = pairs};
            if (c >= 12) r.slopes = ep_act_slopes(d, act);
            r.dy = dy + i, r.gate = gate + i, r.up = up + i, r.out = dg + i, r.dup = du + i;
            ep_tuned_select(d, ep_cpu_get()->isa)->gated_back(&r);
        }
        for (int i = 0; i < ALL; i++) {
            float y = (float)ep_element_load(d, &dy[i]), u = (float)ep_element_load(d, &up[i]);
            double want_g = rounded(d, (double)((float)rounded(d, (double)(y * u)) * pairs[2 * gate[i] + 1]));
            double want_u = rounded(d, (double)(y * pairs[2 * gate[i]]));
            double got_g = ep_element_load(d, &dg[i]), got_u = ep_element_load(d, &du[i]);
            if ((got_g != want_g && !(isnan(got_g) && isnan(want_g))) ||
                (got_u != want_u && !(isnan(got_u) && isnan(want_u))) ||
                (!isnan(want_g) && signbit(got_g) != signbit(want_g)) ||
                (!isnan(want_u) && signbit(got_u) != signbit(want_u)))
                fail_msg("%s %s dy %g gate %g up %g: %g %g, want %g %g", ep_dtype_name(d), ep_act_name(act), (double)y,
                         ep_element_load(d, &gate[i]), (double)u, got_g, got_u, want_g, want_u);
        }
    }
    free(data);
}

/* The way with the least time is taken, whatever the clock counts in. */
static void trial_takes_the_fastest(void **state) {
    (void)state;
    ep_clock_init();
    for (int c = 0; c < 2 * 3; c++) {
        const ep_act_trial *t = ep_act_tried(c % 2 ? EP_DTYPE_BF16 : EP_DTYPE_F16, (ep_act)(EP_ACT_GELU_TANH + c / 2));
        assert_non_null(t);
        for (int back = 0; back < 2; back++) {
            const double *ns = t->ns[back];
            assert_true(ns[EP_ACT_BY_FORMULA] > 0 && ns[EP_ACT_BY_FORMULA] < 1e6);
            assert_true((unsigned)t->way[back] < EP_ACT_WAYS);
            for (int w = 0; w < EP_ACT_WAYS; w++) assert_true(ns[w] <= 0 || ns[w] >= ns[t->way[back]]);
            assert_memory_equal(t->why[back], "formula ", 8);
        }
        assert_true(ep_act_is_tried(c % 2 ? EP_DTYPE_BF16 : EP_DTYPE_F16, (ep_act)(EP_ACT_GELU_TANH + c / 2)));
    }
}

static void special_values(void **state) {
    (void)state;
    float g[8] = {NAN, INFINITY, -INFINITY, 0, -0.0f, 1e-40f, -1e-40f, 3e38f}, u[8], out[8];
    for (int i = 0; i < 8; i++) u[i] = 2;
    ep_tensor tg = tensor2(EP_DTYPE_F32, g, 1, 8, 8, 1), tu = tensor2(EP_DTYPE_F32, u, 1, 8, 8, 1);
    ep_tensor to = tensor2(EP_DTYPE_F32, out, 1, 8, 8, 1);
    assert_int_equal(ep_tuned_gated(1, EP_ACT_SILU, EP_ROUNDING_EAGER, &tg, &tu, &to, NULL), EP_OK);
    assert_true(isnan(out[0]) && isinf(out[1]) && out[3] == 0 && out[7] > 3e38f);
    assert_true(out[5] > 0 && out[6] < 0); /* denormals are not flushed */
    assert_int_equal(ep_tuned_gated(1, EP_ACT_RELU, EP_ROUNDING_EAGER, &tg, &tu, &to, NULL), EP_OK);
    assert_true(isnan(out[0]) && isinf(out[1]) && out[2] == 0 && out[6] == 0);
}

static void rows_a_gibi_apart(void **state) {
    (void)state;
    const int64_t row = (int64_t)1 << 30;
    size_t bytes = (size_t)(2 * row + 8) * 2;
    char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) skip();
    uint16_t up[24], out[24];
    for (int i = 0; i < 24; i++) {
        up[i] = ep_f32_to_bf16((float)i);
        uint16_t one = ep_f32_to_bf16(1.0f + (float)(i / 8));
        memcpy(p + 2 * ((i / 8) * row + i % 8), &one, 2);
    }
    ep_tensor tg = tensor2(EP_DTYPE_BF16, p, 3, 8, row, 1), tu = tensor2(EP_DTYPE_BF16, up, 3, 8, 8, 1);
    ep_tensor to = tensor2(EP_DTYPE_BF16, out, 3, 8, 8, 1);
    assert_int_equal(ep_tuned_gated(2, EP_ACT_RELU, EP_ROUNDING_EAGER, &tg, &tu, &to, NULL), EP_OK);
    for (int i = 0; i < 24; i++)
        assert_true(ep_bf16_to_f32(out[i]) == (float)rounded(EP_DTYPE_BF16, i * (1.0 + i / 8)));
    assert_int_equal(ep_tuned_gated(2, EP_ACT_RELU, EP_ROUNDING_EAGER, &tu, &tg, &tg, NULL),
                     EP_OK); /* written in place */
    uint16_t last;
    memcpy(&last, p + 2 * (2 * row + 7), 2);
    assert_true(ep_bf16_to_f32(last) == (float)rounded(EP_DTYPE_BF16, 23 * 3.0));
    munmap(p, bytes);
}

static void many_dims_and_empty(void **state) {
    (void)state;
    float g[120], u[120], out[120];
    for (int i = 0; i < 120; i++) g[i] = (float)(i % 11) - 5, u[i] = (float)(i % 7) - 3;
    ep_tensor tg = {
        .data = (char *)g, .dtype = EP_DTYPE_F32, .ndim = 3, .sizes = {4, 5, 6}, .strides = {1, 4, 20}, .numel = 120};
    ep_tensor tu = {
        .data = (char *)u, .dtype = EP_DTYPE_F32, .ndim = 3, .sizes = {4, 5, 6}, .strides = {30, 6, 1}, .numel = 120};
    ep_tensor to = {
        .data = (char *)out, .dtype = EP_DTYPE_F32, .ndim = 3, .sizes = {4, 5, 6}, .strides = {30, 6, 1}, .numel = 120};
    assert_int_equal(ep_tuned_gated(2, EP_ACT_RELU, EP_ROUNDING_EAGER, &tg, &tu, &to, NULL), EP_OK);
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 5; j++)
            for (int k = 0; k < 6; k++) {
                float a = g[i + 4 * j + 20 * k], want = (a > 0 ? a : 0) * u[30 * i + 6 * j + k];
                assert_true(out[30 * i + 6 * j + k] == want);
            }
    ep_tensor none = {.dtype = EP_DTYPE_F32, .ndim = 2, .sizes = {0, 5}, .strides = {5, 1}};
    assert_int_equal(ep_tuned_gated(2, EP_ACT_RELU, EP_ROUNDING_EAGER, &none, &none, &none, NULL), EP_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trial_takes_the_fastest),
        cmocka_unit_test(every_layout_width_and_act),
        cmocka_unit_test(wide_rows),
        cmocka_unit_test(tables_equal_the_formula),
        cmocka_unit_test(special_values),
        cmocka_unit_test(every_gate_every_way),
        cmocka_unit_test(every_gate_backward),
        cmocka_unit_test(rows_past_the_caches),
        cmocka_unit_test(pairs_hold_value_and_slope),
        cmocka_unit_test(rows_a_gibi_apart),
        cmocka_unit_test(many_dims_and_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
