/* Replays over a device that only counts: what is captured when, what is replayed, and what is never lost on the way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include <epilogue/epilogue.h>

#include "run/engine/replay.h"

static int bodies, begins, replays, alive, fail_end, refuse, fail_body, slow_us, body_us;

static ep_status begin(ep_backend *b, ep_error *err) {
    (void)b, (void)err;
    begins++;
    return EP_OK;
}

static ep_status end(ep_backend *b, ep_error *err, void **out) {
    (void)b;
    if (!out) return EP_OK;
    if (fail_end) return ep_fail(err, EP_ERROR_DRIVER, "the stream was used by others");
    *out = malloc(1);
    alive++;
    return EP_OK;
}

static void spend(int us) {
    struct timespec t = {0, us * 1000L};
    if (us) nanosleep(&t, NULL);
}

static ep_status replay(ep_backend *b, void *capture, ep_error *err) {
    (void)b;
    assert_non_null(capture);
    if (refuse) return ep_fail(err, EP_ERROR_UNSUPPORTED, "a recording could not see it");
    spend(slow_us);
    replays++;
    return EP_OK;
}

static void op(ep_backend *b, const char *name) {
    (void)b, (void)name;
}

static void drop(ep_backend *b, void *capture) {
    (void)b;
    free(capture);
    alive--;
}

static ep_status body(void *user) {
    ep_context *ctx = user;
    bodies++;
    spend(body_us);
    return fail_body ? ep_fail(&ctx->err, EP_ERROR_SHAPE, "no") : EP_OK;
}

static ep_context *ctx;
static ep_replay r;

static int set_up(void **state) {
    (void)state;
    bodies = begins = replays = alive = fail_end = refuse = fail_body = slow_us = 0;
    body_us = 20; /* dearer than a replay */
    memset(&r, 0, sizeof r);
    unsetenv("EPILOGUE_REPLAY");
    if (ep_context_create(NULL, NULL, &ctx) != EP_OK) return 1;
    ctx->ops.capture_begin = begin;
    ctx->ops.capture_end = end;
    ctx->ops.capture_op = op;
    ctx->ops.replay = replay;
    ctx->ops.capture_free = drop;
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    ep_replay_clear(&r);
    assert_int_equal(alive, 0);
    ep_context_destroy(ctx);
    return 0;
}

static ep_status call(uint64_t a, uint64_t b) {
    return ep_replay_run(&r, ctx, (uint64_t[]){a, b}, 2, body, ctx);
}

static void same_addresses(void **state) {
    (void)state;
    for (int i = 0; i < 10; i++) assert_int_equal(call(1, 2), EP_OK);
    assert_int_equal(begins, 1);
    assert_int_equal(bodies, EP_REPLAY_SEEN + 1); /* the last one under capture */
    assert_int_equal(replays, 10 - EP_REPLAY_SEEN);
    assert_int_equal(ep_replay_captured(&r), 1);
}

/* Addresses that never come back are launched one by one; those that do keep their own capture. */
static void other_addresses(void **state) {
    (void)state;
    for (uint64_t i = 0; i < 100; i++) assert_int_equal(call(i, 7), EP_OK);
    assert_int_equal(begins, 0);
    assert_int_equal(bodies, 100);
    bodies = 0;
    for (int i = 0; i < 8; i++) {
        assert_int_equal(call(200, 7), EP_OK);
        assert_int_equal(call(7, 200), EP_OK);
    }
    assert_int_equal(begins, 2);
    assert_int_equal(ep_replay_captured(&r), 2);
    assert_int_equal(bodies + replays, 16 + 2);
}

/* More keys than slots: the one used longest ago goes, and its capture with it. */
static void oldest_goes(void **state) {
    (void)state;
    for (uint64_t k = 1; k <= EP_REPLAY_SLOTS + 3; k++)
        for (int i = 0; i < 4; i++) assert_int_equal(call(k, k), EP_OK);
    assert_int_equal(ep_replay_captured(&r), EP_REPLAY_SLOTS);
    assert_int_equal(alive, EP_REPLAY_SLOTS);
    int before = bodies;
    assert_int_equal(call(EP_REPLAY_SLOTS + 3, EP_REPLAY_SLOTS + 3), EP_OK);
    assert_int_equal(bodies, before);
    assert_int_equal(call(1, 1), EP_OK);
    assert_int_equal(bodies, before + 1);
}

/* A capture that fails costs nothing but itself: the call is answered, and the reason is kept. */
static void capture_fails(void **state) {
    (void)state;
    fail_end = 1;
    for (int i = 0; i < 6; i++) assert_int_equal(call(1, 2), EP_OK);
    assert_int_equal(begins, 1);
    assert_int_equal(replays, 0);
    assert_int_equal(bodies, 6 + 1);
    assert_true(r.off);
    assert_non_null(strstr(r.why, "used by others"));
}

static void body_fails(void **state) {
    (void)state;
    fail_body = 1;
    for (int i = 0; i < 4; i++) assert_int_equal(call(1, 2), EP_ERROR_SHAPE);
    assert_int_equal(replays, 0);
    assert_string_equal(ctx->err.message, "no");
}

/* A recording that could not see the kernels of a replay gets them launched. */
static void refused(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) assert_int_equal(call(1, 2), EP_OK);
    refuse = 1;
    int before = bodies, seen = replays;
    for (int i = 0; i < 3; i++) assert_int_equal(call(1, 2), EP_OK);
    assert_int_equal(bodies, before + 3);
    assert_int_equal(replays, seen);
    refuse = 0;
    assert_int_equal(call(1, 2), EP_OK);
    assert_int_equal(replays, seen + 1);
}

static void slower_is_dropped(void **state) {
    (void)state;
    slow_us = 300;
    body_us = 0;
    for (int i = 0; i < 2 * EP_REPLAY_SAMPLES; i++) assert_int_equal(call(1, 2), EP_OK);
    assert_true(r.off);
    assert_non_null(strstr(r.why, "a replay"));
    assert_int_equal(replays, EP_REPLAY_SAMPLES);
    assert_int_equal(alive, 0);
}

static void switched_off(void **state) {
    (void)state;
    setenv("EPILOGUE_REPLAY", "0", 1);
    for (int i = 0; i < 6; i++) assert_int_equal(call(1, 2), EP_OK);
    assert_int_equal(begins, 0);
    assert_int_equal(bodies, 6);
    assert_non_null(strstr(r.why, "EPILOGUE_REPLAY"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(same_addresses, set_up, tear_down),
        cmocka_unit_test_setup_teardown(other_addresses, set_up, tear_down),
        cmocka_unit_test_setup_teardown(oldest_goes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(capture_fails, set_up, tear_down),
        cmocka_unit_test_setup_teardown(body_fails, set_up, tear_down),
        cmocka_unit_test_setup_teardown(refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(slower_is_dropped, set_up, tear_down),
        cmocka_unit_test_setup_teardown(switched_off, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
