/* The rules of a trial: a round that the system disturbed does not count as long as there may be better ones, and a
 * choice whose calls run quite unlike its trial is tried again, a few times at most. */
#include "tuned_trial.h"

enum {
    WINS = 3,       /* rounds a way must win, */
    SHORT_WINS = 9, /* and where a round is shorter than */
    SHORT_NS = 1000000,
    GAIN_PERCENT =
        2, /* what oneDNN must gain over our kernel, whose bits are the same everywhere, and packed over plain */
    FREE_NS = 50000000,      /* a quiet system takes a core away about so often, for work of its own */
    PATIENCE = 16,           /* disturbed rounds that are not counted: */
    PATIENCE_NS = 300000000, /* so many, of so much time together */
    EVERY = 16,              /* calls from one that is timed to the next */
    WINDOW = 8,              /* timed calls that are judged by their best */
    MOST_TRIALS = 4,
    MOST_ASKED = 4 /* times that more rounds are asked for, as rounds and fastest runs disagree */
};
/* Calls' best by the trial's best. A machine's clock moves by a third by itself. */
static const double far_worse = 1.5, far_better = 0.6;

ep_trial_way ep_trial_first(const ep_trial *t) {
    return (ep_trial_way)(t->rounds % EP_TRIAL_WAYS);
}

bool ep_trial_is_short(const ep_trial *t) {
    return t->is_short;
}

/* A later way has other bits, or takes memory besides: it must gain. */
static ep_trial_way fastest(const int64_t *ns) {
    ep_trial_way best = EP_TRIAL_KERNEL;
    for (ep_trial_way w = EP_TRIAL_PLAIN; w < EP_TRIAL_WAYS; w++)
        if (ns[w] && ns[w] < ns[best] / 100 * (100 - GAIN_PERCENT)) best = w;
    return best;
}

bool ep_trial_add(ep_trial *t, const int64_t ns[EP_TRIAL_WAYS], int64_t switches) {
    int64_t all = 0;
    for (int w = 0; w < EP_TRIAL_WAYS; w++) all += ns[w];
    if (t->rounds++ == 0) return false;
    if (!t->needed) {
        t->is_short = all < SHORT_NS;
        t->needed = t->is_short ? SHORT_WINS : WINS;
    }
    for (int w = 0; w < EP_TRIAL_WAYS; w++)
        if (!t->best_ns[w] || ns[w] < t->best_ns[w]) t->best_ns[w] = ns[w];
    if (switches > all / FREE_NS) {
        t->doubtful = t->disturbed >= PATIENCE || t->lost_ns >= PATIENCE_NS;
        t->disturbed++;
        t->lost_ns += all;
        if (!t->doubtful) return false;
    }
    ep_trial_way won = fastest(ns);
    if (++t->wins[won] < t->needed) return false;
    if (won == fastest(t->best_ns) || t->asked == MOST_ASKED) return true;
    t->asked++;
    t->needed += WINS;
    return false;
}

/* The fastest run must be ahead of our kernel's as well. */
ep_trial_way ep_trial_winner(const ep_trial *t) {
    ep_trial_way most = EP_TRIAL_KERNEL;
    for (ep_trial_way w = EP_TRIAL_PLAIN; w < EP_TRIAL_WAYS; w++)
        if (t->wins[w] > t->wins[most]) most = w;
    return t->best_ns[most] < t->best_ns[EP_TRIAL_KERNEL] ? most : EP_TRIAL_KERNEL;
}

bool ep_watch_due(ep_tuned_choice *c) {
    return c->m > 0 && c->trials < MOST_TRIALS && ++c->calls % EVERY == 0;
}

void ep_watch_note(ep_tuned_choice *c, int64_t m, int64_t ns) {
    double more = m > c->m ? (double)m / (double)c->m : 1, pace = (double)ns * 1e-3 / (c->us[c->way] * more);
    if (!c->seen++ || pace < c->least_pace) c->least_pace = pace;
    if (c->seen < WINDOW) return;
    c->seen = 0;
    c->again = c->doubtful || c->least_pace > far_worse || c->least_pace < far_better;
}
