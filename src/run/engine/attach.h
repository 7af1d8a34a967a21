/* Packed weights of a compiled function, and which groups of a binding can run as epilogues of packed products. */
#ifndef EP_RUN_ATTACH_H
#define EP_RUN_ATTACH_H

#include "hooked.h"
#include "kernel_table.h"

typedef enum ep_attach_state { EP_ATTACH_NEW, EP_ATTACH_NONE, EP_ATTACH_PENDING, EP_ATTACH_READY } ep_attach_state;

typedef struct ep_pack {
    ep_tensor *weight; /* a handle of ours */
    ep_packed *packed;
    atomic_int state; /* ep_attach_state: PENDING, READY, or NONE: it could not be packed */
    int users;        /* bindings that asked for it and have not let go */
    ep_backend backend;
    const ep_backend_ops *ops;
    ep_error err;
} ep_pack;

typedef struct ep_pack_list {
    ep_pack **all;
    size_t count, cap;
    int64_t freed; /* bytes that were packed and are gone, as no way that was kept reads them */
} ep_pack_list;

/* The pack of this weight [n, k], with one user more, asked for if it is new: on the table's worker, or on the spot with
 * `now`. NULL when memory is out. */
ep_pack *ep_pack_find(ep_pack_list *l, ep_context *ctx, ep_kernel_table *t, const ep_tensor *weight, bool now);
/* Frees what has no user and is not being made. */
void ep_pack_list_trim(ep_pack_list *l);
void ep_pack_list_clear(ep_pack_list *l);
int64_t ep_pack_list_bytes(const ep_pack_list *l);

#endif
