/* act of every 16-bit float: under eager rounding an activation's argument and result are both of the dtype, so act is a
 * function of 65536 values. A gather from this table is several times cheaper than the formula and the same bits. */
#ifndef EP_RUN_BACKEND_CPU_ACT_TABLE_H
#define EP_RUN_BACKEND_CPU_ACT_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include <epilogue/ops.h>

/* f32 values indexed by the argument's 16 bits; NULL where a table does not pay (f32, relu, none) or memory is out. The
 * first call for an activation and dtype fills it (about 0.1 ms with AVX-512). Thread-safe, lives as long as the process. */
const float *ep_act_table(ep_dtype dtype, ep_act act);
/* The same as f16 bits, for kernels that ask for those (ep_tuned_row.gated_words); else NULL. */
const uint16_t *ep_act_words(ep_dtype dtype, ep_act act);
/* Pairs: the value as above and the slope of act, not rounded. */
const float *ep_pair_table(ep_dtype dtype, ep_act act);

/* Those slopes alone, for kernels that take them with act by the formula (ep_tuned_row.gated_slopes); else NULL. */
const float *ep_act_slopes(ep_dtype dtype, ep_act act);

/* How the gated kernels come by act: processors differ in what a gather costs. Every way gives the same bits. */
typedef enum ep_act_way {
    EP_ACT_BY_FORMULA,
    EP_ACT_BY_TABLE,
    EP_ACT_BY_BOTH, /* where a kernel has it: half of the vectors by each; backward act by formula, slopes by table */
    EP_ACT_WAYS
} ep_act_way;
typedef struct ep_act_trial {
    double ns[2][EP_ACT_WAYS]; /* 16 results, forward and backward; 0: no such way */
    ep_act_way way[2];
    char why[2][96]; /* the figures */
} ep_act_trial;
/* Measured once per process in about half a millisecond; NULL where there is nothing to choose. */
const ep_act_trial *ep_act_tried(ep_dtype dtype, ep_act act);
/* Whether that has been done: then the tables are there and cost nothing more. */
bool ep_act_is_tried(ep_dtype dtype, ep_act act);

#endif
