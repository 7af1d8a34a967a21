/* cpuid, sched_getaffinity and sysconf, read once. */
#define _GNU_SOURCE
#include "isa.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif
#ifdef EP_HAVE_OPENMP
#include <omp.h>
#endif

static ep_cpu cpu;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static const char *const isa_names[] = {"portable", "avx2", "avx512", "avx512bf16", "amxbf16"};

const char *ep_isa_name(ep_isa isa) {
    return (unsigned)isa < EP_ISA_COUNT ? isa_names[isa] : "?";
}

#if defined(__x86_64__)
static uint64_t xcr0(void) {
    uint32_t lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (uint64_t)hi << 32 | lo;
}

static ep_isa detect(void) {
    unsigned a, b, c, d, b7, c7, d7, a71 = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return EP_ISA_PORTABLE;
    bool osxsave = c >> 27 & 1, fma = c >> 12 & 1, f16c = c >> 29 & 1;
    if (!osxsave || !fma || !f16c || (xcr0() & 6) != 6) return EP_ISA_PORTABLE;
    if (!__get_cpuid_count(7, 0, &a, &b7, &c7, &d7) || !(b7 >> 5 & 1)) return EP_ISA_PORTABLE;
    bool avx512 = (b7 >> 16 & 1) && (b7 >> 30 & 1) && (b7 >> 17 & 1) && (b7 >> 31 & 1);
    if (!avx512 || (xcr0() & 0xe6) != 0xe6) return EP_ISA_AVX2;
    if (a >= 1 && __get_cpuid_count(7, 1, &a71, &b, &c, &d) && (a71 >> 5 & 1)) {
        bool tile = (d7 >> 24 & 1) && (d7 >> 22 & 1) && (xcr0() >> 17 & 3) == 3;
        return tile ? EP_ISA_AMX_BF16 : EP_ISA_AVX512_BF16;
    }
    return EP_ISA_AVX512;
}

static void brand(char out[80]) {
    unsigned r[12];
    for (unsigned i = 0; i < 3; i++) {
        if (!__get_cpuid(0x80000002u + i, &r[4 * i], &r[4 * i + 1], &r[4 * i + 2], &r[4 * i + 3])) {
            strcpy(out, "x86-64 processor");
            return;
        }
    }
    char raw[49];
    memcpy(raw, r, 48);
    raw[48] = 0;
    const char *p = raw;
    while (*p == ' ') p++;
    strncpy(out, p, 79);
    for (size_t n = strlen(out); n && out[n - 1] == ' ';) out[--n] = 0;
}

bool ep_isa_request_amx(void) {
    /* arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA): Linux 5.16, Documentation/arch/x86/xstate.rst. */
    return syscall(SYS_arch_prctl, 0x1023, 18) == 0;
}
#else
static ep_isa detect(void) {
    return EP_ISA_PORTABLE;
}
static void brand(char out[80]) {
    strcpy(out, "processor");
}
bool ep_isa_request_amx(void) {
    return false;
}
#endif

/* What the kernel tells of level `level`'s cache of data; 0: nothing. For systems whose sysconf does not know. */
static int64_t cache_of_kernel(int level) {
    for (int i = 0; i < 8; i++) {
        char path[96], type = 0;
        int is = 0;
        unsigned kib = 0;
        static const char *const names[] = {"level", "type", "size"};
        for (int k = 0; k < 3; k++) {
            snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/%s", i, names[k]);
            FILE *f = fopen(path, "re");
            if (!f) return 0;
            int got = k == 0 ? fscanf(f, "%d", &is) : k == 1 ? fscanf(f, "%c", &type) : fscanf(f, "%uK", &kib);
            fclose(f);
            if (got != 1) return 0;
        }
        if (is == level && type != 'I') return (int64_t)kib << 10;
    }
    return 0;
}

static int64_t cache(int level, int64_t usual) {
    long bytes = 0;
#ifdef _SC_LEVEL1_DCACHE_SIZE
    static const int names[] = {_SC_LEVEL1_DCACHE_SIZE, _SC_LEVEL2_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE};
    bytes = sysconf(names[level - 1]);
#endif
    int64_t told = bytes > 0 ? bytes : cache_of_kernel(level);
    return told ? told : usual;
}

/* Where OMP_PROC_BIND is set, OpenMP has bound the first thread to one core already; it knows how many there were. */
static int usable_cores(void) {
#ifdef EP_HAVE_OPENMP
    return omp_get_num_procs();
#else
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
#endif
}

static void fill(void) {
    cpu.detected = detect();
    cpu.isa = cpu.detected;
    const char *cap = getenv("EPILOGUE_ISA");
    for (int i = 0; cap && i < EP_ISA_COUNT; i++)
        if (strcmp(cap, isa_names[i]) == 0 && (ep_isa)i < cpu.isa) cpu.isa = (ep_isa)i;
    brand(cpu.model);
    cpu.cores = usable_cores();
    cpu.l1 = cache(1, 32 << 10);
    cpu.l2 = cache(2, 1 << 20);
    cpu.l3 = cache(3, 4 << 20);
}

const ep_cpu *ep_cpu_get(void) {
    pthread_once(&once, fill);
    return &cpu;
}
