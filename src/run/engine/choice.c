/* Samples in turn until all ways have enough. What seems to lose to eager, and compiled ways that are close to each other,
 * are looked at longer: the best of more samples says less about the machine's other work. A sample that the system took
 * a core from says nothing but that its way is not slower than that. */
#include "choice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

/* A reading of the clock is good to some 20 ns. Work below SHORT_NS by its first sample is run MANY times a sample. */
enum { WARM = 1, ENOUGH = 4, DOUBT = 12, PATIENCE = 2, SHORT_NS = 4000, MANY = 32, SLACK_NS = 100, SLACK_MANY_NS = 3 };
/* What a way must gain over plan and products of the library: packed weights cost memory, a mix a plan of its own. */
static const double packed_gain = 0.97, steps_gain = 0.99, mix_gain = 0.98;
/* Ways to make the same products are seldom further apart than that. */
static const double likely = 2;
/* A call that tries a way should not last longer than this many times the usual one. */
static const double bearable = 1.5;
/* Disturbed samples do not count until there were so many, or so much time of them. A quiet system takes a core away about
 * once in FREE_NS, for work of its own. */
enum { LOST = 160, FREE_NS = 50000000 };
static const int64_t most_lost_ns = 4000000000;
/* One call of EVERY is timed once the choice is made; of WINDOW of them the best is what the machine does now. */
enum { EVERY = 16, WINDOW = 8, MOST_REOPENED = 3 };
static const double far_worse = 1.5, far_better = 0.6;

void ep_choice_settle(ep_choice *c, const char *why) {
    c->decided = true;
    c->kept = EP_RUN_COMPILED;
    snprintf(c->why, sizeof c->why, "%s", why);
}

bool ep_choice_set_units(ep_choice *c, int count) {
    if (c->units || count < 2) return true;
    c->units = calloc((size_t)count, sizeof *c->units);
    if (!c->units) return false;
    c->unit_count = count;
    return true;
}

void ep_choice_free(ep_choice *c) {
    free(c->units);
    free(c);
}

static void forget_samples(ep_choice *c) {
    memset(c->count, 0, sizeof c->count);
    memset(c->best_ns, 0, sizeof c->best_ns);
    memset(c->best_batch, 0, sizeof c->best_batch);
    memset(c->behind, 0, sizeof c->behind);
    memset(c->hopeless, 0, sizeof c->hopeless);
    memset(c->heard, 0, sizeof c->heard);
    c->last_eager_ns = c->lost_ns = 0;
    c->disturbed = 0;
    c->doubtful = c->varied = false;
    c->elements = 0;
    for (int u = 0; u < c->unit_count; u++) memset(c->units[u].best_ns, 0, sizeof c->units[u].best_ns);
    c->offered[EP_RUN_MIXED] = false;
}

void ep_choice_offer(ep_choice *c, ep_runner who) {
    if (c->offered[who]) return;
    c->offered[who] = true;
    c->decided = false;
    forget_samples(c);
}

void ep_choice_refuse(ep_choice *c, const char *why) {
    c->refused = why;
}

static bool takes_part(const ep_choice *c, ep_runner who) {
    if (c->hopeless[who] || (who == EP_RUN_STEPPED && c->refused)) return false;
    if (who == EP_RUN_EAGER) return !c->no_eager;
    if (c->offered[EP_RUN_MIXED]) return who == EP_RUN_MIXED || who == c->rival;
    return who == EP_RUN_COMPILED || c->offered[who];
}

static double best(const ep_choice *c, ep_runner who) {
    return c->best_batch[who] ? (double)c->best_batch[who] / MANY : (double)c->best_ns[who];
}

/* Where a way is missing for these inputs, the others are not measured for ever. */
ep_runner ep_choice_next(const ep_choice *c, unsigned has) {
    if (c->decided) return c->kept;
    ep_runner next = EP_RUNNERS, fastest = EP_RUN_COMPILED;
    for (ep_runner i = 0; i < EP_RUNNERS; i++) {
        if (!takes_part(c, i) || !(has >> i & 1)) continue;
        if (next == EP_RUNNERS || c->count[i] < c->count[next]) next = i;
        if (c->count[i] > WARM && (c->count[fastest] <= WARM || best(c, i) < best(c, fastest))) fastest = i;
    }
    return next == EP_RUNNERS || c->count[next] >= DOUBT + WARM ? fastest : next;
}

static void say_time(ep_text *t, const char *who, int64_t ns) {
    bool ms = ns >= 1000000;
    ep_text_printf(t, "%s%s %.2f %s", t->len && t->data[t->len - 1] != ' ' ? ", " : "", who,
                   (double)ns * (ms ? 1e-6 : 1e-3), ms ? "ms" : "us");
}

static void say_way(ep_text *t, const ep_choice *c) {
    bool attached = c->offered[EP_RUN_ATTACHED], stepped = c->offered[EP_RUN_STEPPED];
    if (c->kept == EP_RUN_MIXED)
        ep_text_add(t, "each product by its own fastest way; ");
    else if (c->kept == EP_RUN_ATTACHED)
        ep_text_add(t, "its pointwise kernel is the products' epilogue; ");
    else if (c->kept == EP_RUN_STEPPED)
        ep_text_add(t, "its pointwise steps ride in the products (oneDNN post-ops); ");
    else if (c->refused)
        ep_text_printf(t, "oneDNN post-ops are out: %s; ", c->refused);
    else if (attached && stepped)
        ep_text_add(t, "neither an epilogue of the products nor post-ops were faster; ");
    else if (attached || stepped)
        ep_text_printf(t, "%s not faster; ", attached ? "an epilogue of the products was" : "oneDNN post-ops were");
}

static void say_why(ep_choice *c, int samples) {
    bool attached = c->offered[EP_RUN_ATTACHED], stepped = c->offered[EP_RUN_STEPPED] && !c->refused;
    ep_text t = {c->why, 0, sizeof c->why, false};
    ep_text_printf(&t, "%s kept for 2^%d to 2^%d elements: ", c->kept == EP_RUN_EAGER ? "eager" : "compiled",
                   c->size_class, c->size_class + 1);
    say_way(&t, c);
    if (c->offered[EP_RUN_MIXED]) say_time(&t, "so mixed", c->best_ns[EP_RUN_MIXED]);
    if (attached) say_time(&t, "with epilogue", c->best_ns[EP_RUN_ATTACHED]);
    if (stepped) say_time(&t, "with post-ops", c->best_ns[EP_RUN_STEPPED]);
    say_time(&t, attached || stepped ? "without" : "compiled", c->best_ns[EP_RUN_COMPILED]);
    if (!c->no_eager) say_time(&t, "eager", c->best_ns[EP_RUN_EAGER]);
    ep_text_printf(&t, " (best of %d%s)", samples, c->doubtful ? ", beside other work" : "");
}

int ep_choice_repeats(const ep_choice *c, ep_runner who) {
    return c->best_ns[who] && c->best_ns[who] < SHORT_NS ? MANY : 1;
}

/* The fastest of the compiled ways that are timed: of a whole run, or of unit `u`. */
static ep_runner fastest_of(const double ns[EP_RUNNERS], const bool part[EP_RUNNERS]) {
    ep_runner who = EP_RUN_COMPILED;
    if (part[EP_RUN_STEPPED] && (!part[who] || ns[EP_RUN_STEPPED] < steps_gain * ns[who])) who = EP_RUN_STEPPED;
    if (part[EP_RUN_ATTACHED] && (!part[who] || ns[EP_RUN_ATTACHED] < packed_gain * ns[who])) who = EP_RUN_ATTACHED;
    if (part[EP_RUN_MIXED] && (!part[who] || ns[EP_RUN_MIXED] < steps_gain * ns[who])) who = EP_RUN_MIXED;
    return who;
}

static ep_runner best_compiled(const ep_choice *c) {
    double ns[EP_RUNNERS];
    bool part[EP_RUNNERS];
    for (ep_runner i = 0; i < EP_RUNNERS; i++) {
        ns[i] = best(c, i);
        part[i] = takes_part(c, i);
    }
    return fastest_of(ns, part);
}

/* Is another compiled way within a tenth of the best one, or one so far behind that it may never have run undisturbed? */
static bool is_close_or_far(const ep_choice *c, ep_runner kept) {
    for (ep_runner i = 0; i < EP_RUNNERS; i++) {
        if (i == kept || i == EP_RUN_EAGER || !takes_part(c, i)) continue;
        if (best(c, i) * 0.9 < best(c, kept) || best(c, i) > likely * best(c, kept)) return true;
    }
    return false;
}

/* Each unit's fastest way. True if they differ, and together promise more than `rival`, the best way for all of them. */
static bool mix(ep_choice *c, ep_runner rival) {
    double mixed = 0, alike = 0;
    bool differ = false;
    for (int u = 0; u < c->unit_count; u++) {
        ep_choice_unit *x = &c->units[u];
        double ns[EP_RUNNERS];
        bool part[EP_RUNNERS];
        for (ep_runner i = 0; i < EP_RUNNERS; i++) {
            ns[i] = (double)x->best_ns[i];
            part[i] = ns[i] > 0 && i != EP_RUN_EAGER && i != EP_RUN_MIXED && !(i == EP_RUN_STEPPED && c->refused);
        }
        x->kept = fastest_of(ns, part);
        differ |= x->kept != c->units[0].kept;
        mixed += ns[x->kept];
        alike += ns[rival];
    }
    return differ && mixed < mix_gain * alike;
}

/* The mix is measured in its place: in turn with the way that was best until now, in as many samples as that had. */
static void try_mix(ep_choice *c, ep_runner rival) {
    c->rival = rival;
    c->offered[EP_RUN_MIXED] = true;
    c->count[EP_RUN_MIXED] = 0;
    c->best_ns[EP_RUN_MIXED] = c->best_batch[EP_RUN_MIXED] = 0;
    c->count[rival] = WARM;
    c->mix++;
}

static void note_units(ep_choice *c, ep_runner who, int repeats, const int64_t *unit_ns) {
    for (int u = 0; unit_ns && u < c->unit_count; u++) {
        int64_t ns = unit_ns[u] / repeats, *least = &c->units[u].best_ns[who];
        if (ns > 0 && (!*least || ns < *least)) *least = ns;
    }
}

/* What was ruled out early gets one call more before the others are compared. True: there is such a way. */
static bool hear(ep_choice *c) {
    bool any = false;
    for (ep_runner i = 0; i < EP_RUNNERS; i++) {
        if (!c->hopeless[i] || c->heard[i]) continue;
        c->hopeless[i] = false;
        c->heard[i] = any = true;
        c->behind[i] = PATIENCE - 1;
    }
    return any;
}

static void decides(ep_choice *c) {
    int least = INT32_MAX;
    for (ep_runner i = 0; i < EP_RUNNERS; i++)
        if (takes_part(c, i) && c->count[i] < least) least = c->count[i];
    if (least < ENOUGH + WARM || hear(c)) return;
    ep_runner compiled = best_compiled(c);
    if (c->unit_count && !c->offered[EP_RUN_MIXED] && mix(c, compiled)) {
        try_mix(c, compiled);
        return;
    }
    bool many = c->best_batch[compiled] && c->best_batch[EP_RUN_EAGER];
    bool loses = !c->no_eager && best(c, compiled) > best(c, EP_RUN_EAGER) * 1.05 + (many ? SLACK_MANY_NS : SLACK_NS);
    if ((loses || c->varied || is_close_or_far(c, compiled)) && least < DOUBT + WARM) return;
    c->decided = c->measured = true;
    c->kept = loses ? EP_RUN_EAGER : compiled;
    say_why(c, least - WARM);
}

/* Against the eager call nearest in time: a machine that was slow for a while was slow for both. A way that has been
 * about as fast as eager once is not far behind it, whatever held up its later samples. */
static void give_up(ep_choice *c, ep_runner who, int64_t ns) {
    if (who == EP_RUN_EAGER) c->last_eager_ns = ns;
    if (best(c, who) <= bearable * best(c, EP_RUN_EAGER)) return;
    bool far = who != EP_RUN_EAGER && c->last_eager_ns > SHORT_NS && (double)ns > bearable * (double)c->last_eager_ns;
    c->behind[who] = far ? c->behind[who] + 1 : 0;
    if (c->behind[who] >= PATIENCE) c->hopeless[who] = true;
}

void ep_choice_note_size(ep_choice *c, int64_t elements) {
    if (!c->elements) c->elements = elements;
    c->varied |= c->elements != elements;
}

/* Does this sample count? */
static bool counts(ep_choice *c, int64_t ns, int64_t switches) {
    if (switches <= ns / FREE_NS) return true;
    c->doubtful = c->disturbed >= LOST || c->lost_ns >= most_lost_ns;
    c->disturbed++;
    c->lost_ns += ns;
    return c->doubtful;
}

void ep_choice_sample(ep_choice *c, ep_runner who, int64_t ns, int64_t switches, const int64_t *unit_ns) {
    if (c->decided) return;
    int repeats = ep_choice_repeats(c, who);
    if (c->count[who] < WARM) { /* the first call of anything pays for what later ones do not */
        c->count[who]++;
        return;
    }
    note_units(c, who, repeats, unit_ns);
    if (repeats > 1) {
        if (!c->best_batch[who] || ns < c->best_batch[who]) c->best_batch[who] = ns;
        ns = (ns + repeats / 2) / repeats;
    }
    if (!c->best_ns[who] || ns < c->best_ns[who]) c->best_ns[who] = ns; /* not slower than that, disturbed or not */
    if (!counts(c, ns * repeats, switches)) return;
    c->count[who]++;
    give_up(c, who, ns);
    decides(c);
}

bool ep_choice_watch_due(ep_choice *c) {
    return c->measured && c->reopened < MOST_REOPENED && ++c->calls % EVERY == 0;
}

void ep_choice_watch_note(ep_choice *c, int64_t ns) {
    if (!c->seen++ || ns < c->least_ns) c->least_ns = ns;
    if (c->seen < WINDOW) return;
    double pace = (double)(c->least_ns + SLACK_NS) / (best(c, c->kept) + SLACK_NS), sizes = c->varied ? 2 : 1;
    c->seen = 0;
    c->again = c->doubtful || (c->least_ns && (pace > far_worse * sizes || pace * sizes < far_better));
}

void ep_choice_reopen(ep_choice *c) {
    c->decided = c->again = false;
    c->calls = c->seen = 0;
    c->reopened++;
    memset(c->offered, 0, sizeof c->offered);
    forget_samples(c);
}

bool ep_choice_uses(const ep_choice *c, int unit, ep_runner who) {
    if (c->kept != EP_RUN_MIXED) return c->kept == who;
    return unit >= 0 && unit < c->unit_count && c->units[unit].kept == who;
}
