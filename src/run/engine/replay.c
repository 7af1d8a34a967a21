/* A key is run twice launch by launch, then captured, then replayed for as long as that costs the host less. */
#include "replay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/probe.h"

enum { BODY, REPLAYED };

static bool wanted(ep_replay *r, ep_context *ctx) {
    if (r->ctx) return !r->off;
    r->ctx = ctx;
    const char *set = getenv("EPILOGUE_REPLAY");
    if (!ctx->ops.replay)
        snprintf(r->why, sizeof r->why, "the %s backend has no replay", ctx->backend.name);
    else if (set && strcmp(set, "0") == 0)
        snprintf(r->why, sizeof r->why, "EPILOGUE_REPLAY is 0");
    r->off = r->why[0] != 0;
    return !r->off;
}

static void forget(ep_replay *r, ep_replay_slot *s) {
    if (s->capture) r->ctx->ops.capture_free(&r->ctx->backend, s->capture);
    free(s->key);
    *s = (ep_replay_slot){0};
}

/* The slot of this key, or an empty one that now has it; NULL when memory is out. */
static ep_replay_slot *find(ep_replay *r, const uint64_t *key, int count) {
    size_t bytes = sizeof *key * (size_t)count;
    ep_replay_slot *oldest = &r->slots[0];
    for (int i = 0; i < EP_REPLAY_SLOTS; i++) {
        ep_replay_slot *s = &r->slots[i];
        if (s->count == count && s->key && memcmp(s->key, key, bytes) == 0) return s;
        if (s->used < oldest->used) oldest = s;
    }
    forget(r, oldest);
    oldest->key = malloc(bytes ? bytes : 1);
    if (!oldest->key) return NULL;
    memcpy(oldest->key, key, bytes);
    oldest->count = count;
    return oldest;
}

static void stop(ep_replay *r, const char *why) {
    for (int i = 0; i < EP_REPLAY_SLOTS; i++) forget(r, &r->slots[i]);
    r->off = true;
    snprintf(r->why, sizeof r->why, "%s", why);
}

/* Both ways are timed while they are young; where a replay costs the host more, launches stay launches. */
static void sample(ep_replay *r, int way, int64_t ns) {
    if (r->samples[way]++ == 0 || ns < r->best_ns[way]) r->best_ns[way] = ns;
    if (way != REPLAYED || r->samples[REPLAYED] < EP_REPLAY_SAMPLES || r->best_ns[REPLAYED] <= r->best_ns[BODY]) return;
    char why[sizeof r->why];
    snprintf(why, sizeof why, "launches cost the host %.2f us, a replay %.2f us", (double)r->best_ns[BODY] * 1e-3,
             (double)r->best_ns[REPLAYED] * 1e-3);
    stop(r, why);
}

static ep_status timed(ep_replay *r, int way, ep_status (*run)(void *), void *user) {
    if (r->samples[way] >= EP_REPLAY_SAMPLES || ep_probe_get()) return run(user);
    int64_t start = ep_clock_ns();
    ep_status status = run(user);
    if (status == EP_OK) sample(r, way, ep_clock_ns() - start);
    return status;
}

/* A capture that fails is no failure of the call: the launches are made one by one, now and later. */
static void capture(ep_replay *r, ep_replay_slot *s, ep_replay_body body, void *user) {
    ep_context *ctx = r->ctx;
    ep_error err = {0};
    ep_status status = ctx->ops.capture_begin(&ctx->backend, &err);
    if (status == EP_OK) {
        ep_status inside = body(user);
        if (inside != EP_OK) err = ctx->err;
        ep_error end = {0};
        status = ctx->ops.capture_end(&ctx->backend, &end, inside == EP_OK ? &s->capture : NULL);
        if (inside != EP_OK)
            status = inside;
        else if (status != EP_OK)
            err = end;
    }
    if (status == EP_OK) return;
    char why[sizeof r->why];
    snprintf(why, sizeof why, "a capture failed: %.120s", err.message);
    stop(r, why);
}

typedef struct replayed {
    ep_context *ctx;
    void *capture;
} replayed;

static ep_status replay(void *user) {
    replayed *u = user;
    return u->ctx->ops.replay(&u->ctx->backend, u->capture, &u->ctx->err);
}

ep_status ep_replay_run(ep_replay *r, ep_context *ctx, const uint64_t *key, int count, ep_replay_body body,
                        void *user) {
    if (!wanted(r, ctx)) return body(user);
    ep_replay_slot *s = find(r, key, count);
    if (!s) return body(user);
    s->used = ++r->tick;
    bool young = s->seen < EP_REPLAY_SEEN || ep_probe_get(); /* spans of a capture would show ops that launch nothing */
    if (!s->capture && !young) capture(r, s, body, user);
    if (r->off) return body(user);
    if (!s->capture) {
        s->seen++;
        return timed(r, BODY, body, user);
    }
    ep_status status = timed(r, REPLAYED, replay, &(replayed){ctx, s->capture});
    return status == EP_ERROR_UNSUPPORTED ? body(user) : status;
}

void ep_replay_clear(ep_replay *r) {
    for (int i = 0; i < EP_REPLAY_SLOTS && r->ctx; i++) forget(r, &r->slots[i]);
}

int ep_replay_captured(const ep_replay *r) {
    int n = 0;
    for (int i = 0; i < EP_REPLAY_SLOTS; i++) n += r->slots[i].capture != NULL;
    return n;
}
