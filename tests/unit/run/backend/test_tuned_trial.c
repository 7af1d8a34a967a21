/* The choice between a tuned product's two ways, over made-up times: what disturbs rounds, and what later calls say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "run/backend/cpu/tuned_trial.h"

enum { US = 1000, MS = 1000 * US };
typedef struct machine {
    int64_t kernel, onednn; /* what they take, ns */
    int64_t lost;           /* what the system takes from one of them each round; 0: nothing */
} machine;

/* A trial until it is decided, and how long that took. */
static ep_trial run(machine m, int64_t *spent_ns) {
    ep_trial t = {0};
    *spent_ns = 0;
    for (;; assert_true(t.rounds < 1000)) {
        int64_t ns[EP_TRIAL_WAYS] = {m.kernel, m.onednn};
        ns[t.rounds % 2] += m.lost;
        *spent_ns += ns[0] + ns[1];
        if (ep_trial_add(&t, ns, m.lost ? 1000 : 0)) return t;
    }
}

static void the_faster_one_wins(void **state) {
    (void)state;
    static const struct {
        int64_t kernel, onednn;
        ep_trial_way way;
    } rows[] = {{100 * US, 80 * US, EP_TRIAL_PLAIN}, {80 * US, 100 * US, EP_TRIAL_KERNEL},
                {100 * US, 97 * US, EP_TRIAL_PLAIN}, {100 * US, 99 * US, EP_TRIAL_KERNEL},
                {90 * MS, 70 * MS, EP_TRIAL_PLAIN},  {3 * US, 2 * US, EP_TRIAL_PLAIN}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t spent;
        ep_trial t = run((machine){rows[i].kernel, rows[i].onednn, 0}, &spent);
        assert_int_equal(ep_trial_winner(&t), rows[i].way);
        assert_false(t.doubtful);
        assert_int_equal(ep_trial_is_short(&t), rows[i].kernel < MS);
        assert_int_equal(t.best_ns[EP_TRIAL_PLAIN], rows[i].onednn);
        assert_int_equal(t.rounds, 1 + (rows[i].kernel + rows[i].onednn < MS ? 9 : 3)); /* one warms up */
    }
}

/* Each way goes first as often as the others. */
static void the_order_alternates(void **state) {
    (void)state;
    ep_trial t = {0};
    int first[EP_TRIAL_WAYS] = {0};
    for (int r = 0; r < 9; r++) {
        first[ep_trial_first(&t)]++;
        ep_trial_add(&t, (int64_t[EP_TRIAL_WAYS]){5, 5}, 1);
    }
    assert_true(first[EP_TRIAL_KERNEL] == 3 && first[EP_TRIAL_PACKED] == 3);
}

/* A neighbour that stops our kernel in two of three rounds does not make oneDNN the winner. */
static void disturbed_rounds_do_not_count(void **state) {
    (void)state;
    const int64_t quiet[EP_TRIAL_WAYS] = {80 * US, 100 * US}, hit[EP_TRIAL_WAYS] = {4080 * US, 100 * US};
    ep_trial t = {0};
    for (int r = 0; !ep_trial_add(&t, r % 3 ? hit : quiet, r % 3 ? 2 : 0); r++) assert_true(r < 100);
    assert_int_equal(ep_trial_winner(&t), EP_TRIAL_KERNEL);
    assert_int_equal(t.wins[EP_TRIAL_PLAIN], 0);
    assert_false(t.doubtful);
    /* Unnoticed, the same rounds are lost to it. */
    t = (ep_trial){0};
    for (int r = 0; !ep_trial_add(&t, r % 3 ? hit : quiet, 0); r++) assert_true(r < 100);
    assert_true(t.wins[EP_TRIAL_PLAIN] > t.wins[EP_TRIAL_KERNEL]);
}

/* Where every round is disturbed, the trial ends all the same, soon, and says so. */
static void a_trial_ends_beside_a_neighbour_that_stays(void **state) {
    (void)state;
    int64_t spent;
    ep_trial t = run((machine){80 * US, 200 * US, 3 * MS}, &spent);
    assert_true(t.doubtful && spent < 200 * MS);
    t = run((machine){40 * MS, 80 * MS, 3 * MS}, &spent);
    assert_true(t.doubtful && spent < (int64_t)1500 * MS);
    assert_int_equal(ep_trial_winner(&t), EP_TRIAL_KERNEL);
}

/* oneDNN's second pack must gain over its plain weights, and those over our kernel. */
static void a_third_way_must_gain_too(void **state) {
    (void)state;
    static const struct {
        int64_t ns[EP_TRIAL_WAYS];
        ep_trial_way way;
    } rows[] = {{{100 * US, 80 * US, 70 * US}, EP_TRIAL_PACKED},     {{100 * US, 80 * US, 79 * US}, EP_TRIAL_PLAIN},
                {{100 * US, 99 * US, 98 * US - 1}, EP_TRIAL_PACKED}, {{100 * US, 99 * US, 99 * US}, EP_TRIAL_KERNEL},
                {{100 * US, 120 * US, 90 * US}, EP_TRIAL_PACKED},    {{100 * US, 80 * US, 0}, EP_TRIAL_PLAIN}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ep_trial t = {0};
        while (!ep_trial_add(&t, rows[i].ns, 0)) assert_true(t.rounds < 100);
        assert_int_equal(ep_trial_winner(&t), rows[i].way);
    }
}

/* Two noisy rounds of three must not overrule runs that were a third faster: more rounds are asked for, not for ever. */
static void rounds_and_fastest_runs_must_agree(void **state) {
    (void)state;
    const int64_t noisy[EP_TRIAL_WAYS] = {2 * MS, 3 * MS}, usual[EP_TRIAL_WAYS] = {2 * MS, 1500 * US};
    ep_trial t = {0};
    int rounds = 0;
    for (bool done = false; !done; rounds++) done = ep_trial_add(&t, rounds < 5 && rounds != 3 ? noisy : usual, 0);
    assert_int_equal(ep_trial_winner(&t), EP_TRIAL_PLAIN);
    assert_true(rounds < 20);
    t = (ep_trial){0};
    for (rounds = 0; !ep_trial_add(&t, rounds == 3 ? usual : noisy, 0); rounds++) assert_true(rounds < 20);
    assert_int_equal(ep_trial_winner(&t), EP_TRIAL_KERNEL);
}

/* A system takes a core now and then for work of its own: that spoils a short round, but not half a second. */
static void long_rounds_bear_a_few_switches(void **state) {
    (void)state;
    ep_trial t = {0};
    int rounds = 0;
    while (!ep_trial_add(&t, (int64_t[EP_TRIAL_WAYS]){250 * MS, 260 * MS}, 8)) rounds++;
    assert_int_equal(rounds, 3);
    assert_int_equal(t.disturbed, 0);
    t = (ep_trial){0};
    ep_trial_add(&t, (int64_t[EP_TRIAL_WAYS]){US, US}, 0);
    ep_trial_add(&t, (int64_t[EP_TRIAL_WAYS]){US, US}, 1);
    assert_int_equal(t.disturbed, 1);
}

static int timed_calls(ep_tuned_choice *c, int calls, int64_t m, int64_t ns) {
    int timed = 0;
    for (int i = 0; i < calls && !c->again; i++)
        if (ep_watch_due(c)) ep_watch_note(c, m, ns), timed++;
    return timed;
}

static ep_tuned_choice choice(bool doubtful) {
    return (ep_tuned_choice){.made = true, .m = 64, .us = {100, 200}, .trials = 1, .doubtful = doubtful};
}

static void calls_like_the_trial_change_nothing(void **state) {
    (void)state;
    ep_tuned_choice c = choice(false);
    assert_int_equal(timed_calls(&c, 16000, 64, 110 * US), 1000); /* few are timed */
    assert_false(c.again);
    c = choice(false); /* 5 rows of a class's trial with 64; and 64 where it was measured with 33 */
    timed_calls(&c, 1000, 60, 95 * US);
    c.m = 33;
    timed_calls(&c, 1000, 64, 195 * US);
    assert_false(c.again);
    for (int i = 0; i < 1000; i++) /* one call in eight is as the trial was: the others have a neighbour */
        if (ep_watch_due(&c)) ep_watch_note(&c, 33, c.seen % 8 == 3 ? 105 * US : 900 * US);
    assert_false(c.again);
}

static void calls_unlike_the_trial_ask_for_another(void **state) {
    (void)state;
    ep_tuned_choice c = choice(false);
    timed_calls(&c, 1000, 64, 160 * US);
    assert_true(c.again);
    c = choice(false); /* a trial beside a neighbour that left */
    timed_calls(&c, 1000, 64, 50 * US);
    assert_true(c.again);
    c = choice(true);
    timed_calls(&c, 127, 64, 100 * US);
    assert_false(c.again);
    timed_calls(&c, 1, 64, 100 * US);
    assert_true(c.again);
    c = choice(true); /* a few trials, not one every hundred calls for ever */
    c.trials = 4;
    assert_int_equal(timed_calls(&c, 5000, 64, 500 * US), 0);
    c = (ep_tuned_choice){.made = true, .way = EP_WAY_ONEDNN}; /* decided by the environment */
    assert_int_equal(timed_calls(&c, 5000, 64, 500 * US), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_faster_one_wins),
                                       cmocka_unit_test(the_order_alternates),
                                       cmocka_unit_test(disturbed_rounds_do_not_count),
                                       cmocka_unit_test(a_trial_ends_beside_a_neighbour_that_stays),
                                       cmocka_unit_test(a_third_way_must_gain_too),
                                       cmocka_unit_test(rounds_and_fastest_runs_must_agree),
                                       cmocka_unit_test(long_rounds_bear_a_few_switches),
                                       cmocka_unit_test(calls_like_the_trial_change_nothing),
                                       cmocka_unit_test(calls_unlike_the_trial_ask_for_another)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
