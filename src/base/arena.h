/* Many allocations, one free. Not thread-safe. */
#ifndef EP_BASE_ARENA_H
#define EP_BASE_ARENA_H

#include <stddef.h>

typedef struct ep_arena {
    struct ep_arena_block *head;
    size_t used, total; /* bytes used in head; bytes of all blocks */
} ep_arena;

/* A zeroed struct is an empty arena. */
void *ep_arena_alloc(ep_arena *a, size_t bytes, size_t align);  /* NULL when memory is out; contents not set */
void *ep_arena_zero(ep_arena *a, size_t bytes, size_t align);   /* zeroed */
char *ep_arena_copy(ep_arena *a, const char *text, size_t len); /* copy, 0-terminated */
void ep_arena_free(ep_arena *a);

#define EP_ARENA_NEW(a, type) ((type *)ep_arena_zero((a), sizeof(type), _Alignof(type)))
#define EP_ARENA_ARRAY(a, type, n) ((type *)ep_arena_zero((a), sizeof(type) * (size_t)(n), _Alignof(type)))

#endif
