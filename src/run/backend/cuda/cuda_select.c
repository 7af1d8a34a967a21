/* Selection by estimated time: tiles per wave over the chip's multiprocessors, by rates as measured on an H200. */
#include "cuda_select.h"

#include "model/op/op.h"

const cuda_gemm_row cuda_gemm_rows[] = {
#define EP_CUDA_GEMM(form, gated, min_major, only_major, tm, tn, stages, cluster, max_m, acts, why)                    \
    {#form, gated, min_major, only_major, tm, tn, stages, cluster, max_m, acts, why},
#include "cuda_kernels.def"
#undef EP_CUDA_GEMM
};
enum { ROWS = sizeof cuda_gemm_rows / sizeof *cuda_gemm_rows };
const size_t cuda_gemm_row_count = ROWS;

/* Names by [act][rounding][bf16 or f16]. */
#define NAME(kind, form, act, rounding)                                                                                \
    { "ep_bf16_" kind act "_" form rounding, "ep_f16_" kind act "_" form rounding }
#define BOTH(kind, form, act)                                                                                          \
    { NAME(kind, form, act, "_eager"), NAME(kind, form, act, "_fewest") }
#define KIND_true "gated_gemm_"
#define KIND_false "gemm_"
static const char *const names[ROWS][EP_ACT_COUNT][2][2] = {
#define EP_CUDA_GEMM(form, gated, min_major, only_major, tm, tn, stages, cluster, max_m, acts, why)                    \
    {BOTH(KIND_##gated, #form, "none"), BOTH(KIND_##gated, #form, "gelu_tanh"), BOTH(KIND_##gated, #form, "gelu_erf"), \
     BOTH(KIND_##gated, #form, "silu"), BOTH(KIND_##gated, #form, "relu")},
#include "cuda_kernels.def"
#undef EP_CUDA_GEMM
};

const char *cuda_gemm_name(int row, ep_dtype dtype, ep_act act, ep_rounding rounding) {
    return names[row][act][rounding == EP_ROUNDING_FEWEST][dtype == EP_DTYPE_F16];
}

/* Up to 8 rows mma.sync is as fast (2048 -> 16384: 55 us, streamed 57) and needs fewer steps (768 -> 3072: 8.0, streamed
 * 10); at 16 rows its loads of x compete with the weights (74, streamed 57). */
static bool streams(const cuda_shape *s) {
    return s->major == 9 && (s->gated || s->act == EP_ACT_NONE);
}

static const char *passed_over(const cuda_shape *s, const cuda_gemm_row *r) {
    if (s->dtype != EP_DTYPE_BF16 && s->dtype != EP_DTYPE_F16) return "only bf16 and f16";
    if (r->gated != s->gated) return r->gated ? "for gated products" : "for plain products";
    if (s->major < r->min_major) return "needs a newer chip";
    if (r->only_major && s->major != r->only_major) return "compiled for another chip";
    if (r->max_m && s->m > r->max_m) return "more rows than it takes";
    if (!r->plain_acts && s->act != EP_ACT_NONE) return "has no activation in its epilogue";
    if (s->gated && s->act == EP_ACT_NONE) return "gated products have an activation";
    if (r->max_m > 8 && !r->stages && streams(s)) return "the copy engine streams these weights faster";
    return NULL;
}

/* Least time in units of one tile column's product: waves of tiles times columns, narrow tiles read x more often. */
static double estimate(const cuda_shape *s, const cuda_gemm_row *r) {
    int64_t tiles_m = (s->m + r->tile_m * r->cluster - 1) / (r->tile_m * r->cluster) * r->cluster;
    int64_t tiles = tiles_m * ((s->n + r->tile_n - 1) / r->tile_n);
    int64_t waves = (tiles + s->sm_count - 1) / s->sm_count;
    int columns = s->gated ? 2 * r->tile_n : r->tile_n;
    double rate = columns >= 256 ? 1.0 : columns >= 192 ? 0.93 : 0.86;
    return (double)waves * columns / rate;
}

/* Microseconds of a kernel that streams weights: memory's, or those of the CTA with the most tiles. */
static double stream_estimate(const cuda_shape *s, const cuda_gemm_row *r) {
    if (!r->stages) return 0;
    int64_t tiles = (s->n + r->tile_n - 1) / r->tile_n, waves = (tiles * r->cluster + s->sm_count - 1) / s->sm_count;
    double rows = r->tile_n * (s->gated ? 2.0 : 1.0), depth = 2.0 * (double)s->k;
    double rate = r->tile_m > 64 ? 36e3 : rows >= 128 ? 60e3 : 34e3; /* bytes a microsecond of one CTA */
    double memory = (s->gated ? 2.0 : 1.0) * (double)s->n * depth / 4.2e6;
    double slowest = (double)waves * rows * depth / r->cluster / rate;
    return memory > slowest ? memory : slowest;
}

int cuda_select(const cuda_shape *s) {
    int best = -1;
    double least = 0;
    for (int i = 0; i < ROWS; i++) {
        const cuda_gemm_row *r = &cuda_gemm_rows[i];
        if (passed_over(s, r)) continue;
        if (best >= 0 && cuda_gemm_rows[best].max_m && !r->max_m) break; /* made for few rows: never slower */
        double t = r->max_m ? stream_estimate(s, r) : estimate(s, r);
        if (best < 0 || t < least) {
            best = i;
            least = t;
        }
    }
    return best;
}

const char *cuda_select_reason(const cuda_shape *s, int row) {
    const char *why = passed_over(s, &cuda_gemm_rows[row]);
    if (why) return why;
    return cuda_select(s) == row ? cuda_gemm_rows[row].why : "another tile is estimated to end sooner";
}

const cuda_block_row cuda_block_rows[] = {
#define EP_CUDA_BLOCK(rows, h, y, stages) {rows, h, y, stages},
#include "cuda_blocks.def"
#undef EP_CUDA_BLOCK
};
enum { BLOCKS = sizeof cuda_block_rows / sizeof *cuda_block_rows };
const size_t cuda_block_row_count = BLOCKS;

static const char *const block_names[BLOCKS][2] = {
#define EP_CUDA_BLOCK(rows, h, y, stages)                                                                              \
    {"ep_bf16_gated_mlp_decode_sm90a_m" #rows "h" #h "y" #y, "ep_f16_gated_mlp_decode_sm90a_m" #rows "h" #h "y" #y},
#include "cuda_blocks.def"
#undef EP_CUDA_BLOCK
};

const char *cuda_block_name(int row, ep_dtype dtype) {
    return block_names[row][dtype == EP_DTYPE_F16];
}

int cuda_block_chunks(const cuda_block_row *r) {
    return 128 / r->y;
}

/* decode_shape in kernels/sm90a/decode_sm90a.cuh. */
int cuda_block_shared(const cuda_block_row *r) {
    int first = 2 * r->h * 128, second = 16384, weights = first > second ? first : second;
    return r->stages * (weights + cuda_block_chunks(r) * r->rows * 128 + 20) + 8 * r->y * r->rows * 4 + 1040;
}

/* Columns that the chip passes while it makes n in tiles: all multiprocessors take as many as the busiest. */
static int64_t passed(int64_t n, int64_t tile, int64_t sm_count) {
    int64_t tiles = (n + tile - 1) / tile;
    return (tiles + sm_count - 1) / sm_count * sm_count * tile;
}

/* The one kernel saves a launch and an empty memory bus between two, and starts while the one before ends: 7 us of 55 up
 * to 8 rows, 4 of 54 or 13 of 97 above (H200, one after the other). It loses where tiles do not divide the chip well, or
 * where the weights stay in the L2: there replays of two kernels cost the host less. */
int cuda_select_block(const cuda_shape *s, int64_t out, int64_t l2_bytes) {
    if (s->major != 9 || (s->dtype != EP_DTYPE_BF16 && s->dtype != EP_DTYPE_F16) || s->act == EP_ACT_NONE) return -1;
    if (s->m < 1 || s->m > 16 || s->n % 64 || s->n > INT32_MAX || s->k > INT32_MAX || out < 1 || out > INT32_MAX)
        return -1;
    int64_t bytes = 2 * s->n * (2 * s->k + out), least = 0;
    if (l2_bytes != CUDA_BLOCK_ANY && bytes <= l2_bytes) return -1;
    int best = -1;
    for (int i = 0; i < BLOCKS; i++) {
        const cuda_block_row *r = &cuda_block_rows[i];
        if (r->rows != (s->m > 8 ? 16 : 8)) continue;
        int64_t cost = 4 * s->k * passed(s->n, r->h, s->sm_count) + 2 * s->n * passed(out, r->y, s->sm_count);
        if (best >= 0 && cost >= least) continue;
        best = i;
        least = cost;
    }
    if (l2_bytes == CUDA_BLOCK_ANY) return best;
    return (double)least <= (s->m > 8 ? 1.25 : 1.15) * (double)bytes ? best : -1;
}
