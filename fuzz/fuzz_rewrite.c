// needs: run
/* Any bytes as a trace, read, written, read: every event comes back as it was. */
#include <epilogue/profile.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/trace/trace.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void same_event(const ep_trace *a, size_t i, const ep_trace *b, size_t j) {
    ep_event x, y;
    if (ep_trace_event(a, i, &x) != EP_OK || ep_trace_event(b, j, &y) != EP_OK) abort();
    if (x.kind != y.kind || x.phase != y.phase || a->base_ns + x.ts_ns != b->base_ns + y.ts_ns ||
        x.dur_ns != y.dur_ns || x.correlation != y.correlation || x.flow_id != y.flow_id ||
        strcmp(x.name, y.name) != 0 || strcmp(x.category, y.category) != 0 || strcmp(x.pid, y.pid) != 0 ||
        strcmp(x.tid, y.tid) != 0)
        abort();
}

/* What only Chrome's viewer knows is refused where nothing else is left: what the reader saw beside it may have been damaged. */
static bool has_known(const ep_trace *t) {
    for (size_t i = 0; i < t->count; i++)
        if (t->phase[i] && t->kind[i] < EP_EVENT_OTHER_SPAN) return true;
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const ep_read_options options = {.keep_args = true};
    ep_trace *a = NULL, *b = NULL;
    ep_error err = {0};
    if (ep_trace_read_memory(data, size, &options, &err, &a) != EP_OK) return 0;
    char path[64];
    snprintf(path, sizeof path, "/tmp/epilogue-fuzz-%ld.json", (long)getpid());
    if (ep_trace_write(a, path, &err) != EP_OK) abort();
    ep_status status = ep_trace_read(path, &options, &err, &b);
    unlink(path);
    size_t j = 0;
    if (status == EP_OK)
        for (size_t i = 0; i < a->count; i++)
            if (a->phase[i]) { /* an event without ph is no event to any reader; it is not written */
                if (j == b->count) abort();
                same_event(a, i, b, j++);
            }
    if (status == EP_OK ? j != b->count : has_known(a)) abort();
    ep_trace_destroy(a);
    ep_trace_destroy(b);
    return 0;
}
