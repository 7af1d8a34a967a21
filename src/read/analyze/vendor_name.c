/* Vendors' kernel names -> class, fields and confidence, by vendor_names.def. */
#include <stdio.h>
#include <string.h>

#include "facts.h"
#include "vendor_fields.h"

enum { MOST_PART = 64 };    /* of a pattern */
enum { NAME_LIMIT = 1023 }; /* what tells a kernel stands in front; the argument list repeats it */

typedef void (*field_reader)(const char *name, ep_kernel_name *out);

#define EP_READER_NONE NULL
#define EP_READER_FIELDS ep_fields_gemm
#define EP_READER_CONV ep_fields_conv
#define EP_READER_NVJET ep_fields_nvjet
#define EP_READER_TENSILE ep_fields_tensile
#define EP_READER_TRITON ep_fields_triton
#define EP_READER_NCCL ep_fields_nccl
#define EP_READER_CPP ep_fields_cpp
#define EP_READER_FLASH ep_fields_flash
#define EP_READER_OURS ep_fields_ours

typedef struct vendor_row {
    const char *pattern;
    ep_kernel_class cls;
    const char *vendor, *family;
    int percent;
    field_reader reader;
    const char *note;
} vendor_row;

static const vendor_row rows[] = {
#define EP_VENDOR(pattern, cls, vendor, family, percent, reader, note)                                                 \
    {pattern, EP_CLASS_##cls, vendor, family, percent, EP_READER_##reader, note},
#define EP_FUNCTOR(text, op)
#include "vendor_names.def"
#undef EP_VENDOR
#undef EP_FUNCTOR
};

static const struct {
    const char *text, *op;
} functors[] = {
#define EP_VENDOR(pattern, cls, vendor, family, percent, reader, note)
#define EP_FUNCTOR(text, op) {text, op},
#include "vendor_names.def"
#undef EP_VENDOR
#undef EP_FUNCTOR
};

static const char *const class_names[EP_CLASS_COUNT] = {
    [EP_CLASS_OTHER] = "other",         [EP_CLASS_GEMM] = "gemm",
    [EP_CLASS_CONV] = "conv",           [EP_CLASS_ATTENTION] = "attention",
    [EP_CLASS_POINTWISE] = "pointwise", [EP_CLASS_REDUCTION] = "reduction",
    [EP_CLASS_NORM] = "norm",           [EP_CLASS_COPY] = "copy",
    [EP_CLASS_MEMSET] = "memset",       [EP_CLASS_COLLECTIVE] = "collective"};

const char *ep_kernel_class_name(ep_kernel_class c) {
    return (unsigned)c < EP_CLASS_COUNT ? class_names[c] : "other";
}

/* A name with the pairs of characters that occur in it: most patterns are told by those, without a search. */
typedef struct seen_name {
    const char *text;
    uint64_t pairs[1024 / 64];
} seen_name;

static unsigned pair_of(const char *p) {
    unsigned a = (unsigned char)p[0], b = (unsigned char)p[1];
    return (a * 37 + b) % 1024;
}

static void see(seen_name *s, const char *text) {
    memset(s, 0, sizeof *s);
    s->text = text;
    for (const char *p = text; p[0] && p[1]; p++) s->pairs[pair_of(p) / 64] |= (uint64_t)1 << pair_of(p) % 64;
}

/* False only where the name can't hold those n characters. */
static bool may_hold(const seen_name *s, const char *part, size_t n) {
    for (size_t i = 0; i + 1 < n; i++)
        if (!(s->pairs[pair_of(part + i) / 64] >> pair_of(part + i) % 64 & 1)) return false;
    return true;
}

static bool holds(const seen_name *s, const char *part, size_t n) {
    char text[MOST_PART];
    if (!may_hold(s, part, n)) return false;
    memcpy(text, part, n);
    text[n] = 0;
    return strstr(s->text, text) != NULL;
}

static bool matches(const char *pattern, const seen_name *name) {
    const char *p = pattern;
    bool first = *p == '^';
    p += first;
    while (*p) {
        size_t n = 0;
        while (p[n] && p[n] != '&') n++;
        if (n >= MOST_PART) return false;
        if (first ? strncmp(name->text, p, n) != 0 : !holds(name, p, n)) return false;
        first = false;
        p += n + (p[n] == '&');
    }
    return true;
}

/* The name without "void ", cut to what is looked at; a bare "triton_" gets a blank so that one row can name it. */
static const char *bare(const char *name, char *buffer, size_t size) {
    while (*name == ' ') name++;
    if (strncmp(name, "void ", 5) == 0) name += 5;
    if (strcmp(name, "triton_") == 0) return "triton_ ";
    size_t n = strlen(name);
    if (n < size) return name;
    memcpy(buffer, name, size - 1);
    buffer[size - 1] = 0;
    return buffer;
}

static const vendor_row *find_row(const seen_name *name) {
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (matches(rows[i].pattern, name)) return &rows[i];
    return NULL;
}

/* Reductions and elementwise kernels of ATen say in a functor's name what they compute. */
static void add_functor(const seen_name *name, ep_kernel_name *out) {
    if (strcmp(out->vendor, "aten") != 0 || !strchr(name->text, '<')) return;
    if (strcmp(out->class_name, "pointwise") && strcmp(out->class_name, "reduction")) return;
    for (size_t i = 0; i < sizeof functors / sizeof functors[0]; i++) {
        if (!holds(name, functors[i].text, strlen(functors[i].text))) continue;
        if (!strstr(out->family, functors[i].op)) ep_field_add(out->family, sizeof out->family, " ", functors[i].op);
        return;
    }
}

void ep_kernel_name_decode(const char *full, ep_kernel_name *out) {
    char buffer[NAME_LIMIT + 1];
    memset(out, 0, sizeof *out);
    const char *name = bare(full ? full : "", buffer, sizeof buffer);
    seen_name seen;
    see(&seen, name);
    const vendor_row *row = find_row(&seen);
    if (!row) {
        snprintf(out->class_name, sizeof out->class_name, "other");
        snprintf(out->note, sizeof out->note, "no rule knows this name");
        return;
    }
    snprintf(out->class_name, sizeof out->class_name, "%s", ep_kernel_class_name(row->cls));
    snprintf(out->vendor, sizeof out->vendor, "%s", row->vendor);
    snprintf(out->family, sizeof out->family, "%s", row->family);
    snprintf(out->note, sizeof out->note, "%s", row->note);
    out->confidence = row->percent / 100.0;
    if (row->reader) row->reader(name, out);
    add_functor(&seen, out);
}

ep_kernel_class ep_kernel_class_of(const ep_kernel_name *decoded) {
    for (int c = 0; c < EP_CLASS_COUNT; c++)
        if (strcmp(decoded->class_name, class_names[c]) == 0) return (ep_kernel_class)c;
    return EP_CLASS_OTHER;
}
