/* Any bytes as a trace: the fast and the tolerant parser agree, and no fact says what can't be. */
#include <stdlib.h>
#include <string.h>

#include "read/analyze/facts.h"
#include "read/kineto/reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static ep_trace *read_one(const uint8_t *data, size_t size, bool no_fast) {
    ep_error err = {0};
    ep_stream_in *stream;
    ep_trace *t = NULL;
    if (ep_stream_memory(data, size, &err, &stream) != EP_OK) abort();
    ep_status status = kineto_read_stream(stream, "", NULL, no_fast, &err, &t);
    ep_stream_close(stream);
    if ((status == EP_OK) != (t != NULL) || (status != EP_OK && !err.message[0])) abort();
    return t;
}

static void same(const ep_trace *a, const ep_trace *b) {
    if (a->count != b->count || a->skipped != b->skipped || a->folded != b->folded || a->complete != b->complete ||
        a->base_ns != b->base_ns || a->repair_count != b->repair_count)
        abort();
    for (size_t i = 0; i < a->repair_count; i++)
        if (a->repairs[i].count != b->repairs[i].count || a->repairs[i].first_offset != b->repairs[i].first_offset)
            abort();
    for (size_t i = 0; i < a->count; i++) {
        ep_event x, y;
        if (ep_trace_event(a, i, &x) != EP_OK || ep_trace_event(b, i, &y) != EP_OK) abort();
        if (x.kind != y.kind || x.ts_ns != y.ts_ns || x.dur_ns != y.dur_ns || x.correlation != y.correlation ||
            strcmp(x.name, y.name) != 0 || strcmp(x.pid, y.pid) != 0)
            abort();
    }
}

static void check_facts(const ep_trace *t) {
    ep_error err;
    ep_facts *f = NULL;
    if (ep_facts_create(t, &err, &f) != EP_OK) abort();
    int64_t owned = 0;
    for (size_t i = 0; i < f->op_count; i++) {
        const ep_op_fact *o = &f->ops[i];
        if (o->self_ns < 0 || o->self_ns > o->total_ns || o->count < 1 || o->views > o->count) abort();
        owned += o->self_kernels;
    }
    if (owned > (int64_t)f->kernel_count) abort();
    for (size_t i = 0; i < f->device_count; i++)
        if (f->devices[i].busy_ns < 0 || f->devices[i].busy_ns > f->devices[i].span_ns) abort();
    if (f->span_end_ns < f->span_start_ns) abort();
    ep_facts_destroy(f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ep_trace *fast = read_one(data, size, false), *slow = read_one(data, size, true);
    if ((fast == NULL) != (slow == NULL)) abort();
    if (fast) {
        same(fast, slow);
        check_facts(fast);
    }
    ep_trace_destroy(fast);
    ep_trace_destroy(slow);
    return 0;
}
