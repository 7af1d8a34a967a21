/* diff: the article's conclusions from its traces, one kernel into two, and what --fail-on understands. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <epilogue/analyze.h>

#include "read/analyze/diff.h"

static char *collapse(const char *text) {
    char *out = malloc(strlen(text) + 1), *p = out;
    assert_non_null(out);
    for (; *text; text++) {
        bool blank = *text == ' ' || *text == '\n';
        if (!blank)
            *p++ = *text;
        else if (p > out && p[-1] != ' ')
            *p++ = ' ';
    }
    *p = 0;
    return out;
}

static ep_report *diff(const char *a, const char *b) {
    char paths[2][512];
    ep_trace *t[2] = {NULL, NULL};
    ep_error err;
    ep_report *r = NULL;
    snprintf(paths[0], sizeof paths[0], EP_TEST_DIR "/trace/%s", a);
    snprintf(paths[1], sizeof paths[1], EP_TEST_DIR "/trace/%s", b);
    for (int i = 0; i < 2; i++)
        if (ep_trace_read(paths[i], NULL, &err, &t[i]) != EP_OK) fail_msg("%s: %s", paths[i], err.message);
    if (ep_diff(t[0], t[1], a, b, NULL, &err, &r) != EP_OK) fail_msg("%s", err.message);
    ep_trace_destroy(t[0]);
    ep_trace_destroy(t[1]);
    return r;
}

static void must_hold(const ep_report *r, const char *const *lines, size_t n) {
    char *flat = collapse(ep_report_text(r));
    for (size_t i = 0; i < n; i++)
        if (!strstr(flat, lines[i])) fail_msg("not in the report: %s\n%s", lines[i], flat);
    free(flat);
}

#define MUST_HOLD(r, lines) must_hold(r, lines, sizeof(lines) / sizeof((lines)[0]))

/* A block whose kernel makes down too takes all three products in. */
static void test_into_one(void **state) {
    (void)state;
    ep_report *r = diff("h200/geglu-eager.json.gz", "small/one_kernel.json");
    static const char *const lines[] = {"step: 5 -> 1 kernels;", "aten::gelu + aten::mul + aten::mm became 1 kernel,",
                                        "ep_bf16_gated_mlp_decode_sm90a_m8h64y16: 234.4 us -> 174.8 us"};
    MUST_HOLD(r, lines);
    ep_report_destroy(r);
}

static void test_eager_to_compiled(void **state) {
    (void)state;
    ep_report *r = diff("shared/article/mlp_eager.json", "shared/article/mlp_compiled.json");
    static const char *const lines[] = {
        "mlp_fwd: 5 -> 4 kernels;",
        ("aten::gelu + aten::mul became 1 kernel, triton_poi_fused__unsafe_view_gelu_mul_0: 68.6 us -> 55.3 us, less "
         "traffic: 100.7 MB."),
        ("At full bandwidth that kernel would take 31.5 us: it reaches 57 % of it, so a kernel written by hand has "
         "room."),
        "The 3 GEMMs keep byte-equal names",
        "2 memsets run on the device in both",
        "aten::t (3)",
        "TorchDynamo Cache Lookup (1)",
        "The host is slower in B",
    };
    MUST_HOLD(r, lines);
    assert_non_null(strstr(ep_report_json(r), "\"relation\": \"fused\""));
    assert_non_null(strstr(ep_report_json(r), "\"bytes_saved\": 100663296"));
    ep_report_destroy(r);
}

static void test_compiled_to_liger(void **state) {
    (void)state;
    ep_report *r = diff("shared/article/mlp_compiled.json", "shared/article/mlp_liger.json");
    static const char *const lines[] = {
        "triton_poi_fused__unsafe_view_gelu_mul_0 in A and _geglu_tanh_forward_kernel in B: 55.3 us -> 44.7 us: A's "
        "kernel is "
        "the slower one.",
        "at full bandwidth that takes 31.5 us: A reaches 57 % of it, B 70 %.",
        "The 3 GEMMs keep byte-equal names",
    };
    MUST_HOLD(r, lines);
    ep_report_destroy(r);
}

static void test_linear(void **state) {
    (void)state;
    ep_report *r = diff("shared/article/linear_eager.json", "shared/article/linear_compiled.json");
    static const char *const lines[] = {"Same GPU work: the same 1 kernel by byte-equal name",
                                        "Gone on the host: aten::linear (1), aten::t (1)"};
    MUST_HOLD(r, lines);
    ep_report_destroy(r);
}

/* A bias that was in the GEMM's epilogue became a kernel of its own, and the way back. */
static void test_one_into_two(void **state) {
    (void)state;
    ep_report *r = diff("explain/bias_inside.json", "explain/bias_outside.json");
    static const char *const split[] = {"fwd: 1 -> 2 kernels;",
                                        "fell apart into 2 kernels, aten::mm + aten::add: 63.5 us -> 85.0 us"};
    MUST_HOLD(r, split);
    ep_report_destroy(r);
    r = diff("explain/bias_outside.json", "explain/bias_inside.json");
    static const char *const fused[] = {"fwd: 2 -> 1 kernels;", "aten::mm + aten::add became 1 kernel"};
    MUST_HOLD(r, fused);
    ep_report_destroy(r);
}

static void test_with_itself(void **state) {
    (void)state;
    static const char *const names[] = {
        "shared/article/mlp_eager.json",     "shared/bert-small-h100.json.gz",
        "shared/resnet50-v100-2021.json.gz", "shared/zoology-a100-no-device-events.json",
        "shared/resnet18-cpu-windows.json",  "shared/torchrec-v100-4gpu-rank0.json"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        ep_report *r = diff(names[i], names[i]);
        static const char *const others[] = {"\"renamed\"", "\"fused\"", "\"split\"", "\"gone\"", "\"new\""};
        for (size_t k = 0; k < 5; k++)
            if (strstr(ep_report_json(r), others[k])) fail_msg("%s with itself: %s", names[i], others[k]);
        ep_report_destroy(r);
    }
}

typedef struct expression {
    const char *text;
    bool failed;
} expression;

static void test_fail_on(void **state) {
    (void)state;
    static const expression table[] = {
        {"kernels > +0", false},
        {"kernels < +0", true},
        {"kernels = -1", true},
        {"kernels == 4", true},
        {"kernels > 4", false},
        {"device time > 5%", false},
        {"device time < -3%", true},
        {"device time < 0.97x", true},
        {"host time > +50us", true},
        {"dispatch > +1ms", false},
        {"memsets != +0", false},
        {"new > 0", false},
        {"kernels > +0; new > 0", false},
        {"kernels > +0; dispatch > 10%", true},
        {"region mlp_fwd: gemms != +0", false},
        {"region ProfilerStep: kernels < +0", true},
        {"  kernels  >=  4  ", true},
    };
    ep_report *r = diff("shared/article/mlp_eager.json", "shared/article/mlp_compiled.json");
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        ep_error err;
        bool failed = !table[i].failed;
        char sentence[256] = "";
        if (ep_diff_fail_on(r, table[i].text, &err, &failed, sentence, sizeof sentence) != EP_OK)
            fail_msg("%s: %s", table[i].text, err.message);
        if (failed != table[i].failed) fail_msg("%s: %s", table[i].text, failed ? "failed" : "did not fail");
        assert_true(failed == (sentence[0] != 0));
    }
    static const char *const bad[] = {"",
                                      " ",
                                      "kernels",
                                      "kernels >",
                                      "kernels > x",
                                      "speed > 1",
                                      "kernels > 1 2",
                                      "region nowhere: kernels > 1",
                                      "region mlp_fwd kernels > 1",
                                      "kernels ~ 1"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ep_error err = {.line = 0};
        bool failed = false;
        assert_int_equal(ep_diff_fail_on(r, bad[i], &err, &failed, NULL, 0), EP_ERROR_PARSE);
        assert_true(err.line == 1 && err.column >= 1);
    }
    ep_report_destroy(r);
}

/* Alignment of made-up sequences, letters as names. */
static void sequence(const char *letters, ep_diff_item *items) {
    static const ep_work_row none;
    for (size_t i = 0; letters[i]; i++)
        items[i] =
            (ep_diff_item){.kernel = "k", .op = "", .row = &none, .key = (uint32_t)letters[i], .cls = EP_CLASS_GEMM};
}

static void test_align(void **state) {
    (void)state;
    static const struct {
        const char *a, *b, *match; /* per letter of a: the index in b, '-' for none */
    } table[] = {{"abc", "abc", "012"},   {"abc", "", "---"},     {"", "abc", ""},
                 {"abcd", "abd", "01-2"}, {"abd", "abcd", "013"}, {"xabc", "abc", "-012"}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        ep_diff_item a[8], b[8];
        uint32_t match[8];
        sequence(table[i].a, a);
        sequence(table[i].b, b);
        assert_true(ep_diff_align(a, strlen(table[i].a), b, strlen(table[i].b), match));
        for (size_t k = 0; table[i].match[k]; k++)
            assert_int_equal(match[k], table[i].match[k] == '-' ? EP_NO_INDEX : (uint32_t)(table[i].match[k] - '0'));
    }
}

/* Long sequences: names that occur once hold the two together; without any, blocks do. */
static void test_align_long(void **state) {
    (void)state;
    enum { N = 6000 };
    static ep_diff_item a[N], b[N + 100];
    static uint32_t match[N];
    static const ep_work_row none;
    for (int unique = 0; unique < 2; unique++) {
        for (uint32_t i = 0; i < N + 100; i++) {
            uint32_t from = i < 3000 ? i : i - 100; /* b has 100 more in its middle */
            ep_diff_item item = {.kernel = "k", .op = "", .row = &none, .cls = EP_CLASS_GEMM};
            item.key = i >= 3000 && i < 3100 ? 900000 + i : unique && from % 7 == 0 ? 10000 + from : from % 5;
            b[i] = item;
            item.key = unique && i % 7 == 0 ? 10000 + i : i % 5;
            if (i < N) a[i] = item;
        }
        a[0].key = 77, a[N - 1].key = 78; /* so that the ends do not give it away */
        assert_true(ep_diff_align(a, N, b, N + 100, match));
        int right = 0;
        for (uint32_t i = 0; i < N; i++) right += match[i] == (i < 3000 ? i : i + 100);
        if (unique) assert_true(right > N * 95 / 100);
        for (uint32_t i = 1, last = 0; i < N; i++) {
            if (match[i] == EP_NO_INDEX) continue;
            assert_true(match[i] >= last && match[i] < N + 100);
            last = match[i];
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_into_one),          cmocka_unit_test(test_eager_to_compiled),
        cmocka_unit_test(test_compiled_to_liger), cmocka_unit_test(test_linear),
        cmocka_unit_test(test_one_into_two),      cmocka_unit_test(test_with_itself),
        cmocka_unit_test(test_fail_on),           cmocka_unit_test(test_align),
        cmocka_unit_test(test_align_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
