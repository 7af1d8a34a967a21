/* Pointwise ops and copies on the device: flat where every operand is dense, else by collapsed strides. */
#include <stdio.h>
#include <string.h>

#include "cuda_state.h"
#include "kernels/common/strided.cuh"

enum { FLAT, STRIDED, FORMS };

/* Names of every kernel: [op][dtype][form]; the order of dtypes is ep_dtype's. */
static const char *const names[][3][FORMS] = {
#define EP_POINTWISE(ID, name, aten, arity, flops, formula)                                                            \
    {{"ep_f32_" #name "_sm80_v16", "ep_f32_" #name "_sm80_strided"},                                                   \
     {"ep_bf16_" #name "_sm80_v16", "ep_bf16_" #name "_sm80_strided"},                                                 \
     {"ep_f16_" #name "_sm80_v16", "ep_f16_" #name "_sm80_strided"}},
#include <epilogue/pointwise.def>
#undef EP_POINTWISE
};

static bool aligned16(const ep_tensor *t) {
    return (uintptr_t)t->data % 16 == 0;
}

static int64_t distinct(const ep_tensor *t) {
    int64_t n = 1;
    for (int d = 0; d < t->ndim; d++)
        if (t->sizes[d] > 1 && t->strides[d] == 0)
            continue;
        else
            n *= t->sizes[d];
    return n;
}

static void count_bytes(cuda_launch *l, int count, const ep_tensor *const *in, const ep_tensor *out, int flops) {
    l->bytes_read = 0;
    for (int i = 0; i < count; i++) l->bytes_read += distinct(in[i]) * (int64_t)ep_dtype_size(in[i]->dtype);
    l->bytes_written = out->numel * (int64_t)ep_dtype_size(out->dtype);
    l->flops = out->numel * flops;
}

/* Fills the collapsed index space of out and the inputs. */
static ep_status collapse(int count, const ep_tensor *const *in, const ep_tensor *out, ep_strided_args *a,
                          ep_error *err) {
    int64_t sizes[EP_MAX_DIMS], strides[4][EP_MAX_DIMS];
    if (count > 3) return ep_fail(err, EP_ERROR_INTERNAL, "%d inputs to a pointwise kernel", count);
    memcpy(sizes, out->sizes, sizeof sizes);
    for (int i = 0; i < count; i++) memcpy(strides[i], in[i]->strides, sizeof strides[i]);
    memcpy(strides[count], out->strides, sizeof strides[count]);
    a->ndim = ep_stride_collapse(out->ndim, sizes, count + 1, strides);
    a->count = count;
    a->numel = out->numel;
    a->out = out->data;
    a->out_dtype = (int)out->dtype;
    for (int d = 0; d < a->ndim; d++) {
        a->sizes[d] = sizes[d];
        a->out_strides[d] = strides[count][d];
        for (int i = 0; i < count; i++) a->in_strides[i][d] = strides[i][d];
    }
    for (int i = 0; i < count; i++) {
        a->in[i] = in[i]->data;
        a->in_dtype[i] = (int)in[i]->dtype;
    }
    return EP_OK;
}

static ep_status run_strided(cuda_state *s, cuda_launch *l, ep_strided_args *a, ep_error *err) {
    int64_t blocks = (a->numel + 1023) / 1024, most = (int64_t)s->sm_count * 32;
    l->grid[0] = (unsigned)(blocks < most ? blocks : most);
    l->grid[1] = l->grid[2] = 1;
    l->block = 256;
    void *params[] = {a};
    return cuda_run(s, l, params, err);
}

/* Dense everywhere and aligned: scalars (all strides 0) allowed. */
static bool is_flat(const ep_strided_args *a, int count, const ep_tensor *const *in, const ep_tensor *out,
                    unsigned *scalar) {
    *scalar = 0;
    if (a->ndim > 1 || (a->ndim == 1 && a->out_strides[0] != 1) || !aligned16(out)) return false;
    for (int i = 0; i < count; i++) {
        int64_t stride = a->ndim ? a->in_strides[i][0] : 0;
        if (stride == 0)
            *scalar |= 1u << i;
        else if (stride != 1 || !aligned16(in[i]))
            return false;
    }
    return true;
}

ep_status cuda_pointwise(ep_backend *b, ep_op op, int count, const ep_tensor *const *in, ep_tensor *out,
                         ep_error *err) {
    if (out->numel == 0) return EP_OK;
    cuda_state *s = cuda_of(b);
    ep_strided_args a = {0};
    EP_TRY(collapse(count, in, out, &a, err));
    cuda_launch l = {0};
    count_bytes(&l, count, in, out, ep_op_get(op)->flops);
    bool uniform = ep_dtype_is_float(out->dtype);
    for (int i = 0; i < count; i++) uniform = uniform && in[i]->dtype == out->dtype;
    if (!uniform) {
        a.op = (int)op;
        l.name = "ep_any_pointwise_sm80_strided";
        return run_strided(s, &l, &a, err);
    }
    unsigned scalar;
    if (!is_flat(&a, count, in, out, &scalar)) {
        l.name = names[op][out->dtype][STRIDED];
        return run_strided(s, &l, &a, err);
    }
    ep_flat_args f = {.out = out->data, .numel = out->numel, .scalar = scalar};
    for (int i = 0; i < count; i++) f.in[i] = in[i]->data;
    int64_t per_block = 256 * 4 * 16 / (int64_t)ep_dtype_size(out->dtype);
    l.name = names[op][out->dtype][FLAT];
    l.grid[0] = (unsigned)((out->numel + per_block - 1) / per_block);
    l.grid[1] = l.grid[2] = 1;
    l.block = 256;
    void *params[] = {&f};
    return cuda_run(s, &l, params, err);
}

/* Elements of 16 bytes where all inner runs allow it: the collapsed space in wider units. */
static const char *widen_copy(ep_strided_args *a, size_t size) {
    static const char *const by_size[] = {"ep_b8_copy_sm80_strided", "ep_b16_copy_sm80_strided",
                                          "ep_b32_copy_sm80_strided", "ep_b64_copy_sm80_strided",
                                          "ep_b128_copy_sm80_strided"};
    int level = size == 1 ? 0 : size == 2 ? 1 : size == 4 ? 2 : 3;
    while (level < 4 && a->ndim > 0) {
        int last = a->ndim - 1;
        bool can = a->in_strides[0][last] == 1 && a->out_strides[last] == 1 && a->sizes[last] % 2 == 0;
        uintptr_t step = (uintptr_t)1 << (level + 1);
        can = can && (uintptr_t)a->in[0] % step == 0 && (uintptr_t)a->out % step == 0;
        for (int d = 0; d < last; d++) can = can && a->in_strides[0][d] % 2 == 0 && a->out_strides[d] % 2 == 0;
        if (!can) break;
        a->sizes[last] /= 2;
        a->numel /= 2;
        for (int d = 0; d < last; d++) {
            a->in_strides[0][d] /= 2;
            a->out_strides[d] /= 2;
        }
        level++;
    }
    return by_size[level];
}

ep_status cuda_copy(ep_backend *b, const ep_tensor *in, ep_tensor *out, ep_error *err) {
    if (out->numel == 0) return EP_OK;
    ep_strided_args a = {0};
    EP_TRY(collapse(1, &in, out, &a, err));
    cuda_launch l = {.name = "ep_any_copy_sm80_strided"};
    count_bytes(&l, 1, &in, out, 0);
    if (in->dtype == out->dtype) l.name = widen_copy(&a, ep_dtype_size(in->dtype));
    return run_strided(cuda_of(b), &l, &a, err);
}
