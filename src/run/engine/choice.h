/* Never slower than eager: the ways there are to answer a call are timed once per shape class, on calls that have to be
 * answered anyway; the fastest stays, and why is kept. */
#ifndef EP_RUN_CHOICE_H
#define EP_RUN_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum ep_runner {
    EP_RUN_COMPILED,
    EP_RUN_EAGER,
    EP_RUN_ATTACHED, /* groups as epilogues of packed products */
    EP_RUN_STEPPED,  /* steps behind products done by the library that makes them */
    EP_RUNNERS
} ep_runner;

typedef struct ep_choice {
    int entry, size_class;          /* floor(log2(elements)) */
    int count[EP_RUNNERS];          /* samples */
    int64_t best_ns[EP_RUNNERS];    /* of one run */
    int64_t best_batch[EP_RUNNERS]; /* of the runs of a sample, where they are many */
    bool offered[EP_RUNNERS];       /* ATTACHED, STEPPED: such a plan is there to be measured, too */
    const char *refused;            /* why STEPPED is out of the question; NULL: it is not */
    bool decided;
    ep_runner kept;
    char why[320];
} ep_choice;

/* Nothing to measure: decided for compiled. */
void ep_choice_settle(ep_choice *c, const char *why);
/* Another way is there: measured anew with it, unless it was known. */
void ep_choice_offer(ep_choice *c, ep_runner who);
/* STEPPED gave other bits than it must. */
void ep_choice_refuse(ep_choice *c, const char *why);
/* Who answers the next call. While undecided the call is to be timed and told to ep_choice_sample. */
ep_runner ep_choice_next(const ep_choice *c);
/* How often `who` is to run for one sample: short work is told apart only by many runs of it. */
int ep_choice_repeats(const ep_choice *c, ep_runner who);
/* `ns` is of all of these runs. */
void ep_choice_sample(ep_choice *c, ep_runner who, int64_t ns);

#endif
