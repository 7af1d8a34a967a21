/* `epi bench`: the problems of a shape file, in every mode, as ratios within one run. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "json_out.h"
#include "run_bench.h"

enum { MOST_LINE = 200 };

static const char usage[] =
    "usage: epi bench FILE [OPTIONS]\n\n"
    "Times every problem of FILE in every mode, in turn, and gives the ratios within this\n"
    "run. A line of FILE: BLOCK batch=N seq=N dim=N hidden=N out=N bias=1 act=NAME dtype=NAME.\n"
    "bench/shapes/ has files named for models.";

typedef struct bench {
    const char *path;
    int64_t rounds, threads;
    bool csv, json;
    bench_row *rows;
    size_t count, cap;
    char machine[96];
    int used_threads;
} bench;

static int bad_line(const bench *b, int line, const char *what, const char *word) {
    return epi_bad("%s:%d: %s '%s'", b->path, line, what, word);
}

static int set_word(const bench *b, int line, char *word, run_request *q) {
    const struct {
        const char *name;
        int64_t *value;
    } sizes[] = {{"batch", &q->batch}, {"seq", &q->seq}, {"dim", &q->dim}, {"hidden", &q->hidden}, {"out", &q->out}};
    char *equals = strchr(word, '='), *end;
    if (!equals) return bad_line(b, line, "this is not size=value:", word);
    *equals = 0;
    const char *value = equals + 1;
    if (strcmp(word, "dtype") == 0)
        return ep_dtype_parse(value, &q->dtype) == EP_OK ? -1 : bad_line(b, line, "there is no dtype", value);
    if (strcmp(word, "act") == 0)
        return ep_act_parse(value, &q->act) == EP_OK ? -1 : bad_line(b, line, "there is no activation", value);
    long long v = strtoll(value, &end, 10);
    if (end == value || *end || v < 0 || v > INT32_MAX) return bad_line(b, line, "this is no size:", value);
    if (strcmp(word, "bias") == 0) {
        q->bias = v != 0;
        return -1;
    }
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (strcmp(sizes[i].name, word) != 0) continue;
        *sizes[i].value = v;
        return -1;
    }
    return bad_line(b, line, "a problem has no", word);
}

/* A line without its comment; an empty one gives `block` NULL. */
static int parse_line(const bench *b, int line, char *text, run_request *q) {
    char *save = NULL;
    *q = (run_request){.batch = 1, .seq = 1, .dim = 768, .hidden = 3072, .threads = b->threads};
    for (int m = 0; m < EP_MODE_COUNT; m++) q->modes[m] = true;
    text[strcspn(text, "#\r\n")] = 0;
    for (char *w = strtok_r(text, " \t", &save); w; w = strtok_r(NULL, " \t", &save)) {
        if (!q->block) {
            q->block = w;
            if (ep_block_parse(w, &q->kind, &q->act) != EP_OK) return bad_line(b, line, "there is no block", w);
            continue;
        }
        int code = set_word(b, line, w, q);
        if (code >= 0) return code;
    }
    if (q->block && q->kind == EP_BLOCK_LINEAR) q->hidden = 0;
    return -1;
}

static bench_row *new_row(bench *b) {
    if (b->count == b->cap) {
        size_t cap = b->cap ? 2 * b->cap : 16;
        bench_row *rows = realloc(b->rows, cap * sizeof *rows);
        if (!rows) return NULL;
        b->rows = rows;
        b->cap = cap;
    }
    memset(&b->rows[b->count], 0, sizeof *b->rows);
    return &b->rows[b->count++];
}

static void show_row(const bench *b, const bench_row *r) {
    char t[24];
    if (b->csv) {
        printf("\"%s\"", r->line);
        for (int m = 0; m < EP_MODE_COUNT; m++)
            if (r->ran[m])
                printf(",%.3f,%.3f,%.4f", r->median[m], r->best[m], r->ratio[m]);
            else
                printf(",,,");
        printf(",%.3f\n", r->bound_us);
        return;
    }
    printf("%s\n", r->line);
    for (int m = 0; m < EP_MODE_COUNT; m++) {
        if (!r->ran[m]) {
            printf("  %-9s not available: %.58s\n", run_mode_names[m], r->why_not[m]);
            continue;
        }
        printf("  %-9s %10s  %5.2f of eager  %3.0f%% of the ceiling", run_mode_names[m], run_time_text(r->median[m], t),
               r->ratio[m], 100 * r->bound_us / r->median[m]);
        printf("  %8.0f GFLOP/s\n", r->flops / r->median[m] * 1e-3);
    }
}

static int run_line(bench *b, int line, char *text) {
    char copy[MOST_LINE];
    run_request q;
    run_setup s;
    snprintf(copy, sizeof copy, "%.*s", (int)strcspn(text, "#\r\n"), text);
    for (size_t n = strlen(copy); n && copy[n - 1] == ' ';) copy[--n] = 0;
    int code = parse_line(b, line, text, &q);
    if (code >= 0 || !q.block) return code;
    code = run_setup_create(&q, &s);
    bench_row *r = code < 0 ? new_row(b) : NULL;
    if (r) {
        snprintf(r->line, sizeof r->line, "%s", copy);
        snprintf(b->machine, sizeof b->machine, "%s", s.machine.name);
        b->used_threads = s.threads;
        if (!bench_problem(&q, &s, (int)b->rounds, r))
            code = epi_fail(b->path, ep_context_error(s.ctx));
        else if (!b->json)
            show_row(b, r);
        fflush(stdout);
    }
    run_setup_destroy(&s);
    return code;
}

static void show_json(const bench *b) {
    json_out out = {.to = stdout}, *j = &out;
    json_object(j, NULL);
    json_text(j, "file", b->path);
    json_text(j, "machine", b->machine);
    json_int(j, "threads", b->used_threads);
    json_int(j, "rounds", b->rounds);
    json_array(j, "problems");
    for (size_t i = 0; i < b->count; i++) {
        const bench_row *r = &b->rows[i];
        json_object(j, NULL);
        json_text(j, "problem", r->line);
        json_number(j, "bound_us", r->bound_us);
        json_number(j, "flops", r->flops);
        json_array(j, "modes");
        for (int m = 0; m < EP_MODE_COUNT; m++) {
            json_object(j, NULL);
            json_text(j, "mode", run_mode_names[m]);
            json_number(j, "median_us", r->ran[m] ? r->median[m] : NAN);
            json_number(j, "best_us", r->ran[m] ? r->best[m] : NAN);
            json_number(j, "ratio", r->ran[m] ? r->ratio[m] : NAN);
            json_text(j, "unavailable", r->ran[m] ? NULL : r->why_not[m]);
            json_end(j);
        }
        json_end(j);
        json_end(j);
    }
    json_finish(j);
}

static int run_file(bench *b, FILE *f) {
    char text[MOST_LINE];
    int code = -1;
    for (int line = 1; code < 0 && fgets(text, sizeof text, f); line++) {
        if (!strchr(text, '\n') && !feof(f)) return bad_line(b, line, "this line is too long:", "...");
        code = run_line(b, line, text);
    }
    return code;
}

int cmd_bench(int argc, char **argv) {
    bench b = {.rounds = 9};
    const epi_option options[] = {{"--rounds", OPT_INT, &b.rounds, "N", "rounds over all modes (9)"},
                                  {"--threads", OPT_INT, &b.threads, "N", "threads on the CPU (all cores)"},
                                  {"--csv", OPT_FLAG, &b.csv, NULL, "comma-separated values"},
                                  {"--json", OPT_FLAG, &b.json, NULL, "one JSON object instead of text"},
                                  {0}};
    int count, code = epi_parse(argc, argv, usage, options, &b.path, 1, &count);
    if (code >= 0) return code;
    if (count < 1) return epi_bad("which shape file? bench/shapes/article.txt, say");
    if (b.rounds < 1 || b.rounds > 10000) return epi_bad("--rounds is %" PRId64 "; it must be 1 to 10000", b.rounds);
    if (b.threads < 0 || b.threads > 4096) return epi_bad("--threads is %" PRId64 "; it must be 0 to 4096", b.threads);
    FILE *f = fopen(b.path, "r");
    if (!f) return epi_bad("%s: %s", b.path, strerror(errno));
    if (b.csv)
        printf("problem,eager_us,eager_best_us,eager_ratio,compiled_us,compiled_best_us,compiled_ratio,tuned_us,tuned_"
               "best_us,tuned_ratio,bound_us\n");
    code = run_file(&b, f);
    fclose(f);
    if (code < 0 && !b.count) code = epi_bad("%s: there is no problem in this file", b.path);
    if (code < 0 && b.json) show_json(&b);
    if (code < 0 && !b.json && !b.csv && b.count)
        printf("\n%d threads, %s; medians of %" PRId64 " rounds, each mode in turn.\n"
               "The ceiling is that of the fused block: its flops and fewest bytes here.\n",
               b.used_threads, b.machine, b.rounds);
    free(b.rows);
    return code < 0 ? EPI_DONE : code;
}
