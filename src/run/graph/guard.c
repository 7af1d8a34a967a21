/* Guards: dtype, rank, and the class of each dim larger than 1: contiguous, strided or broadcast. Sizes are free. */
#include "guard.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "extent.h"

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

typedef enum dim_class { DIM_FLAT /* size 0 or 1 */, DIM_CONTIGUOUS, DIM_BROADCAST, DIM_STRIDED } dim_class;

static dim_class class_of(const ep_fact *f, int dim) {
    if (f->sizes[dim] <= 1) return DIM_FLAT;
    if (f->strides[dim] == 0) return DIM_BROADCAST;
    return f->strides[dim] == plain_stride(f, dim) ? DIM_CONTIGUOUS : DIM_STRIDED;
}

static bool dim_failed(const ep_fact *a, const ep_fact *b, int k, int dim, bool fixed, char *out, size_t size) {
    char was[48], now[48];
    if ((fixed || a->fixed >> dim & 1) && a->sizes[dim] != b->sizes[dim]) {
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

static void list_input(const ep_fact *f, const ep_graph *g, const ep_value *v, ep_text *out) {
    char text[48];
    ep_text_printf(out, "  input %d: %s [", v->index, ep_dtype_name(f->dtype));
    for (int i = 0; i < f->ndim; i++) {
        if (i) ep_text_add(out, ", ");
        ep_extent_print(g, (ep_dim){f->sizes[i], v->dims[i]}, out);
    }
    ep_text_add(out, f->ndim ? "]:" : "]\n");
    for (int i = 0; i < f->ndim; i++) {
        describe(f, i, text, sizeof text);
        if (class_of(f, i) == DIM_STRIDED && v->steps[i] >= 0) snprintf(text, sizeof text, "strided");
        ep_text_printf(out, "%s %s", i ? "," : "", text);
    }
    if (f->ndim) ep_text_add(out, f->fixed ? "; sizes that are numbers are guarded\n" : "; sizes are free\n");
}

void ep_guard_list(int count, const ep_fact *facts, const ep_graph *g, ep_text *out) {
    for (size_t i = 0; i < g->value_count; i++)
        if (g->values[i].kind == EP_VALUE_INPUT && g->values[i].index < count)
            list_input(&facts[g->values[i].index], g, &g->values[i], out);
}

/* The dim after `dim` that the stride of adjacent elements is told from, or -1: none, the stride is 1. */
static int next_dim(const ep_fact *f, int dim) {
    int best = -1;
    int64_t s = 1;
    for (int i = f->ndim - 1; i > dim; i--)
        if (f->sizes[i] > 1 && f->strides[i] * f->sizes[i] > s) {
            s = f->strides[i] * f->sizes[i];
            best = i;
        }
    return best;
}

static void fact_of_value(const ep_value *v, ep_fact *f) {
    memset(f, 0, sizeof *f);
    f->dtype = v->dtype;
    f->ndim = v->ndim;
    for (int i = 0; i < v->ndim; i++) {
        f->sizes[i] = v->sizes[i];
        f->strides[i] = v->sizes[i] > 1 ? v->strides[i] : 0;
    }
}

void ep_guard_symbols(ep_graph *g, int32_t value) {
    ep_fact f;
    fact_of_value(&g->values[value], &f);
    for (int i = 0; i < f.ndim; i++)
        if (f.sizes[i] > 1) g->values[value].dims[i] = ep_symbol_create(g, f.sizes[i]);
    for (int i = f.ndim - 1; i >= 0; i--) {
        dim_class class = class_of(&f, i);
        int next = next_dim(&f, i);
        if (class == DIM_STRIDED && f.strides[i] > 1) g->values[value].steps[i] = ep_symbol_create(g, f.strides[i]);
        if (class != DIM_CONTIGUOUS || next < 0) continue;
        ep_dim d = ep_dim_mul(g, ep_value_step(g, value, next), ep_value_dim(g, value, next));
        g->values[value].steps[i] = d.e;
    }
}

static int64_t extent_now(const ep_graph *g, int32_t e, const int64_t *values) {
    const ep_extent *x = &g->extents[e];
    int64_t sum = 0;
    for (int64_t i = 0; i < x->count; i++) {
        uint64_t t = (uint64_t)x->terms[i].factor;
        for (int k = 0; k < EP_EXTENT_FACTORS && x->terms[i].symbols[k] >= 0; k++)
            t *= (uint64_t)values[x->terms[i].symbols[k]];
        sum = (int64_t)((uint64_t)sum + t);
    }
    return sum;
}

/* A number must be the same again; a symbol takes the first number it meets, and keeps it. */
static bool meets(const ep_graph *g, int64_t was, int32_t e, int64_t now, int64_t *values) {
    if (e < 0) return was == now;
    int32_t s = ep_extent_is_symbol(g, e);
    if (s >= 0 && values[s] < 0) values[s] = now;
    return s >= 0 ? values[s] == now : extent_now(g, e, values) == now;
}

static bool input_fits(const ep_graph *g, const ep_value *v, const ep_fact *f, int64_t *values) {
    ep_fact was;
    if (v->dtype != f->dtype || v->ndim != f->ndim) return false;
    fact_of_value(v, &was);
    for (int i = 0; i < f->ndim; i++) {
        if (v->dims[i] >= 0 && f->sizes[i] < 2) return false;
        if (!meets(g, v->sizes[i], v->dims[i], f->sizes[i], values)) return false;
        if (class_of(&was, i) != class_of(f, i)) return false;
    }
    for (int i = f->ndim - 1; i >= 0; i--)
        if (f->sizes[i] > 1 && !meets(g, v->strides[i], v->steps[i], f->strides[i], values)) return false;
    return true;
}

bool ep_guard_match(const ep_graph *g, int count, const ep_fact *facts, int64_t *values) {
    for (size_t s = 0; s < g->symbol_count; s++) values[s] = -1;
    for (size_t i = 0; i < g->value_count; i++) {
        const ep_value *v = &g->values[i];
        if (v->kind == EP_VALUE_INPUT && (v->index >= count || !input_fits(g, v, &facts[v->index], values)))
            return false;
    }
    return true;
}
