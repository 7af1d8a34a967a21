/* How a tuned product's ways are told apart beside whatever else the machine does: rounds in which all run in turn,
 * and what calls of the way that was kept say about it later. Only figures come in here, so that tests can make them up. */
#ifndef EP_RUN_BACKEND_CPU_TUNED_TRIAL_H
#define EP_RUN_BACKEND_CPU_TUNED_TRIAL_H

#include "tuned.h"

/* oneDNN's product over the plain weights, or over a second pack in its own order: both are EP_WAY_ONEDNN of a choice. */
typedef enum ep_trial_way { EP_TRIAL_KERNEL, EP_TRIAL_PLAIN, EP_TRIAL_PACKED, EP_TRIAL_WAYS } ep_trial_way;

typedef struct ep_trial {
    int rounds; /* the first one warms up */
    int needed, asked, wins[EP_TRIAL_WAYS], disturbed;
    int64_t lost_ns; /* in disturbed rounds that did not count */
    int64_t best_ns[EP_TRIAL_WAYS];
    bool is_short, doubtful; /* doubtful: disturbed rounds had to be counted */
} ep_trial;

/* Who runs first in the next round: what the one leaves in the caches must not always help the other. */
ep_trial_way ep_trial_first(const ep_trial *t);
/* Each way is to run once untimed before: its call finds in the caches what the call before it left, not the other way. */
bool ep_trial_is_short(const ep_trial *t);
/* A round's times (0: a way that is not to be had), and how often the system took a core from one of the process's threads meanwhile. True: it is decided. */
bool ep_trial_add(ep_trial *t, const int64_t ns[EP_TRIAL_WAYS], int64_t switches);
ep_trial_way ep_trial_winner(const ep_trial *t);

/* tuned_choice.c: ends what ep_tuned_choices_create made; the bytes of weights that oneDNN has in its own order. */
void ep_tuned_choices_free(ep_packed *p);
size_t ep_tuned_choices_bytes(const ep_packed *p);

/* Of a choice that was measured: is this call to be timed? (One of many: two readings of the clock.) */
bool ep_watch_due(ep_tuned_choice *c);
/* It had m rows and took so long. Sets c->again where the trial is not to be believed any more. */
void ep_watch_note(ep_tuned_choice *c, int64_t m, int64_t ns);

#endif
