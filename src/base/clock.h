/* Nanoseconds. The time-stamp counter, calibrated once, where the processor says it is constant and nonstop and two
 * checks against CLOCK_MONOTONIC agree; else clock_gettime. */
#ifndef EP_BASE_CLOCK_H
#define EP_BASE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

extern bool ep_clock_tsc; /* set by ep_clock_init, constant after */
/* CLOCK_MONOTONIC in nanoseconds. */
int64_t ep_clock_ns(void);
/* How often the system took a core from any thread of this process that wanted to go on. */
int64_t ep_clock_switches(void);

#if defined(__x86_64__)
static inline int64_t ep_clock_counter(void) {
    uint32_t lo, hi;
    __asm__ volatile("rdtsc" : "=a"(lo), "=d"(hi));
    return (int64_t)((uint64_t)hi << 32 | lo);
}
#endif

/* Raw ticks; cheap (12 ns or so with the counter). */
static inline int64_t ep_clock_ticks(void) {
#if defined(__x86_64__)
    if (ep_clock_tsc) return ep_clock_counter();
#endif
    return ep_clock_ns();
}

/* Calibrates on the first call (about 20 ms), later calls are free; thread-safe. */
void ep_clock_init(void);
/* Ticks to nanoseconds on the CLOCK_MONOTONIC time line. */
int64_t ep_clock_to_ns(int64_t ticks);
/* Offset to add to a monotonic time to get wall-clock nanoseconds since 1970. */
int64_t ep_clock_wall_offset_ns(void);

#endif
