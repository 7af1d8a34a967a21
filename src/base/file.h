/* Files: mapped, read whole, replaced atomically; byte streams in and out, plain or gzip. */
#ifndef EP_BASE_FILE_H
#define EP_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "status.h"

/* "cannot WHAT PATH: why", by errno: EP_ERROR_NOT_FOUND, EP_ERROR_OUT_OF_MEMORY or EP_ERROR_IO. */
ep_status ep_file_fail(ep_error *err, const char *what, const char *path);
struct stat;
/* Opens a file for reading, and says what it is; a folder is refused. */
ep_status ep_file_open(const char *path, ep_error *err, int *fd, struct stat *st);

typedef struct ep_mapped {
    const char *data; /* "" for an empty file */
    size_t size;
    void *base; /* what to unmap, or NULL */
} ep_mapped;
ep_status ep_file_map(const char *path, ep_error *err, ep_mapped *out);
void ep_file_unmap(ep_mapped *m);

/* The whole file, malloc'ed, with a terminator behind it; refused above `limit` bytes. `size` may be NULL. */
ep_status ep_file_read(const char *path, size_t limit, ep_error *err, char **data, size_t *size);
/* Written beside the target and renamed over it: a reader sees the old file or the new one, never a part. */
ep_status ep_file_write(const char *path, const void *data, size_t size, ep_error *err);
/* All of it, however many writes it takes; false with errno set. */
bool ep_fd_write(int fd, const void *data, size_t size);
/* Creates the folder and the ones above it. */
ep_status ep_file_make_folder(const char *path, ep_error *err);

/* A byte stream in: a file or memory, unpacked if its first bytes are gzip's. Several gzip members in a row are one
 * stream. A stream that ends inside gzip data gives what could be unpacked and sets `cut`. */
typedef struct ep_stream_in ep_stream_in;
ep_status ep_stream_open(const char *path, ep_error *err, ep_stream_in **out);
ep_status ep_stream_memory(const void *data, size_t size, ep_error *err, ep_stream_in **out);
/* Up to `size` bytes; *got 0 at the end. */
ep_status ep_stream_read(ep_stream_in *in, void *data, size_t size, ep_error *err, size_t *got);
ep_status ep_stream_rewind(ep_stream_in *in, ep_error *err); /* fails on a pipe */
typedef struct ep_stream_state {
    bool gzip;
    bool cut;          /* gzip data ended too early */
    bool damaged;      /* gzip data is wrong from `consumed` on; what came before it was given */
    bool trailing;     /* something that is no gzip stands behind the last member and was left out */
    int64_t consumed;  /* bytes of the file taken so far */
    int64_t file_size; /* or -1 */
} ep_stream_state;
ep_stream_state ep_stream_get_state(const ep_stream_in *in);
void ep_stream_close(ep_stream_in *in);

/* A byte stream out, written beside `path` and put in its place by commit; gzip if asked for. */
typedef struct ep_stream_out ep_stream_out;
ep_status ep_stream_create(const char *path, bool gzip, ep_error *err, ep_stream_out **out);
ep_status ep_stream_write(ep_stream_out *o, const void *data, size_t size, ep_error *err);
ep_status ep_stream_commit(ep_stream_out *o, ep_error *err); /* ends and frees it, also on failure */
void ep_stream_abandon(ep_stream_out *o);                    /* removes what was written and frees it; null is fine */

#endif
