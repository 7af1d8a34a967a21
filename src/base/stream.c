/* Byte streams in and out, plain or gzip through zlib; long gzip files are unpacked by a thread that reads ahead. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "file.h"

enum { INPUT_SIZE = 1 << 17, OUTPUT_SIZE = 1 << 16, PART_SIZE = 48 };

enum { BLOCK_SIZE = 1 << 18, BLOCKS = 4, AHEAD_FROM = 1 << 16 };

/* Unpacked blocks between the thread that unpacks and the caller: [head, tail) are full. */
typedef struct read_ahead {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t filled, emptied;
    size_t head, tail, at; /* at: bytes taken from the block at head */
    bool stop;
    struct {
        size_t size; /* 0: the end */
        ep_status status;
        ep_error err;
        ep_stream_state state; /* once this block was unpacked */
        unsigned char data[BLOCK_SIZE];
    } block[BLOCKS];
} read_ahead;

struct ep_stream_in {
    int fd; /* -1: memory */
    const unsigned char *memory;
    size_t memory_size, memory_at;
    ep_stream_state state; /* the thread's while it runs */
    ep_stream_state seen;  /* what belongs to the bytes that the caller got */
    read_ahead *ahead;     /* or NULL */
    bool started, ended;   /* the first bytes were looked at; no more bytes will come */
    z_stream z;
    bool z_open, in_member; /* in_member: a gzip member was begun and not ended */
    bool any_member;
    size_t have; /* bytes in `input`: next_in for gzip, given on as they are for plain */
    size_t at;
    unsigned char input[INPUT_SIZE];
};

ep_status ep_stream_open(const char *path, ep_error *err, ep_stream_in **out) {
    int fd;
    struct stat st = {0};
    EP_TRY(ep_file_open(path, err, &fd, &st));
    ep_stream_in *in = calloc(1, sizeof *in);
    if (!in) {
        close(fd);
        return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory to read %s", path);
    }
    in->fd = fd;
    in->state.file_size = in->seen.file_size = S_ISREG(st.st_mode) ? (int64_t)st.st_size : -1;
    *out = in;
    return EP_OK;
}

ep_status ep_stream_memory(const void *data, size_t size, ep_error *err, ep_stream_in **out) {
    ep_stream_in *in = calloc(1, sizeof *in);
    if (!in) return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory for a stream over %zu bytes", size);
    in->fd = -1;
    in->memory = data;
    in->memory_size = size;
    in->state.file_size = in->seen.file_size = (int64_t)size;
    *out = in;
    return EP_OK;
}

/* Bytes as the file has them. */
static ep_status raw_read(ep_stream_in *in, void *data, size_t size, ep_error *err, size_t *got) {
    if (in->fd < 0) {
        size_t left = in->memory_size - in->memory_at;
        *got = size < left ? size : left;
        if (*got) memcpy(data, in->memory + in->memory_at, *got);
        in->memory_at += *got;
        return EP_OK;
    }
    ssize_t n;
    do n = read(in->fd, data, size);
    while (n < 0 && errno == EINTR);
    if (n < 0) return ep_fail(err, EP_ERROR_IO, "reading failed: %s", strerror(errno));
    *got = (size_t)n;
    return EP_OK;
}

/* Fills `input` when it is used up; in->have is 0 at the end of the file. */
static ep_status refill(ep_stream_in *in, ep_error *err) {
    if (in->at < in->have) return EP_OK;
    in->at = 0;
    return raw_read(in, in->input, sizeof in->input, err, &in->have);
}

static ep_status start(ep_stream_in *in, ep_error *err) {
    in->started = true;
    while (in->have < 2) {
        size_t got;
        EP_TRY(raw_read(in, in->input + in->have, sizeof in->input - in->have, err, &got));
        if (got == 0) break;
        in->have += got;
    }
    in->state.gzip = in->have >= 2 && in->input[0] == 0x1f && in->input[1] == 0x8b;
    if (!in->state.gzip) return EP_OK;
    if (inflateInit2(&in->z, 15 + 16) != Z_OK) return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory for zlib");
    in->z_open = in->in_member = true;
    return EP_OK;
}

/* Between members: is there another one? Padding and what is no gzip is left out. */
static bool next_member(ep_stream_in *in) {
    if (in->input[in->at] != 0x1f) {
        in->state.trailing = in->input[in->at] != 0;
        return false;
    }
    in->in_member = true;
    return inflateReset(&in->z) == Z_OK;
}

static ep_status gzip_read(ep_stream_in *in, void *data, size_t size, ep_error *err, size_t *got) {
    in->z.next_out = data;
    in->z.avail_out = (uInt)(size < 1u << 30 ? size : 1u << 30);
    size_t room = in->z.avail_out;
    while (in->z.avail_out && !in->ended) {
        EP_TRY(refill(in, err));
        if (in->have == 0) {
            in->state.cut = in->in_member;
            in->ended = true;
            break;
        }
        if (!in->in_member && !next_member(in)) {
            in->ended = true;
            break;
        }
        in->z.next_in = in->input + in->at;
        in->z.avail_in = (uInt)(in->have - in->at);
        int code = inflate(&in->z, Z_NO_FLUSH);
        in->state.consumed += (int64_t)(in->have - in->at - in->z.avail_in);
        in->at = in->have - in->z.avail_in;
        if (code == Z_STREAM_END) {
            in->in_member = false;
            in->any_member = true;
        } else if (code != Z_OK && code != Z_BUF_ERROR) {
            in->state.damaged = !in->any_member || code != Z_DATA_ERROR || in->z.total_out > 0;
            in->state.trailing = !in->state.damaged;
            in->ended = true;
        }
    }
    *got = room - in->z.avail_out;
    return EP_OK;
}

static ep_status plain_read(ep_stream_in *in, void *data, size_t size, ep_error *err, size_t *got) {
    if (in->at < in->have) {
        size_t left = in->have - in->at;
        *got = size < left ? size : left;
        memcpy(data, in->input + in->at, *got);
        in->at += *got;
    } else {
        EP_TRY(raw_read(in, data, size, err, got));
    }
    in->state.consumed += (int64_t)*got;
    return EP_OK;
}

static void *unpack_ahead(void *user) {
    ep_stream_in *in = user;
    read_ahead *a = in->ahead;
    for (bool more = true; more;) {
        pthread_mutex_lock(&a->lock);
        while (a->tail - a->head == BLOCKS && !a->stop) pthread_cond_wait(&a->emptied, &a->lock);
        bool stop = a->stop;
        size_t i = a->tail % BLOCKS;
        pthread_mutex_unlock(&a->lock);
        if (stop) break;
        a->block[i].size = 0;
        a->block[i].status = gzip_read(in, a->block[i].data, BLOCK_SIZE, &a->block[i].err, &a->block[i].size);
        a->block[i].state = in->state;
        more = a->block[i].status == EP_OK && a->block[i].size > 0;
        pthread_mutex_lock(&a->lock);
        a->tail++;
        pthread_cond_signal(&a->filled);
        pthread_mutex_unlock(&a->lock);
    }
    return NULL;
}

/* Without a second core or a second thread the caller unpacks by itself. */
static void start_ahead(ep_stream_in *in) {
    if (in->state.file_size < AHEAD_FROM || sysconf(_SC_NPROCESSORS_ONLN) < 2) return;
    read_ahead *a = malloc(sizeof *a);
    if (!a) return;
    a->head = a->tail = a->at = 0;
    a->stop = false;
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->filled, NULL);
    pthread_cond_init(&a->emptied, NULL);
    in->ahead = a;
    if (pthread_create(&a->thread, NULL, unpack_ahead, in) == 0) return;
    in->ahead = NULL;
    free(a);
}

static void stop_ahead(ep_stream_in *in) {
    read_ahead *a = in->ahead;
    if (!a) return;
    pthread_mutex_lock(&a->lock);
    a->stop = true;
    pthread_cond_signal(&a->emptied);
    pthread_mutex_unlock(&a->lock);
    pthread_join(a->thread, NULL);
    pthread_cond_destroy(&a->emptied);
    pthread_cond_destroy(&a->filled);
    pthread_mutex_destroy(&a->lock);
    free(a);
    in->ahead = NULL;
}

static ep_status take_ahead(ep_stream_in *in, void *data, size_t size, ep_error *err, size_t *got) {
    read_ahead *a = in->ahead;
    pthread_mutex_lock(&a->lock);
    while (a->head == a->tail) pthread_cond_wait(&a->filled, &a->lock);
    pthread_mutex_unlock(&a->lock);
    size_t i = a->head % BLOCKS, left = a->block[i].size - a->at;
    *got = size < left ? size : left;
    memcpy(data, a->block[i].data + a->at, *got);
    a->at += *got;
    in->seen = a->block[i].state;
    if (a->block[i].status != EP_OK && *got == 0) {
        if (err) *err = a->block[i].err;
        return a->block[i].status;
    }
    if (a->block[i].size == 0 || a->at < a->block[i].size) return EP_OK; /* the end stays where it is */
    pthread_mutex_lock(&a->lock);
    a->head++;
    a->at = 0;
    pthread_cond_signal(&a->emptied);
    pthread_mutex_unlock(&a->lock);
    return EP_OK;
}

ep_status ep_stream_read(ep_stream_in *in, void *data, size_t size, ep_error *err, size_t *got) {
    *got = 0;
    if (!in->started) {
        EP_TRY(start(in, err));
        if (in->state.gzip) start_ahead(in);
    }
    if (in->ahead) return size ? take_ahead(in, data, size, err, got) : EP_OK;
    ep_status status = in->state.gzip ? gzip_read(in, data, size, err, got) : plain_read(in, data, size, err, got);
    in->seen = in->state;
    return status;
}

ep_status ep_stream_rewind(ep_stream_in *in, ep_error *err) {
    stop_ahead(in);
    if (in->fd >= 0 && lseek(in->fd, 0, SEEK_SET) != 0)
        return ep_fail(err, EP_ERROR_IO, "this input cannot be read a second time: %s", strerror(errno));
    if (in->z_open) inflateEnd(&in->z);
    memset(&in->z, 0, sizeof in->z);
    in->z_open = in->in_member = in->any_member = in->started = in->ended = false;
    in->have = in->at = in->memory_at = 0;
    in->state = in->seen = (ep_stream_state){.file_size = in->state.file_size};
    return EP_OK;
}

ep_stream_state ep_stream_get_state(const ep_stream_in *in) {
    return in->seen;
}

void ep_stream_close(ep_stream_in *in) {
    if (!in) return;
    stop_ahead(in);
    if (in->z_open) inflateEnd(&in->z);
    if (in->fd >= 0) close(in->fd);
    free(in);
}

struct ep_stream_out {
    int fd;
    char *path, *beside; /* the target and the file written until the commit */
    bool gzip;
    z_stream z;
    unsigned char output[OUTPUT_SIZE];
};

static void free_out(ep_stream_out *o) {
    if (o->gzip) deflateEnd(&o->z);
    if (o->fd >= 0) close(o->fd);
    free(o->path);
    free(o->beside);
    free(o);
}

/* The number of a file that is open already and goes by a name: /dev/stdout, /dev/fd/3; -1: none. */
static int open_number(const char *path) {
    static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/"};
    if (strcmp(path, "/dev/stdout") == 0) return 1;
    if (strcmp(path, "/dev/stderr") == 0) return 2;
    for (size_t i = 0; i < 2; i++) {
        size_t n = strlen(folders[i]);
        if (strncmp(path, folders[i], n) != 0) continue;
        char *end;
        long fd = strtol(path + n, &end, 10);
        return end != path + n && *end == 0 && fd >= 0 && fd <= 65535 ? (int)fd : -1;
    }
    return -1;
}

/* Where a link points is what gets replaced, not the link. */
static bool follow_link(ep_stream_out *o) {
    struct stat st;
    if (lstat(o->path, &st) != 0 || !S_ISLNK(st.st_mode)) return true;
    char *target = realpath(o->path, NULL);
    if (!target) return errno == ENOENT; /* it points at nothing yet: replaced as it is */
    char *beside = malloc(strlen(target) + PART_SIZE);
    if (!beside) {
        free(target);
        return false;
    }
    free(o->path);
    free(o->beside);
    o->path = target;
    o->beside = beside;
    return true;
}

/* A plain file is replaced by a rename; anything else there (a pipe, a file that is open by /dev/stdout) is written to
 * directly: a rename would put a file in the place of the name. */
static bool open_target(ep_stream_out *o) {
    struct stat st;
    int number = open_number(o->path);
    if (number >= 0) {
        free(o->beside);
        o->beside = NULL;
        o->fd = fcntl(number, F_DUPFD_CLOEXEC, 3);
        return o->fd >= 0;
    }
    if (!follow_link(o)) return false;
    if (stat(o->path, &st) == 0 && !S_ISREG(st.st_mode)) {
        free(o->beside);
        o->beside = NULL;
        o->fd = open(o->path, O_WRONLY | O_CLOEXEC);
        return o->fd >= 0;
    }
    size_t n = strlen(o->path);
    for (unsigned attempt = 0; attempt < 100; attempt++) {
        snprintf(o->beside, n + PART_SIZE, "%s.part-%ld-%u", o->path, (long)getpid(), attempt);
        o->fd = open(o->beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (o->fd >= 0 || errno != EEXIST) break;
    }
    return o->fd >= 0;
}

ep_status ep_stream_create(const char *path, bool gzip, ep_error *err, ep_stream_out **out) {
    size_t n = strlen(path);
    ep_stream_out *o = calloc(1, sizeof *o);
    if (!o) return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory to write %s", path);
    o->fd = -1;
    o->path = malloc(n + 1);
    o->beside = malloc(n + PART_SIZE);
    if (!o->path || !o->beside ||
        (gzip && deflateInit2(&o->z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK)) {
        free_out(o);
        return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory to write %s", path);
    }
    o->gzip = gzip;
    memcpy(o->path, path, n + 1);
    if (!open_target(o)) {
        ep_status status = ep_file_fail(err, "write", path);
        free_out(o);
        return status;
    }
    *out = o;
    return EP_OK;
}

static ep_status raw_write(ep_stream_out *o, const void *data, size_t size, ep_error *err) {
    return ep_fd_write(o->fd, data, size) ? EP_OK : ep_file_fail(err, "write", o->path);
}

static ep_status deflate_some(ep_stream_out *o, const void *data, size_t size, int flush, ep_error *err) {
    o->z.next_in = (Bytef *)(uintptr_t)data;
    o->z.avail_in = (uInt)size;
    do {
        o->z.next_out = o->output;
        o->z.avail_out = sizeof o->output;
        deflate(&o->z, flush);
        EP_TRY(raw_write(o, o->output, sizeof o->output - o->z.avail_out, err));
    } while (o->z.avail_out == 0);
    return EP_OK;
}

ep_status ep_stream_write(ep_stream_out *o, const void *data, size_t size, ep_error *err) {
    if (!o->gzip) return raw_write(o, data, size, err);
    const unsigned char *p = data;
    while (size) {
        size_t n = size < 1u << 30 ? size : 1u << 30;
        EP_TRY(deflate_some(o, p, n, Z_NO_FLUSH, err));
        p += n;
        size -= n;
    }
    return EP_OK;
}

ep_status ep_stream_commit(ep_stream_out *o, ep_error *err) {
    ep_status status = o->gzip ? deflate_some(o, NULL, 0, Z_FINISH, err) : EP_OK;
    int fd = o->fd;
    o->fd = -1;
    if (close(fd) != 0 && status == EP_OK) status = ep_file_fail(err, "write", o->path);
    if (status == EP_OK && o->beside && rename(o->beside, o->path) != 0) status = ep_file_fail(err, "replace", o->path);
    if (status != EP_OK && o->beside) unlink(o->beside);
    free_out(o);
    return status;
}

void ep_stream_abandon(ep_stream_out *o) {
    if (!o) return;
    if (o->beside) unlink(o->beside);
    free_out(o);
}
