/* A difference as text and JSON. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "diff.h"
#include "format.h"

#define NS(v) ep_figure_us((double)(v)*1e-3).text

enum { ROWS = 40 };

static void item_text(const ep_diff_side *s, const uint32_t *list, size_t n, size_t width, char *out, size_t size) {
    char name[200], line[400] = "";
    if (n == 0) snprintf(line, sizeof line, "-");
    for (size_t i = 0; i < n && i < 3; i++) {
        const ep_diff_item *item = &s->items[list[i]];
        const char *text = item->decoded ? ep_short_name(item->decoded, item->kernel, name, sizeof name) : item->kernel;
        size_t used = strlen(line);
        if (strncmp(text, "elementwise ", 12) == 0) text += 12;
        snprintf(line + used, sizeof line - used, "%s%.100s", i ? " + " : "", text);
    }
    ep_cut(line, width, out, size);
}

/* Microseconds for a column: from a second on without decimals, so that columns stay columns. */
static ep_figure cell(int64_t ns) {
    double us = (double)ns * 1e-3;
    return ep_figure_number(us, us >= 999999.5 ? 0 : 1);
}
#define CELL(ns) cell(ns).text

/* A's kernels and, where they differ, B's on a line of their own: names need the width. */
static void pair_lines(const ep_diff_region *r, const ep_diff_pair *p, ep_text *out, size_t column) {
    char a[200], b[200];
    item_text(&r->a, p->a, p->a_count, column, a, sizeof a);
    item_text(&r->b, p->b, p->b_count, column - 3, b, sizeof b);
    bool one_line = p->relation == EP_RELATION_SAME || !p->a_count || !p->b_count;
    if (one_line)
        ep_text_printf(out, "  %-8s%s", ep_relation_name(p->relation), ep_column_of(p->a_count ? a : b, column).text);
    else
        ep_text_printf(out, "  %-8s%s\n          -> %s", ep_relation_name(p->relation), a,
                       ep_column_of(b, column - 3).text);
    ep_text_printf(out, " %9s %9s\n", p->a_count ? CELL(p->a_ns) : "", p->b_count ? CELL(p->b_ns) : "");
}

static int by_first(const void *x, const void *y) {
    const ep_diff_pair *const *a = x, *const *b = y;
    uint32_t p = (*a)->a_count ? (*a)->a[0] : EP_NO_INDEX, q = (*b)->a_count ? (*b)->a[0] : EP_NO_INDEX;
    if (p != q) return p < q ? -1 : 1;
    p = (*a)->b_count ? (*a)->b[0] : 0, q = (*b)->b_count ? (*b)->b[0] : 0;
    return p < q ? -1 : p > q;
}

static int by_change(const void *x, const void *y) {
    const ep_diff_pair *const *a = x, *const *b = y;
    int64_t p = llabs((*a)->b_ns - (*a)->a_ns), q = llabs((*b)->b_ns - (*b)->a_ns);
    if (p != q) return p < q ? 1 : -1;
    return *a < *b ? -1 : 1;
}

static void total_line(ep_text *out, const char *what, size_t column, int64_t a, int64_t b) {
    ep_text_printf(out, "  %-*s %9s %9s\n", (int)column + 8, what, CELL(a), CELL(b));
}

static void region_text(const ep_diff_region *r, bool host, ep_text *out, int width) {
    size_t column = (size_t)width - 30;
    const ep_diff_pair **order = malloc((r->pair_count + 1) * sizeof *order);
    char head[96], name[64];
    if (!order) {
        out->failed = true;
        return;
    }
    for (size_t i = 0; i < r->pair_count; i++) order[i] = &r->pairs[i];
    bool few = r->pair_count <= ROWS;
    if (r->pair_count) qsort(order, r->pair_count, sizeof *order, few ? by_first : by_change);
    snprintf(head, sizeof head, "%s%s%s", ep_cut(r->name, 30, name, sizeof name),
             r->a.event == EP_NO_INDEX ? "" : ", median instance", few ? "" : ", largest changes first");
    ep_text_printf(out, "\n%s %9s %9s\n", ep_column_of(head, column + 10).text, "A us", "B us");
    for (size_t i = 0; i < r->pair_count && i < ROWS; i++) pair_lines(r, order[i], out, column);
    if (!few) ep_text_printf(out, "  ... %zu more; --json has all\n", r->pair_count - ROWS);
    if (!host) total_line(out, "device", column, r->a.device_ns, r->b.device_ns);
    total_line(out, "host", column, r->a.host_ns, r->b.host_ns);
    free(order);
}

/* Without a device also the ops whose own time changed by a hundredth of the region's or more. */
static void host_text(const ep_diff_region *r, bool host, ep_text *out) {
    enum { HOST_ROWS = 24 };
    int64_t longer = r->a.host_ns > r->b.host_ns ? r->a.host_ns : r->b.host_ns;
    size_t shown = 0, all = 0;
    const ep_diff_host **list = ep_diff_host_by_change(r);
    if (!list) {
        out->failed = true;
        return;
    }
    ep_text_printf(out, "\n  host work that differs                 count A      B      self us A         B\n");
    for (size_t i = 0; i < r->host_count; i++) {
        const ep_diff_host *h = list[i];
        bool time = host && llabs(h->self_ns[1] - h->self_ns[0]) * 100 >= longer && longer > 0;
        if (h->count[0] == h->count[1] && !time) continue;
        if (all++ >= HOST_ROWS) continue;
        shown++;
        ep_text_printf(out, "  %s %7lld %6lld %14s %9s\n", ep_column_of(h->name, 38).text, (long long)h->count[0],
                       (long long)h->count[1], CELL(h->self_ns[0]), CELL(h->self_ns[1]));
    }
    if (!shown) ep_text_printf(out, "  (none)\n");
    if (all > shown) ep_text_printf(out, "  ... %zu more; --json has all\n", all - shown);
    free(list);
}

static void other_regions(const ep_diff_result *d, bool host, ep_text *out) {
    if (d->region_count < 2) return;
    ep_text_add(out, host ? "\nOTHER REGIONS                            n A    B   host us A          B\n"
                          : "\nOTHER REGIONS             kernels A   B device us A        B host us A        B\n");
    for (size_t i = 0; i < d->region_count; i++) {
        const ep_diff_region *r = &d->regions[i];
        if (i == d->main) continue;
        if (host)
            ep_text_printf(out, "  %s %6lld %4lld %11s %10s\n", ep_column_of(r->name, 35).text,
                           (long long)r->a.instances, (long long)r->b.instances, CELL(r->a.host_ns),
                           CELL(r->b.host_ns));
        else
            ep_text_printf(out, "  %s %8lld %3lld %11s %8s %9s %8s\n", ep_column_of(r->name, 24).text,
                           (long long)r->a.kernels, (long long)r->b.kernels, CELL(r->a.device_ns), CELL(r->b.device_ns),
                           CELL(r->a.host_ns), CELL(r->b.host_ns));
    }
}

void ep_diff_text(ep_diff_result *d, ep_text *out, int width) {
    bool host = ep_diff_host_only(d);
    width = width < 80 ? 80 : width;
    ep_text_printf(out, "A %s\nB %s\n\n", d->label_a, d->label_b);
    for (size_t i = 0; i < d->sentence_count; i++)
        ep_paragraph(out, i ? "- " : "  ", 2, (size_t)width, d->sentences[i]);
    region_text(&d->regions[d->main], host, out, width);
    host_text(&d->regions[d->main], host, out);
    other_regions(d, host, out);
}

static void names(ep_json_out *o, const char *key, const ep_diff_side *s, const uint32_t *list, size_t n, bool ops) {
    ep_json_put_array(o, key);
    for (size_t i = 0; i < n; i++) ep_json_str(o, ops ? s->items[list[i]].op : s->items[list[i]].kernel);
    ep_json_end(o);
}

static void pair_json(const ep_diff_region *r, const ep_diff_pair *p, ep_json_out *o) {
    ep_json_object(o);
    ep_json_put_str(o, "relation", ep_relation_name(p->relation));
    names(o, "a", &r->a, p->a, p->a_count, false);
    names(o, "b", &r->b, p->b, p->b_count, false);
    names(o, "ops_a", &r->a, p->a, p->a_count, true);
    names(o, "ops_b", &r->b, p->b, p->b_count, true);
    ep_json_put_str(
        o, "class",
        ep_kernel_class_name((ep_kernel_class)(p->b_count ? r->b.items[p->b[0]].cls : r->a.items[p->a[0]].cls)));
    ep_json_put_us(o, "us_a", p->a_ns);
    ep_json_put_us(o, "us_b", p->b_ns);
    ep_json_key(o, "bytes_saved"); /* below 0 where b writes more */
    if (p->bytes_known)
        ep_json_int(o, p->bytes_saved);
    else
        ep_json_null(o);
    ep_json_end(o);
}

static void host_json(const ep_diff_region *r, ep_json_out *o) {
    ep_json_put_array(o, "host");
    for (size_t i = 0; i < r->host_count; i++) {
        const ep_diff_host *h = &r->host[i];
        ep_json_object(o);
        ep_json_put_str(o, "name", h->name);
        ep_json_put_int(o, "count_a", h->count[0]);
        ep_json_put_int(o, "count_b", h->count[1]);
        ep_json_put_us(o, "self_us_a", h->self_ns[0]);
        ep_json_put_us(o, "self_us_b", h->self_ns[1]);
        ep_json_end(o);
    }
    ep_json_end(o);
}

static void region_json(const ep_diff_region *r, ep_json_out *o) {
    ep_json_object(o);
    ep_json_put_str(o, "name", r->name);
    ep_json_put_int(o, "instances_a", r->a.instances);
    ep_json_put_int(o, "instances_b", r->b.instances);
    ep_json_put_int(o, "kernels_a", r->a.kernels);
    ep_json_put_int(o, "kernels_b", r->b.kernels);
    ep_json_put_int(o, "memsets_a", r->a.memsets);
    ep_json_put_int(o, "memsets_b", r->b.memsets);
    ep_json_put_int(o, "copies_a", r->a.copies);
    ep_json_put_int(o, "copies_b", r->b.copies);
    ep_json_put_us(o, "dispatch_us_a", r->a.host_ns);
    ep_json_put_us(o, "dispatch_us_b", r->b.host_ns);
    ep_json_put_us(o, "device_us_a", r->a.device_ns);
    ep_json_put_us(o, "device_us_b", r->b.device_ns);
    ep_json_put_array(o, "pairs");
    for (size_t i = 0; i < r->pair_count; i++) pair_json(r, &r->pairs[i], o);
    ep_json_end(o);
    host_json(r, o);
    ep_json_end(o);
}

/* Two figures of the whole traces under one key. */
static void both(ep_json_out *o, const char *key, int64_t a, int64_t b, bool ns) {
    ep_json_put_array(o, key);
    if (ns)
        ep_json_us(o, a), ep_json_us(o, b);
    else
        ep_json_int(o, a), ep_json_int(o, b);
    ep_json_end(o);
}

static int64_t count_kind(const ep_study *s, ep_event_kind kind) {
    int64_t n = 0;
    for (size_t i = 0; i < s->trace->count; i++) n += s->trace->kind[i] == kind && ep_event_is_span(s->trace, i);
    return n;
}

/* Ops inside no other op. */
static int64_t top_level_ops(const ep_study *s) {
    const ep_links *l = s->facts->links;
    uint32_t *up = ep_malloc_array(s->trace->count + 1, sizeof *up);
    int64_t n = 0;
    if (!up) return -1;
    for (size_t k = 0; k < l->order_count; k++) {
        uint32_t row = l->order[k];
        up[row] = ep_facts_op_around(l, up, row);
        n += s->trace->kind[row] == EP_EVENT_OP && up[row] == EP_NO_INDEX;
    }
    free(up);
    return n;
}

static int64_t kernel_ns(const ep_study *s) {
    int64_t ns = 0;
    for (size_t i = 0; i < s->facts->name_count; i++) ns += s->facts->names[i].total_ns;
    return ns;
}

typedef struct by_text {
    const char *name;
    int64_t count[2], ns[2];
} by_text;

static int text_order(const void *x, const void *y) {
    const by_text *a = x, *b = y;
    return strcmp(a->name, b->name);
}

static int change_order(const void *x, const void *y) {
    const by_text *a = x, *b = y;
    int64_t p = llabs(a->ns[1] - a->ns[0]), q = llabs(b->ns[1] - b->ns[0]);
    return p != q ? (p < q ? 1 : -1) : strcmp(a->name, b->name);
}

/* Rows of equal names merged; the new count. */
static size_t merge(by_text *list, size_t n) {
    size_t out = 0;
    if (n) qsort(list, n, sizeof *list, text_order);
    for (size_t i = 0; i < n; i++) {
        if (out && strcmp(list[out - 1].name, list[i].name) == 0)
            for (int k = 0; k < 2; k++)
                list[out - 1].count[k] += list[i].count[k], list[out - 1].ns[k] += list[i].ns[k];
        else
            list[out++] = list[i];
    }
    if (out) qsort(list, out, sizeof *list, change_order);
    return out;
}

static void by_text_json(ep_json_out *o, const char *key, const by_text *list, size_t n) {
    ep_json_put_array(o, key);
    for (size_t i = 0; i < n; i++) {
        ep_json_object(o);
        ep_json_put_str(o, "name", list[i].name);
        both(o, "count", list[i].count[0], list[i].count[1], false);
        both(o, "us", list[i].ns[0], list[i].ns[1], true);
        ep_json_put_us(o, "change_us", list[i].ns[1] - list[i].ns[0]);
        ep_json_end(o);
    }
    ep_json_end(o);
}

/* Kernels by name and by owner op over the whole traces, the largest change first. */
static void changes(const ep_diff_result *d, ep_json_out *o) {
    const ep_study *const sides[2] = {d->a, d->b};
    size_t names_count = d->a->facts->name_count + d->b->facts->name_count;
    size_t kernels = d->a->facts->kernel_count + d->b->facts->kernel_count, n = 0, only[3] = {0, 0, 0};
    by_text *list = ep_malloc_array(names_count + kernels, sizeof *list);
    if (!list) {
        o->failed = true;
        return;
    }
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < sides[k]->facts->name_count; i++) {
            const ep_kernel_kind *f = &sides[k]->facts->names[i];
            list[n] = (by_text){f->name, {0, 0}, {0, 0}};
            list[n].count[k] = f->count, list[n].ns[k] = f->total_ns;
            n++;
        }
    n = merge(list, n);
    for (size_t i = 0; i < n; i++) only[list[i].count[0] == 0 ? 1 : list[i].count[1] == 0 ? 0 : 2]++;
    ep_json_put_object(o, "kernel_names");
    ep_json_put_int(o, "only_a", (int64_t)only[0]);
    ep_json_put_int(o, "only_b", (int64_t)only[1]);
    ep_json_put_int(o, "in_both", (int64_t)only[2]);
    ep_json_end(o);
    by_text_json(o, "kernels_by_change", list, n);
    n = 0;
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < sides[k]->facts->kernel_count; i++) {
            const ep_kernel_fact *f = &sides[k]->facts->kernels[i];
            uint32_t owner = ep_links_owner(sides[k]->facts->links, f->event);
            if (owner == EP_NO_INDEX) continue;
            list[n] = (by_text){ep_study_name(sides[k], owner), {0, 0}, {0, 0}};
            list[n].count[k] = 1, list[n].ns[k] = sides[k]->trace->dur[f->event];
            n++;
        }
    n = merge(list, n);
    by_text_json(o, "owner_ops_by_change", list, n);
    free(list);
}

static int64_t memory_work(const ep_study *s, bool memsets) {
    int64_t n = 0;
    for (size_t i = 0; i < s->facts->device_count; i++)
        n += memsets ? s->facts->devices[i].memsets : s->facts->devices[i].memcpys;
    return n;
}

static void busy(const ep_diff_result *d, ep_json_out *o) {
    const ep_study *const sides[2] = {d->a, d->b};
    ep_json_put_array(o, "busy_us");
    for (int k = 0; k < 2; k++) {
        ep_json_object(o);
        for (size_t i = 0; i < sides[k]->facts->device_count; i++) {
            char id[24];
            snprintf(id, sizeof id, "%lld", (long long)sides[k]->facts->devices[i].id);
            ep_json_put_us(o, id, sides[k]->facts->devices[i].busy_ns);
        }
        ep_json_end(o);
    }
    ep_json_end(o);
}

void ep_diff_json(ep_diff_result *d, ep_json_out *o) {
    const ep_facts *a = d->a->facts, *b = d->b->facts;
    ep_json_object(o);
    ep_json_put_str(o, "a", d->label_a);
    ep_json_put_str(o, "b", d->label_b);
    ep_json_put_str(o, "summary", ep_text_str(&d->summary));
    ep_json_put_array(o, "sentences");
    for (size_t i = 0; i < d->sentence_count; i++) ep_json_str(o, d->sentences[i]);
    ep_json_end(o);
    ep_json_put_str(o, "main_region", d->regions[d->main].name);
    both(o, "events", a->health.events, b->health.events, false);
    both(o, "cpu_ops", count_kind(d->a, EP_EVENT_OP), count_kind(d->b, EP_EVENT_OP), false);
    both(o, "runtime_events", count_kind(d->a, EP_EVENT_RUNTIME), count_kind(d->b, EP_EVENT_RUNTIME), false);
    both(o, "kernel_launches", a->health.launches, b->health.launches, false);
    both(o, "top_level_cpu_ops", top_level_ops(d->a), top_level_ops(d->b), false);
    both(o, "kernels", a->health.kernels, b->health.kernels, false);
    both(o, "kernel_time_us", kernel_ns(d->a), kernel_ns(d->b), true);
    both(o, "memcpys", memory_work(d->a, false), memory_work(d->b, false), false);
    both(o, "memsets", memory_work(d->a, true), memory_work(d->b, true), false);
    both(o, "distinct_kernel_names", (int64_t)a->name_count, (int64_t)b->name_count, false);
    both(o, "trace_span_us", a->span_end_ns - a->span_start_ns, b->span_end_ns - b->span_start_ns, true);
    busy(d, o);
    changes(d, o);
    ep_json_put_array(o, "regions");
    for (size_t i = 0; i < d->region_count; i++) region_json(&d->regions[i], o);
    ep_json_end(o);
    ep_json_end(o);
}
