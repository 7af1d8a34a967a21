/* Relations from an alignment: same, renamed, fused, split, gone, new. What has no partner of its own may have gone into
 * a kernel that does its work and its reader's: by who reads what, and by what that kernel's name admits. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "diff.h"

const char *ep_relation_name(ep_relation r) {
    static const char *const names[EP_RELATION_COUNT] = {"same", "renamed", "fused", "split", "gone", "new"};
    return (unsigned)r < EP_RELATION_COUNT ? names[r] : "?";
}

static ep_diff_pair *add_pair(ep_diff_region *r) {
    if (!ep_grow(&r->pairs, &r->pair_cap, r->pair_count + 1, sizeof *r->pairs)) return NULL;
    ep_diff_pair *p = &r->pairs[r->pair_count++];
    memset(p, 0, sizeof *p);
    return p;
}

static bool put(uint32_t **list, size_t *count, size_t *cap, uint32_t item) {
    if (!ep_grow(list, cap, *count + 1, sizeof **list)) return false;
    size_t at = (*count)++;
    for (; at > 0 && (*list)[at - 1] > item; at--) (*list)[at] = (*list)[at - 1];
    (*list)[at] = item;
    return true;
}

static bool put_a(ep_diff_region *r, uint32_t pair, uint32_t item) {
    ep_diff_pair *p = &r->pairs[pair];
    r->a.items[item].pair = (int32_t)pair;
    return put(&p->a, &p->a_count, &p->a_cap, item);
}

static bool put_b(ep_diff_region *r, uint32_t pair, uint32_t item) {
    ep_diff_pair *p = &r->pairs[pair];
    r->b.items[item].pair = (int32_t)pair;
    return put(&p->b, &p->b_count, &p->b_cap, item);
}

/* "aten::gelu_" -> "gelu"; what a fused kernel's name would mention. */
static void plain_op(const char *op, char *out, size_t size) {
    const char *colon = strrchr(op, ':');
    size_t n = 0;
    for (op = colon ? colon + 1 : op; op[n] && n + 1 < size; n++) out[n] = (char)tolower((unsigned char)op[n]);
    while (n && out[n - 1] == '_') n--;
    out[n] = 0;
}

static bool mentions(const ep_diff_item *big, const ep_diff_item *small) {
    char op[64], name[256];
    plain_op(small->op, op, sizeof op);
    if (strlen(op) < 3 && strcmp(op, "t") != 0) return false;
    size_t n = 0;
    for (; big->kernel[n] && n + 1 < sizeof name; n++) name[n] = (char)tolower((unsigned char)big->kernel[n]);
    name[n] = 0;
    return strstr(name, op) != NULL || strstr(big->op, op) != NULL;
}

/* A kernel that is made of several ops: generated, or written by hand for a block. */
static bool made_of_several(const ep_diff_item *i) {
    if (!i->decoded) return false;
    return strcmp(i->decoded->vendor, "triton") == 0 || strcmp(i->decoded->vendor, "liger") == 0 ||
           strcmp(i->decoded->vendor, "epilogue") == 0 || strcmp(i->decoded->vendor, "vllm") == 0;
}

/* Products in a kernel of ours that joins gate and up with the activation between, and in some makes down too; else 0. */
static size_t holds_gated(const ep_diff_item *i) {
    static const struct {
        const char *word;
        size_t products;
    } rows[] = {{"gated_mlp", 3}, {"gated_gemm", 2}, {"geglu", 2},
                {"swiglu", 2},    {"reglu", 2},      {"gem_linear_linear", 2}};
    if (!i->decoded || i->cls != EP_CLASS_GEMM || strcmp(i->decoded->vendor, "epilogue") != 0) return 0;
    for (size_t w = 0; w < sizeof rows / sizeof *rows; w++)
        if (strstr(i->kernel, rows[w].word)) return rows[w].products;
    return 0;
}

/* Whether a gated kernel's group still has room for one more product, or one more pointwise kernel. */
static bool gated_takes(const ep_diff_side *side, const uint32_t *list, size_t n, uint8_t cls, size_t most) {
    size_t products = 0;
    for (size_t i = 0; i < n; i++) products += side->items[list[i]].cls == EP_CLASS_GEMM;
    if (cls == EP_CLASS_GEMM) return products < most;
    return cls == EP_CLASS_POINTWISE && n < most + 2 && (most > 2 || products == most);
}

static bool can_vanish(uint8_t cls) {
    return cls == EP_CLASS_POINTWISE || cls == EP_CLASS_COPY || cls == EP_CLASS_NORM || cls == EP_CLASS_REDUCTION;
}

/* A product whose epilogue is busier than its partner's. */
static bool richer_epilogue(const ep_diff_item *more, const ep_diff_item *less) {
    if (more->cls != EP_CLASS_GEMM || less->cls != EP_CLASS_GEMM || !more->decoded || !less->decoded) return false;
    return (more->row->bias && !less->row->bias) || strlen(more->decoded->epilogue) > strlen(less->decoded->epilogue);
}

/* The item of `side` whose node reads what `item` wrote, or that wrote what `item` reads. */
static uint32_t neighbour(const ep_diff_side *side, uint32_t item, bool reader) {
    const ep_node *n = side->items[item].node == EP_NO_INDEX ? NULL : &side->study->nodes[side->items[item].node];
    if (!n) return EP_NO_INDEX;
    uint32_t wanted = n->consumer;
    if (!reader) {
        wanted = EP_NO_INDEX;
        for (int i = 0; i < EP_WORK_INPUTS && wanted == EP_NO_INDEX; i++) wanted = ep_node_producer(side->study, n, i);
    }
    if (wanted == EP_NO_INDEX) return EP_NO_INDEX;
    uint32_t main = side->study->work[side->study->nodes[wanted].main].event;
    for (uint32_t step = 1; step < 64; step++) { /* readers and writers stand near */
        uint32_t at = reader ? item + step : item - step;
        if (at >= side->count) break;
        if (side->items[at].event == main) return at;
    }
    return EP_NO_INDEX;
}

static uint32_t next_item(const ep_diff_side *side, uint32_t item, bool after) {
    for (uint32_t step = 1; step < 6; step++) {
        uint32_t at = after ? item + step : item - step;
        if (at >= side->count) return EP_NO_INDEX;
        if (side->items[at].cls != EP_CLASS_MEMSET) return at;
    }
    return EP_NO_INDEX;
}

/* The pair whose other side has taken `item` in, or -1. `side` holds the item, `other` the partners. */
static int32_t absorber(const ep_diff_region *r, const ep_diff_side *side, const ep_diff_side *other, bool side_is_a,
                        uint32_t item) {
    const uint32_t near[] = {neighbour(side, item, true), neighbour(side, item, false), next_item(side, item, true),
                             next_item(side, item, false)};
    for (size_t k = 0; k < 4; k++) {
        if (near[k] == EP_NO_INDEX || side->items[near[k]].pair < 0) continue;
        const ep_diff_item *own = &side->items[near[k]];
        const ep_diff_pair *p = &r->pairs[own->pair];
        size_t count = side_is_a ? p->b_count : p->a_count;
        if (count != 1) continue; /* many to one, never many to many */
        const ep_diff_item *partner = &other->items[side_is_a ? p->b[0] : p->a[0]];
        bool by_name = mentions(partner, &side->items[item]) && partner->key != own->key;
        bool by_data = k < 2 && made_of_several(partner) && !made_of_several(own);
        bool by_epilogue = richer_epilogue(partner, own);
        if (holds_gated(partner) && !holds_gated(&side->items[item]) &&
            gated_takes(side, side_is_a ? p->a : p->b, side_is_a ? p->a_count : p->b_count, side->items[item].cls,
                        holds_gated(partner)))
            return own->pair;
        if (side->items[item].cls == EP_CLASS_GEMM) continue; /* a product is taken in by nothing else */
        if (by_name || by_data || by_epilogue) return own->pair;
    }
    return -1;
}

static bool absorb(ep_diff_region *r, bool a_side) {
    ep_diff_side *side = a_side ? &r->a : &r->b, *other = a_side ? &r->b : &r->a;
    bool changed = true;
    for (int round = 0; changed && round < 4; round++) { /* a chain is taken in link by link */
        changed = false;
        for (uint32_t i = (uint32_t)side->count; i-- > 0;) {
            uint8_t cls = side->items[i].cls;
            if (side->items[i].pair >= 0 || !(can_vanish(cls) || cls == EP_CLASS_GEMM)) continue;
            int32_t pair = absorber(r, side, other, a_side, i);
            if (pair < 0) continue;
            if (!(a_side ? put_a(r, (uint32_t)pair, i) : put_b(r, (uint32_t)pair, i))) return false;
            changed = true;
        }
    }
    return true;
}

/* Bytes that a group writes and reads again within itself. */
static bool inner_bytes(const ep_diff_side *side, const uint32_t *list, size_t n, int64_t *bytes) {
    bool any = false;
    *bytes = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n; k++) {
            uint32_t x = side->items[list[i]].node, y = side->items[list[k]].node;
            if (i == k || x == EP_NO_INDEX || y == EP_NO_INDEX || side->study->nodes[x].consumer != y) continue;
            int64_t out = side->study->rows[side->study->nodes[x].row].out_bytes;
            *bytes += out * (side->study->nodes[x].readers > 1 ? 1 : 2);
            any = true;
        }
    return any;
}

static void finish_pair(ep_diff_region *r, ep_diff_pair *p) {
    for (size_t i = 0; i < p->a_count; i++) p->a_ns += r->a.items[p->a[i]].ns;
    for (size_t i = 0; i < p->b_count; i++) p->b_ns += r->b.items[p->b[i]].ns;
    int64_t bytes = 0;
    if (!p->a_count)
        p->relation = EP_RELATION_NEW;
    else if (!p->b_count)
        p->relation = EP_RELATION_GONE;
    else if (p->a_count > p->b_count)
        p->relation = EP_RELATION_FUSED;
    else if (p->a_count < p->b_count)
        p->relation = EP_RELATION_SPLIT;
    else if (r->a.items[p->a[0]].key == r->b.items[p->b[0]].key)
        p->relation = EP_RELATION_SAME;
    else
        p->relation = EP_RELATION_RENAMED;
    p->bytes_known = p->relation == EP_RELATION_SAME;
    if (p->relation == EP_RELATION_FUSED) p->bytes_known = inner_bytes(&r->a, p->a, p->a_count, &bytes);
    if (p->relation == EP_RELATION_SPLIT) {
        p->bytes_known = inner_bytes(&r->b, p->b, p->b_count, &bytes);
        bytes = -bytes;
    }
    p->bytes_saved = bytes;
}

bool ep_diff_pair_up(ep_diff_result *d, ep_diff_region *r) {
    (void)d;
    uint32_t *match = ep_malloc_array(r->a.count, sizeof *match);
    bool ok = match && ep_diff_align(r->a.items, r->a.count, r->b.items, r->b.count, match);
    for (size_t j = 0; j < r->b.count; j++) r->b.items[j].pair = -1;
    for (uint32_t i = 0; ok && i < r->a.count; i++) {
        r->a.items[i].pair = -1;
        if (match[i] == EP_NO_INDEX) continue;
        ok = add_pair(r) != NULL && put_a(r, (uint32_t)r->pair_count - 1, i) &&
             put_b(r, (uint32_t)r->pair_count - 1, match[i]);
    }
    ok = ok && absorb(r, true) && absorb(r, false);
    for (uint32_t i = 0; ok && i < r->a.count; i++)
        if (r->a.items[i].pair < 0) ok = add_pair(r) != NULL && put_a(r, (uint32_t)r->pair_count - 1, i);
    for (uint32_t j = 0; ok && j < r->b.count; j++)
        if (r->b.items[j].pair < 0) ok = add_pair(r) != NULL && put_b(r, (uint32_t)r->pair_count - 1, j);
    for (size_t k = 0; ok && k < r->pair_count; k++) finish_pair(r, &r->pairs[k]);
    free(match);
    return ok;
}
