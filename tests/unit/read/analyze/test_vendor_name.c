/* Kernel names of vendors: classes over the names of real traces, fields of the telling ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "read/analyze/facts.h"

/* The row as it is found by searching for every part, one row after the other. */
static void plainly(const char *name, const ep_kernel_name *decoded) {
    static const struct {
        const char *pattern, *vendor;
    } rows[] = {
#define EP_VENDOR(pattern, cls, vendor, family, percent, reader, note) {pattern, vendor},
#define EP_FUNCTOR(text, op)
#include "read/analyze/vendor_names.def"
#undef EP_VENDOR
#undef EP_FUNCTOR
    };
    const char *vendor = "";
    bool found = false;
    if (strncmp(name, "void ", 5) == 0) name += 5;
    if (strcmp(name, "triton_") == 0) name = "triton_ ";
    for (size_t i = 0; i < sizeof rows / sizeof *rows && !found; i++) {
        char part[64];
        const char *p = rows[i].pattern;
        bool fits = true, first = *p == '^';
        for (p += first; *p && fits; first = false) {
            size_t n = strcspn(p, "&");
            snprintf(part, sizeof part, "%.*s", (int)n, p);
            fits = first ? strncmp(name, part, n) == 0 : strstr(name, part) != NULL;
            p += n + (p[n] == '&');
        }
        if (fits) found = true, vendor = rows[i].vendor;
    }
    if (strlen(name) < 1000 && strcmp(decoded->vendor, vendor) != 0)
        fail_msg("%s: %s, not %s", name, decoded->vendor, vendor);
}

/* tests/trace/kernel_names.txt holds every distinct kernel name of the traces under tests/trace/shared and of others,
 * with the class a person gave it. */
static void test_classes_of_real_names(void **state) {
    (void)state;
    static char line[1 << 16];
    FILE *f = fopen(EP_TEST_DIR "/trace/kernel_names.txt", "r");
    assert_non_null(f);
    double right = 0, all = 0;
    int names = 0, wrong = 0;
    while (fgets(line, sizeof line, f)) {
        if (line[0] == '#') continue;
        line[strcspn(line, "\n")] = 0;
        char *us = strchr(line, '\t'), *name = us ? strchr(us + 1, '\t') : NULL;
        assert_non_null(name);
        *us = *name = 0;
        ep_kernel_name decoded;
        ep_kernel_name_decode(name + 1, &decoded);
        const char *seen = ep_kernel_class_name(ep_kernel_class_of(&decoded));
        plainly(name + 1, &decoded);
        all += atof(us + 1);
        if (strcmp(seen, line) == 0)
            right += atof(us + 1);
        else
            print_message("%s, not %s: %.100s\n", seen, line, name + 1), wrong++;
        names++;
    }
    fclose(f);
    assert_true(names > 300);
    assert_true(right >= 0.95 * all);
    assert_int_equal(wrong, 0);
}

typedef struct picture {
    const char *name, *vendor, *arch, *dtype, *tile, *layout, *epilogue;
    int stages;
} picture;

static void test_fields(void **state) {
    (void)state;
    static const picture table[] = {
        {"ampere_bf16_s16816gemm_bf16_64x64_sliced1x2_ldg8_f2f_stages_64x6_tn", "cublas", "sm80", "bf16", "64x64", "tn",
         "", 6},
        {"ampere_bf16_s16816gemm_bf16_64x64_sliced1x2_ldg8_relu_f2f_stages_64x6_tn", "cublas", "sm80", "bf16", "64x64",
         "tn", "relu", 6},
        {"nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_bias_TNT", "cublaslt", "sm90", "bf16", "256x128", "tn", "bias", 4},
        {"nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_NTT", "cublaslt", "", "f16", "128x256", "nt", "", 4},
        {"sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__"
         "5x_"
         "cublas",
         "cublas", "sm90", "bf16", "64x64x64", "tn", "", 0},
        {"void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align2>(cutlass_80_tensorop_"
         "bf16_s16816gemm_bf16_256x128_64x3_tn_align2::Params)",
         "cutlass", "sm80", "bf16", "256x128", "tn", "", 3},
        {"Cijk_Ailk_Bjlk_HHS_BH_MT128x64x32_MI16x16x1_ISA90a_", "tensile", "gfx90a", "f16", "128x64x32", "nt", "", 0},
        {"volta_sgemm_32x128_tn", "cublas", "sm70", "f32", "32x128", "tn", "", 0},
        {"triton_poi_fused__unsafe_view_gelu_mul_0", "triton", "", "", "", "", "_unsafe_view_gelu_mul", 0},
        {"triton_poi_fused_add_mul_silu_12_0d1d2d3de", "triton", "", "", "", "", "add_mul_silu", 0},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        ep_kernel_name n;
        ep_kernel_name_decode(table[i].name, &n);
        print_message("%s\n", table[i].name);
        assert_string_equal(n.vendor, table[i].vendor);
        assert_string_equal(n.arch, table[i].arch);
        assert_string_equal(n.dtype, table[i].dtype);
        assert_string_equal(n.tile, table[i].tile);
        assert_string_equal(n.layout, table[i].layout);
        assert_string_equal(n.epilogue, table[i].epilogue);
        assert_int_equal(n.stages, table[i].stages);
        assert_true(n.confidence >= 0.9);
    }
}

/* A fused name lists ops the kernel may no longer hold, and a name may say nothing at all. */
static void test_warnings(void **state) {
    (void)state;
    ep_kernel_name n;
    ep_kernel_name_decode("triton_red_fused_add_mean_mul_pow_rsqrt_0", &n);
    assert_non_null(strstr(n.note, "no proof"));
    assert_true(n.confidence < 0.9);
    ep_kernel_name_decode("triton__0d1d2d3d", &n);
    assert_string_equal(n.class_name, "other");
    assert_true(n.confidence < 0.5);
    assert_non_null(strstr(n.note, "0d1d2d3d"));
    ep_kernel_name_decode("someone_else", &n);
    assert_true(n.confidence == 0);
    ep_kernel_name_decode("void epilogue::impl::globalKernel<float, float, float, true, true>(int)", &n);
    assert_non_null(strstr(n.note, "kernel of its own"));
    ep_kernel_name_decode("nvjet_sm90_tst_128x64_64x8_2x1_v_bz_splitK_TNN", &n);
    assert_int_equal(n.split_k, 0);
    assert_non_null(strstr(n.note, "split-K"));
}

static void test_odd_input(void **state) {
    (void)state;
    ep_kernel_name n;
    static char lots[6000];
    memset(lots, 'x', sizeof lots - 1);
    const char *odd[] = {"",
                         NULL,
                         "void ",
                         "nvjet_",
                         "nvjet_sm90_x",
                         "Cijk_",
                         "Cijk_A_B_",
                         "triton",
                         "triton_",
                         "triton_poi",
                         "_",
                         "gemm<",
                         "ep_",
                         lots,
                         "triton_poi_fused_",
                         "triton_poi_fused__0d",
                         "gemm_64x",
                         "gemm_64x64x64x64",
                         "stages_gemm"};
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        ep_kernel_name_decode(odd[i], &n);
        assert_true(n.confidence >= 0 && n.confidence <= 1);
        assert_true(strlen(n.class_name) > 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_classes_of_real_names),
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_warnings),
        cmocka_unit_test(test_odd_input),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
