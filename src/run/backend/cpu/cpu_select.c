/* The rows of cpu_kernels.def, the choice among them and the reason for it. */
#include "cpu_kernels.h"

#include <stddef.h>

#define DECLARE_POINTWISE(symbol) extern const ep_pointwise_table ep_##symbol;
#define DECLARE_ROWS(symbol) extern const ep_row_table ep_##symbol;
#define EP_CPU_ROW(CLASS, op, DTYPE, ISA, tile, symbol, limits) DECLARE_##CLASS(symbol)
#include "cpu_kernels.def"
#undef EP_CPU_ROW

const ep_cpu_row ep_cpu_rows[] = {
#define EP_CPU_ROW(CLASS, op, DTYPE, ISA, tile, symbol, limits)                                                        \
    {EP_CPU_##CLASS, #op, EP_DTYPE_##DTYPE, EP_ISA_##ISA, tile, limits, &ep_##symbol, #symbol},
#include "cpu_kernels.def"
#undef EP_CPU_ROW
    {.op = NULL}};

const ep_cpu_row *ep_cpu_select(ep_cpu_class class, ep_dtype dtype, ep_isa isa) {
    for (const ep_cpu_row *r = ep_cpu_rows; r->op; r++)
        if (r->class == class && r->dtype == dtype && r->isa <= isa) return r;
    return NULL;
}

const char *ep_cpu_why_not(const ep_cpu_row *row, ep_isa isa) {
    if (ep_cpu_select(row->class, row->dtype, isa) == row) return "";
    if (row->isa > ep_cpu_get()->detected) return "this processor lacks the instructions";
    if (row->isa > isa) return "EPILOGUE_ISA forbids it";
    return "a faster row stands above it";
}
