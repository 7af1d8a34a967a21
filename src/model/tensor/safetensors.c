/* safetensors: eight bytes of header length, a JSON header, then the bytes of the tensors without a hole. The file is
 * mapped; tensors point into the map, which ends with the last of them. */
#include "safetensors.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "base/json_read.h"

/* The format's own limit, so that a damaged length cannot make us read gigabytes as JSON. */
enum { HEADER_LIMIT = 100000000 };

typedef struct dtype_row {
    const char *name;
    int bits;
    ep_dtype dtype; /* EP_DTYPE_COUNT: known to the format, not to us */
} dtype_row;

static const dtype_row dtypes[] = {
#define EP_DTYPE_ROW(ID, name, type, is_float, safetensors, npy, code, bits) {safetensors, bits, EP_DTYPE_##ID},
#include "dtype.def"
#undef EP_DTYPE_ROW
    {"F64", 64, EP_DTYPE_COUNT},    {"U64", 64, EP_DTYPE_COUNT},    {"C64", 64, EP_DTYPE_COUNT},
    {"U32", 32, EP_DTYPE_COUNT},    {"I16", 16, EP_DTYPE_COUNT},    {"U16", 16, EP_DTYPE_COUNT},
    {"I8", 8, EP_DTYPE_COUNT},      {"U8", 8, EP_DTYPE_COUNT},      {"F8_E4M3", 8, EP_DTYPE_COUNT},
    {"F8_E5M2", 8, EP_DTYPE_COUNT}, {"F8_E8M0", 8, EP_DTYPE_COUNT}, {"F6_E2M3", 6, EP_DTYPE_COUNT},
    {"F6_E3M2", 6, EP_DTYPE_COUNT}, {"F4", 4, EP_DTYPE_COUNT},
};

typedef struct entry {
    const char *name;
    const dtype_row *dtype;
    int ndim;
    int64_t sizes[EP_MAX_DIMS];
    int64_t begin, end; /* in the data part */
    int64_t position;   /* of its name in the file */
} entry;

typedef struct shared_map {
    atomic_int refs; /* the handle and every tensor */
    ep_mapped file;
} shared_map;

struct ep_weights {
    shared_map *map;
    ep_arena arena;
    char *path;
    entry *entries; /* by offset */
    size_t count, cap;
    const char *data;
    int64_t data_size, data_start;
};

static void drop_map(void *user) {
    shared_map *m = user;
    if (atomic_fetch_sub(&m->refs, 1) != 1) return;
    ep_file_unmap(&m->file);
    free(m);
}

/* State while the header is read; positions in the file are 8 more than the parser's. */
typedef struct header {
    ep_weights *w;
    ep_json_in json;
    ep_error *err;
} header;

static ep_status wrong(header *h, const ep_json_token *t, const char *name, const char *what) {
    return ep_fail_at(h->err, EP_ERROR_FORMAT, t->offset + 8, "tensor \"%s\": %s", name, what);
}

static bool is(const ep_json_token *t, const char *text) {
    return t->len == strlen(text) && memcmp(t->text, text, t->len) == 0;
}

static ep_status read_dtype(header *h, entry *e) {
    ep_json_token t;
    EP_TRY(ep_json_next(&h->json, &t));
    if (t.type != EP_JSON_STRING) return wrong(h, &t, e->name, "\"dtype\" is not a string");
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++)
        if (is(&t, dtypes[i].name)) e->dtype = &dtypes[i];
    if (e->dtype) return EP_OK;
    return ep_fail_at(h->err, EP_ERROR_FORMAT, t.offset + 8, "tensor \"%s\": \"%.*s\" is not a dtype of safetensors",
                      e->name, t.len > 40 ? 40 : (int)t.len, t.text);
}

/* An array of at most `most` whole numbers; *count is how many there were. */
static ep_status read_numbers(header *h, const entry *e, const char *what, int most, int64_t *out, int *count) {
    ep_json_token t;
    EP_TRY(ep_json_next(&h->json, &t));
    if (t.type != EP_JSON_ARRAY)
        return ep_fail_at(h->err, EP_ERROR_FORMAT, t.offset + 8, "tensor \"%s\": \"%s\" is not an array", e->name,
                          what);
    for (*count = 0;; (*count)++) {
        EP_TRY(ep_json_next(&h->json, &t));
        if (t.type == EP_JSON_ARRAY_END) return EP_OK;
        uint64_t v;
        if (t.type != EP_JSON_NUMBER || !ep_json_u64(t.text, t.len, &v) || v > INT64_MAX)
            return ep_fail_at(h->err, EP_ERROR_FORMAT, t.offset + 8,
                              "tensor \"%s\": \"%s\" holds something that is not a whole number from 0 to 2^63 - 1",
                              e->name, what);
        if (*count == most)
            return ep_fail_at(h->err, EP_ERROR_FORMAT, t.offset + 8, "tensor \"%s\": more than %d numbers in \"%s\"",
                              e->name, most, what);
        out[*count] = (int64_t)v;
    }
}

static ep_status check_entry(header *h, const ep_json_token *at, const entry *e) {
    int64_t numel, size = h->w->data_size;
    char text[96];
    if (e->begin > e->end) return wrong(h, at, e->name, "its data ends before it begins");
    if (e->end > size)
        return ep_fail_at(h->err, EP_ERROR_FORMAT, at->offset + 8,
                          "tensor \"%s\": its data ends at %lld, past the file's %lld bytes of data", e->name,
                          (long long)e->end, (long long)size);
    EP_TRY(ep_shape_numel(e->ndim, e->sizes, h->err, &numel));
    int64_t bits;
    if (__builtin_mul_overflow(numel, (int64_t)e->dtype->bits, &bits) || bits % 8 != 0 || bits / 8 != e->end - e->begin)
        return ep_fail_at(h->err, EP_ERROR_FORMAT, at->offset + 8, "tensor \"%s\": %s of %s is not %lld bytes long",
                          e->name, ep_shape_text(e->ndim, e->sizes, text, sizeof text), e->dtype->name,
                          (long long)(e->end - e->begin));
    return EP_OK;
}

/* {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, in any order, each once. */
static ep_status read_entry(header *h, entry *e) {
    ep_json_token t, start;
    int seen = 0, offsets = 0;
    int64_t range[2] = {0, 0};
    EP_TRY(ep_json_next(&h->json, &start));
    if (start.type != EP_JSON_OBJECT) return wrong(h, &start, e->name, "its description is not an object");
    for (;;) {
        EP_TRY(ep_json_next(&h->json, &t));
        if (t.type == EP_JSON_OBJECT_END) break;
        int key = is(&t, "dtype") ? 1 : is(&t, "shape") ? 2 : is(&t, "data_offsets") ? 4 : 0;
        if (key & seen) return wrong(h, &t, e->name, "a key stands twice in its description");
        seen |= key;
        if (key == 1)
            EP_TRY(read_dtype(h, e));
        else if (key == 2)
            EP_TRY(read_numbers(h, e, "shape", EP_MAX_DIMS, e->sizes, &e->ndim));
        else if (key == 4)
            EP_TRY(read_numbers(h, e, "data_offsets", 2, range, &offsets));
        else
            EP_TRY(ep_json_skip(&h->json));
    }
    if (seen != 7)
        return wrong(h, &start, e->name,
                     !(seen & 1)   ? "it has no \"dtype\""
                     : !(seen & 2) ? "it has no \"shape\""
                                   : "it has no \"data_offsets\"");
    if (offsets != 2) return wrong(h, &start, e->name, "\"data_offsets\" does not hold two numbers");
    e->begin = range[0];
    e->end = range[1];
    return check_entry(h, &start, e);
}

static ep_status read_header(header *h) {
    ep_json_token t;
    ep_weights *w = h->w;
    EP_TRY(ep_json_next(&h->json, &t));
    if (t.type != EP_JSON_OBJECT)
        return ep_fail_at(h->err, EP_ERROR_FORMAT, t.offset + 8, "the header is not a JSON object");
    for (;;) {
        EP_TRY(ep_json_next(&h->json, &t));
        if (t.type == EP_JSON_OBJECT_END) break;
        if (is(&t, "__metadata__")) {
            EP_TRY(ep_json_skip(&h->json));
            continue;
        }
        if (!ep_grow(&w->entries, &w->cap, w->count + 1, sizeof *w->entries))
            return ep_fail(h->err, EP_ERROR_OUT_OF_MEMORY, "the list of %zu tensors could not grow", w->count);
        entry *e = &w->entries[w->count];
        *e = (entry){.name = ep_arena_copy(&w->arena, t.text, t.len), .position = t.offset + 8};
        if (!e->name) return ep_fail(h->err, EP_ERROR_OUT_OF_MEMORY, "a tensor's name could not be stored");
        EP_TRY(read_entry(h, e));
        w->count++;
    }
    EP_TRY(ep_json_next(&h->json, &t));
    if (t.type != EP_JSON_END)
        return ep_fail_at(h->err, EP_ERROR_FORMAT, t.offset + 8, "the header goes on after its JSON object");
    return EP_OK;
}

static int by_name(const void *a, const void *b) {
    const entry *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : (x->position > y->position) - (x->position < y->position);
}

static int by_offset(const void *a, const void *b) {
    const entry *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end) return x->end < y->end ? -1 : 1;
    return (x->position > y->position) - (x->position < y->position);
}

/* Names once each; data one after the other, without overlap or hole, to the end of the file. */
static ep_status check_all(ep_weights *w, ep_error *err) {
    entry *e = w->entries;
    if (w->count > 1) qsort(e, w->count, sizeof *e, by_name);
    for (size_t i = 1; i < w->count; i++)
        if (strcmp(e[i - 1].name, e[i].name) == 0)
            return ep_fail_at(err, EP_ERROR_FORMAT, e[i].position, "tensor \"%s\" is described twice", e[i].name);
    if (w->count > 1) qsort(e, w->count, sizeof *e, by_offset);
    int64_t end = 0;
    for (size_t i = 0; i < w->count; i++) {
        if (e[i].begin < end)
            return ep_fail_at(err, EP_ERROR_FORMAT, e[i].position,
                              "tensor \"%s\" begins at %lld and overlaps \"%s\", which ends at %lld", e[i].name,
                              (long long)e[i].begin, e[i - 1].name, (long long)end);
        if (e[i].begin > end)
            return ep_fail_at(err, EP_ERROR_FORMAT, e[i].position,
                              "no tensor describes the data from %lld to %lld, before tensor \"%s\"", (long long)end,
                              (long long)e[i].begin, e[i].name);
        end = e[i].end;
    }
    if (end != w->data_size)
        return ep_fail_at(err, EP_ERROR_FORMAT, w->data_start + end,
                          "the tensors end at %lld, the file has %lld bytes of data", (long long)end,
                          (long long)w->data_size);
    return EP_OK;
}

static ep_status parse(ep_weights *w, ep_error *err) {
    const ep_mapped *file = &w->map->file;
    if (file->size < 8)
        return ep_fail_at(err, EP_ERROR_TRUNCATED, (int64_t)file->size,
                          "the file has %zu bytes; the header length alone takes 8", file->size);
    uint64_t length = 0;
    for (int i = 7; i >= 0; i--) length = length << 8 | (unsigned char)file->data[i];
    if (length > HEADER_LIMIT)
        return ep_fail_at(err, EP_ERROR_FORMAT, 0, "the header claims %llu bytes; the limit is %d",
                          (unsigned long long)length, HEADER_LIMIT);
    if (length > file->size - 8)
        return ep_fail_at(err, EP_ERROR_TRUNCATED, (int64_t)file->size,
                          "the header claims %llu bytes, but the file ends %zu bytes after its length",
                          (unsigned long long)length, file->size - 8);
    w->data_start = 8 + (int64_t)length;
    w->data = file->data + w->data_start;
    w->data_size = (int64_t)file->size - w->data_start;
    header h = {.w = w, .err = err};
    ep_error inner = {.position = -1};
    ep_json_open_memory(&h.json, file->data + 8, length, &inner);
    h.err = &inner;
    ep_status status = read_header(&h);
    ep_json_close(&h.json);
    if (status != EP_OK) {
        /* The parser's own errors count from the start of the header. */
        bool ours = status != EP_ERROR_PARSE && status != EP_ERROR_TRUNCATED;
        return ep_fail_at(err, status, ours ? inner.position : inner.position + 8, "%s%s",
                          ours ? "" : "the header is damaged: ", inner.message);
    }
    return check_all(w, err);
}

ep_status ep_weights_open(const char *path, ep_error *err, ep_weights **out) {
    if (!path || !out) return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "%s is NULL", path ? "out" : "path");
    ep_weights *w = calloc(1, sizeof *w);
    shared_map *map = calloc(1, sizeof *map);
    char *copy = strdup(path);
    ep_status status = w && map && copy ? ep_file_map(path, err, &map->file)
                                        : ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "a weights handle could not be made");
    if (status != EP_OK) {
        free(w);
        free(map);
        free(copy);
        return status;
    }
    atomic_init(&map->refs, 1);
    /* Private pages: who writes into a weight changes a copy of the page, not the file. */
    if (map->file.base) mprotect(map->file.base, map->file.size, PROT_READ | PROT_WRITE);
    w->map = map;
    w->path = copy;
    status = parse(w, err);
    if (status == EP_OK)
        *out = w;
    else
        ep_weights_close(w);
    return status;
}

void ep_weights_close(ep_weights *w) {
    if (!w) return;
    drop_map(w->map);
    ep_arena_free(&w->arena);
    free(w->entries);
    free(w->path);
    free(w);
}

size_t ep_weights_count(const ep_weights *w) {
    return w->count;
}

const char *ep_weights_name(const ep_weights *w, size_t index) {
    return index < w->count ? w->entries[index].name : NULL;
}

const char *ep_weights_path(const ep_weights *w) {
    return w->path;
}

static const entry *find(const ep_weights *w, const char *name) {
    for (size_t i = 0; i < w->count; i++)
        if (strcmp(w->entries[i].name, name) == 0) return &w->entries[i];
    return NULL;
}

bool ep_weights_shape(const ep_weights *w, const char *name, int *ndim, const int64_t **sizes) {
    const entry *e = find(w, name);
    if (!e) return false;
    *ndim = e->ndim;
    *sizes = e->sizes;
    return true;
}

ep_status ep_weights_tensor(const ep_weights *w, const char *name, ep_error *err, ep_tensor **out) {
    if (!w || !name || !out) return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "a NULL argument");
    const entry *e = find(w, name);
    if (!e) return ep_fail(err, EP_ERROR_NOT_FOUND, "the file has no tensor \"%s\"", name);
    if (e->dtype->dtype == EP_DTYPE_COUNT)
        return ep_fail(err, EP_ERROR_DTYPE, "tensor \"%s\" is %s, which this library does not compute with", name,
                       e->dtype->name);
    char *data = w->map->file.base ? (char *)w->map->file.base + w->data_start + e->begin : NULL;
    size_t bytes = (size_t)(e->end - e->begin), align = ep_dtype_size(e->dtype->dtype);
    if ((uintptr_t)data % align != 0) { /* a header of odd length: kernels may not read elements across their size */
        ep_tensor *t;
        EP_TRY(ep_tensor_create(e->dtype->dtype, e->ndim, e->sizes, err, &t));
        memcpy(t->data, data, bytes);
        *out = t;
        return EP_OK;
    }
    atomic_fetch_add(&w->map->refs, 1);
    ep_status status = ep_tensor_from_memory((ep_device){EP_DEVICE_CPU, 0}, e->dtype->dtype, e->ndim, e->sizes, NULL,
                                             data, bytes, drop_map, w->map, err, out);
    if (status != EP_OK) drop_map(w->map);
    return status;
}
