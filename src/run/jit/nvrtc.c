/* NVIDIA's run-time compiler, opened at run time: CUDA C -> cubin. Without the library it says so. */
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "toolchain.h"

typedef struct program *program;
typedef struct nvrtc {
    void *library;
    int (*version)(int *major, int *minor);
    int (*create)(program *p, const char *source, const char *name, int headers, const char *const *texts,
                  const char *const *names);
    int (*compile)(program p, int count, const char *const *options);
    int (*log_size)(program p, size_t *size);
    int (*log)(program p, char *text);
    int (*cubin_size)(program p, size_t *size);
    int (*cubin)(program p, char *image);
    int (*destroy)(program *p);
} nvrtc;

static nvrtc api;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void open_library(void) {
    static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "/usr/local/cuda/lib64/libnvrtc.so",
                                        "libnvrtc.so"};
    for (size_t i = 0; i < sizeof names / sizeof *names && !api.library; i++)
        api.library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    const struct {
        const char *name;
        void *at;
    } symbols[] = {{"nvrtcVersion", &api.version},        {"nvrtcCreateProgram", &api.create},
                   {"nvrtcCompileProgram", &api.compile}, {"nvrtcGetProgramLogSize", &api.log_size},
                   {"nvrtcGetProgramLog", &api.log},      {"nvrtcGetCUBINSize", &api.cubin_size},
                   {"nvrtcGetCUBIN", &api.cubin},         {"nvrtcDestroyProgram", &api.destroy}};
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols && api.library; i++) {
        void *f = dlsym(api.library, symbols[i].name);
        memcpy(symbols[i].at, &f, sizeof f);
        if (f) continue;
        dlclose(api.library);
        api.library = NULL;
    }
}

static ep_status need(ep_error *err) {
    pthread_once(&once, open_library);
    return api.library ? EP_OK : ep_fail(err, EP_ERROR_COMPILER, "NVRTC (libnvrtc) is not on this machine");
}

/* Contraction is left on, as it is for the ahead-of-time kernels, so that equal formulas give equal bits. */
static const char *const flags[] = {"--std=c++17", "-default-device", "-w"};
enum { FLAGS = sizeof flags / sizeof *flags };

/* The library's file, where it lies in the usual folders: opening it takes longer than all else a cached kernel needs. */
static struct stat file;
static char file_folder[PATH_MAX];
static pthread_once_t file_once = PTHREAD_ONCE_INIT;

static bool look_in(const char *folder, size_t length) {
    static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
    char path[PATH_MAX];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int n = snprintf(path, sizeof path, "%.*s/%s", (int)length, folder, names[i]);
        if (n <= 0 || (size_t)n >= sizeof path || stat(path, &file) != 0) continue;
        memcpy(file_folder, folder, length);
        file_folder[length] = 0;
        return true;
    }
    memset(&file, 0, sizeof file);
    return false;
}

static void look_at_file(void) {
    static const char *const usual[] = {"/usr/local/cuda/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib64"};
    const char *set = getenv("LD_LIBRARY_PATH");
    while (set && *set) {
        size_t n = strcspn(set, ":");
        if (n && n < PATH_MAX && look_in(set, n)) return;
        set += n + (set[n] == ':');
    }
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (look_in(usual[i], strlen(usual[i]))) return;
}

static ep_status identity(const ep_build *b, ep_error *err, ep_hasher *h) {
    pthread_once(&file_once, look_at_file);
    if (file.st_size > 0) {
        int64_t what[4] = {(int64_t)file.st_size, (int64_t)file.st_mtim.tv_sec, (int64_t)file.st_mtim.tv_nsec,
                           (int64_t)file.st_ino};
        ep_hasher_add(h, what, sizeof what);
    } else {
        int version[2] = {0, 0};
        EP_TRY(need(err));
        api.version(&version[0], &version[1]);
        ep_hasher_add(h, version, sizeof version);
    }
    ep_hasher_add(h, b->arch, strlen(b->arch));
    for (int i = 0; i < FLAGS; i++) ep_hasher_add(h, flags[i], strlen(flags[i]) + 1);
    return EP_OK;
}

/* The library and what it opens itself are 110 MB and more. On a machine that has not read them yet the first compilation
 * waits for its disk; so a thread asks the system for them while the device's context opens. */
static pthread_t reader;
static bool reading;
static atomic_bool stop_reading;
static pthread_once_t read_once = PTHREAD_ONCE_INIT;

static void *read_ahead(void *unused) {
    (void)unused;
    pthread_once(&file_once, look_at_file);
    DIR *d = file_folder[0] ? opendir(file_folder) : NULL;
    for (struct dirent *e; d && (e = readdir(d)) && !atomic_load(&stop_reading);) {
        struct stat s;
        if (strncmp(e->d_name, "libnvrtc", 8) != 0 || !strstr(e->d_name, ".so.") || strstr(e->d_name, ".alt."))
            continue;
        int fd = openat(dirfd(d), e->d_name, O_RDONLY | O_CLOEXEC);
        if (fd < 0) continue;
        const off_t piece = 8 << 20;
        for (off_t at = 0; fstat(fd, &s) == 0 && at < s.st_size && !atomic_load(&stop_reading); at += piece)
            (void)posix_fadvise(fd, at, piece, POSIX_FADV_WILLNEED);
        close(fd);
    }
    if (d) closedir(d);
    return NULL;
}

static void start_reading(void) {
    reading = pthread_create(&reader, NULL, read_ahead, NULL) == 0;
}

static void expect(void) {
    pthread_once(&read_once, start_reading);
}

/* The thread must not outlive the code it runs. */
__attribute__((destructor)) static void end_reading(void) {
    atomic_store(&stop_reading, true);
    if (reading) pthread_join(reader, NULL);
}

static ep_status failure(program p, ep_error *err) {
    size_t size = 0;
    char *text = api.log_size(p, &size) == 0 && size ? malloc(size + 1) : NULL;
    if (text && api.log(p, text) != 0) text[0] = 0;
    ep_status s = ep_fail(err, EP_ERROR_COMPILER, "NVRTC failed: %.350s", text ? text : "");
    free(text);
    return s;
}

static ep_status take_cubin(program p, ep_error *err, void **image, size_t *size) {
    if (api.cubin_size(p, size) != 0 || *size == 0) return failure(p, err);
    void *data = malloc(*size);
    if (!data) return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "a cubin of %zu bytes", *size);
    if (api.cubin(p, data) != 0) {
        free(data);
        return failure(p, err);
    }
    *image = data;
    return EP_OK;
}

static ep_status build(const ep_build *b, ep_error *err, void **image, size_t *size) {
    char arch[64];
    const char *options[FLAGS + 1] = {arch};
    program p;
    EP_TRY(need(err));
    snprintf(arch, sizeof arch, "--gpu-architecture=%s", b->arch);
    for (int i = 0; i < FLAGS; i++) options[i + 1] = flags[i];
    if (api.create(&p, b->source, "epilogue_kernels.cu", 0, NULL, NULL) != 0)
        return ep_fail(err, EP_ERROR_COMPILER, "NVRTC could not take the source");
    ep_status s = api.compile(p, FLAGS + 1, options) == 0 ? take_cubin(p, err, image, size) : failure(p, err);
    api.destroy(&p);
    return s;
}

const ep_toolchain ep_toolchain_nvrtc = {"nvrtc", identity, build, expect};
