/* Words set to one value: what a memset in a captured graph is replaced by. */
extern "C" __global__ void __launch_bounds__(256) ep_fill_sm80(unsigned *p, unsigned value, unsigned long long n) {
    for (unsigned long long i = blockIdx.x * 256ull + threadIdx.x; i < n; i += gridDim.x * 256ull) p[i] = value;
}

/* Reads 16-byte words, eight in flight a thread; stores only what no data of ours gives. */
extern "C" __global__ void __launch_bounds__(512)
    ep_read_sm80(const uint4 *__restrict__ from, long long count, unsigned *sink) {
    long long step = (long long)gridDim.x * blockDim.x, at = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    uint4 sum = {0, 0, 0, 0};
    for (; at + 7 * step < count; at += 8 * step) {
        uint4 v[8];
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] = __ldcs(from + at + i * step);
#pragma unroll
        for (int i = 0; i < 8; i++) sum.x ^= v[i].x, sum.y ^= v[i].y, sum.z ^= v[i].z, sum.w ^= v[i].w;
    }
    for (; at < count; at += step) sum.x ^= from[at].x;
    if (sum.x == 0x12345678u && sum.y == 0x9abcdefu && sum.z == 1 && sum.w == 2) *sink = 1;
}
