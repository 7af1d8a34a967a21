/* The shape and work rules that rows of pointwise.def and ops.def name; only op.c and the rules themselves use it. */
#ifndef EP_MODEL_RULES_H
#define EP_MODEL_RULES_H

#include "op.h"

#define EP_DECLARE_RULE(name)                                                                                          \
    ep_status ep_rule_##name(const ep_attr *attr, int count, const ep_shape *in, ep_error *err, ep_shape *out)
EP_DECLARE_RULE(pointwise);
EP_DECLARE_RULE(same);
EP_DECLARE_RULE(transpose);
EP_DECLARE_RULE(reshape);
EP_DECLARE_RULE(expand);
EP_DECLARE_RULE(slice);
EP_DECLARE_RULE(chunk);
EP_DECLARE_RULE(mm);
EP_DECLARE_RULE(addmm);
EP_DECLARE_RULE(bmm);
EP_DECLARE_RULE(linear);
EP_DECLARE_RULE(reduce);
EP_DECLARE_RULE(norm);
EP_DECLARE_RULE(gated);
EP_DECLARE_RULE(cast);
EP_DECLARE_RULE(cat);
EP_DECLARE_RULE(gated_mlp);
EP_DECLARE_RULE(mlp);
#undef EP_DECLARE_RULE

#define EP_DECLARE_WORK(name)                                                                                          \
    void ep_work_##name(const ep_attr *attr, int count, const ep_shape *in, const ep_shape *out, ep_work *work)
EP_DECLARE_WORK(none);
EP_DECLARE_WORK(pointwise);
EP_DECLARE_WORK(gemm);
EP_DECLARE_WORK(reduce);
EP_DECLARE_WORK(softmax);
EP_DECLARE_WORK(norm);
EP_DECLARE_WORK(move);
EP_DECLARE_WORK(gated);
EP_DECLARE_WORK(gated_mlp);
EP_DECLARE_WORK(mlp);
#undef EP_DECLARE_WORK

#endif
