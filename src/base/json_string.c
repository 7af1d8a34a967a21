/* Escapes, UTF-8 and the damage that strings of real traces have. */
#include "json_string.h"

#include <string.h>

#include "json_scan.h"
#include "json_write.h"

/* Does what follows the quote look as if the string ended with it? */
static bool looks_like_end(char next) {
    return next == ',' || next == '}' || next == ']' || next == ':';
}

typedef enum quote_role { QUOTE_ENDS, QUOTE_INSIDE, QUOTE_OPEN } quote_role;

/* Behind a value comes its container's end, or a comma and what may begin the next member or element. */
static quote_role value_ends(const ep_string_scan *scan, const char *p, const char *end) {
    p = ep_json_skip_space(p, end);
    if (p == end) return QUOTE_OPEN;
    if (*p == '}' || *p == ']') return QUOTE_ENDS;
    if (*p != ',') return QUOTE_INSIDE;
    p = ep_json_skip_space(p + 1, end);
    if (p == end) return QUOTE_OPEN;
    if (memchr("\",}]", *p, 4)) return QUOTE_ENDS; /* commas and brackets: damage that is mended elsewhere */
    return scan->after_element && memchr("[{-0123456789tfn", *p, 16) ? QUOTE_ENDS : QUOTE_INSIDE;
}

/* Kineto escapes no quote in a name, so what follows one (p) tells whether it ends the string. */
static quote_role role_of_quote(const ep_string_scan *scan, const char *p, const char *end) {
    quote_role role = value_ends(scan, p, end);
    if (role != QUOTE_INSIDE) return role;
    const char *next = ep_json_skip_space(p, end);
    if (*next != '"') return QUOTE_INSIDE;
    /* Two quotes: the first is one of the string if the second ends a value; else a comma is missing between them. */
    role = value_ends(scan, next + 1, end);
    return role == QUOTE_ENDS ? QUOTE_INSIDE : role == QUOTE_INSIDE ? QUOTE_ENDS : QUOTE_OPEN;
}

/* At a quote. True if the string's end is known; *more: it depends on bytes that are not there yet. */
static bool at_quote(ep_string_scan *scan, const char *s, const char *p, const char *end, bool *more) {
    *more = false;
    scan->length = (size_t)(p - s);
    if (!scan->tolerant || (!scan->after_member && !scan->after_element)) return true;
    quote_role role = role_of_quote(scan, p + 1, end);
    *more = role == QUOTE_OPEN;
    if (role != QUOTE_INSIDE) return role == QUOTE_ENDS;
    if (scan->raw && *ep_json_skip_space(p + 1, end) == ':') { /* that is a key: the string ended long ago */
        scan->length = scan->raw - 1;
        return true;
    }
    if (!scan->raw) scan->raw = (size_t)(p - s) + 1;
    scan->special = true;
    scan->length = 0;
    return false;
}

bool ep_string_find_end(ep_string_scan *scan, const char *s, size_t n) {
    const char *end = s + n, *p = s + scan->seen;
    for (;;) {
        p = ep_json_scan(p, end);
        scan->seen = (size_t)(p - s);
        if (p == end) return false;
        if (*p == '"') {
            if (!scan->fallback) {
                bool more;
                if (at_quote(scan, s, p, end, &more)) return true;
                if (more) return false;
                p++;
                continue;
            }
            scan->length = (size_t)(p - s);
            /* What follows tells whether this quote or the escaped one before it is the end. */
            const char *next = ep_json_skip_space(p + 1, end);
            if (next == end) return false;
            if (!looks_like_end(*next)) scan->length = scan->fallback;
            return true;
        }
        scan->special = true;
        if (*p == '\\') {
            if (end - p < 2) return false;
            /* A Windows path may end in a backslash. That its quote is no escape shows when the string runs on into
             * the next line, so remember the first place where it could have ended. */
            if (scan->tolerant && p[1] == '"' && !scan->fallback) {
                const char *next = ep_json_skip_space(p + 2, end);
                if (next == end) return false;
                if (looks_like_end(*next)) scan->fallback = (size_t)(p - s) + 1;
            }
            p += 2;
            continue;
        }
        if ((unsigned char)*p < 0x20) {
            scan->control = true;
            if (*p == '\n' && (scan->fallback || scan->raw)) {
                scan->length = scan->fallback ? scan->fallback : scan->raw - 1;
                return true;
            }
        }
        p++;
    }
}

static int hex4(const char *s) {
    int v = 0;
    for (int i = 0; i < 4; i++) {
        char c = s[i];
        int digit = c >= '0' && c <= '9'                     ? c - '0'
                    : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
                                                             : -1;
        if (digit < 0) return -1;
        v = v * 16 + digit;
    }
    return v;
}

static void add_utf8(ep_text *out, unsigned c) {
    if (c == 0 || (c >= 0xd800 && c < 0xe000)) c = 0xfffd; /* names are C strings; half a pair is no character */
    if (c < 0x80) {
        ep_text_char(out, (char)c);
        return;
    }
    char b[4];
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = n - 1; i > 0; i--, c >>= 6) b[i] = (char)(0x80 | (c & 0x3f));
    b[0] = (char)(lead[n] | c);
    ep_text_addn(out, b, n);
}

/* The escape at s (a backslash); returns its length, or 0 if it is none. */
static size_t decode_escape(const char *s, size_t n, ep_text *out) {
    static const char names[] = "\"\"\\\\//b\bf\fn\nr\rt\t";
    if (n < 2) return 0;
    if (s[1] == 'u') {
        int c = n >= 6 ? hex4(s + 2) : -1;
        if (c < 0) return 0;
        if (c >= 0xd800 && c < 0xdc00 && n >= 12 && s[6] == '\\' && s[7] == 'u') {
            int low = hex4(s + 8);
            if (low >= 0xdc00 && low < 0xe000) {
                add_utf8(out, 0x10000u + ((unsigned)(c - 0xd800) << 10) + (unsigned)(low - 0xdc00));
                return 12;
            }
        }
        add_utf8(out, (unsigned)c);
        return 6;
    }
    for (const char *p = names; *p; p += 2) {
        if (*p != s[1]) continue;
        ep_text_char(out, p[1]);
        return 2;
    }
    return 0;
}

/* A string with one backslash that escapes nothing was written by something that escapes none: C:\Users\new. There every
 * backslash stands for itself; only a quote's is one that the text needed. */
static bool is_unescaped(const char *s, size_t n) {
    ep_text ignored = {0};
    bool found = false;
    for (const char *p = s, *end = s + n; !found && (p = memchr(p, '\\', (size_t)(end - p)));) {
        size_t used = decode_escape(p, (size_t)(end - p), &ignored);
        found = used == 0;
        p += used;
    }
    ep_text_free(&ignored);
    return found;
}

bool ep_string_decode_into(ep_string_decode *d, const char *s, size_t n, ep_text *out) {
    const char *p = s, *end = s + n;
    bool unescaped = d->tolerant && is_unescaped(s, n);
    while (p < end) {
        const char *from = p;
        p = ep_json_scan(p, end);
        ep_text_addn(out, from, (size_t)(p - from));
        if (p == end) break;
        const char *kind;
        size_t used;
        if (*p == '\\') {
            bool literal = unescaped && !(end - p >= 2 && p[1] == '"');
            used = literal ? 0 : decode_escape(p, (size_t)(end - p), out);
            kind = "backslash";
        } else if ((unsigned char)*p >= 0x80) {
            used = ep_utf8_length(p, (size_t)(end - p));
            ep_text_addn(out, p, used);
            kind = "invalid_utf8";
        } else {
            used = 0;
            kind = *p == '"' ? "raw_quote" : "control_byte";
        }
        if (!used) {
            if (!d->tolerant) {
                d->bad_offset = d->offset + (p - s);
                return false;
            }
            if (d->mend) d->mend(d->user, kind, d->offset + (p - s));
            if ((unsigned char)*p >= 0x80 || *p == 0)
                add_utf8(out, 0xfffd);
            else
                ep_text_char(out, *p);
            used = 1;
        }
        p += used;
    }
    return true;
}
