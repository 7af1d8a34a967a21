/* Loads generated shared objects from memory and runs their kernels over all threads. */
#define _GNU_SOURCE
#include "cpu_module.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/file.h"
#include "base/parallel.h"
#include "run/backend/launch.h"

/* A path of the descriptor that no earlier module had: dlopen gives the old module for a name it knows. "/." and "/"
 * lead nowhere else, so they spell a number. */
static void unique_path(int fd, char out[160]) {
    size_t n = (size_t)snprintf(out, 32, "/proc/self/fd");
    for (uint64_t number = ep_probe_correlation(); number; number >>= 1) {
        out[n++] = '/';
        if (number & 1) out[n++] = '.';
    }
    snprintf(out + n, 16, "/%d", fd);
}

/* The verified bytes themselves are loaded, not a path that somebody could have changed since. */
static void *load_image(const void *image, size_t size, const char **why) {
    char name[160];
    int fd = memfd_create("epilogue-kernels", MFD_CLOEXEC);
    if (fd < 0) {
        *why = strerror(errno);
        return NULL;
    }
    if (!ep_fd_write(fd, image, size)) {
        *why = strerror(errno);
        close(fd);
        return NULL;
    }
    unique_path(fd, name);
    void *m = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!m) *why = dlerror();
    close(fd);
    return m;
}

ep_status ep_cpu_module_load(ep_backend *b, const char *path, const void *image, size_t size, ep_error *err,
                             void **module) {
    (void)b;
    const char *why = "";
    void *m = image ? load_image(image, size, &why) : dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!m && !image) why = dlerror();
    if (!m) return ep_fail(err, EP_ERROR_COMPILER, "a generated kernel cannot be loaded: %s", why ? why : "unknown");
    *module = m;
    return EP_OK;
}

void ep_cpu_module_free(ep_backend *b, void *module) {
    (void)b;
    if (module) dlclose(module);
}

ep_status ep_cpu_module_symbol(ep_backend *b, void *module, const char *name, ep_error *err, void **function) {
    (void)b;
    void *f = dlsym(module, name);
    if (!f) return ep_fail(err, EP_ERROR_COMPILER, "the generated code lacks %s", name);
    *function = f;
    return EP_OK;
}

typedef struct call {
    ep_generated run;
    const void *args;
} call;

static void body(void *user, int64_t begin, int64_t end) {
    const call *c = user;
    c->run(c->args, begin, end);
}

/* A fork-join costs 2 to 3 us: below about four of them in bytes or flops the caller's thread is faster alone. */
static int threads_for(const ep_backend *b, const ep_work *w, int64_t items) {
    double us = (double)(w->bytes_read + w->bytes_written) / 20e3 + (double)w->flops / 60e3;
    return items < 2 || us < 10 ? 1 : b->threads;
}

static void run(ep_backend *b, const call *c, const ep_work *work, int64_t items) {
    int threads = threads_for(b, work, items);
    if (threads <= 1)
        c->run(c->args, 0, items);
    else
        ep_parallel_for(threads, items, 1, body, (void *)(uintptr_t)c);
}

ep_status ep_cpu_module_launch(ep_backend *b, void *function, const char *name, void *args, size_t args_size,
                               const ep_work *work, int64_t items, ep_error *err) {
    (void)args_size;
    (void)err;
    call c = {.args = args};
    memcpy(&c.run, &function, sizeof function); /* dlsym's pointer is a function */
    const ep_probe *p = ep_probe_get();
    if (!p) {
        run(b, &c, work, items);
        return EP_OK;
    }
    ep_launch l = ep_launch_begin(p->name(p->self, name)); /* the recording may outlive the module */
    run(b, &c, work, items);
    ep_launch_end(&l, work->flops, work->bytes_read, work->bytes_written);
    return EP_OK;
}

void ep_cpu_module_call(void *function, const int64_t *args, int64_t begin, int64_t end) {
    ep_generated kernel;
    memcpy(&kernel, &function, sizeof kernel);
    kernel(args, begin, end);
}
