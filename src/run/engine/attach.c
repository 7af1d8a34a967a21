/* Weights are packed once a compiled function, by its worker, so that no call waits for it, and freed when every class of
 * sizes that could have read them is answered in another way. */
#include "attach.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

static void pack_now(void *user) {
    ep_pack *p = user;
    /* Not to be kept beside the plain weights by the backend: that way is the plan's, and the engine chooses. */
    ep_pack_request r = ep_pack_request_of(p->weight, NULL, false);
    bool ok = p->ops->pack(&p->backend, &r, &p->err, &p->packed) == EP_OK;
    atomic_store_explicit(&p->state, ok ? EP_ATTACH_READY : EP_ATTACH_NONE, memory_order_release);
}

static bool same_weight(const ep_tensor *a, const ep_tensor *b) {
    return a->data == b->data && a->dtype == b->dtype && a->sizes[0] == b->sizes[0] && a->sizes[1] == b->sizes[1] &&
           a->strides[0] == b->strides[0] && a->strides[1] == b->strides[1];
}

ep_pack *ep_pack_find(ep_pack_list *l, ep_context *ctx, ep_kernel_table *t, const ep_tensor *weight, bool now) {
    for (size_t i = 0; i < l->count; i++)
        if (same_weight(l->all[i]->weight, weight)) {
            l->all[i]->users++;
            return l->all[i];
        }
    ep_pack *p = calloc(1, sizeof *p);
    if (!p || !ep_grow(&l->all, &l->cap, l->count + 1, sizeof *l->all) ||
        ep_tensor_alias(weight, &ctx->err, &p->weight) != EP_OK) {
        free(p);
        return NULL;
    }
    p->backend = ctx->backend;
    p->ops = &ctx->ops;
    p->users = 1;
    if (!now) p->backend.threads = 1; /* beside calls that use the others */
    atomic_init(&p->state, EP_ATTACH_PENDING);
    l->all[l->count++] = p;
    if (now || ep_kernels_do(t, pack_now, p) != EP_OK) pack_now(p);
    return p;
}

static int64_t bytes_of(const ep_pack *p) {
    bool there = atomic_load_explicit(&p->state, memory_order_acquire) == EP_ATTACH_READY;
    return there ? p->ops->pack_bytes(p->packed) : 0;
}

static void end_pack(ep_pack *p) {
    if (p->packed) p->ops->pack_free(&p->backend, p->packed);
    ep_tensor_destroy(p->weight);
    free(p);
}

void ep_pack_list_trim(ep_pack_list *l) {
    size_t kept = 0;
    for (size_t i = 0; i < l->count; i++) {
        ep_pack *p = l->all[i];
        if (p->users || atomic_load_explicit(&p->state, memory_order_acquire) == EP_ATTACH_PENDING) {
            l->all[kept++] = p;
            continue;
        }
        l->freed += bytes_of(p);
        end_pack(p);
    }
    l->count = kept;
}

void ep_pack_list_clear(ep_pack_list *l) {
    for (size_t i = 0; i < l->count; i++) end_pack(l->all[i]);
    free(l->all);
    *l = (ep_pack_list){0};
}

int64_t ep_pack_list_bytes(const ep_pack_list *l) {
    int64_t bytes = 0;
    for (size_t i = 0; i < l->count; i++) bytes += bytes_of(l->all[i]);
    return bytes;
}
