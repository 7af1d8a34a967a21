/* Entry points of the sm_90a GEMM family: gated (gate and up in one product, activation and product before the only
 * store) and plain with epilogue, for bf16 and f16. Names say dtype, op, tile, cluster, rounding. */
#include "gemm_sm90a.cuh"

#define EP_GEMM(name, TYPE, BN, STAGES, CLUSTER, GATED, ACT, EAGER)                                                    \
    extern "C" __global__ void __launch_bounds__(384, 1) name(                                                         \
        const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap w0,                                 \
        const __grid_constant__ CUtensorMap w1, const __grid_constant__ CUtensorMap y, const ep::gemm_args args) {     \
        ep::gemm_body<ep::TYPE, 2, BN, STAGES, CLUSTER, 1, GATED, ep::ACT, EAGER>(&x, &w0, &w1, &y, args);             \
    }
#define EP_HANDED(name, TYPE, BN, STAGES, CLUSTER, ACT)                                                                \
    extern "C" __global__ void __launch_bounds__(384, 1) name(                                                         \
        const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap w0,                                 \
        const __grid_constant__ CUtensorMap w1, const __grid_constant__ CUtensorMap y, const ep::gemm_args args) {     \
        ep::handed_body<ep::TYPE, BN, STAGES, 2, CLUSTER, ep::ACT>(&x, &w0, &w1, &y, args);                            \
    }

#define EP_GATED(dtype, TYPE, act, ACT)                                                                                \
    EP_HANDED(ep_##dtype##_gated_gemm_##act##_sm90a_t128x128c2_eager, TYPE, 256, 3, 2, ACT)                            \
    EP_GEMM(ep_##dtype##_gated_gemm_##act##_sm90a_t128x64c1_eager, TYPE, 128, 6, 1, true, ACT, true)                   \
    EP_GEMM(ep_##dtype##_gated_gemm_##act##_sm90a_t128x64c1_fewest, TYPE, 128, 6, 1, true, ACT, false)

#define EP_PLAIN_ROUNDINGS(dtype, TYPE, act, ACT, R, EAGER)                                                            \
    EP_GEMM(ep_##dtype##_gemm_##act##_sm90a_t128x128c1##R, TYPE, 128, 6, 1, false, ACT, EAGER)                         \
    EP_GEMM(ep_##dtype##_gemm_##act##_sm90a_t128x256c2##R, TYPE, 256, 4, 2, false, ACT, EAGER)
#define EP_PLAIN(dtype, TYPE, act, ACT)                                                                                \
    EP_PLAIN_ROUNDINGS(dtype, TYPE, act, ACT, _eager, true)                                                            \
    EP_PLAIN_ROUNDINGS(dtype, TYPE, act, ACT, _fewest, false)

#define EP_ALL(dtype, TYPE)                                                                                            \
    EP_GATED(dtype, TYPE, gelu_tanh, ACT_GELU_TANH)                                                                    \
    EP_GATED(dtype, TYPE, gelu_erf, ACT_GELU_ERF)                                                                      \
    EP_GATED(dtype, TYPE, silu, ACT_SILU)                                                                              \
    EP_GATED(dtype, TYPE, relu, ACT_RELU)                                                                              \
    EP_PLAIN(dtype, TYPE, none, ACT_NONE)                                                                              \
    EP_PLAIN(dtype, TYPE, gelu_tanh, ACT_GELU_TANH)                                                                    \
    EP_PLAIN(dtype, TYPE, gelu_erf, ACT_GELU_ERF)                                                                      \
    EP_PLAIN(dtype, TYPE, silu, ACT_SILU)                                                                              \
    EP_PLAIN(dtype, TYPE, relu, ACT_RELU)

EP_ALL(bf16, bf16_type)
EP_ALL(f16, f16_type)
