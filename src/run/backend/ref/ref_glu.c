/* act(gate) * up and its gradients, in double; under EP_ROUNDING_EAGER rounded where eager would have stored. */
#include "ref.h"

#include <math.h>

/* act(x) and its slope. */
static double slope(ep_act act, double x) {
    switch (act) {
    case EP_ACT_GELU_TANH: {
        double c = 0.79788456080286535588, u = c * (x + 0.044715 * x * x * x), s = 1.0 / (1.0 + exp(-2.0 * u));
        return s + 2.0 * x * s * (1.0 - s) * c * (1.0 + 3.0 * 0.044715 * x * x);
    }
    case EP_ACT_GELU_ERF:
        return 0.5 * erfc(-x * 0.70710678118654752440) + x * 0.39894228040143267794 * exp(-0.5 * x * x);
    case EP_ACT_SILU: {
        double s = 1.0 / (1.0 + exp(-x));
        return s * (1.0 + x * (1.0 - s));
    }
    case EP_ACT_RELU: return x <= 0 ? 0.0 : 1.0;
    default: return 1.0;
    }
}

ep_status ep_ref_gated(ep_backend *b, ep_act act, ep_rounding rounding, const ep_tensor *gate, const ep_tensor *up,
                       ep_tensor *out, ep_error *err) {
    (void)b;
    (void)err;
    ep_launch l = ep_launch_begin(ep_ref_name_gated(out->dtype, act, false));
    const int64_t *strides[3] = {gate->strides, up->strides, out->strides};
    double g[EP_REF_BLOCK], u[EP_REF_BLOCK];
    ep_walk w;
    for (bool more = ep_walk_begin(&w, out->ndim, out->sizes, 3, strides); more; more = ep_walk_next(&w)) {
        for (int64_t i = 0; i < w.run; i += EP_REF_BLOCK) {
            int64_t n = w.run - i < EP_REF_BLOCK ? w.run - i : EP_REF_BLOCK;
            ep_run_load(gate->dtype, ep_ref_at(gate, w.offset[0] + i * w.step[0]), w.step[0], n, g);
            ep_run_load(up->dtype, ep_ref_at(up, w.offset[1] + i * w.step[1]), w.step[1], n, u);
            ep_ref_act(act, n, g);
            if (rounding == EP_ROUNDING_EAGER) ep_ref_round(out->dtype, n, g);
            for (int64_t j = 0; j < n; j++) g[j] *= u[j];
            ep_run_store(out->dtype, ep_ref_at(out, w.offset[2] + i * w.step[2]), w.step[2], n, g);
        }
    }
    int flops = act == EP_ACT_NONE ? 1 : ep_op_get(ep_act_op(act))->flops + 1;
    ep_launch_end(&l, flops * out->numel, ep_ref_bytes(gate) + ep_ref_bytes(up), ep_ref_bytes(out));
    return EP_OK;
}

/* Eager's steps: h = act(g); dup = dy h; dh = dy u; dgate = dh act'(g), each stored in the dtype. */
static void backward_block(ep_act act, ep_dtype eager, int64_t n, const double *dy, double *g, double *u) {
    for (int64_t j = 0; j < n; j++) {
        double h = g[j], dh = dy[j] * u[j];
        ep_ref_act(act, 1, &h);
        if (eager < EP_DTYPE_COUNT) {
            ep_ref_round(eager, 1, &h);
            ep_ref_round(eager, 1, &dh);
        }
        g[j] = dh * slope(act, g[j]);
        u[j] = dy[j] * h;
    }
}

ep_status ep_ref_gated_backward(ep_backend *b, ep_act act, ep_rounding rounding, const ep_tensor *dy,
                                const ep_tensor *gate, const ep_tensor *up, ep_tensor *dgate, ep_tensor *dup,
                                ep_error *err) {
    (void)b;
    (void)err;
    ep_launch l = ep_launch_begin(ep_ref_name_gated(dgate->dtype, act, true));
    const ep_tensor *t[5] = {dy, gate, up, dgate, dup};
    const int64_t *strides[5];
    for (int k = 0; k < 5; k++) strides[k] = t[k]->strides;
    ep_dtype eager = rounding == EP_ROUNDING_EAGER ? dgate->dtype : EP_DTYPE_COUNT;
    double v[3][EP_REF_BLOCK];
    ep_walk w;
    for (bool more = ep_walk_begin(&w, dy->ndim, dy->sizes, 5, strides); more; more = ep_walk_next(&w)) {
        for (int64_t i = 0; i < w.run; i += EP_REF_BLOCK) {
            int64_t n = w.run - i < EP_REF_BLOCK ? w.run - i : EP_REF_BLOCK;
            for (int k = 0; k < 3; k++)
                ep_run_load(t[k]->dtype, ep_ref_at(t[k], w.offset[k] + i * w.step[k]), w.step[k], n, v[k]);
            backward_block(act, eager, n, v[0], v[1], v[2]);
            for (int k = 3; k < 5; k++)
                ep_run_store(t[k]->dtype, ep_ref_at(t[k], w.offset[k] + i * w.step[k]), w.step[k], n, v[k - 2]);
        }
    }
    int64_t read = ep_ref_bytes(dy) + ep_ref_bytes(gate) + ep_ref_bytes(up);
    ep_launch_end(&l, 30 * dy->numel, read, ep_ref_bytes(dgate) + ep_ref_bytes(dup));
    return EP_OK;
}
