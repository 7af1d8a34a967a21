/* What is worth a sentence: each with the figures it rests on, the most time first. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyze.h"
#include "base/sort.h"
#include "format.h"

#define US(v) ep_figure_us(v).text
#define BYTES(v) ep_figure_bytes(v).text
#define SHARE(v) ep_figure_share(v).text
#define COUNT(v) ep_figure_count(v).text
#define S(n) ((n) == 1 ? "" : "s") /* the plural */

static const double FIRST = 1e18; /* what a reader must know before any figure */

static const char *short_kernel(ep_study *s, const char *name) {
    ep_kernel_name decoded;
    char text[200], cut[128];
    ep_kernel_name_decode(name, &decoded);
    return ep_study_printf(s, "%s", ep_cut(ep_short_name(&decoded, name, text, sizeof text), 70, cut, sizeof cut));
}

/* The first few kernels that start before the one that runs on their stream has ended. */
static void name_overlaps(ep_study *s) {
    const ep_trace *t = s->trace;
    const ep_facts *f = s->facts;
    uint32_t longest = EP_NO_INDEX; /* of the stream: the kernel that ends last so far */
    for (size_t k = 0, said = 0; k < f->kernel_count && said < 3; k++) {
        uint32_t row = f->kernels[k].event;
        const ep_lane *lane = &t->lanes[t->lane[row]],
                      *last = longest == EP_NO_INDEX ? NULL : &t->lanes[t->lane[longest]];
        bool same = last && last->device == lane->device && last->stream == lane->stream;
        int64_t end = same ? t->ts[longest] + t->dur[longest] : INT64_MIN;
        if (same && t->ts[row] < end) {
            const char *a = short_kernel(s, ep_study_name(s, longest)), *b = short_kernel(s, ep_study_name(s, row));
            ep_study_evidence(s, ep_study_printf(s, "%s starts at %s, %s before %s ends.", b,
                                                 US((double)(t->ts[row] - f->span_start_ns) * 1e-3),
                                                 US((double)(end - t->ts[row]) * 1e-3), a));
            said++;
        }
        if (!same || t->ts[row] + t->dur[row] > end) longest = row;
    }
}

/* The op with the most time of its own, where the host alone ran; a first call that sets something up is told apart. */
static void host_time(ep_study *s) {
    const ep_op_fact *o = s->facts->op_count ? &s->facts->ops[0] : NULL;
    int64_t all = 0;
    for (size_t i = 0; i < s->facts->op_count; i++) all += s->facts->ops[i].self_ns;
    if (!o || all <= 0) return;
    bool one = o->count > 1 && o->longest_self_ns * 2 > o->self_ns;
    ep_study_finding(s, "host_time", FIRST * 0.1,
                     ep_study_printf(s, "%s takes %s of the ops' time on the host: %s in %s call%s%s%s.", o->name,
                                     SHARE((double)o->self_ns / (double)all), US((double)o->self_ns * 1e-3),
                                     COUNT(o->count), o->count == 1 ? "" : "s", one ? "; one call alone takes " : "",
                                     one ? US((double)o->longest_self_ns * 1e-3) : ""));
}

/* When most of the spans are: the median start of a few. */
static int64_t usual_time(const ep_study *s) {
    enum { FEW = 15 };
    const ep_links *l = s->facts->links;
    int64_t some[FEW];
    for (size_t i = 0; i < FEW; i++) some[i] = s->trace->ts[l->order[(l->order_count - 1) * i / (FEW - 1)]];
    qsort(some, FEW, sizeof *some, ep_by_int64);
    return some[FEW / 2];
}

/* Times of another origin stretch the trace's span: no profile holds a whole day of nothing. */
static void stray_times(ep_study *s) {
    static const int64_t DAY = (int64_t)86400 * 1000000000;
    const ep_trace *t = s->trace;
    const ep_links *l = s->facts->links;
    if (s->facts->span_end_ns - s->facts->span_start_ns < DAY || !l->order_count) return;
    int64_t middle = usual_time(s), count = 0;
    uint32_t first = EP_NO_INDEX;
    for (size_t i = 0; i < t->count; i++) {
        if (!ep_event_is_span(t, i) || (t->ts[i] > middle - DAY && t->ts[i] < middle + DAY)) continue;
        if (!count++) first = (uint32_t)i;
    }
    if (count)
        ep_study_finding(s, "stray_times", FIRST * 0.93,
                         ep_study_printf(s,
                                         "%s span%s more than a day from the rest, such as %s: %s start can't be "
                                         "right, and the trace's span and its idle share are wrong with it.",
                                         COUNT(count), count == 1 ? " stands" : "s stand", ep_study_name(s, first),
                                         count == 1 ? "its" : "their"));
}

/* A second trace behind the first, such as cat makes, is not read. */
static void trailing(ep_study *s) {
    const ep_trace *t = s->trace;
    for (size_t i = 0; i < t->repair_count; i++)
        if (strcmp(ep_trace_text(t, t->repairs[i].kind), "trailing_data") == 0)
            ep_study_finding(s, "trailing", FIRST * 0.94,
                             ep_study_printf(s,
                                             "More stands behind the trace's end, from byte %lld on, and is left out. "
                                             "Several traces in one file: give each its own.",
                                             (long long)t->repairs[i].first_offset));
}

static void health_findings(ep_study *s) {
    const ep_health *h = &s->facts->health;
    if (!h->device_recorded && h->launches > 0)
        ep_study_finding(
            s, "no_device", FIRST,
            ep_study_printf(s,
                            "The device side was not recorded: %s launches and not one kernel. What ran on "
                            "the device, which ops launch nothing and what could fuse can't be told from "
                            "this trace.",
                            COUNT(h->launches)));
    if (h->span_events == 0) ep_study_finding(s, "empty", FIRST, "The trace holds no span of time at all.");
    if (h->span_events && !h->device_recorded && h->launches == 0 && !s->facts->op_count && !s->facts->region_count)
        ep_study_finding(s, "empty", FIRST,
                         ep_study_printf(s, "No op, no region and no kernel is in the trace: %s span%s of other kinds.",
                                         COUNT(h->span_events), h->span_events == 1 ? "" : "s"));
    else if (h->span_events && !h->device_recorded && h->launches == 0) {
        ep_study_finding(
            s, "host_only", FIRST,
            ep_study_printf(s, "No device events and no launches: this ran on the host, or the host alone was "
                               "recorded. The times below are the host's; kernels and fusion are not known."));
        host_time(s);
    }
    if (h->device_recorded && (h->launches_without_kernel || h->kernels_without_launch))
        ep_study_finding(
            s, "partial", FIRST * 0.9,
            ep_study_printf(s,
                            "Totals are partial: launches without a kernel: %s; kernels without a launch: %s "
                            "(queued before the window or lost).",
                            COUNT(h->launches_without_kernel), COUNT(h->kernels_without_launch)));
    stray_times(s);
    trailing(s);
    if (!h->complete)
        ep_study_finding(s, "cut_off", FIRST * 0.95, "The file does not end as it should: totals are partial.");
    if (h->kernels_before_launch)
        ep_study_finding(
            s, "clock_skew", FIRST * 0.5,
            ep_study_printf(s, "%s %s launch, by up to %s: host and device clocks differ.",
                            COUNT(h->kernels_before_launch),
                            h->kernels_before_launch == 1 ? "kernel starts before its" : "kernels start before their",
                            US((double)h->clock_skew_ns * 1e-3)));
    if (h->overlaps_on_stream) {
        bool one = h->overlaps_on_stream == 1;
        ep_study_finding(s, "overlap", FIRST * 0.4,
                         ep_study_printf(s, "%s %s on %s own stream; busy time counts each instant once.",
                                         COUNT(h->overlaps_on_stream),
                                         one ? "kernel overlaps another one" : "kernels overlap others",
                                         one ? "its" : "their"));
        name_overlaps(s);
    }
}

/* What an engineer should turn to where the device waits for launches. */
static const char *overhead_advice(const ep_study *s) {
    int64_t told = 0, idle = s->facts->span_end_ns - s->facts->span_start_ns, busy = 0;
    for (size_t i = 0; i < s->idle_count; i++) told += s->idles[i].idle_ns;
    for (size_t i = 0; i < s->facts->device_count; i++)
        if (s->facts->devices[i].busy_ns > busy) busy = s->facts->devices[i].busy_ns;
    bool host = told > (idle - busy) / 2;
    return host ? " Faster kernels will not help, nor will fewer: most of the idle time lies in regions that launch "
                  "nothing."
                : " Faster kernels will not help; fewer launches will.";
}

static void regime_finding(ep_study *s, const ep_regime_row *r) {
    double every = r->kernels ? (r->window_us > r->host_us ? r->window_us : r->host_us) / (double)r->kernels : NAN;
    double each = r->kernels ? r->busy_us / (double)r->kernels : NAN,
           idle = r->host_us > r->window_us ? r->host_us : r->window_us;
    const char *text;
    if (r->regime == EP_REGIME_OVERHEAD)
        text = ep_study_printf(
            s,
            "%s is overhead-bound as recorded: the device is busy %s of %s (%s). A kernel comes every %s "
            "and runs %s.%s",
            r->name, US(r->busy_us), US(idle), SHARE(r->busy_share), US(every), US(each),
            r->without_profiler == EP_REGIME_OVERHEAD ? overhead_advice(s) : "");
    else if (r->regime == EP_REGIME_SYNC)
        text =
            ep_study_printf(s, "%s is sync-bound: the host waits %s of %s in synchronisations, the device is busy %s.",
                            r->name, US(r->sync_us), US(r->host_us), SHARE(r->busy_share));
    else if (r->regime == EP_REGIME_COMMUNICATION)
        text = ep_study_printf(
            s,
            "%s is communication-bound: collectives take %s of %s busy (%s); much of that may be waiting for "
            "other ranks.",
            r->name, US(r->comm_us), US(r->busy_us), SHARE(r->comm_us / r->busy_us));
    else if (r->regime == EP_REGIME_MEMORY || r->regime == EP_REGIME_COMPUTE)
        text = ep_study_printf(s, "%s is %s-bound: the device is busy %s of %s (%s).", r->name,
                               ep_regime_name(r->regime), US(r->busy_us), US(idle), SHARE(r->busy_share));
    else if (r->busy_us > 0)
        text =
            ep_study_printf(s, "%s is bound by the device, busy %s of %s (%s); its kernels' names do not say by what.",
                            r->name, US(r->busy_us), US(idle), SHARE(r->busy_share));
    else
        return;
    if (!ep_study_finding(s, "regime", FIRST * 0.3, text)) return;
    const char *bound = r->without_profiler == EP_REGIME_UNKNOWN
                            ? "the device sets the pace"
                            : ep_study_printf(s, "%s-bound", ep_regime_name(r->without_profiler));
    if (r->without_profiler != r->regime)
        ep_study_evidence(s, ep_study_printf(s, "Recording itself costs the host %s to %s here; without it: %s.",
                                             US(r->profiler_low_us), US(r->profiler_high_us), bound));
    if (strcmp(r->why, "apart from one long gap") == 0)
        ep_study_evidence(s,
                          ep_study_printf(s, "One gap of %s holds most of the device's idle time and is left out here.",
                                          US(r->largest_gap_us)));
    if (isfinite(r->delay_us))
        ep_study_evidence(s, ep_study_printf(s, "Launch to kernel: median %s, longest %s (%s).", US(r->delay_us),
                                             US(r->longest_delay_us), r->why));
}

static double device_total(const ep_regime_row *r) {
    return r->busy_us * (double)r->instances;
}

/* The region a person would ask about: the most device time, the inner one among equals; the step, if the best of the
 * others covers less than most of it. */
static void regime_findings(ep_study *s) {
    const ep_regime_row *best = NULL, *step = NULL;
    for (size_t i = 0; i < s->regime_count; i++) {
        const ep_regime_row *r = &s->regimes[i];
        if (r->busy_us <= 0 || strncmp(r->name, "## Call", 7) == 0 || strncmp(r->name, "nccl:", 5) == 0) continue;
        if (strcmp(r->name, "ProfilerStep") == 0)
            step = r;
        else if (!best || device_total(r) >= 0.98 * device_total(best))
            best = r;
    }
    if (step && (!best || device_total(best) < 0.7 * device_total(step))) best = step;
    if (best) regime_finding(s, best);
    if (best && step && best != step && step->regime != best->regime) regime_finding(s, step);
}

/* "once", "3 times" */
static const char *times(ep_study *s, int64_t n) {
    return n == 1 ? "once" : ep_study_printf(s, "%s times", COUNT(n));
}

static const char *joined(ep_study *s, const char *const *ops, int n) {
    char text[256] = "";
    for (int i = 0; i < n; i++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%s", i ? " + " : "", ops[i]);
    }
    return ep_study_printf(s, "%s", text);
}

static void fusion_finding(ep_study *s, const ep_fusion_row *r) {
    double n = (double)r->instances, each = (double)r->ns * 1e-3 / n;
    const char *text = "", *what = joined(s, r->ops, r->length);
    if (strcmp(r->kind, "pointwise") == 0)
        text = ep_study_printf(
            s,
            "%s run as %d kernels: %s between them is written and read again. One kernel would move %s less "
            "and save up to %s of %s (%s).",
            what, r->length, BYTES(r->intermediate_bytes), BYTES(r->bytes_saved), US(r->us_saved), US(each),
            times(s, r->instances));
    else if (strcmp(r->kind, "epilogue") == 0)
        text = ep_study_printf(s, "%s could ride in the epilogue of %s: %s less traffic, up to %s (%s).", r->ops[1],
                               r->ops[0], BYTES(r->bytes_saved), US(r->us_saved), times(s, r->instances));
    else if (strcmp(r->kind, "copy") == 0)
        text = ep_study_printf(s, "%s copies %s that %s reads right away: read in place, it saves up to %s (%s).",
                               r->ops[0], BYTES(r->intermediate_bytes), r->ops[1], US(r->us_saved),
                               times(s, r->instances));
    else
        return;
    double worth = r->blocked_by ? r->us_saved * n * 0.1 : r->us_saved * n;
    if (!ep_study_finding(s, strcmp(r->kind, "copy") ? "fusion" : "copy", worth, text)) return;
    for (int i = 0; i < r->length && i < 4; i++) ep_study_evidence(s, short_kernel(s, r->kernels[i]));
    if (r->blocked_by) ep_study_evidence(s, ep_study_printf(s, "blocked: %s", r->blocked_by));
}

static void fusion_findings(ep_study *s) {
    int given[2] = {0, 0};
    double all = 0;
    for (size_t i = 0; i < s->facts->kernel_count; i++) all += (double)s->trace->dur[s->facts->kernels[i].event] * 1e-3;
    for (size_t i = 0; i < s->fusion_count; i++) {
        const ep_fusion_row *r = &s->fusions[i];
        bool epilogue = strcmp(r->kind, "epilogue") == 0;
        if (epilogue && r->blocked_by) continue;
        if (!isfinite(r->us_saved) || r->us_saved * (double)r->instances < 0.002 * all) continue;
        if (given[epilogue] >= (epilogue ? 2 : 4)) continue;
        given[epilogue]++;
        fusion_finding(s, r);
    }
}

static void gated_findings(ep_study *s) {
    for (size_t i = 0; i < s->gated_count && i < 3; i++) {
        const ep_gated_row *r = &s->gated[i];
        const char *bound = isfinite(r->fused_bound_us)
                                ? ep_study_printf(s, "at least %s on %s", US(r->fused_bound_us), s->machine.name)
                                : "a time that needs the device's ceilings";
        const char *text = ep_study_printf(
            s,
            "A gated MLP (%s, %s): %lld rows, %lld -> 2 x %lld -> %lld in %s. It takes %s: %s in "
            "products, %s between them; fully fused (%s never stored): %s.",
            r->act, r->form, (long long)r->m, (long long)r->k, (long long)r->n, (long long)r->out, r->dtype,
            US(r->now_us), US(r->gemm_us), US(r->pointwise_us), BYTES(r->intermediate_bytes), bound);
        if (!ep_study_finding(s, "gated_mlp", r->now_us * (double)r->count, text)) return;
        if (isfinite(r->pointwise_bound_us) && r->pointwise_us > 0 && strcmp(r->form, "eager") != 0)
            ep_study_evidence(
                s, ep_study_printf(s,
                                   "What lies between reads two results and writes one: %s at full bandwidth, so it "
                                   "runs at %s of it.",
                                   US(r->pointwise_bound_us), SHARE(r->pointwise_bound_us / r->pointwise_us)));
        if (r->pointwise_us > 0)
            ep_study_evidence(
                s, ep_study_printf(s, "With the products as fast as they run here and nothing between them: %s.",
                                   US(r->gemm_us)));
    }
}

static const char *attention_advice(const ep_attention_row *r) {
    if (r->blocked_by) return r->blocked_by;
    if (strcmp(r->form, EP_ATTENTION_FAST_PATH) == 0)
        return "PyTorch's fast path for inference stores its scores: torch.backends.mha.set_fastpath_enabled(False) "
               "lets the layer take a fused kernel.";
    if (strcmp(r->form, EP_ATTENTION_MATH) == 0)
        return "PyTorch took its own attention apart (the math backend): no fused one took these arguments, or they "
               "are switched off. Inside torch.nn.attention.sdpa_kernel of one fused backend a warning says why.";
    return "torch.nn.functional.scaled_dot_product_attention keeps the scores on the chip, a tile at a time; scale, "
           "mask and dropout are its arguments.";
}

static void attention_findings(ep_study *s) {
    bool timed = ep_study_timed(s);
    for (size_t i = 0; i < s->attention_count && i < 3; i++) {
        const ep_attention_row *r = &s->attentions[i];
        double n = (double)r->instances, each = (double)r->ns * 1e-3 / n, between = (double)r->between_ns * 1e-3 / n;
        const char *time =
            timed ? ep_study_printf(s, " It takes %s, %s of it between the two products.", US(each), US(between)) : "";
        const char *text = ep_study_printf(
            s,
            "Attention with its scores in memory, %s: batch x heads %lld, %lld queries x %lld keys, head size %lld, %s "
            "(%s). The scores are %s; these ops write and read %s of them, a fused kernel none.%s",
            times(s, r->instances), (long long)r->batch, (long long)r->queries, (long long)r->keys,
            (long long)r->head_dim, r->dtype, joined(s, r->ops, r->length), BYTES(r->scores_bytes),
            BYTES(r->bytes_saved), time);
        double worth = (double)r->between_ns * 1e-3;
        if (!ep_study_finding(s, "attention", r->blocked_by ? worth * 0.1 : worth, text)) return;
        ep_study_evidence(s, attention_advice(r));
    }
}

static void gemm_findings(ep_study *s) {
    const ep_gemm_row *g = s->gemm_count ? &s->gemms[0] : NULL;
    int64_t bias = 0, before = 0;
    for (size_t i = 0; i < s->gemm_count; i++) {
        bool has = strncmp(s->gemms[i].epilogue, "bias", 4) == 0;
        if (strstr(s->gemms[i].epilogue, "pre-filled"))
            before += s->gemms[i].count;
        else if (has)
            bias += s->gemms[i].count;
    }
    /* under a few microseconds a kernel's own start is the bound */
    if (g && isfinite(g->bound_us) && (double)g->ns * 1e-3 > fmax(5, g->bound_us) * (double)g->count) {
        double each = (double)g->ns * 1e-3 / (double)g->count,
               won = (double)g->ns * 1e-3 - g->bound_us * (double)g->count;
        ep_study_finding(
            s, "gemm_bound", won * 0.5,
            ep_study_printf(s,
                            "Of all products %s %lld x %lld x %lld (m x n x k, %s) has most to win: %s a call, %s "
                            "is its %s bound (%s); %s over %s call%s.",
                            g->op, (long long)g->m, (long long)g->n, (long long)g->k, g->dtype, US(each),
                            US(g->bound_us), ep_regime_name(g->regime), SHARE(g->bound_us / each), US(won),
                            COUNT(g->count), g->count > 1 ? "s" : ""));
        if (g->kernel) ep_study_evidence(s, short_kernel(s, g->kernel));
    }
    if (bias)
        ep_study_finding(
            s, "bias", 1,
            ep_study_printf(s, "%s product%s with the bias in the epilogue: no add kernel, no trip through memory.",
                            COUNT(bias), bias > 1 ? "s" : ""));
    if (before)
        ep_study_finding(
            s, "bias_copy", 2,
            ep_study_printf(s, "%s product%s with the bias pre-filled by a copy kernel instead of the epilogue.",
                            COUNT(before), before > 1 ? "s" : ""));
}

static void view_findings(ep_study *s) {
    if (!s->facts->health.device_recorded) return;
    const ep_op_fact *best = NULL;
    int64_t calls = 0, ns = 0;
    for (size_t i = 0; i < s->facts->op_count; i++) {
        const ep_op_fact *o = &s->facts->ops[i];
        calls += o->idle;
        ns += o->idle_self_ns;
        if (o->idle && strcmp(o->name, "aten::t") == 0) best = o;
    }
    if (!calls) return;
    const char *all =
        calls == 1
            ? ep_study_printf(s, "1 op launches nothing; it costs the host %s.", US((double)ns * 1e-3))
            : ep_study_printf(s, "%s ops launch nothing; they cost the host %s.", COUNT(calls), US((double)ns * 1e-3));
    const char *text = !best ? all
                             : ep_study_printf(s,
                                               "aten::t launches nothing in %s call%s: it rewrites sizes and strides, "
                                               "no byte moves. %s",
                                               COUNT(best->idle), S(best->idle), all);
    int64_t lost = s->facts->health.launches_without_kernel;
    if (lost)
        text = ep_study_printf(s, "%s That is as far as recorded: %s launch%s here %s no kernel in the trace.", text,
                               COUNT(lost), lost == 1 ? "" : "es", lost == 1 ? "has" : "have");
    ep_study_finding(s, "views", 0.5, text);
}

static void memset_findings(ep_study *s) {
    int64_t count = 0, bytes = 0, ns = 0;
    uint32_t owner = EP_NO_INDEX;
    for (size_t i = 0; i < s->work_count; i++) {
        const ep_device_work *w = &s->work[i];
        if (s->trace->kind[w->event] != EP_EVENT_MEMSET) continue;
        int64_t b = s->trace->infos[s->trace->info[w->event]].bytes;
        if (b < 0 || b > 4096) continue;
        count++, bytes += b, ns += s->trace->dur[w->event];
        owner = ep_work_owner(s, w);
    }
    if (!count) return;
    ep_study_finding(s, "memsets", (double)ns * 1e-3,
                     ep_study_printf(s, "%s memset%s of %s run on the device (%s in all)%s%s: launches of their own.",
                                     COUNT(count), count > 1 ? "s" : "", BYTES(bytes / count), US((double)ns * 1e-3),
                                     owner == EP_NO_INDEX ? "" : ", asked for inside ", ep_study_name(s, owner)));
}

/* What the compiler takes is no time of the model, and the ops in it mostly run on no data. */
static void compile_time(ep_study *s) {
    double span = (double)(s->facts->span_end_ns - s->facts->span_start_ns), took = (double)s->compilation_ns;
    if (span <= 0 || took < 0.03 * span) return;
    ep_study_finding(
        s, "compile_time", FIRST * 0.22,
        ep_study_printf(s,
                        "The compiler takes %s (%s of the trace) in %s compilation%s. Ops and products of "
                        "that time are the compiler's own: look at later calls alone (--step, --window).%s",
                        US(took * 1e-3), SHARE(took / span), COUNT(s->compilations), s->compilations == 1 ? "" : "s",
                        s->recompiles_unknown ? " Which are recompiles is not marked before PyTorch 2.3." : ""));
}

static void compile_findings(ep_study *s) {
    compile_time(s);
    if (s->recompile_count) {
        const ep_recompile_row *r = &s->recompiles[0];
        int64_t ns = 0;
        for (size_t i = 0; i < s->recompile_count; i++)
            if (strcmp(s->recompiles[i].kind, "compile") == 0) ns += s->recompiles[i].dur_ns;
        ep_study_finding(s, "recompile", FIRST * 0.2,
                         ep_study_printf(s, "%s recompile%s while the trace runs%s%s; the first: %s%s%s.",
                                         COUNT((int64_t)s->recompile_count), s->recompile_count > 1 ? "s" : "",
                                         ns ? ", in the compiler for " : "", ns ? US((double)ns * 1e-3) : "", r->name,
                                         r->detail ? ": " : "", r->detail ? r->detail : ""));
    }
    if (s->lookups_without_code) {
        bool one = s->lookups_without_code == 1;
        ep_study_finding(s, "uncompiled", FIRST * 0.21,
                         ep_study_printf(s,
                                         "%s of %s look-ups for compiled code %s followed by none: %s op by op. "
                                         "torch.compile gives up on a frame that was compiled too often "
                                         "(recompile_limit) and does not say so; the first is at %s.",
                                         COUNT(s->lookups_without_code), COUNT(s->lookups), one ? "is" : "are",
                                         one ? "that call ran" : "those calls ran",
                                         US((double)(s->first_without_code_ns - s->facts->span_start_ns) * 1e-3)));
    }
    if (!s->compile_count || !isfinite(s->compiles[0].call_us)) return;
    const ep_compile_row *c = &s->compiles[0];
    bool lookup = isfinite(c->lookup_us), prologue = isfinite(c->prologue_us);
    ep_study_finding(s, "compile_cost", 0.4,
                     ep_study_printf(s, "A call of compiled code costs the host %s (median)%s%s%s%s. %s: calls %s%s%s.",
                                     US(c->call_us), lookup ? ": cache look-up " : "", lookup ? US(c->lookup_us) : "",
                                     !prologue ? ""
                                     : lookup  ? ", prologue "
                                               : ": prologue ",
                                     prologue ? US(c->prologue_us) : "", c->name, COUNT(c->calls),
                                     c->entries < 0 ? "" : ", entries ", c->entries < 0 ? "" : COUNT(c->entries)));
}

/* One launch that runs many kernels: their ops can't be told apart, their order can. */
static void replay_findings(ep_study *s) {
    int64_t kernels = 0, others = 0, launches = 0, most = 0, ns = 0;
    for (size_t i = 0; i < s->trace->count; i++) {
        if (!ep_links_is_replay(s->facts->links, (uint32_t)i)) continue;
        uint32_t n = ep_links_work_count(s->facts->links, (uint32_t)i);
        launches++;
        if (n > most) most = n;
        for (uint32_t k = 0; k < n; k++) {
            uint32_t work = s->facts->links->work_list[s->facts->links->first_work[i] + k];
            *(s->trace->kind[work] == EP_EVENT_KERNEL ? &kernels : &others) += 1;
            ns += s->trace->dur[work];
        }
    }
    if (launches)
        ep_study_finding(
            s, "replay", (double)ns * 1e-5,
            ep_study_printf(s,
                            "Replay: %s graph launch%s run%s %s kernel%s%s%s%s (%s a launch at most, %s): the host "
                            "pays one launch for all of them, and no op of its own stands behind each.",
                            COUNT(launches), launches > 1 ? "es" : "", launches > 1 ? "" : "s", COUNT(kernels),
                            kernels == 1 ? "" : "s", others ? " and " : "", others ? COUNT(others) : "",
                            !others       ? ""
                            : others == 1 ? " memset or copy"
                                          : " memsets and copies",
                            COUNT(most), US((double)ns * 1e-3)));
}

static void host_findings(ep_study *s) {
    double idle = 0;
    for (size_t i = 0; i < s->facts->device_count; i++)
        idle = fmax(idle, (double)(s->facts->devices[i].span_ns - s->facts->devices[i].busy_ns) * 1e-3);
    if (s->allocator_calls)
        ep_study_finding(
            s, "allocator", (double)s->allocator_ns * 1e-3,
            ep_study_printf(s,
                            "%s call%s of the device allocator in steady state (%s on the host): memory is not reused.",
                            COUNT(s->allocator_calls), S(s->allocator_calls), US((double)s->allocator_ns * 1e-3)));
    if (s->pageable_copies)
        ep_study_finding(
            s, "pageable", (double)s->pageable_ns * 1e-3,
            ep_study_printf(s, "%s to the device from memory that is not pinned (%s, %s): no overlap with the host.",
                            s->pageable_copies == 1 ? "1 copy"
                                                    : ep_study_printf(s, "%s copies", COUNT(s->pageable_copies)),
                            BYTES(s->pageable_bytes), US((double)s->pageable_ns * 1e-3)));
    if (s->longest_sync_ns > 1000000)
        ep_study_finding(s, "sync", fmin((double)s->sync_ns * 1e-3, idle),
                         ep_study_printf(s, "The host waits %s in %s synchronisation%s; the longest is %s, %s.",
                                         US((double)s->sync_ns * 1e-3), COUNT(s->sync_calls), S(s->sync_calls),
                                         s->longest_sync, US((double)s->longest_sync_ns * 1e-3)));
    if (s->setup_us > 0 && s->setup_us > 0.05 * (double)(s->facts->span_end_ns - s->facts->span_start_ns) * 1e-3)
        ep_study_finding(
            s, "setup", s->setup_us * 0.1,
            ep_study_printf(s, "%s takes %s: set-up that only a first step pays; leave it out of any average.",
                            s->setup_op, US(s->setup_us)));
}

/* Regions without launches that the device waits for. */
static void idle_findings(ep_study *s) {
    double span = (double)(s->facts->span_end_ns - s->facts->span_start_ns);
    for (size_t i = 0; i < s->idle_count && i < 2; i++) {
        const ep_idle_row *r = &s->idles[i];
        const char *text =
            ep_study_printf(s, "%s launches nothing: %s, %s. The device idles for %s of that, %s of the trace.",
                            r->name, US((double)r->host_ns * 1e-3 / (double)r->count), times(s, r->count),
                            US((double)r->idle_ns * 1e-3), SHARE((double)r->idle_ns / span));
        if (!ep_study_finding(s, "idle_region", (double)r->idle_ns * 1e-3, text)) return;
        if (strstr(r->name, "DataLoader"))
            ep_study_evidence(s, "The next batch is not ready: more workers, prefetching or cheaper loading hide it.");
    }
}

static void communication_findings(ep_study *s) {
    int64_t exposed = s->comm_ns - s->comm_hidden_ns;
    if (s->comm_ns <= 0) return;
    ep_study_finding(s, "communication", (double)exposed * 1e-3,
                     ep_study_printf(s, "Collectives run for %s; other kernels run beside %s of it, %s is exposed.",
                                     US((double)s->comm_ns * 1e-3), US((double)s->comm_hidden_ns * 1e-3),
                                     US((double)exposed * 1e-3)));
}

/* Registers and threads of a block against what an SM holds: too few blocks hide no memory latency. */
static void occupancy_findings(ep_study *s) {
    double all = 0;
    for (size_t i = 0; i < s->facts->name_count; i++) all += (double)s->facts->names[i].total_ns;
    for (size_t i = 0; i < s->facts->kernel_count; i++) {
        const ep_kernel_fact *k = &s->facts->kernels[i];
        const ep_kernel_kind *kind = &s->facts->names[k->name_id];
        const ep_event_info *info = &s->trace->infos[s->trace->info[k->event]];
        int64_t threads = (int64_t)info->block[0] * info->block[1] * info->block[2];
        bool streams = kind->cls == EP_CLASS_POINTWISE || kind->cls == EP_CLASS_NORM || kind->cls == EP_CLASS_REDUCTION;
        if (!streams || !s->trace->info[k->event] || threads <= 0 || info->registers <= 0) continue;
        int64_t blocks = 65536 / (threads * info->registers), held = blocks * threads;
        if (held * 2 >= 2048 || (double)kind->total_ns < 0.02 * all) continue;
        char name[128];
        ep_study_finding(
            s, "occupancy", (double)kind->total_ns * 1e-4,
            ep_study_printf(s,
                            "%s: %lld threads a block with %d registers let %lld blocks on an SM (%s of its "
                            "threads): too few to hide memory latency.",
                            ep_cut(kind->name, 60, name, sizeof name), (long long)threads, info->registers,
                            (long long)blocks, SHARE((double)held / 2048)));
        return;
    }
}

static void name_findings(ep_study *s) {
    double all = 0, unknown = 0;
    int64_t own = 0, own_ns = 0;
    for (size_t i = 0; i < s->facts->name_count; i++) {
        const ep_kernel_kind *k = &s->facts->names[i];
        all += (double)k->total_ns;
        if (k->decoded.confidence < 0.5) unknown += (double)k->total_ns;
        if (strcmp(k->decoded.family, "epilogue, own kernel") == 0) own += k->count, own_ns += k->total_ns;
    }
    if (own)
        ep_study_finding(s, "epilogue_kernel", (double)own_ns * 1e-3,
                         ep_study_printf(s, "%s epilogue%s not in the GEMM but as a kernel of its own (%s).",
                                         COUNT(own), own > 1 ? "s" : "", US((double)own_ns * 1e-3)));
    if (all > 0 && unknown > 0.05 * all)
        ep_study_finding(s, "unknown_names", unknown * 1e-4,
                         ep_study_printf(s, "%s of the device's time is in kernels whose names say nothing known.",
                                         SHARE(unknown / all)));
}

/* mm then add inside linear: the bias did not make it into the product, and the strides say why. */
static void unfused_bias(ep_study *s) {
    const ep_trace *t = s->trace;
    int64_t count = 0, ns = 0;
    uint32_t example = EP_NO_INDEX;
    for (size_t i = 0; i < s->node_count; i++) {
        const ep_node *n = &s->nodes[i];
        if (n->cls != EP_CLASS_POINTWISE || ep_node_owner(s, n) == EP_NO_INDEX) continue;
        const char *name = ep_study_name(s, ep_node_owner(s, n));
        if (strcmp(name, "aten::add") != 0 && strcmp(name, "aten::add_") != 0) continue;
        uint32_t up = s->facts->links->parent[ep_node_owner(s, n)];
        while (up != EP_NO_INDEX && strcmp(ep_study_name(s, up), "aten::linear") != 0) up = s->facts->links->parent[up];
        if (up == EP_NO_INDEX) continue;
        count++;
        ns += ep_node_ns(s, n);
        example = up;
    }
    if (!count) return;
    if (!ep_study_finding(
            s, "bias_not_fused", (double)ns * 1e-3,
            ep_study_printf(s,
                            "%s linear%s with the bias in a kernel of its own (%s): the product did not take it "
                            "into its epilogue.",
                            COUNT(count), count > 1 ? "s" : "", US((double)ns * 1e-3))))
        return;
    const ep_event_info *info = &t->infos[t->info[example]];
    if (info->input_strides)
        ep_study_evidence(s,
                          ep_study_printf(s,
                                          "sizes %s, strides %s: an input that does not flatten without a copy keeps "
                                          "the bias out.",
                                          ep_trace_text(t, info->input_dims), ep_trace_text(t, info->input_strides)));
}

static int by_weight(const void *a, const void *b) {
    const ep_finding *x = a, *y = b;
    return x->weight < y->weight ? 1 : x->weight > y->weight ? -1 : strcmp(x->id, y->id);
}

ep_status ep_analyze_findings(ep_study *s, ep_error *err) {
    (void)err;
    health_findings(s);
    regime_findings(s);
    fusion_findings(s);
    gated_findings(s);
    attention_findings(s);
    gemm_findings(s);
    view_findings(s);
    memset_findings(s);
    compile_findings(s);
    host_findings(s);
    idle_findings(s);
    communication_findings(s);
    replay_findings(s);
    occupancy_findings(s);
    name_findings(s);
    unfused_bias(s);
    if (s->failed) return EP_ERROR_OUT_OF_MEMORY;
    if (s->finding_count) qsort(s->findings, s->finding_count, sizeof *s->findings, by_weight);
    return EP_OK;
}
