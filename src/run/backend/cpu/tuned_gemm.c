/* The driver of every tuned GEMM: blocks for the caches, an equal share of row blocks times panels for each thread, x
 * packed into row tiles, tiles of sums handed to their epilogue while they are in L1. */
#include "tuned.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "act_table.h"
#include "base/parallel.h"
#include "model/tensor/tensor.h"
#include "run/backend/launch.h"

enum {
    TABLE_PAYS = 1 << 15, /* results from which filling the table once is repaid */
    FORK_PAYS = 1 << 18,  /* multiply-adds from which a fork-join (2 to 3 us) is repaid by vectors */
    FORK_TILES = 1 << 22, /* the same by tile registers */
    FEW_PANELS = 2,       /* that a claim has at least, */
    FEW_BYTES = 1 << 15,  /* and of weights */
    FORK_BYTES = 1 << 17, /* bytes of weights: streaming them takes longer */
    PLAIN_PANELS = 16,    /* at most, over which x is read as it lies, if its rows are whole lines of different sets */
    FORK_MOVED = 1 << 16  /* bytes of x and of results: where k and n are small, packing and storing them does */
};

struct ep_tuned_scratch {
    char *data;
    size_t bytes;
};

typedef struct job {
    const ep_tuned_call *call;
    const ep_packed *w; /* the first of packs: all have its shape */
    const ep_packed *packs[EP_TUNED_PRODUCTS];
    int pack_count;
    const ep_tuned_row *row;
    int64_t block_rows, blocks; /* rows of x in a block, and how many blocks */
    int64_t super;              /* chunks of k whose packed x stays in L2 */
    int64_t group;              /* panels whose sums are kept: while k goes by in more than one super, or wait */
    int64_t hook_panels;        /* panels whose products wait for one call of the hook; 0: no hook */
    size_t x_bytes, sum_bytes, hook_bytes; /* of a thread's scratch */
    /* Packed x of all rows: the caller's, or made by all threads first where several share a row block. Then what
     * hardware threads share of L2 holds one copy. NULL: each thread packs its block. */
    const char *all_x;
    char *packing; /* all_x while it is made */
    bool plain_x;  /* whole row tiles are read where x lies: few panels don't repay packing it */
    const float *bias[EP_TUNED_PRODUCTS], *table;
    char *scratch;
    _Atomic int64_t claimed; /* units of work (panels of blocks) that threads have taken */
} job;

/* What a thread works in. */
typedef struct desk {
    const char *x;
    int64_t x_block;  /* whose x, all of k, is packed there; -1: none */
    int64_t x_chunks; /* from one row tile of x to the next */
    const char *tail; /* where x is read as it lies: the packed rows behind its whole tiles; or NULL */
    float *sums, *ring;
    char *products;     /* for the hook: [product][block_rows][hook_panels * width] as the dtype */
    int64_t panel0;     /* first panel of the products that are there */
    int64_t panel1;     /* end of this thread's panels in the block, or of a group of them */
    int64_t group0;     /* first panel of that group */
    const char *next_x; /* the part of x that is wanted next, of so many chunks; or NULL */
    int64_t next_chunks;
    ep_tile waiting; /* the first row tile of a panel whose sums are done but not yet its result; sums NULL: none */
} desk;

ep_status ep_tuned_scratch_create(ep_error *err, ep_tuned_scratch **out) {
    ep_tuned_scratch *s = calloc(1, sizeof *s);
    if (!s) return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory for the scratch of tuned kernels");
    *out = s;
    return EP_OK;
}

void ep_tuned_scratch_destroy(ep_tuned_scratch *s) {
    if (!s) return;
    free(s->data);
    free(s);
}

static ep_status reserve(ep_tuned_scratch *s, size_t bytes, ep_error *err) {
    if (bytes <= s->bytes) return EP_OK;
    char *data = ep_tuned_alloc(bytes);
    if (!data) return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory for %zu bytes of kernel scratch", bytes);
    free(s->data);
    s->data = data;
    s->bytes = bytes;
    return EP_OK;
}

static int64_t ceil_div(int64_t a, int64_t b) {
    return a / b + (a % b != 0);
}

static int64_t min64(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t max64(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* Columns of the result in a panel. */
static int64_t panel_width(const job *j) {
    return j->w->pair ? j->row->half : 2 * j->row->half;
}

/* Rows of which all of k fits half of L2: up to 256, for sweeps up to 512, as weights then come from memory less often.
 * Where not even 64 rows fit (sweeps: 256), 256 rows and k in parts; sweeps of many rows 512 and k in smaller parts. */
static int64_t most_rows(const ep_tuned_row *r, int64_t l2, int64_t chunks, int64_t m) {
    int64_t fit = l2 / 2 / max64(chunks * r->a_bytes, 1), least = r->sweep ? 256 : 64;
    int64_t about256 = ceil_div(256, r->mr) * r->mr;
    if (fit < least) return r->sweep && m >= 2048 ? 512 : about256;
    return min64(fit / r->mr * r->mr, r->sweep ? 512 : about256);
}

/* Chunks that are summed in one go: of k alone, as the order of additions must be. */
static int64_t k_block(const ep_packed *w) {
    return w->chunks <= w->row->whole_chunks ? w->chunks : w->row->block_chunks;
}

/* Weights of a few rows come from memory, several panels at a time. */
static bool crosses(const job *j) {
    return j->row->across && j->call->m <= j->row->across_rows && !j->call->hook;
}

/* Threads that repay their fork-join. */
static int useful_threads(const job *j, int threads) {
    const ep_packed *w = j->w;
    int64_t products = w->pair ? 2 : j->pack_count, m = j->call->m;
    int64_t ops = m * w->n * w->k * products, bytes = (int64_t)w->bytes * j->pack_count;
    int64_t pays = w->row->isa == EP_ISA_AMX_BF16 ? FORK_TILES : FORK_PAYS;
    int64_t moved = m * (w->k + w->n * products) * (int64_t)ep_dtype_size(j->call->dtype);
    return ops < pays && bytes < FORK_BYTES && moved < FORK_MOVED ? 1 : threads;
}

static size_t ring_bytes(const ep_tuned_row *r) {
    return r->sweep ? (size_t)(EP_RING * r->mr * 2 * r->half) * sizeof(float) : 0;
}

/* Whether tiles can be loaded from x itself: whole chunks, in lines that do not share their sets of L1. */
static bool takes_plain_x(const job *j) {
    const ep_tuned_call *call = j->call;
    const ep_tuned_row *r = j->row;
    int64_t row = call->x_row * (int64_t)ep_dtype_size(call->dtype);
    if (!r->sweep || call->x_packed || call->x_col != 1 || j->w->k % r->chunk_k != 0 || call->m < 2 * r->mr)
        return false;
    return j->w->panels * j->pack_count <= PLAIN_PANELS && row % 64 == 0 && (uintptr_t)call->x % 64 == 0 &&
           row % 4096 != 0;
}

/* Row blocks whose packed x fills half of L2; where k is too long for that, k goes by in supers and the sums of a group of
 * panels wait in memory. Where there are fewer panels than threads, a block of rows for each thread at least. No bits
 * depend on any of this. */
static void choose_blocks(job *j, int threads) {
    const ep_tuned_row *r = j->row;
    int64_t l2 = max64(ep_cpu_get()->l2, 256 << 10), m = j->call->m, most = most_rows(r, l2, j->w->chunks, m);
    int64_t tiles = ceil_div(m, r->mr), blocks = ceil_div(tiles * r->mr, most);
    blocks = max64(blocks, min64(tiles, ceil_div(threads, j->w->panels)));
    j->block_rows = ceil_div(tiles, blocks) * r->mr;
    j->blocks = ceil_div(m, j->block_rows);
    int64_t chunk_bytes = j->block_rows * r->a_bytes, fit = max64(l2 / 2 / chunk_bytes, r->block_chunks);
    if (r->sweep && j->call->x_packed && j->w->chunks > fit) fit = max64(fit / 2, r->block_chunks); /* next_part */
    int64_t supers = max64(ceil_div(j->w->chunks, fit), 1);
    j->super = ceil_div(ceil_div(j->w->chunks, supers), r->block_chunks) * r->block_chunks;
    int64_t panel_sums = j->block_rows * 2 * r->half * 4 * j->pack_count;
    j->group = j->w->chunks <= j->super ? (r->sweep ? 2 : 1) : max64(min64(j->w->panels, 2 * l2 / panel_sums), 1);
    if (crosses(j)) j->group = max64(j->group, EP_ACROSS);
    j->plain_x = j->w->chunks <= min64(j->super, r->block_chunks) && takes_plain_x(j);
    j->x_bytes = (size_t)(chunk_bytes * max64(j->super, 1) + 63) / 64 * 64;
    j->sum_bytes = (size_t)(panel_sums * j->group + 63) / 64 * 64 + ring_bytes(r);
    if (!j->call->hook) return;
    /* A hook's tile: 64 columns, more where there are few rows, so that a call is long beside its own cost. */
    int64_t width = panel_width(j), cols = max64(64, min64(2048 / j->block_rows, 512));
    int64_t tile = (int64_t)ep_dtype_size(j->call->dtype) * width * j->block_rows * (j->w->pair ? 2 : j->pack_count);
    j->hook_panels = max64(cols / width, 1);
    j->hook_bytes = (size_t)(tile * j->hook_panels + 63) / 64 * 64;
}

/* One row of one chunk of x as the row's kernels want it, where k ends within it or values aren't adjacent: 64 bytes as
 * stored, or 32 values widened to f32. */
static void put_x(const job *j, char *dst, const char *src, int64_t k) {
    const ep_tuned_call *call = j->call;
    int64_t size = (int64_t)ep_dtype_size(call->dtype), now = min64(k, j->row->chunk_k);
    char line[64] = {0};
    if (call->x_col == 1)
        memcpy(line, src, (size_t)(max64(now, 0) * size));
    else
        for (int64_t i = 0; i < now; i++) memcpy(line + i * size, src + i * call->x_col * size, (size_t)size);
    if (j->row->widen)
        j->row->widen(1, line, (float *)(void *)dst, 32);
    else
        memcpy(dst, line, sizeof line);
}

static void pack_x(const job *j, int64_t m0, int64_t rows, int64_t chunk0, int64_t chunks, char *dst) {
    const ep_tuned_call *call = j->call;
    const ep_tuned_row *r = j->row;
    int64_t size = (int64_t)ep_dtype_size(call->dtype), mr = r->mr, a_bytes = r->a_bytes, step = mr * a_bytes;
    int64_t kc = r->chunk_k, whole = call->x_col == 1 ? min64(chunks, call->weights->k / kc - chunk0) : 0;
    char *to = dst;
    for (int64_t i = 0, in_tile = 0; i < rows; i++, in_tile = in_tile + 1 < mr ? in_tile + 1 : 0) {
        const char *src = (const char *)call->x + ((m0 + i) * call->x_row + chunk0 * kc * call->x_col) * size;
        if (i > 0) to += in_tile == 0 ? step * (chunks - 1) + a_bytes : a_bytes;
        if (r->widen)
            r->widen(whole, src, (float *)(void *)to, step / 4);
        else
            for (int64_t c = 0; c < whole; c++) memcpy(to + c * step, src + c * 64, 64);
        for (int64_t c = whole; c < chunks; c++)
            put_x(j, to + c * step, src + c * kc * call->x_col * size, call->weights->k - (chunk0 + c) * kc);
    }
}

/* Where packed x holds column n0 of the row tile at m0. */
static int64_t packed_offset(const ep_tuned_row *r, int64_t chunks, int64_t m0, int64_t n0) {
    int64_t in_chunk = n0 % r->chunk_k * (int64_t)ep_dtype_size(r->dtype);
    return (m0 / r->mr * chunks + n0 / r->chunk_k) * r->mr * r->a_bytes + in_chunk;
}

/* The result goes where the next call reads its packed x: whole panels, zeros behind the last column. */
static void pack_tile(const job *j, ep_tile *t, int64_t m0, int64_t n0) {
    const ep_tuned_row *r = j->row;
    int64_t n = j->w->n, width = panel_width(j), size = (int64_t)ep_dtype_size(r->dtype);
    t->cols = (int)width; /* sums behind the last column are zeros, and act(0) is 0 */
    t->out = (char *)j->call->out + packed_offset(r, ceil_div(n, r->chunk_k), m0, n0);
    t->out_row = r->a_bytes;
    int64_t end = n0 % r->chunk_k + width;
    if (n0 + width < n || end >= r->chunk_k) return;
    for (int i = 0; i < t->rows; i++)
        memset((char *)t->out + i * r->a_bytes + width * size, 0, (size_t)((r->chunk_k - end) * size));
}

static ep_tile make_tile(const job *j, int64_t m0, int rows, int64_t panel, const float *sums) {
    const ep_tuned_call *call = j->call;
    const ep_tuned_row *r = j->row;
    int64_t size = (int64_t)ep_dtype_size(call->dtype), width = panel_width(j), n0 = panel * width;
    ep_tile t = {
        .rows = rows,
        .cols = (int)min64(width, j->w->n - n0),
        .sums = sums,
        .sums_row = 2 * r->half,
        .bias0 = j->bias[0] ? j->bias[0] + n0 : NULL,
        .bias1 = j->bias[1] ? j->bias[1] + n0 : NULL,
        .out = call->out_packed ? NULL : (char *)call->out + (m0 * call->out_row + n0) * size,
        .out_row = call->out_row * size,
        .residual = call->residual ? (const char *)call->residual + (m0 * call->residual_row + n0) * size : NULL,
        .residual_row = call->residual_row * size,
        .act = call->act,
        .rounding = call->rounding,
        .table = j->table,
    };
    if (call->out_packed) pack_tile(j, &t, m0, n0);
    return t;
}

static void store_tile(const job *j, int64_t m0, int rows, int64_t panel, const float *sums) {
    ep_tile t = make_tile(j, m0, rows, panel, sums);
    (j->w->pair ? j->row->gated : j->row->plain)(&t);
}

/* The products of rows from m0 on (block row `row`) and of all panels on the desk go to the hook. */
static void call_hook(const job *j, const desk *d, int64_t m0, int64_t row, int rows, int64_t panels) {
    const ep_tuned_call *call = j->call;
    int64_t size = (int64_t)ep_dtype_size(call->dtype), width = panel_width(j);
    ep_tuned_tile t = {
        .in_row = j->hook_panels * width, .row = m0, .col = d->panel0 * width, .rows = rows, .out_row = call->out_row};
    t.cols = min64(panels * width, j->w->n - t.col);
    for (int i = 0; i < (j->w->pair ? 2 : j->pack_count); i++)
        t.in[i] = d->products + (i * j->block_rows + row) * t.in_row * size;
    if (call->out) t.out = (char *)call->out + (t.row * t.out_row + t.col) * size;
    call->hook(call->hook_user, &t);
}

/* A tile's products, rounded, onto the desk; the hook runs when the last of a run of panels is there. */
static void hand_tile(const job *j, const desk *d, int64_t m0, int64_t row, int rows, int64_t panel, int pack,
                      const float *sums) {
    const ep_tuned_row *r = j->row;
    int64_t size = (int64_t)ep_dtype_size(j->call->dtype), width = panel_width(j);
    int64_t in_row = j->hook_panels * width, at = (panel - d->panel0) * width;
    for (int i = 0; i < (j->w->pair ? 2 : 1); i++) {
        const float *bias = j->bias[pack + i];
        ep_tile t = {.rows = rows,
                     .cols = (int)width, /* beyond n: zeros, which nobody reads */
                     .sums = sums + i * r->half,
                     .sums_row = 2 * r->half,
                     .bias0 = bias ? bias + panel * width : NULL,
                     .out = d->products + (((pack + i) * j->block_rows + row) * in_row + at) * size,
                     .out_row = in_row * size,
                     .rounding = j->call->rounding};
        r->plain(&t);
    }
    int64_t panels = panel + 1 - d->panel0;
    if (pack + 1 == j->pack_count && (panels == j->hook_panels || panel + 1 == d->panel1))
        call_hook(j, d, m0, row, rows, panels);
}

/* The weights that are wanted once these chunks of a panel are done: the next panel's, or the next chunks of the group. */
static const char *what_follows(const job *j, const desk *d, const ep_packed *w, int64_t panel, int64_t chunk0,
                                int64_t chunks) {
    int64_t chunk_bytes = 128 * j->row->half;
    if (panel + 1 < d->panel1) return w->data + (panel + 1) * w->panel_bytes + chunk0 * chunk_bytes;
    if (chunk0 + chunks < w->chunks) return w->data + d->group0 * w->panel_bytes + (chunk0 + chunks) * chunk_bytes;
    return w->data + (panel + 1) * w->panel_bytes;
}

static void finish_tile(const job *j, const desk *d, int64_t m0, int64_t row, int rows, int64_t panel, int pack,
                        const float *sums) {
    if (j->hook_panels)
        hand_tile(j, d, m0 + row, row, rows, panel, pack, sums);
    else
        store_tile(j, m0 + row, rows, panel, sums);
}

/* Row tiles that a sweep takes: a last one of few rows goes by itself, in half of the time. */
static int64_t swept_tiles(const ep_tuned_row *r, int64_t rows) {
    return (rows + r->mr / 2 - 1) / r->mr;
}

/* Whether sweeps can make a panel's results between their products. */
static bool in_sweeps(const job *j, int64_t panel) {
    const ep_tuned_call *call = j->call;
    bool plain = !j->w->pair && call->act == EP_ACT_NONE, gated = j->w->pair && j->table;
    return !j->hook_panels && (plain || gated) && (panel + 1) * panel_width(j) <= j->w->n;
}

/* Whether this panel's results then wait for the next panel's sweeps. */
static bool let_wait(const job *j, desk *d, int64_t m0, int64_t panel, const float *sums) {
    if (!in_sweeps(j, panel) || panel + 1 >= d->panel1) return false;
    d->waiting = make_tile(j, m0, j->row->mr, panel, sums);
    return true;
}

/* Lines that each of so many row tiles fetches a chunk; where they are many, so that ep_fetch can take four streams. */
static int fetched_lines(const ep_tuned_row *r, int64_t tiles) {
    int lines = (int)ceil_div(2 * r->half, tiles);
    return tiles <= 8 ? (lines + 3) / 4 * 4 : lines;
}

/* A sweep's share of the next part of x: of every row tile the same lines, which are the sweep's among `sweeps`. */
static void fetch_part(const job *j, const desk *d, ep_sweep *s, int64_t sweep, int64_t sweeps) {
    int64_t lines = d->next_chunks * j->row->mr * j->row->a_bytes / 64, from = lines * sweep / sweeps;
    s->more = d->next_x + from * 64;
    s->more_tile = s->a_tile;
    s->more_lines = lines * (sweep + 1) / sweeps - from;
}

/* What a sweep finishes: rows of `done` and of the row tiles behind it. */
static void finish_in(const job *j, ep_sweep *s, const ep_tile *done, int64_t rows) {
    const ep_tuned_row *r = j->row;
    s->done = done, s->pair = j->w->pair;
    s->done_tile = j->call->out_packed ? ceil_div(j->w->n, r->chunk_k) * r->mr * r->a_bytes : r->mr * done->out_row;
    s->end = (int)min64(r->mr, rows - (s->tiles - 1) * r->mr);
}

/* As sum_panel, all row tiles and blocks of k in one go, and the panel before finished meanwhile. */
static void sweep_panel(const job *j, desk *d, int64_t m0, int64_t rows, int64_t panel, int pack, int64_t chunk0,
                        int64_t chunks, float *sums) {
    const ep_tuned_row *r = j->row;
    const ep_packed *w = j->packs[pack];
    int64_t tiles = d->tail ? rows / r->mr : swept_tiles(r, rows), chunk_bytes = 128 * r->half;
    int64_t blocks = ceil_div(chunks, r->block_chunks), tile_sums = r->mr * 2 * r->half,
            packed_chunk = r->mr * r->a_bytes;
    const char *b = w->data + panel * w->panel_bytes + chunk0 * chunk_bytes, *end = w->data + w->bytes;
    bool last = chunk0 + chunks >= w->chunks,
         ring = last && blocks == 1 && chunk0 == 0 && tiles > 2 && in_sweeps(j, panel);
    const ep_tile waiting = ring ? make_tile(j, m0, r->mr, panel, d->ring) : d->waiting;
    ep_sweep s = {.tiles = tiles, .chunks = chunks, .blocks = blocks, .b = b, .c = sums, .first = chunk0 == 0};
    s.a = d->x;
    s.a_row = d->tail ? j->call->x_row * (int64_t)ep_dtype_size(w->dtype) : r->a_bytes;
    s.a_chunk = d->tail ? 64 : packed_chunk;
    s.a_tile = d->tail ? r->mr * s.a_row : d->x_chunks * packed_chunk;
    s.more = s.a; /* nothing of it, unless fetch_part says what */
    s.ahead = what_follows(j, d, w, panel, chunk0, chunks);
    if (s.ahead + ceil_div(chunks, max64(blocks, 1)) * chunk_bytes > end) s.ahead = NULL;
    s.lines = fetched_lines(r, tiles);
    s.ring = ring ? d->ring : NULL;
    if (last && waiting.sums) finish_in(j, &s, &waiting, rows);
    if (d->next_x) fetch_part(j, d, &s, panel - d->group0, d->panel1 - d->group0);
    if (blocks > 0) r->sweep(&s);
    for (int64_t i = 0; i < blocks && rows > tiles * r->mr; i++) {
        int64_t from = chunks * i / blocks, now = chunks * (i + 1) / blocks - from;
        const char *x = d->tail ? d->tail : s.a + tiles * s.a_tile;
        r->acc((int)(rows - tiles * r->mr), now, x + from * packed_chunk, b + from * chunk_bytes,
               sums + tiles * tile_sums, s.first && i == 0, NULL, 0);
    }
    if (!last) return;
    d->waiting.sums = NULL;
    int64_t done = ring || let_wait(j, d, m0, panel, sums) ? tiles : 0;
    for (int64_t t = done; t < ceil_div(rows, r->mr); t++)
        finish_tile(j, d, m0, t * r->mr, (int)min64(r->mr, rows - t * r->mr), panel, pack, sums + t * tile_sums);
}

/* Sums of one panel over the chunks [chunk0, chunk0 + chunks) of a packed row block; the last pass finishes each tile
 * while it is in L1. The following chunks of the panel are fetched meanwhile, an equal slice by every tile. */
static void sum_panel(const job *j, desk *d, int64_t m0, int64_t rows, int64_t panel, int pack, int64_t chunk0,
                      int64_t chunks, float *sums) {
    const ep_tuned_row *r = j->row;
    const ep_packed *w = j->packs[pack];
    if (r->sweep && 2 * rows > r->mr) {
        sweep_panel(j, d, m0, rows, panel, pack, chunk0, chunks, sums);
        return;
    }
    int64_t tiles = ceil_div(rows, r->mr), chunk_bytes = 128 * r->half, done = 0;
    int64_t block = k_block(w);
    const char *b = w->data + panel * w->panel_bytes + chunk0 * chunk_bytes, *end = w->data + w->bytes;
    do {
        int64_t now = min64(chunks - done, block), bytes = now * chunk_bytes;
        const char *next = done + now < chunks ? b + bytes : what_follows(j, d, w, panel, chunk0, chunks);
        bool last = chunk0 + done + now >= w->chunks;
        int lines = fetched_lines(r, tiles);
        for (int64_t t = 0; t < tiles; t++) {
            int in_tile = (int)min64(r->mr, rows - t * r->mr);
            const char *a = d->x + (t * d->x_chunks + done) * r->mr * r->a_bytes, *ahead = next + t * lines * 64 * now;
            float *c = sums + t * r->mr * 2 * r->half;
            bool fetch = ahead < next + bytes && ahead + lines * 64 * now <= end;
            r->acc(in_tile, now, a, b, c, chunk0 + done == 0, ahead, fetch ? lines : 0);
            if (last) finish_tile(j, d, m0, t * r->mr, in_tile, panel, pack, c);
        }
        b += bytes;
        done += now;
    } while (done < chunks);
}

/* Few rows: as sum_panel, all of k of EP_ACROSS panels from `panel` on. */
static void sum_across(const job *j, desk *d, int64_t m0, int64_t rows, int64_t panel) {
    const ep_tuned_row *r = j->row;
    int64_t panel_sums = j->block_rows * 2 * r->half, now;
    for (int64_t done = 0; done < j->w->chunks; done += now) {
        now = min64(j->w->chunks - done, k_block(j->w));
        r->across((int)rows, now, d->x + done * r->mr * r->a_bytes,
                  j->w->data + panel * j->w->panel_bytes + done * 128 * r->half, j->w->panel_bytes, d->sums, panel_sums,
                  done == 0);
    }
    for (int p = 0; p < EP_ACROSS; p++) finish_tile(j, d, m0, 0, (int)rows, panel + p, 0, d->sums + p * panel_sums);
}

/* One panel of every pack; `sums`: where its sums are, pack by pack. */
static void sum_panels(const job *j, desk *d, int64_t m0, int64_t rows, int64_t panel, int64_t chunk0, int64_t chunks,
                       float *sums) {
    int64_t panel_sums = j->block_rows * 2 * j->row->half;
    if (j->hook_panels && panel - d->panel0 == j->hook_panels) d->panel0 = panel;
    for (int i = 0; i < j->pack_count; i++) sum_panel(j, d, m0, rows, panel, i, chunk0, chunks, sums + i * panel_sums);
}

/* Chunks of x for a block: where they lie, or packed into the thread's scratch. */
static void take_x(const job *j, desk *d, int64_t m0, int64_t rows, int64_t chunk0, int64_t chunks, char *scratch) {
    const ep_tuned_row *r = j->row;
    if (j->all_x) {
        d->x_chunks = j->w->chunks;
        d->x = j->all_x + packed_offset(r, d->x_chunks, m0, chunk0 * r->chunk_k);
        return;
    }
    d->x = scratch;
    d->x_chunks = chunks;
    d->tail = NULL;
    if (j->plain_x && rows >= 2 * r->mr) {
        int64_t whole = rows / r->mr * r->mr;
        d->x = (const char *)j->call->x + m0 * j->call->x_row * (int64_t)ep_dtype_size(j->call->dtype);
        d->tail = scratch;
        m0 += whole, rows -= whole;
    }
    pack_x(j, m0, rows, chunk0, chunks, scratch);
}

/* The part of packed x that is wanted after the chunks [c, c + now) of a block: the panels' sweeps fetch it meanwhile. */
static void next_part(const job *j, desk *d, int64_t block, int64_t c, int64_t now) {
    int64_t chunks = j->w->chunks, next = c + now, m0 = block * j->block_rows;
    d->next_x = NULL;
    if (!j->all_x) return;
    if (next >= chunks) next = 0, m0 += d->panel1 < j->w->panels ? 0 : j->block_rows;
    if (m0 + j->block_rows > j->call->m) return;
    d->next_x = j->all_x + packed_offset(j->row, chunks, m0, next * j->row->chunk_k);
    d->next_chunks = min64(j->super, chunks - next);
}

static void run_block(const job *j, desk *d, int64_t block, int64_t panel0, int64_t panel1, char *scratch) {
    int64_t m0 = block * j->block_rows, rows = min64(j->block_rows, j->call->m - m0), chunks = j->w->chunks;
    int64_t all_sums = j->block_rows * 2 * j->row->half * j->pack_count;
    d->panel1 = panel1, d->next_x = NULL;
    if (chunks <= j->super) {
        if (d->x_block != block) take_x(j, d, m0, rows, 0, chunks, scratch);
        d->x_block = block;
        d->panel0 = panel0;
        for (; crosses(j) && panel0 + EP_ACROSS <= panel1; panel0 += EP_ACROSS) sum_across(j, d, m0, rows, panel0);
        for (int64_t p = panel0; p < panel1; p++)
            sum_panels(j, d, m0, rows, p, 0, chunks, d->sums + (p - panel0) % j->group * all_sums);
        return;
    }
    for (int64_t g = panel0; g < panel1; g += j->group) {
        d->panel1 = min64(g + j->group, panel1);
        d->group0 = g;
        for (int64_t c = 0; c < chunks; c += j->super) {
            int64_t now = min64(j->super, chunks - c);
            take_x(j, d, m0, rows, c, now, scratch);
            d->panel0 = g;
            next_part(j, d, block, c, now);
            for (int64_t p = g; p < d->panel1; p++) sum_panels(j, d, m0, rows, p, c, now, d->sums + (p - g) * all_sums);
        }
    }
}

/* A thread's row tiles of packed x; all threads go on together. */
static void pack_share(const job *j, int thread, int threads) {
    const ep_tuned_row *r = j->row;
    int64_t tiles = ceil_div(j->call->m, r->mr), chunks = j->w->chunks;
    for (int64_t t = tiles * thread / threads; t < tiles * (thread + 1) / threads; t++)
        pack_x(j, t * r->mr, min64(r->mr, j->call->m - t * r->mr), 0, chunks,
               j->packing + packed_offset(r, chunks, t * r->mr, 0));
    if (threads > 1) ep_parallel_barrier(); /* a call within a parallel region runs alone */
}

/* The next units of a thread, within one block: half of an equal share of what is left, down to a few panels, so that
 * nobody waits long for one that the system interrupts. */
static bool claim(job *j, int threads, int64_t *from, int64_t *to) {
    int64_t panels = j->w->panels, units = j->blocks * panels, take;
    int64_t few = max64(crosses(j) ? EP_ACROSS : FEW_PANELS, FEW_BYTES / max64(j->w->panel_bytes, 1));
    int64_t u = atomic_load_explicit(&j->claimed, memory_order_relaxed);
    do {
        if (u >= units) return false;
        take = threads > 1 ? max64((units - u) / (2 * threads), few) : units;
        take = min64(take, panels - u % panels);
    } while (
        !atomic_compare_exchange_weak_explicit(&j->claimed, &u, u + take, memory_order_relaxed, memory_order_relaxed));
    *from = u;
    *to = u + take;
    return true;
}

static void run_share(void *user, int thread, int threads) {
    job *j = user;
    char *scratch = j->scratch + (size_t)thread * (j->x_bytes + j->sum_bytes + j->hook_bytes);
    desk d = {.x_block = -1, .sums = (float *)(void *)(scratch + j->x_bytes)};
    d.products = scratch + j->x_bytes + j->sum_bytes;
    d.ring = (float *)(void *)(d.products - ring_bytes(j->row));
    if (j->packing) pack_share(j, thread, threads);
    if (j->row->begin) j->row->begin();
    int64_t from, to;
    while (claim(j, threads, &from, &to))
        run_block(j, &d, from / j->w->panels, from % j->w->panels, (to - 1) % j->w->panels + 1, scratch);
    if (j->row->end) j->row->end();
}

static const float *widen_bias(const ep_tuned_call *call, const void *bias, int64_t stride, float *to, int64_t padded) {
    const char *p = bias;
    int64_t n = call->weights->n, size = (int64_t)ep_dtype_size(call->dtype);
    for (int64_t i = 0; i < n; i++) {
        uint16_t h;
        switch (call->dtype) {
        case EP_DTYPE_F32: memcpy(to + i, p + i * stride * 4, 4); break;
        case EP_DTYPE_BF16: memcpy(&h, p + i * stride * size, 2), to[i] = ep_bf16_to_f32(h); break;
        default: memcpy(&h, p + i * stride * size, 2), to[i] = ep_f16_to_f32(h); break;
        }
    }
    memset(to + n, 0, (size_t)(padded - n) * 4);
    return to;
}

static ep_status check_hook(const ep_tuned_call *call, ep_error *err) {
    if (!call->hook && call->more_count)
        return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "several packs in a call need a hook");
    if (call->hook && (call->act != EP_ACT_NONE || call->residual))
        return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "a hooked call has no activation and no residual of its own");
    if (call->more_count < 0 || call->more_count >= EP_TUNED_PRODUCTS)
        return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "%d packs in a call; at most %d", call->more_count + 1,
                       EP_TUNED_PRODUCTS);
    for (int i = 0; i < call->more_count; i++) {
        const ep_packed *w = call->weights, *more = call->more[i].weights;
        if (!more || w->pair || more->pair || more->row != w->row || more->k != w->k || more->n != w->n)
            return ep_fail(err, EP_ERROR_INVALID_ARGUMENT,
                           "pack %d of a call is not plain, or not of the shape of the first", i + 1);
    }
    return EP_OK;
}

size_t ep_tuned_packed_x_bytes(const ep_packed *first, const ep_packed *next, int64_t m) {
    const ep_tuned_row *r = first->row;
    int64_t width = first->pair ? r->half : 2 * r->half, bytes;
    if (next->row != r || next->k != first->n || m < r->mr || first->n == 0) return 0;
    if (r->a_bytes >= 128 || r->chunk_k % width != 0) return 0;
    if (__builtin_mul_overflow(ceil_div(m, r->mr) * r->mr * r->a_bytes, next->chunks, &bytes)) return 0;
    return (size_t)bytes;
}

static ep_status check_call(const ep_tuned_call *call, ep_error *err) {
    const ep_packed *w = call->weights;
    if (!w) return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "a tuned call needs packed weights");
    if (call->dtype != w->dtype)
        return ep_fail(err, EP_ERROR_DTYPE, "x is %s but the packed weights are %s", ep_dtype_name(call->dtype),
                       ep_dtype_name(w->dtype));
    if (call->m < 0) return ep_fail(err, EP_ERROR_SHAPE, "x has %lld rows", (long long)call->m);
    if ((unsigned)call->act >= EP_ACT_COUNT)
        return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "activation %d is unknown", (int)call->act);
    if (w->pair && call->residual)
        return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "a gate and up pair takes no residual");
    bool packs = call->x_packed || call->out_packed;
    if (packs && (call->hook || w->row->a_bytes >= 128 || (call->out_packed && call->residual)))
        return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "this call can't take or give packed rows");
    return check_hook(call, err);
}

void ep_tuned_name(const ep_tuned_call *call, char out[128]) {
    if (call->hook_name) {
        snprintf(out, 128, "%s", call->hook_name);
        return;
    }
    const ep_tuned_row *r = call->weights->row;
    bool pair = call->weights->pair;
    snprintf(out, 128, "ep_%s_%s%s%s%s%s_%s_%s_tn", ep_dtype_name(call->dtype),
             pair ? ep_tuned_gated_name(call->act) : "gemm", call->bias0 || call->bias1 ? "_bias" : "",
             !pair && call->act != EP_ACT_NONE ? "_" : "",
             !pair && call->act != EP_ACT_NONE ? ep_act_name(call->act) : "", call->residual ? "_residual" : "",
             r->isa_name, r->tile);
}

static void count_work(const ep_tuned_call *call, ep_work *work) {
    const ep_packed *w = call->weights;
    int64_t size = (int64_t)ep_dtype_size(call->dtype), mn = call->m * w->n, pair = w->pair ? 2 : 1 + call->more_count;
    if (call->hook_work) {
        *work = *call->hook_work;
        return;
    }
    int64_t biases = (call->bias0 != NULL) + (call->bias1 != NULL);
    int64_t each = biases + (call->residual != NULL) + (w->pair ? 1 : 0);
    if (call->act != EP_ACT_NONE) each += ep_op_get(ep_act_op(call->act))->flops;
    work->flops = pair * 2 * mn * w->k + each * mn;
    work->bytes_read = size * (call->m * w->k + pair * w->k * w->n + biases * w->n + (call->residual ? mn : 0));
    work->bytes_written = call->hook && !call->out ? 0 : size * mn;
}

static void run_recorded(const ep_probe *probe, int threads, job *j) {
    char text[128];
    ep_tuned_name(j->call, text);
    ep_work work;
    count_work(j->call, &work);
    ep_launch l = ep_launch_begin(probe->name(probe->self, text));
    ep_parallel(threads, run_share, j);
    ep_launch_end(&l, work.flops, work.bytes_read, work.bytes_written);
}

/* All threads pack x once, where several work on one row block, or where a thread would pack a block again for every
 * claim, because k goes by in parts. */
static bool packs_together(const job *j, int threads) {
    bool again = threads > 1 && j->w->chunks > j->super && j->blocks <= 2 * threads;
    return (threads > j->blocks || again) && !j->call->x_packed && j->w->chunks > 0 && !j->plain_x;
}

/* Every thread's desk, and behind them the biases as f32. */
static ep_status take_scratch(ep_tuned_scratch *s, job *j, int threads, ep_error *err) {
    const ep_tuned_call *call = j->call;
    ep_tuned_product given[EP_TUNED_PRODUCTS] = {{j->w, call->bias0, call->bias0_stride},
                                                 {j->w, call->bias1, call->bias1_stride}};
    for (int i = 0; i < call->more_count; i++) given[i + 1] = call->more[i];
    int64_t padded = j->w->panels * 2 * j->row->half, count = 0;
    for (int i = 0; i < EP_TUNED_PRODUCTS; i++) count += given[i].bias != NULL;
    bool share = packs_together(j, threads);
    size_t all_x = share ? (size_t)(ceil_div(call->m, j->row->mr) * j->row->mr * j->row->a_bytes * j->w->chunks) : 0;
    if (share || call->x_packed) j->x_bytes = 0;
    size_t desks = (size_t)threads * (j->x_bytes + j->sum_bytes + j->hook_bytes);
    EP_TRY(reserve(s, all_x + desks + (size_t)(padded * count) * 4, err));
    j->packing = share ? s->data : NULL;
    j->all_x = call->x_packed ? call->x : j->packing;
    float *bias = (float *)(void *)(s->data + all_x + desks);
    for (int i = 0; i < EP_TUNED_PRODUCTS; i++) {
        if (!given[i].bias) continue;
        j->bias[i] = widen_bias(call, given[i].bias, given[i].bias_stride, bias, padded);
        bias += padded;
    }
    j->scratch = s->data + all_x;
    return EP_OK;
}

ep_status ep_tuned_run(ep_tuned_scratch *s, int threads, const ep_tuned_call *call, ep_error *err) {
    EP_TRY(check_call(call, err));
    const ep_packed *w = call->weights;
    if (call->m == 0 || w->n == 0) return EP_OK;
    job j = {.call = call, .w = w, .row = w->row, .packs = {w}, .pack_count = 1 + call->more_count};
    for (int i = 0; i < call->more_count; i++) j.packs[i + 1] = call->more[i].weights;
    threads = useful_threads(&j, threads < 1 ? 1 : threads);
    choose_blocks(&j, threads);
    threads = (int)min64(threads, j.blocks * w->panels);
    EP_TRY(take_scratch(s, &j, threads, err));
    if (call->rounding == EP_ROUNDING_EAGER && call->m * w->n >= TABLE_PAYS)
        j.table = ep_act_table(call->dtype, call->act);
    const ep_probe *probe = ep_probe_get();
    if (probe)
        run_recorded(probe, threads, &j);
    else
        ep_parallel(threads, run_share, &j);
    return EP_OK;
}
