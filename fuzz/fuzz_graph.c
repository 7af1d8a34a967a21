// needs: run
/* Random programs from the fuzzer's bytes: captured, optimised, verified after each pass, and run as loop nests; the
 * result is eager's, bit for bit. */
#include <stdbool.h>

#include "../tests/equal/programs.h"
#include "run/engine/compile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    enum { ELEMENTS = 600 };
    static ep_context *ctx;
    if (!ctx && ep_context_create(&(ep_context_options){.threads = 1}, NULL, &ctx) != EP_OK) abort();
    rng r = {0x9e3779b97f4a7c15u};
    for (size_t i = 0; i < size && i < 64; i++) {
        r.s ^= (uint64_t)data[i] << (8 * (i % 8));
        next(&r);
    }
    if (!r.s) r.s = 1;
    shapes s;
    program p;
    ep_tensor *in[MOST_GIVEN], *x[MOST_OUT] = {NULL}, *y[MOST_OUT] = {NULL};
    random_shapes(&r, &s, ELEMENTS);
    for (int i = 0; i < MOST_GIVEN; i++) in[i] = random_tensor(&r, s.dtype[i], s.ndim[i], s.sizes[i]);
    const ep_tensor *const *inputs = (const ep_tensor *const *)in;
    ep_compiled *c;
    if (random_program(&r, ctx, inputs, ELEMENTS, &p)) {
        if (ep_compile_with(ctx, run_program, &p, MOST_GIVEN, p.outs, NULL, true, &c) != EP_OK) abort();
        if (run_program(ctx, &p, inputs, MOST_GIVEN, x, p.outs) != EP_OK) abort();
        if (ep_compiled_call(c, inputs, y) != EP_OK) abort();
        char why[200];
        for (int i = 0; i < p.outs; i++) {
            if (!same_bits(y[i], x[i], why, sizeof why)) abort();
            ep_tensor_destroy(x[i]);
            ep_tensor_destroy(y[i]);
        }
        ep_compiled_destroy(c);
    }
    for (int i = 0; i < MOST_GIVEN; i++) ep_tensor_destroy(in[i]);
    return 0;
}
