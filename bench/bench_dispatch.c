/* Host time of small ops, in nanoseconds: a 64-element add with the profiler off and on, linear with a bias beside the
 * bare product, allocation alone.
 *   bench_dispatch [--csv|--json] */
#include <stdlib.h>

#include <epilogue/epilogue.h>

#include "bench.h"
#include "run/backend/cpu/gemm.h"

typedef struct ops {
    ep_context *ctx;
    ep_tensor *a, *b, *x, *w, *bias;
    ep_backend backend; /* beneath the op layer */
    ep_gemm g;
    ep_gemm_entry *entry;
} ops;

static void die(const char *what) {
    fprintf(stderr, "bench_dispatch: %s failed\n", what);
    exit(1);
}

static void add64(void *user, int64_t times) {
    ops *o = user;
    for (int64_t i = 0; i < times; i++) {
        ep_tensor *y;
        if (ep_add(o->ctx, o->a, o->b, &y) != EP_OK) die("add");
        ep_tensor_destroy(y);
    }
}

static void add64_kernel(void *user, int64_t times) {
    ops *o = user;
    const ep_tensor *in[2] = {o->a, o->b};
    for (int64_t i = 0; i < times; i++)
        if (ep_cpu_pointwise(&o->backend, EP_OP_ADD, 2, in, o->a, NULL) != EP_OK) die("add kernel");
}

static void storage(void *user, int64_t times) {
    ops *o = user;
    for (int64_t i = 0; i < times; i++) {
        ep_storage *s;
        if (o->backend.ops->storage(&o->backend, 256, NULL, &s) != EP_OK) die("storage");
        ep_storage_release(s);
    }
}

static void linear(void *user, int64_t times) {
    ops *o = user;
    for (int64_t i = 0; i < times; i++) {
        ep_tensor *y;
        if (ep_linear(o->ctx, o->x, o->w, o->bias, &y) != EP_OK) die("linear");
        ep_tensor_destroy(y);
    }
}

static void product(void *user, int64_t times) {
    ops *o = user;
    for (int64_t i = 0; i < times; i++)
        if (o->backend.ops->gemm(&o->backend, &o->g, NULL) != EP_OK) die("product");
}

static void execution(void *user, int64_t times) {
    ops *o = user;
    for (int64_t i = 0; i < times; i++)
        if (ep_gemm_execute(ep_cpu_of(&o->backend)->gemms, o->entry, o->g.a, o->g.b, o->g.bias, o->g.out, NULL, NULL) !=
            EP_OK)
            die("execution");
}

static ep_tensor *tensor(int ndim, const int64_t *sizes) {
    ep_tensor *t;
    if (ep_tensor_zeros(EP_DTYPE_F32, ndim, sizes, NULL, &t) != EP_OK) die("tensor");
    return t;
}

static void small(ops *o, bench_form form) {
    bench_variant v[] = {{"add of 64, whole op", add64, o, 0, 0},
                         {"its kernel with the backend's checks", add64_kernel, o, 0, 0},
                         {"a storage, taken and returned", storage, o, 0, 0}};
    bench_result r[3];
    bench_run(v, 3, &(bench_options){.rounds = 21, .seconds = 0.005}, r);
    bench_print(stdout, form, "add 64, profiler off", r, 3);
}

/* The same path at two sizes: the host's part is the same, and is seen best where the kernel is short. */
static void products(ops *o, int64_t rows, bench_form form) {
    o->x = tensor(2, (int64_t[]){rows, 32});
    ep_tensor *y = tensor(2, (int64_t[]){rows, 64});
    o->g = (ep_gemm){.batch = 1, .m = rows, .n = 64, .k = 32, .a = o->x->data, .a_row = 32, .a_col = 1};
    o->g.b = o->w->data;
    o->g.b_row = o->g.bias_stride = 1;
    o->g.b_col = 32;
    o->g.out = y->data;
    o->g.out_row = 64;
    o->g.bias = o->bias->data;
    o->g.alpha = 1;
    ep_gemm_problem p = {.batch = 1, .m = rows, .n = 64, .k = 32, .a_row = 32, .a_col = 1, .b_row = 1, .b_col = 32};
    p.out_row = 64;
    p.out_batch = rows * 64;
    p.has_bias = 1;
    p.threads = ep_cpu_threads(&o->backend, (rows * 32 + 2048 + rows * 64) * 4, 2 * rows * 2048 / 8);
    if (ep_gemm_find(ep_cpu_of(&o->backend)->gemms, &p, NULL, &o->entry) != EP_OK || !o->entry) die("primitive");
    bench_variant v[] = {{"oneDNN's execution alone", execution, o, 0, 4096.0 * (double)rows},
                         {"the backend's product", product, o, 0, 0},
                         {"linear with bias, whole op", linear, o, 0, 0}};
    bench_result r[3];
    char what[64];
    snprintf(what, sizeof what, "linear %lldx32->64, profiler off", (long long)rows);
    bench_run(v, 3, &(bench_options){.rounds = 21, .seconds = 0.005}, r);
    bench_print(stdout, form, what, r, 3);
    ep_tensor_destroy(o->x);
    ep_tensor_destroy(y);
}

/* A recording of its own for each sample, so that no ring is full; its first events are not timed. */
static void recorded(ops *o, bench_form form) {
    enum { SAMPLES = 9, TIMES = 20000 };
    bench_result r = {.name = "add of 64, whole op", .best_ns = 1e9, .ratio = 1};
    double all[SAMPLES];
    for (int i = 0; i < SAMPLES; i++) {
        ep_profile *p;
        ep_trace *t;
        if (ep_profile_start(&(ep_profile_options){.events_per_thread = 1 << 17}, NULL, &p) != EP_OK) die("profile");
        add64(o, 2000);
        double start = bench_seconds();
        add64(o, TIMES);
        all[i] = (bench_seconds() - start) / TIMES * 1e9;
        if (ep_profile_stop(p, NULL, &t) != EP_OK) die("profile");
        int64_t dropped;
        ep_profile_recorded(t, &dropped, NULL);
        r.disturbed += dropped > 0;
        ep_trace_destroy(t);
        if (all[i] < r.best_ns) r.best_ns = all[i];
        r.ns += all[i] / SAMPLES;
    }
    bench_print(stdout, form, "add 64, profiler on (mean)", &r, 1);
}

int main(int argc, char **argv) {
    bench_start(argc, argv);
    ops o = {0};
    int threads = getenv("THREADS") ? atoi(getenv("THREADS")) : 1;
    if (ep_context_create(&(ep_context_options){.threads = threads}, NULL, &o.ctx) != EP_OK) die("context");
    o.backend = (ep_backend){.ops = ep_backend_find("cpu"), .threads = threads};
    if (o.backend.ops->open(0, threads, NULL, &o.backend) != EP_OK) die("backend");
    o.a = tensor(1, (int64_t[]){64});
    o.b = tensor(1, (int64_t[]){64});
    o.w = tensor(2, (int64_t[]){64, 32});
    o.bias = tensor(1, (int64_t[]){64});
    bench_form form = bench_form_of(argc, argv);
    small(&o, form);
    products(&o, 8, form);
    products(&o, 1024, form);
    recorded(&o, form);
    o.backend.ops->close(&o.backend);
    ep_tensor *all[] = {o.a, o.b, o.w, o.bias};
    for (int i = 0; i < 4; i++) ep_tensor_destroy(all[i]);
    ep_context_destroy(o.ctx);
    return 0;
}
