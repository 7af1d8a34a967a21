// ctest: threads
/* Compiled functions: what is guarded, what a new size or layout costs, and how a failed guard is told. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>

#include "compile_case.h"

static void a_new_batch_size_costs_no_compile(void **state) {
    (void)state;
    mlp w;
    make_mlp(&w, EP_DTYPE_BF16, 64, 96);
    ep_compile_options o = always();
    ep_compiled *c;
    OK(ep_compile(ctx, geglu, &w, 1, 1, &o, &c));
    ep_compile_stats s;
    for (int64_t batch = 1; batch <= 40; batch++) {
        ep_tensor *x = tensor(EP_DTYPE_BF16, 3, (int64_t[]){batch, 3, 64}, (uint64_t)batch), *y, *z;
        const ep_tensor *in[1] = {x};
        OK(ep_compiled_call(c, in, &y));
        OK(geglu(ctx, &w, in, 1, &z, 1));
        same(y, z);
        ep_tensor_destroy(x);
        ep_tensor_destroy(y);
        ep_tensor_destroy(z);
        ep_compiled_stats(c, &s);
        assert_int_equal(s.entries, 1);
        assert_int_equal(s.kernels_generated + s.kernels_from_disk, 1);
        assert_int_equal(s.recompiles, 0);
        assert_int_equal(s.eager_calls, 0);
        assert_int_equal(s.captures, batch == 1 ? 1 : 2); /* a batch of 1, and all others */
    }
    ep_compiled_destroy(c);
    drop_mlp(&w);
}

static void strides_of_dims_of_size_one_are_no_guards(void **state) {
    (void)state;
    ep_compile_options o = always();
    ep_compiled *c;
    OK(ep_compile(ctx, gelu_plus, NULL, 2, 1, &o, &c));
    ep_tensor *y = tensor(EP_DTYPE_F32, 2, (int64_t[]){4, 1}, 5);
    for (int64_t i = 1; i < 10; i++) {
        ep_tensor *x = tensor(EP_DTYPE_F32, 2, (int64_t[]){4, i}, (uint64_t)i), *column, *a, *b;
        OK(ep_tensor_slice(x, 1, 0, 1, 1, NULL, &column));
        const ep_tensor *in[2] = {column, y};
        OK(ep_compiled_call(c, in, &a));
        OK(gelu_plus(ctx, NULL, in, 2, &b, 1));
        same(a, b);
        ep_tensor_destroy(a);
        ep_tensor_destroy(b);
        ep_tensor_destroy(column);
        ep_tensor_destroy(x);
    }
    ep_compile_stats s;
    ep_compiled_stats(c, &s);
    if (s.kernels_generated + s.kernels_from_disk != 1) print_message("%s\n", ep_compiled_report(c));
    assert_int_equal(s.kernels_generated + s.kernels_from_disk, 1);
    assert_int_equal(s.entries, 1);
    ep_tensor_destroy(y);
    ep_compiled_destroy(c);
}

static void a_failed_guard_names_itself(void **state) {
    (void)state;
    ep_compile_options o = always();
    ep_compiled *c;
    seen s;
    ep_probe p;
    OK(ep_compile(ctx, gelu_plus, NULL, 2, 1, &o, &c));
    ep_tensor *a = tensor(EP_DTYPE_F32, 2, (int64_t[]){80, 40}, 1),
              *b = tensor(EP_DTYPE_F32, 2, (int64_t[]){80, 40}, 2);
    call_and_compare(c, gelu_plus, a, b);
    ep_tensor *wide = tensor(EP_DTYPE_F32, 2, (int64_t[]){40, 80}, 3), *turned;
    OK(ep_tensor_transpose(wide, 0, 1, NULL, &turned));
    watch(&s, &p);
    call_and_compare(c, gelu_plus, turned, b);
    unwatch();
    assert_string_equal(s.guard, "input 0: dim 1 was contiguous, now stride 80");
    assert_true(s.guards == 1 && s.compiles == 1);
    ep_tensor *h = tensor(EP_DTYPE_BF16, 2, (int64_t[]){80, 40}, 1),
              *k = tensor(EP_DTYPE_BF16, 2, (int64_t[]){80, 40}, 2);
    watch(&s, &p);
    call_and_compare(c, gelu_plus, h, k);
    unwatch();
    assert_string_equal(s.guard, "input 0: dtype was f32, now bf16");
    ep_tensor *row = tensor(EP_DTYPE_F32, 2, (int64_t[]){1, 40}, 2);
    watch(&s, &p);
    call_and_compare(c, gelu_plus, a, row);
    unwatch();
    assert_int_equal(s.guards, 0); /* a broadcast outer dim is a stride of 0, and strides are arguments */
    ep_compile_stats t;
    ep_compiled_stats(c, &t);
    assert_int_equal(t.entries, 3);
    assert_int_equal(t.recompiles, 2);
    assert_non_null(strstr(ep_compiled_report(c), "input 0: dtype was f32, now bf16"));
    ep_tensor *all[] = {a, b, wide, turned, h, k, row};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) ep_tensor_destroy(all[i]);
    ep_compiled_destroy(c);
}

/* As a viewer meets it: the failed guard with its old and new value lies inside the span of the guards, whose length is
 * what looking and binding anew cost. */
static void a_recording_shows_the_failed_guard_and_its_cost(void **state) {
    (void)state;
    ep_compile_options o = always();
    ep_compiled *c;
    ep_profile *p;
    ep_trace *t;
    ep_error err;
    OK(ep_compile(ctx, gelu_plus, NULL, 2, 1, &o, &c));
    ep_tensor *a = tensor(EP_DTYPE_F32, 2, (int64_t[]){80, 40}, 1),
              *wide = tensor(EP_DTYPE_F32, 2, (int64_t[]){40, 80}, 3), *turned;
    OK(ep_tensor_transpose(wide, 0, 1, NULL, &turned));
    call_and_compare(c, gelu_plus, a, a);
    OK(ep_profile_start(&(ep_profile_options){.active = 1, .repeat = 1}, &err, &p));
    call_and_compare(c, gelu_plus, turned, a);
    ep_profile_step(p);
    OK(ep_profile_stop(p, &err, &t));
    ep_event guards = {0}, failed = {0}, e;
    for (size_t i = 0; i < ep_trace_count(t); i++) {
        OK(ep_trace_event(t, i, &e));
        if (strcmp(e.name, "guards") == 0) guards = e;
        if (strcmp(e.name, "guard failed") == 0) failed = e;
    }
    assert_true(failed.ts_ns >= guards.ts_ns);
    assert_true(guards.dur_ns > 0);
    assert_true(failed.ts_ns + failed.dur_ns <= guards.ts_ns + guards.dur_ns);
    char path[] = "/tmp/test_compile_trace_XXXXXX.json", text[200000];
    int fd = mkstemps(path, 5);
    assert_true(fd >= 0);
    OK(ep_trace_write(t, path, &err));
    close(fd); /* the writer puts a file of its own there */
    fd = open(path, O_RDONLY);
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    unlink(path);
    assert_true(n > 0);
    text[n] = 0;
    assert_non_null(strstr(text, "input 0: dim 1 was contiguous, now stride 80"));
    ep_trace_destroy(t);
    ep_tensor *all[] = {a, wide, turned};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) ep_tensor_destroy(all[i]);
    ep_compiled_destroy(c);
}

static void static_code_is_built_again_for_every_shape(void **state) {
    (void)state;
    ep_compile_options o = always();
    o.specialize = EP_SPECIALIZE_STATIC;
    ep_compiled *c;
    seen s;
    ep_probe p;
    OK(ep_compile(ctx, gelu_plus, NULL, 2, 1, &o, &c));
    watch(&s, &p);
    for (int64_t n = 3; n < 6; n++) {
        ep_tensor *a = tensor(EP_DTYPE_F32, 2, (int64_t[]){n, 40}, 1),
                  *b = tensor(EP_DTYPE_F32, 2, (int64_t[]){n, 40}, 2);
        call_and_compare(c, gelu_plus, a, b);
        ep_tensor_destroy(a);
        ep_tensor_destroy(b);
    }
    unwatch();
    ep_compile_stats t;
    ep_compiled_stats(c, &t);
    assert_int_equal(t.entries, 3);
    assert_int_equal(t.recompiles, 2);
    assert_int_equal(s.guards, 2); /* three shapes: two spans with reasons */
    assert_int_equal(s.compiles, 3);
    assert_string_equal(s.guard, "input 0: dim 0 was 4, now 5");
    ep_compiled_destroy(c);
}

static void a_size_seen_before_allocates_nothing_new(void **state) {
    (void)state;
    mlp w;
    make_mlp(&w, EP_DTYPE_F32, 64, 96);
    ep_compile_options o = always();
    ep_compiled *c;
    OK(ep_compile(ctx, geglu, &w, 1, 1, &o, &c));
    ep_tensor *x = tensor(EP_DTYPE_F32, 2, (int64_t[]){40, 64}, 1), *y;
    ep_memory_stats before = {0}, after;
    for (int i = 0; i < 80; i++) {
        OK(ep_compiled_call(c, (const ep_tensor *[]){x}, &y));
        ep_tensor_destroy(y);
        if (i == 40) ep_context_memory(ctx, &before);
    }
    ep_context_memory(ctx, &after);
    assert_int_equal(after.system_allocations, before.system_allocations);
    int traced = w.calls;
    OK(ep_compiled_call(c, (const ep_tensor *[]){x}, &y));
    ep_tensor_destroy(y);
    assert_int_equal(w.calls, traced + (c->last->choice->kept == EP_RUN_EAGER ? 1 : 0));
    ep_tensor_destroy(x);
    ep_compiled_destroy(c);
    drop_mlp(&w);
}

/* A function that looks at a size may do another thing for another size. */
static ep_status branches(ep_context *c, void *user, const ep_tensor *const *in, int n, ep_tensor **out, int m) {
    ep_tensor *a;
    (void)n;
    (void)m;
    ++*(int *)user;
    bool large = ep_tensor_size(in[0], 0) > 10;
    ep_status s = large ? ep_gelu_tanh(c, in[0], &a) : ep_silu(c, in[0], &a);
    if (s != EP_OK) return s;
    s = ep_mul(c, a, in[0], out);
    ep_tensor_destroy(a);
    return s;
}

static void a_size_that_the_function_looks_at_is_guarded(void **state) {
    (void)state;
    ep_compiled *c;
    int runs = 0;
    OK(ep_compile_with(ctx, branches, &runs, 1, 1, NULL, true, &c)); /* nothing but captures runs the function */
    static const int64_t rows[] = {4, 20, 4, 20, 8, 21}, captures[] = {1, 2, 2, 2, 3, 4};
    for (int i = 0; i < 6; i++) {
        ep_tensor *x = tensor(EP_DTYPE_F32, 2, (int64_t[]){rows[i], 5 + i}, 1), *a, *b, *act;
        OK(ep_compiled_call(c, (const ep_tensor *[]){x}, &a)); /* the other size is free */
        OK(rows[i] > 10 ? ep_gelu_tanh(ctx, x, &act) : ep_silu(ctx, x, &act));
        OK(ep_mul(ctx, act, x, &b));
        same(a, b);
        ep_tensor *all[] = {x, a, b, act};
        for (int k = 0; k < 4; k++) ep_tensor_destroy(all[k]);
        assert_int_equal(runs, captures[i]);
    }
    ep_compile_stats s;
    ep_compiled_stats(c, &s);
    assert_int_equal(s.captures, 4);
    assert_int_equal(s.entries, 2); /* two ways through the function; more sizes than those share their code */
    assert_non_null(strstr(ep_compiled_report(c), "input 0: dim 0 was 4, now 20"));
    assert_non_null(strstr(ep_compiled_report(c), "input 0: f32 [4, s0]"));
    ep_compiled_destroy(c);
}

/* Sizes are symbols: one capture serves them all, views of open sizes, sums of sizes and strided rows too. */
static ep_status flat_norm(ep_context *c, void *user, const ep_tensor *const *in, int n, ep_tensor **out, int m) {
    ep_tensor *t[5] = {NULL};
    (void)n;
    (void)m;
    if (user) ++*(int *)user;
    ep_status s = ep_cat(c, (const ep_tensor *[]){in[0], in[1]}, 2, 0, &t[0]); /* [s0 + s1, s2, 6] */
    if (s == EP_OK) s = ep_view(c, t[0], 2, (int64_t[]){-1, 6}, &t[1]);
    if (s == EP_OK) s = ep_softmax(c, t[1], &t[2]);
    if (s == EP_OK) s = ep_exp(c, t[2], &t[3]);
    if (s == EP_OK) s = ep_view(c, t[3], 2, (int64_t[]){-1, 3}, &t[4]);
    if (s == EP_OK) s = ep_neg(c, t[4], out);
    for (int i = 0; i < 5; i++) ep_tensor_destroy(t[i]);
    return s;
}

static void new_sizes_capture_nothing(void **state) {
    (void)state;
    ep_compiled *c;
    int runs = 0;
    OK(ep_compile_with(ctx, flat_norm, &runs, 2, 1, NULL, true, &c));
    for (int64_t i = 2; i < 30; i++) {
        ep_tensor *wide = tensor(EP_DTYPE_F32, 3, (int64_t[]){i, 1 + i % 7, 6 + i}, (uint64_t)i), *a;
        ep_tensor *b = tensor(EP_DTYPE_F32, 3, (int64_t[]){40 - i, 1 + i % 7, 6}, (uint64_t)i + 50), *y, *z;
        OK(ep_tensor_slice(wide, 2, 0, 6, 1, NULL, &a)); /* rows with gaps: the stride is a symbol, too */
        const ep_tensor *in[2] = {a, b};
        OK(ep_compiled_call(c, in, &y));
        OK(flat_norm(ctx, NULL, in, 2, &z, 1));
        same(y, z);
        ep_tensor *all[] = {wide, a, b, y, z};
        for (int k = 0; k < 5; k++) ep_tensor_destroy(all[k]);
    }
    if (runs != 2) print_message("%s\n", ep_compiled_report(c));
    assert_int_equal(runs, 2); /* a middle size of 1 is a class of its own: such a dim has no stride */
    ep_compiled_destroy(c);
}

/* More sizes than are remembered: the oldest goes, nothing is compiled again, nothing runs eager for ever. */
static void many_sizes_are_bounded_and_stay_compiled(void **state) {
    (void)state;
    ep_compile_options o = always();
    ep_compiled *c;
    OK(ep_compile(ctx, gelu_plus, NULL, 2, 1, &o, &c));
    c->no_choice = true;
    for (int round = 0; round < 2; round++)
        for (int64_t n = 2; n < 2 + 3 * EP_MEMO_BINDINGS / 2; n++) {
            ep_tensor *a = tensor(EP_DTYPE_F32, 1, (int64_t[]){n}, 1), *b = tensor(EP_DTYPE_F32, 1, (int64_t[]){n}, 2);
            call_and_compare(c, gelu_plus, a, b);
            ep_tensor_destroy(a);
            ep_tensor_destroy(b);
        }
    ep_compile_stats s;
    ep_compiled_stats(c, &s);
    assert_int_equal(s.kernels_generated + s.kernels_from_disk, 1);
    assert_int_equal(s.eager_calls, 0);
    assert_true(c->memo.count == EP_MEMO_BINDINGS);
    ep_compiled_destroy(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_batch_size_costs_no_compile),
        cmocka_unit_test(strides_of_dims_of_size_one_are_no_guards),
        cmocka_unit_test(a_failed_guard_names_itself),
        cmocka_unit_test(a_recording_shows_the_failed_guard_and_its_cost),
        cmocka_unit_test(static_code_is_built_again_for_every_shape),
        cmocka_unit_test(a_size_seen_before_allocates_nothing_new),
        cmocka_unit_test(a_size_that_the_function_looks_at_is_guarded),
        cmocka_unit_test(new_sizes_capture_nothing),
        cmocka_unit_test(many_sizes_are_bounded_and_stay_compiled),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
