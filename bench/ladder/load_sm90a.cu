/* How fast the copy engine brings weights to shared memory, by order of access: nothing is computed with them.
 * nvcc -gencode=arch=compute_90a,code=sm_90a -O3 -std=c++17 -o /tmp/load bench/ladder/load_sm90a.cu -lcuda -lcublasLt */
#include "ladder.cuh"
#include "ring.cuh"

struct load_args {
    int units, per_row, rows, kb, mode, stages, stage, xrows; /* a unit: `rows` weight rows by 64 kb */
};

__device__ __forceinline__ void tma_load4(uint32_t dst, const CUtensorMap *map, int k, int rows, uint32_t bar) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
                 "[%1, {%2, %3, %4, %5}], [%6], %7;" ::"r"(dst),
                 "l"(map), "r"(0), "r"(0), "r"(k), "r"(rows), "r"(bar), "l"((unsigned long long)ep::L2_NORMAL)
                 : "memory");
}

__global__ void __launch_bounds__(64, 1)
    load_all(const __grid_constant__ CUtensorMap w, const __grid_constant__ CUtensorMap x, const load_args a) {
    extern __shared__ uint8_t raw[];
    Ring ring = open_ring(raw, a.stages);
    uint32_t base = ring.base, full = ring.full, empty = ring.empty;
    ep::launch_next_grid();
    int from = (int)((long long)a.units * blockIdx.x / gridDim.x),
        to = (int)((long long)a.units * (blockIdx.x + 1) / gridDim.x);
    int s = 0;
    if (threadIdx.x == 0) {
        uint32_t phase = 1;
        for (int u = from; u < to; u++) {
            int rb = u / a.per_row, kc = u % a.per_row;
            ep::mbar_wait(empty + 8 * s, phase);
            uint32_t at = base + s * a.stage, bar = full + 8 * s;
            ep::mbar_expect(bar, a.stage);
            if (a.mode == 1)
                tma_load4(at, &w, kc * a.kb, rb * (a.rows / 8), bar);
            else
                for (int i = 0; i < a.kb; i++)
                    if (a.mode == 0)
                        ep::tma_load(at + i * a.rows * 128, &w, (kc * a.kb + i) * 64, rb * a.rows, bar, ep::L2_NORMAL);
                    else
                        ep::tma_load(at + i * a.rows * 128, &w, 0, (u * a.kb + i) * a.rows, bar, ep::L2_NORMAL);
            if (a.xrows)
                for (int i = 0; i < a.kb; i++)
                    ep::tma_load(at + a.kb * a.rows * 128 + i * a.xrows * 128, &x, (kc * a.kb + i) * 64, 0, bar,
                                 ep::L2_NORMAL);
            if (++s == a.stages) s = 0, phase ^= 1;
        }
    } else if (threadIdx.x == 32) {
        uint32_t phase = 0;
        for (int u = from; u < to; u++) {
            ep::mbar_wait(full + 8 * s, phase);
            ep::mbar_arrive(empty + 8 * s);
            if (++s == a.stages) s = 0, phase ^= 1;
        }
    }
}

static CUtensorMap map4d(const void *p, long long rows, long long cols, int box_rows, int kb) {
    CUtensorMap m;
    cuuint64_t size[4] = {64, 8, (cuuint64_t)cols / 64, (cuuint64_t)rows / 8},
               stride[3] = {(cuuint64_t)cols * 2, 128, (cuuint64_t)cols * 16};
    cuuint32_t box[4] = {64, 8, (cuuint32_t)kb, (cuuint32_t)box_rows / 8}, one[4] = {1, 1, 1, 1};
    CK(cuTensorMapEncodeTiled(&m, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, (void *)p, size, stride, box, one,
                              CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                              CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
    return m;
}

static void matrix(int n, int k) {
    const int SETS = 3;
    bf *w[SETS], *x = array((size_t)128 * k, 9, 1);
    for (int i = 0; i < SETS; i++) w[i] = array((size_t)n * k, i, 1);
    printf("== %d x %d, %.0f MB\n", n, k, 2e-6 * n * k);
    CK(cudaFuncSetAttribute((const void *)load_all, cudaFuncAttributeMaxDynamicSharedMemorySize, 225 * 1024));
    static const int xs[] = {0, 16, 128};
    for (int ring : {200, 100})
        for (int mode = 0; mode < 3; mode++)
            for (int rows : {32, 64, 128, 256})
                for (int kb : {1, 2, 4})
                    for (int xr : xs) {
                        int stage = (rows + xr) * kb * 128, stages = std::min(ring * 1024 / stage, 32);
                        if (stages < 2 || rows * kb > 256 || (ring == 100 && (xr == 128 || mode == 2))) continue;
                        if (rows == 32 && xr == 128) continue;
                        load_args a = {n / rows * (k / 64 / kb), k / 64 / kb, rows, kb, mode, stages, stage, xr};
                        int at = 0;
                        double t[2];
                        for (int p = 0; p < 2; p++) {
                            pdl = p;
                            t[p] = graph_us(
                                [&] {
                                    bf *q = w[at++ % SETS];
                                    CUtensorMap m = mode == 0   ? map2d(q, n, k, rows)
                                                    : mode == 1 ? map4d(q, n, k, rows, kb)
                                                                : map2d(q, (long long)n * k / 64, 64, rows);
                                    CUtensorMap mx = map2d(x, 128, k, xr ? xr : 8);
                                    void *args[] = {&m, &mx, &a};
                                    launch_ex((const void *)load_all, 132, 64, stages * stage + 1024, 1, stream, args);
                                },
                                stream, 12);
                        }
                        pdl = false;
                        printf("  %s rows %3d k %3d x %3d ring %d x %d: %.1f us %.2f TB/s, pdl %.1f %.2f\n",
                               mode == 0   ? "boxes "
                               : mode == 1 ? "atoms "
                                           : "packed",
                               rows, kb * 64, xr, stages, stage, t[0], 2e-6 * n * k / t[0], t[1], 2e-6 * n * k / t[1]);
                    }
    fflush(stdout);
    cudaFree(x);
    for (bf *p : w) cudaFree(p);
}

/* The first half of a gated block as its kernels walk it: tiles of `rows` gate and `rows` up rows. */
struct walk_args {
    int tiles, blocks, rows, xrows, stages, stage, turn,
        runs; /* turn: by how many blocks a CTA's start is ahead of the one before */
};

__global__ void __launch_bounds__(64, 1)
    walk_all(const __grid_constant__ CUtensorMap g, const __grid_constant__ CUtensorMap up,
             const __grid_constant__ CUtensorMap x, const walk_args a) {
    extern __shared__ uint8_t raw[];
    Ring ring = open_ring(raw, a.stages);
    uint32_t base = ring.base, full = ring.full, empty = ring.empty;
    int each = (a.tiles + gridDim.x - 1) / gridDim.x, s = 0;
    int from = a.runs ? blockIdx.x * each : blockIdx.x, step = a.runs ? 1 : gridDim.x,
        to = a.runs ? min(a.tiles, from + each) : a.tiles;
    if (threadIdx.x == 0) {
        uint32_t phase = 1;
        for (int tile = from; tile < to; tile += step)
            for (int b = 0; b < a.blocks; b++) {
                int k = (b + blockIdx.x * a.turn) % a.blocks * 64;
                ep::mbar_wait(empty + 8 * s, phase);
                uint32_t at = base + s * a.stage, bar = full + 8 * s;
                ep::mbar_expect(bar, a.stage);
                ep::tma_load(at, &g, k, tile * a.rows, bar, ep::L2_NORMAL);
                ep::tma_load(at + a.rows * 128, &up, k, tile * a.rows, bar, ep::L2_NORMAL);
                if (a.xrows) ep::tma_load(at + a.rows * 256, &x, k, 0, bar, ep::L2_NORMAL);
                if (++s == a.stages) s = 0, phase ^= 1;
            }
    } else if (threadIdx.x == 32) {
        uint32_t phase = 0;
        for (int tile = from; tile < to; tile += step)
            for (int b = 0; b < a.blocks; b++) {
                ep::mbar_wait(full + 8 * s, phase);
                ep::mbar_arrive(empty + 8 * s);
                if (++s == a.stages) s = 0, phase ^= 1;
            }
    }
}

static void walk(int n, int k) {
    const int SETS = 3;
    bf *w[SETS][2], *x = array((size_t)128 * k, 9, 1);
    for (int i = 0; i < SETS; i++)
        for (int j = 0; j < 2; j++) w[i][j] = array((size_t)n * k + 65536, i, 1);
    printf("== gated %d x %d, %.0f MB\n", n, k, 4e-6 * n * k);
    CK(cudaFuncSetAttribute((const void *)walk_all, cudaFuncAttributeMaxDynamicSharedMemorySize, 225 * 1024));
    for (int rows : {48, 56, 64, 112, 128})
        for (int xr : {0, 8, 16, 128})
            for (int runs : {0, 1})
                for (int shift : {0, 1})
                    for (int turn : {0, 1, 5, 8}) {
                        if ((rows > 64 && xr && xr < 128) || (rows < 64 && xr == 128)) continue;
                        if ((runs || shift) && turn > 1) continue;
                        int stage = (2 * rows + xr) * 128, stages = std::min(200 * 1024 / stage, 32);
                        walk_args a = {(n + rows - 1) / rows, k / 64, rows, xr, stages, stage, turn, runs};
                        int at = 0;
                        double us = graph_us(
                            [&] {
                                bf *q = w[at % SETS][0], *p = w[at % SETS][1] + shift * 1024 * 8;
                                at++;
                                CUtensorMap m = map2d(q, n, k, rows), mu = map2d(p, n, k, rows),
                                            mx = map2d(x, 128, k, xr ? xr : 8);
                                void *args[] = {&m, &mu, &mx, &a};
                                launch_ex((const void *)walk_all, 132, 64, stages * stage + 1024, 1, stream, args);
                            },
                            stream, 12);
                        printf("  rows %3d x %3d runs %d shift %d turn %d: %.1f us %.2f TB/s\n", rows, xr, runs, shift,
                               turn, us, 4e-6 * n * k / us);
                    }
    cudaFree(x);
    for (auto &s : w)
        for (bf *p : s) cudaFree(p);
}

int main(int argc, char **argv) {
    setvbuf(stdout, nullptr, _IOLBF, 1 << 16);
    open_ladder();
    walk(16384, 2048);
    walk(14336, 4096);
    if (argc > 1) return 0;
    matrix(28672, 4096);
    matrix(4096, 14336);
    matrix(32768, 2048);
    matrix(2048, 16384);
    return 0;
}
