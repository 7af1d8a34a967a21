/* Weights are packed once a compiled function, by its worker, so that no call waits for it. */
#include "attach.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

static void pack_now(void *user) {
    ep_pack *p = user;
    ep_pack_request r = ep_pack_request_of(p->weight, NULL, true); /* as ep_compile_options says */
    bool ok = p->ops->pack(&p->backend, &r, &p->err, &p->packed) == EP_OK;
    atomic_store_explicit(&p->state, ok ? EP_ATTACH_READY : EP_ATTACH_NONE, memory_order_release);
}

static bool same_weight(const ep_tensor *a, const ep_tensor *b) {
    return a->data == b->data && a->dtype == b->dtype && a->sizes[0] == b->sizes[0] && a->sizes[1] == b->sizes[1] &&
           a->strides[0] == b->strides[0] && a->strides[1] == b->strides[1];
}

ep_pack *ep_pack_find(ep_pack_list *l, ep_context *ctx, ep_kernel_table *t, const ep_tensor *weight, bool now) {
    for (size_t i = 0; i < l->count; i++)
        if (same_weight(l->all[i]->weight, weight)) return l->all[i];
    ep_pack *p = calloc(1, sizeof *p);
    if (!p || !ep_grow(&l->all, &l->cap, l->count + 1, sizeof *l->all) ||
        ep_tensor_alias(weight, &ctx->err, &p->weight) != EP_OK) {
        free(p);
        return NULL;
    }
    p->backend = ctx->backend;
    p->ops = &ctx->ops;
    if (!now) p->backend.threads = 1; /* beside calls that use the others */
    atomic_init(&p->state, EP_ATTACH_PENDING);
    l->all[l->count++] = p;
    if (now || ep_kernels_do(t, pack_now, p) != EP_OK) pack_now(p);
    return p;
}

void ep_pack_list_clear(ep_pack_list *l, ep_context *ctx) {
    for (size_t i = 0; i < l->count; i++) {
        if (l->all[i]->packed) ctx->ops.pack_free(&ctx->backend, l->all[i]->packed);
        ep_tensor_destroy(l->all[i]->weight);
        free(l->all[i]);
    }
    free(l->all);
    *l = (ep_pack_list){0};
}

int64_t ep_pack_list_bytes(const ep_pack_list *l, const ep_context *ctx) {
    int64_t bytes = 0;
    for (size_t i = 0; i < l->count; i++)
        if (atomic_load_explicit(&l->all[i]->state, memory_order_acquire) == EP_ATTACH_READY)
            bytes += ctx->ops.pack_bytes(l->all[i]->packed);
    return bytes;
}
