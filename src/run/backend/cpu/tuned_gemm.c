/* The driver of every tuned GEMM: blocks for the caches, an equal share of row blocks times panels for each thread, x
 * packed into row tiles, tiles of sums handed to their epilogue while they are in L1. */
#include "tuned.h"

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
    FORK_BYTES = 1 << 17  /* bytes of weights: streaming them takes longer */
};

struct ep_tuned_scratch {
    char *data;
    size_t bytes;
};

typedef struct job {
    const ep_tuned_call *call;
    const ep_packed *w;
    const ep_tuned_row *row;
    int64_t block_rows, blocks; /* rows of x in a block, and how many blocks */
    int64_t super;              /* chunks of k whose packed x stays in L2 */
    int64_t group;              /* panels whose sums are kept while k goes by in more than one super */
    size_t x_bytes, sum_bytes;  /* of a thread's scratch */
    const float *bias0, *bias1, *table;
    char *scratch;
} job;

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

int64_t ep_tuned_scratch_bytes(const ep_tuned_scratch *s) {
    return s ? (int64_t)s->bytes : 0;
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

/* Row blocks of about 256 rows whose packed x fills half of L2; where k is too long for that, k goes by in supers and
 * the sums of a group of panels wait in memory. None of this depends on the thread count. */
static void choose_blocks(job *j) {
    const ep_tuned_row *r = j->row;
    int64_t l2 = max64(ep_cpu_get()->l2, 256 << 10), most = 256 / r->mr * r->mr, m = j->call->m;
    int64_t tiles = ceil_div(m, r->mr), blocks = ceil_div(tiles * r->mr, most);
    j->block_rows = ceil_div(tiles, blocks) * r->mr;
    j->blocks = ceil_div(m, j->block_rows);
    int64_t chunk_bytes = j->block_rows * r->a_bytes, fit = max64(l2 / 2 / chunk_bytes, r->block_chunks);
    int64_t supers = max64(ceil_div(j->w->chunks, fit), 1);
    j->super = ceil_div(ceil_div(j->w->chunks, supers), r->block_chunks) * r->block_chunks;
    int64_t panel_sums = j->block_rows * 2 * r->half * 4;
    j->group = j->w->chunks <= j->super ? 1 : max64(min64(j->w->panels, 2 * l2 / panel_sums), 1);
    j->x_bytes = (size_t)(chunk_bytes * max64(j->super, 1) + 63) / 64 * 64;
    j->sum_bytes = (size_t)(panel_sums * j->group + 63) / 64 * 64;
}

/* One row of one chunk of x as the row's kernels want it: 64 bytes as stored, or 32 values widened to f32. */
static void put_x(const job *j, char *dst, const char *src, int64_t k) {
    const ep_tuned_call *call = j->call;
    int64_t size = (int64_t)ep_dtype_size(call->dtype);
    if (j->row->a_bytes == 64) {
        int64_t kc = j->row->chunk_k;
        if (call->x_col == 1 && k >= kc) {
            memcpy(dst, src, 64);
            return;
        }
        memset(dst, 0, 64);
        for (int64_t i = 0; i < min64(k, kc); i++) memcpy(dst + i * size, src + i * call->x_col * size, (size_t)size);
        return;
    }
    float *f = (float *)(void *)dst;
    for (int64_t i = 0; i < 32; i++) {
        uint16_t v = 0;
        if (i < k) memcpy(&v, src + i * call->x_col * 2, 2);
        f[i] = call->dtype == EP_DTYPE_BF16 ? ep_bf16_to_f32(v) : ep_f16_to_f32(v);
    }
}

static void pack_x(const job *j, int64_t m0, int64_t rows, int64_t chunk0, int64_t chunks, char *dst) {
    const ep_tuned_call *call = j->call;
    int64_t size = (int64_t)ep_dtype_size(call->dtype), mr = j->row->mr, a_bytes = j->row->a_bytes;
    int64_t kc = j->row->chunk_k;
    for (int64_t i = 0; i < rows; i++) {
        const char *src = (const char *)call->x + ((m0 + i) * call->x_row + chunk0 * kc * call->x_col) * size;
        char *to = dst + i / mr * mr * a_bytes * chunks + i % mr * a_bytes;
        for (int64_t c = 0; c < chunks; c++, to += mr * a_bytes, src += kc * call->x_col * size)
            put_x(j, to, src, call->weights->k - (chunk0 + c) * kc);
    }
}

static void finish_tile(const job *j, int64_t m0, int rows, int64_t panel, const float *sums) {
    const ep_tuned_call *call = j->call;
    const ep_tuned_row *r = j->row;
    int64_t size = (int64_t)ep_dtype_size(call->dtype);
    int64_t width = j->w->pair ? r->half : 2 * r->half, n0 = panel * width;
    ep_tile t = {
        .rows = rows,
        .cols = (int)min64(width, j->w->n - n0),
        .sums = sums,
        .sums_row = 2 * r->half,
        .bias0 = j->bias0 ? j->bias0 + n0 : NULL,
        .bias1 = j->bias1 ? j->bias1 + n0 : NULL,
        .out = (char *)call->out + (m0 * call->out_row + n0) * size,
        .out_row = call->out_row * size,
        .residual = call->residual ? (const char *)call->residual + (m0 * call->residual_row + n0) * size : NULL,
        .residual_row = call->residual_row * size,
        .act = call->act,
        .rounding = call->rounding,
        .table = j->table,
    };
    (j->w->pair ? r->gated : r->plain)(&t);
}

/* Sums of one panel over the chunks [chunk0, chunk0 + chunks) of a packed row block; the last pass finishes each tile
 * while it is in L1. The following chunks of the panel are fetched meanwhile, an equal slice by every tile. */
static void sum_panel(const job *j, int64_t m0, int64_t rows, int64_t panel, const char *x, int64_t chunk0,
                      int64_t chunks, float *sums) {
    const ep_tuned_row *r = j->row;
    int64_t tiles = ceil_div(rows, r->mr), chunk_bytes = 128 * r->half, done = 0;
    const char *b = j->w->data + panel * j->w->panel_bytes + chunk0 * chunk_bytes;
    const char *end = j->w->data + j->w->bytes;
    do {
        int64_t now = min64(chunks - done, r->block_chunks), bytes = now * chunk_bytes;
        bool last = chunk0 + done + now >= j->w->chunks;
        int lines = (int)ceil_div(chunk_bytes / 64, tiles);
        for (int64_t t = 0; t < tiles; t++) {
            int in_tile = (int)min64(r->mr, rows - t * r->mr);
            const char *a = x + (t * chunks + done) * r->mr * r->a_bytes, *ahead = b + bytes + t * lines * 64 * now;
            float *c = sums + t * r->mr * 2 * r->half;
            bool fetch = ahead < b + 2 * bytes && ahead + lines * 64 * now <= end;
            r->acc(in_tile, now, a, b, c, chunk0 + done == 0, ahead, fetch ? lines : 0);
            if (last) finish_tile(j, m0 + t * r->mr, in_tile, panel, c);
        }
        b += bytes;
        done += now;
    } while (done < chunks);
}

static void run_block(const job *j, int64_t block, int64_t panel0, int64_t panel1, char *scratch) {
    int64_t m0 = block * j->block_rows, rows = min64(j->block_rows, j->call->m - m0);
    char *x = scratch;
    float *sums = (float *)(void *)(scratch + j->x_bytes);
    int64_t panel_sums = j->block_rows * 2 * j->row->half, chunks = j->w->chunks;
    if (chunks <= j->super) {
        pack_x(j, m0, rows, 0, chunks, x);
        for (int64_t p = panel0; p < panel1; p++) sum_panel(j, m0, rows, p, x, 0, chunks, sums);
        return;
    }
    for (int64_t g = panel0; g < panel1; g += j->group)
        for (int64_t c = 0; c < chunks; c += j->super) {
            int64_t now = min64(j->super, chunks - c);
            pack_x(j, m0, rows, c, now, x);
            for (int64_t p = g; p < min64(g + j->group, panel1); p++)
                sum_panel(j, m0, rows, p, x, c, now, sums + (p - g) * panel_sums);
        }
}

static void run_share(void *user, int thread, int threads) {
    const job *j = user;
    int64_t units = j->blocks * j->w->panels;
    int64_t u = units / threads * thread + min64(units % threads, thread);
    int64_t end = u + units / threads + (thread < units % threads);
    char *scratch = j->scratch + (size_t)thread * (j->x_bytes + j->sum_bytes);
    if (j->row->begin) j->row->begin();
    while (u < end) {
        int64_t block = u / j->w->panels, panel = u % j->w->panels, now = min64(j->w->panels - panel, end - u);
        run_block(j, block, panel, panel + now, scratch);
        u += now;
    }
    if (j->row->end) j->row->end();
}

static const float *widen_bias(const ep_tuned_call *call, const void *bias, int64_t stride, float *to, int64_t padded) {
    if (!bias) return NULL;
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
    return EP_OK;
}

void ep_tuned_name(const ep_tuned_call *call, char out[128]) {
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
    int64_t size = (int64_t)ep_dtype_size(call->dtype), mn = call->m * w->n, pair = w->pair ? 2 : 1;
    int64_t biases = (call->bias0 != NULL) + (call->bias1 != NULL);
    int64_t each = biases + (call->residual != NULL) + (w->pair ? 1 : 0);
    if (call->act != EP_ACT_NONE) each += ep_op_get(ep_act_op(call->act))->flops;
    work->flops = pair * 2 * mn * w->k + each * mn;
    work->bytes_read = size * (call->m * w->k + pair * w->k * w->n + biases * w->n + (call->residual ? mn : 0));
    work->bytes_written = size * mn;
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

ep_status ep_tuned_run(ep_tuned_scratch *s, int threads, const ep_tuned_call *call, ep_error *err) {
    EP_TRY(check_call(call, err));
    const ep_packed *w = call->weights;
    if (call->m == 0 || w->n == 0) return EP_OK;
    job j = {.call = call, .w = w, .row = w->row};
    choose_blocks(&j);
    int64_t units = j.blocks * w->panels, ops = call->m * w->n * w->k * (w->pair ? 2 : 1);
    if (threads > units) threads = (int)units;
    int64_t pays = w->row->isa == EP_ISA_AMX_BF16 ? FORK_TILES : FORK_PAYS;
    if (threads < 1 || (ops < pays && w->bytes < FORK_BYTES)) threads = 1;
    int64_t padded = w->panels * 2 * j.row->half;
    size_t bias_bytes = (size_t)padded * 4 * (size_t)((call->bias0 != NULL) + (call->bias1 != NULL));
    size_t each = j.x_bytes + j.sum_bytes;
    EP_TRY(reserve(s, (size_t)threads * each + bias_bytes, err));
    float *bias = (float *)(void *)(s->data + (size_t)threads * each);
    j.scratch = s->data;
    j.bias0 = widen_bias(call, call->bias0, call->bias0_stride, bias, padded);
    j.bias1 = widen_bias(call, call->bias1, call->bias1_stride, bias + (call->bias0 ? padded : 0), padded);
    if (call->rounding == EP_ROUNDING_EAGER && call->m * w->n >= TABLE_PAYS)
        j.table = ep_act_table(call->dtype, call->act);
    const ep_probe *probe = ep_probe_get();
    if (probe)
        run_recorded(probe, threads, &j);
    else
        ep_parallel(threads, run_share, &j);
    return EP_OK;
}
