/* Random programs over the public eager API: made at some sizes, run at any. Shared by the property tests and fuzz_graph.
 * A program is data, so that it can be run eagerly, captured, shrunk and printed. */
#ifndef EP_TEST_PROGRAMS_H
#define EP_TEST_PROGRAMS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <epilogue/compile.h>
#include <epilogue/ops.h>

#include "model/tensor/tensor.h"

enum { MOST_STEPS = 20, MOST_GIVEN = 4, MOST_OUT = 3, MOST_VALUES = MOST_STEPS + MOST_GIVEN };

typedef enum kind {
    UNARY,
    BINARY,
    WHERE,
    TRANSPOSE,
    SLICE,
    CHUNK,
    FLATTEN,
    COLUMN,
    EXPAND,
    COPY,
    CAST,
    REDUCE,
    SOFTMAX,
    LAYER_NORM,
    RMS_NORM,
    LINEAR,
    CAT,
    GATED,
    TAIL,   /* a product that one op alone reads: a unary, or with a row, one value or another product */
    PACKED, /* both halves of a product, one through a unary, multiplied */
    KINDS
} kind;

typedef struct instr {
    kind kind;
    ep_op op;
    int a, b, c; /* values; for weights: numbers of inputs */
    int x, y;    /* small attributes */
} instr;

typedef struct program {
    int given, steps, outs; /* inputs come first among the values */
    instr step[MOST_STEPS];
    int out[MOST_OUT];
} program;

typedef struct rng {
    uint64_t s;
} rng;
static inline uint32_t next(rng *r) {
    r->s ^= r->s << 13;
    r->s ^= r->s >> 7;
    r->s ^= r->s << 17;
    return (uint32_t)(r->s * 0x2545f4914f6cdd1dULL >> 32);
}
static inline int below(rng *r, int n) {
    return n > 0 ? (int)(next(r) % (uint32_t)n) : 0;
}

static const ep_op unary_ops[] = {EP_OP_NEG,   EP_OP_ABS,  EP_OP_EXP,       EP_OP_LOG,      EP_OP_SQRT,
                                  EP_OP_RSQRT, EP_OP_TANH, EP_OP_ERF,       EP_OP_SIGMOID,  EP_OP_RELU,
                                  EP_OP_SILU,  EP_OP_NEG,  EP_OP_GELU_TANH, EP_OP_GELU_ERF, EP_OP_ABS};
static const ep_op binary_ops[] = {EP_OP_ADD, EP_OP_SUB, EP_OP_MUL, EP_OP_DIV, EP_OP_MINIMUM, EP_OP_MAXIMUM};

static inline ep_status run_tail(ep_context *ctx, const instr *s, const ep_tensor *a, const ep_tensor *w,
                                 ep_tensor **out) {
    ep_tensor *t = NULL, *u = NULL, *r = NULL;
    ep_status e = ep_linear(ctx, a, w, NULL, &t);
    if (e == EP_OK && s->y % 4 == 0) e = ep_unary(ctx, unary_ops[s->x % 12], t, out);
    if (e == EP_OK && s->y % 4 == 1) e = ep_neg(ctx, a, &u);
    if (u && e == EP_OK) e = ep_linear(ctx, u, w, NULL, &r);
    if (e == EP_OK && s->y % 4 == 2) e = ep_sum(ctx, w, 1, false, &r);
    if (e == EP_OK && s->y % 4 == 3) e = ep_amax(ctx, w, 2, false, &r);
    bool left = s->x < 6; /* the product on the left */
    if (e == EP_OK && s->y % 4 != 0) e = ep_binary(ctx, binary_ops[s->x % 6], left ? t : r, left ? r : t, out);
    ep_tensor_destroy(r);
    ep_tensor_destroy(u);
    ep_tensor_destroy(t);
    return e;
}

static inline ep_status run_packed(ep_context *ctx, const instr *s, const ep_tensor *a, const ep_tensor *w,
                                   ep_tensor **out) {
    ep_tensor *t[4] = {NULL};
    int64_t n = ep_tensor_ndim(w) ? ep_tensor_size(w, 0) : 0;
    if (n < 2 || n % 2) return EP_ERROR_SHAPE;
    ep_status e = ep_linear(ctx, a, w, NULL, &t[0]);
    for (int i = 0; e == EP_OK && i < 2; i++) e = ep_chunk(ctx, t[0], ep_tensor_ndim(t[0]) - 1, 2, i, &t[1 + i]);
    if (e == EP_OK) e = ep_unary(ctx, unary_ops[s->x % 12], t[1], &t[3]);
    if (e == EP_OK) e = ep_mul(ctx, t[3], t[2], out);
    for (int i = 0; i < 4; i++) ep_tensor_destroy(t[i]);
    return e;
}

static inline ep_status run_instr(ep_context *ctx, const instr *s, const ep_tensor *const *v, ep_tensor **out) {
    const ep_tensor *a = v[s->a], *b = v[s->b], *c = v[s->c];
    int n = ep_tensor_ndim(a);
    int64_t sizes[EP_MAX_DIMS];
    switch (s->kind) {
    case UNARY: return ep_unary(ctx, s->op, a, out);
    case BINARY: return ep_binary(ctx, s->op, a, b, out);
    case WHERE: return ep_where(ctx, c, a, b, out);
    case TRANSPOSE: return n < 2 ? EP_ERROR_SHAPE : ep_transpose(ctx, a, s->x % n, s->y % n, out);
    case SLICE: {
        if (n < 1) return EP_ERROR_SHAPE;
        int64_t size = ep_tensor_size(a, s->x % n);
        return ep_slice(ctx, a, s->x % n, size > 2 ? s->y % 2 : 0, size, 1 + s->y / 2 % 2, out);
    }
    case CHUNK:
        return n < 1 || ep_tensor_size(a, s->x % n) < 2 ? EP_ERROR_SHAPE : ep_chunk(ctx, a, s->x % n, 2, s->y % 2, out);
    case FLATTEN:
        if (n < 2 || ep_tensor_numel(a) == 0) return EP_ERROR_SHAPE;
        sizes[0] = -1;
        sizes[1] = ep_tensor_size(a, -1);
        return ep_reshape(ctx, a, 2, sizes, out);
    case COLUMN: /* a last dim of 1 */
        if (n < 1 || n > 3) return EP_ERROR_SHAPE;
        memcpy(sizes, ep_tensor_sizes(a), sizeof(int64_t) * (size_t)n);
        sizes[n] = 1;
        return ep_reshape(ctx, a, n + 1, sizes, out);
    case EXPAND: return ep_expand(ctx, a, ep_tensor_ndim(b), ep_tensor_sizes(b), out);
    case COPY: return ep_copy(ctx, a, out);
    case CAST: return ep_cast(ctx, a, (ep_dtype)(s->x % 3), out);
    case REDUCE: {
        int dims = n > 1 && s->y > 5 ? 2 : 1;
        if (n < dims) return EP_ERROR_SHAPE;
        return s->x % 3 == 0   ? ep_sum(ctx, a, dims, s->y % 2, out)
               : s->x % 3 == 1 ? ep_mean(ctx, a, dims, s->y % 2, out)
                               : ep_amax(ctx, a, dims, s->y % 2, out);
    }
    case SOFTMAX: return ep_softmax(ctx, a, out);
    case LAYER_NORM: return ep_layer_norm(ctx, a, s->x % 2 ? b : NULL, s->x % 4 == 3 ? c : NULL, 1e-5, out);
    case RMS_NORM: return ep_rms_norm(ctx, a, s->x % 2 ? b : NULL, 1e-6, out);
    case LINEAR: return ep_linear(ctx, a, b, NULL, out);
    case CAT: return ep_cat(ctx, (const ep_tensor *const[]){a, b}, 2, s->x % (n ? n : 1), out);
    case GATED: return ep_gated(ctx, (ep_act)(s->x % EP_ACT_COUNT), a, b, out);
    case TAIL: return run_tail(ctx, s, a, b, out);
    case PACKED: return run_packed(ctx, s, a, b, out);
    default: return EP_ERROR_INVALID_ARGUMENT;
    }
}

/* The program as an ep_fn; `user` is the program. */
static inline ep_status run_program(ep_context *ctx, void *user, const ep_tensor *const *inputs, int count,
                                    ep_tensor **outputs, int output_count) {
    const program *p = user;
    const ep_tensor *v[MOST_VALUES] = {NULL};
    ep_tensor *made[MOST_VALUES] = {NULL};
    ep_status s = EP_OK;
    for (int i = 0; i < count; i++) v[i] = inputs[i];
    for (int i = 0; s == EP_OK && i < p->steps; i++) {
        s = run_instr(ctx, &p->step[i], v, &made[p->given + i]);
        v[p->given + i] = made[p->given + i];
    }
    for (int i = 0; s == EP_OK && i < output_count; i++) {
        int at = p->out[i];
        outputs[i] = NULL;
        if (at >= p->given && made[at]) {
            outputs[i] = made[at];
            made[at] = NULL; /* the caller's now */
        } else {
            s = EP_ERROR_INVALID_ARGUMENT;
        }
    }
    for (int i = 0; i < MOST_VALUES; i++) ep_tensor_destroy(made[i]);
    return s;
}

static const int64_t odd_sizes[] = {0, 1, 1, 7, 8, 9, 63, 64, 65, 1000};

/* A tensor of the given sizes as a view of a wider buffer: permuted, sliced, broadcast or plain. */
static inline ep_tensor *random_tensor(rng *r, ep_dtype dtype, int ndim, const int64_t *sizes) {
    int64_t wide[EP_MAX_DIMS], order[EP_MAX_DIMS];
    int how = below(r, 5);
    for (int i = 0; i < ndim; i++) {
        wide[i] = sizes[i] + (how == 1 && i == ndim - 1 ? 1 + below(r, 40) : 0);
        order[i] = i;
    }
    if (how == 2 && ndim > 1) { /* stored with two dims swapped */
        wide[0] = sizes[ndim - 1];
        wide[ndim - 1] = sizes[0];
    }
    if (how == 3 && ndim > 0) wide[below(r, ndim)] = 1;
    ep_tensor *t = NULL, *u = NULL;
    if (ep_tensor_create(dtype, ndim, wide, NULL, &t) != EP_OK) return NULL;
    if (dtype == EP_DTYPE_BOOL) {
        for (int64_t i = 0; i < t->numel; i++) t->data[i] = (char)(next(r) & 1);
    } else {
        ep_tensor_fill_random(t, next(r), 1.5, NULL);
    }
    ep_status s = EP_OK;
    if (how == 1 && ndim > 0) s = ep_tensor_slice(t, ndim - 1, 1, 1 + sizes[ndim - 1], 1, NULL, &u);
    if (how == 2 && ndim > 1) s = ep_tensor_transpose(t, 0, ndim - 1, NULL, &u);
    if (how == 3 && ndim > 0) s = ep_tensor_expand(t, ndim, sizes, NULL, &u);
    (void)order;
    if (s != EP_OK || !u) return t;
    ep_tensor_destroy(t);
    return u;
}

/* Sizes of the inputs: input 0 is free, the others broadcast to it, are weights for its last dim, or a condition. */
typedef struct shapes {
    int ndim[MOST_GIVEN];
    int64_t sizes[MOST_GIVEN][EP_MAX_DIMS];
    ep_dtype dtype[MOST_GIVEN];
} shapes;

static inline void random_shapes(rng *r, shapes *s, int most_elements) {
    int n = 1 + below(r, 4);
    s->dtype[0] = s->dtype[1] = s->dtype[2] = (ep_dtype)below(r, 3);
    s->dtype[3] = EP_DTYPE_BOOL;
    for (;;) {
        int64_t total = 1;
        for (int i = 0; i < n; i++) {
            s->sizes[0][i] = odd_sizes[below(r, (int)(sizeof odd_sizes / sizeof *odd_sizes))];
            if (s->sizes[0][i] == 0 && below(r, 4)) s->sizes[0][i] = 7; /* empty tensors are few */
            total *= s->sizes[0][i];
        }
        if (total <= most_elements) break;
    }
    s->ndim[0] = n;
    s->ndim[1] = 1 + below(r, n); /* broadcasts */
    for (int i = 0; i < s->ndim[1]; i++) s->sizes[1][i] = below(r, 4) ? s->sizes[0][n - s->ndim[1] + i] : 1;
    s->ndim[2] = 1; /* a norm's weight, or a linear's */
    s->sizes[2][0] = s->sizes[0][n - 1];
    if (below(r, 3) == 0) {
        s->ndim[2] = 2;
        s->sizes[2][0] = 1 + below(r, 20);
        s->sizes[2][1] = s->sizes[0][n - 1];
    }
    s->ndim[3] = n;
    for (int i = 0; i < n; i++) s->sizes[3][i] = s->sizes[0][i];
}

/* The same classes at another size of dim 0. */
static inline void other_size(rng *r, shapes *s) {
    if (s->sizes[0][0] <= 1 || s->ndim[0] < 2) return;
    int64_t old = s->sizes[0][0], now = 2 + below(r, 20);
    for (int k = 0; k < MOST_GIVEN; k++)
        if (k != 2 && s->ndim[k] == s->ndim[0] && s->sizes[k][0] == old) s->sizes[k][0] = now;
}

static inline instr random_instr(rng *r, int values) {
    static const kind weights[] = {UNARY,  UNARY, UNARY,     UNARY,  BINARY,  BINARY,     BINARY,   BINARY,
                                   BINARY, WHERE, TRANSPOSE, SLICE,  CHUNK,   FLATTEN,    COLUMN,   EXPAND,
                                   COPY,   CAST,  REDUCE,    REDUCE, SOFTMAX, LAYER_NORM, RMS_NORM, LINEAR,
                                   CAT,    GATED, TAIL,      TAIL,   PACKED};
    instr s = {.kind = weights[below(r, (int)(sizeof weights / sizeof *weights))]};
    if (getenv("EP_NO_RED") && (s.kind == REDUCE || s.kind == SOFTMAX || s.kind == LAYER_NORM || s.kind == RMS_NORM))
        s.kind = UNARY;
    /* Late values are read more often: chains are what fusion is about. */
    s.a = below(r, 3) ? values - 1 - below(r, values < 3 ? values : 3) : below(r, values);
    s.b = below(r, 2) ? below(r, values) : values - 1 - below(r, values < 4 ? values : 4);
    s.c = below(r, values);
    s.x = below(r, 12);
    s.y = below(r, 8);
    if (s.kind == UNARY) s.op = unary_ops[below(r, (int)(sizeof unary_ops / sizeof *unary_ops))];
    if (s.kind == BINARY) s.op = binary_ops[below(r, (int)(sizeof binary_ops / sizeof *binary_ops))];
    if (s.kind == WHERE) s.c = 3;
    if (s.kind == LAYER_NORM || s.kind == RMS_NORM || s.kind == LINEAR || s.kind == TAIL || s.kind == PACKED)
        s.b = s.c = 2;
    return s;
}

/* Grows a program by trying instructions on real tensors until `steps` of them worked. */
static inline bool random_program(rng *r, ep_context *ctx, const ep_tensor *const *inputs, int most_elements,
                                  program *p) {
    const ep_tensor *v[MOST_VALUES] = {NULL};
    ep_tensor *made[MOST_VALUES] = {NULL};
    int steps = 1 + below(r, MOST_STEPS);
    memset(p, 0, sizeof *p);
    p->given = MOST_GIVEN;
    for (int i = 0; i < MOST_GIVEN; i++) v[i] = inputs[i];
    for (int tries = 0; p->steps < steps && tries < 200; tries++) {
        int values = p->given + p->steps;
        instr s = random_instr(r, values);
        if (s.kind != WHERE && (s.a == 3 || s.b == 3)) continue; /* the condition */
        ep_tensor *t = NULL;
        if (run_instr(ctx, &s, v, &t) != EP_OK) continue;
        if (t->numel > most_elements) {
            ep_tensor_destroy(t);
            continue;
        }
        p->step[p->steps++] = s;
        made[values] = t;
        v[values] = t;
    }
    for (int i = 0; i < MOST_VALUES; i++) ep_tensor_destroy(made[i]);
    if (!p->steps) return false;
    p->outs = 1 + below(r, p->steps < MOST_OUT ? p->steps : MOST_OUT);
    for (int i = 0; i < p->outs; i++) {
        bool again = true;
        while (again) {
            p->out[i] = i == 0 ? p->given + p->steps - 1 : p->given + below(r, p->steps);
            again = false;
            for (int k = 0; k < i; k++) again |= p->out[k] == p->out[i];
        }
    }
    return true;
}

/* Same shape, strides and bits; NaN equals NaN. */
static inline bool same_bits(const ep_tensor *a, const ep_tensor *b, char *why, size_t size) {
    if (a->dtype != b->dtype || a->ndim != b->ndim) {
        snprintf(why, size, "dtype or rank differ");
        return false;
    }
    for (int i = 0; i < a->ndim; i++) {
        if (a->sizes[i] != b->sizes[i] || (a->sizes[i] > 1 && a->numel && a->strides[i] != b->strides[i])) {
            snprintf(why, size, "dim %d: size %lld stride %lld against %lld, %lld", i, (long long)a->sizes[i],
                     (long long)a->strides[i], (long long)b->sizes[i], (long long)b->strides[i]);
            return false;
        }
    }
    double *x = malloc(sizeof *x * (size_t)(a->numel + 1)), *y = malloc(sizeof *y * (size_t)(a->numel + 1));
    bool same = x && y && ep_tensor_read_f64(a, x, (size_t)a->numel, NULL) == EP_OK &&
                ep_tensor_read_f64(b, y, (size_t)a->numel, NULL) == EP_OK;
    for (int64_t i = 0; same && i < a->numel; i++) {
        if (memcmp(&x[i], &y[i], sizeof *x) == 0 || (x[i] != x[i] && y[i] != y[i])) continue;
        snprintf(why, size, "element %lld: %.17g against %.17g", (long long)i, x[i], y[i]);
        same = false;
    }
    free(x);
    free(y);
    return same;
}

#endif
