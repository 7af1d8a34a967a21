/* The one global of the library: the active probe table, and the correlation counter. */
#include "probe.h"

_Atomic(const ep_probe *) ep_probe_active;
_Atomic(ep_probe_flush_fn) ep_probe_flush;

static atomic_uint_fast64_t correlation;

uint64_t ep_probe_correlation(void) {
    return atomic_fetch_add_explicit(&correlation, 1, memory_order_relaxed) + 1;
}
