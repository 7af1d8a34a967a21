/* The only file that calls cuBLASLt. Row-major out[m, n] is column-major n by m, so weights come first; descriptors,
 * layouts and the algorithm are made once per shape class and kept. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "cuda_probe.h"
#include "cuda_state.h"
#include "gemm_relaunch.h"

typedef struct gemm_key {
    int64_t batch, m, n, k, a_ld, b_ld, c_ld, out_ld, a_batch, b_batch, c_batch, out_batch;
    int32_t dtype, out_dtype, a_trans, b_trans, epilogue, has_c, align, compute;
} gemm_key;

struct cuda_gemm_entry {
    gemm_key key;
    lt_desc desc;
    lt_layout w, x, c, d;
    lt_algo algo;
    const void *bias;
    bool chosen; /* by measuring, or measuring was tried */
    int calls;   /* of the library, until its launches were learned or could not be */
    cuda_relaunch *relaunch;
    char name[80];
};

/* A search runs each of the library's proposals a few times; it may cost this much device time, then the best so far is
 * taken. */
enum { WORKSPACE_BYTES = 64 << 20, PROPOSALS = 16, TRIALS = 5, SEARCH_MS = 500 };
/* A product that comes again pays for learning what it launches, and before a plan of it is captured. */
enum { CALLS_BEFORE_LEARNING = 1 };

static int lt_type(ep_dtype dtype) {
    return dtype == EP_DTYPE_F32 ? LT_R_32F : dtype == EP_DTYPE_BF16 ? LT_R_16BF : LT_R_16F;
}

static int alignment(const void *p, int64_t ld, size_t size, int current) {
    uint64_t v = (uint64_t)(uintptr_t)p | (uint64_t)ld * size;
    int a = 16;
    while (a > 2 && v % (uint64_t)a) a /= 2;
    return a < current ? a : current;
}

static ep_status make_layout(const lt_library *lt, int type, int64_t rows, int64_t cols, int64_t ld, int64_t batch,
                             int64_t stride, ep_error *err, lt_layout *out) {
    EP_TRY(
        lt_check(lt->layout_create(out, type, (uint64_t)rows, (uint64_t)cols, ld), "cublasLtMatrixLayoutCreate", err));
    if (batch <= 1) return EP_OK;
    int32_t count = (int32_t)batch;
    EP_TRY(lt_check(lt->layout_set(*out, LT_LAYOUT_BATCH, &count, sizeof count), "batch count", err));
    return lt_check(lt->layout_set(*out, LT_LAYOUT_BATCH_STRIDE, &stride, sizeof stride), "batch stride", err);
}

static void free_entry(const lt_library *lt, cuda_gemm_entry *e) {
    if (!e) return;
    cuda_relaunch_free(e->relaunch);
    if (e->desc) lt->desc_destroy(e->desc);
    if (e->w) lt->layout_destroy(e->w);
    if (e->x) lt->layout_destroy(e->x);
    if (e->c) lt->layout_destroy(e->c);
    if (e->d) lt->layout_destroy(e->d);
    free(e);
}

static ep_status fill_desc(const lt_library *lt, cuda_gemm_entry *e, ep_error *err) {
    const gemm_key *k = &e->key;
    EP_TRY(lt_check(lt->desc_create(&e->desc, k->compute, LT_R_32F), "cublasLtMatmulDescCreate", err));
    int32_t wt = k->b_trans, xt = k->a_trans, epilogue = k->epilogue;
    EP_TRY(lt_check(lt->desc_set(e->desc, LT_DESC_TRANSA, &wt, sizeof wt), "transa", err));
    EP_TRY(lt_check(lt->desc_set(e->desc, LT_DESC_TRANSB, &xt, sizeof xt), "transb", err));
    EP_TRY(lt_check(lt->desc_set(e->desc, LT_DESC_EPILOGUE, &epilogue, sizeof epilogue), "epilogue", err));
    int type = lt_type((ep_dtype)k->dtype), out = lt_type((ep_dtype)k->out_dtype);
    EP_TRY(make_layout(lt, type, wt ? k->k : k->n, wt ? k->n : k->k, k->b_ld, k->batch, k->b_batch, err, &e->w));
    EP_TRY(make_layout(lt, type, xt ? k->m : k->k, xt ? k->k : k->m, k->a_ld, k->batch, k->a_batch, err, &e->x));
    EP_TRY(make_layout(lt, out, k->n, k->m, k->has_c ? k->c_ld : k->out_ld, k->batch,
                       k->has_c ? k->c_batch : k->out_batch, err, &e->c));
    return make_layout(lt, out, k->n, k->m, k->out_ld, k->batch, k->out_batch, err, &e->d);
}

static ep_status propose(cuda_state *s, const cuda_gemm_entry *e, int most, ep_error *err, lt_heuristic *found,
                         int *count) {
    const lt_library *lt = s->lt;
    lt_preference p;
    EP_TRY(lt_check(lt->preference_create(&p), "cublasLtMatmulPreferenceCreate", err));
    size_t bytes = s->workspace_bytes;
    uint32_t align = (uint32_t)e->key.align;
    int r = lt->preference_set(p, LT_PREF_WORKSPACE, &bytes, sizeof bytes);
    for (int which = 5; which <= 8 && r == 0; which++) r = lt->preference_set(p, which, &align, sizeof align);
    *count = 0;
    if (r == 0) r = lt->heuristic(s->lt_handle, e->desc, e->w, e->x, e->c, e->d, p, most, found, count);
    lt->preference_destroy(p);
    EP_TRY(lt_check(r, "cublasLtMatmulAlgoGetHeuristic", err));
    if (*count == 0) return ep_fail(err, EP_ERROR_UNSUPPORTED, "cuBLASLt has no algorithm for this product");
    return EP_OK;
}

static ep_status choose(cuda_state *s, cuda_gemm_entry *e, ep_error *err) {
    lt_heuristic found;
    int count;
    EP_TRY(propose(s, e, 1, err, &found, &count));
    e->algo = found.algo;
    return EP_OK;
}

static ep_status prepare(cuda_state *s, ep_error *err) {
    if (s->lt_handle) return EP_OK;
    if (!s->lt && !(s->lt = lt_library_get(err))) return EP_ERROR_MISSING_LIBRARY;
    EP_TRY(lt_check(s->lt->create(&s->lt_handle), "cublasLtCreate", err));
    EP_TRY(cuda_result(s, s->cu->memory_alloc(&s->workspace, WORKSPACE_BYTES), "cuMemAlloc of the cuBLASLt workspace",
                       err));
    if (s->mark_written) /* parts of sums go through it, by the copy engine */
        EP_TRY(cuda_result(s, s->cu->memset8(s->workspace, 0, WORKSPACE_BYTES, s->stream), "cuMemsetD8Async", err));
    s->workspace_bytes = WORKSPACE_BYTES;
    return EP_OK;
}

static bool grow(cuda_state *s) {
    size_t next = s->gemm_slots ? s->gemm_slots * 2 : 64;
    cuda_gemm_entry **slots = calloc(next, sizeof *slots);
    if (!slots) return false;
    for (size_t i = 0; i < s->gemm_slots; i++) {
        if (!s->gemms[i]) continue;
        size_t at = (size_t)ep_hash64(&s->gemms[i]->key, sizeof(gemm_key), 0) & (next - 1);
        while (slots[at]) at = (at + 1) & (next - 1);
        slots[at] = s->gemms[i];
    }
    free(s->gemms);
    s->gemms = slots;
    s->gemm_slots = next;
    return true;
}

static void name_entry(cuda_gemm_entry *e) {
    static const char *const layouts[2][2] = {{"nn", "nt"}, {"tn", "tt"}};
    const gemm_key *k = &e->key;
    const char *epilogue = k->epilogue & LT_EPILOGUE_BIAS ? "_bias" : "";
    snprintf(e->name, sizeof e->name, "ep_%s_gemm%s%s_cublaslt_%s%s", ep_dtype_name((ep_dtype)k->dtype), epilogue,
             k->epilogue & LT_EPILOGUE_RELU ? "_relu" : "", layouts[k->b_trans][k->a_trans],
             k->compute == LT_COMPUTE_32F_TF32 ? "_tf32" : "");
}

static ep_status find(cuda_state *s, const gemm_key *key, ep_error *err, cuda_gemm_entry **out) {
    if (s->gemm_count * 2 >= s->gemm_slots && !grow(s))
        return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory for the GEMM table");
    size_t mask = s->gemm_slots - 1, at = (size_t)ep_hash64(key, sizeof *key, 0) & mask;
    for (; s->gemms[at]; at = (at + 1) & mask) {
        if (memcmp(&s->gemms[at]->key, key, sizeof *key) == 0) {
            *out = s->gemms[at];
            return EP_OK;
        }
    }
    cuda_gemm_entry *e = calloc(1, sizeof *e);
    if (!e) return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory for a GEMM entry");
    e->key = *key;
    name_entry(e);
    ep_status status = fill_desc(s->lt, e, err);
    if (status == EP_OK) status = choose(s, e, err);
    if (status != EP_OK) {
        free_entry(s->lt, e);
        return status;
    }
    s->gemms[at] = e;
    s->gemm_count++;
    *out = e;
    return EP_OK;
}

/* A leading dimension for a matrix whose rows (or columns) are adjacent: 1 if the second stride is 1, 0 if the first
 * is, -1 if neither. Dims of size 1 have no stride. */
static int layout_of(int64_t rows, int64_t cols, int64_t row, int64_t col, int64_t *ld) {
    if (cols == 1 || col == 1) {
        *ld = rows == 1 || row < cols ? cols : row;
        if (rows == 1 || row >= cols) return 1;
    }
    if (rows == 1 || row == 1) {
        *ld = cols == 1 || col < rows ? rows : col;
        if (cols == 1 || col >= rows) return 0;
    }
    return -1;
}

static ep_tensor view_of(cuda_state *s, ep_dtype dtype, const void *data, int64_t batch, int64_t rows, int64_t cols,
                         int64_t batch_stride, int64_t row, int64_t col) {
    ep_tensor t = {
        .data = (char *)(uintptr_t)data, .dtype = dtype, .ndim = 3, .numel = batch * rows * cols, .value = -1};
    t.device = (ep_device){EP_DEVICE_CUDA, s->index};
    int64_t sizes[3] = {batch, rows, cols}, strides[3] = {batch_stride, row, col};
    memcpy(t.sizes, sizes, sizeof sizes);
    memcpy(t.strides, strides, sizeof strides);
    return t;
}

/* Copies an operand that no leading dimension can describe. */
static ep_status compact(cuda_state *s, ep_dtype dtype, const void **data, int64_t batch, int64_t rows, int64_t cols,
                         int64_t *batch_stride, int64_t *row, int64_t *col, ep_storage **keep, ep_error *err) {
    EP_TRY(cuda_storage_create(s, (size_t)(batch * rows * cols) * ep_dtype_size(dtype), err, keep));
    ep_backend b = {.state = s};
    ep_tensor in = view_of(s, dtype, *data, batch, rows, cols, *batch_stride, *row, *col);
    ep_tensor out = view_of(s, dtype, (*keep)->data, batch, rows, cols, rows * cols, cols, 1);
    EP_TRY(cuda_copy(&b, &in, &out, err));
    *data = (*keep)->data;
    *batch_stride = rows * cols;
    *row = cols;
    *col = 1;
    return EP_OK;
}

/* K = 0 or nothing to add up: beta * c or bias alone. */
static ep_status without_product(cuda_state *s, const ep_gemm *g, ep_error *err) {
    ep_backend b = {.state = s};
    ep_tensor out = view_of(s, g->out_dtype, g->out, g->batch, g->m, g->n, g->out_batch, g->out_row, 1);
    if (g->bias) {
        ep_tensor bias = view_of(s, g->dtype, g->bias, g->batch, g->m, g->n, 0, 0, g->bias_stride);
        return cuda_copy(&b, &bias, &out, err);
    }
    ep_storage *zero;
    EP_TRY(cuda_storage_create(s, 16, err, &zero));
    ep_status status =
        cuda_result(s, s->cu->memset8((cu_ptr)(uintptr_t)zero->data, 0, 16, s->stream), "cuMemsetD8Async", err);
    ep_tensor in = view_of(s, g->out_dtype, zero->data, g->batch, g->m, g->n, 0, 0, 0);
    if (status == EP_OK) status = cuda_copy(&b, &in, &out, err);
    ep_storage_release(zero);
    return status;
}

static int multiply(cuda_state *s, const ep_gemm *g, const cuda_gemm_entry *e, const lt_algo *algo) {
    float alpha = (float)g->alpha, beta = e->key.has_c ? (float)g->beta : 0.0f;
    return s->lt->matmul(s->lt_handle, e->desc, &alpha, g->b, e->w, g->a, e->x, &beta, e->key.has_c ? g->c : g->out,
                         e->c, g->out, e->d, algo, (void *)(uintptr_t)s->workspace, s->workspace_bytes, s->stream);
}

typedef struct library_call {
    const cuda_state *s;
    const ep_gemm *g;
    const cuda_gemm_entry *e;
} library_call;

static int enqueue(void *user, const uint64_t *p, cu_stream stream) {
    const library_call *c = user;
    float alpha = (float)c->g->alpha, beta = 0;
    const void *a = (const void *)(uintptr_t)p[RELAUNCH_A], *b = (const void *)(uintptr_t)p[RELAUNCH_B];
    const void *bias = (const void *)(uintptr_t)p[RELAUNCH_BIAS];
    void *out = (void *)(uintptr_t)p[RELAUNCH_OUT];
    int r = bias ? c->s->lt->desc_set(c->e->desc, LT_DESC_BIAS_POINTER, &bias, sizeof bias) : 0;
    if (r != 0) return r;
    return c->s->lt->matmul(c->s->lt_handle, c->e->desc, &alpha, b, c->e->w, a, c->e->x, &beta, out, c->e->c, out,
                            c->e->d, &c->e->algo, (void *)(uintptr_t)c->s->workspace, c->s->workspace_bytes, stream);
}

static void addresses(const ep_gemm *g, uint64_t *p) {
    p[RELAUNCH_A] = (uint64_t)(uintptr_t)g->a;
    p[RELAUNCH_B] = (uint64_t)(uintptr_t)g->b;
    p[RELAUNCH_OUT] = (uint64_t)(uintptr_t)g->out;
    p[RELAUNCH_BIAS] = (uint64_t)(uintptr_t)g->bias;
}

/* Not while something is captured or recorded: it would be in there. */
static void learn(cuda_state *s, const ep_gemm *g, cuda_gemm_entry *e) {
    if (e->calls > CALLS_BEFORE_LEARNING || s->capture || s->no_relaunch || ep_probe_get()) return;
    if (e->calls++ < CALLS_BEFORE_LEARNING || e->key.has_c || g->alpha != 1) return;
    uint64_t p[RELAUNCH_POINTERS];
    const char *why;
    addresses(g, p);
    e->relaunch = cuda_relaunch_learn(s, p, enqueue, &(library_call){s, g, e}, &why);
    e->bias = NULL; /* the descriptor's may be one of the addresses tried */
    if (e->relaunch) {
        s->relaunched++;
    } else {
        s->not_relaunched++;
        s->why_not = why;
    }
}

static ep_status run_entry(cuda_state *s, const ep_gemm *g, cuda_gemm_entry *e, const cuda_launch *l, ep_error *err) {
    learn(s, g, e);
    if (e->relaunch && g->alpha == 1) {
        uint64_t p[RELAUNCH_POINTERS];
        addresses(g, p);
        return cuda_result(s, cuda_relaunch_run(s, e->relaunch, p, l), e->name, err);
    }
    if (s->capture) cuda_capture_launch(s, l);
    if (g->bias && e->bias != g->bias) {
        EP_TRY(lt_check(s->lt->desc_set(e->desc, LT_DESC_BIAS_POINTER, &g->bias, sizeof g->bias), "bias pointer", err));
        e->bias = g->bias;
    }
    return lt_check(multiply(s, g, e, &e->algo), "cublasLtMatmul", err);
}

/* Least time of a few runs, in ms; negative: this one does not run. */
static float trial(cuda_state *s, const ep_gemm *g, const cuda_gemm_entry *e, const lt_algo *algo, cu_event from,
                   cu_event to) {
    float least = -1;
    for (int i = 0; i <= TRIALS; i++) { /* the first is not counted */
        float ms;
        s->cu->event_record(from, s->stream);
        if (multiply(s, g, e, algo) != 0) return -1;
        s->cu->event_record(to, s->stream);
        if (s->cu->event_sync(to) != 0 || s->cu->event_elapsed(&ms, from, to) != 0) return -1;
        if (i > 0 && (least < 0 || ms < least)) least = ms;
    }
    return least;
}

/* The heuristics' first answer stays unless another is faster by more than its times scatter. */
static void search(cuda_state *s, const ep_gemm *g, cuda_gemm_entry *e, cu_event from, cu_event to) {
    lt_heuristic found[PROPOSALS];
    int count, best = 0, tried = 0;
    ep_error ignored;
    float first = -1, least = -1, spent = 0;
    if (propose(s, e, PROPOSALS, &ignored, found, &count) != EP_OK) return;
    for (int i = 0; i < count && spent < (float)SEARCH_MS; i++) {
        if (found[i].state != 0) continue;
        float ms = trial(s, g, e, &found[i].algo, from, to);
        if (ms < 0) continue;
        tried++;
        spent += ms * (TRIALS + 1);
        if (i == 0) first = ms;
        if (least < 0 || ms < (best == 0 ? least * 0.98f : least)) least = ms, best = i;
    }
    if (least < 0) return;
    e->algo = found[best].algo;
    const gemm_key *k = &e->key;
    ep_text_printf(&s->autotuned, "%s %lldx%lldx%lld: proposal %d of %d, %.1f us", e->name, (long long)k->m,
                   (long long)k->n, (long long)k->k, best + 1, tried, (double)least * 1e3);
    if (best > 0 && first > 0) ep_text_printf(&s->autotuned, " (the first takes %.1f us)", (double)first * 1e3);
    ep_text_char(&s->autotuned, '\n');
}

/* Once an entry, on the operands of its first call. Not where a run would change what the next one reads. */
static void autotune(cuda_state *s, const ep_gemm *g, cuda_gemm_entry *e) {
    cu_event from = NULL, to = NULL;
    if (e->chosen || !s->autotune || s->capture) return;
    if (e->key.has_c && g->c == g->out) return;
    e->chosen = true;
    if (s->cu->event_create(&from, 0) == 0 && s->cu->event_create(&to, 0) == 0) search(s, g, e, from, to);
    if (from) s->cu->event_destroy(from);
    if (to) s->cu->event_destroy(to);
}

static ep_status product(cuda_state *s, const ep_gemm *g, ep_error *err) {
    gemm_key key;
    memset(&key, 0, sizeof key);
    key.batch = g->batch, key.m = g->m, key.n = g->n, key.k = g->k;
    key.dtype = (int32_t)g->dtype, key.out_dtype = (int32_t)g->out_dtype;
    key.a_trans = layout_of(g->m, g->k, g->a_row, g->a_col, &key.a_ld) == 0;
    key.b_trans = layout_of(g->k, g->n, g->b_row, g->b_col, &key.b_ld) == 0;
    key.out_ld = g->m == 1 ? g->n : g->out_row;
    key.a_batch = g->a_batch, key.b_batch = g->b_batch, key.out_batch = g->out_batch;
    key.has_c = g->c != NULL && g->beta != 0;
    key.compute = s->tf32 && g->dtype == EP_DTYPE_F32 ? LT_COMPUTE_32F_TF32 : LT_COMPUTE_32F;
    if (key.has_c) key.c_ld = g->m == 1 ? g->n : g->c_row, key.c_batch = g->c_batch;
    bool relu = g->act == EP_ACT_RELU && !g->residual;
    key.epilogue = g->bias && relu ? (LT_EPILOGUE_BIAS | LT_EPILOGUE_RELU)
                   : g->bias       ? LT_EPILOGUE_BIAS
                   : relu          ? LT_EPILOGUE_RELU
                                   : LT_EPILOGUE_DEFAULT;
    size_t size = ep_dtype_size(g->dtype);
    key.align = alignment(g->out, key.out_ld, ep_dtype_size(g->out_dtype),
                          alignment(g->a, key.a_ld, size, alignment(g->b, key.b_ld, size, 16)));
    cuda_gemm_entry *e = NULL;
    EP_TRY(prepare(s, err));
    EP_TRY(find(s, &key, err, &e));
    autotune(s, g, e);
    int64_t in = g->batch * (g->m * g->k + g->k * g->n) * (int64_t)size, out = g->batch * g->m * g->n;
    cuda_launch l = {.name = e->name,
                     .flops = 2 * g->batch * g->m * g->n * g->k,
                     .bytes_read = in,
                     .bytes_written = out * (int64_t)ep_dtype_size(g->out_dtype)};
    const ep_probe *p = s->capture ? NULL : ep_probe_get();
    cuda_probe_mark mark;
    if (p) cuda_probe_begin(s, p, e->relaunch ? "cuLaunchKernelEx" : "cublasLtMatmul_LaunchKernel", &mark);
    if (!key.has_c || g->c != g->out)
        for (int64_t b = 0; b < g->batch; b++)
            cuda_mark_written(s, (char *)g->out + (size_t)(b * g->out_batch) * ep_dtype_size(g->out_dtype), g->m, g->n,
                              g->out_row, ep_dtype_size(g->out_dtype));
    ep_status status = run_entry(s, g, e, &l, err);
    if (p) cuda_probe_end(s, p, &l, &mark);
    return status;
}

/* What the library's epilogue cannot do exactly runs as its own pass over out. */
static ep_status finish(cuda_state *s, const ep_gemm *g, bool bias_done, ep_error *err) {
    ep_backend b = {.state = s};
    ep_tensor out = view_of(s, g->out_dtype, g->out, g->batch, g->m, g->n, g->out_batch, g->out_row, 1);
    if (g->bias && !bias_done) {
        ep_tensor bias = view_of(s, g->dtype, g->bias, g->batch, g->m, g->n, 0, 0, g->bias_stride);
        const ep_tensor *in[2] = {&out, &bias};
        EP_TRY(cuda_pointwise(&b, EP_OP_ADD, 2, in, &out, err));
    }
    if (g->act != EP_ACT_NONE && !(g->act == EP_ACT_RELU && !g->residual && g->k > 0)) {
        const ep_tensor *in[1] = {&out};
        EP_TRY(cuda_pointwise(&b, ep_act_op(g->act), 1, in, &out, err));
    }
    if (!g->residual) return EP_OK;
    ep_tensor residual =
        view_of(s, g->out_dtype, g->residual, g->batch, g->m, g->n, g->m * g->residual_row, g->residual_row, 1);
    const ep_tensor *in[2] = {&out, &residual};
    return cuda_pointwise(&b, EP_OP_ADD, 2, in, &out, err);
}

ep_status cuda_gemm(cuda_state *s, const ep_gemm *given, ep_error *err) {
    if (given->batch == 0 || given->m == 0 || given->n == 0) return EP_OK;
    EP_TRY(cuda_enter(s, err));
    ep_gemm g = *given;
    if (g.k == 0 && (g.beta == 0 || !g.c)) {
        EP_TRY(without_product(s, &g, err));
        return finish(s, &g, true, err);
    }
    ep_storage *keep[4] = {NULL, NULL, NULL, NULL};
    ep_status status = EP_OK;
    int64_t ld;
    if (layout_of(g.m, g.k, g.a_row, g.a_col, &ld) < 0)
        status = compact(s, g.dtype, &g.a, g.batch, g.m, g.k, &g.a_batch, &g.a_row, &g.a_col, &keep[0], err);
    if (status == EP_OK && layout_of(g.k, g.n, g.b_row, g.b_col, &ld) < 0)
        status = compact(s, g.dtype, &g.b, g.batch, g.k, g.n, &g.b_batch, &g.b_row, &g.b_col, &keep[1], err);
    bool c_fits =
        !g.c || g.beta == 0 || ((g.n == 1 || g.c_col == 1) && (g.m == 1 || g.c_row >= g.n) && g.dtype == g.out_dtype);
    if (status == EP_OK && !c_fits)
        status = compact(s, g.out_dtype, &g.c, g.batch, g.m, g.n, &g.c_batch, &g.c_row, &g.c_col, &keep[2], err);
    /* The library's bias must be dense and of the output's type; a strided one is copied so that one rounding is left. */
    bool bias_fits = g.bias && g.dtype == g.out_dtype;
    if (!bias_fits) g.bias = NULL;
    int64_t bias_batch = 0, bias_row = 0;
    if (status == EP_OK && g.bias && g.n > 1 && g.bias_stride != 1)
        status = compact(s, g.dtype, &g.bias, 1, 1, g.n, &bias_batch, &bias_row, &g.bias_stride, &keep[3], err);
    if (status == EP_OK) status = product(s, &g, err);
    for (int i = 0; i < 4; i++) ep_storage_release(keep[i]);
    if (status != EP_OK) return status;
    return finish(s, given, bias_fits, err);
}

void cuda_gemm_close(cuda_state *s) {
    for (size_t i = 0; i < s->gemm_slots; i++) free_entry(s->lt, s->gemms[i]);
    free(s->gemms);
    ep_text_free(&s->autotuned);
    if (s->lt_handle) s->lt->destroy(s->lt_handle);
    if (s->workspace) s->cu->memory_free(s->workspace);
}
