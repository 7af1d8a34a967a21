/* Never slower than eager: the ways there are to answer a call are timed once per shape class, on calls that have to be
 * answered anyway; the fastest stays, and why is kept. Where a plan has several products that more than one way can make,
 * each is timed by itself in the same calls, and gets its own. */
#ifndef EP_RUN_CHOICE_H
#define EP_RUN_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum ep_runner {
    EP_RUN_COMPILED,
    EP_RUN_EAGER,
    EP_RUN_ATTACHED, /* groups as epilogues of packed products */
    EP_RUN_STEPPED,  /* steps behind products done by the library that makes them */
    EP_RUN_MIXED,    /* each product its own of these ways */
    EP_RUNNERS
} ep_runner;

/* A product, or a group with the products it reads, that more than one way can make. */
typedef struct ep_choice_unit {
    int64_t best_ns[EP_RUNNERS]; /* of its launches in one run; 0: not timed */
    ep_runner kept;
    char name[64];
} ep_choice_unit;

typedef struct ep_choice {
    int entry, size_class;          /* floor(log2(elements)) */
    int count[EP_RUNNERS];          /* samples */
    int64_t best_ns[EP_RUNNERS];    /* of one run */
    int64_t best_batch[EP_RUNNERS]; /* of the runs of a sample, where they are many */
    bool offered[EP_RUNNERS];       /* ATTACHED, STEPPED, MIXED: such a plan is there to be measured, too */
    int behind[EP_RUNNERS];         /* samples in a row that were far behind the eager sample next to them */
    bool hopeless[EP_RUNNERS];      /* far behind: not run again, but for one hearing before the choice is made */
    bool heard[EP_RUNNERS];
    int64_t last_eager_ns;
    int disturbed; /* samples that the system took a core from and that did not count */
    int64_t lost_ns;
    bool doubtful;       /* there were so many of them that they had to count */
    bool no_eager;       /* eager would answer with other bits, so it is none of the ways */
    const char *refused; /* why STEPPED is out of the question; NULL: it is not */
    bool decided;
    ep_runner kept;
    bool measured;             /* not settled without */
    int reopened, calls, seen; /* later calls may ask for another trial */
    int64_t least_ns;
    bool again;
    int64_t elements; /* of the calls that were timed; varied: of the first of them */
    bool varied;
    ep_runner rival; /* of MIXED: the best of the others */
    int mix;         /* counts the mixes there were: plans of an older one are no longer meant */
    ep_choice_unit *units;
    int unit_count; /* 0: nothing to mix */
    char why[320];
} ep_choice;

/* Nothing to measure: decided for compiled. */
void ep_choice_settle(ep_choice *c, const char *why);
/* There are that many units to be timed by themselves. False when memory is out. */
bool ep_choice_set_units(ep_choice *c, int count);
void ep_choice_free(ep_choice *c);
/* Another way is there: measured anew with it, unless it was known. */
void ep_choice_offer(ep_choice *c, ep_runner who);
/* STEPPED gave other bits than it must. */
void ep_choice_refuse(ep_choice *c, const char *why);
/* Who answers the next call; `has`: the ways that there are for it, as bits 1 << way. While undecided the call is to be
 * timed and told to ep_choice_sample. */
ep_runner ep_choice_next(const ep_choice *c, unsigned has);
/* How often `who` is to run for one sample: short work is told apart only by many runs of it. */
int ep_choice_repeats(const ep_choice *c, ep_runner who);
/* The sample's inputs have so many elements: ways timed at unlike sizes need more samples. */
void ep_choice_note_size(ep_choice *c, int64_t elements);
/* `ns` is of all of these runs; `unit_ns` too, by unit, or NULL. `switches`: how often the system took a core from one of
 * the process's threads meanwhile; such a sample does not count, unless there is no end of them. */
void ep_choice_sample(ep_choice *c, ep_runner who, int64_t ns, int64_t switches, const int64_t *unit_ns);
/* Of a choice that was measured: is this call of the way that was kept to be timed? (One of many.) */
bool ep_choice_watch_due(ep_choice *c);
/* It took so long; 0: that is not known. Sets c->again where what was measured is not to be believed any more, a few times at most. */
void ep_choice_watch_note(ep_choice *c, int64_t ns);
/* Undecided again, and nothing is offered yet. */
void ep_choice_reopen(ep_choice *c);
/* Is unit `unit` made by `who` in the way that was kept? */
bool ep_choice_uses(const ep_choice *c, int unit, ep_runner who);

#endif
