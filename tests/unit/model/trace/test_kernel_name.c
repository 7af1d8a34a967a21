/* Our kernel names: what parses, into which fields, and that every name comes back as itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "model/trace/kernel_name.h"

typedef struct row {
    const char *text, *dtype, *op, *isa, *tile, *layout, *extra, *class_name;
} row;

static const row good[] = {
    {"ep_bf16_gemm_bias_onednn_avx512bf16_tn", "bf16", "gemm_bias", "onednn_avx512bf16", "", "tn", "", "gemm"},
    {"ep_f32_gemm_portable", "f32", "gemm", "portable", "", "", "", "gemm"},
    {"ep_bf16_geglu_avx512bf16_t14x32", "bf16", "geglu", "avx512bf16", "t14x32", "", "", "gemm"},
    {"ep_f32_geglu_avx512_u16", "f32", "geglu", "avx512", "u16", "", "", "pointwise"},
    {"ep_f32_gated_gelu_tanh_ref", "f32", "gated_gelu_tanh", "ref", "", "", "", "pointwise"},
    {"ep_f32_swiglu_backward_avx2_u8", "f32", "swiglu_backward", "avx2", "u8", "", "", "pointwise"},
    {"ep_bf16_geglu_sm90a_t128x256", "bf16", "geglu", "sm90a", "t128x256", "", "", "gemm"},
    {"ep_f16_gemm_gelu_tanh_cublaslt_tn_splitk4", "f16", "gemm_gelu_tanh", "cublaslt", "", "tn", "splitk4", "gemm"},
    {"ep_f32_gelu_tanh_avx512_u64", "f32", "gelu_tanh", "avx512", "u64", "", "", "pointwise"},
    {"ep_f32_layer_norm_ref", "f32", "layer_norm", "ref", "", "", "", "norm"},
    {"ep_f32_sum_avx2_u8_nt_last2_x", "f32", "sum", "avx2", "u8", "nt", "last2_x", "reduction"},
    {"ep_bool_copy_portable", "bool", "copy", "portable", "", "", "", "copy"},
    {"ep_i64_add_portable", "i64", "add", "portable", "", "", "", "pointwise"},
    {"ep_bf16_gated_avx512_u16", "bf16", "gated", "avx512", "u16", "", "", "pointwise"},
    {"epi_poi_gelu_tanh_mul_bf16", "bf16", "gelu_tanh_mul", "", "", "", "", "pointwise"},
    {"epi_red_sum_f32", "f32", "sum", "", "", "", "", "reduction"},
    {"epi_gem_bias_silu_f16", "f16", "bias_silu", "", "", "", "", "gemm"},
};

static const char *const bad[] = {
    "",
    "ep",
    "ep_",
    "epi_",
    "ep_f32",
    "ep_f64_add_avx2",
    "ep_f32_add",
    "ep_f32__add_avx2",
    "ep_f32_add_avx2_",
    "EP_f32_add_avx2",
    "ep_f32_add_sm",
    "ep_f32_add_smx",
    "epi_poi_f32",
    "epi_xyz_add_f32",
    "epi_poi_add_f64",
    "triton_poi_fused_gelu_mul_0",
    "void at::native::vectorized_elementwise_kernel<4>",
    "ep_f32_a-b_avx2",
    "ep_f32_sixty_four_characters_and_more_of_a_name_of_an_op_that_nobody_wrote_down_avx2",
    "ep_f32_a_a_a_a_a_a_a_a_a_a_a_a_a_a_a_a_a_a_a_a_a_a_a_a_a_a_a_a_a_a_a_a_a_avx2",
};

static void test_good(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        const row *r = &good[i];
        ep_our_name n;
        char again[128];
        if (!ep_our_name_parse(r->text, &n)) fail_msg("%s does not parse", r->text);
        assert_string_equal(n.dtype, r->dtype);
        assert_string_equal(n.op, r->op);
        assert_string_equal(n.isa, r->isa);
        assert_string_equal(n.tile, r->tile);
        assert_string_equal(n.layout, r->layout);
        assert_string_equal(n.extra, r->extra);
        assert_string_equal(n.class_name, r->class_name);
        assert_int_equal(n.generated, r->text[2] == 'i');
        assert_true(ep_our_name_make(&n, again, sizeof again));
        assert_string_equal(again, r->text);
        assert_false(ep_our_name_make(&n, again, strlen(r->text)));
    }
}

static void test_bad(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ep_our_name n;
        if (ep_our_name_parse(bad[i], &n)) fail_msg("'%s' parses", bad[i]);
    }
    char longer[400];
    memset(longer, 'a', sizeof longer);
    memcpy(longer, "ep_f32_", 7);
    longer[sizeof longer - 1] = 0;
    ep_our_name n;
    assert_false(ep_our_name_parse(longer, &n));
}

/* A field that would come back as another one is refused when the name is made. */
static void test_ambiguous(void **state) {
    (void)state;
    char out[128];
    ep_our_name op = {.dtype = "f32", .op = "add_avx2", .isa = "portable"};
    assert_false(ep_our_name_make(&op, out, sizeof out));
    ep_our_name extra = {.dtype = "f32", .op = "gemm", .isa = "avx2", .extra = "tn"};
    assert_false(ep_our_name_make(&extra, out, sizeof out));
    ep_our_name none = {.dtype = "f32", .op = "", .isa = "avx2"};
    assert_false(ep_our_name_make(&none, out, sizeof out));
    ep_our_name upper = {.dtype = "f32", .op = "Add", .isa = "avx2"};
    assert_false(ep_our_name_make(&upper, out, sizeof out));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_bad),
        cmocka_unit_test(test_ambiguous),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
