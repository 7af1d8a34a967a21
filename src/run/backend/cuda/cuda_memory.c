/* Caching allocator: blocks go back to bins by size and are given out again in stream order, which is safe because one
 * stream runs all work of a state. Host copies go through one pinned staging buffer. */
#include "cuda_state.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

typedef struct cuda_storage {
    ep_storage base;
    struct cuda_storage *next;
    size_t rounded;
} cuda_storage;

/* Sizes up to 1 MiB round to 512 bytes by powers of two; larger ones to 2 MiB steps, so that near sizes share blocks. */
static size_t round_size(size_t bytes) {
    if (bytes <= 512) return 512;
    if (bytes > (size_t)1 << 20) return (bytes + ((size_t)2 << 20) - 1) >> 21 << 21;
    size_t r = 512;
    while (r < bytes) r *= 2;
    return r;
}

ep_status cuda_memory_open(cuda_state *s, ep_error *err) {
    if (pthread_mutex_init(&s->memory.lock, NULL) != 0)
        return ep_fail(err, EP_ERROR_INTERNAL, "a mutex could not be made");
    return EP_OK;
}

static cuda_bin *find_bin(cuda_memory *m, size_t bytes) {
    for (size_t i = 0; i < m->bin_count; i++)
        if (m->bins[i].bytes == bytes) return &m->bins[i];
    if (!ep_grow(&m->bins, &m->bin_cap, m->bin_count + 1, sizeof *m->bins)) return NULL;
    cuda_bin *b = &m->bins[m->bin_count++];
    memset(b, 0, sizeof *b);
    b->bytes = bytes;
    return b;
}

static void free_cached(cuda_state *s) {
    cuda_memory *m = &s->memory;
    for (size_t i = 0; i < m->bin_count; i++) {
        for (size_t k = 0; k < m->bins[i].count; k++) {
            s->cu->memory_free(m->bins[i].blocks[k].p);
            m->stats.bytes_cached -= (int64_t)m->bins[i].bytes;
        }
        m->bins[i].count = 0;
    }
}

void cuda_memory_close(cuda_state *s) {
    free_cached(s);
    for (size_t i = 0; i < s->memory.bin_count; i++) free(s->memory.bins[i].blocks);
    free(s->memory.bins);
    if (s->memory.pinned) s->cu->host_free(s->memory.pinned);
    for (cuda_storage *p = s->memory.spare; p;) {
        cuda_storage *next = p->next;
        free(p);
        p = next;
    }
    pthread_mutex_destroy(&s->memory.lock);
}

static void release(ep_storage *base) {
    cuda_storage *p = (cuda_storage *)base;
    cuda_state *s = base->owner;
    cuda_memory *m = &s->memory;
    pthread_mutex_lock(&m->lock);
    cuda_bin *bin = p->rounded ? find_bin(m, p->rounded) : NULL;
    m->stats.bytes_in_use -= (int64_t)p->rounded;
    if (bin && ep_grow(&bin->blocks, &bin->cap, bin->count + 1, sizeof *bin->blocks)) {
        bin->blocks[bin->count++] = (cuda_block){(cu_ptr)(uintptr_t)base->data, p->rounded};
        m->stats.bytes_cached += (int64_t)p->rounded;
    } else if (p->rounded) {
        s->cu->memory_free((cu_ptr)(uintptr_t)base->data);
    }
    p->next = m->spare;
    m->spare = p;
    pthread_mutex_unlock(&m->lock);
    cuda_state_release(s);
}

/* A block from the bin, from the driver, or from the driver after the cache was given back. */
static ep_status take(cuda_state *s, size_t rounded, ep_error *err, cu_ptr *out) {
    cuda_memory *m = &s->memory;
    cuda_bin *bin = find_bin(m, rounded);
    if (bin && bin->count) {
        *out = bin->blocks[--bin->count].p;
        m->stats.bytes_cached -= (int64_t)rounded;
        return EP_OK;
    }
    EP_TRY(cuda_enter(s, err));
    m->stats.system_allocations++;
    cu_result r = s->cu->memory_alloc(out, rounded);
    if (r == 2 && m->stats.bytes_cached > 0) {
        s->cu->stream_sync(s->stream);
        free_cached(s);
        r = s->cu->memory_alloc(out, rounded);
    }
    return cuda_result(s, r, "cuMemAlloc", err);
}

ep_status cuda_storage_create(cuda_state *s, size_t bytes, ep_error *err, ep_storage **out) {
    cuda_memory *m = &s->memory;
    size_t rounded = bytes ? round_size(bytes) : 0;
    cu_ptr p = 0;
    pthread_mutex_lock(&m->lock);
    ep_status status = rounded ? take(s, rounded, err, &p) : EP_OK;
    cuda_storage *st = NULL;
    if (status == EP_OK) {
        st = m->spare;
        if (st) m->spare = st->next;
        m->stats.bytes_in_use += (int64_t)rounded;
        if (m->stats.bytes_in_use > m->stats.peak_bytes) m->stats.peak_bytes = m->stats.bytes_in_use;
    }
    pthread_mutex_unlock(&m->lock);
    if (status != EP_OK) return status;
    if (!st && !(st = malloc(sizeof *st))) return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory for a storage");
    memset(st, 0, sizeof *st);
    atomic_init(&st->base.refs, 1);
    st->base.device = (ep_device){EP_DEVICE_CUDA, s->index};
    st->base.data = (void *)(uintptr_t)p;
    st->base.bytes = bytes;
    st->base.release = release;
    st->base.owner = s;
    st->rounded = rounded;
    atomic_fetch_add(&s->refs, 1);
    if (s->capture) cuda_capture_hold(s, &st->base);
    *out = &st->base;
    return EP_OK;
}

void cuda_mark_written(cuda_state *s, void *out, int64_t rows, int64_t cols, int64_t row, size_t size) {
    if (!s->mark_written || s->capture || rows <= 0) return;
    /* Not a number in every float dtype, so that an element nobody writes is still found by a comparison. */
    for (int64_t r = 0; r < rows; r++)
        s->cu->memset8((cu_ptr)(uintptr_t)out + (cu_ptr)(r * row) * size, 0xff, (size_t)cols * size, s->stream);
}

void cuda_memory_stats(cuda_state *s, ep_memory_stats *out) {
    pthread_mutex_lock(&s->memory.lock);
    *out = s->memory.stats;
    pthread_mutex_unlock(&s->memory.lock);
}

enum { STAGE_BYTES = 32 << 20 };

static ep_status staging(cuda_state *s, ep_error *err) {
    if (s->memory.pinned) return EP_OK;
    return cuda_result(s, s->cu->host_alloc(&s->memory.pinned, STAGE_BYTES), "cuMemAllocHost", err);
}

/* Both sides contiguous, `bytes` long. */
static ep_status copy_bytes(cuda_state *s, char *host, cu_ptr device, size_t bytes, bool to_host, ep_error *err) {
    EP_TRY(cuda_enter(s, err));
    EP_TRY(staging(s, err));
    for (size_t at = 0; at < bytes; at += STAGE_BYTES) {
        size_t n = bytes - at < STAGE_BYTES ? bytes - at : STAGE_BYTES;
        if (!to_host) memcpy(s->memory.pinned, host + at, n);
        cu_result r = to_host ? s->cu->copy_to_host(s->memory.pinned, device + at, n, s->stream)
                              : s->cu->copy_to_device(device + at, s->memory.pinned, n, s->stream);
        EP_TRY(cuda_result(s, r, to_host ? "cuMemcpyDtoHAsync" : "cuMemcpyHtoDAsync", err));
        EP_TRY(cuda_result(s, s->cu->stream_sync(s->stream), "cuStreamSynchronize", err));
        if (to_host) memcpy(host + at, s->memory.pinned, n);
    }
    return EP_OK;
}

/* `host` is dense (the engine makes it); a strided x is made dense on the device first. */
ep_status cuda_copy_to_host(cuda_state *s, const ep_tensor *x, ep_tensor *host, ep_error *err) {
    size_t bytes = (size_t)x->numel * ep_dtype_size(x->dtype);
    if (!bytes) return EP_OK;
    if (ep_tensor_is_contiguous(x)) return copy_bytes(s, host->data, (cu_ptr)(uintptr_t)x->data, bytes, true, err);
    ep_storage *keep;
    EP_TRY(cuda_storage_create(s, bytes, err, &keep));
    ep_backend b = {.state = s};
    ep_tensor dense = *x;
    dense.data = keep->data;
    ep_stride_contiguous(dense.ndim, dense.sizes, dense.strides);
    ep_status status = cuda_copy(&b, x, &dense, err);
    if (status == EP_OK) status = copy_bytes(s, host->data, (cu_ptr)(uintptr_t)keep->data, bytes, true, err);
    ep_storage_release(keep);
    return status;
}

/* Gathers a strided host tensor into dense rows. */
static void gather(const ep_tensor *t, int dim, const char *from, char **to, size_t size) {
    if (dim == t->ndim) {
        memcpy(*to, from, size);
        *to += size;
        return;
    }
    for (int64_t i = 0; i < t->sizes[dim]; i++)
        gather(t, dim + 1, from + i * (t->sizes[dim] > 1 ? t->strides[dim] : 0) * (int64_t)size, to, size);
}

ep_status cuda_copy_from_host(cuda_state *s, const ep_tensor *host, ep_tensor *x, ep_error *err) {
    size_t bytes = (size_t)x->numel * ep_dtype_size(x->dtype);
    if (!bytes) return EP_OK;
    if (ep_tensor_is_contiguous(host)) return copy_bytes(s, host->data, (cu_ptr)(uintptr_t)x->data, bytes, false, err);
    char *dense = malloc(bytes), *to = dense;
    if (!dense) return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory to make a strided tensor dense");
    gather(host, 0, host->data, &to, ep_dtype_size(host->dtype));
    ep_status status = copy_bytes(s, dense, (cu_ptr)(uintptr_t)x->data, bytes, false, err);
    free(dense);
    return status;
}
