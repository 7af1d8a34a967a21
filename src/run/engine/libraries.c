/* Which of the libraries and programs we can use are on this machine. */
#define _GNU_SOURCE
#include <epilogue/context.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How a row tells its version once it is found; `handle` is NULL for what is no library. */
typedef void (*describe_fn)(void *handle, ep_library *l);

static void onednn(void *handle, ep_library *l) {
    const struct version { int major, minor, patch; } * (*get)(void);
    void *f = dlsym(handle, "dnnl_version");
    if (!f) return;
    memcpy(&get, &f, sizeof get);
    const struct version *v = get();
    snprintf(l->version, sizeof l->version, "%d.%d.%d", v->major, v->minor, v->patch);
}

static void zlib(void *handle, ep_library *l) {
    const char *(*get)(void);
    void *f = dlsym(handle, "zlibVersion");
    if (!f) return;
    memcpy(&get, &f, sizeof get);
    snprintf(l->version, sizeof l->version, "%s", get());
}

/* The program that would compile: EPILOGUE_CC, else cc, by the path. */
static void compiler(void *handle, ep_library *l) {
    const char *name = getenv("EPILOGUE_CC"), *path = getenv("PATH");
    char full[4096];
    (void)handle;
    if (!name || !*name) name = "cc";
    for (const char *p = strchr(name, '/') ? "" : path; p && !l->found;) {
        size_t n = strcspn(p, ":");
        snprintf(full, sizeof full, "%.*s%s%s", (int)n, p, n ? "/" : "", name);
        l->found = access(full, X_OK) == 0;
        p = p[n] ? p + n + 1 : NULL;
    }
    if (l->found) snprintf(l->version, sizeof l->version, "%.63s", full);
}

/* Names are tried in order; without a name there is only the description. */
static const struct {
    const char *name, *use;
    describe_fn describe;
    const char *names[3];
} libraries[] = {
    {"oneDNN", "matrix products on the CPU", onednn, {"libdnnl.so.2", "libdnnl.so.3"}},
    {"OpenMP", "threads on the CPU", NULL, {"libgomp.so.1", "libomp.so.5", "libomp.so"}},
    {"zlib", "traces as .json.gz", zlib, {"libz.so.1"}},
    {"C compiler", "compiled mode on the CPU", compiler, {NULL}},
    {"CUDA driver", "the GPU", NULL, {"libcuda.so.1"}},
    {"cuBLASLt", "matrix products on the GPU", NULL, {"libcublasLt.so.13", "libcublasLt.so.12"}},
    {"NVRTC", "compiled mode on the GPU", NULL, {"libnvrtc.so.13", "libnvrtc.so.12"}},
    {"CUPTI", "kernel times on the GPU", NULL, {"libcupti.so.13", "libcupti.so.12"}},
};
enum { COUNT = sizeof libraries / sizeof *libraries };

size_t ep_libraries(ep_library *out, size_t max) {
    for (size_t i = 0; i < COUNT && i < max; i++) {
        ep_library *l = &out[i];
        void *handle = NULL;
        *l = (ep_library){.name = libraries[i].name, .use = libraries[i].use};
        for (size_t k = 0; k < 3 && libraries[i].names[k] && !handle; k++) {
            handle = dlopen(libraries[i].names[k], RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
            if (handle) snprintf(l->version, sizeof l->version, "%s", libraries[i].names[k]);
        }
        l->found = handle != NULL;
        if (libraries[i].describe && (handle || !libraries[i].names[0])) libraries[i].describe(handle, l);
        if (handle) dlclose(handle);
    }
    return COUNT;
}
