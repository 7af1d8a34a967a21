/* Copies between any two layouts, casting where the dtypes differ. */
#include "ref.h"

#include <string.h>

static void copy_run(size_t size, const char *in, int64_t in_step, char *out, int64_t out_step, int64_t n) {
    if (in_step == 1 && out_step == 1) {
        memmove(out, in, (size_t)n * size);
        return;
    }
    for (int64_t i = 0; i < n; i++) memcpy(out + i * out_step * (int64_t)size, in + i * in_step * (int64_t)size, size);
}

static void cast_run(const ep_tensor *in, const char *from, int64_t in_step, const ep_tensor *out, char *to,
                     int64_t out_step, int64_t n) {
    double v[EP_REF_BLOCK];
    int64_t in_bytes = in_step * (int64_t)ep_dtype_size(in->dtype);
    int64_t out_bytes = out_step * (int64_t)ep_dtype_size(out->dtype);
    for (int64_t i = 0; i < n; i += EP_REF_BLOCK) {
        int64_t part = n - i < EP_REF_BLOCK ? n - i : EP_REF_BLOCK;
        ep_run_load(in->dtype, from + i * in_bytes, in_step, part, v);
        ep_run_store(out->dtype, to + i * out_bytes, out_step, part, v);
    }
}

ep_status ep_ref_copy(ep_backend *b, const ep_tensor *in, ep_tensor *out, ep_error *err) {
    (void)b;
    (void)err;
    ep_launch l = ep_launch_begin(ep_ref_name_op(out->dtype, in->dtype == out->dtype ? EP_OP_COPY : EP_OP_CAST));
    const int64_t *strides[2] = {in->strides, out->strides};
    ep_walk w;
    for (bool more = ep_walk_begin(&w, out->ndim, out->sizes, 2, strides); more; more = ep_walk_next(&w)) {
        const char *from = ep_ref_at(in, w.offset[0]);
        char *to = ep_ref_at(out, w.offset[1]);
        if (in->dtype == out->dtype)
            copy_run(ep_dtype_size(in->dtype), from, w.step[0], to, w.step[1], w.run);
        else
            cast_run(in, from, w.step[0], out, to, w.step[1], w.run);
    }
    ep_launch_end(&l, 0, ep_ref_bytes(in), ep_ref_bytes(out));
    return EP_OK;
}
