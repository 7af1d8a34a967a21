/* Checks and times blocks of 129 rows and more: every tile for gate and up, and for up with an activation, beside cuBLASLt and a
 * pass; down by cuBLASLt; down with a residual. What comes later in the list finds a warmer card: compare neighbours, and see
 * `bench_gpu turns` for what is due to that.
 * nvcc -gencode=arch=compute_90a,code=sm_90a -O3 -std=c++17 -o /tmp/middle bench/ladder/middle_sm90a.cu -lcuda -lcublasLt
 * /tmp/middle M,DIM,HIDDEN ... */
#include "../../src/run/backend/cuda/kernels/sm90a/turns_sm90a.cuh"
#include "tiles.cuh"
#define TURNS(name, WGS, BN, STAGES, CM, CN, GATED, ACT)                                                               \
    KERNEL(name, WGS, ep::turns_body<ep::bf16_type, BN, STAGES, CM, GATED, ep::ACT, true>)
#define TURNS_ROW(name, WGS, BN, STAGES, CM, CN, GATED, ACT)                                                           \
    {(const void *)name, #name, WGS, BN, STAGES, CM, CN, ep::turns_shape<BN, STAGES, GATED>::total, GATED, 32},
/* name, warpgroups, weight rows, stages, cluster rows, cluster columns, gated, activation (handed: buffers) */
#define HANDED_LIST(V)                                                                                                 \
    V(handed_c2, 2, 256, 3, 2, 1, true, 2)                                                                             \
    V(handed_c1, 2, 256, 3, 1, 1, true, 2)
#define OWN_LIST(V)                                                                                                    \
    V(g64c1, 2, 128, 6, 1, 1, true, ACT_GELU_TANH)                                                                     \
    V(g64c2, 2, 128, 6, 2, 1, true, ACT_GELU_TANH)                                                                     \
    V(g128c2, 2, 256, 4, 2, 1, true, ACT_GELU_TANH)                                                                    \
    V(g128c1, 2, 256, 4, 1, 1, true, ACT_GELU_TANH)                                                                    \
    V(p128c1, 2, 128, 6, 1, 1, false, ACT_GELU_TANH)                                                                   \
    V(p128c2, 2, 128, 6, 2, 1, false, ACT_GELU_TANH)                                                                   \
    V(p192c1, 2, 192, 4, 1, 1, false, ACT_GELU_TANH)                                                                   \
    V(p256c2, 2, 256, 4, 2, 1, false, ACT_GELU_TANH)                                                                   \
    V(p256c1, 2, 256, 4, 1, 1, false, ACT_GELU_TANH)
#define TURNS_LIST(V)                                                                                                  \
    V(tg96c2, 2, 192, 5, 2, 1, true, ACT_GELU_TANH)                                                                    \
    V(tg96c1, 2, 192, 5, 1, 1, true, ACT_GELU_TANH)                                                                    \
    V(tp192c2, 2, 192, 5, 2, 1, false, ACT_GELU_TANH)                                                                  \
    V(tp192c1, 2, 192, 5, 1, 1, false, ACT_GELU_TANH)
#define RESIDUAL_LIST(V)                                                                                               \
    V(r128c1, 2, 128, 6, 1, 1, false, ACT_NONE)                                                                        \
    V(r256c2, 2, 256, 4, 2, 1, false, ACT_NONE)
#define RESIDUAL_TURNS_LIST(V) V(rt192c2, 2, 192, 5, 2, 1, false, ACT_NONE)
HANDED_LIST(HANDED)
OWN_LIST(OWN)
TURNS_LIST(TURNS)
RESIDUAL_LIST(OWN)
RESIDUAL_TURNS_LIST(TURNS)
static const Tile tiles[] = {HANDED_LIST(HANDED_ROW) OWN_LIST(OWN_ROW) TURNS_LIST(TURNS_ROW)};
static const Tile with_residual[] = {RESIDUAL_LIST(OWN_ROW) RESIDUAL_TURNS_LIST(TURNS_ROW)};

__global__ void pass(const uint4 *g, const uint4 *u, uint4 *y, size_t n, bool gated) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= n) return;
    uint4 a = g[i], b = gated ? u[i] : a, r;
    const uint32_t *p = &a.x, *q = &b.x;
    uint32_t *o = &r.x;
    for (int k = 0; k < 4; k++) {
        uint32_t w =
            ep::bf16_type::pack(ep::gelu_tanh(ep::bf16_type::low(p[k])), ep::gelu_tanh(ep::bf16_type::high(p[k])));
        o[k] = gated ? ep::bf16_type::multiply(w, q[k]) : w;
    }
    y[i] = r;
}
static void run_pass(const bf *g, const bf *u, bf *y, size_t n, bool gated) {
    pass<<<(unsigned)((n / 8 + 255) / 256), 256, 0, stream>>>((const uint4 *)g, (const uint4 *)u, (uint4 *)y, n / 8,
                                                              gated);
}

__global__ void add(const uint4 *g, const uint4 *u, uint4 *y, size_t n) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= n) return;
    uint4 a = g[i], b = u[i], r;
    const uint32_t *p = &a.x, *q = &b.x;
    for (int k = 0; k < 4; k++)
        (&r.x)[k] = ep::bf16_type::pack(ep::bf16_type::low(p[k]) + ep::bf16_type::low(q[k]),
                                        ep::bf16_type::high(p[k]) + ep::bf16_type::high(q[k]));
    y[i] = r;
}
static void launch_residual(const Tile &t, const bf *x, const bf *w0, const bf *res, bf *y, int m, int n, int k) {
    int part = t.bn / std::max(2, t.cm), rows = 64 * t.wgs, down = rows * t.cm;
    CUtensorMap mx = map2d(x, m, k, rows), m0 = map2d(w0, n, k, part), my = map2d(y, m, n, 64, t.box);
    ep::gemm_args a = arguments(m, n, k, (m + down - 1) / down, (n + t.bn - 1) / t.bn, 8);
    a.residual = res;
    a.residual_row = n;
    void *args[] = {&mx, &m0, &m0, &my, &a};
    launch_ex(t.fn, std::min(132 / t.cm, a.tiles_m * a.tiles_n) * t.cm, 128 * (t.wgs + 1), t.smem, t.cm, stream, args);
}

struct Shape {
    int m, k, n, sets, at, reps;
    size_t mk, nk, mn;
    bf *x, *h, *h2, *h3, *y, *w[2][3];
    Shape(int m, int k, int n) : m(m), k(k), n(n), at(0), mk((size_t)m * k), nk((size_t)n * k), mn((size_t)m * n) {
        sets = nk * 6 > (100u << 20) ? 2 : 1;
        reps = (double)mn * k > 2e10 ? 10 : 30;
        x = array(mk, 1, 1), h = array(mn, 5, 1), h2 = array(mn, 6, 1), h3 = array(mn, 6, 1), y = array(mk, 7, 1);
        for (int s = 0; s < sets; s++)
            for (int i = 0; i < 3; i++) w[s][i] = array(nk, 10 * s + i + 2, 1 / sqrtf(i == 2 ? n : k));
    }
    ~Shape() {
        for (bf *p : {x, h, h2, h3, y}) cudaFree(p);
        for (int s = 0; s < sets; s++)
            for (bf *p : w[s]) cudaFree(p);
    }
    template <typename F> double time(F f) {
        return graph_us([&] { f(w[at++ % sets]); }, stream, reps);
    }
};

/* h3 holds what the library's way gives. */
static void first_product(Shape &s, bool gated) {
    auto library = [&](bf **q, bf *h, bf *h2, bf *out) {
        cublas(s.x, q[0], h, s.m, s.n, s.k, stream);
        if (gated) cublas(s.x, q[1], h2, s.m, s.n, s.k, stream);
        run_pass(h, h2, out, s.mn, gated);
    };
    auto down = [&](bf **q) { cublas(s.h, q[2], s.y, s.m, s.k, s.n, stream); };
    library(s.w[0], s.h, s.h2, s.h3);
    CK(cudaDeviceSynchronize());
    double one = s.time([&](bf **q) { cublas(s.x, q[0], s.h, s.m, s.n, s.k, stream); });
    double both = s.time([&](bf **q) { library(q, s.h, s.h2, s.h); });
    double all = s.time([&](bf **q) { library(q, s.h, s.h2, s.h), down(q); });
    printf("  %s cublas one %.1f, with pass %.1f, block %.1f\n", gated ? "gated" : "mlp", one, both, all);
    for (auto &t : tiles) {
        if (t.gated != gated) continue;
        double worst, best = 1e9, block = 1e9;
        auto own = [&](bf **q) { launch(t, s.x, q[0], q[1], s.h, s.m, s.n, s.k, 8, stream); };
        CK(cudaMemset(s.h, 0xff, s.mn * 2));
        own(s.w[0]);
        CK(cudaDeviceSynchronize());
        double rms = check(s.h, s.h3, s.mn, &worst);
        for (int i = 0; i < 2; i++) {
            best = std::min(best, s.time(own));
            block = std::min(block, s.time([&](bf **q) { own(q), down(q); }));
        }
        printf("    %-10s %.1f block %.1f (rms %.0e%s)\n", t.name, best, block, rms, rms < 3e-3 ? "" : " WRONG");
        fflush(stdout);
    }
}

static void down_with_residual(Shape &s) {
    bf *r = array(s.mk, 77, 1), *e = array(s.mk, 78, 1);
    unsigned blocks = (unsigned)((s.mk / 8 + 255) / 256);
    auto library = [&](bf **q, bf *out) {
        cublas(s.h3, q[2], out, s.m, s.k, s.n, stream);
        add<<<blocks, 256, 0, stream>>>((uint4 *)out, (uint4 *)r, (uint4 *)out, s.mk / 8);
    };
    library(s.w[0], e);
    printf("  down + residual: cublas and pass %.1f\n", s.time([&](bf **q) { library(q, s.y); }));
    for (auto &t : with_residual) {
        double worst, best = 1e9;
        auto own = [&](bf **q) { launch_residual(t, s.h3, q[2], r, s.y, s.m, s.k, s.n); };
        CK(cudaMemset(s.y, 0xff, s.mk * 2));
        own(s.w[0]);
        CK(cudaDeviceSynchronize());
        double rms = check(s.y, e, s.mk, &worst);
        for (int i = 0; i < 2; i++) best = std::min(best, s.time(own));
        printf("    %-10s %.1f (rms %.0e%s)\n", t.name, best, rms, rms < 3e-3 ? "" : " WRONG");
    }
    cudaFree(r);
    cudaFree(e);
}

int main(int argc, char **argv) {
    open_ladder();
    pdl = true;
    for (int arg = 1; arg < argc; arg++) {
        int m, k, n;
        if (sscanf(argv[arg], "%d,%d,%d", &m, &k, &n) != 3) continue;
        Shape s(m, k, n);
        printf("== %d x %d -> %d\n", m, k, n);
        first_product(s, true);
        first_product(s, false);
        down_with_residual(s);
    }
    return 0;
}
