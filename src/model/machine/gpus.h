/* Listed GPUs: ceilings by the name that a trace gives its device. */
#ifndef EP_MODEL_GPUS_H
#define EP_MODEL_GPUS_H

#include <epilogue/machine.h>

/* TFLOP/s of a listed GPU for a dtype as kernel names spell it ("tf32", "fp8", "i8", "bf16", "f16", "f32"); 0 if the
 * device or its unit is not listed. */
double ep_gpu_tflops(const char *device_name, const char *dtype);

#endif
