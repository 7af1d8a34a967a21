/* Pass tests are pictures: a graph, "----", the graph expected after the pass that the file's name begins with (or after
 * all passes: "all"). With EP_UPDATE set the expected part is printed. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "run/graph/ir_text.h"
#include "run/graph/verify.h"
#include "run/pass/pass.h"

static char *read_text(const char *path) {
    FILE *f = fopen(path, "r");
    if (!f) return NULL;
    char *text = calloc(1, 1 << 16);
    size_t n = fread(text, 1, (1 << 16) - 1, f);
    text[n] = 0;
    fclose(f);
    return text;
}

static int check(const char *path, const char *name) {
    char pass[64], *text = read_text(path);
    assert_non_null(text);
    snprintf(pass, sizeof pass, "%.*s", (int)strcspn(name, "-."), name);
    char *cut = strstr(text, "----\n");
    ep_error err = {0};
    ep_graph *g;
    ep_text out = {0};
    if (ep_graph_parse(text, cut ? (size_t)(cut - text) : strlen(text), &err, &g) != EP_OK)
        fail_msg("%s:%d:%d: %s", name, err.line, err.column, err.message);
    ep_status s = ep_passes_run(g, &(ep_pass_options){.until = pass, .verify = true}, &err);
    if (s == EP_OK)
        ep_graph_print(g, &out);
    else
        ep_text_printf(&out, "error: %s\n", err.message);
    const char *want = cut ? cut + 5 : "";
    int bad = strcmp(want, ep_text_str(&out)) != 0;
    if (bad) print_message("%s: expected\n%s\ngot\n%s\n", name, want, ep_text_str(&out));
    if (bad && getenv("EP_UPDATE")) {
        FILE *f = fopen(path, "w");
        fprintf(f, "%.*s----\n%s", (int)(cut ? cut - text : (long)strlen(text)), text, ep_text_str(&out));
        fclose(f);
    }
    ep_text_free(&out);
    ep_graph_destroy(g);
    free(text);
    return bad;
}

static void every_picture_is_what_the_passes_make(void **state) {
    (void)state;
    DIR *d = opendir(EP_TEST_DIR "/pass");
    assert_non_null(d);
    int bad = 0, seen = 0;
    for (struct dirent *e; (e = readdir(d));) {
        char path[600];
        size_t n = strlen(e->d_name);
        if (n < 4 || strcmp(e->d_name + n - 3, ".ir")) continue;
        snprintf(path, sizeof path, "%s/pass/%s", EP_TEST_DIR, e->d_name);
        bad += check(path, e->d_name);
        seen++;
    }
    closedir(d);
    assert_true(seen > 10);
    assert_int_equal(bad, 0);
}

static void passes_say_what_they_need(void **state) {
    (void)state;
    size_t n;
    const ep_pass *p = ep_passes(&n);
    unsigned marks = 0;
    for (size_t i = 0; i < n; i++) { /* the list itself is in an order that gives each pass what it needs */
        assert_int_equal(marks & p[i].needs, p[i].needs);
        marks = (marks & ~p[i].breaks) | p[i].gives;
    }
    ep_graph *g = ep_graph_create();
    assert_int_equal(ep_passes_run(g, &(ep_pass_options){.dump = "no such pass"}, NULL), EP_ERROR_NOT_FOUND);
    ep_graph_destroy(g);
}

/* With `verify` a graph that is not legal is refused, under the name of what made it so. */
static void what_a_pass_breaks_is_named(void **state) {
    (void)state;
    ep_graph *g = ep_graph_create();
    ep_error err = {0};
    int32_t x = ep_graph_input(g, EP_DTYPE_F32, 1, (int64_t[]){4}, NULL);
    int32_t y = ep_graph_op(g, EP_NODE_OP, EP_OP_RELU, NULL, 1, &x, &(ep_shape){EP_DTYPE_F32, 1, {4}});
    ep_graph_output(g, y);
    g->values[y].numel = 5;
    assert_int_equal(ep_passes_run(g, &(ep_pass_options){.verify = true}, &err), EP_ERROR_INTERNAL);
    assert_non_null(strstr(err.message, "after pass capture: value 1"));
    ep_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_picture_is_what_the_passes_make),
        cmocka_unit_test(passes_say_what_they_need),
        cmocka_unit_test(what_a_pass_breaks_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
