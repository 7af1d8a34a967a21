/* Rings to columns: spans paired, launches and kernels tied to the op that asked for them, lanes named. */
#define _GNU_SOURCE
#include "recorder.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/isa.h"
#include "model/op/op.h"
#include "model/trace/trace.h"

/* How each kind of span is shown. */
static const struct {
    const char *category;
    ep_event_kind kind;
} span_kinds[EP_PROBE_KIND_COUNT] = {
    [EP_PROBE_OP] = {"cpu_op", EP_EVENT_OP},           [EP_PROBE_REGION] = {"user_annotation", EP_EVENT_REGION},
    [EP_PROBE_LAUNCH] = {"runtime", EP_EVENT_RUNTIME}, [EP_PROBE_RUNTIME] = {"runtime", EP_EVENT_RUNTIME},
    [EP_PROBE_GUARD] = {"compile", EP_EVENT_COMPILE},  [EP_PROBE_COMPILE] = {"compile", EP_EVENT_COMPILE},
    [EP_PROBE_PLAN] = {"plan", EP_EVENT_OTHER_SPAN}};

/* Our dtype names as PyTorch writes them. */
static const struct {
    const char *ours, *theirs;
} dtypes[] = {{"f32", "float"}, {"bf16", "c10::BFloat16"}, {"f16", "c10::Half"},
              {"i32", "int"},   {"i64", "long int"},       {"bool", "bool"}};

typedef struct open_span {
    uint32_t row;
    uint64_t op; /* External id of the innermost op, itself included */
} open_span;

typedef struct launch {
    uint64_t correlation, op;
} launch;

typedef struct kernel_ref {
    const ep_probe_kernel *k;
    int64_t start, end; /* ns on the trace's line */
} kernel_ref;

typedef struct converter {
    const ep_recording *r;
    ep_trace *t;
    int64_t base;
    uint32_t pid, lane; /* strings; host lane of the ring */
    uint64_t next_op;
    open_span *open;
    size_t depth, open_cap;
    launch *launches;
    size_t launch_count, launch_cap;
    kernel_ref *kernels;
    size_t kernel_count, kernel_cap;
    ep_text text;
    bool failed; /* memory is out */
} converter;

static uint32_t intern(converter *c, const char *s) {
    uint32_t id = ep_trace_string(c->t, s, strlen(s));
    if (id == UINT32_MAX) c->failed = true;
    return c->failed ? 0 : id;
}

static uint32_t intern_number(converter *c, int64_t v) {
    char s[24];
    snprintf(s, sizeof s, "%" PRId64, v);
    return intern(c, s);
}

static uint32_t take_text(converter *c) {
    if (c->text.failed) c->failed = true;
    uint32_t id = intern(c, ep_text_str(&c->text));
    ep_text_clear(&c->text);
    return id;
}

static uint32_t append(converter *c, const char *name, const char *category, ep_event_kind kind, int64_t ts) {
    uint32_t row = ep_trace_append(c->t);
    if (row == EP_NO_INDEX) {
        c->failed = true;
        return row;
    }
    c->t->kind[row] = (uint8_t)kind;
    c->t->phase[row] = 'X';
    c->t->name[row] = intern(c, name);
    c->t->category[row] = intern(c, category);
    c->t->lane[row] = c->lane;
    c->t->ts[row] = ts;
    return row;
}

static void list(ep_text *t, const int64_t *v, int64_t n) {
    ep_text_char(t, '[');
    for (int64_t i = 0; i < n; i++) ep_text_printf(t, "%s%" PRId64, i ? ", " : "", v[i]);
    ep_text_char(t, ']');
}

static const char *dtype_text(const char *ours) {
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(dtypes[i].ours, ours) == 0) return dtypes[i].theirs;
    return ours;
}

static const ep_record_operand *next_operand(const ep_record_operand *o) {
    return (const void *)((const int64_t *)(const void *)(o + 1) + 2 * o->ndim);
}

/* The three lists as Kineto writes them, and the detail; 0 if there is nothing to say. */
static uint32_t span_info(converter *c, const ep_record *head, const ep_record_span *span) {
    const ep_record_operand *first = (const void *)(span + 1), *o = first;
    if (!head->operands && !span->detail_bytes) return 0;
    ep_event_info info = c->t->infos[0];
    for (int what = 0; what < 3 && head->operands; what++) {
        ep_text_char(&c->text, '[');
        o = first;
        for (int i = 0; i < head->operands; i++, o = next_operand(o)) {
            const int64_t *sizes = (const int64_t *)(const void *)(o + 1);
            if (i) ep_text_add(&c->text, ", ");
            if (what == 1)
                ep_text_printf(&c->text, "\"%s\"", o->dtype ? dtype_text(o->dtype) : "");
            else
                list(&c->text, what == 0 ? sizes : sizes + o->ndim, o->ndim);
        }
        ep_text_char(&c->text, ']');
        uint32_t id = take_text(c);
        if (what == 0)
            info.input_dims = id;
        else if (what == 1)
            info.input_types = id;
        else
            info.input_strides = id;
    }
    if (span->detail_bytes) info.detail = intern(c, (const char *)o);
    uint32_t row = ep_trace_info(c->t, &info);
    if (row == EP_NO_INDEX) c->failed = true;
    return row;
}

static void begin_span(converter *c, const ep_record *head) {
    const ep_record_span *span = (const void *)(head + 1);
    ep_probe_kind kind = (ep_probe_kind)head->kind;
    const char *name = span->name ? span->name : "";
    /* The names by which readers of traces know an op and a launch. */
    ep_op op_number;
    if (kind == EP_PROBE_OP && ep_op_parse(name, &op_number) == EP_OK) name = ep_op_get(op_number)->aten;
    if (kind == EP_PROBE_LAUNCH && !ep_runtime_is_launch(name)) name = "epLaunchKernel";
    bool driver = kind == EP_PROBE_LAUNCH && strncmp(name, "cuLaunch", 8) == 0;
    int64_t ts = ep_clock_to_ns(head->ticks) - c->base;
    uint32_t row = append(c, name, driver ? "cuda_driver" : span_kinds[kind].category, span_kinds[kind].kind, ts);
    if (!ep_grow(&c->open, &c->open_cap, c->depth + 1, sizeof *c->open)) c->failed = true;
    if (c->failed) return;
    uint64_t op = c->depth ? c->open[c->depth - 1].op : 0;
    if (kind == EP_PROBE_OP) op = ++c->next_op;
    c->open[c->depth++] = (open_span){row, op};
    c->t->external_id[row] = op;
    if (!ep_trace_set_correlation(c->t, row, span->correlation)) c->failed = true;
    c->t->info[row] = span_info(c, head, span);
    if (!span->correlation) return;
    if (!ep_grow(&c->launches, &c->launch_cap, c->launch_count + 1, sizeof *c->launches))
        c->failed = true;
    else
        c->launches[c->launch_count++] = (launch){span->correlation, op};
}

static void add_kernel(converter *c, const ep_record *head, bool kept) {
    const ep_probe_kernel *k = (const void *)(head + 1);
    bool ticks = k->source == EP_SOURCE_CLOCK;
    /* A device's own records come late; whether they belong to a phase that is kept, their launch says. */
    if (ticks && !kept) return;
    if (!ep_grow(&c->kernels, &c->kernel_cap, c->kernel_count + 1, sizeof *c->kernels)) {
        c->failed = true;
        return;
    }
    int64_t start = (ticks ? ep_clock_to_ns(k->start) : k->start) - c->base;
    int64_t end = (ticks ? ep_clock_to_ns(k->end) : k->end) - c->base;
    c->kernels[c->kernel_count++] = (kernel_ref){k, start, end < start ? start : end};
}

static void host_lane(converter *c, int64_t tid, const char *thread_name) {
    c->lane = ep_trace_lane(c->t, c->pid, intern_number(c, tid), -1, -1);
    if (c->lane == EP_NO_INDEX) {
        c->failed = true;
        c->lane = 0;
        return;
    }
    ep_lane *lane = &c->t->lanes[c->lane];
    if (thread_name && !lane->name) {
        ep_text_printf(&c->text, "thread %" PRId64 " (%s)", tid, thread_name);
        uint32_t name = take_text(c), process = intern(c, thread_name);
        lane->name = name;
        if (tid == getpid()) lane->process_name = process;
    }
}

static void add_ring(converter *c, const ep_ring *ring) {
    size_t used = atomic_load_explicit(&ring->used, memory_order_acquire);
    bool kept = false;
    c->t->dropped += atomic_load_explicit(&ring->dropped, memory_order_relaxed);
    host_lane(c, ring->tid, ring->thread_name);
    c->depth = 0;
    for (size_t at = 0; at < used && !c->failed;) {
        const ep_record *head = (const void *)(ring->data + at);
        at += head->bytes;
        if (head->type == EP_RECORD_PHASE) {
            kept = head->kind != 0;
            c->depth = 0;
        } else if (head->type == EP_RECORD_KERNEL) {
            add_kernel(c, head, kept);
        } else if (kept && head->type == EP_RECORD_BEGIN) {
            begin_span(c, head);
        } else if (kept && c->depth) {
            uint32_t row = c->open[--c->depth].row;
            int64_t dur = ep_clock_to_ns(head->ticks) - c->base - c->t->ts[row];
            c->t->dur[row] = dur > 0 ? dur : 0;
        }
    }
}

static int by_correlation(const void *a, const void *b) {
    uint64_t x = ((const launch *)a)->correlation, y = ((const launch *)b)->correlation;
    return x < y ? -1 : x > y;
}

static int by_lane_and_start(const void *a, const void *b) {
    const kernel_ref *x = a, *y = b;
    if (x->k->device != y->k->device) return x->k->device < y->k->device ? -1 : 1;
    if (x->k->stream != y->k->stream) return x->k->stream < y->k->stream ? -1 : 1;
    return x->start < y->start ? -1 : x->start > y->start;
}

/* Kernels of two host threads may overlap on a CPU, which a lane cannot show: the later one goes to a spare lane. */
enum { SPARE_LANES = 64, SPARE_STREAM = 1000 };

static int spare_lane(int64_t ends[SPARE_LANES], const kernel_ref *k) {
    int lane = 0;
    while (lane < SPARE_LANES - 1 && ends[lane] > k->start) lane++;
    ends[lane] = k->end;
    return lane;
}

static uint32_t device_lane(converter *c, int64_t device, int64_t stream, int spare) {
    uint32_t tid = intern_number(c, stream + (int64_t)SPARE_STREAM * spare);
    uint32_t id = ep_trace_lane(c->t, intern_number(c, device), tid, device, stream + (int64_t)SPARE_STREAM * spare);
    if (id == EP_NO_INDEX) {
        c->failed = true;
        return 0;
    }
    if (!c->t->lanes[id].name) {
        ep_text_printf(&c->text, spare ? "stream %" PRId64 ", overlap %d" : "stream %" PRId64, stream, spare);
        c->t->lanes[id].name = take_text(c);
        ep_text_printf(&c->text, "device %" PRId64, device);
        c->t->lanes[id].process_name = take_text(c);
    }
    return id;
}

static uint32_t kernel_info(converter *c, const ep_probe_kernel *k) {
    ep_event_info info = c->t->infos[0];
    bool copy = strcmp(k->what, "kernel") != 0;
    memcpy(info.grid, k->grid, sizeof info.grid);
    memcpy(info.block, k->block, sizeof info.block);
    info.registers = (int32_t)k->registers;
    info.shared_bytes = (int32_t)k->shared_bytes;
    info.flops = k->flops;
    info.bytes_read = k->bytes_read;
    info.bytes_written = k->bytes_written;
    if (copy) info.bytes = k->bytes_written;
    if (k->captured_in) {
        ep_text_printf(&c->text, "replayed; captured in %s", k->captured_in);
        info.detail = take_text(c);
    }
    uint32_t row = ep_trace_info(c->t, &info);
    if (row == EP_NO_INDEX) c->failed = true;
    return row;
}

static const launch *find_launch(const converter *c, uint64_t correlation) {
    launch key = {correlation, 0};
    if (!c->launch_count) return NULL;
    return bsearch(&key, c->launches, c->launch_count, sizeof key, by_correlation);
}

static void add_kernels(converter *c) {
    int64_t ends[SPARE_LANES], device = -1, stream = -1;
    if (c->launch_count) qsort(c->launches, c->launch_count, sizeof *c->launches, by_correlation);
    if (c->kernel_count) qsort(c->kernels, c->kernel_count, sizeof *c->kernels, by_lane_and_start);
    for (size_t i = 0; i < c->kernel_count && !c->failed; i++) {
        const kernel_ref *ref = &c->kernels[i];
        const ep_probe_kernel *k = ref->k;
        const launch *from = find_launch(c, k->correlation);
        if (!from && k->source != EP_SOURCE_CLOCK) continue;
        int64_t d = k->device < 0 ? 0 : k->device, s = k->stream < 0 ? 0 : k->stream;
        if (d != device || s != stream)
            for (int e = 0; e < SPARE_LANES; e++) ends[e] = INT64_MIN;
        device = d;
        stream = s;
        c->lane = device_lane(c, d, s, spare_lane(ends, ref));
        bool copy = strcmp(k->what, "memcpy") == 0, set = strcmp(k->what, "memset") == 0;
        ep_event_kind kind = copy ? EP_EVENT_MEMCPY : set ? EP_EVENT_MEMSET : EP_EVENT_KERNEL;
        uint32_t row = append(c, k->name, copy ? "gpu_memcpy" : set ? "gpu_memset" : "kernel", kind, ref->start);
        if (c->failed) return;
        c->t->dur[row] = ref->end - ref->start;
        if (!ep_trace_set_correlation(c->t, row, k->correlation)) c->failed = true;
        c->t->external_id[row] = from ? from->op : 0;
        c->t->info[row] = kernel_info(c, k);
    }
}

static void add_steps(converter *c) {
    if (c->r->step_count) host_lane(c, c->r->tid, NULL);
    for (size_t i = 0; i < c->r->step_count && !c->failed; i++) {
        const ep_step *s = &c->r->steps[i];
        char name[48];
        snprintf(name, sizeof name, "ProfilerStep#%" PRId64, s->number);
        int64_t start = ep_clock_to_ns(s->start) - c->base;
        uint32_t row = append(c, name, "user_annotation", EP_EVENT_REGION, start);
        if (!c->failed) c->t->dur[row] = ep_clock_to_ns(s->end) - c->base - start;
    }
}

/* The device that ran the kernels of a lane, as far as the records say: those without a grid ran on the processor. */
static void add_devices(converter *c) {
    ep_trace *t = c->t;
    for (size_t i = 0; i < c->kernel_count && !c->failed; i++) {
        const ep_probe_kernel *k = c->kernels[i].k;
        if (k->source != EP_SOURCE_CLOCK) {
            t->device_times = k->source == EP_SOURCE_CUPTI ? EP_TIMES_CUPTI : EP_TIMES_EVENTS;
            t->device_error_ns = atomic_load(&ep_probe_device_error_ns);
        }
        int64_t id = k->device < 0 ? 0 : k->device;
        size_t at = 0;
        while (at < t->device_count && t->devices[at].id != id) at++;
        if (at < t->device_count) continue;
        if (!ep_grow(&t->devices, &t->device_cap, t->device_count + 1, sizeof *t->devices)) {
            c->failed = true;
            return;
        }
        ep_trace_device d = {.id = id};
        if (k->source == EP_SOURCE_CLOCK) {
            d.name = intern(c, ep_cpu_get()->model);
            d.sm_count = ep_cpu_get()->cores;
            d.memory_bytes = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
        }
        ep_probe_device gpu;
        if (k->source != EP_SOURCE_CLOCK && ep_probe_device_find((int32_t)id, &gpu)) {
            d = (ep_trace_device){.id = id, .name = intern(c, gpu.name), .memory_bytes = gpu.memory_bytes};
            d.sm_count = gpu.sm_count;
            d.major = gpu.major;
            d.minor = gpu.minor;
        }
        t->devices[t->device_count++] = d;
    }
}

/* Spans that were still open when their phase ended have no length and are left out. */
static void drop_open(converter *c) {
    uint8_t *keep = malloc(c->t->count ? c->t->count : 1);
    if (!keep) {
        c->failed = true;
        return;
    }
    for (size_t i = 0; i < c->t->count; i++) keep[i] = c->t->dur[i] >= 0;
    ep_trace_compact(c->t, keep);
    free(keep);
}

ep_status ep_recording_to_trace(const ep_recording *r, ep_error *err, ep_trace **out) {
    converter c = {.r = r, .t = ep_trace_create()};
    if (!c.t) return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory for the trace");
    c.base = ep_clock_to_ns(r->start_ticks);
    c.pid = intern_number(&c, getpid());
    c.t->is_ours = true;
    c.t->has_shapes = !r->no_shapes;
    c.t->own_ns_per_event = r->ns_per_span;
    c.t->file_base_ns = c.base + ep_clock_wall_offset_ns();
    c.t->file_name = intern(&c, r->trace_name ? r->trace_name : "epilogue");
    for (const ep_ring *ring = r->rings; ring && !c.failed; ring = ring->next) add_ring(&c, ring);
    add_steps(&c);
    add_kernels(&c);
    add_devices(&c);
    drop_open(&c);
    free(c.open);
    free(c.launches);
    free(c.kernels);
    ep_text_free(&c.text);
    if (c.failed) {
        ep_trace_destroy(c.t);
        return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory for the trace");
    }
    *out = c.t;
    return EP_OK;
}
