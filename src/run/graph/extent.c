/* Extents are kept in a table of the graph, each sum of products once; symbols carry who they were found equal to. */
#include "extent.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { MOST_EXTENTS = 4096, MOST_SYMBOLS = 512 };

static int32_t root_of(const ep_graph *g, int32_t s) {
    while (g->symbols[s].root != s) s = g->symbols[s].root;
    return s;
}

static bool equal(const ep_extent *a, const ep_extent *b) {
    return a->count == b->count && !memcmp(a->terms, b->terms, sizeof a->terms);
}

static int32_t intern(ep_graph *g, const ep_extent *x) {
    for (size_t i = 0; i < g->extent_count; i++)
        if (equal(&g->extents[i], x)) return (int32_t)i;
    if (g->extent_count >= MOST_EXTENTS ||
        !ep_grow(&g->extents, &g->extent_cap, g->extent_count + 1, sizeof *g->extents))
        return -1;
    g->extents[g->extent_count] = *x;
    return (int32_t)g->extent_count++;
}

static void empty(ep_extent *x) {
    memset(x, 0, sizeof *x);
    memset(x->terms, 0xff, sizeof x->terms);
    for (int i = 0; i < EP_EXTENT_TERMS; i++) x->terms[i].factor = 0;
}

static bool constant(const ep_extent *x, int64_t *n) {
    *n = 0;
    for (int64_t i = 0; i < x->count; i++) {
        if (x->terms[i].symbols[0] >= 0) return false;
        *n += x->terms[i].factor;
    }
    return true;
}

/* Adds one product to the sum: like products merge, the others stay in order. */
static bool add_term(ep_extent *x, const ep_extent_product *t) {
    if (t->factor == 0) return true;
    int64_t at = 0;
    for (; at < x->count; at++) {
        int c = memcmp(x->terms[at].symbols, t->symbols, sizeof t->symbols);
        if (c == 0) return !__builtin_add_overflow(x->terms[at].factor, t->factor, &x->terms[at].factor);
        if (c > 0) break;
    }
    if (x->count == EP_EXTENT_TERMS) return false;
    memmove(&x->terms[at + 1], &x->terms[at], sizeof *t * (size_t)(x->count - at));
    x->terms[at] = *t;
    x->count++;
    return true;
}

static bool product(const ep_extent_product *a, const ep_extent_product *b, ep_extent_product *out) {
    int i = 0, j = 0, n = 0;
    memset(out, 0xff, sizeof *out);
    if (__builtin_mul_overflow(a->factor, b->factor, &out->factor)) return false;
    while ((i < EP_EXTENT_FACTORS && a->symbols[i] >= 0) || (j < EP_EXTENT_FACTORS && b->symbols[j] >= 0)) {
        bool left = i < EP_EXTENT_FACTORS && a->symbols[i] >= 0;
        bool right = j < EP_EXTENT_FACTORS && b->symbols[j] >= 0;
        if (n == EP_EXTENT_FACTORS) return false;
        out->symbols[n++] = left && (!right || a->symbols[i] <= b->symbols[j]) ? a->symbols[i++] : b->symbols[j++];
    }
    return true;
}

int32_t ep_extent_is_symbol(const ep_graph *g, int32_t e) {
    if (e < 0) return -1;
    const ep_extent *x = &g->extents[e];
    bool one = x->count == 1 && x->terms[0].factor == 1 && x->terms[0].symbols[0] >= 0 && x->terms[0].symbols[1] < 0;
    return one ? x->terms[0].symbols[0] : -1;
}

/* `x` with what is fixed put in and equal symbols made one. `number`: new numbers of symbols, or NULL. */
static bool substitute(const ep_graph *g, const int32_t *number, const ep_extent *x, ep_extent *out) {
    empty(out);
    for (int64_t i = 0; i < x->count; i++) {
        ep_extent_product t, one, next;
        memset(&t, 0xff, sizeof t);
        t.factor = x->terms[i].factor;
        for (int k = 0; k < EP_EXTENT_FACTORS && x->terms[i].symbols[k] >= 0; k++) {
            int32_t r = root_of(g, x->terms[i].symbols[k]);
            memset(&one, 0xff, sizeof one);
            one.factor = g->symbols[r].fixed ? g->symbols[r].value : 1;
            if (!g->symbols[r].fixed) one.symbols[0] = (int16_t)(number ? number[r] : r);
            if (!product(&t, &one, &next)) return false;
            t = next;
        }
        if (!add_term(out, &t)) return false;
    }
    return true;
}

static void as_sum(const ep_graph *g, ep_dim d, ep_extent *out) {
    if (d.e >= 0 && substitute(g, NULL, &g->extents[d.e], out)) return;
    empty(out);
    if (d.n == 0) return;
    out->terms[0].factor = d.n;
    out->count = 1;
}

int32_t ep_extent_symbol(ep_graph *g, int32_t number) {
    ep_extent x;
    empty(&x);
    x.count = 1;
    x.terms[0].factor = 1;
    x.terms[0].symbols[0] = (int16_t)number;
    x.now = g->symbols[number].value;
    return intern(g, &x);
}

int32_t ep_symbol_create(ep_graph *g, int64_t value) {
    if (g->symbol_count >= MOST_SYMBOLS ||
        !ep_grow(&g->symbols, &g->symbol_cap, g->symbol_count + 1, sizeof *g->symbols))
        return -1;
    int32_t s = (int32_t)g->symbol_count;
    g->symbols[g->symbol_count++] = (ep_symbol){value, s, false};
    return ep_extent_symbol(g, s);
}

ep_dim ep_dim_fix(ep_graph *g, ep_dim a) {
    if (a.e < 0) return a;
    const ep_extent *x = &g->extents[a.e];
    for (int64_t i = 0; i < x->count; i++)
        for (int k = 0; k < EP_EXTENT_FACTORS && x->terms[i].symbols[k] >= 0; k++)
            g->symbols[root_of(g, x->terms[i].symbols[k])].fixed = true;
    return (ep_dim){a.n, -1};
}

static ep_dim finish(ep_graph *g, ep_dim a, ep_dim b, int64_t n, bool ok, const ep_extent *x) {
    int64_t number;
    if (ok && constant(x, &number)) return (ep_dim){n, -1};
    int32_t e = ok ? intern(g, x) : -1;
    if (e >= 0) {
        g->extents[e].now = n;
        return (ep_dim){n, e};
    }
    ep_dim_fix(g, a);
    ep_dim_fix(g, b);
    return (ep_dim){n, -1};
}

ep_dim ep_dim_add(ep_graph *g, ep_dim a, ep_dim b) {
    int64_t n = (int64_t)((uint64_t)a.n + (uint64_t)b.n);
    if (a.e < 0 && b.e < 0) return (ep_dim){n, -1};
    ep_extent x, y;
    as_sum(g, a, &x);
    as_sum(g, b, &y);
    bool ok = true;
    for (int64_t i = 0; ok && i < y.count; i++) ok = add_term(&x, &y.terms[i]);
    return finish(g, a, b, n, ok, &x);
}

ep_dim ep_dim_mul(ep_graph *g, ep_dim a, ep_dim b) {
    int64_t n = (int64_t)((uint64_t)a.n * (uint64_t)b.n);
    if (a.e < 0 && b.e < 0) return (ep_dim){n, -1};
    ep_extent x, y, sum;
    ep_extent_product t;
    as_sum(g, a, &x);
    as_sum(g, b, &y);
    empty(&sum);
    bool ok = true;
    for (int64_t i = 0; ok && i < x.count; i++)
        for (int64_t k = 0; ok && k < y.count; k++) ok = product(&x.terms[i], &y.terms[k], &t) && add_term(&sum, &t);
    return finish(g, a, b, n, ok, &sum);
}

ep_dim ep_dim_div(ep_graph *g, ep_dim a, ep_dim b) {
    int64_t n = b.n ? a.n / b.n : 0;
    if (a.e < 0 && b.e < 0) return (ep_dim){n, -1};
    ep_extent x;
    as_sum(g, a, &x);
    bool ok = b.e < 0 && b.n > 0;
    for (int64_t i = 0; ok && i < x.count; i++) {
        ok = x.terms[i].factor % b.n == 0;
        if (ok) x.terms[i].factor /= b.n;
    }
    return finish(g, a, b, n, ok, &x);
}

void ep_dim_same(ep_graph *g, ep_dim a, ep_dim b) {
    if (a.e == b.e) return;
    int32_t s = ep_extent_is_symbol(g, a.e), t = ep_extent_is_symbol(g, b.e);
    if (s < 0 || t < 0) {
        ep_dim_fix(g, a);
        ep_dim_fix(g, b);
        return;
    }
    s = root_of(g, s);
    t = root_of(g, t);
    if (s == t) return;
    int32_t to = s < t ? s : t, from = s < t ? t : s;
    g->symbols[from].root = to;
    g->symbols[to].fixed |= g->symbols[from].fixed;
}

void ep_extent_fix_value(ep_graph *g, int32_t value) {
    ep_value *v = &g->values[value];
    for (int i = 0; i < v->ndim; i++) {
        ep_dim_fix(g, ep_value_dim(g, value, i));
        ep_dim_fix(g, ep_value_step(g, value, i));
    }
    ep_dim_fix(g, (ep_dim){v->offset, v->start});
}

void ep_extent_like(ep_graph *g, int32_t to, int32_t from) {
    memcpy(g->values[to].dims, g->values[from].dims, sizeof g->values[to].dims);
    ep_extent_contiguous(g, to);
}

void ep_extent_contiguous(ep_graph *g, int32_t value) {
    ep_dim step = {1, -1};
    for (int i = g->values[value].ndim - 1; i >= 0; i--) {
        g->values[value].steps[i] = step.e;
        ep_dim d = ep_value_dim(g, value, i);
        if (d.e >= 0 || d.n > 1) step = ep_dim_mul(g, step, d);
    }
}

static bool multiply(const ep_graph *g, ep_extent *x, ep_dim d) {
    ep_extent y, sum;
    ep_extent_product t;
    as_sum(g, d, &y);
    empty(&sum);
    for (int64_t i = 0; i < x->count; i++)
        for (int64_t k = 0; k < y.count; k++)
            if (!product(&x->terms[i], &y.terms[k], &t) || !add_term(&sum, &t)) return false;
    *x = sum;
    return true;
}

bool ep_extent_is_contiguous(const ep_graph *g, const ep_value *v) {
    ep_extent want, have;
    as_sum(g, (ep_dim){1, -1}, &want);
    for (int i = v->ndim - 1; i >= 0; i--) {
        ep_dim d = {v->sizes[i], v->dims[i]};
        as_sum(g, (ep_dim){v->strides[i], v->steps[i]}, &have);
        if ((d.e >= 0 || d.n > 1) && !equal(&want, &have)) return false;
        if ((d.e >= 0 || d.n > 1) && !multiply(g, &want, d)) return false;
    }
    return true;
}

static void renumber(const int32_t *to, int32_t *e) {
    if (*e >= 0) *e = to[*e];
}

static void renumber_all(ep_graph *g, const int32_t *to) {
    for (size_t i = 0; i < g->value_count; i++) {
        ep_value *v = &g->values[i];
        for (int d = 0; d < v->ndim; d++) {
            renumber(to, &v->dims[d]);
            renumber(to, &v->steps[d]);
        }
        renumber(to, &v->start);
    }
}

ep_status ep_extent_settle(ep_graph *g, ep_error *err) {
    size_t count = g->extent_count, free_count = 0;
    if (g->symbol_count == 0) return EP_OK;
    ep_extent *old = malloc(sizeof *old * (count + 1));
    int32_t *to = malloc(sizeof *to * (count + 1)), *number = calloc(g->symbol_count, sizeof *number);
    bool ok = old && to && number;
    for (size_t s = 0; ok && s < g->symbol_count; s++) {
        int32_t r = root_of(g, (int32_t)s);
        if (r == (int32_t)s && !g->symbols[s].fixed) number[s] = (int32_t)free_count++;
    }
    if (ok) memcpy(old, g->extents, sizeof *old * count);
    g->extent_count = 0;
    for (size_t i = 0; ok && i < count; i++) {
        ep_extent x;
        int64_t n;
        to[i] = -1;
        ok = substitute(g, number, &old[i], &x);
        x.now = old[i].now;
        if (ok && !constant(&x, &n)) {
            to[i] = intern(g, &x);
            ok = to[i] >= 0;
        }
    }
    if (ok) renumber_all(g, to);
    for (size_t s = 0, n = 0; ok && s < g->symbol_count; s++)
        if (g->symbols[s].root == (int32_t)s && !g->symbols[s].fixed) {
            g->symbols[n] = (ep_symbol){g->symbols[s].value, (int32_t)n, false};
            n++;
        }
    if (ok) g->symbol_count = free_count;
    free(old);
    free(to);
    free(number);
    return ok ? EP_OK : ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "the sizes of a graph could not be settled");
}

static bool value_of(const ep_extent *x, const int64_t *values, int64_t *out) {
    *out = 0;
    for (int64_t i = 0; i < x->count; i++) {
        int64_t t = x->terms[i].factor;
        for (int k = 0; k < EP_EXTENT_FACTORS && x->terms[i].symbols[k] >= 0; k++)
            if (__builtin_mul_overflow(t, values[x->terms[i].symbols[k]], &t)) return false;
        if (__builtin_add_overflow(*out, t, out)) return false;
    }
    return true;
}

ep_status ep_extent_evaluate(ep_graph *g, const int64_t *values, ep_error *err) {
    bool ok = true;
    for (size_t i = 0; ok && i < g->extent_count; i++) ok = value_of(&g->extents[i], values, &g->extents[i].now);
    if (!ok) return ep_fail(err, EP_ERROR_OVERFLOW, "a size derived from the inputs' sizes is larger than 2^63 - 1");
    for (size_t i = 0; i < g->value_count; i++) {
        ep_value *v = &g->values[i];
        for (int d = 0; d < v->ndim; d++) {
            if (v->dims[d] >= 0) v->sizes[d] = g->extents[v->dims[d]].now;
            if (v->steps[d] >= 0) v->strides[d] = g->extents[v->steps[d]].now;
        }
        if (v->start >= 0) v->offset = g->extents[v->start].now;
        EP_TRY(ep_shape_numel(v->ndim, v->sizes, err, &v->numel));
    }
    for (size_t i = 0; i < g->group_count; i++)
        for (int d = 0; d < g->groups[i].ndim; d++)
            if (g->groups[i].dims[d] >= 0) g->groups[i].sizes[d] = g->extents[g->groups[i].dims[d]].now;
    return EP_OK;
}

ep_status ep_extent_restore(ep_graph *g, ep_error *err) {
    int64_t values[MOST_SYMBOLS];
    for (size_t i = 0; i < g->symbol_count; i++) values[i] = g->symbols[i].value;
    return ep_extent_evaluate(g, values, err);
}

static bool is_prime(int64_t n) {
    for (int64_t d = 2; d * d <= n; d++)
        if (n % d == 0) return false;
    return true;
}

/* Does a number that no symbol is in have p as a factor? */
static bool in_use(const ep_graph *g, int64_t p) {
    for (size_t i = 0; i < g->value_count; i++) {
        const ep_value *v = &g->values[i];
        for (int d = 0; d < v->ndim; d++)
            if ((v->dims[d] < 0 && v->sizes[d] && v->sizes[d] % p == 0) ||
                (v->steps[d] < 0 && v->strides[d] && v->strides[d] % p == 0))
                return true;
        if (v->start < 0 && v->offset && v->offset % p == 0) return true;
    }
    return false;
}

void ep_extent_shadow(const ep_graph *g, int64_t *values) {
    int64_t p = 1009;
    for (size_t i = 0; i < g->value_count; i++)
        if (g->values[i].ndim > 4) p = 131; /* products of eight stay below 2^63 */
    for (size_t i = 0; i < g->symbol_count; i++) {
        while (!is_prime(p) || in_use(g, p)) p++;
        values[i] = p++;
    }
}

void ep_extent_print(const ep_graph *g, ep_dim d, ep_text *out) {
    if (d.e < 0) {
        ep_text_printf(out, "%lld", (long long)d.n);
        return;
    }
    const ep_extent *x = &g->extents[d.e];
    for (int64_t i = x->count - 1; i >= 0; i--) {
        const ep_extent_product *t = &x->terms[i];
        bool bare = t->symbols[0] < 0;
        if (i + 1 < x->count) ep_text_char(out, '+');
        if (t->factor != 1 || bare) ep_text_printf(out, "%lld%s", (long long)t->factor, bare ? "" : "*");
        for (int k = 0; k < EP_EXTENT_FACTORS && t->symbols[k] >= 0; k++)
            ep_text_printf(out, "%ss%d", k ? "*" : "", t->symbols[k]);
    }
}

ep_dim ep_extent_term(ep_graph *g, int64_t factor, int count, const int32_t *symbols) {
    ep_dim d = {factor, -1};
    for (int i = 0; i < count; i++)
        d = ep_dim_mul(g, d, (ep_dim){g->symbols[symbols[i]].value, ep_extent_symbol(g, symbols[i])});
    return d;
}
