/* Two vectors of 32 words at a time, their formulas step by step beside each other. The processor's scheduler holds some
 * 97 operations, two vectors' worth: one chain after another, it fills with operations that wait for those before them
 * and both vector ports stand idle a fifth of the time. What is asked of the table is asked a turn ahead for the same
 * reason. Included by gated_template.h for 16-bit types on AVX-512. */

/* A's elements may be asked of the table: those of even place in bf16, in f16 the upper half, so that B's numbers are
 * where their conversion leaves them. The f16 unit needs act in f16: its table is of words. */
#if defined(TILE_DTYPE_BF16)
#define GATED_A_AT(p) TILE_A(v_bits(v_load(p)))
#define GATED_B_AT(p) TILE_B(v_bits(v_load(p)))
#define GATED_ASK(p) v_gather(r->table, TILE_INDEX_A(v_bits(v_load(p))))
#define GATED_HAS(r) ((r)->table != NULL)
#define GATED_WORDS_OF_B 0xaaaaaaaa
#else
#define GATED_A_AT(p) v_load_f16((p) + 32)
#define GATED_B_AT(p) v_load_f16(p)
#define GATED_INDEX(p) v_index16(*(const v_h16_any *)(const void *)(p))
#define GATED_WORDS_OF_B 0x0000ffff
#if defined(GATED_F16_UNIT)
#define GATED_ASK(p) v_float(gated_gather_words(r->words, GATED_INDEX((p) + 32)))
#define GATED_HAS(r) ((r)->words != NULL)
V_FN v_i32 gated_gather_words(const uint16_t *words, v_i32 index) { /* in the lower halves of lanes */
    return (v_i32)_mm512_mask_i32gather_epi32(_mm512_setzero_si512(), 0xffff, (__m512i)index, words, 2);
}
#else
#define GATED_ASK(p) v_gather(r->table, GATED_INDEX((p) + 32))
#define GATED_HAS(r) ((r)->table != NULL)
#endif
#endif

/* The compiler would put the chains one behind the other again. */
#define GATED_PIN(p)                                                                                                   \
    do {                                                                                                               \
        if (n == 2) __asm__ volatile("" : "+v"(p[0]), "+v"(p[1]));                                                     \
        if (n == 4) __asm__ volatile("" : "+v"(p[0]), "+v"(p[1]), "+v"(p[2]), "+v"(p[3]));                             \
    } while (0)
#define GATED_EACH _Pragma("GCC unroll 4") for (int c = 0; c < n; c++)
#define GATED_STEP_ALL(tables, k, x)                                                                                   \
    GATED_EACH y[c] = v_fma(y[c], x[c], v_lookup32(tables##_##k, at[c]));                                              \
    GATED_PIN(y)
#define GATED_QUADRATICS(tables)                                                                                       \
    do {                                                                                                               \
        v_i32 at[4];                                                                                                   \
        GATED_EACH at[c] = v_bits(v_fma(x[c], v_set1(ACT_QUADRATIC_SCALE), v_set1(ACT_QUADRATIC_MAGIC)));              \
        GATED_PIN(at);                                                                                                 \
        GATED_EACH y[c] = v_fma(v_lookup32(tables##_2, at[c]), x[c], v_lookup32(tables##_1, at[c]));                   \
        GATED_PIN(y);                                                                                                  \
        GATED_STEP_ALL(tables, 0, x);                                                                                  \
    } while (0)
#define GATED_QUARTICS(tables, magic, bits)                                                                            \
    do {                                                                                                               \
        v_f32 m[4], d[4];                                                                                              \
        v_i32 at[4];                                                                                                   \
        GATED_EACH m[c] = x[c] + v_set1(magic);                                                                        \
        GATED_PIN(m);                                                                                                  \
        GATED_EACH d[c] = V_REST(x[c], m[c], magic, bits);                                                             \
        GATED_EACH at[c] = v_bits(m[c]);                                                                               \
        GATED_EACH y[c] = v_fma(v_lookup32(tables##_4, at[c]), d[c], v_lookup32(tables##_3, at[c]));                   \
        GATED_PIN(y);                                                                                                  \
        GATED_STEP_ALL(tables, 2, d);                                                                                  \
        GATED_STEP_ALL(tables, 1, d);                                                                                  \
        GATED_STEP_ALL(tables, 0, d);                                                                                  \
    } while (0)

/* gated_near for n vectors, the same operations on each. */
V_FN void gated_near_all(const ep_act act, const int n, const v_f32 x[4], v_f32 y[4]) {
#if defined(TILE_DTYPE_BF16)
    if (act == EP_ACT_GELU_TANH) GATED_QUADRATICS(act_quadratic_tanh);
    if (act == EP_ACT_GELU_ERF) GATED_QUADRATICS(act_quadratic_erf);
    if (act == EP_ACT_SILU) GATED_QUADRATICS(act_quadratic_silu);
#else
    if (act == EP_ACT_GELU_TANH) GATED_QUARTICS(v_f16_tanh, 3145728.0f, 2);
    if (act == EP_ACT_GELU_ERF) GATED_QUARTICS(v_f16_erf, 3145728.0f, 2);
    if (act == EP_ACT_SILU) GATED_QUARTICS(v_f16_silu, 6291456.0f, 1);
#endif
}

/* Whether the words of the formula's vectors, all of them or those of B, are near 0 but not 0, added to what is known of
 * others. The range is a power of two long: of what is left after its least word, certain bits are 0. */
V_FN __mmask32 gated_inside(const ep_act act, const bool ask, v_i32 g, __mmask32 inside) {
#if defined(TILE_DTYPE_BF16)
    const short least = ACT_QUADRATIC_LEAST, outside = ACT_QUADRATIC_OUTSIDE;
    (void)act;
#else
    const short least = act == EP_ACT_SILU ? 0x07c0 : 0x03c0, outside = 0x4000; /* to 7.75, or 3.875 */
#endif
    __m512i w = _mm512_maskz_sub_epi16(ask ? GATED_WORDS_OF_B : 0xffffffff, (__m512i)g, _mm512_set1_epi16(least));
    return _mm512_mask_testn_epi16_mask(inside, w, _mm512_set1_epi16(outside));
}

/* act not yet rounded (or, of A, from the table) times up; words that need a second look leave `inside`. */
V_FN v_i32 gated_finish(const bool ask, v_f32 a, v_f32 b, v_i32 u, __mmask32 *inside) {
    (void)inside;
#if defined(GATED_F16_UNIT)
    const __m512i words = _mm512_set_epi32(0x1e001c, 0x1a0018, 0x160014, 0x120010, 0xe000c, 0xa0008, 0x60004, 0x20000,
                                           0, 0, 0, 0, 0, 0, 0, 0);
    __m512i low = _mm512_castsi256_si512((__m256i)v_f16(b)), act;
    act = ask ? _mm512_mask_permutexvar_epi16(low, 0xffff0000, words, (__m512i)v_bits(a))
              : _mm512_inserti64x4(low, (__m256i)v_f16(a), 1);
    return (v_i32)_mm512_castph_si512(_mm512_mul_ph(_mm512_castsi512_ph(act), _mm512_castsi512_ph((__m512i)u)));
#elif !defined(TILE_DTYPE_BF16)
    if (!ask) a = TILE_ROUND(a);
    return TILE_JOIN(TILE_ROUND(b) * TILE_A(u), a * TILE_B(u));
#else
    if (!ask) a = v_float(v_iadd(v_bits(a), v_iset1(0x8000)) & (int)0xffff0000);
    b = v_float(v_iadd(v_bits(b), v_iset1(0x8000)) & (int)0xffff0000);
#ifdef __AVX512BF16__
    /* The conversion takes denormals for zeros: zeros in the result tell of them. */
    v_i32 y = bf16_join_flushed(a * TILE_A(u), b * TILE_B(u));
    *inside = _mm512_mask_test_epi16_mask(*inside, (__m512i)y, _mm512_set1_epi16(0x7f80));
    return y;
#else
    return TILE_JOIN(a * TILE_A(u), b * TILE_B(u));
#endif
#endif
}

enum { NARROW = 256 /* elements below which one vector at a time is faster */ };

/* From element i on, two vectors a turn, by the formula of act_b or, where act_a asks the table, by both; the element
 * after the last. Rows whose gates lie far from 0 end early. */
static inline __attribute__((always_inline)) int64_t
gated_turns_of_two(const ep_gated_row *r, const ep_act act_a, const ep_act act_b, const bool eager, int64_t i) {
    const bool curve = act_b == EP_ACT_GELU_TANH || act_b == EP_ACT_GELU_ERF || act_b == EP_ACT_SILU;
    const bool ask = act_a == EP_ACT_COUNT;
    if (!eager || !curve || (ask && !GATED_HAS(r)) || r->n - i < NARROW) return i;
    const int n = ask ? 2 : 4;
    const char *g = (const char *)r->gate + i * 2, *u = (const char *)r->up + i * 2;
    char *out = (char *)r->out + i * 2;
    const float *table = r->table;
    const bool stream = r->stream;
    int64_t turns = (r->n - i) / (2 * TURN), end = i + turns * 2 * TURN;
    int patience = PATIENCE;
    v_f32 asked[2] = {{0}};
    if (ask) asked[0] = GATED_ASK(g), asked[1] = GATED_ASK(g + 64);
    for (; turns > 0; turns--, g += 128, u += 128, out += 128) {
        const char *next = turns > 1 ? g + 128 : g;
        for (int k = 0; k < 128; k += 64) {
            __builtin_prefetch(g + AHEAD + k, 0, 3);
            __builtin_prefetch(u + AHEAD + k, 0, 3);
        }
        v_f32 y[4], a[2] = {asked[0], asked[1]};
        v_f32 x[4] = {GATED_B_AT(g), GATED_B_AT(g + 64)};
        if (!ask) x[2] = GATED_A_AT(g), x[3] = GATED_A_AT(g + 64);
        if (ask) asked[0] = GATED_ASK(next);
        gated_near_all(act_b, n, x, y);
        if (ask) asked[1] = GATED_ASK(next + 64);
        if (!ask) a[0] = y[2], a[1] = y[3];
        v_i32 g0 = v_bits(v_load(g)), g1 = v_bits(v_load(g + 64));
        __mmask32 inside = gated_inside(act_b, ask, g1, gated_inside(act_b, ask, g0, 0xffffffff));
        v_i32 y0 = gated_finish(ask, a[0], y[0], v_bits(v_load(u)), &inside);
        v_i32 y1 = gated_finish(ask, a[1], y[1], v_bits(v_load(u + 64)), &inside);
        if (__builtin_expect(!_kortestc_mask32_u8(inside, inside), 0)) {
            y0 = gated_piece(act_a, act_b, true, table, g, u);
            y1 = gated_piece(act_a, act_b, true, table, g + 64, u + 64);
            patience--;
        }
        GATED_PUT(stream, out, y0);
        GATED_PUT(stream, out + 64, y1);
        if (patience < 0) return end - (turns - 1) * 2 * TURN;
    }
    return end;
}
