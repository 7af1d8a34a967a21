/* The plain reference of generated code: walks the statements one element at a time. Its arithmetic is the one-lane form
 * of the vector vocabulary, and its sums are added in the order of as many lanes as this machine's kernels have, so it
 * gives the bits that the generated kernel gives. */
#include <stdlib.h>
#include <string.h>

#include "base/isa.h"
#include "base/simd/simd_scalar.h"
#include "base/simd/vmath.h"
#include "loop.h"

typedef v_f32 (*pointwise_fn)(v_f32 a, v_f32 b, v_f32 c);
#define EP_POINTWISE(ID, name, aten, arity, flops, formula)                                                            \
    static v_f32 run_##name(v_f32 a, v_f32 b, v_f32 c) {                                                               \
        (void)a, (void)b, (void)c;                                                                                     \
        return formula;                                                                                                \
    }
#include <epilogue/pointwise.def>
#undef EP_POINTWISE
static const pointwise_fn pointwise[] = {
#define EP_POINTWISE(ID, name, aten, arity, flops, formula) run_##name,
#include <epilogue/pointwise.def>
#undef EP_POINTWISE
};
enum { POINTWISE = sizeof pointwise / sizeof *pointwise, BLOCK = 1024, MOST_LANES = 16 };

static int lanes_here(void) {
    ep_isa isa = ep_cpu_get()->isa;
    return isa >= EP_ISA_AVX512 ? 16 : isa == EP_ISA_AVX2 ? 8 : 1;
}

typedef struct walker {
    const ep_loop *l;
    char *p[EP_LOOP_OPERANDS];
    int64_t strides[EP_LOOP_OPERANDS][EP_MAX_DIMS + 1]; /* bytes: outer, then inner */
    int64_t sizes[EP_MAX_DIMS], n;
    float value[EP_LOOP_STMTS];
} walker;

static float load(const ep_loop_operand *o, const char *p) {
    switch ((int)o->dtype) {
    case EP_DTYPE_BF16: return v_load_bf16(p);
    case EP_DTYPE_F16: return v_load_f16(p);
    case EP_DTYPE_BOOL: return v_load_bool(p);
    default: return v_load(p);
    }
}

static void store(const ep_loop_operand *o, char *p, float v) {
    if (o->dtype == EP_DTYPE_BF16)
        v_store_bf16(p, v);
    else if (o->dtype == EP_DTYPE_F16)
        v_store_f16(p, v);
    else
        v_store(p, v);
}

static char *at(const walker *w, int operand, int64_t i) {
    const ep_loop_operand *o = &w->l->operands[operand];
    int64_t step = o->walk == EP_WALK_NEXT      ? (int64_t)ep_dtype_size(o->dtype)
                   : o->walk == EP_WALK_STRIDED ? w->strides[operand][w->l->outer]
                                                : 0;
    return w->p[operand] + i * step;
}

static void compute(walker *w, int number, int64_t i) {
    const ep_stmt *s = &w->l->stmts[number];
    const float *v = w->value;
    float a = s->in[0] >= 0 ? v[s->in[0]] : 0, b = s->in[1] >= 0 ? v[s->in[1]] : 0, c = s->in[2] >= 0 ? v[s->in[2]] : 0;
    switch (s->kind) {
    case EP_STMT_LOAD: w->value[number] = load(&w->l->operands[s->operand], at(w, s->operand, i)); break;
    case EP_STMT_CONST: w->value[number] = (float)s->number; break;
    case EP_STMT_COUNT: w->value[number] = (float)w->n; break;
    case EP_STMT_OP: w->value[number] = (int)s->op < POINTWISE ? pointwise[s->op](a, b, c) : a; break;
    case EP_STMT_FMA: w->value[number] = v_fma(a, b, c); break;
    case EP_STMT_ROUND: w->value[number] = s->dtype == EP_DTYPE_BF16 ? v_round_bf16(a) : v_round_f16(a); break;
    case EP_STMT_STORE: store(&w->l->operands[s->operand], at(w, s->operand, i), a); break;
    case EP_STMT_REDUCE: break;
    }
}

/* Which of the four running vectors element i of a row of n is added to. */
static int vector_of(int64_t i, int64_t n, int lanes) {
    int64_t block = i / BLOCK * BLOCK, stop = n - block < BLOCK ? n - block : BLOCK, chunk = 4 * lanes;
    return i - block < stop / chunk * chunk ? (int)((i - block) / lanes % 4) : 0;
}

static float block_sum(const float *x, int64_t first, int64_t last, int64_t n, int lanes) {
    float sums[4][MOST_LANES] = {{0}}, t[MOST_LANES];
    for (int64_t i = first; i < last; i++) {
        float *s = sums[vector_of(i, n, lanes)];
        for (int k = 0; k < lanes; k++) /* lanes beyond the end count as 0, which can turn -0 into 0 */
            if (k == (i - first) % lanes) s[k] = s[k] + x[i];
        if (i + 1 == last)
            for (int64_t k = (i - first) % lanes + 1; k < lanes; k++) sums[0][k] = sums[0][k] + 0.0f;
    }
    for (int k = 0; k < lanes; k++) t[k] = (sums[0][k] + sums[1][k]) + (sums[2][k] + sums[3][k]);
    for (int w = lanes / 2; w > 0; w /= 2)
        for (int k = 0; k < w; k++) t[k] += t[k + w];
    return t[0];
}

static float row_sum(const float *x, int64_t n, int lanes) {
    float levels[56] = {0}, total = 0;
    uint64_t blocks = 0;
    for (int64_t i = 0; i < n; i += BLOCK, blocks++) {
        float s = block_sum(x, i, n - i < BLOCK ? n : i + BLOCK, n, lanes);
        int level = 0;
        for (; blocks >> level & 1; level++) s += levels[level];
        levels[level] = s;
    }
    for (int level = 0; blocks >> level; level++)
        if (blocks >> level & 1) total += levels[level];
    return total;
}

static float row_max(const float *x, int64_t n, int lanes) {
    float top[4][MOST_LANES], best = -__builtin_inff();
    for (int u = 0; u < 4; u++)
        for (int k = 0; k < lanes; k++) top[u][k] = best;
    for (int64_t i = 0; i < n; i += lanes) {
        int rest = n - i < lanes ? (int)(n - i) : lanes, u = rest < lanes ? 1 : vector_of(i, n, lanes);
        for (int k = 0; k < lanes; k++) top[u][k] = v_max(top[u][k], k < rest ? x[i + k] : -__builtin_inff());
    }
    for (int k = 0; k < lanes; k++) {
        float v = v_max(v_max(top[0][k], top[1][k]), v_max(top[2][k], top[3][k]));
        if (v > best || v != v) best = v;
    }
    return best;
}

/* All statements of one walk over the row, element by element, in order; what a reduction sums is kept in `series`. */
static void walk_row(walker *w, int phase, int64_t first, int64_t last, float *series) {
    const ep_loop *l = w->l;
    int sums[EP_LOOP_STMTS], sum_count = 0;
    for (int i = 0; i < l->stmt_count; i++)
        if (l->stmts[i].kind == EP_STMT_REDUCE && l->stmts[i].phase == phase) sums[sum_count++] = i;
    for (int64_t e = first; e < last; e++) {
        for (int i = 0; i < l->stmt_count; i++) {
            const ep_stmt *s = &l->stmts[i];
            if (s->row || s->phase > phase || (s->kind == EP_STMT_STORE && s->phase != phase)) continue;
            compute(w, i, e);
        }
        for (int k = 0; k < sum_count; k++) series[k * w->n + e] = w->value[l->stmts[sums[k]].in[0]];
    }
    int lanes = lanes_here();
    for (int k = 0; k < sum_count; k++)
        w->value[sums[k]] = l->stmts[sums[k]].op == EP_OP_AMAX ? row_max(series + k * w->n, w->n, lanes)
                                                               : row_sum(series + k * w->n, w->n, lanes);
}

static void run_item(walker *w, int64_t item, int64_t chunk, int64_t pieces, const int64_t *base, float *series) {
    const ep_loop *l = w->l;
    int64_t row = item / pieces, first = item % pieces * chunk, index[EP_MAX_DIMS] = {0};
    int64_t last = first + chunk < w->n ? first + chunk : w->n;
    for (int d = l->outer - 1; d >= 0; d--) {
        index[d] = row % w->sizes[d];
        row /= w->sizes[d];
    }
    for (int k = 0; k < l->operand_count; k++) {
        int64_t at = base[k]; /* a number: the address of nothing may be null */
        for (int d = 0; d < l->outer; d++) at += index[d] * w->strides[k][d];
        w->p[k] = (char *)(uintptr_t)at;
    }
    for (int phase = 0; phase < l->phases; phase++) {
        for (int i = 0; i < l->stmt_count; i++)
            if (l->stmts[i].row && l->stmts[i].phase == phase) compute(w, i, 0);
        walk_row(w, phase, first, last, series);
    }
}

void ep_loop_run(const ep_loop *l, const int64_t *args, int64_t begin, int64_t end) {
    walker w = {.l = l, .n = args[0]};
    int64_t base[EP_LOOP_OPERANDS];
    int word = EP_LOOP_HEAD, sums = 0;
    for (int d = 0; d < l->outer; d++) w.sizes[d] = args[word++];
    for (int k = 0; k < l->operand_count; k++) {
        base[k] = args[word++];
        int count = l->outer + (l->operands[k].walk == EP_WALK_STRIDED);
        for (int d = 0; d < count; d++) w.strides[k][d] = args[word++];
    }
    for (int i = 0; i < l->stmt_count; i++) sums += l->stmts[i].kind == EP_STMT_REDUCE;
    float *series = sums ? malloc(sizeof *series * (size_t)(w.n > 0 ? w.n : 1) * (size_t)sums) : NULL;
    if (sums && !series) return;
    for (int64_t i = begin; i < end; i++) run_item(&w, i, args[1], args[2], base, series);
    free(series);
}
