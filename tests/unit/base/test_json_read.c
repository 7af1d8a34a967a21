/* The pull parser: tokens, mends with their places, errors with theirs, and the same answers however the input is cut
 * into windows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/json_read.h"
#include "base/json_scan.h"

static void note(void *user, const char *kind, int64_t offset) {
    ep_text_printf(user, " %s@%lld", kind, (long long)offset);
}

/* Reads everything and gives one line: the value in canonical text, then the mends, then the error. */
static char *read_all(const char *text, size_t n, bool tolerant, size_t window) {
    ep_error err = {0};
    ep_json_in j;
    ep_stream_in *stream = NULL;
    ep_text out = {0}, mends = {0};
    if (window) {
        assert_int_equal(ep_stream_memory(text, n, &err, &stream), EP_OK);
        assert_int_equal(ep_json_open_stream(&j, stream, window, &err), EP_OK);
    } else {
        ep_json_open_memory(&j, text, n, &err);
    }
    j.tolerant = tolerant;
    j.mend = note;
    j.mend_user = &mends;
    ep_json_token t;
    ep_status status = ep_json_copy(&j, &out, SIZE_MAX, NULL);
    if (status == EP_OK) status = ep_json_next(&j, &t);
    if (status == EP_OK) assert_int_equal(t.type, EP_JSON_END);
    if (status != EP_OK) {
        ep_text_clear(&out);
        ep_text_printf(&out, "%s at %lld", ep_status_name(status), (long long)err.position);
    }
    ep_text_add(&out, ep_text_str(&mends));
    ep_text_free(&mends);
    ep_json_close(&j);
    ep_stream_close(stream);
    return ep_text_take(&out);
}

static const struct {
    bool tolerant;
    const char *text, *expected;
} cases[] = {
    {false, "{\"a\":[1,-2.5e3,true,false,null,\"x\"],\"b\":{}}",
     "{\"a\": [1, -2.5e3, true, false, null, \"x\"], \"b\": {}}"},
    {false, " [ ] ", "[]"},
    {false, "\"\\u00e9\\ud83d\\ude42\\n\\/\\u0000\"", "\"\xc3\xa9\xf0\x9f\x99\x82\\n/\xef\xbf\xbd\""},
    {false, "[1 2]", "parse at 3"},
    {false, "[1,]", "parse at 3"},
    {false, "{\"a\" 1}", "parse at 5"},
    {false, "[nan]", "parse at 1"},
    {false, "\"a\x01\"", "parse at 2"},
    {false, "\"\xff\"", "parse at 1"},
    {false, "\"\\q\"", "parse at 1"},
    {false, "{\"a\":1", "truncated at 6"},
    {false, "[\"abc", "truncated at 1"},
    {false, "", "truncated at 0"},
    {false, "[] x", "parse at 3"},
    {false, "[1}", "parse at 2"},
    {false, "[01x]", "parse at 1"},
    {true, "[1 2]", "[1, 2] missing_comma@3"},
    {true, "[{} {},]", "[{}, {}] missing_comma@4 extra_comma@7"},
    {true, "[,{},,{}]", "[{}, {}] extra_comma@1 extra_comma@5"},
    {true, "{\"a\":1 \"b\":2,}", "{\"a\": 1, \"b\": 2} missing_comma@7 extra_comma@13"},
    {true, "[inf,-inf,NaN,-nan,Infinity,1.#INF]",
     "[null, null, null, null, null, null] bare_number@1 bare_number@5 bare_number@10 bare_number@14 bare_number@19 "
     "bare_number@28"},
    {true,
     "\"a\x01"
     "b\nc\xff\"",
     "\"a\\u0001b\\nc\xef\xbf\xbd\" control_byte@2 control_byte@4 invalid_utf8@6"},
    {true, "\"C:\\Users\\q\"", "\"C:\\\\Users\\\\q\" backslash@3 backslash@9"},
    {true, "[\"D:\\dir\\\",\n\"x\"]", "[\"D:\\\\dir\\\\\", \"x\"] backslash@4 backslash@8"},
    {true, "\"D:\\new\\q\\\"x\"", "\"D:\\\\new\\\\q\\\"x\" backslash@3 backslash@7"},
    {true, "[\"say \\\"hi\\\", then\"]", "[\"say \\\"hi\\\", then\"]"},
    {true, "{\"a\":}", "parse at 5"},
    {true, "{\"a\":tru", "truncated at 5"},
};

static void test_cases(void **state) {
    (void)state;
    static const size_t windows[] = {0, 64, 16, 8, 4};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t w = 0; w < sizeof windows / sizeof *windows; w++) {
            char *got = read_all(cases[i].text, strlen(cases[i].text), cases[i].tolerant, windows[w]);
            if (strcmp(got, cases[i].expected) != 0) print_error("case %zu window %zu\n", i, windows[w]);
            assert_string_equal(got, cases[i].expected);
            free(got);
        }
}

static void test_deep(void **state) {
    (void)state;
    enum { DEPTH = 100000 };
    char *text = malloc(DEPTH);
    memset(text, '[', DEPTH);
    char *got = read_all(text, DEPTH, true, 0);
    assert_string_equal(got, "parse at 256");
    free(got);
    memset(text + 1, ',', DEPTH - 1); /* many mends must not recurse */
    got = read_all(text, DEPTH, true, 4096);
    assert_memory_equal(got, "truncated at 100000", 19);
    free(got);
    free(text);
}

static void test_mark(void **state) {
    (void)state;
    ep_error err;
    ep_stream_in *stream;
    char text[3000] = "[";
    for (int i = 0; i < 280; i++) memcpy(text + 1 + i * 10, "\"abcdef\",\n", 10);
    memcpy(text + 2801, "1]", 2);
    assert_int_equal(ep_stream_memory(text, 2803, &err, &stream), EP_OK);
    ep_json_in j;
    assert_int_equal(ep_json_open_stream(&j, stream, 32, &err), EP_OK);
    ep_json_token t;
    assert_int_equal(ep_json_next(&j, &t), EP_OK);
    ep_json_set_mark(&j);
    for (int i = 0; i < 100; i++) assert_int_equal(ep_json_next(&j, &t), EP_OK);
    assert_true(j.mark >= j.window && j.mark < j.at);
    assert_memory_equal(j.mark, "\"abcdef\",\n\"abc", 14);
    j.at = j.mark;
    ep_json_unmark(&j);
    assert_int_equal(ep_json_offset(&j), 1);
    size_t n = 0;
    ep_json_resume_at_value(&j, 1);
    j.tolerant = true;
    do {
        assert_int_equal(ep_json_next(&j, &t), EP_OK);
        n++;
    } while (t.type != EP_JSON_ARRAY_END);
    assert_int_equal(n, 282);
    assert_true(j.buffer_size <= 4096);
    ep_json_close(&j);
    ep_stream_close(stream);
}

static void test_copy_limit(void **state) {
    (void)state;
    ep_error err;
    ep_json_in j;
    const char *text = "[[1,2,3,4,5,6,7,8,9],7]";
    ep_json_open_memory(&j, text, strlen(text), &err);
    ep_json_token t;
    ep_text out = {0};
    bool whole = true;
    assert_int_equal(ep_json_next(&j, &t), EP_OK);
    assert_int_equal(ep_json_copy(&j, &out, 5, &whole), EP_OK);
    assert_false(whole);
    assert_int_equal(ep_json_next(&j, &t), EP_OK);
    assert_int_equal(t.type, EP_JSON_NUMBER);
    assert_memory_equal(t.text, "7", 1);
    ep_text_free(&out);
    ep_json_close(&j);
}

static void test_numbers(void **state) {
    (void)state;
    static const struct {
        const char *text;
        bool ok;
        int64_t value;
    } rows[] = {
        {"1712195495541300.987", true, 1712195495541300987},
        {"1669329643132548.125", true, 1669329643132548125},
        {"1669329643132548.25", true, 1669329643132548250},
        {"0", true, 0},
        {"-1.5", true, -1500},
        {"0.0004", true, 0},
        {"0.0005", true, 1},
        {"1.23456", true, 1235},
        {"1e3", true, 1000000},
        {"1.5E-3", true, 2},
        {"9223372036854775.807", true, INT64_MAX},
        {"9223372036854775.808", false, 0},
        {"1e300", false, 0},
        {"0e99999999999", true, 0},
        {"", false, 0},
        {"-", false, 0},
        {"12a", false, 0},
        {"1.", true, 1000},
        {"1234567890123456.12345678901234567890", true, 1234567890123456123},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t v = 0;
        assert_int_equal(ep_json_decimal(rows[i].text, strlen(rows[i].text), 3, &v), rows[i].ok);
        if (rows[i].ok) assert_int_equal(v, rows[i].value);
    }
    uint64_t u;
    assert_true(ep_json_u64("18446744073709551615", 20, &u));
    assert_true(u == UINT64_MAX);
    assert_false(ep_json_u64("18446744073709551616", 20, &u));
    assert_false(ep_json_u64("-1", 2, &u));
}

static void test_scan(void **state) {
    (void)state;
    char text[80];
    uint32_t seed = 1;
    for (int round = 0; round < 20000; round++) {
        for (size_t i = 0; i < sizeof text; i++) {
            seed = seed * 1664525u + 1013904223u;
            text[i] = seed >> 24 < 250 ? (char)('a' + seed % 26) : (char)(seed >> 8);
        }
        size_t from = seed % 40, n = from + seed / 64 % (sizeof text - from);
        assert_ptr_equal(ep_json_scan(text + from, text + n), ep_json_scan_plain(text + from, text + n));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases),   cmocka_unit_test(test_deep),
                                       cmocka_unit_test(test_mark),    cmocka_unit_test(test_copy_limit),
                                       cmocka_unit_test(test_numbers), cmocka_unit_test(test_scan)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
