/* Never slower than eager: both are timed once per shape class, on calls that have to be answered anyway; the faster
 * stays, and why is kept. */
#ifndef EP_RUN_CHOICE_H
#define EP_RUN_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct ep_choice {
    int entry, size_class; /* floor(log2(elements)) */
    int count[2];          /* samples: compiled, eager */
    int64_t best_ns[2];
    bool decided, keep_eager;
    char why[200];
} ep_choice;

typedef enum ep_runner { EP_RUN_COMPILED, EP_RUN_EAGER } ep_runner;

/* Nothing to measure: decided for compiled. */
void ep_choice_settle(ep_choice *c, const char *why);
/* Who answers the next call. While undecided the call is to be timed and told to ep_choice_sample. */
ep_runner ep_choice_next(const ep_choice *c);
void ep_choice_sample(ep_choice *c, ep_runner who, int64_t ns);

#endif
