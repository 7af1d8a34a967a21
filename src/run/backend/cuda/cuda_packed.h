/* Weights as tuned calls take them on the device. */
#ifndef EP_CUDA_PACKED_H
#define EP_CUDA_PACKED_H

#include "cuda_state.h"

/* L2 policies (kernels/common/tma.cuh): results that cannot stay in the L2 should not push operands out. */
#define L2_NORMAL 0x1000000000000000u
#define L2_EVICT_FIRST 0x12f0000000000000u

/* One description for the copy engine; what it holds is a function of the key alone, so it never goes stale. */
typedef struct cuda_map_entry {
    cu_tensor_map map;
    const void *p;
    int64_t rows, cols, row;
    unsigned box_rows, chunks;
} cuda_map_entry;
enum { CUDA_MAPS = 8 }; /* weights, and the last few inputs and results */

struct ep_packed {
    cuda_state *state;
    ep_dtype dtype;
    int64_t k, n;
    const void *w[2]; /* w[1] NULL: plain */
    int64_t row[2], col[2];
    ep_storage *own[2]; /* packed copies */
    int64_t bytes;
    cuda_map_entry *maps; /* [CUDA_MAPS], what the copy engine was told of late; NULL until a kernel needs it */
    unsigned next_map;
    ep_storage *made; /* what CTAs of a block's one kernel count in; NULL until there is one */
};

/* Whether the copy engine can read a matrix as it lies. */
bool cuda_fits_copy_engine(const void *p, int64_t rows, int64_t cols, int64_t row, int64_t col);
/* The description of a matrix, kept: making one costs the host as much as a tenth of a launch. Boxes of 64 columns and
 * box_rows rows; chunks: of so many such boxes side by side (columns a multiple of 64), 0: of one; CUDA_NARROW: boxes of 32
 * columns instead. */
enum { CUDA_NARROW = 1000 };
ep_status cuda_find_map(cuda_state *s, ep_packed *w, const void *p, int64_t rows, int64_t cols, int64_t row,
                        unsigned box_rows, unsigned chunks, cu_tensor_map *out, ep_error *err);

static inline int64_t cuda_padded(int64_t k) {
    return (k + 7) / 8 * 8;
}

#endif
