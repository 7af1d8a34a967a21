/* The timeline's data: spans laid out in tracks where none overlaps another, as columns the page can use as they are. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "report.h"

enum { MOST_ROWS = 64 };

/* A lane of the page: a lane of the trace, or the Python calls of one, which would bury the rest. */
typedef struct page_lane {
    uint32_t lane;
    bool python, device;
    uint32_t rows;              /* used */
    uint32_t count[MOST_ROWS];  /* events by row */
    int64_t busy_to[MOST_ROWS]; /* while rows are given out */
    uint32_t first[MOST_ROWS];  /* page index of the row's first event */
} page_lane;

typedef struct page {
    const ep_facts *f;
    int64_t shortest; /* spans below are left out */
    page_lane *lanes; /* 2 a trace lane: without and with Python */
    size_t lane_count;
    uint32_t *order; /* indices into lanes, as shown */
    size_t shown;
    uint8_t *row_of;   /* by trace row: its row in its lane, 255: left out */
    uint32_t *page_of; /* by trace row */
    uint32_t *event;   /* by page index: the trace row */
    uint32_t n;
    size_t total;
} page;

static bool wanted(const ep_trace *t, uint32_t row) {
    uint8_t kind = t->kind[row];
    return kind <= EP_EVENT_OTHER_SPAN && kind != EP_EVENT_PROFILER;
}

/* The duration from which on at most `most` spans are left: by powers of two, then all or nothing of a power. */
static int64_t shortest_kept(const ep_facts *f, size_t most, size_t *total) {
    const ep_trace *t = f->trace;
    size_t by_power[65] = {0}, kept = 0;
    *total = 0;
    for (size_t i = 0; i < f->links->order_count; i++) {
        uint32_t row = f->links->order[i];
        if (!wanted(t, row)) continue;
        int power = 0;
        for (int64_t d = t->dur[row]; d > 0; d >>= 1) power++;
        by_power[power]++;
        (*total)++;
    }
    for (int power = 64; power >= 0; power--) {
        kept += by_power[power];
        if (kept > most) return power >= 63 ? INT64_MAX : (int64_t)1 << power;
    }
    return 0;
}

static page_lane *lane_for(page *p, uint32_t row) {
    const ep_trace *t = p->f->trace;
    bool python = t->kind[row] == EP_EVENT_PYTHON;
    page_lane *l = &p->lanes[(size_t)t->lane[row] * 2 + python];
    l->lane = t->lane[row];
    l->python = python;
    if (ep_event_is_device_work(t->kind[row])) l->device = true;
    return l;
}

/* The lowest row that is free: children fall below their parents, and what overlaps gets a row of its own. */
static void give_row(page *p, uint32_t row) {
    const ep_trace *t = p->f->trace;
    page_lane *l = lane_for(p, row);
    uint32_t r = 0;
    while (r < l->rows && l->busy_to[r] > t->ts[row]) r++;
    if (r == MOST_ROWS) return;
    if (r == l->rows) l->rows++;
    l->busy_to[r] = t->ts[row] + t->dur[row];
    l->count[r]++;
    p->row_of[row] = (uint8_t)r;
    p->n++;
}

typedef struct lane_key {
    uint32_t at;
    int64_t key[3];
} lane_key;

static int by_key(const void *a, const void *b) {
    const lane_key *x = a, *y = b;
    for (int i = 0; i < 3; i++)
        if (x->key[i] != y->key[i]) return x->key[i] < y->key[i] ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

/* Host lanes first, those with most events on top; then devices by stream; then what Python did. */
static bool order_lanes(page *p) {
    const ep_trace *t = p->f->trace;
    lane_key *keys = ep_malloc_array(p->lane_count + 1, sizeof *keys);
    p->order = ep_malloc_array(p->lane_count + 1, sizeof *p->order);
    if (!keys || !p->order) {
        free(keys);
        return false;
    }
    for (size_t i = 0; i < p->lane_count; i++) {
        const page_lane *l = &p->lanes[i];
        if (l->rows == 0) continue;
        int64_t events = 0;
        for (uint32_t r = 0; r < l->rows; r++) events += l->count[r];
        const ep_lane *lane = &t->lanes[l->lane];
        keys[p->shown++] = (lane_key){
            (uint32_t)i, {l->python ? 2 : l->device, l->device ? lane->device : -events, l->device ? lane->stream : 0}};
    }
    qsort(keys, p->shown, sizeof *keys, by_key);
    for (size_t i = 0; i < p->shown; i++) p->order[i] = keys[i].at;
    free(keys);
    return true;
}

static bool lay_out(page *p) {
    const ep_links *links = p->f->links;
    for (size_t i = 0; i < links->order_count; i++) {
        uint32_t row = links->order[i];
        if (wanted(p->f->trace, row) && p->f->trace->dur[row] >= p->shortest) give_row(p, row);
    }
    p->event = ep_malloc_array((size_t)p->n + 1, sizeof *p->event);
    if (!p->event || !order_lanes(p)) return false;
    uint32_t at = 0;
    for (size_t i = 0; i < p->shown; i++) {
        page_lane *l = &p->lanes[p->order[i]];
        for (uint32_t r = 0; r < l->rows; r++) {
            l->first[r] = at;
            at += l->count[r];
            l->count[r] = 0;
        }
    }
    for (size_t i = 0; i < links->order_count; i++) {
        uint32_t row = links->order[i];
        if (p->row_of[row] == UINT8_MAX) continue;
        page_lane *l = lane_for(p, row);
        uint32_t to = l->first[p->row_of[row]] + l->count[p->row_of[row]]++;
        p->event[to] = row;
        p->page_of[row] = to;
    }
    return true;
}

static void base64(ep_text *out, const unsigned char *data, size_t n) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char four[4];
    for (size_t i = 0; i < n; i += 3) {
        size_t left = n - i;
        uint32_t v =
            (uint32_t)data[i] << 16 | (left > 1 ? (uint32_t)data[i + 1] << 8 : 0) | (left > 2 ? data[i + 2] : 0);
        four[0] = digits[v >> 18];
        four[1] = digits[v >> 12 & 63];
        four[2] = left > 1 ? digits[v >> 6 & 63] : '=';
        four[3] = left > 2 ? digits[v & 63] : '=';
        ep_text_addn(out, four, 4);
    }
}

static void add_column(ep_json_out *o, const char *key, const void *data, size_t bytes) {
    ep_json_key(o, key);
    ep_text t = {0};
    ep_text_char(&t, '"');
    base64(&t, data, bytes);
    ep_text_char(&t, '"');
    if (t.failed) o->failed = true;
    ep_json_raw(o, ep_text_str(&t), t.len);
    ep_text_free(&t);
}

static void add_text_member(ep_json_out *o, const ep_trace *t, const char *key, uint32_t string) {
    if (!string) return;
    ep_json_put_str(o, key, ep_trace_text(t, string));
}

static void add_number(ep_json_out *o, const char *key, int64_t v, bool known) {
    if (!known) return;
    ep_json_put_int(o, key, v);
}

static void add_three(ep_json_out *o, const char *key, const uint32_t v[3]) {
    if (!v[0] && !v[1] && !v[2]) return;
    char text[48];
    snprintf(text, sizeof text, "%u x %u x %u", v[0], v[1], v[2]);
    ep_json_put_str(o, key, text);
}

static void add_info(ep_json_out *o, const ep_trace *t, const ep_event_info *i) {
    ep_json_object(o);
    add_text_member(o, t, "input dims", i->input_dims);
    add_text_member(o, t, "input types", i->input_types);
    add_text_member(o, t, "input strides", i->input_strides);
    add_text_member(o, t, "concrete inputs", i->concrete_inputs);
    add_three(o, "grid", i->grid);
    add_three(o, "block", i->block);
    add_number(o, "registers a thread", i->registers, i->registers > 0);
    add_number(o, "shared memory", i->shared_bytes, i->shared_bytes > 0);
    add_number(o, "bytes", i->bytes, i->bytes >= 0);
    add_number(o, "flops", i->flops, i->flops > 0);
    add_number(o, "bytes read", i->bytes_read, i->bytes_read > 0);
    add_number(o, "bytes written", i->bytes_written, i->bytes_written > 0);
    add_number(o, "graph", i->graph_id, i->graph_id > 0);
    add_text_member(o, t, "detail", i->detail);
    add_text_member(o, t, "other", i->extra);
    ep_json_end(o);
}

/* Numbers of a table as the page sees them: only what is used, in order of first use. */
typedef struct renumber {
    uint32_t *page_id; /* by the trace's number; UINT32_MAX: not used yet */
    uint32_t *used;    /* by the page's number */
    uint32_t count;
} renumber;

static bool renumber_create(renumber *r, size_t n) {
    r->page_id = ep_malloc_array(n + 1, sizeof *r->page_id);
    r->used = ep_malloc_array(n + 1, sizeof *r->used);
    r->count = 0;
    if (r->page_id) memset(r->page_id, 0xff, (n + 1) * sizeof *r->page_id);
    return r->page_id && r->used;
}

static uint32_t renumber_get(renumber *r, uint32_t id) {
    if (r->page_id[id] == UINT32_MAX) {
        r->page_id[id] = r->count;
        r->used[r->count++] = id;
    }
    return r->page_id[id];
}

static void add_lane(ep_json_out *o, const page *p, const page_lane *l) {
    const ep_trace *t = p->f->trace;
    const ep_lane *lane = &t->lanes[l->lane];
    const char *process = ep_trace_text(t, lane->process_name ? lane->process_name : lane->pid);
    char label[192];
    if (l->device)
        snprintf(label, sizeof label, "device %lld, stream %lld", (long long)lane->device, (long long)lane->stream);
    else
        snprintf(label, sizeof label, "%s%s%.140s", l->python ? "Python of " : "", lane->name ? "" : "thread ",
                 ep_trace_text(t, lane->name ? lane->name : lane->tid));
    ep_json_object(o);
    ep_json_put_str(o, "label", label);
    ep_json_put_str(o, "process", process);
    ep_json_put_bool(o, "device", l->device);
    ep_json_put_array(o, "rows");
    for (uint32_t r = 0; r < l->rows; r++) {
        ep_json_array(o);
        ep_json_int(o, l->first[r]);
        ep_json_int(o, l->count[r]);
        ep_json_end(o);
    }
    ep_json_end(o);
    ep_json_end(o);
}

typedef struct columns {
    uint8_t *kind;
    double *start, *dur;
    uint32_t *name, *info, *link;
} columns;

static bool columns_create(columns *c, size_t n) {
    c->kind = ep_malloc_array(n + 1, sizeof *c->kind);
    c->start = ep_malloc_array(n + 1, sizeof *c->start);
    c->dur = ep_malloc_array(n + 1, sizeof *c->dur);
    c->name = ep_malloc_array(n + 1, sizeof *c->name);
    c->info = ep_malloc_array(n + 1, sizeof *c->info);
    c->link = ep_malloc_array(n + 1, sizeof *c->link);
    return c->kind && c->start && c->dur && c->name && c->info && c->link;
}

static void columns_free(columns *c) {
    free(c->kind);
    free(c->start);
    free(c->dur);
    free(c->name);
    free(c->info);
    free(c->link);
}

/* Of the engine's span and the op in it one has the arrow. */
static uint32_t forward_of(const ep_links *l, uint32_t row) {
    uint32_t forward = ep_links_forward(l, row), up = l->parent[row];
    return forward != EP_NO_INDEX && up != EP_NO_INDEX && ep_links_forward(l, up) == forward ? EP_NO_INDEX : forward;
}

static void fill_columns(const page *p, columns *c, renumber *names, renumber *infos) {
    const ep_trace *t = p->f->trace;
    /* The same zero as in every report: the trace's first span. What the profiler did before has a negative start. */
    int64_t origin = p->f->span_start_ns;
    for (uint32_t i = 0; i < p->n; i++) {
        uint32_t row = p->event[i], from = EP_NO_INDEX;
        if (ep_event_is_device_work(t->kind[row])) from = p->f->links->launch[row];
        if (t->kind[row] == EP_EVENT_OP) from = forward_of(p->f->links, row);
        c->kind[i] = t->kind[row];
        c->start[i] = (double)(t->ts[row] - origin);
        c->dur[i] = (double)t->dur[row];
        c->name[i] = renumber_get(names, t->name[row]);
        c->info[i] = renumber_get(infos, t->info[row]);
        c->link[i] = from != EP_NO_INDEX && p->row_of[from] != UINT8_MAX ? p->page_of[from] : UINT32_MAX;
    }
}

static void write_page(ep_json_out *o, const page *p, const char *label, const columns *c, const renumber *names,
                       const renumber *infos) {
    const ep_trace *t = p->f->trace;
    ep_json_object(o);
    ep_json_put_str(o, "label", label);
    add_number(o, "n", p->n, true);
    add_number(o, "total", (int64_t)p->total, true);
    ep_json_put_array(o, "lanes");
    for (size_t i = 0; i < p->shown; i++) add_lane(o, p, &p->lanes[p->order[i]]);
    ep_json_end(o);
    ep_json_put_array(o, "names");
    for (uint32_t i = 0; i < names->count; i++) ep_json_str(o, ep_trace_text(t, names->used[i]));
    ep_json_end(o);
    ep_json_put_array(o, "infos");
    for (uint32_t i = 0; i < infos->count; i++) add_info(o, t, &t->infos[infos->used[i]]);
    ep_json_end(o);
    size_t n = p->n;
    add_column(o, "kind", c->kind, n * sizeof *c->kind);
    add_column(o, "start", c->start, n * sizeof *c->start);
    add_column(o, "dur", c->dur, n * sizeof *c->dur);
    add_column(o, "name", c->name, n * sizeof *c->name);
    add_column(o, "info", c->info, n * sizeof *c->info);
    add_column(o, "link", c->link, n * sizeof *c->link);
    ep_json_end(o);
}

ep_status ep_report_timeline(ep_json_out *o, const ep_facts *f, const char *label, size_t most, ep_error *err) {
    const ep_trace *t = f->trace;
    page p = {.f = f, .lane_count = t->lane_count * 2};
    columns c = {0};
    renumber names = {0}, infos = {0};
    p.shortest = shortest_kept(f, most, &p.total);
    p.lanes = calloc(p.lane_count + 1, sizeof *p.lanes);
    p.row_of = ep_malloc_array(t->count + 1, sizeof *p.row_of);
    p.page_of = ep_malloc_array(t->count + 1, sizeof *p.page_of);
    if (p.row_of) memset(p.row_of, 0xff, t->count + 1);
    bool ok = p.lanes && p.row_of && p.page_of && lay_out(&p) && columns_create(&c, p.n) &&
              renumber_create(&names, t->strings.count) && renumber_create(&infos, t->info_count);
    if (ok) {
        fill_columns(&p, &c, &names, &infos);
        write_page(o, &p, label, &c, &names, &infos);
    }
    columns_free(&c);
    free(names.page_id);
    free(names.used);
    free(infos.page_id);
    free(infos.used);
    free(p.lanes);
    free(p.order);
    free(p.row_of);
    free(p.page_of);
    free(p.event);
    return ok && !o->failed ? EP_OK
                            : ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory for a timeline of %zu events", t->count);
}
