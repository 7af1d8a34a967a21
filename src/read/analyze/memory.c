/* When each device had the most memory allocated, and in which op: from the [memory] events of profile_memory. */
#include "analyze.h"
#include "base/alloc.h"

/* PyTorch's DeviceType, of which a row of the trace gives the number alone. */
static const char *device_name(ep_study *s, const ep_memory_use *use) {
    static const struct {
        int64_t type;
        const char *name;
    } types[] = {{0, "cpu"},  {1, "cuda"}, {6, "hip"},   {9, "xla"},
                 {12, "xpu"}, {13, "mps"}, {18, "mtia"}, {20, "privateuse1"}};
    const char *name = NULL;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].type == use->type) name = types[i].name;
    if (!name) name = ep_study_printf(s, "type %lld", (long long)use->type);
    return use->device < 0 ? name : ep_study_printf(s, "%s:%lld", name, (long long)use->device);
}

/* Of the spans of that kind around the peak on its thread the innermost, which starts last, or the outermost. */
static const char *around(const ep_study *s, const ep_memory_use *use, uint8_t kind, bool outermost) {
    const ep_trace *t = s->trace;
    uint32_t best = EP_NO_INDEX;
    for (size_t i = 0; i < t->count; i++) {
        if (t->kind[i] != kind || t->lane[i] != use->peak_lane || !ep_event_is_span(t, i)) continue;
        if (t->ts[i] > use->peak_ns || t->ts[i] + t->dur[i] < use->peak_ns) continue;
        if (best == EP_NO_INDEX || (outermost ? t->ts[i] < t->ts[best] : t->ts[i] >= t->ts[best])) best = (uint32_t)i;
    }
    return best == EP_NO_INDEX ? NULL : ep_study_name(s, best);
}

ep_status ep_analyze_memory(ep_study *s, ep_error *err) {
    (void)err;
    const ep_trace *t = s->trace;
    for (size_t i = 0; i < t->memory_count; i++) {
        const ep_memory_use *use = &t->memory[i];
        if (!ep_grow(&s->memory, &s->memory_cap, s->memory_count + 1, sizeof *s->memory)) return EP_ERROR_OUT_OF_MEMORY;
        s->memory[s->memory_count++] =
            (ep_memory_row){device_name(s, use), around(s, use, EP_EVENT_OP, false), around(s, use, EP_EVENT_OP, true),
                            around(s, use, EP_EVENT_REGION, false), use};
    }
    return EP_OK;
}
