/* Prints graphs and reads them back; values are renumbered densely in print order. */
#include "ir_text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "extent.h"
#include "verify.h"

/* The attributes that text knows, all integers, by offset in ep_attr. */
typedef struct field {
    const char *name;
    size_t offset;
    char kind; /* i int, l int64, b bool, d double */
} field;
#define FIELD(name, kind)                                                                                              \
    { #name, offsetof(ep_attr, name), kind }
static const field fields[] = {FIELD(dim, 'i'),   FIELD(dim1, 'i'), FIELD(start, 'l'),   FIELD(stop, 'l'),
                               FIELD(step, 'l'),  FIELD(dims, 'i'), FIELD(keepdim, 'b'), FIELD(eps, 'd'),
                               FIELD(alpha, 'd'), FIELD(beta, 'd')};
#undef FIELD
enum { FIELDS = sizeof fields / sizeof *fields };

static void print_sizes(ep_text *out, char open, int n, const int64_t *v, char close) {
    ep_text_char(out, open);
    for (int i = 0; i < n; i++) ep_text_printf(out, "%s%lld", i ? "," : "", (long long)v[i]);
    ep_text_char(out, close);
}

static void print_extents(const ep_graph *g, ep_text *out, char open, int n, const int64_t *v, const int32_t *e,
                          char close) {
    ep_text_char(out, open);
    for (int i = 0; i < n; i++) {
        if (i) ep_text_char(out, ',');
        ep_extent_print(g, (ep_dim){v[i], e[i]}, out);
    }
    ep_text_char(out, close);
}

static void print_type(const ep_graph *g, const ep_value *v, ep_text *out) {
    ep_text_printf(out, " : %s", ep_dtype_name(v->dtype));
    print_extents(g, out, '[', v->ndim, v->sizes, v->dims, ']');
    int64_t plain[EP_MAX_DIMS];
    ep_stride_contiguous(v->ndim, v->sizes, plain);
    if (memcmp(plain, v->strides, sizeof(int64_t) * (size_t)v->ndim) || !ep_extent_is_contiguous(g, v))
        print_extents(g, out, '{', v->ndim, v->strides, v->steps, '}');
}

static void print_attr(const ep_attr *a, ep_text *out) {
    for (int i = 0; i < FIELDS; i++) {
        const void *p = (const char *)a + fields[i].offset;
        long long whole = fields[i].kind == 'i'   ? *(const int *)p
                          : fields[i].kind == 'l' ? *(const int64_t *)p
                          : fields[i].kind == 'b' ? *(const bool *)p
                                                  : 0;
        if (fields[i].kind == 'd') {
            if (*(const double *)p != 0) ep_text_printf(out, " %s=%.17g", fields[i].name, *(const double *)p);
        } else if (whole) {
            ep_text_printf(out, " %s=%lld", fields[i].name, whole);
        }
    }
    if (a->act != EP_ACT_NONE) ep_text_printf(out, " act=%s", ep_act_name(a->act));
}

static void print_node(const ep_graph *g, const ep_node *n, const int32_t *names, ep_text *out) {
    const ep_value *v = &g->values[n->output];
    ep_text_printf(out, "%%%d", names[n->output]);
    print_type(g, v, out);
    ep_text_printf(out, " = %s%s(",
                   n->kind == EP_NODE_GEMM   ? "gemm:"
                   : n->kind == EP_NODE_VIEW ? "view:"
                                             : "",
                   ep_op_name(n->op));
    for (int k = 0; k < n->input_count; k++) ep_text_printf(out, "%s%%%d", k ? ", " : "", names[n->inputs[k]]);
    ep_text_char(out, ')');
    print_attr(&n->attr, out);
    if (n->attr.ndim) {
        ep_text_add(out, " sizes=");
        print_sizes(out, '[', n->attr.ndim, n->attr.sizes, ']');
    }
    if (n->gemm.bias >= 0) ep_text_printf(out, " bias=%d", n->gemm.bias);
    if (n->gemm.c >= 0) ep_text_printf(out, " c=%d", n->gemm.c);
    if (n->gemm.epilogue >= 0) ep_text_printf(out, " epilogue=%d", n->gemm.epilogue);
    if (n->gemm.then >= 0) ep_text_printf(out, " then=%d", n->gemm.then);
    if (v->base >= 0) {
        ep_text_printf(out, " of=%%%d+", names[v->base]);
        ep_extent_print(g, (ep_dim){v->offset, v->start}, out);
    }
    if (n->group >= 0) ep_text_printf(out, " group=%d", n->group);
    if (n->order >= 0) ep_text_printf(out, " order=%d", n->order);
    if (g->slots && g->slots[n->output].offset >= 0)
        ep_text_printf(out, " at=%lld", (long long)g->slots[n->output].offset);
    ep_text_char(out, '\n');
}

/* A dead view node still names the value that others read through. */
static bool wanted(const ep_graph *g, const ep_node *n, const bool *read) {
    (void)g;
    return !n->dead || (n->kind == EP_NODE_VIEW && read[n->output]);
}

static void mark_read(const ep_graph *g, bool *read) {
    for (size_t i = 0; i < g->node_count; i++)
        for (int k = 0; !g->nodes[i].dead && k < g->nodes[i].input_count; k++) read[g->nodes[i].inputs[k]] = true;
    for (size_t i = 0; i < g->output_count; i++) read[g->outputs[i]] = true;
    for (size_t i = g->node_count; i-- > 0;) /* what a wanted dead view was made from */
        if (g->nodes[i].dead && g->nodes[i].kind == EP_NODE_VIEW && read[g->nodes[i].output])
            for (int k = 0; k < g->nodes[i].input_count; k++) read[g->nodes[i].inputs[k]] = true;
}

void ep_graph_print(const ep_graph *g, ep_text *out) {
    size_t n = g->value_count ? g->value_count : 1;
    int32_t *names = calloc(n, sizeof *names), next = 0;
    bool *read = calloc(n, sizeof *read);
    if (!names || !read) {
        out->failed = true;
        free(names);
        free(read);
        return;
    }
    mark_read(g, read);
    ep_text_printf(out, "graph rounding=%s\n", g->rounding == EP_ROUNDING_EAGER ? "eager" : "fewest");
    for (size_t i = 0; i < g->symbol_count; i++)
        ep_text_printf(out, "symbol s%zu = %lld\n", i, (long long)g->symbols[i].value);
    for (size_t i = 0; i < g->group_count; i++) {
        ep_text_printf(out, "group %zu ", i);
        print_extents(g, out, '[', g->groups[i].ndim, g->groups[i].sizes, g->groups[i].dims, ']');
        ep_text_add(out, g->groups[i].reduces ? " reduces\n" : g->groups[i].lone ? " lone\n" : "\n");
    }
    for (int kind = EP_VALUE_INPUT; kind <= EP_VALUE_CONST; kind++)
        for (size_t i = 0; i < g->value_count; i++) {
            if ((int)g->values[i].kind != kind) continue;
            names[i] = next++;
            ep_text_printf(out, "%%%d", names[i]);
            print_type(g, &g->values[i], out);
            ep_text_add(out, kind == EP_VALUE_INPUT ? " = input\n" : " = const\n");
        }
    for (size_t i = 0; i < g->node_count; i++) {
        if (!wanted(g, &g->nodes[i], read)) continue;
        names[g->nodes[i].output] = next++;
        print_node(g, &g->nodes[i], names, out);
    }
    for (size_t i = 0; i < g->output_count; i++) ep_text_printf(out, "output %%%d\n", names[g->outputs[i]]);
    for (size_t i = 0; i < g->reason_count; i++) ep_text_printf(out, "# %s\n", g->reasons[i].text);
    free(names);
    free(read);
}

typedef struct parser {
    const char *p, *end, *line_start;
    int line;
    ep_error *err;
    ep_graph *g;
    int32_t *ids; /* text number -> value */
    size_t id_cap;
} parser;

static ep_status bad(parser *p, const char *what) {
    return ep_fail_line(p->err, EP_ERROR_PARSE, p->line, (int)(p->p - p->line_start) + 1, "expected %s", what);
}

static void blanks(parser *p) {
    while (p->p < p->end && (*p->p == ' ' || *p->p == '\t' || *p->p == '\r')) p->p++;
}

static bool take(parser *p, const char *word) {
    blanks(p);
    size_t n = strlen(word);
    if ((size_t)(p->end - p->p) < n || memcmp(p->p, word, n)) return false;
    p->p += n;
    return true;
}

static bool word(parser *p, char *out, size_t size) {
    blanks(p);
    size_t n = 0;
    while (p->p < p->end && ((*p->p >= 'a' && *p->p <= 'z') || (*p->p >= '0' && *p->p <= '9') || *p->p == '_')) {
        if (n + 1 >= size) return false;
        out[n++] = *p->p++;
    }
    out[n] = 0;
    return n > 0;
}

static bool whole(parser *p, int64_t *out) {
    blanks(p);
    bool minus = p->p < p->end && *p->p == '-';
    const char *start = p->p + minus;
    uint64_t v = 0;
    const char *q = start;
    while (q < p->end && *q >= '0' && *q <= '9') {
        if (v > (uint64_t)INT64_MAX / 10 - 1) return false;
        v = v * 10 + (uint64_t)(*q++ - '0');
    }
    if (q == start) return false;
    p->p = q;
    *out = minus ? -(int64_t)v : (int64_t)v;
    return true;
}

static bool real(parser *p, double *out) {
    char text[64];
    size_t n = 0;
    blanks(p);
    while (p->p < p->end && n + 1 < sizeof text && strchr("0123456789+-.eEinfa", *p->p) && *p->p) text[n++] = *p->p++;
    text[n] = 0;
    char *stop;
    *out = strtod(text, &stop);
    return n > 0 && *stop == 0;
}

static ep_status list(parser *p, char open, char close, int *n, int64_t *out) {
    *n = 0;
    char mark[2] = {open, 0}, end[2] = {close, 0};
    if (!take(p, mark)) return bad(p, open == '[' ? "'['" : "'{'");
    if (take(p, end)) return EP_OK;
    for (;;) {
        if (*n == EP_MAX_DIMS) return bad(p, "at most 8 dims");
        if (!whole(p, &out[(*n)++])) return bad(p, "a number");
        if (take(p, end)) return EP_OK;
        if (!take(p, ",")) return bad(p, "',' or the end of the list");
    }
}

/* 768, s0, 768*s0*s1, and sums of such. */
static ep_status extent(parser *p, ep_dim *out) {
    *out = (ep_dim){0, -1};
    do {
        int64_t factor = 1, id;
        int32_t symbols[EP_EXTENT_FACTORS];
        int count = 0;
        do {
            if (!take(p, "s")) {
                int64_t n;
                if (!whole(p, &n) || __builtin_mul_overflow(factor, n, &factor)) return bad(p, "a number or a symbol");
                continue;
            }
            if (!whole(p, &id) || id < 0 || (size_t)id >= p->g->symbol_count)
                return bad(p, "a symbol that stands above");
            if (count == EP_EXTENT_FACTORS) return bad(p, "at most 8 symbols");
            symbols[count++] = (int32_t)id;
        } while (take(p, "*"));
        ep_dim d = {factor, -1};
        for (int i = 0; i < count; i++)
            if (__builtin_mul_overflow(d.n, p->g->symbols[symbols[i]].value, &d.n)) return bad(p, "a smaller product");
        if (__builtin_add_overflow(out->n, d.n, &d.n)) return bad(p, "a smaller sum");
        *out = ep_dim_add(p->g, *out, ep_extent_term(p->g, factor, count, symbols));
    } while (take(p, "+"));
    return EP_OK;
}

static ep_status extents(parser *p, char open, char close, int *n, int64_t *out, int32_t *e) {
    *n = 0;
    char mark[2] = {open, 0}, end[2] = {close, 0};
    if (!take(p, mark)) return bad(p, open == '[' ? "'['" : "'{'");
    if (take(p, end)) return EP_OK;
    for (;;) {
        ep_dim d;
        if (*n == EP_MAX_DIMS) return bad(p, "at most 8 dims");
        EP_TRY(extent(p, &d));
        out[*n] = d.n;
        e[(*n)++] = d.e;
        if (take(p, end)) return EP_OK;
        if (!take(p, ",")) return bad(p, "',' or the end of the list");
    }
}

static ep_status value_ref(parser *p, int32_t *out) {
    int64_t id;
    if (!take(p, "%") || !whole(p, &id)) return bad(p, "a value as %0");
    if (id < 0 || (size_t)id >= p->id_cap || p->ids[id] < 0) return bad(p, "a value that stands above");
    *out = p->ids[id];
    return EP_OK;
}

static ep_status define(parser *p, int64_t id, int32_t value) {
    if (value < 0) return ep_fail(p->err, EP_ERROR_OUT_OF_MEMORY, "graph of more than %d values", EP_GRAPH_MAX);
    size_t old = p->id_cap;
    if (!ep_grow(&p->ids, &p->id_cap, (size_t)id + 1, sizeof *p->ids))
        return ep_fail(p->err, EP_ERROR_OUT_OF_MEMORY, "no memory for the graph's values");
    for (size_t i = old; i < p->id_cap; i++) p->ids[i] = -1;
    if (p->ids[id] >= 0) return bad(p, "a value number that is new");
    p->ids[id] = value;
    return EP_OK;
}

static ep_status set_attr(parser *p, const char *key, ep_attr *a, bool *known) {
    *known = true;
    for (int i = 0; i < FIELDS; i++) {
        if (strcmp(key, fields[i].name)) continue;
        void *at = (char *)a + fields[i].offset;
        int64_t v = 0;
        if (fields[i].kind == 'd') return real(p, at) ? EP_OK : bad(p, "a number");
        if (!whole(p, &v)) return bad(p, "a whole number");
        if (fields[i].kind == 'l') *(int64_t *)at = v;
        if (fields[i].kind == 'b') *(bool *)at = v != 0;
        if (fields[i].kind != 'i') return EP_OK;
        if (v < -1000 || v > 1000) return bad(p, "a number between -1000 and 1000");
        *(int *)at = (int)v;
        return EP_OK;
    }
    if (!strcmp(key, "sizes")) return list(p, '[', ']', &a->ndim, a->sizes);
    char name[32];
    if (!strcmp(key, "act"))
        return word(p, name, sizeof name) && ep_act_parse(name, &a->act) == EP_OK ? EP_OK : bad(p, "an activation");
    *known = false;
    return EP_OK;
}

typedef struct extras {
    int64_t bias, c, epilogue, then, group, order, at;
    ep_dim offset;
    int32_t base;
} extras;

static ep_status set_extra(parser *p, const char *key, extras *x) {
    const struct {
        const char *name;
        int64_t *at;
    } table[] = {{"bias", &x->bias}, {"c", &x->c},         {"epilogue", &x->epilogue},
                 {"then", &x->then}, {"group", &x->group}, {"order", &x->order},
                 {"at", &x->at}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strcmp(key, table[i].name))
            return whole(p, table[i].at) && *table[i].at >= 0 ? EP_OK : bad(p, "a whole number, 0 or more");
    if (!strcmp(key, "of")) {
        EP_TRY(value_ref(p, &x->base));
        return take(p, "+") ? extent(p, &x->offset) : bad(p, "'+' and an offset");
    }
    return bad(p, "a known attribute");
}

static bool line_ends(parser *p) {
    blanks(p);
    return p->p == p->end || *p->p == '\n' || *p->p == '#';
}

static ep_status attributes(parser *p, ep_attr *a, extras *x) {
    *x = (extras){-1, -1, -1, -1, -1, -1, -1, {0, -1}, -1};
    while (!line_ends(p)) {
        char key[32];
        bool known;
        if (!word(p, key, sizeof key) || !take(p, "=")) return bad(p, "name=value");
        EP_TRY(set_attr(p, key, a, &known));
        if (!known) EP_TRY(set_extra(p, key, x));
    }
    return EP_OK;
}

/* What a line says of a value's type. */
typedef struct type {
    ep_shape shape;
    int64_t strides[EP_MAX_DIMS];
    int32_t dims[EP_MAX_DIMS], steps[EP_MAX_DIMS];
    bool strided;
} type;

static void set_type(parser *p, int32_t value, const type *t) {
    ep_value *v = &p->g->values[value];
    memcpy(v->dims, t->dims, sizeof(int32_t) * (size_t)v->ndim);
    if (!t->strided) {
        ep_extent_contiguous(p->g, value);
        return;
    }
    memcpy(v->strides, t->strides, sizeof(int64_t) * (size_t)v->ndim);
    memcpy(v->steps, t->steps, sizeof(int32_t) * (size_t)v->ndim);
}

static ep_status apply(parser *p, int32_t value, const extras *x, const type *t) {
    ep_value *v = &p->g->values[value];
    ep_node *n = &p->g->nodes[v->node];
    if (x->epilogue >= (int64_t)p->g->group_count || x->then >= (int64_t)p->g->group_count)
        return bad(p, "a group that stands above");
    n->gemm = (ep_gemm_form){(int)x->bias, (int)x->c, (int32_t)x->epilogue, (int32_t)x->then};
    if (x->bias >= n->input_count || x->c >= n->input_count) return bad(p, "an input position that exists");
    if (x->group >= (int64_t)p->g->group_count) return bad(p, "a group that stands above");
    if (x->order > EP_GRAPH_MAX) return bad(p, "a smaller order");
    n->group = (int32_t)x->group;
    n->order = (int32_t)x->order;
    set_type(p, value, t);
    if (n->kind != EP_NODE_VIEW) return x->base < 0 ? EP_OK : bad(p, "no 'of' on an op that makes memory");
    int32_t source = n->input_count ? n->inputs[0] : -1;
    v->base = x->base >= 0 ? x->base : source >= 0 ? ep_graph_root(p->g, source) : -1;
    v->offset = x->offset.n;
    v->start = x->offset.e;
    return EP_OK;
}

static ep_status operation(parser *p, int64_t id, const type *t) {
    const ep_shape *shape = &t->shape;
    ep_node_kind kind = take(p, "gemm:") ? EP_NODE_GEMM : take(p, "view:") ? EP_NODE_VIEW : EP_NODE_OP;
    char name[32];
    ep_op op;
    if (!word(p, name, sizeof name) || ep_op_parse(name, &op) != EP_OK) return bad(p, "an op");
    if (!take(p, "(")) return bad(p, "'('");
    int32_t in[80];
    int count = 0;
    while (!take(p, ")")) {
        if (count && !take(p, ",")) return bad(p, "',' or ')'");
        if (count == 80) return bad(p, "at most 80 inputs");
        EP_TRY(value_ref(p, &in[count++]));
    }
    ep_attr a = {0};
    extras x;
    EP_TRY(attributes(p, &a, &x));
    a.dtype = op == EP_OP_CAST ? shape->dtype : a.dtype;
    int32_t v = ep_graph_op(p->g, kind, op, &a, count, in, shape);
    EP_TRY(define(p, id, v));
    return apply(p, v, &x, t);
}

static ep_status definition(parser *p) {
    int64_t id;
    char name[16];
    type t = {0};
    ep_shape *s = &t.shape;
    int stride_count = 0;
    if (!whole(p, &id) || id < 0 || id >= EP_GRAPH_MAX) return bad(p, "a value number below 100000");
    if (!take(p, ":") || !word(p, name, sizeof name) || ep_dtype_parse(name, &s->dtype) != EP_OK)
        return bad(p, "':' and a dtype");
    EP_TRY(extents(p, '[', ']', &s->ndim, s->sizes, t.dims));
    blanks(p);
    t.strided = p->p < p->end && *p->p == '{';
    if (t.strided) EP_TRY(extents(p, '{', '}', &stride_count, t.strides, t.steps));
    if (t.strided && stride_count != s->ndim) return bad(p, "as many strides as sizes");
    for (int i = 0; i < s->ndim; i++)
        if (s->sizes[i] < 0 || (t.strided && t.strides[i] < 0)) return bad(p, "sizes and strides of 0 or more");
    if (!take(p, "=")) return bad(p, "'='");
    bool input = take(p, "input");
    if (!input && !take(p, "const")) return operation(p, id, &t);
    int32_t v = input ? ep_graph_input(p->g, s->dtype, s->ndim, s->sizes, t.strided ? t.strides : NULL)
                      : ep_graph_const(p->g, s->dtype, s->ndim, s->sizes, t.strided ? t.strides : NULL);
    if (v >= 0) set_type(p, v, &t);
    return define(p, id, v);
}

static ep_status group_line(parser *p) {
    int64_t id, sizes[EP_MAX_DIMS];
    int32_t dims[EP_MAX_DIMS];
    int n;
    if (!whole(p, &id) || id != (int64_t)p->g->group_count) return bad(p, "the next group number");
    EP_TRY(extents(p, '[', ']', &n, sizes, dims));
    int32_t at = ep_graph_group(p->g, n, sizes);
    if (at < 0) return ep_fail(p->err, EP_ERROR_OUT_OF_MEMORY, "no memory for the graph's groups");
    memcpy(p->g->groups[at].dims, dims, sizeof(int32_t) * (size_t)n);
    p->g->groups[at].reduces = take(p, "reduces");
    p->g->groups[at].lone = !p->g->groups[at].reduces && take(p, "lone");
    return EP_OK;
}

static ep_status symbol_line(parser *p) {
    int64_t id, n;
    if (!take(p, "s") || !whole(p, &id) || id != (int64_t)p->g->symbol_count) return bad(p, "the next symbol, as s0");
    if (!take(p, "=") || !whole(p, &n) || n < 1) return bad(p, "'=' and a number of 1 or more");
    return ep_symbol_create(p->g, n) >= 0
               ? EP_OK
               : ep_fail(p->err, EP_ERROR_OUT_OF_MEMORY, "no memory for the graph's symbols");
}

static ep_status statement(parser *p) {
    if (line_ends(p)) return EP_OK;
    if (take(p, "%")) return definition(p);
    if (take(p, "group")) return group_line(p);
    if (take(p, "symbol")) return symbol_line(p);
    if (take(p, "graph")) {
        if (!take(p, "rounding=")) return bad(p, "rounding=eager or rounding=fewest");
        bool eager = take(p, "eager");
        p->g->rounding = eager ? EP_ROUNDING_EAGER : EP_ROUNDING_FEWEST;
        return eager || take(p, "fewest") ? EP_OK : bad(p, "eager or fewest");
    }
    if (!take(p, "output")) return bad(p, "a value, 'output', 'group' or 'graph'");
    int32_t v;
    EP_TRY(value_ref(p, &v));
    return ep_graph_output(p->g, v) >= 0 ? EP_OK
                                         : ep_fail(p->err, EP_ERROR_OUT_OF_MEMORY, "no memory for the graph's outputs");
}

static ep_status statements(parser *p) {
    for (;;) {
        EP_TRY(statement(p));
        blanks(p);
        if (p->p < p->end && *p->p == '#')
            while (p->p < p->end && *p->p != '\n') p->p++;
        if (p->p == p->end) return EP_OK;
        if (*p->p != '\n') return bad(p, "the end of the line");
        p->line_start = ++p->p;
        p->line++;
    }
}

ep_status ep_graph_parse(const char *text, size_t len, ep_error *err, ep_graph **out) {
    parser p = {.p = text, .end = text + len, .line_start = text, .line = 1, .err = err, .g = ep_graph_create()};
    if (!p.g) return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory for a graph");
    ep_status s = statements(&p);
    if (s == EP_OK) s = ep_graph_verify(p.g, err);
    free(p.ids);
    if (s == EP_OK)
        *out = p.g;
    else
        ep_graph_destroy(p.g);
    return s;
}
