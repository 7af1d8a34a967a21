/* The allocator everything takes: three functions and a user pointer. */
#ifndef EP_BASE_ALLOC_H
#define EP_BASE_ALLOC_H

#include <stdbool.h>
#include <stddef.h>

typedef struct ep_allocator {
    void *(*alloc)(void *user, size_t bytes, size_t align);
    void (*free)(void *user, void *p, size_t bytes);
    void *user;
} ep_allocator;

/* malloc and free; alignment up to 2 MiB. */
extern const ep_allocator ep_allocator_default;

/* n * size without overflow; NULL on overflow or exhaustion. Released by free(). */
void *ep_malloc_array(size_t n, size_t size);
/* Grows *p (malloc'ed, *cap elements) to at least `need` elements; false if it could not, *p unchanged. */
bool ep_grow(void *p, size_t *cap, size_t need, size_t size);

#endif
