// ctest: slow
/* Random graphs: what passes and loop nests make of a function is bit for bit what eager makes of it. 10,000 graphs run
 * through the passes, each verified after each pass, and the plain reference of the loop nests; some hundred of them as
 * generated code, many to one shared object. EP_GRAPHS, EP_SEED and EP_THREADS change how many, which, and on how many threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "programs.h"
#include "run/engine/capture.h"
#include "run/engine/compile.h"
#include "run/graph/ir_text.h"
#include "run/pass/pass.h"

enum { ELEMENTS = 4000, SIZES = 3 };

static uint64_t number(const char *name, uint64_t standard) {
    const char *s = getenv(name);
    return s && *s ? strtoull(s, NULL, 0) : standard;
}

static void make_inputs(rng *r, const shapes *s, ep_tensor *in[MOST_GIVEN]) {
    for (int i = 0; i < MOST_GIVEN; i++) in[i] = random_tensor(r, s->dtype[i], s->ndim[i], s->sizes[i]);
}

static void drop(ep_tensor **t, int n) {
    for (int i = 0; i < n; i++) ep_tensor_destroy(t[i]);
}

/* Eager against compiled on these inputs; "" if they agree, also on failing. */
static bool agrees(ep_context *ctx, ep_compiled *c, const program *p, ep_tensor **in, char *why, size_t size) {
    ep_tensor *a[MOST_OUT] = {NULL}, *b[MOST_OUT] = {NULL};
    const ep_tensor *const *inputs = (const ep_tensor *const *)in;
    ep_status x = run_program(ctx, (void *)(uintptr_t)p, inputs, MOST_GIVEN, a, p->outs);
    ep_status y = ep_compiled_call(c, inputs, b);
    bool ok = (x == EP_OK) == (y == EP_OK);
    if (!ok)
        snprintf(why, size, "eager says %s, compiled %s: %.200s", ep_status_name(x), ep_status_name(y),
                 ep_context_error(ctx)->message);
    for (int i = 0; ok && x == EP_OK && i < p->outs; i++) ok = same_bits(b[i], a[i], why, size);
    if (x == EP_OK) drop(a, p->outs);
    if (y == EP_OK) drop(b, p->outs);
    return ok;
}

static bool holds(ep_context *ctx, const program *p, ep_tensor **in, char *why, size_t size) {
    ep_compiled *c;
    if (ep_compile_with(ctx, run_program, (void *)(uintptr_t)p, MOST_GIVEN, p->outs, NULL, true, &c) != EP_OK)
        return false;
    c->steps_always = true;
    bool ok = agrees(ctx, c, p, in, why, size);
    ep_compiled_destroy(c);
    return ok;
}

/* A smaller program that still fails: one output, then steps that nobody reads left out. */
static void shrink(ep_context *ctx, program *p, ep_tensor **in) {
    char why[200];
    for (int i = 0; i < p->outs && p->outs > 1; i++) {
        program q = *p;
        q.out[0] = p->out[i];
        q.outs = 1;
        if (holds(ctx, &q, in, why, sizeof why)) continue;
        *p = q;
        break;
    }
    for (int i = p->steps - 1; i >= 0; i--) {
        program q = *p;
        int value = p->given + i;
        bool used = false;
        for (int k = 0; k < p->outs; k++) used |= p->out[k] == value;
        for (int k = i + 1; k < p->steps; k++)
            used |= p->step[k].a == value || p->step[k].b == value || p->step[k].c == value;
        if (used) continue;
        memmove(&q.step[i], &q.step[i + 1], sizeof *q.step * (size_t)(q.steps - i - 1));
        q.steps--;
        for (int k = 0; k < q.steps; k++) {
            q.step[k].a -= q.step[k].a > value;
            q.step[k].b -= q.step[k].b > value;
            q.step[k].c -= q.step[k].c > value;
        }
        for (int k = 0; k < q.outs; k++) q.out[k] -= q.out[k] > value;
        if (!holds(ctx, &q, in, why, sizeof why)) *p = q;
    }
}

static void show(ep_context *ctx, const program *p, ep_tensor **in) {
    ep_captured c;
    if (ep_capture(ctx, run_program, (void *)(uintptr_t)p, (const ep_tensor *const *)in, MOST_GIVEN, p->outs, true,
                   &c) != EP_OK) {
        print_message("capture: %s\n", ep_context_error(ctx)->message);
        return;
    }
    ep_text t = {0};
    ep_graph_print(c.graph, &t);
    ep_error err = {0};
    if (ep_passes_run(c.graph, &(ep_pass_options){.verify = true}, &err) != EP_OK) print_message("%s\n", err.message);
    ep_text_add(&t, "after the passes:\n");
    ep_graph_print(c.graph, &t);
    fprintf(stderr, "%s\n", ep_text_str(&t)); /* cmocka cuts long messages */
    ep_text_free(&t);
    ep_captured_clear(&c);
}

static void random_graphs_are_eager_bit_for_bit(void **state) {
    (void)state;
    uint64_t graphs = number("EP_GRAPHS", 10000), seed = number("EP_SEED", 20261130);
    print_message("seed %llu, %llu graphs\n", (unsigned long long)seed, (unsigned long long)graphs);
    ep_context *ctx;
    assert_int_equal(ep_context_create(&(ep_context_options){.threads = (int)number("EP_THREADS", 1)}, NULL, &ctx),
                     EP_OK);
    int64_t groups = 0, ops = 0, calls = 0, captures = 0, stepped = 0;
    for (uint64_t n = 0; n < graphs; n++) {
        rng r = {seed * 0x9e3779b97f4a7c15u + n * 0xda942042e4dd58b5u + 1};
        for (int i = 0; i < 8; i++) next(&r);
        shapes s;
        program p;
        ep_tensor *in[MOST_GIVEN];
        char why[300] = "";
        random_shapes(&r, &s, ELEMENTS);
        make_inputs(&r, &s, in);
        if (!random_program(&r, ctx, (const ep_tensor *const *)in, ELEMENTS, &p)) {
            drop(in, MOST_GIVEN);
            continue;
        }
        ep_compiled *c;
        assert_int_equal(ep_compile_with(ctx, run_program, &p, MOST_GIVEN, p.outs, NULL, true, &c), EP_OK);
        c->steps_always = true; /* chains behind products are done by gemm where they can be */
        for (int size = 0; size < SIZES; size++) {
            if (!agrees(ctx, c, &p, in, why, sizeof why)) {
                ep_compiled_destroy(c);
                shrink(ctx, &p, in);
                show(ctx, &p, in);
                fail_msg("graph %llu, sizes %d: %s (EP_SEED=%llu)", (unsigned long long)n, size, why,
                         (unsigned long long)seed);
            }
            stepped += c->last && c->last->plans[EP_RUN_STEPPED];
            drop(in, MOST_GIVEN);
            other_size(&r, &s);
            make_inputs(&r, &s, in);
        }
        groups += (int64_t)c->kernels.count;
        ops += p.steps;
        calls += c->calls;
        captures += c->captures;
        ep_compiled_destroy(c);
        drop(in, MOST_GIVEN);
    }
    print_message("%lld ops, %lld kernels, %lld calls of other sizes, %lld of them without a capture\n", (long long)ops,
                  (long long)groups, (long long)(calls - (int64_t)graphs), (long long)(calls - captures));
    print_message("%lld calls had steps done by gemm\n", (long long)stepped);
    if (graphs >= 2000) assert_true(stepped > (int64_t)graphs / 200); /* few graphs may hold none */
    assert_true(calls - captures > (int64_t)graphs / 20);             /* else symbols were not tested */
    assert_true(groups > (int64_t)graphs / 4);                        /* else nothing was tested */
    ep_context_destroy(ctx);
}

/* Many programs as one function: one source file, one compiler run. */
enum { TOGETHER = 15 };
typedef struct bundle {
    program p[TOGETHER];
    int count;
} bundle;

static ep_status run_bundle(ep_context *ctx, void *user, const ep_tensor *const *in, int count, ep_tensor **out,
                            int n) {
    bundle *b = user;
    int done = 0;
    (void)count;
    (void)n;
    for (int i = 0; i < b->count; i++) {
        ep_status s = run_program(ctx, &b->p[i], in + i * MOST_GIVEN, MOST_GIVEN, out + done, b->p[i].outs);
        if (s != EP_OK) {
            for (int k = 0; k < done; k++) ep_tensor_destroy(out[k]);
            return s;
        }
        done += b->p[i].outs;
    }
    return EP_OK;
}

static void one_bundle(ep_context *ctx, rng *r, int64_t *kernels) {
    bundle b = {0};
    ep_tensor *in[TOGETHER * MOST_GIVEN];
    int outs = 0;
    while (b.count < TOGETHER) {
        shapes s;
        ep_tensor **mine = in + b.count * MOST_GIVEN;
        random_shapes(r, &s, ELEMENTS);
        make_inputs(r, &s, mine);
        program *p = &b.p[b.count];
        if (!random_program(r, ctx, (const ep_tensor *const *)mine, ELEMENTS, p)) {
            drop(mine, MOST_GIVEN);
            continue;
        }
        outs += p->outs;
        b.count++;
    }
    ep_compiled *c;
    ep_compile_options o = {.wait = EP_WAIT_ALWAYS, .no_disk_cache = true};
    assert_int_equal(ep_compile(ctx, run_bundle, &b, TOGETHER * MOST_GIVEN, outs, &o, &c), EP_OK);
    c->no_choice = c->steps_always = true;
    ep_tensor *x[64] = {NULL}, *y[64] = {NULL};
    const ep_tensor *const *inputs = (const ep_tensor *const *)in;
    assert_int_equal(run_bundle(ctx, &b, inputs, TOGETHER * MOST_GIVEN, x, outs), EP_OK);
    if (ep_compiled_call(c, inputs, y) != EP_OK) fail_msg("%s", ep_context_error(ctx)->message);
    ep_compile_stats stats;
    ep_compiled_stats(c, &stats);
    if (stats.build_failures) fail_msg("%s", ep_compiled_report(c));
    assert_int_equal(stats.eager_calls, 0);
    *kernels += stats.kernels_generated;
    for (int i = 0, at = 0; i < b.count; i++)
        for (int k = 0; k < b.p[i].outs; k++, at++) {
            char why[200];
            if (same_bits(y[at], x[at], why, sizeof why)) continue;
            show(ctx, &b.p[i], in + i * MOST_GIVEN);
            fail_msg("program %d, output %d: %s", i, k, why);
        }
    drop(x, outs);
    drop(y, outs);
    ep_compiled_destroy(c);
    drop(in, TOGETHER * MOST_GIVEN);
}

static void generated_code_is_eager_bit_for_bit(void **state) {
    (void)state;
    uint64_t bundles = number("EP_BUNDLES", 15), seed = number("EP_SEED", 20261130);
    print_message("seed %llu, %llu programs\n", (unsigned long long)seed, (unsigned long long)(bundles * TOGETHER));
    ep_context *ctx;
    int64_t kernels = 0;
    assert_int_equal(ep_context_create(&(ep_context_options){.threads = (int)number("EP_THREADS", 2)}, NULL, &ctx),
                     EP_OK);
    rng r = {seed * 0x9e3779b97f4a7c15u + 99};
    for (uint64_t i = 0; i < bundles; i++) one_bundle(ctx, &r, &kernels);
    print_message("%lld kernels\n", (long long)kernels);
    assert_true(kernels > (int64_t)bundles);
    ep_context_destroy(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_graphs_are_eager_bit_for_bit),
        cmocka_unit_test(generated_code_is_eager_bit_for_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
