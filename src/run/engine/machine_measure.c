/* The machine, measured now and kept: the backend's ceilings, and what one op costs the engine. */
#include <epilogue/machine.h>
#include <epilogue/ops.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "model/machine/machine.h"
#include "run/backend/backend.h"
#include "run/backend/cpu/measure.h"

/* The least time of one add of 64 numbers, from call to released result. */
static ep_status dispatch_ns(ep_device device, ep_error *err, double *out) {
    enum { ROUNDS = 40, CALLS = 500 };
    const int64_t size = 64;
    ep_context_options options = {.device = device, .threads = 1};
    ep_context *ctx = NULL;
    ep_tensor *host = NULL, *x = NULL, *y = NULL;
    double best = 1e18;
    EP_TRY(ep_context_create(&options, err, &ctx));
    ep_status status = ep_tensor_zeros(EP_DTYPE_F32, 1, &size, err, &host);
    if (status == EP_OK) status = ep_to_device(ctx, host, &x);
    for (int r = 0; r < ROUNDS && status == EP_OK; r++) {
        int64_t from = ep_clock_ns();
        for (int i = 0; i < CALLS && status == EP_OK; i++) {
            status = ep_add(ctx, x, x, &y);
            if (status == EP_OK) ep_tensor_destroy(y);
        }
        double ns = (double)(ep_clock_ns() - from) / CALLS;
        if (ns < best) best = ns;
        if (status == EP_OK) status = ep_context_sync(ctx);
    }
    if (status != EP_OK && err && ep_context_error(ctx)->status != EP_OK) *err = *ep_context_error(ctx);
    ep_tensor_destroy(host);
    ep_tensor_destroy(x);
    ep_context_destroy(ctx);
    if (status == EP_OK) *out = best;
    return status;
}

ep_status ep_machine_measure(ep_device device, int threads, ep_error *err, ep_machine *out) {
    char path[4096];
    ep_machine m;
    if (!out) return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "out is NULL");
    if (device.kind == EP_DEVICE_CPU) {
        EP_TRY(ep_cpu_measure(threads, err, &m));
    } else {
        const ep_backend_ops *b = ep_backend_find("cuda");
        if (!b || !b->measure) return ep_fail(err, EP_ERROR_NOT_BUILT, "this build cannot measure a CUDA device");
        EP_TRY(b->measure(device, err, &m));
    }
    EP_TRY(dispatch_ns(device, err, &m.dispatch_ns));
    ep_error why; /* what took seconds to measure is not thrown away because it cannot be kept */
    ep_status kept = ep_machine_path(device, &why, path, sizeof path);
    if (kept == EP_OK) kept = ep_machine_write(&m, path, &why);
    size_t n = strlen(m.source);
    if (kept != EP_OK) snprintf(m.source + n, sizeof m.source - n, ", not kept: %s", why.message);
    *out = m;
    return EP_OK;
}
