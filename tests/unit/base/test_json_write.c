/* What the JSON writer writes, letter by letter. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_write.h"

static void check(ep_json_out *o, const char *expected) {
    char *text = ep_json_take(o);
    assert_non_null(text);
    assert_string_equal(text, expected);
    free(text);
}

static void test_nesting(void **state) {
    (void)state;
    ep_json_out o = {0};
    ep_json_object(&o);
    ep_json_key(&o, "a");
    ep_json_array(&o);
    ep_json_int(&o, -3);
    ep_json_uint(&o, UINT64_MAX);
    ep_json_array(&o);
    ep_json_end(&o);
    ep_json_bool(&o, true);
    ep_json_null(&o);
    ep_json_end(&o);
    ep_json_key(&o, "b");
    ep_json_raw(&o, "[1]", 3);
    ep_json_members(&o, "\"c\": 1, \"d\": 2", 14);
    ep_json_key(&o, "e");
    ep_json_int(&o, 3);
    ep_json_end(&o);
    check(&o, "{\"a\": [-3,18446744073709551615,[],true,null],\"b\": [1],\"c\": 1, \"d\": 2,\"e\": 3}");
}

static void test_members(void **state) {
    (void)state;
    ep_json_out o = {0};
    ep_json_object(&o);
    ep_json_put_str(&o, "a \"b\"", "c");
    ep_json_put_str(&o, "none", NULL);
    ep_json_put_int(&o, "int", INT64_MIN);
    ep_json_put_uint(&o, "uint", UINT64_MAX);
    ep_json_put_known(&o, "known", 0);
    ep_json_put_known(&o, "unknown", -1);
    ep_json_put_fixed(&o, "fixed", 0.125, 2);
    ep_json_put_fixed(&o, "not finite", NAN, 2);
    ep_json_put_us(&o, "us", 2500);
    ep_json_put_bool(&o, "bool", false);
    ep_json_put_object(&o, "object");
    ep_json_put_array(&o, "array");
    ep_json_end(&o);
    ep_json_end(&o);
    ep_json_end(&o);
    check(&o, "{\"a \\\"b\\\"\": \"c\",\"none\": null,\"int\": -9223372036854775808,\"uint\": 18446744073709551615,"
              "\"known\": 0,\"unknown\": null,\"fixed\": 0.12,\"not finite\": null,\"us\": 2.5,\"bool\": false,"
              "\"object\": {\"array\": []}}");
}

static void test_strings(void **state) {
    (void)state;
    ep_json_out o = {0};
    ep_json_array(&o);
    ep_json_str(&o, "q\" b\\ n\n t\t \x01 \x7f");
    ep_json_str(&o, "\xc3\xa9 \xff\xc3 \xed\xa0\x80 \xf0\x9f\x99\x82");
    ep_json_str(&o, NULL);
    ep_json_strn(&o, "a\0b", 3);
    ep_json_end(&o);
    check(&o, "[\"q\\\" b\\\\ n\\n t\\t \\u0001 \x7f\","
              "\"\xc3\xa9 \xef\xbf\xbd\xef\xbf\xbd \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd \xf0\x9f\x99\x82\",null,"
              "\"a\\u0000b\"]");
}

static void test_numbers(void **state) {
    (void)state;
    ep_json_out o = {0};
    ep_json_array(&o);
    ep_json_fixed(&o, INFINITY, 1);
    ep_json_fixed(&o, -1.0 / 3, 3);
    ep_json_fixed(&o, 2.5, 2);
    ep_json_us(&o, 1669329643132548125);
    ep_json_us(&o, 1500);
    ep_json_us(&o, -1);
    ep_json_us(&o, INT64_MIN);
    ep_json_us(&o, 7000);
    ep_json_end(&o);
    check(&o, "[null,-0.333,2.50,1669329643132548.125,1.5,-0.001,-9223372036854775.808,7]");
}

static bool collect(void *user, const char *data, size_t n) {
    ep_text_addn(user, data, n);
    return true;
}

static bool refuse(void *user, const char *data, size_t n) {
    (void)user;
    (void)data;
    return n == 0;
}

static void test_flush(void **state) {
    (void)state;
    ep_text all = {0};
    ep_json_out o = {.flush = collect, .user = &all};
    ep_json_array(&o);
    for (int i = 0; i < 50000; i++) ep_json_int(&o, i);
    ep_json_end(&o);
    assert_true(ep_json_finish(&o));
    assert_true(all.len > 200000);
    assert_memory_equal(all.data, "[0,1,2,", 7);
    assert_memory_equal(all.data + all.len - 7, ",49999]", 7);
    ep_text_free(&all);
    ep_json_free(&o);

    ep_json_out bad = {.flush = refuse};
    ep_json_array(&bad);
    for (int i = 0; i < 50000; i++) ep_json_int(&bad, i);
    assert_false(ep_json_finish(&bad));
    ep_json_free(&bad);
}

static void test_depth(void **state) {
    (void)state;
    ep_json_out o = {0};
    for (int i = 0; i < EP_JSON_MAX_DEPTH + 1; i++) ep_json_array(&o);
    assert_null(ep_json_take(&o));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_nesting), cmocka_unit_test(test_members),
                                       cmocka_unit_test(test_strings), cmocka_unit_test(test_numbers),
                                       cmocka_unit_test(test_flush),   cmocka_unit_test(test_depth)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
