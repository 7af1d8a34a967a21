/* A guess as canonical text: what it prints parses back to the same claims. */
#include "guess.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const ep_metric_info ep_metrics[EP_METRIC_COUNT] = {
#define EP_METRIC(ID, words, dimension, filter, meaning) {words, EP_DIM_##dimension, EP_FILTER_##filter, meaning},
#include "metrics.def"
#undef EP_METRIC
};

const char *ep_relation_text(ep_relation r) {
    static const char *const text[] = {"=", "!=", "<", "<=", ">", ">="};
    return text[r];
}

void ep_quantity_print(ep_text *out, ep_quantity q) {
    char number[40];
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(number, sizeof number, "%.*g", digits, q.number);
        if (strtod(number, NULL) == q.number) break;
    }
    ep_text_printf(out, "%s%s", number, ep_units[q.unit].name);
}

/* Bare only if the lexer reads it back as one name: no blanks, quotes, signs, and nothing that opens a comment. */
static bool bare(const char *name) {
    if (!*name || *name == '#') return false;
    for (const char *c = name; *c; c++) {
        if (c[0] == '+' && c[1] == '-') return false;
        if (strchr(" \t\r\n\v\f\"=<>!~\\", *c) || (unsigned char)*c >= 0x80) return false;
    }
    return strncmp(name, "..", 2) != 0;
}

void ep_name_print(ep_text *out, const char *name) {
    if (bare(name)) {
        ep_text_add(out, name);
        return;
    }
    ep_text_char(out, '"');
    for (const char *c = name; *c; c++) {
        if (*c == '\n')
            ep_text_add(out, "\\n");
        else if (*c == '\t')
            ep_text_add(out, "\\t");
        else {
            if (*c == '"' || *c == '\\') ep_text_char(out, '\\');
            ep_text_char(out, *c);
        }
    }
    ep_text_char(out, '"');
}

static void print_term(ep_text *out, const ep_term *t) {
    const ep_metric_info *m = &ep_metrics[t->metric];
    if (m->filter == EP_FILTER_OP) {
        ep_text_add(out, "op ");
        ep_name_print(out, t->pattern);
        ep_text_char(out, ' ');
    }
    ep_text_add(out, m->words);
    if (m->filter != EP_FILTER_OP && t->pattern) {
        ep_text_add(out, " matching ");
        /* Always quoted, so that the pattern is read aloud as what it is. */
        ep_text quoted = {0};
        ep_name_print(&quoted, t->pattern);
        const char *q = ep_text_str(&quoted);
        if (*q == '"')
            ep_text_add(out, q);
        else
            ep_text_printf(out, "\"%s\"", q);
        out->failed |= quoted.failed;
        ep_text_free(&quoted);
    }
    if (t->any_thread) ep_text_add(out, " any thread");
}

static void print_names(ep_text *out, const char *word, const ep_claim *c) {
    ep_text_add(out, word);
    for (int i = 0; i < c->name_count; i++) {
        ep_text_char(out, ' ');
        ep_name_print(out, c->names[i]);
    }
}

static void print_relation(ep_text *out, const ep_claim *c) {
    switch (c->form) {
    case EP_CLAIM_VALUE:
        ep_text_printf(out, " %s ", ep_relation_text(c->relation));
        ep_quantity_print(out, c->low);
        break;
    case EP_CLAIM_RANGE:
        ep_text_add(out, " in ");
        ep_quantity_print(out, c->low);
        ep_text_add(out, "..");
        ep_quantity_print(out, c->high);
        break;
    case EP_CLAIM_NEAR:
        ep_text_add(out, " ~ ");
        ep_quantity_print(out, c->low);
        ep_text_add(out, " +- ");
        ep_quantity_print(out, c->high);
        break;
    default:
        ep_text_printf(out, " %s ", ep_relation_text(c->relation));
        if (c->factor != 1) {
            ep_quantity_print(out, (ep_quantity){c->factor, 0});
            ep_text_add(out, " * ");
        }
        print_term(out, &c->other);
    }
}

void ep_claim_print(ep_text *out, const ep_claim *c) {
    static const char *const changes[] = {"", " ratio", " delta"};
    if (c->median) ep_text_add(out, "median ");
    switch (c->form) {
    case EP_CLAIM_FUSED: print_names(out, "fused", c); break;
    case EP_CLAIM_BOUND:
        ep_text_printf(out, "bound %s %s", ep_relation_text(c->relation), ep_regime_name(c->regime));
        break;
    case EP_CLAIM_SAME_NAMES:
        print_term(out, &c->term);
        ep_text_add(out, " same names");
        break;
    case EP_CLAIM_GONE:
    case EP_CLAIM_NEW:
        print_names(out, "op", c);
        ep_text_add(out, c->form == EP_CLAIM_GONE ? " gone" : " new");
        break;
    default:
        print_term(out, &c->term);
        ep_text_add(out, changes[c->change]);
        print_relation(out, c);
    }
}

void ep_block_print(ep_text *out, const ep_guess_block *b) {
    static const char *const words[] = {"trace", "region", "compare"};
    ep_text_add(out, words[b->form]);
    if (b->form == EP_GUESS_COMPARE && b->region) ep_text_add(out, " region");
    if (b->region) {
        ep_text_char(out, ' ');
        ep_name_print(out, b->region);
    }
    if (b->skip) ep_text_printf(out, " skip %lld", (long long)b->skip);
}

static const char *print_one(ep_arena *arena, void (*print)(ep_text *, const void *), const void *what) {
    ep_text text = {0};
    print(&text, what);
    const char *copy = text.failed ? NULL : ep_arena_copy(arena, ep_text_str(&text), text.len);
    ep_text_free(&text);
    return copy;
}

static void claim_cb(ep_text *out, const void *c) {
    ep_claim_print(out, c);
}

static void block_cb(ep_text *out, const void *b) {
    ep_block_print(out, b);
}

ep_status ep_guess_print(ep_guess *g, ep_error *err) {
    ep_text all = {0};
    size_t c = 0;
    for (size_t b = 0; b < g->block_count; b++) {
        ep_guess_block *block = &g->blocks[b];
        block->head = print_one(&g->arena, block_cb, block);
        if (!block->head) goto no_memory;
        ep_text_printf(&all, "%s\n", block->head);
        for (; c < g->claim_count && g->claims[c].block == b; c++) {
            g->claims[c].text = print_one(&g->arena, claim_cb, &g->claims[c]);
            if (!g->claims[c].text) goto no_memory;
            ep_text_printf(&all, "  %s\n", g->claims[c].text);
        }
    }
    free(g->text);
    g->text = ep_text_take(&all);
    if (g->text) return EP_OK;
no_memory:
    ep_text_free(&all);
    return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory for the text of a guess");
}

void ep_figure_print(ep_text *out, ep_dimension d, double value) {
    if (isnan(value)) {
        ep_text_add(out, "unknown");
        return;
    }
    double best = 1;
    const char *unit = "";
    for (size_t i = 1; i < ep_unit_count; i++) {
        const ep_unit *u = &ep_units[i];
        if (u->dimension != d || (d == EP_DIM_TIME && u->scale < 1e3) || (d == EP_DIM_BYTES && strchr(u->name, 'i')))
            continue;
        if (!*unit || (fabs(value) >= u->scale && u->scale > best)) best = u->scale, unit = u->name;
    }
    double shown = value / best;
    if (d == EP_DIM_COUNT && value == floor(value) && fabs(value) < 1e15)
        ep_text_printf(out, "%.0f", value);
    else if (d == EP_DIM_COUNT)
        ep_text_printf(out, "%.3f", value);
    else if (d == EP_DIM_BYTES && best == 1)
        ep_text_printf(out, "%.0fB", value);
    else
        ep_text_printf(out, "%.*f%s", fabs(shown) < 10 ? 3 : fabs(shown) < 100 ? 2 : 1, shown, unit);
}
