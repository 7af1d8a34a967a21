/* What a person reads: the guess, the run, the two side by side. 80 columns, plain words. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "run.h"

const char *run_time_text(double us, char out[24]) {
    if (!isfinite(us))
        snprintf(out, 24, "?");
    else if (us < 10)
        snprintf(out, 24, "%.2f us", us);
    else if (us < 1000)
        snprintf(out, 24, "%.1f us", us);
    else if (us < 1e4)
        snprintf(out, 24, "%.2f ms", us * 1e-3);
    else if (us < 1e6)
        snprintf(out, 24, "%.1f ms", us * 1e-3);
    else
        snprintf(out, 24, "%.2f s", us * 1e-6);
    return out;
}

const char *run_amount_text(double v, const char *unit, char out[24]) {
    static const char *const steps[] = {"", "k", "M", "G", "T", "P"};
    int i = 0;
    if (!isfinite(v)) {
        snprintf(out, 24, "?");
        return out;
    }
    while (v >= 999.5 && i < 5) v /= 1000, i++;
    snprintf(out, 24, v < 10 && i ? "%.2f %s%s" : v < 100 && i ? "%.1f %s%s" : "%.0f %s%s", v, steps[i], unit);
    return out;
}

static void count_text(double v, char out[16]) {
    if (!isfinite(v))
        snprintf(out, 16, "?");
    else if (v == floor(v))
        snprintf(out, 16, "%.0f", v);
    else
        snprintf(out, 16, "%.2f", v);
}

/* What the environment asks of the CPU's kernels, and whether it is heard. */
static void show_environment(void) {
    static const char *const rules[] = {"kernels", "onednn", "packed"};
    const char *isa = getenv("EPILOGUE_ISA"), *rule = getenv("EPILOGUE_TUNED");
    if (isa && *isa)
        printf("instruction set %s%s\n", ep_machine_isa(), *epi_isa_note() ? epi_isa_note() : " (EPILOGUE_ISA)");
    bool known = !rule || !*rule;
    for (int i = 0; i < 3 && !known; i++) known = strcmp(rule, rules[i]) == 0;
    if (!known) printf("EPILOGUE_TUNED=%.24s changes nothing: it may be kernels, onednn or packed\n", rule);
}

void run_show_request(const run_request *q, const run_setup *s) {
    bool linear = q->kind == EP_BLOCK_LINEAR;
    printf("%s: x [%" PRId64 ", %" PRId64 ", %" PRId64 "]", q->block, q->batch, q->seq, q->dim);
    if (!linear) printf(" -> hidden %" PRId64, q->hidden);
    printf(" -> %" PRId64 ", %s", q->out, ep_dtype_name(q->dtype));
    if (q->act != EP_ACT_NONE) printf(", %s", ep_act_name(q->act));
    printf(", %s\n", q->bias ? "with biases" : "no bias");
    if (s->match[0]) printf("weights from %s:\n%s", q->weights, s->match);
    if (s->match[0] && s->match[strlen(s->match) - 1] != '\n') putchar('\n');
    const char *name = s->machine.name[0] ? s->machine.name : "a machine without figures";
    if (q->device.kind == EP_DEVICE_CPU)
        printf("on the CPU, %d thread%s: %.60s\n", s->threads, s->threads == 1 ? "" : "s", name);
    else
        printf("on the GPU: %.60s\n", name);
    if (q->device.kind == EP_DEVICE_CPU) show_environment();
    if (!s->machine.measured && s->machine.name[0])
        printf("(its ceilings are estimates so far; 'epi info --measure' measures them in 5 s)\n");
}

void run_show_prediction(const run_result *r, ep_mode mode, const run_setup *s) {
    const ep_prediction *p = &r->prediction;
    char a[24], b[24], c[24];
    printf("\nGUESS %s, before it runs (one step)\n", run_mode_names[mode]);
    if (!r->predicted) {
        printf("  no guess: %s\n", r->verdict_why[0] ? r->verdict_why : "this block cannot be predicted");
        return;
    }
    if (p->ops && p->kernels == 0)
        printf("  ops      %" PRId64 ": none runs a kernel, as there is nothing to compute\n", p->ops);
    else if (p->ops)
        printf("  ops      %" PRId64 ", of which %" PRId64 " %s no kernel and move%s no byte\n", p->ops, p->views,
               p->views == 1 ? "is a view: it runs" : "are views: they run", p->views == 1 ? "s" : "");
    printf("  kernels  %" PRId64 ": %" PRId64 " matrix product%s (GEMM), %" PRId64 " pointwise\n", p->kernels, p->gemms,
           p->gemms == 1 ? "" : "s", p->pointwise);
    if (p->epilogue_kernels >= 0)
        printf("           or %" PRId64 ", where the pointwise one is faster in the products' epilogue\n",
               p->epilogue_kernels);
    if (p->apart_kernels >= 0)
        printf("           or %" PRId64 ", where gate and up apart are measured to be faster\n", p->apart_kernels);
    if (p->eager_kernels >= 0 && p->eager_kernels != p->kernels)
        printf("           or eager's %" PRId64 ", where it is faster than both\n", p->eager_kernels);
    printf("  work     %s, %s read and written\n", run_amount_text((double)p->work.flops, "FLOP", a),
           run_amount_text((double)(p->work.bytes_read + p->work.bytes_written), "B", b));
    printf("  time     %s to %s (%s: %s, %s)\n", run_time_text(p->low_us, a), run_time_text(p->high_us, b),
           s->machine.measured ? "least possible" : "estimated bound", run_time_text(p->bound.us, c),
           s->machine.measured ? "by measured ceilings" : "good to a factor of 2");
    printf("  bound by %s\n", p->regime == EP_REGIME_COMPUTE    ? "compute: the arithmetic takes longest"
                              : p->regime == EP_REGIME_MEMORY   ? "memory: moving the bytes takes longest"
                              : p->regime == EP_REGIME_OVERHEAD ? "overhead: the host's work takes longest"
                                                                : "what, nobody knows");
}

/* The guess in one line, for the modes beside the first. */
void run_show_prediction_line(const run_result *r, ep_mode mode) {
    const ep_prediction *p = &r->prediction;
    char a[24], b[24], c[24];
    if (!r->predicted) return;
    printf("\nGUESS %s: %" PRId64 " kernel%s (%" PRId64 " GEMM, %" PRId64 " pointwise), %s, %s to %s\n",
           run_mode_names[mode], p->kernels, p->kernels == 1 ? "" : "s", p->gemms, p->pointwise,
           run_amount_text((double)(p->work.bytes_read + p->work.bytes_written), "B", a), run_time_text(p->low_us, b),
           run_time_text(p->high_us, c));
    if (p->kernel_range.low < p->kernel_range.high)
        printf("  (or %" PRId64 " to %" PRId64 " kernels: which way wins is measured)\n", p->kernel_range.low,
               p->kernel_range.high);
}

static void kernel_line(const run_kernel *k, double all_us) {
    enum { NAME = 41 };
    char t[24], n[16], reached[16] = "-";
    double share = all_us > 0 ? 100 * k->us / all_us : 0, of = 100 * k->bound_us / k->us;
    count_text(k->count, n);
    if (isfinite(of)) snprintf(reached, sizeof reached, of < 0.95 ? "%.1f%%" : "%.0f%%", of);
    if (strlen(k->name) > NAME)
        printf("  %.*s..", NAME - 2, k->name);
    else
        printf("  %-*s", NAME, k->name);
    printf(" %5s %10s %5.*f%% %11s\n", n, run_time_text(k->us, t), share < 9.95 ? 1 : 0, share, reached);
}

static void show_error(const run_request *q, const run_result *r) {
    if (isnan(r->error_abs)) {
        printf("  error    not checked: the result is empty\n");
        return;
    }
    printf("  error    at most %.1e against f64: %.2g%% of the value (%" PRId64 " of %" PRId64 " rows)\n", r->error_abs,
           100 * r->error_rel, r->error_rows, q->batch * q->seq);
}

static void show_compile(const run_result *r) {
    char a[24], b[24];
    if (!r->has_compile) return;
    printf("  compile  %" PRId64 " entr%s, %" PRId64 " recompile%s, ready after %s; calls waited %s\n",
           r->compile.entries, r->compile.entries == 1 ? "y" : "ies", r->compile.recompiles,
           r->compile.recompiles == 1 ? "" : "s", run_time_text(r->compile.cold_us, a),
           run_time_text(r->compile.waited_us, b));
    if (r->compile.build_failures)
        printf("  NOT BUILT: %" PRId64 " generated kernel%s; these calls are answered by %s\n",
               r->compile.build_failures, r->compile.build_failures == 1 ? "" : "s",
               r->answer == EP_ANSWER_PLAN || r->answer == EP_ANSWER_POST_OPS ? "a plan without" : "eager");
    if (*r->not_built) epi_wrap(r->not_built, printf("    "), 4, 80);
    if (r->compile.builds_not_kept)
        printf("  cache    %s, kernel%s not kept: the next process builds again\n", r->compile.cache_trouble,
               r->compile.builds_not_kept == 1 ? "" : "s");
    else if (*r->compile.cache_trouble)
        epi_wrap(r->compile.cache_trouble, printf("  cache    none: "), 11, 80);
}

static void show_packed(const run_result *r, ep_mode mode) {
    char a[24], b[24];
    if (r->packed_bytes > 0)
        printf("  packed   %s of weights, once, %s%s\n", run_amount_text((double)r->packed_bytes, "B", a),
               mode == EP_MODE_TUNED ? "in " : "beside the calls",
               mode == EP_MODE_TUNED ? run_time_text(r->cold_us, b) : "");
    if (r->has_compile && r->compile.packed_freed_bytes > 0)
        printf("  freed    %s of packed weights: another way was faster for their products\n",
               run_amount_text((double)r->compile.packed_freed_bytes, "B", a));
}

/* What recording cost: the events of a step times the price of one, beside the step. */
static void show_own_cost(const run_result *r) {
    char a[24], b[24];
    double own = r->events * r->own_ns * 1e-3, share = r->step_median > 0 ? 100 * own / r->step_median : 0;
    printf("  profiler %.0f events of %.0f ns: %s, %.*f%% (the step with it on: %s)\n", r->events, r->own_ns,
           run_time_text(own, a),
           share < 1      ? 2
           : share < 9.95 ? 1
                          : 0,
           share, run_time_text(r->profiled_median, b));
    if (r->dropped) printf("  PARTIAL: %" PRId64 " events found the ring full and are missing\n", r->dropped);
}

/* Each line of the text behind `head`, wrapped. */
static void show_lines(const char *head, const char *text) {
    char line[400];
    int indent = (int)strlen(head);
    for (; *text; text += strcspn(text, "\n") + (strchr(text, '\n') != NULL)) {
        snprintf(line, sizeof line, "%.*s", (int)strcspn(text, "\n"), text);
        fputs(head, stdout);
        epi_wrap(line, indent, indent, 80);
    }
}

void run_show_result(const run_request *q, const run_result *r, ep_mode mode, bool brief) {
    char a[24], b[24], c[24];
    if (!brief) putchar('\n');
    printf("RAN %s: %" PRId64 " recorded steps after %" PRId64 " to warm up. One step:\n", run_mode_names[mode],
           r->steps, q->warmup);
    printf("  %-41s %5s %10s %6s %11s\n", "kernel", "runs", "time", "share", "of ceiling");
    for (int i = 0; i < r->kernel_count; i++) kernel_line(&r->kernel[i], r->kernel_us);
    if (r->kernel_count && !brief)
        printf("  (of ceiling: the least time this work can take here, over the time it took)\n");
    if (!r->kernel_count) printf("  none: there is nothing to compute\n");
    printf("  step     %s, median of %" PRId64 " (%s to %s), recording off\n", run_time_text(r->step_median, a),
           r->timed_steps, run_time_text(r->step_min, b), run_time_text(r->step_max, c));
    printf("  host     %s besides the kernels: checks, shapes, choosing kernels\n", run_time_text(r->dispatch_us, a));
    show_compile(r);
    show_packed(r, mode);
    show_lines("  choice   ", r->choices);
    show_error(q, r);
    show_own_cost(r);
    if (r->trace_path[0]) printf("  trace    %s\n", r->trace_path);
}

ep_regime run_seen_regime(const run_request *q, const run_setup *s, const run_result *r) {
    if (!r->ran || !(r->step_median > 0)) return EP_REGIME_UNKNOWN;
    if (r->dispatch_us > r->kernel_us) return EP_REGIME_OVERHEAD;
    double us[2] = {0};
    for (int i = 0; i < r->kernel_count; i++) {
        const run_kernel *k = &r->kernel[i];
        if (!isfinite(k->flops) || !isfinite(k->bytes)) return EP_REGIME_UNKNOWN;
        ep_work w = {(int64_t)k->flops, (int64_t)k->bytes, 0};
        us[ep_machine_bound(&s->machine, &w, q->dtype, s->threads).regime == EP_REGIME_MEMORY] += k->us;
    }
    return us[1] > us[0] ? EP_REGIME_MEMORY : EP_REGIME_COMPUTE;
}

static const char *short_claim(const char *claim) {
    static const char region[] = "step: ";
    return strncmp(claim, region, sizeof region - 1) == 0 ? claim + sizeof region - 1 : claim;
}

/* The figure without the words around it: "5 in each of 5 instances" is 5. */
static int short_seen(const char *seen) {
    const char *each = strstr(seen, " in each of "), *more = strstr(seen, " (");
    if (each && (!more || each < more)) more = each;
    int n = more ? (int)(more - seen) : (int)strlen(seen);
    return n > 30 ? 30 : n;
}

static void verdict_line(const ep_verdict *v) {
    static const char *const marks[] = {"yes", "NO ", " ? "};
    const char *seen = v->seen ? v->seen : "";
    printf("  %s  %-40.40s %.*s\n", marks[v->kind], short_claim(v->claim), short_seen(seen), seen);
}

/* The kernel that is furthest from its ceiling, in time: where a slow step was lost. */
static const run_kernel *slowest(const run_result *r) {
    const run_kernel *worst = NULL;
    double most = 0;
    for (int i = 0; i < r->kernel_count; i++) {
        double lost = r->kernel[i].us - r->kernel[i].bound_us;
        if (isfinite(lost) && lost > most) {
            most = lost;
            worst = &r->kernel[i];
        }
    }
    return worst;
}

static void surprise(int number, const ep_verdict *v, const run_result *r) {
    char a[24], b[24], text[1024];
    snprintf(text, sizeof text, "The guess was \"%s\". Seen: %s.", short_claim(v->claim),
             v->seen ? v->seen : "nothing");
    printf("  %d. ", number);
    epi_wrap(text, 5, 5, 80);
    const run_kernel *k = strstr(v->claim, "time") ? slowest(r) : NULL;
    if (k && k->us > 0.2 * r->kernel_us) {
        snprintf(text, sizeof text, "Most of the lost time is in %s: it took %s where %s is possible.", k->name,
                 run_time_text(k->us, a), run_time_text(k->bound_us, b));
        printf("     ");
        epi_wrap(text, 5, 5, 80);
    } else if (v->event && *v->event) {
        snprintf(text, sizeof text, "First seen at %s.", v->event);
        printf("     ");
        epi_wrap(text, 5, 5, 80);
    }
}

static bool is_pointwise(const char *name) {
    ep_kernel_name n;
    ep_kernel_name_decode(name, &n); /* a library's products say in no way that they are some: nvjet, cutlass */
    return strcmp(n.class_name, "pointwise") == 0;
}

/* What people do not expect even where every number was right. */
static void worth_knowing(const run_result *r) {
    double us = 0, flops = 0, bytes = 0;
    int n = 0;
    char a[24];
    for (int i = 0; i < r->kernel_count; i++) {
        if (!is_pointwise(r->kernel[i].name)) continue;
        us += r->kernel[i].us;
        flops += r->kernel[i].flops;
        bytes += r->kernel[i].bytes;
        n++;
    }
    if (!n || !(r->kernel_us > 0) || !(us / r->kernel_us > 0.03) || !isfinite(bytes) || !(r->flops > 0)) return;
    char text[400];
    snprintf(text, sizeof text,
             "Worth knowing: the pointwise kernels do %.2g%% of the arithmetic and take %.0f%% of the time. They only "
             "carry %s through memory; fused, most of that trip is gone (--mode all shows it).",
             100 * flops / r->flops, 100 * us / r->kernel_us, run_amount_text(bytes, "B", a));
    putchar('\n');
    epi_wrap(text, 0, 0, 80);
}

void run_show_verdicts(const run_result *r, ep_mode mode, bool brief) {
    ep_verdict v;
    size_t yes = 0, no = 0, unknown = 0;
    if (!r->verdicts) {
        if (r->verdict_why[0]) printf("\nNo verdict: %s\n", r->verdict_why);
        return;
    }
    ep_verdicts_totals(r->verdicts, &yes, &no, &unknown);
    if (r->sharpened && !brief)
        printf("\nSHARPENED, by the choice: %" PRId64 " kernels, %" PRId64 " GEMM and %" PRId64 " pointwise\n",
               r->sharp.kernels, r->sharp.gemms, r->sharp.pointwise);
    if (brief)
        printf("LOOK %s: %zu of %zu claims held\n", run_mode_names[mode], yes, yes + no + unknown);
    else
        printf("\nLOOK %s: did the guess hold?\n       %-40s %s\n", run_mode_names[mode], "guessed",
               "seen in each step");
    for (size_t i = 0; !brief && i < ep_verdicts_count(r->verdicts); i++)
        if (ep_verdicts_get(r->verdicts, i, &v) == EP_OK) verdict_line(&v);
    if (no)
        printf("%sSURPRISE%s, biggest first\n", brief ? "" : "\n", no > 1 ? "S" : "");
    else if (!brief)
        printf("\nNo surprise: %zu of %zu claims held%s.\n", yes, yes + unknown,
               unknown ? ", the others stay open" : "");
    int number = 0;
    for (size_t i = 0; i < ep_verdicts_count(r->verdicts); i++)
        if (ep_verdicts_get(r->verdicts, i, &v) == EP_OK && v.kind == EP_VERDICT_BROKEN) surprise(++number, &v, r);
    if (mode == EP_MODE_EAGER) worth_knowing(r);
}

void run_show_autotuned(const run_setup *s) {
    const char *chosen = ep_context_autotuned(s->ctx);
    printf("\nAUTOTUNED\n");
    if (!*chosen) printf("  nothing: no product went to a library that has several algorithms\n");
    show_lines("  ", chosen);
}

void run_show_side_by_side(const run_result r[EP_MODE_COUNT]) {
    char a[24], b[24], c[24], d[24], e[24], kernels[16], ops[16], ratio[16];
    int rounds = 0;
    for (int m = 0; m < EP_MODE_COUNT; m++)
        if (r[m].race_rounds) rounds = r[m].race_rounds;
    printf("\nSIDE BY SIDE (one step");
    if (rounds) printf("; the modes in turn, %d rounds", rounds);
    printf(")\n  %-9s%7s%5s%10s%7s%11s%10s%9s%10s\n", "mode", "kernels", "ops", "step", "ratio", "in kernels", "host",
           "bytes", "possible");
    for (int m = 0; m < EP_MODE_COUNT; m++) {
        const run_result *x = &r[m];
        if (!x->ran) continue;
        count_text(x->kernels, kernels);
        count_text(x->ops, ops);
        snprintf(ratio, sizeof ratio, isfinite(x->race_ratio) ? "%.2f" : "-", x->race_ratio);
        printf("  %-9s%7s%5s%10s%7s%11s%10s%9s%10s\n", run_mode_names[m], kernels, ops,
               run_time_text(x->race_rounds ? x->race_us : x->step_median, a), ratio, run_time_text(x->kernel_us, b),
               run_time_text(x->dispatch_us, c), run_amount_text(x->bytes, "B", d), run_time_text(x->bound_us, e));
    }
    printf("  (ratio: to eager in the same round; possible: the least time for this work)\n");
    for (int m = 0; m < EP_MODE_COUNT; m++)
        if (!r[m].ran && r[m].why_not[0]) printf("  %-9s not available: %s\n", run_mode_names[m], r[m].why_not);
}
