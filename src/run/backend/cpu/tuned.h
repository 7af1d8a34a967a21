/* Tuned kernels of the CPU: packed weights, the GEMM driver over tiles, the gated pointwise kernels.
 *
 * A weight matrix (or a gate and up pair) is packed into panels of 2 * half columns. A panel is a run of chunks; a chunk
 * holds 16 "quads" of every column, a quad being the 4 bytes of one f32 or of two bf16 with adjacent k (f16 is stored
 * k by k in the same number of bytes). In a pair's panel the first half is gate columns and the second the up columns of
 * the same numbers, so that one tile of sums holds both operands of act(gate) * up.
 * x is packed into row tiles [chunk][mr rows][64 or 128 bytes]. Sums are f32; k is never split over threads, and the
 * order of additions depends on k alone, so results are the same bits at any thread count. */
#ifndef EP_RUN_BACKEND_CPU_TUNED_H
#define EP_RUN_BACKEND_CPU_TUNED_H

#include "base/isa.h"
#include "run/backend/backend.h"

/* How a panel's bytes are ordered; part of the packed file format, so numbers are never reused. */
typedef enum ep_pack_layout {
    EP_LAYOUT_F32_16 = 1,  /* f32, half 16 */
    EP_LAYOUT_F32_8 = 2,   /* f32, half 8 */
    EP_LAYOUT_BF16_16 = 3, /* bf16 pairs, half 16 */
    EP_LAYOUT_BF16_8 = 4,
    EP_LAYOUT_F16_16 = 5, /* f16, k by k, half 16 */
    EP_LAYOUT_F16_8 = 6
} ep_pack_layout;

/* A chunk's share of memory that is wanted soon: `lines` cache lines for each of `chunks` chunks, from `ahead` on. Where
 * the share is large, of each quarter in turn: several streams from memory are faster than one. Returns the next share. */
static inline const char *ep_fetch(const char *ahead, int lines, int64_t chunks) {
    if (lines % 4 != 0) {
        for (int l = 0; l < lines; l++, ahead += 64) __builtin_prefetch(ahead, 0, 2);
        return ahead;
    }
    const int64_t quarter = chunks * lines * 16;
    for (int l = 0; l < lines; l += 4, ahead += 64)
        for (int q = 0; q < 4; q++) __builtin_prefetch(ahead + q * quarter, 0, 2);
    return ahead;
}

/* c[rows][2 * half] = a b (first), or += : a is a packed row tile of `chunks` chunks, b the same chunks of a panel.
 * ep_fetch takes `ahead` and `lines`; 0 lines: nothing is fetched. */
typedef void (*ep_acc_fn)(int rows, int64_t chunks, const void *a, const void *b, float *c, bool first,
                          const char *ahead, int lines);

/* The same for a few rows and adjacent panels at once, panel_bytes and panel_sums (floats) apart: several streams from
 * memory are faster than one. */
enum { EP_ACROSS = 4 };
typedef void (*ep_across_fn)(int rows, int64_t chunks, const void *a, const void *b, int64_t panel_bytes, float *c,
                             int64_t panel_sums, bool first);

/* One tile of finished sums and what becomes of it. Pointers are at the tile's first row and column. */
typedef struct ep_tile {
    int rows, cols; /* cols: of the result; up to half for a pair, up to 2 * half else */
    const float *sums;
    int sums_row;               /* floats between rows of sums */
    const float *bias0, *bias1; /* f32, valid for the whole panel width; or NULL */
    const void *residual;
    int64_t residual_row; /* bytes */
    void *out;
    int64_t out_row; /* bytes */
    ep_act act;
    ep_rounding rounding;
    const float *table; /* ep_act_table, or NULL: by the formula */
} ep_tile;
typedef void (*ep_tile_fn)(const ep_tile *t);

/* Blocks of k for the row tiles of a panel in one go: what acc does tile by tile, without a pause between tiles or blocks.
 * Between its products it finishes rows of the panel before: act(gate) * up from the table, or plain results without
 * activation. */
enum { EP_RING = 4 };
typedef struct ep_sweep {
    int64_t tiles, chunks; /* row tiles of more than half of mr rows */
    int64_t blocks;        /* of equal chunks, one after the other over all tiles: chunks * i / blocks to * (i + 1) */
    const char *a, *b;
    int64_t a_tile, a_row, a_chunk; /* bytes between row tiles of x, rows of a tile, chunks of a row */
    float *c;                       /* tile after tile of sums */
    /* Not NULL where all of k is here: EP_RING tiles that sums leave to in turn, each finished two tiles later, while in L1.
     * `done` is then the first of these tiles. */
    float *ring;
    bool first;
    /* Weights are fetched a block ahead, `lines` cache lines a chunk, tile after tile; during the last block those at
     * `ahead`, or none. */
    const char *ahead;
    int lines;
    const char *more; /* fetched too, x of the next part of k: more_lines of each tile, more_tile apart; not NULL */
    int64_t more_tile, more_lines;
    const ep_tile *done; /* the first of as many row tiles of sums; NULL: none */
    bool pair;
    int64_t done_tile; /* bytes between row tiles of its result */
    int end;           /* rows of the last tile that are finished; of the others all */
} ep_sweep;
typedef void (*ep_sweep_fn)(const ep_sweep *s);

/* A row of the gated pointwise kernels: adjacent elements. dy and dup are of the gradients, which leave dgate in out. */
typedef struct ep_gated_row {
    int64_t n;
    const void *dy, *gate, *up;
    void *out, *dup;
    ep_act act;
    bool eager;
    const float *table, *pairs; /* ep_act_table forward, ep_pair_table backward, or NULL */
    bool mix;                   /* some vectors by the formula beside the table, where a kernel has that */
    bool stream;                /* results go past the caches; the caller ends that with a fence */
    const uint16_t *words;      /* ep_act_words beside table, or NULL: without it the f16 unit's kernels do not mix */
    const float *slopes;        /* ep_act_slopes beside pairs: act by the formula, where a kernel has that; or NULL */
} ep_gated_row;
typedef void (*ep_gated_fn)(const ep_gated_row *r);

/* What one ISA gives for one dtype. */
typedef struct ep_tuned_row {
    const char *isa_name; /* in kernel names */
    ep_isa isa;
    ep_dtype dtype;
    ep_pack_layout layout;
    int half;         /* columns of half a panel */
    int mr;           /* rows of a row tile */
    int a_bytes;      /* from one row of a packed chunk of x to the next: 64 or 68 (as stored), 128 (widened to f32) */
    int chunk_k;      /* k in a chunk */
    int block_chunks; /* chunks of k summed before the sums return to memory: sized for L1; a sweep takes equal blocks */
    int whole_chunks;                  /* k of at most so many chunks is not divided; 0: block_chunks */
    void (*begin)(void), (*end)(void); /* per thread, around a kernel; or NULL */
    ep_acc_fn acc;
    ep_sweep_fn sweep;   /* NULL: tile by tile */
    ep_across_fn across; /* EP_ACROSS panels; NULL: none */
    int across_rows;     /* at most */
    ep_tile_fn gated, plain;
    /* Where a_bytes is 128: a row of x over whole chunks of 32 values as f32, `step` floats from a chunk to the next. */
    void (*widen)(int64_t chunks, const void *x, float *out, int64_t step);
    /* out[i] = act(i as the dtype), rounded to the dtype, for the 65536 values; NULL for f32 */
    void (*fill_table)(ep_act act, float *out);
    void (*fill_pairs)(ep_act act, float *out); /* the same, each with the slope of act, not rounded */
    const char *vector_name;                    /* ISA of the pointwise kernels below */
    int lanes;
    ep_gated_fn gated_row, gated_pairs, gated_back; /* pairs: gate[i] and up[i] side by side from `gate` on */
    bool gated_mixes;                               /* gated_row heeds `mix` */
    bool gated_words;                               /* and asks `words` for it */
    bool gated_slopes;                              /* gated_back heeds `slopes` */
    bool (*usable)(void);                           /* asks the system, or measures; NULL: always */
    const char *unusable;                           /* the reason, where usable says no */
    const char *tile;                               /* "t32x32" */
} ep_tuned_row;

/* Fastest first within a dtype; portable rows last; then NULL. */
extern const ep_tuned_row *const ep_tuned_rows[];
/* The first row of a dtype that `isa` allows and this machine ran fastest; NULL if none (never for float dtypes). */
const ep_tuned_row *ep_tuned_select(ep_dtype dtype, ep_isa isa);

/* The ways of a tuned product, and which one a class of row counts takes. */
typedef enum ep_tuned_way { EP_WAY_KERNEL, EP_WAY_ONEDNN, EP_WAY_COUNT } ep_tuned_way;
enum { EP_TUNED_CLASSES = 24 };
typedef struct ep_tuned_choice {
    bool made;
    ep_tuned_way way;
    int64_t m;               /* it was measured at; 0: it was not measured */
    bool part;               /* those were not all rows of the call */
    double us[EP_WAY_COUNT]; /* the fastest run of each way */
    bool doubtful;           /* other work disturbed too many rounds */
    /* tuned_trial.c watches the calls that follow: */
    bool again; /* to be tried once more by the next call that may */
    int trials, seen;
    uint32_t calls;
    double least_pace; /* of the `seen` last calls that were timed, by the trial */
} ep_tuned_choice;

struct ep_packed {
    const ep_tuned_row *row;
    ep_dtype dtype;
    int64_t k, n;
    bool pair;
    int64_t panels, chunks, panel_bytes;
    char *data; /* panels * panel_bytes, 64-byte aligned */
    size_t bytes, mapped;
    void *map;                /* the file it came from, `mapped` bytes; NULL: data is ours */
    ep_tuned_choice *choices; /* of EP_TUNED_CLASSES; NULL: our kernel always */
    ep_pack_request plain;    /* where there are choices: the weights it was packed from */
};

/* tuned_choice.c: called once a pack is made from `q`, or loaded beside it. EPILOGUE_TUNED=kernels, =onednn or
 * =packed decides without measuring. */
void ep_tuned_choices_create(ep_packed *p, const ep_pack_request *q);
/* As ep_tuned_packed_x_bytes, and 0 too where a choice is open or oneDNN's. */
size_t ep_tuned_hand_bytes(const ep_packed *first, const ep_packed *next, int64_t m);
ep_tuned_pair ep_tuned_pair_way(const ep_packed *p, int64_t m);
/* A line for every choice that was measured; returns its length. */
size_t ep_tuned_choice_text(const ep_packed *p, char *out, size_t size);

/* Scratch of one context: grows to the largest call and stays. */
typedef struct ep_tuned_scratch ep_tuned_scratch;
ep_status ep_tuned_scratch_create(ep_error *err, ep_tuned_scratch **out);
void ep_tuned_scratch_destroy(ep_tuned_scratch *s);

/* tuned_gated.c: act(gate) * up and its gradients, inputs read in place at any stride; out may be an input. */
ep_status ep_tuned_gated(int threads, ep_act act, ep_rounding rounding, const ep_tensor *gate, const ep_tensor *up,
                         ep_tensor *out, ep_error *err);
ep_status ep_tuned_gated_backward(int threads, ep_act act, ep_rounding rounding, const ep_tensor *dy,
                                  const ep_tensor *gate, const ep_tensor *up, ep_tensor *dgate, ep_tensor *dup,
                                  ep_error *err);
const char *ep_tuned_gated_name(ep_act act); /* "geglu", "swiglu", ... */

/* tuned_pack.c */
ep_status ep_tuned_pack(int threads, const ep_pack_request *request, ep_error *err, ep_packed **out);
void ep_tuned_pack_free(ep_packed *p);
int64_t ep_tuned_pack_bytes(const ep_packed *p);
/* The same for a row of the caller's choice (tests, benchmarks). */
ep_status ep_tuned_pack_with(const ep_tuned_row *row, int threads, const ep_pack_request *request, ep_error *err,
                             ep_packed **out);
ep_status ep_tuned_pack_shape(const ep_tuned_row *row, int64_t k, int64_t n, bool pair, ep_error *err, ep_packed *p);
/* 64-byte aligned, 2 MiB and huge pages where large; ended by free(). */
void *ep_tuned_alloc(size_t bytes);
/* pack_file.c: several packs in one file, and back. Loading maps; `verify` reads all bytes and checks them. A file packed
 * for another layout than this machine selects is refused with EP_ERROR_UNSUPPORTED. */
ep_status ep_tuned_pack_save(const ep_packed *const *packs, int count, const char *path, ep_error *err);
ep_status ep_tuned_pack_load(const char *path, bool verify, int count, ep_error *err, ep_packed **out);
void ep_tuned_pack_describe(const ep_packed *p, ep_dtype *dtype, int64_t *k, int64_t *n, bool *pair);

/* tuned_gemm.c: ep_tuned_call's formula; one kernel. */
/* Bytes of m rows of x as `next` packs them, if a call with `first` can write them so; else 0. */
size_t ep_tuned_packed_x_bytes(const ep_packed *first, const ep_packed *next, int64_t m);
void ep_tuned_name(const ep_tuned_call *call, char out[128]); /* the kernel's name in traces */
ep_status ep_tuned_run(ep_tuned_scratch *s, int threads, const ep_tuned_call *call, ep_error *err);

#endif
