/* The options of `epi run`, read and checked before anything is made. */
#include <inttypes.h>
#include <string.h>

#include "run.h"

const char *const run_mode_names[EP_MODE_COUNT] = {"eager", "compiled", "tuned"};

static const char usage[] = "usage: epi run BLOCK [OPTIONS]\n\n"
                            "Guesses what one step of BLOCK will do, runs it, and says where the guess was wrong.\n"
                            "BLOCK: linear, mlp, geglu, swiglu, reglu. x is [batch, seq, dim].";

typedef struct raw {
    const char *dtype, *mode, *device, *rounding, *specialize, *act;
} raw;

/* One mode, several with commas between them, or all. */
static int parse_modes(const char *text, run_request *q) {
    q->all_modes = strcmp(text, "all") == 0;
    for (int m = 0; m < EP_MODE_COUNT; m++) q->modes[m] = q->all_modes;
    for (const char *at = text; !q->all_modes; at++) {
        size_t n = strcspn(at, ",");
        int m = 0;
        while (m < EP_MODE_COUNT && (strlen(run_mode_names[m]) != n || strncmp(at, run_mode_names[m], n) != 0)) m++;
        if (m == EP_MODE_COUNT) return epi_bad("--mode is eager, compiled, tuned (with commas) or all, not '%s'", text);
        q->modes[m] = true;
        at += n;
        if (!*at) break;
    }
    return -1;
}

static int parse_words(const raw *w, run_request *q) {
    if (ep_dtype_parse(w->dtype, &q->dtype) != EP_OK || q->dtype > EP_DTYPE_F16)
        return epi_bad("--dtype is f32, bf16 or f16, not '%s'", w->dtype);
    if (strcmp(w->rounding, "eager") != 0 && strcmp(w->rounding, "fewest") != 0)
        return epi_bad("--rounding is eager or fewest, not '%s'", w->rounding);
    q->rounding = strcmp(w->rounding, "eager") == 0 ? EP_ROUNDING_EAGER : EP_ROUNDING_FEWEST;
    q->specialize_given = w->specialize != NULL;
    if (w->specialize && strcmp(w->specialize, "static") != 0 && strcmp(w->specialize, "generic") != 0)
        return epi_bad("--specialize is generic or static, not '%s'", w->specialize);
    q->specialize =
        w->specialize && strcmp(w->specialize, "static") == 0 ? EP_SPECIALIZE_STATIC : EP_SPECIALIZE_GENERIC;
    if (w->act) {
        q->act_given = true;
        if (ep_act_parse(w->act, &q->act) != EP_OK)
            return epi_bad("--act is none, gelu_tanh, gelu_erf, silu or relu, not '%s'", w->act);
    }
    int code = epi_device(w->device, &q->device);
    return code >= 0 ? code : parse_modes(w->mode, q);
}

static int check_numbers(run_request *q) {
    const struct {
        const char *name;
        int64_t value, least, most;
    } rows[] = {{"--batch", q->batch, 0, INT32_MAX}, {"--seq", q->seq, 0, INT32_MAX},
                {"--dim", q->dim, 1, INT32_MAX},     {"--hidden", q->hidden, 1, INT32_MAX},
                {"--out", q->out, 0, INT32_MAX},     {"--threads", q->threads, 0, 4096},
                {"--wait", q->wait, 0, 1000000},     {"--warmup", q->warmup, 0, 1000000},
                {"--active", q->active, 1, 1000000}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].value < rows[i].least || rows[i].value > rows[i].most)
            return epi_bad("%s is %" PRId64 "; it must be %" PRId64 " to %" PRId64, rows[i].name, rows[i].value,
                           rows[i].least, rows[i].most);
    if (q->layer && !q->weights) return epi_bad("--layer names a layer of --weights, which is missing");
    if (q->dump && !q->modes[EP_MODE_COMPILED])
        return epi_bad("--dump shows compiled mode's graph; add --mode compiled");
    int code = epi_writable("--report", q->report, false);
    if (code < 0) code = epi_writable("--trace-dir", q->trace_dir, true);
    if (code >= 0) return code;
    if (q->ask && q->json) return epi_bad("--ask talks to a person and --json to a program; choose one");
    return -1;
}

static int check_block(run_request *q) {
    ep_act act;
    if (ep_block_parse(q->block, &q->kind, &act) != EP_OK)
        return epi_bad("there is no block '%s'; there are linear, mlp, geglu, swiglu, reglu", q->block);
    if (!q->act_given) q->act = act;
    if (q->kind == EP_BLOCK_LINEAR) {
        if (q->act_given && q->act != EP_ACT_NONE) return epi_bad("linear has no activation; --act does not fit");
        if (q->shape_given[3]) return epi_bad("linear has no hidden size; --out is the size of its result");
        q->hidden = 0;
    }
    if (q->device.kind == EP_DEVICE_CPU && (q->tf32 || q->autotune))
        return epi_bad("--%s is for a GPU; add --device cuda", q->tf32 ? "tf32" : "autotune");
    return -1;
}

/* Which sizes the caller gave: with --weights they come from the file. */
static void note_given(int argc, char **argv, run_request *q) {
    static const char *const names[5] = {"--batch", "--seq", "--dim", "--hidden", "--out"};
    for (int i = 1; i < argc; i++)
        for (int k = 0; k < 5; k++) {
            size_t n = strlen(names[k]);
            if (strncmp(argv[i], names[k], n) == 0 && (argv[i][n] == 0 || argv[i][n] == '=')) q->shape_given[k] = true;
        }
}

int run_parse(int argc, char **argv, run_request *q) {
    raw w = {.dtype = "bf16", .mode = "eager", .device = "cpu", .rounding = "eager"};
    *q = (run_request){.batch = 64, .seq = 128, .dim = 768, .hidden = 3072, .wait = 0, .warmup = 2, .active = 5};
    const epi_option options[] = {
        {"--batch", OPT_INT, &q->batch, "N", "batch size (64)"},
        {"--seq", OPT_INT, &q->seq, "N", "sequence length (128)"},
        {"--dim", OPT_INT, &q->dim, "N", "size of x's last dim (768)"},
        {"--hidden", OPT_INT, &q->hidden, "N", "hidden size of mlp and gated blocks (3072)"},
        {"--out", OPT_INT, &q->out, "N", "size of the result's last dim (as --dim)"},
        {"--bias", OPT_FLAG, &q->bias, NULL, "with biases"},
        {"--act", OPT_TEXT, &w.act, "NAME", "gelu_tanh, gelu_erf, silu, relu, none"},
        {"--dtype", OPT_TEXT, &w.dtype, "NAME", "f32, bf16 or f16 (bf16)"},
        {"--mode", OPT_TEXT, &w.mode, "NAME", "eager, compiled, tuned, a list of them, or all (eager)"},
        {"--device", OPT_TEXT, &w.device, "NAME", "cpu, cuda or cuda:N (cpu)"},
        {"--threads", OPT_INT, &q->threads, "N", "threads on the CPU (all cores)"},
        {"--tf32", OPT_FLAG, &q->tf32, NULL, "on the GPU: f32 products read tf32"},
        {"--autotune", OPT_FLAG, &q->autotune, NULL, "on the GPU: measure the library's algorithms, print the choice"},
        {"--wait", OPT_INT, &q->wait, "N", "profiled run: steps before warm-up (0)"},
        {"--warmup", OPT_INT, &q->warmup, "N", "steps before anything counts (2)"},
        {"--active", OPT_INT, &q->active, "N", "steps that are recorded (5)"},
        {"--rounding", OPT_TEXT, &w.rounding, "NAME", "eager or fewest; docs/rounding.md (eager)"},
        {"--specialize", OPT_TEXT, &w.specialize, "NAME", "compiled mode: generic or static (generic)"},
        {"--weights", OPT_TEXT, &q->weights, "FILE", "weights from a .safetensors file"},
        {"--layer", OPT_TEXT, &q->layer, "PATTERN", "which layer of it: part of a name, or a glob"},
        {"--guess", OPT_TEXT, &q->guess, "FILE", "check this guess instead of our own"},
        {"--ask", OPT_FLAG, &q->ask, NULL, "ask for your guess first, and score it"},
        {"--vary", OPT_TEXT, &q->vary, "WHAT=A..B", "time each call while batch or seq changes"},
        {"--dump", OPT_TEXT, &q->dump, "PASS", "compiled mode: print the graph after PASS, or all"},
        {"--trace-dir", OPT_TEXT, &q->trace_dir, "DIR", "write each mode's trace there"},
        {"--report", OPT_TEXT, &q->report, "FILE", "write an HTML page"},
        {"--json", OPT_FLAG, &q->json, NULL, "one JSON object instead of text"},
        {0}};
    const char *positional[1];
    int count, code = epi_parse(argc, argv, usage, options, positional, 1, &count);
    if (code >= 0) return code;
    if (count < 1) return epi_bad("which block? epi run geglu, say; --help lists them");
    q->block = positional[0];
    note_given(argc, argv, q);
    if ((code = parse_words(&w, q)) >= 0) return code;
    if ((code = check_block(q)) >= 0) return code;
    if (q->kind == EP_BLOCK_LINEAR) q->hidden = 1;
    code = check_numbers(q);
    if (q->kind == EP_BLOCK_LINEAR) q->hidden = 0;
    return code;
}
