/* A growing string, and a table that gives each distinct string one small number. */
#ifndef EP_BASE_TEXT_H
#define EP_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arena.h"
#include <epilogue/status.h>

/* A zeroed struct is empty. After an allocation failure `failed` is set, later calls do nothing, ep_text_str is "". */
typedef struct ep_text {
    char *data;
    size_t len, cap;
    bool failed;
} ep_text;

void ep_text_add(ep_text *t, const char *s);
void ep_text_addn(ep_text *t, const char *s, size_t n);
void ep_text_char(ep_text *t, char c);
void ep_text_pad(ep_text *t, char c, size_t n);
void ep_text_printf(ep_text *t, const char *fmt, ...) EP_PRINTF(2, 3);
const char *ep_text_str(ep_text *t); /* terminated, owned by t */
char *ep_text_take(ep_text *t);      /* malloc'ed, the caller's; NULL if failed; t is empty after */
void ep_text_clear(ep_text *t);      /* empties, keeps memory */
void ep_text_free(ep_text *t);

/* Glob match with * and ?; the whole text must match. */
bool ep_glob(const char *pattern, const char *text);

/* Interning: id 0 is always the empty string. A zeroed struct is an empty table. Not thread-safe. */
typedef struct ep_intern {
    ep_arena arena;
    const char **text; /* by id */
    uint32_t *len;     /* by id */
    uint32_t *slots;   /* open addressing, id + 1 */
    uint64_t *hashes;  /* by id */
    size_t count, cap_text, cap_len, cap_hash, slot_count;
} ep_intern;
/* The id of the string, or UINT32_MAX when memory is out. */
uint32_t ep_intern_add(ep_intern *t, const char *s, size_t n);
/* The id or UINT32_MAX if it was never added. */
uint32_t ep_intern_find(const ep_intern *t, const char *s, size_t n);
static inline const char *ep_intern_text(const ep_intern *t, uint32_t id) {
    return id < t->count ? t->text[id] : "";
}
void ep_intern_free(ep_intern *t);

#endif
