/* Matrix products: one oneDNN call where that is the whole of it; else the operands are made fit before, and what oneDNN
 * would round elsewhere than the contract says (activation, residual, alpha and beta, f16) is done in a pass after. */
#include <stdio.h>
#include <string.h>

#include "base/parallel.h"
#include "cpu_kernels.h"
#include "gemm.h"
#include "run/backend/launch.h"

enum { BLOCK = 512, MOST_SCRATCH = 4 };

/* Scratch of one call. */
typedef struct scratch {
    ep_backend *b;
    ep_storage *held[MOST_SCRATCH];
    int count;
    const ep_gemm_weights *packed; /* b, reordered; or NULL */
} scratch;

static ep_status borrow(scratch *s, size_t bytes, ep_error *err, void **out) {
    EP_TRY(ep_cpu_pool_storage(ep_cpu_of(s->b)->pool, bytes, err, &s->held[s->count]));
    *out = s->held[s->count++]->data;
    return EP_OK;
}

static void give_back(scratch *s) {
    while (s->count > 0) ep_storage_release(s->held[--s->count]);
}

/* An operand made adjacent, and f32 where `widen` says so. */
typedef struct repack {
    const ep_row_table *table; /* NULL: same dtype */
    size_t size;
    const char *in;
    char *out;
    int64_t rows, cols, row, col, batch; /* of in */
} repack;

static void repack_rows(void *user, int64_t begin, int64_t end) {
    const repack *r = user;
    char line[BLOCK * 4];
    int64_t size = (int64_t)r->size, out_size = r->table ? 4 : size;
    for (int64_t i = begin; i < end; i++) {
        const char *in = r->in + (i / r->rows * r->batch + i % r->rows * r->row) * size;
        char *out = r->out + i * r->cols * out_size;
        for (int64_t c = 0; c < r->cols; c += BLOCK) {
            int64_t n = r->cols - c < BLOCK ? r->cols - c : BLOCK;
            const char *from = in + c * r->col * size;
            char *to = out + c * out_size;
            if (r->col != 1) {
                char *gathered = r->table ? line : to;
                for (int64_t j = 0; j < n; j++) memcpy(gathered + j * size, from + j * r->col * size, (size_t)size);
                from = gathered;
            }
            if (r->table)
                r->table->to_f32(n, from, to);
            else if (from != to)
                memcpy(to, from, (size_t)(n * size));
        }
    }
}

/* Rewrites an operand [batch, rows, cols] into scratch, the dim of the smaller stride innermost. */
static ep_status make_adjacent(scratch *s, ep_dtype dtype, bool widen, int64_t batch, int64_t rows, int64_t cols,
                               const void **data, int64_t *batch_stride, int64_t *row, int64_t *col, ep_error *err) {
    const ep_cpu_state *state = ep_cpu_of(s->b);
    bool swap = *row<*col && * row> 0;
    if (*batch_stride == 0) batch = 1;
    repack r = {.table = widen ? state->rows[dtype] : NULL, .size = ep_dtype_size(dtype), .in = *data};
    r.rows = swap ? cols : rows;
    r.cols = swap ? rows : cols;
    r.row = swap ? *col : *row;
    r.col = swap ? *row : *col;
    r.batch = *batch_stride;
    void *out;
    EP_TRY(borrow(s, (size_t)(batch * rows * cols) * (widen ? 4 : r.size), err, &out));
    r.out = out;
    ep_parallel_for(ep_cpu_threads(s->b, batch * rows * cols * 8, 0), batch * r.rows, 1 + 4096 / r.cols, repack_rows,
                    &r);
    *data = out;
    if (*batch_stride) *batch_stride = rows * cols;
    *row = swap ? 1 : cols;
    *col = swap ? rows : 1;
    return EP_OK;
}

static bool fits(int64_t rows, int64_t cols, int64_t row, int64_t col) {
    return (col == 1 && row >= cols) || (row == 1 && col >= rows);
}

/* A size-1 dim has no stride. */
static void plain_strides(int64_t rows, int64_t cols, int64_t *row, int64_t *col) {
    if (rows == 1 && cols == 1)
        *row = *col = 1;
    else if (rows == 1)
        *row = *col == 1 ? cols : 1;
    else if (cols == 1)
        *col = *row == 1 ? rows : 1;
}

/* The pass after the product. */
typedef struct finish {
    const ep_gemm *g;
    const ep_cpu_state *state;
    const float *sum; /* [batch * m, sum_row]; NULL: zeros */
    int64_t sum_batch, sum_row;
    bool bias_done;
    bool stored; /* the product is in out already, rounded: what eager rounding makes of it is left */
} finish;

static const int both[3] = {1, 1, 1}, scalar_second[3] = {1, 0, 0};

static void apply(const finish *f, ep_op op, int64_t n, float *v, const float *other, const int *step) {
    const void *in[2] = {v, other};
    f->state->pointwise[EP_DTYPE_F32]->op[op].run(n, in, step, v);
}

static const char *element(ep_dtype dtype, const void *p, int64_t offset) {
    return (const char *)p + offset * (int64_t)ep_dtype_size(dtype);
}

/* n values of an operand, widened. */
static void load_operand(const finish *f, ep_dtype dtype, const char *p, int64_t step, int64_t n, float *w) {
    char line[BLOCK * 4];
    int64_t size = (int64_t)ep_dtype_size(dtype);
    if (step != 1) {
        for (int64_t j = 0; j < n; j++) memcpy(line + j * size, p + j * step * size, (size_t)size);
        p = line;
    }
    f->state->rows[dtype]->to_f32(n, p, w);
}

/* v += operand; `scale` 1 or beta. */
static void add_operand(const finish *f, ep_dtype dtype, const char *p, int64_t step, int64_t n, float scale,
                        float *v) {
    float w[BLOCK];
    load_operand(f, dtype, p, step, n, w);
    if (scale != 1.0f) apply(f, EP_OP_MUL, n, w, &scale, scalar_second);
    apply(f, EP_OP_ADD, n, v, w, both);
}

static void round_to(const finish *f, ep_dtype dtype, int64_t n, float *v) {
    char line[BLOCK * 2];
    if (dtype == EP_DTYPE_F32) return;
    f->state->rows[dtype]->from_f32(n, v, line);
    f->state->rows[dtype]->to_f32(n, line, v);
}

/* Activation and residual of a rounded product by the kernels that eager runs: those of 16 bits are the faster ones. */
static void finish_stored(const finish *f, int64_t batch, int64_t row, int64_t col, int64_t n, const void *v) {
    const ep_gemm *g = f->g;
    const ep_pointwise_table *t = f->state->pointwise[g->out_dtype];
    char *out = g->out, line[BLOCK * 4];
    out += (batch * g->out_batch + row * g->out_row + col) * (int64_t)ep_dtype_size(g->out_dtype);
    if (g->act != EP_ACT_NONE) {
        void *to = g->residual ? line : out;
        t->op[ep_act_op(g->act)].run(n, &v, both, to);
        v = to;
    }
    if (!g->residual) return;
    const void *in[2] = {v, element(g->out_dtype, g->residual, (batch * g->m + row) * g->residual_row + col)};
    t->op[EP_OP_ADD].run(n, in, both, out);
}

static void finish_block(const finish *f, int64_t batch, int64_t row, int64_t col, int64_t n) {
    const ep_gemm *g = f->g;
    bool eager = g->rounding == EP_ROUNDING_EAGER;
    if (f->stored) {
        int64_t at = batch * g->out_batch + row * g->out_row + col;
        finish_stored(f, batch, row, col, n, element(g->out_dtype, g->out, at));
        return;
    }
    float v[BLOCK], alpha = (float)g->alpha;
    if (f->sum)
        memcpy(v, f->sum + batch * f->sum_batch + row * f->sum_row + col, (size_t)n * 4);
    else
        memset(v, 0, (size_t)n * 4);
    if (alpha != 1.0f) apply(f, EP_OP_MUL, n, v, &alpha, scalar_second);
    if (g->c && g->beta != 0)
        add_operand(f, g->dtype, element(g->dtype, g->c, batch * g->c_batch + row * g->c_row + col * g->c_col),
                    g->c_col, n, (float)g->beta, v);
    if (g->bias && !f->bias_done)
        add_operand(f, g->dtype, element(g->dtype, g->bias, col * g->bias_stride), g->bias_stride, n, 1, v);
    if (eager && g->out_dtype != EP_DTYPE_F32 && !g->then_count && (g->act != EP_ACT_NONE || g->residual)) {
        char line[BLOCK * 2];
        f->state->rows[g->out_dtype]->from_f32(n, v, line);
        finish_stored(f, batch, row, col, n, line);
        return;
    }
    if (g->act != EP_ACT_NONE) {
        if (eager) round_to(f, g->out_dtype, n, v);
        apply(f, ep_act_op(g->act), n, v, NULL, both);
    }
    if (g->residual) {
        if (eager) round_to(f, g->out_dtype, n, v);
        add_operand(f, g->out_dtype, element(g->out_dtype, g->residual, (batch * g->m + row) * g->residual_row + col),
                    1, n, 1, v);
    }
    for (int i = 0; i < g->then_count; i++) {
        const ep_gemm_then *t = &g->then[i];
        float w[BLOCK];
        load_operand(f, EP_DTYPE_F32, element(EP_DTYPE_F32, t->other, row * t->row + col * t->col), t->col, n, w);
        apply(f, t->op, n, v, w, both);
    }
    char *out = (char *)g->out + (batch * g->out_batch + row * g->out_row + col) * (int64_t)ep_dtype_size(g->out_dtype);
    f->state->rows[g->out_dtype]->from_f32(n, v, out);
}

static void finish_rows(void *user, int64_t begin, int64_t end) {
    const finish *f = user;
    for (int64_t i = begin; i < end; i++)
        for (int64_t c = 0; c < f->g->n; c += BLOCK)
            finish_block(f, i / f->g->m, i % f->g->m, c, f->g->n - c < BLOCK ? f->g->n - c : BLOCK);
}

/* The whole result as one row; what is between activation and residual takes a line of BLOCK values. */
static void finish_flat(void *user, int64_t begin, int64_t end) {
    const finish *f = user;
    int64_t step = f->g->act != EP_ACT_NONE && f->g->residual ? BLOCK : end - begin;
    for (int64_t i = begin; i < end; i += step) finish_block(f, 0, 0, i, end - i < step ? end - i : step);
}

static void run_finish(ep_backend *b, finish *f) {
    const ep_gemm *g = f->g;
    int64_t rows = g->batch * g->m, all = rows * g->n;
    int64_t cost = g->act != EP_ACT_NONE ? all * ep_op_get(ep_act_op(g->act))->flops : 0;
    int threads = ep_cpu_threads(b, all * 8, cost);
    bool gaps = (g->m > 1 && g->out_row != g->n) || (g->batch > 1 && g->out_batch != g->m * g->n) ||
                (g->residual && rows > 1 && g->residual_row != g->n);
    if (f->stored && !gaps)
        ep_parallel_for(threads, all, 4 * BLOCK, finish_flat, f);
    else
        ep_parallel_for(threads, rows, 1 + 2048 / g->n, finish_rows, f);
}

/* What the primitive is to do of `g`. */
static void set_problem(ep_gemm_problem *p, const ep_backend *b, const ep_gemm *g) {
    *p = (ep_gemm_problem){.batch = g->batch, .m = g->m, .n = g->n, .k = g->k};
    p->a_batch = g->batch > 1 ? g->a_batch : 0;
    p->b_batch = g->batch > 1 ? g->b_batch : 0;
    p->a_row = g->a_row;
    p->a_col = g->a_col;
    p->b_row = g->b_row;
    p->b_col = g->b_col;
    plain_strides(g->m, g->k, &p->a_row, &p->a_col);
    plain_strides(g->k, g->n, &p->b_row, &p->b_col);
    p->out_row = g->m > 1 ? g->out_row : g->n;
    p->out_batch = g->batch > 1 ? g->out_batch : g->m * g->n;
    p->dtype = g->dtype;
    p->out_dtype = g->out_dtype;
    p->has_bias = g->bias != NULL && (g->bias_stride == 1 || g->n == 1);
    p->threads =
        ep_cpu_threads(b, (g->m * g->k + g->k * g->n + g->m * g->n) * 4, g->batch * 2 * g->m * g->n * g->k / 8);
}

/* Operands of steps that oneDNN reads: as the result lies, a row for all rows, or one value. */
static bool set_steps(ep_gemm_problem *p, const ep_gemm *g) {
    for (int i = 0; i < g->then_count; i++) {
        const ep_gemm_then *t = &g->then[i];
        bool rows = g->m > 1 && t->row != 0, cols = g->n > 1 && t->col != 0;
        if ((rows && (t->row != g->out_row || (g->n > 1 && !cols))) || (cols && t->col != 1)) return false;
        p->then_op[i] = t->op;
        p->then_rows[i] = rows ? g->m : 1;
        p->then_cols[i] = cols ? g->n : 1;
        p->then_count = i + 1;
    }
    return true;
}

static void clear_steps(ep_gemm_problem *p) {
    for (int i = 0; i < p->then_count; i++) p->then_op[i] = p->then_rows[i] = p->then_cols[i] = 0;
    p->then_count = 0;
}

/* Nothing is left to do after the primitive: its one rounding is the contract's. */
static bool is_direct(const ep_gemm *g) {
    return g->act == EP_ACT_NONE && !g->residual && g->alpha == 1 && (!g->c || g->beta == 0) &&
           (!g->bias || g->bias_stride == 1 || g->n == 1);
}

/* What is left after the product's rounding is act and residual, as eager would have it. */
static bool rounds_first(const ep_gemm *g) {
    return g->rounding == EP_ROUNDING_EAGER && g->out_dtype != EP_DTYPE_F32 && g->residual != g->out && g->alpha == 1 &&
           (!g->c || g->beta == 0) && (!g->bias || g->bias_stride == 1 || g->n == 1) && !g->then_count;
}

static void name_of(const ep_gemm *g, const ep_gemm_problem *p, const char *isa, char *out, size_t size) {
    char then[48] = "";
    for (int i = 0; i < g->then_count; i++)
        snprintf(then + strlen(then), sizeof then - strlen(then), "_%s", ep_op_name(g->then[i].op));
    snprintf(out, size, "ep_%s_gemm%s%s%s%s%s_%s%s_%c%c", ep_dtype_name(g->dtype), g->bias ? "_bias" : "",
             g->act ? "_" : "", g->act ? ep_act_name(g->act) : "", g->residual ? "_residual" : "", then, isa,
             p->b_packed ? "_packed" : "", p->b_row == 1 || p->b_packed ? 't' : 'n', p->a_col == 1 ? 'n' : 't');
}

static void record(ep_launch *l, const ep_gemm *g, const ep_gemm_problem *p, const char *isa) {
    char name[96];
    name_of(g, p, isa, name, sizeof name);
    l->name = l->probe->name(l->probe->self, name);
    int64_t size = (int64_t)ep_dtype_size(g->dtype), outs = g->batch * g->m * g->n, read = 0;
    read += (p->a_batch ? g->batch : 1) * g->m * g->k * size + (p->b_batch ? g->batch : 1) * g->k * g->n * size;
    read += (g->bias ? g->n * size : 0) + (g->c && g->beta != 0 ? outs * size : 0) + (g->residual ? outs * size : 0);
    for (int i = 0; i < g->then_count; i++) read += (g->then[i].row ? g->m : 1) * (g->then[i].col ? g->n : 1) * size;
    ep_launch_end(l, 2 * outs * g->k + (g->bias ? outs : 0) + g->then_count * outs, read,
                  outs * (int64_t)ep_dtype_size(g->out_dtype));
}

/* Brings the operands into a form that oneDNN has kernels for. */
static ep_status prepare(scratch *s, const ep_gemm *g, ep_gemm_problem *p, bool widen, const void **a, const void **b,
                         ep_error *err) {
    if (widen || !fits(g->m, g->k, p->a_row, p->a_col))
        EP_TRY(make_adjacent(s, g->dtype, widen, g->batch, g->m, g->k, a, &p->a_batch, &p->a_row, &p->a_col, err));
    if (s->packed)
        *b = ep_gemm_weights_data(s->packed);
    else if (widen || !fits(g->k, g->n, p->b_row, p->b_col))
        EP_TRY(make_adjacent(s, g->dtype, widen, g->batch, g->k, g->n, b, &p->b_batch, &p->b_row, &p->b_col, err));
    if (widen) p->dtype = EP_DTYPE_F32;
    return EP_OK;
}

static ep_status run(scratch *s, const ep_gemm *g, ep_gemm_problem *p, bool widen, const char **isa, ep_error *err) {
    const ep_cpu_state *state = ep_cpu_of(s->b);
    const void *a = g->a, *b = g->b;
    finish f = {.g = g, .state = state};
    ep_gemm_entry *e;
    *isa = "portable";
    if (g->k == 0) {
        run_finish(s->b, &f);
        return EP_OK;
    }
    EP_TRY(prepare(s, g, p, widen, &a, &b, err));
    bool direct = is_direct(g) && !(widen && (g->bias || g->out_dtype != EP_DTYPE_F32)) && set_steps(p, g);
    void *out = g->out;
    f.stored = !direct && !widen && rounds_first(g);
    if (!direct && !f.stored) {
        clear_steps(p);
        p->has_bias = p->has_bias && !widen && g->alpha == 1 && (!g->c || g->beta == 0);
        p->out_dtype = EP_DTYPE_F32;
        if (g->out_dtype != EP_DTYPE_F32 || g->residual == g->out || g->c == g->out) {
            p->out_row = g->n;
            p->out_batch = g->m * g->n;
            EP_TRY(borrow(s, (size_t)(g->batch * g->m * g->n) * 4, err, &out));
        }
    }
    EP_TRY(ep_gemm_find(state->gemms, p, err, &e));
    if (!e && p->then_count) { /* not with these steps: they come in a pass of ours */
        clear_steps(p);
        direct = false;
        EP_TRY(ep_gemm_find(state->gemms, p, err, &e));
    }
    if (!e || (s->packed && !ep_gemm_fits(e, s->packed))) return EP_ERROR_UNSUPPORTED;
    EP_TRY(ep_gemm_execute(state->gemms, e, a, b, p->has_bias ? g->bias : NULL, out, g->then, err));
    *isa = ep_gemm_isa_name(e);
    if (direct) return EP_OK;
    f.sum = out;
    f.sum_batch = p->out_batch;
    f.sum_row = p->out_row;
    f.bias_done = p->has_bias;
    run_finish(s->b, &f);
    return EP_OK;
}

/* Where oneDNN has no kernel: the reference, and our pass for the steps. */
static ep_status run_reference(ep_backend *b, const ep_gemm *g, ep_error *err) {
    const ep_cpu_state *state = ep_cpu_of(b);
    ep_gemm plain = *g;
    plain.then_count = 0;
    EP_TRY(state->ref->gemm(b, &plain, err));
    if (!g->then_count) return EP_OK;
    ep_gemm steps = {.batch = 1, .m = g->m, .n = g->n, .dtype = EP_DTYPE_F32, .out_dtype = EP_DTYPE_F32, .alpha = 1};
    steps.out = g->out;
    steps.out_row = g->out_row;
    steps.then_count = g->then_count;
    memcpy(steps.then, g->then, sizeof steps.then);
    run_finish(b, &(finish){.g = &steps, .state = state, .sum = g->out, .sum_row = g->out_row});
    return EP_OK;
}

static void take_packed(ep_gemm_problem *p) {
    p->b_packed = 1;
    p->b_row = p->b_col = 0;
}

static bool widens(const ep_cpu_state *state, ep_dtype dtype) {
    return dtype == EP_DTYPE_F16 || (dtype == EP_DTYPE_BF16 && state->isa < EP_ISA_AVX512);
}

ep_status ep_cpu_gemm_reorder(ep_backend *b, const ep_gemm *g, ep_error *err, ep_gemm_weights **out) {
    const ep_cpu_state *state = ep_cpu_of(b);
    ep_gemm_problem p;
    ep_gemm_entry *e;
    *out = NULL;
    if (g->dtype > EP_DTYPE_F16 || g->batch != 1 || widens(state, g->dtype)) return EP_OK;
    set_problem(&p, b, g);
    int64_t row = p.b_row, col = p.b_col;
    if (!fits(g->m, g->k, p.a_row, p.a_col) || !fits(g->k, g->n, row, col)) return EP_OK;
    take_packed(&p);
    EP_TRY(ep_gemm_find(state->gemms, &p, err, &e));
    return e ? ep_gemm_reorder(state->gemms, e, g->b, row, col, err, out) : EP_OK;
}

ep_status ep_cpu_gemm_packed(ep_backend *b, const ep_gemm *g, const ep_gemm_weights *packed, ep_error *err) {
    const ep_cpu_state *state = ep_cpu_of(b);
    if (g->dtype > EP_DTYPE_F16 || g->out_dtype > EP_DTYPE_F16) return state->ref->gemm(b, g, err);
    if (g->batch == 0 || g->m == 0 || g->n == 0) return EP_OK;
    scratch s = {.b = b, .packed = packed};
    ep_gemm_problem p;
    const char *isa;
    bool widen = widens(state, g->dtype);
    set_problem(&p, b, g);
    if (packed) take_packed(&p);
    ep_launch l = ep_launch_begin("gemm");
    ep_status status = run(&s, g, &p, widen, &isa, err);
    if (status == EP_ERROR_UNSUPPORTED && packed) { /* this m wants them in another order */
        give_back(&s);
        s.packed = NULL;
        set_problem(&p, b, g);
        status = run(&s, g, &p, widen, &isa, err);
    }
    if (status == EP_ERROR_UNSUPPORTED && !widen && g->dtype != EP_DTYPE_F32) {
        give_back(&s);
        set_problem(&p, b, g);
        status = run(&s, g, &p, true, &isa, err);
    }
    if (l.probe && status == EP_OK)
        record(&l, g, &p, isa);
    else if (l.probe)
        l.probe->end(l.probe->self);
    give_back(&s);
    return status == EP_ERROR_UNSUPPORTED ? run_reference(b, g, err) : status;
}

ep_status ep_cpu_gemm(ep_backend *b, const ep_gemm *g, ep_error *err) {
    return ep_cpu_gemm_packed(b, g, NULL, err);
}
