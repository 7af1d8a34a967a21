/* The list of CPU kernels for people: eager rows, oneDNN's products, tuned rows, each with the reason of its choice. */
#include <epilogue/kernels.h>

#include "act_table.h"
#include "cpu_kernels.h"
#include "tuned.h"

typedef struct list {
    ep_kernel_row *out;
    size_t max, count;
} list;

static void add(list *l, const ep_kernel_row *row) {
    if (l->count < l->max) l->out[l->count] = *row;
    l->count++;
}

static const char *passed_over(ep_isa needs, ep_isa isa, bool chosen) {
    if (chosen) return "";
    if (needs > ep_cpu_get()->detected) return "this processor lacks the instructions";
    if (needs > isa) return "EPILOGUE_ISA forbids it";
    return "a faster row stands above it";
}

static void add_eager(list *l, ep_isa isa) {
    for (const ep_cpu_row *r = ep_cpu_rows; r->op; r++) {
        bool used = ep_cpu_select(r->class, r->dtype, isa) == r;
        ep_kernel_row row = {.mode = "eager",
                             .family = r->op,
                             .dtype = ep_dtype_name(r->dtype),
                             .isa = ep_isa_name(r->isa),
                             .tile = r->tile,
                             .limits = r->limits,
                             .used = used,
                             .why = passed_over(r->isa, isa, used)};
        add(l, &row);
    }
}

/* oneDNN chooses by problem; these are the levels it has for plain weights. */
static void add_products(list *l, ep_isa isa) {
    static const struct {
        ep_dtype dtype;
        ep_isa isa;
        const char *name, *limits;
    } rows[] = {
        {EP_DTYPE_F32, EP_ISA_AVX512, "onednn_avx512", "any stride; any size"},
        {EP_DTYPE_F32, EP_ISA_AVX2, "onednn_avx2", "any stride; any size"},
        {EP_DTYPE_F32, EP_ISA_PORTABLE, "onednn_portable", "any stride; any size"},
        {EP_DTYPE_BF16, EP_ISA_AMX_BF16, "onednn_amxbf16", "any stride; any size"},
        {EP_DTYPE_BF16, EP_ISA_AVX512_BF16, "onednn_avx512bf16", "any stride; any size"},
        {EP_DTYPE_BF16, EP_ISA_AVX512, "onednn_avx512", "any stride; any size"},
        {EP_DTYPE_BF16, EP_ISA_PORTABLE, "onednn_portable", "widened to f32 first"},
        {EP_DTYPE_F16, EP_ISA_AVX512, "onednn_avx512", "widened to f32 first"},
        {EP_DTYPE_F16, EP_ISA_AVX2, "onednn_avx2", "widened to f32 first"},
        {EP_DTYPE_F16, EP_ISA_PORTABLE, "onednn_portable", "widened to f32 first"},
    };
    bool found[EP_DTYPE_COUNT] = {false};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bool used = rows[i].isa <= isa && !found[rows[i].dtype];
        if (used) found[rows[i].dtype] = true;
        ep_kernel_row row = {"eager",        "gemm", ep_dtype_name(rows[i].dtype),       rows[i].name, "",
                             rows[i].limits, used,   passed_over(rows[i].isa, isa, used)};
        add(l, &row);
    }
}

static void add_tuned(list *l, ep_isa isa) {
    for (const ep_tuned_row *const *r = ep_tuned_rows; *r; r++) {
        bool used = ep_tuned_select((*r)->dtype, isa) == *r;
        bool refused = !used && (*r)->isa <= isa && (*r)->usable && !(*r)->usable();
        ep_kernel_row row = {.mode = "tuned",
                             .family = "gemm",
                             .dtype = ep_dtype_name((*r)->dtype),
                             .isa = (*r)->isa_name,
                             .tile = (*r)->tile,
                             .limits = "packed weights; measured against oneDNN",
                             .used = used,
                             .why = refused ? (*r)->unusable : passed_over((*r)->isa, isa, used)};
        add(l, &row);
    }
}

/* The gated kernels alone: one row a way of finding act, with what 16 results took. */
static void add_gated(list *l, ep_isa isa) {
    static const char *const families[2] = {"geglu", "geglu_backward"};
    static const char *const ways[EP_ACT_WAYS] = {"formula", "table", "table_formula"};
    for (int back = 0; back < 2; back++)
        for (ep_dtype d = EP_DTYPE_F32; d <= EP_DTYPE_F16; d++) {
            const ep_tuned_row *r = ep_tuned_select(d, isa);
            const ep_act_trial *t = ep_act_tried(d, EP_ACT_GELU_TANH);
            for (int w = 0; r && w < (t ? EP_ACT_WAYS : 1); w++) {
                if (t && t->ns[back][w] <= 0) continue;
                ep_kernel_row row = {.mode = "tuned",
                                     .family = families[back],
                                     .dtype = ep_dtype_name(d),
                                     .isa = r->vector_name,
                                     .tile = ways[w],
                                     .limits = "any width and stride",
                                     .used = !t || t->way[back] == (ep_act_way)w,
                                     .why = t ? t->why[back] : ""};
                add(l, &row);
            }
        }
}

size_t ep_kernel_rows(ep_kernel_row *out, size_t max) {
    list l = {out, out ? max : 0, 0};
    ep_isa isa = ep_cpu_get()->isa;
    add_eager(&l, isa);
    add_products(&l, isa);
    add_tuned(&l, isa);
    add_gated(&l, isa);
    return l.count;
}
