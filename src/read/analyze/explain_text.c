/* `explain` as text: health first, then what matters, then the tables it rests on. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyze.h"
#include "format.h"

#define US(v) ep_figure_us(v).text
#define NS(v) ep_figure_us((double)(v)*1e-3).text
#define BYTES(v) ep_figure_bytes(v).text
#define SHARE(v) ep_figure_share(v).text
#define COUNT(v) ep_figure_count(v).text
#define S(n) ((n) == 1 ? "" : "s") /* the plural */

enum { ROWS = 12 }; /* of a table; the JSON has all */

typedef struct page {
    ep_text *out;
    int width;
} page;

static void title(page *p, const char *text) {
    ep_text_printf(p->out, "\n%s\n", text);
}

static void paragraph(page *p, const char *head, size_t indent, const char *text) {
    ep_paragraph(p->out, head, indent, (size_t)p->width, text);
}

static void more(page *p, size_t shown, size_t all) {
    if (all > shown) ep_text_printf(p->out, "  ... %zu more; --json has all\n", all - shown);
}

static void head(const ep_study *s, page *p) {
    const ep_facts *f = s->facts;
    ep_text_printf(p->out, "%s\n", s->label);
    ep_text_printf(p->out, "%s, %s recorded", s->device_name ? s->device_name : "no device named",
                   NS(f->span_end_ns - f->span_start_ns));
    if (s->trace->rank >= 0 && s->trace->world_size > 1)
        ep_text_printf(p->out, ", rank %lld of %lld", (long long)s->trace->rank, (long long)s->trace->world_size);
    ep_text_char(p->out, '\n');
}

static void health(const ep_study *s, page *p) {
    const ep_health *h = &s->facts->health;
    char line[400];
    title(p, "HEALTH");
    snprintf(line, sizeof line, "%s: %s event%s, %s span%s; %s launch%s, %s kernel%s%s",
             ep_study_partial(s) ? "PARTIAL" : "complete", COUNT(h->events), S(h->events), COUNT(h->span_events),
             S(h->span_events), COUNT(h->launches), h->launches == 1 ? "" : "es", COUNT(h->kernels), S(h->kernels),
             h->device_recorded      ? ""
             : ep_study_host_only(s) ? "; the host alone"
                                     : "; the device side was not recorded");
    paragraph(p, "  ", 2, line);
    if (h->launches_without_kernel || h->kernels_without_launch) {
        snprintf(line, sizeof line, "%s launch%s without a kernel, %s kernel%s without a launch",
                 COUNT(h->launches_without_kernel), h->launches_without_kernel == 1 ? "" : "es",
                 COUNT(h->kernels_without_launch), S(h->kernels_without_launch));
        paragraph(p, "  ", 2, line);
    }
    if (h->kernels_before_launch) {
        snprintf(line, sizeof line, "%s kernel%s before %s launch: clocks differ by up to %s",
                 COUNT(h->kernels_before_launch), S(h->kernels_before_launch),
                 h->kernels_before_launch == 1 ? "its" : "their", NS(h->clock_skew_ns));
        paragraph(p, "  ", 2, line);
    }
    if (h->impossible_times || h->overlaps_on_stream) {
        snprintf(line, sizeof line, "impossible times: %s; overlaps on a stream: %s", COUNT(h->impossible_times),
                 COUNT(h->overlaps_on_stream));
        paragraph(p, "  ", 2, line);
    }
    for (size_t i = 0; i < s->trace->repair_count; i++) {
        const ep_repair *r = &s->trace->repairs[i];
        snprintf(line, sizeof line, "mended: %s, %s time%s, first at byte %lld", ep_trace_text(s->trace, r->kind),
                 COUNT(r->count), r->count == 1 ? "" : "s", (long long)r->first_offset);
        paragraph(p, "  ", 2, line);
    }
    if (h->skipped) ep_text_printf(p->out, "  %s event%s could not be kept\n", COUNT(h->skipped), S(h->skipped));
    if (!s->trace->has_shapes)
        paragraph(p, "  ", 2, "no shapes: record_shapes was off, so flops and bytes stay unknown");
}

static void findings(const ep_study *s, page *p) {
    if (!s->finding_count) return;
    title(p, "FINDINGS");
    for (size_t i = 0; i < s->finding_count; i++) {
        const ep_finding *f = &s->findings[i];
        char number[32];
        snprintf(number, sizeof number, "%3zu. ", i + 1);
        paragraph(p, number, 5, f->sentence);
        for (int k = 0; k < f->evidence_count; k++) paragraph(p, "     - ", 7, f->evidence[k]);
    }
}

static void devices(const ep_study *s, page *p) {
    double span = (double)(s->facts->span_end_ns - s->facts->span_start_ns);
    if (!s->facts->device_count) return;
    title(p, "DEVICES");
    for (size_t i = 0; i < s->facts->device_count; i++) {
        const ep_device_fact *d = &s->facts->devices[i];
        char line[400];
        snprintf(line, sizeof line,
                 "%lld%s%s: %s kernel%s, %s cop%s, %s memset%s; busy %s of %s, idle %s (of the whole trace %s)",
                 (long long)d->id, d->name ? " " : "", d->name ? d->name : "", COUNT(d->kernels), S(d->kernels),
                 COUNT(d->memcpys), d->memcpys == 1 ? "y" : "ies", COUNT(d->memsets), S(d->memsets), NS(d->busy_ns),
                 NS(d->span_ns), SHARE(d->span_ns > 0 ? 1 - (double)d->busy_ns / (double)d->span_ns : NAN),
                 SHARE(span > 0 ? 1 - (double)d->busy_ns / span : NAN));
        paragraph(p, "  ", 4, line);
    }
}

static void classes(const ep_study *s, page *p) {
    int64_t count[EP_CLASS_COUNT] = {0}, ns[EP_CLASS_COUNT] = {0}, all = 0;
    for (size_t i = 0; i < s->work_count; i++) {
        const ep_device_work *w = &s->work[i];
        ep_kernel_class cls = ep_work_class(s, w);
        count[cls]++;
        ns[cls] += s->trace->dur[w->event];
        all += s->trace->dur[w->event];
    }
    if (!all) return;
    title(p, "DEVICE TIME BY CLASS           count         us       %");
    for (;;) {
        int best = -1;
        for (int c = 0; c < EP_CLASS_COUNT; c++)
            if (count[c] && (best < 0 || ns[c] > ns[best])) best = c;
        if (best < 0) return;
        ep_text_printf(p->out, "  %-28s %6s %10.1f  %6.1f\n", ep_kernel_class_name((ep_kernel_class)best),
                       COUNT(count[best]), (double)ns[best] * 1e-3, 100 * (double)ns[best] / (double)all);
        count[best] = 0;
    }
}

static void bound_text(const ep_regime_row *r, char *text, size_t size) {
    if (r->regime == EP_REGIME_UNKNOWN)
        snprintf(text, size, "-");
    else if (r->without_profiler != r->regime)
        snprintf(text, size, "%s*", ep_regime_name(r->regime));
    else
        snprintf(text, size, "%s", ep_regime_name(r->regime));
}

static int by_device_time(const void *a, const void *b) {
    const ep_regime_row *const *x = a, *const *y = b;
    double p = (*x)->busy_us * (double)(*x)->instances, q = (*y)->busy_us * (double)(*y)->instances;
    if (p == q) p = (*x)->all_host_us, q = (*y)->all_host_us;
    if (p != q) return p < q ? 1 : -1;
    return *x < *y ? -1 : 1;
}

static void host_regions(const ep_study *s, page *p, const ep_regime_row *const *list, size_t shown) {
    double span = (double)(s->facts->span_end_ns - s->facts->span_start_ns) * 1e-3;
    title(p, "REGIONS                             n  median us     all us  of the trace");
    for (size_t i = 0; i < shown; i++)
        ep_text_printf(p->out, "  %s %4lld %10.1f %10.1f %12.1f%%\n", ep_column_of(list[i]->name, 29).text,
                       (long long)list[i]->instances, list[i]->host_us, list[i]->all_host_us,
                       span > 0 ? 100 * list[i]->all_host_us / span : 0);
}

static void device_regions(page *p, const ep_regime_row *const *list, size_t shown) {
    char bound[32];
    bool star = false;
    title(p, "REGIONS (median)           n kernel    host us    busy us  busy  bound");
    for (size_t i = 0; i < shown; i++) {
        const ep_regime_row *r = list[i];
        bound_text(r, bound, sizeof bound);
        star = star || strchr(bound, '*');
        ep_text_printf(p->out, "  %s %4lld %6lld %10.1f %10.1f %4.0f%%  %s\n", ep_column_of(r->name, 22).text,
                       (long long)r->instances, (long long)r->kernels, r->host_us, r->busy_us, r->busy_share * 100,
                       bound);
    }
    if (star)
        paragraph(p, "  * ", 4, "as recorded; the device sets the pace once the profiler's own cost is taken off");
}

static void regions(const ep_study *s, page *p) {
    if (!s->regime_count || (!s->facts->op_count && !s->facts->region_count && !s->work_count)) return;
    const ep_regime_row **list = malloc(s->regime_count * sizeof *list);
    if (!list) {
        p->out->failed = true;
        return;
    }
    for (size_t i = 0; i < s->regime_count; i++) list[i] = &s->regimes[i];
    qsort(list, s->regime_count, sizeof *list, by_device_time);
    size_t shown = s->regime_count < ROWS ? s->regime_count : ROWS;
    if (s->facts->health.device_recorded)
        device_regions(p, list, shown);
    else
        host_regions(s, p, list, shown);
    more(p, shown, s->regime_count);
    free(list);
}

static double bound_of(const ep_study *s, const ep_work_row *r, const char *dtype) {
    ep_regime regime;
    return r->known ? ep_study_bound_us(s, r->flops, r->bytes_read + r->bytes_written, dtype, &regime) : NAN;
}

static void instance_line(const ep_study *s, page *p, const ep_device_work *w) {
    const ep_work_row *r = &s->rows[w->row];
    char short_name[160];
    double us = (double)s->trace->dur[w->event] * 1e-3;
    const char *kernel = ep_study_name(s, w->event);
    double bound = NAN;
    if (w->kind != EP_NO_INDEX) {
        kernel = ep_short_name(&s->facts->names[w->kind].decoded, kernel, short_name, sizeof short_name);
        bound = bound_of(s, r, r->dtype);
    }
    bool least = isfinite(bound) && r->at_least;
    ep_text_printf(p->out, "  %s %s %7.1f", ep_column_of(ep_study_name(s, ep_work_owner(s, w)), 24).text,
                   ep_column_of(kernel, 32).text, us);
    if (isfinite(bound) && bound > us)
        ep_text_add(p->out, "  in cache");
    else if (isfinite(bound))
        ep_text_printf(p->out, " %6.1f%s %3.0f%%", bound, least ? "+" : " ", 100 * bound / us);
    ep_text_char(p->out, '\n');
}

/* The most telling region, kernel by kernel: what a person would scroll to in a viewer. */
static void instance(const ep_study *s, page *p) {
    const ep_region_fact *best = NULL;
    double most = 0;
    for (size_t i = 0; i < s->facts->region_count; i++) {
        const ep_region_fact *r = &s->facts->regions[i];
        double device = 0;
        bool graph = strncmp(r->name, "## Call", 7) == 0, step = ep_region_is_step(r->name);
        if (graph || !ep_study_wants(s, r->name)) continue;
        for (uint32_t k = r->first; k < r->first + r->count; k++) device += (double)s->facts->instances[k].device_ns;
        if (step) device *= 0.5;
        if (device > most) most = device, best = r;
    }
    if (!best) return;
    uint32_t *list = NULL, event = s->facts->instances[best->first + best->count / 2].event;
    size_t n = 0;
    if (!ep_study_region_work(s, event, &list, &n)) {
        p->out->failed = true;
        return;
    }
    if (n > 0 && n <= 24) {
        char line[160], name[64];
        snprintf(line, sizeof line, "ONE %s IN HOST ORDER", ep_cut(best->name, 40, name, sizeof name));
        ep_text_printf(p->out, "\n%-59s      us   bound\n", line);
        for (size_t i = 0; i < n; i++) instance_line(s, p, &s->work[list[i]]);
    }
    free(list);
}

static void kernels(const ep_study *s, page *p) {
    size_t n = s->facts->name_count, shown = n < ROWS ? n : ROWS;
    int64_t all = 0;
    char short_name[160];
    if (!n) return;
    for (size_t i = 0; i < n; i++) all += s->facts->names[i].total_ns;
    title(p, "KERNELS                                        class      count       us      %");
    for (size_t i = 0; i < shown; i++) {
        const ep_kernel_kind *k = &s->facts->names[i];
        const char *text = ep_short_name(&k->decoded, k->name, short_name, sizeof short_name);
        ep_text_printf(p->out, "  %s %-10s %5s %9.1f %6.1f\n", ep_column_of(text, 44).text, k->decoded.class_name,
                       COUNT(k->count), (double)k->total_ns * 1e-3, all ? 100 * (double)k->total_ns / (double)all : 0);
    }
    more(p, shown, n);
    for (size_t i = 0; i < shown; i++)
        if (strstr(s->facts->names[i].decoded.note, "no proof")) {
            paragraph(p, "  ", 2,
                      "The op list in a Triton name is what went into its group, no proof of what still runs.");
            return;
        }
}

/* An op's name for a table. */
static ep_column op_label(const char *name, size_t width) {
    static const char engine[] = "autograd::engine::evaluate_function: ";
    char text[160];
    if (strncmp(name, engine, sizeof engine - 1) != 0) return ep_column_of(name, width);
    snprintf(text, sizeof text, "engine: %s", name + sizeof engine - 1);
    return ep_column_of(text, width);
}

/* Without a device only the host's side is told. */
static void host_ops(const ep_study *s, page *p, size_t shown) {
    int64_t all = 0;
    for (size_t i = 0; i < s->facts->op_count; i++) all += s->facts->ops[i].self_ns;
    title(p, "OPS (host)                       count    self us  self %   total us    each us");
    for (size_t i = 0; i < shown; i++) {
        const ep_op_fact *o = &s->facts->ops[i];
        ep_text_printf(p->out, "  %s %6s %10.1f %7.1f %10.1f %10.1f\n", op_label(o->name, 29).text, COUNT(o->count),
                       (double)o->self_ns * 1e-3, all ? 100 * (double)o->self_ns / (double)all : 0,
                       (double)o->total_ns * 1e-3, (double)o->total_ns * 1e-3 / (double)o->count);
    }
}

static void device_ops(const ep_study *s, page *p, size_t shown) {
    title(p, "OPS (host)                       count    self us   total us  device us kernels");
    for (size_t i = 0; i < shown; i++) {
        const ep_op_fact *o = &s->facts->ops[i];
        ep_text_printf(p->out, "  %s %6s %10.1f %10.1f %10.1f %7s\n", op_label(o->name, 29).text, COUNT(o->count),
                       (double)o->self_ns * 1e-3, (double)o->total_ns * 1e-3, (double)o->device_ns * 1e-3,
                       COUNT(o->kernels));
    }
}

static void views(const ep_study *s, page *p) {
    size_t n = s->facts->op_count, all = 0, shown = 0;
    for (size_t i = 0; i < n; i++) all += s->facts->ops[i].idle > 0;
    if (!all) return;
    title(p, "LAUNCH NOTHING                   count    self us");
    for (size_t i = 0; i < n && shown < 8; i++) {
        const ep_op_fact *o = &s->facts->ops[i];
        if (!o->idle) continue;
        shown++;
        ep_text_printf(p->out, "  %s %6s %10.1f\n", op_label(o->name, 29).text, COUNT(o->idle),
                       (double)o->idle_self_ns * 1e-3);
    }
    more(p, shown, all);
}

static void ops(const ep_study *s, page *p) {
    size_t n = s->facts->op_count, shown = n < ROWS ? n : ROWS;
    bool device = s->facts->health.device_recorded;
    if (!n) return;
    if (device)
        device_ops(s, p, shown);
    else
        host_ops(s, p, shown);
    more(p, shown, n);
    if (device) views(s, p);
}

static int by_both(const void *a, const void *b) {
    const ep_op_fact *const *x = a, *const *y = b;
    int64_t p = (*x)->device_ns + (*x)->backward_device_ns, q = (*y)->device_ns + (*y)->backward_device_ns;
    if (p != q) return p < q ? 1 : -1;
    p = (*x)->total_ns + (*x)->backward_ns, q = (*y)->total_ns + (*y)->backward_ns;
    if (p != q) return p < q ? 1 : -1;
    return *x < *y ? -1 : 1;
}

/* An op that only hands on to the one it is in (conv2d, convolution, cudnn_convolution) says nothing new. */
static size_t drop_repeats(const ep_op_fact **list, size_t n) {
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        bool again = false;
        for (size_t k = kept > 8 ? kept - 8 : 0; k < kept && !again; k++)
            again = list[k]->count == list[i]->count && list[k]->backward_ns == list[i]->backward_ns &&
                    list[k]->kernels == list[i]->kernels && list[k]->backward_count == list[i]->backward_count;
        if (!again) list[kept++] = list[i];
    }
    return kept;
}

static void backward_rows(const ep_study *s, page *p, const ep_op_fact **list, size_t shown) {
    bool device = s->facts->health.device_recorded;
    title(p, device ? "THERE AND BACK                   host us             device us        kernels"
                    : "THERE AND BACK                 count       host us: forward  backward");
    if (device) ep_text_add(p->out, "                    count   forward  backward   forward  backward   fwd    bwd\n");
    for (size_t i = 0; i < shown; i++) {
        const ep_op_fact *o = list[i];
        double there = (double)o->total_ns * 1e-3, back = (double)o->backward_ns * 1e-3;
        if (device)
            ep_text_printf(p->out, "  %s %6s %9.1f %9.1f %9.1f %9.1f %6s %6s\n", ep_column_of(o->name, 17).text,
                           COUNT(o->count), there, back, (double)o->device_ns * 1e-3,
                           (double)o->backward_device_ns * 1e-3, COUNT(o->kernels), COUNT(o->backward_kernels));
        else
            ep_text_printf(p->out, "  %s %6s %21.1f %9.1f\n", ep_column_of(o->name, 27).text, COUNT(o->count), there,
                           back);
    }
}

/* Training: what an op costs there and back. */
static void backward(const ep_study *s, page *p) {
    size_t n = 0;
    const ep_op_fact **list = malloc((s->facts->op_count + 1) * sizeof *list);
    if (!list) {
        p->out->failed = true;
        return;
    }
    for (size_t i = 0; i < s->facts->op_count; i++)
        if (s->facts->ops[i].backward_count) list[n++] = &s->facts->ops[i];
    if (n) {
        qsort(list, n, sizeof *list, by_both);
        n = drop_repeats(list, n);
        size_t shown = n < ROWS ? n : ROWS;
        backward_rows(s, p, list, shown);
        more(p, shown, n);
    }
    free(list);
}

/* A processor's or a small product's speed is no TFLOP/s. */
static bool slow_products(const ep_study *s) {
    for (size_t i = 0; i < s->gemm_count; i++)
        if (s->gemms[i].tflops >= 1) return false;
    return true;
}

static void gemms(const ep_study *s, page *p) {
    size_t n = s->gemm_count, shown = n < ROWS ? n : ROWS;
    char sizes[96];
    if (!n) return;
    bool slow = slow_products(s), bounds = false;
    for (size_t i = 0; i < n; i++) bounds = bounds || isfinite(s->gemms[i].bound_us);
    char line[100];
    snprintf(line, sizeof line, "%s count      us %s   bound epilogue",
             bounds ? "PRODUCTS, furthest from the bound first" : "PRODUCTS, those that take most first   ",
             slow ? "GFLOP/s" : "TFLOP/s");
    title(p, line);
    for (size_t i = 0; i < shown; i++) {
        const ep_gemm_row *g = &s->gemms[i];
        double each = (double)g->ns * 1e-3 / (double)g->count;
        if (g->reason)
            snprintf(sizes, sizeof sizes, "?");
        else if (g->batch > 1)
            snprintf(sizes, sizeof sizes, "%lldx(%lld,%lld,%lld) %s", (long long)g->batch, (long long)g->m,
                     (long long)g->n, (long long)g->k, g->dtype);
        else
            snprintf(sizes, sizeof sizes, "%lld,%lld,%lld %s", (long long)g->m, (long long)g->n, (long long)g->k,
                     g->dtype);
        const char *op = *g->op ? g->op : "?"; /* the name says more than where it is from */
        if (strlen(op) > 13 && strncmp(op, "aten::", 6) == 0) op += 6;
        ep_text_printf(p->out, "  %s %-23s %6s %7.1f %7s %7s %.9s\n", ep_column_of(op, 13).text, sizes, COUNT(g->count),
                       each, ep_figure_number(slow ? g->tflops * 1e3 : g->tflops, 1).text,
                       ep_figure_number(g->bound_us, 1).text, g->epilogue);
    }
    more(p, shown, n);
    bool reason = false;
    for (size_t i = 0; i < n && !reason; i++)
        if (s->gemms[i].reason) {
            paragraph(p, "  ? ", 4, s->gemms[i].reason);
            reason = true;
        }
}

static int by_to_win(const void *a, const void *b) {
    const ep_bound_row *const *x = a, *const *y = b;
    if ((*x)->to_win_us != (*y)->to_win_us) return (*x)->to_win_us < (*y)->to_win_us ? 1 : -1;
    return *x < *y ? -1 : 1;
}

/* Kernels of any class, those first that could win most. */
static void bounds(const ep_study *s, page *p) {
    const ep_bound_row **list = malloc((s->facts->name_count + 1) * sizeof *list);
    char short_name[160], least[32];
    size_t n = 0;
    if (!list) {
        p->out->failed = true;
        return;
    }
    for (size_t i = 0; i < s->facts->name_count; i++)
        if (s->bounds[i].count && s->bounds[i].to_win_us >= 0.05) list[n++] = &s->bounds[i];
    if (n) {
        title(p, "FURTHEST FROM THE BOUND         count  us each TFLOP/s   GB/s   bound  to win us");
        qsort(list, n, sizeof *list, by_to_win);
    }
    size_t shown = n < 8 ? n : 8;
    for (size_t i = 0; i < shown; i++) {
        const ep_bound_row *b = list[i];
        const ep_kernel_kind *k = &s->facts->names[b - s->bounds];
        double us = (double)b->ns * 1e-3, count = (double)b->count;
        const char *text = ep_short_name(&k->decoded, k->name, short_name, sizeof short_name);
        snprintf(least, sizeof least, "%.1f%s", b->bound_us / count, b->at_least ? "+" : "");
        ep_text_printf(p->out, "  %s %5s %8.1f %7s %6.0f %7s %10.1f\n", ep_column_of(text, 29).text, COUNT(b->count),
                       us / count, b->by_compute ? ep_figure_number((double)b->flops / us * 1e-6, 1).text : "-",
                       (double)b->bytes / us * 1e-3, least, b->to_win_us);
    }
    more(p, shown, n);
    free(list);
}

static void fusion(const ep_study *s, page *p) {
    size_t n = s->fusion_count, shown = n < ROWS ? n : ROWS;
    if (!n) return;
    title(p, "COULD BE ONE KERNEL (upper bounds)");
    for (size_t i = 0; i < shown; i++) {
        const ep_fusion_row *r = &s->fusions[i];
        ep_text line = {0};
        char name[64];
        for (int k = 0; k < r->length && k < 6; k++)
            ep_text_printf(&line, "%s%s", k ? " + " : "", ep_cut(r->ops[k], 40, name, sizeof name));
        if (r->length > 6) ep_text_printf(&line, " + %d more", r->length - 6);
        ep_text_printf(&line, " [%s], %s time%s: ", r->kind, COUNT(r->instances), S(r->instances));
        if (r->intermediate_bytes < 0)
            ep_text_printf(&line, "%s in all; shapes unknown, so what it saves is unknown", NS(r->ns));
        else
            ep_text_printf(&line, "%s between, saves %s and up to %s each", BYTES(r->intermediate_bytes),
                           BYTES(r->bytes_saved), US(r->us_saved));
        if (r->blocked_by) ep_text_printf(&line, "; blocked: %s", r->blocked_by);
        paragraph(p, "  ", 4, ep_text_str(&line));
        p->out->failed = p->out->failed || line.failed;
        ep_text_free(&line);
    }
    more(p, shown, n);
}

/* A count that began with the recording is below 0 once older memory is freed. */
static ep_figure signed_bytes(int64_t bytes) {
    ep_figure f, size = ep_figure_bytes(bytes >= 0 ? bytes : bytes == INT64_MIN ? INT64_MAX : -bytes);
    snprintf(f.text, sizeof f.text, "%s%.20s", bytes < 0 ? "-" : "", size.text);
    return f;
}

/* The host's own count begins with the recording at 0; a device's is what its allocator holds. */
static void memory(const ep_study *s, page *p) {
    if (!s->memory_count) return;
    title(p, "MEMORY");
    for (size_t i = 0; i < s->memory_count && i < ROWS; i++) {
        const ep_memory_row *r = &s->memory[i];
        const ep_memory_use *u = r->use;
        ep_text line = {0};
        ep_text_printf(&line, "%s: at most %s allocated, at %s", r->device, signed_bytes(u->peak_bytes).text,
                       NS(u->peak_ns - s->facts->span_start_ns));
        if (r->op) ep_text_printf(&line, " in %s", r->op);
        if (r->op && strcmp(r->op, r->outer_op) != 0) ep_text_printf(&line, " of %s", r->outer_op);
        if (r->region) ep_text_printf(&line, " (%s)", r->region);
        ep_text_printf(&line, "; %s before the first of %s event%s, %s after the last",
                       signed_bytes(u->start_bytes).text, COUNT(u->events), u->events == 1 ? "" : "s",
                       signed_bytes(u->end_bytes).text);
        if (u->reserved_bytes > 0) ep_text_printf(&line, "; at most %s reserved", BYTES(u->reserved_bytes));
        paragraph(p, "  ", 4, ep_text_str(&line));
        p->out->failed = p->out->failed || line.failed;
        ep_text_free(&line);
    }
    more(p, s->memory_count < ROWS ? s->memory_count : ROWS, s->memory_count);
}

static void compiled(const ep_study *s, page *p) {
    if (!s->compile_count && !s->recompile_count) return;
    title(p, "COMPILED");
    for (size_t i = 0; i < s->compile_count && i < ROWS; i++) {
        const ep_compile_row *r = &s->compiles[i];
        ep_text line = {0};
        ep_text_printf(&line, "%s: %s call%s", r->name, COUNT(r->calls), r->calls == 1 ? "" : "s");
        if (r->entries >= 0) ep_text_printf(&line, ", %s entr%s", COUNT(r->entries), r->entries == 1 ? "y" : "ies");
        if (isfinite(r->call_us)) ep_text_printf(&line, "; a call %s on the host", US(r->call_us));
        if (isfinite(r->lookup_us)) ep_text_printf(&line, ", look-up %s", US(r->lookup_us));
        if (isfinite(r->prologue_us)) ep_text_printf(&line, ", prologue %s", US(r->prologue_us));
        paragraph(p, "  ", 4, ep_text_str(&line));
        p->out->failed = p->out->failed || line.failed;
        ep_text_free(&line);
    }
    for (size_t i = 0; i < s->recompile_count && i < ROWS; i++) {
        const ep_recompile_row *r = &s->recompiles[i];
        char line[700];
        bool compiles = strcmp(r->kind, "compile") == 0;
        snprintf(line, sizeof line, "recompile at %s (%s%s%s): %s%s%s", NS(r->ts_ns - s->facts->span_start_ns), r->kind,
                 compiles ? ", " : "", compiles ? NS(r->dur_ns) : "", r->name, r->detail ? ": " : "",
                 r->detail ? r->detail : "");
        paragraph(p, "  ", 4, line);
    }
    more(p, s->recompile_count < ROWS ? s->recompile_count : ROWS, s->recompile_count);
}

/* TFLOP/s with three digits: a GPU's 989, a processor's 0.34. */
static ep_figure peak(const ep_study *s, ep_dtype dtype) {
    double tflops = s->machine.gflops[dtype][1] * 1e-3;
    return ep_figure_number(tflops > 0 ? tflops : NAN, tflops >= 100 ? 0 : tflops >= 10 ? 1 : 2);
}

static void machine(const ep_study *s, page *p) {
    char line[700];
    if (!s->has_machine && !s->no_machine) return;
    if (s->has_machine)
        snprintf(line, sizeof line, "Bounds by %s: %.0f GB/s; bf16 %s, f16 %s, f32 %s TFLOP/s (%s).", s->machine.name,
                 s->machine.read_gbs[1], peak(s, EP_DTYPE_BF16).text, peak(s, EP_DTYPE_F16).text,
                 peak(s, EP_DTYPE_F32).text, s->machine.source);
    else
        snprintf(line, sizeof line, "No bounds: %s.", s->no_machine);
    ep_text_char(p->out, '\n');
    paragraph(p, "", 0, line);
}

void ep_explain_text(const ep_study *s, ep_text *out, int width) {
    page p = {out, width < 60 ? 80 : width};
    head(s, &p);
    health(s, &p);
    findings(s, &p);
    devices(s, &p);
    classes(s, &p);
    regions(s, &p);
    instance(s, &p);
    kernels(s, &p);
    ops(s, &p);
    backward(s, &p);
    bounds(s, &p);
    gemms(s, &p);
    fusion(s, &p);
    memory(s, &p);
    compiled(s, &p);
    machine(s, &p);
}
