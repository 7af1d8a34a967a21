/* Memory from malloc whose sizes cannot overflow. All of it is released by free(). */
#ifndef EP_BASE_ALLOC_H
#define EP_BASE_ALLOC_H

#include <stdbool.h>
#include <stddef.h>

/* `bytes` (0: as 1) at a multiple of `align`, a power of 2; NULL on overflow or exhaustion. */
void *ep_malloc_aligned(size_t bytes, size_t align);
/* n * size without overflow; NULL on overflow or exhaustion. */
void *ep_malloc_array(size_t n, size_t size);
/* Grows *p (malloc'ed, *cap elements) to at least `need` elements; false if it could not, *p unchanged. */
bool ep_grow(void *p, size_t *cap, size_t need, size_t size);

#endif
