/* The CPU backend's struct. */
#include "cpu.h"

#include <stdlib.h>

#include "base/parallel.h"
#include "cpu_kernels.h"
#include "cpu_module.h"
#include "tuned.h"

static void choose(ep_cpu_state *s) {
    for (int d = 0; d < EP_DTYPE_COUNT; d++) {
        const ep_cpu_row *r = ep_cpu_select(EP_CPU_POINTWISE, (ep_dtype)d, s->isa);
        s->pointwise[d] = r ? r->table : NULL;
        r = ep_cpu_select(EP_CPU_ROWS, (ep_dtype)d, s->isa);
        s->rows[d] = r ? r->table : NULL;
    }
}

static void cpu_close(ep_backend *b) {
    ep_cpu_state *s = b->state;
    if (!s) return;
    ep_tuned_scratch_destroy(s->tuned);
    ep_gemm_cache_destroy(s->gemms);
    ep_cpu_pool_close(s->pool);
    free(s);
    b->state = NULL;
}

static ep_status cpu_open(int index, int threads, ep_error *err, ep_backend *out) {
    if (index != 0) return ep_fail(err, EP_ERROR_DEVICE, "CPU device %d; there is only 0", index);
    ep_cpu_state *s = calloc(1, sizeof *s);
    if (!s) return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "%zu bytes could not be allocated", sizeof *s);
    s->isa = ep_cpu_get()->isa;
    s->ref = ep_backend_find("ref");
    choose(s);
    out->state = s;
    out->threads = threads;
    ep_status status = ep_cpu_pool_create(err, &s->pool);
    if (status == EP_OK) status = ep_gemm_cache_create(err, &s->gemms);
    if (status != EP_OK) cpu_close(out);
    return status;
}

static ep_status cpu_sync(ep_backend *b, ep_error *err) {
    (void)b;
    (void)err;
    return EP_OK;
}

static ep_status cpu_storage(ep_backend *b, size_t bytes, ep_error *err, ep_storage **out) {
    return ep_cpu_pool_storage(ep_cpu_of(b)->pool, bytes, err, out);
}

static void cpu_memory(const ep_backend *b, ep_memory_stats *out) {
    ep_cpu_pool_stats(ep_cpu_of(b)->pool, out);
}

int64_t ep_cpu_bytes(const ep_tensor *t) {
    int64_t n = 1;
    for (int i = 0; i < t->ndim; i++)
        if (t->strides[i] != 0 || t->sizes[i] == 0) n *= t->sizes[i];
    return n * (int64_t)ep_dtype_size(t->dtype);
}

extern const ep_backend_ops ep_backend_cpu;
const ep_backend_ops ep_backend_cpu = {
    .name = "cpu",
    .kind = EP_DEVICE_CPU,
    .open = cpu_open,
    .close = cpu_close,
    .sync = cpu_sync,
    .storage = cpu_storage,
    .memory = cpu_memory,
    .pointwise = ep_cpu_pointwise,
    .gated = ep_cpu_gated,
    .gated_backward = ep_cpu_gated_backward,
    .pack = ep_cpu_pack,
    .pack_free = ep_cpu_pack_free,
    .pack_bytes = ep_tuned_pack_bytes,
    .tuned = ep_cpu_tuned,
    .tuned_hand = ep_tuned_hand_bytes,
    .tuned_text = ep_tuned_choice_text,
    .tuned_pair_way = ep_tuned_pair_way,
    .tuned_hooks = true,
    .pack_save = ep_tuned_pack_save,
    .pack_load = ep_tuned_pack_load,
    .pack_from = ep_tuned_choices_create,
    .pack_describe = ep_tuned_pack_describe,
    .copy = ep_cpu_copy,
    .gemm = ep_cpu_gemm,
    .gemm_then = true,
    .reduce = ep_cpu_reduce,
    .norm = ep_cpu_norm,
    .module_load = ep_cpu_module_load,
    .module_free = ep_cpu_module_free,
    .module_symbol = ep_cpu_module_symbol,
    .module_launch = ep_cpu_module_launch,
    .module_call = ep_cpu_module_call,
};
