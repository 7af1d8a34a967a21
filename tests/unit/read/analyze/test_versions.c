/* What traces of several versions of PyTorch say, and what must not be said of them: recordings of our own on a processor,
 * and small files for times and texts that no version writes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <epilogue/analyze.h>

static const struct {
    const char *file;
    const char *has[5], *lacks[3]; /* with blanks folded */
} cases[] = {
    /* 2.1 marks no call of compiled code: a look-up that is followed by ops may have found some. */
    {"versions/torch-2.1-compiled.json.gz", {"HEALTH complete: 140 events"}, {"look-up", "COMPILED"}},
    {"versions/torch-2.1-recompile.json.gz",
     {"in 2 compilations.", "Which are recompiles is not marked before PyTorch 2.3."},
     {"op by op", "1 recompile"}},
    /* 2.4 marks it without frame and entry. */
    {"versions/torch-2.4-compiled.json.gz",
     {"Torch-Compiled Region: 3 calls; a call 124.5 us on the host, look-up 6.4 us"},
     {"op by op", "entr"}},
    {"versions/torch-2.4-recompile.json.gz",
     {"Torch-Compiled Region: 4 calls; a call 120.3 us", "1 recompile while the trace runs, in the compiler for 2.85 s",
      "The compiler takes 7.85 s (100.0 % of the trace) in 2 compilations."},
     {"op by op", "before PyTorch 2.3"}},
    /* In 2.6 the new code's own helpers are looked up when it runs for the first time. */
    {"versions/torch-2.6-recompile.json.gz",
     {"Torch-Compiled Region: 0: 4 calls, 2 entries", "entry 1 of frame 0 after entry 0: sizes [[128], [8, 64]",
      "The compiler takes 7.62 s (99.8 % of the trace)"},
     {"op by op"}},
    /* A region that is still open at the end has the length 0 minus its start in 1.13. */
    {"versions/torch-1.13-unfinished.json.gz",
     {"complete: 130 events, 120 spans", "mended: negative_dur, 1 time", "never_closed 1 0.0 0.0"},
     {"PARTIAL", "could not be kept"}},
    /* Quotes, backslashes, control bytes and markup in names; one name that is JSON itself can't be saved. */
    {"versions/torch-2.11-names.json.gz", {"say \"hi\" 1", "<b>html</b>&amp; 1", "1 event could not be kept"}, {NULL}},
    /* What the allocators held, worked out by hand from the [memory] events. */
    {"shared/bert-small-h100.json.gz",
     {"cuda:0: at most 101.3 MB allocated, at 4680 us in aten::empty of aten::",
      "91.4 MB before the first of 218 events, 91.4 MB after the last; at most 121.6 MB reserved",
      "cpu: at most 16 B allocated, at 1567 us in aten::empty"},
     {NULL}},
    {"shared/resnet18-cpu-windows.json",
     {"cpu: at most 117.3 MB allocated, at 140.1 ms in aten::mkldnn_convolution",
      "0 B before the first of 496 events, 0 B after the last"},
     {NULL}},
    {"explain/memory.json",
     {"cuda:1: at most 900 B allocated, at 6.0 us in aten::empty of aten::mm (fwd); 100 B before the first of 3 "
      "events, "
      "-50 B after the last; at most 4.1 kB reserved",
      "type 99: at most 7 B allocated, at 8.0 us; 0 B before the first of 1 event, 7 B after the last"},
     {NULL}},
    {"explain/stray.json",
     {"2 spans stand more than a day from the rest, such as aten::lost: their start can't be right"},
     {NULL}},
    {"explain/two_traces.json", {"More stands behind the trace's end, from byte 267 on, and is left out."}, {NULL}},
};

/* Runs of blanks and line breaks as one blank, so that the page's line ends don't matter. */
static void fold(const char *text, char *out, size_t size) {
    size_t n = 0;
    for (; *text && n + 1 < size; text++) {
        bool blank = *text == ' ' || *text == '\n';
        if (blank && n && out[n - 1] == ' ') continue;
        out[n++] = blank ? ' ' : *text;
    }
    out[n] = 0;
}

static void test_cases(void **state) {
    (void)state;
    static char flat[1 << 16];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[512];
        ep_error err;
        ep_report *r = NULL;
        snprintf(path, sizeof path, EP_TEST_DIR "/trace/%s", cases[i].file);
        const char *file = path;
        ep_trace *t = NULL;
        if (ep_trace_read(path, NULL, &err, &t) != EP_OK) fail_msg("%s: %s", path, err.message);
        const ep_trace *list[] = {t};
        if (ep_explain(list, &file, 1, NULL, &err, &r) != EP_OK) fail_msg("%s: %s", path, err.message);
        ep_trace_destroy(t);
        fold(ep_report_text(r), flat, sizeof flat);
        for (size_t k = 0; k < 5 && cases[i].has[k]; k++)
            if (!strstr(flat, cases[i].has[k])) fail_msg("%s: no '%s' in\n%s", path, cases[i].has[k], flat);
        for (size_t k = 0; k < 3 && cases[i].lacks[k]; k++)
            if (strstr(flat, cases[i].lacks[k])) fail_msg("%s: '%s' in\n%s", path, cases[i].lacks[k], flat);
        ep_report_destroy(r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
