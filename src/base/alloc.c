/* Aligned memory, and two growth helpers that cannot overflow. */
#include "alloc.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

void *ep_malloc_aligned(size_t bytes, size_t align) {
    if (bytes == 0) bytes = 1;
    if (align <= _Alignof(max_align_t)) return malloc(bytes);
    if (bytes > SIZE_MAX - align) return NULL;
    return aligned_alloc(align, (bytes + align - 1) / align * align);
}

void *ep_malloc_array(size_t n, size_t size) {
    if (size && n > SIZE_MAX / size) return NULL;
    size_t bytes = n * size;
    return malloc(bytes > 0 ? bytes : 1);
}

bool ep_grow(void *p, size_t *cap, size_t need, size_t size) {
    if (need <= *cap) return true;
    size_t next = *cap ? *cap : 16;
    while (next < need) {
        if (next > SIZE_MAX / 2) return false;
        next *= 2;
    }
    if (next > SIZE_MAX / size) return false;
    void *old, *grown;
    memcpy(&old, p, sizeof old);
    grown = realloc(old, next * size);
    if (!grown) return false;
    memcpy(p, &grown, sizeof grown);
    *cap = next;
    return true;
}
