/* All rows of cpu_kernels.def on one thread, against a copy of the same bytes in the same round: ratio 1 is the speed of
 * memory, what is above is the formula's own cost.
 *   bench_kernels [--csv|--json] [--all] [OP...]
 * Without --all only rows in use here; OPs restrict the pointwise ops (add, gelu_tanh, ...). */
#include <stdlib.h>
#include <string.h>

#include "base/isa.h"
#include "bench.h"
#include "model/op/op.h"
#include "model/tensor/tensor.h"
#include "run/backend/cpu/cpu_kernels.h"

enum { LARGE = 1 << 22 };

typedef struct job {
    int64_t n, size;
    ep_pointwise_fn run;
    ep_norm_row_fn norm;
    ep_reduce_row_fn reduce;
    const void *in[3];
    void *out;
    float sink;
} job;

static void run_pointwise(void *user, int64_t times) {
    static const int step[3] = {1, 1, 1};
    job *j = user;
    for (int64_t i = 0; i < times; i++) j->run(j->n, j->in, step, j->out);
}

static void run_norm(void *user, int64_t times) {
    job *j = user;
    for (int64_t i = 0; i < times; i++)
        for (int64_t row = 0; row < j->n; row += 1024)
            j->norm(1024, (const char *)j->in[0] + row * j->size, j->in[1], j->in[2], 1e-5f,
                    (char *)j->out + row * j->size);
}

static void run_reduce(void *user, int64_t times) {
    job *j = user;
    for (int64_t i = 0; i < times; i++) j->sink += j->reduce(j->n, j->in[0]);
}

static void run_copy(void *user, int64_t times) {
    job *j = user;
    for (int64_t i = 0; i < times; i++) {
        memcpy(j->out, j->in[0], (size_t)(j->n * j->size));
        __asm__ volatile("" ::: "memory");
    }
}

static void measure(const char *name, job *j, void (*run)(void *, int64_t), double bytes, double flops,
                    bench_form form) {
    char what[96];
    bench_variant v[2] = {{"copy", run_copy, j, 2.0 * (double)(j->n * j->size), 0},
                          {name, run, j, bytes * (double)j->n, flops * (double)j->n}};
    bench_result r[2];
    snprintf(what, sizeof what, "%s n=%lld", name, (long long)j->n);
    bench_run(v, 2, &(bench_options){.rounds = 7, .seconds = 0.004}, r);
    bench_print(stdout, form, what, r, 2);
}

static bool wanted(const char *op, int argc, char **argv) {
    int named = 0;
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == '-') continue;
        if (strcmp(argv[i], op) == 0) return true;
        named++;
    }
    return named == 0;
}

static void bench_row(const ep_cpu_row *r, job *j, bench_form form, int argc, char **argv) {
    j->size = (int64_t)ep_dtype_size(r->dtype);
    static const int64_t lengths[2] = {8192, LARGE};
    for (int l = 0; l < 2; l++) {
        j->n = lengths[l];
        if (r->class == EP_CPU_POINTWISE) {
            const ep_pointwise_table *t = r->table;
            for (int op = 0; op < EP_OP_WHERE; op++) {
                const ep_op_info *info = ep_op_get((ep_op)op);
                if (!wanted(info->name, argc, argv)) continue;
                j->run = t->op[op].run;
                measure(t->op[op].name, j, run_pointwise, (double)(j->size * (info->max_arity + 1)), info->flops, form);
            }
            continue;
        }
        const ep_row_table *t = r->table;
        double size = (double)j->size;
        j->reduce = t->sum;
        if (wanted("sum", argc, argv)) measure(t->sum_name, j, run_reduce, size, 1, form);
        j->reduce = t->amax;
        if (wanted("amax", argc, argv)) measure(t->amax_name, j, run_reduce, size, 1, form);
        j->norm = t->softmax;
        if (wanted("softmax", argc, argv)) measure(t->softmax_name, j, run_norm, 2 * size, 14, form);
        j->norm = t->layer_norm;
        if (wanted("layer_norm", argc, argv)) measure(t->layer_norm_name, j, run_norm, 2 * size, 8, form);
        j->norm = t->rms_norm;
        if (wanted("rms_norm", argc, argv)) measure(t->rms_norm_name, j, run_norm, 2 * size, 4, form);
    }
}

int main(int argc, char **argv) {
    bench_start(argc, argv);
    bool all = false;
    for (int i = 1; i < argc; i++) all |= strcmp(argv[i], "--all") == 0;
    job j = {0};
    for (int k = 0; k < 3; k++) {
        float *p = aligned_alloc(64, LARGE * 4);
        if (!p) return 1;
        for (int64_t i = 0; i < LARGE; i++) p[i] = (float)(i * 7919 % 10007) / 10007.0f * 6 - 3;
        j.in[k] = p;
    }
    j.out = aligned_alloc(64, LARGE * 4);
    if (!j.out) return 1;
    for (const ep_cpu_row *r = ep_cpu_rows; r->op; r++) {
        if (r->isa > ep_cpu_get()->isa || (!all && ep_cpu_why_not(r, ep_cpu_get()->isa)[0])) continue;
        /* The same bytes as numbers of this dtype. */
        for (int k = 0; k < 3; k++)
            for (int64_t i = 0; i < LARGE; i++)
                ep_element_store(r->dtype, (char *)(uintptr_t)j.in[k] + i * (int64_t)ep_dtype_size(r->dtype),
                                 (double)(i * 7919 % 10007) / 10007.0 * 6 - 3);
        bench_row(r, &j, bench_form_of(argc, argv), argc, argv);
    }
    free(j.out);
    for (int k = 0; k < 3; k++) free((void *)(uintptr_t)j.in[k]);
    return 0;
}
