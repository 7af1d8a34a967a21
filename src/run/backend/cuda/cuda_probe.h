/* How a launch passes the probe: a LAUNCH span on the host, and the device's time from CUPTI or from events around it. */
#ifndef EP_CUDA_PROBE_H
#define EP_CUDA_PROBE_H

#include "base/probe.h"
#include "cuda_state.h"

typedef struct cuda_probe_mark {
    uint64_t correlation;
    bool cupti;     /* CUPTI records the device side */
    cu_event start; /* else an event before the launch */
} cuda_probe_mark;

void cuda_probe_begin(cuda_state *s, const ep_probe *p, const char *name, cuda_probe_mark *mark);
void cuda_probe_end(cuda_state *s, const ep_probe *p, const cuda_launch *l, const cuda_probe_mark *mark);
/* Hands the times that events gave to the probe, and CUPTI's where many are pending (the rest when the recording stops).
 * Called by sync, when the device is done. */
ep_status cuda_probe_flush(cuda_state *s, ep_error *err);
void cuda_probe_close(cuda_state *s);

#endif
