/* Packed weights in a file: written atomically, mapped back so that start-up costs no packing.
 *
 * Version 1, little-endian: 64 bytes of head, 64 bytes for each pack, then each pack's panels from a multiple of 4096 on.
 * Head and entries carry a checksum of themselves; a pack's bytes carry one that is checked when asked for. */
#include "tuned.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"

enum { VERSION = 1, PAGE = 4096, MOST_PACKS = 8 };
static const char magic[8] = {'E', 'P', 'P', 'A', 'C', 'K', '\r', '\n'};

typedef struct file_head {
    char magic[8];
    uint32_t version, count;
    uint64_t checksum; /* of the entries */
    char reserved[40];
} file_head;

typedef struct file_entry {
    uint32_t layout, dtype, pair, reserved;
    int64_t k, n;
    uint64_t offset, bytes, checksum;
    char rest[8];
} file_entry;

_Static_assert(sizeof(file_head) == 64 && sizeof(file_entry) == 64, "the file's structures have no holes");

static ep_status write_panels(ep_stream_out *o, const ep_packed *const *packs, const file_entry *e, uint32_t count,
                              uint64_t at, ep_error *err) {
    static const char zeros[PAGE];
    for (uint32_t i = 0; i < count; i++) {
        EP_TRY(ep_stream_write(o, zeros, (size_t)(e[i].offset - at), err));
        if (packs[i]->bytes) EP_TRY(ep_stream_write(o, packs[i]->data, packs[i]->bytes, err));
        at = e[i].offset + e[i].bytes;
    }
    return EP_OK;
}

ep_status ep_tuned_pack_save(const ep_packed *const *packs, int count, const char *path, ep_error *err) {
    file_entry e[MOST_PACKS];
    if (count < 0 || count > MOST_PACKS)
        return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "%d packs; a file holds up to %d", count, MOST_PACKS);
    memset(e, 0, sizeof e);
    uint64_t at = sizeof(file_head) + (uint64_t)count * sizeof *e;
    for (int i = 0; i < count; i++) {
        const ep_packed *p = packs[i];
        at = (at + PAGE - 1) / PAGE * PAGE;
        e[i] = (file_entry){.layout = p->row->layout,
                            .dtype = p->dtype,
                            .pair = p->pair,
                            .k = p->k,
                            .n = p->n,
                            .offset = at,
                            .bytes = p->bytes,
                            .checksum = ep_hash64(p->data, p->bytes, VERSION)};
        at += p->bytes;
    }
    file_head h = {.version = VERSION, .count = (uint32_t)count};
    memcpy(h.magic, magic, sizeof magic);
    h.checksum = ep_hash64(e, (size_t)count * sizeof *e, VERSION);
    ep_stream_out *o;
    EP_TRY(ep_stream_create(path, false, err, &o));
    ep_status s = ep_stream_write(o, &h, sizeof h, err);
    if (s == EP_OK && count) s = ep_stream_write(o, e, (size_t)count * sizeof *e, err);
    if (s == EP_OK) s = write_panels(o, packs, e, h.count, sizeof h + (uint64_t)count * sizeof *e, err);
    if (s == EP_OK) return ep_stream_commit(o, err);
    ep_stream_abandon(o);
    return s;
}

static ep_status read_head(const char *path, int fd, int count, uint64_t size, ep_error *err, file_entry *e) {
    file_head h;
    if (pread(fd, &h, sizeof h, 0) != (ssize_t)sizeof h || memcmp(h.magic, magic, sizeof magic) != 0)
        return ep_fail_at(err, EP_ERROR_FORMAT, 0, "%s is not a file of packed weights", path);
    if (h.version != VERSION)
        return ep_fail_at(err, EP_ERROR_UNSUPPORTED, 8, "%s is of version %u; this library reads version %d", path,
                          h.version, VERSION);
    if (h.count != (uint32_t)count)
        return ep_fail_at(err, EP_ERROR_FORMAT, 12, "%s holds %u packs; %d are wanted", path, h.count, count);
    size_t bytes = (size_t)count * sizeof *e;
    if (pread(fd, e, bytes, sizeof h) != (ssize_t)bytes)
        return ep_fail_at(err, EP_ERROR_TRUNCATED, (int64_t)size, "%s ends inside its head", path);
    if (ep_hash64(e, bytes, VERSION) != h.checksum)
        return ep_fail_at(err, EP_ERROR_FORMAT, 16, "%s has a damaged head: its checksum is wrong", path);
    return EP_OK;
}

static ep_status check_entry(const char *path, const file_entry *e, uint64_t size, const ep_packed *p, ep_error *err) {
    if (e->layout != (uint32_t)p->row->layout)
        return ep_fail(err, EP_ERROR_UNSUPPORTED,
                       "%s was packed in layout %u; this machine's fastest kernel (%s) reads layout %d: pack again",
                       path, e->layout, p->row->isa_name, (int)p->row->layout);
    if (e->bytes != p->bytes)
        return ep_fail(err, EP_ERROR_FORMAT, "%s says %llu bytes for weights that pack into %zu", path,
                       (unsigned long long)e->bytes, p->bytes);
    if (e->offset % PAGE != 0 || e->offset > size || e->bytes > size - e->offset)
        return ep_fail_at(err, EP_ERROR_TRUNCATED, (int64_t)size, "%s ends before its panels do", path);
    return EP_OK;
}

static ep_status map_entry(const char *path, int fd, const file_entry *e, uint64_t size, bool verify, ep_error *err,
                           ep_packed **out) {
    const ep_tuned_row *row = e->dtype < EP_DTYPE_COUNT ? ep_tuned_select((ep_dtype)e->dtype, ep_cpu_get()->isa) : NULL;
    if (!row || e->k < 0 || e->n < 0 || e->pair > 1)
        return ep_fail(err, EP_ERROR_FORMAT, "%s describes weights of no known kind", path);
    ep_packed *p = calloc(1, sizeof *p);
    if (!p) return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory for packed weights");
    ep_status s = ep_tuned_pack_shape(row, e->k, e->n, e->pair == 1, err, p);
    if (s == EP_OK) s = check_entry(path, e, size, p, err);
    if (s == EP_OK && p->bytes) {
        void *map = mmap(NULL, p->bytes, PROT_READ, MAP_PRIVATE, fd, (off_t)e->offset);
        if (map == MAP_FAILED)
            s = ep_fail(err, EP_ERROR_IO, "%s could not be mapped: %s", path, strerror(errno));
        else
            p->map = map, p->mapped = p->bytes, p->data = map;
    }
    if (s == EP_OK && verify && ep_hash64(p->data, p->bytes, VERSION) != e->checksum)
        s = ep_fail_at(err, EP_ERROR_FORMAT, (int64_t)e->offset, "%s has damaged panels: their checksum is wrong",
                       path);
    if (s == EP_OK)
        *out = p;
    else
        ep_tuned_pack_free(p);
    return s;
}

ep_status ep_tuned_pack_load(const char *path, bool verify, int count, ep_error *err, ep_packed **out) {
    file_entry e[MOST_PACKS];
    struct stat st;
    if (count < 0 || count > MOST_PACKS)
        return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "%d packs; a file holds up to %d", count, MOST_PACKS);
    int fd;
    EP_TRY(ep_file_open(path, err, &fd, &st));
    ep_packed *got[MOST_PACKS] = {NULL};
    ep_status s = read_head(path, fd, count, (uint64_t)st.st_size, err, e);
    for (int i = 0; i < count && s == EP_OK; i++)
        s = map_entry(path, fd, &e[i], (uint64_t)st.st_size, verify, err, &got[i]);
    close(fd);
    for (int i = 0; i < count; i++) {
        if (s == EP_OK)
            out[i] = got[i];
        else
            ep_tuned_pack_free(got[i]);
    }
    return s;
}

void ep_tuned_pack_describe(const ep_packed *p, ep_dtype *dtype, int64_t *k, int64_t *n, bool *pair) {
    *dtype = p->dtype;
    *k = p->k;
    *n = p->n;
    *pair = p->pair;
}
