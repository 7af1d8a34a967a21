/* How a tuned product's two ways are told apart beside whatever else the machine does: rounds in which both run in turn,
 * and what calls of the way that was kept say about it later. Only figures come in here, so that tests can make them up. */
#ifndef EP_RUN_BACKEND_CPU_TUNED_TRIAL_H
#define EP_RUN_BACKEND_CPU_TUNED_TRIAL_H

#include "tuned.h"

typedef struct ep_trial {
    int rounds; /* the first one warms up */
    int needed, asked, wins[EP_WAY_COUNT], disturbed;
    int64_t lost_ns; /* in disturbed rounds that did not count */
    int64_t best_ns[EP_WAY_COUNT];
    bool is_short, doubtful; /* doubtful: disturbed rounds had to be counted */
} ep_trial;

/* Who runs first in the next round: what the one leaves in the caches must not always help the other. */
ep_tuned_way ep_trial_first(const ep_trial *t);
/* Each way is to run once untimed before: its call finds in the caches what the call before it left, not the other way. */
bool ep_trial_is_short(const ep_trial *t);
/* A round's times, and how often the system took a core from one of the process's threads meanwhile. True: it is decided. */
bool ep_trial_add(ep_trial *t, const int64_t ns[EP_WAY_COUNT], int64_t switches);
ep_tuned_way ep_trial_winner(const ep_trial *t);

/* Of a choice that was measured: is this call to be timed? (One of many: two readings of the clock.) */
bool ep_watch_due(ep_tuned_choice *c);
/* It had m rows and took so long. Sets c->again where the trial is not to be believed any more. */
void ep_watch_note(ep_tuned_choice *c, int64_t m, int64_t ns);

#endif
