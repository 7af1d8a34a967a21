/* Which ways of writing global memory does compute-sanitizer's initcheck see? One kernel stores as every kernel does, the
 * other by the bulk copy engine (cp.async.bulk, what tensor-map stores are built on); a third reads. tools/check_gpu.sh
 * runs "plain" and "bulk" under initcheck: the same bytes are written, so a report for "bulk" alone is initcheck's own.
 *     nvcc -arch=sm_90 -o bulk_store bulk_store.cu && compute-sanitizer --tool initcheck ./bulk_store bulk */
#include <cstdint>
#include <cstdio>
#include <cstring>

enum { COUNT = 256 };

__global__ void plain_store(unsigned *out) {
    out[threadIdx.x] = threadIdx.x + 1;
}

__global__ void bulk_store(unsigned *out) {
    __shared__ alignas(128) unsigned tile[COUNT];
    tile[threadIdx.x] = threadIdx.x + 1;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(out),
                     "r"((unsigned)__cvta_generic_to_shared(tile)), "r"((unsigned)sizeof tile)
                     : "memory");
        asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
    }
}

__global__ void read_back(const unsigned *in, unsigned *sum) {
    atomicAdd(sum, in[threadIdx.x]);
}

int main(int argc, char **argv) {
    bool bulk = argc > 1 && strcmp(argv[1], "bulk") == 0;
    unsigned *out, *sum, got = 0;
    if (cudaMalloc(&out, COUNT * sizeof *out) || cudaMalloc(&sum, sizeof *sum) || cudaMemset(sum, 0, sizeof *sum))
        return 2;
    if (bulk)
        bulk_store<<<1, COUNT>>>(out);
    else
        plain_store<<<1, COUNT>>>(out);
    read_back<<<1, COUNT>>>(out, sum);
    if (cudaMemcpy(&got, sum, sizeof got, cudaMemcpyDeviceToHost)) return 2;
    printf("%s: sum %u, expected %u\n", bulk ? "bulk" : "plain", got, COUNT * (COUNT + 1) / 2);
    cudaFree(out);
    cudaFree(sum);
    return got != COUNT * (COUNT + 1) / 2;
}
