/* Built kernels on disk, shared by all processes of a user. A cache that cannot be used (read-only, full, not ours) is
 * no cache: loads miss and stores do nothing; no call fails because of it. Any thread. */
#ifndef EP_RUN_JIT_CACHE_H
#define EP_RUN_JIT_CACHE_H

#include <stdbool.h>

#include "base/hash.h"
#include "base/status.h"

typedef struct ep_cache ep_cache;

/* `dir` NULL: EPILOGUE_CACHE_DIR, or epilogue under XDG_CACHE_HOME, or under ~/.cache; made if it is not there (0700).
 * `limit` 0: EPILOGUE_CACHE_LIMIT bytes, or 64 MiB. A folder that others may write to is not used. */
ep_status ep_cache_open(const char *dir, int64_t limit, ep_error *err, ep_cache **out);
void ep_cache_close(ep_cache *c);
const char *ep_cache_dir(const ep_cache *c);
const char *ep_cache_trouble(const ep_cache *c); /* why it is no cache, or "" */
/* Stores that failed so far, and why the last of them did: "full disk"; "" if none. */
const char *ep_cache_unkept(const ep_cache *c, int64_t *count);

/* The image under `key`, malloc'ed; with source not NULL also the source it was built from. EP_ERROR_NOT_FOUND: not
 * there; EP_ERROR_CACHE: there but damaged, cut off or foreign (it has been removed). */
ep_status ep_cache_load(ep_cache *c, ep_hash128 key, ep_error *err, void **image, size_t *size, char **source);
/* The same without counting as a use, and leaving damaged entries where they are. */
ep_status ep_cache_peek(ep_cache *c, ep_hash128 key, ep_error *err, void **image, size_t *size, char **source);
/* Whole or not at all; then removes the oldest entries while the folder holds more than the limit. */
ep_status ep_cache_store(ep_cache *c, ep_hash128 key, const void *image, size_t size, const char *source,
                         size_t source_len, ep_error *err);

typedef struct ep_cache_entry {
    char key[33];
    int64_t bytes, used_ns; /* size on disk; last use, since 1970 */
} ep_cache_entry;
/* malloc'ed, newest first. */
ep_status ep_cache_list(ep_cache *c, ep_error *err, ep_cache_entry **out, size_t *count);
ep_status ep_cache_clear(ep_cache *c, ep_error *err, size_t *removed);

/* The file format, checked as a stranger's bytes: offsets of image and source in `data`. Fuzzed. */
ep_status ep_cache_check(const void *data, size_t size, ep_hash128 key, ep_error *err, size_t *image_at,
                         size_t *image_size, size_t *source_at, size_t *source_size);

#endif
