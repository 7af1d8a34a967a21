/* The reference backend's struct; it has no tuned blocks and loads no generated code. */
#include "ref.h"

static ep_status ref_open(int index, int threads, ep_error *err, ep_backend *out) {
    if (index != 0) return ep_fail(err, EP_ERROR_DEVICE, "CPU device %d; there is only 0", index);
    out->threads = threads;
    return ep_ref_memory_open(out, err);
}

static ep_status ref_sync(ep_backend *b, ep_error *err) {
    (void)b;
    (void)err;
    return EP_OK;
}

extern const ep_backend_ops ep_backend_ref;
const ep_backend_ops ep_backend_ref = {
    .name = "ref",
    .kind = EP_DEVICE_CPU,
    .open = ref_open,
    .close = ep_ref_memory_close,
    .sync = ref_sync,
    .storage = ep_ref_storage,
    .memory = ep_ref_memory,
    .pointwise = ep_ref_pointwise,
    .copy = ep_ref_copy,
    .gemm = ep_ref_gemm,
    .reduce = ep_ref_reduce,
    .norm = ep_ref_norm,
    .gated = ep_ref_gated,
    .gated_backward = ep_ref_gated_backward,
};

int64_t ep_ref_bytes(const ep_tensor *t) {
    int64_t n = 1;
    for (int i = 0; i < t->ndim; i++)
        if (t->strides[i] != 0 || t->sizes[i] == 0) n *= t->sizes[i];
    return n * (int64_t)ep_dtype_size(t->dtype);
}
