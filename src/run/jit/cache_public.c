/* The kernel cache as users see it: a walk over its entries, and an end to them. */
#include <epilogue/compile.h>
#include <stdlib.h>
#include <string.h>

#include "cache.h"

static uint64_t hex64(const char *s) {
    uint64_t v = 0;
    for (int i = 0; i < 16; i++) {
        char c = s[i];
        v = v << 4 | (uint64_t)(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
    }
    return v;
}

ep_status ep_kernel_cache_each(const char *dir, void (*entry)(void *user, const ep_kernel_cache_entry *e), void *user,
                               ep_error *err) {
    ep_cache *c;
    ep_cache_entry *list = NULL;
    size_t count = 0;
    if (!entry) return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "entry is NULL");
    EP_TRY(ep_cache_open(dir, 0, err, &c));
    ep_status s = ep_cache_list(c, err, &list, &count);
    for (size_t i = 0; s == EP_OK && i < count; i++) {
        void *image = NULL;
        size_t size;
        char *source = NULL;
        ep_hash128 key = {hex64(list[i].key), hex64(list[i].key + 16)};
        bool sound = ep_cache_peek(c, key, NULL, &image, &size, &source) == EP_OK;
        entry(user, &(ep_kernel_cache_entry){list[i].key, list[i].bytes, list[i].used_ns, sound ? source : NULL});
        free(image);
        free(source);
    }
    free(list);
    ep_cache_close(c);
    return s;
}

ep_status ep_kernel_cache_clear(const char *dir, ep_error *err, size_t *removed) {
    ep_cache *c;
    size_t n = 0;
    EP_TRY(ep_cache_open(dir, 0, err, &c));
    ep_status s = ep_cache_clear(c, err, &n);
    ep_cache_close(c);
    if (s == EP_OK && removed) *removed = n;
    return s;
}

ep_status ep_kernel_cache_dir(const char *dir, char *out, size_t size, ep_error *err) {
    ep_cache *c;
    if (!out || !size) return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "out is NULL");
    EP_TRY(ep_cache_open(dir, 0, err, &c));
    const char *trouble = ep_cache_trouble(c), *name = *trouble ? "" : ep_cache_dir(c);
    ep_status s = *trouble               ? ep_fail(err, EP_ERROR_CACHE, "no cache: %s", trouble)
                  : strlen(name) >= size ? ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "%zu bytes are too few", size)
                                         : EP_OK;
    if (s == EP_OK)
        strcpy(out, name);
    else
        out[0] = 0;
    ep_cache_close(c);
    return s;
}
