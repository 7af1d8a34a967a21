/* The one global of the library: the active probe table, and the correlation counter. */
#include "probe.h"

_Atomic(const ep_probe *) ep_probe_active;
_Atomic(ep_probe_flush_fn) ep_probe_flush;

static atomic_uint_fast64_t correlation;

/* Numbers are taken from the shared counter by blocks, so that threads seldom meet there. */
uint64_t ep_probe_correlation(void) {
    enum { BLOCK = 256 };
    static _Thread_local uint64_t next __attribute__((tls_model("initial-exec")));
    if (next % BLOCK == 0) next = atomic_fetch_add_explicit(&correlation, BLOCK, memory_order_relaxed);
    return ++next;
}
