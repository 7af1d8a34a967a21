/* How fast weights come to shared memory, by way of loading, by what lies together in memory, and by how many
 * multiprocessors load.
 * nvcc -gencode=arch=compute_90a,code=sm_90a -O3 -std=c++17 -o /tmp/rate bench/ladder/rate_sm90a.cu -lcuda -lcublasLt */
#include "ladder.cuh"
#include "ring.cuh"

enum { BOXES, CHUNKS, SEGMENTS, PLAIN };

struct rate_args {
    const char *w;
    long long row_bytes;
    int units, mode, tall, bytes, pitch, stages, spread,
        alone; /* a unit: `tall` rows by `bytes`; spread: units in turn */
    unsigned long long policy;
};

__device__ __forceinline__ void load_bulk(uint32_t dst, const void *src, uint32_t bytes, uint32_t bar,
                                          unsigned long long policy) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, "
                 "[%3], %4;" ::"r"(dst),
                 "l"(src), "r"(bytes), "r"(bar), "l"(policy)
                 : "memory");
}

__device__ __forceinline__ void load_3d(uint32_t dst, const CUtensorMap *map, int row, int chunk, uint32_t bar) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
                 "[%1, {%2, %3, %4}], [%5];" ::"r"(dst),
                 "l"(map), "r"(0), "r"(row), "r"(chunk), "r"(bar)
                 : "memory");
}

__global__ void __launch_bounds__(64, 1) by_engine(const __grid_constant__ CUtensorMap m, const rate_args a) {
    extern __shared__ uint8_t raw[];
    Ring ring = open_ring(raw, a.stages);
    uint32_t base = ring.base, full = ring.full, empty = ring.empty;
    ep::launch_next_grid();
    int across = (int)(a.row_bytes / a.bytes), tiles = a.units / across;
    int each = (tiles + gridDim.x - 1) / gridDim.x, lane = threadIdx.x & 31;
    int from = a.spread ? blockIdx.x : blockIdx.x * each, step = a.spread ? gridDim.x : 1;
    int to = a.spread ? tiles : min(tiles, from + each), s = 0;
    uint32_t phase = threadIdx.x < 32 ? 1 : 0, stage = a.tall * a.pitch;
    for (int t = from; t < to; t += step)
        for (int part = 0; part < across; part++) {
            uint32_t at = base + s * stage, bar = full + 8 * s;
            if (threadIdx.x < 32) {
                ep::mbar_wait(empty + 8 * s, phase);
                if (lane == 0) ep::mbar_expect(bar, a.tall * a.bytes);
                __syncwarp();
                if (a.mode == BOXES && lane == 0) {
                    ep::tma_load(at, &m, part * 64, t * a.tall, bar, ep::L2_NORMAL);
                    ep::tma_load(at + stage / 2, &m, part * 64, t * a.tall + 64, bar, ep::L2_NORMAL);
                } else if (a.mode == CHUNKS && lane == 0) {
                    load_3d(at, &m, t * a.tall, part * 8, bar);
                } else if (a.mode == SEGMENTS && a.alone && lane == 0) {
                    const char *from = a.w + t * (long long)a.tall * a.row_bytes + (long long)part * a.bytes;
                    for (int i = 0; i < a.tall; i++)
                        load_bulk(at + i * a.pitch, from + i * a.row_bytes, a.bytes, bar, a.policy);
                } else if (a.mode == SEGMENTS && !a.alone && lane < a.tall) {
                    load_bulk(at + lane * a.pitch,
                              a.w + (t * (long long)a.tall + lane) * a.row_bytes + (long long)part * a.bytes, a.bytes,
                              bar, a.policy);
                }
            } else if (lane == 0) {
                ep::mbar_wait(bar, phase);
                ep::mbar_arrive(empty + 8 * s);
            }
            if (++s == a.stages) s = 0, phase ^= 1;
        }
}

__global__ void __launch_bounds__(512, 1) by_threads(const rate_args a, unsigned *sink) {
    size_t bytes = (size_t)a.units * 16384 / gridDim.x / 65536 * 65536;
    const uint4 *p = (const uint4 *)(a.w + bytes * blockIdx.x) + threadIdx.x;
    uint4 sum = {0, 0, 0, 0};
    for (size_t i = 0; i < bytes / 65536; i++) {
        uint4 v[8];
#pragma unroll
        for (int k = 0; k < 8; k++)
            asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(v[k].x), "=r"(v[k].y), "=r"(v[k].z), "=r"(v[k].w)
                         : "l"(p + i * 4096 + k * 512));
#pragma unroll
        for (int k = 0; k < 8; k++) sum.x ^= v[k].x, sum.y ^= v[k].y, sum.z ^= v[k].z, sum.w ^= v[k].w;
    }
    if (sum.x == 0x12345 && sum.y == 1 && sum.z == 2 && sum.w == 3) *sink = 1;
}

static void walk(int rows, int k) {
    bf *w = array((size_t)rows * k, 1, 1);
    unsigned *sink;
    CK(cudaMalloc(&sink, 4));
    CUtensorMap boxes = map2d(w, rows, k, 64), chunks;
    cuuint64_t size[3] = {64, (cuuint64_t)rows, (cuuint64_t)k / 64}, stride[2] = {(cuuint64_t)k * 2, 128};
    cuuint32_t box[3] = {64, 16, 8}, one[3] = {1, 1, 1};
    CK(cuTensorMapEncodeTiled(&chunks, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, w, size, stride, box, one,
                              CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                              CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
    double total = 2.0 * rows * k;
    printf("== %d x %d, %.0f MB\n", rows, k, total * 1e-6);
    struct {
        const char *name;
        int mode, tall, bytes, pitch, stages;
        unsigned long long policy;
        int alone;
    } ways[] = {{"2-d boxes, 64 rows by 128 B", BOXES, 128, 128, 128, 12, 0},
                {"3-d boxes, 16 rows by 1 KiB", CHUNKS, 16, 1024, 1024, 12, 0},
                {"16 rows by 1 KiB", SEGMENTS, 16, 1024, 1088, 12, ep::L2_NORMAL},
                {"16 rows by 2 KiB", SEGMENTS, 16, 2048, 2112, 6, ep::L2_NORMAL},
                {"8 rows by 4 KiB", SEGMENTS, 8, 4096, 4160, 6, ep::L2_NORMAL},
                {"16 rows by 4 KiB", SEGMENTS, 16, 4096, 4160, 3, ep::L2_NORMAL},
                {"4 rows by 4 KiB, one thread", SEGMENTS, 4, 4096, 4096, 12, ep::L2_NORMAL, 1},
                {"4 rows by 4 KiB, padded, one", SEGMENTS, 4, 4096, 4160, 12, ep::L2_NORMAL, 1},
                {"4 rows by 4 KiB, padded", SEGMENTS, 4, 4096, 4160, 12, ep::L2_NORMAL, 0},
                {"4 rows by 4 KiB, 6 deep", SEGMENTS, 4, 4096, 4160, 6, ep::L2_NORMAL, 0},
                {"8 rows by 4 KiB, one thread", SEGMENTS, 8, 4096, 4160, 6, ep::L2_NORMAL, 1},
                {"16 rows by 4 KiB, one thread", SEGMENTS, 16, 4096, 4160, 3, ep::L2_NORMAL, 1},
                {"16 rows by 4 KiB, 2 deep", SEGMENTS, 16, 4096, 4160, 2, ep::L2_NORMAL, 0},
                {"the same, evict first", SEGMENTS, 16, 4096, 4160, 3, ep::L2_EVICT_FIRST},
                {"8 rows by 8 KiB", SEGMENTS, 8, 8192, 8256, 3, ep::L2_NORMAL},
                {"plain loads", PLAIN, 16, 1024, 0, 0, 0}};
    for (auto &y : ways)
        for (int spread = 0; spread < 2; spread++) {
            if (k * 2 < y.bytes || (y.mode == PLAIN && spread)) continue;
            int first = 0;
            printf("  %-28s %s", y.name, spread ? "in turn:" : "in runs:");
            for (int grid : {132, 132, 66}) {
                rate_args a = {(const char *)w, k * 2,    (int)(total / y.tall / y.bytes),
                               y.mode,          y.tall,   y.bytes,
                               y.pitch,         y.stages, spread,
                               y.alone,         y.policy};
                pdl = first++ == 0;
                double us = graph_us(
                    [&] {
                        void *e[] = {y.mode == CHUNKS ? &chunks : &boxes, &a}, *t[] = {&a, &sink};
                        if (y.mode == PLAIN)
                            launch_ex((const void *)by_threads, grid, 512, 0, 1, stream, t);
                        else
                            launch_ex((const void *)by_engine, grid, 64, y.stages * y.tall * y.pitch + 1024, 1, stream,
                                      e);
                    },
                    stream, 6);
                printf(" %d: %.1f us %.2f TB/s;", grid, us, total / us * 1e-6);
                pdl = false;
            }
            printf("\n");
            pdl = false;
        }
    cudaFree(w);
}

int main() {
    setvbuf(stdout, nullptr, _IOLBF, 1 << 16);
    CK(cudaSetDevice(0));
    CK(cudaStreamCreate(&stream));
    walk(65536, 4096);
    walk(2 * 16384, 2048);
    walk(2048, 16384);
    return 0;
}
