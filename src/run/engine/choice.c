/* Samples in turn until all ways have enough. What seems to lose to eager, and compiled ways that are close to each other,
 * are looked at longer: the best of more samples says less about the machine's other work. */
#include "choice.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"

/* A reading of the clock is good to some 20 ns. Work below SHORT_NS by its first sample is run MANY times a sample. */
enum { WARM = 1, ENOUGH = 4, DOUBT = 12, SHORT_NS = 4000, MANY = 32, SLACK_NS = 100, SLACK_MANY_NS = 3 };

void ep_choice_settle(ep_choice *c, const char *why) {
    c->decided = true;
    c->kept = EP_RUN_COMPILED;
    snprintf(c->why, sizeof c->why, "%s", why);
}

void ep_choice_offer(ep_choice *c, ep_runner who) {
    if (c->offered[who]) return;
    c->offered[who] = true;
    c->decided = false;
    memset(c->count, 0, sizeof c->count);
    memset(c->best_batch, 0, sizeof c->best_batch);
}

void ep_choice_refuse(ep_choice *c, const char *why) {
    c->refused = why;
}

static bool takes_part(const ep_choice *c, ep_runner who) {
    if (who == EP_RUN_STEPPED && c->refused) return false;
    return who == EP_RUN_COMPILED || who == EP_RUN_EAGER || c->offered[who];
}

ep_runner ep_choice_next(const ep_choice *c) {
    if (c->decided) return c->kept;
    ep_runner next = EP_RUN_COMPILED;
    for (ep_runner i = 0; i < EP_RUNNERS; i++)
        if (takes_part(c, i) && c->count[i] < c->count[next]) next = i;
    return next;
}

static void say_time(ep_text *t, const char *who, int64_t ns) {
    bool ms = ns >= 1000000;
    ep_text_printf(t, "%s %.2f %s", who, (double)ns * (ms ? 1e-6 : 1e-3), ms ? "ms" : "us");
}

static void say_way(ep_text *t, const ep_choice *c) {
    bool attached = c->offered[EP_RUN_ATTACHED], stepped = c->offered[EP_RUN_STEPPED];
    if (c->kept == EP_RUN_ATTACHED)
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
    if (attached) say_time(&t, "with epilogue", c->best_ns[EP_RUN_ATTACHED]);
    if (stepped) say_time(&t, attached ? ", with post-ops" : "with post-ops", c->best_ns[EP_RUN_STEPPED]);
    say_time(&t, attached || stepped ? ", without" : "compiled", c->best_ns[EP_RUN_COMPILED]);
    say_time(&t, ", eager", c->best_ns[EP_RUN_EAGER]);
    ep_text_printf(&t, " (best of %d)", samples);
}

static double best(const ep_choice *c, ep_runner who) {
    return c->best_batch[who] ? (double)c->best_batch[who] / MANY : (double)c->best_ns[who];
}

int ep_choice_repeats(const ep_choice *c, ep_runner who) {
    return c->count[who] > WARM && c->best_ns[who] < SHORT_NS ? MANY : 1;
}

/* The fastest of the compiled ways. An epilogue has to be worth its packed weights. */
static ep_runner best_compiled(const ep_choice *c) {
    ep_runner who = EP_RUN_COMPILED;
    if (takes_part(c, EP_RUN_STEPPED) && best(c, EP_RUN_STEPPED) < 0.99 * best(c, who)) who = EP_RUN_STEPPED;
    if (takes_part(c, EP_RUN_ATTACHED) && best(c, EP_RUN_ATTACHED) < 0.97 * best(c, who)) who = EP_RUN_ATTACHED;
    return who;
}

/* Is another compiled way within a tenth of the best one? */
static bool is_close(const ep_choice *c, ep_runner kept) {
    for (ep_runner i = 0; i < EP_RUNNERS; i++)
        if (i != kept && i != EP_RUN_EAGER && takes_part(c, i) && best(c, i) * 0.9 < best(c, kept)) return true;
    return false;
}

void ep_choice_sample(ep_choice *c, ep_runner who, int64_t ns) {
    if (c->decided) return;
    int repeats = ep_choice_repeats(c, who), n = c->count[who]++;
    if (n < WARM) return; /* the first call of anything pays for what later ones do not */
    if (repeats > 1) {
        if (!c->best_batch[who] || ns < c->best_batch[who]) c->best_batch[who] = ns;
        ns = (ns + repeats / 2) / repeats;
    }
    if (n == WARM || ns < c->best_ns[who]) c->best_ns[who] = ns;
    int least = c->count[EP_RUN_COMPILED];
    for (ep_runner i = 0; i < EP_RUNNERS; i++)
        if (takes_part(c, i) && c->count[i] < least) least = c->count[i];
    if (least < ENOUGH + WARM) return;
    ep_runner compiled = best_compiled(c);
    bool many = c->best_batch[compiled] && c->best_batch[EP_RUN_EAGER];
    bool loses = best(c, compiled) > best(c, EP_RUN_EAGER) * 1.05 + (many ? SLACK_MANY_NS : SLACK_NS);
    if ((loses || is_close(c, compiled)) && least < DOUBT + WARM) return;
    c->decided = true;
    c->kept = loses ? EP_RUN_EAGER : compiled;
    say_why(c, least - WARM);
}
