/* The strings of the JSON reader: where one ends, and what it says. */
#ifndef EP_BASE_JSON_STRING_H
#define EP_BASE_JSON_STRING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "text.h"

/* Looks for the closing quote; can be called again with more bytes. `after_member`, `after_element`: what may follow a
 * string that is a member's value or an element of an array; neither: nothing is known, and the first quote is the end. */
typedef struct ep_string_scan {
    bool tolerant;
    bool after_member, after_element;
    size_t seen;     /* bytes known to be inside */
    size_t length;   /* of the string's inside, once found */
    bool special;    /* it holds an escape, a control byte or non-ASCII */
    bool control;    /* a raw control byte was seen */
    size_t fallback; /* an escaped quote that looks like the real end: "C:\dir\", */
    size_t raw;      /* 1 + where the first quote stands that the writer did not escape ("say "hi" now"), or 0 */
} ep_string_scan;
/* `s` is the byte behind the opening quote, the same text in every call. True once the end is found. */
bool ep_string_find_end(ep_string_scan *scan, const char *s, size_t n);

typedef struct ep_string_decode {
    bool tolerant;
    void (*mend)(void *user, const char *kind, int64_t offset);
    void *user;
    int64_t offset;     /* of the string's inside */
    int64_t bad_offset; /* out: what could not be read (not tolerant) */
} ep_string_decode;
bool ep_string_decode_into(ep_string_decode *d, const char *s, size_t n, ep_text *out);

#endif
