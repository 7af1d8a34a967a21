/* Streaming JSON writer: commas and escapes are its care, so that what it wrote always parses. Values go into `text`;
 * with a flush function the text is handed on whenever it is large, else it stays there for the caller. A misuse (a value
 * where a key must stand) is an assert. After a failure `failed` is set and later calls do nothing. */
#ifndef EP_BASE_JSON_WRITE_H
#define EP_BASE_JSON_WRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "text.h"

enum { EP_JSON_MAX_DEPTH = 128 };

typedef struct ep_json_out {
    ep_text text;
    bool (*flush)(void *user, const char *data, size_t n); /* false: stop; NULL: keep everything in `text` */
    void *user;
    int depth;
    char open[EP_JSON_MAX_DEPTH]; /* '{' or '[' a level */
    bool any[EP_JSON_MAX_DEPTH];  /* a member was written at this level */
    bool after_key, failed;
    int indent; /* 0: one line; else spaces a level */
} ep_json_out;

/* A zeroed struct is ready to write. */
void ep_json_object(ep_json_out *o);
void ep_json_array(ep_json_out *o);
void ep_json_end(ep_json_out *o); /* closes the innermost object or array */
void ep_json_key(ep_json_out *o, const char *key);
void ep_json_str(ep_json_out *o, const char *s); /* NULL: null. Bytes that are no UTF-8 become U+FFFD */
void ep_json_strn(ep_json_out *o, const char *s, size_t n);
void ep_json_int(ep_json_out *o, int64_t v);
void ep_json_uint(ep_json_out *o, uint64_t v);
void ep_json_fixed(ep_json_out *o, double v, int decimals); /* null if not finite */
void ep_json_us(ep_json_out *o, int64_t ns);                /* nanoseconds as microseconds, exact: 1500 -> 1.5 */
void ep_json_bool(ep_json_out *o, bool v);
void ep_json_null(ep_json_out *o);
void ep_json_raw(ep_json_out *o, const char *json, size_t n);     /* one value as it stands */
void ep_json_members(ep_json_out *o, const char *json, size_t n); /* members of an object, one or more, as they stand */
void ep_json_newline(ep_json_out *o); /* a line break before the next member; for one event a line */
/* A member: its key and its value in one call. */
void ep_json_put_str(ep_json_out *o, const char *key, const char *s);
void ep_json_put_int(ep_json_out *o, const char *key, int64_t v);
void ep_json_put_uint(ep_json_out *o, const char *key, uint64_t v);
void ep_json_put_known(ep_json_out *o, const char *key, int64_t v); /* null below 0 */
void ep_json_put_fixed(ep_json_out *o, const char *key, double v, int decimals);
void ep_json_put_us(ep_json_out *o, const char *key, int64_t ns);
void ep_json_put_bool(ep_json_out *o, const char *key, bool v);
void ep_json_put_object(ep_json_out *o, const char *key); /* opens it; ep_json_end closes it */
void ep_json_put_array(ep_json_out *o, const char *key);
/* Flushes the rest; false if anything failed. */
bool ep_json_finish(ep_json_out *o);
/* malloc'ed text of everything (no flush function), or NULL if something failed; the struct is empty after. */
char *ep_json_take(ep_json_out *o);
void ep_json_free(ep_json_out *o);

/* Appends s in quotes, escaped, to a text. */
void ep_json_quote(ep_text *t, const char *s, size_t n);
/* The length of the valid UTF-8 sequence at s (n bytes left), or 0. */
size_t ep_utf8_length(const char *s, size_t n);

#endif
