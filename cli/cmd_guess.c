/* epi guess: the predicted claims of a block that has not run, or those that a trace satisfies, as a file to edit. */
#include "cli.h"
#include "read_options.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static const char usage[] = "usage: epi guess BLOCK [OPTIONS]     epi guess TRACE [--output F]\n"
                            "\n"
                            "BLOCK is linear, mlp, geglu, swiglu or reglu: prints what the op table and this machine\n"
                            "say of one step before it runs. TRACE is a file: prints claims that it satisfies.\n"
                            "Either is a guess file: edit it to what you believe, then run epi check.";

#define NOT_GIVEN INT64_MIN

typedef struct options {
    int64_t batch, seq, dim, hidden, out, threads;
    bool bias;
    const char *act, *dtype, *mode, *device, *machine, *output;
} options;

/* The blocks by name; ep_block_parse is the runtime's, and this command works without it. */
static const struct {
    const char *name;
    ep_block_kind kind;
    ep_act act;
} blocks[] = {
    {"linear", EP_BLOCK_LINEAR, EP_ACT_NONE},    {"mlp", EP_BLOCK_MLP, EP_ACT_GELU_TANH},
    {"geglu", EP_BLOCK_GATED, EP_ACT_GELU_TANH}, {"swiglu", EP_BLOCK_GATED, EP_ACT_SILU},
    {"reglu", EP_BLOCK_GATED, EP_ACT_RELU},
};

static int find_block(const char *name) {
    for (int i = 0; i < (int)(sizeof blocks / sizeof *blocks); i++)
        if (strcmp(blocks[i].name, name) == 0) return i;
    return -1;
}

static int find_word(const char *word, const char *const *words) {
    for (int i = 0; words[i]; i++)
        if (strcmp(word, words[i]) == 0) return i;
    return -1;
}

static int make_request(int block, const options *o, ep_block_request *q) {
    static const char *const modes[] = {"eager", "compiled", "tuned", NULL}, *const devices[] = {"cpu", "cuda", NULL};
    bool linear = blocks[block].kind == EP_BLOCK_LINEAR;
    int mode = find_word(o->mode, modes), device = find_word(o->device, devices);
    *q = (ep_block_request){.kind = blocks[block].kind, .act = blocks[block].act, .bias = o->bias};
    if (mode < 0) return epi_bad("--mode is eager, compiled or tuned, not '%s'", o->mode);
    if (device < 0) return epi_bad("--device is cpu or cuda, not '%s'", o->device);
    if (o->act && ep_act_parse(o->act, &q->act) != EP_OK) return epi_bad("there is no activation '%s'", o->act);
    if (ep_dtype_parse(o->dtype, &q->dtype) != EP_OK || q->dtype > EP_DTYPE_F16)
        return epi_bad("--dtype is f32, bf16 or f16, not '%s'", o->dtype);
    if (linear && o->act && q->act != EP_ACT_NONE) return epi_bad("linear has no activation; --act does not fit");
    if (linear && o->hidden != NOT_GIVEN) return epi_bad("linear has no hidden size; --out is the size of its result");
    if (o->dim < 1) return epi_bad("--dim is %lld; it must be at least 1", (long long)o->dim);
    if (o->threads < 0 || o->threads > 4096) return epi_bad("--threads is 0 (all) to 4096");
    q->mode = (ep_mode)mode;
    q->device.kind = device ? EP_DEVICE_CUDA : EP_DEVICE_CPU;
    q->batch = o->batch;
    q->seq = o->seq;
    q->dim = o->dim;
    q->hidden = linear ? 0 : o->hidden == NOT_GIVEN ? 3072 : o->hidden;
    q->out = o->out;
    q->threads = (int)o->threads;
    return -1;
}

static int guess_block(int block, const options *o, ep_guess **out) {
    ep_block_request q;
    ep_machine m;
    ep_error err = {.position = -1};
    int code = make_request(block, o, &q);
    if (code >= 0) return code;
    if (o->machine) {
        if (ep_machine_read(o->machine, &err, &m) != EP_OK) return epi_fail(o->machine, &err);
    } else if (ep_machine_load(q.device, &err, &m) != EP_OK) {
        /* Counts need no machine; only times do. */
        memset(&m, 0, sizeof m);
        fprintf(stderr, "epi: %s; the guess has no times (--machine F gives one)\n", err.message);
    }
    return ep_guess_predict(&q, &m, &err, out) == EP_OK ? -1 : epi_fail(blocks[block].name, &err);
}

static int guess_trace(const char *path, ep_guess **out) {
    ep_error err = {.position = -1};
    ep_trace *trace;
    if (read_trace(path, &(read_choice){.step = NO_STEP}, &err, &trace) != EP_OK) return epi_fail(path, &err);
    ep_status status = ep_guess_from_trace(trace, &err, out);
    ep_trace_destroy(trace);
    return status == EP_OK ? -1 : epi_fail(path, &err);
}

static int write_guess(const ep_guess *g, const char *path) {
    const char *text = ep_guess_text(g);
    if (!path) {
        fputs(text, stdout);
        return EPI_DONE;
    }
    FILE *f = fopen(path, "wb");
    if (!f) return epi_bad("%s: %s", path, strerror(errno));
    bool ok = fputs(text, f) >= 0;
    ok = fclose(f) == 0 && ok;
    return ok ? EPI_DONE : epi_bad("%s could not be written", path);
}

int cmd_guess(int argc, char **argv) {
    options o = {
        .batch = 64, .seq = 128, .dim = 768, .hidden = NOT_GIVEN, .dtype = "bf16", .mode = "eager", .device = "cpu"};
    const epi_option rows[] = {{"--batch", OPT_INT, &o.batch, "N", "batch size (64)"},
                               {"--seq", OPT_INT, &o.seq, "N", "sequence length (128)"},
                               {"--dim", OPT_INT, &o.dim, "N", "width of x (768)"},
                               {"--hidden", OPT_INT, &o.hidden, "N", "width between the layers (3072)"},
                               {"--out", OPT_INT, &o.out, "N", "width of y (0: as x)"},
                               {"--bias", OPT_FLAG, &o.bias, NULL, "every layer has a bias"},
                               {"--act", OPT_TEXT, &o.act, "NAME", "gelu_tanh, gelu_erf, silu or relu"},
                               {"--dtype", OPT_TEXT, &o.dtype, "NAME", "f32, bf16 or f16"},
                               {"--mode", OPT_TEXT, &o.mode, "NAME", "eager, compiled or tuned"},
                               {"--device", OPT_TEXT, &o.device, "NAME", "cpu or cuda"},
                               {"--threads", OPT_INT, &o.threads, "N", "threads (0: all)"},
                               {"--machine", OPT_TEXT, &o.machine, "F", "a machine file instead of this machine"},
                               {"--output", OPT_TEXT, &o.output, "F", "write to F instead of the standard output"},
                               {NULL, OPT_FLAG, NULL, NULL, NULL}};
    const char *what;
    int count, code = epi_parse(argc, argv, usage, rows, &what, 1, &count);
    if (code >= 0) return code;
    if (count < 1) return epi_bad("guess wants a block (linear, mlp, geglu, swiglu, reglu) or a trace file");
    int block = find_block(what);
    if (block < 0) code = epi_keep("--output", o.output, &what, 1);
    if (code >= 0) return code;
    ep_guess *guess = NULL;
    if (block < 0 && access(what, F_OK) != 0)
        return epi_bad("'%s' is no block (linear, mlp, geglu, swiglu, reglu) and no file", what);
    code = block >= 0 ? guess_block(block, &o, &guess) : guess_trace(what, &guess);
    if (code < 0) code = write_guess(guess, o.output);
    ep_guess_destroy(guess);
    return code;
}
