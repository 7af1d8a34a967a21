/* Matrix products: linear as `linear` -> `t` -> `addmm`, with the bias in the one kernel whatever x's layout. */
#include "dispatch.h"

#include <stdio.h>

/* A stride that is never read is set to what a plain layout would have, so that no kernel is put off by it. */
static int64_t stride_or(int64_t size, int64_t stride, int64_t plain) {
    return size > 1 ? stride : plain;
}

static void set_b(ep_gemm *g, const ep_tensor *w, int k_dim, int n_dim) {
    bool k_inner = w->strides[k_dim] == 1 || g->k <= 1;
    g->b = w->data;
    g->b_row = stride_or(g->k, w->strides[k_dim], k_inner ? 1 : g->n);
    g->b_col = stride_or(g->n, w->strides[n_dim], k_inner ? g->k : 1);
}

bool ep_dispatch_linear_form(const ep_tensor *x, const ep_tensor *weight, const ep_tensor *bias, ep_gemm *g) {
    int last = x->ndim - 1;
    *g = (ep_gemm){.batch = 1, .n = weight->sizes[0], .k = weight->sizes[1], .dtype = x->dtype, .alpha = 1};
    g->out_dtype = x->dtype;
    g->a = x->data;
    g->out_row = g->n;
    g->a_col = stride_or(g->k, x->strides[last], 1);
    set_b(g, weight, 1, 0);
    if (bias) {
        g->bias = bias->data;
        g->bias_stride = bias->strides[0];
    }
    if (x->contiguous) {
        g->m = 1;
        for (int i = 0; i < last; i++) g->m *= x->sizes[i];
        g->a_row = g->k;
        return true;
    }
    int64_t sizes[EP_MAX_DIMS], strides[2][EP_MAX_DIMS]; /* of x; of the rows of out */
    for (int i = 0; i < last; i++) {
        sizes[i] = x->sizes[i];
        strides[0][i] = x->strides[i];
    }
    ep_stride_contiguous(last, sizes, strides[1]);
    int dims = ep_stride_collapse(last, sizes, 2, strides);
    if (dims > 2) return false;
    /* With two runs left, the longer one makes the rows. */
    int row = dims == 2 && sizes[0] > sizes[1] ? 0 : dims - 1, batch = 1 - row;
    g->m = dims > 0 ? sizes[row] : 1;
    g->a_row = dims > 0 ? strides[0][row] : g->k;
    if (dims > 0) g->out_row = strides[1][row] * g->n;
    if (dims == 2) {
        g->batch = sizes[batch];
        g->a_batch = strides[0][batch];
        g->out_batch = strides[1][batch] * g->n;
    }
    return true;
}

/* Spans want operands as the matrix op has them: bias, x as rows, the weight transposed. */
static const ep_probe *begin_product(const ep_gemm *g, const ep_tensor *x, const ep_tensor *wt, const ep_tensor *bias) {
    const ep_probe *p = ep_probe_get();
    if (!p) return NULL;
    int64_t sizes[3] = {g->batch, g->m, g->k}, strides[3] = {g->a_batch, g->a_row, g->a_col};
    int skip = g->batch == 1;
    ep_tensor rows = ep_dispatch_look(x, 3 - skip, sizes + skip, strides + skip);
    const ep_tensor *in[3] = {bias, &rows, wt};
    return ep_span_record(p, bias ? EP_OP_ADDMM : EP_OP_MM, 3, in, NULL);
}

static ep_status linear_product(ep_context *ctx, const ep_tensor *x, const ep_tensor *w, const ep_tensor *bias,
                                ep_tensor *t) {
    ep_gemm g;
    ep_tensor *copy = NULL;
    const ep_probe *p = ep_span_begin(EP_OP_T, 1, &w);
    ep_tensor wt;
    if (p)
        wt = ep_dispatch_look(w, 2, (int64_t[2]){w->sizes[1], w->sizes[0]}, (int64_t[2]){w->strides[1], w->strides[0]});
    ep_span_end(p);
    if (t->numel == 0) return EP_OK;
    if (!ep_dispatch_linear_form(x, w, bias, &g)) {
        char why[160], shape[96];
        snprintf(why, sizeof why, "x %s with stride %lld in dim 0 is not a batch of evenly spaced rows",
                 ep_shape_text(x->ndim, x->sizes, shape, sizeof shape), (long long)x->strides[0]);
        EP_TRY(ep_dispatch_copy(ctx, x, why, &copy));
        x = copy;
        ep_dispatch_linear_form(x, w, bias, &g);
    }
    g.out = t->data;
    g.rounding = ctx->rounding;
    p = p ? begin_product(&g, x, &wt, bias) : NULL;
    ep_status status = ctx->ops.gemm(&ctx->backend, &g, &ctx->err);
    ep_span_end(p);
    ep_tensor_destroy(copy);
    return status;
}

static ep_status finish(ep_tensor *t, ep_status status, ep_tensor **out) {
    if (status == EP_OK)
        *out = t;
    else
        ep_tensor_destroy(t);
    return status;
}

static ep_status linear_run(ep_context *ctx, int count, const ep_tensor *const *in, ep_tensor **out) {
    ep_shape s;
    ep_tensor *t;
    EP_TRY(ep_dispatch_shape(ctx, EP_OP_LINEAR, NULL, count, in, &s));
    EP_TRY(ep_dispatch_result(ctx, s.dtype, s.ndim, s.sizes, &t));
    return finish(t, linear_product(ctx, in[0], in[1], count > 2 ? in[2] : NULL, t), out);
}

ep_status ep_linear(ep_context *ctx, const ep_tensor *x, const ep_tensor *weight, const ep_tensor *bias,
                    ep_tensor **out) {
    if (!ctx) return EP_ERROR_INVALID_ARGUMENT;
    const ep_tensor *in[3] = {x, weight, bias};
    int count = bias ? 3 : 2;
    EP_TRY(ep_dispatch_check(ctx, EP_OP_LINEAR, count, in, out));
    if (ctx->recorder) return ctx->recorder->record(ctx->recorder, ctx, EP_OP_LINEAR, NULL, count, in, out);
    bool outer;
    EP_TRY(ep_context_enter(ctx, &outer));
    const ep_probe *p = ep_span_begin(EP_OP_LINEAR, count, in);
    ep_status status = linear_run(ctx, count, in, out);
    ep_span_end(p);
    ep_context_leave(ctx, outer);
    return status;
}

/* a [.., M, K] and b [.., K, N] of 2 or 3 dims, out contiguous. */
static void set_product(ep_gemm *g, const ep_tensor *a, const ep_tensor *b, const ep_tensor *out) {
    int d = a->ndim - 2;
    *g = (ep_gemm){.batch = d ? a->sizes[0] : 1, .m = a->sizes[d], .n = b->sizes[d + 1], .k = a->sizes[d + 1]};
    g->dtype = g->out_dtype = a->dtype;
    g->alpha = 1;
    g->a = a->data;
    g->a_col = stride_or(g->k, a->strides[d + 1], 1);
    g->a_row = stride_or(g->m, a->strides[d], g->a_col == 1 ? g->k : 1);
    set_b(g, b, d, d + 1);
    g->out = out->data;
    g->out_row = g->n;
    if (g->batch == 1) return;
    g->a_batch = d ? a->strides[0] : 0;
    g->b_batch = d ? b->strides[0] : 0;
    g->out_batch = g->m * g->n;
}

/* The input of addmm: read as a bias where it is a row added once, as the beta operand else, not at all if beta is 0. */
static void set_input(ep_gemm *g, const ep_tensor *input, double beta, double alpha) {
    g->alpha = alpha;
    if (beta == 0) return;
    int last = input->ndim - 1;
    int64_t col = input->ndim > 0 && input->sizes[last] > 1 ? input->strides[last] : 0;
    int64_t row = input->ndim > 1 && input->sizes[0] > 1 ? input->strides[0] : 0;
    if (beta == 1 && alpha == 1 && row == 0) {
        g->bias = input->data;
        g->bias_stride = col;
        return;
    }
    g->beta = beta;
    g->c = input->data;
    g->c_row = row;
    g->c_col = col;
}

void ep_dispatch_product_form(const ep_tensor *a, const ep_tensor *b, const ep_tensor *out, const ep_tensor *input,
                              double beta, double alpha, ep_gemm *g) {
    set_product(g, a, b, out);
    if (input) set_input(g, input, beta, alpha);
}

static ep_status product_run(ep_context *ctx, ep_op op, const ep_attr *attr, int count, const ep_tensor *const *in,
                             ep_tensor **out) {
    ep_shape s;
    ep_tensor *t;
    ep_gemm g;
    EP_TRY(ep_dispatch_shape(ctx, op, attr, count, in, &s));
    EP_TRY(ep_dispatch_result(ctx, s.dtype, s.ndim, s.sizes, &t));
    if (t->numel == 0) return finish(t, EP_OK, out);
    ep_dispatch_product_form(in[count - 2], in[count - 1], t, op == EP_OP_ADDMM ? in[0] : NULL,
                             op == EP_OP_ADDMM ? attr->beta : 0, op == EP_OP_ADDMM ? attr->alpha : 1, &g);
    g.rounding = ctx->rounding;
    return finish(t, ctx->ops.gemm(&ctx->backend, &g, &ctx->err), out);
}

static ep_status product(ep_context *ctx, ep_op op, const ep_attr *attr, int count, const ep_tensor *const *in,
                         ep_tensor **out) {
    if (!ctx) return EP_ERROR_INVALID_ARGUMENT;
    EP_TRY(ep_dispatch_check(ctx, op, count, in, out));
    if (ctx->recorder) return ctx->recorder->record(ctx->recorder, ctx, op, attr, count, in, out);
    bool outer;
    EP_TRY(ep_context_enter(ctx, &outer));
    const ep_probe *p = ep_span_begin(op, count, in);
    ep_status status = product_run(ctx, op, attr, count, in, out);
    ep_span_end(p);
    ep_context_leave(ctx, outer);
    return status;
}

ep_status ep_mm(ep_context *ctx, const ep_tensor *a, const ep_tensor *b, ep_tensor **out) {
    const ep_tensor *in[2] = {a, b};
    return product(ctx, EP_OP_MM, NULL, 2, in, out);
}

ep_status ep_bmm(ep_context *ctx, const ep_tensor *a, const ep_tensor *b, ep_tensor **out) {
    const ep_tensor *in[2] = {a, b};
    return product(ctx, EP_OP_BMM, NULL, 2, in, out);
}

ep_status ep_addmm(ep_context *ctx, const ep_tensor *input, const ep_tensor *a, const ep_tensor *b, double beta,
                   double alpha, ep_tensor **out) {
    const ep_tensor *in[3] = {input, a, b};
    return product(ctx, EP_OP_ADDMM, &(ep_attr){.beta = beta, .alpha = alpha}, 3, in, out);
}
