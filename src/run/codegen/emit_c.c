/* Walks a loop nest and writes it down; everything language-specific is asked of the dialect. */
#include "emit_c.h"

#include <stdio.h>
#include <string.h>

const char *ep_emit_name(const ep_loop *l, int number, char buffer[48]) {
    const ep_stmt *s = &l->stmts[number];
    switch (s->kind) {
    case EP_STMT_LOAD: snprintf(buffer, 48, "x%d", s->operand); break;
    case EP_STMT_CONST: snprintf(buffer, 48, "c%d", number); break;
    case EP_STMT_COUNT: snprintf(buffer, 48, "count%d", number); break;
    case EP_STMT_ROUND: snprintf(buffer, 48, "r%d", number); break;
    case EP_STMT_FMA: snprintf(buffer, 48, "fma%d", number); break;
    case EP_STMT_REDUCE: snprintf(buffer, 48, "%s%d", s->op == EP_OP_AMAX ? "top" : "sum", number); break;
    default: snprintf(buffer, 48, "%s%d", ep_op_name(s->op), number);
    }
    return buffer;
}

static const char *use(const ep_dialect *d, const ep_loop *l, int number, char buffer[64]) {
    char name[48];
    const ep_stmt *s = &l->stmts[number];
    snprintf(buffer, 64, "%s%s", ep_emit_name(l, number, name), s->kind == EP_STMT_LOAD && !s->row ? d->lane : "");
    return buffer;
}

/* The formula of pointwise.def with a, b, c replaced; operands that are expressions never occur, so no parentheses. */
static void formula(const ep_dialect *d, const ep_loop *l, const ep_stmt *s, ep_text *t) {
    const char *f = ep_op_get(s->op)->formula;
    char name[64];
    bool in_word = false;
    if (!f) f = "a"; /* copy and cast: the value itself */
    for (const char *p = f; *p; p++) {
        bool letter = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || *p == '_' || (*p >= '0' && *p <= '9');
        bool next =
            (p[1] >= 'a' && p[1] <= 'z') || (p[1] >= 'A' && p[1] <= 'Z') || p[1] == '_' || (p[1] >= '0' && p[1] <= '9');
        if (!in_word && !next && *p >= 'a' && *p <= 'c' && s->in[*p - 'a'] >= 0)
            ep_text_add(t, use(d, l, s->in[*p - 'a'], name));
        else
            ep_text_char(t, *p);
        if (*p == '*' && p[1] != ' ') ep_text_char(t, ' '); /* the list is formatted as if a type stood before it */
        in_word = letter;
    }
}

static bool is_of(const ep_loop *l, int number, ep_dtype dtype) {
    const ep_stmt *s = &l->stmts[number];
    return (s->kind == EP_STMT_LOAD && l->operands[s->operand].dtype == dtype) ||
           (s->kind == EP_STMT_ROUND && s->dtype == dtype);
}

/* Is the value only ever rounded to the dtype, so that what it was before does not matter? */
static bool becomes(const ep_loop *l, int number, ep_dtype dtype) {
    for (int i = number + 1; i < l->stmt_count; i++) {
        const ep_stmt *s = &l->stmts[i];
        if (s->in[0] != number && s->in[1] != number && s->in[2] != number) continue;
        bool rounds = (s->kind == EP_STMT_ROUND && s->dtype == dtype) ||
                      (s->kind == EP_STMT_STORE && l->operands[s->operand].dtype == dtype);
        if (!rounds) return false;
    }
    return true;
}

/* The 16-bit dtype for whose numbers the dialect has a shorter form of the op, or NULL. */
static const char *short_form(const ep_dialect *d, const ep_loop *l, int number) {
    const ep_stmt *s = &l->stmts[number];
    if (!d->short_words || (s->op != EP_OP_GELU_TANH && s->op != EP_OP_GELU_ERF && s->op != EP_OP_SILU)) return NULL;
    static const ep_dtype narrow[] = {EP_DTYPE_BF16, EP_DTYPE_F16};
    for (int k = 0; k < 2; k++)
        if (is_of(l, s->in[0], narrow[k]) && becomes(l, number, narrow[k])) return ep_dtype_name(narrow[k]);
    return NULL;
}

/* The division that ends a softmax: of exponentials by one value a row. */
static bool divides_row(const ep_dialect *d, const ep_loop *l, const ep_stmt *s) {
    if (!d->short_words || s->op != EP_OP_DIV || s->row || !l->stmts[s->in[1]].row) return false;
    const ep_stmt *a = &l->stmts[s->in[0]];
    return a->kind == EP_STMT_OP && a->op == EP_OP_EXP;
}

static void computed(const ep_dialect *d, const ep_loop *l, int number, ep_text *t) {
    const ep_stmt *s = &l->stmts[number];
    char name[48], in[64];
    ep_text_printf(t, "const %s %s = ", d->vec, ep_emit_name(l, number, name));
    if (s->kind == EP_STMT_OP && s->op == EP_OP_SILU && d->one_part)
        ep_text_printf(t, "v_silu(%s)", use(d, l, s->in[0], in)); /* as that backend's eager kernel has it */
    else if (s->kind == EP_STMT_OP && short_form(d, l, number))
        ep_text_printf(t, "v_%s_of_%s(%s)", ep_op_name(s->op), short_form(d, l, number), use(d, l, s->in[0], in));
    else if (s->kind == EP_STMT_OP && divides_row(d, l, s)) {
        char by[64];
        use(d, l, s->in[1], by);
        ep_text_printf(t, "v_quotient(%s, %s, v_over(%s))", use(d, l, s->in[0], in), by, by);
    } else if (s->kind == EP_STMT_OP)
        formula(d, l, s, t);
    if (s->kind == EP_STMT_CONST) ep_text_printf(t, d->number, s->number);
    if (s->kind == EP_STMT_COUNT) ep_text_add(t, "K(n)");
    if (s->kind == EP_STMT_FMA) {
        char b[64], c[64];
        ep_text_printf(t, "v_fma(%s, %s, %s)", use(d, l, s->in[0], in), use(d, l, s->in[1], b), use(d, l, s->in[2], c));
    }
    if (s->kind == EP_STMT_ROUND) ep_text_printf(t, d->round, ep_dtype_name(s->dtype), use(d, l, s->in[0], in));
    ep_text_add(t, ";\n");
}

/* What the walk of `phase` must compute: everything its reductions and stores rest on, again if need be. */
static void needed(const ep_loop *l, int phase, bool need[EP_LOOP_STMTS]) {
    memset(need, 0, EP_LOOP_STMTS);
    for (int i = l->stmt_count - 1; i >= 0; i--) {
        const ep_stmt *s = &l->stmts[i];
        bool sink = s->phase == phase && (s->kind == EP_STMT_REDUCE || (s->kind == EP_STMT_STORE && !s->row));
        if (sink) need[i] = true;
        if (!need[i]) continue;
        for (int k = 0; k < 3; k++)
            if (s->in[k] >= 0 && !l->stmts[s->in[k]].row) need[s->in[k]] = true;
    }
}

static void walk_body(const ep_dialect *d, const ep_loop *l, const bool *need, bool tail, ep_text *t) {
    char name[64];
    for (int i = 0; i < l->stmt_count; i++)
        if (need[i] && l->stmts[i].kind == EP_STMT_LOAD) d->load(t, l, &l->stmts[i], i, tail);
    for (int i = 0; i < l->stmt_count && d->declare_store; i++)
        if (need[i] && l->stmts[i].kind == EP_STMT_STORE) d->declare_store(t, &l->stmts[i]);
    if (d->lanes_open) d->lanes_open(t);
    for (int i = 0; i < l->stmt_count; i++) {
        const ep_stmt *s = &l->stmts[i];
        if (!need[i] || s->kind == EP_STMT_LOAD || s->kind == EP_STMT_STORE) continue;
        ep_text_add(t, d->lanes_open ? "                " : "            ");
        if (s->kind == EP_STMT_REDUCE)
            d->reduce_step(t, s, i, use(d, l, s->in[0], name), tail);
        else
            computed(d, l, i, t);
    }
    for (int i = 0; i < l->stmt_count; i++)
        if (need[i] && l->stmts[i].kind == EP_STMT_STORE && d->lanes_open)
            ep_text_printf(t, "                y%d[k] = %s;\n", l->stmts[i].operand,
                           use(d, l, l->stmts[i].in[0], name));
    if (d->lanes_open) d->lanes_close(t);
    for (int i = 0; i < l->stmt_count; i++)
        if (need[i] && l->stmts[i].kind == EP_STMT_STORE)
            d->store(t, l, &l->stmts[i], use(d, l, l->stmts[i].in[0], name), tail);
}

static void for_reductions(const ep_loop *l, const bool *need, ep_text *t,
                           void (*write)(ep_text *t, const ep_stmt *s, int number)) {
    for (int i = 0; i < l->stmt_count; i++)
        if (need[i] && l->stmts[i].kind == EP_STMT_REDUCE) write(t, &l->stmts[i], i);
}

static void reducing_walk(const ep_dialect *d, const ep_loop *l, const bool *need, ep_text *t) {
    for_reductions(l, need, t, d->reduce_begin);
    d->blocks_open(t);
    for (int tail = 0; tail < (d->one_part ? 1 : 2); tail++) {
        d->block_open(t, tail);
        walk_body(d, l, need, tail, t);
        d->block_close(t, tail);
    }
    for_reductions(l, need, t, d->reduce_block);
    d->blocks_close(t);
    for_reductions(l, need, t, d->reduce_end);
}

/* Adjacent bf16 numbers and nothing else: then a step may take them in pairs. */
static bool goes_in_pairs(const ep_loop *l, const bool *need) {
    for (int i = 0; i < l->stmt_count; i++) {
        const ep_stmt *s = &l->stmts[i];
        if (!need[i] || (s->kind != EP_STMT_LOAD && s->kind != EP_STMT_STORE)) continue;
        const ep_loop_operand *o = &l->operands[s->operand];
        if (o->dtype != EP_DTYPE_BF16 || o->walk != EP_WALK_NEXT) return false;
    }
    return true;
}

static void walk(const ep_dialect *d, ep_isa isa, const ep_loop *l, int phase, ep_text *t) {
    bool need[EP_LOOP_STMTS], any = false, reduces = false;
    needed(l, phase, need);
    for (int i = 0; i < l->stmt_count; i++) {
        any |= need[i];
        reduces |= need[i] && l->stmts[i].kind == EP_STMT_REDUCE;
    }
    if (reduces) {
        reducing_walk(d, l, need, t);
        return;
    }
    for (int part = d->needs_tail(isa) ? 0 : 1; any && part < 2; part++) {
        const ep_dialect *by = part == 0 && d->pairs && goes_in_pairs(l, need) ? d->pairs : d;
        by->walk_open(t, l, isa, part == 1);
        walk_body(by, l, need, part == 1, t);
        by->walk_close(t, l);
    }
}

/* One value a row: loaded, computed or stored once, before the walk that may need it. */
static void row_part(const ep_dialect *d, const ep_loop *l, int phase, ep_text *t) {
    char name[64];
    for (int i = 0; i < l->stmt_count; i++) {
        const ep_stmt *s = &l->stmts[i];
        if (!s->row || s->phase != phase || s->kind == EP_STMT_REDUCE) continue;
        if (s->kind == EP_STMT_LOAD) {
            d->load(t, l, s, i, true);
        } else if (s->kind == EP_STMT_STORE) {
            d->store(t, l, s, use(d, l, s->in[0], name), true);
        } else {
            ep_text_add(t, "        ");
            computed(d, l, i, t);
        }
    }
}

static void head_comment(const ep_loop *l, ep_text *t) {
    static const char *const walks[] = {"adjacent", "strided", "one a row"};
    ep_text_add(t, "\n/* ");
    int shown = 0;
    for (int i = 0; i < l->stmt_count; i++) {
        const ep_stmt *s = &l->stmts[i];
        if (s->kind != EP_STMT_OP && s->kind != EP_STMT_REDUCE) continue;
        ep_text_printf(t, "%s%s%s", shown++ ? ", " : "", s->kind == EP_STMT_REDUCE ? "row " : "", ep_op_name(s->op));
    }
    ep_text_printf(t, "; rounding %s.\n", l->rounding == EP_ROUNDING_EAGER ? "as eager" : "fewest");
    ep_text_printf(t, " * %d outer dim%s, then n elements%s; rests on: %s%s.\n", l->outer, l->outer == 1 ? "" : "s",
                   l->reduces ? ", a row an item" : "", "dtypes and strides of the inner dim as below",
                   l->fixed ? ", and all sizes and strides" : "; sizes are free");
    for (int k = 0; k < l->operand_count; k++)
        ep_text_printf(t, " *   p%d %s %s, %s\n", k, l->operands[k].output ? "out" : "in ",
                       ep_dtype_name(l->operands[k].dtype), walks[l->operands[k].walk]);
    ep_text_add(t, " */\n");
}

void ep_emit_preamble(const ep_dialect *d, ep_isa isa, ep_text *out) {
    d->preamble(out, isa);
}

void ep_emit_kernel(const ep_dialect *d, ep_isa isa, const ep_loop *l, ep_text *out) {
    head_comment(l, out);
    d->open(out, l);
    for (int p = 0; p < l->phases; p++) {
        row_part(d, l, p, out);
        walk(d, isa, l, p, out);
    }
    d->close(out, l);
}

void ep_emit_arguments(ep_text *t, const ep_loop *l, const char *integer, const char *array, const char *pointer) {
    int at = EP_LOOP_HEAD;
    if (l->fixed) {
        ep_text_printf(t, "    const %s n = %lld, chunk = %s[1], pieces = %s[2];\n", integer,
                       (long long)l->sizes[l->outer], array, array);
        at += l->outer;
        for (int i = 0; i < l->outer; i++)
            ep_text_printf(t, "    const %s d%d = %lld;\n", integer, i, (long long)l->sizes[i]);
    } else {
        ep_text_printf(t, "    const %s n = %s[0], chunk = %s[1], pieces = %s[2];\n", integer, array, array, array);
        for (int i = 0; i < l->outer; i++) ep_text_printf(t, "    const %s d%d = %s[%d];\n", integer, i, array, at++);
    }
    for (int k = 0; k < l->operand_count; k++) {
        const ep_loop_operand *o = &l->operands[k];
        int64_t size = (int64_t)ep_dtype_size(o->dtype);
        ep_text_printf(t, "    %sp%d = (%s)%s[%d];\n", pointer, k, pointer, array, at++);
        for (int i = 0; i < l->outer + (o->walk == EP_WALK_STRIDED); i++, at++) {
            if (l->fixed)
                ep_text_printf(t, "    const %s p%d_s%d = %lld;\n", integer, k, i, (long long)(o->strides[i] * size));
            else
                ep_text_printf(t, "    const %s p%d_s%d = %s[%d];\n", integer, k, i, array, at);
        }
    }
}
