/* Views: new sizes, strides and offset over the same bytes. */
#include "tensor.h"

#include <string.h>

/* As Python slices: ends count from the back when negative and are clamped. */
ep_status ep_view_slice(int ndim, int64_t *sizes, int64_t *strides, int dim, int64_t start, int64_t stop, int64_t step,
                        ep_error *err, int64_t *offset) {
    int d;
    EP_TRY(ep_shape_dim(ndim, dim, err, &d));
    if (step < 1)
        return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "slice step %lld; it must be 1 or more", (long long)step);
    int64_t n = sizes[d];
    if (start < 0) start = start + n < 0 ? 0 : start + n;
    if (stop < 0) stop = stop + n < 0 ? 0 : stop + n;
    if (start > n) start = n;
    if (stop > n) stop = n;
    int64_t length = stop > start ? (stop - start - 1) / step + 1 : 0;
    *offset = length > 0 && start > 0 ? start * strides[d] : 0;
    sizes[d] = length;
    /* A step larger than the dim leaves one element, whose stride is never read. */
    if (length > 1) strides[d] *= step;
    return EP_OK;
}

ep_status ep_view_chunk(int ndim, const int64_t *sizes, int dim, int64_t chunks, int64_t index, ep_error *err,
                        int64_t *start, int64_t *stop) {
    int d;
    EP_TRY(ep_shape_dim(ndim, dim, err, &d));
    if (chunks < 1) return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "%lld chunks; at least 1", (long long)chunks);
    int64_t n = sizes[d], size = n / chunks + (n % chunks != 0);
    int64_t count = n == 0 ? chunks : (n - 1) / size + 1;
    if (index < 0 || index >= count)
        return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "chunk %lld of %lld (%lld elements in %lld chunks)",
                       (long long)index, (long long)count, (long long)n, (long long)chunks);
    *start = index * size;
    *stop = n - *start < size ? n : *start + size;
    return EP_OK;
}

ep_status ep_view_expand(int ndim, const int64_t *sizes, const int64_t *strides, int ndim_out, const int64_t *sizes_out,
                         ep_error *err, int64_t *out_sizes, int64_t *out_strides) {
    if (ndim_out < ndim || ndim_out > EP_MAX_DIMS)
        return ep_fail(err, EP_ERROR_SHAPE, "%d dims expanded to %d; allowed are %d to %d", ndim, ndim_out, ndim,
                       EP_MAX_DIMS);
    for (int i = 0; i < ndim_out; i++) {
        int from = i - (ndim_out - ndim);
        int64_t old = from < 0 ? 1 : sizes[from], wanted = sizes_out[i];
        if (wanted == -1 && from >= 0) wanted = old;
        if (wanted < 0 || (old != 1 && old != wanted))
            return ep_fail(err, EP_ERROR_SHAPE, "dim %d of size %lld cannot be expanded to %lld", i, (long long)old,
                           (long long)wanted);
        out_sizes[i] = wanted;
        out_strides[i] = old == wanted && from >= 0 ? strides[from] : 0;
    }
    return EP_OK;
}

ep_status ep_view_infer(int64_t numel, int ndim, const int64_t *sizes, ep_error *err, int64_t *out) {
    if (ndim < 0 || ndim > EP_MAX_DIMS)
        return ep_fail(err, EP_ERROR_SHAPE, "%d dims; a tensor has 0 to %d", ndim, EP_MAX_DIMS);
    int hole = -1;
    int64_t known = 1;
    for (int i = 0; i < ndim; i++) {
        out[i] = sizes[i];
        if (sizes[i] == -1) {
            if (hole >= 0) return ep_fail(err, EP_ERROR_SHAPE, "sizes of dims %d and %d are both -1", hole, i);
            hole = i;
            out[i] = 1;
        }
    }
    EP_TRY(ep_shape_numel(ndim, out, err, &known));
    if (hole < 0) return EP_OK;
    char text[128];
    if (known == 0 || numel % known != 0)
        return ep_fail(err, EP_ERROR_SHAPE, "size -1 in %s cannot be worked out for %lld elements",
                       ep_shape_text(ndim, sizes, text, sizeof text), (long long)numel);
    out[hole] = numel / known;
    return EP_OK;
}

static ep_status check(const ep_tensor *t, const void *out, ep_error *err) {
    if (!t || !out) return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "%s is NULL", t ? "out" : "t");
    return EP_OK;
}

static ep_status finish(const ep_tensor *t, int ndim, const int64_t *sizes, const int64_t *strides, int64_t offset,
                        ep_error *err, ep_tensor **out) {
    ep_tensor *v;
    EP_TRY(ep_tensor_begin_view(t, offset, err, &v));
    v->ndim = ndim;
    memcpy(v->sizes, sizes, sizeof(int64_t) * (size_t)ndim);
    memcpy(v->strides, strides, sizeof(int64_t) * (size_t)ndim);
    ep_tensor_finish_view(v);
    *out = v;
    return EP_OK;
}

ep_status ep_tensor_slice(const ep_tensor *t, int dim, int64_t start, int64_t stop, int64_t step, ep_error *err,
                          ep_tensor **out) {
    EP_TRY(check(t, out, err));
    int64_t sizes[EP_MAX_DIMS], strides[EP_MAX_DIMS], offset;
    memcpy(sizes, t->sizes, sizeof sizes);
    memcpy(strides, t->strides, sizeof strides);
    EP_TRY(ep_view_slice(t->ndim, sizes, strides, dim, start, stop, step, err, &offset));
    return finish(t, t->ndim, sizes, strides, offset, err, out);
}

ep_status ep_tensor_transpose(const ep_tensor *t, int dim0, int dim1, ep_error *err, ep_tensor **out) {
    EP_TRY(check(t, out, err));
    int a, b;
    EP_TRY(ep_shape_dim(t->ndim, dim0, err, &a));
    EP_TRY(ep_shape_dim(t->ndim, dim1, err, &b));
    ep_tensor *v;
    EP_TRY(ep_tensor_begin_view(t, 0, err, &v));
    v->sizes[a] = t->sizes[b];
    v->sizes[b] = t->sizes[a];
    v->strides[a] = t->strides[b];
    v->strides[b] = t->strides[a];
    ep_tensor_finish_view(v);
    *out = v;
    return EP_OK;
}

ep_status ep_tensor_chunk(const ep_tensor *t, int dim, int64_t chunks, int64_t index, ep_error *err, ep_tensor **out) {
    EP_TRY(check(t, out, err));
    int64_t start, stop;
    EP_TRY(ep_view_chunk(t->ndim, t->sizes, dim, chunks, index, err, &start, &stop));
    return ep_tensor_slice(t, dim, start, stop, 1, err, out);
}

ep_status ep_tensor_expand(const ep_tensor *t, int ndim, const int64_t *sizes, ep_error *err, ep_tensor **out) {
    EP_TRY(check(t, out, err));
    int64_t wanted[EP_MAX_DIMS], strides[EP_MAX_DIMS], numel;
    EP_TRY(ep_view_expand(t->ndim, t->sizes, t->strides, ndim, sizes, err, wanted, strides));
    EP_TRY(ep_shape_numel(ndim, wanted, err, &numel));
    return finish(t, ndim, wanted, strides, 0, err, out);
}

ep_status ep_tensor_reshape(const ep_tensor *t, int ndim, const int64_t *sizes, ep_error *err, ep_tensor **out) {
    EP_TRY(check(t, out, err));
    int64_t wanted[EP_MAX_DIMS], strides[EP_MAX_DIMS];
    EP_TRY(ep_view_infer(t->numel, ndim, sizes, err, wanted));
    EP_TRY(ep_stride_reshape(t->ndim, t->sizes, t->strides, ndim, wanted, err, strides));
    return finish(t, ndim, wanted, strides, 0, err, out);
}
