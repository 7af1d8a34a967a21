/* External id names a kernel's owner op in most files and is another number in some: compared with the owner that the
 * correlation gives, on every shared trace, it must come out as it was counted independently. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "read/analyze/facts.h"

static const struct {
    const char *file;
    int same, different, not_comparable;
} expected[] = {
    {"alexnet-a100-external-id.json.gz", 0, 1, 78}, /* the kernels' own correlation stands there */
    {"bert-small-h100.json.gz", 60, 0, 0},
    {"bert-small-mi300.json.gz", 60, 0, 0},
    {"article/linear_compiled.json", 3, 0, 0},
    {"article/linear_eager.json", 3, 0, 0},
    {"llama-4layers-4090x2.json", 157, 0, 0},
    {"llama-block-mi300-inductor.json.gz", 12, 0, 0},
    {"article/mlp_compiled.json", 12, 0, 0},
    {"article/mlp_eager.json", 15, 0, 0},
    {"article/mlp_liger.json", 12, 0, 0},
    {"resnet18-cpu-windows.json", 0, 0, 0},
    {"resnet50-v100-2021.json.gz", 8772, 0, 0},
    {"streams-a100-tiny.json.gz", 3, 0, 0},
    {"torchrec-v100-4gpu-rank0.json", 0, 0, 617},
    {"train-v100-ns.json.gz", 4350, 0, 0},
    {"vit-a100-inductor-bf16.json.gz", 930, 0, 0},
    {"vit-a100-inductor-int8.json.gz", 700, 0, 0},
    {"zoology-a100-no-device-events.json", 0, 0, 0},
};

typedef struct id_row {
    uint64_t id;
    uint32_t row;
} id_row;

static int by_id(const void *a, const void *b) {
    const id_row *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

static void check(size_t k) {
    char path[1024];
    ep_error err = {0};
    ep_trace *t = NULL;
    ep_facts *f = NULL;
    snprintf(path, sizeof path, EP_TEST_DIR "/trace/shared/%s", expected[k].file);
    if (ep_trace_read(path, &(ep_read_options){.keep_args = true}, &err, &t) != EP_OK) fail_msg("%s", err.message);
    assert_int_equal(ep_facts_create(t, &err, &f), EP_OK);
    id_row *ops = ep_malloc_array(t->count, sizeof *ops);
    size_t n = 0;
    assert_non_null(ops);
    for (uint32_t i = 0; i < t->count; i++)
        if (t->kind[i] == EP_EVENT_OP && ep_trace_external_id(t, i)) ops[n++] = (id_row){ep_trace_external_id(t, i), i};
    qsort(ops, n, sizeof *ops, by_id);
    int same = 0, different = 0, neither = 0;
    for (size_t i = 0; i < f->kernel_count; i++) {
        id_row key = {ep_trace_external_id(t, f->kernels[i].event), 0};
        const id_row *op = key.id && n ? bsearch(&key, ops, n, sizeof *ops, by_id) : NULL;
        bool comparable = op && ep_links_owner(f->links, f->kernels[i].event) != EP_NO_INDEX;
        same += comparable && op->row == ep_links_owner(f->links, f->kernels[i].event);
        different += comparable && op->row != ep_links_owner(f->links, f->kernels[i].event);
        neither += !comparable;
    }
    if (same != expected[k].same || different != expected[k].different || neither != expected[k].not_comparable)
        fail_msg("%s: %d same, %d different, %d not comparable", expected[k].file, same, different, neither);
    free(ops);
    ep_facts_destroy(f);
    ep_trace_destroy(t);
}

static void test_shared(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof expected / sizeof *expected; k++) check(k);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shared)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
