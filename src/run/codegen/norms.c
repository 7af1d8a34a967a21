/* Reductions and norms as statements: the same arithmetic, step by step, as the CPU backend's row kernels, so that the
 * results are the same bits. */
#include "loop.h"

static int op(ep_loop *l, ep_op o, int a, int b) {
    return ep_loop_add(l, (ep_stmt){.kind = EP_STMT_OP, .op = o, .in = {a, b, -1}});
}

static int reduce(ep_loop *l, ep_op o, int x) {
    return ep_loop_add(l, (ep_stmt){.kind = EP_STMT_REDUCE, .op = o, .in = {x}});
}

static int number(ep_loop *l, double v) {
    return ep_loop_add(l, (ep_stmt){.kind = EP_STMT_CONST, .number = v, .row = true});
}

static int count(ep_loop *l) {
    return ep_loop_add(l, (ep_stmt){.kind = EP_STMT_COUNT, .row = true});
}

static int mean(ep_loop *l, int x) {
    int s = reduce(l, EP_OP_SUM, x);
    return op(l, EP_OP_DIV, s, count(l));
}

/* 1 / sqrt(mean square + eps) */
static int scale(ep_loop *l, int square, double eps) {
    int m = mean(l, square);
    return op(l, EP_OP_RSQRT, op(l, EP_OP_ADD, m, number(l, (double)(float)eps)), -1);
}

int ep_loop_reduction(ep_loop *l, ep_op o, int x) {
    return o == EP_OP_MEAN ? mean(l, x) : reduce(l, o, x);
}

static int softmax(ep_loop *l, int x) {
    int e = op(l, EP_OP_EXP, op(l, EP_OP_SUB, x, reduce(l, EP_OP_AMAX, x)), -1);
    return op(l, EP_OP_DIV, e, reduce(l, EP_OP_SUM, e));
}

static int layer_norm(ep_loop *l, double eps, int x, int weight, int bias) {
    int d = op(l, EP_OP_SUB, x, mean(l, x));
    int y = op(l, EP_OP_MUL, d, scale(l, op(l, EP_OP_MUL, d, d), eps));
    if (weight < 0) return y;
    if (bias < 0) return op(l, EP_OP_MUL, y, weight);
    return ep_loop_add(l, (ep_stmt){.kind = EP_STMT_FMA, .in = {y, weight, bias}});
}

static int rms_norm(ep_loop *l, double eps, int x, int weight) {
    int y = op(l, EP_OP_MUL, x, scale(l, op(l, EP_OP_MUL, x, x), eps));
    return weight < 0 ? y : op(l, EP_OP_MUL, y, weight);
}

int ep_loop_norm(ep_loop *l, ep_op o, double eps, int x, int weight, int bias) {
    if (o == EP_OP_SOFTMAX) return softmax(l, x);
    if (o == EP_OP_LAYER_NORM) return layer_norm(l, eps, x, weight, bias);
    return rms_norm(l, eps, x, weight);
}
