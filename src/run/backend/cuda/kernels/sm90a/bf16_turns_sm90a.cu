/* Entry points of the gated product with warpgroups in turns (turns_sm90a.cuh), for bf16 and f16 under `fewest` rounding. */
#include "turns_sm90a.cuh"

#define EP_TURNS(dtype, TYPE, act, ACT)                                                                                \
    extern "C" __global__ void __launch_bounds__(384, 1) ep_##dtype##_gated_gemm_##act##_sm90a_t128x96c2_fewest(       \
        const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap w0,                                 \
        const __grid_constant__ CUtensorMap w1, const __grid_constant__ CUtensorMap y, const ep::gemm_args args) {     \
        ep::turns_body<ep::TYPE, 192, 5, 2, true, ep::ACT, false>(&x, &w0, &w1, &y, args);                             \
    }
#define EP_ALL(dtype, TYPE)                                                                                            \
    EP_TURNS(dtype, TYPE, gelu_tanh, ACT_GELU_TANH)                                                                    \
    EP_TURNS(dtype, TYPE, gelu_erf, ACT_GELU_ERF)                                                                      \
    EP_TURNS(dtype, TYPE, silu, ACT_SILU)                                                                              \
    EP_TURNS(dtype, TYPE, relu, ACT_RELU)

EP_ALL(bf16, bf16_type)
EP_ALL(f16, f16_type)
