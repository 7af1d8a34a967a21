/* Blocks of few rows in one kernel (kernels/sm90a/decode_sm90a.cuh, rows_sm90a.cuh): gate, up, activation, down. */
#include "cuda_packed.h"
#include "cuda_select.h"

/* As kernels/sm90a/decode_sm90a.cuh declares them. */
typedef struct decode_block_args {
    int32_t m, n, k, out, tiles, out_tiles, act, eager;
    const void *bias0, *bias1, *bias2, *residual;
    void *h, *y;
    int64_t h_row, residual_row, y_row;
    uint64_t *state;
    uint64_t policy_w;
} decode_block_args;

typedef struct rows_args { /* kernels/sm90a/rows_sm90a.cuh */
    int32_t m, n, k, out, tiles, columns, tile_h, stages, split, pieces, act, eager, x_rows;
    const void *bias0, *bias1, *bias2, *residual;
    void *h, *y, *parts;
    int64_t h_row, residual_row, y_row;
    uint64_t *state;
    uint64_t policy_w;
} rows_args;

/* Words of a kernel's counts: those of decode_block_args, and of rows_args. */
static int64_t state_words(const cuda_block_row *row, int64_t out) {
    return row->parts ? 1 + 2 * (9 + cuda_block_columns(row, out)) : 8;
}

static int64_t state_at(int index, int64_t out) {
    int64_t at = 0;
    for (int i = 0; i < index; i++) at += state_words(&cuda_block_rows[i], out);
    return at;
}

int cuda_tuned_whole(ep_backend *b, ep_dtype dtype, bool gated, int64_t m, int64_t k, int64_t n, int64_t out,
                     ep_act act) {
    cuda_state *s = cuda_of(b);
    if (s->one_kernel == CUDA_ONE_NEVER) return -1;
    cuda_shape shape = {m, n, k, dtype, gated, act, s->major, s->sm_count, EP_ROUNDING_EAGER}; /* it has both */
    int row = cuda_select_block(&shape, out, s->one_kernel == CUDA_ONE_ALWAYS);
    return row >= 0 && cuda_has_kernel(s, cuda_block_name(row, dtype)) ? row : -1;
}

static bool suits(const ep_tuned_call *first, const ep_tuned_call *last) {
    const ep_packed *w = first->weights, *d = last->weights;
    bool adjacent = (!first->bias0 || first->bias0_stride == 1) && (!first->bias1 || first->bias1_stride == 1) &&
                    (!last->bias0 || last->bias0_stride == 1);
    return adjacent && !d->w[1] && d->k == w->n && last->act == EP_ACT_NONE && !first->residual && !first->hook &&
           !first->more_count && !last->more_count &&
           cuda_fits_copy_engine(first->x, first->m, w->k, first->x_row, first->x_col);
}

static size_t count_bytes(int64_t out) {
    return sizeof(uint64_t) * (size_t)state_at((int)cuda_block_row_count, out);
}

/* The counts are zero once; every launch of a kernel adds as much to its own. The first may start before what is ahead of
 * it in the stream ends, so the zeros are waited for. */
static ep_status open_counts(cuda_state *s, ep_packed *w, int64_t out, ep_error *err) {
    size_t bytes = count_bytes(out);
    if (w->made) return EP_OK;
    EP_TRY(cuda_storage_create(s, bytes, err, &w->made));
    ep_status status =
        cuda_result(s, s->cu->memset8((cu_ptr)(uintptr_t)w->made->data, 0, bytes, s->stream), "cuMemsetD8Async", err);
    if (status == EP_OK) status = cuda_result(s, s->cu->stream_sync(s->stream), "cuStreamSynchronize", err);
    if (status == EP_OK) return EP_OK;
    ep_storage_release(w->made);
    w->made = NULL;
    return status;
}

/* Room for all parts that any block may have; kept, since captures know its address. */
static ep_status open_parts(cuda_state *s, ep_error *err) {
    size_t most = 0;
    for (size_t i = 0; i < cuda_block_row_count; i++) {
        const cuda_block_row *r = &cuda_block_rows[i];
        size_t bytes = r->parts ? sizeof(float) * (size_t)(CUDA_BLOCK_PARTS * s->sm_count * r->y * r->rows) : 0;
        if (bytes > most) most = bytes;
    }
    return s->parts ? EP_OK : cuda_result(s, s->cu->memory_alloc(&s->parts, most), "cuMemAlloc of parts", err);
}

/* Of x, the weights of gate and up, h and the weights of the result. */
typedef struct block_maps {
    cu_tensor_map x, g, u, h, y;
} block_maps;

/* rows: of x and h in a box; tile: hidden columns of one; chunks: as cuda_find_map's, of h and of the last weights. */
static ep_status find_maps(cuda_state *s, const ep_tuned_call *first, const ep_tuned_call *last,
                           const cuda_block_row *row, unsigned rows, unsigned tile, unsigned chunks, block_maps *o,
                           ep_error *err) {
    ep_packed *w = (ep_packed *)(uintptr_t)first->weights, *d = (ep_packed *)(uintptr_t)last->weights; /* caches */
    int64_t m = first->m;
    EP_TRY(cuda_find_map(s, w, first->x, m, w->k, first->x_row, rows, 0, &o->x, err));
    EP_TRY(cuda_find_map(s, w, w->w[0], w->n, w->k, w->row[0], tile, 0, &o->g, err));
    o->u = o->g; /* without a gate not looked at */
    if (row->gated) EP_TRY(cuda_find_map(s, w, w->w[1], w->n, w->k, w->row[1], tile, 0, &o->u, err));
    EP_TRY(cuda_find_map(s, d, last->x, m, w->n, last->x_row, rows, chunks, &o->h, err));
    return cuda_find_map(s, d, d->w[0], d->n, d->k, d->row[0], (unsigned)row->y, chunks, &o->y, err);
}

static ep_status run_decode_block(cuda_state *s, const ep_tuned_call *first, const ep_tuned_call *last, int index,
                                  cuda_launch *l, ep_error *err) {
    const cuda_block_row *row = &cuda_block_rows[index];
    const ep_packed *w = first->weights, *d = last->weights;
    block_maps maps;
    int64_t m = first->m;
    EP_TRY(find_maps(s, first, last, row, (unsigned)row->rows, (unsigned)row->h, (unsigned)cuda_block_chunks(row),
                     &maps, err));
    decode_block_args a = {.m = (int)m,
                           .n = (int)w->n,
                           .k = (int)w->k,
                           .out = (int)d->n,
                           .tiles = (int)cuda_block_tiles(row, w->n, row->h),
                           .out_tiles = (int)((d->n + row->y - 1) / row->y),
                           .act = (int)first->act,
                           .eager = first->rounding != EP_ROUNDING_FEWEST,
                           .bias0 = first->bias0,
                           .bias1 = first->bias1,
                           .bias2 = last->bias0,
                           .residual = last->residual,
                           .h = first->out,
                           .y = last->out,
                           .h_row = first->out_row,
                           .residual_row = last->residual_row,
                           .y_row = last->out_row,
                           .state = (uint64_t *)(void *)w->made->data + state_at(index, d->n),
                           .policy_w = L2_NORMAL};
    void *params[] = {&maps.x, &maps.g, &maps.u, &maps.h, &maps.y, &a};
    return cuda_run(s, l, params, err);
}

static ep_status run_rows_block(cuda_state *s, const ep_tuned_call *first, const ep_tuned_call *last, int index,
                                cuda_launch *l, ep_error *err) {
    const cuda_block_row *row = &cuda_block_rows[index];
    const ep_packed *w = first->weights, *d = last->weights;
    block_maps maps;
    int64_t m = first->m;
    unsigned rows = (unsigned)cuda_padded(m);
    int split = cuda_block_split(row, w->n, d->n, s->sm_count), tile = cuda_block_tile(row, w->n, s->sm_count);
    EP_TRY(open_parts(s, err));
    EP_TRY(find_maps(s, first, last, row, rows, (unsigned)tile, 0, &maps, err));
    rows_args a = {.m = (int)m,
                   .n = (int)w->n,
                   .k = (int)w->k,
                   .out = (int)d->n,
                   .tiles = (int)cuda_block_tiles(row, w->n, tile),
                   .columns = (int)cuda_block_columns(row, d->n),
                   .tile_h = tile,
                   .stages = cuda_block_stages(row, tile),
                   .split = split,
                   .pieces = row->y / (split > 6 ? 16 : 32),
                   .act = (int)first->act,
                   .eager = first->rounding != EP_ROUNDING_FEWEST,
                   .x_rows = (int)rows,
                   .bias0 = first->bias0,
                   .bias1 = first->bias1,
                   .bias2 = last->bias0,
                   .residual = last->residual,
                   .h = first->out,
                   .y = last->out,
                   .parts = (void *)(uintptr_t)s->parts,
                   .h_row = first->out_row,
                   .residual_row = last->residual_row,
                   .y_row = last->out_row,
                   .state = (uint64_t *)(void *)w->made->data + state_at(index, d->n),
                   .policy_w = L2_EVICT_FIRST};
    void *params[] = {&maps.x, &maps.g, &maps.u, &maps.h, &maps.y, &a};
    return cuda_run(s, l, params, err);
}

ep_status cuda_tuned_pair(ep_backend *b, int whole, const ep_tuned_call *first, const ep_tuned_call *last, bool *ran,
                          ep_error *err) {
    cuda_state *s = cuda_of(b);
    ep_packed *w = (ep_packed *)(uintptr_t)first->weights; /* its counts are a cache */
    *ran = false;
    if (!suits(first, last)) return EP_OK;
    const cuda_block_row *row = &cuda_block_rows[whole];
    /* A capture cannot wait for the counts, and the room for parts must outlive it. */
    if (s->capture && (!w->made || (row->parts && !s->parts))) return EP_OK;
    EP_TRY(cuda_enter(s, err));
    int64_t m = first->m, out = last->weights->n, first_k = (row->gated ? 2 : 1) * w->k;
    EP_TRY(open_counts(s, w, out, err));
    if (w->made->bytes < count_bytes(out)) return EP_OK; /* made for another second product */
    cuda_launch l = {.name = cuda_block_name(whole, w->dtype),
                     .grid = {(unsigned)s->sm_count, 1, 1},
                     .block = (unsigned)cuda_block_threads(row),
                     .shared_bytes = (unsigned)cuda_block_shared(row),
                     .programmatic = true,
                     .flops = 2 * m * w->n * (first_k + out),
                     .bytes_read = 2 * (w->n * (first_k + out) + m * (w->k + w->n) + (last->residual ? m * out : 0)),
                     .bytes_written = 2 * m * (w->n + out)};
    EP_TRY((row->parts ? run_rows_block : run_decode_block)(s, first, last, whole, &l, err));
    *ran = true;
    return EP_OK;
}
