/* Blocks on the GPU in every mode against the plain reference: odd sizes, weights larger than the L2, one kernel for the
 * whole block, warpgroups in turns. */
#include "cuda_case.h"

typedef struct block_case {
    ep_dtype dtype;
    int64_t m, dim, hidden;
    ep_act act;
    bool bias, gate, residual, compiled;
} block_case;

static void one_block_on(ep_context *dev, const block_case *k) {
    ep_error e;
    ep_tensor *h[8], *d[8];
    int64_t shapes[8][2] = {{k->m, k->dim}, {k->hidden, k->dim}, {k->hidden, k->dim}, {k->dim, k->hidden},
                            {k->hidden, 0}, {k->hidden, 0},      {k->dim, 0},         {k->m, k->dim}};
    for (int i = 0; i < 8; i++) {
        int nd = i >= 4 && i < 7 ? 1 : 2;
        assert_int_equal(ep_tensor_create(k->dtype, nd, shapes[i], &e, &h[i]), EP_OK);
        double scale = i == 1 || i == 2 ? 1 / sqrt((double)k->dim) : i == 3 ? 1 / sqrt((double)k->hidden) : 1.0;
        ep_tensor_fill_random(h[i], seed++, scale, &e);
        assert_int_equal(ep_to_device(dev, h[i], &d[i]), EP_OK);
    }
    ep_block *bg, *br;
    ep_tensor **t[2] = {d, h};
    ep_block **bl[2] = {&bg, &br};
    ep_context *ctx[2] = {dev, ref};
    for (int i = 0; i < 2; i++) {
        ep_block_weights w = {.gate = k->gate ? t[i][1] : NULL, .up = t[i][2], .down = t[i][3]};
        if (k->bias) w.gate_bias = k->gate ? t[i][4] : NULL, w.up_bias = t[i][5], w.down_bias = t[i][6];
        assert_int_equal(ep_block_create(ctx[i], k->gate ? EP_BLOCK_GATED : EP_BLOCK_MLP, k->act, &w, bl[i]), EP_OK);
    }
    ep_tensor *y, *r;
    assert_int_equal(ep_block_run(br, EP_MODE_EAGER, h[0], k->residual ? h[7] : NULL, &r), EP_OK);
    static const ep_mode modes[] = {EP_MODE_EAGER, EP_MODE_TUNED, EP_MODE_TUNED, EP_MODE_COMPILED};
    static const char *const names[] = {"eager block", "tuned block", "tuned block again", "compiled block"};
    for (int mode = 0; mode < (k->compiled ? 4 : 3); mode++) {
        ep_tensor *copy;
        if (modes[mode] == EP_MODE_COMPILED) assert_int_equal(ep_block_prepare(bg, EP_MODE_COMPILED, d[0]), EP_OK);
        ep_status s = ep_block_run(bg, modes[mode], d[0], k->residual ? d[7] : NULL, &y);
        if (s != EP_OK) print_message("%s: %s\n", names[mode], ep_context_error(dev)->message);
        assert_int_equal(s, EP_OK);
        assert_int_equal(ep_context_sync(dev), EP_OK); /* compare reads by another context's stream */
        ep_tensor_alias(r, &e, &copy);
        char what[160];
        snprintf(what, sizeof what, "%s %s %s %lldx%lldx%lld%s%s%s", names[mode], ep_dtype_name(k->dtype),
                 ep_act_name(k->act), (long long)k->m, (long long)k->dim, (long long)k->hidden, k->gate ? " gate" : "",
                 k->bias ? " bias" : "", k->residual ? " residual" : "");
        compare(what, y, copy, k->dtype == EP_DTYPE_F32 ? 1e-4 : 4 * tolerance(k->dtype));
    }
    ep_tensor_destroy(r);
    ep_block_destroy(bg);
    ep_block_destroy(br);
    for (int i = 0; i < 8; i++) {
        ep_tensor_destroy(h[i]);
        ep_tensor_destroy(d[i]);
    }
}

static void one_block(const block_case *k) {
    one_block_on(gpu, k);
}

static void blocks(void **state) {
    (void)state;
    static const int64_t sizes[] = {1, 2, 3, 7, 8, 15, 16, 17, 64, 65, 127, 200, 352, 513};
    const size_t count = sizeof sizes / sizeof *sizes;
    for (int round = 0; round < rounds(150); round++) {
        block_case k = {.dtype = float_dtypes[rnd(3)], .compiled = round % 5 == 0};
        k.m = sizes[rnd(count)], k.dim = sizes[rnd(count)], k.hidden = sizes[rnd(count)];
        if (round % 10 == 0) { /* more tiles than multiprocessors, so that kernels walk on */
            k.hidden = 9000 + (int64_t)rnd(2);
            k.dim = sizes[rnd(10)];
            k.m = sizes[rnd(13)];
            if (getenv("EPILOGUE_TEST_SMALL")) k.dim = k.dim < 16 ? k.dim : 16, k.m = k.m < 32 ? k.m : 32;
        }
        k.act = (ep_act)(1 + rnd(4));
        k.bias = rnd(2), k.gate = rnd(3) > 0, k.residual = rnd(2);
        one_block(&k);
    }
}

/* Weights that do not fit the L2, few rows: on chips of compute capability 9.0 one kernel makes the whole block. */
static void streamed_blocks(void **state) {
    (void)state;
    static const block_case cases[] = {{EP_DTYPE_BF16, 1, 2048, 8192, EP_ACT_GELU_TANH, false, true, false, false},
                                       {EP_DTYPE_F16, 5, 2048, 8192, EP_ACT_SILU, true, true, false, false},
                                       {EP_DTYPE_BF16, 16, 2048, 8192, EP_ACT_GELU_ERF, false, true, true, false},
                                       {EP_DTYPE_F16, 11, 2040, 8256, EP_ACT_RELU, true, true, true, false},
                                       {EP_DTYPE_BF16, 8, 4096, 7168, EP_ACT_GELU_TANH, true, true, true, false},
                                       {EP_DTYPE_BF16, 13, 4096, 7168, EP_ACT_SILU, true, true, false, false},
                                       {EP_DTYPE_BF16, 18, 2048, 14336, EP_ACT_GELU_TANH, true, true, true, false},
                                       {EP_DTYPE_BF16, 3, 2048, 16384, EP_ACT_GELU_TANH, true, false, true, false},
                                       {EP_DTYPE_F16, 100, 2048, 16384, EP_ACT_GELU_ERF, true, false, false, false}};
    const size_t count = sizeof cases / sizeof *cases;
    for (size_t i = 0; i < count; i += getenv("EPILOGUE_TEST_SMALL") ? 2 : 1) one_block(&cases[i]);
}

static ep_context *every_block_in_one(ep_rounding rounding) {
    const char *before = getenv("EPILOGUE_ONE_KERNEL");
    ep_context_options o = {.device = {EP_DEVICE_CUDA, 0}, .rounding = rounding};
    ep_error e;
    ep_context *all;
    setenv("EPILOGUE_ONE_KERNEL", "all", 1); /* read when a context opens */
    assert_int_equal(ep_context_create(&o, &e, &all), EP_OK);
    if (before)
        setenv("EPILOGUE_ONE_KERNEL", before, 1);
    else
        unsetenv("EPILOGUE_ONE_KERNEL");
    return all;
}

/* The same kernels on small shapes, where two would be faster: fewer tiles than multiprocessors, k that ends within a stage,
 * more tiles of h or of y than others. */
static void one_kernel_of(int64_t least, int64_t rows) {
    static const int64_t dims[] = {8, 64, 72, 200, 256, 1032, 2056};
    static const int64_t hiddens[] = {64, 128, 640, 704, 4160, 10240, 8, 72, 1000, 15000};
    bool small = getenv("EPILOGUE_TEST_SMALL") != NULL;
    for (int rounding = 0; rounding < 2; rounding++) {
        ep_context *all = every_block_in_one(rounding ? EP_ROUNDING_FEWEST : EP_ROUNDING_EAGER);
        for (int round = 0; round < (small ? 9 : 90); round++) {
            block_case k = {.dtype = rnd(2) ? EP_DTYPE_BF16 : EP_DTYPE_F16, .gate = round % 3 > 0, .bias = rnd(2)};
            k.m = least + (int64_t)rnd((unsigned)rows), k.act = (ep_act)(1 + round % 4), k.residual = rnd(2);
            k.dim = dims[rnd(small ? 4 : 7)], k.hidden = hiddens[rnd(small ? 5 : least > 16 ? 10 : 6)];
            while (k.m * k.dim * k.hidden > (small ? 1 << 23 : 1 << 27))
                k.dim = k.dim / 16 > 1 ? k.dim / 16 * 8 : 8; /* plain C */
            one_block_on(all, &k);
        }
        ep_context_destroy(all);
    }
}

static void one_kernel(void **state) {
    (void)state;
    one_kernel_of(1, 16);
}

static void one_kernel_rows(void **state) {
    (void)state;
    one_kernel_of(17, 112);
}

/* One call behind the other with nothing between, so that launches overlap: two inputs in turn and a third of fewer rows,
 * whose kernel is another. Every answer is the reference's, and has the same bits whenever it is asked for. */
static void one_kernel_overlapped(void **state) {
    (void)state;
    enum { INPUTS = 3, CALLS = 12, DIM = 264, HIDDEN = 2048 };
    static const int64_t rows[INPUTS] = {128, 70, 33}, shapes[3][2] = {{HIDDEN, DIM}, {HIDDEN, DIM}, {DIM, HIDDEN}};
    ep_context *all = every_block_in_one(EP_ROUNDING_EAGER);
    ep_error e;
    ep_tensor *hw[3], *dw[3], *h[INPUTS], *d[INPUTS], *y[CALLS], *r[INPUTS], *first[INPUTS] = {0};
    for (int i = 0; i < 3; i++) {
        hw[i] = host_tensor(EP_DTYPE_BF16, 2, shapes[i], 0);
        ep_tensor_fill_random(hw[i], seed++, 1 / sqrt((double)shapes[i][1]), &e);
        assert_int_equal(ep_to_device(all, hw[i], &dw[i]), EP_OK);
        h[i] = host_tensor(EP_DTYPE_BF16, 2, (int64_t[]){rows[i], DIM}, 0);
        assert_int_equal(ep_to_device(all, h[i], &d[i]), EP_OK);
    }
    ep_block *bg, *br;
    ep_block_weights wg = {.gate = dw[0], .up = dw[1], .down = dw[2]};
    ep_block_weights wr = {.gate = hw[0], .up = hw[1], .down = hw[2]};
    assert_int_equal(ep_block_create(all, EP_BLOCK_GATED, EP_ACT_SILU, &wg, &bg), EP_OK);
    assert_int_equal(ep_block_create(ref, EP_BLOCK_GATED, EP_ACT_SILU, &wr, &br), EP_OK);
    for (int i = 0; i < INPUTS; i++) assert_int_equal(ep_block_run(br, EP_MODE_EAGER, h[i], NULL, &r[i]), EP_OK);
    for (int round = 0; round < (getenv("EPILOGUE_TEST_SMALL") ? 2 : 20); round++) {
        for (int i = 0; i < CALLS; i++)
            assert_int_equal(ep_block_run(bg, EP_MODE_TUNED, d[i % 4 == 3 ? 2 : i % 2], NULL, &y[i]), EP_OK);
        for (int i = 0; i < CALLS; i++) {
            int in = i % 4 == 3 ? 2 : i % 2;
            ep_tensor *host, *copy;
            assert_int_equal(ep_to_host(all, y[i], &host), EP_OK);
            ep_tensor_destroy(y[i]);
            if (!first[in]) {
                first[in] = host;
                assert_int_equal(ep_to_device(gpu, host, &y[i]), EP_OK);
                ep_tensor_alias(r[in], &e, &copy);
                compare("overlapped block", y[i], copy, 4 * tolerance(EP_DTYPE_BF16));
                continue;
            }
            assert_memory_equal(ep_tensor_data(host), ep_tensor_data(first[in]), (size_t)(rows[in] * DIM * 2));
            ep_tensor_destroy(host);
        }
    }
    ep_block_destroy(bg);
    ep_block_destroy(br);
    for (int i = 0; i < 3; i++) {
        ep_tensor *each[] = {h[i], d[i], hw[i], dw[i], r[i], first[i]};
        for (int t = 0; t < 6; t++) ep_tensor_destroy(each[t]);
    }
    ep_context_destroy(all);
}

/* Products of many rows: gated ones under `fewest`, and plain ones with an activation by each tile, so many rows and columns that the
 * library is not chosen. Last tiles that are cut in either direction, one tile for both warpgroups, an odd number of them; k that ends
 * within a stage and one that is shorter than the ring. */
static void in_turns(void **state) {
    (void)state;
    static const block_case cases[] = {{EP_DTYPE_BF16, 513, 72, 4104, EP_ACT_GELU_TANH, true, true, false, false},
                                       {EP_DTYPE_F16, 513, 8, 4104, EP_ACT_SILU, false, true, true, false},
                                       {EP_DTYPE_BF16, 1025, 136, 2120, EP_ACT_GELU_ERF, true, true, true, false},
                                       {EP_DTYPE_F16, 700, 456, 3001, EP_ACT_RELU, true, true, false, false},
                                       {EP_DTYPE_BF16, 2000, 61, 1507, EP_ACT_GELU_TANH, false, true, false, false}};
    static const block_case plain[] = {/* 128 x 192 in turns, 128 x 256, 128 x 128 */
                                       {EP_DTYPE_BF16, 2047, 72, 4104, EP_ACT_GELU_TANH, true, false, false, false},
                                       {EP_DTYPE_F16, 2065, 8, 4104, EP_ACT_SILU, false, false, false, false},
                                       {EP_DTYPE_BF16, 2800, 136, 2120, EP_ACT_GELU_ERF, true, false, true, false},
                                       {EP_DTYPE_BF16, 250, 72, 16370, EP_ACT_GELU_TANH, true, false, false, false},
                                       {EP_DTYPE_F16, 380, 200, 5601, EP_ACT_RELU, true, false, false, false}};
    const size_t count = sizeof cases / sizeof *cases;
    ep_error e;
    ep_context *few;
    ep_context_options o = {.device = {EP_DEVICE_CUDA, 0}, .rounding = EP_ROUNDING_FEWEST};
    assert_int_equal(ep_context_create(&o, &e, &few), EP_OK);
    bool small = getenv("EPILOGUE_TEST_SMALL") != NULL; /* the one with the least to multiply */
    for (size_t i = small; i < (small ? 2 : count); i++) {
        one_block_on(few, &cases[i]);
        one_block_on(few, &plain[i]);
        one_block(&plain[i]);
    }
    ep_context_destroy(few);
}

/* test_cuda_blocks [PATTERN] */
int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks),          cmocka_unit_test(streamed_blocks),       cmocka_unit_test(one_kernel),
        cmocka_unit_test(one_kernel_rows), cmocka_unit_test(one_kernel_overlapped), cmocka_unit_test(in_turns)};
    if (!open_gpu(argc > 1 ? argv[1] : NULL)) return 0;
    return cmocka_run_group_tests(tests, NULL, close_gpu);
}
