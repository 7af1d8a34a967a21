/* Entry points of the streaming kernels for few rows: up to 64 and up to 128 rows of x, for bf16 and f16. Names say rows
 * and columns of a tile, and over how many CTAs k is split. */
#include "stream_sm90a.cuh"

#define EP_STREAM(name, TYPE, WGS, BN, STAGES, SPLIT, ACCS, GATED, ACT, EAGER)                                         \
    extern "C" __global__ void __launch_bounds__(128 * WGS + 32, 1)                                                    \
        name(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap w0,                            \
             const __grid_constant__ CUtensorMap w1, const ep::stream_args args) {                                     \
        ep::stream_body<ep::TYPE, WGS, BN, STAGES, SPLIT, 64 * WGS, ACCS, GATED, ep::ACT, EAGER>(&x, &w0, &w1, args);  \
    }
#define EP_GATED(dtype, TYPE, act, ACT, R, EAGER)                                                                      \
    EP_STREAM(ep_##dtype##_gated_gemm_##act##_stream_sm90a_m64n64##R, TYPE, 1, 128, 9, 1, 1, true, ACT, EAGER)         \
    EP_STREAM(ep_##dtype##_gated_gemm_##act##_stream_sm90a_m128n112##R, TYPE, 2, 224, 5, 1, 1, true, ACT, EAGER)       \
    EP_STREAM(ep_##dtype##_gated_gemm_##act##_stream_sm90a_m128n64##R, TYPE, 2, 128, 7, 1, 1, true, ACT, EAGER)
#define EP_PLAIN(dtype, TYPE, R, EAGER)                                                                                \
    EP_STREAM(ep_##dtype##_gemm_none_stream_sm90a_m64n64k2##R, TYPE, 1, 64, 12, 2, 2, false, ACT_NONE, EAGER)          \
    EP_STREAM(ep_##dtype##_gemm_none_stream_sm90a_m64n128k8##R, TYPE, 1, 128, 4, 8, 1, false, ACT_NONE, EAGER)
#define EP_ROUNDINGS(dtype, TYPE, R, EAGER)                                                                            \
    EP_GATED(dtype, TYPE, gelu_tanh, ACT_GELU_TANH, R, EAGER)                                                          \
    EP_GATED(dtype, TYPE, gelu_erf, ACT_GELU_ERF, R, EAGER)                                                            \
    EP_GATED(dtype, TYPE, silu, ACT_SILU, R, EAGER)                                                                    \
    EP_GATED(dtype, TYPE, relu, ACT_RELU, R, EAGER)                                                                    \
    EP_PLAIN(dtype, TYPE, R, EAGER)

EP_ROUNDINGS(bf16, bf16_type, _eager, true)
EP_ROUNDINGS(bf16, bf16_type, _fewest, false)
EP_ROUNDINGS(f16, f16_type, _eager, true)
EP_ROUNDINGS(f16, f16_type, _fewest, false)
