/* Storages straight from the system, counted. The counters outlive the backend as long as a storage does. */
#include "ref.h"

#include <stdlib.h>

typedef struct ref_pool {
    atomic_int refs; /* the backend and every live storage */
    atomic_int_fast64_t in_use, peak, allocations;
} ref_pool;

static void drop(ref_pool *p) {
    if (atomic_fetch_sub(&p->refs, 1) == 1) free(p);
}

ep_status ep_ref_memory_open(ep_backend *b, ep_error *err) {
    ref_pool *p = calloc(1, sizeof *p);
    if (!p) return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "%zu bytes could not be allocated", sizeof *p);
    atomic_init(&p->refs, 1);
    b->state = p;
    return EP_OK;
}

void ep_ref_memory_close(ep_backend *b) {
    if (b->state) drop(b->state);
    b->state = NULL;
}

static void release(ep_storage *s) {
    ref_pool *p = s->owner;
    atomic_fetch_sub(&p->in_use, (int64_t)s->bytes);
    free(s->data);
    free(s);
    drop(p);
}

ep_status ep_ref_storage(ep_backend *b, size_t bytes, ep_error *err, ep_storage **out) {
    ref_pool *p = b->state;
    ep_storage *s;
    EP_TRY(ep_storage_create(bytes, err, &s));
    s->owner = p;
    s->release = release;
    atomic_fetch_add(&p->refs, 1);
    atomic_fetch_add(&p->allocations, 1);
    int64_t now = atomic_fetch_add(&p->in_use, (int64_t)bytes) + (int64_t)bytes, peak = atomic_load(&p->peak);
    while (now > peak && !atomic_compare_exchange_weak(&p->peak, &peak, now)) {
    }
    *out = s;
    return EP_OK;
}

void ep_ref_memory(const ep_backend *b, ep_memory_stats *out) {
    ref_pool *p = b->state;
    *out = (ep_memory_stats){atomic_load(&p->in_use), 0, atomic_load(&p->peak), atomic_load(&p->allocations)};
}
