/* Result shapes, one function a rule of pointwise.def and ops.def. */
#include "rules.h"

#include <string.h>

#include "model/tensor/tensor.h"

#define RULE(name)                                                                                                     \
    ep_status ep_rule_##name(const ep_attr *attr, int count, const ep_shape *in, ep_error *err, ep_shape *out)
/* Rules that need fewer arguments name them here. */
#define UNUSED(x) (void)(x)

typedef struct shape_pair {
    char a[96], b[96];
} shape_pair;

static const char *text(const ep_shape *s, char *buffer) {
    return ep_shape_text(s->ndim, s->sizes, buffer, 96);
}

/* The last size, or -1 of a scalar. */
static int64_t last(const ep_shape *s) {
    return s->ndim > 0 ? s->sizes[s->ndim - 1] : -1;
}

RULE(pointwise) {
    UNUSED(attr);
    ep_shape r = in[0];
    for (int i = 1; i < count; i++)
        EP_TRY(ep_shape_broadcast(r.ndim, r.sizes, in[i].ndim, in[i].sizes, err, &r.ndim, r.sizes));
    r.dtype = in[count - 1].dtype; /* of where, the condition comes first and is data */
    *out = r;
    return EP_OK;
}

RULE(same) {
    UNUSED(attr);
    UNUSED(count);
    UNUSED(err);
    *out = in[0];
    return EP_OK;
}

RULE(cast) {
    UNUSED(count);
    if ((unsigned)attr->dtype >= EP_DTYPE_COUNT)
        return ep_fail(err, EP_ERROR_DTYPE, "%d is not a dtype", (int)attr->dtype);
    *out = in[0];
    out->dtype = attr->dtype;
    return EP_OK;
}

RULE(transpose) {
    UNUSED(count);
    int a, b;
    EP_TRY(ep_shape_dim(in[0].ndim, attr->dim, err, &a));
    EP_TRY(ep_shape_dim(in[0].ndim, attr->dim1, err, &b));
    *out = in[0];
    out->sizes[a] = in[0].sizes[b];
    out->sizes[b] = in[0].sizes[a];
    return EP_OK;
}

RULE(reshape) {
    UNUSED(count);
    int64_t numel, numel_out, sizes[EP_MAX_DIMS];
    EP_TRY(ep_shape_numel(in[0].ndim, in[0].sizes, err, &numel));
    EP_TRY(ep_view_infer(numel, attr->ndim, attr->sizes, err, sizes));
    EP_TRY(ep_shape_numel(attr->ndim, sizes, err, &numel_out));
    char a[96], b[96];
    if (numel != numel_out)
        return ep_fail(err, EP_ERROR_SHAPE, "%s has %lld elements, %s has %lld", text(&in[0], a), (long long)numel,
                       ep_shape_text(attr->ndim, sizes, b, sizeof b), (long long)numel_out);
    out->dtype = in[0].dtype;
    out->ndim = attr->ndim;
    memcpy(out->sizes, sizes, sizeof(int64_t) * (size_t)attr->ndim);
    return EP_OK;
}

RULE(expand) {
    UNUSED(count);
    int64_t strides[EP_MAX_DIMS], ignored[EP_MAX_DIMS], sizes[EP_MAX_DIMS], numel;
    ep_stride_contiguous(in[0].ndim, in[0].sizes, strides);
    EP_TRY(ep_view_expand(in[0].ndim, in[0].sizes, strides, attr->ndim, attr->sizes, err, sizes, ignored));
    EP_TRY(ep_shape_numel(attr->ndim, sizes, err, &numel));
    out->dtype = in[0].dtype;
    out->ndim = attr->ndim;
    memcpy(out->sizes, sizes, sizeof(int64_t) * (size_t)attr->ndim);
    return EP_OK;
}

RULE(slice) {
    UNUSED(count);
    int64_t strides[EP_MAX_DIMS], offset;
    ep_shape r = in[0];
    ep_stride_contiguous(r.ndim, r.sizes, strides);
    EP_TRY(ep_view_slice(r.ndim, r.sizes, strides, attr->dim, attr->start, attr->stop, attr->step, err, &offset));
    *out = r;
    return EP_OK;
}

RULE(chunk) {
    UNUSED(count);
    int64_t start, stop;
    int d;
    EP_TRY(ep_view_chunk(in[0].ndim, in[0].sizes, attr->dim, attr->stop, attr->start, err, &start, &stop));
    EP_TRY(ep_shape_dim(in[0].ndim, attr->dim, err, &d));
    *out = in[0];
    out->sizes[d] = stop - start;
    return EP_OK;
}

RULE(mm) {
    UNUSED(attr);
    UNUSED(count);
    char a[96], b[96];
    if (in[0].ndim != 2 || in[1].ndim != 2 || in[0].sizes[1] != in[1].sizes[0])
        return ep_fail(err, EP_ERROR_SHAPE, "mm takes [M, K] x [K, N], not %s x %s", text(&in[0], a), text(&in[1], b));
    *out = (ep_shape){in[0].dtype, 2, {in[0].sizes[0], in[1].sizes[1]}};
    return EP_OK;
}

RULE(addmm) {
    UNUSED(count);
    ep_shape r;
    EP_TRY(ep_rule_mm(attr, 2, in + 1, err, &r));
    int64_t sizes[EP_MAX_DIMS], strides[EP_MAX_DIMS] = {0};
    char a[96], b[96];
    if (ep_view_expand(in[0].ndim, in[0].sizes, strides, 2, r.sizes, NULL, sizes, strides) != EP_OK)
        return ep_fail(err, EP_ERROR_SHAPE, "addmm's input %s does not broadcast to %s", text(&in[0], a), text(&r, b));
    *out = r;
    return EP_OK;
}

RULE(bmm) {
    UNUSED(attr);
    UNUSED(count);
    char a[96], b[96];
    const ep_shape *x = &in[0], *y = &in[1];
    if (x->ndim != 3 || y->ndim != 3 || x->sizes[0] != y->sizes[0] || x->sizes[2] != y->sizes[1])
        return ep_fail(err, EP_ERROR_SHAPE, "bmm takes [B, M, K] x [B, K, N], not %s x %s", text(x, a), text(y, b));
    *out = (ep_shape){x->dtype, 3, {x->sizes[0], x->sizes[1], y->sizes[2]}};
    return EP_OK;
}

RULE(linear) {
    UNUSED(attr);
    char a[96], b[96];
    if (in[0].ndim < 1) return ep_fail(err, EP_ERROR_SHAPE, "linear takes x of 1 dim or more, not a scalar");
    if (in[1].ndim != 2 || last(&in[0]) != in[1].sizes[1])
        return ep_fail(err, EP_ERROR_SHAPE, "linear takes x [..., in] and weight [out, in], not %s and %s",
                       text(&in[0], a), text(&in[1], b));
    if (count > 2 && (in[2].ndim != 1 || in[2].sizes[0] != in[1].sizes[0]))
        return ep_fail(err, EP_ERROR_SHAPE, "linear's bias is [%lld] for weight %s, not %s", (long long)in[1].sizes[0],
                       text(&in[1], a), text(&in[2], b));
    int64_t numel;
    ep_shape r = in[0];
    r.sizes[r.ndim - 1] = in[1].sizes[0];
    EP_TRY(ep_shape_numel(r.ndim, r.sizes, err, &numel));
    *out = r;
    return EP_OK;
}

RULE(reduce) {
    UNUSED(count);
    if (attr->dims < 1 || attr->dims > in[0].ndim)
        return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "a reduction over the last %d dims of a tensor of %d; 1 to %d",
                       attr->dims, in[0].ndim, in[0].ndim);
    ep_shape r = in[0];
    if (!attr->keepdim) r.ndim -= attr->dims;
    for (int i = in[0].ndim - attr->dims; i < r.ndim; i++) r.sizes[i] = 1;
    *out = r;
    return EP_OK;
}

RULE(norm) {
    UNUSED(attr);
    char a[96], b[96];
    if (in[0].ndim < 1) return ep_fail(err, EP_ERROR_SHAPE, "this op works over the last dim; a scalar has none");
    for (int i = 1; i < count; i++) {
        if (in[i].ndim != 1 || in[i].sizes[0] != last(&in[0]))
            return ep_fail(err, EP_ERROR_SHAPE, "the weight and bias for x %s are [%lld], not %s", text(&in[0], a),
                           (long long)last(&in[0]), text(&in[i], b));
    }
    *out = in[0];
    return EP_OK;
}

RULE(gated) {
    UNUSED(attr);
    char a[96], b[96];
    for (int i = 1; i < count; i++) {
        if (in[i].ndim != in[0].ndim || memcmp(in[i].sizes, in[0].sizes, sizeof(int64_t) * (size_t)in[0].ndim) != 0)
            return ep_fail(err, EP_ERROR_SHAPE, "a gated op takes operands of one shape, not %s and %s",
                           text(&in[0], a), text(&in[i], b));
    }
    *out = in[0];
    return EP_OK;
}

RULE(cat) {
    int d;
    char a[96], b[96];
    EP_TRY(ep_shape_dim(in[0].ndim, attr->dim, err, &d));
    ep_shape r = in[0];
    for (int i = 1; i < count; i++) {
        bool fits = in[i].ndim == r.ndim;
        for (int j = 0; fits && j < r.ndim; j++) fits = j == d || in[i].sizes[j] == r.sizes[j];
        if (!fits)
            return ep_fail(err, EP_ERROR_SHAPE, "cat over dim %d takes shapes equal elsewhere, not %s and %s", d,
                           text(&in[0], a), text(&in[i], b));
        if (__builtin_add_overflow(r.sizes[d], in[i].sizes[d], &r.sizes[d]))
            return ep_fail(err, EP_ERROR_OVERFLOW, "the sizes of dim %d add up to more than 2^63 - 1", d);
    }
    int64_t numel;
    EP_TRY(ep_shape_numel(r.ndim, r.sizes, err, &numel));
    *out = r;
    return EP_OK;
}

/* Operands: x, gate, up, down, then biases in the same order. */
RULE(gated_mlp) {
    ep_shape g, u;
    const ep_shape gate[3] = {in[0], in[1], in[count > 4 ? 4 : 0]}, up[3] = {in[0], in[2], in[count > 5 ? 5 : 0]};
    EP_TRY(ep_rule_linear(attr, count > 4 ? 3 : 2, gate, err, &g));
    EP_TRY(ep_rule_linear(attr, count > 5 ? 3 : 2, up, err, &u));
    const ep_shape both[2] = {g, u}, down[3] = {g, in[3], in[count > 6 ? 6 : 0]};
    EP_TRY(ep_rule_gated(attr, 2, both, err, &g));
    return ep_rule_linear(attr, count > 6 ? 3 : 2, down, err, out);
}

/* Operands: x, up, down, then biases in the same order. */
RULE(mlp) {
    ep_shape h;
    const ep_shape up[3] = {in[0], in[1], in[count > 3 ? 3 : 0]};
    EP_TRY(ep_rule_linear(attr, count > 3 ? 3 : 2, up, err, &h));
    const ep_shape down[3] = {h, in[2], in[count > 4 ? 4 : 0]};
    return ep_rule_linear(attr, count > 4 ? 3 : 2, down, err, out);
}
