/* String builder, glob, interning. */
#include "text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "hash.h"

void ep_text_addn(ep_text *t, const char *s, size_t n) {
    if (t->failed) return;
    if (n > SIZE_MAX - t->len - 1 || !ep_grow(&t->data, &t->cap, t->len + n + 1, 1)) {
        t->failed = true;
        return;
    }
    if (n) memcpy(t->data + t->len, s, n);
    t->len += n;
    t->data[t->len] = 0;
}

void ep_text_add(ep_text *t, const char *s) {
    ep_text_addn(t, s, strlen(s));
}

void ep_text_char(ep_text *t, char c) {
    ep_text_addn(t, &c, 1);
}

void ep_text_pad(ep_text *t, char c, size_t n) {
    while (n--) ep_text_char(t, c);
}

void ep_text_printf(ep_text *t, const char *fmt, ...) {
    char small[256];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(small, sizeof small, fmt, args);
    va_end(args);
    if (n < 0) {
        t->failed = true;
        return;
    }
    if ((size_t)n < sizeof small) {
        ep_text_addn(t, small, (size_t)n);
        return;
    }
    if (t->failed || !ep_grow(&t->data, &t->cap, t->len + (size_t)n + 1, 1)) {
        t->failed = true;
        return;
    }
    va_start(args, fmt);
    vsnprintf(t->data + t->len, (size_t)n + 1, fmt, args);
    va_end(args);
    t->len += (size_t)n;
}

const char *ep_text_str(ep_text *t) {
    return t->failed || !t->data ? "" : t->data;
}

char *ep_text_take(ep_text *t) {
    if (!t->failed && !t->data) ep_text_addn(t, "", 0);
    char *p = t->failed ? NULL : t->data;
    if (t->failed) free(t->data);
    memset(t, 0, sizeof *t);
    return p;
}

void ep_text_clear(ep_text *t) {
    t->len = 0;
    if (t->data) t->data[0] = 0;
}

void ep_text_free(ep_text *t) {
    free(t->data);
    memset(t, 0, sizeof *t);
}

bool ep_glob(const char *pattern, const char *text) {
    const char *star = NULL, *back = NULL;
    while (*text) {
        if (*pattern == '*') {
            star = ++pattern;
            back = text;
        } else if (*pattern == '?' || *pattern == *text) {
            pattern++;
            text++;
        } else if (star) {
            pattern = star;
            text = ++back;
        } else {
            return false;
        }
    }
    while (*pattern == '*') pattern++;
    return *pattern == 0;
}

static size_t slot_of(const ep_intern *t, const char *s, size_t n, uint64_t h) {
    size_t mask = t->slot_count - 1, i = (size_t)h & mask;
    for (; t->slots[i]; i = (i + 1) & mask) {
        uint32_t id = t->slots[i] - 1;
        if (t->hashes[id] == h && t->len[id] == n && memcmp(t->text[id], s, n) == 0) break;
    }
    return i;
}

static bool grow_slots(ep_intern *t) {
    size_t next = t->slot_count ? t->slot_count * 2 : 256;
    uint32_t *slots = calloc(next, sizeof *slots);
    if (!slots) return false;
    for (size_t id = 0; id < t->count; id++) {
        size_t i = (size_t)t->hashes[id] & (next - 1);
        while (slots[i]) i = (i + 1) & (next - 1);
        slots[i] = (uint32_t)id + 1;
    }
    free(t->slots);
    t->slots = slots;
    t->slot_count = next;
    return true;
}

static uint32_t add(ep_intern *t, const char *s, size_t n) {
    if (n >= UINT32_MAX || t->count >= UINT32_MAX - 1) return UINT32_MAX;
    if (t->count * 2 >= t->slot_count && !grow_slots(t)) return UINT32_MAX;
    uint64_t h = ep_hash64(s, n, 0);
    size_t i = slot_of(t, s, n, h);
    if (t->slots[i]) return t->slots[i] - 1;
    if (!ep_grow(&t->text, &t->cap_text, t->count + 1, sizeof *t->text) ||
        !ep_grow(&t->len, &t->cap_len, t->count + 1, sizeof *t->len) ||
        !ep_grow(&t->hashes, &t->cap_hash, t->count + 1, sizeof *t->hashes))
        return UINT32_MAX;
    char *copy = ep_arena_copy(&t->arena, s, n);
    if (!copy) return UINT32_MAX;
    uint32_t id = (uint32_t)t->count;
    t->text[id] = copy;
    t->len[id] = (uint32_t)n;
    t->hashes[id] = h;
    t->slots[i] = id + 1;
    t->count++;
    return id;
}

uint32_t ep_intern_add(ep_intern *t, const char *s, size_t n) {
    if (t->count == 0 && add(t, "", 0) != 0) return UINT32_MAX;
    return add(t, s, n);
}

uint32_t ep_intern_find(const ep_intern *t, const char *s, size_t n) {
    if (t->count == 0) return n == 0 ? 0 : UINT32_MAX;
    size_t i = slot_of(t, s, n, ep_hash64(s, n, 0));
    return t->slots[i] ? t->slots[i] - 1 : UINT32_MAX;
}

void ep_intern_free(ep_intern *t) {
    ep_arena_free(&t->arena);
    free(t->text);
    free(t->len);
    free(t->hashes);
    free(t->slots);
    memset(t, 0, sizeof *t);
}
