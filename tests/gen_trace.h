/* A trace of any size, as PyTorch 2.x writes it: blocks of twenty events (a gated MLP's first half: ops with their shapes,
 * launches, kernels, flows), a hundred blocks a step, again and again with times, ids and correlations that go on. */
#ifndef EP_TESTS_GEN_TRACE_H
#define EP_TESTS_GEN_TRACE_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct gen_trace {
    FILE *out;
    int64_t ts; /* ns, of the event to come */
    int64_t step, id, correlation;
    int64_t bytes, events;
} gen_trace;

enum { GEN_STEP_BLOCKS = 100, GEN_STEP_EVENTS = 1 + 20 * GEN_STEP_BLOCKS, GEN_STEP_KERNELS = 3 * GEN_STEP_BLOCKS };

static inline void gen_add(gen_trace *g, int written) {
    g->bytes += written > 0 ? written : 0;
}

static inline void gen_head(gen_trace *g) {
    g->ts = 5141717126117777;
    gen_add(
        g,
        fprintf(
            g->out,
            "\n  {\n    \"schemaVersion\": 1,\n    \"deviceProperties\": [\n    {\n      \"id\": 0, \"name\": \"NVIDIA "
            "H200\", \"totalGlobalMem\": 150109880320,\n      \"computeMajor\": 9, \"computeMinor\": 0,\n      "
            "\"maxThreadsPerBlock\": 1024, \"warpSize\": 32, \"numSms\": 132\n    }\n    ],\n  "
            "\"displayTimeUnit\": \"ms\",\n  \"baseTimeNanoseconds\": 1790857026000000000,\n  "
            "\"traceEvents\": ["));
}

static inline void gen_span(gen_trace *g, const char *cat, const char *name, int64_t at, int64_t dur, const char *where,
                            const char *args) {
    gen_add(g, fprintf(g->out,
                       "%s\n  {\n    \"ph\": \"X\", \"cat\": \"%s\", \"name\": \"%s\", %s,\n    \"ts\": %" PRId64
                       ".%03d, \"dur\": %" PRId64 ".%03d,\n    \"args\": {\n      %s\n    }\n  }",
                       g->events ? "," : "", cat, name, where, (g->ts + at) / 1000, (int)((g->ts + at) % 1000),
                       dur / 1000, (int)(dur % 1000), args));
    g->events++;
}

static inline void gen_op(gen_trace *g, const char *name, int64_t at, int64_t dur, const char *shapes) {
    char args[1024];
    int64_t id = g->id++;
    snprintf(args, sizeof args, "\"External id\": %" PRId64 ",\"Record function id\": 0%s, \"Ev Idx\": %" PRId64, id,
             shapes, id - 1);
    gen_span(g, *shapes ? "cpu_op" : "user_annotation", name, at, dur, "\"pid\": 412, \"tid\": 412", args);
}

static inline void gen_flow(gen_trace *g, char phase, const char *where, int64_t at) {
    gen_add(g, fprintf(g->out,
                       ",\n  {\n    \"ph\": \"%c\", \"id\": %" PRId64 ", %s, \"ts\": %" PRId64
                       ".%03d,\n    \"cat\": \"ac2g\", \"name\": \"ac2g\"%s\n  }",
                       phase, g->correlation, where, (g->ts + at) / 1000, (int)((g->ts + at) % 1000),
                       phase == 'f' ? ", \"bp\": \"e\"" : ""));
    g->events++;
}

static inline void gen_launch(gen_trace *g, const char *cat, const char *call, const char *kernel, int64_t at,
                              int64_t dur, bool flows) {
    static const char host[] = "\"pid\": 412, \"tid\": 412", device[] = "\"pid\": 0, \"tid\": 7";
    char args[1024];
    g->correlation++;
    snprintf(args, sizeof args, "\"External id\": %" PRId64 ", \"cbid\": 652, \"correlation\": %" PRId64, g->id - 1,
             g->correlation);
    gen_span(g, cat, call, at, 5600, host, args);
    if (flows) gen_flow(g, 's', host, at);
    snprintf(
        args, sizeof args,
        "\"External id\": %" PRId64
        ", \"queued\": 0, \"device\": 0, \"context\": 1,\n      \"stream\": 7, \"correlation\": %" PRId64
        ",\n      \"registers per thread\": 168,\n      \"shared memory\": 213248,\n      \"blocks per SM\": "
        "1.000000,\n      \"warps per SM\": 12.000000,\n      \"grid\": [132, 1, 1],\n      \"block\": [384, 1, 1],\n  "
        "    \"est. achieved occupancy %%\": 19",
        g->id - 1, g->correlation);
    gen_span(g, "kernel", kernel, at + 14000, dur, device, args);
    if (flows) gen_flow(g, 'f', device, at + 14000);
}

#define GEN_SHAPES(dims, strides, types, concrete)                                                                     \
    ", \"Concrete Inputs\": [" concrete "], \"Input type\": [" types "], \"Input Strides\": [" strides                 \
    "], \"Input Dims\": [" dims "]"
#define GEN_BF16 "\"c10::BFloat16\""

static inline void gen_block(gen_trace *g) {
    gen_op(g, "aten::dropout", 1000, 5000,
           GEN_SHAPES("[64, 128, 768], [], []", "[98304, 768, 1], [], []", GEN_BF16 ", \"Scalar\", \"Scalar\"",
                      "\"\", \"0.\", \"False\""));
    gen_op(g, "aten::to", 10000, 4000,
           GEN_SHAPES("[64, 128, 768], [], [], [], []", "[98304, 768, 1], [], [], [], []",
                      GEN_BF16 ", \"Scalar\", \"Scalar\", \"Scalar\", \"\"",
                      "\"\", \"15\", \"False\", \"False\", \"\""));
    gen_op(g, "aten::linear", 20000, 200000,
           GEN_SHAPES("[64, 128, 768], [3072, 768], []", "[98304, 768, 1], [768, 1], []",
                      GEN_BF16 ", " GEN_BF16 ", \"\"", "\"\", \"\", \"\""));
    gen_op(g, "aten::t", 27000, 41554, GEN_SHAPES("[3072, 768]", "[768, 1]", GEN_BF16, "\"\""));
    gen_op(g, "aten::transpose", 40000, 22710,
           GEN_SHAPES("[3072, 768], [], []", "[768, 1], [], []", GEN_BF16 ", \"Scalar\", \"Scalar\"",
                      "\"\", \"0\", \"1\""));
    gen_op(g, "aten::as_strided", 54000, 6080,
           GEN_SHAPES("[3072, 768], [], [], []", "[768, 1], [], [], []",
                      GEN_BF16 ", \"ScalarList\", \"ScalarList\", \"\"", "\"\", \"[768, 3072]\", \"[1, 768]\", \"\""));
    gen_op(
        g, "aten::matmul", 72000, 140000,
        GEN_SHAPES("[64, 128, 768], [768, 3072]", "[98304, 768, 1], [1, 768]", GEN_BF16 ", " GEN_BF16, "\"\", \"\""));
    gen_op(g, "aten::mm", 90000, 120000,
           GEN_SHAPES("[8192, 768], [768, 3072]", "[768, 1], [1, 768]", GEN_BF16 ", " GEN_BF16, "\"\", \"\""));
    gen_launch(g, "cuda_driver", "cuLaunchKernelEx", "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT", 150000, 55712,
               true);
    gen_op(g, "aten::gelu", 240000, 60000,
           GEN_SHAPES("[64, 128, 3072], []", "[393216, 3072, 1], []", GEN_BF16 ", \"\"", "\"\", \"tanh\""));
    gen_launch(
        g, "cuda_runtime", "cudaLaunchKernel",
        "void at::native::vectorized_elementwise_kernel<8, "
        "at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType)::{lambda()#1}::operator()() "
        "const::{lambda()#3}::operator()() const::{lambda(c10::BFloat16)#1}, std::array<char*, 2ul> >(int, "
        "at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType)::{lambda()#1}::operator()() "
        "const::{lambda()#3}::operator()() const::{lambda(c10::BFloat16)#1}, std::array<char*, 2ul>)",
        260000, 32352, false);
    gen_op(g, "aten::mul", 320000, 60000,
           GEN_SHAPES("[64, 128, 3072], [64, 128, 3072]", "[393216, 3072, 1], [393216, 3072, 1]",
                      GEN_BF16 ", " GEN_BF16, "\"\", \"\""));
    gen_launch(
        g, "cuda_runtime", "cudaLaunchKernel",
        "void at::native::vectorized_elementwise_kernel<8, at::native::BinaryFunctor<c10::BFloat16, c10::BFloat16, "
        "c10::BFloat16, at::native::binary_internal::MulFunctor<float> >, std::array<char*, 3ul> >(int, "
        "at::native::BinaryFunctor<c10::BFloat16, c10::BFloat16, c10::BFloat16, "
        "at::native::binary_internal::MulFunctor<float> >, std::array<char*, 3ul>)",
        340000, 36288, true);
    g->ts += 500001;
}

static inline void gen_step(gen_trace *g) {
    char name[40];
    snprintf(name, sizeof name, "ProfilerStep#%" PRId64, g->step++);
    gen_op(g, name, 0, (int64_t)GEN_STEP_BLOCKS * 500001, "");
    for (int i = 0; i < GEN_STEP_BLOCKS; i++) gen_block(g);
}

static inline void gen_tail(gen_trace *g) {
    gen_add(g, fprintf(g->out, "\n  ],\n  \"traceName\": \"generated.json\"\n}\n"));
}

/* Writes at least `bytes`; true if all of it went out. */
static inline bool gen_file(const char *path, int64_t bytes, gen_trace *g) {
    *g = (gen_trace){.out = fopen(path, "w"), .id = 1};
    if (!g->out) return false;
    gen_head(g);
    while (g->bytes < bytes) gen_step(g);
    gen_tail(g);
    bool ok = !ferror(g->out);
    return fclose(g->out) == 0 && ok;
}

#endif
