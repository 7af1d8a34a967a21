/* `epi kernels`: the kernels of this build, which are used on this machine, and why the others are not; the kernels that
 * compiled mode generated and the cache they are kept in. */
#include <stdlib.h>
#include <string.h>

#include <inttypes.h>

#include "kernels_gpu.h"

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
    if (!*wanted) return epi_bad("--show wants the name of a kernel or the start of a key; --cache lists them");
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

enum { INDENT = 34 }; /* where most rows' reasons stand */

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
        int column = printf("  %-4s %-17s %-4s %-3s ", r->dtype, r->isa, r->tile, r->used ? "yes" : "no");
        epi_wrap(r->used ? r->limits : r->why, column, INDENT, epi_width());
    }
}

static void show_json(const ep_kernel_row *rows, size_t count, const char *dtype, const gpu_request *gpu) {
    json_out j = {.to = stdout};
    json_object(&j, NULL);
    if (!gpu->asked) {
        json_text(&j, "isa", ep_machine_isa());
        json_array(&j, "kernels");
        for (size_t i = 0; i < count; i++)
            if (shown(&rows[i], dtype, gpu->used_only)) kernels_row_json(&j, &rows[i]);
        json_end(&j);
    }
    kernels_gpu_json(&j, gpu);
    json_finish(&j);
}

/* What the GPU's rows are chosen for; the article's block by default. */
static int check_question(const char *dtype, const char *act, const char *rounding, gpu_request *gpu) {
    ep_kernel_question *q = &gpu->question;
    if (dtype && (ep_dtype_parse(dtype, &q->dtype) != EP_OK || q->dtype > EP_DTYPE_F16))
        return epi_bad("--dtype %s: there are kernels for f32, bf16 and f16", dtype);
    if (ep_act_parse(act, &q->act) != EP_OK || q->act == EP_ACT_NONE)
        return epi_bad("--act is gelu_tanh, gelu_erf, silu or relu, not '%s'", act);
    if (strcmp(rounding, "eager") != 0 && strcmp(rounding, "fewest") != 0)
        return epi_bad("--rounding is eager or fewest, not '%s'", rounding);
    q->rounding = strcmp(rounding, "eager") == 0 ? EP_ROUNDING_EAGER : EP_ROUNDING_FEWEST;
    const struct {
        const char *name;
        int64_t value;
    } sizes[] = {{"--batch", q->rows}, {"--dim", q->dim}, {"--hidden", q->hidden}};
    for (size_t i = 0; i < 3; i++)
        if (sizes[i].value < 1 || sizes[i].value > INT32_MAX)
            return epi_bad("%s is %" PRId64 "; it must be 1 to %d", sizes[i].name, sizes[i].value, INT32_MAX);
    return -1;
}

int cmd_kernels(int argc, char **argv) {
    bool json = false, cache = false, clear = false;
    const char *dtype = NULL, *show = NULL, *device = NULL, *act = "gelu_tanh", *rounding = "eager";
    gpu_request gpu = {.question = {.dtype = EP_DTYPE_BF16, .rows = 8192, .dim = 768, .hidden = 3072}};
    ep_kernel_question *q = &gpu.question;
    const epi_option options[] = {{"--dtype", OPT_TEXT, (void *)&dtype, "D", "f32, bf16 or f16 only"},
                                  {"--used", OPT_FLAG, &gpu.used_only, NULL, "only what is used here"},
                                  {"--device", OPT_TEXT, (void *)&device, "NAME", "cpu, cuda or cuda:N alone"},
                                  {"--batch", OPT_INT, &q->rows, "N", "GPU: rows of x (8192)"},
                                  {"--dim", OPT_INT, &q->dim, "N", "GPU: columns of x (768)"},
                                  {"--hidden", OPT_INT, &q->hidden, "N", "GPU: hidden columns (3072)"},
                                  {"--act", OPT_TEXT, (void *)&act, "A", "GPU: the activation (gelu_tanh)"},
                                  {"--rounding", OPT_TEXT, (void *)&rounding, "R", "GPU: eager or fewest (eager)"},
                                  {"--cache", OPT_FLAG, &cache, NULL, "list the generated kernels"},
                                  {"--show", OPT_TEXT, (void *)&show, "NAME", "source of a generated kernel or key"},
                                  {"--clear-cache", OPT_FLAG, &clear, NULL, "remove all generated kernels"},
                                  {"--json", OPT_FLAG, &json, NULL, "one JSON object"},
                                  {.name = NULL}};
    int count, code = epi_parse(argc, argv, usage, options, NULL, 0, &count);
    if (code < 0) code = check_question(dtype, act, rounding, &gpu);
    ep_device d = {EP_DEVICE_CPU, 0};
    if (code < 0 && device) code = epi_device(device, &d);
    if (code >= 0) return code;
    if (clear) return clear_generated();
    if (show) return show_generated(show);
    if (cache) return list_generated(json);
    gpu.asked = d.kind == EP_DEVICE_CUDA;
    q->device = d.index;
    ep_kernel_row rows[MOST_ROWS];
    size_t total = ep_kernel_rows(rows, MOST_ROWS);
    if (total > MOST_ROWS) total = MOST_ROWS;
    if (json) {
        show_json(rows, total, dtype, &gpu);
        return EPI_DONE;
    }
    if (!gpu.asked) show_text(rows, total, dtype, gpu.used_only);
    if (!device || gpu.asked) kernels_gpu_text(&gpu);
    return EPI_DONE;
}
