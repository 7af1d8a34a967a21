/* Never slower than eager: both are timed once per shape class, on calls that have to be answered anyway; the faster
 * stays, and why is kept. */
#ifndef EP_RUN_CHOICE_H
#define EP_RUN_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum ep_runner { EP_RUN_COMPILED, EP_RUN_EAGER, EP_RUN_ATTACHED, EP_RUNNERS } ep_runner;

typedef struct ep_choice {
    int entry, size_class; /* floor(log2(elements)) */
    int count[EP_RUNNERS]; /* samples */
    int64_t best_ns[EP_RUNNERS];
    bool decided, keep_eager;
    bool attaches; /* a plan with groups as epilogues of packed products is there to be measured, too */
    bool keep_attached;
    char why[240];
} ep_choice;

/* Nothing to measure: decided for compiled. */
void ep_choice_settle(ep_choice *c, const char *why);
/* A third way is there: measured anew with it. */
void ep_choice_reopen(ep_choice *c);
/* Who answers the next call. While undecided the call is to be timed and told to ep_choice_sample. */
ep_runner ep_choice_next(const ep_choice *c);
void ep_choice_sample(ep_choice *c, ep_runner who, int64_t ns);

#endif
