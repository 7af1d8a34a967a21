// ctest: threads
/* Compiled functions: what is recorded, what is guarded, what is rebuilt and what is not. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include <epilogue/epilogue.h>

#include "model/tensor/tensor.h"
#include "run/engine/compile.h"
#include "seen.h"

#define OK(expr) assert_int_equal((expr), EP_OK)

static ep_context *ctx;
static char cache[64];

static int setup(void **state) {
    (void)state;
    strcpy(cache, "/tmp/ep-compile-XXXXXX");
    if (!mkdtemp(cache)) return 1;
    return ep_context_create(&(ep_context_options){.threads = 2}, NULL, &ctx) == EP_OK ? 0 : 1;
}

static int teardown(void **state) {
    (void)state;
    ep_context_destroy(ctx);
    ep_cache *c;
    size_t n;
    if (ep_cache_open(cache, 0, NULL, &c) == EP_OK) {
        ep_cache_clear(c, NULL, &n);
        ep_cache_close(c);
    }
    rmdir(cache);
    return 0;
}

static ep_compile_options always(void) {
    return (ep_compile_options){.wait = EP_WAIT_ALWAYS, .cache_dir = cache};
}

static ep_tensor *tensor(ep_dtype dtype, int ndim, const int64_t *sizes, uint64_t seed) {
    ep_tensor *t;
    OK(ep_tensor_create(dtype, ndim, sizes, NULL, &t));
    OK(ep_tensor_fill_random(t, seed, 1.0, NULL));
    return t;
}

static void same(const ep_tensor *a, const ep_tensor *b) {
    ep_difference d;
    OK(ep_tensor_compare(a, b, 1, NULL, &d));
    assert_true(d.max_abs <= 0);
    assert_int_equal(ep_tensor_ndim(a), ep_tensor_ndim(b));
    for (int i = 0; i < ep_tensor_ndim(a); i++)
        if (ep_tensor_size(a, i) > 1) assert_int_equal(ep_tensor_stride(a, i), ep_tensor_stride(b, i));
}

typedef struct mlp {
    ep_tensor *gate, *up, *down, *bias;
    int calls;
} mlp;

static void make_mlp(mlp *m, ep_dtype dtype, int64_t dim, int64_t hidden) {
    *m = (mlp){0};
    m->gate = tensor(dtype, 2, (int64_t[]){hidden, dim}, 1);
    m->up = tensor(dtype, 2, (int64_t[]){hidden, dim}, 2);
    m->down = tensor(dtype, 2, (int64_t[]){dim, hidden}, 3);
    m->bias = tensor(dtype, 1, (int64_t[]){hidden}, 4);
}

static void drop_mlp(mlp *m) {
    ep_tensor_destroy(m->gate);
    ep_tensor_destroy(m->up);
    ep_tensor_destroy(m->down);
    ep_tensor_destroy(m->bias);
}

static ep_status geglu(ep_context *c, void *user, const ep_tensor *const *in, int n, ep_tensor **out, int m) {
    mlp *w = user;
    ep_tensor *g = NULL, *u = NULL, *a = NULL, *h = NULL;
    (void)n;
    (void)m;
    w->calls++;
    ep_status s = ep_linear(c, in[0], w->gate, w->bias, &g);
    if (s == EP_OK) s = ep_linear(c, in[0], w->up, NULL, &u);
    if (s == EP_OK) s = ep_gelu_tanh(c, g, &a);
    if (s == EP_OK) s = ep_mul(c, a, u, &h);
    if (s == EP_OK) s = ep_linear(c, h, w->down, NULL, out);
    ep_tensor_destroy(h);
    ep_tensor_destroy(a);
    ep_tensor_destroy(u);
    ep_tensor_destroy(g);
    return s;
}

static void geglu_is_three_products_and_one_generated_kernel(void **state) {
    (void)state;
    static const ep_dtype dtypes[] = {EP_DTYPE_BF16, EP_DTYPE_F32, EP_DTYPE_F16};
    for (int d = 0; d < 3; d++) {
        mlp w;
        make_mlp(&w, dtypes[d], 64, 96);
        ep_tensor *x = tensor(dtypes[d], 3, (int64_t[]){2, 5, 64}, 9), *y, *z;
        const ep_tensor *in[1] = {x};
        ep_compiled *c;
        ep_compile_options o = always();
        OK(ep_compile(ctx, geglu, &w, 1, 1, &o, &c));
        c->no_choice = true;
        OK(geglu(ctx, &w, in, 1, &z, 1));
        seen eager, compiled;
        ep_probe p;
        ep_tensor *t;
        watch(&eager, &p);
        OK(geglu(ctx, &w, in, 1, &t, 1));
        unwatch();
        ep_tensor_destroy(t);
        OK(ep_compiled_call(c, in, &y));
        same(y, z);
        ep_tensor_destroy(y);
        watch(&compiled, &p);
        OK(ep_compiled_call(c, in, &y));
        unwatch();
        same(y, z);
        assert_int_equal(eager.count, 5);
        assert_int_equal(compiled.count, 4);
        assert_string_equal(compiled.kernels[0], eager.kernels[0]); /* bias stays 1-D: the vendor's bias kernel */
        assert_string_equal(compiled.kernels[1], eager.kernels[1]);
        assert_string_equal(compiled.kernels[3], eager.kernels[4]);
        char want[64];
        snprintf(want, sizeof want, "epi_poi_gelu_tanh_mul_%s", ep_dtype_name(dtypes[d]));
        assert_string_equal(compiled.kernels[2], want);
        ep_tensor_destroy(y);
        ep_tensor_destroy(z);
        ep_tensor_destroy(x);
        ep_compiled_destroy(c);
        drop_mlp(&w);
    }
}

/* Two processes, one graph: the second generates nothing. */
static void a_second_process_loads_from_disk(void **state) {
    (void)state;
    ep_cache *disk;
    size_t removed;
    OK(ep_cache_open(cache, 0, NULL, &disk));
    OK(ep_cache_clear(disk, NULL, &removed));
    ep_cache_close(disk);
    for (int process = 0; process < 2; process++) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            mlp w;
            ep_context *mine;
            ep_compiled *c;
            ep_tensor *y;
            ep_compile_options o = always();
            if (ep_context_create(&(ep_context_options){.threads = 1}, NULL, &mine) != EP_OK) _exit(10);
            make_mlp(&w, EP_DTYPE_BF16, 32, 48);
            ep_tensor *x = tensor(EP_DTYPE_BF16, 2, (int64_t[]){4, 32}, 9);
            if (ep_compile(mine, geglu, &w, 1, 1, &o, &c) != EP_OK) _exit(11);
            if (ep_compiled_call(c, (const ep_tensor *[]){x}, &y) != EP_OK) _exit(12);
            ep_compile_stats s;
            ep_compiled_stats(c, &s);
            if (s.build_failures) _exit(13);
            _exit(s.kernels_generated == (process ? 0 : 1) && s.kernels_from_disk == (process ? 1 : 0) ? 0 : 14);
        }
        int status;
        waitpid(pid, &status, 0);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
}

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

static ep_status gelu_plus(ep_context *c, void *user, const ep_tensor *const *in, int n, ep_tensor **out, int m) {
    ep_tensor *a;
    (void)user;
    (void)n;
    (void)m;
    ep_status s = ep_gelu_erf(c, in[0], &a);
    if (s != EP_OK) return s;
    s = ep_add(c, a, in[1], out);
    ep_tensor_destroy(a);
    return s;
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

static void call_and_compare(ep_compiled *c, ep_fn fn, ep_tensor *a, ep_tensor *b) {
    ep_tensor *x, *y;
    const ep_tensor *in[2] = {a, b};
    OK(ep_compiled_call(c, in, &x));
    OK(fn(ctx, NULL, in, 2, &y, 1));
    same(x, y);
    ep_tensor_destroy(x);
    ep_tensor_destroy(y);
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

/* bf16: chunk(p * g, 2), a + b. Fusing must not lose the rounding between. */
static ep_status product_halves(ep_context *c, void *user, const ep_tensor *const *in, int n, ep_tensor **out, int m) {
    mlp *w = user;
    ep_tensor *t[5] = {NULL};
    (void)n;
    (void)m;
    ep_status s = ep_linear(c, in[0], w->gate, NULL, &t[0]);
    if (s == EP_OK) s = ep_linear(c, in[0], w->up, NULL, &t[1]);
    if (s == EP_OK) s = ep_mul(c, t[0], t[1], &t[2]);
    if (s == EP_OK) s = ep_chunk(c, t[2], 1, 2, 0, &t[3]);
    if (s == EP_OK) s = ep_chunk(c, t[2], 1, 2, 1, &t[4]);
    if (s == EP_OK) s = ep_add(c, t[3], t[4], out);
    for (int i = 0; i < 5; i++) ep_tensor_destroy(t[i]);
    return s;
}

static void the_rounding_between_is_kept(void **state) {
    (void)state;
    mlp w;
    make_mlp(&w, EP_DTYPE_BF16, 16, 32);
    ep_compile_options o = always();
    ep_compiled *c;
    OK(ep_compile(ctx, product_halves, &w, 1, 1, &o, &c));
    c->no_choice = true;
    ep_tensor *x = tensor(EP_DTYPE_BF16, 2, (int64_t[]){300, 16}, 1), *a, *b;
    OK(ep_compiled_call(c, (const ep_tensor *[]){x}, &a));
    OK(product_halves(ctx, &w, (const ep_tensor *[]){x}, 1, &b, 1));
    same(a, b);
    ep_tensor_destroy(a);
    ep_tensor_destroy(b);
    ep_tensor_destroy(x);
    ep_compiled_destroy(c);
    drop_mlp(&w);
}

static ep_status two_readers(ep_context *c, void *user, const ep_tensor *const *in, int n, ep_tensor **out, int m) {
    ep_tensor *h, *t[3] = {NULL};
    (void)user;
    (void)n;
    (void)m;
    ep_status s = ep_gelu_tanh(c, in[0], &h);
    if (s != EP_OK) return s;
    s = ep_mul(c, h, in[1], &t[0]);
    if (s == EP_OK) s = ep_sum(c, h, 2, false, &t[1]);
    if (s == EP_OK) s = ep_exp(c, h, &t[2]);
    ep_tensor_destroy(h);
    for (int i = 0; i < 3; i++) out[i] = t[i];
    return s;
}

/* The fused value has a second reader and a third: it is stored, and its place is not given away too early. */
static void a_value_with_a_second_reader_is_kept(void **state) {
    (void)state;
    ep_compile_options o = always();
    ep_compiled *c;
    OK(ep_compile(ctx, two_readers, NULL, 2, 3, &o, &c));
    c->no_choice = true;
    ep_tensor *x = tensor(EP_DTYPE_BF16, 2, (int64_t[]){33, 65}, 1),
              *u = tensor(EP_DTYPE_BF16, 2, (int64_t[]){33, 65}, 2);
    const ep_tensor *in[2] = {x, u};
    ep_tensor *a[3], *b[3];
    OK(ep_compiled_call(c, in, a));
    OK(two_readers(ctx, NULL, in, 2, b, 3));
    for (int i = 0; i < 3; i++) {
        same(a[i], b[i]);
        ep_tensor_destroy(a[i]);
        ep_tensor_destroy(b[i]);
    }
    ep_tensor_destroy(x);
    ep_tensor_destroy(u);
    ep_compiled_destroy(c);
}

static void a_kernel_that_does_not_build_is_counted(void **state) {
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s/broken-cc", cache);
    FILE *f = fopen(path, "w");
    fputs("#!/bin/sh\necho 'kernel.c:1: error: injected' >&2\nexit 1\n", f);
    fclose(f);
    chmod(path, 0700);
    setenv("EPILOGUE_CC", path, 1);
    ep_compile_options o = always();
    ep_compiled *c;
    OK(ep_compile(ctx, gelu_plus, NULL, 2, 1, &o, &c));
    ep_tensor *a = tensor(EP_DTYPE_F32, 2, (int64_t[]){8, 40}, 1), *b = tensor(EP_DTYPE_F32, 2, (int64_t[]){8, 40}, 2);
    call_and_compare(c, gelu_plus, a, b); /* answered by eager */
    call_and_compare(c, gelu_plus, a, b);
    ep_compile_stats s;
    ep_compiled_stats(c, &s);
    assert_int_equal(s.build_failures, 1);
    assert_int_equal(s.eager_calls, 2);
    assert_int_equal(s.kernels_generated, 0);
    assert_non_null(strstr(ep_compiled_report(c), "injected"));
    ep_compiled_destroy(c);
    setenv("EPILOGUE_CC", "/nowhere/cc", 1);
    OK(ep_compile(ctx, gelu_plus, NULL, 2, 1, &o, &c));
    call_and_compare(c, gelu_plus, a, b);
    ep_compiled_stats(c, &s);
    assert_int_equal(s.build_failures, 1);
    assert_non_null(strstr(ep_compiled_report(c), "/nowhere/cc"));
    ep_compiled_destroy(c);
    unsetenv("EPILOGUE_CC");
    unlink(path);
    ep_tensor_destroy(a);
    ep_tensor_destroy(b);
}

static void no_call_waits_for_a_compiler(void **state) {
    (void)state;
    ep_compile_options o = {.no_disk_cache = true};
    ep_compiled *c;
    OK(ep_compile(ctx, gelu_plus, NULL, 2, 1, &o, &c));
    ep_tensor *a = tensor(EP_DTYPE_F32, 2, (int64_t[]){8, 40}, 1), *b = tensor(EP_DTYPE_F32, 2, (int64_t[]){8, 40}, 2);
    call_and_compare(c, gelu_plus, a, b);
    ep_compile_stats s;
    ep_compiled_stats(c, &s);
    assert_int_equal(s.eager_calls, 1);
    assert_true(s.waited_us == 0);
    OK(ep_compiled_wait(c));
    for (int i = 0; i < 60; i++) call_and_compare(c, gelu_plus, a, b);
    assert_true(ep_compiled_settled(c));
    ep_compiled_stats(c, &s);
    assert_int_equal(s.eager_calls, 1);
    assert_int_equal(s.kernels_generated, 1);
    assert_true(s.cold_us > 0);
    const char *name;
    assert_non_null(strstr(ep_compiled_source(c, 0, &name), "epi_poi_gelu_erf_add_f32"));
    assert_null(ep_compiled_source(c, 1, &name));
    assert_non_null(strstr(ep_compiled_report(c), " kept for 2^"));
    ep_tensor_destroy(a);
    ep_tensor_destroy(b);
    ep_compiled_destroy(c);
}

static void destroying_while_a_compiler_runs_is_fine(void **state) {
    (void)state;
    ep_compile_options o = {.no_disk_cache = true};
    ep_tensor *a = tensor(EP_DTYPE_F32, 2, (int64_t[]){8, 40}, 1), *b = tensor(EP_DTYPE_F32, 2, (int64_t[]){8, 40}, 2);
    for (int i = 0; i < 3; i++) {
        ep_compiled *c;
        OK(ep_compile(ctx, gelu_plus, NULL, 2, 1, &o, &c));
        call_and_compare(c, gelu_plus, a, b);
        ep_compiled_destroy(c);
    }
    ep_tensor_destroy(a);
    ep_tensor_destroy(b);
}

static ep_status looks_at_data(ep_context *c, void *user, const ep_tensor *const *in, int n, ep_tensor **out, int m) {
    ep_tensor *t;
    double v[4];
    ep_error err = {0};
    (void)user;
    (void)n;
    (void)m;
    ep_status s = ep_relu(c, in[0], &t);
    if (s != EP_OK) return s;
    s = ep_tensor_read_f64(t, v, 4, &err);
    ep_tensor_destroy(t);
    return s != EP_OK ? s : ep_relu(c, in[0], out);
}

static ep_status writes_in_place(ep_context *c, void *user, const ep_tensor *const *in, int n, ep_tensor **out, int m) {
    ep_tensor *t;
    (void)user;
    (void)n;
    (void)m;
    ep_status s = ep_relu(c, in[0], &t);
    if (s == EP_OK) s = ep_pointwise_into(c, EP_OP_EXP, (const ep_tensor *[]){t}, 1, t);
    if (s == EP_OK)
        *out = t;
    else
        ep_tensor_destroy(t);
    return s;
}

static void what_needs_data_is_refused(void **state) {
    (void)state;
    static const ep_fn fns[] = {looks_at_data, writes_in_place};
    ep_tensor *x = tensor(EP_DTYPE_F32, 1, (int64_t[]){4}, 1), *y;
    for (int i = 0; i < 2; i++) {
        ep_compiled *c;
        OK(ep_compile(ctx, fns[i], NULL, 1, 1, NULL, &c));
        assert_int_equal(ep_compiled_call(c, (const ep_tensor *[]){x}, &y), EP_ERROR_CAPTURE);
        assert_string_not_equal(ep_context_error(ctx)->message, "");
        ep_compiled_destroy(c);
        OK(ep_relu(ctx, x, &y)); /* the context works on */
        ep_tensor_destroy(y);
    }
    ep_tensor_destroy(x);
}

static ep_status views_out(ep_context *c, void *user, const ep_tensor *const *in, int n, ep_tensor **out, int m) {
    mlp *w = user;
    ep_tensor *t = NULL;
    (void)n;
    (void)m;
    out[0] = out[1] = out[2] = out[3] = NULL;
    ep_status s = ep_transpose(c, in[0], 0, 1, &out[0]); /* a view of an input */
    if (s == EP_OK) s = ep_t(c, w->gate, &out[1]);       /* a view of a constant */
    if (s == EP_OK) s = ep_gelu_tanh(c, in[0], &t);
    if (s == EP_OK) s = ep_exp(c, t, &out[2]);
    if (s == EP_OK) s = ep_slice(c, out[2], 1, 1, 3, 1, &out[3]); /* a view of another output */
    ep_tensor_destroy(t);
    return s;
}

static void outputs_may_be_views(void **state) {
    (void)state;
    mlp w;
    make_mlp(&w, EP_DTYPE_F32, 6, 4);
    ep_compile_options o = always();
    ep_compiled *c;
    OK(ep_compile(ctx, views_out, &w, 1, 4, &o, &c));
    ep_tensor *x = tensor(EP_DTYPE_F32, 2, (int64_t[]){3, 5}, 1), *a[4], *b[4];
    for (int round = 0; round < 3; round++) {
        OK(ep_compiled_call(c, (const ep_tensor *[]){x}, a));
        OK(views_out(ctx, &w, (const ep_tensor *[]){x}, 1, b, 4));
        assert_ptr_equal(ep_tensor_data(a[0]), ep_tensor_data(x));
        assert_ptr_equal(ep_tensor_data(a[1]), ep_tensor_data(w.gate));
        for (int i = 0; i < 4; i++) {
            same(a[i], b[i]);
            ep_tensor_destroy(a[i]);
            ep_tensor_destroy(b[i]);
        }
    }
    ep_tensor_destroy(x);
    ep_compiled_destroy(c);
    drop_mlp(&w);
}

/* x + sum(x), relu(x's first element): the same address and, as far as strides of size-1 dims say, the same walk. */
static ep_status whole_and_first(ep_context *c, void *user, const ep_tensor *const *in, int n, ep_tensor **out, int m) {
    ep_tensor *sum = NULL, *first = NULL;
    (void)user, (void)n, (void)m;
    int last = ep_tensor_ndim(in[0]) - 1;
    ep_status s = ep_sum(c, in[0], 1, true, &sum);
    if (s == EP_OK) s = ep_add(c, in[0], sum, &out[0]);
    if (s == EP_OK) s = ep_slice(c, in[0], last, 0, 1, 1, &first);
    if (s == EP_OK) s = ep_relu(c, first, &out[1]);
    ep_tensor_destroy(sum);
    ep_tensor_destroy(first);
    return s;
}

static void a_first_element_is_no_whole_row(void **state) {
    (void)state;
    static const int64_t shapes[][2] = {{1, 2}, {1, 9}, {3, 2}};
    for (int i = 0; i < 4; i++) {
        ep_compile_options o = always();
        ep_compiled *c;
        OK(ep_compile(ctx, whole_and_first, NULL, 1, 2, &o, &c));
        c->no_choice = true;
        ep_tensor *x = i < 3 ? tensor(EP_DTYPE_F32, 2, shapes[i], 1) : tensor(EP_DTYPE_F32, 1, (int64_t[]){2}, 1);
        ep_tensor *a[2], *b[2];
        OK(ep_compiled_call(c, (const ep_tensor *[]){x}, a));
        OK(whole_and_first(ctx, NULL, (const ep_tensor *[]){x}, 1, b, 2));
        for (int k = 0; k < 2; k++) {
            same(a[k], b[k]);
            ep_tensor_destroy(a[k]);
            ep_tensor_destroy(b[k]);
        }
        ep_tensor_destroy(x);
        ep_compiled_destroy(c);
    }
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

/* More sizes than are remembered: the oldest goes, nothing is compiled again, nothing runs eager for ever. */
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

static void fewest_rounds_once(void **state) {
    (void)state;
    ep_context *few;
    OK(ep_context_create(&(ep_context_options){.threads = 1, .rounding = EP_ROUNDING_FEWEST}, NULL, &few));
    ep_compile_options o = always();
    ep_compiled *c;
    OK(ep_compile(few, gelu_plus, NULL, 2, 1, &o, &c));
    c->no_choice = true;
    ep_tensor *a = tensor(EP_DTYPE_BF16, 2, (int64_t[]){50, 40}, 1),
              *b = tensor(EP_DTYPE_BF16, 2, (int64_t[]){50, 40}, 2), *y;
    OK(ep_compiled_call(c, (const ep_tensor *[]){a, b}, &y));
    ep_tensor *fa, *fb, *fy, *want;
    OK(ep_cast(few, a, EP_DTYPE_F32, &fa));
    OK(ep_cast(few, b, EP_DTYPE_F32, &fb));
    OK(gelu_plus(few, NULL, (const ep_tensor *[]){fa, fb}, 2, &fy, 1));
    OK(ep_cast(few, fy, EP_DTYPE_BF16, &want));
    same(y, want);
    ep_tensor_destroy(y);
    ep_compiled *early; /* its code is never there: the answers are the same from the first call on */
    setenv("EPILOGUE_CC", "/nowhere/cc", 1);
    OK(ep_compile(few, gelu_plus, NULL, 2, 1, &(ep_compile_options){.no_disk_cache = true}, &early));
    for (int i = 0; i < 3; i++) {
        OK(ep_compiled_call(early, (const ep_tensor *[]){a, b}, &y));
        same(y, want);
        if (i < 2) ep_tensor_destroy(y);
        OK(ep_compiled_wait(early));
    }
    unsetenv("EPILOGUE_CC");
    ep_compile_stats s;
    ep_compiled_stats(early, &s);
    assert_int_equal(s.eager_calls, 3);
    assert_int_equal(s.build_failures, 1);
    ep_compiled_destroy(early);
    ep_tensor *all[] = {a, b, y, fa, fb, fy, want};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) ep_tensor_destroy(all[i]);
    ep_compiled_destroy(c);
    ep_context_destroy(few);
}

static void reference_contexts_say_why_not(void **state) {
    (void)state;
    ep_context *plain;
    ep_compiled *c;
    OK(ep_context_create(&(ep_context_options){.threads = 1, .reference = true}, NULL, &plain));
    assert_int_equal(ep_compile(plain, gelu_plus, NULL, 2, 1, NULL, &c), EP_ERROR_UNSUPPORTED);
    assert_non_null(strstr(ep_context_error(plain)->message, "plain kernels only"));
    ep_context_destroy(plain);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(geglu_is_three_products_and_one_generated_kernel),
        cmocka_unit_test(a_second_process_loads_from_disk),
        cmocka_unit_test(a_new_batch_size_costs_no_compile),
        cmocka_unit_test(strides_of_dims_of_size_one_are_no_guards),
        cmocka_unit_test(a_failed_guard_names_itself),
        cmocka_unit_test(a_recording_shows_the_failed_guard_and_its_cost),
        cmocka_unit_test(static_code_is_built_again_for_every_shape),
        cmocka_unit_test(the_rounding_between_is_kept),
        cmocka_unit_test(a_value_with_a_second_reader_is_kept),
        cmocka_unit_test(a_kernel_that_does_not_build_is_counted),
        cmocka_unit_test(no_call_waits_for_a_compiler),
        cmocka_unit_test(destroying_while_a_compiler_runs_is_fine),
        cmocka_unit_test(what_needs_data_is_refused),
        cmocka_unit_test(outputs_may_be_views),
        cmocka_unit_test(a_first_element_is_no_whole_row),
        cmocka_unit_test(a_size_seen_before_allocates_nothing_new),
        cmocka_unit_test(a_size_that_the_function_looks_at_is_guarded),
        cmocka_unit_test(new_sizes_capture_nothing),
        cmocka_unit_test(many_sizes_are_bounded_and_stay_compiled),
        cmocka_unit_test(fewest_rounds_once),
        cmocka_unit_test(reference_contexts_say_why_not),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
