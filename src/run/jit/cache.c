/* One file an entry: head with checksum, image, source. Written beside and renamed, so that readers see all or nothing;
 * what a crash or a stranger left is found by the checksum and removed. */
#define _GNU_SOURCE
#include "cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"

enum { PATH_SIZE = 4096, KEY_SIZE = 33 };
#define SUFFIX ".epk"
#define MAX_ENTRY ((int64_t)64 << 20)

typedef struct head {
    char magic[8];
    uint64_t key_hi, key_lo, sum_hi, sum_lo, image_size, source_size;
} head;
static const char magic[8] = {'E', 'P', 'K', 'E', 'R', 'N', 'L', '1'};

struct ep_cache {
    char dir[PATH_SIZE];
    int64_t limit;
    char trouble[200];
    atomic_llong unkept; /* stores that failed, and why the last did: a literal */
    _Atomic(const char *) unkept_why;
};

static ep_hash128 checksum(const head *h, const void *image, const void *source) {
    ep_hasher s;
    ep_hasher_begin(&s);
    ep_hasher_add(&s, &h->key_hi, 16);
    ep_hasher_add(&s, &h->image_size, 16);
    ep_hasher_add(&s, image, h->image_size);
    ep_hasher_add(&s, source, h->source_size);
    return ep_hasher_end(&s);
}

ep_status ep_cache_check(const void *data, size_t size, ep_hash128 key, ep_error *err, size_t *image_at,
                         size_t *image_size, size_t *source_at, size_t *source_size) {
    head h;
    if (size < sizeof h) return ep_fail(err, EP_ERROR_CACHE, "cache entry of %zu bytes is cut off", size);
    memcpy(&h, data, sizeof h);
    if (memcmp(h.magic, magic, sizeof magic)) return ep_fail(err, EP_ERROR_CACHE, "cache entry is of another format");
    if (h.key_hi != key.hi || h.key_lo != key.lo) return ep_fail(err, EP_ERROR_CACHE, "cache entry is of another key");
    size_t rest = size - sizeof h;
    if (h.image_size > rest || h.source_size > rest - h.image_size || h.image_size + h.source_size != rest)
        return ep_fail(err, EP_ERROR_CACHE, "cache entry of %zu bytes should have another size", size);
    const char *body = (const char *)data + sizeof h;
    ep_hash128 sum = checksum(&h, body, body + h.image_size);
    if (sum.hi != h.sum_hi || sum.lo != h.sum_lo) return ep_fail(err, EP_ERROR_CACHE, "cache entry is damaged");
    *image_at = sizeof h;
    *image_size = h.image_size;
    *source_at = sizeof h + h.image_size;
    *source_size = h.source_size;
    return EP_OK;
}

static void default_dir(char out[PATH_SIZE]) {
    const char *own = getenv("EPILOGUE_CACHE_DIR"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    out[0] = 0;
    if (own && *own)
        snprintf(out, PATH_SIZE, "%s", own);
    else if (xdg && *xdg == '/')
        snprintf(out, PATH_SIZE, "%s/epilogue", xdg);
    else if (home && *home == '/')
        snprintf(out, PATH_SIZE, "%s/.cache/epilogue", home);
}

static bool make_dirs(char *path) {
    for (char *p = path + 1; *p; p++) {
        if (*p != '/') continue;
        *p = 0;
        mkdir(path, 0700);
        *p = '/';
    }
    return mkdir(path, 0700) == 0 || errno == EEXIST;
}

static void inspect(ep_cache *c) {
    struct stat st;
    if (!c->dir[0]) {
        snprintf(c->trouble, sizeof c->trouble,
                 "no folder: neither EPILOGUE_CACHE_DIR, XDG_CACHE_HOME nor HOME is set");
    } else if (!make_dirs(c->dir) || stat(c->dir, &st) != 0 || !S_ISDIR(st.st_mode)) {
        snprintf(c->trouble, sizeof c->trouble, "its folder cannot be made (%s): %.110s", strerror(errno), c->dir);
    } else if (st.st_uid != geteuid() || (st.st_mode & (S_IWGRP | S_IWOTH))) {
        /* Whoever can write here can make us load their code. */
        snprintf(c->trouble, sizeof c->trouble, "others own its folder or may write to it: %.110s", c->dir);
    }
}

ep_status ep_cache_open(const char *dir, int64_t limit, ep_error *err, ep_cache **out) {
    ep_cache *c = calloc(1, sizeof *c);
    if (!c) return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory for a kernel cache");
    if (dir && strlen(dir) < PATH_SIZE - 80)
        strcpy(c->dir, dir);
    else
        default_dir(c->dir);
    if (strlen(c->dir) >= PATH_SIZE - 80) c->dir[0] = 0;
    const char *env = getenv("EPILOGUE_CACHE_LIMIT");
    c->limit = limit > 0 ? limit : env && atoll(env) > 0 ? atoll(env) : (int64_t)64 << 20;
    inspect(c);
    *out = c;
    return EP_OK;
}

void ep_cache_close(ep_cache *c) {
    free(c);
}

const char *ep_cache_dir(const ep_cache *c) {
    return c->dir;
}

const char *ep_cache_trouble(const ep_cache *c) {
    return c->trouble;
}

const char *ep_cache_unkept(const ep_cache *c, int64_t *count) {
    *count = atomic_load(&c->unkept);
    return *count ? atomic_load(&c->unkept_why) : "";
}

/* In words that a report can use. */
static const char *words_for(int e) {
    static const struct {
        int e;
        const char *words;
    } table[] = {{ENOSPC, "full disk"},       {EDQUOT, "full disk (quota)"}, {EFBIG, "limit on a file's size"},
                 {EROFS, "read-only disk"},   {EACCES, "no right to write"}, {ENOENT, "the folder is gone"},
                 {EIO, "the disk has errors"}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].e == e) return table[i].words;
    return "the folder cannot be written";
}

static ep_status not_kept(ep_cache *c, int e, const char *path, ep_error *err) {
    atomic_store(&c->unkept_why, words_for(e));
    atomic_fetch_add(&c->unkept, 1);
    return ep_fail(err, EP_ERROR_CACHE, "%s: %s cannot be written", words_for(e), path);
}

static void entry_path(const ep_cache *c, ep_hash128 key, char out[PATH_SIZE]) {
    char hex[KEY_SIZE];
    ep_hash128_hex(key, hex);
    size_t n = strlen(c->dir);
    memcpy(out, c->dir, n);
    snprintf(out + n, 64, "/%s%s", hex, SUFFIX);
}

static ep_status read_all(const char *path, bool use, ep_error *err, char **out, size_t *size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    struct stat st;
    if (fd < 0) return ep_fail(err, EP_ERROR_NOT_FOUND, "no entry at %s", path);
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size > MAX_ENTRY || st.st_uid != geteuid()) {
        close(fd);
        return ep_fail(err, EP_ERROR_CACHE, "%s is no entry of ours", path);
    }
    char *data = malloc((size_t)st.st_size + 1);
    size_t done = 0;
    while (data && done < (size_t)st.st_size) {
        ssize_t n = read(fd, data + done, (size_t)st.st_size - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        done += (size_t)n;
    }
    if (data && use) futimens(fd, NULL); /* last use: the oldest go first */
    close(fd);
    if (!data) return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory for a cache entry");
    *out = data;
    *size = done;
    return EP_OK;
}

static ep_status load(ep_cache *c, ep_hash128 key, bool use, ep_error *err, void **image, size_t *size, char **source) {
    char path[PATH_SIZE], *data = NULL;
    size_t len = 0, at, n, source_at, source_n;
    if (c->trouble[0]) return ep_fail(err, EP_ERROR_NOT_FOUND, "no cache: %s", c->trouble);
    entry_path(c, key, path);
    ep_status s = read_all(path, use, err, &data, &len);
    if (s == EP_OK) s = ep_cache_check(data, len, key, err, &at, &n, &source_at, &source_n);
    if (s == EP_ERROR_CACHE && use) unlink(path);
    if (s == EP_OK && source) {
        *source = malloc(source_n + 1);
        if (*source) {
            memcpy(*source, data + source_at, source_n);
            (*source)[source_n] = 0;
        } else {
            s = ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory for a cached source");
        }
    }
    if (s != EP_OK) {
        free(data);
        return s;
    }
    memmove(data, data + at, n);
    *image = data;
    *size = n;
    return EP_OK;
}

ep_status ep_cache_load(ep_cache *c, ep_hash128 key, ep_error *err, void **image, size_t *size, char **source) {
    return load(c, key, true, err, image, size, source);
}

ep_status ep_cache_peek(ep_cache *c, ep_hash128 key, ep_error *err, void **image, size_t *size, char **source) {
    return load(c, key, false, err, image, size, source);
}

static int by_use(const void *a, const void *b) {
    const ep_cache_entry *x = a, *y = b;
    return x->used_ns < y->used_ns ? 1 : x->used_ns > y->used_ns ? -1 : strcmp(x->key, y->key);
}

/* On the way it removes temporary files that a crash left more than an hour ago. */
ep_status ep_cache_list(ep_cache *c, ep_error *err, ep_cache_entry **out, size_t *count) {
    *out = NULL;
    *count = 0;
    size_t cap = 0;
    DIR *d = c->trouble[0] ? NULL : opendir(c->dir);
    if (!d) return c->trouble[0] ? EP_OK : ep_fail(err, EP_ERROR_IO, "%s cannot be listed", c->dir);
    for (struct dirent *e; (e = readdir(d));) {
        struct stat st;
        size_t n = strlen(e->d_name);
        if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode)) continue;
        if (!strncmp(e->d_name, "new-", 4) && time(NULL) - st.st_mtim.tv_sec > 3600) unlinkat(dirfd(d), e->d_name, 0);
        if (n != 32 + strlen(SUFFIX) || strcmp(e->d_name + 32, SUFFIX)) continue;
        if (!ep_grow(out, &cap, *count + 1, sizeof **out)) break;
        ep_cache_entry *x = &(*out)[(*count)++];
        memcpy(x->key, e->d_name, 32);
        x->key[32] = 0;
        x->bytes = (int64_t)st.st_size;
        x->used_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    }
    closedir(d);
    if (*count) qsort(*out, *count, sizeof **out, by_use);
    return EP_OK;
}

static void remove_entry(const ep_cache *c, const char *key) {
    char path[PATH_SIZE];
    size_t n = strlen(c->dir);
    memcpy(path, c->dir, n);
    snprintf(path + n, 64, "/%s%s", key, SUFFIX);
    unlink(path);
}

static void keep_bound(ep_cache *c) {
    ep_cache_entry *list;
    size_t count;
    if (ep_cache_list(c, NULL, &list, &count) != EP_OK) return;
    int64_t total = 0;
    for (size_t i = 0; i < count; i++) {
        total += list[i].bytes;
        if (total > c->limit && i > 0) remove_entry(c, list[i].key);
    }
    free(list);
}

ep_status ep_cache_store(ep_cache *c, ep_hash128 key, const void *image, size_t size, const char *source,
                         size_t source_len, ep_error *err) {
    char path[PATH_SIZE], temp[PATH_SIZE];
    if (c->trouble[0]) return ep_fail(err, EP_ERROR_CACHE, "no cache: %s", c->trouble);
    head h = {{0}, key.hi, key.lo, 0, 0, size, source_len};
    memcpy(h.magic, magic, sizeof magic);
    ep_hash128 sum = checksum(&h, image, source);
    h.sum_hi = sum.hi;
    h.sum_lo = sum.lo;
    size_t n = strlen(c->dir);
    memcpy(temp, c->dir, n);
    snprintf(temp + n, 64, "/new-XXXXXX");
    int fd = mkostemp(temp, O_CLOEXEC);
    entry_path(c, key, path);
    if (fd < 0) return not_kept(c, errno, path, err);
    errno = 0;
    bool ok = ep_fd_write(fd, &h, sizeof h) && ep_fd_write(fd, image, size) && ep_fd_write(fd, source, source_len);
    int e = errno;
    if (close(fd) != 0 && ok) ok = false, e = errno;
    if (ok && rename(temp, path) != 0) ok = false, e = errno;
    if (!ok) {
        unlink(temp);
        return not_kept(c, e, path, err);
    }
    keep_bound(c);
    return EP_OK;
}

ep_status ep_cache_clear(ep_cache *c, ep_error *err, size_t *removed) {
    ep_cache_entry *list;
    size_t count;
    EP_TRY(ep_cache_list(c, err, &list, &count));
    for (size_t i = 0; i < count; i++) remove_entry(c, list[i].key);
    free(list);
    *removed = count;
    return EP_OK;
}
