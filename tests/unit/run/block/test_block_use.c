/* Blocks as programs use them: from several threads by mistake, on both sides of a fork, destroyed in any order, with
 * arguments that are wrong. */
// ctest: threads
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <epilogue/epilogue.h>

#include "tensors.h"

static ep_tensor *noise(uint64_t seed, int64_t rows, int64_t cols) {
    return random_matrix(EP_DTYPE_BF16, rows, cols, seed, 0.2);
}

enum { ROWS = 48, DIM = 96, HIDDEN = 160, THREADS = 3, CALLS = 60 };

typedef struct parts {
    ep_context *ctx;
    ep_tensor *x, *gate, *up, *down, *want;
    ep_block *block;
} parts;

static ep_block *block_of(ep_context *ctx, const parts *p) {
    ep_block *b;
    ep_block_weights w = {.gate = p->gate, .up = p->up, .down = p->down};
    OK(ep_block_create(ctx, EP_BLOCK_GATED, EP_ACT_SILU, &w, &b));
    return b;
}

static parts make(void) {
    parts p = {.x = noise(1, ROWS, DIM), .gate = noise(2, HIDDEN, DIM), .up = noise(3, HIDDEN, DIM)};
    p.down = noise(4, DIM, HIDDEN);
    OK(ep_context_create(&(ep_context_options){.threads = 2}, NULL, &p.ctx));
    p.block = block_of(p.ctx, &p);
    OK(ep_block_run(p.block, EP_MODE_EAGER, p.x, NULL, &p.want));
    return p;
}

static void end(parts *p) {
    ep_block_destroy(p->block);
    ep_context_destroy(p->ctx);
    ep_tensor *all[] = {p->x, p->gate, p->up, p->down, p->want};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) ep_tensor_destroy(all[i]);
}

/* 1 if the mode's answer is another than eager's. */
static int is_wrong(ep_block *b, ep_mode mode, const ep_tensor *x, const ep_tensor *want) {
    ep_tensor *y;
    ep_difference d;
    if (ep_block_run(b, mode, x, NULL, &y) != EP_OK) return 1;
    ep_status s = ep_tensor_compare(y, want, 1, NULL, &d);
    ep_tensor_destroy(y);
    return s != EP_OK || !(d.max_rel < 0.02);
}

typedef struct share {
    const parts *p;
    ep_mode mode;
    atomic_int answers, refused, other, wrong;
} share;

static void *call_often(void *user) {
    share *s = user;
    for (int i = 0; i < CALLS; i++) {
        ep_tensor *y;
        ep_difference d;
        ep_status status = ep_block_run(s->p->block, s->mode, s->p->x, NULL, &y);
        atomic_fetch_add(status == EP_OK ? &s->answers : status == EP_ERROR_BUSY ? &s->refused : &s->other, 1);
        if (status != EP_OK) continue;
        if (ep_tensor_compare(y, s->p->want, 1, NULL, &d) != EP_OK || !(d.max_rel < 0.02))
            atomic_fetch_add(&s->wrong, 1);
        ep_tensor_destroy(y);
    }
    return NULL;
}

/* One block in the hands of several threads: every call is right or refused, none is silently wrong. */
static void a_shared_block_is_right_or_busy(void **state) {
    (void)state;
    parts p = make();
    for (int mode = EP_MODE_EAGER; mode < EP_MODE_COUNT; mode++) {
        if (ep_block_supports(p.block, (ep_mode)mode) != EP_OK) continue;
        share s = {.p = &p, .mode = (ep_mode)mode};
        pthread_t t[THREADS];
        for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&t[i], NULL, call_often, &s), 0);
        for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
        assert_int_equal(s.wrong, 0);
        assert_int_equal(s.other, 0);
        assert_int_equal(s.answers + s.refused, THREADS * CALLS);
        assert_true(s.answers > 0);
    }
    assert_int_equal(is_wrong(p.block, EP_MODE_TUNED, p.x, p.want), 0); /* nobody holds it now */
    end(&p);
}

#if !defined(__SANITIZE_THREAD__) /* TSan follows no fork of a process with threads */
/* What a child does with its parent's block and with one of its own; the exit status counts what went wrong. */
static int use_all(const parts *p) {
    int bad = 0;
    ep_context *own;
    if (ep_context_create(&(ep_context_options){.threads = 2}, NULL, &own) != EP_OK) return 90;
    ep_block *b = NULL;
    ep_block_weights w = {.gate = p->gate, .up = p->up, .down = p->down};
    if (ep_block_create(own, EP_BLOCK_GATED, EP_ACT_SILU, &w, &b) != EP_OK) return 91;
    for (int mode = EP_MODE_EAGER; mode < EP_MODE_COUNT; mode++)
        for (int i = 0; i < 3 && ep_block_supports(b, (ep_mode)mode) == EP_OK; i++) {
            bad += is_wrong(p->block, (ep_mode)mode, p->x, p->want);
            bad += is_wrong(b, (ep_mode)mode, p->x, p->want);
        }
    if (ep_block_compiled(p->block) && ep_compiled_wait(ep_block_compiled(p->block)) != EP_OK) bad++;
    ep_block_destroy(b);
    ep_context_destroy(own);
    return bad;
}

/* A child that hangs is ended by its alarm, which is a status of its own. */
static int status_of_child(parts *p) {
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(60);
        int bad = use_all(p);
        ep_block_destroy(p->block);
        ep_context_destroy(p->ctx);
        _exit(bad);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

/* The first child is forked while compiled mode still compiles, the second once all is there. */
static void a_child_goes_on(void **state) {
    (void)state;
    char folder[] = "/tmp/ep_fork_XXXXXX";
    assert_non_null(mkdtemp(folder));
    parts p = make();
    OK(ep_block_compile_with(p.block, &(ep_compile_options){.cache_dir = folder}));
    for (int mode = EP_MODE_EAGER; mode < EP_MODE_COUNT; mode++)
        if (ep_block_supports(p.block, (ep_mode)mode) == EP_OK)
            assert_int_equal(is_wrong(p.block, (ep_mode)mode, p.x, p.want), 0);
    assert_int_equal(status_of_child(&p), 0);
    if (ep_block_compiled(p.block)) OK(ep_compiled_wait(ep_block_compiled(p.block)));
    assert_int_equal(use_all(&p), 0);
    assert_int_equal(status_of_child(&p), 0);
    end(&p);
    ep_kernel_cache_clear(folder, NULL, &(size_t){0});
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    assert_int_equal(system(command), 0);
}
#endif

static void says(ep_status got, ep_status want, const ep_error *err, const char *words) {
    assert_int_equal(got, want);
    if (!strstr(err->message, words)) fail_msg("\"%s\" does not say \"%s\"", err->message, words);
}

static ep_status says_not_found(ep_context *ctx, void *user, const ep_tensor *const *in, int n, ep_tensor **out,
                                int m) {
    (void)ctx, (void)user, (void)in, (void)n, (void)out, (void)m;
    return EP_ERROR_NOT_FOUND;
}

/* The value and what is allowed stand in the sentence. */
static void wrong_arguments_are_named(void **state) {
    (void)state;
    parts p = make();
    ep_error err;
    const ep_error *said = ep_context_error(p.ctx);
    ep_context *ctx = NULL;
    ep_block *b = NULL;
    ep_tensor *t = NULL;
    ep_context_options o = {.threads = 5000};
    says(ep_context_create(&o, &err, &ctx), EP_ERROR_INVALID_ARGUMENT, &err, "5000 threads");
    says(ep_context_create(&o, &err, &ctx), EP_ERROR_INVALID_ARGUMENT, &err, "4096");
    o = (ep_context_options){.device = {(ep_device_kind)9, 0}};
    says(ep_context_create(&o, &err, &ctx), EP_ERROR_DEVICE, &err, "9 is not a kind of device");
    ep_block_weights w = {.gate = p.gate, .up = p.up, .down = p.down}, none = {.down = p.down};
    says(ep_block_create(p.ctx, (ep_block_kind)5, EP_ACT_SILU, &w, &b), EP_ERROR_INVALID_ARGUMENT, said, "5 is not");
    says(ep_block_create(p.ctx, EP_BLOCK_GATED, (ep_act)50, &w, &b), EP_ERROR_INVALID_ARGUMENT, said, "50 is not");
    says(ep_block_create(p.ctx, EP_BLOCK_GATED, EP_ACT_SILU, NULL, &b), EP_ERROR_INVALID_ARGUMENT, said, "weights");
    says(ep_block_create(p.ctx, EP_BLOCK_GATED, EP_ACT_SILU, &w, NULL), EP_ERROR_INVALID_ARGUMENT, said, "out");
    says(ep_block_create(p.ctx, EP_BLOCK_LINEAR, EP_ACT_NONE, &none, &b), EP_ERROR_INVALID_ARGUMENT, said, "`up`");
    says(ep_block_supports(p.block, (ep_mode)9), EP_ERROR_INVALID_ARGUMENT, said, "9 is not a mode");
    says(ep_block_run(p.block, (ep_mode)9, p.x, NULL, &t), EP_ERROR_INVALID_ARGUMENT, said, "9 is not a mode");
    says(ep_unary(p.ctx, (ep_op)1000, p.x, &t), EP_ERROR_INVALID_ARGUMENT, said, "1000 is not an op");
    says(ep_cat(p.ctx, NULL, 2, 0, &t), EP_ERROR_INVALID_ARGUMENT, said, "inputs is NULL");
    says(ep_block_load_packed(p.block, "no/such/file", true), EP_ERROR_NOT_FOUND, said, "no/such/file");
    ep_compile_options how = {.wait = (ep_wait)7}, which = {.specialize = (ep_specialize)8}, long_ago = {0};
    ep_compiled *c = NULL;
    long_ago.compiler_limit_s = -1;
    says(ep_compile(p.ctx, says_not_found, NULL, 1, 1, &how, &c), EP_ERROR_INVALID_ARGUMENT, said, "7 is no way");
    says(ep_block_compile_with(p.block, &which), EP_ERROR_INVALID_ARGUMENT, said, "8 is no way");
    says(ep_block_compile_with(p.block, &long_ago), EP_ERROR_INVALID_ARGUMENT, said, "-1 s");
    assert_null(c);
    OK(ep_compile(p.ctx, says_not_found, NULL, 1, 1, NULL, &c));
    says(ep_compiled_call(c, (const ep_tensor *const *)&p.x, &t), EP_ERROR_NOT_FOUND, said, "returned not_found");
    ep_compiled_destroy(c);
    assert_null(ctx);
    assert_null(b);
    assert_null(t);
    end(&p);
}

/* A fallible function refuses NULL where it needs an object or a place for its result. */
static void null_is_refused_by_all(void **state) {
    (void)state;
    ep_tensor *t;
    OK(ep_tensor_zeros(EP_DTYPE_F32, 1, &(int64_t){4}, NULL, &t));
    ep_device cpu = {EP_DEVICE_CPU, 0};
    ep_machine m = {0};
    char *text = NULL;
    const ep_status got[] = {ep_tensor_zeros(EP_DTYPE_F32, 1, &(int64_t){4}, NULL, NULL),
                             ep_tensor_compare(t, t, 1, NULL, NULL),
                             ep_machine_load(cpu, NULL, NULL),
                             ep_machine_measure(cpu, 1, NULL, NULL),
                             ep_machine_write(NULL, "f", NULL),
                             ep_machine_write(&m, NULL, NULL),
                             ep_profile_table(NULL, EP_SORT_CALLS, 0, NULL, &text),
                             ep_profile_measure_cost(NULL, NULL),
                             ep_profile_stop(NULL, NULL, NULL),
                             ep_guess_parse(NULL, 5, NULL, &(ep_guess *){NULL}),
                             ep_guess_parse("", 0, NULL, NULL),
                             ep_verdicts_get(NULL, 0, &(ep_verdict){0}),
                             ep_explain(NULL, NULL, 1, NULL, NULL, &(ep_report *){NULL}),
                             ep_trace_read(NULL, NULL, NULL, &(ep_trace *){NULL}),
                             ep_weights_open(NULL, NULL, &(ep_weights *){NULL}),
                             ep_compile(NULL, says_not_found, NULL, 1, 1, NULL, &(ep_compiled *){NULL})};
    for (size_t i = 0; i < sizeof got / sizeof *got; i++)
        if (got[i] != EP_ERROR_INVALID_ARGUMENT) fail_msg("call %zu gave %s", i, ep_status_name(got[i]));
    ep_profile_step(NULL);
    ep_tensor_destroy(t);
}

/* Weights, block and context end before what was made of them. */
static void any_order_of_ends(void **state) {
    (void)state;
    for (int mode = EP_MODE_EAGER; mode < EP_MODE_COUNT; mode++) {
        parts p = make();
        if (ep_block_supports(p.block, (ep_mode)mode) == EP_OK) {
            ep_tensor *y, *sum, *row;
            ep_tensor *weights[] = {p.gate, p.up, p.down};
            for (int i = 0; i < 3; i++) ep_tensor_destroy(weights[i]);
            p.gate = p.up = p.down = NULL;
            OK(ep_block_run(p.block, (ep_mode)mode, p.x, NULL, &y));
            OK(ep_block_run(p.block, (ep_mode)mode, y, p.x, &sum)); /* a result as x, x as the residual */
            OK(ep_tensor_slice(sum, 0, 1, 2, 1, NULL, &row));
            ep_tensor_destroy(sum);
            ep_block_destroy(p.block);
            ep_context_destroy(p.ctx);
            p.block = NULL;
            p.ctx = NULL;
            double values[DIM];
            OK(ep_tensor_read_f64(row, values, DIM, NULL));
            assert_true(values[0] == values[0]);
            ep_tensor_destroy(row);
            ep_tensor_destroy(y);
        }
        end(&p);
    }
}

/* A tensor whose rows lie 2^30 elements apart, in a mapping of which only the rows' pages exist. */
static ep_tensor *far_apart(const ep_tensor *from, void **map, size_t *bytes) {
    const int64_t step = (int64_t)1 << 30, rows = ep_tensor_size(from, 0), cols = ep_tensor_size(from, 1);
    *bytes = (size_t)((rows - 1) * step + cols) * ep_dtype_size(ep_tensor_dtype(from));
    *map = mmap(NULL, *bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (*map == MAP_FAILED) return NULL;
    ep_tensor *t;
    double values[ROWS * HIDDEN];
    size_t count = (size_t)ep_tensor_numel(from);
    assert_true(count <= ROWS * HIDDEN);
    OK(ep_tensor_from_memory((ep_device){EP_DEVICE_CPU, 0}, ep_tensor_dtype(from), 2, ep_tensor_sizes(from),
                             (int64_t[]){step, 1}, *map, *bytes, NULL, NULL, NULL, &t));
    OK(ep_tensor_read_f64(from, values, count, NULL));
    OK(ep_tensor_write_f64(t, values, count, NULL));
    return t;
}

/* x, weights and residual so, in every mode: the bits or at least the values of the same without gaps. */
static void rows_a_gibi_element_apart(void **state) {
    (void)state;
    enum { FEW = 3 };
    ep_tensor *near[4] = {noise(1, FEW, DIM), noise(2, FEW, DIM), noise(3, FEW, DIM), noise(4, FEW, DIM)}, *far[4];
    void *maps[4];
    size_t bytes[4];
    ep_context *ctx;
    OK(ep_context_create(NULL, NULL, &ctx));
    ep_tensor *down = noise(5, DIM, FEW), *want, *y;
    int there = 0;
    while (there < 4 && (far[there] = far_apart(near[there], &maps[there], &bytes[there]))) there++;
    ep_block *a, *b;
    if (there == 4) {
        OK(ep_block_create(ctx, EP_BLOCK_GATED, EP_ACT_SILU,
                           &(ep_block_weights){.gate = near[1], .up = near[2], .down = down}, &a));
        OK(ep_block_create(ctx, EP_BLOCK_GATED, EP_ACT_SILU,
                           &(ep_block_weights){.gate = far[1], .up = far[2], .down = down}, &b));
        for (int i = 0; i < 3 * EP_MODE_COUNT; i++) {
            ep_mode mode = (ep_mode)(i / 3);
            ep_difference d;
            if (ep_block_supports(b, mode) != EP_OK) continue;
            OK(ep_block_run(a, EP_MODE_EAGER, near[0], near[3], &want));
            OK(ep_block_run(b, mode, far[0], far[3], &y));
            OK(ep_tensor_compare(y, want, 1, NULL, &d));
            assert_true(d.max_rel < 0.02);
            ep_tensor_destroy(want);
            ep_tensor_destroy(y);
        }
        ep_block_destroy(a);
        ep_block_destroy(b);
    }
    ep_context_destroy(ctx);
    ep_tensor_destroy(down);
    for (int i = 0; i < 4; i++) ep_tensor_destroy(near[i]);
    for (int i = 0; i < there; i++) {
        ep_tensor_destroy(far[i]);
        munmap(maps[i], bytes[i]);
    }
    if (there < 4) skip(); /* a machine that maps no 4 GiB without memory behind */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shared_block_is_right_or_busy),
#if !defined(__SANITIZE_THREAD__)
        cmocka_unit_test(a_child_goes_on),
#endif
        cmocka_unit_test(wrong_arguments_are_named),
        cmocka_unit_test(null_is_refused_by_all),
        cmocka_unit_test(any_order_of_ends),
        cmocka_unit_test(rows_a_gibi_element_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
