/* A few captured runs of one list of launches, by the addresses they use. What a block does again and again on the same
 * memory becomes one call of the device; any other call runs launch by launch, so that none waits for a capture it will
 * not use. */
#ifndef EP_RUN_REPLAY_H
#define EP_RUN_REPLAY_H

#include "context.h"

enum { EP_REPLAY_SLOTS = 8, EP_REPLAY_SEEN = 2, EP_REPLAY_SAMPLES = 16 };

typedef struct ep_replay_slot {
    uint64_t *key;
    int count, seen; /* seen: runs launch by launch so far */
    int64_t used;
    void *capture; /* NULL: not captured yet */
} ep_replay_slot;

/* All zero: nothing captured. */
typedef struct ep_replay {
    ep_context *ctx;
    ep_replay_slot slots[EP_REPLAY_SLOTS]; /* the least recently used goes */
    int64_t tick;
    int samples[2];
    int64_t best_ns[2]; /* host time: launch by launch, replayed */
    bool off;
    char why[160]; /* why it is off */
} ep_replay;

typedef ep_status (*ep_replay_body)(void *user);

/* Runs `body`, or replays a run of it with the same key: `key` holds every address and every number that the launches
 * depend on. The body must do nothing but launch, and allocate by the backend what ends with it. */
ep_status ep_replay_run(ep_replay *r, ep_context *ctx, const uint64_t *key, int count, ep_replay_body body, void *user);
void ep_replay_clear(ep_replay *r);
/* Captured slots now. */
int ep_replay_captured(const ep_replay *r);

#endif
