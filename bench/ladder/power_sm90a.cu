/* Time, energy and clock of products in long runs, where the card's power binds.
 * nvcc -gencode=arch=compute_90a,code=sm_90a -O3 -std=c++17 -o /tmp/power bench/ladder/power_sm90a.cu -lcuda -lcublasLt
 * power [ms a kernel, 300]: every kernel is run for that long, in turns; energy by NVML's counter. */
#include "tiles.cuh"
#include <atomic>
#include <chrono>
#include <dlfcn.h>
#include <functional>
#include <thread>
#include <unistd.h>

#define OWN_LIST(V)                                                                                                    \
    V(g128c2, 2, 256, 4, 2, 1, true, ACT_GELU_TANH)                                                                    \
    V(p128c2, 2, 256, 4, 2, 1, false, ACT_NONE)
#define HANDED_LIST(V) V(h128c2, 2, 256, 3, 2, 1, true, 2)
OWN_LIST(OWN)
HANDED_LIST(HANDED)

static const Tile tiles[] = {OWN_LIST(OWN_ROW) HANDED_LIST(HANDED_ROW)};

/* NVML by hand: energy in mJ, the multiprocessors' clock in MHz. */
static struct {
    int (*init)();
    int (*handle)(unsigned, void **);
    int (*energy)(void *, unsigned long long *);
    int (*clock)(void *, int, unsigned *);
    void *device;
} nvml;

static void open_nvml() {
    void *lib = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!lib) return;
    *(void **)&nvml.init = dlsym(lib, "nvmlInit_v2");
    *(void **)&nvml.handle = dlsym(lib, "nvmlDeviceGetHandleByIndex_v2");
    *(void **)&nvml.energy = dlsym(lib, "nvmlDeviceGetTotalEnergyConsumption");
    *(void **)&nvml.clock = dlsym(lib, "nvmlDeviceGetClockInfo");
    if (nvml.init() || nvml.handle(0, &nvml.device)) nvml.device = nullptr;
}

static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Measured {
    double us, joules, mhz;
    int n;
};

struct Case {
    std::string name;
    double flops;
    std::function<void()> run;
    Measured sum;
};

/* Runs f for about `ms`; the first third is for the clock to settle and is not counted. */
static Measured sustain(const std::function<void()> &f, double us_each, int ms) {
    int n = std::max(1, (int)(ms * 1000.0 / us_each / 3));
    for (int i = 0; i < n; i++) f();
    cudaEvent_t a, b;
    cudaEventCreate(&a);
    cudaEventCreate(&b);
    CK(cudaStreamSynchronize(stream));
    for (int i = 0; i < 3; i++) f();
    unsigned long long e0 = 0, e1 = 0;
    if (nvml.device) nvml.energy(nvml.device, &e0);
    double t0 = now();
    cudaEventRecord(a, stream);
    std::atomic<bool> done{false};
    double clocks = 0;
    int seen = 0;
    std::thread sampler([&] {
        while (!done && nvml.device) {
            unsigned c = 0;
            nvml.clock(nvml.device, 1, &c);
            clocks += c;
            seen++;
            usleep(4000);
        }
    });
    for (int i = 0; i < 2 * n; i++) f();
    cudaEventRecord(b, stream);
    CK(cudaStreamSynchronize(stream));
    double t1 = now();
    if (nvml.device) nvml.energy(nvml.device, &e1);
    done = true;
    sampler.join();
    float t;
    cudaEventElapsedTime(&t, a, b);
    return {t * 1e3 / (2 * n), (e1 - e0) * 1e-3 / (t1 - t0), seen ? clocks / seen : 0, 1};
}

static void shape(int m, int k, int n, int ms) {
    size_t mk = (size_t)m * k, nk = (size_t)n * k, mn = (size_t)m * n;
    bf *x = array(mk, 1, 1.0f), *g = array(nk, 2, 0.58f / sqrtf(k)), *u = array(nk, 3, 0.58f / sqrtf(k)),
       *d = array(nk, 4, 0.58f / sqrtf(n)), *h = array(mn, 5, 1), *h2 = array(mn, 5, 1), *y = array(mk, 6, 1),
       *ref = array((size_t)ROWS * n, 7, 1), *ref2 = array((size_t)ROWS * k, 8, 1);
    double worst, flops = 2.0 * mn * k;
    printf("== %d x %d -> %d\n", m, k, n);
    refer(x, g, u, ref, m, n, k, true);
    std::vector<Case> cases;
    for (int turn = 0; turn < 2; turn++)
        for (auto &t : tiles) {
            if (t.gated == (turn > 0)) continue;
            if (t.gated) {
                CK(cudaMemset(h, 0xff, mn * 2));
                launch(t, x, g, u, h, m, n, k, 8, stream);
            } else {
                CK(cudaMemset(y, 0xff, mk * 2));
                launch(t, h, d, d, y, m, k, n, 8, stream);
            }
            CK(cudaDeviceSynchronize());
            if (!t.gated) refer(h, d, d, ref2, m, k, n, false);
            double rms = t.gated ? compare(h, ref, m, n, &worst) : compare(y, ref2, m, k, &worst);
            printf("  %-10s rms %.1e worst %.3f\n", t.name, rms, worst);
        }
    for (int group : {4, 8, 16, 32})
        for (auto &t : tiles) {
            if (group != 8 && t.wgs == 2 && !strcmp(t.name, "g128c2")) continue;
            int gm = group;
            if (t.gated)
                cases.push_back({std::string(t.name) + " group " + std::to_string(gm),
                                 2 * flops,
                                 [=] { launch(t, x, g, u, h, m, n, k, gm, stream); },
                                 {}});
            else
                cases.push_back({std::string(t.name) + " group " + std::to_string(gm),
                                 flops,
                                 [=] { launch(t, h, d, d, y, m, k, n, gm, stream); },
                                 {}});
        }
    cases.push_back({"cublas gate+up",
                     2 * flops,
                     [=] {
                         cublas(x, g, h, m, n, k, stream);
                         cublas(x, u, h2, m, n, k, stream);
                     },
                     {}});
    cases.push_back({"cublas down", flops, [=] { cublas(h, d, y, m, k, n, stream); }, {}});
    for (int round = 0; round < 2; round++)
        for (auto &c : cases) {
            Measured s = sustain(c.run, c.flops / 700e6, ms);
            c.sum.us += s.us, c.sum.joules += s.joules, c.sum.mhz += s.mhz, c.sum.n++;
        }
    for (auto &c : cases) {
        double us = c.sum.us / c.sum.n, w = c.sum.joules / c.sum.n, mhz = c.sum.mhz / c.sum.n;
        printf("  %-18s %7.1f us %4.0f TFLOP/s %4.0f W %.3f J %4.0f MHz, pipe %.1f %%\n", c.name.c_str(), us,
               c.flops / us / 1e6, w, w * us * 1e-6, mhz, 100 * c.flops / us / (132 * 4096.0 * mhz));
    }
    fflush(stdout);
    for (bf *p : {x, g, u, d, h, h2, y, ref, ref2}) cudaFree(p);
}

static void square(int n, int ms) {
    bf *x = array((size_t)n * n, 1, 1), *w = array((size_t)n * n, 2, 1), *y = array((size_t)n * n, 3, 1);
    double flops = 2.0 * n * n * n, burst = graph_us([&] { cublas(x, w, y, n, n, n, stream); }, stream, 5);
    Measured s = sustain([=] { cublas(x, w, y, n, n, n, stream); }, flops / 700e6, 2 * ms);
    printf("cublas %d^3: burst %.1f us %.0f TFLOP/s; long %.1f us %.0f TFLOP/s %.0f W %.0f MHz\n", n, burst,
           flops / burst / 1e6, s.us, flops / s.us / 1e6, s.joules, s.mhz);
    for (bf *p : {x, w, y}) cudaFree(p);
}

int main(int argc, char **argv) {
    int ms = argc > 1 ? atoi(argv[1]) : 300;
    open_ladder();
    if (ms == 0) { /* for ncu: each kernel once */
        int m = 8192, k = 2048, n = 16384;
        bf *x = array((size_t)m * k, 1, 1), *g = array((size_t)n * k, 2, 0.02f), *u = array((size_t)n * k, 3, 0.02f),
           *h = array((size_t)m * n, 4, 1), *y = array((size_t)m * k, 5, 1);
        for (auto &t : tiles)
            if (t.gated)
                launch(t, x, g, u, h, m, n, k, 8, stream);
            else
                launch(t, h, g, g, y, m, k, n, 8, stream);
        cublas(x, g, h, m, n, k, stream);
        cublas(h, g, y, m, k, n, stream);
        CK(cudaDeviceSynchronize());
        return 0;
    }
    open_nvml();
    square(8192, ms);
    shape(8192, 768, 3072, ms);
    shape(8192, 2048, 16384, ms);
    square(8192, ms);
    return 0;
}
