/* The struct every toolchain fills: source text in, bytes a backend can load out. */
#ifndef EP_RUN_JIT_TOOLCHAIN_H
#define EP_RUN_JIT_TOOLCHAIN_H

#include "base/hash.h"
#include "base/isa.h"
#include "base/status.h"

typedef struct ep_build {
    const char *source;
    size_t source_len;
    ep_isa isa;         /* CPU */
    const char *arch;   /* CUDA: "sm_90"; else NULL */
    double limit_s;     /* 0: 30 s */
    const char *finder; /* the program to run; NULL: EPILOGUE_CC, then cc */
} ep_build;

typedef struct ep_toolchain {
    const char *name;
    /* Adds everything but the source that decides the result: flags, and who compiles. EP_ERROR_COMPILER if nobody. */
    ep_status (*identity)(const ep_build *b, ep_error *err, ep_hasher *h);
    /* *image is malloc'ed. A failure carries the start of the compiler's own words. */
    ep_status (*build)(const ep_build *b, ep_error *err, void **image, size_t *size);
    /* It may be asked before long (optional): what takes a while beforehand can begin. Returns at once. */
    void (*expect)(void);
} ep_toolchain;

extern const ep_toolchain ep_toolchain_cc;
extern const ep_toolchain ep_toolchain_nvrtc;

#endif
