/* The plain case of an event, read in one pass over the window: strict JSON with nothing to mend. Whatever is odd goes to
 * kineto_slow.c, which reads the same event from its start; both give the same raw event. */
#include <string.h>

#include "base/json_scan.h"
#include "base/json_write.h"
#include "kineto.h"

enum { FAST_DEPTH = 32 };

typedef struct cursor {
    const char *p, *end;
    fast_result why; /* of a stop */
    bool loose;      /* the value read over is not in the form that ep_json_copy writes */
} cursor;

static bool stop(cursor *c, fast_result why) {
    c->why = why;
    return false;
}

static inline bool skip_space(cursor *c) {
    c->p = ep_json_skip_space(c->p, c->end);
    return c->p < c->end ? true : stop(c, FAST_MORE);
}

static bool is_hex(char c) {
    return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f');
}

/* An escape that JSON knows; NULL if it is none, or the window's end if it may go on there. */
static const char *skip_escape(const char *p, const char *end) {
    if (end - p < 6) return end;
    if (p[1] != 'u') return memchr("\"\\/bfnrt", p[1], 8) ? p + 2 : NULL;
    return is_hex(p[2]) && is_hex(p[3]) && is_hex(p[4]) && is_hex(p[5]) ? p + 6 : NULL;
}

/* Reads over a string; c->p is its opening quote. *plain: it holds no escape. */
static inline bool skip_string(cursor *c, bool *plain) {
    const char *p = c->p + 1;
    *plain = true;
    for (;;) {
        p = ep_json_scan(p, c->end);
        if (p == c->end) return stop(c, FAST_MORE);
        if (*p == '"') break;
        if (*p == '\\') {
            *plain = false;
            p = skip_escape(p, c->end);
            if (!p) return stop(c, FAST_ODD);
            if (p == c->end) return stop(c, FAST_MORE);
            continue;
        }
        if ((unsigned char)*p < 0x20) return stop(c, FAST_ODD);
        size_t n = ep_utf8_length(p, (size_t)(c->end - p));
        if (n == 0) return stop(c, c->end - p < 4 ? FAST_MORE : FAST_ODD);
        p += n;
    }
    c->p = p + 1;
    return true;
}

static const char *skip_digits(const char *p, const char *end) {
    while (p < end && (unsigned)(*p - '0') < 10) p++;
    return p;
}

/* What stands behind a number. */
static inline bool ends_number(char c) {
    return c == ',' || c == '}' || c == ']' || ep_json_is_space(c);
}

static bool skip_number(cursor *c) {
    const char *p = c->p, *end = c->end;
    if (*p == '-') p++;
    const char *digits = p;
    p = skip_digits(p, end);
    if (p == digits) return stop(c, p == end ? FAST_MORE : FAST_ODD);
    if (p < end && *p == '.') {
        const char *fraction = p + 1;
        p = skip_digits(fraction, end);
        if (p == fraction) return stop(c, p == end ? FAST_MORE : FAST_ODD);
    }
    if (p < end && (*p | 0x20) == 'e') {
        p++;
        if (p < end && (*p == '-' || *p == '+')) p++;
        const char *exponent = p;
        p = skip_digits(p, end);
        if (p == exponent) return stop(c, p == end ? FAST_MORE : FAST_ODD);
    }
    if (p == end) return stop(c, FAST_MORE);
    if (!ends_number(*p)) return stop(c, FAST_ODD); /* a word like 1.#INF */
    c->p = p;
    return true;
}

/* The same for digits, or digits with decimals, that sixteen bytes hold: without a loop, whose length nobody foresees. */
static inline bool skip_short_number(cursor *c) {
#if defined(__SSE2__)
    if (c->end - c->p >= 17) {
        __m128i v = _mm_loadu_si128((const __m128i *)(const void *)c->p);
        __m128i digit = _mm_sub_epi8(v, _mm_set1_epi8('0'));
        unsigned others = ~(unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_min_epu8(digit, _mm_set1_epi8(9)), digit));
        unsigned n = (unsigned)__builtin_ctz(others | 1u << 16);
        if (n && c->p[n] == '.' && n < 15) {
            unsigned m = (unsigned)__builtin_ctz((others | 1u << 16) >> (n + 1));
            n = m ? n + 1 + m : 0;
        }
        if (n && ends_number(c->p[n])) {
            c->p += n;
            return true;
        }
    }
#endif
    return skip_number(c);
}

static bool skip_word(cursor *c) {
    static const char *const words[] = {"true", "false", "null"};
    if (c->end - c->p < 6) return stop(c, FAST_MORE);
    for (int i = 0; i < 3; i++) {
        size_t n = strlen(words[i]);
        if (memcmp(c->p, words[i], n) != 0) continue;
        c->p += n;
        return true;
    }
    return stop(c, FAST_ODD);
}

static bool skip_value(cursor *c, int depth);

static bool skip_key(cursor *c) {
    bool plain;
    if (*c->p != '"') return stop(c, FAST_ODD);
    if (!skip_string(c, &plain)) return false;
    const char *from = c->p;
    if (!skip_space(c)) return false;
    if (*c->p != ':') return stop(c, FAST_ODD);
    c->p++;
    if (!skip_space(c)) return false;
    if (!plain || c->p != from + 2 || from[1] != ' ') c->loose = true;
    return true;
}

/* Reads over an array or object; c->p is its opening bracket. */
static bool skip_container(cursor *c, int depth) {
    bool object = *c->p == '{';
    char close = object ? '}' : ']';
    if (depth == FAST_DEPTH) return stop(c, FAST_ODD);
    const char *from = ++c->p;
    if (!skip_space(c)) return false;
    if (c->p != from) c->loose = true;
    if (*c->p == close) {
        c->p++;
        return true;
    }
    for (;;) {
        if (object && !skip_key(c)) return false;
        if (!skip_value(c, depth + 1)) return false;
        from = c->p;
        if (!skip_space(c)) return false;
        if (c->p != from) c->loose = true;
        if (*c->p == close) break;
        if (*c->p != ',') return stop(c, FAST_ODD);
        from = ++c->p;
        if (!skip_space(c)) return false;
        if (c->p != from + 1 || *from != ' ') c->loose = true;
    }
    c->p++;
    return true;
}

/* The arrays that Kineto writes, in the one form it writes them in: numbers, plain strings and more arrays, parted by
 * ", ". False, and nothing read, for everything else. */
static bool skip_plain_array(cursor *c) {
    const char *p = c->p, *end = c->end - 1; /* one byte ahead can always be looked at */
    int depth = 0;
    while (p < end) {
        if (*p == '[') { /* a value must stand here */
            p++;
            depth++;
            if (p < end && *p != ']') continue;
        } else if (*p == '"') {
            p = ep_json_scan(p + 1, end);
            if (p >= end || *p != '"') return false;
            p++;
        } else {
            const char *digits = p += *p == '-';
            while (p < end && (unsigned)(*p - '0') < 10) p++;
            if (p == digits) return false;
        }
        while (p < end && *p == ']') {
            p++;
            if (--depth == 0) {
                c->p = p;
                return true;
            }
        }
        if (p >= end || *p != ',' || p[1] != ' ') return false;
        p += 2;
    }
    return false;
}

static bool skip_value(cursor *c, int depth) {
    bool plain;
    switch (*c->p) {
    case '"':
        if (!skip_string(c, &plain)) return false;
        if (!plain) c->loose = true;
        return true;
    case '[':
        if (skip_plain_array(c)) return true;
        return skip_container(c, depth);
    case '{': return skip_container(c, depth);
    case 't':
    case 'f':
    case 'n': return skip_word(c);
    default: return skip_short_number(c);
    }
}

enum { AHEAD = 64 }; /* with that many bytes in the window, a few may be looked at without asking */

/* A key, its colon and the blank behind; leaves the key's inside in *key and returns its number, -1 on a stop. */
static int read_key(cursor *c, kineto_keys *keys, slice *key) {
    const char *from = c->p + 1;
    int guess = keys->follows[keys->set][keys->last];
    const kineto_pattern *pattern = &keys->patterns[guess];
    if (c->end - c->p >= AHEAD && pattern->length && ep_json_starts(c->p, pattern->text, pattern->length)) {
        *key = (slice){from, pattern->length - 3u};
        keys->last = (uint8_t)guess;
        c->p += pattern->length;
        if (c->p[0] == ' ' && c->p[1] > ' ') {
            c->p++;
            return guess;
        }
        return skip_space(c) ? guess : -1;
    }
    bool plain;
    if (*c->p != '"') return stop(c, FAST_ODD) - 1;
    if (!skip_string(c, &plain)) return -1;
    if (!plain) return stop(c, FAST_ODD) - 1;
    *key = (slice){from, (size_t)(c->p - 1 - from)};
    if (!skip_space(c)) return -1;
    if (*c->p != ':') return stop(c, FAST_ODD) - 1;
    c->p++;
    return skip_space(c) ? kineto_keys_find(keys, key->s, key->n) : -1;
}

/* After a member: true if another one follows; c->p at it. *closed: the object ended. */
static inline bool next_member(cursor *c, bool *closed) {
    *closed = false;
    if (c->end - c->p >= AHEAD && c->p[0] == ',' && c->p[1] == ' ' && c->p[2] == '"') {
        c->p += 2;
        return true;
    }
    if (!skip_space(c)) return false;
    *closed = *c->p == '}';
    if (*closed) {
        c->p++;
        return true;
    }
    if (*c->p != ',') return stop(c, FAST_ODD);
    c->p++;
    return skip_space(c);
}

/* A value in the one form in which equal values are equal text. */
static bool tighten(kineto_reader *r, slice *v) {
    ep_error ignored;
    ep_json_in j;
    ep_text text = {0};
    ep_json_open_memory(&j, v->s, v->n, &ignored);
    bool ok = ep_json_copy(&j, &text, SIZE_MAX, NULL) == EP_OK;
    const char *copy = ok ? ep_arena_copy(&r->slow, ep_text_str(&text), text.len) : NULL;
    if (copy) *v = (slice){copy, text.len};
    ep_text_free(&text);
    ep_json_close(&j);
    return copy != NULL;
}

static bool read_args(kineto_reader *r, cursor *c) {
    raw_event *e = &r->raw;
    const char *from = c->p;
    if (*c->p != '{') return skip_value(c, 1); /* args that are no object say nothing */
    c->p++;
    if (!skip_space(c)) return false;
    bool closed = *c->p == '}';
    if (closed) c->p++;
    while (!closed) {
        slice key;
        int arg = read_key(c, &r->args, &key);
        if (arg < 0) return false;
        slice value = {c->p, 0};
        c->loose = false;
        if ((unsigned)(*c->p - '0') < 10 ? !skip_short_number(c) : !skip_value(c, 2)) return false;
        value.n = (size_t)(c->p - value.s);
        bool wanted = arg != ARG_UNKNOWN && kineto_arg_rows[arg].keep != KEEP_DROP;
        if (wanted && c->loose && !tighten(r, &value)) return stop(c, FAST_ODD);
        if (wanted) kineto_set_arg(r, e, (kineto_arg)arg, key, value);
        if (!next_member(c, &closed)) return false;
    }
    if (r->keep_args) e->args = (slice){from, (size_t)(c->p - from)};
    return true;
}

static bool read_field(kineto_reader *r, cursor *c, kineto_field field) {
    if (field == FIELD_ARGS) return read_args(r, c);
    const char *value = c->p;
    if (*value != '"') {
        if ((unsigned)(*value - '0') < 10 ? !skip_short_number(c) : !skip_value(c, 1)) return false;
        if (field != FIELD_UNKNOWN && *value != '{' && *value != '[')
            kineto_set_field(&r->raw, field, (slice){value, (size_t)(c->p - value)}, false);
        return true;
    }
    bool plain;
    if (!skip_string(c, &plain)) return false;
    if (!plain && field != FIELD_UNKNOWN) return stop(c, FAST_ODD);
    slice inside = {value + 1, (size_t)(c->p - value - 2)};
    kineto_set_field(&r->raw, field, inside, true);
    if (field == FIELD_PH) r->fields.set = (uint8_t)r->raw.phase % KEY_SETS;
    if (field == FIELD_CAT && inside.n) r->args.set = ((uint8_t)inside.s[inside.n - 1] * 5u + inside.n * 3u) % KEY_SETS;
    return true;
}

fast_result kineto_fast_event(kineto_reader *r, const char *p, const char *end, const char **after) {
    cursor c = {p + 1, end, FAST_OK, false};
    if (!skip_space(&c)) return c.why;
    if (*c.p == '}') return FAST_ODD; /* an empty object is damage, and counted */
    for (bool closed = false; !closed;) {
        slice key;
        int field = read_key(&c, &r->fields, &key);
        if (field < 0) return c.why;
        if (!read_field(r, &c, (kineto_field)field) || !next_member(&c, &closed)) return c.why;
    }
    r->raw.any = true;
    *after = c.p;
    return FAST_OK;
}
