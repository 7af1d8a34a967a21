/* Finds a feed-forward layer in a weights file by the names of families.def, and refuses to guess between two. */
#include <epilogue/block.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json_read.h"
#include "model/op/op.h"
#include "model/tensor/safetensors.h"

typedef enum layout { LAYOUT_LINEAR, LAYOUT_CONV1D, LAYOUT_FUSED } layout;

typedef struct family_row {
    const char *family;
    ep_block_kind kind;
    ep_act act;
    const char *gate, *up, *down;
    layout layout;
} family_row;

static const family_row families[] = {
#define EP_FAMILY(family, kind, act, gate, up, down, layout)                                                           \
    {family, EP_BLOCK_##kind, EP_ACT_##act, gate, up, down, LAYOUT_##layout},
#include "families.def"
#undef EP_FAMILY
};
enum { FAMILIES = sizeof families / sizeof families[0], NAME = 512 };

/* What stands before the family's names: "encoder.layer.0.". */
typedef struct candidate {
    const family_row *row;
    char prefix[NAME];
} candidate;

typedef struct finder {
    const ep_weights *w;
    const char *pattern;
    ep_text list, report; /* candidates: in the sentence, one a line in the report */
    candidate first;
    int found;       /* that match the pattern */
    int layers;      /* in all */
    char some[NAME]; /* the first layer of any kind */
} finder;

static bool has(const ep_weights *w, const char *prefix, const char *part, const char *kind) {
    char name[2 * NAME];
    int ndim;
    const int64_t *sizes;
    snprintf(name, sizeof name, "%s%s%s", prefix, part, kind);
    return ep_weights_shape(w, name, &ndim, &sizes);
}

static bool digit(char c) {
    return c >= '0' && c <= '9';
}

/* A glob over the whole name, or a piece of it that cuts no number in two: "layers.1" is not in "layers.12". */
static bool matches(const char *pattern, const char *name) {
    if (!pattern || !*pattern || ep_glob(pattern, name)) return true;
    size_t n = strlen(pattern);
    for (const char *at = strstr(name, pattern); at; at = strstr(at + 1, pattern)) {
        bool before = at > name && digit(at[-1]) && digit(pattern[0]);
        bool after = digit(at[n]) && digit(pattern[n - 1]);
        if (!before && !after) return true;
    }
    return false;
}

/* `name` is prefix + up + ".weight", the prefix ending at a dot (or empty). */
static bool split(const char *name, const char *up, char *prefix) {
    size_t n = strlen(name), m = strlen(up), tail = strlen(".weight");
    if (n < m + tail || n >= NAME || strcmp(name + n - tail, ".weight") != 0) return false;
    size_t at = n - tail - m;
    if (memcmp(name + at, up, m) != 0 || (at > 0 && name[at - 1] != '.')) return false;
    memcpy(prefix, name, at);
    prefix[at] = 0;
    return true;
}

static void try_name(finder *f, const family_row *row, const char *name) {
    candidate c = {.row = row};
    if (!split(name, row->up, c.prefix) || !has(f->w, c.prefix, row->down, ".weight")) return;
    if (row->gate && !has(f->w, c.prefix, row->gate, ".weight")) return;
    char down[2 * NAME];
    snprintf(down, sizeof down, "%s%s.weight", c.prefix, row->down);
    if (f->layers++ == 0) memcpy(f->some, c.prefix, sizeof f->some);
    if (!matches(f->pattern, name) && !matches(f->pattern, down)) return;
    if (f->found++ == 0) f->first = c;
    ep_text_printf(&f->list, "%s%s%s", f->found > 1 ? ", " : "", c.prefix, row->up);
    ep_text_printf(&f->report, "%s%s and %s (%s)\n", c.prefix, row->up, row->down, row->family);
}

static void find_all(finder *f) {
    for (size_t i = 0; i < ep_weights_count(f->w); i++)
        for (int k = 0; k < FAMILIES; k++) try_name(f, &families[k], ep_weights_name(f->w, i));
}

static ep_status get(const ep_weights *w, const candidate *c, const char *part, const char *kind, int ndim,
                     ep_error *err, ep_tensor **out) {
    char name[2 * NAME];
    ep_tensor *t;
    snprintf(name, sizeof name, "%s%s%s", c->prefix, part, kind);
    EP_TRY(ep_weights_tensor(w, name, err, &t));
    if (t->ndim != ndim) {
        int got = t->ndim;
        ep_tensor_destroy(t);
        return ep_fail(err, EP_ERROR_FORMAT, "tensor \"%s\" has %d dims; a layer of family %s has %d there", name, got,
                       c->row->family, ndim);
    }
    *out = t;
    return EP_OK;
}

static ep_status get_part(const ep_weights *w, const candidate *c, const char *part, ep_error *err, ep_tensor **weight,
                          ep_tensor **bias) {
    EP_TRY(get(w, c, part, ".weight", 2, err, weight));
    return has(w, c->prefix, part, ".bias") ? get(w, c, part, ".bias", 1, err, bias) : EP_OK;
}

static ep_status transpose(ep_tensor **t, ep_error *err) {
    ep_tensor *v;
    EP_TRY(ep_tensor_transpose(*t, 0, 1, err, &v));
    ep_tensor_destroy(*t);
    *t = v;
    return EP_OK;
}

/* StarCoder has GPT-2's names over plain linears; the bias, as long as the output, tells them apart. */
static bool is_conv1d(const ep_layer_match *m) {
    if (m->up_bias) return m->up_bias->sizes[0] == m->up->sizes[1];
    return m->up->sizes[0] < m->up->sizes[1];
}

static ep_status halve(ep_tensor **whole, ep_tensor **first, ep_error *err) {
    ep_tensor *second;
    if (!*whole) return EP_OK;
    if ((*whole)->sizes[0] % 2 != 0)
        return ep_fail(err, EP_ERROR_FORMAT, "a weight for gate and up has an odd number of rows, %lld",
                       (long long)(*whole)->sizes[0]);
    EP_TRY(ep_tensor_chunk(*whole, 0, 2, 0, err, first));
    EP_TRY(ep_tensor_chunk(*whole, 0, 2, 1, err, &second));
    ep_tensor_destroy(*whole);
    *whole = second;
    return EP_OK;
}

static ep_status load(const ep_weights *w, const candidate *c, ep_error *err, ep_layer_match *m) {
    const family_row *row = c->row;
    if (row->gate) EP_TRY(get_part(w, c, row->gate, err, &m->gate, &m->gate_bias));
    EP_TRY(get_part(w, c, row->up, err, &m->up, &m->up_bias));
    EP_TRY(get_part(w, c, row->down, err, &m->down, &m->down_bias));
    if (row->layout == LAYOUT_FUSED) {
        EP_TRY(halve(&m->up, &m->gate, err));
        return halve(&m->up_bias, &m->gate_bias, err);
    }
    if (row->layout == LAYOUT_CONV1D && is_conv1d(m)) {
        EP_TRY(transpose(&m->up, err));
        return transpose(&m->down, err);
    }
    return EP_OK;
}

typedef struct act_word {
    const char *word;
    ep_act act; /* EP_ACT_COUNT: known, not supported */
} act_word;

/* As the transformers library spells them. */
static const act_word act_words[] = {
    {"gelu", EP_ACT_GELU_ERF},
    {"gelu_python", EP_ACT_GELU_ERF},
    {"gelu_new", EP_ACT_GELU_TANH},
    {"gelu_fast", EP_ACT_GELU_TANH},
    {"gated-gelu", EP_ACT_GELU_TANH},
    {"gelu_pytorch_tanh", EP_ACT_GELU_TANH},
    {"gelu_tanh", EP_ACT_GELU_TANH},
    {"silu", EP_ACT_SILU},
    {"swish", EP_ACT_SILU},
    {"gated-silu", EP_ACT_SILU},
    {"relu", EP_ACT_RELU},
    {"gelu_python_tanh", EP_ACT_GELU_TANH},
    {"quick_gelu", EP_ACT_COUNT},
    {"relu2", EP_ACT_COUNT},
    {"tanh", EP_ACT_COUNT},
    {"gelu_10", EP_ACT_COUNT},
    {"laplace", EP_ACT_COUNT},
    {"mish", EP_ACT_COUNT},
};

/* Keys of config.json that name the activation, the surest first. */
static const char *const act_keys[] = {"hidden_activation", "hidden_act",          "feed_forward_proj",
                                       "dense_act_fn",      "activation_function", "activation"};
enum { ACT_KEYS = sizeof act_keys / sizeof act_keys[0] };

/* The config's activation word, "" if it has none; a config that cannot be read counts as none. */
static void read_config(const ep_weights *w, char *word, size_t size, const char **key) {
    ep_text path = {0};
    const char *file = ep_weights_path(w), *slash = strrchr(file, '/');
    ep_text_addn(&path, file, slash ? (size_t)(slash - file) + 1 : 0);
    ep_text_add(&path, "config.json");
    char *data = NULL;
    size_t length;
    int best = ACT_KEYS;
    word[0] = 0;
    if (ep_file_read(ep_text_str(&path), 1 << 20, NULL, &data, &length) == EP_OK) {
        ep_json_in json;
        ep_json_token t;
        ep_error err;
        ep_json_open_memory(&json, data, length, &err);
        bool more = ep_json_next(&json, &t) == EP_OK && t.type == EP_JSON_OBJECT;
        while (more && ep_json_next(&json, &t) == EP_OK && t.type == EP_JSON_KEY) {
            int k = 0;
            while (k < best && (strlen(act_keys[k]) != t.len || memcmp(act_keys[k], t.text, t.len) != 0)) k++;
            more = ep_json_next(&json, &t) == EP_OK;
            if (more && k < best && t.type == EP_JSON_STRING && t.len < size) {
                best = k;
                memcpy(word, t.text, t.len);
                word[t.len] = 0;
            }
            if (more) more = ep_json_skip_rest(&json, &t) == EP_OK;
        }
        ep_json_close(&json);
    }
    *key = best < ACT_KEYS ? act_keys[best] : "";
    free(data);
    ep_text_free(&path);
}

static ep_status choose_act(const ep_weights *w, const family_row *row, ep_error *err, ep_text *report, ep_act *out) {
    char word[64];
    const char *key;
    *out = row->act;
    read_config(w, word, sizeof word, &key);
    for (size_t i = 0; word[0] && i < sizeof act_words / sizeof act_words[0]; i++) {
        if (strcmp(act_words[i].word, word) != 0) continue;
        if (act_words[i].act == EP_ACT_COUNT)
            return ep_fail(err, EP_ERROR_UNSUPPORTED, "config.json says %s \"%s\", an activation this library lacks",
                           key, word);
        *out = act_words[i].act;
        ep_text_printf(report, "act %s (config.json: %s \"%s\")\n", ep_act_name(*out), key, word);
        return EP_OK;
    }
    ep_text_printf(report, "act %s (usual for the names of %s%s)\n", ep_act_name(*out), row->family,
                   word[0] ? "; the config's word is unknown" : "; no config.json says");
    return EP_OK;
}

static void describe(ep_text *report, const char *role, const candidate *c, const char *part, const ep_tensor *t,
                     const char *note) {
    char shape[96];
    if (!t) return;
    ep_text_printf(report, "%s %s%s%s %s %s%s\n", role, c->prefix, part, t->ndim == 1 ? ".bias" : ".weight",
                   ep_shape_text(t->ndim, t->sizes, shape, sizeof shape), ep_dtype_name(t->dtype), note);
}

static void describe_all(ep_text *report, const candidate *c, const ep_layer_match *m) {
    const family_row *row = c->row;
    bool fused = row->layout == LAYOUT_FUSED;
    const char *gate = fused ? row->up : row->gate, *half = fused ? " (one half)" : "";
    const char *view = row->layout == LAYOUT_CONV1D && !m->up->contiguous ? " (transposed view)" : half;
    describe(report, "gate", c, gate, m->gate, half);
    describe(report, "gate", c, gate, m->gate_bias, half);
    describe(report, "up", c, row->up, m->up, view);
    describe(report, "up", c, row->up, m->up_bias, half);
    describe(report, "down", c, row->down, m->down, fused ? "" : view);
    describe(report, "down", c, row->down, m->down_bias, "");
}

static ep_status refuse(finder *f, ep_error *err) {
    const char *pattern = f->pattern ? f->pattern : "";
    if (f->layers == 0)
        return ep_fail(err, EP_ERROR_NOT_FOUND,
                       "no tensor names of a feed-forward layer are known among the %zu of the file",
                       ep_weights_count(f->w));
    if (f->found == 0)
        return ep_fail(err, EP_ERROR_NOT_FOUND,
                       "no feed-forward layer matches \"%.100s\"; the file has %d, the first is \"%.100s\"", pattern,
                       f->layers, f->some);
    const char *text = ep_text_str(&f->list);
    return ep_fail(err, EP_ERROR_AMBIGUOUS, "\"%.100s\" matches %d layers; name one: %.280s%s", pattern, f->found, text,
                   strlen(text) > 280 ? "..." : "");
}

ep_status ep_weights_match_layer(const ep_weights *w, const char *pattern, char *report, size_t report_size,
                                 ep_error *err, ep_layer_match *out) {
    if (!w || !out) return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "%s is NULL", w ? "out" : "w");
    finder f = {.w = w, .pattern = pattern};
    find_all(&f);
    ep_text text = {0};
    ep_layer_match m = {0};
    ep_status status = f.found == 1 ? EP_OK : refuse(&f, err);
    if (status == EP_OK) {
        m.kind = f.first.row->kind;
        snprintf(m.family, sizeof m.family, "%s", f.first.row->family);
        ep_text_printf(&text, "family %s\n", m.family);
        status = load(w, &f.first, err, &m);
        if (status == EP_OK) status = choose_act(w, f.first.row, err, &text, &m.act);
        if (status == EP_OK) describe_all(&text, &f.first, &m);
    } else if (f.found > 1) {
        ep_text_add(&text, ep_text_str(&f.report));
    }
    if (report && report_size) snprintf(report, report_size, "%s", ep_text_str(&text));
    if (status == EP_OK)
        *out = m;
    else
        ep_layer_match_clear(&m);
    ep_text_free(&text);
    ep_text_free(&f.list);
    ep_text_free(&f.report);
    return status;
}

void ep_layer_match_clear(ep_layer_match *m) {
    if (!m) return;
    ep_tensor *const all[] = {m->gate, m->gate_bias, m->up, m->up_bias, m->down, m->down_bias};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) ep_tensor_destroy(all[i]);
    memset(m, 0, sizeof *m);
}
