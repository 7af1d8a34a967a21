/* Group -> loop nest: statements in node order, operands with their strides over the domain, dims merged where every
 * operand allows it. */
#include "loop.h"

#include <string.h>

#include "base/hash.h"

int ep_loop_add(ep_loop *l, ep_stmt s) {
    if (l->stmt_count >= EP_LOOP_STMTS) return -1;
    static const int used[] = {[EP_STMT_LOAD] = 0, [EP_STMT_CONST] = 0, [EP_STMT_COUNT] = 0,  [EP_STMT_OP] = 3,
                               [EP_STMT_FMA] = 3,  [EP_STMT_ROUND] = 1, [EP_STMT_REDUCE] = 1, [EP_STMT_STORE] = 1};
    for (int k = 0; k < 3; k++) {
        if (k >= used[s.kind]) s.in[k] = -1;
        if (k < used[s.kind] && s.in[k] < 0 && k == 0) return -1; /* an earlier add failed */
    }
    l->stmts[l->stmt_count] = s;
    return l->stmt_count++;
}

typedef struct builder {
    const ep_graph *g;
    const ep_group *group;
    int32_t id;
    ep_loop *l;
    int32_t members[EP_LOOP_STMTS];
    int member_count;
    int32_t made[EP_LOOP_STMTS]; /* by member: its value's statement */
    bool row_shape[EP_LOOP_STMTS];
} builder;

static int member_of(const builder *b, int32_t value) {
    for (int i = 0; i < b->member_count; i++)
        if (b->g->nodes[b->members[i]].output == value) return i;
    return -1;
}

/* Strides of `v` over the domain. A row-shaped reader of `reader_dims` dims sees it over the outer dims alone; its own
 * last dim is 1 or was dropped. Where that dim is 1 its stride means nothing, and must not look like a whole row's. */
static ep_status domain_strides(const builder *b, const ep_value *v, bool row, int reader_dims,
                                int64_t strides[EP_MAX_DIMS], ep_error *err) {
    int64_t sizes[EP_MAX_DIMS], ignored[EP_MAX_DIMS];
    int ndim = b->group->ndim;
    memset(strides, 0, sizeof(int64_t) * EP_MAX_DIMS);
    memcpy(sizes, b->group->sizes, sizeof sizes);
    if (row) sizes[ndim - 1] = 1;
    if (row && reader_dims < ndim) ndim--;
    EP_TRY(ep_view_expand(v->ndim, v->sizes, v->strides, ndim, sizes, err, ignored, strides));
    for (int i = 0; i < ndim; i++)
        if (sizes[i] == 1) strides[i] = 0;
    return EP_OK;
}

static int add_operand(builder *b, int32_t value, bool output, bool row, const int64_t *strides) {
    ep_loop *l = b->l;
    const ep_value *v = &b->g->values[value];
    for (int i = 0; i < l->operand_count; i++) {
        ep_loop_operand *o = &l->operands[i];
        const ep_value *w = &b->g->values[o->value];
        if (output || o->output || ep_graph_root(b->g, o->value) != ep_graph_root(b->g, value) ||
            v->offset != w->offset || memcmp(o->strides, strides, sizeof o->strides))
            continue;
        o->row |= row;
        return i;
    }
    if (l->operand_count == EP_LOOP_OPERANDS) return -1;
    ep_loop_operand *o = &l->operands[l->operand_count];
    *o = (ep_loop_operand){value, v->dtype, EP_WALK_NEXT, output, row, {0}};
    memcpy(o->strides, strides, sizeof o->strides);
    return l->operand_count++;
}

static int load(builder *b, int operand) {
    for (int i = 0; i < b->l->stmt_count; i++)
        if (b->l->stmts[i].kind == EP_STMT_LOAD && b->l->stmts[i].operand == operand) return i;
    return ep_loop_add(b->l,
                       (ep_stmt){.kind = EP_STMT_LOAD, .operand = operand, .dtype = b->l->operands[operand].dtype});
}

static ep_status input_stmt(builder *b, int32_t value, bool row, int reader_dims, ep_error *err, int *out) {
    int m = member_of(b, ep_graph_root(b->g, value));
    if (m >= 0) {
        *out = b->made[m];
        return EP_OK;
    }
    int64_t strides[EP_MAX_DIMS];
    EP_TRY(domain_strides(b, &b->g->values[value], row, reader_dims, strides, err));
    int o = add_operand(b, value, false, row, strides);
    *out = o < 0 ? -1 : load(b, o);
    return *out < 0 ? ep_fail(err, EP_ERROR_UNSUPPORTED, "a group of more than %d operands", EP_LOOP_OPERANDS) : EP_OK;
}

static int rounded(ep_loop *l, int x, ep_dtype dtype, bool always) {
    if (!(dtype == EP_DTYPE_BF16 || dtype == EP_DTYPE_F16) || (l->rounding != EP_ROUNDING_EAGER && !always)) return x;
    return ep_loop_add(l, (ep_stmt){.kind = EP_STMT_ROUND, .in = {x}, .dtype = dtype});
}

/* Weight and bias of a norm run along the last dim whatever the reader's shape. */
static ep_status compute(builder *b, const ep_node *n, bool row, ep_error *err, int *out) {
    int in[3] = {-1, -1, -1};
    const ep_op_info *info = ep_op_get(n->op);
    for (int k = 0; k < n->input_count; k++)
        EP_TRY(input_stmt(b, n->inputs[k], row, b->g->values[n->output].ndim, err, &in[k]));
    int s = in[0];
    if (info->kind == EP_KIND_POINTWISE)
        s = ep_loop_add(b->l, (ep_stmt){.kind = EP_STMT_OP, .op = n->op, .in = {in[0], in[1], in[2]}});
    else if (info->kind == EP_KIND_REDUCE)
        s = ep_loop_reduction(b->l, n->op, in[0]);
    else if (info->kind == EP_KIND_NORM)
        s = ep_loop_norm(b->l, n->op, n->attr.eps, in[0], in[1], in[2]);
    *out = rounded(b->l, s, b->g->values[n->output].dtype, n->op == EP_OP_CAST);
    return *out < 0 ? ep_fail(err, EP_ERROR_UNSUPPORTED, "a group of more than %d steps", EP_LOOP_STMTS) : EP_OK;
}

static bool read_outside(const ep_graph *g, int32_t value, int32_t group) {
    for (size_t i = 0; i < g->output_count; i++)
        if (ep_graph_root(g, g->outputs[i]) == value) return true;
    for (size_t i = 0; i < g->node_count; i++) {
        const ep_node *n = &g->nodes[i];
        if (n->dead || n->kind == EP_NODE_VIEW || n->group == group) continue;
        for (int k = 0; k < n->input_count; k++)
            if (ep_graph_root(g, n->inputs[k]) == value) return true;
    }
    return false;
}

static ep_status store(builder *b, int member, ep_error *err) {
    int32_t value = b->g->nodes[b->members[member]].output;
    const ep_value *v = &b->g->values[value];
    if (!read_outside(b->g, value, b->id)) return EP_OK;
    int64_t strides[EP_MAX_DIMS];
    EP_TRY(domain_strides(b, v, b->row_shape[member], v->ndim, strides, err));
    int o = add_operand(b, value, true, b->row_shape[member], strides), x = b->made[member];
    /* The store rounds; rounding before it to the same dtype is lost work. */
    if (b->l->stmts[x].kind == EP_STMT_ROUND && b->l->stmts[x].dtype == v->dtype) x = b->l->stmts[x].in[0];
    ep_stmt s = {.kind = EP_STMT_STORE, .in = {x}, .operand = o, .dtype = v->dtype, .row = b->row_shape[member]};
    return o < 0 || ep_loop_add(b->l, s) < 0
               ? ep_fail(err, EP_ERROR_UNSUPPORTED, "a group of more than %d operands", EP_LOOP_OPERANDS)
               : EP_OK;
}

/* Merges dims; of a nest with reductions the last dim stays by itself. */
static void collapse(ep_loop *l, const ep_group *group) {
    int64_t sizes[EP_MAX_DIMS], strides[EP_LOOP_OPERANDS][EP_MAX_DIMS], inner[EP_LOOP_OPERANDS];
    int keep = l->reduces, ndim = group->ndim - keep;
    memcpy(sizes, group->sizes, sizeof sizes);
    for (int k = 0; k < l->operand_count; k++) {
        memcpy(strides[k], l->operands[k].strides, sizeof strides[k]);
        inner[k] = keep ? strides[k][ndim] : 0;
    }
    int n = ndim > 0 ? ep_stride_collapse(ndim, sizes, l->operand_count, strides) : 0;
    l->outer = keep ? n : n > 0 ? n - 1 : 0;
    memset(l->sizes, 0, sizeof l->sizes);
    for (int i = 0; i < n; i++) l->sizes[i] = sizes[i];
    if (keep) l->sizes[n] = group->sizes[ndim];
    if (!keep && n == 0) l->sizes[0] = 1;
    for (int k = 0; k < l->operand_count; k++) {
        ep_loop_operand *o = &l->operands[k];
        memset(o->strides, 0, sizeof o->strides);
        for (int i = 0; i < n; i++) o->strides[i] = strides[k][i];
        if (keep) o->strides[n] = inner[k];
    }
}

static void classify(ep_loop *l) {
    int64_t n = l->sizes[l->outer];
    for (int k = 0; k < l->operand_count; k++) {
        ep_loop_operand *o = &l->operands[k];
        int64_t stride = o->strides[l->outer];
        o->walk = o->row                               ? EP_WALK_ONCE
                  : o->output || n == 1 || stride == 1 ? EP_WALK_NEXT
                  : stride == 0                        ? EP_WALK_ONCE
                                                       : EP_WALK_STRIDED;
    }
}

/* Drops what no store needs, then says of each statement whether it is one value a row and in which walk it stands. */
static void settle(ep_loop *l) {
    bool live[EP_LOOP_STMTS] = {false};
    int to[EP_LOOP_STMTS], n = 0;
    for (int i = l->stmt_count - 1; i >= 0; i--) {
        live[i] |= l->stmts[i].kind == EP_STMT_STORE;
        for (int k = 0; live[i] && k < 3; k++)
            if (l->stmts[i].in[k] >= 0) live[l->stmts[i].in[k]] = true;
    }
    l->phases = 1;
    for (int i = 0; i < l->stmt_count; i++) {
        if (!live[i]) continue;
        ep_stmt s = l->stmts[i];
        bool row = s.kind != EP_STMT_LOAD;
        int phase = 0;
        for (int k = 0; k < 3; k++) {
            if (s.in[k] < 0) continue;
            s.in[k] = to[s.in[k]];
            const ep_stmt *x = &l->stmts[s.in[k]];
            int ready = x->phase + (x->kind == EP_STMT_REDUCE);
            phase = ready > phase ? ready : phase;
            row &= x->row;
        }
        if (s.kind == EP_STMT_LOAD) row = l->operands[s.operand].walk == EP_WALK_ONCE;
        s.row =
            s.kind == EP_STMT_REDUCE || (s.kind == EP_STMT_STORE ? l->operands[s.operand].walk == EP_WALK_ONCE : row);
        s.phase = phase;
        if (phase + 1 > l->phases) l->phases = phase + 1;
        to[i] = n;
        l->stmts[n++] = s;
    }
    l->stmt_count = n;
}

static void count_work(builder *b, ep_work *w) {
    *w = (ep_work){0};
    for (int i = 0; i < b->member_count; i++) {
        const ep_node *n = &b->g->nodes[b->members[i]];
        ep_shape in[3] = {0}, out = {0};
        for (int k = 0; k < n->input_count && k < 3; k++) {
            const ep_value *v = &b->g->values[n->inputs[k]];
            in[k] = (ep_shape){v->dtype, v->ndim, {0}};
            memcpy(in[k].sizes, v->sizes, sizeof in[k].sizes);
        }
        const ep_value *v = &b->g->values[n->output];
        out = (ep_shape){v->dtype, v->ndim, {0}};
        memcpy(out.sizes, v->sizes, sizeof out.sizes);
        ep_work one = {0};
        ep_op_work(n->op, &n->attr, n->input_count, in, &out, &one);
        w->flops += one.flops;
    }
    for (int k = 0; k < b->l->operand_count; k++) {
        const ep_loop_operand *o = &b->l->operands[k];
        int64_t bytes = (int64_t)ep_dtype_size(o->dtype);
        for (int i = 0; i <= b->l->outer; i++) bytes *= o->strides[i] == 0 && b->l->sizes[i] ? 1 : b->l->sizes[i];
        *(o->output ? &w->bytes_written : &w->bytes_read) += bytes;
    }
}

/* epi_poi_gelu_tanh_mul_bf16; a long list of ops ends in "more". */
static void give_name(const builder *b, ep_loop *l) {
    static const char *const classes[] = {"poi", "red"};
    ep_dtype dtype = b->g->values[b->g->nodes[b->members[b->member_count - 1]].output].dtype;
    size_t n = 0, room = 56;
    char ops[80] = "";
    for (int i = 0; i < b->member_count; i++) {
        const char *op = ep_op_name(b->g->nodes[b->members[i]].op);
        size_t len = strlen(op);
        if (n + len + 1 > room) {
            memcpy(ops + n, "_more", 6);
            n += 5;
            break;
        }
        if (n) ops[n++] = '_';
        memcpy(ops + n, op, len + 1);
        n += len;
    }
    ep_text t = {l->name, 0, sizeof l->name, false}; /* fits: 8 + 61 + 6 */
    ep_text_printf(&t, "epi_%s_%s_%s", classes[l->reduces], ops, ep_dtype_name(dtype));
}

static bool is_row_shape(const builder *b, const ep_value *v) {
    const ep_group *p = b->group;
    if (!b->l->reduces) return false;
    bool full = v->ndim == p->ndim;
    for (int i = 0; full && i < p->ndim; i++) full = v->sizes[i] == p->sizes[i];
    return !full;
}

ep_status ep_loop_build(const ep_graph *g, int32_t group, ep_error *err, ep_loop *out) {
    memset(out, 0, sizeof *out);
    builder b = {.g = g, .group = &g->groups[group], .id = group, .l = out};
    size_t count = ep_graph_members(g, group, b.members, EP_LOOP_STMTS);
    if (count == 0 || count > EP_LOOP_STMTS / 4)
        return ep_fail(err, EP_ERROR_UNSUPPORTED, "a group of %zu ops; at most %d", count, EP_LOOP_STMTS / 4);
    b.member_count = (int)count;
    out->rounding = g->rounding;
    for (int i = 0; i < b.member_count; i++) {
        ep_op_kind kind = ep_op_get(g->nodes[b.members[i]].op)->kind;
        out->reduces |= kind == EP_KIND_REDUCE || kind == EP_KIND_NORM;
    }
    for (int i = 0; i < b.member_count; i++) {
        const ep_node *n = &g->nodes[b.members[i]];
        ep_op_kind kind = ep_op_get(n->op)->kind;
        b.row_shape[i] = is_row_shape(&b, &g->values[n->output]) || kind == EP_KIND_REDUCE;
        EP_TRY(compute(&b, n, b.row_shape[i] && kind != EP_KIND_REDUCE, err, &b.made[i]));
    }
    for (int i = 0; i < b.member_count; i++) EP_TRY(store(&b, i, err));
    give_name(&b, out);
    collapse(out, b.group);
    classify(out);
    settle(out);
    if (out->phases > EP_LOOP_PHASES)
        return ep_fail(err, EP_ERROR_UNSUPPORTED, "a group of %d walks over a row; at most %d", out->phases,
                       EP_LOOP_PHASES);
    count_work(&b, &out->work);
    return EP_OK;
}

uint64_t ep_loop_hash(const ep_loop *l) {
    int32_t head[6] = {l->stmt_count, l->operand_count, l->outer, l->reduces, l->fixed, (int32_t)l->rounding};
    uint64_t h = ep_hash64(head, sizeof head, 11);
    h = ep_hash64(l->name, strlen(l->name), h);
    for (int i = 0; i < l->stmt_count; i++) {
        const ep_stmt *s = &l->stmts[i];
        int32_t w[9] = {(int32_t)s->kind, (int32_t)s->op, (int32_t)s->dtype, s->in[0], s->in[1], s->in[2],
                        s->operand,       s->row,         s->phase};
        h = ep_hash64(w, sizeof w, h);
        if (s->kind == EP_STMT_CONST) h = ep_hash64(&s->number, sizeof s->number, h);
    }
    for (int k = 0; k < l->operand_count; k++) {
        const ep_loop_operand *o = &l->operands[k];
        int32_t w[3] = {(int32_t)o->dtype, (int32_t)o->walk, o->output};
        h = ep_hash64(w, sizeof w, h);
        if (l->fixed) h = ep_hash64(o->strides, sizeof o->strides, h);
    }
    return l->fixed ? ep_hash64(l->sizes, sizeof l->sizes, h) : h;
}

static void push_front(int64_t *v, int count, int by, int64_t fill) {
    memmove(v + by, v, sizeof *v * (size_t)count);
    for (int i = 0; i < by; i++) v[i] = fill;
}

void ep_loop_pad(ep_loop *l, int outer) {
    int by = outer - l->outer;
    if (by <= 0 || outer >= EP_MAX_DIMS) return;
    push_front(l->sizes, l->outer + 1, by, 1);
    for (int k = 0; k < l->operand_count; k++) push_front(l->operands[k].strides, l->outer + 1, by, 0);
    l->outer = outer;
}

bool ep_loop_unroll_rows(ep_loop *l) {
    if (l->reduces || l->fixed || l->outer + 2 > EP_MAX_DIMS) return false;
    while (l->outer > 0 && l->sizes[0] == 1) { /* what padding put there */
        memmove(l->sizes, l->sizes + 1, sizeof *l->sizes * (size_t)l->outer);
        for (int k = 0; k < l->operand_count; k++) {
            int64_t *s = l->operands[k].strides;
            memmove(s, s + 1, sizeof *s * (size_t)l->outer);
        }
        l->outer--;
    }
    l->outer++;
    l->sizes[l->outer] = 1;
    for (int k = 0; k < l->operand_count; k++) {
        l->operands[k].strides[l->outer] = 0;
        l->operands[k].walk = EP_WALK_NEXT;
    }
    settle(l);
    return true;
}

int ep_loop_arguments(const ep_loop *l, int64_t chunk, int64_t *words, int *address_at) {
    int64_t n = l->sizes[l->outer];
    int at = EP_LOOP_HEAD;
    words[0] = n;
    words[1] = chunk;
    words[2] = n > 0 ? (n + chunk - 1) / chunk : 1;
    for (int i = 0; i < l->outer; i++) words[at++] = l->sizes[i];
    for (int k = 0; k < l->operand_count; k++) {
        const ep_loop_operand *o = &l->operands[k];
        int64_t size = (int64_t)ep_dtype_size(o->dtype);
        address_at[k] = at;
        words[at++] = 0;
        for (int i = 0; i < l->outer; i++) words[at++] = o->strides[i] * size;
        if (o->walk == EP_WALK_STRIDED) words[at++] = o->strides[l->outer] * size;
    }
    return at;
}

int64_t ep_loop_chunk(const ep_loop *l, int threads) {
    int64_t n = l->sizes[l->outer], rows = 1;
    for (int i = 0; i < l->outer; i++) rows *= l->sizes[i];
    if (threads == 0 && !l->reduces) return EP_LOOP_DEVICE_CHUNK;
    if (l->reduces || n <= 4096 || rows >= 4 * threads) return n > 0 ? n : 1;
    int64_t chunk = (n / (4 * threads) + 1023) / 1024 * 1024;
    return chunk < 4096 ? 4096 : chunk;
}

int64_t ep_loop_items(const ep_loop *l, int64_t chunk) {
    int64_t n = l->sizes[l->outer], items = n > 0 ? (n + chunk - 1) / chunk : l->reduces;
    for (int i = 0; i < l->outer; i++) items *= l->sizes[i];
    return items;
}
