/* The generated kernels of one compiled function: found by what their code rests on, built on a background thread. */
#ifndef EP_RUN_KERNEL_TABLE_H
#define EP_RUN_KERNEL_TABLE_H

#include <epilogue/compile.h>
#include <pthread.h>
#include <stdatomic.h>

#include "context.h"
#include "run/codegen/dialect.h"
#include "run/jit/cache.h"
#include "run/jit/toolchain.h"

typedef enum ep_kernel_state { EP_KERNEL_PENDING, EP_KERNEL_READY, EP_KERNEL_FAILED } ep_kernel_state;

typedef struct ep_kernel {
    ep_loop loop; /* the nest it was generated from; sizes and strides are an example unless fixed */
    uint64_t hash;
    atomic_int state;
    void *function;
    char *source; /* once built: the kernel's own text, without the preamble */
    ep_error err;
    bool from_disk;
} ep_kernel;

typedef struct ep_kernel_job {
    struct ep_kernel_job *next;
    ep_kernel **kernels;
    size_t count;
    char why[256];
    void (*work)(void *user); /* instead of kernels: something else to do beside calls */
    void *user;
} ep_kernel_job;

typedef struct ep_kernel_table {
    ep_context *ctx;
    ep_backend backend; /* a copy for the worker: module functions touch nothing that calls change */
    const ep_dialect *dialect;
    const ep_toolchain *toolchain;
    ep_isa isa;
    char arch[16];
    double limit_s;
    ep_cache *cache; /* NULL: none */
    bool interpret, aside;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t worker;
    pid_t process; /* whose thread the worker is */
    bool started, stopping;
    ep_kernel_job *first, *last;

    ep_kernel **all; /* grows on the caller's thread only; the kernels do not move */
    size_t count, cap;
    void **modules;
    size_t module_count, module_cap;
    int64_t generated, from_disk, failures; /* under lock */
    int64_t ready_first_ns;                 /* when the first job was done */
} ep_kernel_table;

/* EP_OK even if there is no compiler: then builds fail and say so. */
ep_status ep_kernels_open(ep_context *ctx, const ep_compile_options *options, bool interpret, ep_kernel_table *t);
/* Waits for the job in work; jobs that wait are dropped. */
void ep_kernels_close(ep_kernel_table *t);
/* A kernel that can run `l` as it stands, or after `l` was padded or its rows unrolled (l is changed then); NULL: none. */
ep_kernel *ep_kernels_find(ep_kernel_table *t, ep_loop *l);
/* A new kernel for `l`, pending. NULL when memory is out. */
ep_kernel *ep_kernels_add(ep_kernel_table *t, const ep_loop *l);
/* Hands pending kernels to the worker as one source file. */
ep_status ep_kernels_build(ep_kernel_table *t, ep_kernel *const *kernels, size_t count, const char *why);
/* Has the worker call work(user). */
ep_status ep_kernels_do(ep_kernel_table *t, void (*work)(void *user), void *user);
void ep_kernels_wait(ep_kernel_table *t);
/* In the child of a fork there is no worker: it gets one of its own, if jobs wait. */
void ep_kernels_after_fork(ep_kernel_table *t);

#endif
