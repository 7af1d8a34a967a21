/* What the ladders share: random inputs, a plain reference in f64 sums, cuBLASLt, times of graphs, launches. */
#pragma once
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cublasLt.h>
#include <cuda.h>
#include <cuda_runtime.h>
#include <string>
#include <vector>

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

/* Rows 0..first and the last ones of m: gridDim.y of them, compact in y. */
__global__ void reference(const bf *x, const bf *g, const bf *u, bf *y, int m, int n, int k, bool gated) {
    int c = blockIdx.x * blockDim.x + threadIdx.x, at = blockIdx.y, half = gridDim.y / 2;
    int r = at < half ? at : m - (int)gridDim.y + at;
    y -= (size_t)(r - at) * n;
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

static CUtensorMap map2d(const void *p, long long rows, long long cols, int box_rows, int box_cols = 64,
                         long long row = 0) {
    CUtensorMap m;
    cuuint64_t size[2] = {(cuuint64_t)cols, (cuuint64_t)rows}, stride[1] = {(cuuint64_t)(row ? row : cols) * 2};
    cuuint32_t box[2] = {(cuuint32_t)box_cols, (cuuint32_t)box_rows}, one[2] = {1, 1};
    CK(cuTensorMapEncodeTiled(&m, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, (void *)p, size, stride, box, one,
                              CU_TENSOR_MAP_INTERLEAVE_NONE,
                              box_cols == 64 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B,
                              CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
    return m;
}

static bool pdl, cooperative, soft; /* soft: a launch may fail */
static cudaError_t launched;

static void launch_ex(const void *fn, int grid, int block, int smem, int cluster, cudaStream_t s, void **args) {
    CK(cudaFuncSetAttribute(fn, cudaFuncAttributeMaxDynamicSharedMemorySize, smem));
    cudaLaunchConfig_t c = {};
    c.gridDim = grid;
    c.blockDim = block;
    c.dynamicSmemBytes = smem;
    c.stream = s;
    cudaLaunchAttribute at[3];
    at[0].id = cudaLaunchAttributeClusterDimension;
    at[0].val.clusterDim.x = cluster;
    at[0].val.clusterDim.y = at[0].val.clusterDim.z = 1;
    c.attrs = at;
    c.numAttrs = 1;
    if (pdl) {
        at[c.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        at[c.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
    }
    if (cooperative) {
        at[c.numAttrs].id = cudaLaunchAttributeCooperative;
        at[c.numAttrs++].val.cooperative = 1;
    }
    launched = cudaLaunchKernelExC(&c, fn, args);
    if (!soft) CK(launched);
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

static cudaStream_t stream;
static const int ROWS = 128; /* checked of large products */

/* rms against f64 sums on the first and last rows; `ref` holds them. */
static double compare(const bf *y, const bf *ref, int m, int n, double *worst) {
    int rows = std::min(m, ROWS), half = rows / 2;
    double w2, a = check(y, ref, (size_t)half * n, worst);
    double b = check(y + (size_t)(m - rows + half) * n, ref + (size_t)half * n, (size_t)(rows - half) * n, &w2);
    *worst = std::max(*worst, w2);
    return std::max(a, b);
}

static bf *array(size_t n, unsigned seed, float scale) {
    bf *p;
    CK(cudaMalloc(&p, n * 2 + 16));
    fill<<<264, 256>>>(p, n, seed, scale);
    return p;
}

static void refer(const bf *x, const bf *g, const bf *u, bf *ref, int m, int n, int k, bool gated) {
    reference<<<dim3((n + 127) / 128, std::min(m, ROWS)), 128>>>(x, g, u, ref, m, n, k, gated);
    CK(cudaDeviceSynchronize());
}

static inline void open_ladder() {
    CK(cudaSetDevice(0));
    CK(cudaFree(0));
    CK(cublasLtCreate(&lt));
    CK(cudaMalloc(&workspace, 64 << 20));
    CK(cudaMalloc(&diff, 24));
    CK(cudaStreamCreate(&stream));
}
