/* act(gate) * up alone, forward and backward: rows merged where they follow one another, vectors as wide as addresses
 * and row strides allow, so packed halves of any width are read in place. */
#include <string.h>

#include "cuda_state.h"

typedef struct gated_args { /* as kernels/sm80/gated_sm80.cu declares it */
    const void *g, *u, *dy;
    void *y, *du;
    int64_t g_row, u_row, dy_row, y_row, du_row, vectors;
    uint32_t per_row, tail;
} gated_args;

#define ROUNDINGS(dtype, act, back, v)                                                                                 \
    { "ep_" dtype "_gated_" act back "_sm80_v" v "_eager", "ep_" dtype "_gated_" act back "_sm80_v" v "_fewest" }
#define WIDTHS(dtype, act, back)                                                                                       \
    {                                                                                                                  \
        ROUNDINGS(dtype, act, back, "1"), ROUNDINGS(dtype, act, back, "2"), ROUNDINGS(dtype, act, back, "4"),          \
            ROUNDINGS(dtype, act, back, "8")                                                                           \
    }
#define DIRECTIONS(dtype, act)                                                                                         \
    { WIDTHS(dtype, act, ""), WIDTHS(dtype, act, "_backward") }
#define ACTS(dtype)                                                                                                    \
    {                                                                                                                  \
        DIRECTIONS(dtype, "gelu_tanh"), DIRECTIONS(dtype, "gelu_erf"), DIRECTIONS(dtype, "silu"),                      \
            DIRECTIONS(dtype, "relu")                                                                                  \
    }
/* [dtype][act - 1][backward][log2 width][rounding]; f32 has no eager form, since nothing is rounded in between. */
static const char *const names[3][4][2][4][2] = {ACTS("f32"), ACTS("bf16"), ACTS("f16")};

enum { OPERANDS = 5 };

/* Two-dim form of a tensor for a row-by-row walk: false if its leading dims do not merge into one row stride. */
static bool as_rows(int64_t rows, int64_t cols, const ep_tensor *t, int64_t *row) {
    int64_t sizes[1][EP_MAX_DIMS], strides[1][EP_MAX_DIMS];
    memcpy(sizes[0], t->sizes, sizeof sizes[0]);
    memcpy(strides[0], t->strides, sizeof strides[0]);
    if (cols > 1 && t->strides[t->ndim - 1] != 1) return false;
    int n = ep_stride_collapse(t->ndim - 1, sizes[0], 1, strides);
    *row = n == 0 ? cols : strides[0][0];
    return rows <= 1 || n == 1;
}

static int width_log2(int count, const ep_tensor *const *t, const int64_t *rows, bool one_row, int64_t cols, int most) {
    size_t size = ep_dtype_size(t[0]->dtype);
    for (int v = most; v > 0; v--) {
        int64_t n = (int64_t)1 << v;
        bool can = one_row || cols % n == 0;
        for (int i = 0; i < count && can; i++)
            can = (uintptr_t)t[i]->data % ((size_t)n * size) == 0 && (one_row || rows[i] % n == 0);
        if (can) return v;
    }
    return 0;
}

/* What no row stride describes, made dense. */
static ep_status dense_copy(ep_backend *b, const ep_tensor *t, ep_tensor *made, ep_storage **keep, ep_error *err) {
    EP_TRY(cuda_storage_create(cuda_of(b), (size_t)t->numel * ep_dtype_size(t->dtype), err, keep));
    *made = *t;
    made->data = (*keep)->data;
    ep_stride_contiguous(made->ndim, made->sizes, made->strides);
    return cuda_copy(b, t, made, err);
}

static ep_status run(ep_backend *b, ep_act act, ep_rounding rounding, bool backward, const ep_tensor *const *t,
                     ep_error *err) {
    cuda_state *s = cuda_of(b);
    int count = backward ? 5 : 3; /* g, u, y | dg, dy, du */
    int64_t cols = t[0]->ndim ? t[0]->sizes[t[0]->ndim - 1] : 1, rows = t[0]->numel / cols, stride[OPERANDS];
    bool one_row = true;
    for (int i = 0; i < count; i++) {
        if (t[i]->ndim == 0)
            stride[i] = 1;
        else if (!as_rows(rows, cols, t[i], &stride[i]))
            return ep_fail(err, EP_ERROR_STRIDE, "the output of a gated kernel must be rows of adjacent elements");
        one_row = one_row && (rows == 1 || stride[i] == cols);
    }
    if (one_row) cols *= rows, rows = 1;
    int most = t[0]->dtype == EP_DTYPE_F32 ? 2 : 3, v = width_log2(count, t, stride, one_row, cols, most);
    int64_t n = (int64_t)1 << v, per_row = cols / n;
    if (per_row > UINT32_MAX && rows > 1)
        return ep_fail(err, EP_ERROR_UNSUPPORTED, "rows of %lld elements are longer than a gated kernel takes",
                       (long long)cols);
    gated_args a = {t[0]->data,
                    t[1]->data,
                    backward ? t[3]->data : NULL,
                    t[2]->data,
                    backward ? t[4]->data : NULL,
                    stride[0],
                    stride[1],
                    backward ? stride[3] : 0,
                    stride[2],
                    backward ? stride[4] : 0,
                    rows * per_row,
                    rows == 1 ? 0 : (uint32_t)per_row,
                    rows == 1 ? (uint32_t)(cols - per_row * n) : 0};
    bool fewest = rounding == EP_ROUNDING_FEWEST || t[0]->dtype == EP_DTYPE_F32;
    int64_t per_block = 256, size = (int64_t)ep_dtype_size(t[0]->dtype);
    cuda_launch l = {.name = names[t[0]->dtype][act - 1][backward][v][fewest], .block = 256};
    l.grid[0] = (unsigned)((a.vectors + per_block - 1) / per_block);
    if (l.grid[0] == 0) l.grid[0] = 1;
    l.grid[1] = l.grid[2] = 1;
    l.flops = t[0]->numel * (ep_op_get(ep_act_op(act))->flops + 1) * (backward ? 2 : 1);
    l.bytes_read = t[0]->numel * size * (backward ? 3 : 2);
    l.bytes_written = t[0]->numel * size * (backward ? 2 : 1);
    void *params[] = {&a};
    return cuda_run(s, &l, params, err);
}

static ep_status check(ep_act act, const ep_tensor *t, ep_error *err) {
    if (act <= EP_ACT_NONE || act >= EP_ACT_COUNT)
        return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "a gated kernel needs an activation");
    if (!ep_dtype_is_float(t->dtype))
        return ep_fail(err, EP_ERROR_DTYPE, "gated kernels take f32, bf16 and f16, not %s", ep_dtype_name(t->dtype));
    return EP_OK;
}

/* Inputs that are not rows become dense copies; outputs must be rows. */
static ep_status run_any(ep_backend *b, ep_act act, ep_rounding rounding, bool backward, const ep_tensor **t,
                         ep_error *err) {
    static const int inputs[] = {0, 1, 3};
    ep_tensor made[3];
    ep_storage *keep[3] = {NULL, NULL, NULL};
    ep_status status = check(act, t[0], err);
    for (int i = 0; i < (backward ? 3 : 2) && status == EP_OK && t[0]->numel; i++) {
        const ep_tensor *x = t[inputs[i]];
        int64_t row, cols = x->ndim ? x->sizes[x->ndim - 1] : 1;
        if (x->ndim == 0 || as_rows(x->numel / cols, cols, x, &row)) continue;
        status = dense_copy(b, x, &made[i], &keep[i], err);
        t[inputs[i]] = &made[i];
    }
    if (status == EP_OK && t[0]->numel) status = run(b, act, rounding, backward, t, err);
    for (int i = 0; i < 3; i++) ep_storage_release(keep[i]);
    return status;
}

ep_status cuda_gated(ep_backend *b, ep_act act, ep_rounding rounding, const ep_tensor *gate, const ep_tensor *up,
                     ep_tensor *out, ep_error *err) {
    const ep_tensor *t[OPERANDS] = {gate, up, out, NULL, NULL};
    return run_any(b, act, rounding, false, t, err);
}

ep_status cuda_gated_backward(ep_backend *b, ep_act act, ep_rounding rounding, const ep_tensor *dy,
                              const ep_tensor *gate, const ep_tensor *up, ep_tensor *dgate, ep_tensor *dup,
                              ep_error *err) {
    const ep_tensor *t[OPERANDS] = {gate, up, dgate, dy, dup};
    return run_any(b, act, rounding, true, t, err);
}
