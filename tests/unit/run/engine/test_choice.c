/* Never slower than eager: what is kept for which times, and what is said about it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "run/engine/choice.h"

/* Feeds times until decided; returns the samples it took. */
static int decide(ep_choice *c, const int64_t ns[EP_RUNNERS]) {
    int n = 0;
    for (; !c->decided && n < 200; n++) {
        ep_runner who = ep_choice_next(c, ~0u);
        ep_choice_sample(c, who, ns[who] * ep_choice_repeats(c, who) + (c->count[who] == 0 ? 1000000 : 0), 0,
                         NULL); /* first calls are long */
    }
    return n;
}

static void the_faster_one_stays(void **state) {
    (void)state;
    ep_choice c = {.size_class = 12};
    assert_int_equal(decide(&c, (int64_t[EP_RUNNERS]){5000, 8000, 0, 0}), 10);
    assert_int_equal(ep_choice_next(&c, ~0u), EP_RUN_COMPILED);
    assert_non_null(strstr(c.why, "compiled kept for 2^12 to 2^13 elements"));
    c = (ep_choice){.size_class = 3};
    assert_int_equal(decide(&c, (int64_t[EP_RUNNERS]){9000, 8000, 0, 0}),
                     26); /* looked at longer before it is dropped */
    assert_int_equal(ep_choice_next(&c, ~0u), EP_RUN_EAGER);
    assert_string_equal(c.why, "eager kept for 2^3 to 2^4 elements: compiled 9.00 us, eager 8.00 us (best of 12)");
}

/* Where one run is too short for the clock, a sample is many runs, and 12 ns of 120 count. */
static void short_work_is_told_apart(void **state) {
    (void)state;
    static const struct {
        double compiled, eager;
        bool keep_eager;
    } cases[] = {{120, 100, true}, {110, 100, true}, {106, 100, false}, {90, 100, false}, {1980, 1900, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ep_choice c = {.size_class = 6};
        for (int n = 0; !c.decided && n < 200; n++) {
            ep_runner who = ep_choice_next(&c, ~0u);
            int times = ep_choice_repeats(&c, who);
            double one = who == EP_RUN_EAGER ? cases[i].eager : cases[i].compiled;
            ep_choice_sample(&c, who, (int64_t)(one * times) + (times == 1 ? 30 : 0), 0,
                             NULL); /* the clock's own share */
        }
        assert_true(c.decided);
        assert_int_equal(c.kept == EP_RUN_EAGER, cases[i].keep_eager);
    }
    ep_choice c = {.size_class = 20};
    assert_int_equal(ep_choice_repeats(&c, EP_RUN_EAGER), 1);
    for (int n = 0; n < 3; n++) ep_choice_sample(&c, EP_RUN_EAGER, 500000, 0, NULL);
    assert_int_equal(ep_choice_repeats(&c, EP_RUN_EAGER), 1);
}

static ep_choice offered(bool attached, bool stepped) {
    ep_choice c = {.size_class = 12};
    if (attached) ep_choice_offer(&c, EP_RUN_ATTACHED);
    if (stepped) ep_choice_offer(&c, EP_RUN_STEPPED);
    return c;
}

static void an_epilogue_has_to_be_worth_its_memory(void **state) {
    (void)state;
    ep_choice c = {.size_class = 12};
    decide(&c, (int64_t[EP_RUNNERS]){5000, 8000, 0, 0});
    ep_choice_offer(&c, EP_RUN_ATTACHED);
    assert_false(c.decided); /* it was decided without */
    assert_int_equal(decide(&c, (int64_t[EP_RUNNERS]){5000, 8000, 4000, 0}), 15);
    assert_int_equal(ep_choice_next(&c, ~0u), EP_RUN_ATTACHED);
    assert_string_equal(c.why,
                        "compiled kept for 2^12 to 2^13 elements: its pointwise kernel is the products' epilogue; "
                        "with epilogue 4.00 us, without 5.00 us, eager 8.00 us (best of 4)");
    ep_choice_offer(&c, EP_RUN_ATTACHED);
    assert_true(c.decided); /* known already */
    c = offered(true, false);
    assert_int_equal(decide(&c, (int64_t[EP_RUNNERS]){5000, 8000, 4950, 0}),
                     39); /* one percent is not; looked at longer */
    assert_int_equal(ep_choice_next(&c, ~0u), EP_RUN_COMPILED);
    assert_non_null(strstr(c.why, "an epilogue of the products was not faster"));
    c = offered(true, false);
    decide(&c, (int64_t[EP_RUNNERS]){9000, 5000, 7000, 0}); /* eager beats both */
    assert_int_equal(ep_choice_next(&c, ~0u), EP_RUN_EAGER);
    c = offered(true, false);
    decide(&c, (int64_t[EP_RUNNERS]){9000, 5000, 4000, 0}); /* the epilogue saves what would have been dropped */
    assert_int_equal(ep_choice_next(&c, ~0u), EP_RUN_ATTACHED);
}

static void post_ops_are_one_way_more(void **state) {
    (void)state;
    ep_choice c = offered(false, true);
    assert_int_equal(decide(&c, (int64_t[EP_RUNNERS]){5000, 8000, 1, 4000}),
                     15); /* nothing is attached, so that is not asked */
    assert_int_equal(ep_choice_next(&c, ~0u), EP_RUN_STEPPED);
    assert_string_equal(c.why,
                        "compiled kept for 2^12 to 2^13 elements: its pointwise steps ride in the products (oneDNN "
                        "post-ops); with post-ops 4.00 us, without 5.00 us, eager 8.00 us (best of 4)");
    c = offered(true, true);
    decide(&c, (int64_t[EP_RUNNERS]){5000, 8000, 3000, 4000});
    assert_int_equal(ep_choice_next(&c, ~0u), EP_RUN_ATTACHED);
    assert_non_null(strstr(c.why, "with epilogue 3.00 us, with post-ops 4.00 us, without 5.00 us"));
    c = offered(true, true);
    decide(&c, (int64_t[EP_RUNNERS]){5000, 8000, 3950, 4000}); /* packed weights for one percent */
    assert_int_equal(ep_choice_next(&c, ~0u), EP_RUN_STEPPED);
    c = offered(true, true);
    decide(&c, (int64_t[EP_RUNNERS]){5000, 8000, 6000, 6000});
    assert_non_null(strstr(c.why, "neither an epilogue of the products nor post-ops were faster"));
}

static void other_bits_are_refused(void **state) {
    (void)state;
    ep_choice c = offered(false, true);
    for (int i = 0; !c.decided && i < 100; i++) {
        ep_runner who = ep_choice_next(&c, ~0u);
        if (who == EP_RUN_STEPPED) ep_choice_refuse(&c, "they gave other bits");
        ep_choice_sample(&c, who, who == EP_RUN_STEPPED ? 1 : 5000, 0, NULL);
    }
    assert_int_equal(ep_choice_next(&c, ~0u), EP_RUN_COMPILED);
    assert_string_equal(
        c.why, "compiled kept for 2^12 to 2^13 elements: oneDNN post-ops are out: they gave other bits; compiled "
               "5.00 us, eager 5.00 us (best of 4)");
}

/* Two units in one plan: `ns` by unit and way. The whole is their sum; eager takes 9 us. */
static int decide_units(ep_choice *c, const int64_t ns[2][EP_RUNNERS], int64_t mixed, int mixed_samples) {
    int n = 0, mixes = 0;
    for (; !c->decided && n < 200; n++) {
        ep_runner who = ep_choice_next(c, ~0u);
        int64_t each[2] = {ns[0][who], ns[1][who]}, whole = who == EP_RUN_EAGER ? 9000 : each[0] + each[1];
        mixes += who == EP_RUN_MIXED;
        if (who == EP_RUN_MIXED) whole = mixed;
        ep_choice_sample(c, who, whole, 0, who == EP_RUN_EAGER || who == EP_RUN_MIXED ? NULL : each);
    }
    assert_int_equal(mixes, mixed_samples);
    return n;
}

static ep_choice *two_units(void) {
    ep_choice *c = calloc(1, sizeof *c);
    assert_non_null(c);
    c->size_class = 12;
    assert_true(ep_choice_set_units(c, 2));
    ep_choice_offer(c, EP_RUN_ATTACHED);
    return c;
}

/* The first unit gains by its epilogue, the second loses by packed weights: each gets its own. */
static void every_product_gets_its_own_way(void **state) {
    (void)state;
    static const int64_t ns[2][EP_RUNNERS] = {{6000, 0, 4200, 0, 0}, {5000, 0, 6100, 0, 0}};
    ep_choice *c = two_units();
    assert_int_equal(decide_units(c, ns, 8200, 5), 15 + 5 + 4);
    assert_int_equal(ep_choice_next(c, ~0u), EP_RUN_MIXED);
    assert_true(ep_choice_uses(c, 0, EP_RUN_ATTACHED));
    assert_false(ep_choice_uses(c, 1, EP_RUN_ATTACHED));
    assert_true(ep_choice_uses(c, 1, EP_RUN_COMPILED));
    assert_string_equal(c->why,
                        "compiled kept for 2^12 to 2^13 elements: each product by its own fastest way; so mixed "
                        "8.20 us, with epilogue 10.30 us, without 11.00 us, eager 9.00 us (best of 4)");
    ep_choice_free(c);
    c = two_units(); /* in its place the mix is slower than it promised: what was best before stays */
    decide_units(c, ns, 10900, 13);
    assert_int_equal(ep_choice_next(c, ~0u), EP_RUN_EAGER);
    ep_choice_free(c);
    c = two_units();
    static const int64_t alike[2][EP_RUNNERS] = {{3000, 0, 2200, 0, 0}, {3000, 0, 2100, 0, 0}};
    decide_units(c, alike, 0, 0); /* both gain: nothing to mix */
    assert_int_equal(ep_choice_next(c, ~0u), EP_RUN_ATTACHED);
    assert_true(ep_choice_uses(c, 1, EP_RUN_ATTACHED));
    ep_choice_free(c);
}

/* A way that is far behind makes three calls long, or four, and no more. */
static void hopeless_ways_are_left_at_once(void **state) {
    (void)state;
    ep_choice c = offered(true, false);
    int slow = 0;
    for (int n = 0; !c.decided && n < 200; n++) {
        ep_runner who = ep_choice_next(&c, ~0u);
        slow += who == EP_RUN_ATTACHED;
        ep_choice_sample(&c, who, who == EP_RUN_ATTACHED ? 90000 : who == EP_RUN_EAGER ? 50000 : 40000, 0, NULL);
    }
    assert_int_equal(slow, 4); /* to warm up, two, and one before the others are compared */
    assert_int_equal(c.kept, EP_RUN_COMPILED);
}

/* A machine that is ten times slower for some calls is so for all ways: nothing is given up for that. */
static void a_slow_hour_is_no_reason_to_give_up(void **state) {
    (void)state;
    ep_choice c = offered(true, false);
    for (int n = 0; !c.decided && n < 200; n++) {
        ep_runner who = ep_choice_next(&c, ~0u);
        int64_t ns = who == EP_RUN_ATTACHED ? 40000 : who == EP_RUN_EAGER ? 50000 : 45000;
        ep_choice_sample(&c, who, n / 7 % 2 ? ns : 10 * ns, 0, NULL);
    }
    for (ep_runner i = 0; i < EP_RUNNERS; i++) assert_false(c.hopeless[i]);
    assert_int_equal(c.kept, EP_RUN_ATTACHED);
}

/* Other work that meets one way's calls two times in a row does not rule it out, if it has shown what it can do. */
static void two_held_up_samples_are_no_reason_either(void **state) {
    (void)state;
    ep_choice c = offered(false, false);
    int samples = 0;
    for (int n = 0; !c.decided && n < 200; n++) {
        ep_runner who = ep_choice_next(&c, ~0u);
        int64_t ns = who == EP_RUN_EAGER ? 50000 : 45000;
        if (who == EP_RUN_COMPILED && (++samples == 3 || samples == 4)) ns *= 10;
        ep_choice_sample(&c, who, ns, 0, NULL);
    }
    assert_false(c.hopeless[EP_RUN_COMPILED]);
    assert_int_equal(c.kept, EP_RUN_COMPILED);
}

/* Other work takes a core away in most samples, and in all first ones of the epilogue: the fastest way is kept. */
static void disturbed_samples_do_not_count(void **state) {
    (void)state;
    ep_choice c = offered(true, false);
    int n = 0;
    for (int attached = 0; !c.decided && n < 200; n++) {
        ep_runner who = ep_choice_next(&c, ~0u);
        int64_t ns = who == EP_RUN_ATTACHED ? 40000 : who == EP_RUN_EAGER ? 50000 : 48000;
        attached += who == EP_RUN_ATTACHED;
        bool taken = who == EP_RUN_ATTACHED ? attached < 7 : n % 3 == 0;
        ep_choice_sample(&c, who, taken ? ns + 8000000 : ns, taken, NULL);
    }
    assert_true(n < 60);
    assert_false(c.hopeless[EP_RUN_ATTACHED]);
    assert_int_equal(c.kept, EP_RUN_ATTACHED);
    assert_null(strstr(c.why, "beside other work"));
}

/* Where no sample is left alone a choice is made all the same; it says so, and later calls have it made again. */
static void a_doubtful_choice_is_made_again(void **state) {
    (void)state;
    ep_choice c = offered(true, false);
    int n = 0;
    for (; !c.decided && n < 400; n++) {
        ep_runner who = ep_choice_next(&c, ~0u);
        ep_choice_sample(&c, who, who == EP_RUN_ATTACHED ? 9000000 : 8000000, 3, NULL);
    }
    assert_true(c.decided && n > 160 && n < 215);
    assert_int_equal(c.kept, EP_RUN_COMPILED);
    assert_non_null(strstr(c.why, ", beside other work)"));
    int calls = 0;
    for (; !c.again && calls < 1000; calls++)
        if (ep_choice_watch_due(&c)) ep_choice_watch_note(&c, 8000000);
    assert_int_equal(calls, 128);
    ep_choice_reopen(&c);
    assert_false(c.decided || c.again || c.doubtful);
    ep_choice_offer(&c, EP_RUN_ATTACHED);
    assert_int_equal(decide(&c, (int64_t[EP_RUNNERS]){50000, 60000, 40000, 0}), 15);
    assert_int_equal(c.kept, EP_RUN_ATTACHED);
    assert_null(strstr(c.why, "beside other work"));
}

/* The way that was kept is watched: calls quite unlike its samples have the choice made again, three times at most. */
static void later_calls_tell_a_wrong_sample(void **state) {
    (void)state;
    static const struct {
        int64_t ns;
        bool again;
    } cases[] = {{5000, false}, {7000, false}, {9000, true}, {2000, true}, {0, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ep_choice c = {.size_class = 12};
        int reopened = 0;
        for (int round = 0; round < 6; round++) {
            decide(&c, (int64_t[EP_RUNNERS]){5000, 8000, 0, 0});
            for (int n = 0; n < 1000 && !c.again; n++)
                if (ep_choice_watch_due(&c)) ep_choice_watch_note(&c, n % 128 < 120 ? 90000 : cases[i].ns);
            if (!c.again) break;
            ep_choice_reopen(&c);
            reopened++;
        }
        assert_int_equal(reopened, cases[i].again ? 3 : 0);
    }
    ep_choice settled = {0};
    ep_choice_settle(&settled, "nothing was measured");
    for (int n = 0; n < 100; n++) assert_false(ep_choice_watch_due(&settled));
}

/* The epilogue meets small inputs first: calls of unlike sizes are compared longer. */
static void unlike_sizes_need_more_samples(void **state) {
    (void)state;
    ep_choice c = offered(true, false);
    int n = 0, attached = 0;
    for (; !c.decided && n < 200; n++) {
        ep_runner who = ep_choice_next(&c, ~0u);
        attached += who == EP_RUN_ATTACHED;
        bool small = who == EP_RUN_ATTACHED ? attached < 8 : n > 20;
        ep_choice_note_size(&c, small ? 4096 : 8000);
        int64_t whole = who == EP_RUN_ATTACHED ? 90000 : who == EP_RUN_EAGER ? 99000 : 80000;
        ep_choice_sample(&c, who, small ? whole / 2 : whole, 0, NULL);
    }
    assert_int_equal(n, 39);
    assert_int_equal(c.kept, EP_RUN_COMPILED);
}

/* Inputs that a way has no plan for are answered without it, and are not measured for ever. */
static void a_missing_way_is_not_asked_for(void **state) {
    (void)state;
    ep_choice c = offered(true, false);
    const unsigned has = 1u << EP_RUN_COMPILED | 1u << EP_RUN_EAGER;
    for (int n = 0; n < 60; n++) {
        ep_runner who = ep_choice_next(&c, has);
        assert_true(who != EP_RUN_ATTACHED);
        if (n > 30) assert_int_equal(who, EP_RUN_EAGER);
        ep_choice_sample(&c, who, who == EP_RUN_EAGER ? 50000 : 60000, 0, NULL);
    }
    assert_false(c.decided);
}

/* Where eager's bits are others it takes no part. */
static void eager_is_no_way_of_other_bits(void **state) {
    (void)state;
    ep_choice c = offered(true, false);
    c.no_eager = true;
    assert_int_equal(decide(&c, (int64_t[EP_RUNNERS]){9000, 1, 8000, 0}), 10);
    assert_int_equal(c.kept, EP_RUN_ATTACHED);
    assert_null(strstr(c.why, "eager"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_work_is_told_apart),
        cmocka_unit_test(the_faster_one_stays),
        cmocka_unit_test(an_epilogue_has_to_be_worth_its_memory),
        cmocka_unit_test(post_ops_are_one_way_more),
        cmocka_unit_test(other_bits_are_refused),
        cmocka_unit_test(every_product_gets_its_own_way),
        cmocka_unit_test(hopeless_ways_are_left_at_once),
        cmocka_unit_test(a_slow_hour_is_no_reason_to_give_up),
        cmocka_unit_test(two_held_up_samples_are_no_reason_either),
        cmocka_unit_test(disturbed_samples_do_not_count),
        cmocka_unit_test(a_doubtful_choice_is_made_again),
        cmocka_unit_test(later_calls_tell_a_wrong_sample),
        cmocka_unit_test(unlike_sizes_need_more_samples),
        cmocka_unit_test(a_missing_way_is_not_asked_for),
        cmocka_unit_test(eager_is_no_way_of_other_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
