/* context.h: where and how ops run: device, threads, rounding, allocator. One context is used by one thread at a time;
 * a process may have many. A block, compiled function or product that is called while another thread is in a call on the
 * same context gives EP_ERROR_BUSY (its sentence is ep_status_sentence's: ep_context_error is the other thread's).
 * Contexts of one device have streams of their own: call ep_context_sync on one before another uses its tensors.
 * Tensors that ops made on a context may outlive it.
 *
 * After fork() a child may go on with what it has on the CPU. The thread that forked then works alone, whatever the
 * context says, if it ever worked with others: they are not in the child. Threads that the child starts have all. */
#ifndef EPILOGUE_CONTEXT_H
#define EPILOGUE_CONTEXT_H

#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* EAGER: fused code rounds to the tensor dtype where eager would have stored, so its pointwise part is bit-equal.
 * FEWEST: values stay f32 until the one store. docs/rounding.md has the rules. */
typedef enum ep_rounding { EP_ROUNDING_EAGER, EP_ROUNDING_FEWEST } ep_rounding;

typedef enum ep_mode { EP_MODE_EAGER, EP_MODE_COMPILED, EP_MODE_TUNED, EP_MODE_COUNT } ep_mode;

typedef struct ep_context ep_context;

typedef struct ep_context_options {
    ep_device device;     /* CPU 0 by default */
    int threads;          /* 0: all cores this process may use; at most 4096 */
    ep_rounding rounding; /* EP_ROUNDING_EAGER by default */
    bool reference;       /* run every op by the plain reference kernels */
    bool autotune;        /* on a GPU: measure the library's proposals for a product once per shape class */
    bool tf32;            /* on a GPU: f32 products read 10 bits of the fraction (tf32), sums stay f32; never unasked */
} ep_context_options;

/* `options` NULL: the defaults, which are all zero. */
EP_API ep_status ep_context_create(const ep_context_options *options, ep_error *err, ep_context **out);
EP_API void ep_context_destroy(ep_context *ctx);

/* The error of the last failed call on this context. Never NULL; valid until the next call on it. */
EP_API const ep_error *ep_context_error(const ep_context *ctx);
EP_API ep_device ep_context_device(const ep_context *ctx);
EP_API int ep_context_threads(const ep_context *ctx);
EP_API ep_rounding ep_context_rounding(const ep_context *ctx);

/* What `autotune` chose so far, a line for each shape class; "" where nothing was. Valid until the next call. */
EP_API const char *ep_context_autotuned(ep_context *ctx);

/* Blocks until all work enqueued on the context's device is done (nothing to wait for on the CPU). A sticky device
 * error is returned here and by every later call. */
EP_API ep_status ep_context_sync(ep_context *ctx);

/* Copies between the host and the context's device; an alias where the tensor is there already. From one device to another
 * a tensor goes through the host, by the contexts of both. */
EP_API ep_status ep_to_device(ep_context *ctx, const ep_tensor *x, ep_tensor **out);
EP_API ep_status ep_to_host(ep_context *ctx, const ep_tensor *x, ep_tensor **out);

/* What the context's caching allocator holds: bytes in use, bytes cached, and how often it went to the system. */
typedef struct ep_memory_stats {
    int64_t bytes_in_use, bytes_cached, peak_bytes, system_allocations;
} ep_memory_stats;
EP_API void ep_context_memory(const ep_context *ctx, ep_memory_stats *out);

/* What this process found of the libraries and programs it can use. `name` and `use` are static strings. */
typedef struct ep_library {
    const char *name, *use; /* "oneDNN", "matrix products on the CPU" */
    bool found;
    char version[64]; /* "2.6.3", a path, or "" */
} ep_library;
/* Fills up to `max` rows and gives how many there are. Opens device libraries to see, which may take a second. */
EP_API size_t ep_libraries(ep_library *out, size_t max);

#ifdef __cplusplus
}
#endif
#endif
