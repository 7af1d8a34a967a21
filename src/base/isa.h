/* CPU features, cores and caches of the machine we run on; EPILOGUE_ISA caps the level for tests. */
#ifndef EP_BASE_ISA_H
#define EP_BASE_ISA_H

#include <stdbool.h>
#include <stdint.h>

/* In the order kernels are preferred; a level includes the ones before it. */
typedef enum ep_isa {
    EP_ISA_PORTABLE,
    EP_ISA_AVX2,        /* AVX2, FMA, F16C */
    EP_ISA_AVX512,      /* F, BW, DQ, VL */
    EP_ISA_AVX512_BF16, /* and AVX512_BF16 */
    EP_ISA_AMX_BF16,    /* and AMX-TILE, AMX-BF16, permitted by the kernel */
    EP_ISA_COUNT
} ep_isa;

typedef struct ep_cpu {
    ep_isa isa; /* the level in force: detected, or lower by EPILOGUE_ISA */
    ep_isa detected;
    char model[80];     /* brand string */
    int cores;          /* this process may use */
    int64_t l1, l2, l3; /* bytes; 0 unknown. l1 and l2 per core, l3 shared */
} ep_cpu;

/* Detected once; thread-safe; never NULL. */
const ep_cpu *ep_cpu_get(void);
const char *ep_isa_name(ep_isa isa); /* "portable", "avx2", "avx512", "avx512bf16", "amxbf16" */
/* AMX tiles need a permission per process: asks once; false if refused. */
bool ep_isa_request_amx(void);

#endif
