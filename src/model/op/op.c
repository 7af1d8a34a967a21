/* The op table, made of pointwise.def and ops.def, and the checks that every op shares. */
#include "op.h"

#include <string.h>

#include "rules.h"

static const ep_op_info table[EP_OP_COUNT] = {
#define EP_POINTWISE(ID, name, aten, arity, flops, formula)                                                            \
    {EP_OP_##ID, #name, aten, EP_KIND_POINTWISE, arity, arity, flops, #formula, ep_rule_pointwise, ep_work_pointwise},
#include <epilogue/pointwise.def>
#undef EP_POINTWISE
#define EP_OP(ID, name, aten, kind, min_arity, max_arity, shape_rule, work_rule)                                       \
    {EP_OP_##ID, #name, aten, EP_KIND_##kind, min_arity, max_arity, 0, NULL, ep_rule_##shape_rule, ep_work_##work_rule},
#include <epilogue/ops.def>
#undef EP_OP
};

const ep_op_info *ep_op_get(ep_op op) {
    return &table[(unsigned)op < EP_OP_COUNT ? op : 0];
}

const char *ep_op_name(ep_op op) {
    return (unsigned)op < EP_OP_COUNT ? table[op].name : "?";
}

/* Backward, so that "aten::gelu" is the erf form, as aten has it. */
ep_status ep_op_parse(const char *name, ep_op *out) {
    if (!name || !out) return EP_ERROR_INVALID_ARGUMENT;
    for (int i = EP_OP_COUNT - 1; i >= 0; i--) {
        if (strcmp(table[i].name, name) != 0 && strcmp(table[i].aten, name) != 0) continue;
        *out = table[i].op;
        return EP_OK;
    }
    return EP_ERROR_NOT_FOUND;
}

/* Views and moves take any dtype; the others compute, so they take floats, and one dtype a call. */
static ep_status check_dtypes(const ep_op_info *info, int count, const ep_shape *in, ep_error *err) {
    if (info->kind == EP_KIND_VIEW) return EP_OK;
    int first = info->op == EP_OP_WHERE ? 1 : 0; /* the condition is data */
    for (int i = first; i < count; i++) {
        if (info->kind != EP_KIND_MOVE && in[i].dtype > EP_DTYPE_F16)
            return ep_fail(err, EP_ERROR_DTYPE, "%s computes in f32, bf16 or f16; operand %d is %s", info->name, i,
                           ep_dtype_name(in[i].dtype));
        if (in[i].dtype != in[first].dtype)
            return ep_fail(err, EP_ERROR_DTYPE, "%s got %s and %s; operands share one dtype (ep_cast changes it)",
                           info->name, ep_dtype_name(in[first].dtype), ep_dtype_name(in[i].dtype));
    }
    return EP_OK;
}

ep_status ep_op_shape(ep_op op, const ep_attr *attr, int count, const ep_shape *in, ep_error *err, ep_shape *out) {
    const ep_op_info *info = ep_op_get(op);
    if (count < info->min_arity || count > info->max_arity)
        return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "%s takes %d to %d operands, not %d", info->name,
                       info->min_arity, info->max_arity, count);
    EP_TRY(check_dtypes(info, count, in, err));
    return info->shape(attr, count, in, err, out);
}

void ep_op_work(ep_op op, const ep_attr *attr, int count, const ep_shape *in, const ep_shape *out, ep_work *work) {
    const ep_op_info *info = ep_op_get(op);
    *work = (ep_work){0, 0, 0};
    info->work(attr, count, in, out, work);
    if (info->kind == EP_KIND_POINTWISE) work->flops *= info->flops;
}
