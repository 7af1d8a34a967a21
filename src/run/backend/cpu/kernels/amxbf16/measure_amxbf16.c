/* The ceiling of tdpbf16ps: 16x16 tiles of f32 sums over 32 bf16 products. */
#include "run/backend/cpu/measure.h"

#include <immintrin.h>

typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

/* Four sums over two left and two right tiles, the shape of a GEMM's inner loop. The permission for the tiles was asked
 * for by the caller; their configuration belongs to the thread and is given back. */
static double bf16_loop(int64_t rounds) {
    tile_config config = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        config.row_bytes[i] = 64;
        config.rows[i] = 16;
    }
    /* The intrinsic tells the compiler of 8 of the 64 bytes it reads. */
    __asm__ volatile("" : : "r"(&config) : "memory");
    _tile_loadconfig(&config);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    /* Ones: with zeros the unit draws less power and runs a fifth faster than with any data. */
    uint16_t ones[512];
    for (int i = 0; i < 512; i++) ones[i] = 0x3f80;
    __asm__ volatile("" : : "r"(ones) : "memory");
    _tile_loadd(4, ones, 64);
    _tile_loadd(5, ones, 64);
    _tile_loadd(6, ones, 64);
    _tile_loadd(7, ones, 64);
    for (int64_t r = 0; r < rounds; r++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_release();
    return (double)rounds * 4 * 16 * 16 * 32 * 2;
}

const ep_measure_loops ep_measure_amxbf16 = {NULL, bf16_loop, NULL, NULL};
