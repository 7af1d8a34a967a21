/* Tuned blocks on the device: weights stay where they are if the copy engine can read them (rows of 16-byte multiples),
 * else they are packed once; a kernel is selected by shape; f32 runs by cuBLASLt and the pointwise gated kernel. */
#include <stdlib.h>
#include <string.h>

#include "cuda_images.h"
#include "cuda_packed.h"
#include "cuda_select.h"

/* As kernels/sm90a/gemm_sm90a.cuh and kernels/sm80/decode_sm80.cuh declare them. */
typedef struct gemm_args {
    int32_t m, n, k, tiles_m, tiles_n, group_m;
    const void *bias0, *bias1, *residual;
    int64_t residual_row;
    uint64_t policy_x, policy_w, policy_y;
} gemm_args;

typedef struct decode_args {
    const void *x, *w0, *w1, *bias0, *bias1, *residual;
    void *y;
    int64_t x_row, w0_row, w1_row, residual_row, y_row;
    int32_t m, n, k;
} decode_args;

typedef struct stream_args { /* kernels/sm90a/stream_sm90a.cuh */
    int32_t m, n, k, tiles, x_bytes;
    const void *bias0, *bias1, *residual;
    void *y;
    int64_t residual_row, y_row;
    uint64_t policy_w;
} stream_args;

static ep_tensor matrix(const cuda_state *s, ep_dtype dtype, const void *data, int64_t rows, int64_t cols, int64_t row,
                        int64_t col) {
    ep_tensor t = {.data = (char *)(uintptr_t)data,
                   .dtype = dtype,
                   .ndim = 2,
                   .numel = rows * cols,
                   .value = -1,
                   .sizes = {rows, cols},
                   .strides = {row, col},
                   .device = {EP_DEVICE_CUDA, s->index}};
    return t;
}

bool cuda_fits_copy_engine(const void *p, int64_t rows, int64_t cols, int64_t row, int64_t col) {
    return (cols == 1 || col == 1) && (uintptr_t)p % 16 == 0 && (rows == 1 || row % 8 == 0) && row < ((int64_t)1 << 38);
}

/* A copy with rows padded by zeros to a multiple of 8 elements. */
static ep_status pad_rows(cuda_state *s, ep_dtype dtype, const void *data, int64_t rows, int64_t cols, int64_t row,
                          int64_t col, ep_storage **out, ep_error *err) {
    int64_t width = cuda_padded(cols);
    size_t bytes = (size_t)(rows * width) * ep_dtype_size(dtype);
    EP_TRY(cuda_storage_create(s, bytes, err, out));
    ep_status status = EP_OK;
    if (width != cols)
        status = cuda_result(s, s->cu->memset8((cu_ptr)(uintptr_t)(*out)->data, 0, bytes, s->stream), "cuMemsetD8Async",
                             err);
    ep_backend b = {.state = s};
    ep_tensor in = matrix(s, dtype, data, rows, cols, row, col);
    ep_tensor to = matrix(s, dtype, (*out)->data, rows, cols, width, 1);
    if (status == EP_OK) status = cuda_copy(&b, &in, &to, err);
    if (status != EP_OK) {
        ep_storage_release(*out);
        *out = NULL;
    }
    return status;
}

void cuda_pack_free(ep_backend *b, ep_packed *p) {
    (void)b;
    if (!p) return;
    for (int i = 0; i < 2; i++) ep_storage_release(p->own[i]);
    ep_storage_release(p->made);
    free(p->maps);
    cuda_state_release(p->state);
    free(p);
}

int64_t cuda_pack_bytes(const ep_packed *p) {
    return p->bytes;
}

ep_status cuda_pack(ep_backend *b, const ep_pack_request *r, ep_error *err, ep_packed **out) {
    cuda_state *s = cuda_of(b);
    EP_TRY(cuda_enter(s, err));
    ep_packed *p = calloc(1, sizeof *p);
    if (!p) return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory for packed weights");
    atomic_fetch_add(&s->refs, 1);
    p->state = s;
    p->dtype = r->dtype;
    p->k = r->k;
    p->n = r->n;
    const void *w[2] = {r->w0, r->w1};
    int64_t row[2] = {r->w0_row, r->w1_row}, col[2] = {r->w0_col, r->w1_col};
    for (int i = 0; i < 2 && w[i]; i++) {
        p->w[i] = w[i];
        p->row[i] = row[i];
        p->col[i] = col[i];
        bool small = r->dtype == EP_DTYPE_F32 || r->n == 0 || r->k == 0;
        if (small || (r->k % 8 == 0 && cuda_fits_copy_engine(w[i], r->n, r->k, row[i], col[i]))) continue;
        ep_status status = pad_rows(s, r->dtype, w[i], r->n, r->k, row[i], col[i], &p->own[i], err);
        if (status != EP_OK) {
            cuda_pack_free(b, p);
            return status;
        }
        p->w[i] = p->own[i]->data;
        p->row[i] = cuda_padded(r->k);
        p->col[i] = 1;
        p->bytes += (int64_t)p->own[i]->bytes;
    }
    /* Decode kernels read weights before they wait for the grid ahead of them, so the copies must be done. */
    if (p->bytes) {
        ep_status status = cuda_result(s, s->cu->stream_sync(s->stream), "cuStreamSynchronize", err);
        if (status != EP_OK) {
            cuda_pack_free(b, p);
            return status;
        }
    }
    *out = p;
    return EP_OK;
}

static ep_status make_map(cuda_state *s, ep_dtype dtype, const void *p, int64_t rows, int64_t cols, int64_t row,
                          unsigned box_rows, unsigned chunks, cu_tensor_map *map, ep_error *err) {
    bool narrow = chunks == CUDA_NARROW;
    if (narrow) chunks = 0;
    uint64_t size[3] = {chunks ? 64 : (uint64_t)cols, (uint64_t)rows, (uint64_t)cols / 64};
    uint64_t stride[2] = {(uint64_t)(rows == 1 ? cuda_padded(cols) : row) * 2, 128};
    unsigned box[3] = {narrow ? 32 : 64, box_rows, chunks}, one[3] = {1, 1, 1};
    int swizzle = narrow ? 2 : 3;              /* CU_TENSOR_MAP_SWIZZLE_64B, _128B: a box's row */
    int type = dtype == EP_DTYPE_BF16 ? 9 : 6; /* CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, _FLOAT16 */
    cu_result r =
        s->cu->tensor_map(map, type, chunks ? 3 : 2, (void *)(uintptr_t)p, size, stride, box, one, 0, swizzle, 3, 0);
    return cuda_result(s, r, "cuTensorMapEncodeTiled", err);
}

ep_status cuda_find_map(cuda_state *s, ep_packed *w, const void *p, int64_t rows, int64_t cols, int64_t row,
                        unsigned box_rows, unsigned chunks, cu_tensor_map *out, ep_error *err) {
    if (!w->maps) {
        w->maps = aligned_alloc(64, CUDA_MAPS * sizeof *w->maps);
        if (!w->maps) return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory for tensor maps");
        memset(w->maps, 0, CUDA_MAPS * sizeof *w->maps);
    }
    for (unsigned i = 0; i < CUDA_MAPS; i++) {
        const cuda_map_entry *e = &w->maps[i];
        if (e->p != p || e->rows != rows || e->cols != cols || e->row != row || e->box_rows != box_rows ||
            e->chunks != chunks)
            continue;
        *out = e->map; /* copied: a later one of the same launch may take its slot */
        return EP_OK;
    }
    cuda_map_entry *e = &w->maps[w->next_map++ % CUDA_MAPS];
    e->p = NULL;
    EP_TRY(make_map(s, w->dtype, p, rows, cols, row, box_rows, chunks, &e->map, err));
    e->p = p, e->rows = rows, e->cols = cols, e->row = row, e->box_rows = box_rows, e->chunks = chunks;
    *out = e->map;
    return EP_OK;
}

static void count_work(const ep_tuned_call *c, const ep_packed *w, cuda_launch *l) {
    int64_t matrices = w->w[1] ? 2 : 1, size = (int64_t)ep_dtype_size(w->dtype);
    l->flops = 2 * matrices * c->m * w->n * w->k;
    l->bytes_read = size * (c->m * w->k + matrices * w->n * w->k + (c->residual ? c->m * w->n : 0));
    l->bytes_written = size * c->m * w->n;
}

static ep_status run_decode(cuda_state *s, const ep_tuned_call *c, cuda_launch *l, ep_error *err) {
    const ep_packed *w = c->weights;
    decode_args a = {c->x,      w->w[0],         w->w[1],
                     c->bias0,  c->bias1,        c->residual,
                     c->out,    c->x_row,        w->row[0],
                     w->row[1], c->residual_row, c->out_row,
                     (int)c->m, (int)w->n,       (int)cuda_padded(w->k)};
    l->grid[0] = (unsigned)((w->n + 15) / 16);
    l->grid[1] = l->grid[2] = 1;
    l->block = 256;
    l->programmatic = true;
    void *params[] = {&a};
    return cuda_run(s, l, params, err);
}

/* The ring of kernels/sm90a/stream_sm90a.cuh, or what the parts of a split product take in its place. */
static unsigned stream_shared(const cuda_gemm_row *row) {
    int w = row->gated ? 2 * row->tile_n : row->tile_n, ring = row->stages * (w + row->tile_m) * 128;
    int part = row->cluster > 1 ? row->tile_m * (w + 8) * 4 : 0;
    return (unsigned)((ring > part ? ring : part) + 16 * row->stages + 16 + 1024);
}

static ep_status run_stream(cuda_state *s, const ep_tuned_call *c, const cuda_gemm_row *row, cuda_launch *l,
                            ep_error *err) {
    ep_packed *w = (ep_packed *)(uintptr_t)c->weights; /* its maps are a cache */
    cu_tensor_map x, w0, w1;
    int64_t k = cuda_padded(w->k);
    unsigned rows = (unsigned)cuda_padded(c->m), columns = (unsigned)row->tile_n;
    EP_TRY(cuda_find_map(s, w, c->x, c->m, k, c->x_row, rows, 0, &x, err));
    EP_TRY(cuda_find_map(s, w, w->w[0], w->n, k, w->row[0], columns, 0, &w0, err));
    w1 = w0;
    if (row->gated) EP_TRY(cuda_find_map(s, w, w->w[1], w->n, k, w->row[1], columns, 0, &w1, err));
    stream_args a = {(int)c->m,       (int)w->n,       (int)k,     (int)((w->n + row->tile_n - 1) / row->tile_n),
                     (int)rows * 128, c->bias0,        c->bias1,   c->residual,
                     c->out,          c->residual_row, c->out_row, L2_NORMAL};
    /* Products split along k take a tile a cluster; the others walk on over their tiles. */
    l->grid[0] = (unsigned)(row->cluster > 1 || a.tiles < s->sm_count ? a.tiles * row->cluster : s->sm_count);
    l->grid[1] = l->grid[2] = 1;
    l->block = (unsigned)(2 * row->tile_m + 32);
    l->cluster = (unsigned)row->cluster;
    l->shared_bytes = stream_shared(row);
    l->programmatic = true;
    void *params[] = {&x, &w0, &w1, &a};
    return cuda_run(s, l, params, err);
}

static ep_status run_tiles(cuda_state *s, const ep_tuned_call *c, const cuda_gemm_row *row, cuda_launch *l,
                           ep_error *err) {
    ep_packed *w = (ep_packed *)(uintptr_t)c->weights; /* its maps are a cache */
    cu_tensor_map x, w0, w1, y;
    int64_t k = cuda_padded(w->k);
    unsigned half = (unsigned)(row->gated ? row->tile_n : row->tile_n / 2);
    int rows = 128 * row->cluster, columns = row->gated ? 2 * row->tile_n : row->tile_n;
    bool turns = columns == 192;
    EP_TRY(cuda_find_map(s, w, c->x, c->m, k, c->x_row, 128, 0, &x, err));
    EP_TRY(cuda_find_map(s, w, w->w[0], w->n, k, w->row[0], half, 0, &w0, err));
    w1 = w0;
    if (row->gated) EP_TRY(cuda_find_map(s, w, w->w[1], w->n, k, w->row[1], half, 0, &w1, err));
    EP_TRY(cuda_find_map(s, w, c->out, c->m, w->n, c->out_row, 64, turns ? CUDA_NARROW : 0, &y, err));
    gemm_args a = {(int)c->m,
                   (int)w->n,
                   (int)k,
                   (int)((c->m + rows - 1) / rows),
                   (int)((w->n + row->tile_n - 1) / row->tile_n),
                   8,
                   c->bias0,
                   c->bias1,
                   c->residual,
                   c->residual_row,
                   L2_NORMAL,
                   L2_NORMAL,
                   c->m * w->n * 2 > s->l2_bytes ? L2_EVICT_FIRST : L2_NORMAL};
    int64_t tiles = (int64_t)a.tiles_m * a.tiles_n, clusters = s->sm_count / row->cluster;
    l->grid[0] = (unsigned)((tiles < clusters ? tiles : clusters) * row->cluster);
    l->grid[1] = l->grid[2] = 1;
    l->block = 384;
    l->cluster = (unsigned)row->cluster;
    int staged = turns               ? 96
                 : row->tile_n < 128 ? row->tile_n
                                     : 128; /* columns of the result in shared memory at a time */
    l->shared_bytes = (unsigned)(row->stages * (128 + columns) * 128 + 128 * staged * 2 + 16 * row->stages + 1024);
    l->programmatic = true;
    void *params[] = {&x, &w0, &w1, &y, &a};
    cuda_mark_written(s, c->out, c->m, w->n, c->out_row, 2);
    return cuda_run(s, l, params, err);
}

static ep_gemm plain_gemm(const ep_tuned_call *c, int which, void *out, int64_t out_row) {
    const ep_packed *w = c->weights;
    ep_gemm g = {.batch = 1,
                 .m = c->m,
                 .n = w->n,
                 .k = w->k,
                 .dtype = w->dtype,
                 .out_dtype = w->dtype,
                 .a = c->x,
                 .a_row = c->x_row,
                 .a_col = c->x_col,
                 .b = w->w[which],
                 .b_row = w->col[which],
                 .b_col = w->row[which],
                 .out = out,
                 .out_row = out_row,
                 .alpha = 1.0,
                 .rounding = c->rounding};
    g.bias = which ? c->bias1 : c->bias0;
    g.bias_stride = which ? c->bias1_stride : c->bias0_stride;
    return g;
}

/* No kernel of ours: two products by cuBLASLt and the pointwise gated kernel, or one with its epilogue. */
static ep_status by_library(ep_backend *b, const ep_tuned_call *c, ep_error *err) {
    cuda_state *s = cuda_of(b);
    const ep_packed *w = c->weights;
    if (!w->w[1]) {
        ep_gemm g = plain_gemm(c, 0, c->out, c->out_row);
        g.act = c->act;
        g.residual = c->residual;
        g.residual_row = c->residual_row;
        return cuda_gemm(s, &g, err);
    }
    ep_storage *up;
    EP_TRY(cuda_storage_create(s, (size_t)(c->m * w->n) * ep_dtype_size(w->dtype), err, &up));
    ep_gemm g = plain_gemm(c, 0, c->out, c->out_row), u = plain_gemm(c, 1, up->data, w->n);
    ep_status status = cuda_gemm(s, &g, err);
    if (status == EP_OK) status = cuda_gemm(s, &u, err);
    ep_tensor gt = matrix(s, w->dtype, c->out, c->m, w->n, c->out_row, 1),
              ut = matrix(s, w->dtype, up->data, c->m, w->n, w->n, 1);
    if (status == EP_OK) status = cuda_gated(b, c->act, c->rounding, &gt, &ut, &gt, err);
    ep_storage_release(up);
    return status;
}

/* Operands that the kernels cannot read or write in place go through padded copies. */
typedef struct staged {
    ep_storage *x, *out, *bias[2];
} staged;

static ep_status stage(cuda_state *s, ep_tuned_call *c, staged *t, ep_error *err) {
    const ep_packed *w = c->weights;
    if (w->k % 8 || !cuda_fits_copy_engine(c->x, c->m, w->k, c->x_row, c->x_col)) {
        EP_TRY(pad_rows(s, w->dtype, c->x, c->m, w->k, c->x_row, c->x_col, &t->x, err));
        c->x = t->x->data;
        c->x_row = cuda_padded(w->k);
        c->x_col = 1;
    }
    const void **bias[2] = {&c->bias0, &c->bias1};
    int64_t stride[2] = {c->bias0_stride, c->bias1_stride};
    for (int i = 0; i < 2; i++) {
        if (!*bias[i] || stride[i] == 1 || w->n == 1) continue;
        EP_TRY(pad_rows(s, w->dtype, *bias[i], 1, w->n, 0, stride[i], &t->bias[i], err));
        *bias[i] = t->bias[i]->data;
    }
    return EP_OK;
}

ep_tuned_pair cuda_tuned_pair_way(const ep_packed *p, int64_t m) {
    const cuda_state *s = p->state;
    cuda_shape shape = {m,        p->n,        p->k,
                        p->dtype, p->w[1],     EP_ACT_GELU_TANH, /* all activations alike */
                        s->major, s->sm_count, EP_ROUNDING_EAGER};
    int row = cuda_select(&shape);
    bool own = !cuda_select_library(&shape, row, false) && cuda_image_count > 0;
    return own ? EP_TUNED_FUSED : EP_TUNED_APART;
}

ep_status cuda_tuned(ep_backend *b, const ep_tuned_call *given, ep_error *err) {
    cuda_state *s = cuda_of(b);
    const ep_packed *w = given->weights;
    if (given->hook) return ep_fail(err, EP_ERROR_UNSUPPORTED, "tuned products on the GPU call no hook");
    if (given->m == 0 || w->n == 0) return EP_OK;
    EP_TRY(cuda_enter(s, err));
    bool gated = w->w[1] != NULL;
    cuda_shape shape = {given->m, w->n, w->k, w->dtype, gated, given->act, s->major, s->sm_count, given->rounding};
    int index = w->k == 0 || given->m > INT32_MAX || w->n > INT32_MAX ? -1 : cuda_select(&shape);
    const char *name = index < 0 ? NULL : cuda_gemm_name(index, w->dtype, given->act, given->rounding);
    if (cuda_select_library(&shape, index, given->residual) || !cuda_has_kernel(s, name))
        return by_library(b, given, err);
    const cuda_gemm_row *row = &cuda_gemm_rows[index];
    ep_tuned_call c = *given;
    staged t = {0};
    cuda_launch l = {.name = name};
    count_work(&c, w, &l);
    ep_status status = stage(s, &c, &t, err);
    bool tiles = row->stages && !row->max_m;
    if (status == EP_OK && tiles && ((uintptr_t)c.out % 16 || (c.m > 1 && c.out_row % 8))) {
        status = cuda_storage_create(s, (size_t)(c.m * cuda_padded(w->n)) * 2, err, &t.out);
        if (status == EP_OK) c.out = t.out->data, c.out_row = cuda_padded(w->n);
    }
    if (status == EP_OK)
        status = tiles         ? run_tiles(s, &c, row, &l, err)
                 : row->stages ? run_stream(s, &c, row, &l, err)
                               : run_decode(s, &c, &l, err);
    if (status == EP_OK && t.out) {
        ep_tensor from = matrix(s, w->dtype, c.out, c.m, w->n, c.out_row, 1);
        ep_tensor to = matrix(s, w->dtype, given->out, c.m, w->n, given->out_row, 1);
        status = cuda_copy(b, &from, &to, err);
    }
    ep_storage_release(t.x);
    ep_storage_release(t.out);
    for (int i = 0; i < 2; i++) ep_storage_release(t.bias[i]);
    return status;
}
