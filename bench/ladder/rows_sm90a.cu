/* Checks and times whole gated blocks of 17 to 128 rows: one kernel (rows_sm90a.cuh), its halves, and the pair it replaces.
 * nvcc -gencode=arch=compute_90a,code=sm_90a -O3 -std=c++17 -o /tmp/rows bench/ladder/rows_sm90a.cu -lcuda -lcublasLt
 * rows check | rows time | rows one M DIM HIDDEN | rows linear | rows tiles; -DSTAMPS: when CTAs reach what */
#include "few.cuh"
#include "../../src/run/backend/cuda/kernels/sm90a/rows_sm90a.cuh"
#include <unistd.h>

STREAM(sg128_224, 2, 224, 5, 1, true, ACT_GELU_TANH)
STREAM(sp64_64x2, 1, 64, 12, 2, false, ACT_NONE)
STREAM(sg128_128, 2, 128, 7, 1, true, ACT_GELU_TANH)

#define ROWS_KERNEL(name, XR, H, Y_STAGES)                                                                             \
    extern "C" __global__ void __launch_bounds__(ep::rows_shape<XR, H, 128, Y_STAGES>::threads, 1)                     \
        name(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap g,                             \
             const __grid_constant__ CUtensorMap u, const __grid_constant__ CUtensorMap h,                             \
             const __grid_constant__ CUtensorMap d, const ep::rows_args a) {                                           \
        ep::rows_body<ep::bf16_type, XR, H, 128, Y_STAGES, true>(&x, &g, &u, &h, &d, a);                               \
    }
/* name, rows of x, columns of h at most, stages of y */
#define ROWS_LIST(V)                                                                                                   \
    V(r128_96, 128, 96, 7)                                                                                             \
    V(r128_128, 128, 128, 7)                                                                                           \
    V(r64_128, 64, 128, 9)
ROWS_LIST(ROWS_KERNEL)

struct Rows {
    const void *fn;
    const char *name;
    int xr, h, out, ring, smem, threads;
};
#define ROWS_ROW(name, XR, H, Y_STAGES)                                                                                \
    {(const void *)name,                                                                                               \
     #name,                                                                                                            \
     XR,                                                                                                               \
     H,                                                                                                                \
     128,                                                                                                              \
     ep::rows_shape<XR, H, 128, Y_STAGES>::ring,                                                                       \
     ep::rows_shape<XR, H, 128, Y_STAGES>::total,                                                                      \
     ep::rows_shape<XR, H, 128, Y_STAGES>::threads},
static const Rows kinds[] = {ROWS_LIST(ROWS_ROW)};

enum { BOTH, FIRST, SECOND };
static const int STATE = 1 + 2 * (ep::ROWS_COUNTS + 512);
static unsigned long long *state;
static float4 *parts;

static int best_split(int columns, int blocks) {
    int best = 1;
    double least = 1e9;
    for (int s = 1; s <= 8 && s <= blocks && (s == 1 || columns * s <= 2 * sms); s++) {
        double t = (double)((columns * s + sms - 1) / sms) / s + 0.01 * s;
        if (t < least - 1e-9) least = t, best = s;
    }
    return best;
}

static int forced_split, forced_tile;

/* As many as bring the busiest multiprocessor to its end first. */
static int best_tile(const Rows &f, int n) {
    int best = f.h;
    long long least = 1ll << 60;
    for (int h = f.h; h >= 64; h -= 8) {
        long long c = (long long)(((n + h - 1) / h + sms - 1) / sms) * h;
        if (c < least) least = c, best = h;
    }
    return best;
}

static void launch(const Rows &f, int what, const bf *x, const bf *g, const bf *u, const bf *d, const bf *h, bf *y,
                   int m, int k, int n, int out, unsigned long long policy = ep::L2_NORMAL) {
    int rows = (m + 7) / 8 * 8;
    int tile = forced_tile ? forced_tile : best_tile(f, n);
    CUtensorMap mx = map2d(x, m, k, rows), mg = map2d(g, n, k, tile), mu = map2d(u, n, k, tile),
                mh = map2d(h, m, n, rows), md = map2d(d, out, n, f.out);
    ep::rows_args a = {};
    a.m = m;
    a.n = n;
    a.k = k;
    a.out = out;
    a.tiles = what == SECOND ? 0 : (n + tile - 1) / tile;
    a.tile_h = tile;
    a.stages = std::min<int>(ep::ROWS_STAGES, f.ring / (256 * tile + f.xr * 128));
    a.columns = what == FIRST ? 0 : (out + f.out - 1) / f.out;
    a.split = what == FIRST ? 1 : forced_split ? forced_split : best_split(a.columns, (n + 63) / 64);
    a.pieces = f.out / (a.split > 6 ? 16 : 32);
    a.x_rows = rows;
    a.h = (void *)h;
    a.y = y;
    a.parts = parts;
    a.h_row = n;
    a.y_row = out;
    a.state = state + STATE * (3 * (&f - kinds) + what);
    a.act = ep::ACT_GELU_TANH;
    a.eager = 1;
    a.policy_w = policy;
    void *args[] = {&mx, &mg, &mu, &mh, &md, &a};
    launch_ex(f.fn, sms, f.threads, f.smem, 1, stream, args);
}

static void old_gated(int bn, const bf *x, const bf *g, const bf *u, bf *h, int m, int k, int n) {
    if (m <= 64)
        launch_stream((const void *)sg64_128, 1, 128, ep::stream_shape<1, 128, 9, 1, 64>::total, 1, true, x, g, u, h, m,
                      n, k);
    else if (bn == 224)
        launch_stream((const void *)sg128_224, 2, 224, ep::stream_shape<2, 224, 5, 1, 128>::total, 1, true, x, g, u, h,
                      m, n, k);
    else
        launch_stream((const void *)sg128_128, 2, 128, ep::stream_shape<2, 128, 7, 1, 128>::total, 1, true, x, g, u, h,
                      m, n, k);
}

static void old_down(const bf *h, const bf *d, bf *y, int m, int n, int out) {
    if (m <= 64)
        launch_stream((const void *)sp64_128x8, 1, 128, ep::stream_shape<1, 128, 4, 8, 64>::total, 8, false, h, d, d, y,
                      m, out, n);
    else
        cublas(h, d, y, m, out, n, stream);
}

static void block(int m, int k, int n, int out, bool timed) {
    const int SETS = timed ? 3 : 1;
    size_t mk = (size_t)m * k, nk = (size_t)n * k, no = (size_t)n * out, mn = (size_t)m * n, mo = (size_t)m * out;
    bf *x = array(mk, 1, 1), *h = array(mn, 2, 1), *y = array(mo, 3, 1), *ref = array(mn, 4, 1),
       *ref2 = array(mo, 5, 1), *w[3][3];
    for (int i = 0; i < SETS; i++)
        for (int j = 0; j < 3; j++) w[i][j] = array(j == 2 ? no : nk, 10 * i + j, 1 / sqrtf(j == 2 ? n : k));
    printf("== %d x %d -> %d -> %d\n", m, k, n, out);
    refer(x, w[0][0], w[0][1], ref, m, n, k, true);
    refer(ref, w[0][2], w[0][2], ref2, m, out, n, false);
    int at = 0;
    double bytes = 2.0 * (2 * nk + no);
    CK(cudaMemset(state, 0, sizeof(long long) * STATE * 3 * (sizeof kinds / sizeof *kinds)));
    auto times = [&](const char *name, double moved, auto run) {
        printf("  %-24s", name);
        for (int p = 0; p < 2; p++) {
            pdl = p;
            double us = graph_us([&] { run(at++ % SETS); }, stream, 12);
            printf(" %s%.1f us %.2f TB/s;", p ? "pdl " : "", us, moved / us * 1e-6);
        }
        printf("\n");
        pdl = false;
        fflush(stdout);
    };
    for (auto &f : kinds) {
        if (m > f.xr || (m <= 64 && f.xr > 64) || forced_tile > f.h) continue;
        for (int halves = 0; halves < 2; halves++)
            for (int again = 0; again < 3; again++) { /* the counts must hold for the next */
                double worst, worst2;
                CK(cudaMemset(h, 0xff, mn * 2));
                CK(cudaMemset(y, 0xff, mo * 2));
                if (halves) {
                    launch(f, FIRST, x, w[0][0], w[0][1], w[0][2], h, y, m, k, n, out);
                    launch(f, SECOND, x, w[0][0], w[0][1], w[0][2], h, y, m, k, n, out);
                } else {
                    launch(f, BOTH, x, w[0][0], w[0][1], w[0][2], h, y, m, k, n, out);
                }
                CK(cudaDeviceSynchronize());
                double rms = compare(h, ref, m, n, &worst), rms2 = compare(y, ref2, m, out, &worst2);
                bool good = rms < 1e-3 && rms2 < 3e-3;
                if (!good || again == 2)
                    printf("  %-10s%s h rms %.1e worst %.3f, y rms %.1e worst %.3f%s\n", f.name,
                           halves ? " halves" : "", rms, worst, rms2, worst2, good ? "" : "  WRONG");
            }
        if (!timed) continue;
        auto run = [&](int what, int q, unsigned long long policy = ep::L2_NORMAL) {
            launch(f, what, x, w[q][0], w[q][1], w[q][2], h, y, m, k, n, out, policy);
        };
        std::string name = f.name;
        times((name + " one").c_str(), bytes, [&](int q) { run(BOTH, q); });
        times((name + " one, evict first").c_str(), bytes, [&](int q) { run(BOTH, q, ep::L2_EVICT_FIRST); });
        times((name + " first").c_str(), 4.0 * nk, [&](int q) { run(FIRST, q, ep::L2_EVICT_FIRST); });
        times((name + " second").c_str(), 2.0 * no, [&](int q) { run(SECOND, q, ep::L2_EVICT_FIRST); });
        times((name + " first+second").c_str(), bytes,
              [&](int q) { run(FIRST, q), run(SECOND, q, ep::L2_EVICT_FIRST); });
#ifdef STAMPS
        static unsigned long long t[132 * 8];
        run(BOTH, 1);
        CK(cudaDeviceSynchronize());
        CK(cudaMemset(h, 0, 4));
        static unsigned long long none[132 * 8];
        CK(cudaMemcpyToSymbol(stamps, none, sizeof none));
        run(BOTH, 2);
        CK(cudaDeviceSynchronize());
        CK(cudaMemcpyFromSymbol(t, stamps, sizeof t));
        unsigned long long zero = ~0ull;
        for (int c = 0; c < sms; c++) zero = std::min(zero, t[c * 8]);
        const char *names[8] = {"start", "h begun", "h summed", "h stored", "y begun", "y summed", "piece", "end"};
        for (int i = 0; i < 8; i++) {
            double sum = 0, most = 0, least = 1e9;
            int count = 0;
            for (int c = 0; c < sms; c++) {
                if (!t[c * 8 + i]) continue;
                double v = (double)(long long)(t[c * 8 + i] - zero) * 1e-3;
                sum += v, most = std::max(most, v), least = std::min(least, v), count++;
            }
            printf("      %-10s %.1f (%.1f to %.1f), %d\n", names[i], sum / std::max(count, 1), least, most, count);
        }
#endif
    }
    if (timed) {
        for (int bn : {224, 128}) {
            if (m <= 64 && bn == 224) continue;
            printf("bn %d\n", bn);
            times("before: gated", 4.0 * nk, [&](int q) { old_gated(bn, x, w[q][0], w[q][1], h, m, k, n); });
            times("before: both", bytes, [&](int q) {
                old_gated(bn, x, w[q][0], w[q][1], h, m, k, n);
                old_down(h, w[q][2], y, m, n, out);
            });
        }
        times("before: down", 2.0 * no, [&](int q) { old_down(h, w[q][2], y, m, n, out); });
        times("cublas down", 2.0 * no, [&](int q) { cublas(h, w[q][2], y, m, out, n, stream); });
    }
    fflush(stdout);
    for (bf *p : {x, h, y, ref, ref2}) cudaFree(p);
    for (int i = 0; i < SETS; i++)
        for (bf *p : w[i]) cudaFree(p);
}

/* y = x w^T alone by the kernel's second half, k in 1 to 8 parts, beside the streaming kernels and cuBLASLt. */
static void linear(int m, int k, int n, bool timed) {
    size_t nk = (size_t)n * k, mk = (size_t)m * k, mo = (size_t)m * n;
    int sets = timed ? (int)std::min<size_t>(12, 3 + (256 << 20) / (2 * nk)) : 1, at = 0;
    bf *x = array(mk, 1, 1), *y = array(mo, 3, 1), *ref = array(mo, 5, 1);
    std::vector<bf *> w;
    for (int i = 0; i < sets; i++) w.push_back(array(nk, 10 + i, 1 / sqrtf(k)));
    refer(x, w[0], w[0], ref, m, n, k, false);
    CK(cudaMemset(state, 0, sizeof(long long) * STATE * 3 * (sizeof kinds / sizeof *kinds)));
    printf("%d x %d -> %d, bytes' floor %.1f us:", m, k, n, 2e-6 * nk / 4.35);
    auto time = [&](const char *name, auto run) {
        double us[2] = {};
        for (int p = 0; p < (timed ? 2 : 0); p++) {
            pdl = p;
            us[p] = graph_us([&] { run(w[at++ % sets]); }, stream, 24);
        }
        pdl = false;
        CK(cudaMemset(y, 0xff, mo * 2));
        run(w[0]);
        CK(cudaDeviceSynchronize());
        double worst, rms = compare(y, ref, m, n, &worst);
        printf(" %s %.1f/%.1f%s", name, us[0], us[1], rms < 3e-3 ? "" : " WRONG");
    };
    time("cublas", [&](bf *v) { cublas(x, v, y, m, n, k, stream); });
    if (m <= 64)
        time("stream k8", [&](bf *v) {
            launch_stream((const void *)sp64_128x8, 1, 128, ep::stream_shape<1, 128, 4, 8, 64>::total, 8, false, x, v,
                          v, y, m, n, k);
        });
    if (m <= 64)
        time("stream k2", [&](bf *v) {
            launch_stream((const void *)sp64_64x2, 1, 64, ep::stream_shape<1, 64, 12, 2, 64>::total, 2, false, x, v, v,
                          y, m, n, k);
        });
    for (int s = 1; s <= 8 && s <= (k + 63) / 64; s++) {
        const Rows &f = *std::find_if(kinds, kinds + sizeof kinds / sizeof *kinds,
                                      [&](const Rows &r) { return m <= r.xr && (m > 64 || r.xr == 64); });
        int columns = (n + f.out - 1) / f.out;
        if (s > 1 && columns * s > 2 * sms) break;
        CK(cudaMemset(state, 0, sizeof(long long) * STATE * 3 * (sizeof kinds / sizeof *kinds)));
        forced_split = s;
        char name[16];
        snprintf(name, sizeof name, "| rows/%d", s);
        time(name, [&](bf *v) { launch(f, SECOND, x, v, v, v, x, y, m, 64, k, n, ep::L2_EVICT_FIRST); });
    }
    forced_split = 0;
    printf("\n");
    fflush(stdout);
    for (bf *p : {x, y, ref}) cudaFree(p);
    for (bf *p : w) cudaFree(p);
}

/* How wide tiles of h should be: each width of each kernel, the whole block. */
static void tiles(int m, int k, int n, const std::vector<int> &widths) {
    const int SETS = 3;
    size_t mk = (size_t)m * k, nk = (size_t)n * k, mn = (size_t)m * n;
    bf *x = array(mk, 1, 1), *h = array(mn, 2, 1), *y = array(mk, 3, 1), *w[SETS][3];
    for (int i = 0; i < SETS; i++)
        for (int j = 0; j < 3; j++) w[i][j] = array(nk, 10 * i + j, 1 / sqrtf(j == 2 ? n : k));
    printf("%d x %d -> %d, bytes' floor %.1f us:", m, k, n, 6e-6 * nk / 4.35);
    int at = 0;
    for (int tile : widths)
        for (auto &f : kinds) {
            if (m > f.xr || (m <= 64 && f.xr > 64) || tile > f.h) continue;
            CK(cudaMemset(state, 0, sizeof(long long) * STATE * 3 * (sizeof kinds / sizeof *kinds)));
            forced_tile = tile;
            double us[2];
            for (int p = 0; p < 2; p++) {
                pdl = p;
                us[p] = graph_us(
                    [&] {
                        bf **v = w[at++ % SETS];
                        launch(f, BOTH, x, v[0], v[1], v[2], h, y, m, k, n, k, ep::L2_EVICT_FIRST);
                    },
                    stream, 12);
            }
            pdl = false;
            printf(" %s/%d %.1f/%.1f", f.name, tile, us[0], us[1]);
        }
    forced_tile = 0;
    printf("\n");
    for (bf *p : {x, h, y}) cudaFree(p);
    for (int i = 0; i < SETS; i++)
        for (bf *p : w[i]) cudaFree(p);
}

int main(int argc, char **argv) {
    setvbuf(stdout, nullptr, _IOLBF, 1 << 16);
    alarm(50); /* a kernel that waits forever ends here */
    std::string what = argc > 1 ? argv[1] : "check";
    open_ladder();
    CK(cudaMalloc(&state, sizeof(long long) * STATE * 3 * (sizeof kinds / sizeof *kinds)));
    CK(cudaMalloc(&parts, 32 << 20));
    CK(cudaMemset(parts, 0xff, 32 << 20));
    if (what == "check") {
        block(128, 768, 3072, 768, false);
        block(17, 1032, 2000, 1032, false);
        block(100, 1032, 2048 + 64, 1032, false);
        block(65, 8 * 700, 1024, 5600, false);
        block(33, 200, 640, 200, false);
        block(64, 64, 64, 64, false);
        block(128, 8, 8, 8, false);
        block(127, 264, 132 * 112 * 3, 264, false);
        for (int tile : {56, 64, 72, 80, 88, 96, 104, 120}) {
            forced_tile = tile;
            block(tile > 96 ? 70 : 100, 264, 11008 - 8 * tile, 520, false);
            block(40, 520, 1208, 264, false);
        }
        forced_tile = 0;
        block(48, 520, 112, 5000, false);
        block(128, 64, 1000, 20000, false);
        block(128, 4096, 14336, 4096, false);
    } else if (what == "time") {
        block(128, 4096, 14336, 4096, true);
        block(64, 2048, 16384, 2048, true);
    } else if (what == "tiles") {
        static const struct {
            int k, n;
            std::vector<int> widths;
        } all[] = {{4096, 14336, {56, 112, 128}},         {2048, 16384, {64, 128}},
                   {4096, 11008, {88, 96, 112, 128, 64}}, {3584, 18944, {72, 80, 96, 112, 128}},
                   {4096, 12288, {96, 104, 112, 128}},    {5120, 17408, {72, 88, 112, 128}},
                   {2560, 9728, {80, 96, 112, 128}},      {5120, 13824, {56, 112, 128}}};
        for (auto &s : all)
            for (int m : {32, 64, 128}) tiles(m, s.k, s.n, s.widths);
    } else if (what == "linear") {
        for (int m : {17, 65, 128}) linear(m, 1032, 1000, false);
        static const int shapes[][2] = {{768, 3072},   {3072, 768},   {4096, 4096},  {4096, 6144},
                                        {4096, 14336}, {14336, 4096}, {2048, 16384}, {16384, 2048},
                                        {3584, 18944}, {18944, 3584}, {4096, 28672}, {8192, 8192}};
        for (auto &s : shapes)
            for (int m : {32, 64, 128}) linear(m, s[0], s[1], true);
    } else {
        int m = atoi(argv[2]), k = atoi(argv[3]), n = atoi(argv[4]);
        block(m, k, n, k, true);
    }
    return 0;
}
