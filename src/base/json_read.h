/* Pull parser for JSON in bounded memory: one token a call, text never held beyond the token (and what lies behind a
 * mark). Every error has its byte position. In tolerant mode it mends what the field produces and reports each mend:
 *   control_byte   a raw control byte in a string: taken as itself (a zero byte as U+FFFD)
 *   invalid_utf8   bytes that are no UTF-8: U+FFFD each
 *   backslash      a backslash that escapes nothing ("C:\Users"): a backslash
 *   raw_quote      a quote in a string that the writer did not escape ("say "hi" now"): taken as itself
 *   bare_number    inf, nan, Infinity and their like: null
 *   missing_comma  a value or key where a comma must stand
 *   extra_comma    a comma too many
 * Everything else is an error, and the caller may set the parser back into a container (ep_json_resume_at_value). */
#ifndef EP_BASE_JSON_READ_H
#define EP_BASE_JSON_READ_H

#include "file.h"
#include "text.h"

enum { EP_JSON_READ_DEPTH = 256 };

/* What may come next. */
typedef enum ep_json_expect {
    EP_JSON_EXPECT_VALUE,
    EP_JSON_EXPECT_VALUE_OR_END,
    EP_JSON_EXPECT_KEY,
    EP_JSON_EXPECT_KEY_OR_END,
    EP_JSON_EXPECT_COLON,
    EP_JSON_EXPECT_COMMA
} ep_json_expect;

typedef enum ep_json_type {
    EP_JSON_END, /* of the input, outside every container */
    EP_JSON_OBJECT,
    EP_JSON_OBJECT_END,
    EP_JSON_ARRAY,
    EP_JSON_ARRAY_END,
    EP_JSON_KEY,
    EP_JSON_STRING,
    EP_JSON_NUMBER,
    EP_JSON_TRUE,
    EP_JSON_FALSE,
    EP_JSON_NULL
} ep_json_type;

typedef struct ep_json_token {
    ep_json_type type;
    const char *text; /* KEY and STRING: decoded, not terminated; NUMBER: as written. Until the next call */
    size_t len;
    int64_t offset; /* of its first byte in the (unpacked) input */
} ep_json_token;

typedef struct ep_json_in {
    /* The window of the input that is in memory: unread bytes are [at, end). */
    const char *at, *end;
    int64_t base; /* input offset of `window` */
    const char *window;
    const char *mark; /* bytes from here on stay in the window, or NULL */
    ep_stream_in *stream;
    char *buffer; /* NULL: the window is the caller's memory */
    size_t buffer_size, buffer_limit;
    bool at_end; /* the stream has no more */
    bool tolerant;
    void (*mend)(void *user, const char *kind, int64_t offset);
    void *mend_user;
    ep_text scratch; /* decoded strings */
    int depth;
    uint8_t in_object[EP_JSON_READ_DEPTH];
    ep_json_expect expect;
    ep_error *err;
} ep_json_in;

/* Over memory (which must stay) or a stream (which stays the caller's). `err` is filled by every failing call. */
void ep_json_open_memory(ep_json_in *j, const char *data, size_t size, ep_error *err);
ep_status ep_json_open_stream(ep_json_in *j, ep_stream_in *stream, size_t window, ep_error *err);
void ep_json_close(ep_json_in *j);

ep_status ep_json_next(ep_json_in *j, ep_json_token *out);
/* Reads over the next value. */
ep_status ep_json_skip(ep_json_in *j);
/* Appends the next value as JSON text in one form: ", " and ": " between, strings escaped anew. Above `limit` bytes
 * the rest is read over and *whole is false. */
ep_status ep_json_copy(ep_json_in *j, ep_text *out, size_t limit, bool *whole);
/* The same for a value whose first token was read already. */
ep_status ep_json_skip_rest(ep_json_in *j, const ep_json_token *first);
ep_status ep_json_copy_rest(ep_json_in *j, const ep_json_token *first, ep_text *out, size_t limit, bool *whole);

/* Offset of the next unread byte. */
static inline int64_t ep_json_offset(const ep_json_in *j) {
    return j->base + (j->at - j->window);
}
/* Gets more bytes behind `end`; the ones from `at` (or the mark) on stay. False at the end of the input, or on an error,
 * which the next call of ep_json_next reports. */
bool ep_json_more(ep_json_in *j);
/* Bytes from `at` on stay in the window until the next mark or unmark, so that `at` can be set back. */
void ep_json_set_mark(ep_json_in *j);
void ep_json_unmark(ep_json_in *j);

/* For a caller that can read the plain case of a member by itself: in an array, if an object comes next and the bytes
 * are in the window, reads over what stands before it and returns where it begins (a '{'); else NULL and nothing is read.
 * ep_json_took then says where it ended. */
const char *ep_json_at_object(ep_json_in *j);
static inline void ep_json_took(ep_json_in *j, const char *end) {
    j->at = end;
    j->expect = EP_JSON_EXPECT_COMMA;
}
/* Sets the parser to: in a container at `depth`, a value comes or the container's end. */
void ep_json_resume_at_value(ep_json_in *j, int depth);

/* Text of a JSON number to an integer in units of 10^-decimals, exact, rounded half away from zero where digits are
 * finer: ("12.3456", 3) -> 12346. False if it is no number or does not fit. */
bool ep_json_decimal(const char *s, size_t n, int decimals, int64_t *out);
/* A whole number from 0 to 2^64-1. */
bool ep_json_u64(const char *s, size_t n, uint64_t *out);

#endif
