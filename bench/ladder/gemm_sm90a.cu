/* Checks and times the sm_90a GEMM family and the decode kernels alone, beside cuBLASLt.
 * nvcc -gencode=arch=compute_90a,code=sm_90a -O3 -std=c++17 -o /tmp/ladder bench/ladder/gemm_sm90a.cu -lcuda -lcublasLt
 * Every output is poisoned, inputs are fresh random numbers, every element is compared with a plain kernel (f64 sums). */
#include "../../src/run/backend/cuda/kernels/sm90a/stream_sm90a.cuh"
#define EP_GEMM_NO_F16 /* bf16 only: the build stays short */
#include "../../src/run/backend/cuda/kernels/sm80/bf16_decode_sm80.cu"
#include "tiles.cuh"

#define STREAM(name, WGS, BN, STAGES, SPLIT, XROWS, ACCS, GATED, ACT)                                                  \
    extern "C" __global__ void __launch_bounds__(128 * WGS + 32, 1)                                                    \
        name(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap w0,                            \
             const __grid_constant__ CUtensorMap w1, const ep::stream_args a) {                                        \
        ep::stream_body<ep::bf16_type, WGS, BN, STAGES, SPLIT, XROWS, ACCS, GATED, ep::ACT, true>(&x, &w0, &w1, a);    \
    }
/* name, warpgroups of 64 rows, weight rows, stages, cluster rows, cluster columns, gated, activation */
#define TILE_LIST(V)                                                                                                   \
    V(g128c2, 2, 256, 4, 2, 1, true, ACT_GELU_TANH)                                                                    \
    V(g128c2_relu, 2, 256, 4, 2, 1, true, ACT_RELU)                                                                    \
    V(g128c2_s3, 2, 256, 3, 2, 1, true, ACT_GELU_TANH)                                                                 \
    V(p256c2, 2, 256, 4, 2, 1, false, ACT_NONE)                                                                        \
    V(p192c2, 2, 192, 4, 2, 1, false, ACT_NONE)                                                                        \
    V(p128c1, 2, 128, 6, 1, 1, false, ACT_NONE)                                                                        \
    V(p128c2, 2, 128, 6, 2, 1, false, ACT_NONE)
/* the same, the last: tiles handed over */
#define HANDED_LIST(V)                                                                                                 \
    V(h128c2x2, 2, 256, 3, 2, 1, true, 2)                                                                              \
    V(h128c2x1, 2, 256, 4, 2, 1, true, 1)
/* name, warpgroups, weight rows, stages, CTAs along k, rows of x, sums, gated, activation */
#define STREAM_LIST(V)                                                                                                 \
    V(sg16_128, 1, 128, 5, 1, 16, 1, true, ACT_GELU_TANH)                                                              \
    V(sg64_128, 1, 128, 9, 1, 64, 1, true, ACT_GELU_TANH)                                                              \
    V(sg128_224, 2, 224, 5, 1, 128, 1, true, ACT_GELU_TANH)                                                            \
    V(sg128_128, 2, 128, 7, 1, 128, 1, true, ACT_GELU_TANH)                                                            \
    V(sp16_32x2, 1, 32, 16, 2, 16, 1, false, ACT_NONE)                                                                 \
    V(sp64_64x2, 1, 64, 12, 2, 64, 2, false, ACT_NONE)                                                                 \
    V(sp64_64x4, 1, 64, 6, 4, 64, 2, false, ACT_NONE)                                                                  \
    V(sp64_128x8, 1, 128, 4, 8, 64, 1, false, ACT_NONE)                                                                \
    V(sp128_192x5, 2, 192, 5, 5, 128, 1, false, ACT_NONE)                                                              \
    V(sp128_256x6, 2, 256, 4, 6, 128, 1, false, ACT_NONE)
TILE_LIST(OWN)
HANDED_LIST(HANDED)
STREAM_LIST(STREAM)

struct Stream {
    const void *fn;
    const char *name;
    int wgs, bn, stages, split, smem;
    bool gated;
    int xrows;
};
static int wide = 132; /* CTAs of an unsplit streaming grid */
static const Tile tiles[] = {TILE_LIST(OWN_ROW) HANDED_LIST(HANDED_ROW)};
#define STREAM_ROW(name, WGS, BN, STAGES, SPLIT, XROWS, ACCS, GATED, ACT)                                              \
    {(const void *)name,                                                                                               \
     #name,                                                                                                            \
     WGS,                                                                                                              \
     BN,                                                                                                               \
     STAGES,                                                                                                           \
     SPLIT,                                                                                                            \
     ep::stream_shape<WGS, BN, STAGES, SPLIT, XROWS>::total,                                                           \
     GATED,                                                                                                            \
     XROWS},
static const Stream streams[] = {STREAM_LIST(STREAM_ROW)};

static void launch(const Stream &k, const bf *x, const bf *w0, const bf *w1, bf *y, int m, int n, int kk,
                   cudaStream_t s) {
    int rows = (m + 7) / 8 * 8, out = k.gated ? k.bn / 2 : k.bn;
    CUtensorMap mx = map2d(x, m, kk, rows), m0 = map2d(w0, n, kk, out), m1 = map2d(k.gated ? w1 : w0, n, kk, out);
    ep::stream_args a = {};
    a.m = m;
    a.n = n;
    a.k = kk;
    a.tiles = (n + out - 1) / out;
    a.x_bytes = rows * 128;
    a.y = y;
    a.y_row = n;
    a.policy_w = ep::L2_NORMAL;
    int grid = k.split > 1 ? a.tiles * k.split : std::min(wide, a.tiles);
    void *args[] = {&mx, &m0, &m1, &a};
    launch_ex(k.fn, grid, 128 * k.wgs + 32, k.smem, k.split, s, args);
}

static const Tile &tile_named(const char *name) {
    for (auto &t : tiles)
        if (!strcmp(t.name, name)) return t;
    exit(3);
}

static void many_rows(int m, int k, int n, int bits, bool zeros) {
    size_t mk = (size_t)m * k, nk = (size_t)n * k, mn = (size_t)m * n;
    bf *x = array(mk, 1, zeros ? 0.0f : 1.0f), *g = array(nk, 2, 1 / sqrtf(k)), *u = array(nk, 3, 1 / sqrtf(k)),
       *d = array(nk, 4, 1 / sqrtf(n)), *h = array(mn, 5, 1), *h2 = array(mn, 5, 1), *y = array(mk, 6, 1),
       *ref = array((size_t)ROWS * n, 7, 1), *ref2 = array((size_t)ROWS * k, 8, 1);
    double worst, flops = 2.0 * mn * k;
    refer(x, g, u, ref, m, n, k, true);
    printf("== %d x %d -> %d%s\n", m, k, n, zeros ? ", x zero" : "");
    bool timed = bits;
    int reps = mn > (1u << 26) ? 5 : 20;
    for (auto &t : tiles) {
        if (!t.gated) continue;
        CK(cudaMemset(h, 0xff, mn * 2));
        launch(t, x, g, u, h, m, n, k, 8, stream);
        CK(cudaDeviceSynchronize());
        double rms = compare(h, ref, m, n, &worst);
        double us = timed ? graph_us([&] { launch(t, x, g, u, h, m, n, k, 8, stream); }, stream, reps) : 0;
        printf("  %-12s rms %.1e worst %.3f  %.1f us %.0f TFLOP/s\n", t.name, rms, worst, us,
               us ? 2 * flops / us / 1e6 : 0);
        fflush(stdout);
    }
    launch(tile_named("g128c2"), x, g, u, h, m, n, k, 8, stream);
    CK(cudaDeviceSynchronize());
    refer(h, d, d, ref2, m, k, n, false);
    for (auto &t : tiles) {
        if (t.gated) continue;
        CK(cudaMemset(y, 0xff, mk * 2));
        launch(t, h, d, d, y, m, k, n, 8, stream);
        CK(cudaDeviceSynchronize());
        double rms = compare(y, ref2, m, k, &worst);
        double us = timed ? graph_us([&] { launch(t, h, d, d, y, m, k, n, 8, stream); }, stream, reps) : 0;
        printf("  down %-12s rms %.1e worst %.3f  %.1f us %.0f TFLOP/s\n", t.name, rms, worst, us,
               us ? flops / us / 1e6 : 0);
        fflush(stdout);
    }
    if (timed) {
        double c2 = graph_us(
            [&] {
                cublas(x, g, h, m, n, k, stream);
                cublas(x, u, h2, m, n, k, stream);
            },
            stream, reps);
        double cd = graph_us([&] { cublas(h, d, y, m, k, n, stream); }, stream, reps);
        printf("  cublas gate+up %.1f us (%.0f), down %.1f us (%.0f)\n", c2, 2 * flops / c2 / 1e6, cd,
               flops / cd / 1e6);
        for (const char *gate : {"g128c2", "h128c2x2", "h128c2x1"}) {
            const Tile &t = tile_named(gate);
            double all = graph_us(
                [&] {
                    launch(t, x, g, u, h, m, n, k, 8, stream);
                    cublas(h, d, y, m, k, n, stream);
                },
                stream, reps);
            printf("  block: %s + cublas %.1f us\n", gate, all);
            for (const char *down : {"p256c2", "p192c2", "p128c2"}) {
                const Tile &o = tile_named(down);
                double t2[2];
                for (int i = 0; i < 2; i++) {
                    pdl = i;
                    t2[i] = graph_us(
                        [&] {
                            launch(t, x, g, u, h, m, n, k, 8, stream);
                            launch(o, h, d, d, y, m, k, n, 8, stream);
                        },
                        stream, reps);
                }
                pdl = false;
                printf("  block: %s + %s %.1f us, pdl %.1f us\n", gate, down, t2[0], t2[1]);
            }
            fflush(stdout);
        }
    }
    for (bf *p : {x, g, u, d, h, h2, y, ref, ref2}) cudaFree(p);
}

/* The kernel in use for up to 16 rows. */
static void launch_sm80(bool gated, const bf *x, const bf *w0, const bf *w1, bf *y, int m, int n, int k) {
    ep::decode_args a = {};
    a.x = x;
    a.w0 = w0;
    a.w1 = w1;
    a.y = y;
    a.m = m;
    a.n = n;
    a.k = k;
    a.x_row = a.w0_row = a.w1_row = k;
    a.y_row = n;
    const void *fn = !gated ? (m <= 8 ? (const void *)ep_bf16_gemm_none_decode_sm80_m8_eager
                                      : (const void *)ep_bf16_gemm_none_decode_sm80_m16_eager)
                            : (m <= 8 ? (const void *)ep_bf16_gated_gemm_gelu_tanh_decode_sm80_m8_eager
                                      : (const void *)ep_bf16_gated_gemm_gelu_tanh_decode_sm80_m16_eager);
    void *args[] = {&a};
    launch_ex(fn, (n + 15) / 16, 256, 0, 1, stream, args);
}

static void few_rows(int m, int k, int n, bool timed) {
    const int SETS = 4;
    size_t mk = (size_t)m * k, nk = (size_t)n * k, mn = (size_t)m * n;
    bf *x = array(mk, 1, 1), *h = array(mn, 2, 1), *h2 = array(mn, 2, 1), *y = array(mk, 3, 1), *ref = array(mn, 4, 1),
       *ref2 = array(mk, 5, 1), *w[SETS][3];
    for (int i = 0; i < SETS; i++)
        for (int j = 0; j < 3; j++) w[i][j] = array(nk, 10 * i + j, 1 / sqrtf(j == 2 ? n : k));
    printf("== %d x %d -> %d\n", m, k, n);
    refer(x, w[0][0], w[0][1], ref, m, n, k, true);
    int at = 0, reps = 20;
    double worst, bytes = 2.0 * nk;
    CK(cudaMemcpy(h2, ref, mn * 2, cudaMemcpyDeviceToDevice));
    refer(ref, w[0][2], w[0][2], ref2, m, k, n, false);
    for (auto &t : streams) {
        if (m > t.xrows || m * 4 < t.xrows && m > 1 || (m == 1 && t.xrows > 16)) continue;
        bf *out = t.gated ? h : y;
        CK(cudaMemset(out, 0xff, (t.gated ? mn : mk) * 2));
        auto call = [&](int q) {
            if (t.gated)
                launch(t, x, w[q][0], w[q][1], h, m, n, k, stream);
            else
                launch(t, h2, w[q][2], w[q][2], y, m, k, n, stream);
        };
        call(0);
        CK(cudaDeviceSynchronize());
        double rms = compare(out, t.gated ? ref : ref2, m, t.gated ? n : k, &worst);
        double us = timed ? graph_us([&] { call(at++ % SETS); }, stream, reps) : 0;
        if (timed && t.gated && t.split == 1 && t.smem < 114 * 1024 && t.wgs == 1) {
            wide = 264;
            double twice = graph_us([&] { call(at++ % SETS); }, stream, reps);
            printf("    264 CTAs %.1f us\n", twice);
            wide = 132;
        }
        printf("  %s %-10s rms %.1e worst %.3f  %.1f us %.0f GB/s\n", t.gated ? "gate" : "down", t.name, rms, worst, us,
               us ? bytes * (t.gated ? 2 : 1) / us / 1e3 : 0);
        fflush(stdout);
    }
    if (timed) {
        if (m <= 16) {
            double g0 = graph_us(
                [&] {
                    int q = at++ % SETS;
                    launch_sm80(true, x, w[q][0], w[q][1], h, m, n, k);
                },
                stream, reps);
            double d0 = graph_us(
                [&] {
                    int q = at++ % SETS;
                    launch_sm80(false, h2, w[q][2], w[q][2], y, m, k, n);
                },
                stream, reps);
            printf("  sm80 gate %.1f us, down %.1f us\n", g0, d0);
        }
        double c0 = graph_us([&] { cublas(h2, w[at++ % SETS][2], y, m, k, n, stream); }, stream, reps);
        printf("  cublas down %.1f us\n", c0);
        for (auto &gt : streams) {
            if (!gt.gated || m > gt.xrows || (m * 4 < gt.xrows && m > 1) || (m == 1 && gt.xrows > 16)) continue;
            printf("  block pdl %-10s", gt.name);
            pdl = true;
            for (auto &dt : streams) {
                if (dt.gated || m > dt.xrows || (m * 4 < dt.xrows && m > 1) || (m == 1 && dt.xrows > 16)) continue;
                double all = graph_us(
                    [&] {
                        int q = at++ % SETS;
                        launch(gt, x, w[q][0], w[q][1], h, m, n, k, stream);
                        launch(dt, h, w[q][2], w[q][2], y, m, k, n, stream);
                    },
                    stream, reps);
                printf(" %s %.1f", dt.name + 2, all);
            }
            double mixed = graph_us(
                [&] {
                    int q = at++ % SETS;
                    launch(gt, x, w[q][0], w[q][1], h, m, n, k, stream);
                    cublas(h, w[q][2], y, m, k, n, stream);
                },
                stream, reps);
            printf(" cublas %.1f\n", mixed);
            pdl = false;
        }
        if (m <= 16) {
            double old[2];
            for (int p = 0; p < 2; p++) {
                pdl = p;
                old[p] = graph_us(
                    [&] {
                        int q = at++ % SETS;
                        launch_sm80(true, x, w[q][0], w[q][1], h, m, n, k);
                        launch_sm80(false, h, w[q][2], w[q][2], y, m, k, n);
                    },
                    stream, reps);
            }
            printf("  sm80 both %.1f, pdl %.1f us\n", old[0], old[1]);
        }
        pdl = false;
        double tc = graph_us(
            [&] {
                int q = at++ % SETS;
                cublas(x, w[q][0], h, m, n, k, stream);
                cublas(x, w[q][1], ref, m, n, k, stream);
                cublas(h, w[q][2], y, m, k, n, stream);
            },
            stream, reps);
        printf("  3 cublas %.1f us\n", tc);
        fflush(stdout);
    }
    for (bf *p : {x, h, h2, y, ref, ref2}) cudaFree(p);
    for (int q = 0; q < SETS; q++)
        for (int j = 0; j < 3; j++) cudaFree(w[q][j]);
}

/* What memory gives a kernel that only reads: 16 bytes a thread, four loads on the way. */
__global__ void read_all(const uint4 *p, size_t n, unsigned *out) {
    unsigned x = 0;
    size_t at = blockIdx.x * (size_t)1024 + threadIdx.x;
    uint4 v[4];
    for (int i = 0; i < 4; i++) v[i] = __ldcs(p + at + 256 * i);
    for (int i = 0; i < 4; i++) x ^= v[i].x ^ v[i].y ^ v[i].z ^ v[i].w;
    if (x == 0x12345678 && at + n == 1) *out = x;
}

static void reading() {
    for (size_t bytes : {(size_t)64 << 20, (size_t)128 << 20, (size_t)1 << 30}) {
        bf *p = array(bytes * 2, 1, 1);
        int at = 0;
        double us = graph_us(
            [&] {
                const char *q = (const char *)p + (at++ % 4) * bytes;
                read_all<<<(unsigned)(bytes / 16384), 256, 0, stream>>>((const uint4 *)q, bytes, (unsigned *)diff);
            },
            stream, 8);
        printf("reading %zu MiB: %.1f us, %.0f GB/s\n", bytes >> 20, us, bytes / us / 1e3);
        cudaFree(p);
    }
}

/* Time per block of 64 k and per tile: many_rows' first kernels at growing k, in short bursts that power does not limit. */
static void slopes(int m, int n) {
    int most = 3072;
    bf *x = array((size_t)m * most, 1, 1), *g = array((size_t)n * most, 2, 0.02f),
       *u = array((size_t)n * most, 3, 0.02f), *h = array((size_t)m * n, 4, 1), *h2 = array((size_t)m * n, 4, 1);
    printf("== slopes %d rows, %d columns; k 384 768 1536 3072\n", m, n);
    for (auto &t : tiles) {
        printf("  %-12s", t.name);
        for (int k : {384, 768, 1536, 3072})
            printf(" %.1f", graph_us([&] { launch(t, x, g, u, h, m, n, k, 8, stream); }, stream, 3));
        printf("\n");
        fflush(stdout);
    }
    printf("  cublas one  ");
    for (int k : {384, 768, 1536, 3072})
        printf(" %.1f", graph_us([&] { cublas(x, g, h, m, n, k, stream); }, stream, 3));
    printf("\n");
    for (bf *p : {x, g, u, h, h2}) cudaFree(p);
}

int main(int argc, char **argv) {
    std::string what = argc > 1 ? argv[1] : "all";
    open_ladder();
    for (auto &t : streams) {
        if (t.split < 3 || what == "many") continue;
        CK(cudaFuncSetAttribute(t.fn, cudaFuncAttributeMaxDynamicSharedMemorySize, t.smem));
        cudaLaunchConfig_t c = {};
        c.gridDim = 24 * t.split;
        c.blockDim = 128 * t.wgs + 32;
        c.dynamicSmemBytes = t.smem;
        cudaLaunchAttribute at[1];
        at[0].id = cudaLaunchAttributeClusterDimension;
        at[0].val.clusterDim.x = t.split;
        at[0].val.clusterDim.y = at[0].val.clusterDim.z = 1;
        c.attrs = at;
        c.numAttrs = 1;
        int count = 0;
        CK(cudaOccupancyMaxActiveClusters(&count, t.fn, &c));
        printf("%s: %d clusters of %d at once\n", t.name, count, t.split);
    }
    if (what == "all" || what == "check") {
        many_rows(256, 64, 128, 0, false);
        many_rows(300, 200, 328, 0, false);
        many_rows(1000, 1032, 1000, 0, false);
        few_rows(1, 72, 40, false);
        few_rows(13, 200, 328, false);
        few_rows(64, 1032, 1000, false);
        few_rows(16, 1032, 1000, false);
        few_rows(100, 1032, 1000, false);
        few_rows(128, 64, 4096, false);
    }
    if (what == "all" || what == "few") {
        few_rows(1, 2048, 16384, true);
        few_rows(16, 2048, 16384, true);
        few_rows(1, 768, 3072, true);
        few_rows(16, 4096, 14336, true);
        few_rows(64, 2048, 16384, true);
        few_rows(128, 4096, 14336, true);
    }
    if (what == "all" || what == "many") {
        many_rows(8192, 768, 3072, 1, false);
        many_rows(1024, 2048, 16384, 1, false);
        many_rows(8192, 2048, 16384, 1, false);
    }
    if (what == "all" || what == "large") many_rows(8192, 4096, 14336, 1, false);
    if (what == "all" || what == "few") reading();
    if (what == "slopes") slopes(8192, 3072);
    if (what == "one") many_rows(8192, 768, 3072, 0, false);
    return 0;
}
