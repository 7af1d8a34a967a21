/* The device's ceilings, measured: reading and copying memory, matrix products by dtype, what a launch and a graph launch cost
 * the host. Random operands: products of zeros draw less power and run faster than real ones. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cuda_state.h"

enum { COPY_BYTES = 1 << 30, SIDE = 8192, ROUNDS = 5, LAUNCHES = 2000 };

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median time of `run` on the device, in us. */
static ep_status time_us(cuda_state *s, ep_status (*run)(cuda_state *s, void *user, ep_error *err), void *user,
                         ep_error *err, double *out) {
    double us[ROUNDS];
    cu_event a = NULL, b = NULL;
    ep_status status = cuda_result(s, s->cu->event_create(&a, 0), "cuEventCreate", err);
    if (status == EP_OK) status = cuda_result(s, s->cu->event_create(&b, 0), "cuEventCreate", err);
    if (status == EP_OK) status = run(s, user, err);
    for (int i = 0; i < ROUNDS && status == EP_OK; i++) {
        float ms = 0;
        s->cu->event_record(a, s->stream);
        status = run(s, user, err);
        s->cu->event_record(b, s->stream);
        if (status == EP_OK) status = cuda_result(s, s->cu->event_sync(b), "cuEventSynchronize", err);
        if (status == EP_OK) status = cuda_result(s, s->cu->event_elapsed(&ms, a, b), "cuEventElapsedTime", err);
        us[i] = (double)ms * 1e3;
    }
    if (a) s->cu->event_destroy(a);
    if (b) s->cu->event_destroy(b);
    if (status != EP_OK) return status;
    qsort(us, ROUNDS, sizeof *us, by_value);
    *out = us[ROUNDS / 2];
    return EP_OK;
}

typedef struct operands {
    ep_storage *a, *b, *out;
    ep_gemm gemm;
} operands;

static ep_status run_copy(cuda_state *s, void *user, ep_error *err) {
    operands *o = user;
    cu_result r =
        s->cu->copy_on_device((cu_ptr)(uintptr_t)o->b->data, (cu_ptr)(uintptr_t)o->a->data, COPY_BYTES, s->stream);
    return cuda_result(s, r, "cuMemcpyDtoDAsync", err);
}

/* Each thread reads 128 bytes a step; what it read is used by no one, in a way that the compiler cannot know. */
static ep_status run_read(cuda_state *s, void *user, ep_error *err) {
    operands *o = user;
    cuda_launch l = {.name = CUDA_READ_KERNEL, .grid = {(unsigned)s->sm_count * 4, 1, 1}, .block = 512};
    const void *from = o->a->data;
    void *sink = o->out->data;
    int64_t count = COPY_BYTES / 16;
    void *params[] = {&from, &count, &sink};
    return cuda_run(s, &l, params, err);
}

static ep_status run_gemm(cuda_state *s, void *user, ep_error *err) {
    operands *o = user;
    return cuda_gemm(s, &o->gemm, err);
}

/* Numbers of +-[0.5, 2) in any float dtype: random bits with the exponent set to one of two values. */
static ep_status fill(cuda_state *s, ep_storage *to, ep_dtype dtype, ep_error *err) {
    size_t count = (size_t)SIDE * SIDE, size = ep_dtype_size(dtype);
    ep_tensor host = {
        .dtype = dtype, .ndim = 1, .sizes = {SIDE * SIDE}, .strides = {1}, .numel = SIDE * SIDE, .value = -1};
    ep_tensor x = host;
    uint32_t *w = malloc(count * size);
    if (!w) return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory for random operands");
    uint64_t r = 0x9e3779b97f4a7c15u;
    for (size_t i = 0; i < count * size / 4; i++) {
        r = r * 6364136223846793005u + 1442695040888963407u;
        uint32_t v = (uint32_t)(r >> 32);
        if (dtype == EP_DTYPE_F32)
            w[i] = (v & 0x80ffffffu) | 0x3f000000u;
        else if (dtype == EP_DTYPE_BF16)
            w[i] = (v & 0x80ff80ffu) | 0x3f003f00u;
        else
            w[i] = (v & 0x87ff87ffu) | 0x38003800u;
    }
    host.data = (char *)w;
    x.data = to->data;
    x.device = (ep_device){EP_DEVICE_CUDA, s->index};
    ep_status status = cuda_copy_from_host(s, &host, &x, err);
    free(w);
    return status;
}

static ep_status measure_gemm(cuda_state *s, ep_dtype dtype, operands *o, ep_error *err, double *gflops) {
    EP_TRY(fill(s, o->a, dtype, err));
    EP_TRY(fill(s, o->b, dtype, err));
    o->gemm = (ep_gemm){.batch = 1,
                        .m = SIDE,
                        .n = SIDE,
                        .k = SIDE,
                        .dtype = dtype,
                        .out_dtype = dtype,
                        .a = o->a->data,
                        .a_row = SIDE,
                        .a_col = 1,
                        .b = o->b->data,
                        .b_row = 1,
                        .b_col = SIDE,
                        .out = o->out->data,
                        .out_row = SIDE,
                        .alpha = 1.0};
    double us;
    EP_TRY(time_us(s, run_gemm, o, err, &us));
    *gflops = 2.0 * SIDE * SIDE * SIDE / us / 1e3;
    return EP_OK;
}

/* Least host time of a call, in us, of bursts that the launch queue can hold. */
static double host_us(cuda_state *s, ep_status (*run)(cuda_state *s, void *user, ep_error *err), void *user) {
    enum { BURST = 100 };
    double best = 1e9;
    for (int i = 0; i < LAUNCHES / BURST; i++) {
        int64_t from = ep_clock_ns();
        for (int k = 0; k < BURST; k++)
            if (run(s, user, NULL) != EP_OK) return 0;
        double us = (double)(ep_clock_ns() - from) / 1e3 / BURST;
        if (us < best) best = us;
        s->cu->stream_sync(s->stream);
    }
    return best;
}

static ep_status run_small(cuda_state *s, void *user, ep_error *err) {
    operands *o = user;
    ep_backend b = {.state = s};
    ep_tensor x = {
        .data = o->a->data, .dtype = EP_DTYPE_F32, .ndim = 1, .sizes = {64}, .strides = {1}, .numel = 64, .value = -1};
    const ep_tensor *in[2] = {&x, &x};
    return cuda_pointwise(&b, EP_OP_ADD, 2, in, &x, err);
}

static ep_status run_graph(cuda_state *s, void *user, ep_error *err) {
    return cuda_result(s, s->cu->graph_launch(user, s->stream), "cuGraphLaunch", err);
}

/* A graph of five small kernels, as a gated MLP has. */
static double graph_us(cuda_state *s, operands *o) {
    cu_graph graph = NULL;
    cu_graph_exec exec = NULL;
    double us = 0;
    if (s->cu->capture_begin(s->stream, 2) != 0) return 0;
    ep_status status = EP_OK;
    for (int i = 0; i < 5 && status == EP_OK; i++) status = run_small(s, o, NULL);
    if (s->cu->capture_end(s->stream, &graph) == 0 && status == EP_OK && s->cu->graph_instantiate(&exec, graph, 0) == 0)
        us = host_us(s, run_graph, exec);
    if (exec) s->cu->graph_exec_destroy(exec);
    if (graph) s->cu->graph_destroy(graph);
    return us;
}

static ep_status measure_all(cuda_state *s, operands *o, ep_error *err, ep_machine *m) {
    double us;
    EP_TRY(cuda_storage_create(s, COPY_BYTES, err, &o->a));
    EP_TRY(cuda_storage_create(s, COPY_BYTES, err, &o->b));
    EP_TRY(cuda_storage_create(s, (size_t)SIDE * SIDE * 4, err, &o->out));
    EP_TRY(time_us(s, run_copy, o, err, &us));
    m->copy_gbs[0] = m->copy_gbs[1] = m->read_gbs[0] = m->read_gbs[1] = 2.0 * COPY_BYTES / us / 1e3;
    if (cuda_has_kernel(s, CUDA_READ_KERNEL)) {
        EP_TRY(time_us(s, run_read, o, err, &us));
        m->read_gbs[0] = m->read_gbs[1] = COPY_BYTES / us / 1e3;
    }
    static const ep_dtype dtypes[] = {EP_DTYPE_BF16, EP_DTYPE_F16, EP_DTYPE_F32};
    for (int i = 0; i < 3; i++) {
        EP_TRY(measure_gemm(s, dtypes[i], o, err, &m->gflops[dtypes[i]][0]));
        m->gflops[dtypes[i]][1] = m->gflops[dtypes[i]][0];
    }
    s->tf32 = true;
    EP_TRY(measure_gemm(s, EP_DTYPE_F32, o, err, &m->tf32_gflops));
    s->tf32 = false;
    m->vector_gflops[0] = m->vector_gflops[1] = m->gflops[EP_DTYPE_F32][0];
    m->launch_us = host_us(s, run_small, o);
    m->graph_launch_us = graph_us(s, o);
    return EP_OK;
}

ep_status cuda_measure(ep_device device, ep_error *err, ep_machine *out) {
    cuda_state *s;
    operands o = {0};
    EP_TRY(cuda_state_open(device.index, err, &s));
    ep_machine m = {.measured = true, .cores = s->sm_count, .cache_bytes = {0, 0, s->l2_bytes}};
    snprintf(m.name, sizeof m.name, "%s", s->name);
    snprintf(m.source, sizeof m.source, "measured here: memory, 8192^3 products, launches");
    ep_status status = measure_all(s, &o, err, &m);
    ep_storage_release(o.a);
    ep_storage_release(o.b);
    ep_storage_release(o.out);
    cuda_state_release(s);
    if (status == EP_OK) *out = m;
    return status;
}
