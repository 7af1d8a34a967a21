/* Work of PyTorch's ops by torch_ops.def: arguments as Kineto records them, one rule a kind of op. */
#include "torch_work.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "torch_args.h"

typedef void (*work_rule)(ep_op_work *w, const char *concrete, int flops);

static void known(ep_op_work *w, int64_t flops, int64_t read, int64_t written) {
    w->known = true;
    w->flops = flops;
    w->bytes_read = read;
    w->bytes_written = written;
}

static void unknown(ep_op_work *w, const char *reason) {
    w->known = false;
    w->reason = reason;
}

/* Exact while it fits; damaged shapes may claim more work than a number holds. */
static int64_t product(int64_t a, int64_t b, int64_t c, int64_t d) {
    int64_t v;
    if (__builtin_mul_overflow(a, b, &v) || __builtin_mul_overflow(v, c, &v) || __builtin_mul_overflow(v, d, &v))
        return INT64_MAX / 8;
    return v;
}

static const ep_operand *tensor(const ep_op_work *w, int index) {
    return index < w->input_count && w->in[index].tensor && !w->in[index].list ? &w->in[index] : NULL;
}

static void set_output(ep_op_work *w, int64_t numel, int element) {
    w->out_numel = numel;
    w->out_bytes = product(numel, element, 1, 1);
}

static void set_dtype(ep_op_work *w, const ep_operand *o) {
    memcpy(w->dtype, o->dtype, sizeof w->dtype);
}

/* All elements, though some may be one in memory: PyTorch hands a product a copy of an expanded operand. */
static int64_t whole_bytes(const ep_operand *o) {
    return product(o->numel, o->element, 1, 1);
}

int ep_flops_per_product(const char *dtype) {
    return strcmp(dtype, "c64") == 0 || strcmp(dtype, "c128") == 0 ? 8 : 2;
}

static void gemm(ep_op_work *w, const ep_operand *a, const ep_operand *b, int64_t batch, int64_t m, int64_t n,
                 int64_t k) {
    w->gemm = true;
    w->batch = batch, w->m = m, w->n = n, w->k = k;
    set_dtype(w, a);
    set_output(w, product(batch, m, n, 1), a->element);
    known(w, product(ep_flops_per_product(a->dtype), product(batch, m, 1, 1), n, k), whole_bytes(a) + whole_bytes(b),
          w->out_bytes);
}

static void mm_of(ep_op_work *w, int first) {
    const ep_operand *a = tensor(w, first), *b = tensor(w, first + 1);
    if (!a || !b || a->ndim != 2 || b->ndim != 2 || a->sizes[1] != b->sizes[0]) {
        unknown(w, "the recorded shapes are no matrix product");
        return;
    }
    gemm(w, a, b, 1, a->sizes[0], b->sizes[1], a->sizes[1]);
}

static void rule_mm(ep_op_work *w, const char *concrete, int flops) {
    (void)concrete, (void)flops;
    mm_of(w, 0);
}

static void rule_addmm(ep_op_work *w, const char *concrete, int flops) {
    (void)concrete, (void)flops;
    const ep_operand *c = tensor(w, 0);
    mm_of(w, 1);
    if (!w->known || !c) return;
    w->bias = true;
    w->bytes_read += c->bytes;
    w->flops += w->out_numel;
}

static void bmm_of(ep_op_work *w, int first) {
    const ep_operand *a = tensor(w, first), *b = tensor(w, first + 1);
    if (!a || !b || a->ndim != 3 || b->ndim != 3 || a->sizes[2] != b->sizes[1]) {
        unknown(w, "the recorded shapes are no batched product");
        return;
    }
    gemm(w, a, b, a->sizes[0], a->sizes[1], b->sizes[2], a->sizes[2]);
}

static void rule_bmm(ep_op_work *w, const char *concrete, int flops) {
    (void)concrete, (void)flops;
    bmm_of(w, 0);
}

static void rule_baddbmm(ep_op_work *w, const char *concrete, int flops) {
    (void)concrete, (void)flops;
    bmm_of(w, 1);
    if (w->known && tensor(w, 0)) w->bytes_read += w->in[0].bytes;
}

static void rule_linear(ep_op_work *w, const char *concrete, int flops) {
    (void)concrete, (void)flops;
    const ep_operand *x = tensor(w, 0), *b = tensor(w, 1), *c = tensor(w, 2);
    if (!x || !b || x->ndim < 1 || b->ndim != 2 || x->sizes[x->ndim - 1] != b->sizes[1] || b->sizes[1] <= 0) {
        unknown(w, "the recorded shapes are no linear");
        return;
    }
    gemm(w, x, b, 1, x->numel / b->sizes[1], b->sizes[0], b->sizes[1]);
    if (!c || c->ndim != 1) return;
    w->bias = true;
    w->bytes_read += c->bytes;
}

/* Vectors count as one row or one column; a second operand with two dims serves every batch. */
static void rule_matmul(ep_op_work *w, const char *concrete, int flops) {
    (void)concrete, (void)flops;
    const ep_operand *a = tensor(w, 0), *b = tensor(w, 1);
    if (!a || !b || a->ndim < 1 || b->ndim < 1) {
        unknown(w, "the recorded shapes are no product");
        return;
    }
    int64_t k = a->sizes[a->ndim - 1], kb = b->ndim == 1 ? b->sizes[0] : b->sizes[b->ndim - 2];
    int64_t n = b->ndim == 1 ? 1 : b->sizes[b->ndim - 1];
    if (k != kb || k <= 0 || n <= 0) {
        unknown(w, "the recorded shapes are no product");
        return;
    }
    int64_t rows = a->numel / k, batches_b = b->numel / (k * n);
    int64_t m = a->ndim == 1 ? 1 : a->sizes[a->ndim - 2], batches_a = m > 0 ? rows / m : 0;
    if (batches_b <= 1)
        gemm(w, a, b, 1, rows, n, k);
    else
        gemm(w, a, b, batches_a > batches_b ? batches_a : batches_b, m, n, k);
}

static void rule_addmv(ep_op_work *w, const char *concrete, int flops) {
    (void)concrete, (void)flops;
    const ep_operand *a = tensor(w, 1), *b = tensor(w, 2);
    if (!a || !b || a->ndim != 2 || b->ndim != 1 || a->sizes[1] != b->sizes[0]) {
        unknown(w, "the recorded shapes are no matrix times vector");
        return;
    }
    gemm(w, a, b, 1, a->sizes[0], 1, a->sizes[1]);
}

/* Output positions of a convolution: one size a spatial dim. */
static bool conv_positions(const ep_operand *x, const ep_operand *f, const int64_t *stride, const int64_t *pad,
                           const int64_t *dilation, int64_t *out) {
    *out = 1;
    for (int d = 2; d < x->ndim; d++) {
        int64_t s = stride[d - 2], reach = dilation[d - 2] * (f->sizes[d] - 1) + 1;
        int64_t room = x->sizes[d] + 2 * pad[d - 2] - reach;
        if (s <= 0 || room < 0) return false;
        *out *= room / s + 1;
    }
    return true;
}

static void conv_work(ep_op_work *w, const ep_operand *x, const ep_operand *f, int64_t positions) {
    int64_t out_channels = f->sizes[0], per_output = f->sizes[0] > 0 ? f->numel / f->sizes[0] : 0;
    int64_t outputs = product(x->sizes[0], out_channels, positions, 1);
    w->m = x->sizes[0] * positions, w->n = out_channels, w->k = per_output, w->batch = 1;
    set_dtype(w, x);
    set_output(w, outputs, x->element);
    known(w, product(2, outputs, per_output, 1), x->bytes + f->bytes, w->out_bytes);
}

/* `at`: the argument that holds the stride; padding and dilation stand at `pad_at` and `dilation_at`. */
static void conv_forward(ep_op_work *w, const char *concrete, int at, int pad_at, int dilation_at, int transposed_at) {
    const ep_operand *x = tensor(w, 0), *f = tensor(w, 1);
    int64_t stride[EP_TORCH_DIMS], pad[EP_TORCH_DIMS], dilation[EP_TORCH_DIMS], positions;
    if (!x || !f || x->ndim < 3 || x->ndim != f->ndim) {
        unknown(w, "the recorded shapes are no convolution");
        return;
    }
    if (!concrete || !*concrete) {
        unknown(w, "stride and padding were not recorded");
        return;
    }
    if (transposed_at >= 0 && ep_torch_flag(concrete, transposed_at)) {
        unknown(w, "a transposed convolution");
        return;
    }
    int n = x->ndim - 2;
    if (!ep_torch_ints(concrete, at, n, stride) || !ep_torch_ints(concrete, pad_at, n, pad) ||
        !ep_torch_ints(concrete, dilation_at, n, dilation) ||
        !conv_positions(x, f, stride, pad, dilation, &positions)) {
        unknown(w, "stride and padding were not recorded");
        return;
    }
    conv_work(w, x, f, positions);
}

static void rule_conv(ep_op_work *w, const char *concrete, int flops) {
    (void)flops;
    conv_forward(w, concrete, 3, 4, 5, w->input_count > 7 ? 6 : -1);
}

static void rule_cudnn_conv(ep_op_work *w, const char *concrete, int flops) {
    (void)flops;
    conv_forward(w, concrete, 3, 2, 4, -1);
}

static void rule_miopen_conv(ep_op_work *w, const char *concrete, int flops) {
    (void)flops;
    conv_forward(w, concrete, 4, 3, 5, -1);
}

/* One gradient of a convolution costs what the forward pass did: grad [N, O, positions], filter [O, I, ...]. */
static void conv_gradients(ep_op_work *w, const ep_operand *grad, const ep_operand *x, const ep_operand *f, int count) {
    if (!grad || !f || grad->ndim < 3 || grad->ndim != f->ndim || f->sizes[0] <= 0) {
        unknown(w, "the recorded shapes are no convolution");
        return;
    }
    int64_t per_output = f->numel / f->sizes[0];
    set_dtype(w, grad);
    set_output(w, f->numel, f->element);
    known(w, product(2 * count, grad->numel, per_output, 1), grad->bytes + f->bytes + (x ? x->bytes : 0),
          (count == 2 && x ? x->bytes : 0) + f->bytes);
}

static void rule_conv_backward(ep_op_work *w, const char *concrete, int flops) {
    (void)flops;
    int count = 2;
    bool mask[3];
    if (concrete && ep_torch_flags(concrete, w->input_count - 1, 3, mask)) count = mask[0] + mask[1];
    conv_gradients(w, tensor(w, 0), tensor(w, 1), tensor(w, 2), count);
}

static void rule_conv_wgrad_old(ep_op_work *w, const char *concrete, int flops) {
    (void)concrete, (void)flops;
    (void)w;
    unknown(w, "the weight's shape was not recorded");
}

static void rule_conv_dgrad_old(ep_op_work *w, const char *concrete, int flops) {
    (void)concrete, (void)flops;
    conv_gradients(w, tensor(w, 1), NULL, tensor(w, 2), 1);
}

/* q [B, H, Sq, D] and k [B, H, Sk, D], or with heads and sequence swapped; a causal mask halves the products. */
static void attention(ep_op_work *w, int first, int seq_dim, int flops, bool causal, bool backward) {
    const ep_operand *q = tensor(w, first), *k = tensor(w, first + 1), *v = tensor(w, first + 2);
    if (q && q->ndim == 3) {
        unknown(w, "packed sequences: their lengths are not recorded");
        return;
    }
    if (!q || !k || !v || q->ndim != 4 || k->ndim != 4) {
        unknown(w, "the recorded shapes are no attention");
        return;
    }
    int64_t keys = k->sizes[seq_dim], values = v->sizes[3], products = q->numel / (q->sizes[3] > 0 ? q->sizes[3] : 1);
    int64_t all = product(products, keys, q->sizes[3] + values, flops / 2);
    set_dtype(w, q);
    set_output(w, product(products, values, 1, 1), q->element);
    int64_t operands = q->bytes + k->bytes + v->bytes;
    known(w, causal ? all / 2 : all, operands + (backward ? 2 * q->bytes : 0), backward ? operands : w->out_bytes);
    w->at_least = causal;
}

static void rule_attention_bhsd(ep_op_work *w, const char *concrete, int flops) {
    bool causal = ep_torch_flag(concrete, 4) || ep_torch_flag(concrete, 5);
    attention(w, 0, 2, flops, causal, false);
}

static void rule_attention_bshd(ep_op_work *w, const char *concrete, int flops) {
    bool causal = ep_torch_flag(concrete, 8) || ep_torch_flag(concrete, 9);
    attention(w, 0, 1, flops, causal, false);
}

static void rule_attention_backward_bhsd(ep_op_work *w, const char *concrete, int flops) {
    (void)concrete;
    attention(w, 1, 2, flops, true, true);
}

static void rule_attention_backward_bshd(ep_op_work *w, const char *concrete, int flops) {
    (void)concrete;
    attention(w, 1, 1, flops, true, true);
}

/* The broadcast shape of the tensors among the first arguments; false if there is none. */
static bool broadcast(const ep_op_work *w, int64_t *numel, int *element, int64_t *read, char *dtype) {
    int64_t sizes[EP_TORCH_DIMS] = {0};
    int ndim = -1, wide = 0;
    *read = 0;
    for (int i = 0; i < w->input_count; i++) {
        const ep_operand *o = tensor(w, i);
        if (!o) continue;
        if (o->ndim > ndim) {
            memmove(sizes + (o->ndim - (ndim < 0 ? 0 : ndim)), sizes, sizeof(int64_t) * (size_t)(ndim < 0 ? 0 : ndim));
            for (int d = 0; d < o->ndim - (ndim < 0 ? 0 : ndim); d++) sizes[d] = 1;
            ndim = o->ndim;
        }
        for (int d = 0; d < o->ndim; d++) {
            int64_t *s = &sizes[ndim - o->ndim + d];
            if (*s <= 1) *s = o->sizes[d];
        }
        if (o->element > wide && o->ndim > 0) wide = o->element, memcpy(dtype, o->dtype, sizeof w->dtype);
        *read += o->bytes;
    }
    if (ndim < 0) return false;
    *numel = 1;
    for (int d = 0; d < ndim; d++) *numel = product(*numel, sizes[d], 1, 1);
    *element = wide ? wide : 4;
    return true;
}

static void pointwise(ep_op_work *w, int flops, int result_element) {
    int64_t numel, read;
    int element;
    if (!broadcast(w, &numel, &element, &read, w->dtype)) {
        unknown(w, "no tensor among the recorded arguments");
        return;
    }
    set_output(w, numel, result_element ? result_element : element);
    known(w, product(numel, flops, 1, 1), read, w->out_bytes);
}

static void rule_pointwise(ep_op_work *w, const char *concrete, int flops) {
    (void)concrete;
    pointwise(w, flops, 0);
}

static void rule_compare(ep_op_work *w, const char *concrete, int flops) {
    (void)concrete;
    pointwise(w, flops, 1);
}

static void rule_dropout(ep_op_work *w, const char *concrete, int flops) {
    (void)concrete;
    pointwise(w, flops, 0);
    if (w->known) w->bytes_written += w->out_numel; /* the mask */
}

static void rule_fill(ep_op_work *w, const char *concrete, int flops) {
    (void)concrete, (void)flops;
    const ep_operand *x = tensor(w, 0);
    if (!x) {
        unknown(w, "no tensor among the recorded arguments");
        return;
    }
    set_output(w, x->numel, x->element);
    set_dtype(w, x);
    w->writes_first = true;
    known(w, 0, 0, x->bytes);
}

static void rule_copy(ep_op_work *w, const char *concrete, int flops) {
    (void)concrete, (void)flops;
    const ep_operand *to = tensor(w, 0), *from = tensor(w, 1);
    if (!to || !from) {
        unknown(w, "no tensor among the recorded arguments");
        return;
    }
    set_output(w, to->numel, to->element);
    set_dtype(w, to);
    w->writes_first = true;
    known(w, 0, from->bytes, to->bytes);
}

static void rule_move(ep_op_work *w, const char *concrete, int flops) {
    (void)concrete, (void)flops;
    const ep_operand *x = tensor(w, 0);
    if (!x) {
        unknown(w, "no tensor among the recorded arguments");
        return;
    }
    set_output(w, x->numel, x->element);
    set_dtype(w, x);
    known(w, 0, x->bytes, x->bytes);
}

static void rule_cat(ep_op_work *w, const char *concrete, int flops) {
    (void)concrete, (void)flops;
    const ep_operand *list = w->input_count > 0 && w->in[0].list ? &w->in[0] : NULL;
    if (!list || !list->bytes) {
        unknown(w,
                list && list->numel ? "the dtype of a list is not recorded" : "the sizes of a list are not recorded");
        return;
    }
    set_output(w, list->numel, list->element);
    set_dtype(w, list);
    known(w, 0, list->bytes, list->bytes);
}

static void rule_foreach(ep_op_work *w, const char *concrete, int flops) {
    (void)concrete;
    int64_t read = 0;
    for (int i = 0; i < w->input_count; i++) read += w->in[i].tensor ? w->in[i].bytes : 0;
    const ep_operand *list = w->input_count > 0 && w->in[0].list ? &w->in[0] : NULL;
    if (!list || !list->bytes) {
        unknown(w,
                list && list->numel ? "the dtype of a list is not recorded" : "the sizes of a list are not recorded");
        return;
    }
    set_output(w, list->numel, list->element);
    set_dtype(w, list);
    w->writes_first = !flops;
    known(w, list->numel * flops, flops ? read : read - list->bytes, list->bytes);
}

static void rule_norm(ep_op_work *w, const char *concrete, int flops) {
    (void)concrete;
    const ep_operand *x = tensor(w, 0);
    if (!x) {
        unknown(w, "no tensor among the recorded arguments");
        return;
    }
    int64_t parameters = 0;
    for (int i = 1; i < w->input_count; i++)
        if (tensor(w, i) && w->in[i].ndim == 1) parameters += w->in[i].bytes;
    set_output(w, x->numel, x->element);
    set_dtype(w, x);
    known(w, x->numel * flops, x->bytes + parameters, x->bytes);
}

static void rule_norm_backward(ep_op_work *w, const char *concrete, int flops) {
    rule_norm(w, concrete, flops);
    if (w->known && tensor(w, 1)) w->bytes_read += w->in[1].ndim > 1 ? w->in[1].bytes : 0;
}

/* Which dims go is not always recorded: what is written is left out, so the bytes are a lower bound. */
static void rule_reduce(ep_op_work *w, const char *concrete, int flops) {
    (void)concrete;
    const ep_operand *x = tensor(w, 0);
    if (!x) {
        unknown(w, "no tensor among the recorded arguments");
        return;
    }
    set_dtype(w, x);
    known(w, x->numel * flops, x->bytes, 0);
    w->at_least = true;
}

static void gather(ep_op_work *w, const ep_operand *table, const ep_operand *index) {
    if (!table || !index || table->ndim < 1 || table->sizes[0] <= 0) {
        unknown(w, "the recorded shapes are no table and index");
        return;
    }
    int64_t row = table->numel / table->sizes[0];
    set_output(w, product(index->numel, row, 1, 1), table->element);
    set_dtype(w, table);
    known(w, 0, w->out_bytes + index->bytes, w->out_bytes);
}

static void rule_embedding(ep_op_work *w, const char *concrete, int flops) {
    (void)concrete, (void)flops;
    gather(w, tensor(w, 0), tensor(w, 1));
}

static void rule_index_select(ep_op_work *w, const char *concrete, int flops) {
    (void)flops;
    int64_t dim;
    if (!ep_torch_ints(concrete, 1, 1, &dim) || dim != 0) {
        unknown(w, "the dim was not recorded");
        return;
    }
    gather(w, tensor(w, 0), tensor(w, 2));
}

enum {
    RULE_MM,
    RULE_ADDMM,
    RULE_BMM,
    RULE_BADDBMM,
    RULE_LINEAR,
    RULE_MATMUL,
    RULE_ADDMV,
    RULE_CONV,
    RULE_CUDNN_CONV,
    RULE_MIOPEN_CONV,
    RULE_CONV_BACKWARD,
    RULE_CONV_WGRAD_OLD,
    RULE_CONV_DGRAD_OLD,
    RULE_ATTENTION_BHSD,
    RULE_ATTENTION_BSHD,
    RULE_ATTENTION_BACKWARD_BHSD,
    RULE_ATTENTION_BACKWARD_BSHD,
    RULE_POINTWISE,
    RULE_COMPARE,
    RULE_FILL,
    RULE_DROPOUT,
    RULE_COPY,
    RULE_MOVE,
    RULE_CAT,
    RULE_NORM,
    RULE_NORM_BACKWARD,
    RULE_REDUCE,
    RULE_EMBEDDING,
    RULE_INDEX_SELECT,
    RULE_FOREACH
};

static const work_rule rules[] = {
    [RULE_MM] = rule_mm,
    [RULE_ADDMM] = rule_addmm,
    [RULE_BMM] = rule_bmm,
    [RULE_BADDBMM] = rule_baddbmm,
    [RULE_LINEAR] = rule_linear,
    [RULE_MATMUL] = rule_matmul,
    [RULE_ADDMV] = rule_addmv,
    [RULE_CONV] = rule_conv,
    [RULE_CUDNN_CONV] = rule_cudnn_conv,
    [RULE_MIOPEN_CONV] = rule_miopen_conv,
    [RULE_CONV_BACKWARD] = rule_conv_backward,
    [RULE_CONV_WGRAD_OLD] = rule_conv_wgrad_old,
    [RULE_CONV_DGRAD_OLD] = rule_conv_dgrad_old,
    [RULE_ATTENTION_BHSD] = rule_attention_bhsd,
    [RULE_ATTENTION_BSHD] = rule_attention_bshd,
    [RULE_ATTENTION_BACKWARD_BHSD] = rule_attention_backward_bhsd,
    [RULE_ATTENTION_BACKWARD_BSHD] = rule_attention_backward_bshd,
    [RULE_POINTWISE] = rule_pointwise,
    [RULE_COMPARE] = rule_compare,
    [RULE_FILL] = rule_fill,
    [RULE_DROPOUT] = rule_dropout,
    [RULE_COPY] = rule_copy,
    [RULE_MOVE] = rule_move,
    [RULE_CAT] = rule_cat,
    [RULE_NORM] = rule_norm,
    [RULE_NORM_BACKWARD] = rule_norm_backward,
    [RULE_REDUCE] = rule_reduce,
    [RULE_EMBEDDING] = rule_embedding,
    [RULE_INDEX_SELECT] = rule_index_select,
    [RULE_FOREACH] = rule_foreach,
};

static const struct {
    const char *name;
    int rule, flops;
} ops[] = {
#define EP_TORCH_OP(name, rule, flops) {name, RULE_##rule, flops},
#include "torch_ops.def"
#undef EP_TORCH_OP
};

/* An Inductor Triton kernel touches each tensor it is given at least once; which of them it writes is not recorded. */
static void triton_work(ep_op_work *w) {
    int64_t bytes = 0, largest = 0;
    for (int i = 0; i < w->input_count; i++) {
        const ep_operand *o = tensor(w, i);
        if (!o) continue;
        bytes += o->bytes;
        if (o->bytes > largest) largest = o->bytes, w->out_numel = o->numel, w->out_bytes = o->bytes, set_dtype(w, o);
    }
    if (!bytes) {
        unknown(w, "no tensor among the recorded arguments");
        return;
    }
    known(w, 0, bytes, 0);
    w->at_least = true;
}

void ep_torch_work(const ep_trace *t, uint32_t op, ep_op_work *w) {
    memset(w, 0, sizeof *w);
    const ep_event_info *info = &t->infos[t->info[op]];
    if (info->flops >= 0 && info->bytes_read >= 0 && t->info[op]) {
        known(w, info->flops, info->bytes_read, info->bytes_written > 0 ? info->bytes_written : 0);
        w->out_bytes = w->bytes_written;
    }
    const char *dims = info->input_dims ? ep_trace_text(t, info->input_dims) : NULL;
    if (!dims) {
        if (!w->known)
            w->reason = t->has_shapes ? "no shapes were recorded for this op" : "no shapes: record_shapes was off";
        return;
    }
    bool ours = w->known;
    w->input_count =
        ep_torch_operands(dims, info->input_types ? ep_trace_text(t, info->input_types) : "", w->in, EP_TORCH_INPUTS);
    if (info->input_strides) ep_torch_strides(ep_trace_text(t, info->input_strides), w->in, w->input_count);
    const char *name = ep_trace_text(t, t->name[op]);
    const char *concrete = info->concrete_inputs ? ep_trace_text(t, info->concrete_inputs) : "";
    int64_t flops = w->flops, read = w->bytes_read, written = w->bytes_written;
    if (strncmp(name, "triton_", 7) == 0) {
        triton_work(w);
        return;
    }
    w->reason = "no rule for this op";
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
        if (strcmp(ops[i].name, name) == 0) {
            rules[ops[i].rule](w, concrete, ops[i].flops);
            break;
        }
    if (ours) known(w, flops, read, written);
}
