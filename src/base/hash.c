/* Multiply-and-fold hashes (the 128-bit product folded by xor, as in wyhash's published design); byte order is fixed by
 * reading little-endian words so that cache keys agree between machines. */
#include "hash.h"

#include <string.h>

__extension__ typedef unsigned __int128 u128;

static uint64_t fold(uint64_t a, uint64_t b) {
    u128 p = (u128)a * b;
    return (uint64_t)p ^ (uint64_t)(p >> 64);
}

static uint64_t word(const unsigned char *p, size_t n) {
    uint64_t v = 0;
    memcpy(&v, p, n);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap64(v);
#endif
    return v;
}

uint64_t ep_hash64(const void *data, size_t len, uint64_t seed) {
    const unsigned char *p = data;
    uint64_t h = seed ^ 0x9e3779b97f4a7c15u ^ (uint64_t)len;
    while (len >= 16) {
        h = fold(h ^ word(p, 8), word(p + 8, 8) ^ 0xe7037ed1a0b428dbu);
        p += 16;
        len -= 16;
    }
    uint64_t lo = word(p, len < 8 ? len : 8);
    uint64_t hi = len > 8 ? word(p + 8, len - 8) : 0;
    return fold(h ^ lo, hi ^ 0x8ebc6af09c88c6e3u) ^ fold(h, 0x589965cc75374cc3u);
}

void ep_hasher_begin(ep_hasher *h) {
    h->a = 0x243f6a8885a308d3u;
    h->b = 0x13198a2e03707344u;
    h->count = 0;
}

void ep_hasher_add(ep_hasher *h, const void *data, size_t len) {
    h->a = fold(h->a ^ ep_hash64(data, len, 0x452821e638d01377u), 0xbe5466cf34e90c6du);
    h->b = fold(h->b ^ ep_hash64(data, len, 0xc0ac29b7c97c50ddu), 0x3f84d5b5b5470917u) + h->count;
    h->count++;
}

ep_hash128 ep_hasher_end(const ep_hasher *h) {
    ep_hash128 r = {fold(h->a, h->b ^ 0x9216d5d98979fb1bu), fold(h->b, h->a ^ 0xd1310ba698dfb5acu)};
    return r;
}

void ep_hash128_hex(ep_hash128 h, char out[33]) {
    static const char digit[] = "0123456789abcdef";
    for (int i = 0; i < 16; i++) {
        out[i] = digit[h.hi >> (60 - 4 * i) & 15];
        out[16 + i] = digit[h.lo >> (60 - 4 * i) & 15];
    }
    out[32] = 0;
}
