/* Weights into panels, in parallel, in memory aligned for lines and huge pages. tuned.h says what a panel is. */
#define _GNU_SOURCE
#include "tuned_trial.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/parallel.h"

enum { HUGE_PAGE = 2 << 20 };

void *ep_tuned_alloc(size_t bytes) {
    size_t align = bytes >= HUGE_PAGE ? HUGE_PAGE : 64;
    if (bytes > SIZE_MAX - align) return NULL;
    size_t size = (bytes + align - 1) / align * align;
    void *p = aligned_alloc(align, size ? size : align);
#ifdef MADV_HUGEPAGE
    if (p && align == HUGE_PAGE) madvise(p, size, MADV_HUGEPAGE);
#endif
    return p;
}

typedef struct pack_job {
    const ep_pack_request *q;
    ep_packed *p;
} pack_job;

/* Where a panel's column starts in its weight and how far it steps along k, in elements; NULL beyond the last. */
typedef struct column {
    const char *at;
    int64_t step;
} column;

static column find_column(const ep_pack_request *q, const ep_packed *p, int64_t panel, int c) {
    int half = p->row->half;
    size_t size = ep_dtype_size(p->dtype);
    int64_t j = p->pair ? panel * half + c % half : panel * 2 * half + c;
    if (j >= p->n) return (column){NULL, 0};
    if (p->pair && c >= half) return (column){(const char *)q->w1 + (size_t)(j * q->w1_row) * size, q->w1_col};
    return (column){(const char *)q->w0 + (size_t)(j * q->w0_row) * size, q->w0_col};
}

/* 16 quads of one column, 4 * width bytes apart in the panel. `k` is how many elements are left. */
static void put_column4(char *dst, int64_t width, const char *src, int64_t step, int64_t k) {
    for (int i = 0; i < 16; i++) {
        uint32_t v = 0;
        if (i < k) memcpy(&v, src + 4 * i * step, 4);
        memcpy(dst + i * width * 4, &v, 4);
    }
}

static void put_column_pairs(char *dst, int64_t width, const char *src, int64_t step, int64_t k) {
    if (step == 1 && k >= 32) {
        put_column4(dst, width, src, 1, 16);
        return;
    }
    for (int i = 0; i < 32; i++) {
        uint16_t v = 0;
        if (i < k) memcpy(&v, src + 2 * i * step, 2);
        memcpy(dst + (i / 2) * width * 4 + (i % 2) * 2, &v, 2);
    }
}

static void put_column2(char *dst, int64_t width, const char *src, int64_t step, int64_t k) {
    for (int i = 0; i < 32; i++) {
        uint16_t v = 0;
        if (i < k) memcpy(&v, src + 2 * i * step, 2);
        memcpy(dst + i * width * 2, &v, 2);
    }
}

static void pack_panel(const pack_job *job, int64_t panel) {
    const ep_packed *p = job->p;
    int width = 2 * p->row->half, kc = p->row->chunk_k;
    int64_t size = (int64_t)ep_dtype_size(p->dtype), chunk_bytes = 64 * width;
    bool quad = p->dtype == EP_DTYPE_F32, pairs = p->dtype == EP_DTYPE_BF16;
    column col[64];
    for (int c = 0; c < width; c++) col[c] = find_column(job->q, p, panel, c);
    char *dst = p->data + panel * p->panel_bytes;
    for (int64_t chunk = 0; chunk < p->chunks; chunk++, dst += chunk_bytes) {
        int64_t k0 = chunk * kc;
        for (int c = 0; c < width; c++) {
            int64_t left = col[c].at ? p->k - k0 : 0;
            const char *src = col[c].at ? col[c].at + k0 * col[c].step * size : NULL;
            if (quad)
                put_column4(dst + 4 * c, width, src, col[c].step, left);
            else if (pairs)
                put_column_pairs(dst + 4 * c, width, src, col[c].step, left);
            else
                put_column2(dst + 2 * c, width, src, col[c].step, left);
        }
    }
}

static void pack_panels(void *user, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) pack_panel(user, i);
}

static int64_t ceil_div(int64_t a, int64_t b) {
    return a / b + (a % b != 0);
}

/* Sizes of a pack of this shape for `row`; the caller's struct is zeroed. */
ep_status ep_tuned_pack_shape(const ep_tuned_row *row, int64_t k, int64_t n, bool pair, ep_error *err, ep_packed *p) {
    p->row = row;
    p->dtype = row->dtype;
    p->k = k;
    p->n = n;
    p->pair = pair;
    p->panels = ceil_div(n, pair ? row->half : 2 * row->half);
    p->chunks = ceil_div(k, row->chunk_k);
    int64_t chunk_bytes = 128 * row->half, total;
    if (__builtin_mul_overflow(p->chunks, chunk_bytes, &p->panel_bytes) ||
        __builtin_mul_overflow(p->panels, p->panel_bytes, &total))
        return ep_fail(err, EP_ERROR_OVERFLOW, "packed weights of %lld by %lld do not fit in 64 bits", (long long)n,
                       (long long)k);
    p->bytes = (size_t)total;
    return EP_OK;
}

ep_status ep_tuned_pack_with(const ep_tuned_row *row, int threads, const ep_pack_request *q, ep_error *err,
                             ep_packed **out) {
    if (q->k < 0 || q->n < 0)
        return ep_fail(err, EP_ERROR_SHAPE, "a weight of %lld by %lld cannot be packed", (long long)q->n,
                       (long long)q->k);
    ep_packed *p = calloc(1, sizeof *p);
    if (!p) return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory for packed weights");
    ep_status s = ep_tuned_pack_shape(row, q->k, q->n, q->w1 != NULL, err, p);
    if (s == EP_OK && p->bytes && !(p->data = ep_tuned_alloc(p->bytes)))
        s = ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory for %zu bytes of packed weights", p->bytes);
    if (s != EP_OK) {
        free(p);
        return s;
    }
    pack_job job = {q, p};
    if (p->bytes) ep_parallel_for(p->bytes < 1 << 16 ? 1 : threads, p->panels, 1, pack_panels, &job);
    ep_tuned_choices_create(p, q);
    *out = p;
    return EP_OK;
}

ep_status ep_tuned_pack(int threads, const ep_pack_request *q, ep_error *err, ep_packed **out) {
    const ep_tuned_row *row = ep_tuned_select(q->dtype, ep_cpu_get()->isa);
    if (!row) return ep_fail(err, EP_ERROR_DTYPE, "weights of %s cannot be packed", ep_dtype_name(q->dtype));
    return ep_tuned_pack_with(row, threads, q, err, out);
}

void ep_tuned_pack_free(ep_packed *p) {
    if (!p) return;
    ep_tuned_choices_free(p);
    if (p->map)
        munmap(p->map, p->mapped);
    else
        free(p->data);
    free(p);
}

int64_t ep_tuned_pack_bytes(const ep_packed *p) {
    return (int64_t)(p->bytes + ep_tuned_choices_bytes(p));
}
