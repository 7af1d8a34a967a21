/* The CUDA backend's struct. */
#include <stdio.h>

#include "cuda_probe.h"
#include "cuda_state.h"

static ep_status open_backend(int index, int threads, ep_error *err, ep_backend *out) {
    cuda_state *s;
    EP_TRY(cuda_state_open(index, err, &s));
    s->autotune = out->autotune;
    s->tf32 = out->tf32;
    out->state = s;
    out->index = index;
    out->threads = threads;
    snprintf(out->arch, sizeof out->arch, "sm_%d%d", s->major, s->minor); /* what NVRTC compiles for */
    return EP_OK;
}

static void close_backend(ep_backend *b) {
    cuda_state_release(cuda_of(b));
    b->state = NULL;
}

static ep_status sync_backend(ep_backend *b, ep_error *err) {
    cuda_state *s = cuda_of(b);
    EP_TRY(cuda_enter(s, err));
    EP_TRY(cuda_result(s, s->cu->stream_sync(s->stream), "cuStreamSynchronize", err));
    return cuda_probe_flush(s, err);
}

static ep_status storage(ep_backend *b, size_t bytes, ep_error *err, ep_storage **out) {
    return cuda_storage_create(cuda_of(b), bytes, err, out);
}

static void memory(const ep_backend *b, ep_memory_stats *out) {
    cuda_memory_stats(cuda_of(b), out);
}

static ep_status to_host(ep_backend *b, const ep_tensor *x, ep_tensor *host, ep_error *err) {
    return cuda_copy_to_host(cuda_of(b), x, host, err);
}

static ep_status from_host(ep_backend *b, const ep_tensor *host, ep_tensor *device, ep_error *err) {
    return cuda_copy_from_host(cuda_of(b), host, device, err);
}

static ep_status gemm(ep_backend *b, const ep_gemm *g, ep_error *err) {
    return cuda_gemm(cuda_of(b), g, err);
}

static const char *autotuned(ep_backend *b) {
    return ep_text_str(&cuda_of(b)->autotuned);
}

const ep_backend_ops ep_backend_cuda = {
    .name = "cuda",
    .kind = EP_DEVICE_CUDA,
    .open = open_backend,
    .close = close_backend,
    .sync = sync_backend,
    .storage = storage,
    .memory = memory,
    .to_host = to_host,
    .from_host = from_host,
    .pointwise = cuda_pointwise,
    .copy = cuda_copy,
    .gemm = gemm,
    .reduce = cuda_reduce,
    .norm = cuda_norm,
    .gated = cuda_gated,
    .gated_backward = cuda_gated_backward,
    .pack = cuda_pack,
    .pack_free = cuda_pack_free,
    .pack_bytes = cuda_pack_bytes,
    .tuned = cuda_tuned,
    .tuned_whole = cuda_tuned_whole,
    .tuned_pair = cuda_tuned_pair,
    .tuned_pair_way = cuda_tuned_pair_way,
    .module_load = cuda_module_load,
    .module_free = cuda_module_free,
    .module_symbol = cuda_module_symbol,
    .module_launch = cuda_module_launch,
    .capture_begin = cuda_capture_begin,
    .capture_op = cuda_capture_op,
    .capture_end = cuda_capture_end,
    .replay = cuda_replay,
    .capture_free = cuda_capture_free,
    .autotuned = autotuned,
    .measure = cuda_measure,
};
