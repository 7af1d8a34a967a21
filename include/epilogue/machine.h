/* machine.h: what a machine can do (measured or listed ceilings), work, and the bound: work on a machine -> least time.
 * The one cost model: guesses, reports and selection all use it. */
#ifndef EPILOGUE_MACHINE_H
#define EPILOGUE_MACHINE_H

#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ep_work {
    int64_t flops, bytes_read, bytes_written;
} ep_work;

/* Ceilings; 0 means unknown. Index `threads`: 0 = one thread, 1 = all. */
typedef struct ep_machine {
    char name[96];   /* "AMD EPYC ..., 2 cores" or "NVIDIA H200" */
    char source[96]; /* "measured 2026-11-30" or where a listed figure is from */
    bool measured;
    double gflops[EP_DTYPE_COUNT][2]; /* matrix peak by dtype */
    double tf32_gflops;               /* device: f32 products by tf32 */
    double vector_gflops[2];          /* f32 fused multiply-adds outside matrix units */
    double read_gbs[2], copy_gbs[2];  /* copy: bytes read plus written */
    double cache_gbs[2][2];           /* reading from L2 and from L3: [level][threads] */
    double dispatch_ns;               /* host cost of one op with a trivial kernel */
    double launch_us;                 /* device: host cost of one launch (0 on the CPU) */
    double graph_launch_us;
    double fork_join_us;
    int cores;
    int64_t cache_bytes[3]; /* per core L1, L2; shared L3 (device: L2 in [2]) */
} ep_machine;

/* The stored measurement of this machine, or estimates by ISA (measured = false). */
EP_API ep_status ep_machine_load(ep_device device, ep_error *err, ep_machine *out);
/* Measures now (seconds) and stores the result under the user's cache directory. Where it can't, `source` says why. */
EP_API ep_status ep_machine_measure(ep_device device, int threads, ep_error *err, ep_machine *out);
EP_API ep_status ep_machine_read(const char *path, ep_error *err, ep_machine *out);
EP_API ep_status ep_machine_write(const ep_machine *m, const char *path, ep_error *err);
/* A listed GPU by the name in a trace's deviceProperties ("NVIDIA H200"); EP_ERROR_NOT_FOUND if it is not listed. */
EP_API ep_status ep_machine_by_name(const char *device_name, ep_machine *out);

/* The instruction set in force on this processor, which EPILOGUE_ISA can lower: "portable", "avx2", "avx512",
 * "avx512bf16" or "amxbf16". Static string. */
EP_API const char *ep_machine_isa(void);

typedef enum ep_regime {
    EP_REGIME_UNKNOWN,
    EP_REGIME_OVERHEAD,
    EP_REGIME_MEMORY,
    EP_REGIME_COMPUTE,
    EP_REGIME_COMMUNICATION,
    EP_REGIME_SYNC
} ep_regime;
EP_API const char *ep_regime_name(ep_regime regime);

typedef struct ep_bound {
    double us; /* the larger of the two below; NaN if unknown */
    double compute_us, memory_us;
    ep_regime regime; /* COMPUTE or MEMORY */
} ep_bound;
EP_API ep_bound ep_machine_bound(const ep_machine *m, const ep_work *work, ep_dtype dtype, int threads);

#ifdef __cplusplus
}
#endif
#endif
