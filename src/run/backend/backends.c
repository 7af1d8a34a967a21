/* The list of backends: extern names only, the one a context prefers first. */
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
