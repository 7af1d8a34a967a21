/* Entry points of the block without a gate of 17 to 128 rows in one kernel, for bf16 and f16. */
#include "rows_sm90a.cuh"

EP_ROWS_ENTRIES(bf16, bf16_type, mlp, false)
EP_ROWS_ENTRIES(f16, f16_type, mlp, false)
