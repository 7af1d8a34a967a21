/* The figures of one step, from the trace of the recorded ones. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "run.h"

typedef struct span {
    int64_t ts, end;
    const char *pid, *tid;
    uint64_t correlation;
    bool has_kernel;
} span;

typedef struct spans {
    span *v;
    size_t n, cap;
} spans;

typedef struct reading {
    const ep_trace *t;
    spans steps, ops, launches;
    uint64_t *seen; /* correlations of launches inside steps, in order */
    size_t seen_count;
    double *host; /* us by step: its length less its kernels */
} reading;

static bool push(spans *s, const ep_event *e) {
    if (s->n == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 64;
        span *v = realloc(s->v, cap * sizeof *v);
        if (!v) return false;
        s->v = v;
        s->cap = cap;
    }
    s->v[s->n++] = (span){e->ts_ns, e->ts_ns + e->dur_ns, e->pid, e->tid, e->correlation, false};
    return true;
}

/* Strings of a trace are interned, so equal lanes have equal pointers. */
static bool inside(const span *inner, const span *outer) {
    return inner->ts >= outer->ts && inner->ts < outer->end && inner->pid == outer->pid && inner->tid == outer->tid;
}

static const span *step_of(const reading *r, const span *s) {
    for (size_t i = 0; i < r->steps.n; i++)
        if (inside(s, &r->steps.v[i])) return &r->steps.v[i];
    return NULL;
}

static int by_number(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static bool gather(reading *r) {
    ep_event e;
    for (size_t i = 0; i < ep_trace_count(r->t); i++) {
        if (ep_trace_event(r->t, i, &e) != EP_OK || e.dur_ns < 0) continue;
        bool ok = true;
        if (e.kind == EP_EVENT_REGION && strcmp(e.name, "step") == 0) ok = push(&r->steps, &e);
        if (e.kind == EP_EVENT_OP) ok = push(&r->ops, &e);
        if (e.kind == EP_EVENT_RUNTIME && e.correlation) ok = push(&r->launches, &e);
        if (!ok) return false;
    }
    r->seen = calloc(r->launches.n + 1, sizeof *r->seen);
    r->host = calloc(r->steps.n + 1, sizeof *r->host);
    if (!r->seen || !r->host) return false;
    for (size_t i = 0; i < r->steps.n; i++) r->host[i] = (double)(r->steps.v[i].end - r->steps.v[i].ts) * 1e-3;
    return true;
}

static run_kernel *kernel_row(run_result *out, const char *name) {
    for (int i = 0; i < out->kernel_count; i++)
        if (strncmp(out->kernel[i].name, name, sizeof out->kernel[i].name - 1) == 0) return &out->kernel[i];
    if (out->kernel_count == RUN_MAX_KERNELS) return &out->kernel[RUN_MAX_KERNELS - 1];
    run_kernel *k = &out->kernel[out->kernel_count++];
    memset(k, 0, sizeof *k);
    snprintf(k->name, sizeof k->name, "%s", name);
    return k;
}

/* Bytes and flops that a kernel did not tell make the sums unknown, not small. */
static void add_kernel(const run_setup *s, const run_request *q, const ep_event *e, run_result *out) {
    run_kernel *k = kernel_row(out, e->name);
    double us = (double)e->dur_ns * 1e-3;
    bool known = e->bytes_read >= 0 && e->bytes_written >= 0;
    double bytes = known ? (double)(e->bytes_read + e->bytes_written) : NAN;
    double flops = e->flops >= 0 ? (double)e->flops : NAN;
    double bound = NAN;
    if (known && e->flops >= 0) {
        ep_work w = {e->flops, e->bytes_read, e->bytes_written};
        bound = ep_machine_bound(&s->machine, &w, q->dtype, s->threads).us;
    }
    k->count += 1;
    k->us += us;
    k->bytes += bytes;
    k->flops += flops;
    k->bound_us += bound;
    out->kernel_us += us;
    out->bytes += bytes;
    out->flops += flops;
    out->bound_us += bound;
}

/* The launch of a kernel in a step, if there is one. */
static span *launch_of(const reading *r, uint64_t correlation) {
    for (size_t i = 0; i < r->launches.n; i++)
        if (r->launches.v[i].correlation == correlation) return &r->launches.v[i];
    return NULL;
}

static void read_kernels(reading *r, const run_setup *s, const run_request *q, run_result *out) {
    ep_event e;
    for (size_t i = 0; i < r->launches.n; i++)
        if (step_of(r, &r->launches.v[i])) r->seen[r->seen_count++] = r->launches.v[i].correlation;
    out->launches = (double)r->seen_count;
    qsort(r->seen, r->seen_count, sizeof *r->seen, by_number);
    for (size_t i = 0; i < ep_trace_count(r->t); i++) {
        if (ep_trace_event(r->t, i, &e) != EP_OK || e.dur_ns < 0) continue;
        if (e.kind != EP_EVENT_KERNEL && e.kind != EP_EVENT_MEMCPY && e.kind != EP_EVENT_MEMSET) continue;
        if (!bsearch(&e.correlation, r->seen, r->seen_count, sizeof *r->seen, by_number)) continue;
        span *launch = launch_of(r, e.correlation);
        const span *step = launch ? step_of(r, launch) : NULL;
        if (launch) launch->has_kernel = true;
        if (step) r->host[step - r->steps.v] -= (double)e.dur_ns * 1e-3;
        if (e.kind == EP_EVENT_KERNEL) out->kernels += 1;
        add_kernel(s, q, &e, out);
    }
}

static bool launches_nothing(const reading *r, const span *op) {
    for (size_t i = 0; i < r->launches.n; i++)
        if (r->launches.v[i].has_kernel && inside(&r->launches.v[i], op)) return false;
    return true;
}

static void read_ops(reading *r, run_result *out) {
    for (size_t i = 0; i < r->ops.n; i++) {
        if (!step_of(r, &r->ops.v[i])) continue;
        out->ops += 1;
        out->views += launches_nothing(r, &r->ops.v[i]);
    }
}

static int by_time(const void *a, const void *b) {
    double x = ((const run_kernel *)a)->us, y = ((const run_kernel *)b)->us;
    return x > y ? -1 : x < y;
}

static void per_step(run_result *out, double n) {
    double *const figures[] = {&out->kernels,   &out->ops,   &out->views, &out->launches,
                               &out->kernel_us, &out->bytes, &out->flops, &out->bound_us};
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) *figures[i] /= n;
    for (int i = 0; i < out->kernel_count; i++) {
        run_kernel *k = &out->kernel[i];
        k->count /= n;
        k->us /= n;
        k->bytes /= n;
        k->flops /= n;
        k->bound_us /= n;
    }
    qsort(out->kernel, (size_t)out->kernel_count, sizeof *out->kernel, by_time);
}

bool run_read_trace(const run_setup *s, const run_request *q, run_result *out) {
    reading r = {.t = out->trace};
    bool ok = gather(&r) && r.steps.n > 0;
    if (ok) {
        double *us = malloc(r.steps.n * sizeof *us);
        for (size_t i = 0; us && i < r.steps.n; i++) us[i] = (double)(r.steps.v[i].end - r.steps.v[i].ts) * 1e-3;
        out->profiled_median = us ? run_median(us, r.steps.n) : NAN;
        free(us);
        read_kernels(&r, s, q, out);
        read_ops(&r, out);
        out->dispatch_us = run_median(r.host, r.steps.n);
        if (out->dispatch_us < 0) out->dispatch_us = 0;
        out->steps = (int64_t)r.steps.n;
        ep_profile_recorded(out->trace, &out->dropped, &out->own_ns);
        out->events = (double)ep_trace_count(r.t) / (double)r.steps.n;
        per_step(out, (double)r.steps.n);
    } else {
        snprintf(out->why_not, sizeof out->why_not, "the recording holds no step; its rings were full");
    }
    free(r.steps.v);
    free(r.ops.v);
    free(r.launches.v);
    free(r.seen);
    free(r.host);
    return ok;
}
