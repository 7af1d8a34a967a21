/* Text to claims: recursive descent over one line at a time, stopping at the first thing it can't read. */
#include "guess.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

typedef struct parser {
    ep_lexer lex;
    ep_token token; /* the one to look at */
    ep_guess *guess;
} parser;

static ep_status next(parser *p) {
    return ep_lex_token(&p->lex, false, &p->token);
}

static ep_status next_name(parser *p) {
    return ep_lex_token(&p->lex, true, &p->token);
}

static bool at_word(const parser *p, const char *word) {
    return p->token.kind == EP_TOKEN_WORD && strcmp(p->token.text, word) == 0;
}

/* What stands there, for a message. */
static const char *found(const parser *p, char *buffer, size_t size) {
    const ep_token *t = &p->token;
    if (t->kind == EP_TOKEN_END)
        snprintf(buffer, size, "the end of the line");
    else if (t->kind == EP_TOKEN_NUMBER) {
        ep_text text = {0};
        ep_quantity_print(&text, t->quantity);
        snprintf(buffer, size, "'%.60s'", ep_text_str(&text));
        ep_text_free(&text);
    } else
        snprintf(buffer, size, "'%.60s'", t->text);
    return buffer;
}

static ep_status expected(const parser *p, const char *what) {
    char buffer[80];
    return ep_lex_fail(&p->lex, p->token.column, "expected %s, found %s", what, found(p, buffer, sizeof buffer));
}

static const char *const first_words[] = {
    "region",   "compare",  "trace", "median", "every",   "op",      "fused",      "bound",     "kernels",
    "launches", "ops",      "views", "copies", "memcpys", "memsets", "recompiles", "instances", "device",
    "kernel",   "dispatch", "sync",  "time",   "idle",    "bytes",   "flops"};

/* Edits between two short words; long ones are far apart anyway. */
static int distance(const char *a, const char *b) {
    int row[24], na = (int)strlen(a), nb = (int)strlen(b);
    if (na > 22 || nb > 22) return 99;
    for (int j = 0; j <= nb; j++) row[j] = j;
    for (int i = 1; i <= na; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= nb; j++) {
            int best = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            if (row[j] + 1 < best) best = row[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[nb];
}

static ep_status unknown_word(const parser *p) {
    if (p->token.kind != EP_TOKEN_WORD) return expected(p, "a claim, 'region', 'trace' or 'compare'");
    int best = 3;
    const char *near = NULL;
    for (size_t i = 0; i < sizeof first_words / sizeof *first_words; i++) {
        int d = distance(p->token.text, first_words[i]);
        if (d < best) best = d, near = first_words[i];
    }
    if (near)
        return ep_lex_fail(&p->lex, p->token.column, "there is no claim about '%.60s'; did you mean '%s'?",
                           p->token.text, near);
    return ep_lex_fail(
        &p->lex, p->token.column,
        "there is no claim about '%.60s'; a claim is about kernels, launches, ops, views, op NAME, copies, "
        "memcpys, memsets, recompiles, instances, device time, kernel time, dispatch, sync time, time, "
        "idle, bytes, flops, bound or fused",
        p->token.text);
}

/* "device time": the words up to `end` of a metric's name, with the token after it looked at. */
static ep_status parse_metric(parser *p, bool of_op, ep_metric *out) {
    for (int m = 0; m < EP_METRIC_COUNT; m++) {
        if ((ep_metrics[m].filter == EP_FILTER_OP) != of_op) continue;
        const char *words = ep_metrics[m].words, *space = strchr(words, ' ');
        size_t n = space ? (size_t)(space - words) : strlen(words);
        if (p->token.kind != EP_TOKEN_WORD || strlen(p->token.text) != n || memcmp(p->token.text, words, n) != 0)
            continue;
        EP_TRY(next(p));
        if (space) {
            char what[24];
            snprintf(what, sizeof what, "'%s'", space + 1);
            if (!at_word(p, space + 1)) return expected(p, what);
            EP_TRY(next(p));
        }
        *out = (ep_metric)m;
        return EP_OK;
    }
    return of_op ? expected(p, "'count', 'launches', 'time', 'device time', 'gone' or 'new' after the op's name")
                 : unknown_word(p);
}

static ep_status parse_name(parser *p, const char *what, const char **out) {
    EP_TRY(next_name(p));
    if ((p->token.kind != EP_TOKEN_WORD && p->token.kind != EP_TOKEN_STRING) || !*p->token.text)
        return expected(p, what);
    *out = p->token.text;
    return EP_OK;
}

/* A region may have no name at all: record_function(""). */
static ep_status parse_region(parser *p, const char **out) {
    EP_TRY(next_name(p));
    if (p->token.kind != EP_TOKEN_WORD && p->token.kind != EP_TOKEN_STRING)
        return expected(p, "the region's name or glob");
    *out = p->token.text;
    return EP_OK;
}

static ep_status parse_filter(parser *p, ep_term *t) {
    if (at_word(p, "matching")) {
        ep_filter filter = ep_metrics[t->metric].filter;
        if (filter != EP_FILTER_KERNELS && filter != EP_FILTER_OPS)
            return ep_lex_fail(&p->lex, p->token.column,
                               "'%s' can't be narrowed by 'matching'; kernels, kernel time, ops and views can",
                               ep_metrics[t->metric].words);
        EP_TRY(parse_name(p,
                          filter == EP_FILTER_OPS
                              ? "an op's name or glob"
                              : "a class (gemm, pointwise, ...), a glob or a kernel's name in quotes",
                          &t->pattern));
        EP_TRY(next(p));
    }
    if (at_word(p, "any")) {
        EP_TRY(next(p));
        if (!at_word(p, "thread")) return expected(p, "'thread'");
        t->any_thread = true;
        EP_TRY(next(p));
    }
    return EP_OK;
}

static ep_status parse_term(parser *p, ep_term *t) {
    if (at_word(p, "op")) {
        EP_TRY(parse_name(p, "the op's name", &t->pattern));
        EP_TRY(next(p));
        EP_TRY(parse_metric(p, true, &t->metric));
    } else
        EP_TRY(parse_metric(p, false, &t->metric));
    return parse_filter(p, t);
}

static const char *const wants[] = {"a count such as 5", "a time such as 250us", "a size such as 12MB",
                                    "flops such as 58GFLOP", "a share such as 20%"};

/* A number in dimension `d`; 0 needs no unit, and a share may be a plain number. */
static ep_status parse_quantity(parser *p, ep_dimension d, bool unit_may_follow, ep_quantity *out) {
    if (p->token.kind != EP_TOKEN_NUMBER) return expected(p, wants[d]);
    ep_quantity q = p->token.quantity;
    ep_dimension got = ep_units[q.unit].dimension;
    bool plain = q.unit == 0;
    if (got != d && !(plain && (q.number == 0 || d == EP_DIM_SHARE || unit_may_follow))) return expected(p, wants[d]);
    if (d != EP_DIM_SHARE && q.number < 0) return ep_lex_fail(&p->lex, p->token.column, "this can't be negative");
    *out = q;
    return next(p);
}

static ep_status parse_range(parser *p, ep_dimension d, ep_claim *c) {
    c->form = EP_CLAIM_RANGE;
    int column = p->token.column;
    EP_TRY(parse_quantity(p, d, true, &c->low));
    if (p->token.kind != EP_TOKEN_DOTS) return expected(p, "'..' and the upper end of the range");
    EP_TRY(next(p));
    EP_TRY(parse_quantity(p, d, false, &c->high));
    if (c->low.unit == 0 && ep_units[c->high.unit].dimension == d) c->low.unit = c->high.unit;
    if (ep_quantity_value(c->low) > ep_quantity_value(c->high))
        return ep_lex_fail(&p->lex, column, "the range ends before it begins");
    return EP_OK;
}

/* "~ 5 +- 10%": a tolerance in percent is of the value, but of a share it is points. */
static ep_status parse_near(parser *p, ep_dimension d, ep_claim *c) {
    c->form = EP_CLAIM_NEAR;
    EP_TRY(parse_quantity(p, d, false, &c->low));
    for (size_t i = 0; i < ep_unit_count; i++)
        if (ep_units[i].dimension == EP_DIM_SHARE) c->high = (ep_quantity){10, (uint8_t)i};
    if (p->token.kind != EP_TOKEN_PLUS_MINUS) return EP_OK;
    EP_TRY(next(p));
    if (p->token.kind == EP_TOKEN_NUMBER && p->token.quantity.number < 0)
        return ep_lex_fail(&p->lex, p->token.column, "a tolerance can't be negative");
    bool share = p->token.kind == EP_TOKEN_NUMBER && ep_units[p->token.quantity.unit].dimension == EP_DIM_SHARE;
    return parse_quantity(p, share ? EP_DIM_SHARE : d, false, &c->high);
}

static ep_status parse_other(parser *p, ep_claim *c) {
    c->form = EP_CLAIM_TERM;
    int column = p->token.column;
    EP_TRY(parse_term(p, &c->other));
    if (ep_metrics[c->term.metric].dimension != ep_metrics[c->other.metric].dimension)
        return ep_lex_fail(&p->lex, column, "'%s' and '%s' can't be compared: one is not of the other's kind",
                           ep_metrics[c->term.metric].words, ep_metrics[c->other.metric].words);
    return EP_OK;
}

static ep_status parse_right(parser *p, ep_claim *c) {
    ep_dimension d = c->change == EP_CHANGE_RATIO ? EP_DIM_SHARE : ep_metrics[c->term.metric].dimension;
    if (at_word(p, "in")) {
        EP_TRY(next(p));
        return parse_range(p, d, c);
    }
    if (p->token.kind == EP_TOKEN_NEAR) {
        EP_TRY(next(p));
        return parse_near(p, d, c);
    }
    c->relation = EP_REL_EQ;
    if (p->token.kind == EP_TOKEN_RELATION) {
        c->relation = p->token.relation;
        EP_TRY(next(p));
    } else if (p->token.kind != EP_TOKEN_NUMBER)
        return expected(p, "a comparison (= != < <= > >= ~ or 'in')");
    if (p->token.kind == EP_TOKEN_WORD && c->change == EP_CHANGE_NONE) return parse_other(p, c);
    c->form = EP_CLAIM_VALUE;
    int column = p->token.column;
    bool plain = p->token.kind == EP_TOKEN_NUMBER && p->token.quantity.unit == 0;
    /* A delta may be negative and a plain number may be a factor: both are judged after what follows. */
    if (c->change == EP_CHANGE_DELTA && p->token.kind == EP_TOKEN_NUMBER && p->token.quantity.number < 0) {
        if (ep_units[p->token.quantity.unit].dimension != d) return expected(p, wants[d]);
        c->low = p->token.quantity;
        return next(p);
    }
    EP_TRY(parse_quantity(p, d, true, &c->low));
    if (p->token.kind == EP_TOKEN_TIMES) {
        if (!plain || c->change != EP_CHANGE_NONE) return expected(p, "the end of the line");
        c->factor = c->low.number;
        c->low = (ep_quantity){0, 0};
        EP_TRY(next(p));
        return parse_other(p, c);
    }
    if (plain && d != EP_DIM_COUNT && d != EP_DIM_SHARE && c->low.number != 0)
        return ep_lex_fail(&p->lex, column, "'%s' wants %s; this number has no unit", ep_metrics[c->term.metric].words,
                           wants[d]);
    return EP_OK;
}

static ep_status parse_fused(parser *p, ep_claim *c) {
    const char *names[16];
    c->form = EP_CLAIM_FUSED;
    EP_TRY(next_name(p));
    while (p->token.kind == EP_TOKEN_WORD || p->token.kind == EP_TOKEN_STRING) {
        if (c->name_count == 16) return ep_lex_fail(&p->lex, p->token.column, "'fused' takes at most 16 ops");
        if (!*p->token.text) return expected(p, "an op's name");
        names[c->name_count++] = p->token.text;
        EP_TRY(next_name(p));
    }
    if (c->name_count < 2)
        return ep_lex_fail(&p->lex, p->token.column, "'fused' wants two ops or more, such as: fused gelu mul");
    c->names = EP_ARENA_ARRAY(&p->guess->arena, const char *, c->name_count);
    if (!c->names) return ep_fail(p->lex.err, EP_ERROR_OUT_OF_MEMORY, "no memory for a claim");
    memcpy(c->names, names, sizeof *names * (size_t)c->name_count);
    return EP_OK;
}

static ep_status parse_bound(parser *p, ep_claim *c) {
    c->form = EP_CLAIM_BOUND;
    EP_TRY(next(p));
    if (p->token.kind != EP_TOKEN_RELATION || p->token.relation > EP_REL_NE) return expected(p, "'=' or '!='");
    c->relation = p->token.relation;
    EP_TRY(next(p));
    for (int r = EP_REGIME_OVERHEAD; r <= EP_REGIME_SYNC; r++)
        if (at_word(p, ep_regime_name((ep_regime)r))) c->regime = (ep_regime)r;
    if (c->regime == EP_REGIME_UNKNOWN) return expected(p, "overhead, memory, compute, communication or sync");
    return next(p);
}

/* "op t gone", "op guards new": true if it was one, with the name already read as the term's. */
static ep_status parse_op(parser *p, ep_claim *c) {
    EP_TRY(parse_name(p, "the op's name", &c->term.pattern));
    EP_TRY(next(p));
    if (at_word(p, "gone") || at_word(p, "new")) {
        c->form = at_word(p, "gone") ? EP_CLAIM_GONE : EP_CLAIM_NEW;
        c->change = EP_CHANGE_DELTA;
        c->names = EP_ARENA_ARRAY(&p->guess->arena, const char *, 1);
        if (!c->names) return ep_fail(p->lex.err, EP_ERROR_OUT_OF_MEMORY, "no memory for a claim");
        c->names[0] = c->term.pattern;
        c->name_count = 1;
        return next(p);
    }
    EP_TRY(parse_metric(p, true, &c->term.metric));
    return parse_filter(p, &c->term);
}

static ep_status parse_change(parser *p, ep_claim *c) {
    if (at_word(p, "ratio") || at_word(p, "delta")) {
        c->change = at_word(p, "ratio") ? EP_CHANGE_RATIO : EP_CHANGE_DELTA;
        return next(p);
    }
    if (!at_word(p, "same")) return EP_OK;
    if (c->term.metric != EP_METRIC_KERNELS)
        return ep_lex_fail(&p->lex, p->token.column, "only kernels have names to be the same");
    EP_TRY(next(p));
    if (!at_word(p, "names")) return expected(p, "'names'");
    c->form = EP_CLAIM_SAME_NAMES;
    c->change = EP_CHANGE_DELTA;
    return next(p);
}

static ep_status parse_body(parser *p, ep_claim *c) {
    if (at_word(p, "median") || at_word(p, "every")) {
        c->median = at_word(p, "median");
        EP_TRY(next(p));
    }
    if (at_word(p, "fused") || at_word(p, "bound")) {
        if (c->median) return expected(p, "something that has a median");
        return at_word(p, "fused") ? parse_fused(p, c) : parse_bound(p, c);
    }
    if (at_word(p, "op"))
        EP_TRY(parse_op(p, c));
    else
        EP_TRY(parse_term(p, &c->term));
    if (c->form == EP_CLAIM_GONE || c->form == EP_CLAIM_NEW) return EP_OK;
    EP_TRY(parse_change(p, c));
    return c->form == EP_CLAIM_SAME_NAMES ? EP_OK : parse_right(p, c);
}

static ep_status open_block(parser *p, ep_guess_block block) {
    ep_guess *g = p->guess;
    if (g->block_count >= UINT32_MAX || !ep_grow(&g->blocks, &g->block_cap, g->block_count + 1, sizeof *g->blocks))
        return ep_fail(p->lex.err, EP_ERROR_OUT_OF_MEMORY, "no memory for a guess");
    block.line = p->lex.line;
    g->blocks[g->block_count++] = block;
    return EP_OK;
}

static ep_status parse_head(parser *p) {
    ep_guess_block block = {0};
    if (at_word(p, "trace")) {
        EP_TRY(next(p));
    } else if (at_word(p, "compare")) {
        block.form = EP_GUESS_COMPARE;
        EP_TRY(next(p));
        if (p->token.kind != EP_TOKEN_END) {
            if (!at_word(p, "region")) return expected(p, "'region' and a name, or the end of the line");
            EP_TRY(parse_region(p, &block.region));
            EP_TRY(next(p));
        }
    } else {
        block.form = EP_GUESS_REGION;
        EP_TRY(parse_region(p, &block.region));
        EP_TRY(next(p));
    }
    if (block.region && at_word(p, "skip")) {
        EP_TRY(next(p));
        if (p->token.kind != EP_TOKEN_NUMBER || p->token.quantity.unit != 0 ||
            !(p->token.quantity.number >= 0 && p->token.quantity.number <= 1e9))
            return expected(p, "how many instances to skip");
        block.skip = (int64_t)p->token.quantity.number;
        EP_TRY(next(p));
    }
    return open_block(p, block);
}

static ep_status parse_claim(parser *p) {
    ep_guess *g = p->guess;
    if (g->block_count == 0) EP_TRY(open_block(p, (ep_guess_block){0}));
    ep_claim c = {.line = p->lex.line, .column = p->token.column, .block = (uint32_t)(g->block_count - 1), .factor = 1};
    const ep_guess_block *b = &g->blocks[c.block];
    EP_TRY(parse_body(p, &c));
    bool two = c.change != EP_CHANGE_NONE;
    if (two && b->form != EP_GUESS_COMPARE)
        return ep_lex_fail(&p->lex, c.column,
                           "this claim compares two traces; put it under a line that says 'compare'");
    if (!two && b->form == EP_GUESS_COMPARE)
        return ep_lex_fail(&p->lex, c.column,
                           "a claim under 'compare' says 'ratio', 'delta', 'same names', 'gone' or 'new'");
    if (c.median && !b->region)
        return ep_lex_fail(&p->lex, c.column,
                           "'median' is over the instances of a region; put this claim under 'region NAME'");
    if (p->token.kind != EP_TOKEN_END) return expected(p, "the end of the line");
    if (!ep_grow(&g->claims, &g->claim_cap, g->claim_count + 1, sizeof *g->claims))
        return ep_fail(p->lex.err, EP_ERROR_OUT_OF_MEMORY, "no memory for a claim");
    g->claims[g->claim_count++] = c;
    return EP_OK;
}

ep_status ep_guess_parse(const char *text, size_t size, ep_error *err, ep_guess **out) {
    ep_error own = {0};
    if (!err) err = &own;
    if ((size && !text) || !out)
        return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "the %s is NULL", out ? "text" : "result");
    if (size > (size_t)64 << 20)
        return ep_fail(err, EP_ERROR_FORMAT, "a guess of %zu bytes; at most 64 MiB are read", size);
    ep_guess *g = calloc(1, sizeof *g);
    if (!g) return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory for a guess");
    parser p = {.guess = g,
                .lex = {.at = text, .end = text + size, .line_start = text, .arena = &g->arena, .err = err}};
    if (size >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) p.lex.at += 3;
    ep_status status = EP_OK;
    while (status == EP_OK && ep_lex_line(&p.lex)) {
        status = next(&p);
        if (status != EP_OK) break;
        bool head = at_word(&p, "region") || at_word(&p, "compare") || at_word(&p, "trace");
        status = head ? parse_head(&p) : parse_claim(&p);
        if (status == EP_OK && p.token.kind != EP_TOKEN_END) status = expected(&p, "the end of the line");
    }
    if (status == EP_OK) status = ep_guess_print(g, err);
    if (status != EP_OK) {
        ep_guess_destroy(g);
        return status;
    }
    *out = g;
    return EP_OK;
}

void ep_guess_destroy(ep_guess *guess) {
    if (!guess) return;
    ep_arena_free(&guess->arena);
    free(guess->blocks);
    free(guess->claims);
    free(guess->text);
    free(guess);
}

size_t ep_guess_count(const ep_guess *guess) {
    return guess->claim_count;
}

const char *ep_guess_text(const ep_guess *guess) {
    return guess->text;
}

ep_status ep_guess_read(const char *path, ep_error *err, ep_guess **out) {
    FILE *f = fopen(path, "rb");
    if (!f) return ep_fail(err, EP_ERROR_IO, "the guess can't be opened");
    ep_text text = {0};
    char buffer[65536];
    size_t n;
    while ((n = fread(buffer, 1, sizeof buffer, f)) > 0 && text.len <= (size_t)64 << 20) ep_text_addn(&text, buffer, n);
    bool bad = ferror(f) || text.failed;
    fclose(f);
    ep_status status = bad ? ep_fail(err, EP_ERROR_IO, "the guess can't be read")
                           : ep_guess_parse(ep_text_str(&text), text.len, err, out);
    ep_text_free(&text);
    return status;
}
