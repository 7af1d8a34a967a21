/* Entry points of the decode kernels: up to 8 and up to 16 rows of x. */
#include "decode_sm80.cuh"

#define EP_DECODE(name, TYPE, NT, UT, GATED, ACT, EAGER, UNROLL)                                                       \
    extern "C" __global__ void __launch_bounds__(256, 2) name(const __grid_constant__ ep::decode_args args) {          \
        ep::decode_body<ep::TYPE, NT, UT, GATED, ep::ACT, EAGER, UNROLL>(args);                                        \
    }
#define EP_DECODE_ACT(dtype, TYPE, act, ACT)                                                                           \
    EP_DECODE(ep_##dtype##_gated_gemm_##act##_decode_sm80_m8_eager, TYPE, 1, 1, true, ACT, true, 4)                    \
    EP_DECODE(ep_##dtype##_gated_gemm_##act##_decode_sm80_m8_fewest, TYPE, 1, 1, true, ACT, false, 4)                  \
    EP_DECODE(ep_##dtype##_gated_gemm_##act##_decode_sm80_m16_eager, TYPE, 2, 1, true, ACT, true, 4)                   \
    EP_DECODE(ep_##dtype##_gated_gemm_##act##_decode_sm80_m16_fewest, TYPE, 2, 1, true, ACT, false, 4)                 \
    EP_DECODE_PLAIN(dtype, TYPE, act, ACT)
#define EP_DECODE_PLAIN(dtype, TYPE, act, ACT)                                                                         \
    EP_DECODE(ep_##dtype##_gemm_##act##_decode_sm80_m8_eager, TYPE, 1, 1, false, ACT, true, 8)                         \
    EP_DECODE(ep_##dtype##_gemm_##act##_decode_sm80_m8_fewest, TYPE, 1, 1, false, ACT, false, 8)                       \
    EP_DECODE(ep_##dtype##_gemm_##act##_decode_sm80_m16_eager, TYPE, 2, 1, false, ACT, true, 8)                        \
    EP_DECODE(ep_##dtype##_gemm_##act##_decode_sm80_m16_fewest, TYPE, 2, 1, false, ACT, false, 8)
#define EP_DECODE_ALL(dtype, TYPE)                                                                                     \
    EP_DECODE_ACT(dtype, TYPE, gelu_tanh, ACT_GELU_TANH)                                                               \
    EP_DECODE_ACT(dtype, TYPE, gelu_erf, ACT_GELU_ERF)                                                                 \
    EP_DECODE_ACT(dtype, TYPE, silu, ACT_SILU)                                                                         \
    EP_DECODE_ACT(dtype, TYPE, relu, ACT_RELU)                                                                         \
    EP_DECODE_PLAIN(dtype, TYPE, none, ACT_NONE)

EP_DECODE_ALL(bf16, bf16_type)
#ifndef EP_GEMM_NO_F16
EP_DECODE_ALL(f16, f16_type)
#endif
