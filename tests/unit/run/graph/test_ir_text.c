/* Graph text: prints, parses, prints the same; bad text is refused with line and column. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "run/graph/ir_text.h"
#include "run/graph/verify.h"

static const char *const good = "graph rounding=eager\n"
                                "group 0 [4,96]\n"
                                "%0 : bf16[4,192] = input\n"
                                "%1 : bf16[4,96]{192,1} = input\n"
                                "%2 : bf16[96] = const\n"
                                "%3 : bf16[4,96]{192,1} = view:chunk(%0) dim=1 start=1 stop=2 of=%0+96\n"
                                "%4 : bf16[4,96] = gelu_tanh(%3) group=0\n"
                                "%5 : bf16[4,96] = mul(%4, %1) group=0\n"
                                "%6 : bf16[4,96] = rms_norm(%5, %2) eps=1.0000000000000001e-05\n"
                                "%7 : f32[4,96] = cast(%6)\n"
                                "%8 : f32[4] = sum(%7) dims=1\n"
                                "output %8\n"
                                "output %4\n";

static void it_prints_what_it_parsed(void **state) {
    (void)state;
    ep_error err = {0};
    ep_graph *g;
    ep_text out = {0};
    ep_status s = ep_graph_parse(good, strlen(good), &err, &g);
    if (s != EP_OK) fail_msg("%d:%d %s", err.line, err.column, err.message);
    ep_graph_print(g, &out);
    assert_string_equal(ep_text_str(&out), good);
    ep_text_free(&out);
    ep_graph_destroy(g);
}

static void bad_text_is_refused_where_it_is_bad(void **state) {
    (void)state;
    const struct {
        const char *text;
        int line;
    } rows[] = {
        {"%0 : bf17[4] = input\n", 1},
        {"%0 : f32[4] = input\n%1 : f32[4] = gelu_tahn(%0)\n", 2},
        {"%0 : f32[4] = input\n%1 : f32[4] = relu(%2)\n", 2},
        {"%0 : f32[4] = input\n\n%0 : f32[4] = input\n", 3},
        {"%0 : f32[99999999999999999999] = input\n", 1},
        {"%0 : f32[-4] = input\n", 1},
        {"%0 : f32[4]{1,1} = input\n", 1},
        {"%0 : f32[1,1,1,1,1,1,1,1,1] = input\n", 1},
        {"%0 : f32[4] = input\noutput %7\n", 2},
        {"%0 : f32[4] = input extra\n", 1},
        {"%0 : f32[4] = input\n%1 : f32[4] = relu(%0) group=0\n", 2},
        {"%99999999 : f32[4] = input\n", 1},
        {"graph rounding=sometimes\n", 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ep_error err = {0};
        ep_graph *g;
        assert_int_equal(ep_graph_parse(rows[i].text, strlen(rows[i].text), &err, &g), EP_ERROR_PARSE);
        assert_int_equal(err.line, rows[i].line);
        assert_true(err.column > 0);
    }
}

static void graphs_that_are_not_legal_are_refused(void **state) {
    (void)state;
    static const char *const rows[] = {
        "%0 : f32[4] = input\n%1 : f32[5] = relu(%0)\n",                                /* wrong shape */
        "%0 : f32[4] = input\n%1 : f32[4] = add(%0)\n",                                 /* wrong arity */
        "%0 : f32[4] = input\n%1 : f32[4] = view:slice(%0) stop=4 step=1 of=%0+1\n",    /* past the end */
        "%0 : f32[4,4] = input\n%1 : f32[4,4]{1,9} = view:t(%0) dim=0 dim1=1 of=%0+0\n" /* past the end */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ep_graph *g;
        ep_error err = {0};
        assert_int_not_equal(ep_graph_parse(rows[i], strlen(rows[i]), &err, &g), EP_OK);
        assert_string_not_equal(err.message, "");
    }
}

static void the_hash_is_of_the_structure(void **state) {
    (void)state;
    ep_graph *g;
    assert_int_equal(ep_graph_parse(good, strlen(good), NULL, &g), EP_OK);
    uint64_t h = ep_graph_hash(g);
    g->values[0].sizes[0] = 9;
    assert_true(ep_graph_hash(g) == h); /* sizes are free */
    g->nodes[1].op = EP_OP_RELU;
    assert_true(ep_graph_hash(g) != h);
    ep_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_prints_what_it_parsed),
        cmocka_unit_test(bad_text_is_refused_where_it_is_bad),
        cmocka_unit_test(graphs_that_are_not_legal_are_refused),
        cmocka_unit_test(the_hash_is_of_the_structure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
