/* The schedule of torch.profiler: wait, warm up, record, and again. */
#include "recorder.h"

ep_status ep_step_check(const ep_profile_options *o, ep_error *err) {
    if (o->wait < 0 || o->warmup < 0 || o->active < 0 || o->repeat < 0)
        return ep_fail(err, EP_ERROR_INVALID_ARGUMENT,
                       "wait %d, warmup %d, active %d, repeat %d: none of them may be negative", o->wait, o->warmup,
                       o->active, o->repeat);
    if (o->active == 0 && (o->wait || o->warmup || o->repeat))
        return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "a schedule with active = 0 records nothing");
    return EP_OK;
}

ep_step_action ep_step_action_of(const ep_profile_options *o, int64_t step) {
    int64_t cycle = (int64_t)o->wait + o->warmup + o->active;
    if (cycle == 0) return EP_STEP_RECORD;
    if (o->repeat > 0 && step / cycle >= o->repeat) return EP_STEP_OFF;
    int64_t at = step % cycle;
    return at < o->wait ? EP_STEP_OFF : at < o->wait + o->warmup ? EP_STEP_WARMUP : EP_STEP_RECORD;
}
