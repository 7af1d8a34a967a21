/* The one cost model: work on a machine gives the least time it can take. */
#include <math.h>

#include "model/machine/machine.h"

const char *ep_regime_name(ep_regime regime) {
    static const char *const names[] = {"unknown", "overhead", "memory", "compute", "communication", "sync"};
    return (unsigned)regime < sizeof names / sizeof *names ? names[regime] : "?";
}

/* A ceiling at `threads` threads: grows with them from the one-thread figure to the figure of the whole machine. */
static double ceiling(const double pair[2], int threads, int cores) {
    if (threads == 1 && pair[0] > 0) return pair[0];
    if (threads <= 0 || threads >= cores || !(pair[0] > 0)) return pair[1];
    double v = pair[0] * threads;
    return pair[1] > 0 && v > pair[1] ? pair[1] : v;
}

/* GB/s at which `bytes` can come in: from the smallest cache that holds all of them, else from memory. A bound may be
 * too low, never too high, so what fits in a cache counts as being there. */
static double read_rate(const ep_machine *m, double bytes, int threads, bool *cached) {
    double n = threads > 0 && threads < m->cores ? threads : m->cores > 0 ? m->cores : 1;
    double l2 = ceiling(m->cache_gbs[0], threads, m->cores), l3 = ceiling(m->cache_gbs[1], threads, m->cores);
    *cached = true;
    if (l2 > 0 && bytes <= (double)m->cache_bytes[1] * n) return l2;
    if (l3 > 0 && bytes <= (double)m->cache_bytes[2]) return l3;
    *cached = false;
    return ceiling(m->read_gbs, threads, m->cores);
}

ep_bound ep_machine_bound(const ep_machine *m, const ep_work *work, ep_dtype dtype, int threads) {
    ep_bound b = {NAN, NAN, NAN, EP_REGIME_UNKNOWN};
    double read = (double)work->bytes_read, written = (double)work->bytes_written;
    double gflops = (unsigned)dtype < EP_DTYPE_COUNT ? ceiling(m->gflops[dtype], threads, m->cores) : 0;
    bool cached;
    double in = read_rate(m, read + written, threads, &cached);
    /* Memory that is written is slower than memory that is read; cache rates are only known for reading. */
    double out = cached ? in : ceiling(m->copy_gbs, threads, m->cores);
    if (!(out > 0)) out = in;
    if (work->flops <= 0)
        b.compute_us = 0;
    else if (gflops > 0)
        b.compute_us = (double)work->flops / gflops * 1e-3;
    if (read + written <= 0)
        b.memory_us = 0;
    else if (in > 0)
        b.memory_us = (read / in + written / out) * 1e-3;
    if (isnan(b.compute_us) && isnan(b.memory_us)) return b;
    bool compute = isnan(b.memory_us) || b.compute_us > b.memory_us;
    b.us = compute ? b.compute_us : b.memory_us;
    b.regime = compute ? EP_REGIME_COMPUTE : EP_REGIME_MEMORY;
    return b;
}
