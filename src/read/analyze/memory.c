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

/* Notes the ops and the region around the peak on its thread. The innermost starts last. */
static void note_around(const ep_study *s, ep_memory_row *row) {
    const ep_trace *t = s->trace;
    const ep_memory_use *use = row->use;
    uint32_t op = EP_NO_INDEX, outer = EP_NO_INDEX, region = EP_NO_INDEX;
    for (size_t i = 0; i < t->count; i++) {
        bool is_op = t->kind[i] == EP_EVENT_OP;
        if ((!is_op && t->kind[i] != EP_EVENT_REGION) || t->lane[i] != use->peak_lane || !ep_event_is_span(t, i))
            continue;
        if (t->ts[i] > use->peak_ns || t->ts[i] + t->dur[i] < use->peak_ns) continue;
        uint32_t *inner = is_op ? &op : &region;
        if (*inner == EP_NO_INDEX || t->ts[i] >= t->ts[*inner]) *inner = (uint32_t)i;
        if (is_op && (outer == EP_NO_INDEX || t->ts[i] < t->ts[outer])) outer = (uint32_t)i;
    }
    row->op = op == EP_NO_INDEX ? NULL : ep_study_name(s, op);
    row->outer_op = outer == EP_NO_INDEX ? NULL : ep_study_name(s, outer);
    row->region = region == EP_NO_INDEX ? NULL : ep_study_name(s, region);
}

ep_status ep_analyze_memory(ep_study *s, ep_error *err) {
    (void)err;
    const ep_trace *t = s->trace;
    for (size_t i = 0; i < t->memory_count; i++) {
        ep_memory_row row = {.device = device_name(s, &t->memory[i]), .use = &t->memory[i]};
        if (!ep_grow(&s->memory, &s->memory_cap, s->memory_count + 1, sizeof *s->memory)) return EP_ERROR_OUT_OF_MEMORY;
        note_around(s, &row);
        s->memory[s->memory_count++] = row;
    }
    return EP_OK;
}
