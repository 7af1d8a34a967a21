/* Generated kernels: cubins loaded, launched by the convention that codegen/dialect_cuda.c writes. */
#include <string.h>

#include "cuda_state.h"

ep_status cuda_module_load(ep_backend *b, const char *path, const void *image, size_t size, ep_error *err,
                           void **module) {
    (void)path, (void)size;
    cuda_state *s = cuda_of(b);
    cu_module m;
    EP_TRY(cuda_enter(s, err));
    EP_TRY(cuda_result(s, s->cu->module_load(&m, image), "cuModuleLoadData of a generated kernel", err));
    *module = m;
    return EP_OK;
}

void cuda_module_free(ep_backend *b, void *module) {
    cuda_state *s = cuda_of(b);
    if (!module || cuda_enter(s, NULL) != EP_OK) return;
    /* Its kernels may still be running. */
    s->cu->stream_sync(s->stream);
    s->cu->module_unload(module);
}

ep_status cuda_module_symbol(ep_backend *b, void *module, const char *name, ep_error *err, void **function) {
    cuda_state *s = cuda_of(b);
    cu_function f;
    EP_TRY(cuda_enter(s, err));
    EP_TRY(cuda_result(s, s->cu->module_function(&f, module, name), name, err));
    *function = f;
    return EP_OK;
}

/* The argument block goes by value, then how many items there are: a thread an item, or a block where rows are reduced;
 * a smaller grid walks on by its own size. */
ep_status cuda_module_launch(ep_backend *b, void *function, const char *name, void *args, size_t args_size,
                             const ep_work *work, int64_t items, ep_error *err) {
    (void)args_size;
    if (items <= 0) return EP_OK;
    cuda_state *s = cuda_of(b);
    EP_TRY(cuda_enter(s, err));
    enum { BLOCK = 256 };
    bool rows = strncmp(name, "epi_red", 7) == 0;
    int64_t blocks = rows ? items : (items + BLOCK - 1) / BLOCK, most = INT32_MAX;
    cuda_launch l = {.name = name,
                     .grid = {(unsigned)(blocks < most ? blocks : most), 1, 1},
                     .block = BLOCK,
                     .flops = work->flops,
                     .bytes_read = work->bytes_read,
                     .bytes_written = work->bytes_written};
    long long count = items;
    void *params[] = {args, &count};
    return cuda_run_function(s, function, &l, params, err);
}
