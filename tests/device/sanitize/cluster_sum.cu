/* Does racecheck follow what orders shared memory between the CTAs of a cluster? Two CTAs each write numbers, meet, and
 * read both halves through each other's shared memory; then they meet again before they leave. How they meet:
 *     cluster_sum mbarrier    arrivals with release at cluster scope on an mbarrier of each CTA, waits with acquire
 *     cluster_sum cluster     barrier.cluster.arrive and .wait
 *     cluster_sum nothing     not at all: a race that the tool should find
 * nvcc -gencode arch=compute_90a,code=sm_90a; prints the sum, which must be 128 * 2.5. */
#include <cstdint>
#include <cstdio>
#include <cstring>

enum { THREADS = 128, MBARRIER = 0, CLUSTER = 1, NOTHING = 2 };

__device__ uint32_t address(const void *p) {
    return (uint32_t)__cvta_generic_to_shared(p);
}

__device__ float load(uint32_t at, uint32_t rank) {
    float v;
    asm volatile("{\n .reg .b32 r;\n mapa.shared::cluster.u32 r, %1, %2;\n ld.shared::cluster.f32 %0, [r];\n}"
                 : "=f"(v)
                 : "r"(at), "r"(rank)
                 : "memory");
    return v;
}

__device__ void meet(int how, uint32_t bar) {
    if (how == CLUSTER) {
        asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
    } else if (how == MBARRIER) {
        __syncthreads();
        if (threadIdx.x < 2)
            asm volatile("{\n .reg .b32 r;\n mapa.shared::cluster.u32 r, %0, %1;\n"
                         " mbarrier.arrive.release.cluster.shared::cluster.b64 _, [r];\n}" ::"r"(bar),
                         "r"(threadIdx.x)
                         : "memory");
        asm volatile("{\n .reg .pred done;\nagain:\n"
                     " mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], 0;\n"
                     " @done bra out;\n bra again;\nout:\n}" ::"r"(bar)
                     : "memory");
    }
}

__global__ __cluster_dims__(2, 1, 1) void sum(int how, float *out) {
    __shared__ float part[THREADS];
    __shared__ alignas(8) uint64_t bars[2];
    if (threadIdx.x == 0) {
        for (int i = 0; i < 2; i++) asm volatile("mbarrier.init.shared::cta.b64 [%0], 2;" ::"r"(address(&bars[i])));
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
    part[threadIdx.x] = 1.0f + 0.5f * (float)(blockIdx.x & 1);
    meet(how, address(&bars[0]));
    int other = THREADS - 1 - (int)threadIdx.x; /* another thread's number, so that CTAs must meet inside too */
    float v = load(address(&part[other]), 0) + load(address(&part[other]), 1);
    meet(how == NOTHING ? CLUSTER : how, address(&bars[1]));
    if (blockIdx.x == 0) atomicAdd(out, v);
}

int main(int argc, char **argv) {
    int how = argc > 1 && !strcmp(argv[1], "cluster") ? CLUSTER : argc > 1 && !strcmp(argv[1], "nothing") ? NOTHING : 0;
    float *out, value = -1;
    if (cudaMalloc(&out, sizeof *out) != cudaSuccess) return 1;
    cudaMemset(out, 0, sizeof *out);
    sum<<<2, THREADS>>>(how, out);
    cudaError_t e = cudaMemcpy(&value, out, sizeof value, cudaMemcpyDeviceToHost);
    printf("%s: %g\n", argc > 1 ? argv[1] : "mbarrier", (double)value);
    cudaFree(out);
    return e == cudaSuccess && (how == NOTHING || value == THREADS * 2.5f) ? 0 : 1;
}
