/* Our kernel names: fields to text and back. A name is accepted only if making it again gives the same text. */
#include "kernel_name.h"

#include <stdio.h>
#include <string.h>

#define MAX_TOKENS 32
#define MAX_NAME 192

/* What an op is, by the first words of its name; the first row that fits decides. Ops outside the table are pointwise:
 * pointwise.def grows without this file. */
static const struct {
    const char *prefix, *class_name;
} classes[] = {{"gemm", "gemm"},    {"mm", "gemm"},         {"bmm", "gemm"},        {"addmm", "gemm"},
               {"linear", "gemm"},  {"geglu", "gemm"},      {"swiglu", "gemm"},     {"reglu", "gemm"},
               {"glu", "gemm"},     {"gated_mlp", "gemm"},  {"gated_gemm", "gemm"}, {"gemv", "gemm"},
               {"mlp", "gemm"},     {"sum", "reduction"},   {"mean", "reduction"},  {"amax", "reduction"},
               {"softmax", "norm"}, {"layer_norm", "norm"}, {"rms_norm", "norm"},   {"copy", "copy"},
               {"cast", "copy"},    {"cat", "copy"},        {"pack", "copy"},       {"transpose", "copy"}};

static const char *const dtypes[] = {"f32", "bf16", "f16", "i32", "i64", "bool"};
static const char *const isas[] = {"ref",        "portable", "avx2",   "avx512",  "avx512bf16",
                                   "avx512fp16", "amxbf16",  "onednn", "cublaslt"};
static const struct {
    const char *word, *class_name;
} generated_kinds[] = {{"poi", "pointwise"}, {"red", "reduction"}, {"gem", "gemm"}};

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

static bool in_list(const char *word, const char *const *list, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(word, list[i]) == 0) return true;
    return false;
}

static bool digits(const char **p) {
    const char *s = *p;
    while (**p >= '0' && **p <= '9') ++*p;
    return *p > s;
}

static bool is_isa(const char *word) {
    if (in_list(word, isas, COUNT(isas))) return true;
    const char *p = word + 2;
    return strncmp(word, "sm", 2) == 0 && digits(&p) && (*p == 0 || strcmp(p, "a") == 0 || strcmp(p, "f") == 0);
}

/* t14x32, t128x256x64, u64 */
static bool is_tile(const char *word) {
    const char *p = word + 1;
    if (*word != 't' && *word != 'u') return false;
    if (!digits(&p)) return false;
    while (*word == 't' && *p == 'x') {
        p++;
        if (!digits(&p)) return false;
    }
    return *p == 0;
}

static bool is_layout(const char *word) {
    return strlen(word) == 2 && strchr("tn", word[0]) && strchr("tn", word[1]);
}

/* A gated op over a vector tile ("u16") is act(gate) * up alone; only over a matrix tile is it two products as well. */
static const char *class_of(const char *op, const char *tile) {
    if (tile[0] == 'u' && strstr(op, "glu")) return "pointwise";
    for (size_t i = 0; i < COUNT(classes); i++) {
        size_t n = strlen(classes[i].prefix);
        if (strncmp(op, classes[i].prefix, n) == 0 && (op[n] == 0 || op[n] == '_')) return classes[i].class_name;
    }
    return "pointwise";
}

/* Joins tokens [from, to) with _; false if they do not fit. */
static bool join(char *const *token, int from, int to, char *out, size_t size) {
    size_t used = 0;
    out[0] = 0;
    for (int i = from; i < to; i++) {
        int n = snprintf(out + used, size - used, "%s%s", i > from ? "_" : "", token[i]);
        if (n < 0 || (size_t)n >= size - used) return false;
        used += (size_t)n;
    }
    return true;
}

static bool plain(const char *text) {
    for (; *text; text++)
        if (!(*text >= 'a' && *text <= 'z') && !(*text >= '0' && *text <= '9') && *text != '_') return false;
    return true;
}

static bool write_name(const ep_our_name *n, char *out, size_t size) {
    int len;
    if (n->generated) {
        const char *kind = NULL;
        for (size_t i = 0; i < COUNT(generated_kinds); i++)
            if (strcmp(n->class_name, generated_kinds[i].class_name) == 0) kind = generated_kinds[i].word;
        if (!kind) return false;
        len = snprintf(out, size, "epi_%s_%s_%s", kind, n->op, n->dtype);
    } else {
        len = snprintf(out, size, "ep_%s_%s_%s%s%s%s%s%s%s", n->dtype, n->op, n->isa, *n->tile ? "_" : "", n->tile,
                       *n->layout ? "_" : "", n->layout, *n->extra ? "_" : "", n->extra);
    }
    return len > 0 && (size_t)len < size && plain(out);
}

static bool parse_generated(char *const *token, int count, ep_our_name *n) {
    if (count < 4 || !in_list(token[count - 1], dtypes, COUNT(dtypes))) return false;
    const char *class_name = NULL;
    for (size_t i = 0; i < COUNT(generated_kinds); i++)
        if (strcmp(token[1], generated_kinds[i].word) == 0) class_name = generated_kinds[i].class_name;
    if (!class_name) return false;
    n->generated = true;
    strcpy(n->class_name, class_name);
    strcpy(n->dtype, token[count - 1]);
    return join(token, 2, count - 1, n->op, sizeof n->op);
}

static bool parse_plain(char *const *token, int count, ep_our_name *n) {
    if (count < 4 || !in_list(token[1], dtypes, COUNT(dtypes))) return false;
    strcpy(n->dtype, token[1]);
    int isa = 3;
    while (isa < count && !is_isa(token[isa])) isa++;
    if (isa == count) return false;
    int next = isa + 1;
    /* A vendor's library names the ISA it runs on after its own name. */
    if (strcmp(token[isa], "onednn") == 0 && next < count && is_isa(token[next])) next++;
    if (!join(token, 2, isa, n->op, sizeof n->op) || !join(token, isa, next, n->isa, sizeof n->isa)) return false;
    if (next < count && is_tile(token[next]) && !join(token, next, next + 1, n->tile, sizeof n->tile)) return false;
    if (*n->tile) next++;
    if (next < count && is_layout(token[next])) strcpy(n->layout, token[next++]);
    if (!join(token, next, count, n->extra, sizeof n->extra)) return false;
    snprintf(n->class_name, sizeof n->class_name, "%s", class_of(n->op, n->tile));
    return true;
}

bool ep_our_name_parse(const char *text, ep_our_name *out) {
    char copy[MAX_NAME], again[MAX_NAME], *token[MAX_TOKENS];
    size_t len = strlen(text);
    if (len >= sizeof copy) return false;
    memcpy(copy, text, len + 1);
    int count = 0;
    for (char *p = copy; p;) {
        if (count == MAX_TOKENS) return false;
        token[count++] = p;
        p = strchr(p, '_');
        if (p) *p++ = 0;
        if (!*token[count - 1]) return false;
    }
    ep_our_name n = {0};
    bool ok = strcmp(token[0], "epi") == 0  ? parse_generated(token, count, &n)
              : strcmp(token[0], "ep") == 0 ? parse_plain(token, count, &n)
                                            : false;
    if (!ok || !write_name(&n, again, sizeof again) || strcmp(again, text) != 0) return false;
    *out = n;
    return true;
}

bool ep_our_name_make(const ep_our_name *n, char *out, size_t size) {
    char text[MAX_NAME];
    ep_our_name back;
    if (!write_name(n, text, sizeof text) || strlen(text) >= size || !ep_our_name_parse(text, &back)) return false;
    /* Fields that would come back as other fields (an op called "avx2", an extra called "tn") are no names. */
    if (strcmp(back.op, n->op) != 0 || strcmp(back.isa, n->isa) != 0 || strcmp(back.tile, n->tile) != 0 ||
        strcmp(back.layout, n->layout) != 0 || strcmp(back.extra, n->extra) != 0)
        return false;
    memcpy(out, text, strlen(text) + 1);
    return true;
}
