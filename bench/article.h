/* The article's gated MLP as bench_compile and bench_calls measure it. */
#ifndef EP_BENCH_ARTICLE_H
#define EP_BENCH_ARTICLE_H

#include <errno.h>
#include <stdlib.h>

#include <epilogue/epilogue.h>

#include "bench.h"

#define CHECK(expr)                                                                                                    \
    do {                                                                                                               \
        if ((expr) != EP_OK) {                                                                                         \
            fprintf(stderr, "%s: %s failed at line %d: %s\n", program_invocation_short_name, #expr, __LINE__,          \
                    ctx ? ep_context_error(ctx)->message : "");                                                        \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

enum { DIM = 768, HIDDEN = 3072, SEQ = 16, MOST_BATCH = 64 };
static ep_context *ctx;

static ep_tensor *random_tensor(ep_dtype dtype, int ndim, const int64_t *sizes, uint64_t seed, double scale) {
    ep_tensor *t;
    CHECK(ep_tensor_create(dtype, ndim, sizes, NULL, &t));
    CHECK(ep_tensor_fill_random(t, seed, scale, NULL));
    return t;
}

static ep_block *geglu(ep_dtype dtype) {
    const int64_t in[2] = {HIDDEN, DIM}, back[2] = {DIM, HIDDEN};
    ep_block_weights w = {.gate = random_tensor(dtype, 2, in, 1, 0.05),
                          .up = random_tensor(dtype, 2, in, 2, 0.05),
                          .down = random_tensor(dtype, 2, back, 3, 0.05)};
    ep_block *b;
    CHECK(ep_block_create(ctx, EP_BLOCK_GATED, EP_ACT_GELU_TANH, &w, &b));
    return b;
}

#endif
