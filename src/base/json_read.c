/* Tokens, containers and the window over the input. */
#include "json_read.h"

#include <stdlib.h>
#include <string.h>

#include "json_scan.h"
#include "json_string.h"
#include "json_write.h"

enum { WINDOW_LIMIT = 1 << 28 };

void ep_json_open_memory(ep_json_in *j, const char *data, size_t size, ep_error *err) {
    memset(j, 0, sizeof *j);
    j->window = j->at = data;
    j->end = data + size;
    j->at_end = true;
    j->err = err;
}

ep_status ep_json_open_stream(ep_json_in *j, ep_stream_in *stream, size_t window, ep_error *err) {
    memset(j, 0, sizeof *j);
    j->err = err;
    j->buffer = malloc(window);
    if (!j->buffer) return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory for a window of %zu bytes", window);
    j->buffer_size = window;
    j->buffer_limit = WINDOW_LIMIT;
    j->stream = stream;
    j->window = j->at = j->end = j->buffer;
    return EP_OK;
}

void ep_json_close(ep_json_in *j) {
    free(j->buffer);
    ep_text_free(&j->scratch);
    memset(j, 0, sizeof *j);
}

void ep_json_set_mark(ep_json_in *j) {
    j->mark = j->at;
}

void ep_json_unmark(ep_json_in *j) {
    j->mark = NULL;
}

/* Moves what must stay to the front of the buffer, or into a larger one if nothing can be moved. */
static bool make_room(ep_json_in *j) {
    const char *from = j->mark ? j->mark : j->at;
    size_t kept = (size_t)(j->end - from), at = (size_t)(j->at - from);
    if (kept > j->buffer_size / 2) {
        if (j->buffer_size >= j->buffer_limit) return false;
        char *larger = malloc(j->buffer_size * 2);
        if (!larger) return false;
        memcpy(larger, from, kept);
        free(j->buffer);
        j->buffer = larger;
        j->buffer_size *= 2;
    } else {
        memmove(j->buffer, from, kept);
    }
    j->base += from - j->window;
    if (j->mark) j->mark = j->buffer;
    j->window = j->buffer;
    j->at = j->buffer + at;
    j->end = j->buffer + kept;
    return true;
}

bool ep_json_more(ep_json_in *j) {
    if (j->at_end) return false;
    size_t got = 0;
    if (!make_room(j)) {
        ep_fail_at(j->err, EP_ERROR_OVERFLOW, ep_json_offset(j), "one value is longer than %zu bytes",
                   j->buffer_limit / 2);
        j->at_end = true;
        return false;
    }
    char *free_part = j->buffer + (j->end - j->window);
    if (ep_stream_read(j->stream, free_part, j->buffer_size - (size_t)(j->end - j->window), j->err, &got) != EP_OK ||
        got == 0) {
        j->at_end = true;
        return false;
    }
    j->end += got;
    return true;
}

/* The byte at `at`, after getting more if there is none; -1 at the end. */
static int peek(ep_json_in *j) {
    if (j->at == j->end && !ep_json_more(j)) return -1;
    return (unsigned char)*j->at;
}

static int peek_past_space(ep_json_in *j) {
    do {
        j->at = ep_json_skip_space(j->at, j->end);
        if (j->at < j->end) return (unsigned char)*j->at;
    } while (ep_json_more(j));
    return -1;
}

static void mend(ep_json_in *j, const char *kind, int64_t offset) {
    if (j->mend) j->mend(j->mend_user, kind, offset);
}

static ep_status fail(ep_json_in *j, const char *wanted) {
    int c = peek(j);
    int64_t at = ep_json_offset(j);
    if (c < 0) return ep_fail_at(j->err, EP_ERROR_TRUNCATED, at, "the text ends where %s was expected", wanted);
    if (c >= 0x20 && c < 0x7f) return ep_fail_at(j->err, EP_ERROR_PARSE, at, "'%c' where %s was expected", c, wanted);
    return ep_fail_at(j->err, EP_ERROR_PARSE, at, "byte 0x%02x where %s was expected", c, wanted);
}

/* Gets the whole string that begins at `at` (a quote) into the window and decodes it. */
static ep_status read_string(ep_json_in *j, ep_json_token *out) {
    ep_string_scan scan = {.tolerant = j->tolerant};
    if (out->type == EP_JSON_STRING && j->depth) {
        scan.after_member = j->in_object[j->depth - 1];
        scan.after_element = !scan.after_member;
    }
    j->at++;
    while (!ep_string_find_end(&scan, j->at, (size_t)(j->end - j->at))) {
        if (ep_json_more(j)) continue;
        if (scan.length) break; /* it ends with the input, but nothing follows that would tell so */
        return ep_fail_at(j->err, EP_ERROR_TRUNCATED, out->offset, "the text ends in a string that began here");
    }
    out->text = j->at;
    out->len = scan.length;
    if (scan.special) {
        ep_string_decode decode = {j->tolerant, j->mend, j->mend_user, ep_json_offset(j), -1};
        ep_text_clear(&j->scratch);
        if (!ep_string_decode_into(&decode, j->at, scan.length, &j->scratch))
            return ep_fail_at(j->err, EP_ERROR_PARSE, decode.bad_offset,
                              "a string holds a control byte, bytes that are no UTF-8 or an escape that is none");
        if (j->scratch.failed) return ep_fail(j->err, EP_ERROR_OUT_OF_MEMORY, "no memory for a string");
        out->text = ep_text_str(&j->scratch);
        out->len = j->scratch.len;
    }
    j->at += scan.length + 1;
    if (j->at > j->end) j->at = j->end;
    return EP_OK;
}

static bool is_word_byte(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '+' || c == '-' ||
           c == '.' || c == '#' || c == '_' || c == '(' || c == ')';
}

/* Bytes that a number or a bare word can consist of, all in the window. */
static size_t word_length(ep_json_in *j) {
    size_t n = 0;
    for (;;) {
        while (j->at + n < j->end && is_word_byte(j->at[n])) n++;
        if (j->at + n < j->end || n > 4096 || !ep_json_more(j)) return n;
    }
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool is_number(const char *s, size_t n) {
    const char *p = s, *end = s + n;
    if (p < end && *p == '-') p++;
    const char *digits = p;
    while (p < end && is_digit(*p)) p++;
    if (p == digits) return false;
    if (p < end && *p == '.') {
        const char *fraction = ++p;
        while (p < end && is_digit(*p)) p++;
        if (p == fraction) return false;
    }
    if (p < end && (*p == 'e' || *p == 'E')) {
        p++;
        if (p < end && (*p == '+' || *p == '-')) p++;
        const char *exponent = p;
        while (p < end && is_digit(*p)) p++;
        if (p == exponent) return false;
    }
    return p == end;
}

/* What printf and others write for a value that is no finite number. */
static bool is_not_finite(const char *s, size_t n) {
    static const char *const words[] = {"inf", "infinity", "nan", "1.#inf", "1.#ind", "1.#qnan", "1.#snan", "nan(ind)"};
    if (n && (*s == '-' || *s == '+')) s++, n--;
    for (size_t w = 0; w < sizeof words / sizeof *words; w++) {
        size_t i = 0;
        while (i < n && words[w][i] && (s[i] | 0x20) == (words[w][i] | 0x20)) i++;
        if (i == n && !words[w][i]) return true;
    }
    return false;
}

static bool word_is(const char *s, size_t n, const char *word) {
    return strlen(word) == n && memcmp(s, word, n) == 0;
}

static ep_status read_word(ep_json_in *j, ep_json_token *out) {
    size_t n = word_length(j);
    out->text = j->at;
    out->len = n;
    if (is_number(j->at, n))
        out->type = EP_JSON_NUMBER;
    else if (word_is(j->at, n, "true"))
        out->type = EP_JSON_TRUE;
    else if (word_is(j->at, n, "false"))
        out->type = EP_JSON_FALSE;
    else if (word_is(j->at, n, "null"))
        out->type = EP_JSON_NULL;
    else if (j->tolerant && is_not_finite(j->at, n)) {
        out->type = EP_JSON_NULL;
        mend(j, "bare_number", out->offset);
    } else if (n && j->at + n == j->end) {
        return ep_fail_at(j->err, EP_ERROR_TRUNCATED, out->offset, "the text ends in a value");
    } else {
        return fail(j, "a value");
    }
    j->at += n;
    return EP_OK;
}

static ep_status open_container(ep_json_in *j, bool object, ep_json_token *out) {
    if (j->depth == EP_JSON_READ_DEPTH)
        return ep_fail_at(j->err, EP_ERROR_PARSE, out->offset, "values are nested deeper than %d levels",
                          EP_JSON_READ_DEPTH);
    j->in_object[j->depth++] = object;
    j->at++;
    j->expect = object ? EP_JSON_EXPECT_KEY_OR_END : EP_JSON_EXPECT_VALUE_OR_END;
    out->type = object ? EP_JSON_OBJECT : EP_JSON_ARRAY;
    return EP_OK;
}

static ep_status close_container(ep_json_in *j, ep_json_token *out) {
    j->at++;
    out->type = j->in_object[--j->depth] ? EP_JSON_OBJECT_END : EP_JSON_ARRAY_END;
    j->expect = EP_JSON_EXPECT_COMMA;
    return EP_OK;
}

static ep_status read_value(ep_json_in *j, int c, ep_json_token *out) {
    if (c == '{' || c == '[') return open_container(j, c == '{', out);
    j->expect = EP_JSON_EXPECT_COMMA;
    if (c != '"') return read_word(j, out);
    out->type = EP_JSON_STRING;
    return read_string(j, out);
}

static ep_status read_key(ep_json_in *j, int c, ep_json_token *out) {
    if (c != '"') return fail(j, "a key in quotes");
    out->type = EP_JSON_KEY;
    EP_TRY(read_string(j, out));
    j->expect = EP_JSON_EXPECT_COLON;
    /* The colon is taken with the key unless the window ends here: a refill would move the key's text away. */
    const char *p = ep_json_skip_space(j->at, j->end);
    if (p < j->end && *p == ':') {
        j->at = p + 1;
        j->expect = EP_JSON_EXPECT_VALUE;
    }
    return EP_OK;
}

/* Takes the commas between two members. Leaves the next byte in *c. */
static ep_status read_comma(ep_json_in *j, int *c) {
    bool object = j->in_object[j->depth - 1];
    if (*c == (object ? '}' : ']')) return EP_OK;
    if (*c != ',') {
        bool next = *c == '"' || (!object && (*c == '{' || *c == '[' || *c == '-' || is_digit((char)*c)));
        if (!j->tolerant || !next) return fail(j, object ? "',' or '}'" : "',' or ']'");
        mend(j, "missing_comma", ep_json_offset(j));
    }
    j->expect = object ? EP_JSON_EXPECT_KEY : EP_JSON_EXPECT_VALUE;
    for (int commas = 0; *c == ','; commas++) {
        if (commas) {
            if (!j->tolerant) return fail(j, object ? "a key in quotes" : "a value");
            mend(j, "extra_comma", ep_json_offset(j));
        }
        j->at++;
        *c = peek_past_space(j);
    }
    return EP_OK;
}

static ep_status next_token(ep_json_in *j, ep_json_token *out) {
    int c = peek_past_space(j);
    if (j->expect == EP_JSON_EXPECT_COLON) {
        if (c != ':') return fail(j, "':'");
        j->at++;
        j->expect = EP_JSON_EXPECT_VALUE;
        c = peek_past_space(j);
    }
    if (j->expect == EP_JSON_EXPECT_COMMA && j->depth) EP_TRY(read_comma(j, &c));
    while (j->tolerant && c == ',' &&
           (j->expect == EP_JSON_EXPECT_KEY_OR_END || j->expect == EP_JSON_EXPECT_VALUE_OR_END)) {
        mend(j, "extra_comma", ep_json_offset(j));
        j->at++;
        c = peek_past_space(j);
    }
    out->offset = ep_json_offset(j);
    if (j->depth && c == (j->in_object[j->depth - 1] ? '}' : ']')) {
        if (j->expect == EP_JSON_EXPECT_COMMA || j->expect == EP_JSON_EXPECT_VALUE_OR_END ||
            j->expect == EP_JSON_EXPECT_KEY_OR_END)
            return close_container(j, out);
        /* After a comma; but never between a key and its value. */
        bool after_comma = j->expect == EP_JSON_EXPECT_KEY || !j->in_object[j->depth - 1];
        if (j->tolerant && after_comma) {
            mend(j, "extra_comma", out->offset);
            return close_container(j, out);
        }
    }
    if (j->expect == EP_JSON_EXPECT_COMMA) {
        if (c >= 0) return fail(j, "the end");
        out->type = EP_JSON_END;
        return EP_OK;
    }
    if (j->expect == EP_JSON_EXPECT_KEY || j->expect == EP_JSON_EXPECT_KEY_OR_END) return read_key(j, c, out);
    if (c < 0) return fail(j, "a value");
    return read_value(j, c, out);
}

ep_status ep_json_next(ep_json_in *j, ep_json_token *out) {
    out->text = "";
    out->len = 0;
    return next_token(j, out);
}

ep_status ep_json_skip_rest(ep_json_in *j, const ep_json_token *first) {
    if (first->type != EP_JSON_OBJECT && first->type != EP_JSON_ARRAY) return EP_OK;
    int depth = j->depth - 1;
    ep_json_token t;
    do EP_TRY(ep_json_next(j, &t));
    while (j->depth > depth);
    return EP_OK;
}

ep_status ep_json_skip(ep_json_in *j) {
    ep_json_token t;
    EP_TRY(ep_json_next(j, &t));
    return ep_json_skip_rest(j, &t);
}

static void copy_token(const ep_json_token *t, bool comma, ep_text *out) {
    if (comma) ep_text_add(out, ", ");
    switch (t->type) {
    case EP_JSON_OBJECT: ep_text_char(out, '{'); break;
    case EP_JSON_OBJECT_END: ep_text_char(out, '}'); break;
    case EP_JSON_ARRAY: ep_text_char(out, '['); break;
    case EP_JSON_ARRAY_END: ep_text_char(out, ']'); break;
    case EP_JSON_KEY:
        ep_json_quote(out, t->text, t->len);
        ep_text_add(out, ": ");
        break;
    case EP_JSON_STRING: ep_json_quote(out, t->text, t->len); break;
    case EP_JSON_NUMBER: ep_text_addn(out, t->text, t->len); break;
    case EP_JSON_TRUE: ep_text_add(out, "true"); break;
    case EP_JSON_FALSE: ep_text_add(out, "false"); break;
    default: ep_text_add(out, "null");
    }
}

ep_status ep_json_copy_rest(ep_json_in *j, const ep_json_token *first, ep_text *out, size_t limit, bool *whole) {
    size_t from = out->len;
    bool opens = first->type == EP_JSON_OBJECT || first->type == EP_JSON_ARRAY;
    int depth = j->depth - opens;
    bool fits = true, comma = false;
    ep_json_token t = *first;
    for (;;) {
        bool ends = t.type == EP_JSON_OBJECT_END || t.type == EP_JSON_ARRAY_END;
        if (fits) copy_token(&t, comma && !ends, out);
        if (out->len - from > limit) fits = false;
        comma = t.type != EP_JSON_KEY && t.type != EP_JSON_OBJECT && t.type != EP_JSON_ARRAY;
        if (j->depth == depth) break;
        EP_TRY(ep_json_next(j, &t));
    }
    if (whole) *whole = fits;
    return out->failed ? ep_fail(j->err, EP_ERROR_OUT_OF_MEMORY, "no memory for a value") : EP_OK;
}

ep_status ep_json_copy(ep_json_in *j, ep_text *out, size_t limit, bool *whole) {
    ep_json_token t;
    EP_TRY(ep_json_next(j, &t));
    return ep_json_copy_rest(j, &t, out, limit, whole);
}

void ep_json_resume_at_value(ep_json_in *j, int depth) {
    j->depth = depth;
    j->expect = EP_JSON_EXPECT_VALUE_OR_END;
}

const char *ep_json_at_object(ep_json_in *j) {
    if (j->depth == 0 || j->in_object[j->depth - 1]) return NULL;
    const char *p = ep_json_skip_space(j->at, j->end);
    if (j->expect == EP_JSON_EXPECT_COMMA) {
        if (p == j->end || *p != ',') return NULL;
        p = ep_json_skip_space(p + 1, j->end);
    }
    return p < j->end && *p == '{' ? p : NULL;
}
