/* The caching allocator of a CPU context. Blocks of a size class are kept with their storage struct and given out again;
 * after the first call a repeated forward asks the system for nothing. Storages may outlive the context and may be
 * released by any thread. */
#ifndef EP_RUN_BACKEND_CPU_ALLOC_H
#define EP_RUN_BACKEND_CPU_ALLOC_H

#include "run/backend/backend.h"

typedef struct ep_cpu_pool ep_cpu_pool;

ep_status ep_cpu_pool_create(ep_error *err, ep_cpu_pool **out);
/* The pool itself ends with its last storage. */
void ep_cpu_pool_close(ep_cpu_pool *p);
/* `bytes` of memory at a multiple of 64 (of 2 MiB from 2 MiB on), contents unset. */
ep_status ep_cpu_pool_storage(ep_cpu_pool *p, size_t bytes, ep_error *err, ep_storage **out);
void ep_cpu_pool_stats(ep_cpu_pool *p, ep_memory_stats *out);
/* Gives all cached blocks back to the system. */
void ep_cpu_pool_trim(ep_cpu_pool *p);

/* Exposed for tests: the class of a size and the bytes a block of it has. */
int ep_cpu_size_class(size_t bytes);
size_t ep_cpu_class_bytes(int size_class);

#endif
