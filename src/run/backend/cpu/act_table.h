/* act of every 16-bit float: under eager rounding an activation's argument and result are both of the dtype, so act is a
 * function of 65536 values. A gather from this table is several times cheaper than the formula and the same bits. */
#ifndef EP_RUN_BACKEND_CPU_ACT_TABLE_H
#define EP_RUN_BACKEND_CPU_ACT_TABLE_H

#include <epilogue/ops.h>

/* f32 values indexed by the argument's 16 bits; NULL where a table does not pay (f32, relu, none) or memory is out. The
 * first call for an activation and dtype fills it (about 0.1 ms with AVX-512). Thread-safe, lives as long as the process. */
const float *ep_act_table(ep_dtype dtype, ep_act act);
/* Pairs: the value as above and the slope of act, not rounded. */
const float *ep_pair_table(ep_dtype dtype, ep_act act);

#endif
