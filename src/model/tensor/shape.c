/* Extents: element counts that cannot overflow, broadcasting, and their text. */
#include "tensor.h"

#include <stdio.h>
#include <string.h>

ep_status ep_shape_numel(int ndim, const int64_t *sizes, ep_error *err, int64_t *out) {
    if (ndim < 0 || ndim > EP_MAX_DIMS)
        return ep_fail(err, EP_ERROR_SHAPE, "%d dims; a tensor has 0 to %d", ndim, EP_MAX_DIMS);
    int64_t span = 1;
    bool empty = false;
    for (int i = 0; i < ndim; i++) {
        if (sizes[i] < 0)
            return ep_fail(err, EP_ERROR_SHAPE, "size %lld of dim %d is negative", (long long)sizes[i], i);
        if (sizes[i] == 0) {
            empty = true;
        } else if (__builtin_mul_overflow(span, sizes[i], &span)) {
            /* Checked for empty shapes too, since their strides are made of the other sizes. */
            char text[128];
            return ep_fail(err, EP_ERROR_OVERFLOW, "shape %s has more than 2^63 - 1 elements",
                           ep_shape_text(ndim, sizes, text, sizeof text));
        }
    }
    *out = empty ? 0 : span;
    return EP_OK;
}

ep_status ep_shape_broadcast(int ndim_a, const int64_t *a, int ndim_b, const int64_t *b, ep_error *err, int *ndim,
                             int64_t *out) {
    int n = ndim_a > ndim_b ? ndim_a : ndim_b;
    int64_t result[EP_MAX_DIMS];
    for (int i = 0; i < n; i++) {
        int ia = i - (n - ndim_a), ib = i - (n - ndim_b);
        int64_t sa = ia < 0 ? 1 : a[ia], sb = ib < 0 ? 1 : b[ib];
        if (sa != sb && sa != 1 && sb != 1) {
            char ta[128], tb[128];
            return ep_fail(err, EP_ERROR_SHAPE, "shapes %s and %s do not broadcast: %lld against %lld in dim %d",
                           ep_shape_text(ndim_a, a, ta, sizeof ta), ep_shape_text(ndim_b, b, tb, sizeof tb),
                           (long long)sa, (long long)sb, i - n);
        }
        result[i] = sa == 1 ? sb : sa;
    }
    memcpy(out, result, sizeof(int64_t) * (size_t)n);
    *ndim = n;
    return EP_OK;
}

ep_status ep_shape_dim(int ndim, int dim, ep_error *err, int *out) {
    int d = dim < 0 ? dim + ndim : dim;
    if (d < 0 || d >= ndim)
        return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "dim %d of a tensor of %d dims; allowed are %d to %d", dim, ndim,
                       -ndim, ndim - 1);
    *out = d;
    return EP_OK;
}

const char *ep_shape_text(int ndim, const int64_t *sizes, char *buffer, size_t size) {
    size_t at = (size_t)snprintf(buffer, size, "[");
    for (int i = 0; i < ndim && at < size; i++)
        at += (size_t)snprintf(buffer + at, size - at, i ? ", %lld" : "%lld", (long long)sizes[i]);
    if (at < size) snprintf(buffer + at, size - at, "]");
    return buffer;
}
