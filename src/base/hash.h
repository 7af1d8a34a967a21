/* A fast 64-bit hash for tables and a stable 128-bit one for cache keys (same value on every machine and version). */
#ifndef EP_BASE_HASH_H
#define EP_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t ep_hash64(const void *data, size_t len, uint64_t seed);

typedef struct ep_hash128 {
    uint64_t hi, lo;
} ep_hash128;
/* Streaming: start, add any number of pieces, end. */
typedef struct ep_hasher {
    uint64_t a, b, count;
} ep_hasher;
void ep_hasher_begin(ep_hasher *h);
void ep_hasher_add(ep_hasher *h, const void *data, size_t len);
ep_hash128 ep_hasher_end(const ep_hasher *h);
/* 32 lower-case hex digits and a terminator. */
void ep_hash128_hex(ep_hash128 h, char out[33]);

#endif
