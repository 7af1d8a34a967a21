/* Work of PyTorch ops from recorded shapes, checked against sums done by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "read/analyze/torch_args.h"
#include "read/analyze/torch_work.h"

static uint32_t text(ep_trace *t, const char *s) {
    return s ? ep_trace_string(t, s, strlen(s)) : 0;
}

static ep_op_work work_of(const char *name, const char *dims, const char *types, const char *concrete) {
    ep_trace *t = ep_trace_create();
    assert_non_null(t);
    t->has_shapes = true;
    ep_event_info info = {.bytes = -1, .flops = -1, .bytes_read = -1, .bytes_written = -1, .graph_id = -1};
    info.input_dims = text(t, dims);
    info.input_types = text(t, types);
    info.concrete_inputs = text(t, concrete);
    uint32_t row = ep_trace_append(t);
    t->kind[row] = EP_EVENT_OP;
    t->name[row] = text(t, name);
    t->info[row] = ep_trace_info(t, &info);
    ep_op_work w;
    ep_torch_work(t, row, &w);
    ep_trace_destroy(t);
    return w;
}

typedef struct picture {
    const char *name, *dims, *types, *concrete;
    int64_t flops, read, written, out_numel;
} picture;

static void test_known_work(void **state) {
    (void)state;
    static const picture table[] = {
        {"aten::mm", "[[8192, 768], [768, 3072]]", "[\"c10::BFloat16\", \"c10::BFloat16\"]", NULL,
         2LL * 8192 * 768 * 3072, 2LL * (8192 * 768 + 768 * 3072), 2LL * 8192 * 3072, 8192LL * 3072},
        {"aten::addmm", "[[64],[1024,32],[32,64],[],[]]",
         "[\"c10::BFloat16\",\"c10::BFloat16\",\"c10::BFloat16\",\"Scalar\",\"Scalar\"]", NULL,
         2LL * 1024 * 32 * 64 + 1024 * 64, 2LL * (64 + 1024 * 32 + 32 * 64), 2LL * 1024 * 64, 1024LL * 64},
        {"aten::mm", "[[10, 20], [20, 30]]", "[\"c10::complex<float>\", \"c10::complex<float>\"]", NULL,
         8LL * 10 * 20 * 30, 8LL * (200 + 600), 8LL * 300, 300},
        {"aten::bmm", "[[4, 8, 16], [4, 16, 32]]", "[\"float\", \"float\"]", NULL, 2LL * 4 * 8 * 16 * 32,
         4LL * (4 * 8 * 16 + 4 * 16 * 32), 4LL * 4 * 8 * 32, 4LL * 8 * 32},
        {"aten::linear", "[[64, 128, 768], [3072, 768], []]", "[\"c10::Half\", \"c10::Half\", \"\"]", NULL,
         2LL * 8192 * 768 * 3072, 2LL * (8192 * 768 + 768 * 3072), 2LL * 8192 * 3072, 8192LL * 3072},
        {"aten::matmul", "[[2, 3, 5, 7], [7, 11]]", "[\"float\", \"float\"]", NULL, 2LL * 30 * 7 * 11, 4LL * (210 + 77),
         4LL * 330, 330},
        {"aten::gelu", "[[64, 128, 3072], []]", "[\"c10::BFloat16\", \"\"]", NULL, 20LL * 25165824, 2LL * 25165824,
         2LL * 25165824, 25165824},
        {"aten::mul", "[[64, 128, 3072], [64, 128, 3072]]", "[\"c10::BFloat16\", \"c10::BFloat16\"]", NULL, 25165824,
         4LL * 25165824, 2LL * 25165824, 25165824},
        {"aten::add", "[[8, 1, 4], [5, 4], []]", "[\"float\", \"float\", \"Scalar\"]", NULL, 160, 4LL * (32 + 20),
         4LL * 160, 160},
        {"aten::eq", "[[10], []]", "[\"long int\", \"Scalar\"]", NULL, 10, 80, 10, 10},
        {"aten::fill_", "[[6, 7], []]", "[\"float\", \"Scalar\"]", NULL, 0, 0, 168, 42},
        {"aten::copy_", "[[6], [6], []]", "[\"c10::BFloat16\", \"float\", \"Scalar\"]", NULL, 0, 24, 12, 6},
        {"aten::native_layer_norm", "[[1, 141, 512], [], [512], [512], []]",
         "[\"c10::BFloat16\", \"ScalarList\", \"c10::BFloat16\", \"c10::BFloat16\", \"Scalar\"]", NULL, 8LL * 141 * 512,
         2LL * (141 * 512 + 1024), 2LL * 141 * 512, 141LL * 512},
        {"aten::embedding", "[[30522, 512], [1, 141], [], [], []]",
         "[\"c10::BFloat16\", \"long int\", \"Scalar\", \"Scalar\", \"Scalar\"]", NULL, 0, 2LL * 141 * 512 + 141 * 8,
         2LL * 141 * 512, 141LL * 512},
        {"aten::_scaled_dot_product_flash_attention", "[[1, 8, 141, 64], [1, 8, 141, 64], [1, 8, 141, 64]]",
         "[\"c10::Half\", \"c10::Half\", \"c10::Half\"]", "[\"\", \"\", \"\"]", 4LL * 8 * 141 * 141 * 64,
         3LL * 2 * 8 * 141 * 64, 2LL * 8 * 141 * 64, 8LL * 141 * 64},
        {"aten::convolution", "[[32, 3, 224, 224], [64, 3, 7, 7], [], [], [], [], [], [], []]",
         "[\"float\", \"float\", \"\", \"\", \"\", \"\", \"Scalar\", \"\", \"Scalar\"]",
         "[\"\", \"\", \"\", \"[2, 2]\", \"[3, 3]\", \"[1, 1]\", \"False\", \"[0, 0]\", \"1\"]",
         2LL * 32 * 64 * 112 * 112 * 147, 4LL * (32 * 3 * 224 * 224 + 64 * 147), 4LL * 32 * 64 * 112 * 112,
         32LL * 64 * 112 * 112},
        {"aten::cat", "[[[2048, 8], [2048, 8]], [4]]", "[\"TensorList\", \"float\"]", "[\"\", \"\"]", 0, 4LL * 32768,
         4LL * 32768, 32768},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        ep_op_work w = work_of(table[i].name, table[i].dims, table[i].types, table[i].concrete);
        print_message("%s\n", table[i].name);
        assert_true(w.known);
        assert_int_equal(w.flops, table[i].flops);
        assert_int_equal(w.bytes_read, table[i].read);
        assert_int_equal(w.bytes_written, table[i].written);
        assert_int_equal(w.out_numel, table[i].out_numel);
    }
}

static void test_gemm_sizes(void **state) {
    (void)state;
    ep_op_work w = work_of("aten::addmm", "[[64], [1024, 32], [32, 64], [], [], [1024, 64]]",
                           "[\"c10::BFloat16\", \"c10::BFloat16\", \"c10::BFloat16\", \"Scalar\", \"Scalar\", "
                           "\"c10::BFloat16\"]",
                           NULL);
    assert_true(w.gemm && w.bias);
    assert_int_equal(w.m, 1024);
    assert_int_equal(w.n, 64);
    assert_int_equal(w.k, 32);
    assert_string_equal(w.dtype, "bf16");
}

/* Unknown stays unknown, with its reason. */
static void test_unknown(void **state) {
    (void)state;
    ep_op_work w = work_of("aten::mm", NULL, NULL, NULL);
    assert_false(w.known);
    assert_non_null(w.reason);
    w = work_of("aten::conv2d", "[[5, 3, 224, 224], [64, 3, 7, 7]]", "[\"float\", \"float\"]", NULL);
    assert_false(w.known);
    assert_string_equal(w.reason, "stride and padding were not recorded");
    w = work_of("aten::mm", "[[8, 7], [6, 5]]", "[\"float\", \"float\"]", NULL);
    assert_false(w.known);
    w = work_of("aten::nonzero", "[[8, 7]]", "[\"float\"]", NULL);
    assert_string_equal(w.reason, "no rule for this op");
    w = work_of("aten::cat", "[[[2048, 8], [2048, 8]], []]", "[\"TensorList\", \"Scalar\"]", NULL);
    assert_string_equal(w.reason, "the dtype of a list is not recorded");
    w = work_of("triton_poi_fused_gelu_mul_0", "[[64, 8], [64, 8], []]", "[\"float\", \"float\", \"Scalar\"]", NULL);
    assert_true(w.known && w.at_least);
    assert_int_equal(w.bytes_read, 4096);
}

static ep_operand strided(const char *dims, const char *strides) {
    ep_operand o[3];
    int n = ep_torch_operands(dims, "[\"float\", \"float\", \"Scalar\"]", o, 3);
    ep_torch_strides(strides, o, n);
    return o[n > 1];
}

/* The second operand of two: what an expanded one reads are the elements that differ. */
static void test_expanded(void **state) {
    (void)state;
    static const struct {
        const char *dims, *strides;
        int64_t bytes;
        bool expanded;
    } table[] = {
        {"[[4], [16, 256, 512], []]", "[[1], [0, 0, 0], []]", 4, true},
        {"[[4], [16, 256, 512], []]", "[[1],[131072,0,1],[]]", 4 * 16 * 512, true},
        {"[[4], [1, 256], []]", "[[1], [0, 1], []]", 4 * 256, false}, /* a stride of one element says nothing */
        {"[[4], [16, 256], []]", "[[1], [256, 1], []]", 4 * 16 * 256, false},
        {"[[4], [2, 2, 2], []]", "[[1], [1000000000000, 0, 1000000], []]", 4 * 4, true},
        {"[[4], [0, 3], []]", "[[1], [0, 0], []]", 0, false},
        {"[[4], [3, 3], []]", "[[1], [0], []]", 36, false}, /* damaged: another rank, no numbers, cut off */
        {"[[4], [3, 3], []]", "[[1], [x, 0], []]", 36, false},
        {"[[4], [3, 3], []]", "[[1], [0, 0", 36, false},
        {"[[4], [3, 3], []]", "[[1], [[0, 0]], []]", 36, false},
        {"[[4], [3, 3], []]", "[[1], [0,0,0,0,0,0,0,0,0,0], []]", 36, false},
        {"[[4], [3, 3], []]", "", 36, false},
        {"[[[4], [4]], [8, 8], []]", "[[[1], [0]], [0, 1], []]", 32, true}, /* behind a list of tensors */
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        ep_operand o = strided(table[i].dims, table[i].strides);
        print_message("%s %s\n", table[i].dims, table[i].strides);
        assert_int_equal(o.bytes, table[i].bytes);
        assert_int_equal(o.expanded, table[i].expanded);
    }
}

static void test_odd_arguments(void **state) {
    (void)state;
    static const char *const odd[] = {"",
                                      "[",
                                      "[[",
                                      "[[]",
                                      "[[1",
                                      "[[1,",
                                      "x",
                                      "[x]",
                                      "[[[[[[[[[[1]]]]]]]]]]",
                                      "[[-1]]",
                                      "[[1,2,3,4,5,6,7,8,9,10]]",
                                      "[[9223372036854775807, 9223372036854775807]]",
                                      "[[99999999999999999999999]]",
                                      "[[1.5]]",
                                      "[[1], null]"};
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        ep_op_work w = work_of("aten::mm", odd[i], "[\"float\", \"float", "[\"");
        assert_false(w.known);
        w = work_of("aten::add", odd[i], "[\"float\"", "");
        assert_true(!w.known || w.bytes_read >= 0);
    }
    /* more work than 64 bits hold */
    ep_op_work huge =
        work_of("aten::mm", "[[1099511627776, 128], [128, 1099511627776]]", "[\"float\", \"float\"]", NULL);
    assert_true(huge.flops > 0 && huge.out_bytes > 0);
    int64_t v[3];
    assert_true(ep_torch_ints("[\"\", \"[2, 3]\"]", 1, 2, v));
    assert_int_equal(v[1], 3);
    assert_true(ep_torch_ints("[\"7\"]", 0, 3, v));
    assert_int_equal(v[2], 7);
    assert_false(ep_torch_ints("[\"\"]", 0, 1, v));
    assert_false(ep_torch_ints(NULL, 0, 1, v));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_work), cmocka_unit_test(test_gemm_sizes),    cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_expanded),   cmocka_unit_test(test_odd_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
