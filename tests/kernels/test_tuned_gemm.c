/* Tuned GEMMs of every ISA this machine has, against f64 element by element: random shapes, strides, biases, layouts. */
#include "tuned_case.h"

#include <sys/mman.h>

static void random_shapes(void **state) {
    (void)state;
    ep_tuned_scratch *scratch = NULL;
    assert_int_equal(ep_tuned_scratch_create(NULL, &scratch), EP_OK);
    for (const ep_tuned_row *const *r = ep_tuned_rows; *r; r++)
        for (int i = 0; i < 40 && row_runs(*r); i++) check_random(*r, 1 << 20, 400, scratch);
    ep_tuned_scratch_destroy(scratch);
}

static void same_bits_at_any_thread_count(void **state) {
    (void)state;
    ep_tuned_scratch *scratch = NULL;
    assert_int_equal(ep_tuned_scratch_create(NULL, &scratch), EP_OK);
    static const int64_t shapes[][3] = {{1, 352, 1000}, {17, 127, 3001}, {300, 65, 352}, {64, 64, 65}};
    for (const ep_tuned_row *const *r = ep_tuned_rows; *r; r++)
        for (int s = 0; s < 4 && row_runs(*r); s++) {
            tuned_case c = {.m = shapes[s][0],
                            .n = shapes[s][1],
                            .k = shapes[s][2],
                            .pair = s % 2,
                            .bias = true,
                            .act = EP_ACT_SILU,
                            .x_col = 1,
                            .w_col = 1,
                            .bias_step = 1};
            tuned_data d;
            make_data(&c, (*r)->dtype, &d);
            run_case(&c, *r, &d, 1, scratch);
            char *one = malloc(d.out_bytes);
            assert_non_null(one);
            memcpy(one, d.out, d.out_bytes);
            for (int threads = 2; threads <= 7; threads += 2 + threads % 2) {
                memset(d.out, 0xff, d.out_bytes);
                run_case(&c, *r, &d, threads, scratch);
                assert_memory_equal(one, d.out, d.out_bytes);
            }
            free(one);
            free_data(&c, &d);
        }
    ep_tuned_scratch_destroy(scratch);
}

/* Rows that take all row tiles of a panel in one go, and finish one panel during the next, give the bits that they give
 * tile by tile: whole and short last tiles, last panels, k in several blocks and in several parts of the cache. */
static void a_sweep_changes_no_bit(void **state) {
    (void)state;
    /* The last of four: elements between rows of x. The last six: x is read where it lies, or packed as it isn't whole lines
     * or its rows would share their sets of the cache; sums stay in L1. */
    static const int64_t shapes[][4] = {
        {17, 40, 33},    {32, 64, 20},      {48, 2100, 600},   {100, 352, 1100},   {257, 160, 2304},
        {285, 200, 768}, {600, 130, 70},    {304, 97, 4700},   {2100, 70, 4128},   {400, 100, 128},
        {1111, 33, 512}, {545, 64, 64, 96}, {1111, 33, 96, 7}, {530, 64, 32, 992}, {530, 64, 32, 2016},
    };
    enum { SHAPES = sizeof shapes / sizeof *shapes };
    ep_tuned_scratch *scratch = NULL;
    assert_int_equal(ep_tuned_scratch_create(NULL, &scratch), EP_OK);
    for (const ep_tuned_row *const *r = ep_tuned_rows; *r; r++)
        for (int s = 0; s < 6 * SHAPES && row_runs(*r) && (*r)->sweep; s++) {
            static const ep_act acts[] = {EP_ACT_GELU_TANH, EP_ACT_SILU,     EP_ACT_NONE,
                                          EP_ACT_NONE,      EP_ACT_GELU_ERF, EP_ACT_GELU_TANH};
            tuned_case c = {.m = shapes[s % SHAPES][0],
                            .n = shapes[s % SHAPES][1],
                            .k = shapes[s % SHAPES][2],
                            .x_more = shapes[s % SHAPES][3],
                            .pair = acts[s / SHAPES] != EP_ACT_NONE,
                            .bias = s / SHAPES % 2,
                            .residual = s / SHAPES == 3,
                            .act = acts[s / SHAPES],
                            .x_col = 1,
                            .w_col = 1,
                            .bias_step = 1};
            tuned_data d;
            ep_tuned_row by_tile = **r;
            by_tile.sweep = NULL;
            make_data(&c, (*r)->dtype, &d);
            /* A row far from 0, nowhere, at 0 from one side or the other, near it, about as large as numbers are, with
             * products too small for normal numbers; or all of them: a sweep asks some of that for all rows at once. */
            static const struct {
                int row, step;
                double value;
            } rows[] = {{5, 3, 40},     {9, 3, INFINITY}, {2, 1, 0},     {3, 1, -0.0},
                        {12, 1, 2e-38}, {14, 1, 1e-38},   {16, 1, 1e37}, {11, 1, 1e-20}};
            int pick = (s % SHAPES + s / SHAPES) % 9;
            for (int i = 0; i < 8; i++)
                for (int64_t k = 0; k < c.k && (pick == i || pick == 8); k += rows[i].step)
                    ep_element_store((*r)->dtype,
                                     d.x + (size_t)(rows[i].row * d.x_row + k) * ep_dtype_size((*r)->dtype),
                                     rows[i].value);
            for (int i = 0; i < 2 && d.bias[i]; i++) { /* at -0, and less than the least normal number */
                ep_element_store((*r)->dtype, d.bias[i] + 3 * ep_dtype_size((*r)->dtype), -0.0);
                ep_element_store((*r)->dtype, d.bias[i] + 7 * ep_dtype_size((*r)->dtype), 3e-39);
            }
            run_case(&c, &by_tile, &d, 1, scratch);
            char *want = malloc(d.out_bytes);
            assert_non_null(want);
            memcpy(want, d.out, d.out_bytes);
            memset(d.out, 0xff, d.out_bytes);
            run_case(&c, *r, &d, 1 + s % 3, scratch);
            assert_memory_equal(want, d.out, d.out_bytes);
            free(want);
            free_data(&c, &d);
        }
    ep_tuned_scratch_destroy(scratch);
}

/* A NaN or infinity in a row of x or of a weight reaches that row or column of the result and no other, not even
 * through scratch that a later call reuses. */
static void nan_and_infinity_stay_in_their_row(void **state) {
    (void)state;
    ep_tuned_scratch *scratch = NULL;
    assert_int_equal(ep_tuned_scratch_create(NULL, &scratch), EP_OK);
    for (const ep_tuned_row *const *r = ep_tuned_rows; *r; r++)
        for (int round = 0; round < 2 && row_runs(*r); round++) {
            tuned_case c = {
                .m = 35, .n = 37, .k = 70, .pair = round, .act = EP_ACT_SILU, .x_col = 1, .w_col = 1, .bias_step = 1};
            tuned_data d;
            ep_dtype t = (*r)->dtype;
            size_t size = ep_dtype_size(t);
            make_data(&c, t, &d);
            ep_element_store(t, d.x + (size_t)(7 * d.x_row + 69) * size, NAN);
            ep_element_store(t, d.w[0] + (size_t)(21 * d.w_row + 3) * size, INFINITY);
            run_case(&c, *r, &d, 1, scratch);
            for (int64_t i = 0; i < c.m; i++)
                for (int64_t j = 0; j < c.n; j++) {
                    double v = at(t, d.out, i * d.out_row + j);
                    if (i == 7)
                        assert_true(isnan(v));
                    else if (j == 21)
                        assert_true(!isfinite(v) || v == 0); /* silu of -infinity is -0 or NaN */
                    else
                        check_element(&c, *r, &d, i, j);
                }
            free_data(&c, &d);
            c.m = 3;
            make_data(&c, t, &d);
            run_case(&c, *r, &d, 1, scratch);
            for (int64_t e = 0; e < c.m * c.n; e++) check_element(&c, *r, &d, e / c.n, e % c.n);
            free_data(&c, &d);
        }
    ep_tuned_scratch_destroy(scratch);
}

/* f32 keeps denormals. bf16 products on dot-product and tile units take them for zeros (docs/kernels.md says so). */
static void denormals(void **state) {
    (void)state;
    ep_tuned_scratch *scratch = NULL;
    assert_int_equal(ep_tuned_scratch_create(NULL, &scratch), EP_OK);
    for (const ep_tuned_row *const *r = ep_tuned_rows; *r; r++) {
        if (!row_runs(*r) || (*r)->dtype == EP_DTYPE_F16) continue;
        tuned_case c = {.m = 2, .n = 3, .k = 4, .x_col = 1, .w_col = 1, .bias_step = 1};
        tuned_data d;
        ep_dtype t = (*r)->dtype;
        make_data(&c, t, &d);
        for (int64_t i = 0; i < c.m * d.x_row; i++) ep_element_store(t, d.x + (size_t)i * ep_dtype_size(t), 0x1p-130);
        for (int64_t i = 0; i < c.n * d.w_row; i++) ep_element_store(t, d.w[0] + (size_t)i * ep_dtype_size(t), 1);
        run_case(&c, *r, &d, 1, scratch);
        double got = at(t, d.out, d.out_row + 2);
        bool flushes = (*r)->a_bytes < 128 && t == EP_DTYPE_BF16;
        assert_true(got == 4 * 0x1p-130 || (flushes && got == 0));
        free_data(&c, &d);
    }
    ep_tuned_scratch_destroy(scratch);
}

/* Offsets beyond 2^31 elements at a small size: three rows a gibi-element apart over a mapping of no memory. */
static void rows_a_gibi_apart(void **state) {
    (void)state;
    const int64_t row = (int64_t)1 << 30;
    size_t bytes = (size_t)(2 * row + 64) * 2;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    char *p[3];
    for (int i = 0; i < 3; i++) {
        p[i] = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
        if (p[i] == MAP_FAILED) skip();
    }
    ep_tuned_scratch *scratch = NULL;
    assert_int_equal(ep_tuned_scratch_create(NULL, &scratch), EP_OK);
    tuned_case c = {.m = 3, .n = 3, .k = 8, .x_col = 1, .w_col = 1, .bias_step = 1};
    tuned_data d = {.x = p[0], .w = {p[1], NULL}, .out = p[2], .x_row = row, .w_row = row, .out_row = row};
    for (int64_t i = 0; i < 3; i++)
        for (int64_t k = 0; k < 8; k++) {
            ep_element_store(EP_DTYPE_BF16, p[0] + (size_t)(i * row + k) * 2, (double)(i + k));
            ep_element_store(EP_DTYPE_BF16, p[1] + (size_t)(i * row + k) * 2, (double)(i - k));
        }
    for (const ep_tuned_row *const *r = ep_tuned_rows; *r; r++) {
        if (!row_runs(*r) || (*r)->dtype != EP_DTYPE_BF16) continue;
        for (int64_t i = 0; i < 3; i++) memset(p[2] + (size_t)(i * row) * 2, 0xff, 16);
        run_case(&c, *r, &d, 2, scratch);
        for (int64_t e = 0; e < 9; e++) check_element(&c, *r, &d, e / 3, e % 3);
    }
    ep_tuned_scratch_destroy(scratch);
    for (int i = 0; i < 3; i++) munmap(p[i], bytes);
}

/* Sums that are exact in any order: every ISA row must give the same bits, in both roundings. */
static void every_isa_gives_the_same_bits(void **state) {
    (void)state;
    ep_tuned_scratch *scratch = NULL;
    assert_int_equal(ep_tuned_scratch_create(NULL, &scratch), EP_OK);
    for (ep_dtype t = EP_DTYPE_F32; t <= EP_DTYPE_F16; t++)
        for (int k = 0; k < 20; k++) {
            tuned_case c = {.m = 40,
                            .n = 45,
                            .k = 96,
                            .pair = k % 2,
                            .bias = true,
                            .exact = true,
                            .residual = k % 2 == 0,
                            .act = (ep_act)(k / 2 % EP_ACT_COUNT),
                            .rounding = (ep_rounding)(k / 10),
                            .x_col = 1,
                            .w_col = 1,
                            .bias_step = 1};
            tuned_data d;
            char *first = NULL;
            make_data(&c, t, &d);
            for (const ep_tuned_row *const *r = ep_tuned_rows; *r; r++) {
                if (!row_runs(*r) || (*r)->dtype != t) continue;
                memset(d.out, 0xff, d.out_bytes);
                run_case(&c, *r, &d, 2, scratch);
                if (first)
                    assert_memory_equal(first, d.out, d.out_bytes);
                else
                    first = memcpy(malloc(d.out_bytes), d.out, d.out_bytes);
            }
            free(first);
            free_data(&c, &d);
        }
    ep_tuned_scratch_destroy(scratch);
}

static ep_packed *pack_for(const ep_tuned_row *row, int64_t k, int64_t n, const char *w0, const char *w1) {
    ep_packed *p = NULL;
    ep_pack_request q = {.dtype = row->dtype, .k = k, .n = n, .w0 = w0, .w1 = w1, .w0_row = k, .w0_col = 1};
    q.w1_row = k, q.w1_col = 1;
    assert_int_equal(ep_tuned_pack_with(row, 1, &q, NULL, &p), EP_OK);
    return p;
}

/* Hidden values handed over as the second product packs them: the bits of a plain tensor in between. */
static void packed_rows_between_two_products(void **state) {
    (void)state;
    static const int64_t shapes[][4] = {{32, 16, 30, 8},  {35, 40, 45, 33},  {300, 70, 353, 20}, {64, 33, 17, 5},
                                        {15, 9, 3000, 7}, {70, 5, 9001, 40}, {600, 8, 3001, 70}};
    ep_tuned_scratch *scratch = NULL;
    int handed = 0;
    assert_int_equal(ep_tuned_scratch_create(NULL, &scratch), EP_OK);
    for (const ep_tuned_row *const *r = ep_tuned_rows; *r; r++)
        for (int i = 0; i < 28 && row_runs(*r); i++) {
            const int64_t *s = shapes[i % 7], m = s[0], k = s[1], n = s[2], out = s[3];
            ep_dtype t = (*r)->dtype;
            size_t size = ep_dtype_size(t);
            bool pair = i / 7 % 2;
            char *x = fill(t, m * k, false, 1), *w0 = fill(t, n * k, false, 0.3), *w1 = fill(t, n * k, false, 0.3);
            char *wd = fill(t, out * n, false, 0.1), *bias = fill(t, n, false, 1);
            ep_packed *first = pack_for(*r, k, n, w0, pair ? w1 : NULL), *down = pack_for(*r, n, out, wd, NULL);
            size_t bytes = ep_tuned_packed_x_bytes(first, down, m);
            char *y[2] = {malloc((size_t)(m * out) * size), malloc((size_t)(m * out) * size)};
            for (int packed = 0; packed < 2 && bytes; packed++) {
                size_t h_bytes = packed ? bytes : (size_t)(m * n) * size;
                char *h = aligned_alloc(64, (h_bytes + 63) / 64 * 64);
                memset(h, 0xff, h_bytes);
                ep_tuned_call c = {.weights = first, .m = m, .x = x, .x_row = k, .x_col = 1, .dtype = t, .out = h};
                c.out_row = n, c.out_packed = packed, c.act = EP_ACT_GELU_TANH, c.rounding = EP_ROUNDING_EAGER;
                if (i < 14) c.bias0 = bias, c.bias0_stride = 1;
                assert_int_equal(ep_tuned_run(scratch, 1 + i % 3, &c, NULL), EP_OK);
                ep_tuned_call d = {
                    .weights = down, .m = m, .x = h, .x_row = n, .x_col = 1, .dtype = t, .out = y[packed]};
                d.out_row = out, d.x_packed = packed;
                assert_int_equal(ep_tuned_run(scratch, 1 + i % 2, &d, NULL), EP_OK);
                free(h);
            }
            if (bytes) assert_memory_equal(y[0], y[1], (size_t)(m * out) * size);
            handed += bytes > 0;
            ep_tuned_pack_free(first);
            ep_tuned_pack_free(down);
            char *all[] = {x, w0, w1, wd, bias, y[0], y[1]};
            for (int a = 0; a < 7; a++) free(all[a]);
        }
    if (ep_cpu_get()->isa >= EP_ISA_AVX2) assert_true(handed >= 12);
    ep_tuned_scratch_destroy(scratch);
}

static void bad_calls_are_refused(void **state) {
    (void)state;
    ep_error err;
    ep_tuned_scratch *scratch = NULL;
    ep_packed *p = NULL;
    float w[4] = {1, 2, 3, 4}, x[2] = {1, 1}, out[2] = {9, 9};
    assert_int_equal(ep_tuned_scratch_create(&err, &scratch), EP_OK);
    ep_pack_request q = {.dtype = EP_DTYPE_I32, .k = 2, .n = 2, .w0 = w, .w0_row = 2, .w0_col = 1};
    assert_int_equal(ep_tuned_pack(1, &q, &err, &p), EP_ERROR_DTYPE);
    q.dtype = EP_DTYPE_F32;
    q.n = INT64_MAX / 2;
    assert_int_equal(ep_tuned_pack(1, &q, &err, &p), EP_ERROR_OVERFLOW);
    q.n = -1;
    assert_int_equal(ep_tuned_pack(1, &q, &err, &p), EP_ERROR_SHAPE);
    q.n = 2;
    assert_int_equal(ep_tuned_pack(1, &q, &err, &p), EP_OK);
    ep_tuned_call call = {
        .weights = p, .m = 1, .x = x, .x_row = 2, .x_col = 1, .dtype = EP_DTYPE_BF16, .out = out, .out_row = 2};
    assert_int_equal(ep_tuned_run(scratch, 1, &call, &err), EP_ERROR_DTYPE);
    call.dtype = EP_DTYPE_F32;
    call.act = EP_ACT_COUNT;
    assert_int_equal(ep_tuned_run(scratch, 1, &call, &err), EP_ERROR_INVALID_ARGUMENT);
    call.act = EP_ACT_NONE;
    call.m = 0;
    assert_int_equal(ep_tuned_run(scratch, 1, &call, &err), EP_OK);
    assert_true(out[0] == 9);
    call.m = 1;
    assert_int_equal(ep_tuned_run(scratch, 1, &call, &err), EP_OK);
    assert_true(out[0] == 3 && out[1] == 7);
    ep_tuned_pack_free(p);
    q.k = 0;
    assert_int_equal(ep_tuned_pack(1, &q, &err, &p), EP_OK);
    call.weights = p;
    assert_int_equal(ep_tuned_run(scratch, 1, &call, &err), EP_OK); /* k = 0: sums of nothing */
    assert_true(out[0] == 0 && out[1] == 0);
    ep_tuned_pack_free(p);
    ep_tuned_scratch_destroy(scratch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_shapes),
        cmocka_unit_test(same_bits_at_any_thread_count),
        cmocka_unit_test(a_sweep_changes_no_bit),
        cmocka_unit_test(nan_and_infinity_stay_in_their_row),
        cmocka_unit_test(denormals),
        cmocka_unit_test(rows_a_gibi_apart),
        cmocka_unit_test(every_isa_gives_the_same_bits),
        cmocka_unit_test(packed_rows_between_two_products),
        cmocka_unit_test(bad_calls_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
