/* Entry points of the decode kernels: up to 8 and up to 16 rows of x. */
#include "decode_sm80.cuh"

#define EP_DECODE(name, TYPE, NT, UT, GATED, ACT, EAGER, UNROLL)                                                       \
    extern "C" __global__ void __launch_bounds__(256, 2) name(const __grid_constant__ ep::decode_args args) {          \
        ep::decode_body<ep::TYPE, NT, UT, GATED, ep::ACT, EAGER, UNROLL>(args);                                        \
    }
#define EP_DECODE_GATED(dtype, TYPE, act, ACT)                                                                         \
    EP_DECODE(ep_##dtype##_##act##_decode_sm80_m8_eager, TYPE, 1, 1, true, ACT, true, 4)                               \
    EP_DECODE(ep_##dtype##_##act##_decode_sm80_m8_fewest, TYPE, 1, 1, true, ACT, false, 4)                             \
    EP_DECODE(ep_##dtype##_##act##_decode_sm80_m16_eager, TYPE, 2, 1, true, ACT, true, 4)                              \
    EP_DECODE(ep_##dtype##_##act##_decode_sm80_m16_fewest, TYPE, 2, 1, true, ACT, false, 4)
#define EP_DECODE_ALL(dtype, TYPE)                                                                                     \
    EP_DECODE_GATED(dtype, TYPE, geglu, ACT_GELU_TANH)                                                                 \
    EP_DECODE_GATED(dtype, TYPE, geglu_erf, ACT_GELU_ERF)                                                              \
    EP_DECODE_GATED(dtype, TYPE, swiglu, ACT_SILU)                                                                     \
    EP_DECODE_GATED(dtype, TYPE, reglu, ACT_RELU)                                                                      \
    EP_DECODE(ep_##dtype##_gemm_decode_sm80_m8, TYPE, 1, 1, false, ACT_NONE, true, 8)                                  \
    EP_DECODE(ep_##dtype##_gemm_decode_sm80_m16, TYPE, 2, 1, false, ACT_NONE, true, 8)

EP_DECODE_ALL(bf16, bf16_type)
#ifdef EP_F16
EP_DECODE_ALL(f16, f16_type)
#endif
