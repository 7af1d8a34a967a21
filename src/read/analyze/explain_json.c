/* The JSON object of `explain`: every figure as docs/trace.md defines it, unknown as null. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analyze.h"
#include "base/alloc.h"

typedef ep_json_out out;

static void str(out *o, const char *key, const char *v) {
    ep_json_key(o, key);
    ep_json_str(o, v);
}

static void num(out *o, const char *key, int64_t v) {
    ep_json_key(o, key);
    ep_json_int(o, v);
}

static void us(out *o, const char *key, int64_t ns) {
    ep_json_key(o, key);
    ep_json_us(o, ns);
}

static void real(out *o, const char *key, double v, int decimals) {
    ep_json_key(o, key);
    if (isfinite(v))
        ep_json_fixed(o, v, decimals);
    else
        ep_json_null(o);
}

static void flag(out *o, const char *key, bool v) {
    ep_json_key(o, key);
    ep_json_bool(o, v);
}

static void begin_array(out *o, const char *key) {
    ep_json_key(o, key);
    ep_json_array(o);
}

static void begin_object(out *o, const char *key) {
    ep_json_key(o, key);
    ep_json_object(o);
}

static void known_or_null(out *o, const char *key, int64_t v) {
    ep_json_key(o, key);
    if (v >= 0)
        ep_json_int(o, v);
    else
        ep_json_null(o);
}

static void health_notes(const ep_study *s, out *o) {
    const ep_health *h = &s->facts->health;
    begin_array(o, "notes");
    for (size_t i = 0; i < s->finding_count; i++)
        if (s->findings[i].weight > 1e17 && strcmp(s->findings[i].id, "regime") &&
            strcmp(s->findings[i].id, "recompile"))
            ep_json_str(o, s->findings[i].sentence);
    if (h->mended_nesting) ep_json_str(o, "some host spans overlap without nesting");
    if (!s->trace->has_shapes) ep_json_str(o, "no shapes: record_shapes was off");
    ep_json_end(o);
}

static void health(const ep_study *s, out *o) {
    const ep_health *h = &s->facts->health;
    const ep_trace *t = s->trace;
    begin_object(o, "health");
    flag(o, "complete", h->complete);
    num(o, "events", h->events);
    num(o, "span_events", h->span_events);
    num(o, "skipped", h->skipped);
    begin_array(o, "repairs");
    for (size_t i = 0; i < t->repair_count; i++) {
        ep_json_object(o);
        str(o, "kind", ep_trace_text(t, t->repairs[i].kind));
        num(o, "count", t->repairs[i].count);
        known_or_null(o, "first_offset", t->repairs[i].first_offset);
        ep_json_end(o);
    }
    ep_json_end(o);
    num(o, "launches", h->launches);
    num(o, "kernels", h->kernels);
    num(o, "launches_without_kernel", h->launches_without_kernel);
    num(o, "kernels_without_launch", h->kernels_without_launch);
    num(o, "kernels_before_launch", h->kernels_before_launch);
    flag(o, "device_recorded", h->device_recorded);
    num(o, "memory_launches", h->memory_launches);
    num(o, "memory_launches_without_event", h->memory_launches_without_event);
    num(o, "graph_launches", h->graph_launches);
    num(o, "impossible_times", h->impossible_times);
    num(o, "overlaps_on_stream", h->overlaps_on_stream);
    num(o, "mended_nesting", h->mended_nesting);
    us(o, "clock_skew_us", h->clock_skew_ns);
    flag(o, "partial", ep_study_partial(s));
    health_notes(s, o);
    ep_json_end(o);
}

/* Events by their category as written; the ones without a category under "(no cat)". */
static void categories(const ep_study *s, out *o) {
    const ep_trace *t = s->trace;
    ep_arena arena = {0};
    size_t texts = t->strings.count;
    int64_t *counts = EP_ARENA_ARRAY(&arena, int64_t, texts + 1);
    for (size_t k = 0; counts && k < texts && k < t->folded_by_cap; k++) counts[k] = t->folded_by[k];
    for (size_t i = 0; counts && i < t->count; i++) counts[t->category[i]]++;
    begin_object(o, "categories");
    for (size_t k = 0; counts && k < texts; k++)
        if (counts[k]) num(o, k ? ep_trace_text(t, (uint32_t)k) : "(no cat)", counts[k]);
    o->failed = o->failed || !counts;
    ep_json_end(o);
    ep_arena_free(&arena);
}

static void devices(const ep_study *s, out *o) {
    double span = (double)(s->facts->span_end_ns - s->facts->span_start_ns);
    begin_array(o, "devices");
    for (size_t i = 0; i < s->facts->device_count; i++) {
        const ep_device_fact *d = &s->facts->devices[i];
        ep_json_object(o);
        num(o, "id", d->id);
        str(o, "name", d->name);
        num(o, "kernels", d->kernels);
        num(o, "memcpys", d->memcpys);
        num(o, "memsets", d->memsets);
        us(o, "busy_us", d->busy_ns);
        us(o, "span_us", d->span_ns);
        real(o, "idle_share", d->span_ns > 0 ? 1 - (double)d->busy_ns / (double)d->span_ns : NAN, 6);
        real(o, "idle_share_of_trace", span > 0 ? 1 - (double)d->busy_ns / span : NAN, 6);
        ep_json_end(o);
    }
    ep_json_end(o);
}

static void vendor(out *o, const ep_kernel_name *d) {
    begin_object(o, "vendor");
    str(o, "class", d->class_name);
    str(o, "vendor", d->vendor);
    str(o, "family", d->family);
    str(o, "arch", d->arch[0] ? d->arch : NULL);
    str(o, "dtype", d->dtype[0] ? d->dtype : NULL);
    str(o, "tile", d->tile[0] ? d->tile : NULL);
    str(o, "layout", d->layout[0] ? d->layout : NULL);
    str(o, "epilogue", d->epilogue[0] ? d->epilogue : NULL);
    known_or_null(o, "stages", d->stages > 0 ? d->stages : -1);
    known_or_null(o, "split_k", d->split_k > 0 ? d->split_k : -1);
    str(o, "note", d->note[0] ? d->note : NULL);
    real(o, "confidence", d->confidence, 2);
    ep_json_end(o);
}

/* The distinct owner ops of every kernel name, in the order they were met: a list through one table of pairs. */
typedef struct owner_pair {
    uint32_t name, op; /* facts->names[], string */
} owner_pair;
typedef struct owners {
    ep_intern pairs;        /* a pair's bytes as text; its number is the list's */
    uint32_t *next;         /* by pair */
    uint32_t *first, *last; /* by kernel name; 0: none, since 0 is no pair's number */
    size_t cap;
} owners;

static void owners_free(owners *w) {
    ep_intern_free(&w->pairs);
    free(w->next);
    free(w->first);
    free(w->last);
}

static bool add_owner(owners *w, owner_pair pair) {
    size_t had = w->pairs.count;
    uint32_t id = ep_intern_add(&w->pairs, (const char *)&pair, sizeof pair);
    if (id == UINT32_MAX || !ep_grow(&w->next, &w->cap, (size_t)id + 1, sizeof *w->next)) return false;
    if (id < had) return true;
    w->next[id] = 0;
    if (w->last[pair.name])
        w->next[w->last[pair.name]] = id;
    else
        w->first[pair.name] = id;
    w->last[pair.name] = id;
    return true;
}

static bool gather_owners(const ep_study *s, owners *w) {
    w->first = calloc(s->facts->name_count + 1, sizeof *w->first);
    w->last = calloc(s->facts->name_count + 1, sizeof *w->last);
    if (!w->first || !w->last) return false;
    for (size_t i = 0; i < s->facts->kernel_count; i++) {
        const ep_kernel_fact *k = &s->facts->kernels[i];
        uint32_t owner = ep_links_owner(s->facts->links, k->event);
        if (owner != EP_NO_INDEX && !add_owner(w, (owner_pair){k->name_id, s->trace->name[owner]})) return false;
    }
    return true;
}

static void owner_list(const ep_study *s, const owners *w, size_t name, out *o) {
    begin_array(o, "ops");
    for (uint32_t at = w->first[name]; at; at = w->next[at]) {
        owner_pair pair;
        memcpy(&pair, ep_intern_text(&w->pairs, at), sizeof pair);
        ep_json_str(o, ep_trace_text(s->trace, pair.op));
    }
    ep_json_end(o);
}

/* Speed and bound over the instances whose work is known; null where none is. */
static void work_of(const ep_study *s, size_t name, out *o) {
    const ep_bound_row *b = &s->bounds[name];
    ep_json_key(o, "work");
    if (!b->count) {
        ep_json_null(o);
        return;
    }
    double us = (double)b->ns * 1e-3, n = (double)b->count;
    ep_json_object(o);
    num(o, "count", b->count);
    real(o, "us", us / n, 3);
    real(o, "tflops", us > 0 && b->flops > 0 ? (double)b->flops / us * 1e-6 : NAN, 3);
    real(o, "gbs", us > 0 ? (double)b->bytes / us * 1e-3 : NAN, 1);
    real(o, "bound_us", b->bound_us / n, 3);
    real(o, "to_win_us", b->to_win_us, 3);
    str(o, "bound", isfinite(b->bound_us) ? b->by_compute * 2 > b->count ? "compute" : "memory" : NULL);
    flag(o, "at_least", b->at_least);
    ep_json_end(o);
}

static void kernels(const ep_study *s, out *o) {
    owners w = {0};
    bool ok = gather_owners(s, &w);
    begin_array(o, "kernels");
    for (size_t i = 0; ok && i < s->facts->name_count; i++) {
        const ep_kernel_kind *k = &s->facts->names[i];
        ep_json_object(o);
        str(o, "name", k->name);
        num(o, "count", k->count);
        us(o, "total_us", k->total_ns);
        owner_list(s, &w, i, o);
        vendor(o, &k->decoded);
        work_of(s, i, o);
        ep_json_end(o);
    }
    o->failed = o->failed || !ok;
    ep_json_end(o);
    owners_free(&w);
}

static void ops(const ep_study *s, out *o) {
    begin_array(o, "ops");
    for (size_t i = 0; i < s->facts->op_count; i++) {
        const ep_op_fact *f = &s->facts->ops[i];
        ep_json_object(o);
        str(o, "name", f->name);
        num(o, "count", f->count);
        us(o, "self_us", f->self_ns);
        us(o, "total_us", f->total_ns);
        us(o, "device_us", f->device_ns);
        num(o, "kernels", f->kernels);
        num(o, "self_kernels", f->self_kernels);
        ep_json_key(o, "backward");
        if (f->backward_count) {
            ep_json_object(o);
            num(o, "count", f->backward_count);
            us(o, "total_us", f->backward_ns);
            us(o, "device_us", f->backward_device_ns);
            num(o, "kernels", f->backward_kernels);
            ep_json_end(o);
        } else {
            ep_json_null(o);
        }
        ep_json_end(o);
    }
    ep_json_end(o);
    begin_array(o, "views");
    for (size_t i = 0; s->facts->health.device_recorded && i < s->facts->op_count; i++) {
        const ep_op_fact *f = &s->facts->ops[i];
        if (!f->views) continue;
        ep_json_object(o);
        str(o, "name", f->name);
        num(o, "count", f->views);
        us(o, "self_us", f->view_self_ns);
        num(o, "with_copies_or_memsets", f->views - f->idle);
        ep_json_end(o);
    }
    ep_json_end(o);
}

/* Regimes stand in the order of the regions, steps as one row in front: *at walks along. */
static const ep_regime_row *regime_of(const ep_study *s, const char *name, size_t *at) {
    if (ep_region_is_step(name))
        return s->regime_count && strcmp(s->regimes[0].name, "ProfilerStep") == 0 ? &s->regimes[0] : NULL;
    for (size_t i = *at; i < s->regime_count; i++)
        if (strcmp(s->regimes[i].name, name) == 0) {
            *at = i + 1;
            return &s->regimes[i];
        }
    return NULL;
}

typedef int64_t (*instance_value)(const ep_region_instance *i);

static int64_t own_kernels(const ep_region_instance *i) {
    return i->kernels;
}
static int64_t any_kernels(const ep_region_instance *i) {
    return i->kernels_any_thread;
}
static int64_t launches(const ep_region_instance *i) {
    return i->launches;
}

static void per_instance(const ep_study *s, const ep_region_fact *r, out *o, const char *key, instance_value value) {
    begin_array(o, key);
    for (uint32_t i = r->first; i < r->first + r->count; i++) ep_json_int(o, value(&s->facts->instances[i]));
    ep_json_end(o);
}

static void regime(const ep_regime_row *r, out *o) {
    begin_object(o, "regime");
    num(o, "kernels", r->kernels);
    real(o, "host_us", r->host_us, 3);
    real(o, "busy_us", r->busy_us, 3);
    real(o, "window_us", r->window_us, 3);
    real(o, "busy_share", r->busy_share, 4);
    real(o, "gap_us", r->gap_us, 3);
    real(o, "delay_us", r->delay_us, 3);
    real(o, "longest_delay_us", r->longest_delay_us, 3);
    real(o, "sync_us", r->sync_us, 3);
    real(o, "communication_us", r->comm_us, 3);
    real(o, "profiler_us_low", r->profiler_low_us, 1);
    real(o, "profiler_us_high", r->profiler_high_us, 1);
    str(o, "as_recorded", r->regime == EP_REGIME_UNKNOWN ? NULL : ep_regime_name(r->regime));
    str(o, "without_profiler", r->regime == EP_REGIME_UNKNOWN ? NULL : ep_regime_name(r->without_profiler));
    str(o, "why", r->why);
    ep_json_end(o);
}

static void regions(const ep_study *s, out *o) {
    size_t at = 0;
    begin_array(o, "regions");
    for (size_t i = 0; i < s->facts->region_count; i++) {
        const ep_region_fact *r = &s->facts->regions[i];
        if (!ep_study_wants(s, r->name)) continue;
        const ep_regime_row *g = regime_of(s, r->name, &at);
        int64_t cpu = 0, device = 0, kernel = 0, any_device = 0, any_kernel = 0;
        for (uint32_t k = r->first; k < r->first + r->count; k++) {
            cpu += s->facts->instances[k].cpu_ns;
            device += s->facts->instances[k].device_ns;
            kernel += s->facts->instances[k].kernel_ns;
            any_device += s->facts->instances[k].device_ns_any_thread;
            any_kernel += s->facts->instances[k].kernel_ns_any_thread;
        }
        ep_json_object(o);
        str(o, "name", r->name);
        num(o, "count", r->count);
        per_instance(s, r, o, "kernels_per_instance", own_kernels);
        per_instance(s, r, o, "kernels_per_instance_any_thread", any_kernels);
        per_instance(s, r, o, "launches_per_instance", launches);
        us(o, "cpu_us", cpu);
        us(o, "device_us", device);
        us(o, "kernel_us", kernel);
        us(o, "device_us_any_thread", any_device);
        us(o, "kernel_us_any_thread", any_kernel);
        str(o, "bound", g && g->regime != EP_REGIME_UNKNOWN ? ep_regime_name(g->regime) : NULL);
        if (g) regime(g, o);
        ep_json_end(o);
    }
    ep_json_end(o);
}

static void gemms(const ep_study *s, out *o) {
    begin_array(o, "gemms");
    for (size_t i = 0; i < s->gemm_count; i++) {
        const ep_gemm_row *g = &s->gemms[i];
        bool known = g->reason == NULL;
        ep_json_object(o);
        str(o, "op", g->op);
        known_or_null(o, "m", known ? g->m : -1);
        known_or_null(o, "n", known ? g->n : -1);
        known_or_null(o, "k", known ? g->k : -1);
        known_or_null(o, "batch", known ? g->batch : -1);
        str(o, "dtype", g->dtype[0] ? g->dtype : NULL);
        str(o, "epilogue", g->epilogue);
        str(o, "kernel", g->kernel);
        num(o, "count", g->count);
        real(o, "us", (double)g->ns * 1e-3 / (double)g->count, 3);
        us(o, "total_us", g->ns);
        real(o, "tflops", g->tflops, 3);
        real(o, "bound_us", g->bound_us, 3);
        str(o, "bound", isfinite(g->bound_us) ? ep_regime_name(g->regime) : NULL);
        str(o, "reason", known ? (isfinite(g->bound_us) ? NULL : s->no_machine) : g->reason);
        ep_json_end(o);
    }
    ep_json_end(o);
}

static void names(out *o, const char *key, const char *const *list, int n) {
    begin_array(o, key);
    for (int i = 0; i < n; i++) ep_json_str(o, list[i]);
    ep_json_end(o);
}

static void fusions(const ep_study *s, out *o) {
    begin_array(o, "fusions");
    for (size_t i = 0; i < s->fusion_count; i++) {
        const ep_fusion_row *r = &s->fusions[i];
        ep_json_object(o);
        str(o, "kind", r->kind);
        names(o, "ops", r->ops, r->length);
        names(o, "kernels", r->kernels, r->length);
        num(o, "instances", r->instances);
        us(o, "total_us", r->ns);
        known_or_null(o, "intermediate_bytes", r->intermediate_bytes);
        known_or_null(o, "bytes_saved", r->bytes_saved);
        real(o, "us_saved", r->us_saved, 3);
        real(o, "us_of_bytes_saved", r->us_by_bytes, 3);
        str(o, "blocked_by", r->blocked_by);
        ep_json_end(o);
    }
    ep_json_end(o);
    begin_array(o, "gated_mlps");
    for (size_t i = 0; i < s->gated_count; i++) {
        const ep_gated_row *r = &s->gated[i];
        ep_json_object(o);
        str(o, "form", r->form);
        str(o, "act", r->act);
        str(o, "dtype", r->dtype);
        num(o, "rows", r->m);
        num(o, "dim", r->k);
        num(o, "hidden", r->n);
        num(o, "out", r->out);
        num(o, "count", r->count);
        real(o, "us", r->now_us, 3);
        real(o, "gemm_us", r->gemm_us, 3);
        real(o, "pointwise_us", r->pointwise_us, 3);
        real(o, "pointwise_bound_us", r->pointwise_bound_us, 3);
        real(o, "fused_bound_us", r->fused_bound_us, 3);
        num(o, "intermediate_bytes", r->intermediate_bytes);
        ep_json_end(o);
    }
    ep_json_end(o);
}

static void compiles(const ep_study *s, out *o) {
    begin_array(o, "compiled");
    for (size_t i = 0; i < s->compile_count; i++) {
        const ep_compile_row *r = &s->compiles[i];
        ep_json_object(o);
        str(o, "name", r->name);
        num(o, "calls", r->calls);
        num(o, "entries", r->entries);
        real(o, "call_us", r->call_us, 3);
        real(o, "lookup_us", r->lookup_us, 3);
        real(o, "guard_us", r->guard_us, 3);
        real(o, "prologue_us", r->prologue_us, 3);
        ep_json_end(o);
    }
    ep_json_end(o);
    num(o, "lookups", s->lookups);
    num(o, "lookups_without_code", s->lookups_without_code);
    begin_array(o, "recompiles");
    for (size_t i = 0; i < s->recompile_count; i++) {
        const ep_recompile_row *r = &s->recompiles[i];
        ep_json_object(o);
        str(o, "kind", r->kind);
        str(o, "name", r->name);
        str(o, "region", r->region);
        known_or_null(o, "step", r->step);
        us(o, "ts_us", r->ts_ns - s->facts->span_start_ns);
        us(o, "dur_us", r->dur_ns);
        str(o, "detail", r->detail);
        ep_json_end(o);
    }
    ep_json_end(o);
}

static void machine(const ep_study *s, out *o) {
    ep_json_key(o, "machine");
    if (!s->has_machine) {
        ep_json_null(o);
        return;
    }
    ep_json_object(o);
    str(o, "name", s->machine.name);
    str(o, "source", s->machine.source);
    real(o, "bandwidth_gbs", s->machine.read_gbs[1], 1);
    begin_object(o, "peak_gflops");
    for (int d = 0; d < EP_DTYPE_COUNT; d++)
        if (s->machine.gflops[d][1] > 0) real(o, ep_dtype_name((ep_dtype)d), s->machine.gflops[d][1], 1);
    ep_json_end(o);
    ep_json_end(o);
}

static void findings(const ep_study *s, out *o) {
    begin_array(o, "findings");
    for (size_t i = 0; i < s->finding_count; i++) {
        const ep_finding *f = &s->findings[i];
        ep_json_object(o);
        str(o, "id", f->id);
        str(o, "sentence", f->sentence);
        names(o, "evidence", f->evidence, f->evidence_count);
        ep_json_end(o);
    }
    ep_json_end(o);
}

static void communication(const ep_study *s, out *o) {
    begin_object(o, "communication");
    us(o, "us", s->comm_ns);
    us(o, "hidden_us", s->comm_hidden_ns);
    us(o, "exposed_us", s->comm_ns - s->comm_hidden_ns);
    ep_json_end(o);
}

static void host(const ep_study *s, out *o) {
    begin_object(o, "host");
    real(o, "median_delay_us", s->median_delay_us, 3);
    num(o, "synchronisations", s->sync_calls);
    us(o, "synchronisation_us", s->sync_ns);
    num(o, "allocator_calls_in_steady_state", s->allocator_calls);
    us(o, "allocator_us", s->allocator_ns);
    num(o, "pageable_copies", s->pageable_copies);
    num(o, "pageable_bytes", s->pageable_bytes);
    real(o, "setup_us", s->setup_us > 0 ? s->setup_us : NAN, 3);
    str(o, "setup", s->setup_op);
    begin_array(o, "idle_regions");
    for (size_t i = 0; i < s->idle_count; i++) {
        const ep_idle_row *r = &s->idles[i];
        ep_json_object(o);
        str(o, "name", r->name);
        num(o, "count", r->count);
        us(o, "host_us", r->host_ns);
        us(o, "device_idle_us", r->idle_ns);
        ep_json_end(o);
    }
    ep_json_end(o);
    ep_json_end(o);
}

void ep_explain_json(const ep_study *s, ep_json_out *o) {
    ep_json_object(o);
    str(o, "file", s->label);
    known_or_null(o, "rank", s->trace->rank);
    health(s, o);
    us(o, "span_us", s->facts->span_end_ns - s->facts->span_start_ns);
    machine(s, o);
    categories(s, o);
    devices(s, o);
    kernels(s, o);
    ops(s, o);
    regions(s, o);
    gemms(s, o);
    fusions(s, o);
    compiles(s, o);
    communication(s, o);
    host(s, o);
    findings(s, o);
    ep_json_end(o);
}
