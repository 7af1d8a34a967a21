/* Copies and casts between any two layouts: adjacent runs whole, transposes by tiles that stay in L1. */
#include <string.h>

#include "base/parallel.h"
#include "cpu.h"
#include "cpu_kernels.h"
#include "run/backend/launch.h"

enum { CHUNK = 32768, TILE = 32 };

typedef struct job {
    size_t size; /* of an element */
    size_t out_size;
    ep_cast_fn cast; /* NULL: a copy */
    int ndim;        /* outer dims */
    int64_t sizes[EP_MAX_DIMS], strides[2][EP_MAX_DIMS];
    int64_t length, chunks; /* of the innermost run, whose steps are 1 */
    int64_t rows, cols;     /* of a transpose: in steps 1 along rows, out along cols */
    int64_t in_col, out_row;
    const char *in;
    char *out;
} job;

static void start(const job *j, int64_t row, const char **in, char **out) {
    for (int d = j->ndim - 1; d >= 0; d--) {
        int64_t index = row % j->sizes[d];
        row /= j->sizes[d];
        *in += index * j->strides[0][d] * (int64_t)j->size;
        *out += index * j->strides[1][d] * (int64_t)j->out_size;
    }
}

static void copy_items(void *user, int64_t begin, int64_t end) {
    const job *j = user;
    for (int64_t item = begin; item < end; item++) {
        int64_t first = item % j->chunks * CHUNK, n = j->length - first < CHUNK ? j->length - first : CHUNK;
        const char *in = j->in + first * (int64_t)j->size;
        char *out = j->out + first * (int64_t)j->out_size;
        start(j, item / j->chunks, &in, &out);
        if (j->cast)
            j->cast(n, in, out);
        else
            memmove(out, in, (size_t)n * j->size);
    }
}

#define TRANSPOSE(type)                                                                                                \
    for (int64_t r = r0; r < r1; r++)                                                                                  \
        for (int64_t c = c0; c < c1; c++)                                                                              \
    memcpy(out + (r * j->out_row + c) * (int64_t)sizeof(type), in + (r + c * j->in_col) * (int64_t)sizeof(type),       \
           sizeof(type))

static void transpose_tile(const job *j, const char *in, char *out, int64_t r0, int64_t c0) {
    int64_t r1 = r0 + TILE < j->rows ? r0 + TILE : j->rows, c1 = c0 + TILE < j->cols ? c0 + TILE : j->cols;
    switch (j->size) {
    case 1: TRANSPOSE(char); break;
    case 2: TRANSPOSE(short); break;
    case 4: TRANSPOSE(int); break;
    default: TRANSPOSE(int64_t);
    }
}

static void transpose_items(void *user, int64_t begin, int64_t end) {
    const job *j = user;
    int64_t down = (j->rows + TILE - 1) / TILE;
    for (int64_t item = begin; item < end; item++) {
        const char *in = j->in;
        char *out = j->out;
        start(j, item / down, &in, &out);
        for (int64_t c = 0; c < j->cols; c += TILE) transpose_tile(j, in, out, item % down * TILE, c);
    }
}

/* Outer dims are all but the last `inner`; gives the number of their positions. */
static int64_t cut(job *j, int dims, int inner) {
    j->ndim = dims > inner ? dims - inner : 0;
    int64_t n = 1;
    for (int d = 0; d < j->ndim; d++) n *= j->sizes[d];
    return n;
}

/* False if the layouts are of neither kind. */
static bool plan_runs(job *j, int dims, int64_t *items) {
    bool adjacent = dims == 0 || (j->strides[0][dims - 1] == 1 && j->strides[1][dims - 1] == 1);
    if (!adjacent) return false;
    j->length = dims > 0 ? j->sizes[dims - 1] : 1;
    j->chunks = (j->length + CHUNK - 1) / CHUNK;
    *items = cut(j, dims, 1) * j->chunks;
    return true;
}

/* A transpose of the last two dims: out steps 1 along the last, in along the one before. */
static bool plan_transpose(job *j, int dims, int64_t *items) {
    if (j->cast || dims < 2 || j->strides[1][dims - 1] != 1 || j->strides[0][dims - 2] != 1) return false;
    j->rows = j->sizes[dims - 2];
    j->cols = j->sizes[dims - 1];
    j->in_col = j->strides[0][dims - 1];
    j->out_row = j->strides[1][dims - 2];
    *items = cut(j, dims, 2) * ((j->rows + TILE - 1) / TILE);
    return true;
}

static ep_cast_fn cast_of(const ep_cpu_state *s, ep_dtype from, ep_dtype to, const char **name) {
    if (from != EP_DTYPE_F32 && to != EP_DTYPE_F32) return NULL;
    const ep_row_table *t = s->rows[to == EP_DTYPE_F32 ? from : to];
    if (!t || !s->rows[to]) return NULL;
    *name = s->rows[to]->cast_name;
    return to == EP_DTYPE_F32 ? t->to_f32 : t->from_f32;
}

static const char *copy_name(ep_dtype dtype) {
    static const char *const names[EP_DTYPE_COUNT] = {"ep_f32_copy_portable", "ep_bf16_copy_portable",
                                                      "ep_f16_copy_portable", "ep_i32_copy_portable",
                                                      "ep_i64_copy_portable", "ep_bool_copy_portable"};
    return names[dtype];
}

ep_status ep_cpu_copy(ep_backend *b, const ep_tensor *in, ep_tensor *out, ep_error *err) {
    const ep_cpu_state *s = ep_cpu_of(b);
    const char *name = copy_name(out->dtype);
    job j = {.size = ep_dtype_size(in->dtype), .out_size = ep_dtype_size(out->dtype), .in = in->data, .out = out->data};
    if (in->dtype != out->dtype) {
        j.cast = cast_of(s, in->dtype, out->dtype, &name);
        if (!j.cast) return s->ref->copy(b, in, out, err);
    }
    memcpy(j.sizes, out->sizes, sizeof j.sizes);
    memcpy(j.strides[0], in->strides, sizeof j.strides[0]);
    memcpy(j.strides[1], out->strides, sizeof j.strides[1]);
    int dims = ep_stride_collapse(out->ndim, j.sizes, 2, j.strides);
    int64_t items;
    bool runs = plan_runs(&j, dims, &items);
    if (!runs && !plan_transpose(&j, dims, &items)) return s->ref->copy(b, in, out, err);
    ep_launch l = ep_launch_begin(name);
    int64_t bytes = out->numel * (int64_t)(j.size + j.out_size);
    int64_t grain = runs && j.length < 1024 ? 1024 / (j.length > 0 ? j.length : 1) + 1 : 1;
    ep_parallel_for(ep_cpu_threads(b, bytes, 0), items, grain, runs ? copy_items : transpose_items, &j);
    if (l.probe) ep_launch_end(&l, 0, ep_cpu_bytes(in), ep_cpu_bytes(out));
    return EP_OK;
}
