/* The fields inside vendors' kernel names: arch, dtype, tile, stages, layout, epilogue, split-K. */
#include "vendor_fields.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/trace/kernel_name.h"

typedef struct word {
    const char *text, *value;
} word;

void ep_field_set(char *field, size_t size, const char *text, size_t n) {
    if (n >= size) n = size - 1;
    memcpy(field, text, n);
    field[n] = 0;
}

void ep_field_add(char *field, size_t size, const char *separator, const char *text) {
    size_t used = strlen(field);
    if (used + 1 < size) snprintf(field + used, size - used, "%s%s", used ? separator : "", text);
}

#define SET(field, text) ep_field_set(field, sizeof(field), text, strlen(text))

static bool is_word(char c) {
    return isalnum((unsigned char)c) != 0;
}

/* The value of the first row whose text occurs in the name. */
static void first_of(const word *table, const char *name, char *field, size_t size) {
    for (; table->text; table++)
        if (strstr(name, table->text)) {
            ep_field_set(field, size, table->value, strlen(table->value));
            return;
        }
}

static const word archs[] = {{"ampere_", "sm80"},
                             {"volta_", "sm70"},
                             {"turing_", "sm75"},
                             {"maxwell_", "sm50"},
                             {"pascal_", "sm60"},
                             {"hopper_", "sm90"},
                             {"cutlass_70", "sm70"},
                             {"cutlass_75", "sm75"},
                             {"cutlass_80", "sm80"},
                             {"cutlass3x_sm90", "sm90"},
                             {"cutlass3x_sm100", "sm100"},
                             {"_sm100", "sm100"},
                             {"sm103_", "sm103"},
                             {"sm100_", "sm100"},
                             {"sm120_", "sm120"},
                             {"sm90", "sm90"},
                             {"Sm90", "sm90"},
                             {"sm89", "sm89"},
                             {"sm86", "sm86"},
                             {"sm80", "sm80"},
                             {"Sm80", "sm80"},
                             {"sm75", "sm75"},
                             {"sm70", "sm70"},
                             {"ISA942", "gfx942"},
                             {"ISA950", "gfx950"},
                             {"ISA90a", "gfx90a"},
                             {"ISA908", "gfx908"},
                             {"gfx942", "gfx942"},
                             {"gfx950", "gfx950"},
                             {"gfx90a", "gfx90a"},
                             {NULL, NULL}};

/* The operands' dtype, most telling spelling first. */
static const word gemm_dtypes[] = {
    {"e4m3", "fp8"},       {"e5m2", "fp8"},      {"f8f8", "fp8"},      {"tf32", "tf32"},      {"bf16", "bf16"},
    {"BFloat16", "bf16"},  {"bfloat16", "bf16"}, {"_f16", "f16"},      {"f16_", "f16"},       {"fp16", "f16"},
    {"Half", "f16"},       {"half", "f16"},      {"hgemm", "f16"},     {"h884gemm", "f16"},   {"h1688gemm", "f16"},
    {"h16816gemm", "f16"}, {"s884gemm", "f16"},  {"s1688gemm", "f16"}, {"s16816gemm", "f16"}, {"i8i8", "i8"},
    {"_s8", "i8"},         {"int8", "i8"},       {"igemm", "i8"},      {"i8816gemm", "i8"},   {"i16832gemm", "i8"},
    {"dgemm", "f64"},      {"d884gemm", "f64"},  {"double", "f64"},    {"cgemm", "c64"},      {"zgemm", "c128"},
    {"sgemm", "f32"},      {"float", "f32"},     {"f32f32", "f32"},    {NULL, NULL}};

static const word epilogues[] = {{"gelu", "gelu"}, {"relu", "relu"},       {"silu", "silu"}, {"swish", "silu"},
                                 {"bias", "bias"}, {"sigmoid", "sigmoid"}, {NULL, NULL}};

/* NxM or NxMxK at p, with no digit or x before it; its length or 0. */
static size_t tile_at(const char *p) {
    int numbers = 0;
    size_t n = 0;
    while (isdigit((unsigned char)p[n])) {
        while (isdigit((unsigned char)p[n])) n++;
        numbers++;
        if (p[n] != 'x' || !isdigit((unsigned char)p[n + 1])) break;
        n++;
    }
    return numbers >= 2 && numbers <= 3 ? n : 0;
}

static const char *find_tile(const char *name, size_t *len) {
    for (const char *p = name; *p; p++) {
        if (!isdigit((unsigned char)*p) || (p > name && (isdigit((unsigned char)p[-1]) || p[-1] == 'x'))) continue;
        *len = tile_at(p);
        if (*len && (p == name || !is_word(p[-1]) || strncmp(p - (p - name >= 8 ? 8 : 0), "tilesize", 8) == 0))
            return p;
    }
    return NULL;
}

/* "_tn" and its like, as a word of its own; the last one counts. */
static void find_layout(const char *name, char *field, size_t size) {
    for (const char *p = name; (p = strchr(p, '_')) != NULL; p++) {
        if ((p[1] != 't' && p[1] != 'n') || (p[2] != 't' && p[2] != 'n')) continue;
        if (!is_word(p[3]))
            ep_field_set(field, size, p + 1, 2);
        else if ((p[3] == 't' || p[3] == 'n') && !is_word(p[4]))
            ep_field_set(field, size, p + 1, 3);
    }
}

static int number_after(const char *name, const char *text) {
    const char *p = strstr(name, text);
    return p && isdigit((unsigned char)p[strlen(text)]) ? atoi(p + strlen(text)) : 0;
}

static void find_split_k(const char *name, ep_kernel_name *out) {
    static const char *const marks[] = {"splitK", "split_k", "splitk", "SplitK", "SPLITK"};
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
        if (!strstr(name, marks[i])) continue;
        int n = number_after(name, marks[i]);
        if (n >= 2)
            out->split_k = n;
        else
            ep_field_add(out->note, sizeof out->note, "; ", "split-K, in how many parts the name does not say");
        return;
    }
}

static void find_epilogues(const char *name, ep_kernel_name *out) {
    for (const word *w = epilogues; w->text; w++)
        if (strstr(name, w->text) && !strstr(out->epilogue, w->value))
            ep_field_add(out->epilogue, sizeof out->epilogue, " ", w->value);
}

/* stages_64x6 and stage4 name the stages; CUTLASS writes <tile>_<k>x<stages>. */
static void find_stages(const char *name, ep_kernel_name *out) {
    const char *p = strstr(name, "stages_");
    if (p && (p = strchr(p, 'x')) != NULL) out->stages = atoi(p + 1);
    if (!out->stages) out->stages = number_after(name, "stage");
    size_t n = 0;
    p = out->stages ? NULL : find_tile(name, &n);
    if (!p || p[n] != '_') return;
    p += n + 1;
    n = tile_at(p);
    const char *x = n ? strchr(p, 'x') : NULL;
    if (x && !memchr(x + 1, 'x', n - (size_t)(x + 1 - p))) out->stages = atoi(x + 1);
}

void ep_fields_gemm(const char *full, ep_kernel_name *out) {
    char name[512]; /* the argument list repeats the name: fields come from its first half */
    ep_field_set(name, sizeof name, full, strcspn(full, "("));
    size_t n;
    first_of(archs, name, out->arch, sizeof out->arch);
    first_of(gemm_dtypes, name, out->dtype, sizeof out->dtype);
    const char *tile = find_tile(name, &n);
    if (tile) ep_field_set(out->tile, sizeof out->tile, tile, n);
    find_stages(name, out);
    find_layout(name, out->layout, sizeof out->layout);
    find_epilogues(name, out);
    find_split_k(name, out);
    if (strstr(name, "gemm") && strstr(name, "_relu_"))
        ep_field_add(out->note, sizeof out->note, "; ", "relu names the variant: it also serves a bias alone");
}

void ep_fields_conv(const char *name, ep_kernel_name *out) {
    static const word ways[] = {{"winograd", "winograd"},
                                {"Winograd", "winograd"},
                                {"fprop", "forward"},
                                {"dgrad", "data gradient"},
                                {"wgrad", "weight gradient"},
                                {"Wgrad", "weight gradient"},
                                {"stridedB_splitK", "weight gradient"},
                                {"stridedB", "data gradient"},
                                {NULL, NULL}};
    static const word types[] = {{"tf32", "tf32"},      {"bf16", "bf16"},     {"s884cudnn", "f16"},
                                 {"s1688cudnn", "f16"}, {"h884cudnn", "f16"}, {"hcudnn", "f16"},
                                 {"icudnn", "i8"},      {"scudnn", "f32"},    {NULL, NULL}};
    ep_fields_gemm(name, out);
    first_of(types, name, out->dtype, sizeof out->dtype);
    first_of(ways, name, out->family, sizeof out->family);
}

/* One letter an operand: h f16, t bf16, s f32, q fp8, d f64. */
static const char *nvjet_dtype(char c) {
    return c == 'h' ? "f16" : c == 't' ? "bf16" : c == 's' ? "tf32" : c == 'q' ? "fp8" : c == 'd' ? "f64" : "";
}

void ep_fields_nvjet(const char *name, ep_kernel_name *out) {
    char copy[256], *save = NULL;
    int pairs = 0, place = 0;
    ep_field_set(copy, sizeof copy, name, strlen(name));
    for (char *t = strtok_r(copy, "_", &save); t; t = strtok_r(NULL, "_", &save), place++) {
        size_t n = tile_at(t);
        if (strncmp(t, "sm", 2) == 0 && isdigit((unsigned char)t[2]))
            SET(out->arch, t);
        else if (n && t[n] == 0 && ++pairs == 1)
            SET(out->tile, t);
        else if (n && t[n] == 0 && pairs == 2)
            out->stages = atoi(strchr(t, 'x') + 1);
        else if (n && t[n] == 0 && pairs == 3) {
            ep_field_add(out->note, sizeof out->note, "; ", "cluster ");
            ep_field_add(out->note, sizeof out->note, "", t);
        } else if (place <= 2 && !pairs && strlen(t) >= 3 && !out->dtype[0])
            SET(out->dtype, nvjet_dtype(t[0]));
        else if (strspn(t, "TN") == strlen(t) && strlen(t) == 3)
            SET(out->layout, t);
        else if (strncmp(t, "splitK", 6) == 0)
            find_split_k(t, out);
        else if (strncmp(t, "coop", 4) == 0)
            ep_field_add(out->note, sizeof out->note, "; ", "cooperative warp groups");
    }
    if (out->layout[0]) out->layout[0] = (char)tolower(out->layout[0]);
    if (out->layout[0]) out->layout[1] = (char)tolower(out->layout[1]);
    out->layout[2] = 0; /* the third letter is the output's */
    find_epilogues(name, out);
}

/* Tensile: Alik is a transposed A, Ailk is not; types as letters (B bf16, H f16, S f32, D f64, F8, I8). */
void ep_fields_tensile(const char *name, ep_kernel_name *out) {
    const char *a = strstr(name, "_A"), *b = strstr(name, "_B"), *t = strstr(name, "_MT");
    if (a && strlen(a) > 4) out->layout[0] = a[2] == 'l' ? 't' : 'n';
    if (b && strlen(b) > 4) out->layout[1] = b[2] == 'l' ? 'n' : 't';
    const char *type = b ? strchr(b + 1, '_') : NULL;
    if (type) {
        static const word letters[] = {{"_F8", "fp8"}, {"_B", "bf16"}, {"_H", "f16"}, {"_S", "f32"},
                                       {"_D", "f64"},  {"_I8", "i8"},  {"_C", "c64"}, {NULL, NULL}};
        for (const word *w = letters; w->text; w++)
            if (strncmp(type, w->text, strlen(w->text)) == 0) {
                SET(out->dtype, w->value);
                break;
            }
    }
    size_t n = t ? tile_at(t + 3) : 0;
    if (n) ep_field_set(out->tile, sizeof out->tile, t + 3, n);
    if (strstr(name, "_Bias_")) ep_field_add(out->epilogue, sizeof out->epilogue, " ", "bias possible");
    out->split_k = number_after(name, "_GSU");
    if (out->split_k < 2) out->split_k = 0;
    first_of(archs, name, out->arch, sizeof out->arch);
}

void ep_fields_nccl(const char *name, ep_kernel_name *out) {
    static const word what[] = {{"ReduceScatter", "reduce-scatter"},
                                {"reduce_scatter", "reduce-scatter"},
                                {"AllReduce", "all-reduce"},
                                {"all_reduce", "all-reduce"},
                                {"AllGather", "all-gather"},
                                {"all_gather", "all-gather"},
                                {"Broadcast", "broadcast"},
                                {"SendRecv", "send and receive"},
                                {"AlltoAll", "all-to-all"},
                                {"Reduce_", "reduce"},
                                {NULL, NULL}};
    static const word types[] = {{"_bf16", "bf16"}, {"bfloat16", "bf16"}, {"_f16", "f16"}, {"half", "f16"},
                                 {"_f32", "f32"},   {"float", "f32"},     {"_f64", "f64"}, {"_u8", "u8"},
                                 {"_i8", "i8"},     {NULL, NULL}};
    static const word ways[] = {
        {"RING", "ring"}, {"TREE", "tree"}, {"NVLS", "nvls"}, {"COLLNET", "collnet"}, {NULL, NULL}};
    static const word protocols[] = {{"LL128", "LL128"}, {"_LL", "LL"}, {"SIMPLE", "simple"}, {NULL, NULL}};
    char way[16] = "", protocol[16] = "", family[64];
    if (!out->family[0]) first_of(what, name, out->family, sizeof out->family);
    first_of(types, name, out->dtype, sizeof out->dtype);
    first_of(ways, name, way, sizeof way);
    first_of(protocols, name, protocol, sizeof protocol);
    snprintf(family, sizeof family, "%s%s%s%s%s", out->family, way[0] ? " " : "", way, protocol[0] ? " " : "",
             protocol);
    SET(out->family, family);
}

/* The first of these types among the template and call arguments; tokens are read whole. */
static bool first_type(const char *name, const word *types, ep_kernel_name *out) {
    const char *p = strpbrk(name, "<(");
    while (p && *p) {
        while (*p && !is_word(*p) && *p != '_') p++;
        size_t n = 0;
        while (is_word(p[n]) || p[n] == '_' || (p[n] == ':' && (p[n + 1] == ':' || (n && p[n - 1] == ':')))) n++;
        for (const word *w = types; n && w->text; w++)
            if (strlen(w->text) == n && memcmp(p, w->text, n) == 0) {
                SET(out->dtype, w->value);
                return true;
            }
        p += n;
    }
    return false;
}

/* Floating types first: integers among the arguments are mostly sizes and indices. */
void ep_fields_cpp(const char *name, ep_kernel_name *out) {
    static const word floats[] = {{"c10::BFloat16", "bf16"},
                                  {"__nv_bfloat16", "bf16"},
                                  {"cutlass::bfloat16_t", "bf16"},
                                  {"__hip_bfloat16", "bf16"},
                                  {"c10::Half", "f16"},
                                  {"__half", "f16"},
                                  {"cutlass::half_t", "f16"},
                                  {"half", "f16"},
                                  {"c10::complex", "c64"},
                                  {"c10::Float8_e4m3fn", "fp8"},
                                  {"float", "f32"},
                                  {"float2", "f32"},
                                  {"double", "f64"},
                                  {NULL, NULL}};
    static const word others[] = {{"long", "i64"}, {"int", "i32"}, {"bool", "bool"}, {"signed", "i8"}, {NULL, NULL}};
    if (strstr(name, "OpaqueType")) return; /* moved as bytes: the dtype is not in the name */
    if (!first_type(name, floats, out)) first_type(name, others, out);
}

void ep_fields_flash(const char *name, ep_kernel_name *out) {
    static const word types[] = {{"bfloat16", "bf16"}, {"BFloat16", "bf16"}, {"bf16", "bf16"}, {"half_t", "f16"},
                                 {"Half", "f16"},      {"_f16", "f16"},      {"fp16", "f16"},  {"e4m3", "fp8"},
                                 {"_f32", "f32"},      {"float", "f32"},     {NULL, NULL}};
    first_of(types, name, out->dtype, sizeof out->dtype);
    first_of(archs, name, out->arch, sizeof out->arch);
    size_t n;
    const char *tile = find_tile(name, &n), *traits = strstr(name, "kernel_traits<");
    if (tile) ep_field_set(out->tile, sizeof out->tile, tile, n);
    int head, rows, cols;
    if (!out->tile[0] && traits && sscanf(traits, "kernel_traits<%d, %d, %d", &head, &rows, &cols) == 3) {
        char text[64];
        snprintf(text, sizeof text, "%dx%d", rows, cols);
        SET(out->tile, text);
        snprintf(text, sizeof text, "head size %d", head);
        ep_field_add(out->note, sizeof out->note, "; ", text);
    }
}

void ep_fields_ours(const char *name, ep_kernel_name *out) {
    ep_our_name ours;
    if (!ep_our_name_parse(name, &ours)) {
        SET(out->class_name, "other");
        SET(out->vendor, "");
        SET(out->note, "begins like a name of ours but is none");
        out->confidence = 0.1;
        return;
    }
    SET(out->class_name, ours.class_name);
    SET(out->family, ours.op);
    SET(out->arch, ours.isa);
    SET(out->dtype, ours.dtype);
    SET(out->tile, ours.tile);
    SET(out->layout, ours.layout);
    if (strncmp(ours.op, "gemm_", 5) == 0) SET(out->epilogue, ours.op + 5);
    if (strncmp(ours.extra, "splitk", 6) == 0) out->split_k = atoi(ours.extra + 6);
}
