/* Listed GPUs by the names that traces carry. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "model/machine/gpus.h"

static void test_names_of_real_traces(void **state) {
    (void)state;
    static const struct {
        const char *device, *name;
        double bf16_tflops, gbs;
    } table[] = {
        {"NVIDIA H200", "NVIDIA H200 SXM", 989.5, 4800},
        {"NVIDIA H100 80GB HBM3", "NVIDIA H100 SXM", 989.5, 3350},
        {"NVIDIA H100 PCIe", "NVIDIA H100 PCIe", 756, 2000},
        {"NVIDIA H100 NVL", "NVIDIA H100 NVL", 835.5, 3900},
        {"NVIDIA A100-SXM4-80GB", "NVIDIA A100 SXM4 80GB", 312, 2039},
        {"NVIDIA A100 80GB PCIe", "NVIDIA A100 PCIe 80GB", 312, 1935},
        {"NVIDIA A100-PG509-200", "NVIDIA A100 40GB", 312, 1555},
        {"NVIDIA PG509-210", "NVIDIA A100 SXM4 80GB", 312, 2039},
        {"NVIDIA A10", "NVIDIA A10", 125, 600},
        {"NVIDIA A10G", "NVIDIA A10G", 70, 600},
        {"NVIDIA L4", "NVIDIA L4", 121, 300},
        {"NVIDIA L40S", "NVIDIA L40S", 362, 864},
        {"Tesla V100-SXM2-16GB", "NVIDIA V100 SXM2", 0, 900},
        {"Tesla T4", "NVIDIA T4", 0, 320},
        {"NVIDIA GeForce RTX 4090", "NVIDIA RTX 4090", 165.2, 1008},
        {"NVIDIA GeForce RTX 3090", "NVIDIA RTX 3090", 71.2, 936},
        {"NVIDIA B200", "NVIDIA B200", 2250, 8000},
        {"AMD Instinct MI300X VF", "AMD Instinct MI300X", 1307.4, 5300},
        {"AMD Instinct MI250X", "AMD Instinct MI250X, one GCD", 191.5, 1638},
        {"AMD Instinct MI210", "AMD Instinct MI210", 181, 1638},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        ep_machine m;
        print_message("%s\n", table[i].device);
        assert_int_equal(ep_machine_by_name(table[i].device, &m), EP_OK);
        assert_string_equal(m.name, table[i].name);
        assert_true(m.gflops[EP_DTYPE_BF16][1] == table[i].bf16_tflops * 1e3);
        assert_true(m.read_gbs[1] == table[i].gbs);
        assert_true(strlen(m.source) > 0);
        assert_false(m.measured);
    }
}

static void test_unlisted(void **state) {
    (void)state;
    ep_machine m;
    memset(&m, 7, sizeof m);
    ep_machine before = m;
    assert_int_equal(ep_machine_by_name("Some Accelerator", &m), EP_ERROR_NOT_FOUND);
    assert_int_equal(ep_machine_by_name("", &m), EP_ERROR_NOT_FOUND);
    assert_int_equal(ep_machine_by_name(NULL, &m), EP_ERROR_NOT_FOUND);
    assert_memory_equal(&m, &before, sizeof m);
    assert_true(ep_gpu_tflops("NVIDIA H200", "tf32") == 494.5);
    assert_true(ep_gpu_tflops("Tesla T4", "bf16") == 0);
    assert_true(ep_gpu_tflops("Some Accelerator", "bf16") == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_names_of_real_traces), cmocka_unit_test(test_unlisted)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
