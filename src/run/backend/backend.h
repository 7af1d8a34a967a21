/* What a backend fills: one const struct of functions. Tensors in, work done; shapes were checked by the engine, outputs
 * exist. A function that a backend lacks is NULL (marked optional); the engine then uses the reference backend.
 * Every function that runs a kernel passes the probe: a LAUNCH span on the host and one kernel record. */
#ifndef EP_RUN_BACKEND_H
#define EP_RUN_BACKEND_H

#include <epilogue/block.h>
#include <epilogue/context.h>
#include <epilogue/ops.h>

#include "base/status.h"
#include "model/op/op.h"
#include "model/tensor/tensor.h"

typedef struct ep_backend ep_backend;

/* A step after the product: v = op(v, other), rounded to f32. */
enum { EP_GEMM_THEN = 4 };
typedef struct ep_gemm_then {
    ep_op op; /* ADD, SUB, MUL or DIV */
    const void *other;
    int64_t row, col; /* its strides in elements; 0: the same for all rows, or all columns. It does not overlap out */
} ep_gemm_then;

/* out[b,m,n] = epilogue(alpha * sum_k a[b,m,k] w[b,k,n] + beta * c[m,n]); strides in elements, any value >= 0.
 * Epilogue: + bias[n], act, + residual[m,n], one rounding to out_dtype. Where rounding is EAGER, what eager would have
 * stored is rounded to out_dtype as well: the sum (with bias) before act, and what the residual is added to. Last come
 * the steps of `then`, of f32 products of one batch, where the backend's gemm_then says that it does them. */
typedef struct ep_gemm {
    int64_t batch, m, n, k;
    ep_dtype dtype, out_dtype;
    const void *a, *b;
    int64_t a_batch, a_row, a_col, b_batch, b_row, b_col; /* b_row: along k; b_col: along n */
    void *out;
    int64_t out_batch, out_row; /* out columns are adjacent */
    const void *bias;           /* [n], stride bias_stride, dtype; or NULL */
    int64_t bias_stride;
    const void *c; /* beta operand, dtype; NULL: none (beta is then 0) */
    int64_t c_batch, c_row, c_col;
    const void *residual; /* out_dtype, or NULL */
    int64_t residual_row;
    double alpha, beta;
    ep_act act;
    ep_rounding rounding;
    int then_count;
    ep_gemm_then then[EP_GEMM_THEN];
} ep_gemm;

/* Packed weights of a tuned block: opaque to the engine. */
typedef struct ep_packed ep_packed;

typedef struct ep_pack_request {
    ep_dtype dtype;
    int64_t k, n;        /* n: columns of one matrix */
    const void *w0, *w1; /* [n, k] weights: w0 alone (plain) or gate and up */
    int64_t w0_row, w0_col, w1_row, w1_col;
    bool weights_stay; /* w0 and w1 are there as long as the pack: the backend may use them where that is faster */
} ep_pack_request;

/* A finished part of a hooked call's products, still in cache: in[i] is product i (with its bias) as the dtype, rounded
 * as if it had been stored. Products are in the order of the call; a pair gives gate, then up. Rows of all of them are
 * in_row elements apart, columns adjacent. */
enum { EP_TUNED_PRODUCTS = 4 };
typedef struct ep_tuned_tile {
    const void *in[EP_TUNED_PRODUCTS];
    int64_t in_row;
    int64_t row, col, rows, cols; /* where it lies in the products, and how large it is */
    void *out; /* the call's out at (row, col), out_row elements between rows; NULL if that is NULL */
    int64_t out_row;
} ep_tuned_tile;
/* Runs on several threads at once, each element of the products in exactly one tile; how they are cut into tiles depends
 * on shapes, instruction set and threads. */
typedef void (*ep_tuned_hook)(void *user, const ep_tuned_tile *tile);

typedef struct ep_tuned_product {
    const ep_packed *weights;
    const void *bias;
    int64_t bias_stride;
} ep_tuned_product;

/* out = act(x w0^T + bias0) * (x w1^T + bias1) when the pack holds two matrices, else epilogue(x w0^T + bias0). With a
 * hook neither is done and nothing is stored: the hook gets the products, of this pack and of `more` (plain packs of the
 * same k and n, as the first then is); act is NONE and residual NULL. */
typedef struct ep_tuned_call {
    const ep_packed *weights;
    int64_t m;
    const void *x;
    int64_t x_row, x_col;
    ep_dtype dtype; /* of x, biases, residual and out */
    const void *bias0, *bias1;
    int64_t bias0_stride, bias1_stride;
    const void *residual;
    int64_t residual_row;
    void *out;
    int64_t out_row;
    ep_act act;
    ep_rounding rounding;
    /* out, or x, is in the order that the packed kernels read x in: what tuned_hand gave the size of. Rows and columns of
     * the tensor it stands for are as said above; x_row, x_col and out_row are not used for it. */
    bool x_packed, out_packed;
    ep_tuned_hook hook; /* only where the backend's tuned_hooks says so; or NULL */
    void *hook_user;
    const char *hook_name;    /* of the kernel in traces; or NULL */
    const ep_work *hook_work; /* its work in traces, the products included; or NULL: that of the products */
    int more_count;
    ep_tuned_product more[EP_TUNED_PRODUCTS - 1];
} ep_tuned_call;

struct ep_backend {
    const char *name;
    ep_device_kind kind;
    const struct ep_backend_ops *ops;
    int threads;
    int index;     /* device index */
    bool autotune; /* choices are measured where the library only estimates them; set before open */
    bool tf32;     /* f32 products may read tf32; set before open */
    char arch[16]; /* what generated code is compiled for ("sm_90"), set by open; "" on the CPU */
    void *state;
};

typedef struct ep_backend_ops {
    const char *name;
    ep_device_kind kind;
    ep_status (*open)(int index, int threads, ep_error *err, ep_backend *out);
    void (*close)(ep_backend *b);
    ep_status (*sync)(ep_backend *b, ep_error *err);

    /* Memory: storages come from the backend's cache; release is stream-ordered on devices. */
    ep_status (*storage)(ep_backend *b, size_t bytes, ep_error *err, ep_storage **out);
    void (*memory)(const ep_backend *b, ep_memory_stats *out);
    ep_status (*to_host)(ep_backend *b, const ep_tensor *x, ep_tensor *host, ep_error *err);        /* optional: CPU */
    ep_status (*from_host)(ep_backend *b, const ep_tensor *host, ep_tensor *device, ep_error *err); /* optional: CPU */

    /* Inputs are broadcast by strides to out's shape already (stride 0). out may alias an input exactly. */
    ep_status (*pointwise)(ep_backend *b, ep_op op, int count, const ep_tensor *const *in, ep_tensor *out,
                           ep_error *err);
    ep_status (*copy)(ep_backend *b, const ep_tensor *in, ep_tensor *out, ep_error *err); /* strided, casting */
    ep_status (*gemm)(ep_backend *b, const ep_gemm *g, ep_error *err);
    bool gemm_then; /* gemm does steps after the product, in the library's own pass where it has one */
    /* SUM, MEAN, AMAX over the last attr->dims; SOFTMAX, LAYER_NORM, RMS_NORM over the last dim. */
    ep_status (*reduce)(ep_backend *b, ep_op op, const ep_attr *attr, const ep_tensor *x, ep_tensor *out,
                        ep_error *err);
    ep_status (*norm)(ep_backend *b, ep_op op, const ep_attr *attr, int count, const ep_tensor *const *in,
                      ep_tensor *out, ep_error *err);
    ep_status (*gated)(ep_backend *b, ep_act act, ep_rounding rounding, const ep_tensor *gate, const ep_tensor *up,
                       ep_tensor *out, ep_error *err);
    ep_status (*gated_backward)(ep_backend *b, ep_act act, ep_rounding rounding, const ep_tensor *dy,
                                const ep_tensor *gate, const ep_tensor *up, ep_tensor *dgate, ep_tensor *dup,
                                ep_error *err);

    /* Tuned blocks (optional as a group). */
    ep_status (*pack)(ep_backend *b, const ep_pack_request *request, ep_error *err, ep_packed **out);
    void (*pack_free)(ep_backend *b, ep_packed *p);
    int64_t (*pack_bytes)(const ep_packed *p);
    ep_status (*tuned)(ep_backend *b, const ep_tuned_call *call, ep_error *err);
    /* The kernel, by a number of the backend's, that does two such calls over m rows in one: the first, gated or not, k -> n columns,
     * and one that reads its result, n -> out. -1: there is none, or two are faster (optional). Launched by itself it starts
     * while the one before still ends, which a replay does not. */
    int (*tuned_whole)(ep_backend *b, ep_dtype dtype, bool gated, int64_t m, int64_t k, int64_t n, int64_t out,
                       ep_act act);
    /* Runs that kernel. *ran false: nothing ran, as these operands do not suit it. */
    ep_status (*tuned_pair)(ep_backend *b, int whole, const ep_tuned_call *first, const ep_tuned_call *last, bool *ran,
                            ep_error *err);
    /* Bytes of what a call with `first` may hand to one with `next` over m rows, packed (optional); 0: as a tensor. */
    size_t (*tuned_hand)(const ep_packed *first, const ep_packed *next, int64_t m);
    /* Which way calls with this pack take and why, a line each (optional); returns the text's length. */
    size_t (*tuned_text)(const ep_packed *p, char *out, size_t size);
    /* How a pair's product of m rows is made (optional: always in one kernel). */
    ep_tuned_pair (*tuned_pair_way)(const ep_packed *p, int64_t m);
    bool tuned_hooks; /* tuned takes calls with a hook */
    /* Packs in a file and mapped back, in the order given (optional; also where the three above exist). */
    ep_status (*pack_save)(const ep_packed *const *packs, int count, const char *path, ep_error *err);
    ep_status (*pack_load)(const char *path, bool verify, int count, ep_error *err, ep_packed **out);
    void (*pack_from)(ep_packed *p, const ep_pack_request *request); /* of a pack that was loaded: its plain weights */
    void (*pack_describe)(const ep_packed *p, ep_dtype *dtype, int64_t *k, int64_t *n, bool *pair);

    /* Generated code (optional as a group): `image` is what the toolchain made. */
    ep_status (*module_load)(ep_backend *b, const char *path, const void *image, size_t size, ep_error *err,
                             void **module);
    void (*module_free)(ep_backend *b, void *module);
    ep_status (*module_symbol)(ep_backend *b, void *module, const char *name, ep_error *err, void **function);
    /* Runs a generated kernel; `args` points to the argument block that codegen's convention defines. */
    ep_status (*module_launch)(ep_backend *b, void *function, const char *name, void *args, size_t args_size,
                               const ep_work *work, int64_t items, ep_error *err);

    /* A run of launches, captured once and replayed by one call (optional as a group). A replay uses the addresses of its
     * capture; what the backend allocated meanwhile lives as long as the capture. Between begin and end nothing runs.
     * `capture_op`: the op whose launches follow (a name that outlives the capture). capture_end with out NULL throws the
     * capture away. replay gives EP_ERROR_UNSUPPORTED, and runs nothing, where a recording is on that could not see its
     * kernels. */
    ep_status (*capture_begin)(ep_backend *b, ep_error *err);
    void (*capture_op)(ep_backend *b, const char *op);
    ep_status (*capture_end)(ep_backend *b, ep_error *err, void **out);
    ep_status (*replay)(ep_backend *b, void *capture, ep_error *err);
    void (*capture_free)(ep_backend *b, void *capture);
    /* Runs items of a generated kernel on the calling thread, and records nothing (optional: devices). */
    void (*module_call)(void *function, const int64_t *args, int64_t begin, int64_t end);

    /* What was chosen by measuring, a line each (optional). */
    const char *(*autotuned)(ep_backend *b);

    /* Measures the device's ceilings, without dispatch_ns (optional; the CPU's is ep_cpu_measure). */
    ep_status (*measure)(ep_device device, ep_error *err, ep_machine *out);
} ep_backend_ops;

/* What asks for a pack of a weight [n, k], or of a gate and an up weight of one shape (w1 may be NULL). */
ep_pack_request ep_pack_request_of(const ep_tensor *w0, const ep_tensor *w1, bool weights_stay);

/* backends.c: the list. Name: "ref", "cpu", "cuda". NULL if this build has no such backend. */
const ep_backend_ops *ep_backend_find(const char *name);

#endif
