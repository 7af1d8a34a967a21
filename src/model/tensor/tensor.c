/* Tensors: create, destroy, look at, fill, compare. No arithmetic beyond that. */
#include "tensor.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Handles are made and ended with every op, so each thread keeps some; a key frees them when the thread ends. */
enum { HANDLES_KEPT = 128 };

typedef struct handle_list {
    int count;
    bool registered;
    ep_tensor *free[HANDLES_KEPT];
} handle_list;

static _Thread_local handle_list handles __attribute__((tls_model("initial-exec")));
static pthread_key_t handles_key;
static pthread_once_t handles_once = PTHREAD_ONCE_INIT;

static void free_handles(void *user) {
    handle_list *l = user;
    while (l->count > 0) free(l->free[--l->count]);
    l->registered = false;
}

static void make_key(void) {
    pthread_key_create(&handles_key, free_handles);
}

ep_tensor *ep_tensor_handle(void) {
    handle_list *l = &handles;
    return l->count > 0 ? l->free[--l->count] : malloc(sizeof(ep_tensor));
}

void ep_tensor_destroy(ep_tensor *t) {
    if (!t) return;
    ep_storage_release(t->storage);
    handle_list *l = &handles;
    if (l->count == HANDLES_KEPT) {
        free(t);
        return;
    }
    if (!l->registered) {
        pthread_once(&handles_once, make_key);
        l->registered = pthread_setspecific(handles_key, l) == 0;
    }
    l->free[l->count++] = t;
}

static ep_status no_handle(ep_error *err) {
    return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "%zu bytes for a tensor handle could not be allocated",
                   sizeof(ep_tensor));
}

static void set_shape(ep_tensor *t, ep_dtype dtype, int ndim, const int64_t *sizes, int64_t numel) {
    t->dtype = dtype;
    t->ndim = ndim;
    t->numel = numel;
    t->contiguous = true;
    t->value = -1;
    int64_t step = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        t->sizes[i] = sizes[i];
        t->strides[i] = step;
        if (sizes[i] > 1) step *= sizes[i];
    }
}

/* Bytes too must fit: an offset times the element size is still an address. */
static ep_status check_new(ep_dtype dtype, int ndim, const int64_t *sizes, ep_error *err, int64_t *numel) {
    if ((unsigned)dtype >= EP_DTYPE_COUNT) return ep_fail(err, EP_ERROR_DTYPE, "%d is not a dtype", (int)dtype);
    if (ndim > 0 && !sizes) return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "sizes is NULL for %d dims", ndim);
    EP_TRY(ep_shape_numel(ndim, sizes, err, numel));
    int64_t size = (int64_t)ep_dtype_size(dtype);
    if (*numel > INT64_MAX / size)
        return ep_fail(err, EP_ERROR_OVERFLOW, "%lld elements of %s are more than 2^63 - 1 bytes", (long long)*numel,
                       ep_dtype_name(dtype));
    return EP_OK;
}

ep_status ep_tensor_shell(ep_dtype dtype, int ndim, const int64_t *sizes, ep_error *err, ep_tensor **out) {
    int64_t numel;
    EP_TRY(check_new(dtype, ndim, sizes, err, &numel));
    ep_tensor *t = ep_tensor_handle();
    if (!t) return no_handle(err);
    set_shape(t, dtype, ndim, sizes, numel);
    t->storage = NULL;
    t->data = NULL;
    t->device = (ep_device){EP_DEVICE_CPU, 0};
    *out = t;
    return EP_OK;
}

ep_status ep_tensor_over(ep_storage *storage, ep_dtype dtype, int ndim, const int64_t *sizes, ep_error *err,
                         ep_tensor **out) {
    int64_t numel = 1;
    for (int i = 0; i < ndim; i++) numel *= sizes[i];
    ep_tensor *t = ep_tensor_handle();
    if (!t) {
        ep_storage_release(storage);
        return no_handle(err);
    }
    set_shape(t, dtype, ndim, sizes, numel);
    t->storage = storage;
    t->data = storage->data;
    t->device = storage->device;
    *out = t;
    return EP_OK;
}

ep_status ep_tensor_create(ep_dtype dtype, int ndim, const int64_t *sizes, ep_error *err, ep_tensor **out) {
    int64_t numel;
    if (!out) return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "out is NULL");
    EP_TRY(check_new(dtype, ndim, sizes, err, &numel));
    ep_storage *s;
    EP_TRY(ep_storage_create((size_t)numel * ep_dtype_size(dtype), err, &s));
    return ep_tensor_over(s, dtype, ndim, sizes, err, out);
}

ep_status ep_tensor_zeros(ep_dtype dtype, int ndim, const int64_t *sizes, ep_error *err, ep_tensor **out) {
    ep_tensor *t;
    if (!out) return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "out is NULL");
    EP_TRY(ep_tensor_create(dtype, ndim, sizes, err, &t));
    memset(t->storage->data, 0, t->storage->bytes);
    *out = t;
    return EP_OK;
}

static void release_foreign(ep_storage *s) {
    if (s->deleter) s->deleter(s->owner);
    free(s);
}

ep_status ep_tensor_from_memory(ep_device device, ep_dtype dtype, int ndim, const int64_t *sizes,
                                const int64_t *strides, void *data, size_t bytes, void (*deleter)(void *user),
                                void *user, ep_error *err, ep_tensor **out) {
    int64_t numel, reach, dense[EP_MAX_DIMS];
    if (!out) return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "out is NULL");
    EP_TRY(check_new(dtype, ndim, sizes, err, &numel));
    ep_stride_contiguous(ndim, sizes, dense);
    if (!strides) strides = dense;
    EP_TRY(ep_stride_max_offset(ndim, sizes, strides, err, &reach));
    if (numel > 0 && !data) return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "data is NULL");
    if (device.kind == EP_DEVICE_CPU && device.index != 0)
        return ep_fail(err, EP_ERROR_DEVICE, "CPU device %d; there is only 0", (int)device.index);
    uint64_t size = ep_dtype_size(dtype);
    if ((uintptr_t)data % size != 0)
        return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "data is not aligned to the %d bytes of an element of %s",
                       (int)size, ep_dtype_name(dtype));
    if (numel > 0 && (uint64_t)reach >= bytes / size)
        return ep_fail(err, EP_ERROR_OVERFLOW, "element %lld of %s lies past the end of the %zu bytes given",
                       (long long)reach, ep_dtype_name(dtype), bytes);
    ep_storage *s = calloc(1, sizeof *s);
    ep_tensor *t = s ? ep_tensor_handle() : NULL;
    if (!t) {
        free(s);
        return no_handle(err);
    }
    atomic_init(&s->refs, 1);
    s->device = device;
    s->data = data;
    s->bytes = bytes;
    s->release = release_foreign;
    s->owner = user;
    s->deleter = deleter;
    set_shape(t, dtype, ndim, sizes, numel);
    for (int i = 0; i < ndim; i++) t->strides[i] = strides[i];
    t->contiguous = ep_stride_is_contiguous(ndim, sizes, strides);
    t->storage = s;
    t->data = data;
    t->device = device;
    *out = t;
    return EP_OK;
}

ep_status ep_tensor_begin_view(const ep_tensor *t, int64_t elements, ep_error *err, ep_tensor **out) {
    if (!t->storage && t->value >= 0)
        return ep_fail(err, EP_ERROR_CAPTURE, "a view of a captured tensor is made with the recorded calls of ops.h");
    ep_tensor *v = ep_tensor_handle();
    if (!v) return no_handle(err);
    *v = *t;
    if (t->storage) ep_storage_retain(t->storage);
    if (v->data) v->data += elements * (int64_t)ep_dtype_size(t->dtype);
    *out = v;
    return EP_OK;
}

void ep_tensor_finish_view(ep_tensor *t) {
    t->numel = 1;
    for (int i = 0; i < t->ndim; i++) t->numel *= t->sizes[i];
    t->contiguous = ep_stride_is_contiguous(t->ndim, t->sizes, t->strides);
}

ep_status ep_tensor_alias(const ep_tensor *t, ep_error *err, ep_tensor **out) {
    if (!t || !out) return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "%s is NULL", t ? "out" : "t");
    return ep_tensor_begin_view(t, 0, err, out);
}

ep_dtype ep_tensor_dtype(const ep_tensor *t) {
    return t->dtype;
}

ep_device ep_tensor_device(const ep_tensor *t) {
    return t->device;
}

int ep_tensor_ndim(const ep_tensor *t) {
    return t->ndim;
}

static _Thread_local ep_size_watch *size_watch;

void ep_size_watch_set(ep_size_watch *w) {
    size_watch = w;
}

/* A captured tensor has no storage; what is done with the size that was looked at is not recorded. */
static void look(const ep_tensor *t, int dim) {
    if (__builtin_expect(!t->storage, 0) && t->value >= 0 && size_watch) size_watch->looked(size_watch, t, dim);
}

int64_t ep_tensor_size(const ep_tensor *t, int dim) {
    int d = dim < 0 ? dim + t->ndim : dim;
    if (d >= 0 && d < t->ndim) look(t, d);
    return d < 0 || d >= t->ndim ? -1 : t->sizes[d];
}

int64_t ep_tensor_stride(const ep_tensor *t, int dim) {
    int d = dim < 0 ? dim + t->ndim : dim;
    look(t, -1);
    return d < 0 || d >= t->ndim ? -1 : t->strides[d];
}

const int64_t *ep_tensor_sizes(const ep_tensor *t) {
    look(t, -1);
    return t->sizes;
}

const int64_t *ep_tensor_strides(const ep_tensor *t) {
    look(t, -1);
    return t->strides;
}

int64_t ep_tensor_numel(const ep_tensor *t) {
    look(t, -1);
    return t->numel;
}

bool ep_tensor_is_contiguous(const ep_tensor *t) {
    look(t, -1);
    return t->contiguous;
}

void *ep_tensor_data(const ep_tensor *t) {
    return t->numel > 0 ? t->data : NULL;
}

ep_status ep_tensor_check_host(const ep_tensor *t, ep_error *err) {
    if (!t) return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "the tensor is NULL");
    if (!t->storage && t->numel > 0)
        return ep_fail(err, EP_ERROR_CAPTURE, "a tensor has no data while its function is captured");
    if (t->device.kind != EP_DEVICE_CPU)
        return ep_fail(err, EP_ERROR_DEVICE, "the tensor is on a device; copy it with ep_to_host first");
    return EP_OK;
}

static ep_status check_values(const ep_tensor *t, const double *values, size_t count, ep_error *err) {
    EP_TRY(ep_tensor_check_host(t, err));
    if (count && !values) return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "the pointer to %zu values is NULL", count);
    if (count == (size_t)t->numel) return EP_OK;
    return ep_fail(err, EP_ERROR_SHAPE, "%zu values given for a tensor of %lld elements", count, (long long)t->numel);
}

static bool begin_walk(ep_walk *w, const ep_tensor *t) {
    const int64_t *strides[1] = {t->strides};
    return ep_walk_begin(w, t->ndim, t->sizes, 1, strides);
}

static char *at(const ep_tensor *t, int64_t offset) {
    return t->data + offset * (int64_t)ep_dtype_size(t->dtype);
}

ep_status ep_tensor_read_f64(const ep_tensor *t, double *out, size_t count, ep_error *err) {
    EP_TRY(check_values(t, out, count, err));
    ep_walk w;
    for (bool more = begin_walk(&w, t); more; more = ep_walk_next(&w), out += w.run)
        ep_run_load(t->dtype, at(t, w.offset[0]), w.step[0], w.run, out);
    return EP_OK;
}

ep_status ep_tensor_write_f64(ep_tensor *t, const double *in, size_t count, ep_error *err) {
    EP_TRY(check_values(t, in, count, err));
    ep_walk w;
    for (bool more = begin_walk(&w, t); more; more = ep_walk_next(&w), in += w.run)
        ep_run_store(t->dtype, at(t, w.offset[0]), w.step[0], w.run, in);
    return EP_OK;
}

/* Values are made and stored in blocks of this many. */
enum { BLOCK = 256 };

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

ep_status ep_tensor_fill(ep_tensor *t, double value, ep_error *err) {
    EP_TRY(ep_tensor_check_host(t, err));
    double block[BLOCK];
    for (int i = 0; i < BLOCK; i++) block[i] = value;
    ep_walk w;
    for (bool more = begin_walk(&w, t); more; more = ep_walk_next(&w))
        for (int64_t i = 0; i < w.run; i += BLOCK)
            ep_run_store(t->dtype, at(t, w.offset[0] + i * w.step[0]), w.step[0], least(BLOCK, w.run - i), block);
    return EP_OK;
}

static uint64_t mix(uint64_t x) {
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* The sum of twelve uniforms of 16 bits has variance 1 and no tail past 6; integers alone, so every machine agrees. */
static double normal(uint64_t seed, uint64_t counter) {
    int64_t sum = 0;
    for (uint64_t j = 0; j < 3; j++) {
        uint64_t r = mix(seed + (counter * 3 + j + 1) * 0x9e3779b97f4a7c15u);
        sum += (int64_t)(r & 0xffff) + (int64_t)(r >> 16 & 0xffff) + (int64_t)(r >> 32 & 0xffff) + (int64_t)(r >> 48);
    }
    return (double)(sum - 6 * 65535) * 0x1p-16;
}

ep_status ep_tensor_fill_random(ep_tensor *t, uint64_t seed, double scale, ep_error *err) {
    EP_TRY(ep_tensor_check_host(t, err));
    double block[BLOCK];
    uint64_t counter = 0, start = mix(seed + 0x9e3779b97f4a7c15u);
    ep_walk w;
    for (bool more = begin_walk(&w, t); more; more = ep_walk_next(&w)) {
        for (int64_t i = 0; i < w.run; i += BLOCK) {
            int64_t n = least(BLOCK, w.run - i);
            for (int64_t j = 0; j < n; j++) block[j] = scale * normal(start, counter++);
            ep_run_store(t->dtype, at(t, w.offset[0] + i * w.step[0]), w.step[0], n, block);
        }
    }
    return EP_OK;
}

static void compare_run(const double *a, const double *b, int64_t n, int64_t first, double floor, ep_difference *d) {
    for (int64_t i = 0; i < n; i++) {
        if (a[i] == b[i] || (isnan(a[i]) && isnan(b[i]))) continue;
        double gap = fabs(a[i] - b[i]), scale = fmax(fabs(b[i]), floor);
        if (isnan(gap)) gap = INFINITY;
        double relative = isinf(gap) || !(scale > 0) ? INFINITY : gap / scale;
        if (gap > d->max_abs) {
            d->max_abs = gap;
            d->at = first + i;
        }
        if (relative > d->max_rel) d->max_rel = relative;
    }
}

ep_status ep_tensor_compare(const ep_tensor *a, const ep_tensor *b, double floor, ep_error *err, ep_difference *out) {
    EP_TRY(ep_tensor_check_host(a, err));
    EP_TRY(ep_tensor_check_host(b, err));
    if (!out) return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "out is NULL");
    if (a->ndim != b->ndim || memcmp(a->sizes, b->sizes, sizeof(int64_t) * (size_t)a->ndim) != 0) {
        char ta[128], tb[128];
        return ep_fail(err, EP_ERROR_SHAPE, "shapes %s and %s differ", ep_shape_text(a->ndim, a->sizes, ta, sizeof ta),
                       ep_shape_text(b->ndim, b->sizes, tb, sizeof tb));
    }
    ep_difference d = {0, 0, 0};
    double va[BLOCK], vb[BLOCK];
    int64_t first = 0;
    const int64_t *strides[2] = {a->strides, b->strides};
    ep_walk w;
    for (bool more = ep_walk_begin(&w, a->ndim, a->sizes, 2, strides); more; more = ep_walk_next(&w)) {
        for (int64_t i = 0; i < w.run; i += BLOCK) {
            int64_t n = least(BLOCK, w.run - i);
            ep_run_load(a->dtype, at(a, w.offset[0] + i * w.step[0]), w.step[0], n, va);
            ep_run_load(b->dtype, at(b, w.offset[1] + i * w.step[1]), w.step[1], n, vb);
            compare_run(va, vb, n, first + i, floor, &d);
        }
        first += w.run;
    }
    *out = d;
    return EP_OK;
}
