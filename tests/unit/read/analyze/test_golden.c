/* Whole outputs of the reading half beside the files in tests/trace/golden, line by line: keys, figures and sentences that no
 * other test names. After a change that is meant, EPILOGUE_TEST_UPDATE=1 writes the files anew; read the difference. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <epilogue/analyze.h>
#include <epilogue/guess.h>

static ep_trace *read(const char *name) {
    char path[512];
    ep_error err;
    ep_trace *t = NULL;
    snprintf(path, sizeof path, EP_TEST_DIR "/trace/%s", name);
    if (ep_trace_read(path, NULL, &err, &t) != EP_OK) fail_msg("%s: %s", path, err.message);
    return t;
}

static char *read_golden(const char *path) {
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("%s is not there: EPILOGUE_TEST_UPDATE=1 writes it", path);
    enum { MOST = 1 << 20 };
    char *text = malloc(MOST);
    assert_non_null(text);
    size_t n = fread(text, 1, MOST - 1, f);
    fclose(f);
    assert_true(n < MOST - 1);
    text[n] = 0;
    return text;
}

static void write_golden(const char *path, const char *text) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void must_equal(const char *name, const char *got) {
    char path[512];
    snprintf(path, sizeof path, EP_TEST_DIR "/trace/golden/%s", name);
    if (getenv("EPILOGUE_TEST_UPDATE")) {
        write_golden(path, got);
        return;
    }
    char *golden = read_golden(path);
    const char *want = golden;
    for (int line = 1; *got || *want; line++) {
        int n = (int)strcspn(got, "\n"), m = (int)strcspn(want, "\n");
        if (n != m || memcmp(got, want, (size_t)n) != 0)
            fail_msg("%s, line %d:\n got %.*s\nwant %.*s", name, line, n, got, m, want);
        got += n + (got[n] == '\n');
        want += m + (want[m] == '\n');
    }
    free(golden);
}

static void test_explain(void **state) {
    (void)state;
    static const struct {
        const char *golden, *traces[2];
    } rows[] = {{"explain_eager.json", {"shared/article/mlp_eager.json"}},
                {"explain_training_step.json", {"explain/training_step.json"}},
                {"explain_recompiles.json", {"explain/recompiles.json"}},
                {"explain_lost_kernels.json", {"small/lost_kernels.json"}},
                {"explain_host_products.json", {"small/host_products.json"}},
                {"explain_collectives.json", {"explain/collectives.json"}},
                {"explain_copies_feed_gated.json", {"explain/copies_feed_gated.json"}},
                {"explain_chain.json", {"explain/chain.json"}},
                {"explain_ranks.json", {"explain/rank0.json", "explain/rank1.json"}}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t count = rows[i].traces[1] ? 2 : 1;
        ep_trace *t[2] = {read(rows[i].traces[0]), count > 1 ? read(rows[i].traces[1]) : NULL};
        ep_error err;
        ep_report *r = NULL;
        if (ep_explain((const ep_trace *const *)t, rows[i].traces, count, NULL, &err, &r) != EP_OK)
            fail_msg("%s: %s", rows[i].golden, err.message);
        must_equal(rows[i].golden, ep_report_json(r));
        ep_report_destroy(r);
        for (size_t k = 0; k < count; k++) ep_trace_destroy(t[k]);
    }
}

static void test_diff(void **state) {
    (void)state;
    ep_trace *a = read("shared/article/mlp_eager.json"), *b = read("shared/article/mlp_compiled.json");
    ep_error err;
    ep_report *r = NULL;
    assert_int_equal(ep_diff(a, b, "eager", "compiled", NULL, &err, &r), EP_OK);
    must_equal("diff_eager_compiled.json", ep_report_json(r));
    ep_report_destroy(r);
    ep_trace_destroy(a);
    ep_trace_destroy(b);
}

/* The one line of a list's JSON behind its path, an object a line. */
static void list_must_equal(const char *name, const char *json) {
    const char *from = strstr(json, "\"level\"");
    assert_non_null(from);
    char *lines = malloc(2 * strlen(from) + 1), *p = lines;
    assert_non_null(lines);
    for (; *from; from++) {
        if (*from == '{') *p++ = '\n';
        *p++ = *from;
    }
    *p = 0;
    must_equal(name, lines);
    free(lines);
}

static void test_list(void **state) {
    (void)state;
    ep_trace *t = read("explain/training_step.json");
    ep_error err;
    ep_report *r = NULL;
    assert_int_equal(ep_list(t, &(ep_list_options){.level = 1, .kernels = true}, &err, &r), EP_OK);
    must_equal("list_training_step.txt", ep_report_text(r));
    list_must_equal("list_training_step.json", ep_report_json(r));
    ep_report_destroy(r);
    ep_trace_destroy(t);
    t = read("shared/article/mlp_eager.json");
    assert_int_equal(ep_list(t, &(ep_list_options){.kernels = true, .region = "mlp_fwd"}, &err, &r), EP_OK);
    list_must_equal("list_eager_region.json", ep_report_json(r));
    ep_report_destroy(r);
    ep_trace_destroy(t);
}

static void test_guess(void **state) {
    (void)state;
    static const char *const rows[][2] = {{"guess_eager.guess", "shared/article/mlp_eager.json"},
                                          {"guess_training_step.guess", "explain/training_step.json"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ep_trace *t = read(rows[i][1]);
        ep_error err;
        ep_guess *g = NULL;
        ep_verdicts *v = NULL;
        assert_int_equal(ep_guess_from_trace(t, &err, &g), EP_OK);
        must_equal(rows[i][0], ep_guess_text(g));
        assert_int_equal(ep_guess_check(g, t, NULL, &err, &v), EP_OK);
        char name[64];
        snprintf(name, sizeof name, "check_%s", strrchr(rows[i][1], '/') + 1);
        must_equal(name, ep_verdicts_json(v));
        ep_verdicts_destroy(v);
        ep_guess_destroy(g);
        ep_trace_destroy(t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_explain), cmocka_unit_test(test_diff),
                                       cmocka_unit_test(test_list), cmocka_unit_test(test_guess)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
