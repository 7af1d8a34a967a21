/* The GPU's kernels for one gated block: which it gets and why not the others; without a GPU, what each is for. */
#include "kernels_gpu.h"

#include <inttypes.h>
#include <string.h>

enum { MOST_ROWS = 128, NAME = 23, INDENT = 4 + NAME };

typedef struct rows {
    ep_kernel_row row[MOST_ROWS];
    size_t count;
    ep_error err;
    bool there;
    char device[96];
} rows;

static void ask(const gpu_request *r, rows *out) {
    *out = (rows){.count = 0};
    size_t total = 0;
    out->there = ep_gpu_kernel_rows(&r->question, &out->err, out->row, MOST_ROWS, &total, out->device) == EP_OK;
    out->count = total < MOST_ROWS ? total : MOST_ROWS;
}

static void head(const gpu_request *r, const rows *x) {
    const ep_kernel_question *q = &r->question;
    if (x->there) {
        printf("%s, for %s %" PRId64 " x %" PRId64 " -> %" PRId64 ", %s, %s rounding\n", x->device,
               ep_dtype_name(q->dtype), q->rows, q->dim, q->hidden, ep_act_name(q->act),
               q->rounding == EP_ROUNDING_EAGER ? "eager" : "fewest");
        return;
    }
    epi_wrap(x->err.message, printf("no GPU is used: "), 2, epi_width());
    printf("What the kernels are for, in the order they are preferred:\n");
}

void kernels_gpu_text(const gpu_request *r) {
    rows x;
    ask(r, &x);
    if (!x.there && !r->asked) {
        printf("\nno GPU is used here; 'epi kernels --device cuda' lists its kernels\n");
        return;
    }
    if (!r->asked) printf("\n");
    head(r, &x);
    const char *mode = "", *family = "";
    for (size_t i = 0; i < x.count; i++) {
        const ep_kernel_row *k = &x.row[i];
        if (r->used_only && !k->used) continue;
        if (strcmp(mode, k->mode) != 0 || strcmp(family, k->family) != 0) printf("\n%s %s\n", k->mode, k->family);
        mode = k->mode;
        family = k->family;
        int column = printf("  %-*s %-*s ", NAME, k->tile, x.there ? 3 : 7, k->used ? "yes" : x.there ? "no" : k->isa);
        epi_wrap(k->used || !x.there ? k->limits : k->why, column, INDENT + 3, epi_width());
    }
}

void kernels_row_json(json_out *j, const ep_kernel_row *row) {
    json_object(j, NULL);
    json_text(j, "mode", row->mode);
    json_text(j, "family", row->family);
    json_text(j, "dtype", row->dtype);
    json_text(j, "isa", row->isa);
    json_text(j, "tile", row->tile);
    json_text(j, "limits", row->limits);
    json_bool(j, "used", row->used);
    json_text(j, "why", row->why);
    json_end(j);
}

void kernels_gpu_json(json_out *j, const gpu_request *r) {
    rows x;
    const ep_kernel_question *q = &r->question;
    ask(r, &x);
    json_object(j, "gpu");
    json_text(j, "device", x.there ? x.device : NULL);
    json_text(j, "why", x.there ? NULL : x.err.message);
    json_object(j, "shape");
    json_int(j, "batch", q->rows);
    json_int(j, "dim", q->dim);
    json_int(j, "hidden", q->hidden);
    json_end(j);
    json_text(j, "act", ep_act_name(q->act));
    json_text(j, "rounding", q->rounding == EP_ROUNDING_EAGER ? "eager" : "fewest");
    json_array(j, "kernels");
    for (size_t i = 0; i < x.count; i++)
        if (!r->used_only || x.row[i].used) kernels_row_json(j, &x.row[i]);
    json_end(j);
    json_end(j);
}
