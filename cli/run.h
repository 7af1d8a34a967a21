/* `epi run` and `epi bench`: what is asked, what came of it in each mode, and the pieces that make and show it. */
#ifndef EPI_RUN_H
#define EPI_RUN_H

#include "cli.h"

enum { RUN_MAX_KERNELS = 64 };

typedef struct run_request {
    const char *block;
    ep_block_kind kind;
    ep_act act;
    int64_t batch, seq, dim, hidden, out; /* out: 0 until it is known */
    bool autotune, tf32, bias, json, ask, modes[EP_MODE_COUNT], all_modes;
    ep_dtype dtype;
    ep_device device;
    int64_t threads; /* 0: all */
    int64_t wait, warmup, active;
    ep_rounding rounding;
    ep_specialize specialize;
    bool specialize_given;
    const char *weights, *layer, *guess, *trace_dir, *report, *vary, *dump;
    bool shape_given[5]; /* batch seq dim hidden out, by the caller */
    bool act_given;
} run_request;

/* One kernel of a step, by name. */
typedef struct run_kernel {
    char name[192];
    double count, us, bytes, flops, bound_us; /* a step */
} run_kernel;

typedef struct run_result {
    bool ran;
    char why_not[464];                      /* when it did not */
    int64_t steps;                          /* profiled */
    double kernels, ops, views, launches;   /* a step; NaN: unknown */
    double step_median, step_min, step_max; /* us, the profiler off */
    double profiled_median;                 /* us, the profiler on */
    int64_t timed_steps;
    double race_us,
        race_ratio; /* a step with the modes taken in turn, and its ratio to eager; NaN: one mode alone ran */
    int race_rounds;
    double kernel_us, dispatch_us, bytes, flops, bound_us; /* a step */
    double cold_us;                                        /* the first call, whatever it had to do */
    ep_compile_stats compile;
    bool has_compile;
    char not_built[256];         /* why the first generated kernel that did not build did not */
    ep_answer answer;            /* compiled: how the steps were answered */
    double error_abs, error_rel; /* against f64; NaN: not checked */
    int64_t error_rows, packed_bytes;
    char choices[512]; /* tuned, compiled: which way its products take and why, a line each */
    run_kernel kernel[RUN_MAX_KERNELS];
    int kernel_count;
    double events, own_ns; /* recorded events a step, and what one costs */
    int64_t dropped;
    ep_trace *trace;
    char trace_path[1024]; /* "" unless written */
    bool predicted;
    ep_prediction prediction;
    bool sharpened; /* once it was chosen which way compiled mode takes */
    ep_prediction sharp;
    ep_guess *guess;
    ep_verdicts *verdicts;
    char verdict_why[464]; /* why there are none */
} run_result;

/* The block with its input, on the context's device. */
typedef struct run_setup {
    ep_context *ctx;
    ep_block *block;
    ep_tensor *x, *host_x;
    ep_tensor *weight[6], *host_weight[6]; /* gate, gate bias, up, up bias, down, down bias */
    char match[2048];                      /* what --weights found */
    ep_machine machine;
    int threads;
} run_setup;

extern const char *const run_mode_names[EP_MODE_COUNT];

/* run_options.c. -1 to go on, else the exit code. */
int run_parse(int argc, char **argv, run_request *q);
/* run_setup.c */
int run_setup_create(run_request *q, run_setup *s);
/* Another block over the same weights. */
int run_new_block(const run_request *q, run_setup *s, ep_block **out);
void run_setup_destroy(run_setup *s);
void run_block_request(const run_request *q, const run_setup *s, ep_mode mode, ep_block_request *out);
/* run_modes.c: times, profiles and checks one mode; false with why_not filled if it cannot run. */
bool run_mode(const run_request *q, run_setup *s, ep_mode mode, run_result *r);
/* run_race.c: the modes that ran, in turn, round after round: the only times of theirs that may be divided. */
void run_race(const run_request *q, run_setup *s, run_result r[EP_MODE_COUNT]);
void run_result_clear(run_result *r);
double run_now_us(void);
/* The median of n values, which are put in order. */
double run_median(double *v, size_t n);
/* run_steps.c: the figures of one profiled step, from its trace. */
bool run_read_trace(const run_setup *s, const run_request *q, run_result *r);
/* run_error.c: the largest error of y against f64, over a sample of rows. */
void run_check_error(const run_request *q, const run_setup *s, const ep_tensor *y, run_result *r);
/* run_guess.c */
bool run_predict(const run_request *q, const run_setup *s, ep_mode mode, run_result *r);
bool run_sharpen(const run_request *q, const run_setup *s, ep_mode mode, run_result *r);
void run_judge(run_result *r);
/* run_ask.c: asks at the terminal before anything runs, and scores after. */
typedef struct run_answers {
    bool asked;
    ep_mode mode;                   /* the guess is about one step in it */
    double kernels, views, time_us; /* NaN: no answer */
    ep_regime bound;
} run_answers;
void run_ask(const run_request *q, ep_mode mode, run_answers *a);
void run_score(const run_answers *a, ep_mode mode, const run_result *r, ep_regime seen);
/* run_text.c, run_json.c */
void run_show_request(const run_request *q, const run_setup *s);
void run_show_prediction(const run_result *r, ep_mode mode, const run_setup *s);
void run_show_prediction_line(const run_result *r, ep_mode mode);
/* `brief`: without what the first mode already explained. */
void run_show_result(const run_request *q, const run_result *r, ep_mode mode, bool brief);
void run_show_verdicts(const run_result *r, ep_mode mode, bool brief);
void run_show_autotuned(const run_setup *s);
void run_show_side_by_side(const run_result r[EP_MODE_COUNT]);
void run_show_json(const run_request *q, const run_setup *s, const run_result r[EP_MODE_COUNT]);
/* Times and amounts as people read them: "1.23 ms", "4.6 MB". */
const char *run_time_text(double us, char out[24]);
const char *run_amount_text(double v, const char *unit, char out[24]);
ep_regime run_seen_regime(const run_request *q, const run_setup *s, const run_result *r);
/* run_vary.c */
int run_vary(run_request *q); /* --vary: many calls, each timed, while a size changes */

#endif
