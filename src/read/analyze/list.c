/* Ops in time order at one level of nesting: the dispatch of a trace as text, without the redispatch inside each op. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json_write.h"
#include "base/sort.h"
#include "facts.h"
#include "format.h"
#include "result.h"

/* An instance of a region asked for. By start within a pid; `end` and `event` are of the one that ends last up to here,
 * `other_end` is the end of the one that ends last apart from it. */
typedef struct region_span {
    uint32_t pid, event;
    int64_t start, end, other_end;
} region_span;

typedef struct lister {
    const ep_trace *t;
    ep_facts *f;
    const ep_list_options *o;
    uint32_t *place;  /* by row: where it stands in links->order */
    uint32_t *around; /* by row: the op around it, or EP_NO_INDEX */
    uint32_t *up;     /* by row: of the ops asked for the one around it */
    uint16_t *depth;  /* ops around the row */
    uint8_t *outer;   /* there are ops in it */
    uint32_t *rows;   /* what is listed, in time order */
    size_t count, cap;
    region_span *spans; /* with a region: where it runs */
    size_t span_count, span_cap;
    ep_text text;
    ep_json_out json;
    uint32_t threads[16]; /* lanes in the order they come up */
    int thread_count;
} lister;

static const char *name_of(const lister *l, uint32_t row) {
    return ep_trace_text(l->t, l->t->name[row]);
}

static int64_t end_of(const ep_trace *t, uint32_t row) {
    return t->ts[row] + t->dur[row];
}

static bool by_time(const void *user, uint32_t a, uint32_t b) {
    const lister *l = user;
    if (l->t->ts[a] != l->t->ts[b]) return l->t->ts[a] < l->t->ts[b];
    return l->place[a] < l->place[b];
}

static int by_pid_and_start(const void *a, const void *b) {
    const region_span *x = a, *y = b;
    if (x->pid != y->pid) return x->pid < y->pid ? -1 : 1;
    if (x->start != y->start) return x->start < y->start ? -1 : 1;
    return (x->event > y->event) - (x->event < y->event);
}

static ep_status no_region(const lister *l, ep_error *err) {
    char names[200] = "";
    size_t n = 0;
    for (size_t r = 0; r < l->f->region_count && r < 8; r++) {
        const char *name = l->f->regions[r].name;
        if (n + strlen(name) + 3 > sizeof names) break;
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "", name);
    }
    return ep_fail(err, EP_ERROR_NOT_FOUND, "no region is named '%s'%s%s", l->o->region,
                   n ? "; there are " : " and the trace has no regions at all", names);
}

static ep_status find_spans(lister *l, ep_error *err) {
    const ep_trace *t = l->t;
    for (size_t r = 0; r < l->f->region_count; r++) {
        const ep_region_fact *region = &l->f->regions[r];
        if (!ep_glob(l->o->region, region->name)) continue;
        for (uint32_t i = region->first; i < region->first + region->count; i++) {
            uint32_t event = l->f->instances[i].event;
            if (!ep_grow(&l->spans, &l->span_cap, l->span_count + 1, sizeof *l->spans))
                return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory for %u instances of a region", region->count);
            l->spans[l->span_count++] = (region_span){t->lanes[t->lane[event]].pid, event, t->ts[event],
                                                      t->ts[event] + t->dur[event], INT64_MIN};
        }
    }
    if (!l->span_count) return no_region(l, err);
    qsort(l->spans, l->span_count, sizeof *l->spans, by_pid_and_start);
    for (size_t i = 1; i < l->span_count; i++) {
        region_span *s = &l->spans[i], *before = s - 1;
        if (before->pid != s->pid) continue;
        if (before->end > s->end) {
            s->other_end = before->other_end > s->end ? before->other_end : s->end;
            s->end = before->end;
            s->event = before->event;
        } else {
            s->other_end = before->end;
        }
    }
    return EP_OK;
}

/* Starts the row in a region asked for? In files of 2021 a region is an op, and not in itself. */
static bool in_region(const lister *l, uint32_t row) {
    uint32_t pid = l->t->lanes[l->t->lane[row]].pid;
    int64_t ts = l->t->ts[row];
    if (!l->o->region) return true;
    size_t low = 0, high = l->span_count;
    while (low < high) { /* the first span behind (pid, ts) */
        size_t mid = low + (high - low) / 2;
        const region_span *s = &l->spans[mid];
        if (s->pid < pid || (s->pid == pid && s->start <= ts))
            low = mid + 1;
        else
            high = mid;
    }
    const region_span *s = low ? &l->spans[low - 1] : NULL;
    return s && s->pid == pid && ts < (s->event == row ? s->other_end : s->end);
}

/* Parents stand before their children in links->order, so one walk gives every depth: how many ops of those that are asked
 * for hold the row. */
static void find_depths(lister *l) {
    const ep_links *links = l->f->links;
    for (size_t k = 0; k < links->order_count; k++) {
        uint32_t row = links->order[k], up = ep_facts_op_around(links, l->around, row);
        l->place[row] = (uint32_t)k;
        l->around[row] = up;
        if (up != EP_NO_INDEX && !in_region(l, up)) up = l->up[up];
        while (up != EP_NO_INDEX && end_of(l->t, up) <= l->t->ts[row] - (l->t->dur[row] == 0)) up = l->up[up];
        l->up[row] = up;
        if (up == EP_NO_INDEX) continue;
        l->depth[row] = (uint16_t)(l->depth[up] + (l->depth[up] < UINT16_MAX));
        if (l->t->kind[row] == EP_EVENT_OP && in_region(l, row)) l->outer[up] = 1;
    }
}

/* The ops of the level, and those above it that hold no op: together they cover everything once. */
static bool choose(lister *l) {
    for (size_t k = 0; k < l->f->links->order_count; k++) {
        uint32_t row = l->f->links->order[k];
        if (l->t->kind[row] != EP_EVENT_OP || l->depth[row] > l->o->level) continue;
        if ((l->depth[row] < l->o->level && l->outer[row]) || !in_region(l, row)) continue;
        if (!ep_grow(&l->rows, &l->cap, l->count + 1, sizeof *l->rows)) return false;
        l->rows[l->count++] = row;
    }
    return ep_sort_rows(l->rows, l->count, by_time, l);
}

static int thread_of(lister *l, uint32_t row) {
    int i = 0;
    while (i < l->thread_count && l->threads[i] != l->t->lane[row]) i++;
    if (i < l->thread_count || i == 16) return i;
    l->threads[l->thread_count++] = l->t->lane[row];
    return i;
}

/* Calls `each` for the device work launched on the op's thread while it ran, in the order of the launches. A call that
 * starts with the op may stand before it in the order, if it lasts longer. */
static void each_work(lister *l, uint32_t op, void (*each)(lister *l, uint32_t work, int64_t *sum), int64_t *sum) {
    const ep_trace *t = l->t;
    const ep_links *links = l->f->links;
    int64_t end = t->ts[op] + t->dur[op];
    size_t k = l->place[op];
    while (k > 0 && t->lane[links->order[k - 1]] == t->lane[op] && t->ts[links->order[k - 1]] == t->ts[op]) k--;
    for (; k < links->order_count; k++) {
        uint32_t call = links->order[k];
        if (t->lane[call] != t->lane[op] || t->ts[call] >= end) return;
        for (uint32_t w = 0, n = ep_links_work_count(links, call); w < n; w++)
            each(l, links->work_list[links->first_work[call] + w], sum);
    }
}

static void add_device_time(lister *l, uint32_t work, int64_t *sum) {
    *sum += l->t->dur[work];
}

/* A name that fits into `room` columns; the middle goes, for names differ at their ends. */
static void add_name(lister *l, const char *name, size_t room) {
    char text[1024];
    ep_text_printf(&l->text, "%s\n", ep_cut(name, room, text, sizeof text));
}

/* What the line that began at `begin` leaves for a name: long times take from it. */
static size_t room_of(const lister *l, size_t begin) {
    size_t width = l->o->width >= 60 ? (size_t)l->o->width : 80, used = l->text.len - begin;
    return width > used + 16 ? width - used : 16;
}

static void write_work(lister *l, uint32_t work, int64_t *sum) {
    (void)sum;
    const ep_trace *t = l->t;
    const ep_lane *lane = &t->lanes[t->lane[work]];
    size_t begin = l->text.len;
    ep_text_printf(&l->text, "%12.3f %10s %7s %10.3f    ", (double)(t->ts[work] - l->f->span_start_ns) / 1e3, "", "",
                   (double)t->dur[work] / 1e3);
    add_name(l, name_of(l, work), room_of(l, begin));
    ep_json_object(&l->json);
    ep_json_put_str(&l->json, "name", name_of(l, work));
    ep_json_put_us(&l->json, "start_us", t->ts[work] - l->f->span_start_ns);
    ep_json_put_us(&l->json, "us", t->dur[work]);
    ep_json_put_int(&l->json, "device", lane->device);
    ep_json_put_int(&l->json, "stream", lane->stream);
    ep_json_end(&l->json);
}

static void write_op(lister *l, uint32_t row) {
    const ep_trace *t = l->t;
    int64_t device = 0;
    each_work(l, row, add_device_time, &device);
    int64_t start = t->ts[row] - l->f->span_start_ns;
    bool known = l->f->health.device_recorded;
    size_t begin = l->text.len;
    ep_text_printf(&l->text, "%12.3f %10.3f ", (double)start / 1e3, (double)t->dur[row] / 1e3);
    if (known)
        ep_text_printf(&l->text, "%7u %10.3f  ", l->f->op_kernels[row], (double)device / 1e3);
    else
        ep_text_printf(&l->text, "%7s %10s  ", "-", "-");
    add_name(l, name_of(l, row), room_of(l, begin));
    const ep_lane *lane = &t->lanes[t->lane[row]];
    ep_json_out *j = &l->json;
    ep_json_object(j);
    ep_json_put_str(j, "name", name_of(l, row));
    ep_json_put_us(j, "start_us", start);
    ep_json_put_us(j, "us", t->dur[row]);
    ep_json_put_int(j, "level", l->depth[row]);
    ep_json_put_str(j, "pid", ep_trace_text(t, lane->pid));
    ep_json_put_str(j, "tid", ep_trace_text(t, lane->tid));
    ep_json_key(j, "kernels");
    known ? ep_json_int(j, l->f->op_kernels[row]) : ep_json_null(j);
    ep_json_key(j, "device_us");
    known ? ep_json_us(j, device) : ep_json_null(j);
    if (l->o->kernels) {
        ep_json_put_array(j, "work");
        each_work(l, row, write_work, NULL);
        ep_json_end(j);
    }
    ep_json_end(j);
}

static void write_thread(lister *l, uint32_t row) {
    const ep_lane *lane = &l->t->lanes[l->t->lane[row]];
    const char *name = ep_trace_text(l->t, lane->name);
    ep_text_printf(&l->text, "thread %s", ep_trace_text(l->t, lane->tid));
    if (*name) ep_text_printf(&l->text, " (%.40s)", name);
    ep_text_char(&l->text, '\n');
}

static void write_all(lister *l) {
    ep_json_out *j = &l->json;
    ep_json_object(j);
    ep_json_put_str(j, "file", ep_trace_text(l->t, l->t->file_name));
    ep_json_put_int(j, "level", l->o->level);
    ep_json_put_str(j, "region", l->o->region);
    ep_json_put_array(j, "ops");
    for (size_t k = 0; k < l->count; k++) thread_of(l, l->rows[k]);
    ep_text_printf(&l->text, "%12s %10s %7s %10s  %s\n", "start us", "host us", "kernels", "device us", "op");
    uint32_t lane = EP_NO_INDEX;
    for (size_t k = 0; k < l->count; k++) {
        /* In time order over all threads: a line says where the thread changes. */
        if (l->thread_count > 1 && l->t->lane[l->rows[k]] != lane) write_thread(l, l->rows[k]);
        lane = l->t->lane[l->rows[k]];
        write_op(l, l->rows[k]);
    }
    ep_json_end(j);
    ep_json_end(j);
    if (!l->count)
        ep_text_printf(&l->text, "no op %s\n", l->o->region ? "starts in such a region" : "is in this trace");
    if (!l->f->health.device_recorded) ep_text_add(&l->text, "no device work was recorded: kernels are not known\n");
    if (!l->t->complete) ep_text_add(&l->text, "the file is cut off: the list is partial\n");
}

ep_status ep_list(const ep_trace *trace, const ep_list_options *options, ep_error *err, ep_report **out) {
    static const ep_list_options plain = {0};
    if (!trace || !out) return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "trace and result must not be NULL");
    lister l = {.t = trace, .o = options ? options : &plain};
    if (l.o->level < 0) return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "a level is 0 or more, not %d", l.o->level);
    EP_TRY(ep_facts_create(trace, err, &l.f));
    ep_status found = l.o->region ? find_spans(&l, err) : EP_OK;
    if (found != EP_OK) {
        free(l.spans);
        ep_facts_destroy(l.f);
        return found;
    }
    l.place = calloc(trace->count + 1, sizeof *l.place);
    l.around = calloc(trace->count + 1, sizeof *l.around);
    l.up = calloc(trace->count + 1, sizeof *l.up);
    l.depth = calloc(trace->count + 1, sizeof *l.depth);
    l.outer = calloc(trace->count + 1, 1);
    ep_report *report = calloc(1, sizeof *report);
    bool ok = l.place && l.around && l.up && l.depth && l.outer && report;
    if (ok) {
        find_depths(&l);
        ok = choose(&l);
    }
    if (ok) {
        write_all(&l);
        report->text = ep_text_take(&l.text);
        report->json = ep_json_take(&l.json);
        ok = report->text && report->json;
    }
    ep_text_free(&l.text);
    ep_json_free(&l.json);
    ep_facts_destroy(l.f);
    free(l.place);
    free(l.around);
    free(l.up);
    free(l.depth);
    free(l.outer);
    free(l.rows);
    free(l.spans);
    if (!ok) {
        ep_report_destroy(report);
        return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory for a list of %zu events", trace->count);
    }
    *out = report;
    return EP_OK;
}
