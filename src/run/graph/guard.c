/* Guards: dtype, rank, and the class of each dim larger than 1: contiguous, strided or broadcast. Sizes are free. */
#include "guard.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"

void ep_fact_of(const ep_tensor *t, ep_fact *out) {
    memset(out, 0, sizeof *out);
    out->dtype = t->dtype;
    out->ndim = t->ndim;
    for (int i = 0; i < t->ndim; i++) {
        out->sizes[i] = t->sizes[i];
        out->strides[i] = t->sizes[i] > 1 ? t->strides[i] : 0;
    }
}

uint64_t ep_facts_hash(int count, const ep_tensor *const *inputs) {
    uint64_t h = 17;
    for (int k = 0; k < count; k++) {
        const ep_tensor *t = inputs[k];
        int64_t w[2 + 2 * EP_MAX_DIMS] = {(int64_t)t->dtype, t->ndim};
        for (int i = 0; i < t->ndim; i++) {
            w[2 + 2 * i] = t->sizes[i];
            w[3 + 2 * i] = t->sizes[i] > 1 ? t->strides[i] : 0;
        }
        h = ep_hash64(w, sizeof(int64_t) * (size_t)(2 + 2 * t->ndim), h);
    }
    return h;
}

/* The stride that `dim` has where nothing lies between it and the dims after it. */
static int64_t plain_stride(const ep_fact *f, int dim) {
    int64_t s = 1;
    for (int i = f->ndim - 1; i > dim; i--)
        if (f->sizes[i] > 1) s = f->strides[i] * f->sizes[i] > s ? f->strides[i] * f->sizes[i] : s;
    return s;
}

static void describe(const ep_fact *f, int dim, char *out, size_t size) {
    if (f->sizes[dim] <= 1)
        snprintf(out, size, "size %lld", (long long)f->sizes[dim]);
    else if (f->strides[dim] == 0)
        snprintf(out, size, "broadcast");
    else if (f->strides[dim] == plain_stride(f, dim))
        snprintf(out, size, "contiguous");
    else
        snprintf(out, size, "stride %lld", (long long)f->strides[dim]);
}

/* 0: size 0 or 1, 1: contiguous, 2: broadcast, 3: strided */
static int class_of(const ep_fact *f, int dim) {
    if (f->sizes[dim] <= 1) return 0;
    if (f->strides[dim] == 0) return 2;
    return f->strides[dim] == plain_stride(f, dim) ? 1 : 3;
}

static bool dim_failed(const ep_fact *a, const ep_fact *b, int k, int dim, bool fixed, char *out, size_t size) {
    char was[48], now[48];
    if (fixed && a->sizes[dim] != b->sizes[dim]) {
        snprintf(out, size, "input %d: dim %d was %lld, now %lld", k, dim, (long long)a->sizes[dim],
                 (long long)b->sizes[dim]);
        return true;
    }
    if (class_of(a, dim) == class_of(b, dim) && !(fixed && a->strides[dim] != b->strides[dim])) return false;
    describe(a, dim, was, sizeof was);
    describe(b, dim, now, sizeof now);
    snprintf(out, size, "input %d: dim %d was %s, now %s", k, dim, was, now);
    return true;
}

bool ep_guard_failed(int count, const ep_fact *was, const ep_fact *now, bool fixed, char *out, size_t size) {
    for (int k = 0; k < count; k++) {
        if (was[k].dtype != now[k].dtype) {
            snprintf(out, size, "input %d: dtype was %s, now %s", k, ep_dtype_name(was[k].dtype),
                     ep_dtype_name(now[k].dtype));
            return true;
        }
        if (was[k].ndim != now[k].ndim) {
            snprintf(out, size, "input %d: had %d dims, now %d", k, was[k].ndim, now[k].ndim);
            return true;
        }
    }
    for (int k = 0; k < count; k++)
        for (int i = now[k].ndim - 1; i >= 0; i--)
            if (dim_failed(&was[k], &now[k], k, i, fixed, out, size)) return true;
    return false;
}

void ep_guard_list(int count, const ep_fact *facts, bool fixed, ep_text *out) {
    char text[48];
    for (int k = 0; k < count; k++) {
        ep_text_printf(out, "  input %d: %s, %d dims", k, ep_dtype_name(facts[k].dtype), facts[k].ndim);
        for (int i = 0; i < facts[k].ndim; i++) {
            describe(&facts[k], i, text, sizeof text);
            ep_text_printf(out, "%s%s", i ? ", " : ": ", text);
            if (fixed) ep_text_printf(out, " of %lld", (long long)facts[k].sizes[i]);
        }
        ep_text_add(out, fixed ? "; sizes and strides are in the code\n" : "; sizes are free\n");
    }
}
