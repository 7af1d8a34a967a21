/* torch.compile in the trace: compiled regions, cache look-ups and guards with their cost a call, and recompiles: a new
 * entry of a frame that was compiled before. A compile span and the first call of the entry it made are one recompile.
 * Our own compile and guard spans are read too. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyze.h"
#include "base/alloc.h"

typedef struct parts {
    double *values;
    size_t count, cap;
} parts;

static bool put(parts *p, double v) {
    if (!ep_grow(&p->values, &p->cap, p->count + 1, sizeof *p->values)) return false;
    p->values[p->count++] = v;
    return true;
}

static int by_value(const void *a, const void *b) {
    const double *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

static double median(parts *p) {
    if (!p->count) return NAN;
    qsort(p->values, p->count, sizeof *p->values, by_value);
    return p->values[(p->count - 1) / 2];
}

static bool starts(const char *name, const char *with) {
    return strncmp(name, with, strlen(with)) == 0;
}

/* "Torch-Compiled Region: 1/0": frame 1, entry 0; also with a further "/attempt". PyTorch 2.3 to 2.5 write no numbers:
 * -1 for both. */
static bool region_ids(const char *name, int *frame, int *entry) {
    static const char region[] = "Torch-Compiled Region";
    if (!starts(name, region)) return false;
    *frame = *entry = -1;
    return name[sizeof region - 1] == 0 || sscanf(name + sizeof region - 1, ": %d/%d", frame, entry) == 2;
}

/* Does this trace mark the calls of compiled code? PyTorch does since 2.3, which is also the first to write an origin of
 * time; before it a look-up that found code is followed by that code's ops, as one that found none. */
static bool marks_regions(const ep_trace *t) {
    if (t->file_base_ns) return true;
    for (uint32_t i = 0; i < t->strings.count; i++)
        if (starts(ep_trace_text(t, i), "Torch-Compiled Region")) return true;
    return false;
}

/* Spans of the compiler, by any of its parts; the notes it puts beside them ("X_data: ...") are none. */
static bool is_compile_span(const char *name) {
    static const char *const names[] = {"entire_frame_compile", "compile_inner", "backend_compile",
                                        "inductor_compile",     "compile_fx",    "call_user_compiler",
                                        "convert_frame",        "TritonBundler"};
    if (strstr(name, "_data: ")) return false;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strstr(name, names[i])) return true;
    return false;
}

static const char *region_around(const ep_study *s, uint32_t event) {
    for (uint32_t up = s->facts->links->parent[event]; up != EP_NO_INDEX; up = s->facts->links->parent[up])
        if (s->trace->kind[up] == EP_EVENT_REGION && strncmp(ep_study_name(s, up), "## Call", 7) != 0)
            return ep_study_name(s, up);
    return NULL;
}

const char *ep_compile_note(const char *name) {
    const char *id = strstr(name, "compile_id=");
    return id && strstr(name, "_data: ") ? id : NULL;
}

static bool compile_id(const char *name, int *frame, int *entry) {
    const char *id = ep_compile_note(name);
    return id && sscanf(id, "compile_id=%d/%d", frame, entry) == 2;
}

/* A compiled frame: the costs of its calls, and its newest entry. */
typedef struct frame {
    int number;
    size_t row;  /* in study.compiles */
    size_t last; /* its newest entry */
    parts call, lookup, prologue;
    bool any_prologue;
} frame;

/* An entry that a call showed. */
typedef struct entry {
    int frame, number;
    uint32_t dims, types; /* strings: of the first op inside that has sizes, or 0 */
    uint32_t event;       /* its first call */
    const char *detail;   /* of an entry behind another one of its frame, else NULL */
} entry;

/* A span of the compiler that lies in no other one. */
typedef struct compilation {
    uint32_t event;
    int frame, number;  /* -1: not told */
    bool behind;        /* a compiled region ran before it */
    bool used;          /* its entry's first call was found */
    bool again;         /* of an entry that was compiled before: its backward pass */
    const char *detail; /* of the entry that it made */
} compilation;

typedef struct step_span {
    int64_t start, end, step;
} step_span;

typedef struct seen {
    frame *frames;
    entry *entries;
    compilation *compilations;
    step_span *steps;
    size_t frame_count, frame_cap, entry_count, entry_cap, compilation_count, compilation_cap, step_count, step_cap;
    ep_intern frame_names, entry_names, made; /* id - 1 is the place in frames, entries, first_made */
    size_t *first_made;                       /* the first compilation of that name */
    size_t made_count, made_cap;
    parts guards;
    size_t own_row; /* 1 + the row of our own compilations, or 0 */
    uint32_t lane;  /* of the newest compilation, and its end */
    int64_t end;
    double pending; /* a look-up whose region comes next, or NaN */
    uint32_t pending_lane;
    uint32_t fresh_lane; /* of the first call of an entry that the trace saw made, and its end */
    int64_t fresh_end;
    bool ran, marked;
} seen;

static int by_start(const void *a, const void *b) {
    const step_span *x = a, *y = b;
    return x->start < y->start ? -1 : x->start > y->start;
}

static bool find_steps(const ep_study *s, seen *e) {
    const ep_trace *t = s->trace;
    for (size_t r = 0; r < s->facts->region_count; r++) {
        const ep_region_fact *f = &s->facts->regions[r];
        long long n;
        if (sscanf(f->name, "ProfilerStep#%lld", &n) != 1) continue;
        for (uint32_t i = f->first; i < f->first + f->count; i++) {
            uint32_t event = s->facts->instances[i].event;
            if (!ep_grow(&e->steps, &e->step_cap, e->step_count + 1, sizeof *e->steps)) return false;
            e->steps[e->step_count++] = (step_span){t->ts[event], t->ts[event] + t->dur[event], n};
        }
    }
    if (e->step_count) qsort(e->steps, e->step_count, sizeof *e->steps, by_start);
    return true;
}

/* Steps follow one another: the last one that began before. */
static int64_t step_around(const seen *e, int64_t ts) {
    size_t low = 0, high = e->step_count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (e->steps[mid].start <= ts)
            low = mid + 1;
        else
            high = mid;
    }
    return low && ts < e->steps[low - 1].end ? e->steps[low - 1].step : -1;
}

static bool add_recompile(ep_study *s, const seen *e, const char *kind, uint32_t event, const char *name,
                          const char *detail) {
    if (!ep_grow(&s->recompiles, &s->recompile_cap, s->recompile_count + 1, sizeof *s->recompiles)) return false;
    ep_recompile_row *r = &s->recompiles[s->recompile_count++];
    memset(r, 0, sizeof *r);
    r->kind = kind;
    r->name = name;
    r->region = region_around(s, event);
    r->detail = detail;
    r->ts_ns = s->trace->ts[event];
    r->dur_ns = s->trace->dur[event];
    r->step = step_around(e, s->trace->ts[event]);
    return true;
}

/* A small number from 1 on for a pair; one not seen before gets the next. UINT32_MAX: no memory. */
static uint32_t id_of(ep_intern *names, int frame_number, int number) {
    char key[32];
    int n = snprintf(key, sizeof key, "%d/%d", frame_number, number);
    return ep_intern_add(names, key, (size_t)n);
}

/* Is the event at this place inside the newest compilation? */
static bool compiling(const ep_study *s, const seen *e, uint32_t event) {
    return e->compilation_count && s->trace->lane[event] == e->lane && s->trace->ts[event] < e->end;
}

static bool compile_span(ep_study *s, seen *e, uint32_t event) {
    const ep_trace *t = s->trace;
    if (compiling(s, e, event)) return true;
    if (!ep_grow(&e->compilations, &e->compilation_cap, e->compilation_count + 1, sizeof *e->compilations))
        return false;
    e->compilations[e->compilation_count++] = (compilation){event, -1, -1, e->ran, false, false, NULL};
    e->lane = t->lane[event];
    e->end = t->ts[event] + t->dur[event];
    return true;
}

/* The compiler's note of what the newest compilation makes. */
static bool compile_note(seen *e, int frame_number, int number) {
    compilation *newest = &e->compilations[e->compilation_count - 1];
    if (newest->number >= 0) return true;
    uint32_t id = id_of(&e->made, frame_number, number);
    if (id == UINT32_MAX || !ep_grow(&e->first_made, &e->made_cap, id, sizeof *e->first_made)) return false;
    newest->frame = frame_number, newest->number = number;
    newest->again = id <= e->made_count;
    if (!newest->again) e->first_made[e->made_count++] = e->compilation_count - 1;
    return true;
}

static ep_compile_row *compile_row(ep_study *s, const char *name) {
    if (!ep_grow(&s->compiles, &s->compile_cap, s->compile_count + 1, sizeof *s->compiles)) return NULL;
    ep_compile_row *r = &s->compiles[s->compile_count++];
    memset(r, 0, sizeof *r);
    r->name = name;
    r->lookup_us = r->guard_us = r->prologue_us = r->call_us = NAN;
    return r;
}

/* The frame of this number; a new one gets a row. NULL: no memory. */
static frame *frame_of(ep_study *s, seen *e, int number) {
    uint32_t id = id_of(&e->frame_names, number, 0);
    if (id == UINT32_MAX) return NULL;
    if (id <= e->frame_count) return &e->frames[id - 1];
    if (!ep_grow(&e->frames, &e->frame_cap, e->frame_count + 1, sizeof *e->frames)) return NULL;
    const char *name = number < 0 ? "Torch-Compiled Region" : ep_study_printf(s, "Torch-Compiled Region: %d", number);
    if (!compile_row(s, name)) return NULL;
    e->frames[e->frame_count] = (frame){.number = number, .row = s->compile_count - 1, .last = SIZE_MAX};
    return &e->frames[e->frame_count++];
}

/* The first op in the span at order[at] that recorded sizes, or EP_NO_INDEX. */
static uint32_t sized_op_inside(const ep_study *s, size_t at) {
    const ep_trace *t = s->trace;
    const ep_links *l = s->facts->links;
    uint32_t span = l->order[at];
    int64_t end = t->ts[span] + t->dur[span];
    for (size_t k = at + 1; k < l->order_count && t->lane[l->order[k]] == t->lane[span] && t->ts[l->order[k]] < end;
         k++) {
        uint32_t dims = t->infos[t->info[l->order[k]]].input_dims;
        if (dims && strncmp(ep_trace_text(t, dims), "[[]", 3) != 0 && strlen(ep_trace_text(t, dims)) > 4)
            return l->order[k];
    }
    return EP_NO_INDEX;
}

/* What an entry's first call differs in from that of the frame's last one. */
static const char *what_changed(ep_study *s, const entry *before, const entry *now) {
    const ep_trace *t = s->trace;
    bool sizes = before->dims && now->dims && before->dims != now->dims;
    bool types = before->types && now->types && before->types != now->types;
    ep_text text = {0};
    ep_text_printf(&text, "entry %d of frame %d after entry %d", now->number, now->frame, before->number);
    if (types)
        ep_text_printf(&text, ": types %.150s became %.150s", ep_trace_text(t, before->types),
                       ep_trace_text(t, now->types));
    if (sizes)
        ep_text_printf(&text, "%s sizes %.300s became %.300s", types ? "," : ":", ep_trace_text(t, before->dims),
                       ep_trace_text(t, now->dims));
    if (!types && !sizes) ep_text_add(&text, "; the trace does not say which guard failed");
    const char *kept = ep_study_printf(s, "%s", ep_text_str(&text));
    ep_text_free(&text);
    return kept;
}

/* Counts a call of a compiled region; notes an entry not seen before, and what changed if the frame ran before. */
static bool region_call(ep_study *s, seen *e, size_t at, int number, int entry_number) {
    uint32_t event = s->facts->links->order[at];
    double us = (double)s->trace->dur[event] * 1e-3;
    frame *f = frame_of(s, e, number);
    if (!f || !put(&f->call, us) || !put(&f->prologue, 0)) return false;
    bool looked = !isnan(e->pending) && e->pending_lane == s->trace->lane[event];
    if (looked && !put(&f->lookup, e->pending)) return false;
    e->pending = NAN;
    ep_compile_row *r = &s->compiles[f->row];
    r->calls++;
    uint32_t id = id_of(&e->entry_names, number, entry_number);
    if (id == UINT32_MAX) return false;
    if (id <= e->entry_count) {
        f->last = id - 1;
        return true;
    }
    r->entries = number < 0 ? -1 : r->entries + 1; /* -1: not told */
    if (e->compilation_count && e->lane == s->trace->lane[event])
        e->fresh_lane = e->lane, e->fresh_end = s->trace->ts[event] + s->trace->dur[event];
    if (!ep_grow(&e->entries, &e->entry_cap, e->entry_count + 1, sizeof *e->entries)) return false;
    entry now = {.frame = number, .number = entry_number, .event = event};
    uint32_t op = sized_op_inside(s, at);
    if (op != EP_NO_INDEX) {
        const ep_event_info *info = &s->trace->infos[s->trace->info[op]];
        now.dims = info->input_dims, now.types = info->input_types;
    }
    if (f->last != SIZE_MAX) now.detail = what_changed(s, &e->entries[f->last], &now);
    f->last = e->entry_count;
    e->entries[e->entry_count++] = now;
    return true;
}

/* The compilation that made an entry: by its number, or, where the compiler did not note it, the last one before the
 * entry's first call. */
static compilation *made_by(const ep_study *s, seen *e, const entry *x) {
    uint32_t id = id_of(&e->made, x->frame, x->number);
    if (id <= e->made_count) return &e->compilations[e->first_made[id - 1]];
    compilation *last = NULL;
    for (size_t i = 0; i < e->compilation_count; i++) {
        compilation *c = &e->compilations[i];
        if (c->number < 0 && !c->used && s->trace->ts[c->event] <= s->trace->ts[x->event]) last = c;
    }
    return last;
}

/* Number N of a frame is a recompile if N > 0; a compilation without a number if something compiled ran before it. The
 * compilation of the backward pass has its forward's number and is none of its own. */
static bool is_recompile(const compilation *c) {
    return c->number < 0 ? c->behind : c->number > 0 && !c->again;
}

static int by_time(const void *a, const void *b) {
    const ep_recompile_row *x = a, *y = b;
    return x->ts_ns < y->ts_ns ? -1 : x->ts_ns > y->ts_ns;
}

static bool judge(ep_study *s, seen *e) {
    for (size_t i = 0; i < e->entry_count; i++) {
        entry *x = &e->entries[i];
        compilation *c = made_by(s, e, x);
        if (c) {
            c->used = true;
            if (x->detail) c->detail = x->detail;
        }
        if (x->detail && (!c || (c->number < 0 && !c->behind)) &&
            !add_recompile(s, e, "new entry", x->event, ep_study_name(s, x->event), x->detail))
            return false;
    }
    for (size_t i = 0; i < e->compilation_count; i++) {
        const compilation *c = &e->compilations[i];
        s->compilations++;
        s->compilation_ns += s->trace->dur[c->event];
        if (!is_recompile(c)) continue;
        const char *name = ep_study_name(s, c->event), *detail = c->detail;
        if (c->number >= 0) {
            name = ep_study_printf(s, "Torch-Compiled Region: %d/%d", c->frame, c->number);
            if (!detail)
                detail = ep_study_printf(s, "entry %d of frame %d%s", c->number, c->frame,
                                         c->used ? "" : "; no call of it is in the trace");
        }
        if (!add_recompile(s, e, "compile", c->event, name, detail)) return false;
    }
    if (s->recompile_count) qsort(s->recompiles, s->recompile_count, sizeof *s->recompiles, by_time);
    return true;
}

static void sum_costs(ep_study *s, seen *e) {
    double guards = median(&e->guards);
    for (size_t i = 0; i < s->compile_count; i++) s->compiles[i].guard_us = guards;
    for (size_t i = 0; i < e->frame_count; i++) {
        frame *f = &e->frames[i];
        ep_compile_row *r = &s->compiles[f->row];
        r->call_us = median(&f->call);
        r->lookup_us = median(&f->lookup);
        if (f->any_prologue) r->prologue_us = median(&f->prologue);
    }
}

static void free_seen(seen *e) {
    for (size_t i = 0; i < e->frame_count; i++)
        free(e->frames[i].call.values), free(e->frames[i].lookup.values), free(e->frames[i].prologue.values);
    free(e->frames);
    free(e->entries);
    free(e->compilations);
    free(e->steps);
    free(e->first_made);
    ep_intern_free(&e->frame_names);
    ep_intern_free(&e->entry_names);
    ep_intern_free(&e->made);
    free(e->guards.values);
}

/* Does the name say anything about compiling? */
static bool tells(const char *name) {
    int number, entry_number;
    return region_ids(name, &number, &entry_number) || starts(name, "TorchDynamo Cache Lookup") ||
           strstr(name, "Runtime Wrapper Prologue") || starts(name, "Pregraph bytecode") || is_compile_span(name) ||
           compile_id(name, &number, &entry_number);
}

/* The look-up at order[at] found code, or something is compiled: the next event on its thread says so. */
static bool found_code(const ep_study *s, size_t at) {
    const ep_trace *t = s->trace;
    const ep_links *l = s->facts->links;
    uint32_t lookup = l->order[at];
    int64_t end = t->ts[lookup] + t->dur[lookup];
    for (size_t k = at + 1; k < l->order_count && t->lane[l->order[k]] == t->lane[lookup]; k++) {
        if (t->ts[l->order[k]] < end) continue;
        const char *name = ep_study_name(s, l->order[k]);
        return tells(name) || strstr(name, "dynamo") != NULL;
    }
    return true; /* the trace ends here: who knows */
}

static bool lookup_event(ep_study *s, size_t at, seen *e) {
    uint32_t i = s->facts->links->order[at];
    /* What new code calls the first time to set itself up is looked up too, and is no code of the model. */
    bool setting_up = s->trace->lane[i] == e->fresh_lane && s->trace->ts[i] < e->fresh_end;
    if (!setting_up) s->lookups++;
    if (e->marked && !setting_up && !found_code(s, at)) {
        s->lookups_without_code++;
        if (s->lookups_without_code == 1) s->first_without_code_ns = s->trace->ts[i];
    }
    e->pending = (double)s->trace->dur[i] * 1e-3;
    e->pending_lane = s->trace->lane[i];
    return true;
}

/* What a compiled region does before its code runs: it counts for the innermost region around. */
static bool prologue_event(ep_study *s, seen *e, uint32_t event) {
    int number, entry_number;
    for (uint32_t up = s->facts->links->parent[event]; up != EP_NO_INDEX; up = s->facts->links->parent[up]) {
        if (!region_ids(ep_study_name(s, up), &number, &entry_number)) continue;
        frame *f = frame_of(s, e, number);
        if (!f) return false;
        if (f->prologue.count) f->prologue.values[f->prologue.count - 1] += (double)s->trace->dur[event] * 1e-3;
        f->any_prologue = true;
        return true;
    }
    return true;
}

static bool host_event(ep_study *s, size_t at, seen *e) {
    uint32_t i = s->facts->links->order[at];
    const char *name = ep_study_name(s, i);
    int number, entry_number;
    if (region_ids(name, &number, &entry_number)) {
        e->ran = true;
        return region_call(s, e, at, number, entry_number);
    }
    if (starts(name, "TorchDynamo Cache Lookup")) return lookup_event(s, at, e);
    if (strstr(name, "Runtime Wrapper Prologue") || starts(name, "Pregraph bytecode")) return prologue_event(s, e, i);
    if (is_compile_span(name)) return compile_span(s, e, i);
    if (compile_id(name, &number, &entry_number) && compiling(s, e, i)) return compile_note(e, number, entry_number);
    return true;
}

/* Ours: a COMPILE span after the first is a recompile; its detail holds the guard and the shapes. */
static bool our_event(ep_study *s, uint32_t i, seen *e) {
    const ep_event_info *info = &s->trace->infos[s->trace->info[i]];
    const char *name = ep_study_name(s, i), *detail = info->detail ? ep_trace_text(s->trace, info->detail) : NULL;
    if (strstr(name, "guard")) return put(&e->guards, (double)s->trace->dur[i] * 1e-3);
    if (!strstr(name, "compile")) return true;
    bool first = e->own_row == 0;
    if (first && !compile_row(s, "compile")) return false;
    if (first) e->own_row = s->compile_count;
    s->compiles[e->own_row - 1].entries++;
    return first || add_recompile(s, e, "compile", i, name, detail);
}

ep_status ep_analyze_recompile(ep_study *s, ep_error *err) {
    (void)err;
    const ep_trace *t = s->trace;
    const ep_links *l = s->facts->links;
    seen e = {.pending = NAN, .marked = marks_regions(t)};
    uint8_t *asked = calloc(t->strings.count + 1, 1); /* by string: 0 not looked at, 1 tells nothing, 2 tells */
    if (!asked) return EP_ERROR_OUT_OF_MEMORY;
    bool ok = find_steps(s, &e);
    for (size_t k = 0; ok && k < l->order_count; k++) { /* in time order on each lane */
        uint32_t i = l->order[k];
        if (t->kind[i] == EP_EVENT_OP || t->kind[i] == EP_EVENT_REGION || t->kind[i] == EP_EVENT_OTHER_SPAN) {
            uint8_t *name = &asked[t->name[i]];
            if (*name == 0) *name = tells(ep_study_name(s, i)) ? 2 : 1;
            if (*name == 2) ok = host_event(s, k, &e);
        } else if (t->kind[i] == EP_EVENT_COMPILE) {
            ok = our_event(s, i, &e);
        }
    }
    free(asked);
    ok = ok && judge(s, &e);
    s->recompiles_unknown = !e.marked && s->compilations > 1;
    if (ok) sum_costs(s, &e);
    free_seen(&e);
    return ok ? EP_OK : EP_ERROR_OUT_OF_MEMORY;
}
