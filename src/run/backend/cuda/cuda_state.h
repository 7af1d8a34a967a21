/* One device as a backend sees it: stream, memory, kernels, cuBLASLt. Counted: storages keep it alive, so that tensors
 * may outlive their context. */
#ifndef EP_CUDA_STATE_H
#define EP_CUDA_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/text.h"
#include "driver.h"
#include "run/backend/backend.h"

typedef struct cuda_block { /* a free block of device memory */
    cu_ptr p;
    size_t bytes;
} cuda_block;

typedef struct cuda_bin {
    size_t bytes;
    cuda_block *blocks;
    size_t count, cap;
} cuda_bin;

typedef struct cuda_memory {
    pthread_mutex_t lock;
    cuda_bin *bins;
    size_t bin_count, bin_cap;
    struct cuda_storage *spare; /* storage structs for reuse */
    ep_memory_stats stats;
    void *pinned; /* staging for host copies */
} cuda_memory;

typedef struct cuda_gemm_entry cuda_gemm_entry;

typedef enum cuda_one { CUDA_ONE_FASTER, CUDA_ONE_NEVER, CUDA_ONE_ALWAYS } cuda_one; /* always: where it can run */

typedef struct cuda_state {
    atomic_int refs;
    const cu_driver *cu;
    cu_device device;
    int index;
    cu_context context;
    cu_stream stream;
    int sm_count, major, minor, l2_bytes, shared_optin;
    char name[96];
    cuda_memory memory;

    const lt_library *lt; /* NULL: not found; gemm says so */
    lt_handle lt_handle;
    cu_ptr workspace; /* of cuBLASLt */
    size_t workspace_bytes;
    cuda_gemm_entry **gemms; /* open addressing by key */
    size_t gemm_count, gemm_slots;
    bool autotune;                  /* measure cuBLASLt's proposals instead of taking its first */
    ep_text autotuned;              /* a line for each choice made so */
    bool tf32;                      /* f32 products by tf32 */
    bool no_relaunch;               /* EPILOGUE_RELAUNCH=0: every product is a call of the library */
    int relaunched, not_relaunched; /* shape classes whose launches were learned, or could not be */
    const char *why_not;            /* the last that could not; NULL: none */

    cu_module *modules; /* ahead-of-time images, loaded on first use */
    bool *listed;       /* by image: what it holds is in the table */
    struct cuda_function_entry *functions;
    size_t function_count, function_slots;
    struct cuda_timing *timing;   /* of cuda_probe.c */
    cu_result sticky;             /* the first device error that cannot be left behind */
    struct cuda_capture *capture; /* the stream is being captured into this; else NULL */
    bool mark_written;            /* for initcheck: outputs that it cannot see being written are filled first */
    cu_ptr parts;                 /* of results whose k is divided (cuda_block.c); 0 until there are some */
    cuda_one one_kernel;          /* EPILOGUE_ONE_KERNEL=0 or all: gated blocks of few rows in one kernel */
} cuda_state;

ep_status cuda_state_open(int index, ep_error *err, cuda_state **out);
void cuda_state_release(cuda_state *s);
/* What a device is, and our switches, without opening it: no more than that is in *out, and there is nothing to release. */
ep_status cuda_state_look(int index, ep_error *err, cuda_state *out);
/* Makes the device's context current on the calling thread and reports a sticky error. */
ep_status cuda_enter(cuda_state *s, ep_error *err);
/* Records a failed result; errors that leave the context unusable stick. */
ep_status cuda_result(cuda_state *s, cu_result result, const char *what, ep_error *err);

/* cuda_memory.c */
ep_status cuda_memory_open(cuda_state *s, ep_error *err);
void cuda_memory_close(cuda_state *s);
ep_status cuda_storage_create(cuda_state *s, size_t bytes, ep_error *err, ep_storage **out);
ep_status cuda_copy_to_host(cuda_state *s, const ep_tensor *x, ep_tensor *host, ep_error *err);
ep_status cuda_copy_from_host(cuda_state *s, const ep_tensor *host, ep_tensor *x, ep_error *err);
/* With EPILOGUE_INITCHECK: fills a row-major result that the copy engine or a library is about to write, since
 * initcheck sees neither writing. Does nothing otherwise. */
void cuda_mark_written(cuda_state *s, void *out, int64_t rows, int64_t cols, int64_t row, size_t size);
void cuda_memory_stats(cuda_state *s, ep_memory_stats *out);

/* cuda_launch.c */
typedef struct cuda_launch {
    const char *name; /* the kernel's symbol and its name in traces; static */
    unsigned grid[3], block, shared_bytes, cluster;
    bool programmatic; /* may start before the previous grid ends; the kernel waits for it itself */
    int64_t flops, bytes_read, bytes_written;
} cuda_launch;
/* Runs an ahead-of-time kernel by name, passing the probe. EP_ERROR_NOT_BUILT where this build has no such kernel. */
ep_status cuda_run(cuda_state *s, const cuda_launch *launch, void **params, ep_error *err);
/* The same for a function handle (generated code). */
ep_status cuda_run_function(cuda_state *s, cu_function function, const cuda_launch *launch, void **params,
                            ep_error *err);
bool cuda_has_kernel(cuda_state *s, const char *name);
#define CUDA_FILL_KERNEL "ep_fill_sm80" /* what memsets become in a capture */
#define CUDA_READ_KERNEL "ep_read_sm80" /* reads memory, for measuring */
void cuda_launch_close(cuda_state *s);

/* gemm_cublaslt.c */
ep_status cuda_gemm(cuda_state *s, const ep_gemm *g, ep_error *err);
void cuda_gemm_close(cuda_state *s);

/* cuda_pointwise.c, cuda_reduce.c, cuda_tuned.c */
ep_status cuda_pointwise(ep_backend *b, ep_op op, int count, const ep_tensor *const *in, ep_tensor *out, ep_error *err);
ep_status cuda_copy(ep_backend *b, const ep_tensor *in, ep_tensor *out, ep_error *err);
ep_status cuda_reduce(ep_backend *b, ep_op op, const ep_attr *attr, const ep_tensor *x, ep_tensor *out, ep_error *err);
ep_status cuda_norm(ep_backend *b, ep_op op, const ep_attr *attr, int count, const ep_tensor *const *in, ep_tensor *out,
                    ep_error *err);
ep_status cuda_gated(ep_backend *b, ep_act act, ep_rounding rounding, const ep_tensor *gate, const ep_tensor *up,
                     ep_tensor *out, ep_error *err);
ep_status cuda_gated_backward(ep_backend *b, ep_act act, ep_rounding rounding, const ep_tensor *dy,
                              const ep_tensor *gate, const ep_tensor *up, ep_tensor *dgate, ep_tensor *dup,
                              ep_error *err);
ep_status cuda_pack(ep_backend *b, const ep_pack_request *request, ep_error *err, ep_packed **out);
void cuda_pack_free(ep_backend *b, ep_packed *p);
int64_t cuda_pack_bytes(const ep_packed *p);
ep_status cuda_tuned(ep_backend *b, const ep_tuned_call *call, ep_error *err);
/* cuda_block.c */
int cuda_tuned_whole(ep_backend *b, ep_dtype dtype, bool gated, int64_t m, int64_t k, int64_t n, int64_t out,
                     ep_act act);
/* As the call's first product is made if it has an activation: FUSED, or APART by the library and passes. */
ep_tuned_pair cuda_tuned_pair_way(const ep_packed *p, int64_t m);
ep_status cuda_tuned_pair(ep_backend *b, int whole, const ep_tuned_call *first, const ep_tuned_call *last, bool *ran,
                          ep_error *err);

/* cuda_module.c */
ep_status cuda_module_load(ep_backend *b, const char *path, const void *image, size_t size, ep_error *err,
                           void **module);
void cuda_module_free(ep_backend *b, void *module);
ep_status cuda_module_symbol(ep_backend *b, void *module, const char *name, ep_error *err, void **function);
ep_status cuda_module_launch(ep_backend *b, void *function, const char *name, void *args, size_t args_size,
                             const ep_work *work, int64_t items, ep_error *err);
/* cuda_replay.c: launches captured into a CUDA graph, and replayed. */
ep_status cuda_capture_begin(ep_backend *b, ep_error *err);
void cuda_capture_op(ep_backend *b, const char *op);
ep_status cuda_capture_end(ep_backend *b, ep_error *err, void **out);
ep_status cuda_replay(ep_backend *b, void *capture, ep_error *err);
void cuda_capture_free(ep_backend *b, void *capture);
/* While a capture runs: a storage that its replays will use, a launch that they will repeat. */
void cuda_capture_hold(cuda_state *s, ep_storage *storage);
void cuda_capture_launch(cuda_state *s, const cuda_launch *launch);
/* cuda_measure.c */
ep_status cuda_measure(ep_device device, ep_error *err, ep_machine *out);

static inline cuda_state *cuda_of(const ep_backend *b) {
    return b->state;
}

#endif
