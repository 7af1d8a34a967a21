/* act(g) * u alone, forward and backward, for bf16, f16 and f32.
 *
 * Bound: 3 streams (backward 5) over memory bandwidth. Work is a flat list of vectors of V elements: V is 16 bytes where
 * the addresses and row strides allow, else 8, 4, 2 bytes; rows that follow one another without a gap are one row, so an
 * odd width costs nothing. One vector of each stream a thread: four in flight cost occupancy, 3.74 for 4.38 TB/s at
 * 8192 x 16384 bf16 on an H200, whose copy reaches 4.28. */
#include "../common/activation.cuh"

namespace ep {

struct gated_args {
    const void *g, *u, *dy;
    void *y, *du;                                  /* backward: y is dg */
    long long g_row, u_row, dy_row, y_row, du_row; /* elements */
    long long vectors;                             /* rows * vectors a row */
    unsigned per_row;                              /* vectors a row, 0: one row of all */
    unsigned tail;                                 /* one row of all: elements behind the last whole vector */
};

struct f32_type {
    typedef float scalar;
    static __device__ __forceinline__ float round(float x) { return x; }
};

template <int BYTES> struct bytes_of;
template <> struct bytes_of<16> { typedef uint4 type; };
template <> struct bytes_of<8> { typedef uint2 type; };
template <> struct bytes_of<4> { typedef uint32_t type; };
template <> struct bytes_of<2> { typedef unsigned short type; };

template <typename T, int V> struct vec {
    typedef typename T::scalar S;
    union {
        typename bytes_of<V * sizeof(S)>::type raw;
        S v[V];
        uint32_t pair[V * sizeof(S) >= 4 ? V * sizeof(S) / 4 : 1];
    };
    __device__ __forceinline__ vec() {}
};

template <typename R> __device__ __forceinline__ R load_once(const R *p) {
    return __ldcs(p);
}

/* act and its derivative together. */
template <int ACT> __device__ __forceinline__ void act_and_slope(float x, float *act, float *slope) {
    if (ACT == ACT_GELU_TANH) {
        float x2 = x * x;
        float s = rcp_approx(1.0f + exp2_approx(x * __fmaf_rn(-0.1029432397f, x2, -2.302208198f)));
        *act = x * s;
        *slope = __fmaf_rn(x * s * (1.0f - s), __fmaf_rn(0.2140644488f, x2, 1.595769122f), s);
    } else if (ACT == ACT_GELU_ERF) {
        float cdf = 0.5f * (1.0f + erff(x * 0.7071067812f));
        *act = 0.5f * x * (1.0f + erff(x * 0.7071067812f));
        *slope = __fmaf_rn(x * 0.3989422804f, exp2_approx(-0.7213475204f * x * x), cdf);
    } else if (ACT == ACT_SILU) {
        float s = rcp_approx(1.0f + exp2_approx(-1.4426950409f * x));
        *act = x * s;
        *slope = s * (1.0f + x * (1.0f - s));
    } else {
        *act = activate<ACT_RELU>(x);
        *slope = x > 0.0f ? 1.0f : 0.0f;
    }
}

template <typename T, int ACT, bool EAGER, bool BACKWARD, typename S>
__device__ __forceinline__ void one(S gs, S us, S dys, S *y, S *du) {
    float g = widen<S>(gs), u = widen<S>(us);
    if (!BACKWARD) {
        float act = activate<ACT>(g);
        *y = narrow<S>((EAGER ? T::round(act) : act) * u);
    } else {
        float act, slope, d = widen<S>(dys);
        act_and_slope<ACT>(g, &act, &slope);
        *y = narrow<S>((EAGER ? T::round(d * u) : d * u) * slope);
        *du = narrow<S>(d * (EAGER ? T::round(act) : act));
    }
}

/* Two neighbours of a 16-bit type; products of two such values are exact in f32, so packed ones have the same bits. */
template <typename T, int ACT, bool EAGER, bool BACKWARD>
__device__ __forceinline__ void two(uint32_t g, uint32_t u, uint32_t dy, uint32_t *y, uint32_t *du) {
    float g0 = T::low(g), g1 = T::high(g), u0 = T::low(u), u1 = T::high(u);
    if (!BACKWARD) {
        float a0 = activate<ACT>(g0), a1 = activate<ACT>(g1);
        *y = EAGER ? T::multiply(T::pack(a0, a1), u) : T::pack(a0 * u0, a1 * u1);
    } else {
        float a0, a1, s0, s1, d0 = T::low(dy), d1 = T::high(dy);
        act_and_slope<ACT>(g0, &a0, &s0);
        act_and_slope<ACT>(g1, &a1, &s1);
        if (EAGER) {
            uint32_t t = T::multiply(dy, u);
            *y = T::pack(T::low(t) * s0, T::high(t) * s1);
            *du = T::multiply(dy, T::pack(a0, a1));
        } else {
            *y = T::pack(d0 * u0 * s0, d1 * u1 * s1);
            *du = T::pack(d0 * a0, d1 * a1);
        }
    }
}

template <typename T, int V, int ACT, bool EAGER, bool BACKWARD, int UNROLL>
__device__ __forceinline__ void gated_body(const gated_args &a) {
    typedef vec<T, V> W;
    typedef typename T::scalar S;
    long long first = (long long)blockIdx.x * blockDim.x * UNROLL + threadIdx.x;
    long long at[UNROLL][5];
    W g[UNROLL], u[UNROLL], dy[UNROLL];
#pragma unroll
    for (int i = 0; i < UNROLL; i++) {
        long long v = first + (long long)i * blockDim.x;
        long long row = 0, col = v * V;
        if (a.per_row) {
            row = a.vectors <= 0xffffffffll ? (long long)((unsigned)v / a.per_row) : v / a.per_row;
            col = (v - row * a.per_row) * V;
        }
        at[i][0] = row * a.g_row + col;
        at[i][1] = row * a.u_row + col;
        at[i][2] = row * a.y_row + col;
        if (BACKWARD) {
            at[i][3] = row * a.dy_row + col;
            at[i][4] = row * a.du_row + col;
        }
        if (v >= a.vectors) continue;
        g[i].raw = load_once((const decltype(g[i].raw) *)((const S *)a.g + at[i][0]));
        u[i].raw = load_once((const decltype(u[i].raw) *)((const S *)a.u + at[i][1]));
        if (BACKWARD) dy[i].raw = load_once((const decltype(dy[i].raw) *)((const S *)a.dy + at[i][3]));
    }
#pragma unroll
    for (int i = 0; i < UNROLL; i++) {
        if (first + (long long)i * blockDim.x >= a.vectors) break;
        W y, du;
        if constexpr (sizeof(S) == 2 && V > 1) {
#pragma unroll
            for (int e = 0; e < V / 2; e++)
                two<T, ACT, EAGER, BACKWARD>(g[i].pair[e], u[i].pair[e], dy[i].pair[e], &y.pair[e], &du.pair[e]);
        } else {
#pragma unroll
            for (int e = 0; e < V; e++)
                one<T, ACT, EAGER, BACKWARD>(g[i].v[e], u[i].v[e], dy[i].v[e], &y.v[e], &du.v[e]);
        }
        __stcs((decltype(y.raw) *)((S *)a.y + at[i][2]), y.raw);
        if (BACKWARD) __stcs((decltype(du.raw) *)((S *)a.du + at[i][4]), du.raw);
    }
    if (blockIdx.x == 0 && threadIdx.x < a.tail) {
        long long e = a.vectors * V + threadIdx.x;
        S y, du, d = BACKWARD ? ((const S *)a.dy)[e] : ((const S *)a.g)[e];
        one<T, ACT, EAGER, BACKWARD>(((const S *)a.g)[e], ((const S *)a.u)[e], d, &y, &du);
        ((S *)a.y)[e] = y;
        if (BACKWARD) ((S *)a.du)[e] = du;
    }
}

} // namespace ep

#ifndef EP_GATED_BODY_ONLY
#define EP_GATED(name, TYPE, V, ACT, EAGER, BACKWARD)                                                                  \
    extern "C" __global__ void __launch_bounds__(256) name(const __grid_constant__ ep::gated_args args) {              \
        ep::gated_body<ep::TYPE, V, ep::ACT, EAGER, BACKWARD, 1>(args);                                                \
    }
#define EP_GATED_WIDTHS(dtype, TYPE, act, ACT, V, R, EAGER)                                                            \
    EP_GATED(ep_##dtype##_gated_##act##_sm80_v##V##R, TYPE, V, ACT, EAGER, false)                                      \
    EP_GATED(ep_##dtype##_gated_##act##_backward_sm80_v##V##R, TYPE, V, ACT, EAGER, true)
#define EP_GATED_16(dtype, TYPE, act, ACT)                                                                             \
    EP_GATED_WIDTHS(dtype, TYPE, act, ACT, 8, _eager, true)                                                            \
    EP_GATED_WIDTHS(dtype, TYPE, act, ACT, 8, _fewest, false)                                                          \
    EP_GATED_WIDTHS(dtype, TYPE, act, ACT, 4, _eager, true)                                                            \
    EP_GATED_WIDTHS(dtype, TYPE, act, ACT, 4, _fewest, false)                                                          \
    EP_GATED_WIDTHS(dtype, TYPE, act, ACT, 2, _eager, true)                                                            \
    EP_GATED_WIDTHS(dtype, TYPE, act, ACT, 2, _fewest, false)                                                          \
    EP_GATED_WIDTHS(dtype, TYPE, act, ACT, 1, _eager, true)                                                            \
    EP_GATED_WIDTHS(dtype, TYPE, act, ACT, 1, _fewest, false)
#define EP_GATED_32(act, ACT)                                                                                          \
    EP_GATED_WIDTHS(f32, f32_type, act, ACT, 4, _fewest, false)                                                        \
    EP_GATED_WIDTHS(f32, f32_type, act, ACT, 2, _fewest, false)                                                        \
    EP_GATED_WIDTHS(f32, f32_type, act, ACT, 1, _fewest, false)
#define EP_GATED_ALL(act, ACT)                                                                                         \
    EP_GATED_16(bf16, bf16_type, act, ACT)                                                                             \
    EP_GATED_16(f16, f16_type, act, ACT)                                                                               \
    EP_GATED_32(act, ACT)

EP_GATED_ALL(gelu_tanh, ACT_GELU_TANH)
EP_GATED_ALL(gelu_erf, ACT_GELU_ERF)
EP_GATED_ALL(silu, ACT_SILU)
EP_GATED_ALL(relu, ACT_RELU)
#endif
