/* The list of a GPU's ahead-of-time kernels for people: for one gated block, each with the reason of its choice. */
#include <epilogue/kernels.h>

#include <stdio.h>
#include <string.h>

#include "cuda_images.h"
#include "cuda_select.h"
#include "cuda_state.h"

typedef struct list {
    const ep_kernel_question *q;
    cuda_state device; /* without one: all zero */
    bool there;
    int whole; /* the kernel for all of the block, or -1 */
    ep_kernel_row *out;
    size_t max, count;
} list;

static const char NO_NVCC[] = "not in this build: it was made without nvcc", ONE[] = "one kernel makes the whole block";

static void add(list *l, ep_kernel_row row) {
    row.dtype = ep_dtype_name(l->q->dtype);
    if (!l->there) row.used = false, row.why = "";
    if (row.used) row.why = "";
    if (l->count < l->max) l->out[l->count] = row;
    l->count++;
}

static cuda_shape shape_of(const list *l, bool gated) {
    const ep_kernel_question *q = l->q;
    return (cuda_shape){.m = q->rows,
                        .n = gated ? q->hidden : q->dim,
                        .k = gated ? q->dim : q->hidden,
                        .dtype = q->dtype,
                        .gated = gated,
                        .act = gated ? q->act : EP_ACT_NONE,
                        .major = l->device.major,
                        .sm_count = l->device.sm_count,
                        .rounding = q->rounding};
}

static void add_blocks(list *l) {
    static const char *const takes[] = {
#define EP_CUDA_BLOCK(form, what, rows, h, y, stages, y_stages) "a whole " #what " of up to " #rows " rows",
#include "cuda_blocks.def"
#undef EP_CUDA_BLOCK
    };
    static const char *const tiles[] = {
#define EP_CUDA_BLOCK(form, what, rows, h, y, stages, y_stages) #form "_sm90a_m" #rows "h" #h "y" #y,
#include "cuda_blocks.def"
#undef EP_CUDA_BLOCK
    };
    cuda_shape s = shape_of(l, true);
    for (int i = 0; i < (int)cuda_block_row_count; i++) {
        const char *why = l->device.one_kernel == CUDA_ONE_NEVER ? "EPILOGUE_ONE_KERNEL=0 forbids it"
                          : !cuda_image_count
                              ? NO_NVCC
                              : cuda_block_reason(&s, l->q->dim, l->device.one_kernel == CUDA_ONE_ALWAYS, i);
        add(l, (ep_kernel_row){.mode = "tuned",
                               .family = "block",
                               .isa = "sm_90a",
                               .tile = tiles[i],
                               .limits = takes[i],
                               .used = i == l->whole,
                               .why = why});
    }
}

/* gate + up, or down. The library's row is last, as it takes what no other does. */
static void add_products(list *l, bool gated) {
    cuda_shape s = shape_of(l, gated);
    int chosen = l->there && cuda_image_count ? cuda_select(&s) : -1;
    bool library = cuda_select_library(&s, chosen, false);
    for (int i = 0; i < (int)cuda_gemm_row_count; i++) {
        const cuda_gemm_row *r = &cuda_gemm_rows[i];
        if (r->gated != gated) continue;
        const char *why = !cuda_image_count ? NO_NVCC : l->whole >= 0 ? ONE : cuda_select_reason(&s, i);
        if (l->whole < 0 && i == chosen && library) why = "cuBLASLt is as fast here, or faster";
        add(l, (ep_kernel_row){.mode = "tuned",
                               .family = gated ? "gated" : "gemm",
                               .isa = r->only_major ? "sm_90a" : "sm_80",
                               .tile = r->form,
                               .limits = r->why,
                               .used = l->whole < 0 && i == chosen && !library,
                               .why = why});
    }
    add(l, (ep_kernel_row){.mode = "tuned",
                           .family = gated ? "gated" : "gemm",
                           .isa = "library",
                           .tile = gated ? "cublaslt + gated_sm80" : "cublaslt",
                           .limits = gated ? "two products, then act(g) * u" : "any layout and dtype",
                           .used = l->whole < 0 && library,
                           .why = l->whole >= 0 ? ONE : "a kernel of ours is faster"});
}

/* What eager and compiled modes use besides the library and generated code; any shape and stride. */
static void add_rest(list *l) {
    static const struct {
        const char *mode, *family, *tile, *limits;
    } rows[] = {{"eager", "pointwise", "pointwise_sm80", "any stride"},
                {"eager", "rows", "reduce_sm80", "sums, means, maxima, norms over rows"},
                {"tuned", "gated alone", "gated_sm80", "act(g) * u and its backward, any shape"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bool built = false;
        for (size_t k = 0; k < cuda_image_count; k++) built = built || strcmp(cuda_images[k].name, rows[i].tile) == 0;
        add(l, (ep_kernel_row){.mode = rows[i].mode,
                               .family = rows[i].family,
                               .isa = "sm_80",
                               .tile = rows[i].tile,
                               .limits = rows[i].limits,
                               .used = built,
                               .why = NO_NVCC});
    }
}

ep_status ep_gpu_kernel_rows(const ep_kernel_question *question, ep_error *err, ep_kernel_row *out, size_t max,
                             size_t *count, char *device_name) {
    if (!question || !count || (max && !out))
        return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "the question, or where the rows go, is NULL");
    list l = {.q = question, .whole = -1, .out = out, .max = max};
    ep_status status = cuda_state_look(question->device, err, &l.device);
    l.there = status == EP_OK;
    if (device_name) snprintf(device_name, 96, "%s", l.there ? l.device.name : "");
    cuda_shape s = shape_of(&l, true);
    if (l.there && cuda_image_count && l.device.one_kernel != CUDA_ONE_NEVER)
        l.whole = cuda_select_block(&s, question->dim, l.device.one_kernel == CUDA_ONE_ALWAYS);
    add_blocks(&l);
    add_products(&l, true);
    add_products(&l, false);
    add_rest(&l);
    *count = l.count;
    return status;
}
