/* DLPack: tensors to and from strangers. The structures are re-declared from the ABI of dlpack.h v1.0. */
#include "tensor.h"

#include <stdlib.h>
#include <string.h>

typedef struct dl_managed dl_managed;

typedef struct dl_tensor {
    void *data;
    struct {
        int32_t type, id;
    } device;
    int32_t ndim;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape, *strides; /* strides NULL: row-major */
    uint64_t byte_offset;
} dl_tensor;

struct dl_managed {
    struct {
        uint32_t major, minor;
    } version;
    void *context;
    void (*deleter)(dl_managed *self);
    uint64_t flags;
    dl_tensor tensor;
};

enum { DL_CPU = 1, DL_CUDA = 2, DL_CUDA_HOST = 3 };

typedef struct code_row {
    uint8_t code, bits;
} code_row;

static const code_row codes[EP_DTYPE_COUNT] = {
#define EP_DTYPE_ROW(ID, name, type, is_float, safetensors, npy, code, bits) [EP_DTYPE_##ID] = {code, bits},
#include "dtype.def"
#undef EP_DTYPE_ROW
};

static void end_foreign(void *user) {
    dl_managed *m = user;
    if (m->deleter) m->deleter(m);
}

static ep_status find_dtype(const dl_tensor *d, ep_error *err, ep_dtype *out) {
    for (int i = 0; i < EP_DTYPE_COUNT && d->dtype.lanes == 1; i++) {
        if (codes[i].code != d->dtype.code || codes[i].bits != d->dtype.bits) continue;
        *out = (ep_dtype)i;
        return EP_OK;
    }
    return ep_fail(err, EP_ERROR_DTYPE, "DLPack dtype code %d of %d bits, %d lanes, is none of ours", d->dtype.code,
                   d->dtype.bits, d->dtype.lanes);
}

static ep_status find_device(const dl_tensor *d, ep_error *err, ep_device *out) {
    if (d->device.type != DL_CPU && d->device.type != DL_CUDA && d->device.type != DL_CUDA_HOST)
        return ep_fail(err, EP_ERROR_DEVICE, "DLPack device type %d; known are CPU (1), CUDA (2) and CUDA host (3)",
                       (int)d->device.type);
    bool cuda = d->device.type == DL_CUDA;
    *out = (ep_device){cuda ? EP_DEVICE_CUDA : EP_DEVICE_CPU, cuda ? d->device.id : 0};
    return EP_OK;
}

ep_status ep_tensor_from_dlpack(void *managed_versioned, ep_error *err, ep_tensor **out) {
    dl_managed *m = managed_versioned;
    if (!m || !out) return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "%s is NULL", m ? "out" : "the DLPack tensor");
    if (m->version.major != 1)
        return ep_fail(err, EP_ERROR_UNSUPPORTED, "DLPack version %u.%u; this library speaks 1.x",
                       (unsigned)m->version.major, (unsigned)m->version.minor);
    const dl_tensor *d = &m->tensor;
    ep_dtype dtype = EP_DTYPE_F32;
    ep_device device;
    int64_t dense[EP_MAX_DIMS], numel, reach;
    EP_TRY(find_dtype(d, err, &dtype));
    EP_TRY(find_device(d, err, &device));
    if (d->ndim > 0 && !d->shape) return ep_fail(err, EP_ERROR_FORMAT, "the DLPack tensor has dims but no shape");
    EP_TRY(ep_shape_numel(d->ndim, d->shape, err, &numel));
    ep_stride_contiguous(d->ndim, d->shape, dense);
    const int64_t *strides = d->strides ? d->strides : dense;
    EP_TRY(ep_stride_max_offset(d->ndim, d->shape, strides, err, &reach));
    size_t size = ep_dtype_size(dtype);
    if (reach >= INT64_MAX / (int64_t)size)
        return ep_fail(err, EP_ERROR_OVERFLOW, "the DLPack tensor reaches past 2^63 - 1 bytes");
    char *data = d->data ? (char *)d->data + d->byte_offset : NULL;
    if ((uintptr_t)data % size != 0)
        return ep_fail(err, EP_ERROR_FORMAT, "the DLPack tensor's data is not aligned to its %zu-byte elements", size);
    return ep_tensor_from_memory(device, dtype, d->ndim, d->shape, strides, data, ((size_t)reach + 1) * size,
                                 end_foreign, m, err, out);
}

typedef struct exported {
    dl_managed managed;
    int64_t shape[EP_MAX_DIMS], strides[EP_MAX_DIMS];
    ep_tensor *tensor;
} exported;

static void end_exported(dl_managed *self) {
    exported *e = self->context;
    ep_tensor_destroy(e->tensor);
    free(e);
}

ep_status ep_tensor_to_dlpack(const ep_tensor *t, ep_error *err, void **managed_versioned) {
    if (!t || !managed_versioned) return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "%s is NULL", t ? "out" : "t");
    if (!t->storage) return ep_fail(err, EP_ERROR_CAPTURE, "a tensor has no data while its function is captured");
    exported *e = calloc(1, sizeof *e);
    if (!e) return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "%zu bytes could not be allocated", sizeof *e);
    ep_status status = ep_tensor_alias(t, err, &e->tensor);
    if (status != EP_OK) {
        free(e);
        return status;
    }
    dl_managed *m = &e->managed;
    m->version.major = 1;
    m->context = e;
    m->deleter = end_exported;
    memcpy(e->shape, t->sizes, sizeof e->shape);
    memcpy(e->strides, t->strides, sizeof e->strides);
    m->tensor.data = t->numel ? t->data : NULL;
    m->tensor.device.type = t->device.kind == EP_DEVICE_CUDA ? DL_CUDA : DL_CPU;
    m->tensor.device.id = t->device.index;
    m->tensor.ndim = t->ndim;
    m->tensor.dtype.code = codes[t->dtype].code;
    m->tensor.dtype.bits = codes[t->dtype].bits;
    m->tensor.dtype.lanes = 1;
    m->tensor.shape = e->shape;
    m->tensor.strides = e->strides;
    *managed_versioned = m;
    return EP_OK;
}
