/* The one global of the library: the active probe table, with the correlation counter and the known devices. */
#include "probe.h"

#include <pthread.h>

_Atomic(const ep_probe *) ep_probe_active;
_Atomic(ep_probe_flush_fn) ep_probe_flush;
atomic_llong ep_probe_device_error_ns;

static atomic_uint_fast64_t correlation;

/* Numbers are taken from the shared counter by blocks, so that threads seldom meet there. */
uint64_t ep_probe_correlation(void) {
    enum { BLOCK = 256 };
    static _Thread_local uint64_t next __attribute__((tls_model("initial-exec")));
    if (next % BLOCK == 0) next = atomic_fetch_add_explicit(&correlation, BLOCK, memory_order_relaxed);
    return ++next;
}

static struct {
    pthread_mutex_t lock;
    ep_probe_device device[16];
    int count;
} known = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int find(int32_t id) {
    int i = 0;
    while (i < known.count && known.device[i].id != id) i++;
    return i;
}

void ep_probe_device_add(const ep_probe_device *device) {
    pthread_mutex_lock(&known.lock);
    int i = find(device->id);
    if (i < (int)(sizeof known.device / sizeof *known.device)) {
        known.device[i] = *device;
        if (i == known.count) known.count++;
    }
    pthread_mutex_unlock(&known.lock);
}

int ep_probe_device_find(int32_t id, ep_probe_device *out) {
    pthread_mutex_lock(&known.lock);
    int i = find(id), found = i < known.count;
    if (found) *out = known.device[i];
    pthread_mutex_unlock(&known.lock);
    return found;
}
