/* The pointwise kernels of one dtype and ISA, from the rows of pointwise.def. Before it: a simd header, vmath.h, and
 *   DT          f32, bf16 or f16
 *   SIZE        bytes an element
 *   FAMILY      the symbol of the table
 *   SUFFIX      "avx512_u64": ISA and tile, as in kernel names
 *   PAIRS       for bf16
 * What bounds them: memory from some hundred KiB on (f32 add moves 12 bytes for one operation), the formula below. Four
 * vectors a turn keep enough loads in flight; the last turn is done with partial loads and stores. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "run/backend/cpu/cpu_kernels.h"
#include "run/backend/cpu/kernels/vector_io.h"

enum { UNROLL = 4 };

/* The same once rounded to the dtype, for less. */
#define OF_DT_(name, dt) name##_of_##dt
#define OF_DT(name, dt) OF_DT_(name, dt)
#if SIZE == 2
#define v_gelu_tanh OF_DT(v_gelu_tanh, DT)
#define v_gelu_erf OF_DT(v_gelu_erf, DT)
#define SILU(a, formula) OF_DT(v_silu, DT)(a)
#else
#define SILU(a, formula) formula
#endif

#ifdef PAIRS
/* Two vectors of a pair at a time: half of the widening, and one store for two. */
#define TURNS(f, A, B, C)                                                                                              \
    for (; i + UNROLL * V_LANES <= n; i += UNROLL * V_LANES) {                                                         \
        v_i32 q[UNROLL / 2];                                                                                           \
        _Pragma("GCC unroll 2") for (int u = 0; u < UNROLL / 2; u++) {                                                 \
            int64_t j = i + u * 2 * V_LANES;                                                                           \
            v_f32 r[2];                                                                                                \
            (void)j;                                                                                                   \
            _Pragma("GCC unroll 2") for (int half = 0; half < 2; half++) r[half] = f(A, B, C);                         \
            q[u] = v_pairs_bf16(r[0], r[1]);                                                                           \
        }                                                                                                              \
        _Pragma("GCC unroll 2") for (int u = 0; u < UNROLL / 2; u++)                                                   \
            v_store_pairs(OUT_AT(out, i + u * 2 * V_LANES), q[u]);                                                     \
    }
#else
#define TURNS PLAIN_TURNS
#endif
#define PLAIN_TURNS(f, A, B, C)                                                                                        \
    for (; i + UNROLL * V_LANES <= n; i += UNROLL * V_LANES) {                                                         \
        v_f32 r[UNROLL];                                                                                               \
        _Pragma("GCC unroll 4") for (int u = 0; u < UNROLL; u++) {                                                     \
            int64_t j = i + u * V_LANES;                                                                               \
            enum { half = -1 };                                                                                        \
            (void)j;                                                                                                   \
            r[u] = f(A, B, C);                                                                                         \
        }                                                                                                              \
        _Pragma("GCC unroll 4") for (int u = 0; u < UNROLL; u++) STORE(OUT_AT(out, i + u * V_LANES), r[u]);            \
    }

/* One loop over n elements. A, B, C: how operand vectors come to be at element i, whole and partial. */
#define LOOP(f, A, B, C, A_N, B_N, C_N) LOOP_BY(TURNS, f, A, B, C, A_N, B_N, C_N)
#define LOOP_BY(turns, f, A, B, C, A_N, B_N, C_N)                                                                      \
    int64_t i = 0;                                                                                                     \
    turns(f, A, B, C);                                                                                                 \
    for (; i + V_LANES <= n; i += V_LANES) {                                                                           \
        int64_t j = i;                                                                                                 \
        enum { half = -1 };                                                                                            \
        (void)j;                                                                                                       \
        STORE(OUT_AT(out, i), f(A, B, C));                                                                             \
    }                                                                                                                  \
    if (i < n) {                                                                                                       \
        int rest = (int)(n - i);                                                                                       \
        STORE_N(OUT_AT(out, i), f(A_N, B_N, C_N), rest);                                                               \
    }

#define RUN(k) load_part(AT(in[k], j), half)
#define RUN_N(k) LOAD_N(AT(in[k], i), rest)
#define COND_RUN v_load_bool((const char *)in[0] + j)
#define COND_RUN_N v_load_bool_n((const char *)in[0] + i, rest)
#define NONE K(0)

V_FN v_f32 one_of(const void *p) { /* element 0 in all lanes */
    float lanes[V_LANES];
    v_store(lanes, LOAD_N(p, 1));
    return v_set1(lanes[0]);
}

#define KERNEL_1(name)                                                                                                 \
    static void run_##name(int64_t n, const void *const *in, const int *step, void *out) {                             \
        if (step[0]) {                                                                                                 \
            LOOP(f_##name, RUN(0), NONE, NONE, RUN_N(0), NONE, NONE)                                                   \
        } else {                                                                                                       \
            v_f32 x = f_##name(one_of(in[0]), NONE, NONE);                                                             \
            LOOP(first_of, x, NONE, NONE, x, NONE, NONE)                                                               \
        }                                                                                                              \
    }
#define KERNEL_2(name)                                                                                                 \
    static void run_##name(int64_t n, const void *const *in, const int *step, void *out) {                             \
        if (step[0] && step[1]) {                                                                                      \
            LOOP(f_##name, RUN(0), RUN(1), NONE, RUN_N(0), RUN_N(1), NONE)                                             \
        } else if (step[0]) {                                                                                          \
            v_f32 y = one_of(in[1]);                                                                                   \
            LOOP(f_##name, RUN(0), y, NONE, RUN_N(0), y, NONE)                                                         \
        } else if (step[1]) {                                                                                          \
            v_f32 x = one_of(in[0]);                                                                                   \
            LOOP(f_##name, x, RUN(1), NONE, x, RUN_N(1), NONE)                                                         \
        } else {                                                                                                       \
            v_f32 x = f_##name(one_of(in[0]), one_of(in[1]), NONE);                                                    \
            LOOP(first_of, x, NONE, NONE, x, NONE, NONE)                                                               \
        }                                                                                                              \
    }
/* `where` is rare enough for one loop that chooses on the way; its bytes do not lie in pairs. */
#define KERNEL_3(name)                                                                                                 \
    static void run_##name(int64_t n, const void *const *in, const int *step, void *out) {                             \
        if (step[0] && step[1] && step[2]) {                                                                           \
            LOOP_BY(PLAIN_TURNS, f_##name, COND_RUN, RUN(1), RUN(2), COND_RUN_N, RUN_N(1), RUN_N(2))                   \
        } else {                                                                                                       \
            v_f32 x = v_set1(*(const unsigned char *)in[0]), y = one_of(in[1]), z = one_of(in[2]);                     \
            LOOP_BY(PLAIN_TURNS, f_##name, step[0] ? COND_RUN : x, step[1] ? RUN(1) : y, step[2] ? RUN(2) : z,         \
                    step[0] ? COND_RUN_N : x, step[1] ? RUN_N(1) : y, step[2] ? RUN_N(2) : z)                          \
        }                                                                                                              \
    }

V_FN v_f32 first_of(v_f32 a, v_f32 b, v_f32 c) {
    (void)b;
    (void)c;
    return a;
}

#define EP_POINTWISE(ID, name, aten, arity, flops, formula)                                                            \
    V_FN v_f32 f_##name(v_f32 a, v_f32 b, v_f32 c) {                                                                   \
        (void)b;                                                                                                       \
        (void)c;                                                                                                       \
        if (EP_OP_##ID == EP_OP_SILU) return SILU(a, formula);                                                         \
        return formula;                                                                                                \
    }                                                                                                                  \
    KERNEL_##arity(name)
#include <epilogue/pointwise.def>
#undef EP_POINTWISE

extern const ep_pointwise_table FAMILY;
const ep_pointwise_table FAMILY = {{
#define EP_POINTWISE(ID, name, aten, arity, flops, formula)                                                            \
    [EP_OP_##ID] = {run_##name, "ep_" TEXT(DT) "_" #name "_" SUFFIX},
#include <epilogue/pointwise.def>
#undef EP_POINTWISE
}};
