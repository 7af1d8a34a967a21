/* On every shared trace at least 95 % of the device's time is in kernels of the right class: tests/trace/kernel_names.txt
 * has the class a person gave to each name. The kernels with most time are named here, with their class. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "read/analyze/facts.h"

static const struct {
    const char *file, *top, *cls; /* top: part of the name of the kernel with most time */
} traces[] = {
    {"alexnet-a100-external-id.json.gz", "ampere_sgemm_32x32_sliced1x4_tn", "gemm"},
    {"bert-small-h100.json.gz", "cutlass_80_wmma_tensorop_bf16_s161616gemm", "gemm"},
    {"bert-small-mi300.json.gz", "attn_fwd", "attention"},
    {"llama-4layers-4090x2.json", "ncclDevKernel_ReduceScatter", "collective"},
    {"llama-block-mi300-inductor.json.gz", "Cijk_Alik_Bljk_BBS_BH", "gemm"},
    {"resnet50-v100-2021.json.gz", "cudnn::detail::dgrad_engine", "conv"},
    {"streams-a100-tiny.json.gz", "ampere_sgemm_128x64_nn", "gemm"},
    {"torchrec-v100-4gpu-rank0.json", "ncclDevKernel_SendRecv", "collective"},
    {"train-v100-ns.json.gz", "CUDAFunctor_add<float>", "pointwise"},
    {"vit-a100-inductor-bf16.json.gz", "ampere_bf16_s16816gemm_bf16_64x64", "gemm"},
    {"vit-a100-inductor-int8.json.gz", "pytorch_flash::flash_fwd_kernel", "attention"},
    {"article/linear_compiled.json", "nvjet_sm90_tst_64x8_64x16_1x2_h_bz_bias_TNT", "gemm"},
    {"article/linear_eager.json", "nvjet_sm90_tst_64x8_64x16_1x2_h_bz_bias_TNT", "gemm"},
    {"article/mlp_compiled.json", "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT", "gemm"},
    {"article/mlp_eager.json", "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT", "gemm"},
    {"article/mlp_liger.json", "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT", "gemm"},
};

typedef struct known {
    ep_intern names;
    char cls[1024][16]; /* by number of the name */
} known;
static known given;

static int read_names(void **state) {
    (void)state;
    static char line[1 << 16];
    FILE *f = fopen(EP_TEST_DIR "/trace/kernel_names.txt", "r");
    if (!f) return -1;
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        char *us = strchr(line, '\t'), *name = us ? strchr(us + 1, '\t') : NULL;
        if (line[0] == '#' || !name) continue;
        *us = 0;
        uint32_t id = ep_intern_add(&given.names, name + 1, strlen(name + 1));
        if (id < 1024) snprintf(given.cls[id], sizeof given.cls[id], "%.15s", line);
    }
    return fclose(f);
}

static int free_names(void **state) {
    (void)state;
    ep_intern_free(&given.names);
    return 0;
}

static void check(size_t k) {
    char path[1024];
    ep_error err = {0};
    ep_trace *t = NULL;
    ep_facts *f = NULL;
    snprintf(path, sizeof path, EP_TEST_DIR "/trace/shared/%s", traces[k].file);
    if (ep_trace_read(path, NULL, &err, &t) != EP_OK) fail_msg("%s: %s", path, err.message);
    assert_int_equal(ep_facts_create(t, &err, &f), EP_OK);
    int64_t all = 0, right = 0;
    for (size_t i = 0; i < f->name_count; i++) {
        const ep_kernel_kind *n = &f->names[i];
        uint32_t id = ep_intern_find(&given.names, n->name, strlen(n->name));
        const char *cls = ep_kernel_class_name((ep_kernel_class)n->cls);
        all += n->total_ns;
        if (id < 1024 && strcmp(given.cls[id], cls) == 0) right += n->total_ns;
        if (i) continue;
        if (!strstr(n->name, traces[k].top) || strcmp(cls, traces[k].cls) != 0)
            fail_msg("%s: most time is in %s %s", traces[k].file, cls, n->name);
    }
    if ((double)right < 0.95 * (double)all)
        fail_msg("%s: %.1f %% of the time has the right class", traces[k].file, 100 * (double)right / (double)all);
    ep_facts_destroy(f);
    ep_trace_destroy(t);
}

static void test_shared(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof traces / sizeof *traces; k++) check(k);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shared)};
    return cmocka_run_group_tests(tests, read_names, free_names);
}
