/* The one C-family emitter: loop nests -> source text, over a dialect. */
#ifndef EP_RUN_CODEGEN_EMIT_C_H
#define EP_RUN_CODEGEN_EMIT_C_H

#include "dialect.h"

/* The text in front of all kernels of one file; includes nothing. */
void ep_emit_preamble(const ep_dialect *d, ep_isa isa, ep_text *out);
/* One kernel, headed by a comment: ops, classes of operands, rounding, what it rests on. `suffix` ends its name. */
void ep_emit_kernel(const ep_dialect *d, ep_isa isa, const ep_loop *l, ep_text *out);

/* Shared with the dialects: the argument block is decoded into n, chunk, pieces, d0.., p0.., p0_s0.. */
void ep_emit_arguments(ep_text *t, const ep_loop *l, const char *integer, const char *array, const char *pointer);
/* "x3" and the like: the name of statement `number`. */
const char *ep_emit_name(const ep_loop *l, int number, char buffer[48]);

#endif
