/* Counted bytes on a device; the last reference gives them back to whoever made them. */
#include "tensor.h"

#include <stdlib.h>

#include "base/alloc.h"

void ep_storage_release(ep_storage *s) {
    if (!s) return;
    if (atomic_fetch_sub_explicit(&s->refs, 1, memory_order_release) != 1) return;
    atomic_thread_fence(memory_order_acquire);
    s->release(s);
}

static void release_default(ep_storage *s) {
    free(s->data);
    free(s);
}

ep_status ep_storage_create(size_t bytes, ep_error *err, ep_storage **out) {
    ep_storage *s = calloc(1, sizeof *s);
    void *data = s ? ep_malloc_aligned(bytes, 64) : NULL;
    if (!data) {
        free(s);
        return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "%zu bytes for a tensor could not be allocated", bytes);
    }
    atomic_init(&s->refs, 1);
    s->data = data;
    s->bytes = bytes;
    s->release = release_default;
    *out = s;
    return EP_OK;
}
