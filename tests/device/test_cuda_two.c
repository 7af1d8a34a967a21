/* Two devices in one process: each runs the same block on its own memory and stream, from one thread and from two at
 * once, and gives what the reference gives; a tensor of one is refused by the other. Skipped where there is one device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <epilogue/epilogue.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICES = 2, ROUNDS = 40 };
static ep_context *gpu[DEVICES], *ref;

typedef struct side {
    ep_context *ctx;
    ep_tensor *x, *gate, *up, *down;
    ep_block *block;
    bool failed;
} side;

static ep_tensor *made(ep_context *ctx, int64_t rows, int64_t cols, uint64_t seed) {
    ep_error e;
    ep_tensor *host, *t;
    assert_int_equal(ep_tensor_create(EP_DTYPE_BF16, 2, (int64_t[]){rows, cols}, &e, &host), EP_OK);
    assert_int_equal(ep_tensor_fill_random(host, seed, 0.1, &e), EP_OK);
    assert_int_equal(ep_to_device(ctx, host, &t), EP_OK);
    ep_tensor_destroy(host);
    return t;
}

static void open_side(ep_context *ctx, uint64_t seed, side *s) {
    memset(s, 0, sizeof *s);
    s->ctx = ctx;
    s->x = made(ctx, 64, 256, seed);
    s->gate = made(ctx, 512, 256, seed + 1);
    s->up = made(ctx, 512, 256, seed + 2);
    s->down = made(ctx, 256, 512, seed + 3);
    ep_block_weights w = {.gate = s->gate, .up = s->up, .down = s->down};
    assert_int_equal(ep_block_create(ctx, EP_BLOCK_GATED, EP_ACT_GELU_TANH, &w, &s->block), EP_OK);
}

static void close_side(side *s) {
    ep_block_destroy(s->block);
    ep_tensor *all[] = {s->x, s->gate, s->up, s->down};
    for (int i = 0; i < 4; i++) ep_tensor_destroy(all[i]);
}

static double difference(side *a, const side *expected, ep_mode mode) {
    ep_error e;
    ep_tensor *y, *host, *r;
    ep_difference d;
    if (ep_block_run(a->block, mode, a->x, NULL, &y) != EP_OK) return 1e9;
    if (ep_to_host(a->ctx, y, &host) != EP_OK) return 1e9;
    assert_int_equal(ep_block_run(expected->block, EP_MODE_EAGER, expected->x, NULL, &r), EP_OK);
    assert_int_equal(ep_tensor_compare(host, r, 1.0, &e, &d), EP_OK);
    ep_tensor_destroy(y);
    ep_tensor_destroy(host);
    ep_tensor_destroy(r);
    return d.max_rel;
}

static void in_turn(void **state) {
    (void)state;
    side s[DEVICES], r[DEVICES];
    for (int i = 0; i < DEVICES; i++) {
        open_side(gpu[i], 10 + 100 * (uint64_t)i, &s[i]);
        open_side(ref, 10 + 100 * (uint64_t)i, &r[i]);
    }
    for (int mode = 0; mode < EP_MODE_COUNT; mode++)
        for (int i = 0; i < DEVICES; i++) assert_int_equal(ep_block_prepare(s[i].block, (ep_mode)mode, s[i].x), EP_OK);
    for (int round = 0; round < (getenv("EPILOGUE_TEST_SMALL") ? 9 : ROUNDS); round++)
        for (int i = 0; i < DEVICES; i++)
            assert_true(difference(&s[i], &r[i], (ep_mode)(round % EP_MODE_COUNT)) <= 0.05);
    for (int i = 0; i < DEVICES; i++) {
        close_side(&s[i]);
        close_side(&r[i]);
    }
}

static void *run_one(void *user) {
    side *s = user;
    for (int round = 0; round < (getenv("EPILOGUE_TEST_SMALL") ? 24 : 200) && !s->failed; round++) {
        ep_tensor *y;
        if (ep_block_run(s->block, (ep_mode)(round % EP_MODE_COUNT), s->x, NULL, &y) != EP_OK)
            s->failed = true;
        else
            ep_tensor_destroy(y);
    }
    if (ep_context_sync(s->ctx) != EP_OK) s->failed = true;
    return NULL;
}

static void at_once(void **state) {
    (void)state;
    side s[DEVICES], r[DEVICES];
    pthread_t thread[DEVICES];
    for (int i = 0; i < DEVICES; i++) {
        open_side(gpu[i], 20 + 100 * (uint64_t)i, &s[i]);
        open_side(ref, 20 + 100 * (uint64_t)i, &r[i]);
    }
    for (int i = 0; i < DEVICES; i++) assert_int_equal(pthread_create(&thread[i], NULL, run_one, &s[i]), 0);
    for (int i = 0; i < DEVICES; i++) assert_int_equal(pthread_join(thread[i], NULL), 0);
    for (int i = 0; i < DEVICES; i++) {
        if (s[i].failed) print_message("device %d: %s\n", i, ep_context_error(s[i].ctx)->message);
        assert_false(s[i].failed);
        for (int mode = 0; mode < EP_MODE_COUNT; mode++) assert_true(difference(&s[i], &r[i], (ep_mode)mode) <= 0.05);
        close_side(&s[i]);
        close_side(&r[i]);
    }
}

static void no_mixing(void **state) {
    (void)state;
    ep_tensor *a = made(gpu[0], 4, 4, 1), *b = made(gpu[1], 4, 4, 2), *y;
    assert_int_equal(ep_add(gpu[0], a, b, &y), EP_ERROR_DEVICE);
    ep_tensor_destroy(a);
    ep_tensor_destroy(b);
}

/* Through the host, by the contexts of both; neither takes what is on the other's device. */
static void moved(void **state) {
    (void)state;
    ep_error e;
    ep_difference d;
    ep_tensor *a = made(gpu[0], 33, 65, 1), *t, *wrong, *host, *b, *back;
    assert_int_equal(ep_transpose(gpu[0], a, 0, 1, &t), EP_OK);
    assert_int_equal(ep_to_device(gpu[1], t, &wrong), EP_ERROR_DEVICE);
    assert_int_equal(ep_to_host(gpu[1], t, &wrong), EP_ERROR_DEVICE);
    assert_int_equal(ep_to_host(gpu[0], t, &host), EP_OK);
    assert_int_equal(ep_to_device(gpu[1], host, &b), EP_OK);
    assert_int_equal(ep_tensor_device(b).index, 1);
    assert_int_equal(ep_to_host(gpu[1], b, &back), EP_OK);
    assert_int_equal(ep_tensor_compare(back, host, 1.0, &e, &d), EP_OK);
    assert_true(d.max_abs == 0);
    ep_tensor *all[] = {a, t, host, b, back};
    for (int i = 0; i < 5; i++) ep_tensor_destroy(all[i]);
}

/* What both record is in one trace, each kernel with its device. */
static void one_trace(void **state) {
    (void)state;
    ep_error e;
    ep_profile *p;
    ep_trace *t;
    ep_tensor *x[DEVICES], *y;
    size_t seen[DEVICES] = {0};
    for (int i = 0; i < DEVICES; i++) x[i] = made(gpu[i], 256, 256, 3);
    assert_int_equal(ep_profile_start(NULL, &e, &p), EP_OK);
    for (int i = 0; i < DEVICES; i++)
        for (int k = 0; k < 5; k++) {
            assert_int_equal(ep_gelu_tanh(gpu[i], x[i], &y), EP_OK);
            ep_tensor_destroy(y);
        }
    for (int i = 0; i < DEVICES; i++) assert_int_equal(ep_context_sync(gpu[i]), EP_OK);
    assert_int_equal(ep_profile_stop(p, &e, &t), EP_OK);
    for (size_t i = 0; i < ep_trace_count(t); i++) {
        ep_event ev;
        ep_trace_event(t, i, &ev);
        if (ev.kind == EP_EVENT_KERNEL && ev.device >= 0 && ev.device < DEVICES) seen[ev.device]++;
    }
    print_message("%zu and %zu kernels\n", seen[0], seen[1]);
    for (int i = 0; i < DEVICES; i++) assert_int_equal(seen[i], 5);
    ep_trace_destroy(t);
    for (int i = 0; i < DEVICES; i++) ep_tensor_destroy(x[i]);
}

int main(void) {
    ep_error e;
    ep_context_options plain = {.reference = true};
    for (int i = 0; i < DEVICES; i++) {
        ep_context_options o = {.device = {EP_DEVICE_CUDA, i}};
        if (ep_context_create(&o, &e, &gpu[i]) == EP_OK) continue;
        printf("skipped: two devices are needed, and %s\n", e.message);
        ep_context_destroy(gpu[0]);
        return 0;
    }
    if (ep_context_create(&plain, &e, &ref) != EP_OK) return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(in_turn), cmocka_unit_test(at_once),
                                       cmocka_unit_test(no_mixing), cmocka_unit_test(moved),
                                       cmocka_unit_test(one_trace)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (int i = 0; i < DEVICES; i++) ep_context_destroy(gpu[i]);
    ep_context_destroy(ref);
    return failed;
}
