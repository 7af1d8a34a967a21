/* The summary a person reads first: host and device time by op, then by kernel. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <epilogue/profile.h>

#include "base/alloc.h"
#include "model/trace/trace.h"

typedef struct row {
    const char *name;
    bool kernel;
    int64_t calls, total_ns, self_ns, device_ns, kernels, bytes, flops;
    int64_t key; /* rows are shown by it, largest first */
} row;

typedef struct table {
    const ep_trace *t;
    const ep_links *links;
    row *rows;
    size_t count, cap;
    uint32_t *op_row, *kernel_row; /* by string: row + 1 */
    int64_t host_ns, device_ns, events;
} table;

static row *row_of(table *x, uint32_t name, bool kernel) {
    uint32_t *slot = kernel ? &x->kernel_row[name] : &x->op_row[name];
    if (!*slot) {
        if (!ep_grow(&x->rows, &x->cap, x->count + 1, sizeof *x->rows)) return NULL;
        x->rows[x->count] = (row){.name = ep_trace_text(x->t, name), .kernel = kernel};
        *slot = (uint32_t)++x->count;
    }
    return &x->rows[*slot - 1];
}

static uint32_t op_above(const table *x, uint32_t i) {
    uint32_t p = x->links->parent[i];
    while (p != EP_NO_INDEX && x->t->kind[p] != EP_EVENT_OP) p = x->links->parent[p];
    return p;
}

/* Is this name already counted further out? An op inside one of the same name adds nothing to totals. */
static bool nested_in_itself(const table *x, uint32_t i) {
    for (uint32_t p = op_above(x, i); p != EP_NO_INDEX; p = op_above(x, p))
        if (x->t->name[p] == x->t->name[i]) return true;
    return false;
}

static bool add_op(table *x, uint32_t i) {
    row *r = row_of(x, x->t->name[i], false);
    if (!r) return false;
    r->calls++;
    r->self_ns += x->t->dur[i];
    if (!nested_in_itself(x, i)) r->total_ns += x->t->dur[i];
    uint32_t p = op_above(x, i);
    if (p == EP_NO_INDEX) {
        x->host_ns += x->t->dur[i];
        return true;
    }
    row *parent = row_of(x, x->t->name[p], false);
    if (parent) parent->self_ns -= x->t->dur[i];
    return parent != NULL;
}

/* A kernel that ran within its launch, on the caller's thread, took time that is no host time. */
static bool ran_in_call(const table *x, uint32_t i) {
    const ep_trace *t = x->t;
    uint32_t call = x->links->launch[i];
    if (!t->is_ours || call == EP_NO_INDEX) return false;
    return t->ts[call] <= t->ts[i] && t->ts[i] + t->dur[i] <= t->ts[call] + t->dur[call];
}

static bool add_to_op(table *x, uint32_t op, uint32_t kernel, int64_t bytes, bool self, bool in_call) {
    row *r = row_of(x, x->t->name[op], false);
    if (!r) return false;
    int64_t ns = x->t->dur[kernel];
    if (in_call && self) r->self_ns -= ns;
    if (nested_in_itself(x, op)) return true;
    if (in_call) r->total_ns -= ns;
    r->device_ns += ns;
    r->bytes += bytes;
    r->kernels++;
    return true;
}

/* A kernel's time goes to its own row, to its owner op, and to the ops around that. */
static bool add_device(table *x, uint32_t i) {
    const ep_trace *t = x->t;
    const ep_event_info *f = &t->infos[t->info[i]];
    int64_t bytes = (f->bytes_read > 0 ? f->bytes_read : 0) + (f->bytes_written > 0 ? f->bytes_written : 0);
    row *r = row_of(x, t->name[i], true);
    if (!r) return false;
    r->calls++;
    r->device_ns += t->dur[i];
    r->bytes += bytes;
    r->flops += f->flops > 0 ? f->flops : 0;
    x->device_ns += t->dur[i];
    bool in_call = ran_in_call(x, i);
    if (in_call && ep_links_owner(x->links, i) != EP_NO_INDEX) x->host_ns -= t->dur[i];
    for (uint32_t p = ep_links_owner(x->links, i); p != EP_NO_INDEX; p = op_above(x, p))
        if (!add_to_op(x, p, i, bytes, p == ep_links_owner(x->links, i), in_call)) return false;
    return true;
}

static int64_t sort_key(const row *r, ep_table_sort by) {
    switch (by) {
    case EP_SORT_SELF_HOST: return r->kernel ? r->device_ns : r->self_ns;
    case EP_SORT_TOTAL_HOST: return r->kernel ? r->device_ns : r->total_ns;
    case EP_SORT_CALLS: return r->calls;
    case EP_SORT_KERNELS: return r->kernel ? r->calls : r->kernels;
    case EP_SORT_BYTES: return r->bytes;
    case EP_SORT_NAME: return 0;
    default: return r->device_ns;
    }
}

static int by_key(const void *a, const void *b) {
    const row *x = a, *y = b;
    if (x->kernel != y->kernel) return x->kernel ? 1 : -1;
    if (x->key != y->key) return x->key > y->key ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* At most 8 characters and right for the eye: 1.5 K, 12.3 M. */
static const char *amount(char out[16], double v) {
    static const char units[] = " KMGTP";
    int u = 0;
    while (v >= 999.95 && u < 5) v /= 1000, u++;
    if (u == 0)
        snprintf(out, 16, "%.0f", v);
    else
        snprintf(out, 16, "%.1f %c", v, units[u]);
    return out;
}

static void name_cell(ep_text *o, const char *name, int width) {
    int n = (int)strlen(name);
    if (n <= width)
        ep_text_printf(o, "%-*s", width, name);
    else
        ep_text_printf(o, "%.*s..", width - 2, name);
}

static double us(int64_t ns) {
    return (double)(ns > 0 ? ns : 0) * 1e-3;
}

static void op_rows(const table *x, ep_text *o, int name) {
    char bytes[16];
    ep_text_printf(o, "%-*s %6s %10s %10s %10s %7s %8s\n", name, "op", "calls", "self host", "host", "device",
                   "kernels", "bytes");
    for (size_t i = 0; i < x->count && !x->rows[i].kernel; i++) {
        const row *r = &x->rows[i];
        name_cell(o, r->name, name);
        ep_text_printf(o, " %6" PRId64 " %10.1f %10.1f %10.1f %7" PRId64 " %8s\n", r->calls, us(r->self_ns),
                       us(r->total_ns), us(r->device_ns), r->kernels, amount(bytes, (double)r->bytes));
    }
}

static void kernel_rows(const table *x, ep_text *o, int name) {
    char rate[16];
    ep_text_printf(o, "\n%-*s %5s %9s %8s %6s %7s\n", name, "kernel", "calls", "device", "each", "share", "flop/s");
    for (size_t i = 0; i < x->count; i++) {
        const row *r = &x->rows[i];
        if (!r->kernel) continue;
        name_cell(o, r->name, name);
        double share = x->device_ns ? 100.0 * (double)r->device_ns / (double)x->device_ns : 0;
        strcpy(rate, "-");
        if (r->flops && r->device_ns) amount(rate, (double)r->flops / (double)r->device_ns * 1e9);
        ep_text_printf(o, " %5" PRId64 " %9.1f %8.1f %5.1f%% %7s\n", r->calls, us(r->device_ns),
                       us(r->device_ns / (r->calls ? r->calls : 1)), share, rate);
    }
}

static void foot(const table *x, ep_text *o) {
    const ep_trace *t = x->t;
    ep_text_printf(o, "\nTimes in microseconds. Host %.1f, device %.1f.\n", us(x->host_ns), us(x->device_ns));
    if (t->is_ours) ep_text_add(o, "Host time is what ops took besides the kernels they waited for.\n");
    if (t->own_ns_per_event > 0)
        ep_text_printf(o, "Recording cost about %.0f ns an event, %.1f in all (%" PRId64 " events).\n",
                       t->own_ns_per_event, t->own_ns_per_event * (double)x->events * 1e-3, x->events);
    if (t->device_times != EP_TIMES_UNKNOWN)
        ep_text_printf(o, "Device times are of %s, within %.1f of the host's clock.\n",
                       ep_device_times_name(t->device_times), us(t->device_error_ns));
    if (t->dropped)
        ep_text_printf(o, "PARTIAL: %" PRId64 " events found their thread's ring full and are missing.\n", t->dropped);
}

static bool fill(table *x, ep_table_sort sort) {
    size_t strings = x->t->strings.count + 1;
    x->op_row = calloc(strings, sizeof *x->op_row);
    x->kernel_row = calloc(strings, sizeof *x->kernel_row);
    if (!x->op_row || !x->kernel_row) return false;
    for (uint32_t i = 0; i < x->t->count; i++) {
        if (!ep_event_is_span(x->t, i)) continue;
        x->events++;
        if (x->t->kind[i] == EP_EVENT_OP && !add_op(x, i)) return false;
        if (ep_event_is_device_work(x->t->kind[i]) && !add_device(x, i)) return false;
    }
    for (size_t i = 0; i < x->count; i++) x->rows[i].key = sort_key(&x->rows[i], sort);
    if (x->count) qsort(x->rows, x->count, sizeof *x->rows, by_key);
    return true;
}

ep_status ep_profile_table(const ep_trace *trace, ep_table_sort sort, int width, ep_error *err, char **out) {
    ep_links *links = NULL;
    if (!trace || !out) return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "the %s is NULL", trace ? "result" : "trace");
    if ((unsigned)sort > EP_SORT_NAME)
        return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "%d is no way to sort", (int)sort);
    EP_TRY(ep_links_create(trace, err, &links));
    table x = {.t = trace, .links = links};
    ep_text o = {0};
    int columns = width < 76 ? 80 : width;
    if (fill(&x, sort)) {
        op_rows(&x, &o, columns - 58);
        kernel_rows(&x, &o, columns - 40);
        foot(&x, &o);
    } else {
        o.failed = true;
    }
    free(x.op_row);
    free(x.kernel_row);
    free(x.rows);
    ep_links_destroy(links);
    char *text = ep_text_take(&o);
    if (!text) return ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory for the table");
    *out = text;
    return EP_OK;
}
