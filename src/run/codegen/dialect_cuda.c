/* CUDA C for NVRTC; includes nothing. A pointwise item is eight adjacent elements (one thread, 16-byte accesses where the
 * addresses allow); a reducing item is a row (one block of 256 threads).
 *
 * A kernel is name(words, items): the argument block of loop.h by value, as a struct of int64, and how many items there
 * are. Launch epi_poi_* with blocks of 256 threads, a thread an item; epi_red_* with blocks of 256 threads, a block an
 * item; a smaller grid walks on by its own size. */
#include "dialect.h"
#include "emit_c.h"

static const char text[] =
    "#define K(x) ((float)(x))\n"
    "#define EP_FN static __device__ __forceinline__\n"
    "template <int N> struct ep_words { long long a[N]; };\n"
    "/* raw: as stored. at: element k of packed words; pack: the other way round. Packed conversions run at full "
    "rate,\n"
    " * single ones on the unit that also makes exponentials. */\n"
    "struct ep_f32 { enum { SIZE = 4 }; typedef float raw;\n"
    "    EP_FN float widen(raw v) { return v; }\n"
    "    EP_FN float at(const unsigned *h, int k) { return __uint_as_float(h[k]); }\n"
    "    template <int W> EP_FN void pack(unsigned *h, const float (&y)[W]) {\n"
    "        _Pragma(\"unroll\") for (int k = 0; k < W; k++) h[k] = __float_as_uint(y[k]); } };\n"
    "#define EP_HALF(convert) \\\n"
    "    enum { SIZE = 2 }; typedef unsigned short raw; \\\n"
    "    EP_FN unsigned two(float lo, float hi) { \\\n"
    "        unsigned h; asm(convert \" %0, %1, %2;\" : \"=r\"(h) : \"f\"(hi), \"f\"(lo)); return h; } \\\n"
    "    EP_FN float round(float x) { return widen((raw)two(x, 0.0f)); } \\\n"
    "    template <int W> EP_FN void pack(unsigned *h, const float (&y)[W]) { \\\n"
    "        _Pragma(\"unroll\") for (int k = 0; k < W; k += 2) h[k / 2] = two(y[k], k + 1 < W ? y[k + 1] : 0.0f); }\n"
    "struct ep_bf16 { EP_HALF(\"cvt.rn.bf16x2.f32\")\n"
    "    EP_FN float at(const unsigned *h, int k) {\n"
    "        return __uint_as_float(k % 2 ? h[k / 2] & 0xffff0000u : h[k / 2] << 16); }\n"
    "    EP_FN float widen(raw v) { return __uint_as_float((unsigned)v << 16); } };\n"
    "struct ep_f16 { EP_HALF(\"cvt.rn.f16x2.f32\")\n"
    "    EP_FN float at(const unsigned *h, int k) { return widen((raw)(h[k / 2] >> k % 2 * 16)); }\n"
    "    EP_FN float widen(raw v) { float f; asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(f) : \"h\"(v)); return f; } };\n"
    "struct ep_bool { enum { SIZE = 1 }; typedef unsigned char raw;\n"
    "    EP_FN float at(const unsigned *h, int k) { return (float)(h[k / 4] >> k % 4 * 8 & 0xff); }\n"
    "    EP_FN float widen(raw v) { return v; } };\n"
    "#define v_round_bf16(x) ep_bf16::round(x)\n"
    "#define v_round_f16(x) ep_f16::round(x)\n"
    "EP_FN float v_abs(float x) { return fabsf(x); }\n"
    "EP_FN float v_sqrt(float x) { return sqrtf(x); }\n"
    "EP_FN float v_exp(float x) { return expf(x); }\n"
    "EP_FN float v_log(float x) { return logf(x); }\n"
    "EP_FN float v_tanh(float x) { return tanhf(x); }\n"
    "EP_FN float v_erf(float x) { return erff(x); }\n"
    "EP_FN float v_min(float x, float y) { return x != x || x < y ? x : y; }\n"
    "EP_FN float v_max(float x, float y) { return x != x || x > y ? x : y; }\n"
    "EP_FN float v_select(float c, float x, float y) { return c != 0.0f ? x : y; }\n"
    "EP_FN float v_fma(float x, float y, float z) { return __fmaf_rn(x, y, z); }\n"
    "EP_FN float ep_exp2(float x) { float y; asm(\"ex2.approx.ftz.f32 %0, %1;\" : \"=f\"(y) : \"f\"(x)); return y; }\n"
    "EP_FN float ep_rcp(float x) { float y; asm(\"rcp.approx.ftz.f32 %0, %1;\" : \"=f\"(y) : \"f\"(x)); return y; }\n"
    "EP_FN float v_gelu_tanh(float x) {\n"
    "    return x * ep_rcp(1.0f + ep_exp2(x * __fmaf_rn(-0.1029432397f, x * x, -2.302208198f)));\n"
    "}\n"
    "EP_FN float v_gelu_erf(float x) { return 0.5f * x * (1.0f + erff(x * 0.7071067812f)); }\n"
    "EP_FN float v_silu(float x) { return x * ep_rcp(1.0f + ep_exp2(-1.4426950409f * x)); }\n"
    "/* W adjacent elements, kept as they were loaded, so that all loads are on their way before one is used: whole\n"
    " * words if they are all there and aligned, else one by one. Each is read or written once here: it need not\n"
    " * stay in a cache. */\n"
    "#define EP_WHOLE(p, m) ((m) == W && ((unsigned long long)(p) & 15) == 0)\n"
    "template <class T, int W> struct ep_vec {\n"
    "    enum { WORDS = W * T::SIZE / 16 };\n"
    "    union { uint4 w[WORDS + 1]; unsigned h[(W * T::SIZE + 3) / 4]; typename T::raw v[W]; };\n"
    "    __device__ __forceinline__ ep_vec() {}\n"
    "    __device__ __forceinline__ ep_vec(const char *p, int m) {\n"
    "        if (WORDS * 16 == W * T::SIZE && EP_WHOLE(p, m)) {\n"
    "            _Pragma(\"unroll\") for (int k = 0; k < WORDS; k++) w[k] = __ldcs((const uint4 *)p + k);\n"
    "        } else {\n"
    "            _Pragma(\"unroll\") for (int k = 0; k < W; k++) v[k] = k < m ? ((const typename T::raw *)p)[k] : "
    "typename T::raw();\n"
    "        }\n"
    "    }\n"
    "    __device__ __forceinline__ float operator[](int k) const { return T::at(h, k); }\n"
    "};\n"
    "template <class T, int W> EP_FN void ep_gather(float (&x)[W], const char *p, long long step, int m) {\n"
    "    _Pragma(\"unroll\") for (int k = 0; k < W; k++)\n"
    "        x[k] = k < m ? T::widen(*(const typename T::raw *)(p + k * step)) : 0.0f;\n"
    "}\n"
    "template <class T, int W> EP_FN void ep_store(char *p, const float (&y)[W], int m) {\n"
    "    ep_vec<T, W> t;\n"
    "    T::pack(t.h, y);\n"
    "    if (t.WORDS * 16 == W * T::SIZE && EP_WHOLE(p, m)) {\n"
    "        _Pragma(\"unroll\") for (int k = 0; k < t.WORDS; k++) __stcs((uint4 *)p + k, t.w[k]);\n"
    "    } else {\n"
    "        _Pragma(\"unroll\") for (int k = 0; k < W; k++)\n"
    "            if (k < m) ((typename T::raw *)p)[k] = t.v[k];\n"
    "    }\n"
    "}\n"
    "template <class T> EP_FN float ep_once(const char *p) { return T::widen(*(const typename T::raw *)p); }\n"
    "template <class T> EP_FN void ep_put(char *p, float v) { const float y[1] = {v}; ep_store<T, 1>(p, y, 1); }\n"
    "struct ep_sum { EP_FN float start() { return 0.0f; } EP_FN float join(float a, float b) { return a + b; } };\n"
    "struct ep_top { EP_FN float start() { return __int_as_float(0xff800000); }\n"
    "    EP_FN float join(float a, float b) { return a != a || a > b ? a : b; } };\n"
    "/* One value of a block of 256 threads, the same in each. */\n"
    "template <class J> EP_FN float ep_block(float v) {\n"
    "    __shared__ float part[8];\n"
    "    __syncthreads();\n"
    "    _Pragma(\"unroll\") for (int d = 16; d > 0; d >>= 1) v = J::join(v, __shfl_xor_sync(0xffffffffu, v, d));\n"
    "    if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = v;\n"
    "    __syncthreads();\n"
    "    v = part[0];\n"
    "    _Pragma(\"unroll\") for (int i = 1; i < 8; i++) v = J::join(v, part[i]);\n"
    "    return v;\n"
    "}\n";

static void preamble(ep_text *t, ep_isa isa) {
    (void)isa;
    ep_text_add(t, text);
}

static int word_count(const ep_loop *l) {
    int n = EP_LOOP_HEAD + l->outer;
    for (int k = 0; k < l->operand_count; k++) n += 1 + l->outer + (l->operands[k].walk == EP_WALK_STRIDED);
    return n;
}

static void open_kernel(ep_text *t, const ep_loop *l) {
    ep_text_printf(t,
                   "extern \"C\" __global__ void __launch_bounds__(256) %s(const __grid_constant__ ep_words<%d> words, "
                   "long long items) {\n",
                   l->name, word_count(l));
    if (l->reduces)
        ep_text_add(t, "    for (long long item = blockIdx.x; item < items; item += gridDim.x) {\n");
    else
        ep_text_add(t, "    const long long threads = (long long)gridDim.x * blockDim.x;\n"
                       "    for (long long item = (long long)blockIdx.x * blockDim.x + threadIdx.x; item < items; "
                       "item += threads) {\n");
    ep_emit_arguments(t, l, "long long", "words.a", "char *");
    ep_text_add(t, "        long long row = 0, piece = item;\n"
                   "        if (items != pieces) { /* more than one row; 64-bit division is slow */\n"
                   "            row = items <= 0x7fffffff ? (unsigned)item / (unsigned)pieces : item / pieces;\n"
                   "            piece = item - row * pieces;\n"
                   "        }\n");
    for (int i = l->outer - 1; i > 0; i--)
        ep_text_printf(t, "        const long long i%d = row %% d%d;\n        row /= d%d;\n", i, i, i);
    if (l->outer > 0) ep_text_add(t, "        const long long i0 = row;\n");
    for (int k = 0; k < l->operand_count && l->outer > 0; k++) {
        ep_text_printf(t, "        p%d += i0 * p%d_s0", k, k);
        for (int i = 1; i < l->outer; i++) ep_text_printf(t, " + i%d * p%d_s%d", i, k, i);
        ep_text_add(t, ";\n");
    }
}

static void close_kernel(ep_text *t, const ep_loop *l) {
    (void)l;
    ep_text_add(t, "    }\n}\n");
}

static void walk_open(ep_text *t, const ep_loop *l, ep_isa isa, bool tail) {
    (void)isa;
    (void)tail;
    if (l->reduces)
        ep_text_add(t, "        for (long long i = threadIdx.x; i < n; i += 256) {\n"
                       "            enum { W = 1 };\n            const int m = 1;\n");
    else
        ep_text_printf(t,
                       "        {\n            enum { W = %d };\n            const long long i = piece * W;\n"
                       "            const int m = n - i < W ? (int)(n - i) : W;\n",
                       EP_LOOP_DEVICE_CHUNK);
}

static void walk_close(ep_text *t, const ep_loop *l) {
    (void)l;
    ep_text_add(t, "        }\n");
}

static void lanes_open(ep_text *t) {
    ep_text_add(t, "            _Pragma(\"unroll\") for (int k = 0; k < W; k++) {\n");
}

static void lanes_close(ep_text *t) {
    ep_text_add(t, "            }\n");
}

static void load(ep_text *t, const ep_loop *l, const ep_stmt *s, int number, bool tail) {
    (void)number;
    (void)tail;
    const ep_loop_operand *o = &l->operands[s->operand];
    const char *type = ep_dtype_name(o->dtype);
    int k = s->operand, size = (int)ep_dtype_size(o->dtype);
    if (o->walk == EP_WALK_ONCE)
        ep_text_printf(t, "        const float x%d = ep_once<ep_%s>(p%d);\n", k, type, k);
    else if (o->walk == EP_WALK_STRIDED)
        ep_text_printf(t,
                       "            float x%d[W];\n            ep_gather<ep_%s>(x%d, p%d + i * p%d_s%d, p%d_s%d, m);\n",
                       k, type, k, k, k, l->outer, k, l->outer);
    else
        ep_text_printf(t, "            const ep_vec<ep_%s, W> x%d(p%d + i * %d, m);\n", type, k, k, size);
}

static void store(ep_text *t, const ep_loop *l, const ep_stmt *s, const char *what, bool tail) {
    (void)tail;
    const ep_loop_operand *o = &l->operands[s->operand];
    const char *type = ep_dtype_name(o->dtype);
    int k = s->operand;
    if (o->walk == EP_WALK_ONCE)
        ep_text_printf(t, "        if (threadIdx.x == 0) ep_put<ep_%s>(p%d, %s);\n", type, k, what);
    else
        ep_text_printf(t, "            ep_store<ep_%s>(p%d + i * %d, y%d, m);\n", type, k, (int)ep_dtype_size(o->dtype),
                       k);
}

static void declare_store(ep_text *t, const ep_stmt *s) {
    ep_text_printf(t, "            float y%d[W];\n", s->operand);
}

static void blocks_open(ep_text *t) {
    ep_text_add(t, "        for (long long i = threadIdx.x; i < n; i += 256) {\n"
                   "            enum { W = 1 };\n            const int m = 1;\n");
}

static void block_edge(ep_text *t, bool tail) {
    (void)t;
    (void)tail;
}

static void blocks_close(ep_text *t) {
    ep_text_add(t, "        }\n");
}

static const char *word(const ep_stmt *s) {
    return s->op == EP_OP_AMAX ? "top" : "sum";
}

static void reduce_begin(ep_text *t, const ep_stmt *s, int number) {
    ep_text_printf(t, "        float acc%d = ep_%s::start();\n", number, word(s));
}

static void reduce_step(ep_text *t, const ep_stmt *s, int number, const char *what, bool tail) {
    (void)tail;
    ep_text_printf(t, "acc%d = ep_%s::join(acc%d, %s);\n", number, word(s), number, what);
}

static void reduce_block(ep_text *t, const ep_stmt *s, int number) {
    (void)t;
    (void)s;
    (void)number;
}

static void reduce_end(ep_text *t, const ep_stmt *s, int number) {
    ep_text_printf(t, "        const float %s%d = ep_block<ep_%s>(acc%d);\n", word(s), number, word(s), number);
}

static bool needs_tail(ep_isa isa) {
    (void)isa;
    return false;
}

const ep_dialect ep_dialect_cuda = {
    .name = "cuda",
    .vec = "float",
    .lane = "[k]",
    .round = "v_round_%s(%s)",
    .number = "K(%.9g)",
    .one_part = true,
    .preamble = preamble,
    .open = open_kernel,
    .close = close_kernel,
    .walk_open = walk_open,
    .walk_close = walk_close,
    .lanes_open = lanes_open,
    .lanes_close = lanes_close,
    .load = load,
    .store = store,
    .declare_store = declare_store,
    .blocks_open = blocks_open,
    .block_open = block_edge,
    .block_close = block_edge,
    .blocks_close = blocks_close,
    .reduce_begin = reduce_begin,
    .reduce_step = reduce_step,
    .reduce_block = reduce_block,
    .reduce_end = reduce_end,
    .needs_tail = needs_tail,
};
