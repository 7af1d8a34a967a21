/* Generated shared objects on the CPU: the four module functions of the backend struct. */
#ifndef EP_RUN_BACKEND_CPU_MODULE_H
#define EP_RUN_BACKEND_CPU_MODULE_H

#include "run/backend/backend.h"

/* A generated kernel: does items [begin, end). */
typedef void (*ep_generated)(const void *args, int64_t begin, int64_t end);

ep_status ep_cpu_module_load(ep_backend *b, const char *path, const void *image, size_t size, ep_error *err,
                             void **module);
void ep_cpu_module_free(ep_backend *b, void *module);
ep_status ep_cpu_module_symbol(ep_backend *b, void *module, const char *name, ep_error *err, void **function);
ep_status ep_cpu_module_launch(ep_backend *b, void *function, const char *name, void *args, size_t args_size,
                               const ep_work *work, int64_t items, ep_error *err);
void ep_cpu_module_call(void *function, const int64_t *args, int64_t begin, int64_t end);

#endif
