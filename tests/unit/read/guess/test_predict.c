/* What is guessed of a block before it runs, counted by hand. */
#include <epilogue/guess.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static const ep_machine machine = {.name = "test",
                                   .measured = true,
                                   .gflops = {{100, 200}, {400, 800}, {100, 200}},
                                   .read_gbs = {20, 40},
                                   .copy_gbs = {20, 40},
                                   .dispatch_ns = 60,
                                   .fork_join_us = 3,
                                   .cores = 2};

static ep_block_request article(ep_block_kind kind, ep_mode mode) {
    return (ep_block_request){.kind = kind,
                              .act = EP_ACT_GELU_TANH,
                              .mode = mode,
                              .dtype = EP_DTYPE_BF16,
                              .batch = 64,
                              .seq = 128,
                              .dim = 768,
                              .hidden = kind == EP_BLOCK_LINEAR ? 0 : 3072,
                              .threads = 2};
}

static ep_prediction predict(ep_block_request q) {
    ep_prediction p;
    ep_error err = {0};
    if (ep_predict_block(&q, &machine, &err, &p) != EP_OK) fail_msg("%s", err.message);
    return p;
}

static void counts(ep_block_kind kind, ep_mode mode, int64_t kernels, int64_t gemms, int64_t pointwise, int64_t ops,
                   int64_t views) {
    ep_prediction p = predict(article(kind, mode));
    assert_int_equal(p.kernels, kernels);
    assert_int_equal(p.gemms, gemms);
    assert_int_equal(p.pointwise, pointwise);
    assert_int_equal(p.launches, kernels);
    assert_int_equal(p.ops, ops);
    assert_int_equal(p.views, views);
}

static void test_counts(void **state) {
    (void)state;
    counts(EP_BLOCK_GATED, EP_MODE_EAGER, 5, 3, 2, 11, 3);
    counts(EP_BLOCK_GATED, EP_MODE_COMPILED, 4, 3, 1, 0, 0);
    counts(EP_BLOCK_GATED, EP_MODE_TUNED, 2, 2, 0, 0, 0);
    counts(EP_BLOCK_MLP, EP_MODE_EAGER, 3, 2, 1, 7, 2);
    counts(EP_BLOCK_MLP, EP_MODE_TUNED, 2, 2, 0, 0, 0);
    counts(EP_BLOCK_LINEAR, EP_MODE_EAGER, 1, 1, 0, 3, 1);
}

static void range(ep_count_range r, int64_t low, int64_t high) {
    assert_int_equal(r.low, low);
    assert_int_equal(r.high, high);
}

/* What measuring may choose is open before, and one figure after. */
static void test_ways(void **state) {
    (void)state;
    ep_block_request q = article(EP_BLOCK_GATED, EP_MODE_COMPILED);
    ep_prediction p = predict(q);
    range(p.kernel_range, 2, 5);
    range(p.gemm_range, 2, 3);
    range(p.pointwise_range, 0, 2);
    assert_int_equal(p.epilogue_kernels, 2);
    assert_int_equal(p.eager_kernels, 5);
    assert_int_equal(p.byte_range.low, predict(article(EP_BLOCK_GATED, EP_MODE_TUNED)).byte_range.low);
    assert_int_equal(p.byte_range.high, predict(article(EP_BLOCK_GATED, EP_MODE_EAGER)).byte_range.high);
    q.rounding = EP_ROUNDING_FEWEST; /* eager's bits are others */
    range(predict(q).kernel_range, 2, 4);
    q.rounding = EP_ROUNDING_EAGER;
    static const int64_t kernels[] = {
        [EP_ANSWER_PLAN] = 4, [EP_ANSWER_POST_OPS] = 4, [EP_ANSWER_EPILOGUE] = 2, [EP_ANSWER_EAGER] = 5};
    for (q.answer = EP_ANSWER_PLAN; q.answer <= EP_ANSWER_EAGER; q.answer++) {
        p = predict(q);
        range(p.kernel_range, kernels[q.answer], kernels[q.answer]);
        assert_int_equal(p.byte_range.low, p.byte_range.high);
    }
    q.answer = EP_ANSWER_UNDECIDED;
    q.specialize = EP_SPECIALIZE_STATIC;
    range(predict(q).kernel_range, 4, 5);
    q.specialize = EP_SPECIALIZE_GENERIC;
    q.act = EP_ACT_NONE; /* the product alone: f32 multiplies it before the store */
    q.dtype = EP_DTYPE_F32;
    q.answer = EP_ANSWER_POST_OPS;
    range(predict(q).kernel_range, 3, 3);
    range(predict(article(EP_BLOCK_MLP, EP_MODE_COMPILED)).kernel_range, 2, 3);
    range(predict(article(EP_BLOCK_LINEAR, EP_MODE_COMPILED)).kernel_range, 1, 1);
}

/* Gate and up of a tuned block: open, then the way that was chosen. */
static void test_tuned_pair(void **state) {
    (void)state;
    ep_block_request q = article(EP_BLOCK_GATED, EP_MODE_TUNED);
    ep_prediction p = predict(q);
    range(p.kernel_range, 2, 4);
    range(p.gemm_range, 2, 3);
    range(p.pointwise_range, 0, 1);
    assert_int_equal(p.apart_kernels, 4);
    q.tuned_pair = EP_TUNED_FUSED;
    range(predict(q).kernel_range, 2, 2);
    q.tuned_pair = EP_TUNED_WHOLE; /* the same bytes: h is written and read */
    ep_prediction two = predict(article(EP_BLOCK_GATED, EP_MODE_TUNED));
    p = predict(q);
    range(p.kernel_range, 1, 1);
    range(p.gemm_range, 1, 1);
    assert_int_equal(p.byte_range.low, p.byte_range.high);
    assert_int_equal(p.byte_range.low, two.byte_range.low);
    q.tuned_pair = EP_TUNED_APART;
    p = predict(q);
    range(p.kernel_range, 4, 4);
    q.mode = EP_MODE_COMPILED;
    q.answer = EP_ANSWER_PLAN;
    assert_int_equal(p.work.bytes_read, predict(q).work.bytes_read); /* the same four kernels */
    q = article(EP_BLOCK_MLP, EP_MODE_TUNED); /* on a GPU: the activation a pass of its own, or not */
    q.device.kind = EP_DEVICE_CUDA;
    range(predict(q).kernel_range, 2, 2);
    q.tuned_pair = EP_TUNED_APART;
    range(predict(q).kernel_range, 3, 3);
    q.tuned_pair = EP_TUNED_WHOLE;
    range(predict(q).kernel_range, 1, 1);
    q = article(EP_BLOCK_GATED, EP_MODE_TUNED);
    q.rounding = EP_ROUNDING_FEWEST; /* 16 bits that stay f32 until the store: our kernel only */
    range(predict(q).kernel_range, 2, 2);
    q.rounding = EP_ROUNDING_EAGER;
    q.device.kind = EP_DEVICE_CUDA;
    range(predict(q).kernel_range, 2, 2);
    range(predict(article(EP_BLOCK_MLP, EP_MODE_TUNED)).kernel_range, 2, 2);
}

/* Gate and up in one buffer: one product, which a view parts; on a GPU there is no epilogue. */
static void test_packed(void **state) {
    (void)state;
    const int64_t x = 8192 * 768 * 2, h = 8192LL * 3072 * 2, w = 768 * 3072 * 2;
    ep_block_request q = article(EP_BLOCK_GATED, EP_MODE_COMPILED);
    q.packed = true;
    q.device.kind = EP_DEVICE_CUDA;
    ep_prediction p = predict(q);
    assert_int_equal(p.kernels, 3);
    assert_int_equal(p.gemms, 2);
    assert_int_equal(p.pointwise, 1);
    assert_int_equal(p.work.bytes_read, x + 2 * w + 2 * h + h + w);
    range(p.kernel_range, 3, 5);
    q.answer = EP_ANSWER_PLAN;
    range(predict(q).kernel_range, 3, 3);
    q.answer = EP_ANSWER_UNDECIDED;
    q.device.kind = EP_DEVICE_CPU;
    range(predict(q).kernel_range, 2, 5);
    q.mode = EP_MODE_EAGER;
    assert_int_equal(predict(q).kernels, 5);
    q.mode = EP_MODE_COMPILED;
    q.kind = EP_BLOCK_MLP;
    q.device.kind = EP_DEVICE_CUDA; /* nothing is generated, so nothing is measured */
    range(predict(q).kernel_range, 3, 3);
}

static void test_work(void **state) {
    (void)state;
    const int64_t x = 8192 * 768 * 2, h = 8192LL * 3072 * 2, w = 768 * 3072 * 2;
    ep_prediction eager = predict(article(EP_BLOCK_GATED, EP_MODE_EAGER));
    ep_prediction tuned = predict(article(EP_BLOCK_GATED, EP_MODE_TUNED));
    assert_int_equal(eager.work.bytes_read, 2 * (x + w) + h + 2 * h + h + w);
    assert_int_equal(eager.work.bytes_written, 2 * h + h + h + x);
    assert_int_equal(eager.work.flops, 3 * 2LL * 8192 * 768 * 3072 + (22 + 1) * 8192LL * 3072);
    assert_int_equal(tuned.work.flops, eager.work.flops);
    assert_int_equal(tuned.work.bytes_read, x + 2 * w + h + w);
    assert_int_equal(tuned.work.bytes_written, h + x);
}

static void test_times(void **state) {
    (void)state;
    ep_prediction p = predict(article(EP_BLOCK_GATED, EP_MODE_EAGER));
    assert_true(p.bound.us > 0 && p.low_us >= p.bound.us && p.high_us > p.low_us);
    assert_int_equal(p.regime, EP_REGIME_COMPUTE);
    ep_block_request one = article(EP_BLOCK_GATED, EP_MODE_EAGER);
    one.batch = one.seq = 1;
    assert_int_equal(predict(one).regime, EP_REGIME_MEMORY);
    one.dim = one.hidden = 8;
    assert_int_equal(predict(one).regime, EP_REGIME_OVERHEAD);
    ep_machine blank = {.name = "nothing known"};
    ep_prediction unknown;
    assert_int_equal(ep_predict_block(&one, &blank, NULL, &unknown), EP_OK);
    assert_true(isnan(unknown.bound.us));
    assert_int_equal(unknown.regime, EP_REGIME_UNKNOWN);
}

/* A guess that leaves ways open begins at the bound of the one that has the least: 2 or 3 kernels move less than 5. */
static void test_never_below_what_is_possible(void **state) {
    (void)state;
    static const int64_t sizes[][3] = {{1, 8, 16}, {4, 64, 128}, {1, 768, 3072}, {8192, 768, 3072}, {3, 1, 2}};
    for (int i = 0; i < 5 * 3 * EP_MODE_COUNT; i++) {
        ep_block_request q = article((ep_block_kind)(i % 3), (ep_mode)(i / 3 % EP_MODE_COUNT));
        const int64_t *s = sizes[i / 3 / EP_MODE_COUNT];
        q.batch = 1, q.seq = s[0], q.dim = s[1], q.hidden = q.kind == EP_BLOCK_LINEAR ? 0 : s[2];
        ep_prediction p = predict(q);
        assert_true(p.bound.us > 0 && p.low_us >= p.bound.us && p.low_us < p.high_us);
    }
    ep_block_request q = article(EP_BLOCK_GATED, EP_MODE_COMPILED);
    q.batch = 1, q.seq = 4, q.dim = 64, q.hidden = 128;
    double open = predict(q).bound.us;
    q.answer = EP_ANSWER_EPILOGUE;
    assert_true(open == predict(q).bound.us);
    q.answer = EP_ANSWER_EAGER;
    assert_true(open < predict(q).bound.us);
}

static void test_edges(void **state) {
    (void)state;
    ep_error err = {0};
    ep_prediction p;
    ep_block_request q = article(EP_BLOCK_GATED, EP_MODE_EAGER);
    q.batch = 0;
    p = predict(q);
    assert_int_equal(p.kernels, 0);
    assert_int_equal(p.ops, 8); /* each linear with its t, and no product */
    assert_int_equal(p.views, 8);
    q.batch = -1;
    assert_int_equal(ep_predict_block(&q, &machine, &err, &p), EP_ERROR_SHAPE);
    q.batch = q.seq = q.dim = q.hidden = INT32_MAX;
    assert_int_equal(ep_predict_block(&q, &machine, &err, &p), EP_ERROR_OVERFLOW);
}

static void test_text(void **state) {
    (void)state;
    ep_guess *g = NULL;
    ep_error err = {0};
    ep_block_request q = article(EP_BLOCK_GATED, EP_MODE_TUNED);
    assert_int_equal(ep_guess_predict(&q, &machine, &err, &g), EP_OK);
    assert_non_null(strstr(ep_guess_text(g), "region step\n  kernels in 2..4\n"));
    assert_non_null(strstr(ep_guess_text(g), "fused gelu mul")); /* either way */
    assert_non_null(strstr(ep_guess_text(g), "bound = compute"));
    ep_guess_destroy(g);
    q.tuned_pair = EP_TUNED_FUSED;
    assert_int_equal(ep_guess_predict(&q, &machine, &err, &g), EP_OK);
    assert_non_null(strstr(ep_guess_text(g), "region step\n  kernels = 2\n"));
    ep_guess_destroy(g);
    q.mode = EP_MODE_COMPILED;
    assert_int_equal(ep_guess_predict(&q, &machine, &err, &g), EP_OK);
    assert_non_null(strstr(ep_guess_text(g), "region step\n  kernels in 2..5\n"));
    assert_null(strstr(ep_guess_text(g), "fused")); /* eager may be kept */
    ep_guess_destroy(g);
    q.answer = EP_ANSWER_PLAN;
    assert_int_equal(ep_guess_predict(&q, &machine, &err, &g), EP_OK);
    assert_non_null(strstr(ep_guess_text(g), "region step\n  kernels = 4\n"));
    assert_non_null(strstr(ep_guess_text(g), "fused gelu mul"));
    ep_guess_destroy(g);
    q.mode = EP_MODE_EAGER;
    assert_int_equal(ep_guess_predict(&q, &machine, &err, &g), EP_OK);
    assert_non_null(strstr(ep_guess_text(g), "op t launches = 0"));
    assert_non_null(strstr(ep_guess_text(g), "median time in "));
    ep_guess_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_counts),
                                       cmocka_unit_test(test_ways),
                                       cmocka_unit_test(test_tuned_pair),
                                       cmocka_unit_test(test_packed),
                                       cmocka_unit_test(test_work),
                                       cmocka_unit_test(test_times),
                                       cmocka_unit_test(test_never_below_what_is_possible),
                                       cmocka_unit_test(test_edges),
                                       cmocka_unit_test(test_text)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
