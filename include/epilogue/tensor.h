/* tensor.h: dtypes, devices, tensors and views.
 *
 * A tensor is a shape, strides and an offset into a counted storage. Views share the storage and move no byte.
 * Strides are in elements and may be 0 (expand); negative strides are refused. A dim of size 1 has no stride: whatever
 * is stored there is never read. Offsets are 64-bit and checked on sum((n_i - 1) * stride_i), not on the element count.
 *
 * Ownership: every ep_tensor** result is owned by the caller and ended by ep_tensor_destroy (NULL is fine); storage
 * lives until its last tensor ends. Threads: a tensor handle belongs to one thread at a time; distinct handles that
 * share a storage may be used and destroyed from different threads (the count is atomic). */
#ifndef EPILOGUE_TENSOR_H
#define EPILOGUE_TENSOR_H

#include <stdbool.h>

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define EP_MAX_DIMS 8

typedef enum ep_dtype {
    EP_DTYPE_F32,  /* IEEE 754 binary32 */
    EP_DTYPE_BF16, /* bfloat16: the upper half of binary32, round to nearest even */
    EP_DTYPE_F16,  /* IEEE 754 binary16 */
    EP_DTYPE_I32,
    EP_DTYPE_I64,
    EP_DTYPE_BOOL, /* one byte, 0 or 1 */
    EP_DTYPE_COUNT
} ep_dtype;

EP_API size_t ep_dtype_size(ep_dtype dtype);      /* bytes an element; 0 for an unknown value */
EP_API const char *ep_dtype_name(ep_dtype dtype); /* "f32", "bf16", ...; "?" for an unknown value */
EP_API ep_status ep_dtype_parse(const char *name, ep_dtype *out);

typedef enum ep_device_kind { EP_DEVICE_CPU, EP_DEVICE_CUDA } ep_device_kind;

typedef struct ep_device {
    ep_device_kind kind;
    int32_t index; /* 0 on the CPU */
} ep_device;

typedef struct ep_tensor ep_tensor;

/* A new contiguous CPU tensor. `ndim` 0 is a scalar. Sizes may be 0. Contents are not set by _create. */
EP_API ep_status ep_tensor_create(ep_dtype dtype, int ndim, const int64_t *sizes, ep_error *err, ep_tensor **out);
EP_API ep_status ep_tensor_zeros(ep_dtype dtype, int ndim, const int64_t *sizes, ep_error *err, ep_tensor **out);

/* A tensor over the caller's memory; `deleter(user)` runs when the last view ends (NULL: the caller keeps it).
 * `strides` NULL means contiguous. `bytes` is the size of the block behind `data`; the largest offset is checked
 * against it. `data` is aligned to an element's size. On failure `deleter` is not called. */
EP_API ep_status ep_tensor_from_memory(ep_device device, ep_dtype dtype, int ndim, const int64_t *sizes,
                                       const int64_t *strides, void *data, size_t bytes, void (*deleter)(void *user),
                                       void *user, ep_error *err, ep_tensor **out);

/* Another handle on the same storage with the same shape and strides. */
EP_API ep_status ep_tensor_alias(const ep_tensor *t, ep_error *err, ep_tensor **out);
EP_API void ep_tensor_destroy(ep_tensor *t);

EP_API ep_dtype ep_tensor_dtype(const ep_tensor *t);
EP_API ep_device ep_tensor_device(const ep_tensor *t);
EP_API int ep_tensor_ndim(const ep_tensor *t);
EP_API int64_t ep_tensor_size(const ep_tensor *t, int dim); /* negative dims count from the end; out of range: -1 */
EP_API int64_t ep_tensor_stride(const ep_tensor *t, int dim);
EP_API const int64_t *ep_tensor_sizes(const ep_tensor *t);
EP_API const int64_t *ep_tensor_strides(const ep_tensor *t);
EP_API int64_t ep_tensor_numel(const ep_tensor *t);
EP_API bool ep_tensor_is_contiguous(const ep_tensor *t);
/* The address of element 0 (offset included). NULL for an empty tensor or while its function is captured. */
EP_API void *ep_tensor_data(const ep_tensor *t);

/* Host copies of all elements in row-major order, whatever the strides. `count` must equal numel. Integer and bool
 * dtypes convert; floats round to nearest even into the dtype. */
EP_API ep_status ep_tensor_read_f64(const ep_tensor *t, double *out, size_t count, ep_error *err);
EP_API ep_status ep_tensor_write_f64(ep_tensor *t, const double *in, size_t count, ep_error *err);
EP_API ep_status ep_tensor_fill(ep_tensor *t, double value, ep_error *err);
/* Normal(0, scale) values (to within the sum of twelve uniforms: none is past 6 * scale) from a counter-based generator:
 * element i in row-major order depends on the seed and i alone, the same on any machine. */
EP_API ep_status ep_tensor_fill_random(ep_tensor *t, uint64_t seed, double scale, ep_error *err);

/* Views: no kernel, no byte. They fail with EP_ERROR_STRIDE where a copy would be needed. */
EP_API ep_status ep_tensor_slice(const ep_tensor *t, int dim, int64_t start, int64_t stop, int64_t step, ep_error *err,
                                 ep_tensor **out);
EP_API ep_status ep_tensor_transpose(const ep_tensor *t, int dim0, int dim1, ep_error *err, ep_tensor **out);
EP_API ep_status ep_tensor_chunk(const ep_tensor *t, int dim, int64_t chunks, int64_t index, ep_error *err,
                                 ep_tensor **out);
EP_API ep_status ep_tensor_expand(const ep_tensor *t, int ndim, const int64_t *sizes, ep_error *err, ep_tensor **out);
/* One size may be -1. */
EP_API ep_status ep_tensor_reshape(const ep_tensor *t, int ndim, const int64_t *sizes, ep_error *err, ep_tensor **out);

/* Largest |a - b|, largest |a - b| / max(|b|, floor), and the row-major index of the first; NaN beside NaN is equal,
 * NaN beside a number is infinitely far. Shapes must be equal, dtypes may differ. */
typedef struct ep_difference {
    double max_abs, max_rel;
    int64_t at;
} ep_difference;
EP_API ep_status ep_tensor_compare(const ep_tensor *a, const ep_tensor *b, double floor, ep_error *err,
                                   ep_difference *out);

/* NumPy .npy, version 1.0 to 3.0. bf16 has no NumPy dtype: it is written as '<V2' and read back from it when
 * `as_bf16` is set. Fortran order is read as strides, not copied. */
EP_API ep_status ep_tensor_read_npy(const char *path, bool as_bf16, ep_error *err, ep_tensor **out);
EP_API ep_status ep_tensor_write_npy(const ep_tensor *t, const char *path, ep_error *err);

/* DLPack. The structures are those of the DLPack ABI (github.com/dmlc/dlpack, dlpack.h v1.0), passed as void* so that
 * this header needs none: DLManagedTensorVersioned. Import takes over the caller's reference and calls its deleter when
 * the last view ends; export gives a structure whose deleter the consumer calls. No byte is copied. */
EP_API ep_status ep_tensor_from_dlpack(void *managed_versioned, ep_error *err, ep_tensor **out);
EP_API ep_status ep_tensor_to_dlpack(const ep_tensor *t, ep_error *err, void **managed_versioned);

/* safetensors: a mapped file; its tensors point into the map, which lives until the last of them and the handle end. */
typedef struct ep_weights ep_weights;
EP_API ep_status ep_weights_open(const char *path, ep_error *err, ep_weights **out);
EP_API void ep_weights_close(ep_weights *w);
EP_API size_t ep_weights_count(const ep_weights *w);
EP_API const char *ep_weights_name(const ep_weights *w, size_t index); /* in file-offset order; NULL out of range */
EP_API ep_status ep_weights_tensor(const ep_weights *w, const char *name, ep_error *err, ep_tensor **out);

#ifdef __cplusplus
}
#endif
#endif
