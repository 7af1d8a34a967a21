/* The inner loops of JSON reading: sixteen bytes a step with SSE2, eight without. Both stop at the same byte. */
#ifndef EP_BASE_JSON_SCAN_H
#define EP_BASE_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/* A byte at which a string can't just run on: the closing quote, a backslash, a control byte, or no ASCII. */
static inline bool ep_json_special(char c) {
    return c == '"' || c == '\\' || (signed char)c < 0x20;
}

/* The first such byte in [p, end), or end. The plain version, which the fast one is compared with. */
static inline const char *ep_json_scan_plain(const char *p, const char *end) {
    while (p < end && !ep_json_special(*p)) p++;
    return p;
}

static inline const char *ep_json_scan(const char *p, const char *end) {
#if defined(__SSE2__)
    const __m128i quote = _mm_set1_epi8('"'), slash = _mm_set1_epi8('\\'), space = _mm_set1_epi8(0x20);
    for (; end - p >= 16; p += 16) {
        __m128i v = _mm_loadu_si128((const __m128i *)(const void *)p);
        /* A signed comparison finds the control bytes and everything above ASCII at once. */
        __m128i hit =
            _mm_or_si128(_mm_or_si128(_mm_cmpeq_epi8(v, quote), _mm_cmpeq_epi8(v, slash)), _mm_cmplt_epi8(v, space));
        int mask = _mm_movemask_epi8(hit);
        if (mask) return p + __builtin_ctz((unsigned)mask);
    }
#else
    const uint64_t ones = 0x0101010101010101u, high = ones << 7;
    for (; end - p >= 8; p += 8) {
        uint64_t v;
        memcpy(&v, p, 8);
        uint64_t quote = v ^ ones * '"', slash = v ^ ones * '\\';
        /* A zero byte borrows into its top bit; (v - 0x20) does so for control bytes. May hit early, never late. */
        uint64_t hit = ((quote - ones) & ~quote) | ((slash - ones) & ~slash) | (v - ones * 0x20) | v;
        if (hit & high) break;
    }
#endif
    return ep_json_scan_plain(p, end);
}

static inline bool ep_json_is_space(char c) {
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/* The first byte in [p, end) that is no blank, or end. */
static inline const char *ep_json_skip_space(const char *p, const char *end) {
    if (p < end && !ep_json_is_space(*p)) return p;
    if (end - p > 1 && !ep_json_is_space(p[1])) return p + 1;
#if defined(__SSE2__)
    for (; end - p >= 16; p += 16) {
        __m128i v = _mm_loadu_si128((const __m128i *)(const void *)p);
        __m128i tab_line = _mm_or_si128(_mm_cmpeq_epi8(v, _mm_set1_epi8('\t')), _mm_cmpeq_epi8(v, _mm_set1_epi8('\n')));
        __m128i blank_return =
            _mm_or_si128(_mm_cmpeq_epi8(v, _mm_set1_epi8(' ')), _mm_cmpeq_epi8(v, _mm_set1_epi8('\r')));
        int mask = _mm_movemask_epi8(_mm_or_si128(tab_line, blank_return));
        if (mask != 0xffff) return p + __builtin_ctz(~(unsigned)mask);
    }
#endif
    while (p < end && ep_json_is_space(*p)) p++;
    return p;
}

/* Do the n bytes at p equal those at `pattern`? Both must have EP_JSON_PATTERN readable bytes; n is at most that. */
enum { EP_JSON_PATTERN = 32 };
static inline bool ep_json_starts(const char *p, const char *pattern, unsigned n) {
#if defined(__SSE2__)
    __m128i a = _mm_loadu_si128((const __m128i *)(const void *)p);
    __m128i b = _mm_loadu_si128((const __m128i *)(const void *)pattern);
    uint32_t same = (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(a, b));
    if (n > 16) {
        a = _mm_loadu_si128((const __m128i *)(const void *)(p + 16));
        b = _mm_loadu_si128((const __m128i *)(const void *)(pattern + 16));
        same |= (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(a, b)) << 16;
    }
    uint32_t wanted = n >= 32 ? UINT32_MAX : (UINT32_C(1) << n) - 1;
    return (same & wanted) == wanted;
#else
    return memcmp(p, pattern, n) == 0;
#endif
}

#endif
