/* The only file that includes oneDNN: matmul primitives with their memory objects, cached by problem. Creating one takes
 * microseconds; running a cached one sets four pointers. */
#include <dnnl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "gemm.h"

#ifdef EP_HAVE_OPENMP
#include <omp.h>
#endif

enum { SETS = 64, WAYS = 4, MOST_ARGS = 4 + EP_GEMM_THEN };

struct ep_gemm_entry {
    ep_gemm_problem problem;
    dnnl_primitive_t primitive; /* NULL: oneDNN has none, which is remembered too */
    dnnl_exec_arg_t args[MOST_ARGS];
    int arg_count;
    const char *isa_name;
    uint64_t used;
    dnnl_memory_desc_t b; /* as the primitive reads it */
};

struct ep_gemm_weights {
    dnnl_memory_desc_t order;
    size_t bytes;
    void *data;
};

struct ep_gemm_cache {
    dnnl_stream_t stream;
    ep_gemm_entry *last;
    uint64_t tick;
    ep_gemm_entry *slots[SETS][WAYS];
};

static dnnl_engine_t engine;
static dnnl_status_t engine_status;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void start(void) {
    static const dnnl_cpu_isa_t caps[EP_ISA_COUNT] = {dnnl_cpu_isa_sse41, dnnl_cpu_isa_avx2, dnnl_cpu_isa_avx512_core,
                                                      dnnl_cpu_isa_avx512_core_bf16, dnnl_cpu_isa_all};
    const ep_cpu *cpu = ep_cpu_get();
    if (cpu->isa != cpu->detected) dnnl_set_max_cpu_isa(caps[cpu->isa]);
    engine_status = dnnl_engine_create(&engine, dnnl_cpu, 0);
}

static ep_status failed(dnnl_status_t s, const char *what, ep_error *err) {
    if (s == dnnl_out_of_memory) return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "oneDNN: %s: memory is out", what);
    return ep_fail(err, EP_ERROR_DRIVER, "oneDNN: %s: status %d", what, (int)s);
}

ep_status ep_gemm_cache_create(ep_error *err, ep_gemm_cache **out) {
    pthread_once(&once, start);
    if (engine_status != dnnl_success) return failed(engine_status, "no CPU engine", err);
    ep_gemm_cache *c = calloc(1, sizeof *c);
    if (!c) return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "%zu bytes could not be allocated", sizeof *c);
    dnnl_status_t s = dnnl_stream_create(&c->stream, engine, dnnl_stream_default_flags);
    if (s != dnnl_success) {
        free(c);
        return failed(s, "no stream", err);
    }
    *out = c;
    return EP_OK;
}

static void end_entry(ep_gemm_entry *e) {
    if (!e) return;
    for (int i = 0; i < e->arg_count; i++) dnnl_memory_destroy(e->args[i].memory);
    if (e->primitive) dnnl_primitive_destroy(e->primitive);
    free(e);
}

void ep_gemm_cache_destroy(ep_gemm_cache *c) {
    if (!c) return;
    for (int s = 0; s < SETS; s++)
        for (int w = 0; w < WAYS; w++) end_entry(c->slots[s][w]);
    dnnl_stream_destroy(c->stream);
    free(c);
}

/* oneDNN asks OpenMP how many threads there are; the context's number holds for the call, the caller's comes back. */
static int set_threads(int64_t threads) {
#ifdef EP_HAVE_OPENMP
    int before = omp_get_max_threads();
    if (before != threads) omp_set_num_threads((int)threads);
    return before;
#else
    return (int)threads;
#endif
}

static dnnl_data_type_t type_of(int64_t dtype) {
    return dtype == EP_DTYPE_F32 ? dnnl_f32 : dtype == EP_DTYPE_BF16 ? dnnl_bf16 : dnnl_f16;
}

/* The descriptor of one operand, without its batch dim where there is none. */
static dnnl_status_t describe(dnnl_memory_desc_t *d, const ep_gemm_problem *p, int64_t dtype, int64_t batch,
                              int64_t rows, int64_t cols, int64_t batch_stride, int64_t row, int64_t col) {
    dnnl_dims_t dims = {batch, rows, cols}, strides = {batch_stride, row, col};
    int skip = p->batch == 1;
    return dnnl_memory_desc_init_by_strides(d, 3 - skip, dims + skip, type_of(dtype), strides + skip);
}

typedef struct descriptors {
    dnnl_memory_desc_t a, b, bias, out, then[EP_GEMM_THEN];
} descriptors;

static dnnl_status_t describe_all(descriptors *d, const ep_gemm_problem *p) {
    dnnl_status_t s = describe(&d->a, p, p->dtype, p->a_batch ? p->batch : 1, p->m, p->k,
                               p->a_batch ? p->a_batch : p->m * p->k, p->a_row, p->a_col);
    if (s == dnnl_success && p->b_packed)
        s = dnnl_memory_desc_init_by_tag(&d->b, 2, (dnnl_dims_t){p->k, p->n}, type_of(p->dtype), dnnl_format_tag_any);
    else if (s == dnnl_success)
        s = describe(&d->b, p, p->dtype, p->b_batch ? p->batch : 1, p->k, p->n, p->b_batch ? p->b_batch : p->n * p->k,
                     p->b_row, p->b_col);
    if (s == dnnl_success && p->has_bias) s = describe(&d->bias, p, p->dtype, 1, 1, p->n, p->n, p->n, 1);
    if (s == dnnl_success) s = describe(&d->out, p, p->out_dtype, p->batch, p->m, p->n, p->out_batch, p->out_row, 1);
    for (int i = 0; s == dnnl_success && i < p->then_count; i++)
        s = describe(&d->then[i], p, p->out_dtype, 1, p->then_rows[i], p->then_cols[i], p->m * p->n,
                     p->then_rows[i] > 1 ? p->out_row : p->then_cols[i], 1);
    return s;
}

/* Only what rounds as a pass of ours does: one operation of IEEE f32 each. oneDNN's relu does not, it makes NaN 0, and
 * neither do its other activations; its linear (a x + b) rounds once where two passes round twice. */
static dnnl_status_t append_steps(const ep_gemm_problem *p, const descriptors *d, dnnl_primitive_attr_t attr) {
    static const struct {
        ep_op op;
        dnnl_alg_kind_t kind;
    } table[] = {{EP_OP_ADD, dnnl_binary_add},
                 {EP_OP_SUB, dnnl_binary_sub},
                 {EP_OP_MUL, dnnl_binary_mul},
                 {EP_OP_DIV, dnnl_binary_div}};
    dnnl_post_ops_t ops;
    dnnl_status_t s = dnnl_post_ops_create(&ops);
    if (s != dnnl_success) return s;
    for (int i = 0; s == dnnl_success && i < p->then_count; i++) {
        size_t k = 0;
        while (k < sizeof table / sizeof *table && (int64_t)table[k].op != p->then_op[i]) k++;
        s = k < sizeof table / sizeof *table ? dnnl_post_ops_append_binary(ops, table[k].kind, &d->then[i])
                                             : dnnl_unimplemented;
    }
    if (s == dnnl_success) s = dnnl_primitive_attr_set_post_ops(attr, ops);
    dnnl_post_ops_destroy(ops);
    return s;
}

/* From oneDNN's own words, "brg:avx512_core_bf16_amx_bf16" or "gemm:jit", to the ISA part of our kernel names. */
static const char *isa_of(const_dnnl_primitive_desc_t pd) {
    const char *info = "";
    dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &info);
    static const struct {
        const char *text, *name;
    } table[] = {{"ref", "onednn_ref"},
                 {"amx", "onednn_amxbf16"},
                 {"avx512_core_bf16", "onednn_avx512bf16"},
                 {"avx512", "onednn_avx512"},
                 {"avx2", "onednn_avx2"}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strstr(info, table[i].text)) return table[i].name;
    switch (dnnl_get_effective_cpu_isa()) {
    case dnnl_cpu_isa_sse41: return "onednn_portable";
    case dnnl_cpu_isa_avx:
    case dnnl_cpu_isa_avx2:
    case dnnl_cpu_isa_avx2_vnni: return "onednn_avx2";
    default: return "onednn_avx512";
    }
}

static dnnl_status_t add_argument(ep_gemm_entry *e, int which, const dnnl_memory_desc_t *d) {
    dnnl_exec_arg_t *a = &e->args[e->arg_count];
    a->arg = which;
    dnnl_status_t s = dnnl_memory_create(&a->memory, d, engine, DNNL_MEMORY_NONE);
    if (s == dnnl_success) e->arg_count++;
    return s;
}

/* oneDNN 2.6's AMX kernel for bf16 with 63 along k, which it pads to 64, configures its tiles for other sizes than it
 * multiplies at many row and column counts, and dies of an illegal instruction. Such a product has no kernel here: it runs
 * widened to f32. */
static bool dies(const ep_gemm_problem *p) {
    return p->dtype == EP_DTYPE_BF16 && p->k == 63 && ep_cpu_get()->isa == EP_ISA_AMX_BF16;
}

/* With post-ops oneDNN may fall back to other code, which sums in another order: then the product's own bits would be
 * others. Steps are taken only where the code is that of the product alone. */
static dnnl_status_t same_code(const_dnnl_primitive_desc_t pd, const dnnl_matmul_desc_t *matmul) {
    dnnl_primitive_desc_t plain;
    const char *with = "", *without = "";
    dnnl_status_t s = dnnl_primitive_desc_create(&plain, matmul, NULL, engine, NULL);
    if (s != dnnl_success) return s;
    dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &with);
    dnnl_primitive_desc_query(plain, dnnl_query_impl_info_str, 0, &without);
    s = strcmp(with, without) == 0 ? dnnl_success : dnnl_unimplemented;
    dnnl_primitive_desc_destroy(plain);
    return s;
}

static dnnl_status_t build(ep_gemm_entry *e) {
    const ep_gemm_problem *p = &e->problem;
    if (dies(p)) return dnnl_unimplemented;
    descriptors d;
    dnnl_matmul_desc_t matmul;
    dnnl_primitive_desc_t pd;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_status_t s = describe_all(&d, p);
    if (s == dnnl_success) s = dnnl_matmul_desc_init(&matmul, &d.a, &d.b, p->has_bias ? &d.bias : NULL, &d.out);
    if (s == dnnl_success && p->then_count) s = dnnl_primitive_attr_create(&attr);
    if (s == dnnl_success && p->then_count) s = append_steps(p, &d, attr);
    if (s == dnnl_success) s = dnnl_primitive_desc_create(&pd, &matmul, attr, engine, NULL);
    if (attr) dnnl_primitive_attr_destroy(attr);
    if (s != dnnl_success) return s;
    e->isa_name = isa_of(pd);
    d.b = e->b = *dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
    if (p->then_count) s = same_code(pd, &matmul);
    if (s == dnnl_success) s = dnnl_primitive_create(&e->primitive, pd);
    dnnl_primitive_desc_destroy(pd);
    if (s == dnnl_success) s = add_argument(e, DNNL_ARG_SRC, &d.a);
    if (s == dnnl_success) s = add_argument(e, DNNL_ARG_WEIGHTS, &d.b);
    if (s == dnnl_success) s = add_argument(e, DNNL_ARG_DST, &d.out);
    if (s == dnnl_success && p->has_bias) s = add_argument(e, DNNL_ARG_BIAS, &d.bias);
    for (int i = 0; s == dnnl_success && i < p->then_count; i++)
        s = add_argument(e, DNNL_ARG_ATTR_MULTIPLE_POST_OP(i) | DNNL_ARG_SRC_1, &d.then[i]);
    return s;
}

static ep_status create(const ep_gemm_problem *p, ep_error *err, ep_gemm_entry **out) {
    ep_gemm_entry *e = calloc(1, sizeof *e);
    if (!e) return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "%zu bytes could not be allocated", sizeof *e);
    e->problem = *p;
    int before = set_threads(p->threads);
    dnnl_status_t s = build(e);
    set_threads(before);
    if (s == dnnl_unimplemented || s == dnnl_invalid_arguments) {
        if (e->primitive) dnnl_primitive_destroy(e->primitive);
        e->primitive = NULL;
    } else if (s != dnnl_success) {
        end_entry(e);
        return failed(s, "a matrix product could not be made", err);
    }
    *out = e;
    return EP_OK;
}

static bool same(const ep_gemm_problem *a, const ep_gemm_problem *b) {
    return memcmp(a, b, sizeof *a) == 0;
}

ep_status ep_gemm_find(ep_gemm_cache *c, const ep_gemm_problem *p, ep_error *err, ep_gemm_entry **out) {
    ep_gemm_entry *e = c->last;
    if (!e || !same(&e->problem, p)) {
        ep_gemm_entry **set = c->slots[ep_hash64(p, sizeof *p, 0) % SETS], **oldest = &set[0];
        e = NULL;
        for (int w = 0; w < WAYS && !e; w++) {
            if (set[w] && same(&set[w]->problem, p)) e = set[w];
            if (!set[w] || (*oldest && set[w]->used < (*oldest)->used)) oldest = &set[w];
        }
        if (!e) {
            EP_TRY(create(p, err, &e));
            end_entry(*oldest);
            *oldest = e;
        }
        c->last = e;
    }
    e->used = ++c->tick;
    *out = e->primitive ? e : NULL;
    return EP_OK;
}

ep_status ep_gemm_execute(ep_gemm_cache *c, ep_gemm_entry *e, const void *a, const void *b, const void *bias, void *out,
                          const ep_gemm_then *then, ep_error *err) {
    void *data[MOST_ARGS] = {(void *)(uintptr_t)a, (void *)(uintptr_t)b, out, (void *)(uintptr_t)bias};
    for (int i = 0; i < e->problem.then_count; i++)
        data[3 + e->problem.has_bias + i] = (void *)(uintptr_t)then[i].other;
    dnnl_status_t s = dnnl_success;
    for (int i = 0; i < e->arg_count && s == dnnl_success; i++)
        s = dnnl_memory_set_data_handle(e->args[i].memory, data[i]);
    int before = set_threads(e->problem.threads);
    if (s == dnnl_success) s = dnnl_primitive_execute(e->primitive, c->stream, e->arg_count, e->args);
    set_threads(before);
    return s == dnnl_success ? EP_OK : failed(s, "a matrix product did not run", err);
}

static dnnl_status_t reorder(ep_gemm_cache *c, const dnnl_memory_desc_t *plain, const void *b, ep_gemm_weights *w) {
    dnnl_exec_arg_t args[2] = {{DNNL_ARG_FROM, NULL}, {DNNL_ARG_TO, NULL}};
    dnnl_primitive_desc_t pd = NULL;
    dnnl_primitive_t primitive = NULL;
    dnnl_status_t s = dnnl_memory_create(&args[0].memory, plain, engine, (void *)(uintptr_t)b);
    if (s == dnnl_success) s = dnnl_memory_create(&args[1].memory, &w->order, engine, w->data);
    if (s == dnnl_success) s = dnnl_reorder_primitive_desc_create(&pd, plain, engine, &w->order, engine, NULL);
    if (s == dnnl_success) s = dnnl_primitive_create(&primitive, pd);
    if (s == dnnl_success) s = dnnl_primitive_execute(primitive, c->stream, 2, args);
    if (primitive) dnnl_primitive_destroy(primitive);
    if (pd) dnnl_primitive_desc_destroy(pd);
    for (int i = 0; i < 2; i++)
        if (args[i].memory) dnnl_memory_destroy(args[i].memory);
    return s;
}

ep_status ep_gemm_reorder(ep_gemm_cache *c, const ep_gemm_entry *e, const void *b, int64_t b_row, int64_t b_col,
                          ep_error *err, ep_gemm_weights **out) {
    dnnl_memory_desc_t plain;
    const ep_gemm_problem *p = &e->problem;
    *out = NULL;
    if (describe(&plain, p, p->dtype, 1, p->k, p->n, p->k * p->n, b_row, b_col) != dnnl_success ||
        dnnl_memory_desc_equal(&plain, &e->b))
        return EP_OK;
    ep_gemm_weights *w = calloc(1, sizeof *w);
    size_t bytes = dnnl_memory_desc_get_size(&e->b);
    if (w) *w = (ep_gemm_weights){e->b, bytes, aligned_alloc(64, (bytes + 63) / 64 * 64)};
    int before = set_threads(p->threads);
    dnnl_status_t s = w && w->data ? reorder(c, &plain, b, w) : dnnl_out_of_memory;
    set_threads(before);
    if (s == dnnl_success) {
        *out = w;
        return EP_OK;
    }
    ep_gemm_weights_free(w);
    return s == dnnl_unimplemented ? EP_OK : failed(s, "weights could not be reordered", err);
}

bool ep_gemm_fits(const ep_gemm_entry *e, const ep_gemm_weights *w) {
    return dnnl_memory_desc_equal(&e->b, &w->order);
}

const void *ep_gemm_weights_data(const ep_gemm_weights *w) {
    return w->data;
}

size_t ep_gemm_weights_bytes(const ep_gemm_weights *w) {
    return w ? w->bytes : 0;
}

void ep_gemm_weights_free(ep_gemm_weights *w) {
    if (!w) return;
    free(w->data);
    free(w);
}

const char *ep_gemm_isa_name(const ep_gemm_entry *e) {
    return e->isa_name;
}
