/* `epi kernels`: the CPU kernels of this build, which are used on this machine, and why the others are not; the kernels
 * that compiled mode generated and the cache they are kept in. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "json_out.h"

enum { MOST_ROWS = 256 };

static const char usage[] = "usage: epi kernels [OPTIONS]\n\n"
                            "Shows the kernels of this build in the order they are preferred: the first row of a\n"
                            "family and dtype that this processor can run is used. EPILOGUE_ISA=portable, avx2,\n"
                            "avx512, avx512bf16 or amxbf16 caps the choice.\n\n"
                            "--cache, --show and --clear-cache are about the kernels that compiled mode generated:\n"
                            "they are kept in EPILOGUE_CACHE_DIR, or epilogue under XDG_CACHE_HOME or ~/.cache.";

/* Generated kernels of one cache entry: names are found in the text, which is C that a person can read. */
typedef struct generated {
    const char *wanted; /* --show's argument, or NULL: list */
    json_out *json;
    size_t entries, found;
} generated;

static const char *next_kernel(const char *text, char *name, size_t size) {
    for (const char *p = strstr(text, "epi_"); p; p = strstr(p + 4, "epi_")) {
        size_t n = strspn(p, "abcdefghijklmnopqrstuvwxyz0123456789_");
        if (p[n] != '(' || n >= size) continue;
        memcpy(name, p, n);
        name[n] = 0;
        return p + n;
    }
    return NULL;
}

static void list_entry(void *user, const ep_kernel_cache_entry *e) {
    generated *g = user;
    char name[160];
    g->entries++;
    if (g->json) {
        json_object(g->json, NULL);
        json_text(g->json, "key", e->key);
        json_int(g->json, "bytes", e->bytes);
        json_array(g->json, "kernels");
        for (const char *p = e->source; p && (p = next_kernel(p, name, sizeof name));) json_text(g->json, NULL, name);
        json_end(g->json);
        json_end(g->json);
        return;
    }
    printf("%s  %6lld KiB%s\n", e->key, (long long)(e->bytes + 1023) / 1024, e->source ? "" : "  damaged");
    for (const char *p = e->source; p && (p = next_kernel(p, name, sizeof name));) printf("  %s\n", name);
}

/* The whole file: it is what the compiler got, and compiles by hand. */
static void show_entry(void *user, const ep_kernel_cache_entry *e) {
    generated *g = user;
    char name[160];
    bool match = strncmp(e->key, g->wanted, strlen(g->wanted)) == 0;
    for (const char *p = e->source; !match && p && (p = next_kernel(p, name, sizeof name));)
        match = strcmp(name, g->wanted) == 0;
    if (!match || !e->source || g->found++) return;
    fputs(e->source, stdout);
}

static int show_generated(const char *wanted) {
    generated g = {.wanted = wanted};
    ep_error err = {0};
    if (ep_kernel_cache_each(NULL, show_entry, &g, &err) != EP_OK) return epi_fail(NULL, &err);
    if (!g.found) return epi_bad("--show %s: no generated kernel of that name or key is in the cache", wanted);
    return EPI_DONE;
}

static int list_generated(bool json) {
    json_out j = {.to = stdout};
    generated g = {.json = json ? &j : NULL};
    ep_error err = {0};
    char dir[4096];
    if (ep_kernel_cache_dir(NULL, dir, sizeof dir, &err) != EP_OK) return epi_fail(NULL, &err);
    if (json) {
        json_object(&j, NULL);
        json_text(&j, "cache", dir);
        json_array(&j, "entries");
    } else {
        printf("generated kernels in %s\n", dir);
    }
    if (ep_kernel_cache_each(NULL, list_entry, &g, &err) != EP_OK) return epi_fail(NULL, &err);
    if (json)
        json_finish(&j);
    else if (!g.entries)
        printf("none yet: run a block in compiled mode\n");
    return EPI_DONE;
}

static int clear_generated(void) {
    ep_error err = {0};
    size_t removed = 0;
    if (ep_kernel_cache_clear(NULL, &err, &removed) != EP_OK) return epi_fail(NULL, &err);
    printf("%zu entr%s removed\n", removed, removed == 1 ? "y" : "ies");
    return EPI_DONE;
}

static bool shown(const ep_kernel_row *r, const char *dtype, bool used_only) {
    return (!dtype || strcmp(dtype, r->dtype) == 0) && (!used_only || r->used);
}

static void show_text(const ep_kernel_row *rows, size_t count, const char *dtype, bool used_only) {
    const char *mode = "", *family = "";
    printf("instruction set in force: %s%s\n", ep_machine_isa(), epi_isa_note());
    for (size_t i = 0; i < count; i++) {
        const ep_kernel_row *r = &rows[i];
        if (!shown(r, dtype, used_only)) continue;
        if (strcmp(mode, r->mode) != 0 || strcmp(family, r->family) != 0) printf("\n%s %s\n", r->mode, r->family);
        mode = r->mode;
        family = r->family;
        printf("  %-4s %-17s %-4s %-3s %s\n", r->dtype, r->isa, r->tile, r->used ? "yes" : "no",
               r->used ? r->limits : r->why);
    }
}

static void show_json(const ep_kernel_row *rows, size_t count, const char *dtype, bool used_only) {
    json_out j = {.to = stdout};
    json_object(&j, NULL);
    json_text(&j, "isa", ep_machine_isa());
    json_array(&j, "kernels");
    for (size_t i = 0; i < count; i++) {
        if (!shown(&rows[i], dtype, used_only)) continue;
        json_object(&j, NULL);
        json_text(&j, "mode", rows[i].mode);
        json_text(&j, "family", rows[i].family);
        json_text(&j, "dtype", rows[i].dtype);
        json_text(&j, "isa", rows[i].isa);
        json_text(&j, "tile", rows[i].tile);
        json_text(&j, "limits", rows[i].limits);
        json_bool(&j, "used", rows[i].used);
        json_text(&j, "why", rows[i].why);
        json_end(&j);
    }
    json_finish(&j);
}

int cmd_kernels(int argc, char **argv) {
    bool json = false, used_only = false, cache = false, clear = false;
    const char *dtype = NULL, *show = NULL;
    const epi_option options[] = {{"--dtype", OPT_TEXT, (void *)&dtype, "D", "f32, bf16 or f16 only"},
                                  {"--used", OPT_FLAG, &used_only, NULL, "only what is used here"},
                                  {"--cache", OPT_FLAG, &cache, NULL, "list the generated kernels"},
                                  {"--show", OPT_TEXT, (void *)&show, "NAME", "source of a generated kernel or key"},
                                  {"--clear-cache", OPT_FLAG, &clear, NULL, "remove all generated kernels"},
                                  {"--json", OPT_FLAG, &json, NULL, "one JSON object"},
                                  {.name = NULL}};
    int count, code = epi_parse(argc, argv, usage, options, NULL, 0, &count);
    if (code >= 0) return code;
    ep_dtype known;
    if (dtype && (ep_dtype_parse(dtype, &known) != EP_OK || known > EP_DTYPE_F16))
        return epi_bad("--dtype %s: there are kernels for f32, bf16 and f16", dtype);
    if (clear) return clear_generated();
    if (show) return show_generated(show);
    if (cache) return list_generated(json);
    ep_kernel_row rows[MOST_ROWS];
    size_t total = ep_kernel_rows(rows, MOST_ROWS);
    if (total > MOST_ROWS) total = MOST_ROWS;
    (json ? show_json : show_text)(rows, total, dtype, used_only);
    return EPI_DONE;
}
