/* Selection by estimated time: tiles per wave over the chip's multiprocessors, by rates as measured on an H200. */
#include "cuda_select.h"

#include "model/op/op.h"

const cuda_gemm_row cuda_gemm_rows[] = {
#define ROW(rounding, form, gated, min_major, only_major, tm, tn, stages, cluster, max_m, acts, why)                   \
    {#form, gated, min_major, only_major, tm, tn, stages, cluster, max_m, acts, why, rounding},
#define EP_CUDA_GEMM(...) ROW(CUDA_ANY_ROUNDING, __VA_ARGS__)
#define EP_CUDA_GEMM_IN(rounding, ...) ROW(EP_ROUNDING_##rounding, __VA_ARGS__)
#include "cuda_kernels.def"
#undef EP_CUDA_GEMM
#undef ROW
};
enum { ROWS = sizeof cuda_gemm_rows / sizeof *cuda_gemm_rows };
const size_t cuda_gemm_row_count = ROWS;

/* Names by [act][rounding][bf16 or f16]. */
#define NAME(kind, form, act, rounding)                                                                                \
    { "ep_bf16_" kind act "_" form rounding, "ep_f16_" kind act "_" form rounding }
#define BOTH(kind, form, act)                                                                                          \
    { NAME(kind, form, act, "_eager"), NAME(kind, form, act, "_fewest") }
#define KIND_1 "gated_gemm_" /* true, as it has become by then */
#define KIND_0 "gemm_"
static const char *const names[ROWS][EP_ACT_COUNT][2][2] = {
#define NAMES(form, gated, min_major, only_major, tm, tn, stages, cluster, max_m, acts, why)                           \
    {BOTH(KIND_##gated, #form, "none"), BOTH(KIND_##gated, #form, "gelu_tanh"), BOTH(KIND_##gated, #form, "gelu_erf"), \
     BOTH(KIND_##gated, #form, "silu"), BOTH(KIND_##gated, #form, "relu")},
#define EP_CUDA_GEMM(...) NAMES(__VA_ARGS__)
#include "cuda_kernels.def"
#undef EP_CUDA_GEMM
#undef NAMES
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
    if (r->only_rounding != CUDA_ANY_ROUNDING && r->only_rounding != (int)s->rounding)
        return r->only_rounding == EP_ROUNDING_EAGER ? "made for eager rounding" : "made for fewest rounding";
    if (s->major < r->min_major) return "needs a newer chip";
    if (r->only_major && s->major != r->only_major) return "compiled for another chip";
    if (r->max_m && s->m > r->max_m) return "more rows than it takes";
    if (!r->plain_acts && s->act != EP_ACT_NONE) return "has no activation in its epilogue";
    if (s->gated && s->act == EP_ACT_NONE) return "gated products have an activation";
    if (r->max_m > 8 && !r->stages && streams(s)) return "the copy engine streams these weights faster";
    return NULL;
}

/* How often the chip is filled with tiles of a row. */
static int64_t tile_waves(const cuda_shape *s, const cuda_gemm_row *r) {
    int64_t tiles_m = (s->m + r->tile_m * r->cluster - 1) / (r->tile_m * r->cluster) * r->cluster;
    int64_t tiles = tiles_m * ((s->n + r->tile_n - 1) / r->tile_n);
    return (tiles + s->sm_count - 1) / s->sm_count;
}

/* Least time in units of one tile column's product: waves of tiles times columns, narrow tiles read x more often. */
static double estimate(const cuda_shape *s, const cuda_gemm_row *r) {
    int columns = s->gated ? 2 * r->tile_n : r->tile_n;
    double rate = columns < 192 ? 0.86 : 1.0;
    return (double)tile_waves(s, r) * columns / rate;
}

/* The share of what the tiles' waves could make that is asked for. */
static double used(const cuda_shape *s, const cuda_gemm_row *r) {
    return (double)s->m * (double)s->n /
           ((double)tile_waves(s, r) * (double)s->sm_count * (double)(r->tile_m * r->tile_n));
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

/* From 5 rows on the library streams a plain product's weights faster than ours; only where they are few, an activation or a
 * residual of its own pass outweighs that up to 16 rows. Up to 4 rows ours is ahead unless there are many columns. (H200, us: 8 x
 * 4096 -> 14336 31 for 38, 16 x 2048 -> 16384 19 for 31, 64 x 4096 -> 4096 11.1 for 13.6, 1 x 4096 -> 4096 11.6 for 9.1, 1 x 4096 ->
 * 14336 31.6 for 34.1; mlp 32 x 4096 -> 16384 75 for 89, 16 x 768 -> 3072 12.8 for 11.1.) Of many rows
 * it has those where nothing follows the sums. An activation or a residual is a pass of its own there, which our tiles save where
 * they fill the chip; the library has more tiles and splits k where they do not. (us, by turns: mlp 1024 x 2048 -> 16384 187 for 193,
 * 512 x 4096 -> 14336 170 for 173, 2040 x 768 -> 3072 35.1 for 36.6; the product alone, with a residual: 1536 x 16384 -> 4096 283 for
 * 334, but 384 rows 114 for 90, and 256 x 16384 -> 2048 82 for 34.) Warpgroups in turns hide an activation only behind another tile's
 * products, so they need two each (1024 x 768 -> 3072, one each: 23.8 for 22.7). */
bool cuda_select_library(const cuda_shape *s, int row, bool residual) {
    if (row < 0) return true;
    bool more = s->act != EP_ACT_NONE || residual;
    if (s->gated) return false;
    if (s->act != EP_ACT_NONE && residual && s->m > 16) return true; /* no kernel of ours has both */
    if (s->m <= 4) return !more && s->n >= 8192;
    if (s->m <= 16) return !more || 2 * s->n * s->k > (int64_t)16 << 20;
    const cuda_gemm_row *r = &cuda_gemm_rows[row];
    bool alone = s->act != EP_ACT_NONE && r->tile_n == 192 && tile_waves(s, r) < 2;
    return s->m <= 128 || !more || alone || used(s, r) < 0.84;
}

enum { FORM_decode = false, FORM_rows = true, WHAT_mlp = false, WHAT_gated_mlp = true };
const cuda_block_row cuda_block_rows[] = {
#define EP_CUDA_BLOCK(form, what, rows, h, y, stages, y_stages)                                                        \
    {FORM_##form, WHAT_##what, rows, h, y, stages, y_stages},
#include "cuda_blocks.def"
#undef EP_CUDA_BLOCK
};
enum { BLOCKS = sizeof cuda_block_rows / sizeof *cuda_block_rows };
const size_t cuda_block_row_count = BLOCKS;

static const char *const block_names[BLOCKS][2] = {
#define EP_CUDA_BLOCK(form, what, rows, h, y, stages, y_stages)                                                        \
    {"ep_bf16_" #what "_" #form "_sm90a_m" #rows "h" #h "y" #y,                                                        \
     "ep_f16_" #what "_" #form "_sm90a_m" #rows "h" #h "y" #y},
#include "cuda_blocks.def"
#undef EP_CUDA_BLOCK
};

const char *cuda_block_name(int row, ep_dtype dtype) {
    return block_names[row][dtype == EP_DTYPE_F16];
}

int cuda_block_chunks(const cuda_block_row *r) {
    return 128 / r->y;
}

int cuda_block_threads(const cuda_block_row *r) {
    return !r->parts ? 288 : r->rows > 64 ? 384 : 192;
}

enum { ROWS_STAGES = 9 }; /* at most, of h */
static int rows_ring(const cuda_block_row *r) {
    return r->y_stages * (r->y + r->rows) * 128;
}

int cuda_block_stages(const cuda_block_row *r, int tile) {
    if (!r->parts) return r->stages;
    int fit = rows_ring(r) / ((2 * tile + r->rows) * 128);
    return fit < ROWS_STAGES ? fit : ROWS_STAGES;
}

/* decode_shape in kernels/sm90a/decode_sm90a.cuh, rows_shape in rows_sm90a.cuh. */
int cuda_block_shared(const cuda_block_row *r) {
    int first = 2 * r->h * 128;
    if (r->parts) return rows_ring(r) + 16 * (ROWS_STAGES + r->y_stages + 4) + 16 + 16 + 1024;
    int second = 16384, weights = first > second ? first : second;
    return r->stages * (weights + cuda_block_chunks(r) * r->rows * 128 + 20) + 8 * r->y * r->rows * 4 + 1040;
}

int64_t cuda_block_columns(const cuda_block_row *r, int64_t out) {
    return (out + r->y - 1) / r->y;
}

static int64_t rounds(int64_t tiles, int64_t sm_count) {
    return (tiles + sm_count - 1) / sm_count;
}

/* As many as leave the busiest multiprocessor the fewest columns; of those the most, as each tile reads x. */
int cuda_block_tile(const cuda_block_row *r, int64_t n, int sm_count) {
    int best = r->h, both = r->gated ? 1 : 2;
    for (int h = r->h - 8; r->parts && h >= 64; h -= 8) {
        int64_t wide = both * best, narrow = both * h;
        if (rounds((n + narrow - 1) / narrow, sm_count) * narrow < rounds((n + wide - 1) / wide, sm_count) * wide)
            best = h;
    }
    return best;
}

int64_t cuda_block_tiles(const cuda_block_row *r, int64_t n, int tile) {
    int64_t width = r->gated ? tile : 2 * tile;
    return (n + width - 1) / width;
}

/* As many as bring the busiest multiprocessor to its end first; each part costs a hundredth, as it is written and read. */
int cuda_block_split(const cuda_block_row *r, int64_t n, int64_t out, int sm_count) {
    if (!r->parts) return 1;
    int64_t columns = cuda_block_columns(r, out), most = (n + 63) / 64;
    int best = 1;
    double least = (double)rounds(columns, sm_count) + 0.01;
    for (int split = 2; split <= 8 && split <= most && columns * split <= CUDA_BLOCK_PARTS * sm_count; split++) {
        double cost = (double)rounds(columns * split, sm_count) / split + 0.01 * split;
        if (cost < least) least = cost, best = split;
    }
    return best;
}

/* The fewest rows that a row is made for. */
static int block_least(const cuda_block_row *r) {
    return r->rows > 64 ? 65 : r->rows > 16 ? 17 : r->rows > 8 ? 9 : 1;
}

static const char *block_passed_over(const cuda_shape *s, int64_t out, const cuda_block_row *r) {
    if (s->dtype != EP_DTYPE_BF16 && s->dtype != EP_DTYPE_F16) return "only bf16 and f16";
    if (s->major != 9) return "compiled for another chip";
    if (r->gated != s->gated) return r->gated ? "for gated blocks" : "for blocks without a gate";
    if (s->act == EP_ACT_NONE) return "one kernel has an activation in the middle";
    if (s->m > r->rows) return "more rows than it takes";
    if (s->m < block_least(r) && s->m > 0) return "another is made for so few rows";
    if (s->k % 8) return "the columns of x are no multiple of 8";
    if (!r->parts && s->n % 64) return "the hidden columns are no multiple of 64";
    if (r->parts && s->n % 8) return "the hidden columns are no multiple of 8";
    if (s->m < 1 || s->n < 1 || s->n > INT32_MAX || s->k > INT32_MAX || out < 1 || out > INT32_MAX)
        return "sizes it cannot take";
    return NULL;
}

/* Bytes that all multiprocessors could read while the busiest reads its own; where that is the same, fewer tiles read x less
 * often. */
static int64_t block_cost(const cuda_shape *s, int64_t out, const cuda_block_row *r) {
    int split = cuda_block_split(r, s->n, out, s->sm_count), tile = cuda_block_tile(r, s->n, s->sm_count);
    int64_t y = rounds(cuda_block_columns(r, out) * split, s->sm_count) * s->sm_count * r->y;
    int64_t tiles = cuda_block_tiles(r, s->n, tile);
    return 4 * s->k * rounds(tiles, s->sm_count) * s->sm_count * tile + 2 * s->n * y / split + tiles;
}

static int cheapest_block(const cuda_shape *s, int64_t out) {
    int best = -1;
    for (int i = 0; i < BLOCKS; i++) {
        if (block_passed_over(s, out, &cuda_block_rows[i])) continue;
        if (best < 0 || block_cost(s, out, &cuda_block_rows[i]) < block_cost(s, out, &cuda_block_rows[best])) best = i;
    }
    return best;
}

/* The one kernel saves a launch and an empty memory bus between two, and starts while the one before ends. Up to 16 rows it was
 * measured ahead of two at every size (H200, one after the other: 7.3 for 8.2 us at 1 x 768 -> 3072, 48 for 56 at
 * 1 x 2048 -> 16384, 103 for 112 at 1 x 5120 -> 13824, 35 for 47 at 16 x 2304 -> 9216), but for the smallest, which take as long
 * as replays of two kernels and would cost the host more. Above, with parts of y to add up, it is ahead where the weights exceed
 * the L2, also where its tiles leave a quarter of the multiprocessors idle, since the others take nearly all that memory gives (99
 * for 106 at 128 x 4096 -> 14336, 81 for 85 at 128 x 4096 -> 11008, 124 for 132 at 128 x 3584 -> 18944). */
static bool block_faster(const cuda_shape *s, int64_t out, int row, bool always) {
    int64_t bytes = 2 * s->n * ((s->gated ? 2 : 1) * s->k + out);
    if (always) return true;
    if (!cuda_block_rows[row].parts) return s->m > 4 || bytes >= (int64_t)8 << 20;
    return bytes >= (int64_t)(s->m > 64 ? 64 : 48) << 20;
}

int cuda_select_block(const cuda_shape *s, int64_t out, bool always) {
    int best = cheapest_block(s, out);
    return best >= 0 && block_faster(s, out, best, always) ? best : -1;
}

const char *cuda_block_reason(const cuda_shape *s, int64_t out, bool always, int row) {
    const char *why = block_passed_over(s, out, &cuda_block_rows[row]);
    if (why) return why;
    if (cheapest_block(s, out) != row) return "tiles of another divide the chip better";
    if (block_faster(s, out, row, always)) return "the weights are read without a pause in the middle";
    return cuda_block_rows[row].parts ? "the weights stay in the L2" : "so little is as fast in two replayed ones";
}
