/* Entry points of the gated block of 17 to 128 rows in one kernel, for bf16 and f16. */
#include "rows_sm90a.cuh"

EP_ROWS_ENTRIES(bf16, bf16_type, gated_mlp, true)
EP_ROWS_ENTRIES(f16, f16_type, gated_mlp, true)
