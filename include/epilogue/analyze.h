/* analyze.h: findings about one trace or two. An analysis is run by name over shared facts computed once. */
#ifndef EPILOGUE_ANALYZE_H
#define EPILOGUE_ANALYZE_H

#include "trace.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ep_analysis_options {
    const char *machine; /* a machine file for the bounds, or NULL: by the device's name */
    const char *region;  /* only this region (glob), or NULL */
    int width;           /* text width, 0: 80 */
} ep_analysis_options;

typedef struct ep_report ep_report;
/* `explain` over one trace or several ranks of one run (labels: their file names, for the output). */
EP_API ep_status ep_explain(const ep_trace *const *traces, const char *const *labels, size_t count,
                            const ep_analysis_options *options, ep_error *err, ep_report **out);
/* `diff` of a against b. */
EP_API ep_status ep_diff(const ep_trace *a, const ep_trace *b, const char *label_a, const char *label_b,
                         const ep_analysis_options *options, ep_error *err, ep_report **out);
/* Does `expression` ("kernels > +0; device time > 5%") hold? 1 in *failed and a sentence if it does. */
EP_API ep_status ep_diff_fail_on(const ep_report *diff, const char *expression, ep_error *err, bool *failed,
                                 char *sentence, size_t sentence_size);
EP_API void ep_report_destroy(ep_report *report);
/* Text for people, and the object of `epi explain --json` or `epi diff --json`. Owned by the report. */
EP_API const char *ep_report_text(const ep_report *report);
EP_API const char *ep_report_json(const ep_report *report);

/* Ops in time order at one level, as text: owned by the report. */
typedef struct ep_list_options {
    int level;    /* 0: outermost ops */
    bool kernels; /* list kernels under each op */
    const char *region;
    int width;
} ep_list_options;
EP_API ep_status ep_list(const ep_trace *trace, const ep_list_options *options, ep_error *err, ep_report **out);

/* One self-contained HTML page for one trace or two; `verdicts_json` (from ep_verdicts_json) may be NULL. */
EP_API ep_status ep_report_html(const ep_trace *const *traces, const char *const *labels, size_t count,
                                const char *verdicts_json, const ep_analysis_options *options, const char *path,
                                ep_error *err);

/* A kernel name taken apart. Text fields are "" where unknown; confidence is 0 to 1. */
typedef struct ep_kernel_name {
    char class_name[16]; /* gemm conv attention pointwise reduction norm copy memset collective other */
    char vendor[24], family[32], arch[16], dtype[24], tile[24], layout[16], epilogue[64], note[160];
    int stages, split_k; /* 0: unknown */
    double confidence;
} ep_kernel_name;
EP_API void ep_kernel_name_decode(const char *name, ep_kernel_name *out);

#ifdef __cplusplus
}
#endif
#endif
