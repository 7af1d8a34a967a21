/* Figures for people. */
#include "format.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

ep_figure ep_figure_us(double us) {
    ep_figure f;
    double size = fabs(us);
    if (!isfinite(us))
        snprintf(f.text, sizeof f.text, "?");
    else if (size < 999.95)
        snprintf(f.text, sizeof f.text, "%.1f us", us);
    else if (size < 9999.5)
        snprintf(f.text, sizeof f.text, "%.0f us", us);
    else if (size < 999950)
        snprintf(f.text, sizeof f.text, "%.1f ms", us * 1e-3);
    else
        snprintf(f.text, sizeof f.text, "%.2f s", us * 1e-6);
    return f;
}

ep_figure ep_figure_bytes(int64_t bytes) {
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    ep_figure f;
    double v = (double)bytes;
    size_t u = 0;
    while (v >= 999.5 && u + 1 < sizeof units / sizeof units[0]) v /= 1000, u++;
    if (bytes < 0)
        snprintf(f.text, sizeof f.text, "?");
    else
        snprintf(f.text, sizeof f.text, u ? "%.1f %s" : "%.0f %s", v, units[u]);
    return f;
}

ep_figure ep_figure_count(int64_t n) {
    ep_figure f;
    char digits[24];
    int len = snprintf(digits, sizeof digits, "%lld", (long long)n), at = 0;
    for (int i = 0; i < len; i++) {
        if (i > 0 && digits[i - 1] != '-' && len > 4 && (len - i) % 3 == 0) f.text[at++] = ' ';
        f.text[at++] = digits[i];
    }
    f.text[at] = 0;
    return f;
}

ep_figure ep_figure_share(double share) {
    ep_figure f;
    if (!isfinite(share))
        snprintf(f.text, sizeof f.text, "?");
    else
        snprintf(f.text, sizeof f.text, "%.1f %%", share * 100);
    return f;
}

ep_figure ep_figure_number(double v, int decimals) {
    ep_figure f;
    if (!isfinite(v))
        snprintf(f.text, sizeof f.text, "?");
    else
        snprintf(f.text, sizeof f.text, "%.*f", decimals, v);
    return f;
}

/* The code point at `s`, which is valid UTF-8 or the end; *length is 0 there. */
static uint32_t code_at(const char *s, size_t *length) {
    unsigned char c = (unsigned char)*s;
    size_t n = c == 0 ? 0 : c < 0xc0 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    uint32_t code = n < 2 ? c : c & (0xffu >> (n + 1));
    for (size_t i = 1; i < n; i++) {
        if (((unsigned char)s[i] & 0xc0) != 0x80) {
            n = 1;
            break;
        }
        code = code << 6 | ((unsigned char)s[i] & 0x3f);
    }
    *length = n;
    return code;
}

static size_t columns_of_code(uint32_t c) {
    static const uint32_t wide[][2] = {{0x1100, 0x115f},   {0x2e80, 0xa4cf},   {0xac00, 0xd7a3},  {0xf900, 0xfaff},
                                       {0xfe30, 0xfe6f},   {0xff00, 0xff60},   {0xffe0, 0xffe6},  {0x1f300, 0x1f64f},
                                       {0x1f680, 0x1f6ff}, {0x1f900, 0x1f9ff}, {0x20000, 0x3fffd}};
    if ((c >= 0x300 && c < 0x370) || (c >= 0x200b && c < 0x2010) || (c >= 0xfe00 && c < 0xfe10)) return 0;
    for (size_t i = 0; i < sizeof wide / sizeof wide[0]; i++)
        if (c >= wide[i][0] && c <= wide[i][1]) return 2;
    return 1;
}

static bool is_control(uint32_t c) {
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || (c >= 0x202a && c < 0x202f) || (c >= 0x2066 && c < 0x206a);
}

static size_t columns(const char *text, size_t bytes) {
    size_t sum = 0, n;
    for (const char *p = text, *end = text + bytes; p < end && *p; p += n) sum += columns_of_code(code_at(p, &n));
    return sum;
}

/* What fits into `width` columns and `size` bytes, of `bytes` of the text; returns behind it. */
static char *put(const char *text, size_t bytes, size_t width, char *to, size_t size) {
    size_t used = 0, n;
    for (const char *p = text, *end = text + bytes; p < end && *p; p += n) {
        uint32_t code = code_at(p, &n);
        bool control = is_control(code);
        size_t length = control ? 1 : n, wide = control ? 1 : columns_of_code(code);
        if (used + wide > width || length + 1 > size) break;
        memcpy(to, control ? "?" : p, length);
        to += length;
        size -= length;
        used += wide;
    }
    *to = 0;
    return to;
}

const char *ep_cut(const char *text, size_t width, char *buffer, size_t size) {
    size_t bytes = strlen(text), all = columns(text, bytes), n;
    if (all <= width || width < 6) {
        put(text, bytes, width, buffer, size);
        return buffer;
    }
    size_t tail = (width - 2) / 3, left = all;
    char *p = put(text, bytes, width - 2 - tail, buffer, size);
    const char *from = text;
    for (; *from && left > tail; from += n) left -= columns_of_code(code_at(from, &n));
    if ((size_t)(buffer + size - p) < 3) return buffer;
    memcpy(p, "..", 2);
    p += 2;
    put(from, strlen(from), tail, p, (size_t)(buffer + size - p));
    return buffer;
}

ep_column ep_column_of(const char *text, size_t width) {
    ep_column c;
    if (width > 120) width = 120;
    if (!*text) text = "\"\"";
    ep_cut(text, width, c.text, sizeof c.text - width);
    size_t used = columns(c.text, strlen(c.text)), end = strlen(c.text);
    for (; used < width; used++) c.text[end++] = ' ';
    c.text[end] = 0;
    return c;
}

void ep_paragraph(ep_text *out, const char *head, size_t indent, size_t width, const char *text) {
    size_t at = strlen(head), room = width > indent + 8 ? width - indent : 8;
    char word[512];
    ep_text_add(out, head);
    for (const char *w = text; *w;) {
        size_t n = strcspn(w, " \n"), wide = columns(w, n);
        if (at > indent && at + wide + 1 > width) {
            ep_text_char(out, '\n');
            ep_text_pad(out, ' ', indent);
            at = indent;
        } else if (w != text) {
            ep_text_char(out, ' ');
            at++;
        }
        if (wide > room) {
            put(w, n, room - 2, word, sizeof word - 2);
            ep_text_printf(out, "%s..", word);
            wide = room;
        } else {
            put(w, n, room, word, sizeof word);
            ep_text_add(out, word);
        }
        at += wide;
        w += n;
        while (*w == ' ' || *w == '\n') w++;
    }
    ep_text_char(out, '\n');
}
