/* Whole files: mapped, read, replaced atomically, folders made. */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

ep_status ep_file_fail(ep_error *err, const char *what, const char *path) {
    ep_status status = errno == ENOENT ? EP_ERROR_NOT_FOUND : errno == ENOMEM ? EP_ERROR_OUT_OF_MEMORY : EP_ERROR_IO;
    return ep_fail(err, status, "cannot %s %s: %s", what, path, strerror(errno));
}

ep_status ep_file_open(const char *path, ep_error *err, int *fd, struct stat *st) {
    *fd = open(path, O_RDONLY | O_CLOEXEC);
    if (*fd < 0) return ep_file_fail(err, "open", path);
    if (fstat(*fd, st) == 0 && !S_ISDIR(st->st_mode)) return EP_OK;
    if (S_ISDIR(st->st_mode)) errno = EISDIR;
    ep_status status = ep_file_fail(err, "read", path);
    close(*fd);
    return status;
}

ep_status ep_file_map(const char *path, ep_error *err, ep_mapped *out) {
    int fd;
    struct stat st = {0};
    EP_TRY(ep_file_open(path, err, &fd, &st));
    ep_mapped m = {"", (size_t)st.st_size, NULL};
    if (m.size) {
        m.base = mmap(NULL, m.size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (m.base == MAP_FAILED) {
            ep_status status = ep_file_fail(err, "map", path);
            close(fd);
            return status;
        }
        m.data = m.base;
    }
    close(fd);
    *out = m;
    return EP_OK;
}

void ep_file_unmap(ep_mapped *m) {
    if (m->base) munmap(m->base, m->size);
    *m = (ep_mapped){"", 0, NULL};
}

/* Reads to the end of fd, also where the size is not known before (a pipe, /proc). */
static ep_status read_all(int fd, const char *path, size_t limit, ep_error *err, char **data, size_t *size) {
    size_t cap = 1 << 14, n = 0;
    char *p = malloc(cap + 1);
    for (;;) {
        if (!p) return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory to read %s", path);
        ssize_t got = read(fd, p + n, cap - n);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            free(p);
            return ep_file_fail(err, "read", path);
        }
        n += (size_t)got;
        if (n > limit) {
            free(p);
            return ep_fail(err, EP_ERROR_OVERFLOW, "%s is larger than %zu bytes", path, limit);
        }
        if (got == 0) break;
        if (n < cap) continue;
        char *more = realloc(p, cap * 2 + 1);
        if (!more) free(p);
        p = more;
        cap *= 2;
    }
    p[n] = 0;
    *data = p;
    if (size) *size = n;
    return EP_OK;
}

ep_status ep_file_read(const char *path, size_t limit, ep_error *err, char **data, size_t *size) {
    int fd;
    struct stat st = {0};
    EP_TRY(ep_file_open(path, err, &fd, &st));
    ep_status status = read_all(fd, path, limit, err, data, size);
    close(fd);
    return status;
}

ep_status ep_file_write(const char *path, const void *data, size_t size, ep_error *err) {
    ep_stream_out *o;
    EP_TRY(ep_stream_create(path, false, err, &o));
    ep_status status = ep_stream_write(o, data, size, err);
    if (status == EP_OK) return ep_stream_commit(o, err);
    ep_stream_abandon(o);
    return status;
}

bool ep_fd_write(int fd, const void *data, size_t size) {
    for (size_t done = 0; done < size;) {
        ssize_t n = write(fd, (const char *)data + done, size - done);
        if (n < 0 && errno == EINTR) continue;
        if (n == 0) errno = ENOSPC;
        if (n <= 0) return false;
        done += (size_t)n;
    }
    return true;
}

ep_status ep_file_make_folder(const char *path, ep_error *err) {
    size_t n = strlen(path);
    char *copy = malloc(n + 1);
    if (!copy) return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory for a path of %zu bytes", n);
    memcpy(copy, path, n + 1);
    ep_status status = EP_OK;
    for (size_t i = 1; i <= n && status == EP_OK; i++) {
        if (copy[i] != '/' && copy[i] != 0) continue;
        char c = copy[i];
        copy[i] = 0;
        if (mkdir(copy, 0777) != 0 && errno != EEXIST) status = ep_file_fail(err, "make folder", copy);
        copy[i] = c;
    }
    struct stat st;
    if (status == EP_OK && (stat(copy, &st) != 0 || !S_ISDIR(st.st_mode)))
        status = ep_fail(err, EP_ERROR_IO, "%s is no folder", path);
    free(copy);
    return status;
}
