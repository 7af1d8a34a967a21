/* Calibrated time-stamp counter: scale and offset against CLOCK_MONOTONIC, found once over 20 ms and checked. */
#include "clock.h"

#include <pthread.h>
#include <sys/resource.h>
#include <time.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

bool ep_clock_tsc;

static struct {
    int64_t tsc0, ns0;
    double ns_per_tick;
} scale;
static pthread_once_t once = PTHREAD_ONCE_INIT;

int64_t ep_clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t ep_clock_switches(void) {
    struct rusage r;
    return getrusage(RUSAGE_SELF, &r) == 0 ? r.ru_nivcsw : 0;
}

int64_t ep_clock_wall_offset_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec - ep_clock_ns();
}

#if defined(__x86_64__)
static bool constant_tsc(void) {
    unsigned a, b, c, d;
    if (!__get_cpuid(0x80000007u, &a, &b, &c, &d)) return false;
    return d >> 8 & 1;
}

/* The pair read with the least delay between its two clock reads, of several tries. */
static void read_pair(int64_t *ticks, int64_t *ns) {
    int64_t best = INT64_MAX;
    for (int i = 0; i < 16; i++) {
        int64_t n0 = ep_clock_ns(), t = ep_clock_counter(), n1 = ep_clock_ns();
        if (n1 - n0 >= best) continue;
        best = n1 - n0;
        *ticks = t;
        *ns = n0 + (n1 - n0) / 2;
    }
}

static void wait_ns(int64_t ns) {
    int64_t until = ep_clock_ns() + ns;
    while (ep_clock_ns() < until) {
    }
}

static void calibrate(void) {
    if (!constant_tsc()) return;
    int64_t t[3], n[3];
    for (int i = 0; i < 3; i++) {
        if (i) wait_ns(10000000);
        read_pair(&t[i], &n[i]);
    }
    if (t[1] <= t[0] || t[2] <= t[1]) return;
    double first = (double)(n[1] - n[0]) / (double)(t[1] - t[0]);
    double whole = (double)(n[2] - n[0]) / (double)(t[2] - t[0]);
    /* A counter that drifts against the monotonic clock by 1e-4 within 20 ms is not one to trust. */
    if (first / whole > 1.0001 || first / whole < 0.9999) return;
    scale.tsc0 = t[0];
    scale.ns0 = n[0];
    scale.ns_per_tick = whole;
    ep_clock_tsc = true;
}
#else
static void calibrate(void) {}
#endif

void ep_clock_init(void) {
    pthread_once(&once, calibrate);
}

int64_t ep_clock_to_ns(int64_t ticks) {
    if (!ep_clock_tsc) return ticks;
    return scale.ns0 + (int64_t)((double)(ticks - scale.tsc0) * scale.ns_per_tick);
}
