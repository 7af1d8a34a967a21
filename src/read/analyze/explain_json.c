/* The JSON object of `explain`: every figure as docs/trace.md defines it, unknown as null. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analyze.h"
#include "base/alloc.h"

static void health_notes(const ep_study *s, ep_json_out *o) {
    const ep_health *h = &s->facts->health;
    ep_json_put_array(o, "notes");
    for (size_t i = 0; i < s->finding_count; i++)
        if (s->findings[i].weight > 1e17 && strcmp(s->findings[i].id, "regime") &&
            strcmp(s->findings[i].id, "recompile"))
            ep_json_str(o, s->findings[i].sentence);
    if (h->mended_nesting) ep_json_str(o, "some host spans overlap without nesting");
    if (!s->trace->has_shapes) ep_json_str(o, "no shapes: record_shapes was off");
    ep_json_end(o);
}

static void health(const ep_study *s, ep_json_out *o) {
    const ep_health *h = &s->facts->health;
    const ep_trace *t = s->trace;
    ep_json_put_object(o, "health");
    ep_json_put_bool(o, "complete", h->complete);
    ep_json_put_int(o, "events", h->events);
    ep_json_put_int(o, "span_events", h->span_events);
    ep_json_put_int(o, "skipped", h->skipped);
    ep_json_put_array(o, "repairs");
    for (size_t i = 0; i < t->repair_count; i++) {
        ep_json_object(o);
        ep_json_put_str(o, "kind", ep_trace_text(t, t->repairs[i].kind));
        ep_json_put_int(o, "count", t->repairs[i].count);
        ep_json_put_known(o, "first_offset", t->repairs[i].first_offset);
        ep_json_end(o);
    }
    ep_json_end(o);
    ep_json_put_int(o, "launches", h->launches);
    ep_json_put_int(o, "kernels", h->kernels);
    ep_json_put_int(o, "launches_without_kernel", h->launches_without_kernel);
    ep_json_put_int(o, "kernels_without_launch", h->kernels_without_launch);
    ep_json_put_int(o, "kernels_before_launch", h->kernels_before_launch);
    ep_json_put_bool(o, "device_recorded", h->device_recorded);
    ep_json_put_int(o, "memory_launches", h->memory_launches);
    ep_json_put_int(o, "memory_launches_without_event", h->memory_launches_without_event);
    ep_json_put_int(o, "graph_launches", h->graph_launches);
    ep_json_put_int(o, "impossible_times", h->impossible_times);
    ep_json_put_int(o, "overlaps_on_stream", h->overlaps_on_stream);
    ep_json_put_int(o, "mended_nesting", h->mended_nesting);
    ep_json_put_us(o, "clock_skew_us", h->clock_skew_ns);
    ep_json_put_bool(o, "partial", ep_study_partial(s));
    health_notes(s, o);
    ep_json_end(o);
}

/* Events by their category as written; the ones without a category under "(no cat)". */
static void categories(const ep_study *s, ep_json_out *o) {
    const ep_trace *t = s->trace;
    ep_arena arena = {0};
    size_t texts = t->strings.count;
    int64_t *counts = EP_ARENA_ARRAY(&arena, int64_t, texts + 1);
    for (size_t k = 0; counts && k < texts && k < t->folded_by_cap; k++) counts[k] = t->folded_by[k];
    for (size_t i = 0; counts && i < t->count; i++) counts[t->category[i]]++;
    ep_json_put_object(o, "categories");
    for (size_t k = 0; counts && k < texts; k++)
        if (counts[k]) ep_json_put_int(o, k ? ep_trace_text(t, (uint32_t)k) : "(no cat)", counts[k]);
    o->failed = o->failed || !counts;
    ep_json_end(o);
    ep_arena_free(&arena);
}

static void devices(const ep_study *s, ep_json_out *o) {
    double span = (double)(s->facts->span_end_ns - s->facts->span_start_ns);
    ep_json_put_array(o, "devices");
    for (size_t i = 0; i < s->facts->device_count; i++) {
        const ep_device_fact *d = &s->facts->devices[i];
        ep_json_object(o);
        ep_json_put_int(o, "id", d->id);
        ep_json_put_str(o, "name", d->name);
        ep_json_put_int(o, "kernels", d->kernels);
        ep_json_put_int(o, "memcpys", d->memcpys);
        ep_json_put_int(o, "memsets", d->memsets);
        ep_json_put_us(o, "busy_us", d->busy_ns);
        ep_json_put_us(o, "span_us", d->span_ns);
        ep_json_put_fixed(o, "idle_share", d->span_ns > 0 ? 1 - (double)d->busy_ns / (double)d->span_ns : NAN, 6);
        ep_json_put_fixed(o, "idle_share_of_trace", span > 0 ? 1 - (double)d->busy_ns / span : NAN, 6);
        ep_json_end(o);
    }
    ep_json_end(o);
}

static void vendor(ep_json_out *o, const ep_kernel_name *d) {
    ep_json_put_object(o, "vendor");
    ep_json_put_str(o, "class", d->class_name);
    ep_json_put_str(o, "vendor", d->vendor);
    ep_json_put_str(o, "family", d->family);
    ep_json_put_str(o, "arch", d->arch[0] ? d->arch : NULL);
    ep_json_put_str(o, "dtype", d->dtype[0] ? d->dtype : NULL);
    ep_json_put_str(o, "tile", d->tile[0] ? d->tile : NULL);
    ep_json_put_str(o, "layout", d->layout[0] ? d->layout : NULL);
    ep_json_put_str(o, "epilogue", d->epilogue[0] ? d->epilogue : NULL);
    ep_json_put_known(o, "stages", d->stages > 0 ? d->stages : -1);
    ep_json_put_known(o, "split_k", d->split_k > 0 ? d->split_k : -1);
    ep_json_put_str(o, "note", d->note[0] ? d->note : NULL);
    ep_json_put_fixed(o, "confidence", d->confidence, 2);
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

static void owner_list(const ep_study *s, const owners *w, size_t name, ep_json_out *o) {
    ep_json_put_array(o, "ops");
    for (uint32_t at = w->first[name]; at; at = w->next[at]) {
        owner_pair pair;
        memcpy(&pair, ep_intern_text(&w->pairs, at), sizeof pair);
        ep_json_str(o, ep_trace_text(s->trace, pair.op));
    }
    ep_json_end(o);
}

/* Speed and bound over the instances whose work is known; null where none is. */
static void work_of(const ep_study *s, size_t name, ep_json_out *o) {
    const ep_bound_row *b = &s->bounds[name];
    ep_json_key(o, "work");
    if (!b->count) {
        ep_json_null(o);
        return;
    }
    double us = (double)b->ns * 1e-3, n = (double)b->count;
    ep_json_object(o);
    ep_json_put_int(o, "count", b->count);
    ep_json_put_fixed(o, "us", us / n, 3);
    ep_json_put_fixed(o, "tflops", us > 0 && b->flops > 0 ? (double)b->flops / us * 1e-6 : NAN, 3);
    ep_json_put_fixed(o, "gbs", us > 0 ? (double)b->bytes / us * 1e-3 : NAN, 1);
    ep_json_put_fixed(o, "bound_us", b->bound_us / n, 3);
    ep_json_put_fixed(o, "to_win_us", b->to_win_us, 3);
    ep_json_put_str(o, "bound", isfinite(b->bound_us) ? b->by_compute * 2 > b->count ? "compute" : "memory" : NULL);
    ep_json_put_bool(o, "at_least", b->at_least);
    ep_json_end(o);
}

static void kernels(const ep_study *s, ep_json_out *o) {
    owners w = {0};
    bool ok = gather_owners(s, &w);
    ep_json_put_array(o, "kernels");
    for (size_t i = 0; ok && i < s->facts->name_count; i++) {
        const ep_kernel_kind *k = &s->facts->names[i];
        ep_json_object(o);
        ep_json_put_str(o, "name", k->name);
        ep_json_put_int(o, "count", k->count);
        ep_json_put_us(o, "total_us", k->total_ns);
        owner_list(s, &w, i, o);
        vendor(o, &k->decoded);
        work_of(s, i, o);
        ep_json_end(o);
    }
    o->failed = o->failed || !ok;
    ep_json_end(o);
    owners_free(&w);
}

static void ops(const ep_study *s, ep_json_out *o) {
    ep_json_put_array(o, "ops");
    for (size_t i = 0; i < s->facts->op_count; i++) {
        const ep_op_fact *f = &s->facts->ops[i];
        ep_json_object(o);
        ep_json_put_str(o, "name", f->name);
        ep_json_put_int(o, "count", f->count);
        ep_json_put_us(o, "self_us", f->self_ns);
        ep_json_put_us(o, "total_us", f->total_ns);
        ep_json_put_us(o, "device_us", f->device_ns);
        ep_json_put_int(o, "kernels", f->kernels);
        ep_json_put_int(o, "self_kernels", f->self_kernels);
        ep_json_key(o, "backward");
        if (f->backward_count) {
            ep_json_object(o);
            ep_json_put_int(o, "count", f->backward_count);
            ep_json_put_us(o, "total_us", f->backward_ns);
            ep_json_put_us(o, "device_us", f->backward_device_ns);
            ep_json_put_int(o, "kernels", f->backward_kernels);
            ep_json_end(o);
        } else {
            ep_json_null(o);
        }
        ep_json_end(o);
    }
    ep_json_end(o);
    ep_json_put_array(o, "views");
    for (size_t i = 0; s->facts->health.device_recorded && i < s->facts->op_count; i++) {
        const ep_op_fact *f = &s->facts->ops[i];
        if (!f->views) continue;
        ep_json_object(o);
        ep_json_put_str(o, "name", f->name);
        ep_json_put_int(o, "count", f->views);
        ep_json_put_us(o, "self_us", f->view_self_ns);
        ep_json_put_int(o, "with_copies_or_memsets", f->views - f->idle);
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

static void per_instance(const ep_study *s, const ep_region_fact *r, ep_json_out *o, const char *key,
                         instance_value value) {
    ep_json_put_array(o, key);
    for (uint32_t i = r->first; i < r->first + r->count; i++) ep_json_int(o, value(&s->facts->instances[i]));
    ep_json_end(o);
}

static void regime(const ep_regime_row *r, ep_json_out *o) {
    ep_json_put_object(o, "regime");
    ep_json_put_int(o, "kernels", r->kernels);
    ep_json_put_fixed(o, "host_us", r->host_us, 3);
    ep_json_put_fixed(o, "busy_us", r->busy_us, 3);
    ep_json_put_fixed(o, "window_us", r->window_us, 3);
    ep_json_put_fixed(o, "busy_share", r->busy_share, 4);
    ep_json_put_fixed(o, "gap_us", r->gap_us, 3);
    ep_json_put_fixed(o, "delay_us", r->delay_us, 3);
    ep_json_put_fixed(o, "longest_delay_us", r->longest_delay_us, 3);
    ep_json_put_fixed(o, "sync_us", r->sync_us, 3);
    ep_json_put_fixed(o, "communication_us", r->comm_us, 3);
    ep_json_put_fixed(o, "profiler_us_low", r->profiler_low_us, 1);
    ep_json_put_fixed(o, "profiler_us_high", r->profiler_high_us, 1);
    ep_json_put_str(o, "as_recorded", r->regime == EP_REGIME_UNKNOWN ? NULL : ep_regime_name(r->regime));
    ep_json_put_str(o, "without_profiler", r->regime == EP_REGIME_UNKNOWN ? NULL : ep_regime_name(r->without_profiler));
    ep_json_put_str(o, "why", r->why);
    ep_json_end(o);
}

static void regions(const ep_study *s, ep_json_out *o) {
    size_t at = 0;
    ep_json_put_array(o, "regions");
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
        ep_json_put_str(o, "name", r->name);
        ep_json_put_int(o, "count", r->count);
        per_instance(s, r, o, "kernels_per_instance", own_kernels);
        per_instance(s, r, o, "kernels_per_instance_any_thread", any_kernels);
        per_instance(s, r, o, "launches_per_instance", launches);
        ep_json_put_us(o, "cpu_us", cpu);
        ep_json_put_us(o, "device_us", device);
        ep_json_put_us(o, "kernel_us", kernel);
        ep_json_put_us(o, "device_us_any_thread", any_device);
        ep_json_put_us(o, "kernel_us_any_thread", any_kernel);
        ep_json_put_str(o, "bound", g && g->regime != EP_REGIME_UNKNOWN ? ep_regime_name(g->regime) : NULL);
        if (g) regime(g, o);
        ep_json_end(o);
    }
    ep_json_end(o);
}

static void gemms(const ep_study *s, ep_json_out *o) {
    ep_json_put_array(o, "gemms");
    for (size_t i = 0; i < s->gemm_count; i++) {
        const ep_gemm_row *g = &s->gemms[i];
        bool known = g->reason == NULL;
        ep_json_object(o);
        ep_json_put_str(o, "op", g->op);
        ep_json_put_known(o, "m", known ? g->m : -1);
        ep_json_put_known(o, "n", known ? g->n : -1);
        ep_json_put_known(o, "k", known ? g->k : -1);
        ep_json_put_known(o, "batch", known ? g->batch : -1);
        ep_json_put_str(o, "dtype", g->dtype[0] ? g->dtype : NULL);
        ep_json_put_str(o, "epilogue", g->epilogue);
        ep_json_put_str(o, "kernel", g->kernel);
        ep_json_put_int(o, "count", g->count);
        ep_json_put_fixed(o, "us", (double)g->ns * 1e-3 / (double)g->count, 3);
        ep_json_put_us(o, "total_us", g->ns);
        ep_json_put_fixed(o, "tflops", g->tflops, 3);
        ep_json_put_fixed(o, "bound_us", g->bound_us, 3);
        ep_json_put_str(o, "bound", isfinite(g->bound_us) ? ep_regime_name(g->regime) : NULL);
        ep_json_put_str(o, "reason", known ? (isfinite(g->bound_us) ? NULL : s->no_machine) : g->reason);
        ep_json_end(o);
    }
    ep_json_end(o);
}

static void names(ep_json_out *o, const char *key, const char *const *list, int n) {
    ep_json_put_array(o, key);
    for (int i = 0; i < n; i++) ep_json_str(o, list[i]);
    ep_json_end(o);
}

static void fusions(const ep_study *s, ep_json_out *o) {
    ep_json_put_array(o, "fusions");
    for (size_t i = 0; i < s->fusion_count; i++) {
        const ep_fusion_row *r = &s->fusions[i];
        ep_json_object(o);
        ep_json_put_str(o, "kind", r->kind);
        names(o, "ops", r->ops, r->length);
        names(o, "kernels", r->kernels, r->length);
        ep_json_put_int(o, "instances", r->instances);
        ep_json_put_us(o, "total_us", r->ns);
        ep_json_put_known(o, "intermediate_bytes", r->intermediate_bytes);
        ep_json_put_known(o, "bytes_saved", r->bytes_saved);
        ep_json_put_fixed(o, "us_saved", r->us_saved, 3);
        ep_json_put_fixed(o, "us_of_bytes_saved", r->us_by_bytes, 3);
        ep_json_put_str(o, "blocked_by", r->blocked_by);
        ep_json_end(o);
    }
    ep_json_end(o);
    ep_json_put_array(o, "gated_mlps");
    for (size_t i = 0; i < s->gated_count; i++) {
        const ep_gated_row *r = &s->gated[i];
        ep_json_object(o);
        ep_json_put_str(o, "form", r->form);
        ep_json_put_str(o, "act", r->act);
        ep_json_put_str(o, "dtype", r->dtype);
        ep_json_put_int(o, "rows", r->m);
        ep_json_put_int(o, "dim", r->k);
        ep_json_put_int(o, "hidden", r->n);
        ep_json_put_int(o, "out", r->out);
        ep_json_put_int(o, "count", r->count);
        ep_json_put_fixed(o, "us", r->now_us, 3);
        ep_json_put_fixed(o, "gemm_us", r->gemm_us, 3);
        ep_json_put_fixed(o, "pointwise_us", r->pointwise_us, 3);
        ep_json_put_fixed(o, "pointwise_bound_us", r->pointwise_bound_us, 3);
        ep_json_put_fixed(o, "fused_bound_us", r->fused_bound_us, 3);
        ep_json_put_int(o, "intermediate_bytes", r->intermediate_bytes);
        ep_json_end(o);
    }
    ep_json_end(o);
}

static void memory(const ep_study *s, ep_json_out *o) {
    ep_json_put_array(o, "memory");
    for (size_t i = 0; i < s->memory_count; i++) {
        const ep_memory_row *r = &s->memory[i];
        ep_json_object(o);
        ep_json_put_str(o, "device", r->device);
        ep_json_put_int(o, "peak_bytes", r->use->peak_bytes);
        ep_json_put_us(o, "peak_us", r->use->peak_ns - s->facts->span_start_ns);
        ep_json_put_str(o, "op", r->op);
        ep_json_put_str(o, "outer_op", r->outer_op);
        ep_json_put_str(o, "region", r->region);
        ep_json_put_int(o, "start_bytes", r->use->start_bytes);
        ep_json_put_int(o, "end_bytes", r->use->end_bytes);
        ep_json_put_int(o, "reserved_bytes", r->use->reserved_bytes);
        ep_json_put_int(o, "events", r->use->events);
        ep_json_end(o);
    }
    ep_json_end(o);
}

static void attentions(const ep_study *s, ep_json_out *o) {
    ep_json_put_array(o, "attentions");
    for (size_t i = 0; i < s->attention_count; i++) {
        const ep_attention_row *r = &s->attentions[i];
        bool timed = ep_study_timed(s);
        ep_json_object(o);
        ep_json_put_str(o, "form", r->form);
        names(o, "ops", r->ops, r->length);
        ep_json_put_int(o, "instances", r->instances);
        ep_json_put_int(o, "batch", r->batch);
        ep_json_put_int(o, "queries", r->queries);
        ep_json_put_int(o, "keys", r->keys);
        ep_json_put_int(o, "head_dim", r->head_dim);
        ep_json_put_str(o, "dtype", r->dtype);
        ep_json_put_int(o, "scores_bytes", r->scores_bytes);
        ep_json_put_int(o, "bytes_saved", r->bytes_saved);
        ep_json_put_fixed(o, "total_us", timed ? (double)r->ns * 1e-3 : NAN, 3);
        ep_json_put_fixed(o, "between_us", timed ? (double)r->between_ns * 1e-3 : NAN, 3);
        ep_json_put_str(o, "blocked_by", r->blocked_by);
        ep_json_end(o);
    }
    ep_json_end(o);
}

static void compiles(const ep_study *s, ep_json_out *o) {
    ep_json_put_array(o, "compiled");
    for (size_t i = 0; i < s->compile_count; i++) {
        const ep_compile_row *r = &s->compiles[i];
        ep_json_object(o);
        ep_json_put_str(o, "name", r->name);
        ep_json_put_int(o, "calls", r->calls);
        ep_json_put_known(o, "entries", r->entries);
        ep_json_put_fixed(o, "call_us", r->call_us, 3);
        ep_json_put_fixed(o, "lookup_us", r->lookup_us, 3);
        ep_json_put_fixed(o, "guard_us", r->guard_us, 3);
        ep_json_put_fixed(o, "prologue_us", r->prologue_us, 3);
        ep_json_end(o);
    }
    ep_json_end(o);
    ep_json_put_int(o, "lookups", s->lookups);
    ep_json_put_int(o, "lookups_without_code", s->lookups_without_code);
    ep_json_put_int(o, "compilations", s->compilations);
    ep_json_put_us(o, "compilations_us", s->compilation_ns);
    ep_json_put_array(o, "recompiles");
    for (size_t i = 0; i < s->recompile_count; i++) {
        const ep_recompile_row *r = &s->recompiles[i];
        ep_json_object(o);
        ep_json_put_str(o, "kind", r->kind);
        ep_json_put_str(o, "name", r->name);
        ep_json_put_str(o, "region", r->region);
        ep_json_put_known(o, "step", r->step);
        ep_json_put_us(o, "ts_us", r->ts_ns - s->facts->span_start_ns);
        ep_json_put_us(o, "dur_us", r->dur_ns);
        ep_json_put_str(o, "detail", r->detail);
        ep_json_end(o);
    }
    ep_json_end(o);
}

static void machine(const ep_study *s, ep_json_out *o) {
    ep_json_key(o, "machine");
    if (!s->has_machine) {
        ep_json_null(o);
        return;
    }
    ep_json_object(o);
    ep_json_put_str(o, "name", s->machine.name);
    ep_json_put_str(o, "source", s->machine.source);
    ep_json_put_fixed(o, "bandwidth_gbs", s->machine.read_gbs[1], 1);
    ep_json_put_object(o, "peak_gflops");
    for (int d = 0; d < EP_DTYPE_COUNT; d++)
        if (s->machine.gflops[d][1] > 0) ep_json_put_fixed(o, ep_dtype_name((ep_dtype)d), s->machine.gflops[d][1], 1);
    ep_json_end(o);
    ep_json_end(o);
}

static void findings(const ep_study *s, ep_json_out *o) {
    ep_json_put_array(o, "findings");
    for (size_t i = 0; i < s->finding_count; i++) {
        const ep_finding *f = &s->findings[i];
        ep_json_object(o);
        ep_json_put_str(o, "id", f->id);
        ep_json_put_str(o, "sentence", f->sentence);
        names(o, "evidence", f->evidence, f->evidence_count);
        ep_json_end(o);
    }
    ep_json_end(o);
}

static void communication(const ep_study *s, ep_json_out *o) {
    ep_json_put_object(o, "communication");
    ep_json_put_us(o, "us", s->comm_ns);
    ep_json_put_us(o, "hidden_us", s->comm_hidden_ns);
    ep_json_put_us(o, "exposed_us", s->comm_ns - s->comm_hidden_ns);
    ep_json_end(o);
}

static void host(const ep_study *s, ep_json_out *o) {
    ep_json_put_object(o, "host");
    ep_json_put_fixed(o, "median_delay_us", s->median_delay_us, 3);
    ep_json_put_int(o, "synchronisations", s->sync_calls);
    ep_json_put_us(o, "synchronisation_us", s->sync_ns);
    ep_json_put_int(o, "allocator_calls_in_steady_state", s->allocator_calls);
    ep_json_put_us(o, "allocator_us", s->allocator_ns);
    ep_json_put_int(o, "pageable_copies", s->pageable_copies);
    ep_json_put_int(o, "pageable_bytes", s->pageable_bytes);
    ep_json_put_fixed(o, "setup_us", s->setup_us > 0 ? s->setup_us : NAN, 3);
    ep_json_put_str(o, "setup", s->setup_op);
    ep_json_put_array(o, "idle_regions");
    for (size_t i = 0; i < s->idle_count; i++) {
        const ep_idle_row *r = &s->idles[i];
        ep_json_object(o);
        ep_json_put_str(o, "name", r->name);
        ep_json_put_int(o, "count", r->count);
        ep_json_put_us(o, "host_us", r->host_ns);
        ep_json_put_us(o, "device_idle_us", r->idle_ns);
        ep_json_end(o);
    }
    ep_json_end(o);
    ep_json_end(o);
}

void ep_explain_json(const ep_study *s, ep_json_out *o) {
    ep_json_object(o);
    ep_json_put_str(o, "file", s->label);
    ep_json_put_known(o, "rank", s->trace->rank);
    health(s, o);
    ep_json_put_us(o, "span_us", s->facts->span_end_ns - s->facts->span_start_ns);
    machine(s, o);
    categories(s, o);
    devices(s, o);
    kernels(s, o);
    ops(s, o);
    regions(s, o);
    gemms(s, o);
    fusions(s, o);
    attentions(s, o);
    memory(s, o);
    compiles(s, o);
    communication(s, o);
    host(s, o);
    findings(s, o);
    ep_json_end(o);
}
