/* Escapes, separators and numbers of the JSON writer. */
#include "json_write.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FLUSH_AT = 1 << 16 };

size_t ep_utf8_length(const char *text, size_t n) {
    const unsigned char *s = (const unsigned char *)text;
    if (n == 0) return 0;
    if (s[0] < 0x80) return 1;
    if (s[0] < 0xc2 || s[0] > 0xf4) return 0;
    size_t need = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    if (n < need) return 0;
    for (size_t i = 1; i < need; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    if (s[0] == 0xe0 && s[1] < 0xa0) return 0; /* longer than it needs to be */
    if (s[0] == 0xed && s[1] > 0x9f) return 0; /* half of a surrogate pair */
    if (s[0] == 0xf0 && s[1] < 0x90) return 0;
    if (s[0] == 0xf4 && s[1] > 0x8f) return 0;
    return need;
}

/* Bytes that can stand in a string as they are. */
static bool is_plain(char c) {
    return (unsigned char)c >= 0x20 && (unsigned char)c < 0x80 && c != '"' && c != '\\';
}

static void quote_byte(ep_text *t, unsigned char c) {
    static const char names[] = "\"\"\\\\\bb\ff\nn\rr\tt";
    for (const char *p = names; *p; p += 2) {
        if ((unsigned char)*p != c) continue;
        ep_text_char(t, '\\');
        ep_text_char(t, p[1]);
        return;
    }
    if (c < 0x20)
        ep_text_printf(t, "\\u%04x", c);
    else
        ep_text_add(t, "\xef\xbf\xbd");
}

void ep_json_quote(ep_text *t, const char *s, size_t n) {
    ep_text_char(t, '"');
    for (size_t i = 0; i < n;) {
        size_t from = i;
        while (i < n && is_plain(s[i])) i++;
        ep_text_addn(t, s + from, i - from);
        if (i == n) break;
        size_t more = (unsigned char)s[i] >= 0x80 ? ep_utf8_length(s + i, n - i) : 0;
        if (more)
            ep_text_addn(t, s + i, more);
        else
            quote_byte(t, (unsigned char)s[i]);
        i += more ? more : 1;
    }
    ep_text_char(t, '"');
}

static void put(ep_json_out *o, const char *s, size_t n) {
    ep_text_addn(&o->text, s, n);
}

static void line(ep_json_out *o, int depth) {
    ep_text_char(&o->text, '\n');
    ep_text_pad(&o->text, ' ', (size_t)(depth * o->indent));
}

/* What stands before a value or key: a comma, a line break. */
static bool lead(ep_json_out *o, bool key) {
    (void)key; /* only asserted */
    if (o->failed) return false;
    if (o->text.failed) {
        o->failed = true;
        return false;
    }
    if (o->flush && o->text.len >= FLUSH_AT) {
        o->failed = !o->flush(o->user, o->text.data, o->text.len);
        ep_text_clear(&o->text);
        if (o->failed) return false;
    }
    if (o->after_key) {
        assert(!key);
        o->after_key = false;
        return true;
    }
    if (o->depth) {
        assert((o->open[o->depth - 1] == '{') == key);
        if (o->any[o->depth - 1]) ep_text_char(&o->text, ',');
        o->any[o->depth - 1] = true;
        if (o->indent) line(o, o->depth);
    }
    return true;
}

static void open_level(ep_json_out *o, char c) {
    if (!lead(o, false)) return;
    if (o->depth == EP_JSON_MAX_DEPTH) {
        o->failed = true;
        return;
    }
    o->open[o->depth] = c;
    o->any[o->depth++] = false;
    ep_text_char(&o->text, c);
}

void ep_json_object(ep_json_out *o) {
    open_level(o, '{');
}

void ep_json_array(ep_json_out *o) {
    open_level(o, '[');
}

void ep_json_end(ep_json_out *o) {
    if (o->failed) return;
    assert(o->depth > 0 && !o->after_key);
    o->depth--;
    if (o->indent && o->any[o->depth]) line(o, o->depth);
    ep_text_char(&o->text, o->open[o->depth] == '{' ? '}' : ']');
}

void ep_json_key(ep_json_out *o, const char *key) {
    if (!lead(o, true)) return;
    ep_json_quote(&o->text, key, strlen(key));
    put(o, ": ", 2);
    o->after_key = true;
}

void ep_json_strn(ep_json_out *o, const char *s, size_t n) {
    if (lead(o, false)) ep_json_quote(&o->text, s, n);
}

void ep_json_str(ep_json_out *o, const char *s) {
    if (s)
        ep_json_strn(o, s, strlen(s));
    else
        ep_json_null(o);
}

void ep_json_int(ep_json_out *o, int64_t v) {
    if (lead(o, false)) ep_text_printf(&o->text, "%" PRId64, v);
}

void ep_json_uint(ep_json_out *o, uint64_t v) {
    if (lead(o, false)) ep_text_printf(&o->text, "%" PRIu64, v);
}

void ep_json_fixed(ep_json_out *o, double v, int decimals) {
    if (!isfinite(v)) {
        ep_json_null(o);
        return;
    }
    if (lead(o, false)) ep_text_printf(&o->text, "%.*f", decimals, v);
}

void ep_json_us(ep_json_out *o, int64_t ns) {
    if (!lead(o, false)) return;
    uint64_t size = ns < 0 ? 0 - (uint64_t)ns : (uint64_t)ns;
    int rest = (int)(size % 1000), digits = 3;
    if (ns < 0) ep_text_char(&o->text, '-');
    ep_text_printf(&o->text, "%" PRIu64, size / 1000);
    if (rest == 0) return;
    for (; rest % 10 == 0; rest /= 10) digits--;
    ep_text_printf(&o->text, ".%0*d", digits, rest);
}

void ep_json_bool(ep_json_out *o, bool v) {
    if (lead(o, false)) ep_text_add(&o->text, v ? "true" : "false");
}

void ep_json_null(ep_json_out *o) {
    if (lead(o, false)) ep_text_add(&o->text, "null");
}

void ep_json_raw(ep_json_out *o, const char *json, size_t n) {
    if (lead(o, false)) put(o, json, n);
}

void ep_json_members(ep_json_out *o, const char *json, size_t n) {
    if (lead(o, true)) put(o, json, n);
}

void ep_json_newline(ep_json_out *o) {
    if (!o->failed) ep_text_char(&o->text, '\n');
}

void ep_json_put_str(ep_json_out *o, const char *key, const char *s) {
    ep_json_key(o, key);
    ep_json_str(o, s);
}

void ep_json_put_int(ep_json_out *o, const char *key, int64_t v) {
    ep_json_key(o, key);
    ep_json_int(o, v);
}

void ep_json_put_uint(ep_json_out *o, const char *key, uint64_t v) {
    ep_json_key(o, key);
    ep_json_uint(o, v);
}

void ep_json_put_known(ep_json_out *o, const char *key, int64_t v) {
    ep_json_key(o, key);
    if (v >= 0)
        ep_json_int(o, v);
    else
        ep_json_null(o);
}

void ep_json_put_fixed(ep_json_out *o, const char *key, double v, int decimals) {
    ep_json_key(o, key);
    ep_json_fixed(o, v, decimals);
}

void ep_json_put_us(ep_json_out *o, const char *key, int64_t ns) {
    ep_json_key(o, key);
    ep_json_us(o, ns);
}

void ep_json_put_bool(ep_json_out *o, const char *key, bool v) {
    ep_json_key(o, key);
    ep_json_bool(o, v);
}

void ep_json_put_object(ep_json_out *o, const char *key) {
    ep_json_key(o, key);
    ep_json_object(o);
}

void ep_json_put_array(ep_json_out *o, const char *key) {
    ep_json_key(o, key);
    ep_json_array(o);
}

bool ep_json_finish(ep_json_out *o) {
    if (o->text.failed) o->failed = true;
    if (!o->failed && o->flush && o->text.len) {
        o->failed = !o->flush(o->user, o->text.data, o->text.len);
        ep_text_clear(&o->text);
    }
    return !o->failed;
}

char *ep_json_take(ep_json_out *o) {
    char *text = o->failed ? NULL : ep_text_take(&o->text);
    ep_json_free(o);
    return text;
}

void ep_json_free(ep_json_out *o) {
    ep_text_free(&o->text);
    memset(o, 0, sizeof *o);
}
