/* Blocks that double up to 1 MiB; a request larger than a block gets one of its own. */
#include "arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct ep_arena_block {
    struct ep_arena_block *next;
    size_t size;
    _Alignas(max_align_t) unsigned char data[];
};

void *ep_arena_alloc(ep_arena *a, size_t bytes, size_t align) {
    if (a->head) {
        uintptr_t base = (uintptr_t)a->head->data;
        size_t at = (size_t)(((base + a->used + align - 1) & ~(uintptr_t)(align - 1)) - base);
        if (at <= a->head->size && bytes <= a->head->size - at) {
            a->used = at + bytes;
            return a->head->data + at;
        }
    }
    size_t size = a->head ? a->head->size * 2 : 4096;
    if (size > (size_t)1 << 20) size = (size_t)1 << 20;
    if (bytes > SIZE_MAX / 2) return NULL;
    if (size < bytes + align) size = bytes + align;
    struct ep_arena_block *b = malloc(sizeof *b + size);
    if (!b) return NULL;
    b->next = a->head;
    b->size = size;
    a->head = b;
    a->total += size;
    uintptr_t base = (uintptr_t)b->data;
    size_t at = (size_t)(((base + align - 1) & ~(uintptr_t)(align - 1)) - base);
    a->used = at + bytes;
    return b->data + at;
}

void *ep_arena_zero(ep_arena *a, size_t bytes, size_t align) {
    void *p = ep_arena_alloc(a, bytes, align);
    if (p) memset(p, 0, bytes);
    return p;
}

char *ep_arena_copy(ep_arena *a, const char *text, size_t len) {
    char *p = ep_arena_alloc(a, len + 1, 1);
    if (!p) return NULL;
    if (len) memcpy(p, text, len);
    p[len] = 0;
    return p;
}

void ep_arena_free(ep_arena *a) {
    for (struct ep_arena_block *b = a->head; b;) {
        struct ep_arena_block *next = b->next;
        free(b);
        b = next;
    }
    memset(a, 0, sizeof *a);
}
