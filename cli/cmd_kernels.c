/* `epi kernels`: the CPU kernels of this build, which are used on this machine, and why the others are not. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "json_out.h"

enum { MOST_ROWS = 256 };

static const char usage[] = "usage: epi kernels [OPTIONS]\n\n"
                            "Shows the kernels of this build in the order they are preferred: the first row of a\n"
                            "family and dtype that this processor can run is used. EPILOGUE_ISA=portable, avx2,\n"
                            "avx512, avx512bf16 or amxbf16 caps the choice.";

static bool shown(const ep_kernel_row *r, const char *dtype, bool used_only) {
    return (!dtype || strcmp(dtype, r->dtype) == 0) && (!used_only || r->used);
}

static void show_text(const ep_kernel_row *rows, size_t count, const char *dtype, bool used_only) {
    const char *mode = "", *family = "";
    printf("instruction set in force: %s\n", ep_machine_isa());
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
    bool json = false, used_only = false;
    const char *dtype = NULL;
    const epi_option options[] = {{"--dtype", OPT_TEXT, (void *)&dtype, "D", "f32, bf16 or f16 only"},
                                  {"--used", OPT_FLAG, &used_only, NULL, "only what is used here"},
                                  {"--json", OPT_FLAG, &json, NULL, "one JSON object"},
                                  {.name = NULL}};
    int count, code = epi_parse(argc, argv, usage, options, NULL, 0, &count);
    if (code >= 0) return code;
    ep_dtype known;
    if (dtype && (ep_dtype_parse(dtype, &known) != EP_OK || known > EP_DTYPE_F16))
        return epi_bad("--dtype %s: there are kernels for f32, bf16 and f16", dtype);
    ep_kernel_row rows[MOST_ROWS];
    size_t total = ep_kernel_rows(rows, MOST_ROWS);
    if (total > MOST_ROWS) total = MOST_ROWS;
    (json ? show_json : show_text)(rows, total, dtype, used_only);
    return EPI_DONE;
}
