/* The CUDA libraries, found by dlopen at run time: the same binary starts on a machine without them. Types and values are
 * re-declared from the documented ABI (CUDA Driver API, cuBLASLt and NVRTC reference manuals), so that the build needs
 * no CUDA header; where nvcc is present a test compares the sizes with the real headers. */
#ifndef EP_CUDA_DRIVER_H
#define EP_CUDA_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef int cu_result; /* CUresult: 0 is success */
typedef int cu_device;
typedef struct cu_context *cu_context;
typedef struct cu_stream *cu_stream;
typedef struct cu_event *cu_event;
typedef struct cu_module *cu_module;
typedef struct cu_function *cu_function;
typedef struct cu_graph *cu_graph;
typedef struct cu_graph_exec *cu_graph_exec;
typedef unsigned long long cu_ptr;

/* CUtensorMap: opaque, 128 bytes, aligned to 64. */
typedef struct cu_tensor_map {
    _Alignas(64) uint64_t opaque[16];
} cu_tensor_map;

typedef union cu_launch_value {
    char pad[64];
    struct {
        unsigned x, y, z;
    } cluster;
    int cooperative;
    int programmatic;
} cu_launch_value;
typedef struct cu_launch_attribute {
    int id; /* CU_LAUNCH_ below */
    char pad[4];
    cu_launch_value value;
} cu_launch_attribute;
typedef struct cu_launch_config {
    unsigned grid[3], block[3], shared_bytes;
    cu_stream stream;
    cu_launch_attribute *attributes;
    unsigned attribute_count;
} cu_launch_config;

/* CUDA_KERNEL_NODE_PARAMS_v2: `kernel` counts where function is NULL. */
typedef struct cu_kernel_node {
    cu_function function;
    unsigned grid[3], block[3], shared_bytes;
    void **params, **extra;
    struct cu_kernel *kernel;
    cu_context context;
} cu_kernel_node;
typedef struct cu_edge { /* CUgraphEdgeData; type 1: programmatic */
    unsigned char from_port, to_port, type, reserved[5];
} cu_edge;
typedef struct cu_memset_node { /* CUDA_MEMSET_NODE_PARAMS_v1; value, element size in bytes, elements */
    cu_ptr to;
    size_t pitch;
    unsigned value, element;
    size_t width, height;
} cu_memset_node;

enum {
    CU_ATTR_MAX_SHARED_OPTIN = 97,
    CU_ATTR_SM_COUNT = 16,
    CU_ATTR_MAJOR = 75,
    CU_ATTR_MINOR = 76,
    CU_ATTR_L2 = 38,
    CU_FUNC_MAX_DYNAMIC_SHARED = 8,
    CU_LAUNCH_COOPERATIVE = 2,
    CU_LAUNCH_CLUSTER = 4,
    CU_LAUNCH_CLUSTER_POLICY = 5,
    CU_LAUNCH_PROGRAMMATIC = 6,
};

/* One row a driver function: result, exported symbol, field, parameters. */
#define CU_DRIVER_FUNCTIONS(F)                                                                                         \
    F(cuInit, init, (unsigned flags))                                                                                  \
    F(cuDriverGetVersion, version, (int *version))                                                                     \
    F(cuDeviceGetCount, device_count, (int *count))                                                                    \
    F(cuDeviceGet, device_get, (cu_device * device, int ordinal))                                                      \
    F(cuDeviceGetName, device_name, (char *name, int len, cu_device device))                                           \
    F(cuDeviceTotalMem_v2, device_memory, (size_t * bytes, cu_device device))                                          \
    F(cuDeviceGetAttribute, device_attribute, (int *value, int attribute, cu_device device))                           \
    F(cuDevicePrimaryCtxRetain, context_retain, (cu_context * context, cu_device device))                              \
    F(cuDevicePrimaryCtxRelease_v2, context_release, (cu_device device))                                               \
    F(cuCtxSetCurrent, context_set, (cu_context context))                                                              \
    F(cuCtxGetCurrent, context_get, (cu_context * context))                                                            \
    F(cuStreamCreate, stream_create, (cu_stream * stream, unsigned flags))                                             \
    F(cuStreamDestroy_v2, stream_destroy, (cu_stream stream))                                                          \
    F(cuStreamSynchronize, stream_sync, (cu_stream stream))                                                            \
    F(cuStreamWaitEvent, stream_wait, (cu_stream stream, cu_event event, unsigned flags))                              \
    F(cuStreamBeginCapture_v2, capture_begin, (cu_stream stream, int mode))                                            \
    F(cuStreamEndCapture, capture_end, (cu_stream stream, cu_graph * graph))                                           \
    F(cuStreamGetCaptureInfo_v2, capture_info,                                                                         \
      (cu_stream stream, int *status, uint64_t *id, cu_graph *graph, const void **dependencies, size_t *count))        \
    F(cuGraphGetNodes, graph_nodes, (cu_graph graph, void **nodes, size_t *count))                                     \
    F(cuGraphNodeGetType, graph_node_type, (void *node, int *type))                                                    \
    F(cuGraphInstantiateWithFlags, graph_instantiate,                                                                  \
      (cu_graph_exec * exec, cu_graph graph, unsigned long long flags))                                                \
    F(cuGraphLaunch, graph_launch, (cu_graph_exec exec, cu_stream stream))                                             \
    F(cuGraphExecDestroy, graph_exec_destroy, (cu_graph_exec exec))                                                    \
    F(cuGraphDestroy, graph_destroy, (cu_graph graph))                                                                 \
    F(cuEventCreate, event_create, (cu_event * event, unsigned flags))                                                 \
    F(cuEventDestroy_v2, event_destroy, (cu_event event))                                                              \
    F(cuEventRecord, event_record, (cu_event event, cu_stream stream))                                                 \
    F(cuEventSynchronize, event_sync, (cu_event event))                                                                \
    F(cuEventElapsedTime, event_elapsed, (float *ms, cu_event start, cu_event end))                                    \
    F(cuMemAlloc_v2, memory_alloc, (cu_ptr * p, size_t bytes))                                                         \
    F(cuMemFree_v2, memory_free, (cu_ptr p))                                                                           \
    F(cuMemAllocHost_v2, host_alloc, (void **p, size_t bytes))                                                         \
    F(cuMemFreeHost, host_free, (void *p))                                                                             \
    F(cuMemcpyHtoDAsync_v2, copy_to_device, (cu_ptr dst, const void *src, size_t bytes, cu_stream stream))             \
    F(cuMemcpyDtoHAsync_v2, copy_to_host, (void *dst, cu_ptr src, size_t bytes, cu_stream stream))                     \
    F(cuMemcpyDtoDAsync_v2, copy_on_device, (cu_ptr dst, cu_ptr src, size_t bytes, cu_stream stream))                  \
    F(cuMemsetD8Async, memset8, (cu_ptr dst, unsigned char value, size_t count, cu_stream stream))                     \
    F(cuModuleLoadData, module_load, (cu_module * module, const void *image))                                          \
    F(cuModuleUnload, module_unload, (cu_module module))                                                               \
    F(cuModuleGetFunction, module_function, (cu_function * function, cu_module module, const char *name))              \
    F(cuFuncSetAttribute, function_attribute, (cu_function function, int attribute, int value))                        \
    F(cuLaunchKernelEx, launch, (const cu_launch_config *config, cu_function f, void **params, void **extra))          \
    F(cuTensorMapEncodeTiled, tensor_map,                                                                              \
      (cu_tensor_map * map, int type, unsigned rank, void *address, const uint64_t *size, const uint64_t *stride,      \
       const unsigned *box, const unsigned *element_stride, int interleave, int swizzle, int promotion, int fill))     \
    F(cuGetErrorName, error_name, (cu_result result, const char **text))                                               \
    F(cuGetErrorString, error_string, (cu_result result, const char **text))

typedef struct cu_driver {
    void *library;
#define F(symbol, field, params) cu_result(*field) params;
    CU_DRIVER_FUNCTIONS(F)
#undef F
    /* Of newer drivers, all or none: what a module holds, asked instead of tried. */
    cu_result (*module_count)(unsigned *count, cu_module module);
    cu_result (*module_list)(cu_function *functions, unsigned count, cu_module module);
    cu_result (*function_name)(const char **name, cu_function function);
    /* Of newer drivers, all or none (kernel_node NULL): what a captured graph will launch. */
    cu_result (*kernel_node)(void *node, cu_kernel_node *params);
    cu_result (*kernel_node_attribute)(void *node, int attribute, cu_launch_value *value);
    cu_result (*memset_node)(void *node, cu_memset_node *params);
    cu_result (*node_dependencies)(void *node, void **dependencies, cu_edge *edges, size_t *count);
    cu_result (*memset32)(cu_ptr dst, unsigned value, size_t count, cu_stream stream);
    /* Of newer drivers, both or none: where a kernel's parameters lie in a block of them. */
    cu_result (*function_param)(cu_function function, size_t index, size_t *offset, size_t *bytes);
    cu_result (*kernel_param)(void *kernel, size_t index, size_t *offset, size_t *bytes);
} cu_driver;

/* The driver, loaded once per process; NULL with a sentence where it is not there. Any thread. */
const cu_driver *cu_driver_get(ep_error *err);

/* Turns a driver result into a status with the driver's own name and sentence. */
ep_status cu_check(const cu_driver *cu, cu_result result, const char *what, ep_error *err);
#define CU_TRY(cu, call, err) EP_TRY(cu_check((cu), (call), #call, (err)))

/* cuBLASLt, loaded once per process. */
typedef struct lt_algo {
    uint64_t data[8];
} lt_algo;
typedef struct lt_heuristic {
    lt_algo algo;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
} lt_heuristic;
typedef void *lt_handle, *lt_desc, *lt_layout, *lt_preference;

enum {
    LT_COMPUTE_32F = 68,
    LT_COMPUTE_32F_TF32 = 77,
    LT_R_32F = 0,
    LT_R_16F = 2,
    LT_R_16BF = 14,
    LT_DESC_TRANSA = 3,
    LT_DESC_TRANSB = 4,
    LT_DESC_EPILOGUE = 7,
    LT_DESC_BIAS_POINTER = 8,
    LT_LAYOUT_BATCH = 5,
    LT_LAYOUT_BATCH_STRIDE = 6,
    LT_PREF_WORKSPACE = 1,
    LT_EPILOGUE_DEFAULT = 1,
    LT_EPILOGUE_RELU = 2,
    LT_EPILOGUE_BIAS = 4,
};

#define LT_FUNCTIONS(F)                                                                                                \
    F(cublasLtCreate, create, (lt_handle * handle))                                                                    \
    F(cublasLtDestroy, destroy, (lt_handle handle))                                                                    \
    F(cublasLtMatmulDescCreate, desc_create, (lt_desc * desc, int compute, int scale))                                 \
    F(cublasLtMatmulDescDestroy, desc_destroy, (lt_desc desc))                                                         \
    F(cublasLtMatmulDescSetAttribute, desc_set, (lt_desc desc, int attribute, const void *value, size_t size))         \
    F(cublasLtMatrixLayoutCreate, layout_create,                                                                       \
      (lt_layout * layout, int type, uint64_t rows, uint64_t cols, int64_t ld))                                        \
    F(cublasLtMatrixLayoutDestroy, layout_destroy, (lt_layout layout))                                                 \
    F(cublasLtMatrixLayoutSetAttribute, layout_set, (lt_layout layout, int attribute, const void *value, size_t size)) \
    F(cublasLtMatmulPreferenceCreate, preference_create, (lt_preference * preference))                                 \
    F(cublasLtMatmulPreferenceDestroy, preference_destroy, (lt_preference preference))                                 \
    F(cublasLtMatmulPreferenceSetAttribute, preference_set,                                                            \
      (lt_preference preference, int attribute, const void *value, size_t size))                                       \
    F(cublasLtMatmulAlgoGetHeuristic, heuristic,                                                                       \
      (lt_handle handle, lt_desc desc, lt_layout a, lt_layout b, lt_layout c, lt_layout d, lt_preference preference,   \
       int requested, lt_heuristic *results, int *returned))                                                           \
    F(cublasLtMatmul, matmul,                                                                                          \
      (lt_handle handle, lt_desc desc, const void *alpha, const void *a, lt_layout la, const void *b, lt_layout lb,    \
       const void *beta, const void *c, lt_layout lc, void *d, lt_layout ld, const lt_algo *algo, void *workspace,     \
       size_t workspace_bytes, cu_stream stream))

typedef struct lt_library {
    void *library;
#define F(symbol, field, params) int(*field) params;
    LT_FUNCTIONS(F)
#undef F
} lt_library;
const lt_library *lt_library_get(ep_error *err);
ep_status lt_check(int result, const char *what, ep_error *err);

/* Opens the first of the NULL-terminated names that is there; NULL if none. */
void *cu_open_library(const char *const *names);

#endif
