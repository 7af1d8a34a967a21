/* The choice between our kernel and oneDNN: made once, told in words, decided by the environment where a test wants it,
 * and of the same values either way. */
// ctest: isa
#include <stdlib.h>
#include <string.h>

#include "context.h"

static ep_tensor *noise(ep_dtype dtype, int64_t rows, int64_t cols, uint64_t seed) {
    return random_matrix(dtype, rows, cols, seed, 0.3);
}

typedef struct fixture {
    ep_tensor *x, *gate, *up, *down, *residual;
} fixture;

static void run_with(const char *rule, ep_block_kind kind, const fixture *f, bool residual, ep_tensor **y, char *text,
                     size_t size) {
    ep_block *b;
    ep_block_weights w = {.up = f->up, .gate = f->gate, .down = f->down};
    if (kind != EP_BLOCK_GATED) w.gate = NULL;
    if (kind == EP_BLOCK_LINEAR) w.down = NULL;
    if (rule)
        setenv("EPILOGUE_TUNED", rule, 1);
    else
        unsetenv("EPILOGUE_TUNED");
    OK(ep_block_create(ctx, kind, EP_ACT_SILU, &w, &b));
    assert_int_equal(ep_block_supports(b, EP_MODE_TUNED), EP_OK);
    assert_int_equal(ep_block_packed_bytes(b), 0); /* asking packs nothing */
    OK(ep_block_run(b, EP_MODE_TUNED, f->x, residual ? f->residual : NULL, y));
    size_t n = ep_block_tuned_text(b, text, size);
    assert_int_equal(n, strlen(text));
    ep_tuned_pair pair = ep_block_tuned_pair(b, ep_tensor_size(f->x, 0));
    assert_int_equal(pair == EP_TUNED_UNDECIDED, kind != EP_BLOCK_GATED);
    if (rule && kind == EP_BLOCK_GATED)
        assert_int_equal(pair, strcmp(rule, "kernels") == 0 ? EP_TUNED_FUSED : EP_TUNED_APART);
    if (!rule) assert_int_equal(ep_block_tuned_pair(b, 100000), EP_TUNED_UNDECIDED); /* nobody ran so many rows */
    ep_block_destroy(b);
    unsetenv("EPILOGUE_TUNED");
}

static void both_ways_agree_and_the_choice_is_told(void **state) {
    (void)state;
    for (int i = 0; i < 18; i++) {
        ep_dtype t = (ep_dtype)(i % 3);
        ep_block_kind kind = (ep_block_kind)(i / 3 % 3);
        int64_t m = i < 9 ? 5 : 40, inner = kind == EP_BLOCK_LINEAR ? 24 : 50;
        fixture f = {.x = noise(t, m, 24, 1),
                     .gate = noise(t, inner, 24, 2),
                     .up = noise(t, inner, 24, 3),
                     .down = noise(t, 24, 50, 4),
                     .residual = noise(t, m, 24, 5)};
        ep_tensor *y[4];
        char text[4][1024];
        const char *const rules[4] = {"kernels", "onednn", "packed", NULL};
        bool residual = kind != EP_BLOCK_GATED || i % 2;
        for (int r = 0; r < 4; r++) run_with(rules[r], kind, &f, residual, &y[r], text[r], sizeof text[r]);
        assert_string_equal(text[0], "");
        assert_string_equal(text[1], "");
        assert_string_equal(text[2], "");
        assert_non_null(strstr(text[3], i < 9 ? "M up to 8: " : "M up to 64: "));
        assert_true(strstr(text[3], "our kernel") && strstr(text[3], "oneDNN"));
        if (kind != EP_BLOCK_LINEAR) assert_non_null(strstr(text[3], "down, M"));
        ep_difference d;
        for (int r = 1; r < 4; r++) {
            OK(ep_tensor_compare(y[r], y[0], 1, NULL, &d));
            assert_true(d.max_rel <= (t == EP_DTYPE_F32 ? 1e-5 : 4e-2));
        }
        for (int r = 0; r < 4; r++) ep_tensor_destroy(y[r]);
        ep_tensor *all[] = {f.x, f.gate, f.up, f.down, f.residual};
        for (int k = 0; k < 5; k++) ep_tensor_destroy(all[k]);
    }
}

/* Row counts of one class, and of others: values are eager's within rounding, whatever order oneDNN wants its weights in, and
 * the second pack is counted. */
static void packed_weights_serve_any_rows(void **state) {
    (void)state;
    ep_tensor *up = noise(EP_DTYPE_F32, 96, 80, 3);
    ep_block *b;
    setenv("EPILOGUE_TUNED", "packed", 1);
    OK(ep_block_create(ctx, EP_BLOCK_LINEAR, EP_ACT_NONE, &(ep_block_weights){.up = up}, &b));
    int64_t before = 0;
    for (int64_t m = 1; m <= 300; m += 1 + m / 3) {
        ep_tensor *x = noise(EP_DTYPE_F32, m, 80, (uint64_t)m), *y[2];
        OK(ep_block_run(b, EP_MODE_TUNED, x, NULL, &y[0]));
        OK(ep_block_run(b, EP_MODE_EAGER, x, NULL, &y[1]));
        ep_difference d;
        OK(ep_tensor_compare(y[0], y[1], 1, NULL, &d));
        assert_true(d.max_rel <= 1e-5);
        assert_true(ep_block_packed_bytes(b) >= before);
        before = ep_block_packed_bytes(b);
        for (int i = 0; i < 2; i++) ep_tensor_destroy(y[i]);
        ep_tensor_destroy(x);
    }
    unsetenv("EPILOGUE_TUNED");
    assert_true(before >= 2 * 96 * 80 * 4); /* ours and at least one of oneDNN's */
    ep_block_destroy(b);
    ep_tensor_destroy(up);
}

/* More rows than a trial runs, so that it runs rows of another class: what is kept, and counted, is of the call's class alone. */
static void a_trial_leaves_nothing_behind(void **state) {
    (void)state;
    ep_tensor *up = noise(EP_DTYPE_F32, 300, 512, 3), *x = noise(EP_DTYPE_F32, 3000, 512, 4), *y;
    ep_block *b, *ours;
    OK(ep_block_create(ctx, EP_BLOCK_LINEAR, EP_ACT_NONE, &(ep_block_weights){.up = up}, &b));
    OK(ep_block_run(b, EP_MODE_TUNED, x, NULL, &y));
    ep_tensor_destroy(y);
    setenv("EPILOGUE_TUNED", "kernels", 1);
    OK(ep_block_create(ctx, EP_BLOCK_LINEAR, EP_ACT_NONE, &(ep_block_weights){.up = up}, &ours));
    OK(ep_block_run(ours, EP_MODE_TUNED, x, NULL, &y));
    unsetenv("EPILOGUE_TUNED"); /* it is read when weights are packed */
    char text[1024];
    ep_block_tuned_text(b, text, sizeof text);
    assert_non_null(strstr(text, "M up to 4096: "));
    assert_non_null(strstr(text, " for 512 rows"));
    int64_t more = ep_block_packed_bytes(b) - ep_block_packed_bytes(ours);
    assert_int_equal(more > 0, strstr(text, "M up to 4096: oneDNN, packed weights") != NULL);
    assert_true(more < 2 * 300 * 512 * 4);
    ep_tensor_destroy(y);
    ep_block_destroy(b);
    ep_block_destroy(ours);
    ep_tensor_destroy(up);
    ep_tensor_destroy(x);
}

/* A text that does not fit ends in a whole string; a block that ran nothing has none. */
static void short_buffers(void **state) {
    (void)state;
    fixture f = {.x = noise(EP_DTYPE_F32, 3, 24, 1), .up = noise(EP_DTYPE_F32, 24, 24, 3)};
    ep_block *b;
    ep_tensor *y;
    char text[16];
    OK(ep_block_create(ctx, EP_BLOCK_LINEAR, EP_ACT_NONE, &(ep_block_weights){.up = f.up}, &b));
    assert_int_equal(ep_block_tuned_text(b, text, sizeof text), 0);
    OK(ep_block_run(b, EP_MODE_TUNED, f.x, NULL, &y));
    for (size_t size = 1; size <= sizeof text; size++) assert_int_equal(ep_block_tuned_text(b, text, size), size - 1);
    assert_int_equal(ep_block_tuned_text(b, NULL, 0), 0);
    ep_tensor_destroy(y);
    ep_block_destroy(b);
    ep_tensor_destroy(f.x);
    ep_tensor_destroy(f.up);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_ways_agree_and_the_choice_is_told), cmocka_unit_test(packed_weights_serve_any_rows),
        cmocka_unit_test(a_trial_leaves_nothing_behind), cmocka_unit_test(short_buffers)};
    return cmocka_run_group_tests(tests, open_context, close_context);
}
