/* Checks and times the sm_90a GEMM family and the decode kernels alone, beside cuBLASLt.
 * nvcc -gencode=arch=compute_90a,code=sm_90a -O3 -std=c++17 -o /tmp/ladder bench/ladder/gemm_sm90a.cu -lcuda -lcublasLt
 * Every output is poisoned, inputs are fresh random numbers, every element is compared with a plain kernel (f64 sums). */
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cublasLt.h>
#include <cuda.h>
#include <cuda_runtime.h>
#include <string>
#include <vector>

#define EP_GEMM_NO_F16 /* bf16 only: the build stays short */
#include "../../src/run/backend/cuda/kernels/sm90a/bf16_gemm_sm90a.cu"
#include "../../src/run/backend/cuda/kernels/sm80/bf16_decode_sm80.cu"

#define CK(x)                                                                                                          \
    do {                                                                                                               \
        auto ck_e = (x);                                                                                               \
        if ((int)ck_e != 0) {                                                                                          \
            printf("%s:%d error %d in %s\n", __FILE__, __LINE__, (int)ck_e, #x);                                       \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

typedef __nv_bfloat16 bf;

__global__ void fill(bf *p, size_t n, unsigned seed, float scale) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        unsigned long long z = (i + 1) * 0x9e3779b97f4a7c15ull + seed;
        float s = 0;
        for (int k = 0; k < 4; k++) {
            z ^= z >> 30;
            z *= 0xbf58476d1ce4e5b9ull;
            z ^= z >> 27;
            s += (float)(z >> 40) / (1 << 24) - 0.5f;
        }
        p[i] = __float2bfloat16(s * 1.732f * scale);
    }
}

__global__ void reference(const bf *x, const bf *g, const bf *u, bf *y, int m, int n, int k, bool gated) {
    int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y;
    if (c >= n) return;
    double sg = 0, su = 0;
    for (int i = 0; i < k; i++) {
        double xv = __bfloat162float(x[(size_t)r * k + i]);
        sg += xv * __bfloat162float(g[(size_t)c * k + i]);
        if (gated) su += xv * __bfloat162float(u[(size_t)c * k + i]);
    }
    if (gated) {
        float gr = __bfloat162float(__float2bfloat16((float)sg)), ur = __bfloat162float(__float2bfloat16((float)su));
        double z = 0.7978845608028654 * (gr + 0.044715 * (double)gr * gr * gr);
        float a = __bfloat162float(__float2bfloat16((float)(0.5 * gr * (1 + tanh(z)))));
        y[(size_t)r * n + c] = __float2bfloat16(a * ur);
    } else {
        y[(size_t)r * n + c] = __float2bfloat16((float)sg);
    }
}

__global__ void difference(const bf *a, const bf *b, size_t n, double *out) {
    double worst = 0, sum = 0, ref = 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        double x = __bfloat162float(a[i]), y = __bfloat162float(b[i]), d = fabs(x - y);
        if (!(d == d)) d = 1e30;
        worst = fmax(worst, d / (fabs(y) + 0.05));
        sum += d * d;
        ref += y * y;
    }
    atomicAdd(out, sum);
    atomicAdd(out + 1, ref);
    unsigned long long *w = (unsigned long long *)(out + 2);
    atomicMax(w, (unsigned long long)__double_as_longlong(worst));
}

static CUtensorMap map2d(const void *p, long long rows, long long cols, int box_rows) {
    CUtensorMap m;
    cuuint64_t size[2] = {(cuuint64_t)cols, (cuuint64_t)rows}, stride[1] = {(cuuint64_t)cols * 2};
    cuuint32_t box[2] = {64, (cuuint32_t)box_rows}, one[2] = {1, 1};
    CK(cuTensorMapEncodeTiled(&m, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, (void *)p, size, stride, box, one,
                              CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                              CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
    return m;
}

struct Kernel {
    const void *fn;
    int bn, stages, cluster;
    bool gated;
    const char *name;
};

static unsigned long long policy[3] = {ep::L2_NORMAL, ep::L2_NORMAL, ep::L2_NORMAL};

static void launch(const Kernel &k, const bf *x, const bf *w0, const bf *w1, bf *y, int m, int n, int kk, int group_m,
                   cudaStream_t s) {
    int out = k.gated ? k.bn / 2 : k.bn, half = k.bn / 2;
    CUtensorMap mx = map2d(x, m, kk, 128), m0 = map2d(w0, n, kk, half), m1 = map2d(k.gated ? w1 : w0, n, kk, half),
                my = map2d(y, m, n, 64);
    ep::gemm_args a = {};
    a.m = m;
    a.n = n;
    a.k = kk;
    a.tiles_m = (m + 128 * k.cluster - 1) / (128 * k.cluster);
    a.tiles_n = (n + out - 1) / out;
    a.group_m = group_m;
    a.policy_x = policy[0];
    a.policy_w = policy[1];
    a.policy_y = policy[2];
    int smem = k.stages * (128 + k.bn) * 128 + 128 * out * 2 + 2 * k.stages * 8 + 1024;
    CK(cudaFuncSetAttribute(k.fn, cudaFuncAttributeMaxDynamicSharedMemorySize, smem));
    int grid = std::min(132 / k.cluster, a.tiles_m * a.tiles_n) * k.cluster;
    cudaLaunchConfig_t c = {};
    c.gridDim = grid;
    c.blockDim = 384;
    c.dynamicSmemBytes = smem;
    c.stream = s;
    cudaLaunchAttribute at[1];
    at[0].id = cudaLaunchAttributeClusterDimension;
    at[0].val.clusterDim.x = k.cluster;
    at[0].val.clusterDim.y = at[0].val.clusterDim.z = 1;
    c.attrs = at;
    c.numAttrs = 1;
    void *args[] = {&mx, &m0, &m1, &my, &a};
    CK(cudaLaunchKernelExC(&c, k.fn, args));
}

static cublasLtHandle_t lt;
static void *workspace;
static void cublas(const bf *x, const bf *w, bf *y, int m, int n, int k, cudaStream_t s) {
    static std::vector<std::pair<std::string, cublasLtMatmulAlgo_t>> cache;
    cublasLtMatmulDesc_t d;
    CK(cublasLtMatmulDescCreate(&d, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    cublasOperation_t t = CUBLAS_OP_T;
    CK(cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_TRANSA, &t, sizeof t));
    cublasLtMatrixLayout_t la, lb, lc;
    CK(cublasLtMatrixLayoutCreate(&la, CUDA_R_16BF, k, n, k));
    CK(cublasLtMatrixLayoutCreate(&lb, CUDA_R_16BF, k, m, k));
    CK(cublasLtMatrixLayoutCreate(&lc, CUDA_R_16BF, n, m, n));
    float one = 1, zero = 0;
    std::string key = std::to_string(m) + "," + std::to_string(n) + "," + std::to_string(k);
    cublasLtMatmulAlgo_t *algo = nullptr;
    for (auto &e : cache)
        if (e.first == key) algo = &e.second;
    if (!algo) {
        cublasLtMatmulPreference_t p;
        CK(cublasLtMatmulPreferenceCreate(&p));
        size_t ws = 64 << 20;
        CK(cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &ws, sizeof ws));
        cublasLtMatmulHeuristicResult_t r;
        int got;
        CK(cublasLtMatmulAlgoGetHeuristic(lt, d, la, lb, lc, lc, p, 1, &r, &got));
        cache.push_back({key, r.algo});
        algo = &cache.back().second;
    }
    CK(cublasLtMatmul(lt, d, &one, w, la, x, lb, &zero, y, lc, y, lc, algo, workspace, 64 << 20, s));
    cublasLtMatrixLayoutDestroy(la);
    cublasLtMatrixLayoutDestroy(lb);
    cublasLtMatrixLayoutDestroy(lc);
    cublasLtMatmulDescDestroy(d);
}

template <typename F> static double graph_us(F f, cudaStream_t s, int reps) {
    f();
    CK(cudaStreamSynchronize(s));
    cudaGraph_t g;
    cudaGraphExec_t e;
    CK(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
    for (int i = 0; i < reps; i++) f();
    CK(cudaStreamEndCapture(s, &g));
    CK(cudaGraphInstantiate(&e, g, 0));
    std::vector<float> t;
    cudaEvent_t a, b;
    cudaEventCreate(&a);
    cudaEventCreate(&b);
    for (int i = 0; i < 9; i++) {
        cudaEventRecord(a, s);
        CK(cudaGraphLaunch(e, s));
        cudaEventRecord(b, s);
        CK(cudaStreamSynchronize(s));
        float ms;
        cudaEventElapsedTime(&ms, a, b);
        if (i > 1) t.push_back(ms * 1e3f / reps);
    }
    cudaGraphExecDestroy(e);
    cudaGraphDestroy(g);
    std::sort(t.begin(), t.end());
    return t[t.size() / 2];
}

static double *diff;
static double check(const bf *y, const bf *r, size_t n, double *worst) {
    CK(cudaMemset(diff, 0, 24));
    difference<<<264, 256>>>(y, r, n, diff);
    double h[3];
    CK(cudaMemcpy(h, diff, 24, cudaMemcpyDeviceToHost));
    *worst = h[2];
    return sqrt(h[0] / (h[1] + 1e-30));
}

int main() {
    CK(cudaSetDevice(0));
    CK(cudaFree(0));
    CK(cublasLtCreate(&lt));
    CK(cudaMalloc(&workspace, 64 << 20));
    CK(cudaMalloc(&diff, 24));
    cudaStream_t s;
    CK(cudaStreamCreate(&s));
    Kernel kernels[] = {
        {(const void *)ep_bf16_gated_gemm_gelu_tanh_sm90a_t128x128c2_eager, 256, 4, 2, true, "geglu t128x128c2 eager"},
        {(const void *)ep_bf16_gated_gemm_gelu_tanh_sm90a_t128x128c2_fewest, 256, 4, 2, true,
         "geglu t128x128c2 fewest"},
        {(const void *)ep_bf16_gated_gemm_gelu_tanh_sm90a_t128x64c1_eager, 128, 6, 1, true, "geglu t128x64c1 eager"},
        {(const void *)ep_bf16_gemm_none_sm90a_t128x256c2_eager, 256, 3, 2, false, "gemm t128x256c2"},
        {(const void *)ep_bf16_gemm_none_sm90a_t128x192c2_eager, 192, 4, 2, false, "gemm t128x192c2"},
        {(const void *)ep_bf16_gemm_none_sm90a_t128x128c1_eager, 128, 5, 1, false, "gemm t128x128c1"},
    };
    struct Shape {
        int m, k, n;
        bool time;
    } shapes[] = {{256, 64, 128, false},     {300, 200, 328, false},    {1, 72, 8, false},
                  {1000, 1032, 1000, false}, {8192, 768, 3072, true},   {8192, 2048, 16384, true},
                  {8192, 4096, 14336, true}, {1024, 2048, 16384, true}, {128, 4096, 14336, true},
                  {64, 768, 3072, true}};
    for (auto &sh : shapes) {
        bf *x, *g, *u, *h, *ref, *d, *y;
        size_t mk = (size_t)sh.m * sh.k, nk = (size_t)sh.n * sh.k, mn = (size_t)sh.m * sh.n;
        CK(cudaMalloc(&x, mk * 2));
        CK(cudaMalloc(&g, nk * 2));
        CK(cudaMalloc(&u, nk * 2));
        CK(cudaMalloc(&d, nk * 2));
        CK(cudaMalloc(&h, mn * 2));
        CK(cudaMalloc(&ref, mn * 2));
        CK(cudaMalloc(&y, mk * 2));
        fill<<<264, 256>>>(x, mk, 1, 1.0f);
        fill<<<264, 256>>>(g, nk, 2, 1.0f / sqrtf(sh.k));
        fill<<<264, 256>>>(u, nk, 3, 1.0f / sqrtf(sh.k));
        fill<<<264, 256>>>(d, nk, 4, 1.0f / sqrtf(sh.n));
        CK(cudaDeviceSynchronize());
        for (auto &k : kernels) {
            if (!k.gated && sh.time) continue;
            bool full = mn * sh.k < (1ull << 38);
            if (full) {
                reference<<<dim3((sh.n + 127) / 128, sh.m), 128>>>(x, g, u, ref, sh.m, sh.n, sh.k, k.gated);
                CK(cudaDeviceSynchronize());
            }
            CK(cudaMemset(h, 0xff, mn * 2));
            launch(k, x, g, u, h, sh.m, sh.n, sh.k, 8, s);
            CK(cudaDeviceSynchronize());
            double worst = 0, rms = full ? check(h, ref, mn, &worst) : -1;
            double us = sh.time ? graph_us([&] { launch(k, x, g, u, h, sh.m, sh.n, sh.k, 8, s); }, s, 10) : 0;
            printf("%-26s m %d k %d n %d: rms %.2e worst %.3f  %.1f us %.0f TFLOP/s\n", k.name, sh.m, sh.k, sh.n, rms,
                   worst, us, us ? (k.gated ? 4.0 : 2.0) * mn * sh.k / us / 1e6 : 0);
            fflush(stdout);
        }
        if (sh.time) {
            static const unsigned long long level[] = {ep::L2_NORMAL, ep::L2_EVICT_FIRST, ep::L2_EVICT_LAST};
            static const char *const level_name[] = {"normal", "first", "last"};
            for (int gm : {4, 6, 8, 11, 16})
                for (int combo : {0, 1, 7, 19, 25}) { /* y + 3 w + 9 x: levels */
                    if (combo && gm != 8 && gm != 11) continue;
                    for (int q = 0, c = combo; q < 3; q++, c /= 3) policy[2 - q] = level[c % 3];
                    double us = graph_us([&] { launch(kernels[0], x, g, u, h, sh.m, sh.n, sh.k, gm, s); }, s, 10);
                    printf("   group_m %d x %s w %s y %s: %.1f us\n", gm, level_name[combo / 9],
                           level_name[combo / 3 % 3], level_name[combo % 3], us);
                }
            for (int q = 0; q < 3; q++) policy[q] = q == 2 ? ep::L2_EVICT_FIRST : ep::L2_NORMAL;
            double c2 = graph_us(
                [&] {
                    cublas(x, g, h, sh.m, sh.n, sh.k, s);
                    cublas(x, u, ref, sh.m, sh.n, sh.k, s);
                },
                s, 10);
            double cd = graph_us([&] { cublas(h, d, y, sh.m, sh.k, sh.n, s); }, s, 10);
            printf("   cublas gate+up %.1f us (%.0f), down %.1f us (%.0f)\n", c2, 4.0 * mn * sh.k / c2 / 1e6, cd,
                   2.0 * mn * sh.k / cd / 1e6);
            for (int i = 3; i < 6; i++) {
                double us = graph_us([&] { launch(kernels[i], h, d, d, y, sh.m, sh.k, sh.n, 8, s); }, s, 10);
                printf("   down %-20s %.1f us (%.0f)\n", kernels[i].name, us, 2.0 * mn * sh.k / us / 1e6);
            }
            double all = graph_us(
                [&] {
                    launch(kernels[0], x, g, u, h, sh.m, sh.n, sh.k, 8, s);
                    cublas(h, d, y, sh.m, sh.k, sh.n, s);
                },
                s, 10);
            double both = graph_us(
                [&] {
                    launch(kernels[0], x, g, u, h, sh.m, sh.n, sh.k, 8, s);
                    launch(kernels[4], h, d, d, y, sh.m, sh.k, sh.n, 8, s);
                },
                s, 10);
            printf("   block: fused + cublas down %.1f us, fused + own down %.1f us\n", all, both);
        }
        fflush(stdout);
        cudaFree(x);
        cudaFree(g);
        cudaFree(u);
        cudaFree(d);
        cudaFree(h);
        cudaFree(ref);
        cudaFree(y);
    }
    /* decode */
    struct {
        int m, k, n;
    } dec[] = {{1, 2048, 16384}, {8, 2048, 16384}, {16, 2048, 16384}, {1, 768, 3072}, {16, 4096, 14336}, {3, 72, 40}};
    for (auto &sh : dec) {
        const int SETS = 4;
        bf *x, *h, *ref, *y, *w[SETS][3];
        size_t mk = (size_t)sh.m * sh.k, nk = (size_t)sh.n * sh.k, mn = (size_t)sh.m * sh.n;
        CK(cudaMalloc(&x, mk * 2));
        CK(cudaMalloc(&h, mn * 2));
        CK(cudaMalloc(&ref, mn * 2));
        CK(cudaMalloc(&y, mk * 2));
        fill<<<264, 256>>>(x, mk, 1, 1.0f);
        for (int i = 0; i < SETS; i++)
            for (int j = 0; j < 3; j++) {
                CK(cudaMalloc(&w[i][j], nk * 2));
                fill<<<264, 256>>>(w[i][j], nk, 10 * i + j, 1.0f / sqrtf(sh.k));
            }
        reference<<<dim3((sh.n + 127) / 128, sh.m), 128>>>(x, w[0][0], w[0][1], ref, sh.m, sh.n, sh.k, true);
        CK(cudaDeviceSynchronize());
        auto run = [&](int set, bool pdl) {
            for (int part = 0; part < 2; part++) {
                ep::decode_args a = {};
                a.x = part ? h : x;
                a.w0 = w[set][part ? 2 : 0];
                a.w1 = w[set][1];
                a.y = part ? y : h;
                a.m = sh.m;
                a.n = part ? sh.k : sh.n;
                a.k = part ? sh.n : sh.k;
                a.x_row = a.k;
                a.w0_row = a.w1_row = a.k;
                a.y_row = a.n;
                const void *fn = part ? (sh.m <= 8 ? (const void *)ep_bf16_gemm_none_decode_sm80_m8_eager
                                                   : (const void *)ep_bf16_gemm_none_decode_sm80_m16_eager)
                                      : (sh.m <= 8 ? (const void *)ep_bf16_gated_gemm_gelu_tanh_decode_sm80_m8_eager
                                                   : (const void *)ep_bf16_gated_gemm_gelu_tanh_decode_sm80_m16_eager);
                cudaLaunchConfig_t c = {};
                c.gridDim = (a.n + 15) / 16;
                c.blockDim = 256;
                c.stream = s;
                cudaLaunchAttribute at[1];
                at[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
                at[0].val.programmaticStreamSerializationAllowed = 1;
                c.attrs = at;
                c.numAttrs = pdl ? 1 : 0;
                void *args[] = {&a};
                CK(cudaLaunchKernelExC(&c, fn, args));
            }
        };
        CK(cudaMemset(h, 0xff, mn * 2));
        run(0, false);
        CK(cudaDeviceSynchronize());
        double worst, rms = check(h, ref, mn, &worst);
        reference<<<dim3((sh.k + 127) / 128, sh.m), 128>>>(h, w[0][2], w[0][2], x, sh.m, sh.k, sh.n, false);
        double worst2, rms2 = check(y, x, mk, &worst2);
        double bytes = 6.0 * nk;
        int i = 0;
        double t0 = graph_us([&] { run(i++ % SETS, false); }, s, 20),
               t1 = graph_us([&] { run(i++ % SETS, true); }, s, 20);
        double tc = graph_us(
            [&] {
                int q = i++ % SETS;
                cublas(x, w[q][0], h, sh.m, sh.n, sh.k, s);
                cublas(x, w[q][1], ref, sh.m, sh.n, sh.k, s);
                cublas(h, w[q][2], y, sh.m, sh.k, sh.n, s);
            },
            s, 20);
        printf("decode m %d k %d n %d: rms %.2e %.2e worst %.3f %.3f; %.1f us (%.0f GB/s), pdl %.1f us (%.0f GB/s), 3 "
               "cublas %.1f us\n",
               sh.m, sh.k, sh.n, rms, rms2, worst, worst2, t0, bytes / t0 / 1e3, t1, bytes / t1 / 1e3, tc);
        fflush(stdout);
        cudaFree(x);
        cudaFree(h);
        cudaFree(ref);
        cudaFree(y);
        for (int q = 0; q < SETS; q++)
            for (int j = 0; j < 3; j++) cudaFree(w[q][j]);
    }
    return 0;
}
