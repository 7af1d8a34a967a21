/* The text of a guess as tokens, a line at a time. */
#include "guess.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const ep_unit ep_units[] = {
    {"", EP_DIM_COUNT, 1},
    {"ns", EP_DIM_TIME, 1},
    {"us", EP_DIM_TIME, 1e3},
    {"ms", EP_DIM_TIME, 1e6},
    {"s", EP_DIM_TIME, 1e9},
    {"%", EP_DIM_SHARE, 0.01},
    {"B", EP_DIM_BYTES, 1},
    {"KB", EP_DIM_BYTES, 1e3},
    {"MB", EP_DIM_BYTES, 1e6},
    {"GB", EP_DIM_BYTES, 1e9},
    {"TB", EP_DIM_BYTES, 1e12},
    {"KiB", EP_DIM_BYTES, 1024},
    {"MiB", EP_DIM_BYTES, 1048576},
    {"GiB", EP_DIM_BYTES, 1073741824},
    {"MFLOP", EP_DIM_FLOPS, 1e6},
    {"GFLOP", EP_DIM_FLOPS, 1e9},
    {"TFLOP", EP_DIM_FLOPS, 1e12},
    /* Other spellings; printed by the first of the same scale. */
    {"µs", EP_DIM_TIME, 1e3},
    {"μs", EP_DIM_TIME, 1e3},
    {"kB", EP_DIM_BYTES, 1e3},
};
const size_t ep_unit_count = sizeof ep_units / sizeof *ep_units;

/* Signs that stand by themselves; longer ones first. */
static const struct {
    const char *text;
    ep_token_kind kind;
    ep_relation relation;
} signs[] = {
    {"==", EP_TOKEN_RELATION, EP_REL_EQ},
    {"!=", EP_TOKEN_RELATION, EP_REL_NE},
    {"<=", EP_TOKEN_RELATION, EP_REL_LE},
    {">=", EP_TOKEN_RELATION, EP_REL_GE},
    {"≤", EP_TOKEN_RELATION, EP_REL_LE},
    {"≥", EP_TOKEN_RELATION, EP_REL_GE},
    {"≠", EP_TOKEN_RELATION, EP_REL_NE},
    {"+-", EP_TOKEN_PLUS_MINUS, 0},
    {"±", EP_TOKEN_PLUS_MINUS, 0},
    {"..", EP_TOKEN_DOTS, 0},
    {"=", EP_TOKEN_RELATION, EP_REL_EQ},
    {"<", EP_TOKEN_RELATION, EP_REL_LT},
    {">", EP_TOKEN_RELATION, EP_REL_GT},
    {"~", EP_TOKEN_NEAR, 0},
    {"*", EP_TOKEN_TIMES, 0},
};

ep_status ep_lex_fail(const ep_lexer *l, int column, const char *fmt, ...) {
    char message[sizeof l->err->message];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    return ep_fail_line(l->err, EP_ERROR_PARSE, l->line, column, "%s", message);
}

static bool blank(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f';
}

static bool at_end(const ep_lexer *l) {
    return l->at >= l->end || *l->at == '\n';
}

/* A '#' opens a comment only after a blank or at the start, so that ProfilerStep#2 is a name. */
static bool at_comment(const ep_lexer *l) {
    return *l->at == '#' && (l->at == l->line_start || blank(l->at[-1]));
}

static void skip_blanks(ep_lexer *l) {
    while (!at_end(l) && blank(*l->at)) l->at++;
    if (!at_end(l) && at_comment(l))
        while (!at_end(l)) l->at++;
}

bool ep_lex_line(ep_lexer *l) {
    for (;;) {
        if (l->line > 0) {
            while (l->at < l->end && *l->at != '\n') l->at++;
            if (l->at < l->end) l->at++;
        }
        if (l->at >= l->end) return false;
        l->line++;
        l->line_start = l->at;
        skip_blanks(l);
        if (!at_end(l)) return true;
    }
}

static int sign_at(const ep_lexer *l) {
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++) {
        size_t n = strlen(signs[i].text);
        if ((size_t)(l->end - l->at) >= n && memcmp(l->at, signs[i].text, n) == 0) return (int)i;
    }
    return -1;
}

static ep_status keep(ep_lexer *l, const char *text, size_t n, ep_token *out) {
    out->text = ep_arena_copy(l->arena, text, n);
    return out->text ? EP_OK : ep_fail(l->err, EP_ERROR_OUT_OF_MEMORY, "no memory for a name of %zu bytes", n);
}

static ep_status read_string(ep_lexer *l, ep_token *out) {
    ep_text text = {0};
    out->kind = EP_TOKEN_STRING;
    for (l->at++; !at_end(l) && *l->at != '"'; l->at++) {
        char c = *l->at;
        if (c == '\\') {
            l->at++;
            c = at_end(l) ? 0 : *l->at;
            if (c == 'n')
                c = '\n';
            else if (c == 't')
                c = '\t';
            else if (c != '"' && c != '\\') {
                ep_text_free(&text);
                return ep_lex_fail(l, (int)(l->at - l->line_start),
                                   "only \\\" \\\\ \\n and \\t may follow a backslash");
            }
        }
        ep_text_char(&text, c);
    }
    if (at_end(l)) {
        ep_text_free(&text);
        return ep_lex_fail(l, out->column, "this quote has no end on its line");
    }
    l->at++;
    ep_status status = text.failed ? ep_fail(l->err, EP_ERROR_OUT_OF_MEMORY, "no memory for a quoted name")
                                   : keep(l, ep_text_str(&text), text.len, out);
    ep_text_free(&text);
    return status;
}

static bool digit(const ep_lexer *l, size_t ahead) {
    return (size_t)(l->end - l->at) > ahead && l->at[ahead] >= '0' && l->at[ahead] <= '9';
}

static bool letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (unsigned char)c >= 0x80;
}

/* The length of the word at `at` that could be a unit. */
static size_t unit_length(ep_lexer *l) {
    const char *from = l->at;
    if (!at_end(l) && *l->at == '%')
        l->at++;
    else
        while (!at_end(l) && letter(*l->at) && sign_at(l) < 0) l->at++;
    size_t n = (size_t)(l->at - from);
    l->at = from;
    return n;
}

/* The unit of that name, by its first spelling, or -1. */
static int find_unit(const char *name, size_t n) {
    for (size_t i = 0; i < ep_unit_count; i++) {
        if (strlen(ep_units[i].name) != n || memcmp(ep_units[i].name, name, n) != 0) continue;
        int first = 0;
        while (ep_units[first].dimension != ep_units[i].dimension || ep_units[first].scale != ep_units[i].scale)
            first++;
        return first;
    }
    return -1;
}

/* Behind the number, or behind blanks ("250 us"). */
static ep_status read_unit(ep_lexer *l, ep_token *out) {
    const char *from = l->at;
    size_t n = unit_length(l);
    if (n == 0) {
        while (!at_end(l) && blank(*l->at)) l->at++;
        n = unit_length(l);
        int apart = n ? find_unit(l->at, n) : -1;
        if (apart < 0) l->at = from;
        if (apart >= 0) l->at += n, out->quantity.unit = (uint8_t)apart;
        return EP_OK;
    }
    l->at += n;
    int unit = find_unit(from, n);
    if (unit >= 0) {
        out->quantity.unit = (uint8_t)unit;
        return EP_OK;
    }
    return ep_lex_fail(l, (int)(from - l->line_start) + 1,
                       "'%.*s' is no unit; there are ns us ms s, B KB MB GB TB KiB MiB GiB, MFLOP GFLOP TFLOP and %%",
                       (int)(n > 40 ? 40 : n), from);
}

/* Digits with an optional fraction and exponent; "100us..250us" must not eat the dots. */
static ep_status read_number(ep_lexer *l, ep_token *out) {
    char digits[64];
    size_t n = 0;
    bool point = false, exponent = false;
    out->kind = EP_TOKEN_NUMBER;
    for (; !at_end(l); l->at++) {
        char c = *l->at;
        if (c == '_' && digit(l, 1)) continue;
        bool take = digit(l, 0);
        if (c == '.' && !point && !exponent && digit(l, 1)) take = point = true;
        if ((c == '-' || c == '+') && n == 0 && digit(l, 1)) take = true;
        if ((c == 'e' || c == 'E') && n && !exponent &&
            (digit(l, 1) || ((l->end - l->at > 1) && (l->at[1] == '-' || l->at[1] == '+') && digit(l, 2)))) {
            take = exponent = true;
            if (n + 3 < sizeof digits && !digit(l, 1)) {
                digits[n++] = c;
                l->at++;
                c = *l->at;
            }
        }
        if (!take) break;
        if (n + 1 >= sizeof digits)
            return ep_lex_fail(l, out->column, "a number may have at most %d digits", (int)sizeof digits - 1);
        digits[n++] = c;
    }
    digits[n] = 0;
    out->quantity.number = strtod(digits, NULL);
    if (!(out->quantity.number <= 1e300 && out->quantity.number >= -1e300))
        return ep_lex_fail(l, out->column, "the number %s is too large", digits);
    return read_unit(l, out);
}

static ep_status read_word(ep_lexer *l, bool as_name, ep_token *out) {
    const char *from = l->at;
    out->kind = EP_TOKEN_WORD;
    while (!at_end(l) && !blank(*l->at) && *l->at != '"') {
        int s = sign_at(l);
        if (s >= 0 && !(as_name && (signs[s].kind == EP_TOKEN_TIMES || signs[s].kind == EP_TOKEN_DOTS))) break;
        l->at++;
    }
    return keep(l, from, (size_t)(l->at - from), out);
}

ep_status ep_lex_token(ep_lexer *l, bool as_name, ep_token *out) {
    skip_blanks(l);
    memset(out, 0, sizeof *out);
    out->column = (int)(l->at - l->line_start) + 1;
    out->text = "";
    if (at_end(l)) return EP_OK;
    if (*l->at == 0) return ep_lex_fail(l, out->column, "a zero byte; a guess is a text file");
    if (*l->at == '"') return read_string(l, out);
    bool number = digit(l, 0) || ((*l->at == '-' || *l->at == '+') && digit(l, 1));
    if (number && !as_name) return read_number(l, out);
    int s = sign_at(l);
    if (s >= 0 && !(as_name && signs[s].kind == EP_TOKEN_TIMES)) {
        out->kind = signs[s].kind;
        out->relation = signs[s].relation;
        out->text = signs[s].text;
        l->at += strlen(signs[s].text);
        return EP_OK;
    }
    return read_word(l, as_name, out);
}
