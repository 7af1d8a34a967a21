/* Entry points of the products with warpgroups in turns (turns_sm90a.cuh), for bf16 and f16: gated under `fewest` rounding, plain
 * ones with an epilogue under both. */
#include "turns_sm90a.cuh"

#define EP_TURNS(name, TYPE, GATED, ACT, EAGER)                                                                        \
    extern "C" __global__ void __launch_bounds__(384, 1) name(                                                         \
        const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap w0,                                 \
        const __grid_constant__ CUtensorMap w1, const __grid_constant__ CUtensorMap y, const ep::gemm_args args) {     \
        ep::turns_body<ep::TYPE, 192, 5, 2, GATED, ep::ACT, EAGER>(&x, &w0, &w1, &y, args);                            \
    }
#define EP_PLAIN(dtype, TYPE, act, ACT)                                                                                \
    EP_TURNS(ep_##dtype##_gemm_##act##_sm90a_t128x192c2_eager, TYPE, false, ACT, true)                                 \
    EP_TURNS(ep_##dtype##_gemm_##act##_sm90a_t128x192c2_fewest, TYPE, false, ACT, false)
#define EP_BOTH(dtype, TYPE, act, ACT)                                                                                 \
    EP_TURNS(ep_##dtype##_gated_gemm_##act##_sm90a_t128x96c2_fewest, TYPE, true, ACT, false)                           \
    EP_PLAIN(dtype, TYPE, act, ACT)
#define EP_ALL(dtype, TYPE)                                                                                            \
    EP_BOTH(dtype, TYPE, gelu_tanh, ACT_GELU_TANH)                                                                     \
    EP_BOTH(dtype, TYPE, gelu_erf, ACT_GELU_ERF)                                                                       \
    EP_BOTH(dtype, TYPE, silu, ACT_SILU)                                                                               \
    EP_BOTH(dtype, TYPE, relu, ACT_RELU)                                                                               \
    EP_PLAIN(dtype, TYPE, none, ACT_NONE)

EP_ALL(bf16, bf16_type)
EP_ALL(f16, f16_type)
