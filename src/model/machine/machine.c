/* Machine files, one "key = value ..." a line, and the estimates that stand in for a measurement. */
#include "model/machine/machine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/isa.h"
#include "base/text.h"

typedef enum field_kind { FIELD_TEXT, FIELD_BOOL, FIELD_INT, FIELD_INT64, FIELD_DOUBLE } field_kind;

/* One row a line of the file. */
static const struct {
    const char *key;
    field_kind kind;
    size_t offset;
    int count; /* numbers on the line; FIELD_TEXT: bytes */
} fields[] = {
#define AT(member) offsetof(ep_machine, member)
    {"name", FIELD_TEXT, AT(name), 96},
    {"source", FIELD_TEXT, AT(source), 96},
    {"measured", FIELD_BOOL, AT(measured), 1},
    {"cores", FIELD_INT, AT(cores), 1},
    {"cache_bytes", FIELD_INT64, AT(cache_bytes), 3},
    {"gflops.f32", FIELD_DOUBLE, AT(gflops[EP_DTYPE_F32]), 2},
    {"gflops.bf16", FIELD_DOUBLE, AT(gflops[EP_DTYPE_BF16]), 2},
    {"gflops.f16", FIELD_DOUBLE, AT(gflops[EP_DTYPE_F16]), 2},
    {"tf32_gflops", FIELD_DOUBLE, AT(tf32_gflops), 1},
    {"vector_gflops", FIELD_DOUBLE, AT(vector_gflops), 2},
    {"read_gbs", FIELD_DOUBLE, AT(read_gbs), 2},
    {"copy_gbs", FIELD_DOUBLE, AT(copy_gbs), 2},
    {"l2_gbs", FIELD_DOUBLE, AT(cache_gbs[0]), 2},
    {"l3_gbs", FIELD_DOUBLE, AT(cache_gbs[1]), 2},
    {"dispatch_ns", FIELD_DOUBLE, AT(dispatch_ns), 1},
    {"launch_us", FIELD_DOUBLE, AT(launch_us), 1},
    {"graph_launch_us", FIELD_DOUBLE, AT(graph_launch_us), 1},
    {"fork_join_us", FIELD_DOUBLE, AT(fork_join_us), 1},
#undef AT
};
#define FIELD_COUNT (sizeof fields / sizeof *fields)

static bool store_number(size_t row, int index, char *at, double v) {
    switch (fields[row].kind) {
    case FIELD_BOOL: *(bool *)(void *)at = v != 0; return v == 0 || v == 1;
    case FIELD_INT:
        if (v < 0 || v > 1e9 || v != floor(v)) return false;
        ((int *)(void *)at)[index] = (int)v;
        return true;
    case FIELD_INT64:
        if (v < 0 || v > 9e15 || v != floor(v)) return false;
        ((int64_t *)(void *)at)[index] = (int64_t)v;
        return true;
    default: ((double *)(void *)at)[index] = v; return v >= 0 && v <= 1e18;
    }
}

static ep_status parse_value(size_t row, const char *value, size_t len, int line, int column, ep_error *err,
                             ep_machine *m) {
    char *at = (char *)m + fields[row].offset;
    const char *key = fields[row].key;
    if (fields[row].kind == FIELD_TEXT) {
        if (len >= (size_t)fields[row].count)
            return ep_fail_line(err, EP_ERROR_PARSE, line, column, "'%s' is %zu bytes long; the limit is %d", key, len,
                                fields[row].count - 1);
        memcpy(at, value, len);
        at[len] = 0;
        return EP_OK;
    }
    char copy[128];
    if (len >= sizeof copy) return ep_fail_line(err, EP_ERROR_PARSE, line, column, "'%s' has too long a value", key);
    memcpy(copy, value, len);
    copy[len] = 0;
    char *p = copy;
    for (int i = 0; i < fields[row].count; i++) {
        char *end;
        double v = strtod(p, &end);
        if (end == p || !store_number(row, i, at, v))
            return ep_fail_line(err, EP_ERROR_PARSE, line, column + (int)(p - copy),
                                "'%s' wants %d number%s in its range, not '%s'", key, fields[row].count,
                                fields[row].count > 1 ? "s" : "", copy);
        p = end;
    }
    while (*p == ' ' || *p == '\t') p++;
    if (*p)
        return ep_fail_line(err, EP_ERROR_PARSE, line, column + (int)(p - copy), "'%s' has more than it wants", key);
    return EP_OK;
}

static ep_status parse_line(const char *s, size_t len, int line, ep_error *err, ep_machine *m) {
    size_t start = 0;
    while (start < len && (s[start] == ' ' || s[start] == '\t')) start++;
    while (len > start && (s[len - 1] == ' ' || s[len - 1] == '\t' || s[len - 1] == '\r')) len--;
    if (start == len || s[start] == '#') return EP_OK;
    const char *equals = memchr(s + start, '=', len - start);
    if (!equals) return ep_fail_line(err, EP_ERROR_PARSE, line, (int)start + 1, "a line is 'key = value'");
    size_t key_end = (size_t)(equals - s), value = key_end + 1;
    while (key_end > start && (s[key_end - 1] == ' ' || s[key_end - 1] == '\t')) key_end--;
    while (value < len && (s[value] == ' ' || s[value] == '\t')) value++;
    for (size_t i = 0; i < FIELD_COUNT; i++)
        if (strlen(fields[i].key) == key_end - start && strncmp(fields[i].key, s + start, key_end - start) == 0)
            return parse_value(i, s + value, len - value, line, (int)value + 1, err, m);
    return ep_fail_line(err, EP_ERROR_PARSE, line, (int)start + 1, "there is no key '%.*s' in a machine file",
                        (int)(key_end - start > 60 ? 60 : key_end - start), s + start);
}

ep_status ep_machine_parse(const char *text, const char *name, ep_error *err, ep_machine *out) {
    ep_machine m = {0};
    int line = 1;
    for (const char *p = text; *p; line++) {
        size_t len = strcspn(p, "\n");
        EP_TRY(parse_line(p, len, line, err, &m));
        p += len;
        if (*p) p++;
    }
    if (!m.name[0]) return ep_fail(err, EP_ERROR_FORMAT, "%s: a machine file has a line 'name = ...'", name);
    *out = m;
    return EP_OK;
}

ep_status ep_machine_read(const char *path, ep_error *err, ep_machine *out) {
    enum { LIMIT = 16384 }; /* ours have 1 KiB; what is larger is another file */
    char *text;
    size_t n;
    EP_TRY(ep_file_read(path, LIMIT, err, &text, &n));
    ep_status status = memchr(text, 0, n) ? ep_fail(err, EP_ERROR_FORMAT, "%s is not a text file", path)
                                          : ep_machine_parse(text, path, err, out);
    free(text);
    return status;
}

static void write_field(ep_text *t, size_t row, const ep_machine *m) {
    const char *at = (const char *)m + fields[row].offset;
    ep_text_printf(t, "%s =", fields[row].key);
    if (fields[row].kind == FIELD_TEXT) ep_text_printf(t, " %s", at);
    if (fields[row].kind == FIELD_BOOL) ep_text_printf(t, " %d", *(const bool *)(const void *)at);
    for (int i = 0; i < fields[row].count; i++) {
        if (fields[row].kind == FIELD_INT) ep_text_printf(t, " %d", ((const int *)(const void *)at)[i]);
        if (fields[row].kind == FIELD_INT64)
            ep_text_printf(t, " %lld", (long long)((const int64_t *)(const void *)at)[i]);
        if (fields[row].kind == FIELD_DOUBLE) ep_text_printf(t, " %.6g", ((const double *)(const void *)at)[i]);
    }
    ep_text_char(t, '\n');
}

/* The folder that `path` is to stand in. */
static ep_status make_folder(const char *path, ep_error *err) {
    const char *slash = strrchr(path, '/');
    if (!slash || slash == path) return EP_OK;
    char *folder = strndup(path, (size_t)(slash - path));
    if (!folder) return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory for the path %s", path);
    ep_status status = ep_file_make_folder(folder, err);
    free(folder);
    return status;
}

ep_status ep_machine_write(const ep_machine *m, const char *path, ep_error *err) {
    if (!m || !path) return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "the %s is NULL", m ? "path" : "machine");
    ep_text t = {0};
    ep_text_add(&t, "# What this machine can do. Two numbers: one thread, all threads; 0 = unknown.\n");
    for (size_t i = 0; i < FIELD_COUNT; i++) write_field(&t, i, m);
    ep_status status =
        t.failed ? ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory for the machine file") : make_folder(path, err);
    if (status == EP_OK) status = ep_file_write(path, ep_text_str(&t), t.len, err);
    ep_text_free(&t);
    return status;
}

ep_status ep_machine_path(ep_device device, ep_error *err, char *out, size_t size) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    const ep_cpu *cpu = ep_cpu_get();
    char id[256], hex[17] = "gpu";
    bool from_cache = cache && *cache == '/'; /* the XDG specification has relative paths ignored */
    if (device.kind == EP_DEVICE_CPU) {
        snprintf(id, sizeof id, "%s/%d/%s", cpu->model, cpu->cores, ep_isa_name(cpu->isa));
        snprintf(hex, sizeof hex, "%016llx", (unsigned long long)ep_hash64(id, strlen(id), 1));
    }
    if (!from_cache && !(home && *home == '/'))
        return ep_fail(err, EP_ERROR_IO,
                       "neither XDG_CACHE_HOME nor HOME is an absolute path, so there is no cache directory");
    int n = snprintf(out, size, "%s%s/epilogue/machine-%s%d-%s.txt", from_cache ? cache : home,
                     from_cache ? "" : "/.cache", device.kind == EP_DEVICE_CPU ? "cpu" : "cuda", device.index, hex);
    if (n < 0 || (size_t)n >= size) return ep_fail(err, EP_ERROR_IO, "the path of the cache directory is too long");
    return EP_OK;
}

/* Flops a cycle and core by instruction set: f32, bf16 (0: by f32), from the width and number of the units. */
static const struct { double f32, bf16; } per_cycle[EP_ISA_COUNT] = {{8, 0}, {32, 0}, {64, 0}, {64, 128}, {64, 1024}};

void ep_machine_estimate(ep_machine *out) {
    const ep_cpu *cpu = ep_cpu_get();
    const double ghz = 3.0, core_gbs = 12, all_gbs = 200;
    ep_machine m = {.dispatch_ns = 60, .fork_join_us = 3, .cores = cpu->cores};
    snprintf(m.name, sizeof m.name, "%.70s, %d core%s", cpu->model, cpu->cores, cpu->cores == 1 ? "" : "s");
    snprintf(m.source, sizeof m.source, "estimated from the instruction set (%s)", ep_isa_name(cpu->isa));
    m.cache_bytes[0] = cpu->l1;
    m.cache_bytes[1] = cpu->l2;
    m.cache_bytes[2] = cpu->l3;
    for (int i = 0; i < 2; i++) {
        double n = i ? cpu->cores : 1, gbs = n * core_gbs;
        if (gbs > all_gbs) gbs = all_gbs;
        double f32 = per_cycle[cpu->isa].f32 * ghz * n, bf16 = per_cycle[cpu->isa].bf16 * ghz * n;
        m.gflops[EP_DTYPE_F32][i] = m.gflops[EP_DTYPE_F16][i] = m.vector_gflops[i] = f32;
        m.gflops[EP_DTYPE_BF16][i] = bf16 > 0 ? bf16 : f32;
        m.read_gbs[i] = m.copy_gbs[i] = gbs;
        m.cache_gbs[0][i] = 8 * n * core_gbs;
        m.cache_gbs[1][i] = 2 * n * core_gbs;
    }
    *out = m;
}

const char *ep_machine_isa(void) {
    return ep_isa_name(ep_cpu_get()->isa);
}

ep_status ep_machine_load(ep_device device, ep_error *err, ep_machine *out) {
    char path[4096];
    ep_machine m;
    ep_error local = {0};
    if (!out) return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "out is NULL");
    bool stored =
        ep_machine_path(device, &local, path, sizeof path) == EP_OK && ep_machine_read(path, &local, &m) == EP_OK;
    if (stored) {
        *out = m;
        return EP_OK;
    }
    /* A damaged file is as good as none: it is written again by the next measurement. */
    if (device.kind == EP_DEVICE_CPU) {
        ep_machine_estimate(out);
        return EP_OK;
    }
    return ep_fail(err, EP_ERROR_NOT_FOUND, "no measurement of cuda:%d is stored; 'epi info --measure' makes one",
                   device.index);
}
