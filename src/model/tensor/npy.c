/* NumPy's .npy: a magic, a version, a header that is a Python dict, then the elements. */
#include "tensor.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"

static const char *const codes[EP_DTYPE_COUNT] = {
#define EP_DTYPE_ROW(ID, name, type, is_float, safetensors, npy, code, bits) [EP_DTYPE_##ID] = npy,
#include "dtype.def"
#undef EP_DTYPE_ROW
};

typedef struct reader {
    const char *start, *at, *end; /* the file; the header still unread */
    ep_error *err;
    char descr[16];
    bool fortran;
    int ndim;
    int64_t sizes[EP_MAX_DIMS];
} reader;

static ep_status wrong(reader *r, const char *what) {
    return ep_fail_at(r->err, EP_ERROR_FORMAT, r->at - r->start, "the .npy header: %s", what);
}

static void skip_space(reader *r) {
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n')) r->at++;
}

static bool take(reader *r, char c) {
    skip_space(r);
    if (r->at == r->end || *r->at != c) return false;
    r->at++;
    return true;
}

static bool take_word(reader *r, const char *word) {
    size_t n = strlen(word);
    skip_space(r);
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, word, n) != 0) return false;
    r->at += n;
    return true;
}

static ep_status read_string(reader *r, char *out, size_t size) {
    skip_space(r);
    char quote = r->at < r->end ? *r->at : 0;
    if (quote != '\'' && quote != '"') return wrong(r, "a quoted string is missing");
    const char *from = ++r->at;
    while (r->at < r->end && *r->at != quote) r->at++;
    if (r->at == r->end) return wrong(r, "a string does not end");
    size_t n = (size_t)(r->at++ - from);
    if (n >= size) return wrong(r, "a string is longer than any that is known");
    memcpy(out, from, n);
    out[n] = 0;
    return EP_OK;
}

static ep_status read_shape(reader *r) {
    if (!take(r, '(')) return wrong(r, "the shape is not a tuple");
    while (!take(r, ')')) {
        if (r->ndim == EP_MAX_DIMS) return wrong(r, "more than 8 dims");
        int64_t n = 0;
        const char *from = (skip_space(r), r->at);
        for (; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++)
            if (__builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, *r->at - '0', &n))
                return wrong(r, "a size does not fit in 64 bits");
        if (r->at == from) return wrong(r, "a size is not a whole number");
        if (r->at < r->end && *r->at == 'L') r->at++; /* Python 2 wrote long integers so */
        r->sizes[r->ndim++] = n;
        if (!take(r, ',') && !(skip_space(r), r->at < r->end && *r->at == ')'))
            return wrong(r, "a comma is missing in the shape");
    }
    return EP_OK;
}

static ep_status read_header(reader *r) {
    char key[16];
    int seen = 0;
    if (!take(r, '{')) return wrong(r, "it is not a dict");
    while (!take(r, '}')) {
        EP_TRY(read_string(r, key, sizeof key));
        if (!take(r, ':')) return wrong(r, "a colon is missing");
        if (strcmp(key, "descr") == 0) {
            seen |= 1;
            EP_TRY(read_string(r, r->descr, sizeof r->descr));
        } else if (strcmp(key, "fortran_order") == 0) {
            seen |= 2;
            r->fortran = take_word(r, "True");
            if (!r->fortran && !take_word(r, "False")) return wrong(r, "fortran_order is neither True nor False");
        } else if (strcmp(key, "shape") == 0) {
            seen |= 4;
            r->ndim = 0;
            EP_TRY(read_shape(r));
        } else {
            return wrong(r, "a key that is not descr, fortran_order or shape");
        }
        if (!take(r, ',') && !(skip_space(r), r->at < r->end && *r->at == '}')) return wrong(r, "a comma is missing");
    }
    return seen == 7 ? EP_OK : wrong(r, "descr, fortran_order or shape is missing");
}

static ep_status find_dtype(reader *r, bool as_bf16, ep_dtype *out) {
    for (int i = 0; i < EP_DTYPE_COUNT; i++) {
        if (strcmp(r->descr + (r->descr[0] != 0), codes[i] + 1) != 0 || r->descr[0] == '>') continue;
        if (i == EP_DTYPE_BF16 && !as_bf16)
            return ep_fail(r->err, EP_ERROR_DTYPE,
                           "the array is 2-byte void '%s'; read it as bf16 if that is what it is", r->descr);
        *out = (ep_dtype)i;
        return EP_OK;
    }
    return ep_fail(r->err, EP_ERROR_DTYPE, "the array is '%s'; known are <f4, <f2, <V2 (bf16), <i4, <i8 and |b1",
                   r->descr);
}

/* Sets [at, end) to the header and returns where the elements begin. */
static ep_status read_front(reader *r, const ep_mapped *m, const char **data) {
    const unsigned char *u = (const unsigned char *)m->data;
    if (m->size < 10 || memcmp(m->data, "\x93NUMPY", 6) != 0)
        return ep_fail_at(r->err, EP_ERROR_FORMAT, 0, "the file does not begin as a .npy file does");
    int major = u[6];
    if (major < 1 || major > 3)
        return ep_fail_at(r->err, EP_ERROR_UNSUPPORTED, 6, ".npy version %d; 1 to 3 are known", major);
    size_t front = major == 1 ? 10 : 12;
    if (m->size < front) return ep_fail_at(r->err, EP_ERROR_TRUNCATED, (int64_t)m->size, "the .npy header is cut off");
    size_t length = (size_t)u[8] | (size_t)u[9] << 8;
    if (major > 1) length |= (size_t)u[10] << 16 | (size_t)u[11] << 24;
    if (length > m->size - front)
        return ep_fail_at(r->err, EP_ERROR_TRUNCATED, (int64_t)m->size, "the .npy header claims %zu bytes of %zu",
                          length, m->size - front);
    r->start = m->data;
    r->at = m->data + front;
    r->end = r->at + length;
    *data = r->end;
    return EP_OK;
}

/* Fortran order is the reversed shape in row-major order, looked at backward. */
static void reverse(ep_tensor *t) {
    for (int i = 0, j = t->ndim - 1; i < j; i++, j--) {
        int64_t size = t->sizes[i], stride = t->strides[i];
        t->sizes[i] = t->sizes[j];
        t->strides[i] = t->strides[j];
        t->sizes[j] = size;
        t->strides[j] = stride;
    }
    ep_tensor_finish_view(t);
}

static ep_status read_mapped(const ep_mapped *m, bool as_bf16, ep_error *err, ep_tensor **out) {
    reader r = {.err = err};
    const char *data = NULL;
    ep_dtype dtype = EP_DTYPE_F32;
    int64_t sizes[EP_MAX_DIMS], numel;
    EP_TRY(read_front(&r, m, &data));
    EP_TRY(read_header(&r));
    EP_TRY(find_dtype(&r, as_bf16, &dtype));
    EP_TRY(ep_shape_numel(r.ndim, r.sizes, err, &numel));
    size_t have = m->size - (size_t)(data - m->data), size = ep_dtype_size(dtype);
    if ((uint64_t)numel > have / size)
        return ep_fail_at(err, EP_ERROR_TRUNCATED, (int64_t)m->size,
                          "%lld elements of %zu bytes, but %zu bytes of data", (long long)numel, size, have);
    for (int i = 0; i < r.ndim; i++) sizes[i] = r.sizes[r.fortran ? r.ndim - 1 - i : i];
    ep_tensor *t;
    EP_TRY(ep_tensor_create(dtype, r.ndim, sizes, err, &t));
    if (numel) memcpy(t->data, data, (size_t)numel * size);
    if (r.fortran) reverse(t);
    *out = t;
    return EP_OK;
}

ep_status ep_tensor_read_npy(const char *path, bool as_bf16, ep_error *err, ep_tensor **out) {
    if (!path || !out) return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "%s is NULL", path ? "out" : "path");
    ep_mapped m;
    EP_TRY(ep_file_map(path, err, &m));
    ep_status status = read_mapped(&m, as_bf16, err, out);
    ep_file_unmap(&m);
    return status;
}

static ep_status write_elements(const ep_tensor *t, ep_stream_out *o, ep_error *err) {
    size_t size = ep_dtype_size(t->dtype);
    char block[4096];
    const int64_t *strides[1] = {t->strides};
    ep_walk w;
    for (bool more = ep_walk_begin(&w, t->ndim, t->sizes, 1, strides); more; more = ep_walk_next(&w)) {
        const char *from = t->data + w.offset[0] * (int64_t)size;
        if (w.step[0] == 1 || w.run == 1) {
            EP_TRY(ep_stream_write(o, from, (size_t)w.run * size, err));
            continue;
        }
        int64_t fits = (int64_t)(sizeof block / size);
        for (int64_t i = 0; i < w.run; i += fits) {
            int64_t n = w.run - i < fits ? w.run - i : fits;
            for (int64_t j = 0; j < n; j++)
                memcpy(block + (size_t)j * size, from + (i + j) * w.step[0] * (int64_t)size, size);
            EP_TRY(ep_stream_write(o, block, (size_t)n * size, err));
        }
    }
    return EP_OK;
}

static ep_status write_front(const ep_tensor *t, ep_stream_out *o, ep_error *err) {
    ep_text h = {0};
    ep_text_printf(&h, "{'descr': '%s', 'fortran_order': False, 'shape': (", codes[t->dtype]);
    for (int i = 0; i < t->ndim; i++) ep_text_printf(&h, i ? ", %lld" : "%lld", (long long)t->sizes[i]);
    ep_text_add(&h, t->ndim == 1 ? ",), }" : "), }");
    /* The elements begin at a multiple of 64; a newline ends the header. */
    ep_text_pad(&h, ' ', 63 - (10 + h.len) % 64);
    ep_text_char(&h, '\n');
    unsigned char front[10] = {
        0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (unsigned char)(h.len & 0xff), (unsigned char)(h.len >> 8)};
    ep_status status = h.failed ? ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "the .npy header could not be made") : EP_OK;
    if (status == EP_OK) status = ep_stream_write(o, front, sizeof front, err);
    if (status == EP_OK) status = ep_stream_write(o, ep_text_str(&h), h.len, err);
    ep_text_free(&h);
    return status;
}

ep_status ep_tensor_write_npy(const ep_tensor *t, const char *path, ep_error *err) {
    EP_TRY(ep_tensor_check_host(t, err));
    if (!path) return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "path is NULL");
    ep_stream_out *o;
    EP_TRY(ep_stream_create(path, false, err, &o));
    ep_status status = write_front(t, o, err);
    if (status == EP_OK) status = write_elements(t, o, err);
    if (status == EP_OK) return ep_stream_commit(o, err);
    ep_stream_abandon(o);
    return status;
}
