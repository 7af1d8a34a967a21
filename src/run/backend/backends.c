/* The list of backends: extern names only, the one a context prefers first; and what all of them are asked with. */
#include "backend.h"

#include <string.h>

extern const ep_backend_ops ep_backend_cpu;
extern const ep_backend_ops ep_backend_cuda;
extern const ep_backend_ops ep_backend_ref;

static const ep_backend_ops *const list[] = {
    &ep_backend_cpu,
    &ep_backend_cuda,
    &ep_backend_ref,
};

const ep_backend_ops *ep_backend_find(const char *name) {
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        if (strcmp(list[i]->name, name) == 0) return list[i];
    return NULL;
}

ep_pack_request ep_pack_request_of(const ep_tensor *w0, const ep_tensor *w1, bool weights_stay) {
    ep_pack_request r = {.dtype = w0->dtype, .k = w0->sizes[1], .n = w0->sizes[0], .weights_stay = weights_stay};
    r.w0 = w0->data;
    r.w0_row = w0->strides[0];
    r.w0_col = w0->strides[1];
    if (!w1) return r;
    r.w1 = w1->data;
    r.w1_row = w1->strides[0];
    r.w1_col = w1->strides[1];
    return r;
}
