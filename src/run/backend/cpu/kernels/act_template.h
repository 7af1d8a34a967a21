/* The activations over the vector vocabulary, from the rows of pointwise.def. The includer has included its simd header
 * and vmath.h. */
#ifndef EP_ACT_TEMPLATE_H
#define EP_ACT_TEMPLATE_H

#include <epilogue/ops.h>

/* One lane at a time a call costs nothing beside the formula, and inlining it everywhere takes minutes to compile. */
#if V_LANES == 1
#define ACT_FN static __attribute__((noinline, unused))
#else
#define ACT_FN V_FN
#endif

#define K(x) v_set1((float)(x))
#define EP_POINTWISE(ID, name, aten, arity, flops, formula) ACT_ARITY_##arity(name, formula)
#define ACT_ARITY_1(name, formula)                                                                                     \
    ACT_FN v_f32 act_##name(v_f32 a) {                                                                                 \
        return formula;                                                                                                \
    }
#define ACT_ARITY_2(name, formula)
#define ACT_ARITY_3(name, formula)
#include <epilogue/pointwise.def>
#undef EP_POINTWISE
#undef ACT_ARITY_1
#undef ACT_ARITY_2
#undef ACT_ARITY_3
#undef K

V_FN v_f32 act_apply(const ep_act act, v_f32 x) {
    switch (act) {
    case EP_ACT_GELU_TANH: return act_gelu_tanh(x);
    case EP_ACT_GELU_ERF: return act_gelu_erf(x);
    case EP_ACT_SILU: return act_silu(x);
    case EP_ACT_RELU: return act_relu(x);
    default: return x;
    }
}

#endif
