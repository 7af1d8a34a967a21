/* ep_diff: two studies, their regions paired and aligned, written as text and JSON; and what --fail-on asks of it. */
#include "diff.h"

#include <stdlib.h>

static void destroy(void *p) {
    ep_diff_result *d = p;
    if (!d) return;
    for (size_t i = 0; i < d->region_count; i++) {
        ep_diff_region *r = &d->regions[i];
        for (size_t k = 0; k < r->pair_count; k++) {
            free(r->pairs[k].a);
            free(r->pairs[k].b);
        }
        free(r->pairs);
        free(r->host);
        free(r->a.items);
        free(r->b.items);
    }
    free(d->regions);
    free(d->sentences);
    ep_text_free(&d->summary);
    ep_intern_free(&d->names);
    ep_arena_free(&d->arena);
    ep_study_destroy(d->a);
    ep_study_destroy(d->b);
    free(d);
}

static ep_status study(const ep_trace *t, const char *label, const ep_analysis_options *options, ep_error *err,
                       ep_study **out) {
    EP_TRY(ep_study_create(t, label, options, err, out));
    EP_TRY(ep_study_run(*out, err));
    return ep_study_node_of(*out) ? EP_OK : ep_fail(err, EP_ERROR_OUT_OF_MEMORY, "no memory for a comparison");
}

static ep_status write(ep_diff_result *d, const ep_analysis_options *options, ep_report *report) {
    ep_text text = {0};
    ep_json_out json = {.indent = 1};
    ep_diff_text(d, &text, options && options->width > 0 ? options->width : 80);
    ep_diff_json(d, &json);
    report->json = ep_json_take(&json);
    report->text = ep_text_take(&text);
    ep_json_free(&json);
    ep_text_free(&text);
    return report->json && report->text ? EP_OK : EP_ERROR_OUT_OF_MEMORY;
}

ep_status ep_diff(const ep_trace *a, const ep_trace *b, const char *label_a, const char *label_b,
                  const ep_analysis_options *options, ep_error *err, ep_report **out) {
    if (!a || !b) return ep_fail(err, EP_ERROR_INVALID_ARGUMENT, "diff wants two traces");
    ep_diff_result *d = calloc(1, sizeof *d);
    ep_report *report = calloc(1, sizeof *report);
    ep_status status = d && report ? EP_OK : EP_ERROR_OUT_OF_MEMORY;
    if (status == EP_OK) {
        d->label_a = label_a ? label_a : "a";
        d->label_b = label_b ? label_b : "b";
        report->diff = d;
        report->destroy_diff = destroy;
        status = study(a, d->label_a, options, err, &d->a);
        if (status == EP_OK) status = study(b, d->label_b, options, err, &d->b);
    }
    if (status == EP_OK && !(ep_diff_regions(d) && ep_diff_sentences(d))) status = EP_ERROR_OUT_OF_MEMORY;
    if (status == EP_OK) status = write(d, options, report);
    if (status != EP_OK) {
        if (status == EP_ERROR_OUT_OF_MEMORY) ep_fail(err, status, "no memory to compare the traces");
        if (report && report->diff)
            ep_report_destroy(report);
        else
            free(d), free(report);
        return status;
    }
    *out = report;
    return EP_OK;
}
