/* Sum, mean and maximum over the last dims, in double. */
#include "ref.h"

#include <math.h>

typedef struct reduction {
    ep_op op;
    ep_dtype dtype;
    int ndim; /* of the reduced part */
    const int64_t *sizes, *strides;
    int64_t count;
} reduction;

static double reduce_one(const reduction *r, const char *p) {
    double v[EP_REF_BLOCK], sum = 0, top = -INFINITY;
    const int64_t *strides[1] = {r->strides};
    ep_walk w;
    for (bool more = ep_walk_begin(&w, r->ndim, r->sizes, 1, strides); more; more = ep_walk_next(&w)) {
        for (int64_t i = 0; i < w.run; i += EP_REF_BLOCK) {
            int64_t n = w.run - i < EP_REF_BLOCK ? w.run - i : EP_REF_BLOCK;
            ep_run_load(r->dtype, p + (w.offset[0] + i * w.step[0]) * (int64_t)ep_dtype_size(r->dtype), w.step[0], n,
                        v);
            for (int64_t j = 0; j < n; j++) {
                sum += v[j];
                if (v[j] > top || isnan(v[j])) top = v[j];
            }
        }
    }
    if (r->op == EP_OP_AMAX) return top; /* once NaN it stays, since nothing is greater */
    return r->op == EP_OP_MEAN ? sum / (double)r->count : sum;
}

ep_status ep_ref_reduce(ep_backend *b, ep_op op, const ep_attr *attr, const ep_tensor *x, ep_tensor *out,
                        ep_error *err) {
    (void)b;
    (void)err;
    ep_launch l = ep_launch_begin(ep_ref_name_op(x->dtype, op));
    int outer = x->ndim - attr->dims;
    reduction r = {op, x->dtype, attr->dims, x->sizes + outer, x->strides + outer, 1};
    for (int i = 0; i < r.ndim; i++) r.count *= r.sizes[i];
    const int64_t *strides[2] = {x->strides, out->strides};
    ep_walk w;
    for (bool more = ep_walk_begin(&w, outer, x->sizes, 2, strides); more; more = ep_walk_next(&w)) {
        for (int64_t i = 0; i < w.run; i++) {
            double v = reduce_one(&r, ep_ref_at(x, w.offset[0] + i * w.step[0]));
            ep_element_store(out->dtype, ep_ref_at(out, w.offset[1] + i * w.step[1]), v);
        }
    }
    ep_launch_end(&l, x->numel, ep_ref_bytes(x), ep_ref_bytes(out));
    return EP_OK;
}
