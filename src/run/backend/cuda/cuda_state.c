/* Opening a device, entering its context, and errors that stick. */
#include "cuda_state.h"

#include <stdlib.h>
#include <string.h>

#include "base/probe.h"
#include "cuda_probe.h"
#include "cupti.h"

ep_status cuda_result(cuda_state *s, cu_result result, const char *what, ep_error *err) {
    if (result == 0) return EP_OK;
    /* 700 to 799 (illegal address, launch failure, ...) and 214 (ECC) leave the context unusable: every later call would
     * fail, so the first one is kept and repeated as the reason. */
    if ((result >= 700 && result < 800 && result != 701 && result != 702) || result == 214) {
        if (!s->sticky) s->sticky = result;
    }
    return cu_check(s->cu, result, what, err);
}

ep_status cuda_enter(cuda_state *s, ep_error *err) {
    if (s->sticky) {
        ep_error first;
        cu_check(s->cu, s->sticky, "an earlier call", &first);
        return ep_fail(err, EP_ERROR_DRIVER,
                       "the device cannot be used any more in this process since %s; start the process again",
                       first.message);
    }
    return cu_check(s->cu, s->cu->context_set(s->context), "cuCtxSetCurrent", err);
}

static ep_status read_attributes(cuda_state *s, ep_error *err) {
    const struct {
        int attribute;
        int *value;
    } rows[] = {{CU_ATTR_SM_COUNT, &s->sm_count},
                {CU_ATTR_MAJOR, &s->major},
                {CU_ATTR_MINOR, &s->minor},
                {CU_ATTR_L2, &s->l2_bytes},
                {CU_ATTR_MAX_SHARED_OPTIN, &s->shared_optin}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        CU_TRY(s->cu, s->cu->device_attribute(rows[i].value, rows[i].attribute, s->device), err);
    return cu_check(s->cu, s->cu->device_name(s->name, (int)sizeof s->name, s->device), "cuDeviceGetName", err);
}

/* For the traces that show its kernels; and what CUPTI still holds when a recording stops belongs to it. */
static void say_device(const cuda_state *s) {
    ep_probe_device d = {.id = s->index, .sm_count = s->sm_count, .major = s->major, .minor = s->minor};
    size_t bytes = 0;
    memcpy(d.name, s->name, sizeof d.name);
    if (s->cu->device_memory(&bytes, s->device) == 0) d.memory_bytes = (int64_t)bytes;
    ep_probe_device_add(&d);
    atomic_store(&ep_probe_flush, cupti_flush);
}

static ep_status find_device(cuda_state *s, ep_error *err) {
    int count = 0;
    CU_TRY(s->cu, s->cu->device_count(&count), err);
    if (s->index < 0 || s->index >= count)
        return ep_fail(err, EP_ERROR_DEVICE, "there is no CUDA device %d; this machine has %d", s->index, count);
    CU_TRY(s->cu, s->cu->device_get(&s->device, s->index), err);
    return read_attributes(s, err);
}

static void read_switches(cuda_state *s) {
    s->mark_written = getenv("EPILOGUE_INITCHECK") != NULL;
    const char *one = getenv("EPILOGUE_ONE_KERNEL");
    if (one && strcmp(one, "0") == 0) s->one_kernel = CUDA_ONE_NEVER;
    if (one && strcmp(one, "all") == 0) s->one_kernel = CUDA_ONE_ALWAYS;
    const char *relaunch = getenv("EPILOGUE_RELAUNCH");
    s->no_relaunch = relaunch && strcmp(relaunch, "0") == 0;
}

ep_status cuda_state_look(int index, ep_error *err, cuda_state *s) {
    *s = (cuda_state){.index = index};
    read_switches(s);
    s->cu = cu_driver_get(err);
    return s->cu ? find_device(s, err) : EP_ERROR_MISSING_LIBRARY;
}

static ep_status open_device(cuda_state *s, ep_error *err) {
    EP_TRY(find_device(s, err));
    if (s->major < 8)
        return ep_fail(err, EP_ERROR_UNSUPPORTED, "%s has compute capability %d.%d; 8.0 is the least", s->name,
                       s->major, s->minor);
    say_device(s);
    CU_TRY(s->cu, s->cu->context_retain(&s->context, s->device), err);
    CU_TRY(s->cu, s->cu->context_set(s->context), err);
    CU_TRY(s->cu, s->cu->stream_create(&s->stream, 1), err); /* 1: does not wait for the legacy stream */
    return cuda_memory_open(s, err);
}

static void close_device(cuda_state *s) {
    if (s->context) {
        s->cu->context_set(s->context);
        if (s->stream) {
            s->cu->stream_sync(s->stream);
            cuda_probe_close(s);
            cuda_gemm_close(s);
            cuda_launch_close(s);
            if (s->parts) s->cu->memory_free(s->parts);
            cuda_memory_close(s);
            s->cu->stream_destroy(s->stream);
        }
        s->cu->context_release(s->device);
    }
    free(s);
}

ep_status cuda_state_open(int index, ep_error *err, cuda_state **out) {
    const cu_driver *cu = cu_driver_get(err);
    if (!cu) return EP_ERROR_MISSING_LIBRARY;
    cuda_state *s = calloc(1, sizeof *s);
    if (!s) return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory for a device");
    atomic_init(&s->refs, 1);
    s->cu = cu;
    s->index = index;
    read_switches(s);
    ep_status status = open_device(s, err);
    if (status != EP_OK) {
        close_device(s);
        return status;
    }
    *out = s;
    return EP_OK;
}

void cuda_state_release(cuda_state *s) {
    if (atomic_fetch_sub(&s->refs, 1) == 1) close_device(s);
}
