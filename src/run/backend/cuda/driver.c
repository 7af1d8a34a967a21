/* Finds the CUDA driver and cuBLASLt once per process. */
#include "driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static cu_driver driver;
static lt_library blas;
static char driver_missing[200], blas_missing[200];
static pthread_once_t driver_once = PTHREAD_ONCE_INIT, blas_once = PTHREAD_ONCE_INIT;

typedef struct symbol_row {
    const char *symbol;
    size_t offset;
} symbol_row;

void *cu_open_library(const char *const *names) {
    static const char *const folders[] = {"", "/usr/local/cuda/lib64/", "/usr/lib/x86_64-linux-gnu/"};
    for (size_t f = 0; f < sizeof folders / sizeof *folders; f++) {
        for (const char *const *n = names; *n; n++) {
            char path[256];
            size_t a = strlen(folders[f]), b = strlen(*n);
            if (a + b >= sizeof path) continue;
            memcpy(path, folders[f], a);
            memcpy(path + a, *n, b + 1);
            void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
            if (lib) return lib;
        }
    }
    return NULL;
}

/* Fills the table; on a missing symbol writes its name and gives false. */
static bool bind(void *library, void *table, const symbol_row *rows, size_t count, const char *what, char *missing,
                 size_t size) {
    for (size_t i = 0; i < count; i++) {
        void *p = dlsym(library, rows[i].symbol);
        if (!p) {
            snprintf(missing, size, "%s has no %s: it is too old for this", what, rows[i].symbol);
            return false;
        }
        memcpy((char *)table + rows[i].offset, &p, sizeof p);
    }
    return true;
}

static void load_driver(void) {
    static const char *const names[] = {"libcuda.so.1", "libcuda.so", NULL};
    static const symbol_row rows[] = {
#define F(symbol, field, params) {#symbol, offsetof(cu_driver, field)},
        CU_DRIVER_FUNCTIONS(F)
#undef F
    };
    void *lib = cu_open_library(names);
    if (!lib) {
        strcpy(driver_missing, "there is no NVIDIA driver here (libcuda.so.1 was not found)");
        return;
    }
    if (!bind(lib, &driver, rows, sizeof rows / sizeof *rows, "libcuda.so.1", driver_missing, sizeof driver_missing))
        return;
    if (driver.init(0) != 0) {
        strcpy(driver_missing, "the NVIDIA driver is here but found no GPU it can use (cuInit failed)");
        return;
    }
    static const symbol_row newer[] = {{"cuModuleGetFunctionCount", offsetof(cu_driver, module_count)},
                                       {"cuModuleEnumerateFunctions", offsetof(cu_driver, module_list)},
                                       {"cuFuncGetName", offsetof(cu_driver, function_name)}};
    char ignored[sizeof driver_missing];
    if (!bind(lib, &driver, newer, sizeof newer / sizeof *newer, "", ignored, sizeof ignored))
        driver.module_count = NULL;
    static const symbol_row graphs[] = {{"cuGraphKernelNodeGetParams_v2", offsetof(cu_driver, kernel_node)},
                                        {"cuGraphKernelNodeGetAttribute", offsetof(cu_driver, kernel_node_attribute)},
                                        {"cuGraphMemsetNodeGetParams", offsetof(cu_driver, memset_node)},
                                        {"cuGraphNodeGetDependencies_v2", offsetof(cu_driver, node_dependencies)},
                                        {"cuMemsetD32Async", offsetof(cu_driver, memset32)}};
    if (!bind(lib, &driver, graphs, sizeof graphs / sizeof *graphs, "", ignored, sizeof ignored))
        driver.kernel_node = NULL;
    static const symbol_row params[] = {{"cuFuncGetParamInfo", offsetof(cu_driver, function_param)},
                                        {"cuKernelGetParamInfo", offsetof(cu_driver, kernel_param)}};
    if (!bind(lib, &driver, params, sizeof params / sizeof *params, "", ignored, sizeof ignored))
        driver.function_param = NULL;
    driver.library = lib;
}

const cu_driver *cu_driver_get(ep_error *err) {
    pthread_once(&driver_once, load_driver);
    if (driver.library) return &driver;
    ep_fail(err, EP_ERROR_MISSING_LIBRARY, "%s", driver_missing);
    return NULL;
}

static void load_blas(void) {
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so", NULL};
    static const symbol_row rows[] = {
#define F(symbol, field, params) {#symbol, offsetof(lt_library, field)},
        LT_FUNCTIONS(F)
#undef F
    };
    void *lib = cu_open_library(names);
    if (!lib) {
        strcpy(blas_missing, "cuBLASLt was not found (libcublasLt.so.13 or .12)");
        return;
    }
    if (bind(lib, &blas, rows, sizeof rows / sizeof *rows, "libcublasLt", blas_missing, sizeof blas_missing))
        blas.library = lib;
}

const lt_library *lt_library_get(ep_error *err) {
    pthread_once(&blas_once, load_blas);
    if (blas.library) return &blas;
    ep_fail(err, EP_ERROR_MISSING_LIBRARY, "%s", blas_missing);
    return NULL;
}

ep_status cu_check(const cu_driver *cu, cu_result result, const char *what, ep_error *err) {
    if (result == 0) return EP_OK;
    const char *name = NULL, *text = NULL;
    cu->error_name(result, &name);
    cu->error_string(result, &text);
    return ep_fail(err, result == 2 ? EP_ERROR_OUT_OF_MEMORY : EP_ERROR_DRIVER, "%s: %s (%d): %.120s",
                   name ? name : "?", text ? text : "unknown driver error", result, what);
}

ep_status lt_check(int result, const char *what, ep_error *err) {
    static const char *const names[16] = {
        [1] = "not initialized",   [3] = "allocation failed", [7] = "invalid value", [8] = "architecture mismatch",
        [13] = "execution failed", [14] = "internal error",   [15] = "not supported"};
    if (result == 0) return EP_OK;
    const char *name = (unsigned)result < 16 ? names[result] : NULL;
    return ep_fail(err, result == 15 ? EP_ERROR_UNSUPPORTED : EP_ERROR_DRIVER, "cuBLASLt %s (%d): %.120s",
                   name ? name : "error", result, what);
}
