/* What a tensor is, for those who make ops: shape, strides and an offset over a counted storage. */
#ifndef EP_MODEL_TENSOR_H
#define EP_MODEL_TENSOR_H

#include <epilogue/tensor.h>
#include <stdatomic.h>

#include "base/status.h"

typedef struct ep_storage {
    atomic_int refs;
    ep_device device;
    void *data;
    size_t bytes;
    void (*release)(struct ep_storage *s); /* frees data and s itself; called once, by the last reference */
    void *owner;                           /* of the releaser: an allocator, a deleter's user, ... */
    void (*deleter)(void *user);           /* of ep_tensor_from_memory */
} ep_storage;

struct ep_tensor {
    ep_storage *storage; /* NULL while captured */
    char *data;          /* storage->data + offset, cached */
    ep_dtype dtype;
    int ndim;
    int64_t sizes[EP_MAX_DIMS], strides[EP_MAX_DIMS]; /* elements */
    int64_t numel;
    ep_device device;
    int32_t value;   /* graph value while captured, else -1 */
    bool contiguous; /* row-major without gaps; kept by ep_tensor_finish_view */
};

static inline void ep_storage_retain(ep_storage *s) {
    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
}
void ep_storage_release(ep_storage *s); /* NULL is fine */
/* A storage of `bytes` from the default allocator, 64-byte aligned. */
ep_status ep_storage_create(size_t bytes, ep_error *err, ep_storage **out);

/* Told of every look at a size or stride of a captured tensor (dim -1: at all of them), on the thread that captures;
 * NULL when nothing is captured. */
typedef struct ep_size_watch {
    void (*looked)(struct ep_size_watch *self, const ep_tensor *t, int dim);
} ep_size_watch;
void ep_size_watch_set(ep_size_watch *w);

/* A handle without storage, shape filled, contiguous strides, numel computed; fails on overflow. */
ep_status ep_tensor_shell(ep_dtype dtype, int ndim, const int64_t *sizes, ep_error *err, ep_tensor **out);
/* A view of t's storage: handle with t's dtype, offset moved by `elements`. The caller fills sizes and strides, then
 * calls ep_tensor_finish_view, which computes numel. Fails with EP_ERROR_CAPTURE on a captured tensor, whose views are
 * made by the recorded calls of ops.h. */
ep_status ep_tensor_begin_view(const ep_tensor *t, int64_t elements, ep_error *err, ep_tensor **out);
void ep_tensor_finish_view(ep_tensor *t);
/* A bare handle from the calling thread's free list (contents unset), or NULL; ep_tensor_destroy takes it back. */
ep_tensor *ep_tensor_handle(void);
/* A contiguous handle over `storage`, whose reference it takes; the fast way to an op's result. */
ep_status ep_tensor_over(ep_storage *storage, ep_dtype dtype, int ndim, const int64_t *sizes, ep_error *err,
                         ep_tensor **out);
/* EP_ERROR_DEVICE or EP_ERROR_CAPTURE where the host cannot read t. */
ep_status ep_tensor_check_host(const ep_tensor *t, ep_error *err);

/* view.c: the strides of a view without making it; `offset` in elements. Used by ops, capture and plans alike. */
ep_status ep_view_slice(int ndim, int64_t *sizes, int64_t *strides, int dim, int64_t start, int64_t stop, int64_t step,
                        ep_error *err, int64_t *offset);
ep_status ep_view_chunk(int ndim, const int64_t *sizes, int dim, int64_t chunks, int64_t index, ep_error *err,
                        int64_t *start, int64_t *stop);
ep_status ep_view_expand(int ndim, const int64_t *sizes, const int64_t *strides, int ndim_out, const int64_t *sizes_out,
                         ep_error *err, int64_t *out_sizes, int64_t *out_strides);
/* Replaces a -1 in `sizes` and checks the element count. */
ep_status ep_view_infer(int64_t numel, int ndim, const int64_t *sizes, ep_error *err, int64_t *out);
/* A dim counted from the end made one counted from the start. */
ep_status ep_shape_dim(int ndim, int dim, ep_error *err, int *out);

/* shape.c */
ep_status ep_shape_numel(int ndim, const int64_t *sizes, ep_error *err, int64_t *out);
/* NumPy broadcasting of two shapes. */
ep_status ep_shape_broadcast(int ndim_a, const int64_t *a, int ndim_b, const int64_t *b, ep_error *err, int *ndim,
                             int64_t *out);
/* "[2, 3, 8]" */
const char *ep_shape_text(int ndim, const int64_t *sizes, char *buffer, size_t size);

/* stride.c: all 64-bit. */
void ep_stride_contiguous(int ndim, const int64_t *sizes, int64_t *strides);
bool ep_stride_is_contiguous(int ndim, const int64_t *sizes, const int64_t *strides);
/* Largest element offset, sum((n - 1) * stride); 0 for empty tensors; EP_ERROR_OVERFLOW past INT64_MAX. */
ep_status ep_stride_max_offset(int ndim, const int64_t *sizes, const int64_t *strides, ep_error *err, int64_t *out);
/* Strides for `sizes_out` over the same elements, if no copy is needed; else EP_ERROR_STRIDE naming the dim. */
ep_status ep_stride_reshape(int ndim, const int64_t *sizes, const int64_t *strides, int ndim_out,
                            const int64_t *sizes_out, ep_error *err, int64_t *strides_out);
/* Merges dims jointly over `count` operands (strides[k] of operand k, 0 where it broadcasts): dims of size 1 dropped,
 * neighbours merged where every operand allows; returns the new ndim (0 for one element), dims outermost first. */
int ep_stride_collapse(int ndim, int64_t *sizes, int count, int64_t strides[][EP_MAX_DIMS]);

/* Walks a row-major index space over up to EP_WALK_MAX operands, a run of the innermost (collapsed) dim at a time:
 *     for (bool more = ep_walk_begin(&w, ndim, sizes, count, strides); more; more = ep_walk_next(&w))
 *         use w.offset[k] (elements), w.run, w.step[k]
 * An empty space gives no run. */
enum { EP_WALK_MAX = 6 };
typedef struct ep_walk {
    int ndim, count; /* of the outer dims */
    int64_t run, sizes[EP_MAX_DIMS], index[EP_MAX_DIMS];
    int64_t step[EP_WALK_MAX], offset[EP_WALK_MAX], strides[EP_WALK_MAX][EP_MAX_DIMS];
} ep_walk;
bool ep_walk_begin(ep_walk *w, int ndim, const int64_t *sizes, int count, const int64_t *const *strides);
bool ep_walk_next(ep_walk *w);

/* dtype.c: runs of elements, `stride` in elements, widened to double and narrowed with one rounding. */
void ep_run_load(ep_dtype dtype, const void *p, int64_t stride, int64_t n, double *out);
void ep_run_store(ep_dtype dtype, void *p, int64_t stride, int64_t n, const double *in);

/* dtype.c: scalar conversions, round to nearest even. */
float ep_bf16_to_f32(uint16_t v);
uint16_t ep_f32_to_bf16(float v); /* NaN stays NaN */
float ep_f16_to_f32(uint16_t v);
uint16_t ep_f32_to_f16(float v);
uint16_t ep_f64_to_bf16(double v); /* one rounding */
uint16_t ep_f64_to_f16(double v);
double ep_element_load(ep_dtype dtype, const void *p);
void ep_element_store(ep_dtype dtype, void *p, double v); /* one rounding */
bool ep_dtype_is_float(ep_dtype dtype);

#endif
