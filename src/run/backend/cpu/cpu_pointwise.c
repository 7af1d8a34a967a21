/* Runs the pointwise kernels over any layout: whole runs where the operands allow, else by gathered blocks. */
#include <string.h>

#include "base/parallel.h"
#include "cpu.h"
#include "cpu_kernels.h"
#include "run/backend/launch.h"

enum { BLOCK = 512, MOST = 4 };

/* Work is cut into items of at most CHUNK adjacent elements of one run; items are what threads share. */
enum { CHUNK = 16384 };

typedef struct job {
    ep_pointwise_fn run;
    int count; /* inputs; operand `count` is out */
    int ndim;  /* outer dims */
    int64_t sizes[EP_MAX_DIMS], strides[MOST][EP_MAX_DIMS];
    int64_t length, chunks, step[MOST]; /* of the innermost run */
    size_t size[MOST];
    char *data[MOST];
    bool plain; /* every step is 0 or 1, and out's is 1 */
} job;

static void gather(const char *from, int64_t step, size_t size, int64_t n, char *to) {
    switch (size) {
    case 1:
        for (int64_t i = 0; i < n; i++) to[i] = from[i * step];
        break;
    case 2:
        for (int64_t i = 0; i < n; i++) memcpy(to + 2 * i, from + 2 * i * step, 2);
        break;
    default:
        for (int64_t i = 0; i < n; i++) memcpy(to + 4 * i, from + 4 * i * step, 4);
    }
}

static void scatter(const char *from, int64_t step, size_t size, int64_t n, char *to) {
    for (int64_t i = 0; i < n; i++) memcpy(to + (int64_t)size * i * step, from + (int64_t)size * i, size);
}

static void run_blocks(const job *j, char *const *at, int64_t n) {
    char buffer[MOST][BLOCK * 4];
    for (int64_t i = 0; i < n; i += BLOCK) {
        int64_t part = n - i < BLOCK ? n - i : BLOCK;
        const void *in[MOST];
        int step[MOST];
        for (int k = 0; k < j->count; k++) {
            const char *p = at[k] + i * j->step[k] * (int64_t)j->size[k];
            step[k] = j->step[k] != 0;
            in[k] = p;
            if (j->step[k] <= 1) continue;
            gather(p, j->step[k], j->size[k], part, buffer[k]);
            in[k] = buffer[k];
        }
        int64_t out_bytes = (int64_t)j->size[j->count];
        char *out = at[j->count] + i * j->step[j->count] * out_bytes;
        if (j->step[j->count] == 1) {
            j->run(part, in, step, out);
            continue;
        }
        j->run(part, in, step, buffer[j->count]);
        scatter(buffer[j->count], j->step[j->count], j->size[j->count], part, out);
    }
}

static void run_item(const job *j, int64_t item) {
    int64_t row = item / j->chunks, begin = item % j->chunks * CHUNK;
    int64_t n = j->length - begin < CHUNK ? j->length - begin : CHUNK;
    char *at[MOST];
    for (int k = 0; k <= j->count; k++) at[k] = j->data[k] + begin * j->step[k] * (int64_t)j->size[k];
    for (int d = j->ndim - 1; d >= 0; d--) {
        int64_t index = row % j->sizes[d];
        row /= j->sizes[d];
        for (int k = 0; k <= j->count; k++) at[k] += index * j->strides[k][d] * (int64_t)j->size[k];
    }
    if (!j->plain) {
        run_blocks(j, at, n);
        return;
    }
    const void *in[MOST];
    int step[MOST];
    for (int k = 0; k < j->count; k++) {
        in[k] = at[k];
        step[k] = (int)j->step[k];
    }
    j->run(n, in, step, at[j->count]);
}

static void run_items(void *user, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) run_item(user, i);
}

static void set_operand(job *j, int k, const ep_tensor *t) {
    j->data[k] = t->data;
    j->size[k] = ep_dtype_size(t->dtype);
    memcpy(j->strides[k], t->strides, sizeof(int64_t) * (size_t)t->ndim);
}

static int64_t set_layout(job *j, int count, const ep_tensor *const *in, const ep_tensor *out) {
    j->count = count;
    for (int k = 0; k < count; k++) set_operand(j, k, in[k]);
    set_operand(j, count, out);
    memcpy(j->sizes, out->sizes, sizeof(int64_t) * (size_t)out->ndim);
    int dims = ep_stride_collapse(out->ndim, j->sizes, count + 1, j->strides);
    j->ndim = dims > 0 ? dims - 1 : 0;
    j->length = dims > 0 ? j->sizes[j->ndim] : 1;
    j->plain = true;
    for (int k = 0; k <= count; k++) {
        j->step[k] = dims > 0 ? j->strides[k][j->ndim] : 1;
        if (j->step[k] > 1 || (k == count && j->step[k] != 1)) j->plain = false;
    }
    j->chunks = (j->length + CHUNK - 1) / CHUNK;
    int64_t rows = 1;
    for (int d = 0; d < j->ndim; d++) rows *= j->sizes[d];
    return rows * j->chunks;
}

static void run_strided(ep_backend *b, ep_pointwise_fn run, int count, const ep_tensor *const *in, ep_tensor *out,
                        int64_t cost) {
    job j = {.run = run};
    int64_t items = set_layout(&j, count, in, out);
    int threads = ep_cpu_threads(b, out->numel * (int64_t)ep_dtype_size(out->dtype) * (count + 1), cost);
    int64_t grain = j.length < 1024 ? 1024 / (j.length > 0 ? j.length : 1) + 1 : 1;
    ep_parallel_for(threads, items, grain, run_items, &j);
}

/* All operands alike and without gaps. */
static bool is_flat(int count, const ep_tensor *const *in, const ep_tensor *out) {
    if (!out->contiguous) return false;
    for (int k = 0; k < count; k++)
        if (!in[k]->contiguous || in[k]->numel != out->numel) return false;
    return true;
}

static bool has_kernel(ep_op op, int count, const ep_tensor *const *in, const ep_tensor *out) {
    for (int k = op == EP_OP_WHERE ? 1 : 0; k < count; k++)
        if (in[k]->dtype != out->dtype) return false;
    return op != EP_OP_WHERE || in[0]->dtype == EP_DTYPE_BOOL;
}

static int64_t bytes_of(int count, const ep_tensor *const *in) {
    int64_t bytes = 0;
    for (int k = 0; k < count; k++) bytes += ep_cpu_bytes(in[k]);
    return bytes;
}

ep_status ep_cpu_pointwise(ep_backend *b, ep_op op, int count, const ep_tensor *const *in, ep_tensor *out,
                           ep_error *err) {
    const ep_cpu_state *s = ep_cpu_of(b);
    const ep_pointwise_table *t = s->pointwise[out->dtype];
    if (!t || (unsigned)op >= EP_POINTWISE_OPS || !has_kernel(op, count, in, out))
        return s->ref->pointwise(b, op, count, in, out, err);
    ep_launch l = ep_launch_begin(t->op[op].name);
    if (out->numel <= 2048 && is_flat(count, in, out)) {
        static const int ones[3] = {1, 1, 1};
        const void *data[3];
        for (int k = 0; k < count; k++) data[k] = in[k]->data;
        t->op[op].run(out->numel, data, ones, out->data);
    } else {
        run_strided(b, t->op[op].run, count, in, out, out->numel * ep_op_get(op)->flops);
    }
    if (l.probe) ep_launch_end(&l, out->numel * ep_op_get(op)->flops, bytes_of(count, in), ep_cpu_bytes(out));
    return EP_OK;
}
