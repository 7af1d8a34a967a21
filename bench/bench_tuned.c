/* The tuned gated MLP against oneDNN as PyTorch uses it, in turn within one run, with the machine's peak or read
 * bandwidth measured between the runs.
 *   bench_tuned [--dtype bf16|f32|f16] [--threads N] [--rounds N] [--seconds S] [--scaling 1] [--row ISA] [M DIM HIDDEN]...
 * --scaling 1: only the tuned block, with 1 thread and with N in turn, and what N gain.
 * --row ISA: that row of the kernels (avx512bf16, ...), also where another one is faster on this machine.
 * Columns are medians over the rounds: share (least, most) of the peak, or of the read bandwidth where the bound is memory,
 * that the machine gave between the runs, and time relative to the tuned block (greater than 1: slower). All results are reused memory. */
#define _GNU_SOURCE
#include <dnnl.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "model/tensor/tensor.h"
#include "run/backend/cpu/tuned.h"
#include "tuned_peak.h"

#define CHECK(expr)                                                                                                    \
    do {                                                                                                               \
        if ((expr) != 0) {                                                                                             \
            fprintf(stderr, "bench_tuned: %s failed at line %d\n", #expr, __LINE__);                                   \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

enum { MAX_ROUNDS = 101, WAYS = 9 };
typedef struct problem {
    int64_t m, dim, hidden;
    ep_dtype dtype;
    const ep_tuned_row *row;
    int threads;
    bool scaling;
    void *x, *wg, *wu, *wd, *g, *u, *h, *y;
    void *handed; /* h as down packs it; NULL: a tensor between them */
    ep_packed *gate_up, *down;
    ep_tuned_scratch *scratch;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
} problem;

static double seconds(void) {
    return (double)ep_clock_ns() * 1e-9;
}

static void *filled(ep_dtype dtype, int64_t n, double scale) {
    size_t size = ep_dtype_size(dtype);
    char *p = ep_tuned_alloc((size_t)n * size);
    uint64_t s = 88172645463325252u;
    if (!p) exit(1);
    for (int64_t i = 0; i < n; i++) {
        s ^= s << 13, s ^= s >> 7, s ^= s << 17;
        float v = (float)(((double)(s >> 40) / (1 << 23) - 1.0) * scale);
        uint16_t h = dtype == EP_DTYPE_BF16 ? ep_f32_to_bf16(v) : ep_f32_to_f16(v);
        memcpy(p + (size_t)i * size, size == 4 ? (void *)&v : (void *)&h, size);
    }
    return p;
}

/* oneDNN's matmul y[m,n] = x[m,k] w[n,k]^T; `any`: weights reordered beforehand to its own format. */
typedef struct matmul {
    dnnl_primitive_t primitive;
    dnnl_memory_t x, w, y;
} matmul;

static dnnl_data_type_t dnnl_type(ep_dtype d) {
    return d == EP_DTYPE_F32 ? dnnl_f32 : d == EP_DTYPE_BF16 ? dnnl_bf16 : dnnl_f16;
}

static matmul make_matmul(problem *p, int64_t m, int64_t k, int64_t n, void *x, void *w, void *y, bool any) {
    matmul mm;
    dnnl_data_type_t t = dnnl_type(p->dtype);
    dnnl_memory_desc_t xd, wd, wplain, yd;
    CHECK(dnnl_memory_desc_init_by_tag(&xd, 2, (dnnl_dims_t){m, k}, t, dnnl_ab));
    CHECK(dnnl_memory_desc_init_by_tag(&wplain, 2, (dnnl_dims_t){k, n}, t, dnnl_ba));
    CHECK(dnnl_memory_desc_init_by_tag(&wd, 2, (dnnl_dims_t){k, n}, t, any ? dnnl_format_tag_any : dnnl_ba));
    CHECK(dnnl_memory_desc_init_by_tag(&yd, 2, (dnnl_dims_t){m, n}, t, dnnl_ab));
    dnnl_matmul_desc_t d;
    dnnl_primitive_desc_t pd;
    CHECK(dnnl_matmul_desc_init(&d, &xd, &wd, NULL, &yd));
    CHECK(dnnl_primitive_desc_create(&pd, &d, NULL, p->engine, NULL));
    CHECK(dnnl_primitive_create(&mm.primitive, pd));
    const dnnl_memory_desc_t *own = dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
    CHECK(dnnl_memory_create(&mm.x, &xd, p->engine, x));
    CHECK(dnnl_memory_create(&mm.y, &yd, p->engine, y));
    CHECK(dnnl_memory_create(&mm.w, &wplain, p->engine, w));
    if (any && !dnnl_memory_desc_equal(own, &wplain)) {
        dnnl_memory_t packed;
        dnnl_primitive_desc_t rd;
        dnnl_primitive_t r;
        CHECK(dnnl_memory_create(&packed, own, p->engine, ep_tuned_alloc(dnnl_memory_desc_get_size(own))));
        CHECK(dnnl_reorder_primitive_desc_create(&rd, &wplain, p->engine, own, p->engine, NULL));
        CHECK(dnnl_primitive_create(&r, rd));
        dnnl_exec_arg_t args[2] = {{DNNL_ARG_FROM, mm.w}, {DNNL_ARG_TO, packed}};
        CHECK(dnnl_primitive_execute(r, p->stream, 2, args));
        CHECK(dnnl_stream_wait(p->stream));
        mm.w = packed;
    }
    return mm;
}

static void run_matmul(const problem *p, const matmul *mm) {
    dnnl_exec_arg_t args[3] = {{DNNL_ARG_SRC, mm->x}, {DNNL_ARG_WEIGHTS, mm->w}, {DNNL_ARG_DST, mm->y}};
    CHECK(dnnl_primitive_execute(mm->primitive, p->stream, 3, args));
}

typedef struct binding {
    dnnl_primitive_t primitive;
    dnnl_memory_t a, b, out;
} binding;

/* gelu(g) -> h, and h * u -> h, as oneDNN's own passes: what an eager framework runs between its matmuls. */
static void make_passes(problem *p, binding *gelu, binding *mul) {
    dnnl_memory_desc_t d;
    dnnl_primitive_desc_t pd;
    dnnl_eltwise_desc_t e;
    dnnl_binary_desc_t b;
    CHECK(dnnl_memory_desc_init_by_tag(&d, 2, (dnnl_dims_t){p->m, p->hidden}, dnnl_type(p->dtype), dnnl_ab));
    CHECK(dnnl_eltwise_forward_desc_init(&e, dnnl_forward_inference, dnnl_eltwise_gelu_tanh, &d, 0, 0));
    CHECK(dnnl_primitive_desc_create(&pd, &e, NULL, p->engine, NULL));
    CHECK(dnnl_primitive_create(&gelu->primitive, pd));
    CHECK(dnnl_memory_create(&gelu->a, &d, p->engine, p->g));
    CHECK(dnnl_memory_create(&gelu->out, &d, p->engine, p->h));
    CHECK(dnnl_binary_desc_init(&b, dnnl_binary_mul, &d, &d, &d));
    CHECK(dnnl_primitive_desc_create(&pd, &b, NULL, p->engine, NULL));
    CHECK(dnnl_primitive_create(&mul->primitive, pd));
    CHECK(dnnl_memory_create(&mul->a, &d, p->engine, p->h));
    CHECK(dnnl_memory_create(&mul->b, &d, p->engine, p->u));
    CHECK(dnnl_memory_create(&mul->out, &d, p->engine, p->h));
}

static void run_passes(const problem *p, const binding *gelu, const binding *mul) {
    dnnl_exec_arg_t g[2] = {{DNNL_ARG_SRC, gelu->a}, {DNNL_ARG_DST, gelu->out}};
    dnnl_exec_arg_t m[3] = {{DNNL_ARG_SRC_0, mul->a}, {DNNL_ARG_SRC_1, mul->b}, {DNNL_ARG_DST, mul->out}};
    CHECK(dnnl_primitive_execute(gelu->primitive, p->stream, 2, g));
    CHECK(dnnl_primitive_execute(mul->primitive, p->stream, 3, m));
}

static void run_tuned(const problem *p, bool down, bool block) {
    void *handed = block ? p->handed : NULL;
    ep_tuned_call call = {.m = p->m, .dtype = p->dtype, .x_col = 1};
    if (down) {
        call.weights = p->down, call.x = p->h, call.x_row = p->hidden, call.out = p->y, call.out_row = p->dim;
    } else {
        call.weights = p->gate_up, call.x = p->x, call.x_row = p->dim, call.out = p->h, call.out_row = p->hidden;
        call.act = EP_ACT_GELU_TANH;
    }
    if (handed && down) call.x = handed, call.x_packed = true;
    if (handed && !down) call.out = handed, call.out_packed = true;
    CHECK(ep_tuned_run(p->scratch, p->threads, &call, NULL));
}

typedef struct ways {
    matmul any[3], plain[3];
    binding gelu, mul;
} ways;
enum { TUNED_BLOCK, TUNED_TENSOR, TUNED_UP, TUNED_DOWN, ANY_BLOCK, ANY_UP, ANY_DOWN, PLAIN_BLOCK, PLAIN_UP };
static const char *const way_names[WAYS] = {"tuned block",        "tuned, h a tensor",   "tuned gate+up",
                                            "tuned down",         "oneDNN packed block", "oneDNN packed gate+up",
                                            "oneDNN packed down", "oneDNN plain block",  "oneDNN plain gate+up"};

static void run_way(const problem *p, const ways *w, int way) {
    bool any = way == ANY_BLOCK || way == ANY_UP || way == ANY_DOWN;
    const matmul *mm = any ? w->any : w->plain;
    if (way <= TUNED_DOWN) {
        if (way != TUNED_DOWN) run_tuned(p, false, way == TUNED_BLOCK);
        if (way != TUNED_UP) run_tuned(p, true, way == TUNED_BLOCK);
        return;
    }
    if (way != ANY_DOWN) {
        run_matmul(p, &mm[0]);
        run_matmul(p, &mm[1]);
        run_passes(p, &w->gelu, &w->mul);
    }
    if (way != ANY_UP && way != PLAIN_UP) run_matmul(p, &mm[2]);
    CHECK(dnnl_stream_wait(p->stream));
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
static double median(double *v, int n) {
    qsort(v, (size_t)n, sizeof *v, by_value);
    return v[n / 2];
}

/* What the machine gave right before, between and after the runs of a way: GFLOP/s, or GB/s. */
typedef struct ceiling {
    bool memory;
    double rate;
} ceiling;

/* Seconds a run, in turn with bursts at the ceiling, so that both see the machine as it is at that moment. */
static double time_way(const problem *p, const ways *w, int way, double least, ceiling *c) {
    double spent = 0, inverse = 0;
    int runs = 0, bursts = 0;
    do {
        inverse += 1 / (c->memory ? bench_read_gbs(p->threads) : bench_peak_gflops(p->threads, p->row));
        bursts++;
        double t = seconds(), now;
        do {
            run_way(p, w, way);
            runs++;
            now = seconds();
        } while (now - t < 0.002);
        spent += now - t;
    } while (spent < least);
    inverse += 1 / (c->memory ? bench_read_gbs(p->threads) : bench_peak_gflops(p->threads, p->row));
    c->rate = (bursts + 1) / inverse;
    return spent / runs;
}

/* Medians of the tuned block's time with one thread over that with all, both in turn; the same of the peak (below 8 rows:
 * of the read bandwidth). */
static void measure_scaling(problem *p, int rounds, double least) {
    static double gain[MAX_ROUNDS], peak[MAX_ROUNDS], ms[2][MAX_ROUNDS];
    int all = p->threads;
    for (int r = -1; r < rounds; r++) {
        double t[2], g[2];
        for (int many = 0; many < 2; many++) {
            p->threads = many ? all : 1;
            ceiling c = {.memory = p->m < 8};
            t[many] = time_way(p, NULL, TUNED_BLOCK, least, &c);
            g[many] = c.rate;
        }
        if (r >= 0) gain[r] = t[0] / t[1], peak[r] = g[1] / g[0], ms[0][r] = t[0] * 1e3, ms[1][r] = t[1] * 1e3;
    }
    printf("%s M %lld, %lld -> %lld, %s: 1 thread %.2f ms, %d threads %.2f ms, x%.2f (the ceiling: x%.2f)\n",
           ep_dtype_name(p->dtype), (long long)p->m, (long long)p->dim, (long long)p->hidden, p->row->isa_name,
           median(ms[0], rounds), all, median(ms[1], rounds), median(gain, rounds), median(peak, rounds));
    fflush(stdout);
}

static void measure(problem *p, int rounds, double least) {
    int64_t mh = p->m * p->hidden, wn = p->dim * p->hidden;
    p->x = filled(p->dtype, p->m * p->dim, 1);
    p->wg = filled(p->dtype, wn, 1.5 / sqrt((double)p->dim));
    p->wu = filled(p->dtype, wn, 1.4 / sqrt((double)p->dim));
    p->wd = filled(p->dtype, wn, 1.5 / sqrt((double)p->hidden));
    p->g = filled(p->dtype, mh, 1), p->u = filled(p->dtype, mh, 1), p->h = filled(p->dtype, mh, 1);
    p->y = filled(p->dtype, p->m * p->dim, 1);
    ep_pack_request q = {.dtype = p->dtype,
                         .k = p->dim,
                         .n = p->hidden,
                         .w0 = p->wg,
                         .w1 = p->wu,
                         .w0_row = p->dim,
                         .w0_col = 1,
                         .w1_row = p->dim,
                         .w1_col = 1};
    ep_pack_request qd = {
        .dtype = p->dtype, .k = p->hidden, .n = p->dim, .w0 = p->wd, .w0_row = p->hidden, .w0_col = 1};
    CHECK(ep_tuned_pack_with(p->row, p->threads, &q, NULL, &p->gate_up));
    CHECK(ep_tuned_pack_with(p->row, p->threads, &qd, NULL, &p->down));
    CHECK(ep_tuned_scratch_create(NULL, &p->scratch));
    size_t handed = ep_tuned_packed_x_bytes(p->gate_up, p->down, p->m);
    p->handed = handed ? memset(ep_tuned_alloc(handed), 0, handed) : NULL;
    if (p->scaling) {
        measure_scaling(p, rounds, least);
        return;
    }
    ways w;
    bool peers = p->dtype != EP_DTYPE_F16;
    for (int any = 0; any < 2 && peers; any++) {
        matmul *mm = any ? w.any : w.plain;
        mm[0] = make_matmul(p, p->m, p->dim, p->hidden, p->x, p->wg, p->g, any);
        mm[1] = make_matmul(p, p->m, p->dim, p->hidden, p->x, p->wu, p->u, any);
        mm[2] = make_matmul(p, p->m, p->hidden, p->dim, p->h, p->wd, p->y, any);
    }
    if (peers) make_passes(p, &w.gelu, &w.mul);
    int count = peers ? WAYS : 4;
    static double share[WAYS][MAX_ROUNDS], ratio[WAYS][MAX_ROUNDS], us[WAYS][MAX_ROUNDS], rates[MAX_ROUNDS];
    double flops = 2.0 * (double)p->m * (double)wn, bytes = (double)wn * (double)ep_dtype_size(p->dtype);
    for (int way = 0; way < count; way++) run_way(p, &w, way);
    double peak = bench_peak_gflops(p->threads, p->row), read = bench_read_gbs(p->threads);
    ceiling c = {.memory = flops / peak < bytes / read};
    for (int r = 0; r < rounds; r++) {
        double t0 = 0;
        for (int way = 0; way < count; way++) {
            double t = time_way(p, &w, way, least, &c);
            int mats = way == TUNED_DOWN || way == ANY_DOWN                  ? 1
                       : way == TUNED_UP || way == ANY_UP || way == PLAIN_UP ? 2
                                                                             : 3;
            if (way == 0) t0 = t, rates[r] = c.rate;
            share[way][r] = 100e-9 * mats * (c.memory ? bytes : flops) / c.rate / t;
            ratio[way][r] = t / t0;
            us[way][r] = t * 1e6;
        }
    }
    printf("%s M %lld, %lld -> %lld, %d threads, %s: bound by %s, %.1f %s\n", ep_dtype_name(p->dtype), (long long)p->m,
           (long long)p->dim, (long long)p->hidden, p->threads, p->row->isa_name, c.memory ? "memory" : "compute",
           median(rates, rounds), c.memory ? "GB/s" : "GFLOP/s");
    for (int way = 0; way < count; way++) {
        double middle = median(share[way], rounds);
        printf("  %-24s %9.1f us  %5.1f %% of bound (%.1f to %.1f)  x%.2f\n", way_names[way], median(us[way], rounds),
               middle, share[way][0], share[way][rounds - 1], median(ratio[way], rounds));
    }
    fflush(stdout);
    void *all[] = {p->x, p->wg, p->wu, p->wd, p->g, p->u, p->h, p->y, p->handed};
    for (int i = 0; i < 9; i++) free(all[i]);
    ep_tuned_pack_free(p->gate_up);
    ep_tuned_pack_free(p->down);
    ep_tuned_scratch_destroy(p->scratch);
}

/* The fastest row of the dtype, or the one of that name. */
static const ep_tuned_row *find_row(ep_dtype dtype, const char *isa_name) {
    if (!isa_name) return ep_tuned_select(dtype, ep_cpu_get()->isa);
    for (const ep_tuned_row *const *r = ep_tuned_rows; *r; r++)
        if ((*r)->dtype == dtype && strcmp((*r)->isa_name, isa_name) == 0) return *r;
    fprintf(stderr, "bench_tuned: %s has no row %s\n", ep_dtype_name(dtype), isa_name);
    exit(1);
}

int main(int argc, char **argv) {
    problem p = {.dtype = EP_DTYPE_BF16, .threads = ep_cpu_get()->cores};
    int rounds = 7, i = 1;
    double least = 0.05;
    const char *row = NULL;
    for (; i + 1 < argc && strncmp(argv[i], "--", 2) == 0; i += 2) {
        if (strcmp(argv[i], "--dtype") == 0) CHECK(ep_dtype_parse(argv[i + 1], &p.dtype));
        if (strcmp(argv[i], "--threads") == 0) p.threads = atoi(argv[i + 1]);
        if (strcmp(argv[i], "--scaling") == 0) p.scaling = atoi(argv[i + 1]);
        if (strcmp(argv[i], "--row") == 0) row = argv[i + 1];
        if (strcmp(argv[i], "--rounds") == 0) rounds = atoi(argv[i + 1]);
        if (strcmp(argv[i], "--seconds") == 0) least = atof(argv[i + 1]);
    }
    if (rounds > MAX_ROUNDS) rounds = MAX_ROUNDS;
    ep_clock_init();
    omp_set_num_threads(p.threads);
    ep_isa_request_amx();
    p.row = find_row(p.dtype, row);
    CHECK(dnnl_engine_create(&p.engine, dnnl_cpu, 0));
    CHECK(dnnl_stream_create(&p.stream, p.engine, dnnl_stream_default_flags));
    for (; i + 2 < argc; i += 3) {
        p.m = atoll(argv[i]), p.dim = atoll(argv[i + 1]), p.hidden = atoll(argv[i + 2]);
        measure(&p, rounds, least);
    }
    return 0;
}
