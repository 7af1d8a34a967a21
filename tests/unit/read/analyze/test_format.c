/* Names of traces on a terminal: columns that line up whatever the script, and nothing that the terminal would obey. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "read/analyze/format.h"

static void test_columns(void **state) {
    (void)state;
    assert_string_equal(ep_column_of("aten::mm", 10).text, "aten::mm  ");
    assert_string_equal(ep_column_of("", 4).text, "\"\"  ");
    assert_string_equal(ep_column_of("訓練", 6).text, "訓練  "); /* two columns each */
    assert_string_equal(ep_column_of("naïve", 6).text, "naïve ");
    assert_string_equal(ep_column_of("e\xcc\x81t", 4).text, "e\xcc\x81t  "); /* a combining accent takes none */
    assert_string_equal(ep_column_of("abcdefghijkl", 8).text, "abcd..kl");
    assert_string_equal(ep_column_of("訓練訓練訓練訓練", 9).text, "訓練..練 "); /* half of one would stick out */
    assert_string_equal(ep_column_of("a\x1b[31mb\nc\x7f", 12).text, "a?[31mb?c?  ");
    assert_string_equal(ep_column_of("a\xc2\x9b"
                                     "b",
                                     4)
                            .text,
                        "a?b "); /* an escape in one character */
    char wide[2000];
    memset(wide, 'x', sizeof wide - 1);
    wide[sizeof wide - 1] = 0;
    assert_int_equal(strlen(ep_column_of(wide, 5000).text), 120);
}

static void test_paragraph(void **state) {
    (void)state;
    ep_text t = {0};
    ep_paragraph(&t, "  1. ", 5, 20, "one two three four\nfive");
    assert_string_equal(ep_text_str(&t), "  1. one two three\n     four five\n");
    ep_text_clear(&t);
    ep_paragraph(&t, "- ", 2, 20, "a 0123456789012345678901234567890 b\x1b");
    assert_string_equal(ep_text_str(&t), "- a\n  0123456789012345..\n  b?\n");
    ep_text_clear(&t);
    ep_paragraph(&t, "", 0, 10, "訓練 訓練 訓練"); /* 4 + 1 + 4 columns */
    assert_string_equal(ep_text_str(&t), "訓練 訓練\n訓練\n");
    ep_text_free(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_columns), cmocka_unit_test(test_paragraph)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
