/* Entry points of the block of up to 16 rows in one kernel, for bf16 and f16. Names say rows of x, columns of h and of y a tile. */
#include "decode_sm90a.cuh"

#define EP_BLOCK(name, TYPE, XR, H, OUT, STAGES, GATED)                                                                \
    extern "C" __global__ void __launch_bounds__(288, 1)                                                               \
        name(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap g,                             \
             const __grid_constant__ CUtensorMap u, const __grid_constant__ CUtensorMap h,                             \
             const __grid_constant__ CUtensorMap d, const ep::decode_block_args args) {                                \
        ep::decode_block_body<ep::TYPE, XR, H, OUT, STAGES, GATED>(&x, &g, &u, &h, &d, args);                          \
    }
#define EP_ALL(dtype, TYPE)                                                                                            \
    EP_BLOCK(ep_##dtype##_gated_mlp_decode_sm90a_m8h64y16, TYPE, 8, 64, 16, 9, true)                                   \
    EP_BLOCK(ep_##dtype##_gated_mlp_decode_sm90a_m8h56y32, TYPE, 8, 56, 32, 10, true)                                  \
    EP_BLOCK(ep_##dtype##_gated_mlp_decode_sm90a_m16h64y16, TYPE, 16, 64, 16, 6, true)                                 \
    EP_BLOCK(ep_##dtype##_gated_mlp_decode_sm90a_m16h56y32, TYPE, 16, 56, 32, 8, true)                                 \
    EP_BLOCK(ep_##dtype##_mlp_decode_sm90a_m8h64y16, TYPE, 8, 64, 16, 9, false)                                        \
    EP_BLOCK(ep_##dtype##_mlp_decode_sm90a_m16h64y16, TYPE, 16, 64, 16, 6, false)

EP_ALL(bf16, bf16_type)
EP_ALL(f16, f16_type)
