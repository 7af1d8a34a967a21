/* Strides: contiguity, reach, reshaping without a copy, collapsing and walking. Everything is 64-bit. */
#include "tensor.h"

#include <string.h>

void ep_stride_contiguous(int ndim, const int64_t *sizes, int64_t *strides) {
    int64_t step = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        strides[i] = step;
        if (sizes[i] > 1) step *= sizes[i];
    }
}

bool ep_stride_is_contiguous(int ndim, const int64_t *sizes, const int64_t *strides) {
    int64_t step = 1;
    bool dense = true;
    for (int i = ndim - 1; i >= 0; i--) {
        if (sizes[i] == 0) return true;
        if (sizes[i] == 1) continue;
        if (strides[i] != step) dense = false;
        step *= sizes[i];
    }
    return dense;
}

ep_status ep_stride_max_offset(int ndim, const int64_t *sizes, const int64_t *strides, ep_error *err, int64_t *out) {
    int64_t reach = 0;
    for (int i = 0; i < ndim; i++) {
        if (sizes[i] == 0) {
            *out = 0;
            return EP_OK;
        }
    }
    for (int i = 0; i < ndim; i++) {
        int64_t part;
        if (sizes[i] == 1) continue;
        if (strides[i] < 0)
            return ep_fail(err, EP_ERROR_STRIDE, "stride %lld of dim %d is negative", (long long)strides[i], i);
        if (__builtin_mul_overflow(sizes[i] - 1, strides[i], &part) || __builtin_add_overflow(reach, part, &reach))
            return ep_fail(err, EP_ERROR_OVERFLOW,
                           "size %lld with stride %lld in dim %d reaches past 2^63 - 1 elements", (long long)sizes[i],
                           (long long)strides[i], i);
    }
    *out = reach;
    return EP_OK;
}

/* Goes from the innermost dim outward: a block of input dims that lie one after the other in memory may be cut into
 * output dims at will, and no output dim may straddle two blocks. */
ep_status ep_stride_reshape(int ndim, const int64_t *sizes, const int64_t *strides, int ndim_out,
                            const int64_t *sizes_out, ep_error *err, int64_t *strides_out) {
    int64_t numel, numel_out;
    EP_TRY(ep_shape_numel(ndim, sizes, err, &numel));
    EP_TRY(ep_shape_numel(ndim_out, sizes_out, err, &numel_out));
    char from[128], to[128];
    if (numel != numel_out)
        return ep_fail(err, EP_ERROR_SHAPE, "%s has %lld elements, %s has %lld",
                       ep_shape_text(ndim, sizes, from, sizeof from), (long long)numel,
                       ep_shape_text(ndim_out, sizes_out, to, sizeof to), (long long)numel_out);
    if (numel <= 1 || ep_stride_is_contiguous(ndim, sizes, strides)) {
        ep_stride_contiguous(ndim_out, sizes_out, strides_out);
        return EP_OK;
    }
    int64_t dims[EP_MAX_DIMS], steps[1][EP_MAX_DIMS];
    memcpy(dims, sizes, sizeof(int64_t) * (size_t)ndim);
    memcpy(steps[0], strides, sizeof(int64_t) * (size_t)ndim);
    int blocks = ep_stride_collapse(ndim, dims, 1, steps), block = blocks - 1;
    int64_t done = 1; /* elements of the current block that output dims cover already */
    for (int i = ndim_out - 1; i >= 0; i--) {
        if (sizes_out[i] == 1) {
            strides_out[i] = 1;
            continue;
        }
        if (done == dims[block]) {
            block--;
            done = 1;
        }
        if (dims[block] % (done * sizes_out[i]) != 0)
            return ep_fail(err, EP_ERROR_STRIDE,
                           "%s to %s needs a copy: dim %d of size %lld would join memory that is %lld elements apart",
                           ep_shape_text(ndim, sizes, from, sizeof from),
                           ep_shape_text(ndim_out, sizes_out, to, sizeof to), i, (long long)sizes_out[i],
                           (long long)(block > 0 ? steps[0][block - 1] : steps[0][block]));
        strides_out[i] = steps[0][block] * done;
        done *= sizes_out[i];
    }
    return EP_OK;
}

int ep_stride_collapse(int ndim, int64_t *sizes, int count, int64_t strides[][EP_MAX_DIMS]) {
    int kept = 0;
    for (int i = 0; i < ndim; i++) {
        if (sizes[i] == 1) continue;
        bool merge = kept > 0;
        for (int k = 0; merge && k < count; k++) merge = strides[k][kept - 1] == strides[k][i] * sizes[i];
        if (merge) {
            sizes[kept - 1] *= sizes[i];
            for (int k = 0; k < count; k++) strides[k][kept - 1] = strides[k][i];
        } else {
            sizes[kept] = sizes[i];
            for (int k = 0; k < count; k++) strides[k][kept] = strides[k][i];
            kept++;
        }
    }
    return kept;
}

bool ep_walk_begin(ep_walk *w, int ndim, const int64_t *sizes, int count, const int64_t *const *strides) {
    for (int i = 0; i < ndim; i++) {
        if (sizes[i] == 0) return false;
        w->sizes[i] = sizes[i];
        w->index[i] = 0;
    }
    w->count = count;
    for (int k = 0; k < count; k++) {
        w->offset[k] = 0;
        for (int i = 0; i < ndim; i++) w->strides[k][i] = strides[k][i];
    }
    int n = ep_stride_collapse(ndim, w->sizes, count, w->strides);
    w->ndim = n > 0 ? n - 1 : 0;
    w->run = n > 0 ? w->sizes[n - 1] : 1;
    for (int k = 0; k < count; k++) w->step[k] = n > 0 ? w->strides[k][n - 1] : 0;
    return true;
}

bool ep_walk_next(ep_walk *w) {
    for (int i = w->ndim - 1; i >= 0; i--) {
        if (++w->index[i] < w->sizes[i]) {
            for (int k = 0; k < w->count; k++) w->offset[k] += w->strides[k][i];
            return true;
        }
        w->index[i] = 0;
        for (int k = 0; k < w->count; k++) w->offset[k] -= (w->sizes[i] - 1) * w->strides[k][i];
    }
    return false;
}
