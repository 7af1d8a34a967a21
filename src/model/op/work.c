/* Work of an op from its shapes: flops, and the fewest bytes: each distinct input element once, each output once. */
#include "rules.h"

#include "model/tensor/tensor.h"

#define WORK(name)                                                                                                     \
    void ep_work_##name(const ep_attr *attr, int count, const ep_shape *in, const ep_shape *out, ep_work *work)
#define UNUSED(x) (void)(x)

static int64_t numel(const ep_shape *s) {
    int64_t n = 1;
    for (int i = 0; i < s->ndim; i++) n *= s->sizes[i];
    return n;
}

static int64_t bytes(const ep_shape *s) {
    return numel(s) * (int64_t)ep_dtype_size(s->dtype);
}

/* All inputs once, the output once; nothing is read for an empty result of a pointwise op. */
static void traffic(int count, const ep_shape *in, const ep_shape *out, ep_work *work) {
    for (int i = 0; i < count; i++) work->bytes_read += bytes(&in[i]);
    work->bytes_written += bytes(out);
}

WORK(none) {
    UNUSED(attr);
    UNUSED(count);
    UNUSED(in);
    UNUSED(out);
    UNUSED(work);
}

/* One flop an element; ep_op_work multiplies by the row's figure. Inputs come unexpanded, so what broadcasts counts by
 * its real elements. */
WORK(pointwise) {
    UNUSED(attr);
    work->flops = numel(out);
    if (work->flops > 0) traffic(count, in, out, work);
}

WORK(move) {
    UNUSED(attr);
    traffic(count, in, out, work);
}

/* mm, bmm: a, b. linear: x, weight, bias. addmm: input, a, b, whose input is not read when beta is 0. K is told by what
 * the shapes leave. */
WORK(gemm) {
    bool addmm = count == 3 && in[2].ndim == 2;
    const ep_shape *a = addmm ? &in[1] : &in[0];
    int64_t k = a->ndim > 0 ? a->sizes[a->ndim - 1] : 1, n = numel(out);
    bool beta = addmm ? attr && attr->beta != 0 : count == 3;
    work->flops = 2 * n * k + (beta ? n : 0);
    if (n == 0) return;
    traffic(count, in, out, work);
    if (addmm && !beta) work->bytes_read -= bytes(&in[0]);
}

WORK(reduce) {
    UNUSED(attr);
    work->flops = numel(&in[0]);
    traffic(count, in, out, work);
}

/* Maximum, subtract, exp (10), sum, divide. */
WORK(softmax) {
    UNUSED(attr);
    work->flops = 14 * numel(out);
    traffic(count, in, out, work);
}

/* Mean, variance, scale, and one a weight or bias. */
WORK(norm) {
    UNUSED(attr);
    work->flops = (6 + count - 1) * numel(out);
    traffic(count, in, out, work);
}

static int64_t act_flops(const ep_attr *attr) {
    ep_op op = ep_act_op(attr ? attr->act : EP_ACT_NONE);
    return op < EP_OP_COUNT ? ep_op_get(op)->flops : 0;
}

WORK(gated) {
    work->flops = (act_flops(attr) + 1) * numel(out);
    traffic(count, in, out, work);
}

/* The blocks as the best fused form would run: every weight and x once, y once, the intermediates never. */
WORK(gated_mlp) {
    int64_t dim = in[1].sizes[1], hidden = in[1].sizes[0], o = in[3].sizes[0];
    int64_t rows = o > 0 ? numel(out) / o : 0;
    work->flops = rows * (2 * hidden * (2 * dim + o) + (act_flops(attr) + 1) * hidden);
    if (count > 4) work->flops += rows * hidden;
    if (count > 5) work->flops += rows * hidden;
    if (count > 6) work->flops += rows * o;
    if (numel(out) > 0) traffic(count, in, out, work);
}

WORK(mlp) {
    int64_t dim = in[1].sizes[1], hidden = in[1].sizes[0], o = in[2].sizes[0];
    int64_t rows = o > 0 ? numel(out) / o : 0;
    work->flops = rows * (2 * hidden * (dim + o) + act_flops(attr) * hidden);
    if (count > 3) work->flops += rows * hidden;
    if (count > 4) work->flops += rows * o;
    if (numel(out) > 0) traffic(count, in, out, work);
}
