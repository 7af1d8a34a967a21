/* Recording: each thread writes its own ring; nothing is locked, and nothing allocated after a thread's first event. */
#define _GNU_SOURCE
#include "recorder.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/alloc.h"
#include "base/text.h"

#define RECORD_BYTES 128 /* an event with its operands, on the average */
#define HUGE_PAGE (2u << 20)

/* One recording at a time in a process, so there is one recorder. Threads that are inside a probe while the recording
 * stops find everything they touch alive: this struct, their own ring, interned names. */
static struct recorder {
    _Atomic(ep_ring *) rings;   /* pushed by threads */
    atomic_uint_fast64_t epoch; /* changes with every phase of every recording */
    atomic_uint_fast64_t recording;
    atomic_bool kept, no_shapes;
    _Atomic size_t ring_bytes;
    atomic_bool busy;
    pthread_mutex_t names_lock;
    ep_intern names;
} rec = {.names_lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local ep_ring *mine __attribute__((tls_model("initial-exec")));
static pthread_key_t thread_end;
static pthread_once_t thread_end_once = PTHREAD_ONCE_INIT;

struct ep_profile {
    ep_profile_options options;
    ep_step *steps;
    size_t step_count, step_cap;
    int64_t step, step_start, start_ticks;
    size_t step_pos; /* of the caller's ring when the step began */
    int64_t tid;
    uint64_t recording;
    double ns_per_span;
};

static void ring_release(void *ring) {
    ep_ring *r = ring;
    if (!r || atomic_fetch_sub_explicit(&r->refs, 1, memory_order_acq_rel) != 1) return;
    free(r->data);
    free(r);
}

static void make_key(void) {
    pthread_key_create(&thread_end, ring_release);
}

static ep_ring *ring_create(size_t bytes) {
    ep_ring *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    bytes = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    r->data = aligned_alloc(HUGE_PAGE, bytes);
    if (!r->data) {
        free(r);
        return NULL;
    }
    /* The first touch of a page is dear; it is paid here and not by the events. */
    madvise(r->data, bytes, MADV_HUGEPAGE);
    memset(r->data, 0, bytes);
    r->cap = bytes;
    r->tid = syscall(SYS_gettid);
    prctl(PR_GET_NAME, r->thread_name);
    r->thread_name[sizeof r->thread_name - 1] = 0;
    atomic_init(&r->refs, 2);
    return r;
}

static ep_ring *register_thread(void) {
    pthread_once(&thread_end_once, make_key);
    ep_ring *r = ring_create(atomic_load_explicit(&rec.ring_bytes, memory_order_relaxed));
    ring_release(mine);
    mine = r;
    pthread_setspecific(thread_end, r);
    if (!r) return NULL;
    r->recording = atomic_load_explicit(&rec.recording, memory_order_relaxed);
    r->next = atomic_load_explicit(&rec.rings, memory_order_relaxed);
    while (
        !atomic_compare_exchange_weak_explicit(&rec.rings, &r->next, r, memory_order_release, memory_order_relaxed)) {
    }
    return r;
}

static inline void publish(ep_ring *r, size_t bytes) {
    r->pos += bytes;
    atomic_store_explicit(&r->used, r->pos, memory_order_release);
}

/* The first event of a thread, or its first in this phase. */
static ep_ring *enter_phase(uint64_t epoch) {
    /* Pairs with the release of whoever began the phase: `recording` and `kept` are at least as new as `epoch`. */
    atomic_thread_fence(memory_order_acquire);
    ep_ring *r = mine;
    if (!r || r->recording != atomic_load_explicit(&rec.recording, memory_order_relaxed)) r = register_thread();
    if (!r) return NULL;
    r->epoch = epoch;
    r->depth = r->skip = 0;
    /* What a warm-up left is written over: nobody reads it. */
    if (!r->phase_kept) r->pos = r->phase_start;
    r->phase_start = r->pos;
    r->phase_kept = atomic_load_explicit(&rec.kept, memory_order_relaxed);
    if (r->pos + sizeof(ep_record) > r->cap) return r;
    *(ep_record *)(void *)(r->data + r->pos) =
        (ep_record){.type = EP_RECORD_PHASE, .kind = r->phase_kept, .bytes = sizeof(ep_record)};
    publish(r, sizeof(ep_record));
    return r;
}

static inline ep_ring *ring_of_thread(void) {
    uint64_t epoch = atomic_load_explicit(&rec.epoch, memory_order_relaxed);
    ep_ring *r = mine;
    return __builtin_expect(r && r->epoch == epoch, 1) ? r : enter_phase(epoch);
}

static inline void drop(ep_ring *r) {
    int64_t n = atomic_load_explicit(&r->dropped, memory_order_relaxed);
    atomic_store_explicit(&r->dropped, n + 1, memory_order_relaxed);
}

static size_t operand_bytes(const ep_probe_span *span) {
    size_t bytes = 0;
    for (int i = 0; i < span->operand_count; i++)
        bytes += sizeof(ep_record_operand) + 2 * sizeof(int64_t) * (size_t)span->operands[i].ndim;
    return bytes;
}

static char *write_operands(char *p, const ep_probe_span *span, int count) {
    for (int i = 0; i < count; i++) {
        const ep_probe_operand *o = &span->operands[i];
        size_t bytes = sizeof(int64_t) * (size_t)o->ndim;
        *(ep_record_operand *)(void *)p = (ep_record_operand){o->dtype, o->ndim};
        p += sizeof(ep_record_operand);
        int64_t *sizes = (int64_t *)(void *)p, *strides = sizes + o->ndim;
        for (int d = 0; d < o->ndim; d++) {
            sizes[d] = o->sizes[d];
            strides[d] = o->strides ? o->strides[d] : 0;
        }
        p += 2 * bytes;
    }
    return p;
}

static void span_begin(void *self, const ep_probe_span *span) {
    (void)self;
    ep_ring *r = ring_of_thread();
    if (!r) return;
    int operands = span->operand_count > UINT8_MAX ? UINT8_MAX : span->operand_count;
    if (operands && atomic_load_explicit(&rec.no_shapes, memory_order_relaxed)) operands = 0;
    size_t detail = span->detail ? strlen(span->detail) + 1 : 0;
    size_t bytes = sizeof(ep_record) + sizeof(ep_record_span) + (operands ? operand_bytes(span) : 0);
    bytes += (detail + 7) / 8 * 8;
    /* Every open span keeps the room for its end. Within a span that found no room nothing is recorded. */
    if (r->skip || r->pos + bytes + (r->depth + 1) * sizeof(ep_record) > r->cap) {
        r->skip++;
        drop(r);
        return;
    }
    char *p = r->data + r->pos;
    ep_record *head = (ep_record *)(void *)p;
    *head = (ep_record){EP_RECORD_BEGIN, (uint8_t)span->kind, (uint8_t)operands, 0, (uint32_t)bytes, 0};
    *(ep_record_span *)(void *)(p + sizeof(ep_record)) =
        (ep_record_span){span->name, span->correlation, (uint32_t)detail, 0};
    p = write_operands(p + sizeof(ep_record) + sizeof(ep_record_span), span, operands);
    if (detail) memcpy(p, span->detail, detail);
    r->depth++;
    /* The clock is read last, so that the span does not hold the cost of its own record. */
    head->ticks = ep_clock_ticks();
    publish(r, bytes);
}

static void span_end(void *self) {
    (void)self;
    int64_t now = ep_clock_ticks();
    ep_ring *r = ring_of_thread();
    if (!r) return;
    if (r->skip) {
        r->skip--;
        return;
    }
    /* A span that began before the recording did. */
    if (!r->depth) return;
    r->depth--;
    *(ep_record *)(void *)(r->data + r->pos) =
        (ep_record){.type = EP_RECORD_END, .bytes = sizeof(ep_record), .ticks = now};
    publish(r, sizeof(ep_record));
}

static void kernel_record(void *self, const ep_probe_kernel *kernel) {
    (void)self;
    ep_ring *r = ring_of_thread();
    if (!r) return;
    size_t bytes = sizeof(ep_record) + (sizeof *kernel + 7) / 8 * 8;
    if (r->pos + bytes + r->depth * sizeof(ep_record) > r->cap) {
        drop(r);
        return;
    }
    char *p = r->data + r->pos;
    *(ep_record *)(void *)p = (ep_record){.type = EP_RECORD_KERNEL, .bytes = (uint32_t)bytes};
    memcpy(p + sizeof(ep_record), kernel, sizeof *kernel);
    publish(r, bytes);
}

/* The three records that a span, its kernel and its end would have made, with the kernel's own times. */
static void launch_record(void *self, const ep_probe_kernel *kernel) {
    (void)self;
    ep_ring *r = ring_of_thread();
    if (!r) return;
    size_t begin = sizeof(ep_record) + sizeof(ep_record_span), body = sizeof(ep_record) + (sizeof *kernel + 7) / 8 * 8;
    size_t bytes = begin + body + sizeof(ep_record);
    if (r->skip || r->pos + bytes + r->depth * sizeof(ep_record) > r->cap) {
        drop(r);
        if (!r->skip) drop(r); /* the span and the kernel */
        return;
    }
    char *p = r->data + r->pos;
    *(ep_record *)(void *)p = (ep_record){EP_RECORD_BEGIN, EP_PROBE_LAUNCH, 0, 0, (uint32_t)begin, kernel->start};
    *(ep_record_span *)(void *)(p + sizeof(ep_record)) = (ep_record_span){"launch", kernel->correlation, 0, 0};
    p += begin;
    *(ep_record *)(void *)p = (ep_record){.type = EP_RECORD_KERNEL, .bytes = (uint32_t)body};
    memcpy(p + sizeof(ep_record), kernel, sizeof *kernel);
    p += body;
    *(ep_record *)(void *)p = (ep_record){.type = EP_RECORD_END, .bytes = sizeof(ep_record), .ticks = kernel->end};
    publish(r, bytes);
}

/* Names are kept for the life of the process: a thread may hold one while the recording it was made in ends. */
static const char *intern_name(void *self, const char *text) {
    (void)self;
    pthread_mutex_lock(&rec.names_lock);
    uint32_t id = ep_intern_add(&rec.names, text, strlen(text));
    const char *name = id == UINT32_MAX ? "" : ep_intern_text(&rec.names, id);
    pthread_mutex_unlock(&rec.names_lock);
    return name;
}

static const ep_probe probe = {NULL, span_begin, span_end, kernel_record, intern_name, launch_record};

/* What one span with two operands costs, found by recording some thousands as warm-up, which the next phase writes
 * over. The least of a few rounds: an interruption is not the recorder's. */
static double self_cost(void) {
    static const int64_t sizes[2] = {64, 768}, strides[2] = {768, 1};
    const ep_probe_operand operands[2] = {{"bf16", 2, sizes, strides}, {"bf16", 2, sizes, strides}};
    const ep_probe_span span = {.kind = EP_PROBE_OP, .name = "self", .operand_count = 2, .operands = operands};
    int64_t best = INT64_MAX;
    enum { ROUNDS = 8, SPANS = 64 };
    atomic_store_explicit(&rec.kept, false, memory_order_relaxed);
    for (int i = 0; i < ROUNDS; i++) {
        atomic_fetch_add_explicit(&rec.epoch, 1, memory_order_release);
        ring_of_thread();
        int64_t from = ep_clock_ticks();
        for (int k = 0; k < SPANS; k++) {
            span_begin(NULL, &span);
            span_end(NULL);
        }
        int64_t ns = ep_clock_to_ns(ep_clock_ticks()) - ep_clock_to_ns(from);
        if (ns < best) best = ns;
    }
    /* Rings that hold fewer events than this dropped some; those do not count. */
    atomic_store_explicit(&mine->dropped, 0, memory_order_relaxed);
    return (double)best / SPANS;
}

/* Puts the phase of step `p->step` in force. */
static void apply_phase(ep_profile *p) {
    ep_step_action now = ep_step_action_of(&p->options, p->step);
    ep_step_action before = p->step ? ep_step_action_of(&p->options, p->step - 1) : EP_STEP_OFF;
    if (p->step == 0 || now != before) {
        /* What devices still hold belongs to the phase that ends: it is kept or dropped with it. */
        ep_probe_flush_fn flush = atomic_load(&ep_probe_flush);
        if (flush && p->step) flush();
        atomic_store_explicit(&rec.kept, now == EP_STEP_RECORD, memory_order_relaxed);
        atomic_fetch_add_explicit(&rec.epoch, 1, memory_order_release);
        atomic_store_explicit(&ep_probe_active, now == EP_STEP_OFF ? NULL : &probe, memory_order_release);
    }
    ep_ring *r = now == EP_STEP_OFF ? NULL : ring_of_thread();
    p->step_pos = r ? r->pos : 0;
    p->step_start = ep_clock_ticks();
}

static void end_step(ep_profile *p) {
    if (ep_step_action_of(&p->options, p->step) != EP_STEP_RECORD) return;
    if (!ep_grow(&p->steps, &p->step_cap, p->step_count + 1, sizeof *p->steps)) return;
    p->steps[p->step_count++] = (ep_step){p->step, p->step_start, ep_clock_ticks()};
}

ep_status ep_profile_start(const ep_profile_options *options, ep_error *err, ep_profile **out) {
    ep_profile_options o = options ? *options : (ep_profile_options){0};
    if (!out) return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "the result must not be NULL");
    if (o.events_per_thread == 0) o.events_per_thread = (size_t)1 << 16;
    EP_TRY(ep_step_check(&o, err));
    if (o.events_per_thread > (size_t)1 << 30)
        return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "events_per_thread is %zu; the limit is %zu",
                       o.events_per_thread, (size_t)1 << 30);
    if (atomic_exchange(&rec.busy, true))
        return ep_fail(err, EP_ERROR_BUSY, "another recording is running; a process has one at a time");
    ep_clock_init();
    ep_profile *p = calloc(1, sizeof *p);
    if (!p) {
        atomic_store(&rec.busy, false);
        return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory for a recording");
    }
    p->options = o;
    p->tid = syscall(SYS_gettid);
    atomic_store_explicit(&rec.ring_bytes, o.events_per_thread * RECORD_BYTES, memory_order_relaxed);
    atomic_store_explicit(&rec.no_shapes, o.no_shapes, memory_order_relaxed);
    p->recording = atomic_fetch_add_explicit(&rec.recording, 1, memory_order_relaxed) + 1;
    if (!register_thread()) {
        free(p);
        atomic_store(&rec.busy, false);
        return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory for a ring of %zu events", o.events_per_thread);
    }
    p->ns_per_span = self_cost();
    p->start_ticks = ep_clock_ticks();
    apply_phase(p);
    *out = p;
    return EP_OK;
}

void ep_profile_step(ep_profile *p) {
    if (!p) return;
    end_step(p);
    p->step++;
    apply_phase(p);
}

/* Takes the rings that threads pushed and keeps those of this recording. A thread that was late pushes onto an empty
 * list; the next recording lets that ring go. */
static ep_ring *take_rings(uint64_t recording) {
    ep_ring *kept = NULL, *next;
    for (ep_ring *r = atomic_exchange_explicit(&rec.rings, NULL, memory_order_acq_rel); r; r = next) {
        next = r->next;
        if (r->recording != recording) {
            ring_release(r);
            continue;
        }
        r->next = kept;
        kept = r;
    }
    return kept;
}

ep_status ep_profile_stop(ep_profile *p, ep_error *err, ep_trace **out) {
    if (!p) return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "the profile must not be NULL");
    ep_probe_flush_fn flush = atomic_load(&ep_probe_flush);
    if (flush) flush();
    if (p->step_start && mine && mine->pos > p->step_pos && (p->step || p->options.active)) end_step(p);
    atomic_store_explicit(&ep_probe_active, NULL, memory_order_release);
    /* A thread that is still in a probe gets a ring of no recording and leaves what is read below alone. */
    atomic_fetch_add_explicit(&rec.recording, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&rec.epoch, 1, memory_order_release);
    ep_recording r = {.rings = take_rings(p->recording),
                      .steps = p->steps,
                      .step_count = p->step_count,
                      .tid = p->tid,
                      .start_ticks = p->start_ticks,
                      .no_shapes = p->options.no_shapes,
                      .ns_per_span = p->ns_per_span,
                      .trace_name = p->options.trace_name};
    ep_status status = out ? ep_recording_to_trace(&r, err, out) : EP_OK;
    for (ep_ring *ring = r.rings, *next; ring; ring = next) {
        next = ring->next;
        ring_release(ring);
    }
    free(p->steps);
    free(p);
    atomic_store(&rec.busy, false);
    return status;
}

void ep_region_begin(const char *name) {
    const ep_probe *p = ep_probe_get();
    if (p) p->begin(p->self, &(ep_probe_span){.kind = EP_PROBE_REGION, .name = name});
}

void ep_region_end(void) {
    const ep_probe *p = ep_probe_get();
    if (p) p->end(p->self);
}
