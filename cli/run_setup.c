/* The block, its weights and its input: made up from a seed, or read from a safetensors file. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "run.h"

enum { GATE, GATE_BIAS, UP, UP_BIAS, DOWN, DOWN_BIAS };

static int out_of_context(const run_setup *s, const char *what) {
    return epi_fail(what, ep_context_error(s->ctx));
}

/* Values whose products keep the size of x: N(0, 1/sqrt(fan in)). */
static int make_weight(run_setup *s, const run_request *q, int which, int64_t rows, int64_t columns) {
    ep_error err = {0};
    int64_t sizes[2] = {rows, columns};
    int ndim = columns ? 2 : 1;
    double scale = columns ? 1 / sqrt((double)columns) : 0.1;
    if (ep_tensor_create(q->dtype, ndim, sizes, &err, &s->host_weight[which]) != EP_OK ||
        ep_tensor_fill_random(s->host_weight[which], 100 + (uint64_t)which, scale, &err) != EP_OK)
        return epi_fail("weights", &err);
    return -1;
}

static int make_weights(run_setup *s, const run_request *q) {
    bool gated = q->kind == EP_BLOCK_GATED, linear = q->kind == EP_BLOCK_LINEAR;
    int64_t inner = linear ? q->out : q->hidden;
    int code = make_weight(s, q, UP, inner, q->dim);
    if (code < 0 && gated) code = make_weight(s, q, GATE, inner, q->dim);
    if (code < 0 && !linear) code = make_weight(s, q, DOWN, q->out, inner);
    if (!q->bias) return code;
    if (code < 0) code = make_weight(s, q, UP_BIAS, inner, 0);
    if (code < 0 && gated) code = make_weight(s, q, GATE_BIAS, inner, 0);
    if (code < 0 && !linear) code = make_weight(s, q, DOWN_BIAS, q->out, 0);
    return code;
}

/* The file's weights in the dtype that is asked for. */
static int cast_weight(const run_request *q, ep_tensor *from, ep_tensor **out) {
    if (!from) return -1;
    if (ep_tensor_dtype(from) == q->dtype) {
        ep_error err = {0};
        return ep_tensor_alias(from, &err, out) == EP_OK ? -1 : epi_fail("weights", &err);
    }
    ep_context_options cpu = {0};
    ep_context *ctx = NULL;
    ep_error err = {0};
    if (ep_context_create(&cpu, &err, &ctx) != EP_OK) return epi_fail("weights", &err);
    int code = ep_cast(ctx, from, q->dtype, out) == EP_OK ? -1 : epi_fail("weights", ep_context_error(ctx));
    ep_context_destroy(ctx);
    return code;
}

static int check_size(const char *option, bool given, int64_t asked, int64_t found) {
    if (!given || asked == found) return -1;
    return epi_bad("%s %" PRId64 " does not fit the weights, which have %" PRId64, option, asked, found);
}

static int read_weights(run_setup *s, run_request *q) {
    ep_error err = {0};
    ep_weights *w = NULL;
    ep_layer_match m = {0};
    if (ep_weights_open(q->weights, &err, &w) != EP_OK) return epi_fail(q->weights, &err);
    ep_status found = ep_weights_match_layer(w, q->layer ? q->layer : "*", s->match, sizeof s->match, &err, &m);
    if (found != EP_OK) {
        if (s->match[0]) fprintf(stderr, "%s%s", s->match, s->match[strlen(s->match) - 1] == '\n' ? "" : "\n");
        ep_weights_close(w);
        return epi_fail(q->weights, &err);
    }
    int code = -1;
    if (m.kind != q->kind)
        code = epi_bad("%s holds a%s, not %s; the layer is of the %s family", q->weights,
                       m.kind == EP_BLOCK_GATED ? " gated block"
                       : m.kind == EP_BLOCK_MLP ? "n mlp"
                                                : " linear",
                       q->block, m.family);
    ep_tensor *const all[6] = {m.gate, m.gate_bias, m.up, m.up_bias, m.down, m.down_bias};
    for (int i = 0; i < 6 && code < 0; i++) code = cast_weight(q, all[i], &s->host_weight[i]);
    if (code < 0) {
        const ep_tensor *up = m.up, *down = m.down ? m.down : m.up;
        int64_t dim = ep_tensor_size(up, 1), inner = ep_tensor_size(up, 0), out = ep_tensor_size(down, 0);
        if (!q->act_given) q->act = m.act;
        code = check_size("--dim", q->shape_given[2], q->dim, dim);
        if (code < 0 && m.down) code = check_size("--hidden", q->shape_given[3], q->hidden, inner);
        if (code < 0) code = check_size("--out", q->shape_given[4], q->out, out);
        q->dim = dim;
        q->hidden = m.down ? inner : 0;
        q->out = out;
        q->bias = m.up_bias != NULL;
    }
    ep_layer_match_clear(&m);
    ep_weights_close(w);
    return code;
}

static int to_device(run_setup *s) {
    if (ep_to_device(s->ctx, s->host_x, &s->x) != EP_OK) return out_of_context(s, "x");
    for (int i = 0; i < 6; i++)
        if (s->host_weight[i] && ep_to_device(s->ctx, s->host_weight[i], &s->weight[i]) != EP_OK)
            return out_of_context(s, "weights");
    return -1;
}

static int make_x(run_setup *s, const run_request *q) {
    ep_error err = {0};
    int64_t sizes[3] = {q->batch, q->seq, q->dim};
    if (ep_tensor_create(q->dtype, 3, sizes, &err, &s->host_x) != EP_OK ||
        ep_tensor_fill_random(s->host_x, 1, 1.0, &err) != EP_OK)
        return epi_fail("x", &err);
    return -1;
}

static int make_context(run_setup *s, const run_request *q) {
    ep_error err = {0};
    ep_context_options options = {.device = q->device,
                                  .threads = (int)q->threads,
                                  .rounding = q->rounding,
                                  .autotune = q->autotune,
                                  .tf32 = q->tf32};
    if (ep_context_create(&options, &err, &s->ctx) != EP_OK) {
        if (err.status == EP_ERROR_NOT_BUILT) return epi_bad("not built yet: %s", err.message);
        return epi_fail(q->device.kind == EP_DEVICE_CUDA ? "cuda" : "cpu", &err);
    }
    s->threads = ep_context_threads(s->ctx);
    ep_status known = ep_machine_load(q->device, &err, &s->machine);
    /* A device has no estimates of its own; measuring it takes seconds, once. */
    if (known != EP_OK && q->device.kind == EP_DEVICE_CUDA) known = ep_machine_measure(q->device, 0, &err, &s->machine);
    if (known != EP_OK) memset(&s->machine, 0, sizeof s->machine);
    double *f32 = s->machine.gflops[EP_DTYPE_F32]; /* bounds are those of what was asked for */
    if (q->tf32 && q->device.kind == EP_DEVICE_CUDA && s->machine.tf32_gflops > 0)
        f32[0] = f32[1] = s->machine.tf32_gflops;
    return -1;
}

int run_setup_create(run_request *q, run_setup *s) {
    memset(s, 0, sizeof *s);
    int code = make_context(s, q);
    if (code < 0 && q->weights) code = read_weights(s, q);
    if (code < 0 && !q->out) q->out = q->dim;
    if (code < 0 && !q->weights) code = make_weights(s, q);
    if (code < 0) code = make_x(s, q);
    if (code < 0) code = to_device(s);
    if (code >= 0) return code;
    return run_new_block(q, s, &s->block);
}

int run_new_block(const run_request *q, run_setup *s, ep_block **out) {
    ep_block_weights w = {.gate = s->weight[GATE],
                          .gate_bias = s->weight[GATE_BIAS],
                          .up = s->weight[UP],
                          .up_bias = s->weight[UP_BIAS],
                          .down = s->weight[DOWN],
                          .down_bias = s->weight[DOWN_BIAS]};
    if (ep_block_create(s->ctx, q->kind, q->act, &w, out) != EP_OK) return out_of_context(s, q->block);
    return -1;
}

void run_setup_destroy(run_setup *s) {
    ep_block_destroy(s->block);
    ep_tensor_destroy(s->x);
    ep_tensor_destroy(s->host_x);
    for (int i = 0; i < 6; i++) {
        ep_tensor_destroy(s->weight[i]);
        ep_tensor_destroy(s->host_weight[i]);
    }
    ep_context_destroy(s->ctx);
    memset(s, 0, sizeof *s);
}

void run_block_request(const run_request *q, const run_setup *s, ep_mode mode, ep_block_request *out) {
    *out = (ep_block_request){.kind = q->kind,
                              .act = q->act,
                              .mode = mode,
                              .dtype = q->dtype,
                              .device = q->device,
                              .batch = q->batch,
                              .seq = q->seq,
                              .dim = q->dim,
                              .hidden = q->hidden,
                              .out = q->out,
                              .bias = q->bias,
                              .threads = s->threads,
                              .specialize = q->specialize,
                              .rounding = q->rounding,
                              .packed = ep_block_is_packed(s->block)};
}
