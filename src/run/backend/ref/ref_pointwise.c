/* Every pointwise op: the formula of its row in pointwise.def, in double. */
#include "ref.h"

#include <math.h>

#define K(x) (x)
#define v_abs fabs
#define v_sqrt sqrt
#define v_exp exp
#define v_log log
#define v_tanh tanh
#define v_erf erf
#define v_select(cond, x, y) ((cond) != 0 ? (x) : (y))

static double v_min(double a, double b) {
    return isnan(a) || isnan(b) ? NAN : a < b ? a : b;
}

static double v_max(double a, double b) {
    return isnan(a) || isnan(b) ? NAN : a > b ? a : b;
}

/* x times a sigmoid, and x times erfc: the forms that do not lose the small results of negative x to cancellation. */
static double v_gelu_tanh(double x) {
    return x / (1.0 + exp(-2.0 * 0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}

static double v_gelu_erf(double x) {
    return 0.5 * x * erfc(-x * 0.70710678118654752440);
}

typedef void (*apply_fn)(int64_t n, const double *pa, const double *pb, const double *pc, double *out);

#define EP_POINTWISE(ID, name, aten, arity, flops, formula)                                                            \
    static void apply_##name(int64_t n, const double *pa, const double *pb, const double *pc, double *out) {           \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            double a = pa[i], b = (arity) > 1 ? pb[i] : 0, c = (arity) > 2 ? pc[i] : 0;                                \
            (void)b;                                                                                                   \
            (void)c;                                                                                                   \
            out[i] = formula;                                                                                          \
        }                                                                                                              \
    }
#include <epilogue/pointwise.def>
#undef EP_POINTWISE

static const apply_fn table[] = {
#define EP_POINTWISE(ID, name, aten, arity, flops, formula) apply_##name,
#include <epilogue/pointwise.def>
#undef EP_POINTWISE
};

void ep_ref_apply(ep_op op, int64_t n, const double *a, const double *b, const double *c, double *out) {
    table[op](n, a, b, c, out);
}

void ep_ref_act(ep_act act, int64_t n, double *v) {
    if (act != EP_ACT_NONE) table[ep_act_op(act)](n, v, NULL, NULL, v);
}

void ep_ref_round(ep_dtype dtype, int64_t n, double *v) {
    char stored[8];
    for (int64_t i = 0; i < n; i++) {
        ep_element_store(dtype, stored, v[i]);
        v[i] = ep_element_load(dtype, stored);
    }
}

ep_status ep_ref_pointwise(ep_backend *b, ep_op op, int count, const ep_tensor *const *in, ep_tensor *out,
                           ep_error *err) {
    (void)b;
    if ((size_t)op >= sizeof table / sizeof table[0] || count != ep_op_get(op)->max_arity)
        return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "%s with %d operands is not a pointwise op", ep_op_name(op),
                       count);
    ep_launch l = ep_launch_begin(ep_ref_name_op(out->dtype, op));
    const int64_t *strides[4];
    for (int k = 0; k < count; k++) strides[k] = in[k]->strides;
    strides[count] = out->strides;
    double v[4][EP_REF_BLOCK];
    ep_walk w;
    for (bool more = ep_walk_begin(&w, out->ndim, out->sizes, count + 1, strides); more; more = ep_walk_next(&w)) {
        for (int64_t i = 0; i < w.run; i += EP_REF_BLOCK) {
            int64_t n = w.run - i < EP_REF_BLOCK ? w.run - i : EP_REF_BLOCK;
            for (int k = 0; k < count; k++)
                ep_run_load(in[k]->dtype, ep_ref_at(in[k], w.offset[k] + i * w.step[k]), w.step[k], n, v[k]);
            table[op](n, v[0], v[1], v[2], v[3]);
            ep_run_store(out->dtype, ep_ref_at(out, w.offset[count] + i * w.step[count]), w.step[count], n, v[3]);
        }
    }
    int64_t read = 0;
    for (int k = 0; l.probe && k < count; k++) read += ep_ref_bytes(in[k]);
    ep_launch_end(&l, out->numel * ep_op_get(op)->flops, read, ep_ref_bytes(out));
    return EP_OK;
}
