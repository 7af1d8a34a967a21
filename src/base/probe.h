/* The hook table that run/ calls and run/profile fills; empty when off, so that nothing calls upward.
 *
 * Off, a probe is one load and one predictable branch:
 *     const ep_probe *p = ep_probe_get();
 *     if (p) p->begin(p->self, &span);
 * All strings must outlive the recording: literals, op-table names, or what `name` of the table gave. */
#ifndef EP_BASE_PROBE_H
#define EP_BASE_PROBE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

typedef enum ep_probe_kind {
    EP_PROBE_OP,      /* an op as called */
    EP_PROBE_REGION,  /* a named region of the user's */
    EP_PROBE_LAUNCH,  /* the host call that launches a kernel; carries a correlation */
    EP_PROBE_RUNTIME, /* another host call of the device runtime (copy, sync, alloc) */
    EP_PROBE_GUARD,   /* checking a compiled entry's guards */
    EP_PROBE_COMPILE, /* capture, code generation, compiler, load */
    EP_PROBE_PLAN,    /* running a plan */
    EP_PROBE_KIND_COUNT
} ep_probe_kind;

typedef struct ep_probe_operand {
    const char *dtype; /* "c10::BFloat16" is written from our "bf16" by the writer */
    int ndim;
    const int64_t *sizes, *strides; /* copied by the recorder before it returns */
} ep_probe_operand;

typedef struct ep_probe_span {
    ep_probe_kind kind;
    const char *name;
    uint64_t correlation; /* LAUNCH and RUNTIME: links to the device event; else 0 */
    int operand_count;    /* 0: none recorded */
    const ep_probe_operand *operands;
    const char *detail; /* free text (a guard that failed, old and new value), copied; or NULL */
} ep_probe_span;

typedef enum ep_probe_source { EP_SOURCE_CLOCK, EP_SOURCE_CUPTI, EP_SOURCE_EVENT } ep_probe_source;

typedef struct ep_probe_kernel {
    const char *name;
    const char *what; /* "kernel", "memcpy", "memset" */
    uint64_t correlation;
    int32_t device, stream;
    int64_t start, end;                       /* ep_clock_ticks() for EP_SOURCE_CLOCK, monotonic ns otherwise */
    int64_t flops, bytes_read, bytes_written; /* -1: unknown */
    uint32_t grid[3], block[3], registers, shared_bytes; /* 0: not given */
    ep_probe_source source;
    const char *captured_in; /* of a replayed kernel: the op it was captured in; else NULL */
} ep_probe_kernel;

typedef struct ep_probe {
    void *self;
    void (*begin)(void *self, const ep_probe_span *span); /* opens a span on the calling thread, at the clock's now */
    void (*end)(void *self);                              /* closes the innermost span of the calling thread */
    void (*kernel)(void *self, const ep_probe_kernel *kernel);
    const char *(*name)(void *self, const char *text); /* interns a name for the recording's life; may lock */
    /* Optional. A LAUNCH span that is its kernel's time exactly, and the kernel, in one call after the kernel ran: on a
     * host the launch returns when the kernel is done, so two readings of the clock tell both. */
    void (*launch)(void *self, const ep_probe_kernel *kernel);
} ep_probe;

extern _Atomic(const ep_probe *) ep_probe_active;
static inline const ep_probe *ep_probe_get(void) {
    return atomic_load_explicit(&ep_probe_active, memory_order_acquire);
}
/* A device recorder's flush, called before a recording stops; NULL where no device records on its own. */
typedef void (*ep_probe_flush_fn)(void);
extern _Atomic(ep_probe_flush_fn) ep_probe_flush;
/* By how much device times may be off the host's clock, in ns, as the device's recorder found; set before its first kernel. */
extern atomic_llong ep_probe_device_error_ns;
/* What a device is, said once by the backend that opens it, for the traces that show its kernels. */
typedef struct ep_probe_device {
    int32_t id;
    char name[96];
    int64_t memory_bytes;
    int32_t sm_count, major, minor;
} ep_probe_device;
void ep_probe_device_add(const ep_probe_device *device);    /* the same id again replaces; any thread */
int ep_probe_device_find(int32_t id, ep_probe_device *out); /* 0: nobody said */
/* A fresh correlation number, never 0. */
uint64_t ep_probe_correlation(void);

#endif
