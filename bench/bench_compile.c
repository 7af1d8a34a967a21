/* Compiled mode: what the first call costs and its parts, what a call costs while sizes shift, what guards and the plan
 * cost, and how near the generated kernels are to what the machine can do.
 *   bench_compile [--threads N] [--sizes N] [--json] [first] [shift] [host] [kernels] [rows]
 * What single calls cost beside the compiler is bench_calls's to tell. Without a name: all. First calls and shifting sizes run in processes of their own, with a cache folder of their own.
 * Every output is compared with eager's; one that differs ends the program with exit 1. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/isa.h"
#include "model/op/op.h"
#include "article.h"
#include "run/backend/cpu/gemm.h"
#include "run/backend/cpu/tuned.h"
#include "run/codegen/emit_c.h"
#include "run/engine/capture.h"
#include "run/jit/toolchain.h"
#include "run/pass/pass.h"

enum { CALLS = 200, REPEATS = 9 };
static int thread_count;
static bench_form form;
static int distinct = MOST_BATCH; /* batches: that many multiples of one step */

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
static double median(double *v, int n) {
    qsort(v, (size_t)n, sizeof *v, by_value);
    return n ? v[n / 2] : 0;
}

static void same(const char *what, const ep_tensor *got, const ep_tensor *want) {
    ep_difference d;
    CHECK(ep_tensor_compare(got, want, 0, NULL, &d));
    if (d.max_abs == 0) return;
    fprintf(stderr, "bench_compile: %s differs from eager by %g at element %" PRId64 "\n", what, d.max_abs, d.at);
    exit(1);
}

static void line(const char *what, double value, const char *unit, const char *goal) {
    if (form == BENCH_JSON)
        printf("{\"what\":\"%s\",\"value\":%.4f,\"unit\":\"%s\",\"goal\":\"%s\"}\n", what, value, unit, goal);
    else
        printf("  %-58s %10.3f %-6s %s%s\n", what, value, unit, *goal ? "goal " : "", goal);
    fflush(stdout);
}

static void title(const char *text) {
    if (form != BENCH_JSON) printf("%s\n", text);
}

/* ---- processes of their own ---- */

/* Runs this program as `--child ARGS` and reads the numbers it prints. */
static int child(const char *args, double *out, int most) {
    char command[512], self[256];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n < 0) exit(1);
    self[n] = 0;
    snprintf(command, sizeof command, "'%s' --threads %d --sizes %d --child %s", self, thread_count, distinct, args);
    FILE *p = popen(command, "r");
    int count = 0;
    while (p && count < most && fscanf(p, "%lf", &out[count]) == 1) count++;
    if (!p || pclose(p) != 0) {
        fprintf(stderr, "bench_compile: %s failed\n", command);
        exit(1);
    }
    return count;
}

static char *fresh_folder(void) {
    char *dir = strdup("/tmp/bench-compile-XXXXXX");
    if (!dir || !mkdtemp(dir)) exit(1);
    return dir;
}

static void drop_folder(char *dir) {
    size_t removed;
    CHECK(ep_kernel_cache_clear(dir, NULL, &removed));
    rmdir(dir);
    free(dir);
}

static double timed(ep_block *b, ep_mode mode, const ep_tensor *x, ep_tensor **y) {
    double t = bench_seconds();
    CHECK(ep_block_run(b, mode, x, NULL, y));
    return bench_seconds() - t;
}

/* Prints ms: the eager call before, the first compiled call, from its start until the code was ready, the call after. */
static void child_first(const char *dir) {
    ep_block *b = geglu(EP_DTYPE_BF16);
    ep_tensor *x = random_tensor(EP_DTYPE_BF16, 3, (int64_t[]){1, SEQ, DIM}, 4, 1), *y[4];
    CHECK(ep_block_compile_with(b, &(ep_compile_options){.cache_dir = dir, .wait = EP_WAIT_ALWAYS}));
    double eager = timed(b, EP_MODE_EAGER, x, &y[0]);
    double first = timed(b, EP_MODE_COMPILED, x, &y[1]), next = timed(b, EP_MODE_COMPILED, x, &y[2]);
    ep_compile_stats s;
    ep_compiled_stats(ep_block_compiled(b), &s);
    if (s.build_failures || s.kernels_generated + s.kernels_from_disk != 1) exit(1);
    same("the first compiled call", y[1], y[0]);
    printf("%f %f %f %f\n", eager * 1e3, first * 1e3, s.cold_us * 1e-3, next * 1e3);
}

static uint64_t state = 88172645463325252u;
static int draw(void) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (1 + (int)((state >> 33) % (uint64_t)distinct)) * (MOST_BATCH / distinct);
}

/* Prints ms of each of the calls, then compiles and calls answered by eager. Mode: eager, generic, static. */
static void child_shift(const char *mode, const char *dir) {
    bool eager = strcmp(mode, "eager") == 0, fixed = strcmp(mode, "static") == 0;
    ep_block *b = geglu(EP_DTYPE_BF16);
    ep_compile_options o = {.cache_dir = dir,
                            .wait = fixed ? EP_WAIT_ALWAYS : EP_WAIT_NEVER,
                            .specialize = fixed ? EP_SPECIALIZE_STATIC : EP_SPECIALIZE_GENERIC};
    CHECK(ep_block_compile_with(b, &o));
    ep_tensor *all = random_tensor(EP_DTYPE_BF16, 3, (int64_t[]){MOST_BATCH, SEQ, DIM}, 4, 1);
    for (int i = 0; i < CALLS; i++) {
        ep_tensor *x, *y;
        CHECK(ep_tensor_slice(all, 0, 0, draw(), 1, NULL, &x));
        printf("%f\n", timed(b, eager ? EP_MODE_EAGER : EP_MODE_COMPILED, x, &y) * 1e3);
        ep_tensor_destroy(x);
        ep_tensor_destroy(y);
    }
    ep_compile_stats s;
    ep_compiled_stats(ep_block_compiled(b), &s);
    printf("%f %f\n", (double)(s.kernels_generated + s.kernels_from_disk), (double)s.eager_calls);
}

/* ---- the first call ---- */

static ep_status gelu_mul(ep_context *c, void *user, const ep_tensor *const *in, int n, ep_tensor **out, int m) {
    (void)user, (void)n, (void)m;
    ep_tensor *h;
    EP_TRY(ep_gelu_tanh(c, in[0], &h));
    ep_status s = ep_mul(c, h, in[1], out);
    ep_tensor_destroy(h);
    return s;
}

/* The parts of it, one after the other, as the engine does them. */
static void parts(double ms[5]) {
    static ep_loop l;
    int64_t sizes[2] = {64, HIDDEN};
    const ep_tensor *in[2] = {random_tensor(EP_DTYPE_BF16, 2, sizes, 1, 1),
                              random_tensor(EP_DTYPE_BF16, 2, sizes, 2, 1)};
    ep_captured c = {0};
    ep_text source = {0};
    ep_error err = {0};
    void *image, *module;
    size_t size;
    double t[6] = {bench_seconds()};
    CHECK(ep_capture(ctx, gelu_mul, NULL, in, 2, 1, true, &c));
    t[1] = bench_seconds();
    CHECK(ep_passes_run(c.graph, &(ep_pass_options){0}, &err));
    t[2] = bench_seconds();
    CHECK(ep_loop_build(c.graph, 0, &err, &l));
    ep_emit_preamble(&ep_dialect_cpu, ep_cpu_get()->isa, &source);
    ep_emit_kernel(&ep_dialect_cpu, ep_cpu_get()->isa, &l, &source);
    t[3] = bench_seconds();
    ep_build b = {.source = source.data, .source_len = source.len, .isa = ep_cpu_get()->isa};
    CHECK(ep_toolchain_cc.build(&b, &err, &image, &size));
    t[4] = bench_seconds();
    CHECK(ctx->ops.module_load(&ctx->backend, NULL, image, size, &err, &module));
    t[5] = bench_seconds();
    for (int i = 0; i < 5; i++) ms[i] = (t[i + 1] - t[i]) * 1e3;
    ctx->ops.module_free(&ctx->backend, module);
    free(image);
    ep_text_free(&source);
    ep_captured_clear(&c);
}

static void first(void) {
    double cold[4][REPEATS], warm[4][REPEATS], part[5][REPEATS], ms[5];
    for (int r = 0; r < REPEATS; r++) {
        char *dir = fresh_folder(), args[128];
        snprintf(args, sizeof args, "first %s", dir);
        if (child(args, ms, 4) != 4) exit(1);
        for (int k = 0; k < 4; k++) cold[k][r] = ms[k];
        if (child(args, ms, 4) != 4) exit(1);
        for (int k = 0; k < 4; k++) warm[k][r] = ms[k];
        parts(ms);
        for (int k = 0; k < 5; k++) part[k][r] = ms[k];
        drop_folder(dir);
    }
    title("first compiled geglu call of a process, bf16 [1,16,768] -> 3072, that waits for its code (medians of 9)");
    line("empty cache: until the generated kernel can run", median(cold[2], REPEATS), "ms", "<= 200");
    line("  the whole first call", median(cold[1], REPEATS), "ms", "");
    line("filled cache, new process: until the kernel can run", median(warm[2], REPEATS), "ms", "<= 5");
    line("  the whole first call", median(warm[1], REPEATS), "ms", "");
    line("  the eager call before it, first of the process", median(warm[0], REPEATS), "ms", "");
    line("  the compiled call after it", median(warm[3], REPEATS), "ms", "");
    static const char *const names[] = {"  part: capture", "  part: passes", "  part: loop nest and source text",
                                        "  part: C compiler", "  part: dlopen"};
    for (int k = 0; k < 5; k++) line(names[k], median(part[k], REPEATS), "ms", "");
}

/* ---- shifting sizes ---- */

typedef struct shifted {
    double ms[CALLS + 2];
    double p50, p99, most, ratio;
    int batch; /* of the call with the largest ratio */
} shifted;

/* usual[batch]: median of eager's calls of that size. */
static void look(shifted *s, const int *batch, const double *usual) {
    double sorted[CALLS];
    memcpy(sorted, s->ms, sizeof sorted);
    s->p50 = median(sorted, CALLS);
    s->p99 = sorted[CALLS * 99 / 100];
    s->most = sorted[CALLS - 1];
    s->ratio = 0;
    for (int i = 0; i < CALLS; i++)
        if (s->ms[i] > s->ratio * usual[batch[i]]) {
            s->ratio = s->ms[i] / usual[batch[i]];
            s->batch = batch[i];
        }
}

static void shift(void) {
    static shifted s[3];
    static const char *const modes[3] = {"eager", "generic", "static"};
    int batch[CALLS];
    double usual[MOST_BATCH + 1] = {0};
    for (int i = 0; i < CALLS; i++) batch[i] = draw();
    for (int k = 0; k < 3; k++) {
        char *dir = fresh_folder(), args[128];
        snprintf(args, sizeof args, "shift %s %s", modes[k], dir);
        if (child(args, s[k].ms, CALLS + 2) != CALLS + 2) exit(1);
        drop_folder(dir);
    }
    for (int b = 1; b <= MOST_BATCH; b++) {
        double same_size[CALLS];
        int n = 0;
        for (int i = 0; i < CALLS; i++)
            if (batch[i] == b) same_size[n++] = s[0].ms[i];
        usual[b] = median(same_size, n);
    }
    if (form != BENCH_JSON)
        printf("200 calls of geglu bf16 [batch,16,768] -> 3072, batch drawn from %d multiples of %d, empty cache, each "
               "way "
               "in a new process\n",
               distinct, MOST_BATCH / distinct);
    for (int k = 0; k < 3; k++) {
        char text[96];
        look(&s[k], batch, usual);
        const char *way = k == 0   ? "eager"
                          : k == 1 ? "compiled, sizes free, no call waits"
                                   : "compiled, static, calls wait";
        snprintf(text, sizeof text, "%s: p50", way);
        line(text, s[k].p50, "ms", "");
        line("  p99", s[k].p99, "ms", "");
        line("  longest", s[k].most, "ms", "");
        snprintf(text, sizeof text, "  longest against the usual eager call of its size (batch %d)", s[k].batch);
        line(text, s[k].ratio, "x", k == 1 ? "<= 1.5 of eager's" : "");
        if (k == 0) continue;
        line("  kernels built", s[k].ms[CALLS], "", "");
        line("  calls answered by eager", s[k].ms[CALLS + 1], "", "");
    }
    line("longest call, compiled by eager's longest", s[1].most / s[0].most, "x", "<= 1.5");
}

/* ---- one compiled function and its eager twin ---- */

typedef struct twin {
    ep_fn fn;
    ep_compiled *compiled;
    const ep_tensor *in[4];
    int count;
    void *user;
} twin;

static void run_compiled(void *user, int64_t times) {
    twin *t = user;
    for (int64_t i = 0; i < times; i++) {
        ep_tensor *y;
        CHECK(ep_compiled_call(t->compiled, t->in, &y));
        ep_tensor_destroy(y);
    }
}

static void run_eager(void *user, int64_t times) {
    twin *t = user;
    for (int64_t i = 0; i < times; i++) {
        ep_tensor *y;
        CHECK(t->fn(ctx, t->user, t->in, t->count, &y, 1));
        ep_tensor_destroy(y);
    }
}

/* Compiled, compared with eager, and called until the choice between the two is made. True: compiled was kept. */
static bool prepare(twin *t, const char *what, ep_specialize specialize, const char *dir) {
    ep_compile_options o = {.wait = EP_WAIT_ALWAYS, .specialize = specialize, .cache_dir = dir};
    CHECK(ep_compile(ctx, t->fn, t->user, t->count, 1, &o, &t->compiled));
    ep_tensor *got, *want;
    CHECK(ep_compiled_call(t->compiled, t->in, &got));
    CHECK(t->fn(ctx, t->user, t->in, t->count, &want, 1));
    same(what, got, want);
    ep_tensor_destroy(got);
    ep_tensor_destroy(want);
    run_compiled(t, 40);
    return strstr(ep_compiled_report(t->compiled), "eager kept") == NULL;
}

/* ---- host time of one Linear ---- */

static ep_status one_linear(ep_context *c, void *user, const ep_tensor *const *in, int n, ep_tensor **out, int m) {
    (void)n, (void)m;
    ep_tensor **w = user;
    return ep_linear(c, in[0], w[0], w[1], out);
}

typedef struct product {
    ep_gemm g;
    ep_gemm_entry *entry;
} product;

static void run_execution(void *user, int64_t times) {
    product *p = user;
    for (int64_t i = 0; i < times; i++)
        CHECK(ep_gemm_execute(ep_cpu_of(&ctx->backend)->gemms, p->entry, p->g.a, p->g.b, p->g.bias, p->g.out, NULL,
                              NULL));
}

static void run_product(void *user, int64_t times) {
    product *p = user;
    for (int64_t i = 0; i < times; i++) CHECK(ctx->ops.gemm(&ctx->backend, &p->g, NULL));
}

static void host(const char *dir) {
    enum { ROWS = 8, K = 32, N = 64 };
    ep_context *all = ctx;
    CHECK(ep_context_create(&(ep_context_options){.threads = 1}, NULL, &ctx));
    ep_tensor *x = random_tensor(EP_DTYPE_F32, 2, (int64_t[]){ROWS, K}, 1, 1), *y;
    ep_tensor *w[2] = {random_tensor(EP_DTYPE_F32, 2, (int64_t[]){N, K}, 2, 1),
                       random_tensor(EP_DTYPE_F32, 1, (int64_t[]){N}, 3, 1)};
    CHECK(ep_tensor_create(EP_DTYPE_F32, 2, (int64_t[]){ROWS, N}, NULL, &y));
    twin t = {.fn = one_linear, .in = {x}, .count = 1, .user = w};
    prepare(&t, "linear", EP_SPECIALIZE_GENERIC, dir);
    product p = {.g = {.batch = 1, .m = ROWS, .n = N, .k = K, .alpha = 1}};
    p.g.a = ep_tensor_data(x), p.g.b = ep_tensor_data(w[0]), p.g.bias = ep_tensor_data(w[1]),
    p.g.out = ep_tensor_data(y);
    p.g.a_row = p.g.b_col = K, p.g.a_col = p.g.b_row = p.g.bias_stride = 1, p.g.out_row = N;
    ep_gemm_problem q = {.batch = 1, .m = ROWS, .n = N, .k = K, .a_row = K, .a_col = 1, .b_row = 1, .b_col = K};
    q.out_row = N, q.out_batch = ROWS * N, q.has_bias = 1, q.threads = 1;
    if (ep_gemm_find(ep_cpu_of(&ctx->backend)->gemms, &q, NULL, &p.entry) != EP_OK || !p.entry) exit(1);
    bench_variant v[] = {{"oneDNN's execution alone", run_execution, &p, 0, 0},
                         {"the backend's product", run_product, &p, 0, 0},
                         {"compiled call", run_compiled, &t, 0, 0},
                         {"eager call", run_eager, &t, 0, 0}};
    bench_result r[4];
    bench_run(v, 4, &(bench_options){.rounds = 31, .seconds = 0.005}, r);
    title("host time of one Linear with bias, f32 8x32->64, 1 thread, recording off");
    bench_print(stdout, form, "linear 8x32->64", r, 4);
    line("guards, plan and result, beyond the backend's product", r[2].best_ns - r[1].best_ns, "ns", "<= 150");
    line("all of a compiled call beyond oneDNN's execution (best)", r[2].best_ns - r[0].best_ns, "ns", "");
    line("all of an eager call beyond oneDNN's execution (best)", r[3].best_ns - r[0].best_ns, "ns", "");
    ep_compiled_destroy(t.compiled);
    ep_context_destroy(ctx);
    ctx = all;
}

/* ---- what the machine can do with the same traffic ---- */

typedef float vec __attribute__((vector_size(64)));
typedef struct traffic {
    vec *a, *b, *out;
    int64_t vectors;
    bool stream;
} traffic;

#if defined(__x86_64__)
#define WIDEST __attribute__((target("avx512f")))
#define STREAM(p, x) __asm__ volatile("vmovntps %1, %0" : "=m"(*(p)) : "v"(x))
#else
#define WIDEST
#define STREAM(p, x) (*(p) = (x))
#endif
WIDEST static void move_vectors(const traffic *t, int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; k++) {
        __builtin_prefetch(&t->a[k + 32]);
        vec x = t->a[k];
        if (t->b) {
            __builtin_prefetch(&t->b[k + 32]);
            x += t->b[k];
        }
        if (t->stream)
            STREAM(&t->out[k], x);
        else
            t->out[k] = x;
    }
}

/* out = a + b, or a copy when b is null: nothing but the traffic. */
static void run_traffic(void *user, int64_t times) {
    const traffic *t = user;
    for (int64_t i = 0; i < times; i++) {
#pragma omp parallel num_threads(thread_count)
        {
            int64_t part = omp_get_thread_num(), of = omp_get_num_threads();
            move_vectors(t, t->vectors * part / of, t->vectors * (part + 1) / of);
        }
    }
}

/* Over the kernel's own inputs, so that no variant finds memory colder than another does. */
static traffic make_traffic(double bytes, const ep_tensor *const *in, int count) {
    traffic t = {
        .vectors = (int64_t)bytes / 64, .a = ep_tensor_data(in[0]), .b = count == 2 ? ep_tensor_data(in[1]) : NULL};
    t.out = ep_tuned_alloc((size_t)t.vectors * sizeof(vec));
    if (!t.out) exit(1);
    memset(t.out, 0, (size_t)t.vectors * sizeof(vec));
    return t;
}

/* ---- generated kernels against their bounds ---- */

static ep_status chain_of_ten(ep_context *c, void *user, const ep_tensor *const *in, int n, ep_tensor **out, int m) {
    (void)user, (void)n, (void)m;
    static const ep_op ops[10] = {EP_OP_ABS,  EP_OP_ADD, EP_OP_MINIMUM, EP_OP_MUL,     EP_OP_NEG,
                                  EP_OP_RELU, EP_OP_ADD, EP_OP_SUB,     EP_OP_MAXIMUM, EP_OP_MUL};
    ep_tensor *x = NULL;
    for (int i = 0; i < 10; i++) {
        ep_tensor *y;
        const ep_tensor *a = x ? x : in[0];
        ep_status s =
            ep_op_get(ops[i])->max_arity == 1 ? ep_unary(c, ops[i], a, &y) : ep_binary(c, ops[i], a, in[0], &y);
        ep_tensor_destroy(x);
        if (s != EP_OK) return s;
        x = y;
    }
    *out = x;
    return EP_OK;
}

typedef struct problem {
    const char *name;
    ep_fn fn;
    int count; /* of inputs, each [rows, width] */
    int64_t rows, width;
    const char *goal;
} problem;

enum { CACHED_ROWS = 16 };

/* The same code where memory costs nothing: few rows, in cache, on one thread. */
static twin in_cache(const problem *p, ep_dtype dtype, ep_context *one, ep_specialize specialize, const char *dir) {
    ep_context *all = ctx;
    int64_t sizes[2] = {CACHED_ROWS, p->width};
    twin t = {.fn = p->fn, .count = p->count};
    ctx = one;
    for (int k = 0; k < p->count; k++) t.in[k] = random_tensor(dtype, 2, sizes, (uint64_t)k + 1, 1);
    prepare(&t, p->name, specialize, dir);
    ctx = all;
    return t;
}

static void shares(const problem *p, const bench_result *r) {
    double memory = r[1].ratio < r[2].ratio ? r[1].ratio : r[2].ratio;
    double compute = r[3].ratio * (double)p->rows / CACHED_ROWS / thread_count;
    line("share of the traffic bound (median ratio)", 100 * memory, "%", "");
    line("share of the compute bound (same code in cache)", 100 * compute, "%", "");
    line("share of the larger bound", 100 * (memory > compute ? memory : compute), "%", p->goal);
}

/* The two codes alone, in memory and on rows in cache: first the one, then the other in every round, in turn. */
static void one_code(twin *generic, twin *fixed, twin *cached, twin *cached_fixed) {
    bench_variant memory[] = {{"sizes free", run_compiled, generic, 0, 0}, {"static", run_compiled, fixed, 0, 0}};
    bench_variant cache[] = {{"sizes free", run_compiled, cached, 0, 0}, {"static", run_compiled, cached_fixed, 0, 0}};
    bench_result r[2];
    bench_run(memory, 2, &(bench_options){.rounds = 61, .seconds = 0.025}, r);
    line("one code for every size by the static one", 100 * r[1].ratio, "%", ">= 97");
    bench_run(cache, 2, &(bench_options){.rounds = 61, .seconds = 0.004}, r);
    line("the same on 16 rows in cache, 1 thread", 100 * r[1].ratio, "%", ">= 97");
}

/* In memory of the context's, as a product's result would be. */
static ep_tensor *result_like(ep_dtype dtype, const int64_t *sizes, uint64_t seed) {
    ep_tensor *x = random_tensor(dtype, 2, sizes, seed, 1), *y;
    CHECK(ep_copy(ctx, x, &y));
    ep_tensor_destroy(x);
    return y;
}

static void kernel(const problem *p, ep_dtype dtype, const char *dir) {
    int64_t sizes[2] = {p->rows, p->width};
    double bytes = (double)(p->rows * p->width) * (double)ep_dtype_size(dtype), moved = bytes * (p->count + 1);
    ep_context *one;
    CHECK(ep_context_create(&(ep_context_options){.threads = 1}, NULL, &one));
    twin generic = {.fn = p->fn, .count = p->count}, fixed = generic;
    twin cached = in_cache(p, dtype, one, EP_SPECIALIZE_GENERIC, dir);
    twin cached_fixed = in_cache(p, dtype, one, EP_SPECIALIZE_STATIC, dir);
    for (int k = 0; k < p->count; k++) fixed.in[k] = generic.in[k] = result_like(dtype, sizes, (uint64_t)k + 1);
    bool kept = prepare(&generic, p->name, EP_SPECIALIZE_GENERIC, dir);
    prepare(&fixed, p->name, EP_SPECIALIZE_STATIC, dir);
    traffic plain = make_traffic(bytes, generic.in, p->count), stream = plain;
    stream.stream = true;
    bench_variant v[] = {{"compiled, sizes free", run_compiled, &generic, moved, 0},
                         {"the traffic alone", run_traffic, &plain, moved, 0},
                         {"the traffic alone, streaming stores", run_traffic, &stream, moved, 0},
                         {"16 rows in cache, 1 thread", run_compiled, &cached, 0, 0},
                         {"eager", run_eager, &generic, moved, 0}};
    bench_result r[5];
    bench_run(v, 5, &(bench_options){.rounds = 15, .seconds = 0.04}, r);
    char what[160];
    snprintf(what, sizeof what, "%s, %s [%lld, %lld], %d threads, %s kept", p->name, ep_dtype_name(dtype),
             (long long)p->rows, (long long)p->width, thread_count, kept ? "compiled" : "EAGER");
    bench_print(stdout, form, what, r, 5);
    shares(p, r);
    one_code(&generic, &fixed, &cached, &cached_fixed);
    free(plain.out);
    ep_compiled_destroy(generic.compiled);
    ep_compiled_destroy(fixed.compiled);
    ep_compiled_destroy(cached.compiled);
    ep_compiled_destroy(cached_fixed.compiled);
    for (int k = 0; k < p->count; k++) ep_tensor_destroy((ep_tensor *)(uintptr_t)generic.in[k]);
    ep_context_destroy(one);
}

static void kernels(const char *dir) {
    static const problem gated = {"gelu_tanh * mul", gelu_mul, 2, 8192, HIDDEN, ">= 95"};
    static const problem ten = {"ten pointwise ops in a chain", chain_of_ten, 1, 4096, 4096, ">= 90"};
    kernel(&gated, EP_DTYPE_BF16, dir);
    kernel(&gated, EP_DTYPE_F32, dir);
    kernel(&ten, EP_DTYPE_F32, dir);
}

/* ---- rows that reduce and feed pointwise: never slower than eager ---- */

static ep_status norm_then(ep_context *c, void *user, const ep_tensor *const *in, int n, ep_tensor **out, int m) {
    (void)user, (void)n, (void)m;
    ep_tensor *h, *a;
    EP_TRY(ep_rms_norm(c, in[0], NULL, 1e-6, &h));
    ep_status s = ep_silu(c, h, &a);
    ep_tensor_destroy(h);
    if (s != EP_OK) return s;
    s = ep_mul(c, a, in[1], out);
    ep_tensor_destroy(a);
    return s;
}

static ep_status softmax_then(ep_context *c, void *user, const ep_tensor *const *in, int n, ep_tensor **out, int m) {
    (void)user, (void)n, (void)m;
    ep_tensor *h;
    EP_TRY(ep_softmax(c, in[0], &h));
    ep_status s = ep_mul(c, h, in[1], out);
    ep_tensor_destroy(h);
    return s;
}

static ep_status residual_then(ep_context *c, void *user, const ep_tensor *const *in, int n, ep_tensor **out, int m) {
    (void)user, (void)n, (void)m;
    ep_tensor *h;
    EP_TRY(ep_add(c, in[0], in[1], &h));
    ep_status s = ep_layer_norm(c, h, NULL, NULL, 1e-5, out);
    ep_tensor_destroy(h);
    return s;
}

static void rows(const char *dir) {
    static const struct {
        const char *name;
        ep_fn fn;
    } fns[] = {{"rms_norm, silu, mul", norm_then},
               {"softmax, mul", softmax_then},
               {"add, layer_norm", residual_then},
               {"gelu_tanh, mul", gelu_mul}};
    static const int64_t shapes[][2] = {{1, 64},     {1, 4096},    {16, 768},  {512, 768},
                                        {4096, 768}, {2048, 4096}, {64, 65537}};
    double worst = 0;
    title("compiled against eager, median ratio of time (below 1: compiled is faster)");
    for (size_t f = 0; f < sizeof fns / sizeof *fns; f++)
        for (int d = 0; d < 2; d++)
            for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
                ep_dtype dtype = d ? EP_DTYPE_BF16 : EP_DTYPE_F32;
                twin t = {.fn = fns[f].fn, .count = 2};
                for (int k = 0; k < 2; k++) t.in[k] = random_tensor(dtype, 2, shapes[i], (uint64_t)k + 1, 1);
                bool kept = prepare(&t, fns[f].name, EP_SPECIALIZE_GENERIC, dir);
                bench_variant v[] = {{"eager", run_eager, &t, 0, 0}, {"compiled", run_compiled, &t, 0, 0}};
                bench_result r[2];
                bench_run(v, 2, &(bench_options){.rounds = 11, .seconds = 0.004}, r);
                char what[128];
                snprintf(what, sizeof what, "%s %s [%lld, %lld]%s", fns[f].name, ep_dtype_name(dtype),
                         (long long)shapes[i][0], (long long)shapes[i][1], kept ? "" : " (eager kept)");
                line(what, r[1].ratio, "x", "<= 1");
                if (r[1].ratio > worst) worst = r[1].ratio;
                ep_compiled_destroy(t.compiled);
                for (int k = 0; k < 2; k++) ep_tensor_destroy((ep_tensor *)(uintptr_t)t.in[k]);
            }
    line("worst of the table", worst, "x", "<= 1 within noise");
}

int main(int argc, char **argv) {
    bench_start(argc, argv);
    form = bench_form_of(argc, argv);
    thread_count = ep_cpu_get()->cores;
    const char *child_args[3] = {NULL, NULL, NULL};
    unsigned wanted = 0;
    static const char *const names[] = {"first", "shift", "host", "kernels", "rows"};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--threads") == 0 && i + 1 < argc) thread_count = atoi(argv[++i]);
        if (strcmp(argv[i], "--sizes") == 0 && i + 1 < argc) distinct = atoi(argv[++i]);
        if (distinct < 1 || distinct > MOST_BATCH) distinct = MOST_BATCH;
        if (strcmp(argv[i], "--child") == 0) {
            for (int k = 0; k < 3 && i + 1 < argc; k++) child_args[k] = argv[++i];
            break;
        }
        for (unsigned k = 0; k < 5; k++)
            if (strcmp(argv[i], names[k]) == 0) wanted |= 1u << k;
    }
    if (ep_context_create(&(ep_context_options){.threads = thread_count}, NULL, &ctx) != EP_OK) return 1;
    if (child_args[0]) {
        if (strcmp(child_args[0], "first") == 0 && child_args[1]) child_first(child_args[1]);
        if (strcmp(child_args[0], "shift") == 0 && child_args[2]) child_shift(child_args[1], child_args[2]);
        return 0; /* what was made ends with the process */
    }
    if (!wanted) wanted = 31;
    char *dir = fresh_folder();
    if (wanted & 1) first();
    if (wanted & 2) shift();
    if (wanted & 4) host(dir);
    if (wanted & 8) kernels(dir);
    if (wanted & 16) rows(dir);
    drop_folder(dir);
    ep_context_destroy(ctx);
    return 0;
}
