/* guess.h: parse a guess, predict one, check it against traces. docs/guess.md has the language. */
#ifndef EPILOGUE_GUESS_H
#define EPILOGUE_GUESS_H

#include "block.h"
#include "machine.h"
#include "trace.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ep_guess ep_guess;
/* An error has line and column. */
EP_API ep_status ep_guess_parse(const char *text, size_t size, ep_error *err, ep_guess **out);
EP_API ep_status ep_guess_read(const char *path, ep_error *err, ep_guess **out);
EP_API void ep_guess_destroy(ep_guess *guess);
EP_API size_t ep_guess_count(const ep_guess *guess);     /* claims */
EP_API const char *ep_guess_text(const ep_guess *guess); /* canonical text; parses back to the same claims */

/* A guess file that the trace itself satisfies, to be edited. */
EP_API ep_status ep_guess_from_trace(const ep_trace *trace, ep_error *err, ep_guess **out);

/* A block to be predicted before it runs. */
typedef struct ep_block_request {
    ep_block_kind kind;
    ep_act act;
    ep_mode mode;
    ep_dtype dtype;
    ep_device device;
    int64_t batch, seq, dim, hidden, out; /* x is [batch, seq, dim]; hidden: 0 for LINEAR; out: 0 means dim */
    bool bias;
    int threads;
    bool packed;              /* GATED: gate and up are one buffer (ep_block_is_packed) */
    ep_specialize specialize; /* STATIC: no epilogues */
    ep_rounding rounding;     /* FEWEST: eager is never kept instead of a plan */
    ep_answer answer; /* COMPILED: how its calls are answered, once that was measured; UNDECIDED: any way may win */
    ep_tuned_pair tuned_pair; /* TUNED, GATED, the same: how gate and up are made */
} ep_block_request;

/* Ends included. */
typedef struct ep_count_range {
    int64_t low, high;
} ep_count_range;

/* What the op table and the machine say of one step: ops, views, kernels by class, launches, bytes, least time. */
typedef struct ep_prediction {
    int64_t ops, views, kernels, launches, gemms, pointwise;
    ep_work work; /* of the whole step, each kernel's reads and writes added up */
    /* Over every way that measuring may choose: a plan's own kernels (the figures above), the pointwise kernel in a
     * product's epilogue, eager's kernels where the plan loses to them; in tuned mode gate and up in one kernel, or apart
     * by a library. Low and high are equal where there is one way. */
    ep_count_range kernel_range, gemm_range, pointwise_range, byte_range;
    int64_t epilogue_kernels, eager_kernels, apart_kernels; /* kernels of these ways, or -1: not to be expected here */
    ep_bound bound; /* of the whole step, each kernel's bound added up; of the way among those that has the least */
    double low_us, high_us; /* the time range that is guessed */
    double dispatch_us;
    ep_regime regime;
} ep_prediction;
EP_API ep_status ep_predict_block(const ep_block_request *request, const ep_machine *machine, ep_error *err,
                                  ep_prediction *out);
/* The same as a guess file for region "step" claims that `epi check` and `epi run` can judge. */
EP_API ep_status ep_guess_predict(const ep_block_request *request, const ep_machine *machine, ep_error *err,
                                  ep_guess **out);

typedef enum ep_verdict_kind { EP_VERDICT_CONFIRMED, EP_VERDICT_BROKEN, EP_VERDICT_UNKNOWN } ep_verdict_kind;
typedef struct ep_verdict {
    ep_verdict_kind kind;
    int line;
    const char *claim;    /* canonical text of the claim, with its region */
    const char *expected; /* text */
    const char *seen;     /* text, or why it is unknown */
    double surprise;      /* 0 for confirmed; larger is more surprising */
    const char *event;    /* the event that broke it: name, start, lane; or NULL */
    int64_t event_index;  /* in the first trace, or -1 */
} ep_verdict;

typedef struct ep_verdicts ep_verdicts;
/* `b` is the second trace of `compare` claims, or NULL. */
EP_API ep_status ep_guess_check(const ep_guess *guess, const ep_trace *a, const ep_trace *b, ep_error *err,
                                ep_verdicts **out);
EP_API void ep_verdicts_destroy(ep_verdicts *verdicts);
EP_API size_t ep_verdicts_count(const ep_verdicts *v); /* biggest surprise first, then in file order */
EP_API ep_status ep_verdicts_get(const ep_verdicts *v, size_t index, ep_verdict *out);
EP_API void ep_verdicts_totals(const ep_verdicts *v, size_t *confirmed, size_t *broken, size_t *unknown);
EP_API const char *ep_verdicts_text(const ep_verdicts *v);
EP_API const char *ep_verdicts_json(const ep_verdicts *v);  /* the object of `epi check --json` */
EP_API const char *ep_verdicts_junit(const ep_verdicts *v); /* JUnit XML */
EP_API const char *ep_verdicts_github(const ep_verdicts *v, const char *guess_path); /* ::error lines */

#ifdef __cplusplus
}
#endif
#endif
