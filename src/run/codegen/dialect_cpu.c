/* C for the host over the vector vocabulary of base/simd, whose text stands in front of every file. */
#include "dialect.h"
#include "emit_c.h"
#include "model/tensor/tensor.h"

#include <string.h>

extern const char ep_embedded_simd_simd_avx512_h[], ep_embedded_simd_simd_avx2_h[], ep_embedded_simd_simd_scalar_h[],
    ep_embedded_simd_vmath_h[];

/* Loads that the vocabulary lacks: elements a stride apart, and one element in all lanes. */
static const char helpers[] =
    "#define EP_GATHER(dtype, type, load)                                                    \\\n"
    "    V_FN v_f32 ep_gather_##dtype(const char *p, long step, int m) {                     \\\n"
    "        type t[V_LANES];                                                                \\\n"
    "        for (int k = 0; k < V_LANES; k++) t[k] = 0;                                     \\\n"
    "        for (int k = 0; k < m; k++) __builtin_memcpy(&t[k], p + k * step, sizeof(type)); \\\n"
    "        return load(t);                                                                 \\\n"
    "    }                                                                                   \\\n"
    "    V_FN v_f32 ep_once_##dtype(const char *p) {                                         \\\n"
    "        type t[V_LANES], x;                                                             \\\n"
    "        __builtin_memcpy(&x, p, sizeof x);                                              \\\n"
    "        for (int k = 0; k < V_LANES; k++) t[k] = x;                                     \\\n"
    "        return load(t);                                                                 \\\n"
    "    }\n"
    "EP_GATHER(f32, float, v_load)\n"
    "EP_GATHER(bf16, unsigned short, v_load_bf16)\n"
    "EP_GATHER(f16, unsigned short, v_load_f16)\n"
    "EP_GATHER(bool, unsigned char, v_load_bool)\n"
    "#define EP_PUT(dtype, stream, store)                                                    \\\n"
    "    V_FN void ep_put_##dtype(char *p, v_f32 x, int past_caches) {                       \\\n"
    "        if (past_caches)                                                                \\\n"
    "            stream(p, x);                                                               \\\n"
    "        else                                                                            \\\n"
    "            store(p, x);                                                                \\\n"
    "    }\n"
    "EP_PUT(f32, v_stream, v_store)\n"
    "EP_PUT(bf16, v_stream_bf16, v_store_bf16)\n"
    "EP_PUT(f16, v_stream_f16, v_store_f16)\n"
    "V_FN void ep_put_pairs(char *p, const v_f32 *x, int past_caches) {\n"
    "    const v_i32 pairs = v_pairs_bf16(x[0], x[1]);\n"
    "    if (past_caches)\n"
    "        v_stream_pairs(p, pairs);\n"
    "    else\n"
    "        v_store_pairs(p, pairs);\n"
    "}\n"
    "#define v_load_f32 v_load\n"
    "#define v_load_f32_n v_load_n\n"
    "#define v_store_f32 v_store\n"
    "#define v_store_f32_n v_store_n\n";

/* Sums and maxima in the order of the eager row kernels: blocks of 1024 in four vectors, then a tree over the blocks. */
static const char reductions[] = "#define EP_BLOCK 1024\n"
                                 "typedef struct { v_f32 v[4]; float levels[56]; unsigned long blocks; } ep_sum;\n"
                                 "typedef struct { v_f32 v[4]; } ep_top;\n"
                                 "V_FN void ep_sum_clear(ep_sum *s) {\n"
                                 "    for (int u = 0; u < 4; u++) s->v[u] = K(0);\n"
                                 "}\n"
                                 "V_FN void ep_sum_begin(ep_sum *s) {\n"
                                 "    ep_sum_clear(s);\n"
                                 "    s->blocks = 0;\n"
                                 "}\n"
                                 "V_FN void ep_sum_step(ep_sum *s, v_f32 x, int u) {\n"
                                 "    s->v[u] = s->v[u] + x;\n"
                                 "}\n"
                                 "V_FN void ep_sum_tail(ep_sum *s, v_f32 x, int m) {\n"
                                 "    float t[V_LANES];\n"
                                 "    v_store(t, x);\n"
                                 "    s->v[0] = s->v[0] + v_load_n(t, m);\n"
                                 "}\n"
                                 "V_FN void ep_sum_block(ep_sum *s) {\n"
                                 "    float x = v_sum((s->v[0] + s->v[1]) + (s->v[2] + s->v[3]));\n"
                                 "    int level = 0;\n"
                                 "    for (; s->blocks >> level & 1; level++) x += s->levels[level];\n"
                                 "    s->levels[level] = x;\n"
                                 "    s->blocks++;\n"
                                 "    ep_sum_clear(s);\n"
                                 "}\n"
                                 "V_FN float ep_sum_end(const ep_sum *s) {\n"
                                 "    float total = 0;\n"
                                 "    for (int level = 0; s->blocks >> level; level++)\n"
                                 "        if (s->blocks >> level & 1) total += s->levels[level];\n"
                                 "    return total;\n"
                                 "}\n"
                                 "V_FN void ep_top_begin(ep_top *s) {\n"
                                 "    for (int u = 0; u < 4; u++) s->v[u] = K(-__builtin_inff());\n"
                                 "}\n"
                                 "V_FN void ep_top_step(ep_top *s, v_f32 x, int u) {\n"
                                 "    s->v[u] = v_max(s->v[u], x);\n"
                                 "}\n"
                                 "V_FN void ep_top_tail(ep_top *s, v_f32 x, int m) {\n"
                                 "    float t[V_LANES];\n"
                                 "    v_store(t, x);\n"
                                 "    for (int k = m; k < V_LANES; k++) t[k] = -__builtin_inff();\n"
                                 "    s->v[m < V_LANES] = v_max(s->v[m < V_LANES], v_load(t));\n"
                                 "}\n"
                                 "V_FN float ep_top_end(const ep_top *s) {\n"
                                 "    float t[V_LANES], best = -__builtin_inff();\n"
                                 "    v_store(t, v_max(v_max(s->v[0], s->v[1]), v_max(s->v[2], s->v[3])));\n"
                                 "    for (int k = 0; k < V_LANES; k++)\n"
                                 "        if (t[k] > best || t[k] != t[k]) best = t[k];\n"
                                 "    return best;\n"
                                 "}\n";

static void preamble(ep_text *t, ep_isa isa) {
    ep_text_add(t, isa >= EP_ISA_AVX512 ? ep_embedded_simd_simd_avx512_h
                   : isa == EP_ISA_AVX2 ? ep_embedded_simd_simd_avx2_h
                                        : ep_embedded_simd_simd_scalar_h);
    ep_text_add(t, ep_embedded_simd_vmath_h);
    ep_text_add(t, helpers);
    ep_text_add(t, reductions);
}

/* An output this large does not stay in the caches: it is stored past them, and the lines it would have displaced are
 * not read first. Measured on [8192, 3072]: f32 0.71 of the time, bf16 0.97 (docs/performance.md). */
enum { STREAM_BYTES = 32 << 20, AHEAD = 4096, MOST_AHEAD = 8 };

static bool streams(const ep_loop_operand *o) {
    return o->output && o->walk == EP_WALK_NEXT && ep_dtype_is_float(o->dtype);
}

static bool any_streams(const ep_loop *l) {
    for (int k = 0; k < l->operand_count; k++)
        if (streams(&l->operands[k])) return true;
    return false;
}

/* Whether item `piece` of a row is stored past the caches: a large whole, and whole vectors' addresses. */
static void declare_streams(ep_text *t, const ep_loop *l) {
    for (int k = 0; k < l->operand_count; k++) {
        if (!streams(&l->operands[k])) continue;
        ep_text_printf(t, "        const int past%d = n", k);
        for (int i = 0; i < l->outer; i++) ep_text_printf(t, " * d%d", i);
        ep_text_printf(t, " >= %ld && ((unsigned long)p%d & 63) == 0;\n        past |= past%d;\n",
                       (long)STREAM_BYTES / (long)ep_dtype_size(l->operands[k].dtype), k, k);
    }
}

static void open_kernel(ep_text *t, const ep_loop *l) {
    ep_text_printf(t, "void %s(const long *a, long begin, long end) {\n", l->name);
    ep_emit_arguments(t, l, "long", "a", "char *");
    ep_text_add(t, "    long piece = begin ? begin % pieces : 0, row = begin ? begin / pieces : 0;\n");
    for (int i = l->outer - 1; i > 0; i--) ep_text_printf(t, "    long i%d = row %% d%d;\n    row /= d%d;\n", i, i, i);
    if (l->outer > 0) ep_text_add(t, "    long i0 = row;\n");
    for (int k = 0; k < l->operand_count && l->outer > 0; k++) {
        ep_text_printf(t, "    p%d += i0 * p%d_s0", k, k);
        for (int i = 1; i < l->outer; i++) ep_text_printf(t, " + i%d * p%d_s%d", i, k, i);
        ep_text_add(t, ";\n");
    }
    if (any_streams(l)) ep_text_add(t, "    int past = 0; /* has anything been stored past the caches? */\n");
    ep_text_add(t, "    for (long item = begin; item < end; item++) {\n"
                   "        const long first = piece * chunk, last = first + chunk < n ? first + chunk : n;\n"
                   "        long i;\n");
    declare_streams(t, l);
}

/* To the next item: the next piece, or the next row by carrying from the innermost outer dim. */
static void close_kernel(ep_text *t, const ep_loop *l) {
    ep_text_add(t, "        if (++piece < pieces) continue;\n        piece = 0;\n");
    for (int i = l->outer - 1; i >= 0; i--) {
        for (int k = 0; k < l->operand_count; k++) {
            ep_text_printf(t, "        p%d += p%d_s%d", k, k, i);
            if (i + 1 < l->outer) ep_text_printf(t, " - d%d * p%d_s%d", i + 1, k, i + 1);
            ep_text_add(t, ";\n");
        }
        if (i > 0) ep_text_printf(t, "        if (++i%d < d%d) continue;\n        i%d = 0;\n", i, i, i);
    }
    ep_text_add(t, "    }\n");
    ep_text_add(t, any_streams(l) ? "    if (past) v_stream_end();\n}\n" : "}\n");
}

static bool needs_tail(ep_isa isa) {
    return isa >= EP_ISA_AVX2; /* one lane has no tail */
}

static void whole_steps(ep_text *t, const ep_loop *l, const char *step) {
    ep_text_printf(t, "        for (i = first; i + %s <= last; i += %s) {\n", step, step);
    for (int k = 0, ahead = 0; k < l->operand_count && ahead < MOST_AHEAD; k++) {
        const ep_loop_operand *o = &l->operands[k];
        if (o->output || o->walk != EP_WALK_NEXT) continue;
        ep_text_printf(t, "            __builtin_prefetch(p%d + i * %d + %d);\n", k, (int)ep_dtype_size(o->dtype),
                       AHEAD);
        ahead++;
    }
}

static void walk_open(ep_text *t, const ep_loop *l, ep_isa isa, bool tail) {
    if (!tail) {
        whole_steps(t, l, "V_LANES");
        return;
    }
    ep_text_printf(t, "        for (%s; i < last; i += V_LANES) {\n", needs_tail(isa) ? "" : "i = first");
    ep_text_add(t, "            const int m = last - i < V_LANES ? (int)(last - i) : V_LANES;\n");
}

static void walk_close(ep_text *t, const ep_loop *l) {
    (void)l;
    ep_text_add(t, "        }\n");
}

static void load(ep_text *t, const ep_loop *l, const ep_stmt *s, int number, bool tail) {
    (void)number;
    const ep_loop_operand *o = &l->operands[s->operand];
    const char *type = ep_dtype_name(o->dtype);
    int k = s->operand, size = (int)ep_dtype_size(o->dtype);
    if (o->walk == EP_WALK_ONCE)
        ep_text_printf(t, "        const v_f32 x%d = ep_once_%s(p%d);\n", k, type, k);
    else if (o->walk == EP_WALK_STRIDED)
        ep_text_printf(t, "            const v_f32 x%d = ep_gather_%s(p%d + i * p%d_s%d, p%d_s%d, %s);\n", k, type, k,
                       k, l->outer, k, l->outer, tail ? "m" : "V_LANES");
    else
        ep_text_printf(t, "            const v_f32 x%d = v_load_%s%s(p%d + i * %d%s);\n", k, type, tail ? "_n" : "", k,
                       size, tail ? ", m" : "");
}

static void store(ep_text *t, const ep_loop *l, const ep_stmt *s, const char *what, bool tail) {
    const ep_loop_operand *o = &l->operands[s->operand];
    const char *type = ep_dtype_name(o->dtype);
    int k = s->operand;
    if (o->walk == EP_WALK_ONCE)
        ep_text_printf(t, "        v_store_%s_n(p%d, %s, 1);\n", type, k, what);
    else if (!tail && streams(o))
        ep_text_printf(t, "            ep_put_%s(p%d + i * %d, %s, past%d);\n", type, k, (int)ep_dtype_size(o->dtype),
                       what, k);
    else
        ep_text_printf(t, "            v_store_%s%s(p%d + i * %d, %s%s);\n", type, tail ? "_n" : "", k,
                       (int)ep_dtype_size(o->dtype), what, tail ? ", m" : "");
}

/* In pairs: every step is two vectors, the elements of even and of odd number. */
static void pairs_open(ep_text *t, const ep_loop *l, ep_isa isa, bool tail) {
    (void)isa, (void)tail;
    whole_steps(t, l, "2 * V_LANES");
}

static void pairs_load(ep_text *t, const ep_loop *l, const ep_stmt *s, int number, bool tail) {
    (void)l, (void)number, (void)tail;
    int k = s->operand;
    ep_text_printf(t,
                   "            const v_i32 q%d = v_load_pairs(p%d + i * 2);\n"
                   "            const v_f32 x%d[2] = {v_first_bf16(q%d), v_second_bf16(q%d)};\n",
                   k, k, k, k, k);
}

static void pairs_declare(ep_text *t, const ep_stmt *s) {
    ep_text_printf(t, "            v_f32 y%d[2];\n", s->operand);
}

static void pairs_lanes(ep_text *t) {
    ep_text_add(t, "            _Pragma(\"GCC unroll 2\") for (int k = 0; k < 2; k++) {\n");
}

static void pairs_end(ep_text *t) {
    ep_text_add(t, "            }\n");
}

static void pairs_store(ep_text *t, const ep_loop *l, const ep_stmt *s, const char *what, bool tail) {
    (void)l, (void)what, (void)tail;
    ep_text_printf(t, "            ep_put_pairs(p%d + i * 2, y%d, past%d);\n", s->operand, s->operand, s->operand);
}

static void blocks_open(ep_text *t) {
    ep_text_add(t, "        for (long block = 0; block < n; block += EP_BLOCK) {\n"
                   "            const long stop = n - block < EP_BLOCK ? n : block + EP_BLOCK;\n"
                   "            i = block;\n");
}

static void block_open(ep_text *t, bool tail) {
    if (tail)
        ep_text_add(t, "            for (; i < stop; i += V_LANES) {\n"
                       "            const int m = stop - i < V_LANES ? (int)(stop - i) : V_LANES;\n");
    else
        ep_text_add(t, "            while (i + 4 * V_LANES <= stop)\n"
                       "            _Pragma(\"GCC unroll 4\") for (int u = 0; u < 4; u++, i += V_LANES) {\n");
}

static void block_close(ep_text *t, bool tail) {
    (void)tail;
    ep_text_add(t, "            }\n");
}

static void blocks_close(ep_text *t) {
    ep_text_add(t, "        }\n");
}

static const char *word(const ep_stmt *s) {
    return s->op == EP_OP_AMAX ? "top" : "sum";
}

static void reduce_begin(ep_text *t, const ep_stmt *s, int number) {
    ep_text_printf(t, "        ep_%s acc%d;\n        ep_%s_begin(&acc%d);\n", word(s), number, word(s), number);
}

static void reduce_step(ep_text *t, const ep_stmt *s, int number, const char *what, bool tail) {
    if (tail)
        ep_text_printf(t, "ep_%s_tail(&acc%d, %s, m);\n", word(s), number, what);
    else
        ep_text_printf(t, "ep_%s_step(&acc%d, %s, u);\n", word(s), number, what);
}

static void reduce_block(ep_text *t, const ep_stmt *s, int number) {
    if (s->op != EP_OP_AMAX) ep_text_printf(t, "            ep_sum_block(&acc%d);\n", number);
}

static void reduce_end(ep_text *t, const ep_stmt *s, int number) {
    ep_text_printf(t, "        const v_f32 %s%d = v_set1(ep_%s_end(&acc%d));\n", word(s), number, word(s), number);
}

static const ep_dialect in_pairs = {
    .vec = "v_f32",
    .lane = "[k]",
    .round = "v_round_%s(%s)",
    .number = "K(%.9g)",
    .short_words = true,
    .walk_open = pairs_open,
    .walk_close = walk_close,
    .lanes_open = pairs_lanes,
    .lanes_close = pairs_end,
    .declare_store = pairs_declare,
    .load = pairs_load,
    .store = pairs_store,
};

const ep_dialect ep_dialect_cpu = {
    .name = "cpu",
    .vec = "v_f32",
    .lane = "",
    .round = "v_round_%s(%s)",
    .number = "K(%.9g)",
    .short_words = true,
    .pairs = &in_pairs,
    .preamble = preamble,
    .open = open_kernel,
    .close = close_kernel,
    .walk_open = walk_open,
    .walk_close = walk_close,
    .load = load,
    .store = store,
    .blocks_open = blocks_open,
    .block_open = block_open,
    .block_close = block_close,
    .blocks_close = blocks_close,
    .reduce_begin = reduce_begin,
    .reduce_step = reduce_step,
    .reduce_block = reduce_block,
    .reduce_end = reduce_end,
    .needs_tail = needs_tail,
};
