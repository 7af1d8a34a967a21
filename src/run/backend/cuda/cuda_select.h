/* Which ahead-of-time GEMM kernel runs a shape, and why. No device is asked, so recorded machines test it anywhere. */
#ifndef EP_CUDA_SELECT_H
#define EP_CUDA_SELECT_H

#include <epilogue/ops.h>

typedef struct cuda_gemm_row {
    const char *form;
    bool gated;
    int min_major, only_major, tile_m, tile_n, stages, cluster, max_m;
    bool plain_acts;
    const char *why;
    int only_rounding; /* of ep_rounding; CUDA_ANY_ROUNDING: of both */
} cuda_gemm_row;
enum { CUDA_ANY_ROUNDING = -1 };

typedef struct cuda_shape {
    int64_t m, n, k;
    ep_dtype dtype;
    bool gated;
    ep_act act;
    int major, sm_count;
    ep_rounding rounding;
} cuda_shape;

extern const cuda_gemm_row cuda_gemm_rows[];
extern const size_t cuda_gemm_row_count;

/* The row's index, or -1: no kernel of ours for it (f32, an older chip). */
int cuda_select(const cuda_shape *shape);
/* Why a row was passed over for the shape, or why it was taken; static text. */
const char *cuda_select_reason(const cuda_shape *shape, int row);
/* Whether the product is better left to cuBLASLt than given to the row that was selected (-1: none): plain ones of few
 * rows, and of many where nothing follows the sums, where it was measured faster or equal. */
bool cuda_select_library(const cuda_shape *shape, int row, bool residual);
/* The symbol of a row for dtype, act and rounding; static text. */
const char *cuda_gemm_name(int row, ep_dtype dtype, ep_act act, ep_rounding rounding);

/* Whole blocks in one kernel (cuda_blocks.def). */
typedef struct cuda_block_row {
    bool parts;                       /* k of the result in parts (rows_sm90a.cuh); else whole (decode_sm90a.cuh) */
    bool gated;                       /* else tiles have twice as many hidden columns */
    int rows, h, y, stages, y_stages; /* with parts: h at most, and stages as cuda_block_stages says */
} cuda_block_row;
extern const cuda_block_row cuda_block_rows[];
extern const size_t cuda_block_row_count;

/* The row for a product of this shape and a second one with `out` columns; -1: two kernels are as fast, or the only way.
 * always: also where two are as fast. */
int cuda_select_block(const cuda_shape *shape, int64_t out, bool always);
/* Why a row is not the one that cuda_select_block gives; static text. */
const char *cuda_block_reason(const cuda_shape *shape, int64_t out, bool always, int row);
/* The symbol of a row; static text. */
const char *cuda_block_name(int row, ep_dtype dtype);
/* How many of n hidden columns a tile has, and stages of the ring while they are made. */
int cuda_block_tile(const cuda_block_row *row, int64_t n, int sm_count);
int64_t cuda_block_tiles(const cuda_block_row *row, int64_t n, int tile);
int cuda_block_stages(const cuda_block_row *row, int tile);
/* In how many parts each tile of the result has its k, and how many tiles there are. */
int cuda_block_split(const cuda_block_row *row, int64_t n, int64_t out, int sm_count);
int64_t cuda_block_columns(const cuda_block_row *row, int64_t out);
enum { CUDA_BLOCK_PARTS = 2 }; /* for each multiprocessor at most, where there is more than one of a tile */
/* How many times 64 columns of the hidden values a stage of the second half has (decode); bytes of shared memory, threads. */
int cuda_block_chunks(const cuda_block_row *row);
int cuda_block_shared(const cuda_block_row *row);
int cuda_block_threads(const cuda_block_row *row);

#endif
