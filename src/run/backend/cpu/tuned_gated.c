/* The gated pointwise kernels over tensors: rows found by merging dims, read in place. Halves of a wider buffer and
 * interleaved inputs have kernels of their own; any other step goes through a small buffer. */
#include "tuned.h"

#include <stdio.h>
#include <string.h>

#include "act_table.h"
#include "base/parallel.h"
#include "model/tensor/tensor.h"
#include "run/backend/launch.h"

enum {
    OPERANDS = 5,
    SEGMENT = 8192,         /* elements of a row that one unit of work takes */
    BUFFER = 512,           /* elements gathered at a time where a step is not 1 */
    SERIAL = 1 << 16,       /* elements below which a fork costs more than it gains */
    TABLE_PAYS = 1 << 18,   /* elements from which filling a table once is repaid */
    TABLE_IS_THERE = 4096,  /* and from which a filled one is asked */
    STREAM_BYTES = 32 << 20 /* moved by a call that leaves nothing of its result in the caches */
};

const char *ep_tuned_gated_name(ep_act act) {
    static const char *const names[EP_ACT_COUNT] = {
        [EP_ACT_NONE] = "glu_linear", [EP_ACT_GELU_TANH] = "geglu", [EP_ACT_GELU_ERF] = "geglu_erf",
        [EP_ACT_SILU] = "swiglu",     [EP_ACT_RELU] = "reglu",
    };
    return names[act];
}

typedef struct job {
    const ep_tuned_row *row;
    ep_gated_row kernel; /* what all rows share */
    ep_gated_fn run, pairs;
    bool backward;
    int64_t size;         /* of an element */
    char *data[OPERANDS]; /* gate, up, out, dy, dup */
    int operands;
    int ndim; /* merged; the last dim is the row */
    int64_t sizes[EP_MAX_DIMS], strides[OPERANDS][EP_MAX_DIMS];
    int64_t segments; /* of a row */
} job;

static void gather(const job *j, int k, const char *from, int64_t n, char *to) {
    int64_t step = j->strides[k][j->ndim - 1] * j->size;
    for (int64_t i = 0; i < n; i++) memcpy(to + i * j->size, from + i * step, (size_t)j->size);
}

static void scatter(const job *j, int k, const char *from, int64_t n, char *to) {
    int64_t step = j->strides[k][j->ndim - 1] * j->size;
    for (int64_t i = 0; i < n; i++) memcpy(to + i * step, from + i * j->size, (size_t)j->size);
}

/* Rows whose elements are not adjacent: through buffers, inputs in and results out. */
static void run_buffered(const job *j, ep_gated_row r, char *const p[OPERANDS]) {
    _Alignas(64) char buffer[OPERANDS][BUFFER * 4];
    int64_t n = r.n;
    for (int64_t i = 0; i < n; i += BUFFER) {
        int64_t now = n - i < BUFFER ? n - i : BUFFER;
        char *at[OPERANDS], *use[OPERANDS] = {NULL};
        for (int k = 0; k < j->operands; k++) {
            int64_t step = j->strides[k][j->ndim - 1];
            at[k] = p[k] + i * step * j->size;
            use[k] = step == 1 ? at[k] : buffer[k];
            if (step != 1 && k != 2 && k != 4) gather(j, k, at[k], now, use[k]);
        }
        r.n = now, r.gate = use[0], r.up = use[1], r.out = use[2], r.dy = use[3], r.dup = use[4];
        j->run(&r);
        for (int k = 2; k < j->operands; k += 2)
            if (use[k] != at[k]) scatter(j, k, use[k], now, at[k]);
    }
}

static void run_row(const job *j, char *const p[OPERANDS], int64_t n) {
    ep_gated_row r = j->kernel;
    bool adjacent = true;
    for (int k = 0; k < j->operands; k++) adjacent &= j->strides[k][j->ndim - 1] == 1 || n == 1;
    r.n = n, r.gate = p[0], r.up = p[1], r.out = p[2], r.dy = p[3], r.dup = p[4];
    const int last = j->ndim - 1;
    if (adjacent)
        j->run(&r);
    else if (!j->backward && j->strides[0][last] == 2 && j->strides[1][last] == 2 && j->strides[2][last] == 1 &&
             p[1] == p[0] + j->size)
        j->pairs(&r);
    else
        run_buffered(j, r, p);
}

static void run_units(void *user, int64_t begin, int64_t end) {
    const job *j = user;
    int last = j->ndim - 1;
    int64_t index[EP_MAX_DIMS], row = begin / j->segments, segment = begin % j->segments;
    for (int d = last - 1; d >= 0; d--) {
        index[d] = row % j->sizes[d];
        row /= j->sizes[d];
    }
    for (int64_t u = begin; u < end; u++) {
        char *p[OPERANDS] = {NULL};
        int64_t first = segment * SEGMENT, n = j->sizes[last] - first < SEGMENT ? j->sizes[last] - first : SEGMENT;
        for (int k = 0; k < j->operands; k++) {
            int64_t offset = first * j->strides[k][last];
            for (int d = 0; d < last; d++) offset += index[d] * j->strides[k][d];
            p[k] = j->data[k] + offset * j->size;
        }
        run_row(j, p, n);
        if (++segment < j->segments) continue;
        segment = 0;
        for (int d = last - 1; d >= 0 && ++index[d] == j->sizes[d]; d--) index[d] = 0;
    }
#if defined(__x86_64__)
    if (j->kernel.stream) __builtin_ia32_sfence(); /* once: a fence a row costs more than a narrow row */
#endif
}

/* The result lies where an input did: its lines are in the caches already. */
static bool is_input(const job *j, int k) {
    return j->data[k] == j->data[0] || j->data[k] == j->data[1] || (j->backward && j->data[k] == j->data[3]);
}

static void choose_way(ep_gated_row *r, ep_dtype dtype, ep_act act, bool backward, int64_t n) {
    if (n < TABLE_PAYS && !(n >= TABLE_IS_THERE && ep_act_is_tried(dtype, act))) return;
    const ep_act_trial *t = ep_act_tried(dtype, act);
    if (!t || t->way[backward] == EP_ACT_BY_FORMULA) return;
    if (backward) {
        r->pairs = ep_pair_table(dtype, act);
        if (t->way[1] == EP_ACT_BY_BOTH) r->slopes = ep_act_slopes(dtype, act);
        return;
    }
    r->table = ep_act_table(dtype, act);
    r->mix = t->way[0] == EP_ACT_BY_BOTH;
    if (r->mix) r->words = ep_act_words(dtype, act);
}

static ep_status run(int threads, ep_act act, ep_rounding rounding, job *j, const ep_tensor *const t[OPERANDS],
                     ep_error *err) {
    const ep_tensor *out = t[2];
    if ((unsigned)act >= EP_ACT_COUNT)
        return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "activation %d is unknown", (int)act);
    j->row = ep_tuned_select(out->dtype, ep_cpu_get()->isa);
    if (!j->row)
        return ep_fail(err, EP_ERROR_DTYPE, "gated products of %s are not supported", ep_dtype_name(out->dtype));
    if (out->numel == 0) return EP_OK;
    j->run = j->backward ? j->row->gated_back : j->row->gated_row;
    j->pairs = j->row->gated_pairs;
    j->size = (int64_t)ep_dtype_size(out->dtype);
    for (int d = 0; d < out->ndim; d++) j->sizes[d] = out->sizes[d];
    for (int k = 0; k < j->operands; k++) {
        j->data[k] = t[k]->data;
        for (int d = 0; d < out->ndim; d++) j->strides[k][d] = t[k]->strides[d];
    }
    j->ndim = ep_stride_collapse(out->ndim, j->sizes, j->operands, j->strides);
    if (j->ndim == 0) {
        j->ndim = 1;
        j->sizes[0] = 1;
        for (int k = 0; k < j->operands; k++) j->strides[k][0] = 1;
    }
    int64_t width = j->sizes[j->ndim - 1], rows = out->numel / width;
    j->segments = (width + SEGMENT - 1) / SEGMENT;
    j->kernel.act = act;
    j->kernel.eager = rounding == EP_ROUNDING_EAGER;
    if (j->kernel.eager) choose_way(&j->kernel, out->dtype, act, j->backward, out->numel);
    j->kernel.stream =
        out->numel * j->size >= STREAM_BYTES / j->operands && !is_input(j, 2) && !(j->backward && is_input(j, 4));
    int64_t grain = SEGMENT / (width < SEGMENT ? width : SEGMENT);
    ep_parallel_for(out->numel < SERIAL ? 1 : threads, rows * j->segments, grain, run_units, j);
    return EP_OK;
}

static ep_status run_recorded(int threads, ep_act act, ep_rounding rounding, job *j, const ep_tensor *const t[OPERANDS],
                              ep_error *err) {
    const ep_probe *probe = ep_probe_get();
    const ep_tuned_row *row = ep_tuned_select(t[2]->dtype, ep_cpu_get()->isa);
    if (!probe || !row || (unsigned)act >= EP_ACT_COUNT || t[2]->numel == 0)
        return run(threads, act, rounding, j, t, err);
    char name[128];
    snprintf(name, sizeof name, "ep_%s_%s%s_%s_u%d", ep_dtype_name(row->dtype), ep_tuned_gated_name(act),
             j->backward ? "_backward" : "", row->vector_name, row->lanes);
    int64_t each = 1, bytes = t[2]->numel * (int64_t)ep_dtype_size(row->dtype);
    if (act != EP_ACT_NONE) each += ep_op_get(ep_act_op(act))->flops * (j->backward ? 2 : 1);
    if (j->backward) each += 2;
    ep_launch l = ep_launch_begin(probe->name(probe->self, name));
    ep_status status = run(threads, act, rounding, j, t, err);
    ep_launch_end(&l, each * t[2]->numel, bytes * (j->backward ? 3 : 2), bytes * (j->backward ? 2 : 1));
    return status;
}

ep_status ep_tuned_gated(int threads, ep_act act, ep_rounding rounding, const ep_tensor *gate, const ep_tensor *up,
                         ep_tensor *out, ep_error *err) {
    job j = {.operands = 3};
    const ep_tensor *t[OPERANDS] = {gate, up, out};
    return run_recorded(threads, act, rounding, &j, t, err);
}

ep_status ep_tuned_gated_backward(int threads, ep_act act, ep_rounding rounding, const ep_tensor *dy,
                                  const ep_tensor *gate, const ep_tensor *up, ep_tensor *dgate, ep_tensor *dup,
                                  ep_error *err) {
    job j = {.operands = 5, .backward = true};
    const ep_tensor *t[OPERANDS] = {gate, up, dgate, dy, dup};
    return run_recorded(threads, act, rounding, &j, t, err);
}
