/* Which ahead-of-time GEMM kernel a shape gets, on machines that are not here: tests/machines tells their chip, and what is
 * to be chosen. Every other row says why it was passed over. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <dirent.h>
#include <fnmatch.h>

#include "run/backend/cuda/cuda_select.h"

static ep_act act_of(const char *word) {
    for (int a = 0; a < EP_ACT_COUNT; a++)
        if (strcmp(ep_act_name((ep_act)a), word) == 0) return (ep_act)a;
    fail_msg("no activation %s", word);
    return EP_ACT_NONE;
}

static void check_reasons(const cuda_shape *s, int chosen) {
    for (int i = 0; i < (int)cuda_gemm_row_count; i++) {
        const char *why = cuda_select_reason(s, i);
        assert_non_null(why);
        assert_true(strlen(why) > 8);
        assert_int_equal(why == cuda_gemm_rows[i].why, i == chosen);
    }
}

static int check_line(const char *line, int major, int sm_count) {
    char kind[16], dtype[16], act[32], form[64];
    long long m, dim, hidden;
    if (sscanf(line, "%15s %15s %lld %lld %lld %31s %63s", kind, dtype, &m, &dim, &hidden, act, form) != 7) return 0;
    cuda_shape s = {.m = m, .n = hidden, .k = dim, .gated = strcmp(kind, "gated") == 0, .act = act_of(act)};
    s.dtype = strcmp(dtype, "f32") == 0 ? EP_DTYPE_F32 : strcmp(dtype, "f16") == 0 ? EP_DTYPE_F16 : EP_DTYPE_BF16;
    s.major = major;
    s.sm_count = sm_count;
    int row = cuda_select(&s);
    const char *got = row < 0 ? "none" : cuda_gemm_rows[row].form;
    if (fnmatch(form, got, 0) != 0) fail_msg("%s: %s is chosen, not %s", line, got, form);
    check_reasons(&s, row);
    if (row < 0) return 1;
    /* The symbol says dtype, kind, activation and form, so that a trace does. */
    const char *name = cuda_gemm_name(row, s.dtype, s.act, EP_ROUNDING_EAGER);
    assert_non_null(strstr(name, dtype));
    assert_non_null(strstr(name, got));
    assert_int_equal(strstr(name, "gated") != NULL, s.gated);
    return 1;
}

static int check_machine(const char *path) {
    FILE *f = fopen(path, "r");
    char line[256];
    int major = 0, minor = 0, sm_count = 0, lines = 0;
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        if (*line == '#') continue;
        if (sscanf(line, "capability %d.%d", &major, &minor) == 2) continue;
        if (sscanf(line, "multiprocessors %d", &sm_count) == 1) continue;
        assert_true(major > 0 && sm_count > 0);
        if (!check_line(line, major, sm_count)) fail_msg("%s: cannot read: %s", path, line);
        lines++;
    }
    fclose(f);
    return lines;
}

static void machines(void **state) {
    (void)state;
    DIR *d = opendir(EP_TEST_DIR "/machines");
    int files = 0;
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        char path[1024];
        if (fnmatch("*.machine", e->d_name, 0) != 0) continue;
        snprintf(path, sizeof path, "%s/machines/%s", EP_TEST_DIR, e->d_name);
        assert_true(check_machine(path) >= 15);
        files++;
    }
    closedir(d);
    assert_true(files >= 7);
}

/* Rows, odd sizes and chips without end: a choice never takes a row that it gives a reason against. */
static void never_against_a_reason(void **state) {
    (void)state;
    static const int64_t sizes[] = {1, 2, 7, 8, 9, 16, 17, 63, 128, 129, 352, 3001, 8192, 65537};
    const size_t n = sizeof sizes / sizeof *sizes;
    for (int major = 8; major <= 13; major++)
        for (size_t i = 0; i < n * n * n; i++)
            for (int act = 0; act < EP_ACT_COUNT; act++) {
                cuda_shape s = {
                    sizes[i % n], sizes[i / n % n],    sizes[i / n / n], EP_DTYPE_BF16, i % 3 != 0, (ep_act)act, major,
                    132,          (ep_rounding)(i % 2)};
                int row = cuda_select(&s);
                if (row >= 0) assert_string_equal(cuda_select_reason(&s, row), cuda_gemm_rows[row].why);
                if (row >= 0 && cuda_gemm_rows[row].max_m) assert_true(s.m <= cuda_gemm_rows[row].max_m);
                if (row >= 0 && cuda_gemm_rows[row].only_major) assert_int_equal(cuda_gemm_rows[row].only_major, major);
            }
}

/* Whole blocks in one kernel on an H200: rows, dim -> hidden, and what is chosen. */
static void blocks(void **state) {
    (void)state;
    static const struct {
        int64_t m, dim, hidden, out;
        const char *name;
    } all[] = {{1, 2048, 16384, 2048, "ep_bf16_gated_mlp_decode_sm90a_m8h64y16"},
               {16, 2048, 16384, 2048, "ep_bf16_gated_mlp_decode_sm90a_m16h64y16"},
               {8, 4096, 14336, 4096, "ep_bf16_gated_mlp_decode_sm90a_m8h56y32"},
               {9, 4096, 14336, 4096, "ep_bf16_gated_mlp_decode_sm90a_m16h56y32"},
               {17, 4096, 14336, 4096, "ep_bf16_gated_mlp_rows_sm90a_m64h128y128"},
               {64, 2048, 16384, 2048, "ep_bf16_gated_mlp_rows_sm90a_m64h128y128"},
               {64, 4096, 14330, 4096, NULL}, /* no multiple of 8 */
               {65, 4096, 14336, 4096, "ep_bf16_gated_mlp_rows_sm90a_m128h128y128"},
               {128, 4096, 14328, 4096, "ep_bf16_gated_mlp_rows_sm90a_m128h128y128"},
               {128, 2048, 16384, 2048, "ep_bf16_gated_mlp_rows_sm90a_m128h128y128"},
               {129, 4096, 14336, 4096, NULL},                                 /* too many rows */
               {64, 768, 3072, 768, NULL},                                     /* stays in the L2 */
               {1, 768, 3072, 768, "ep_bf16_gated_mlp_decode_sm90a_m8h64y16"}, /* stays in the L2 */
               {16, 512, 2048, 512, "ep_bf16_gated_mlp_decode_sm90a_m16h64y16"},
               {1, 512, 2048, 512, NULL},    /* so little that two replayed ones are as fast */
               {1, 4096, 14330, 4096, NULL}, /* no multiple of 64 */
               {1, 2044, 16384, 2048, NULL}, /* x in rows that the copy engine cannot read */
               {128, 4092, 14336, 4096, NULL},
               {32, 4096, 11008, 4096, "ep_bf16_gated_mlp_rows_sm90a_m64h128y128"},
               {128, 3584, 18944, 3584, "ep_bf16_gated_mlp_rows_sm90a_m128h96y128"},
               {1, 5120, 13824, 5120, "ep_bf16_gated_mlp_decode_sm90a_m8h64y16"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        cuda_shape s = {all[i].m, all[i].hidden, all[i].dim,       EP_DTYPE_BF16, true, EP_ACT_GELU_TANH,
                        9,        132,           EP_ROUNDING_EAGER};
        int row = cuda_select_block(&s, all[i].out, false);
        for (int k = 0; k < (int)cuda_block_row_count; k++) { /* every other row has a reason against it */
            const char *why = cuda_block_reason(&s, all[i].out, false, k);
            assert_true(strlen(why) > 8);
            assert_int_equal(strcmp(why, "the weights are read without a pause in the middle") == 0, k == row);
        }
        if (all[i].name) {
            assert_true(row >= 0);
            assert_string_equal(cuda_block_name(row, s.dtype), all[i].name);
            assert_true(s.m <= cuda_block_rows[row].rows);
            assert_true(cuda_block_shared(&cuda_block_rows[row]) <= 227 * 1024);
            assert_int_equal(cuda_block_threads(&cuda_block_rows[row]) % 32, 0);
        } else {
            assert_int_equal(row, -1);
        }
        s.major = 10;
        assert_int_equal(cuda_select_block(&s, all[i].out, false), -1);
    }
}

/* Rows made for one rounding are taken under that one alone. */
static void roundings(void **state) {
    (void)state;
    static const char *const forms[] = {"sm90a_t128x128c2", "sm90a_t128x96c2"};
    for (int r = EP_ROUNDING_EAGER; r <= EP_ROUNDING_FEWEST; r++) {
        cuda_shape s = {8192, 3072, 768, EP_DTYPE_F16, true, EP_ACT_SILU, 9, 132, (ep_rounding)r};
        int row = cuda_select(&s);
        assert_true(row >= 0);
        assert_string_equal(cuda_gemm_rows[row].form, forms[r]);
        check_reasons(&s, row);
        assert_false(cuda_select_library(&s, row, false));
    }
    static const int64_t tested[][2] = {
        {513, 4104}, {1025, 2120}, {700, 3001}, {2000, 1507}}; /* by in_turns on a device */
    for (size_t i = 0; i < sizeof tested / sizeof *tested; i++) {
        cuda_shape s = {tested[i][0], tested[i][1], 72, EP_DTYPE_BF16, true, EP_ACT_SILU, 9, 132, EP_ROUNDING_FEWEST};
        assert_string_equal(cuda_gemm_rows[cuda_select(&s)].form, forms[1]);
    }
    cuda_shape down = {8192, 768, 3072, EP_DTYPE_BF16, false, EP_ACT_NONE, 9, 132, EP_ROUNDING_EAGER};
    assert_true(cuda_select_library(&down, cuda_select(&down), false));
    assert_false(cuda_select_library(&down, cuda_select(&down), true));
    assert_true(cuda_select_library(&down, -1, true));
    static const struct {
        int64_t m, k, n;
        bool plain, more; /* the library's: alone, with a residual */
    } few[] = {{1, 4096, 4096, false, false},  {1, 4096, 14336, true, false},  {8, 768, 3072, true, false},
               {16, 4096, 14336, true, true},  {17, 768, 3072, true, true},    {128, 4096, 14336, true, true},
               {129, 4096, 14336, true, true}, {256, 4096, 14336, true, false}};
    for (size_t i = 0; i < sizeof few / sizeof *few; i++) {
        cuda_shape s = {few[i].m, few[i].n, few[i].k, EP_DTYPE_BF16, false, EP_ACT_NONE, 9, 132, EP_ROUNDING_EAGER};
        assert_int_equal(cuda_select_library(&s, cuda_select(&s), false), few[i].plain);
        assert_int_equal(cuda_select_library(&s, cuda_select(&s), true), few[i].more);
        s.act = EP_ACT_SILU;
        assert_int_equal(cuda_select_library(&s, cuda_select(&s), false), few[i].more);
    }
    cuda_shape up = {8192, 3072, 768, EP_DTYPE_BF16, false, EP_ACT_GELU_TANH, 9, 132, EP_ROUNDING_EAGER};
    assert_string_equal(cuda_gemm_rows[cuda_select(&up)].form, "sm90a_t128x192c2");
    assert_false(cuda_select_library(&up, cuda_select(&up), false));
    assert_true(cuda_select_library(&up, cuda_select(&up), true)); /* no kernel has both */
}

/* Plain products of more than 128 rows with an activation or a residual: ours where its tiles fill the chip. The last five are
 * those of in_turns on a device. */
static void middle_rows(void **state) {
    (void)state;
    static const struct {
        int64_t m, k, n;
        const char *form; /* NULL: the library's */
    } all[] = {{192, 2048, 16384, NULL},
               {256, 768, 3072, NULL},
               {256, 16384, 2048, NULL},
               {384, 16384, 4096, NULL},
               {2040, 3072, 768, NULL},
               {256, 2048, 16384, "sm90a_t128x256c2"},
               {512, 4096, 14336, "sm90a_t128x256c2"},
               {384, 4096, 16384, "sm90a_t128x128c1"},
               {1536, 16384, 4096, "sm90a_t128x192c2"},
               {1536, 1024, 4096, "sm90a_t128x192c2"},
               {2040, 768, 3072, "sm90a_t128x192c2"},
               {2047, 72, 4104, "sm90a_t128x192c2"},
               {2065, 8, 4104, "sm90a_t128x192c2"},
               {2800, 136, 2120, "sm90a_t128x192c2"},
               {250, 72, 16370, "sm90a_t128x256c2"},
               {380, 200, 5601, "sm90a_t128x128c1"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int residual = 0; residual < 2; residual++) {
            cuda_shape s = {
                all[i].m, all[i].n, all[i].k,         EP_DTYPE_BF16, false, residual ? EP_ACT_NONE : EP_ACT_RELU,
                9,        132,      EP_ROUNDING_EAGER};
            int row = cuda_select(&s);
            assert_true(row >= 0);
            check_reasons(&s, row);
            assert_int_equal(cuda_select_library(&s, row, residual), all[i].form == NULL);
            if (all[i].form) assert_string_equal(cuda_gemm_rows[row].form, all[i].form);
        }
    /* In turns with one tile each: a residual is hidden as it is, an activation is not. */
    cuda_shape one = {768, 4096, 16384, EP_DTYPE_BF16, false, EP_ACT_NONE, 9, 132, EP_ROUNDING_EAGER};
    assert_string_equal(cuda_gemm_rows[cuda_select(&one)].form, "sm90a_t128x192c2");
    assert_false(cuda_select_library(&one, cuda_select(&one), true));
    one.act = EP_ACT_SILU;
    assert_true(cuda_select_library(&one, cuda_select(&one), false));
}

/* How a result's k is divided: never into more parts than it has stages, or than there is room for. */
static void splits(void **state) {
    (void)state;
    static const struct {
        int64_t n, out;
        int parts;
    } all[] = {{14336, 4096, 4}, {16384, 2048, 8}, {14336, 5120, 3}, {64, 2048, 1}, {8192, 20000, 1}, {4096, 16896, 1}};
    for (size_t i = 0; i < cuda_block_row_count; i++) {
        const cuda_block_row *r = &cuda_block_rows[i];
        for (size_t j = 0; j < sizeof all / sizeof *all; j++) {
            int split = cuda_block_split(r, all[j].n, all[j].out, 132);
            assert_int_equal(split, r->parts ? all[j].parts : 1);
        }
        for (int64_t n = 8; n < 2000; n += 56)
            for (int64_t out = 1; out < 100000; out = 3 * out + 1) {
                int split = cuda_block_split(r, n, out, 132);
                assert_in_range(split, 1, (n + 63) / 64 < 8 ? (n + 63) / 64 : 8);
                if (split > 1) assert_true(split * cuda_block_columns(r, out) <= CUDA_BLOCK_PARTS * 132);
            }
    }
}

/* The same without a gate: the kernels' own tiles are as wide as both halves. */
static void blocks_without_gate(void **state) {
    (void)state;
    static const struct {
        int64_t m, dim, hidden;
        const char *name;
    } all[] = {{1, 4096, 16384, "ep_f16_mlp_decode_sm90a_m8h64y16"},
               {16, 768, 3072, "ep_f16_mlp_decode_sm90a_m16h64y16"},
               {32, 4096, 16384, "ep_f16_mlp_rows_sm90a_m64h128y128"},
               {128, 4096, 16384, "ep_f16_mlp_rows_sm90a_m128h96y128"}, /* 128 columns each */
               {128, 768, 3072, NULL},
               {129, 4096, 16384, NULL}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        cuda_shape s = {all[i].m, all[i].hidden, all[i].dim,       EP_DTYPE_F16, false, EP_ACT_SILU,
                        9,        132,           EP_ROUNDING_EAGER};
        int row = cuda_select_block(&s, all[i].dim, false);
        if (!all[i].name) {
            assert_int_equal(row, -1);
            continue;
        }
        assert_true(row >= 0);
        assert_string_equal(cuda_block_name(row, s.dtype), all[i].name);
        int tile = cuda_block_tile(&cuda_block_rows[row], s.n, 132);
        int64_t tiles = cuda_block_tiles(&cuda_block_rows[row], s.n, tile);
        assert_true(tiles * 2 * tile >= s.n && (tiles - 1) * 2 * tile < s.n);
    }
}

/* Tiles of hidden columns that leave the busiest of 132 multiprocessors the fewest, in stages that fit the ring. */
static void tiles(void **state) {
    (void)state;
    static const struct {
        int64_t n;
        int rows, h, tile;
    } all[] = {{14336, 64, 128, 112}, {14336, 128, 128, 112}, {16384, 128, 128, 128},
               {11008, 128, 96, 88},  {11008, 64, 128, 88},   {18944, 128, 96, 72},
               {18944, 64, 128, 72},  {12288, 128, 96, 96},   {8, 64, 128, 64}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        int found = 0;
        for (size_t k = 0; k < cuda_block_row_count; k++) {
            const cuda_block_row *r = &cuda_block_rows[k];
            if (!r->parts || !r->gated || r->rows != all[i].rows || r->h != all[i].h) continue;
            assert_int_equal(cuda_block_tile(r, all[i].n, 132), all[i].tile);
            found++;
        }
        assert_int_equal(found, 1);
    }
    for (size_t k = 0; k < cuda_block_row_count; k++) {
        const cuda_block_row *r = &cuda_block_rows[k];
        for (int64_t n = 8; n < 40000; n += 40) {
            int tile = cuda_block_tile(r, n, 132), stages = cuda_block_stages(r, tile);
            assert_in_range(tile, 1, r->h);
            assert_int_equal(tile % 8, 0);
            assert_true(stages >= 3);
            if (!r->parts) continue;
            int ring = r->y_stages * (r->y + r->rows) * 128, stage = (2 * tile + r->rows) * 128;
            assert_true(stages * stage <= ring);
            /* a product of h columns reads as many rows of weights, also where the tile has fewer */
            assert_true((stages - 1) * stage + (tile + r->h) * 128 <= ring);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(machines),  cmocka_unit_test(never_against_a_reason),
                                       cmocka_unit_test(roundings), cmocka_unit_test(middle_rows),
                                       cmocka_unit_test(blocks),    cmocka_unit_test(splits),
                                       cmocka_unit_test(tiles),     cmocka_unit_test(blocks_without_gate)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
