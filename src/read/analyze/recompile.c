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

/* "Torch-Compiled Region: 1/0": frame 1, entry 0; also with a further "/attempt". */
static bool region_ids(const char *name, int *frame, int *entry) {
    return sscanf(name, "Torch-Compiled Region: %d/%d", frame, entry) == 2;
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

static int64_t step_around(const ep_study *s, uint32_t event) {
    const ep_trace *t = s->trace;
    for (size_t r = 0; r < s->facts->region_count; r++) {
        const ep_region_fact *f = &s->facts->regions[r];
        int64_t step;
        long long n;
        if (sscanf(f->name, "ProfilerStep#%lld", &n) != 1) continue;
        step = n;
        for (uint32_t i = f->first; i < f->first + f->count; i++) {
            uint32_t e = s->facts->instances[i].event;
            if (t->ts[event] >= t->ts[e] && t->ts[event] < t->ts[e] + t->dur[e]) return step;
        }
    }
    return -1;
}

/* "backend_compile_data: fn_name=..., compile_id=0/1": what the compiler notes inside its spans. */
static bool compile_id(const char *name, int *frame, int *entry) {
    const char *id = strstr(name, "compile_id=");
    return id && strstr(name, "_data: ") && sscanf(id, "compile_id=%d/%d", frame, entry) == 2;
}

static bool add_recompile(ep_study *s, const char *kind, uint32_t event, const char *name, const char *detail) {
    if (!ep_grow(&s->recompiles, &s->recompile_cap, s->recompile_count + 1, sizeof *s->recompiles)) return false;
    ep_recompile_row *r = &s->recompiles[s->recompile_count++];
    memset(r, 0, sizeof *r);
    r->kind = kind;
    r->name = name;
    r->region = region_around(s, event);
    r->detail = detail;
    r->ts_ns = s->trace->ts[event];
    r->dur_ns = s->trace->dur[event];
    r->step = step_around(s, event);
    return true;
}

/* An entry that a call showed. */
typedef struct entry {
    int frame, number;
    uint32_t dims;      /* string: sizes of the first op inside that has any, or 0 */
    uint32_t event;     /* its first call */
    const char *detail; /* of an entry behind another one of its frame, else NULL */
    int64_t made;       /* the compilation that made it, or -1 */
} entry;

/* A span of the compiler that lies in no other one. */
typedef struct compilation {
    uint32_t event;
    int frame, number; /* -1: not told */
    bool behind;       /* a compiled region ran before it */
    bool used;         /* its entry's first call was found */
} compilation;

typedef struct seen {
    entry *list;
    size_t count, cap;
    compilation *compilations;
    size_t compilation_count, compilation_cap;
    uint32_t lane; /* of the newest compilation, and its end */
    int64_t end;
    bool ran;
} seen;

/* Is the event at this place inside the newest compilation? */
static bool compiling(const ep_study *s, const seen *e, uint32_t event) {
    return e->compilation_count && s->trace->lane[event] == e->lane && s->trace->ts[event] < e->end;
}

static bool compile_span(ep_study *s, seen *e, uint32_t event) {
    const ep_trace *t = s->trace;
    if (compiling(s, e, event)) return true;
    if (!ep_grow(&e->compilations, &e->compilation_cap, e->compilation_count + 1, sizeof *e->compilations))
        return false;
    e->compilations[e->compilation_count++] = (compilation){event, -1, -1, e->ran, false};
    e->lane = t->lane[event];
    e->end = t->ts[event] + t->dur[event];
    return true;
}

static ep_compile_row *compile_row(ep_study *s, const char *name) {
    for (size_t i = 0; i < s->compile_count; i++)
        if (strcmp(s->compiles[i].name, name) == 0) return &s->compiles[i];
    if (!ep_grow(&s->compiles, &s->compile_cap, s->compile_count + 1, sizeof *s->compiles)) return NULL;
    ep_compile_row *r = &s->compiles[s->compile_count++];
    memset(r, 0, sizeof *r);
    r->name = name;
    r->lookup_us = r->guard_us = r->prologue_us = r->call_us = NAN;
    return r;
}

/* Sizes of the first op in the span at order[at] that recorded any. */
static uint32_t sizes_inside(const ep_study *s, size_t at) {
    const ep_trace *t = s->trace;
    const ep_links *l = s->facts->links;
    uint32_t span = l->order[at];
    int64_t end = t->ts[span] + t->dur[span];
    for (size_t k = at + 1; k < l->order_count && t->lane[l->order[k]] == t->lane[span] && t->ts[l->order[k]] < end;
         k++) {
        uint32_t dims = t->infos[t->info[l->order[k]]].input_dims;
        if (dims && strncmp(ep_trace_text(t, dims), "[[]", 3) != 0 && strlen(ep_trace_text(t, dims)) > 4) return dims;
    }
    return 0;
}

/* Counts a call of a compiled region; notes an entry not seen before, and what changed if the frame ran before. */
static bool region_call(ep_study *s, seen *entries, size_t at, int frame, int number) {
    bool known = false, frame_known = false;
    uint32_t dims = 0;
    int last = -1;
    for (size_t i = 0; i < entries->count; i++) {
        if (entries->list[i].frame != frame) continue;
        frame_known = true;
        last = entries->list[i].number;
        dims = entries->list[i].dims;
        known = known || entries->list[i].number == number;
    }
    const char *name = ep_study_printf(s, "Torch-Compiled Region: %d", frame);
    ep_compile_row *r = compile_row(s, name);
    if (!r) return false;
    r->calls++;
    if (known) return true;
    r->entries++;
    if (!ep_grow(&entries->list, &entries->cap, entries->count + 1, sizeof *entries->list)) return false;
    uint32_t now = sizes_inside(s, at);
    const char *detail = NULL;
    if (frame_known && now && dims && now != dims)
        detail = ep_study_printf(s, "entry %d of frame %d after entry %d: sizes %.300s became %.300s", number, frame,
                                 last, ep_trace_text(s->trace, dims), ep_trace_text(s->trace, now));
    else if (frame_known)
        detail = ep_study_printf(s, "entry %d of frame %d after entry %d; the trace does not say which guard failed",
                                 number, frame, last);
    entries->list[entries->count++] = (entry){frame, number, now, s->facts->links->order[at], detail, -1};
    return true;
}

/* The compilation that made an entry: by its number, or, where the compiler did not note it, the last one before the
 * entry's first call. */
static compilation *made_by(const ep_study *s, seen *e, const entry *x) {
    compilation *last = NULL;
    for (size_t i = 0; i < e->compilation_count; i++) {
        compilation *c = &e->compilations[i];
        if (c->number >= 0 ? c->frame == x->frame && c->number == x->number
                           : !c->used && s->trace->ts[c->event] <= s->trace->ts[x->event])
            last = c;
        if (last && last->number >= 0) break;
    }
    return last;
}

/* Number N of a frame is a recompile if N > 0; a compilation without a number if something compiled ran before it. The
 * compilation of the backward pass has its forward's number and is none of its own. */
static bool is_recompile(const seen *e, size_t at) {
    const compilation *c = &e->compilations[at];
    if (c->number < 0) return c->behind;
    for (size_t i = 0; i < at; i++)
        if (e->compilations[i].frame == c->frame && e->compilations[i].number == c->number) return false;
    return c->number > 0;
}

static int by_time(const void *a, const void *b) {
    const ep_recompile_row *x = a, *y = b;
    return x->ts_ns < y->ts_ns ? -1 : x->ts_ns > y->ts_ns;
}

static bool judge(ep_study *s, seen *e) {
    for (size_t i = 0; i < e->count; i++) {
        entry *x = &e->list[i];
        compilation *c = made_by(s, e, x);
        if (c) c->used = true, x->made = c - e->compilations;
        if (x->detail && (!c || (c->number < 0 && !c->behind)) &&
            !add_recompile(s, "new entry", x->event, ep_study_name(s, x->event), x->detail))
            return false;
    }
    for (size_t i = 0; i < e->compilation_count; i++) {
        const compilation *c = &e->compilations[i];
        if (!is_recompile(e, i)) continue;
        const char *name = ep_study_name(s, c->event), *detail = NULL;
        if (c->number >= 0) {
            name = ep_study_printf(s, "Torch-Compiled Region: %d/%d", c->frame, c->number);
            detail = ep_study_printf(s, "entry %d of frame %d", c->number, c->frame);
        }
        for (size_t k = 0; k < e->count; k++)
            if (e->list[k].detail && e->list[k].made == (int64_t)i) detail = e->list[k].detail;
        if (!add_recompile(s, "compile", c->event, name, detail)) return false;
    }
    if (s->recompile_count) qsort(s->recompiles, s->recompile_count, sizeof *s->recompiles, by_time);
    return true;
}

typedef struct costs {
    parts lookup, prologue, guards, call;
} costs;

/* Does the name say anything about compiling? */
static bool tells(const char *name) {
    int frame, number;
    return region_ids(name, &frame, &number) || starts(name, "TorchDynamo Cache Lookup") ||
           strstr(name, "Runtime Wrapper Prologue") || starts(name, "Pregraph bytecode") || is_compile_span(name) ||
           compile_id(name, &frame, &number);
}

static bool host_event(ep_study *s, size_t at, seen *entries, costs *c) {
    uint32_t i = s->facts->links->order[at];
    const char *name = ep_study_name(s, i);
    double us = (double)s->trace->dur[i] * 1e-3;
    int frame, number;
    if (region_ids(name, &frame, &number)) {
        entries->ran = true;
        return put(&c->call, us) && region_call(s, entries, at, frame, number);
    }
    if (starts(name, "TorchDynamo Cache Lookup")) return put(&c->lookup, us);
    if (strstr(name, "Runtime Wrapper Prologue") || starts(name, "Pregraph bytecode")) return put(&c->prologue, us);
    if (is_compile_span(name)) return compile_span(s, entries, i);
    if (compile_id(name, &frame, &number) && compiling(s, entries, i)) {
        compilation *newest = &entries->compilations[entries->compilation_count - 1];
        if (newest->number < 0) newest->frame = frame, newest->number = number;
    }
    return true;
}

/* Ours: a COMPILE span after the first is a recompile; its detail holds the guard and the shapes. */
static bool our_event(ep_study *s, uint32_t i, costs *c, int64_t *compiles) {
    const ep_event_info *info = &s->trace->infos[s->trace->info[i]];
    const char *name = ep_study_name(s, i), *detail = info->detail ? ep_trace_text(s->trace, info->detail) : NULL;
    if (strstr(name, "guard")) return put(&c->guards, (double)s->trace->dur[i] * 1e-3);
    if (!strstr(name, "compile")) return true;
    ep_compile_row *r = compile_row(s, "compile");
    if (!r) return false;
    r->entries++;
    return (*compiles)++ == 0 || add_recompile(s, "compile", i, name, detail);
}

ep_status ep_analyze_recompile(ep_study *s, ep_error *err) {
    (void)err;
    const ep_trace *t = s->trace;
    const ep_links *l = s->facts->links;
    seen entries = {0};
    costs c = {0};
    bool ok = true;
    int64_t compiles = 0;
    uint8_t *asked = calloc(t->strings.count + 1, 1); /* by string: 0 not looked at, 1 tells nothing, 2 tells */
    if (!asked) return EP_ERROR_OUT_OF_MEMORY;
    for (size_t k = 0; ok && k < l->order_count; k++) { /* in time order on each lane */
        uint32_t i = l->order[k];
        if (t->kind[i] == EP_EVENT_OP || t->kind[i] == EP_EVENT_REGION || t->kind[i] == EP_EVENT_OTHER_SPAN) {
            uint8_t *name = &asked[t->name[i]];
            if (*name == 0) *name = tells(ep_study_name(s, i)) ? 2 : 1;
            if (*name == 2) ok = host_event(s, k, &entries, &c);
        } else if (t->kind[i] == EP_EVENT_COMPILE) {
            ok = our_event(s, i, &c, &compiles);
        }
    }
    free(asked);
    ok = ok && judge(s, &entries);
    double lookup = median(&c.lookup), prologue = median(&c.prologue), call = median(&c.call),
           guards = median(&c.guards);
    for (size_t i = 0; i < s->compile_count; i++) {
        ep_compile_row *r = &s->compiles[i];
        r->lookup_us = lookup, r->prologue_us = prologue, r->call_us = call, r->guard_us = guards;
    }
    free(entries.list);
    free(entries.compilations);
    free(c.lookup.values), free(c.prologue.values), free(c.call.values), free(c.guards.values);
    return ok ? EP_OK : EP_ERROR_OUT_OF_MEMORY;
}
