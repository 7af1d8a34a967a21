/* Entry points of the gated block of 17 to 128 rows in one kernel, for bf16 and f16. Names say rows of x, columns of h (at
 * most) and of y a tile. */
#include "rows_sm90a.cuh"

#define EP_BLOCK(name, TYPE, XR, H, Y_STAGES, GATED)                                                                   \
    extern "C" __global__ void __launch_bounds__(ep::rows_shape<XR, H, 128, Y_STAGES>::threads, 1)                     \
        name(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap g,                             \
             const __grid_constant__ CUtensorMap u, const __grid_constant__ CUtensorMap h,                             \
             const __grid_constant__ CUtensorMap d, const ep::rows_args args) {                                        \
        ep::rows_body<ep::TYPE, XR, H, 128, Y_STAGES, GATED>(&x, &g, &u, &h, &d, args);                                \
    }
#define EP_ALL(dtype, TYPE)                                                                                            \
    EP_BLOCK(ep_##dtype##_gated_mlp_rows_sm90a_m64h128y128, TYPE, 64, 128, 9, true)                                    \
    EP_BLOCK(ep_##dtype##_gated_mlp_rows_sm90a_m128h96y128, TYPE, 128, 96, 7, true)                                    \
    EP_BLOCK(ep_##dtype##_gated_mlp_rows_sm90a_m128h128y128, TYPE, 128, 128, 7, true)

EP_ALL(bf16, bf16_type)
EP_ALL(f16, f16_type)
