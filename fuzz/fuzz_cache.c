// needs: run
/* A cache entry is a stranger's bytes: only one whose every byte is right is taken. */
#include <stdint.h>
#include <stdlib.h>

#include "run/jit/cache.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ep_error err;
    size_t at, n, source_at, source_n;
    ep_hash128 key = {0x1122334455667788u, 0x99aabbccddeeff00u};
    if (ep_cache_check(data, size, key, &err, &at, &n, &source_at, &source_n) != EP_OK) return 0;
    if (at + n > size || source_at + source_n > size || at + n != source_at) abort();
    return 0;
}
