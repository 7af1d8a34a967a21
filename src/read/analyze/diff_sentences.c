/* What changed between two traces, in sentences: the conclusion first, then its parts by cause. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "diff.h"
#include "format.h"

#define NS(v) ep_figure_us((double)(v)*1e-3).text
#define BYTES(v) ep_figure_bytes(v).text

static void say(ep_diff_result *d, const char *fmt, ...) EP_PRINTF(2, 3);

static void say(ep_diff_result *d, const char *fmt, ...) {
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    const char *copy = ep_arena_copy(&d->arena, text, strlen(text));
    if (!copy || !ep_grow(&d->sentences, &d->sentence_cap, d->sentence_count + 1, sizeof *d->sentences)) {
        d->failed = true;
        return;
    }
    d->sentences[d->sentence_count++] = copy;
}

static const char *short_of(const ep_diff_item *i, char *buffer, size_t size) {
    char name[200];
    return ep_cut(i->decoded ? ep_short_name(i->decoded, i->kernel, name, sizeof name) : i->kernel, 60, buffer, size);
}

/* "aten::gelu + aten::mul" */
static void op_list(const ep_diff_side *s, const uint32_t *list, size_t n, char *out, size_t size) {
    out[0] = 0;
    for (size_t i = 0; i < n && i < 5; i++) {
        size_t used = strlen(out);
        char name[64];
        const ep_diff_item *item = &s->items[list[i]];
        snprintf(out + used, size - used, "%s%s", i ? " + " : "",
                 ep_cut(item->op[0] ? item->op : item->kernel, 40, name, sizeof name));
    }
}

static void headline(ep_diff_result *d, const ep_diff_region *r) {
    if (ep_diff_host_only(d)) {
        double more = r->a.host_ns ? 100.0 * (double)(r->b.host_ns - r->a.host_ns) / (double)r->a.host_ns : NAN;
        if (r->a.host_ns == r->b.host_ns)
            say(d, "%s: host %s in both.", r->name, NS(r->a.host_ns));
        else
            say(d, "%s: host %s -> %s%s%s%s.", r->name, NS(r->a.host_ns), NS(r->b.host_ns),
                isfinite(more) ? more >= 0 ? " (+" : " (" : "", isfinite(more) ? ep_figure_number(more, 1).text : "",
                isfinite(more) ? " %)" : "");
        return;
    }
    double change = r->a.device_ns ? 100.0 * (double)(r->b.device_ns - r->a.device_ns) / (double)r->a.device_ns : NAN;
    say(d, "%s: %lld -> %lld kernels; device %s -> %s (%s%s %%); host %s -> %s.", r->name, (long long)r->a.kernels,
        (long long)r->b.kernels, NS(r->a.device_ns), NS(r->b.device_ns), change >= 0 ? "+" : "",
        ep_figure_number(change, 1).text, NS(r->a.host_ns), NS(r->b.host_ns));
}

typedef struct totals {
    int64_t pairs[EP_RELATION_COUNT], a_ns[EP_RELATION_COUNT], b_ns[EP_RELATION_COUNT];
    int64_t same_gemms, same_gemm_a, same_gemm_b, bytes;
} totals;

static totals sum_up(const ep_diff_region *r) {
    totals t;
    memset(&t, 0, sizeof t);
    for (size_t i = 0; i < r->pair_count; i++) {
        const ep_diff_pair *p = &r->pairs[i];
        const ep_diff_item *first = p->a_count ? &r->a.items[p->a[0]] : &r->b.items[p->b[0]];
        if (!first->decoded && p->relation != EP_RELATION_FUSED && p->relation != EP_RELATION_SPLIT) continue;
        t.pairs[p->relation]++;
        t.a_ns[p->relation] += p->a_ns;
        t.b_ns[p->relation] += p->b_ns;
        if (p->bytes_known) t.bytes += p->bytes_saved;
        if (p->relation == EP_RELATION_SAME && first->cls == EP_CLASS_GEMM) {
            t.same_gemms++;
            t.same_gemm_a += p->a_ns;
            t.same_gemm_b += p->b_ns;
        }
    }
    return t;
}

static void add_keys(ep_text *text, const ep_diff_side *s, const uint32_t *list, size_t n) {
    for (size_t i = 0; i < n; i++) ep_text_printf(text, " %u", s->items[list[i]].key);
}

/* What one sentence can speak of has one text: equal names; for renamed ones the same op and class is enough. */
static void signature(const ep_diff_region *r, const ep_diff_pair *p, ep_text *text) {
    const ep_diff_item *first = p->a_count ? &r->a.items[p->a[0]] : NULL;
    ep_text_clear(text);
    ep_text_printf(text, "%d", p->relation);
    if (p->relation == EP_RELATION_RENAMED && p->a_count == 1 && first->op[0]) {
        ep_text_printf(text, " %zu %d %s", p->b_count, first->cls, first->op);
        return;
    }
    add_keys(text, &r->a, p->a, p->a_count);
    ep_text_add(text, " >");
    add_keys(text, &r->b, p->b, p->b_count);
}

/* Least time of a fused pointwise kernel, when its products' sizes are known: all tensors once, one result written. */
static double pointwise_bound(const ep_diff_side *s, const ep_diff_item *i) {
    ep_regime regime;
    if (i->node == EP_NO_INDEX || i->cls != EP_CLASS_POINTWISE || !i->row->known) return NAN;
    const ep_node *n = &s->study->nodes[i->node];
    int64_t read = 0;
    for (int k = 0; k < EP_WORK_INPUTS; k++)
        if (ep_node_producer(s->study, n, k) != EP_NO_INDEX)
            read += s->study->rows[s->study->nodes[ep_node_producer(s->study, n, k)].row].out_bytes;
    int64_t bytes = read + i->row->out_bytes, known = i->row->bytes_read + i->row->bytes_written;
    return ep_study_bound_us(s->study, 0, bytes > known ? bytes : known, "", &regime);
}

static void say_merge(ep_diff_result *d, const ep_diff_region *r, const ep_diff_pair *p, int64_t times) {
    bool fused = p->relation == EP_RELATION_FUSED;
    char many[256], one[128], count[32] = "";
    const ep_diff_item *into = fused ? &r->b.items[p->b[0]] : &r->a.items[p->a[0]];
    op_list(fused ? &r->a : &r->b, fused ? p->a : p->b, fused ? p->a_count : p->b_count, many, sizeof many);
    short_of(into, one, sizeof one);
    if (times > 1) snprintf(count, sizeof count, " (%lld times)", (long long)times);
    int64_t bytes = p->bytes_saved < 0 ? -p->bytes_saved : p->bytes_saved;
    if (fused)
        say(d, "%s became %zu kernel%s, %s%s: %s -> %s%s%s.", many, p->b_count, p->b_count > 1 ? "s" : "", one, count,
            NS(p->a_ns), NS(p->b_ns), p->bytes_known ? ", less traffic: " : "", p->bytes_known ? BYTES(bytes) : "");
    double bound = fused && times == 1 ? pointwise_bound(&r->b, into) : NAN;
    if (isfinite(bound) && bound > 0 && bound * 1e3 < (double)p->b_ns)
        say(d, "At full bandwidth that kernel would take %s: it reaches %.0f %% of it%s.", ep_figure_us(bound).text,
            100 * bound * 1e3 / (double)p->b_ns,
            bound * 1e3 < 0.7 * (double)p->b_ns ? ", so a kernel written by hand has room" : "");
    if (!fused)
        say(d, "%s fell apart into %zu kernels, %s%s: %s -> %s%s%s.", one, p->b_count, many, count, NS(p->a_ns),
            NS(p->b_ns), p->bytes_known ? ", more traffic: " : "", p->bytes_known ? BYTES(bytes) : "");
}

static void say_renamed(ep_diff_result *d, const ep_diff_region *r, const ep_diff_pair *p, int64_t times) {
    const ep_diff_item *a = &r->a.items[p->a[0]], *b = &r->b.items[p->b[0]];
    char one[128], two[128], what[128], count[32] = "";
    if (times > 1) snprintf(count, sizeof count, " (%lld times)", (long long)times);
    double ratio = p->b_ns > 0 && p->a_ns > 0 ? (double)p->a_ns / (double)p->b_ns : NAN;
    const char *verdict = !isfinite(ratio)   ? ""
                          : ratio > 1.03     ? ": A's kernel is the slower one"
                          : ratio < 1 / 1.03 ? ": B's kernel is the slower one"
                                             : "";
    short_of(a, one, sizeof one), short_of(b, two, sizeof two);
    bool named = a->op[0] && strcmp(a->op, a->kernel) != 0;
    snprintf(what, sizeof what, "%s%.80s", named ? "" : "The kernel of class ",
             named ? a->op : ep_kernel_class_name(a->cls));
    if (strcmp(one, two) == 0)
        say(d, "%s runs another build of %s%s: %s -> %s%s.", what, one, count, NS(p->a_ns), NS(p->b_ns), verdict);
    else
        say(d, "%s is %s in A and %s in B%s: %s -> %s%s.", what, one, two, count, NS(p->a_ns), NS(p->b_ns), verdict);
    double bound = pointwise_bound(&r->b, b);
    if (!isfinite(bound)) bound = pointwise_bound(&r->a, a);
    if (isfinite(bound) && bound > 0 && times == 1 && bound * 1e3 < (double)p->a_ns)
        say(d, "Both move the same bytes; at full bandwidth that takes %s: A reaches %.0f %% of it, B %.0f %%.",
            ep_figure_us(bound).text, 100 * bound * 1e3 / (double)p->a_ns, 100 * bound * 1e3 / (double)p->b_ns);
}

static void say_alone(ep_diff_result *d, const ep_diff_region *r, const ep_diff_pair *p, int64_t times) {
    bool gone = p->relation == EP_RELATION_GONE;
    const ep_diff_item *i = gone ? &r->a.items[p->a[0]] : &r->b.items[p->b[0]];
    char name[128];
    say(d, "%s: %lld x %s (%s)%s%s.", gone ? "Gone" : "New", (long long)times, short_of(i, name, sizeof name),
        NS(gone ? p->a_ns : p->b_ns), i->op[0] ? ", asked for by " : "", i->op);
}

typedef struct told {
    ep_diff_pair sum;
    int64_t times;
} told;

static int by_change(const void *x, const void *y) {
    const told *a = x, *b = y;
    int64_t p = llabs(a->sum.b_ns - a->sum.a_ns), q = llabs(b->sum.b_ns - b->sum.a_ns);
    return p < q ? 1 : p > q ? -1 : 0;
}

/* Equal pairs summed up, in the order in which they come up. */
static size_t sum_pairs(ep_diff_result *d, const ep_diff_region *r, ep_relation relation, told *list) {
    ep_intern seen = {0};
    ep_text text = {0};
    size_t n = 0;
    for (size_t i = 0; i < r->pair_count && !d->failed; i++) {
        const ep_diff_pair *p = &r->pairs[i];
        if (p->relation != relation) continue;
        signature(r, p, &text);
        uint32_t id = text.failed ? UINT32_MAX : ep_intern_add(&seen, ep_text_str(&text), text.len);
        if (id == UINT32_MAX) {
            d->failed = true;
        } else if (id > n) {
            list[n++] = (told){*p, 1};
        } else {
            told *t = &list[id - 1];
            t->sum.a_ns += p->a_ns;
            t->sum.b_ns += p->b_ns;
            if (t->sum.bytes_known) t->sum.bytes_saved += p->bytes_saved;
            t->times++;
        }
    }
    ep_intern_free(&seen);
    ep_text_free(&text);
    return n;
}

/* The four largest changes of a relation. */
static void say_relation(ep_diff_result *d, const ep_diff_region *r, ep_relation relation, told *list) {
    size_t n = sum_pairs(d, r, relation, list);
    if (n) qsort(list, n, sizeof *list, by_change);
    for (size_t i = 0; i < n && i < 4; i++) {
        if (relation == EP_RELATION_FUSED || relation == EP_RELATION_SPLIT)
            say_merge(d, r, &list[i].sum, list[i].times);
        else if (relation == EP_RELATION_RENAMED)
            say_renamed(d, r, &list[i].sum, list[i].times);
        else
            say_alone(d, r, &list[i].sum, list[i].times);
    }
    if (n > 4) say(d, "%zu more are %s; --json has them.", n - 4, ep_relation_name(relation));
}

static void say_pairs(ep_diff_result *d, const ep_diff_region *r) {
    static const ep_relation order[] = {EP_RELATION_FUSED, EP_RELATION_SPLIT, EP_RELATION_RENAMED, EP_RELATION_GONE,
                                        EP_RELATION_NEW};
    told *list = ep_malloc_array(r->pair_count, sizeof *list);
    for (size_t k = 0; list && k < sizeof order / sizeof order[0]; k++) say_relation(d, r, order[k], list);
    d->failed = d->failed || !list;
    free(list);
}

static void say_same(ep_diff_result *d, const ep_diff_region *r, const totals *t) {
    int64_t changed = 0;
    for (int k = EP_RELATION_RENAMED; k < EP_RELATION_COUNT; k++) changed += t->pairs[k];
    if (!changed && t->pairs[EP_RELATION_SAME])
        say(d, "Same GPU work: the same %lld kernel%s by byte-equal name, %s -> %s.",
            (long long)t->pairs[EP_RELATION_SAME], t->pairs[EP_RELATION_SAME] > 1 ? "s" : "",
            NS(t->a_ns[EP_RELATION_SAME]), NS(t->b_ns[EP_RELATION_SAME]));
    else if (t->same_gemms)
        say(d,
            t->same_gemms == 1 ? "The %lld GEMM left keeps its byte-equal name: %s -> %s."
                               : "The %lld GEMMs keep byte-equal names: %s -> %s.",
            (long long)t->same_gemms, NS(t->same_gemm_a), NS(t->same_gemm_b));
    (void)r;
}

static void say_memsets(ep_diff_result *d, const ep_diff_region *r) {
    if (!r->a.memsets && !r->b.memsets) return;
    if (r->a.memsets == r->b.memsets)
        say(d, "%lld memset%s run on the device in both: launches of their own that no kernel count shows.",
            (long long)r->a.memsets, r->a.memsets > 1 ? "s" : "");
    else
        say(d, "Memsets on the device: %lld -> %lld.", (long long)r->a.memsets, (long long)r->b.memsets);
}

static void host_list(const ep_diff_region *r, bool gone, char *out, size_t size, int64_t *ns) {
    out[0] = 0;
    *ns = 0;
    bool shown[512] = {false};
    size_t n = r->host_count < 512 ? r->host_count : 512;
    for (size_t i = 0; i < n; i++)
        if (r->host[i].count[gone ? 1 : 0] == 0) *ns += r->host[i].self_ns[gone ? 0 : 1];
    for (int k = 0; k < 6; k++) { /* the costliest first */
        size_t best = n;
        for (size_t i = 0; i < n; i++)
            if (!shown[i] && r->host[i].count[gone ? 1 : 0] == 0 &&
                (best == n || r->host[i].self_ns[gone ? 0 : 1] > r->host[best].self_ns[gone ? 0 : 1]))
                best = i;
        if (best == n) return;
        shown[best] = true;
        size_t used = strlen(out);
        char name[64];
        snprintf(out + used, size - used, "%s%s (%lld)", k ? ", " : "",
                 ep_cut(r->host[best].name, 40, name, sizeof name), (long long)r->host[best].count[gone ? 0 : 1]);
    }
}

/* Work that both sides do as often, where it took another time: up to three that hold most of the change. */
static void say_changed(ep_diff_result *d, const ep_diff_region *r, int64_t more) {
    const ep_diff_host **list = ep_diff_host_by_change(r);
    char text[400] = "", name[64];
    int said = 0;
    d->failed = d->failed || !list;
    for (size_t i = 0; list && i < r->host_count && said < 3; i++) {
        const ep_diff_host *h = list[i];
        int64_t change = h->self_ns[1] - h->self_ns[0];
        if (llabs(change) * 10 < llabs(more) || llabs(change) * 50 < r->a.host_ns) break;
        if (h->count[0] != h->count[1]) continue;
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%s %s -> %s (%lld call%s)", said++ ? ", " : "",
                 ep_cut(h->name, 40, name, sizeof name), NS(h->self_ns[0]), NS(h->self_ns[1]), (long long)h->count[0],
                 h->count[0] == 1 ? "" : "s");
    }
    free(list);
    if (said) say(d, "Called as often, but its own time changed: %s.", text);
}

static void say_host(ep_diff_result *d, const ep_diff_region *r) {
    char text[600];
    int64_t gone, fresh;
    host_list(r, true, text, sizeof text, &gone);
    if (text[0]) say(d, "Gone on the host: %s; %s of its own time.", text, NS(gone));
    host_list(r, false, text, sizeof text, &fresh);
    if (text[0]) say(d, "New on the host: %s; %s of its own time.", text, NS(fresh));
    int64_t more = r->b.host_ns - r->a.host_ns;
    if (more > r->a.host_ns / 20)
        say(d, "The host is slower in B by %s%s.", NS(more),
            fresh - gone > more / 2 ? ": what is new there costs more than what is gone" : "");
    else if (more < -r->a.host_ns / 20)
        say(d, "The host is faster in B by %s.", NS(-more));
    if (ep_diff_host_only(d)) say_changed(d, r, more);
}

static void say_causes(ep_diff_result *d, const ep_diff_region *r, const totals *t) {
    char text[400] = "";
    for (int k = 0; k < EP_RELATION_COUNT; k++) {
        int64_t ns = t->b_ns[k] - t->a_ns[k];
        if (!t->pairs[k] || (ns < 50 && ns > -50)) continue;
        size_t used = strlen(text);
        const char *cause = k == EP_RELATION_SAME ? "kernels of equal name" : ep_relation_name((ep_relation)k);
        snprintf(text + used, sizeof text - used, "%s%s %s%s", used ? ", " : "", cause, ns >= 0 ? "+" : "", NS(ns));
    }
    if (text[0]) say(d, "Device time by cause: %s.", text);
    (void)r;
}

bool ep_diff_sentences(ep_diff_result *d) {
    const ep_diff_region *r = &d->regions[d->main];
    totals t = sum_up(r);
    if (!d->a->facts->health.device_recorded || !d->b->facts->health.device_recorded)
        say(d, "%s device events: only the host can be compared.",
            d->a->facts->health.device_recorded   ? "B has no"
            : d->b->facts->health.device_recorded ? "A has no"
                                                  : "Neither trace has");
    headline(d, r);
    if (!ep_diff_host_only(d)) {
        say_pairs(d, r);
        say_same(d, r, &t);
        say_memsets(d, r);
        say_causes(d, r, &t);
    }
    say_host(d, r);
    for (size_t i = 0; i < d->sentence_count; i++) {
        if (i) ep_text_char(&d->summary, ' ');
        ep_text_add(&d->summary, d->sentences[i]);
    }
    return !d->failed && !d->summary.failed;
}
