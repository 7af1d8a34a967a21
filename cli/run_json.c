/* The object of `epi run --json`: null where a figure is unknown. */
#include <math.h>

#include "json_out.h"
#include "run.h"

static void put_machine(json_out *j, const run_setup *s) {
    const ep_machine *m = &s->machine;
    json_object(j, "machine");
    json_text(j, "name", m->name[0] ? m->name : NULL);
    json_text(j, "source", m->source[0] ? m->source : NULL);
    json_bool(j, "measured", m->measured);
    json_object(j, "peak_gflops");
    for (int d = 0; d <= EP_DTYPE_F16; d++)
        json_number(j, ep_dtype_name((ep_dtype)d), m->gflops[d][1] > 0 ? m->gflops[d][1] : NAN);
    json_end(j);
    json_number(j, "bandwidth_gbs", m->read_gbs[1] > 0 ? m->read_gbs[1] : NAN);
    json_number(j, "dispatch_ns", m->dispatch_ns > 0 ? m->dispatch_ns : NAN);
    json_end(j);
}

static void put_kernels(json_out *j, const run_result *r) {
    json_array(j, "kernels");
    for (int i = 0; i < r->kernel_count; i++) {
        const run_kernel *k = &r->kernel[i];
        json_object(j, NULL);
        json_text(j, "name", k->name);
        json_number(j, "count", k->count);
        json_number(j, "us", k->us);
        json_number(j, "bytes", k->bytes);
        json_number(j, "flops", k->flops);
        json_number(j, "bound_us", k->bound_us);
        json_end(j);
    }
    json_end(j);
}

static void put_compile(json_out *j, const run_result *r) {
    bool known = r->has_compile;
    json_object(j, "compile");
    json_number(j, "entries", known ? (double)r->compile.entries : NAN);
    json_number(j, "recompiles", known ? (double)r->compile.recompiles : NAN);
    json_number(j, "cold_us", known ? r->compile.cold_us : NAN);
    json_number(j, "waited_us", known ? r->compile.waited_us : NAN);
    json_number(j, "build_failures", known ? (double)r->compile.build_failures : NAN);
    json_number(j, "builds_not_kept", known ? (double)r->compile.builds_not_kept : NAN);
    json_text(j, "not_built", known && *r->not_built ? r->not_built : NULL);
    json_text(j, "cache_trouble", known && *r->compile.cache_trouble ? r->compile.cache_trouble : NULL);
    json_end(j);
}

static void put_mode(json_out *j, const run_result *r, ep_mode mode) {
    json_object(j, NULL);
    json_text(j, "mode", run_mode_names[mode]);
    json_number(j, "kernels_per_step", r->kernels);
    json_number(j, "ops_per_step", r->ops);
    json_number(j, "views_per_step", r->views);
    json_number(j, "launches_per_step", r->launches);
    json_object(j, "step_us");
    json_number(j, "median", r->step_median);
    json_number(j, "min", r->step_min);
    json_number(j, "max", r->step_max);
    json_int(j, "steps", r->timed_steps);
    json_number(j, "profiled_median", r->profiled_median);
    json_end(j);
    json_object(j, "in_turn");
    json_number(j, "us", r->race_us);
    json_number(j, "ratio_to_eager", r->race_ratio);
    json_int(j, "rounds", r->race_rounds);
    json_end(j);
    json_number(j, "kernel_us", r->kernel_us);
    json_number(j, "dispatch_us", r->dispatch_us);
    json_number(j, "bytes", r->bytes);
    json_number(j, "flops", r->flops);
    json_number(j, "bound_us", r->bound_us);
    json_number(j, "first_call_us", r->cold_us);
    json_number(j, "packed_bytes", mode != EP_MODE_EAGER ? (double)r->packed_bytes : NAN);
    json_number(j, "packed_freed_bytes", mode == EP_MODE_COMPILED ? (double)r->compile.packed_freed_bytes : NAN);
    json_text(j, "choices", mode != EP_MODE_EAGER ? r->choices : NULL);
    put_compile(j, r);
    json_object(j, "error");
    json_number(j, "max_abs", r->error_abs);
    json_number(j, "max_rel", r->error_rel);
    json_text(j, "vs", isnan(r->error_abs) ? NULL : "f64");
    json_int(j, "rows", r->error_rows);
    json_end(j);
    json_object(j, "profiler");
    json_number(j, "events_per_step", r->events);
    json_number(j, "ns_per_event", r->own_ns);
    json_int(j, "dropped", r->dropped);
    json_end(j);
    put_kernels(j, r);
    json_text(j, "trace", r->trace_path[0] ? r->trace_path : NULL);
    json_end(j);
}

static void put_verdicts(json_out *j, const run_result *r, ep_mode mode) {
    static const char *const words[] = {"confirmed", "broken", "unknown"};
    ep_verdict v;
    for (size_t i = 0; r->verdicts && i < ep_verdicts_count(r->verdicts); i++) {
        if (ep_verdicts_get(r->verdicts, i, &v) != EP_OK) continue;
        json_object(j, NULL);
        json_text(j, "mode", run_mode_names[mode]);
        json_text(j, "claim", v.claim);
        json_int(j, "line", v.line);
        json_text(j, "verdict", words[v.kind]);
        json_text(j, "expected", v.expected);
        json_text(j, "seen", v.seen);
        json_number(j, "surprise", v.surprise);
        json_text(j, "event", v.event);
        json_end(j);
    }
}

static void put_predictions(json_out *j, const run_result r[EP_MODE_COUNT]) {
    json_array(j, "predictions");
    for (int m = 0; m < EP_MODE_COUNT; m++) {
        const ep_prediction *p = &r[m].prediction;
        if (!r[m].predicted) continue;
        json_object(j, NULL);
        json_text(j, "mode", run_mode_names[m]);
        json_int(j, "ops", p->ops);
        json_int(j, "views", p->views);
        json_int(j, "kernels", p->kernels);
        json_int(j, "kernels_low", p->kernel_range.low);
        json_int(j, "kernels_high", p->kernel_range.high);
        json_number(j, "kernels_once_chosen", r[m].sharpened ? (double)r[m].sharp.kernels : NAN);
        json_int(j, "gemms", p->gemms);
        json_int(j, "pointwise", p->pointwise);
        json_int(j, "flops", p->work.flops);
        json_int(j, "bytes", p->work.bytes_read + p->work.bytes_written);
        json_number(j, "bound_us", p->bound.us);
        json_number(j, "low_us", p->low_us);
        json_number(j, "high_us", p->high_us);
        json_text(j, "bound", ep_regime_name(p->regime));
        json_end(j);
    }
    json_end(j);
}

void run_show_json(const run_request *q, const run_setup *s, const run_result r[EP_MODE_COUNT]) {
    json_out out = {.to = stdout}, *j = &out;
    json_object(j, NULL);
    json_text(j, "block", q->block);
    json_text(j, "device", q->device.kind == EP_DEVICE_CPU ? "cpu" : "cuda");
    json_int(j, "device_index", q->device.index);
    json_text(j, "dtype", ep_dtype_name(q->dtype));
    json_text(j, "act", ep_act_name(q->act));
    json_bool(j, "bias", q->bias);
    json_text(j, "rounding", q->rounding == EP_ROUNDING_EAGER ? "eager" : "fewest");
    json_int(j, "threads", s->threads);
    json_object(j, "shape");
    json_int(j, "batch", q->batch);
    json_int(j, "seq", q->seq);
    json_int(j, "dim", q->dim);
    json_number(j, "hidden", q->kind == EP_BLOCK_LINEAR ? NAN : (double)q->hidden);
    json_int(j, "out", q->out);
    json_end(j);
    put_machine(j, s);
    put_predictions(j, r);
    json_array(j, "modes");
    for (int m = 0; m < EP_MODE_COUNT; m++)
        if (r[m].ran) put_mode(j, &r[m], (ep_mode)m);
    json_end(j);
    json_array(j, "unavailable");
    for (int m = 0; m < EP_MODE_COUNT; m++) {
        if (r[m].ran || !r[m].why_not[0]) continue;
        json_object(j, NULL);
        json_text(j, "mode", run_mode_names[m]);
        json_text(j, "why", r[m].why_not);
        json_end(j);
    }
    json_end(j);
    json_array(j, "verdicts");
    for (int m = 0; m < EP_MODE_COUNT; m++) put_verdicts(j, &r[m], (ep_mode)m);
    json_end(j);
    json_text(j, "report", q->report);
    json_finish(j);
}
