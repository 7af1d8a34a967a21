/* The argument block for one tile: rows, columns, and where each operand's part of it begins. */
#include "hooked.h"

#include <stdio.h>
#include <string.h>

/* Over [m, n]: either the nest has these dims, or all of it merged to one. */
bool ep_hooked_fits(const ep_loop *l, int64_t m, int64_t n) {
    if (l->reduces || l->fixed || l->outer != 1 || m < 1 || n < 2) return false;
    if (l->sizes[0] == m && l->sizes[1] == n) return true;
    return l->sizes[0] == 1 && l->sizes[1] == m * n;
}

static int product_of(const ep_graph *g, const ep_attach *a, int32_t value) {
    ep_columns c;
    for (int i = 0; i < a->count; i++)
        if (g->nodes[a->parts[i].node].output == ep_graph_root(g, value) &&
            ep_graph_columns(g, value, &g->groups[a->group], &c) && c.start == a->parts[i].columns.start &&
            c.step == a->parts[i].columns.step)
            return i;
    return -1;
}

static void on_tile(void *user, const ep_tuned_tile *t) {
    const ep_hooked *h = user;
    int64_t w[EP_LOOP_WORDS];
    memcpy(w, h->words, sizeof *w * (size_t)h->word_count);
    w[0] = w[1] = t->cols;
    w[2] = 1;
    w[EP_LOOP_HEAD] = t->rows;
    for (int k = 0; k < h->operand_count; k++) {
        const ep_hooked_operand *o = &h->operands[k];
        if (o->product < 0) {
            w[o->word] += t->row * o->row + t->col * o->col;
            continue;
        }
        w[o->word] = (int64_t)(intptr_t)t->in[o->product];
        w[o->word + 1] = t->in_row * h->element;
    }
    if (h->run)
        h->run(h->function, w, 0, t->rows);
    else
        ep_loop_run(h->loop, w, 0, t->rows);
}

static void set_work(const ep_graph *g, const ep_attach *a, const ep_loop *l, const ep_hooked *h, int64_t m, int64_t n,
                     ep_work *w) {
    int64_t k = g->values[g->nodes[a->parts[0].node].inputs[1]].sizes[1];
    int64_t size = h->element, products = 1 + h->call.more_count;
    *w = l->work;
    w->flops += products * 2 * m * n * k;
    w->bytes_read += size * (m * k + products * n * k); /* x and the weights; the products are read in cache */
    for (int i = 0; i < h->operand_count; i++)
        if (h->operands[i].product >= 0) w->bytes_read -= size * m * n;
    for (int i = 0; i < a->count; i++)
        if (g->nodes[a->parts[i].node].gemm.bias >= 0) {
            w->flops += m * n;
            w->bytes_read += size * n;
        }
}

void ep_hooked_set(const ep_graph *g, const ep_attach *a, const ep_loop *l, int64_t m, int64_t n, ep_hooked *h) {
    memset(h, 0, sizeof *h);
    bool merged = !(l->sizes[0] == m && l->sizes[1] == n);
    const ep_node *first = &g->nodes[a->parts[0].node];
    h->loop = l;
    h->operand_count = l->operand_count;
    h->element = (int64_t)ep_dtype_size(g->values[first->output].dtype);
    int at = EP_LOOP_HEAD + 1;
    for (int i = 0; i < l->operand_count; i++) {
        const ep_loop_operand *o = &l->operands[i];
        int64_t size = (int64_t)ep_dtype_size(o->dtype), col = o->walk == EP_WALK_NEXT ? 1 : o->strides[1];
        ep_hooked_operand *p = &h->operands[i];
        p->word = at;
        p->product = o->output ? -1 : product_of(g, a, o->value);
        p->col = (p->product >= 0 ? 1 : o->walk == EP_WALK_ONCE ? 0 : col) * size; /* a tile's columns are adjacent */
        p->row = merged ? p->col * n : o->strides[0] * size;
        h->words[at + 1] = p->row;
        at += 2;
        if (o->walk == EP_WALK_STRIDED) h->words[at++] = p->col;
    }
    h->word_count = at;
    h->call = (ep_tuned_call){.weights = a->parts[0].pack, .m = m, .dtype = g->values[first->output].dtype};
    h->call.more_count = a->count - 1;
    for (int i = 1; i < a->count; i++) h->call.more[i - 1].weights = a->parts[i].pack;
    h->call.rounding = g->rounding;
    h->call.hook = on_tile;
    set_work(g, a, l, h, m, n, &h->work);
    const char *ops = l->name;
    for (int i = 0; i < 2 && ops; i++) ops = strchr(ops, '_') ? strchr(ops, '_') + 1 : NULL; /* past "epi_poi_" */
    int len = snprintf(h->name, sizeof h->name, "epi_gem");
    for (int i = 0; i < a->count; i++)
        if (i == 0 || a->parts[i].node != a->parts[i - 1].node)
            len += snprintf(h->name + len, sizeof h->name - (size_t)len, "_linear");
    snprintf(h->name + len, sizeof h->name - (size_t)len, "_%s", ops ? ops : "");
}
