/* Attention whose scores go through memory: a batched product, passes over its result, a softmax over its last dim, more
 * passes, and a batched product that takes the result up again. Told by ops and sizes in host order on one thread, so it
 * is found on a device and on the host alike. docs/analyses.md, "Attention". */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analyze.h"
#include "base/alloc.h"
#include "torch_args.h"

typedef enum role { NONE, PRODUCT, SOFTMAX, PASS, READER, CAP } role;

static const struct {
    const char *name;
    role role;
} roles[] = {
    {"aten::bmm", PRODUCT},
    {"aten::baddbmm", PRODUCT},
    {"aten::baddbmm_", PRODUCT},
    {"aten::_softmax", SOFTMAX},
    {"aten::_safe_softmax", SOFTMAX},
    {"aten::mul", PASS},
    {"aten::mul_", PASS},
    {"aten::div", PASS},
    {"aten::div_", PASS},
    {"aten::add", PASS},
    {"aten::add_", PASS},
    {"aten::sub", PASS},
    {"aten::sub_", PASS},
    {"aten::masked_fill", PASS},
    {"aten::masked_fill_", PASS},
    {"aten::where", PASS},
    {"aten::clamp", PASS},
    {"aten::copy_", PASS},
    {"aten::native_dropout", PASS},
    {"aten::bernoulli_", PASS},
    {"aten::tanh", CAP},
    {"aten::mean", READER},
    {"aten::sum", READER},
    {"aten::argmax", READER},
    {"aten::max", READER},
    {"aten::amax", READER},
    {"aten::topk", READER},
};

static role role_of(const char *name) {
    if (strncmp(name, "triton_", 7) == 0) return strstr(name, "softmax") ? SOFTMAX : PASS;
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++)
        if (strcmp(roles[i].name, name) == 0) return roles[i].role;
    return NONE;
}

enum {
    OPEN = 4,   /* products whose result may still become scores */
    REACH = 48, /* ops that have a role, from the product on, until it is given up */
    KEYS = 16,  /* fewer are experts that a gate weighs */
    BEHIND = 12 /* after the second product: the same, for another reader of the weights */
};

/* One product's result on its way. */
typedef struct scores {
    bool live;
    int age; /* ops with a role since */
    uint32_t ops[EP_CHAIN_MAX];
    int length;
    bool softmax, cap, too_long;
    int64_t batch, m, n, k, numel, bytes, passes_bytes;
    char dtype[8];
} scores;

typedef struct walk {
    ep_study *s;
    const uint8_t *roles; /* by string */
    scores open[OPEN];
    int next;
    int64_t until;      /* ops in one that has a role are its own doing */
    size_t last;        /* attentions[] of the newest one, or SIZE_MAX */
    int since;          /* ops with a role behind it */
    int64_t last_numel; /* of its scores */
} walk;

static int64_t time_of(const ep_study *s, uint32_t op) {
    const ep_trace *t = s->trace;
    size_t first, n;
    int64_t sum = 0;
    if (ep_study_host_only(s)) return t->dur[op];
    ep_study_range(s, t->lane[op], t->ts[op], t->ts[op] + t->dur[op], &first, &n);
    for (size_t i = first; i < first + n; i++) sum += t->dur[s->work[i].event];
    return sum;
}

/* The operand that is the scores, or NULL. */
static const ep_operand *scores_in(const ep_op_work *w, int64_t numel) {
    for (int i = 0; i < w->input_count; i++)
        if (w->in[i].tensor && !w->in[i].list && !w->in[i].expanded && w->in[i].numel == numel) return &w->in[i];
    return NULL;
}

static void begin(walk *k, uint32_t op, const ep_op_work *w) {
    scores *c = &k->open[k->next];
    if (!w->known || !w->gemm || w->batch < 2 || w->n < KEYS) return;
    k->next = (k->next + 1) % OPEN;
    *c = (scores){.live = true, .length = 1, .batch = w->batch, .m = w->m, .n = w->n, .k = w->k};
    c->ops[0] = op;
    c->numel = w->out_numel;
    c->bytes = c->passes_bytes = w->out_bytes;
    memcpy(c->dtype, w->dtype, sizeof c->dtype);
}

/* Is it a softmax over the keys? */
static bool over_keys(const ep_study *s, uint32_t op, const ep_operand *x, int64_t keys) {
    const ep_event_info *info = &s->trace->infos[s->trace->info[op]];
    int64_t dim;
    if (x->ndim < 3 || x->sizes[x->ndim - 1] != keys) return false;
    if (strncmp(ep_study_name(s, op), "triton_", 7) == 0) return true;
    if (!info->concrete_inputs || !ep_torch_ints(ep_trace_text(s->trace, info->concrete_inputs), 1, 1, &dim))
        return true; /* not recorded */
    return dim == -1 || dim == x->ndim - 1;
}

static void pass(walk *k, uint32_t op, role r, const ep_op_work *w) {
    for (int back = 1; back <= OPEN; back++) {
        scores *c = &k->open[(k->next + OPEN - back) % OPEN];
        const ep_operand *x = c->live ? scores_in(w, c->numel) : NULL;
        if (!x || (w->known && w->out_numel && w->out_numel != c->numel)) continue;
        if (r == SOFTMAX && (c->softmax || !over_keys(k->s, op, x, c->n))) continue;
        c->softmax = c->softmax || r == SOFTMAX;
        c->cap = c->cap || r == CAP;
        if (c->length < EP_CHAIN_MAX - 1)
            c->ops[c->length++] = op;
        else
            c->too_long = true;
        c->passes_bytes += x->numel * x->element * (w->known && w->writes_first ? 0 : 1);
        if (w->known && w->writes_first && w->input_count > 1) c->passes_bytes += w->in[1].bytes;
        c->passes_bytes += w->known && w->out_bytes ? w->out_bytes : x->numel * x->element;
        return;
    }
}

/* Whose code it is, by the ops around it. */
static const char *form_of(const ep_study *s, uint32_t op) {
    for (int up = 0; up < 8 && op != EP_NO_INDEX; up++, op = s->facts->links->parent[op]) {
        const char *name = ep_study_name(s, op);
        if (strstr(name, "scaled_dot_product_attention")) return EP_ATTENTION_MATH;
        if (strcmp(name, "aten::_native_multi_head_attention") == 0) return EP_ATTENTION_FAST_PATH;
    }
    return EP_ATTENTION_BY_HAND;
}

static bool same_row(const ep_attention_row *a, const ep_attention_row *b) {
    if (a->length != b->length || a->batch != b->batch || a->queries != b->queries || a->keys != b->keys) return false;
    if (strcmp(a->form, b->form) != 0 || strcmp(a->dtype, b->dtype) != 0 || a->head_dim != b->head_dim) return false;
    for (int i = 0; i < a->length; i++)
        if (a->ops[i] != b->ops[i]) return false;
    return true;
}

static bool add(walk *k, const ep_attention_row *r) {
    ep_study *s = k->s;
    size_t i = 0;
    while (i < s->attention_count && !same_row(&s->attentions[i], r)) i++;
    k->last = i;
    k->since = 0;
    if (i < s->attention_count) {
        ep_attention_row *old = &s->attentions[i];
        old->instances++;
        old->ns += r->ns;
        old->between_ns += r->between_ns;
        return true;
    }
    if (!ep_grow(&s->attentions, &s->attention_cap, s->attention_count + 1, sizeof *s->attentions)) return false;
    s->attentions[s->attention_count++] = *r;
    return true;
}

/* The second product: weights [batch, m, n] by values [batch, n, ...]. */
static bool end(walk *k, uint32_t op, const ep_op_work *w, bool *taken) {
    for (int back = 1; back <= OPEN; back++) {
        scores *c = &k->open[(k->next + OPEN - back) % OPEN];
        bool fits =
            w->known && w->gemm && c->live && c->softmax && w->batch == c->batch && w->m == c->m && w->k == c->n;
        if (!fits) continue;
        ep_attention_row r = {.instances = 1, .batch = c->batch, .queries = c->m, .keys = c->n, .head_dim = c->k};
        r.form = form_of(k->s, op);
        r.dtype = ep_study_printf(k->s, "%s", c->dtype);
        r.scores_bytes = c->bytes;
        r.bytes_saved = c->passes_bytes + c->numel * w->in[0].element;
        for (int i = 0; i < c->length; i++) {
            int64_t ns = time_of(k->s, c->ops[i]);
            r.ops[i] = ep_study_name(k->s, c->ops[i]);
            r.ns += ns;
            r.between_ns += i ? ns : 0;
        }
        r.length = c->length;
        r.ops[r.length++] = ep_study_name(k->s, op);
        r.ns += time_of(k->s, op);
        if (c->cap)
            r.blocked_by = "A tanh caps the scores: scaled_dot_product_attention has no cap, flex_attention has.";
        k->last_numel = c->numel;
        c->live = false;
        *taken = true;
        return c->too_long || add(k, &r);
    }
    return true;
}

static bool step(walk *k, uint32_t op, role r) {
    ep_study *s = k->s;
    ep_op_work w;
    bool taken = false;
    ep_torch_work(s->trace, op, &w);
    for (int i = 0; i < OPEN; i++)
        if (k->open[i].live && ++k->open[i].age > REACH) k->open[i].live = false;
    if (r == READER) {
        bool reads = k->last != SIZE_MAX && k->since <= BEHIND && scores_in(&w, k->last_numel);
        if (reads && !s->attentions[k->last].blocked_by)
            s->attentions[k->last].blocked_by = ep_study_printf(
                s, "%s reads the weights, which no fused kernel gives (need_weights, output_attentions).",
                ep_study_name(s, op));
        return true;
    }
    k->since++;
    if (r != PRODUCT) {
        pass(k, op, r, &w);
        return true;
    }
    if (!end(k, op, &w, &taken)) return false;
    if (!taken) begin(k, op, &w);
    return true;
}

static bool walk_lane(walk *k, const uint32_t *rows, size_t n) {
    const ep_trace *t = k->s->trace;
    memset(k->open, 0, sizeof k->open);
    k->last = SIZE_MAX;
    k->until = INT64_MIN;
    for (size_t i = 0; i < n; i++) {
        uint32_t row = rows[i];
        role r = t->kind[row] == EP_EVENT_OP ? (role)k->roles[t->name[row]] : NONE;
        if (r == NONE || t->ts[row] < k->until || !t->infos[t->info[row]].input_dims) continue;
        k->until = t->ts[row] + t->dur[row];
        if (!step(k, row, r)) return false;
    }
    return true;
}

static int by_worth(const void *a, const void *b) {
    const ep_attention_row *x = a, *y = b;
    if (x->between_ns != y->between_ns) return x->between_ns < y->between_ns ? 1 : -1;
    return x->bytes_saved < y->bytes_saved ? 1 : x->bytes_saved > y->bytes_saved ? -1 : 0;
}

ep_status ep_analyze_attention(ep_study *s, ep_error *err) {
    (void)err;
    const ep_trace *t = s->trace;
    const ep_links *l = s->facts->links;
    uint8_t *by_name = calloc(t->strings.count + 1, 1);
    walk k = {.s = s, .roles = by_name};
    bool ok = by_name != NULL, products = false;
    for (uint32_t id = 0; ok && id < t->strings.count; id++) {
        by_name[id] = (uint8_t)role_of(ep_trace_text(t, id));
        products = products || by_name[id] == PRODUCT;
    }
    for (size_t from = 0, to; ok && products && from < l->order_count; from = to) {
        uint32_t lane = t->lane[l->order[from]];
        for (to = from; to < l->order_count && t->lane[l->order[to]] == lane;) to++;
        ok = walk_lane(&k, l->order + from, to - from);
    }
    free(by_name);
    if (!ok) return EP_ERROR_OUT_OF_MEMORY;
    if (s->attention_count) qsort(s->attentions, s->attention_count, sizeof *s->attentions, by_worth);
    return EP_OK;
}
