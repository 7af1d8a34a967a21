/* The table of GPUs, gpus.def, by the names in a trace's deviceProperties. */
#include "model/machine/gpus.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

typedef struct gpu_row {
    const char *pattern, *name;
    double f32, tf32, bf16, f16, i8, fp8, vector, bandwidth, l2;
    const char *source;
} gpu_row;

static const gpu_row gpus[] = {
#define EP_GPU(pattern, name, f32, tf32, bf16, f16, i8, fp8, vector, bandwidth, l2, source)                            \
    {pattern, name, f32, tf32, bf16, f16, i8, fp8, vector, bandwidth, l2, source},
#include "gpus.def"
#undef EP_GPU
};

static const gpu_row *find(const char *device_name) {
    char lower[128];
    size_t n = 0;
    if (!device_name) return NULL;
    for (; device_name[n] && n + 1 < sizeof lower; n++) lower[n] = (char)tolower((unsigned char)device_name[n]);
    lower[n] = 0;
    for (size_t i = 0; i < sizeof gpus / sizeof gpus[0]; i++)
        if (ep_glob(gpus[i].pattern, lower)) return &gpus[i];
    return NULL;
}

ep_status ep_machine_by_name(const char *device_name, ep_machine *out) {
    const gpu_row *g = find(device_name);
    if (!g) return EP_ERROR_NOT_FOUND;
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "%s", g->name);
    snprintf(out->source, sizeof out->source, "%s", g->source);
    const double peaks[][2] = {{EP_DTYPE_F32, g->f32}, {EP_DTYPE_BF16, g->bf16}, {EP_DTYPE_F16, g->f16}};
    for (size_t i = 0; i < sizeof peaks / sizeof peaks[0]; i++)
        out->gflops[(int)peaks[i][0]][0] = out->gflops[(int)peaks[i][0]][1] = peaks[i][1] * 1e3;
    out->tf32_gflops = g->tf32 * 1e3;
    for (int t = 0; t < 2; t++) {
        out->vector_gflops[t] = g->vector * 1e3;
        out->read_gbs[t] = out->copy_gbs[t] = g->bandwidth;
    }
    out->cache_bytes[2] = (int64_t)(g->l2 * 1048576);
    return EP_OK;
}

double ep_gpu_tflops(const char *device_name, const char *dtype) {
    const gpu_row *g = find(device_name);
    if (!g || !dtype) return 0;
    const struct {
        const char *name;
        double tflops;
    } table[] = {{"f32", g->f32}, {"tf32", g->tf32}, {"bf16", g->bf16},
                 {"f16", g->f16}, {"i8", g->i8},     {"fp8", g->fp8}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (strcmp(dtype, table[i].name) == 0) return table[i].tflops;
    return 0;
}
