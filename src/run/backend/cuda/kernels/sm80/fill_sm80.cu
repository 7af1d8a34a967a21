/* Words set to one value: what a memset in a captured graph is replaced by. */
extern "C" __global__ void __launch_bounds__(256) ep_fill_sm80(unsigned *p, unsigned value, unsigned long long n) {
    for (unsigned long long i = blockIdx.x * 256ull + threadIdx.x; i < n; i += gridDim.x * 256ull) p[i] = value;
}
